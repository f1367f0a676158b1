"""Leaks of FedVS through masks that are reused, too small, zero, or not random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.field.prss import mask_streams
from securevfl.protocols.base.protocol import Protocol
from securevfl.testing.runs import Outcome
from tests.zoo.planting import (
    Change,
    Leak,
    changed,
    clients,
    masks,
    messages,
    redraw,
    upload_masks,
)

CLIENTS_DATA = (("T clients", "features"), ("server + T clients", "features"))
CLIENTS_MODEL = (("T clients", "model"), ("server + T clients", "model"))
UPLOADS = (
    *(("server", "features"), ("server", "model")),
    *(("server + T clients", "features"), ("server + T clients", "model")),
)


def each(change: Callable[[Any], Change]) -> Any:
    """Plant that passes what every client draws through its own change."""

    def plant(protocol: Protocol, parties: dict[int, Any]) -> None:
        for one in clients(protocol, parties):
            redraw(one, change(one))

    return plant


def when(which: Callable[[Any, int, int], bool], change: Callable[[np.ndarray], np.ndarray]) -> Any:
    """Plant that changes some draws, chosen by (client, round, place in the round)."""

    def of(client: Any) -> Change:
        return lambda drawn, round, place: change(drawn) if which(client, round, place) else drawn

    return each(of)


def data_mask(client: Any, round: int, place: int) -> bool:
    """Z."""
    return round == 0


def model_mask(client: Any, round: int, place: int) -> bool:
    """V."""
    return round > 0 and place == 0


def each_rho(change: Callable[[Any], Callable[[bytes, np.ndarray], np.ndarray]]) -> Any:
    """Plant that passes each client's values of rho through ``change(label, values)``."""

    def plant(protocol: Protocol, parties: dict[int, Any]) -> None:
        for one in clients(protocol, parties):
            _replace_rho(one, change(one))

    return plant


def _replace_rho(client: Any, change: Callable[[bytes, np.ndarray], np.ndarray]) -> None:
    own = client.rho
    client.rho = lambda told, shape: change(told, own(told, shape))


# -- the faults ----------------------------------------------------------------------------------


def _same_as_z(client: Any) -> Change:
    kept: list[np.ndarray] = []

    def change(drawn: np.ndarray, round: int, place: int) -> np.ndarray:
        if round == 0:
            kept.append(drawn)
        elif place == 0:
            drawn[..., 0] = kept[0][:, 0, :]
        return drawn

    return change


def _earlier_rho(after: int) -> Any:
    """Plant: from a round on, every sum has the label of an earlier one."""

    def of(client: Any) -> Callable[[bytes, np.ndarray], np.ndarray]:
        kept: list[np.ndarray] = []

        def change(told: bytes, values: np.ndarray) -> np.ndarray:
            if kept and client.round >= after and kept[0].shape == values.shape:
                return kept[0]
            kept[:] = [values]
            return values

        return change

    return each_rho(of)


def _one_stream_fewer(client: Any) -> None:
    client.rho = lambda told, shape: _without_first_key(client, told, shape)


def _without_first_key(client: Any, told: bytes, shape: tuple[int, ...]) -> np.ndarray:
    """rho without the streams of one key."""
    public, keys = client.public, {key: one for key, one in client.keys.items() if key}
    unknown = mask_streams(public.code, degree=2)
    found: np.ndarray = public.prss.part(client.index, keys, told, shape, unknown)
    return found


def _vanishing_left_out(client: Any) -> None:
    client.masked = lambda upload, told: client.public.field.add(
        upload, client.rho(told, upload.shape)
    )


def _label_without_the_announcement(client: Any) -> None:
    own = client.rho
    client.rho = lambda told, shape: own(b"round %d" % client.round, shape)


def _each(change: Callable[[Any], None]) -> Any:
    def plant(protocol: Protocol, parties: dict[int, Any]) -> None:
        for one in clients(protocol, parties):
            change(one)

    return plant


def _repeated_rows(drawn: np.ndarray) -> np.ndarray:
    half = drawn.shape[1] // 2
    drawn[:, half : 2 * half] = drawn[:, :half]
    return drawn


def _half(drawn: np.ndarray) -> np.ndarray:
    halved: np.ndarray = drawn >> drawn.dtype.type(1)
    return halved


# -- seeing them ---------------------------------------------------------------------------------


def _first_column_of_v_is_z(outcome: Outcome) -> bool:
    z, v = masks(outcome, "train-data", 1), masks(outcome, "model", 1, 1)
    return np.array_equal(v[..., 0], z[:, 0, :])


def v_zero(client: int, round: int) -> Callable[[Outcome], bool]:
    """Test whether V of a client is zero in a round."""
    return lambda outcome: (
        not masks(outcome, "model", outcome.protocol.peers()[client], round).any()
    )


def halves(outcome: Outcome) -> bool:
    """Whether no mask of the data is above half the modulus."""
    top = outcome.protocol.code.field.modulus // 2  # type: ignore[attr-defined]
    return all(int(masks(outcome, "train-data", n).max()) <= top for n in range(3))


def _rows_repeat(outcome: Outcome) -> bool:
    z = masks(outcome, "train-data", 1)
    half = z.shape[1] // 2
    return np.array_equal(z[:, :half], z[:, half : 2 * half])


def _rho_again(outcome: Outcome) -> bool:
    rounds = range(1, 1 + len(outcome.losses))
    seen = [upload_masks(outcome, round)[0].tobytes() for round in rounds]
    return len(set(seen)) < len(seen)


def _rho_lacks_a_key(outcome: Outcome) -> bool:
    """Whether masks are those without the first key."""
    made: Any = outcome.protocol
    batch, attempt = (
        next(iter(messages(outcome, kind, 1)))["payload"] for kind in ("round", "attempt")
    )
    told, field = made.told(1, batch, attempt), made.code.field
    return all(
        np.array_equal(
            field.multiply(
                made.code.vanishing[n], _without_first_key(outcome.parties[n], told, mask.shape)
            ),
            mask,
        )
        for n, mask in upload_masks(outcome, 1).items()
    )


def _decodes_to_noise(round: int) -> Callable[[Outcome], bool]:
    """Test whether the masks of a round are no packed sharing of zero."""

    def shows(outcome: Outcome) -> bool:
        code: Any = outcome.protocol.code  # type: ignore[attr-defined]
        masks = upload_masks(outcome, round)
        decoded = code.decode(np.stack(list(masks.values())), tuple(masks), degree=2)
        return bool(decoded.any())

    return shows


def _masks_without_announcement(outcome: Outcome) -> bool:
    """Whether a client's mask follows from its keys and the round's number alone."""
    client: Any = outcome.parties[0]
    mask = upload_masks(outcome, 1)[0]
    prss, field = client.public.prss, client.public.field
    unknown = mask_streams(client.public.code, degree=2)
    rho = prss.value(0, client.keys, b"round 1", mask.shape, unknown)
    return np.array_equal(field.multiply(client.public.code.vanishing[0], rho), mask)


_REUSED, _SMALL, _ZERO = "masks reused", "masks of a smaller range", "masks that are zero"
_KEYS = "keys, labels and streams of upload masks"


def _leak(name: str, cause: str, says: str, plant: Any, breaks: Any, shows: Any,
          **options: Any) -> Leak:  # fmt: skip
    made = changed("fedvs", plant)
    return Leak(f"fedvs: {name}", "fedvs", cause, says, made, breaks, options, shows=shows)


LEAKS = (
    _leak(
        "V is Z",
        _REUSED,
        "The first column of V is the first row of Z.",
        each(_same_as_z),
        (*CLIENTS_DATA, *CLIENTS_MODEL),
        _first_column_of_v_is_z,
    ),
    _leak(
        "label used twice",
        _REUSED,
        "All uploads have the mask of the first round.",
        _earlier_rho(2),
        UPLOADS,
        _rho_again,
    ),
    _leak(
        "rows of Z repeat",
        _REUSED,
        "The second half of the rows has the masks of the first.",
        when(data_mask, _repeated_rows),
        CLIENTS_DATA,
        _rows_repeat,
    ),
    _leak(
        "Z of half range", _SMALL, "Z is below p/2.", when(data_mask, _half), CLIENTS_DATA, halves
    ),
    _leak(
        "client 0 without V",
        _ZERO,
        "Client 0's models have no mask.",
        when(lambda c, r, p: model_mask(c, r, p) and c.index == 0, np.zeros_like),
        CLIENTS_MODEL,
        v_zero(0, 1),
    ),
    _leak(
        "V zero from round 4",
        _ZERO,
        "From round 4 on no model has a mask.",
        when(lambda c, r, p: model_mask(c, r, p) and r >= 4, np.zeros_like),
        CLIENTS_MODEL,
        v_zero(1, 4),
        rounds=8,
    ),
    _leak(
        "one stream fewer",
        _KEYS,
        "One key makes nothing of rho.",
        _each(_one_stream_fewer),
        (("server + T clients", "features"),),
        _rho_lacks_a_key,
        segments=2,
    ),
    _leak(
        "P left out",
        _KEYS,
        "Masks do not vanish at the data points.",
        _each(_vanishing_left_out),
        UPLOADS,
        _decodes_to_noise(1),
    ),
    _leak(
        "hash of the announcement left out",
        _KEYS,
        "Masks follow from the keys and the number of the round alone.",
        _each(_label_without_the_announcement),
        UPLOADS,
        _masks_without_announcement,
    ),
)
