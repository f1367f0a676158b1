"""Leaks of FedVS through masks that are reused, too small, zero, or not random."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.field.sampling import SeededSource
from securevfl.protocols.base.protocol import Protocol
from securevfl.testing.leaks.planting import (
    Change,
    Leak,
    changed,
    clients,
    coefficients,
    masks,
    messages,
    redraw,
)
from securevfl.testing.runs import Outcome

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


def rho(client: Any, round: int, place: int) -> bool:
    """Coefficients of rho."""
    return round > 0 and place == 1


def from_source(make: Callable[[Any], Any]) -> Any:
    """Plant whose masks come from another source than the operating system."""

    def plant(protocol: Protocol, parties: dict[int, Any]) -> None:
        for one in clients(protocol, parties):
            _replace(one, make)

    return plant


def _replace(client: Any, make: Callable[[Any], Any]) -> None:
    kept: list[Any] = []

    def uniform(shape: tuple[int, ...]) -> np.ndarray:
        if not kept:
            kept.append(make(client))
        drawn: np.ndarray = client.public.field.random(shape, kept[0])
        return drawn

    client.uniform = uniform


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


def _earlier_rho(after: int) -> Callable[[Any], Change]:
    def of(client: Any) -> Change:
        kept: list[np.ndarray] = []

        def change(drawn: np.ndarray, round: int, place: int) -> np.ndarray:
            if round == 0 or place != 1:
                return drawn
            if kept and round >= after and kept[0].shape == drawn.shape:
                return kept[0].copy()
            kept[:] = [drawn.copy()]
            return drawn

        return change

    return of


def _repeated_rows(drawn: np.ndarray) -> np.ndarray:
    half = drawn.shape[1] // 2
    drawn[:, half : 2 * half] = drawn[:, :half]
    return drawn


def _last_row(drawn: np.ndarray) -> np.ndarray:
    drawn[:, -1] = 0
    return drawn


def _some_zeros(drawn: np.ndarray) -> np.ndarray:
    drawn[..., ::8] = 0
    return drawn


def _half(drawn: np.ndarray) -> np.ndarray:
    halved: np.ndarray = drawn >> drawn.dtype.type(1)
    return halved


def _two_columns_alike(drawn: np.ndarray) -> np.ndarray:
    drawn[..., 1] = drawn[..., 0]
    return drawn


def _no_top(drawn: np.ndarray) -> np.ndarray:
    drawn[-1] = 0
    return drawn


def _of_data(client: Any) -> SeededSource:
    return SeededSource(hashlib.sha256(client.features["train"].tobytes()).digest())


def _of_seed(client: Any) -> SeededSource:
    return SeededSource(client.stream("masks").bytes(32))


def _of_secret_seed(client: Any) -> SeededSource:
    return SeededSource(client.secret_stream("masks").bytes(32))


def _of_time(client: Any) -> SeededSource:
    return SeededSource(int(client.now * 1000) * 100 + client.index)


# -- seeing them ---------------------------------------------------------------------------------


def _first_column_of_v_is_z(outcome: Outcome) -> bool:
    z, v = masks(outcome, "train-data", 1), masks(outcome, "model", 1, 1)
    return np.array_equal(v[..., 0], z[:, 0, :])


def z_zero(row: int | None, *only: int) -> Callable[[Outcome], bool]:
    """Whether Z of these clients is zero, in one row or in all."""

    def shows(outcome: Outcome) -> bool:
        peers = outcome.protocol.peers()
        found = [masks(outcome, "train-data", peers[n]) for n in only]
        return not any((one if row is None else one[:, row]).any() for one in found)

    return shows


def v_zero(client: int, round: int) -> Callable[[Outcome], bool]:
    """Whether V of a client is zero in a round."""
    return lambda outcome: (
        not masks(outcome, "model", outcome.protocol.peers()[client], round).any()
    )


def _halves(outcome: Outcome) -> bool:
    top = outcome.protocol.code.field.modulus // 2  # type: ignore[attr-defined]
    return all(int(masks(outcome, "train-data", n).max()) <= top for n in range(3))


def _rows_repeat(outcome: Outcome) -> bool:
    z = masks(outcome, "train-data", 1)
    half = z.shape[1] // 2
    return np.array_equal(z[:, :half], z[:, half : 2 * half])


def _columns_repeat(outcome: Outcome) -> bool:
    v = masks(outcome, "model", 1, 1)
    return np.array_equal(v[..., 0], v[..., 1])


def _dealt(outcome: Outcome) -> list[tuple[int, int]]:
    found = {(int(one["sender"]), int(one["round"])) for one in messages(outcome, "mask")}
    return sorted(found)


def _rho_again(outcome: Outcome) -> bool:
    dealt = _dealt(outcome)
    seen = [coefficients(outcome, *one).tobytes() for one in dealt]
    return len(set(seen)) < len(seen)


def _rho_low(outcome: Outcome) -> bool:
    return not any(coefficients(outcome, *one)[-1].any() for one in _dealt(outcome))


def _rho_sparse(outcome: Outcome) -> bool:
    return not any(coefficients(outcome, *one)[..., ::8].any() for one in _dealt(outcome))


def seeded_z(make: Callable[[Any], Any]) -> Callable[[Outcome], bool]:
    """Whether Z of client 1 is what a source gives that another party can make."""

    def shows(outcome: Outcome) -> bool:
        party: Any = outcome.parties[1]
        z = masks(outcome, "train-data", 1)
        again = party.public.field.random(z.shape, make(party))
        return np.array_equal(z, again)

    return shows


def _seeded_at_time_zero(outcome: Outcome) -> bool:
    return seeded_z(lambda client: SeededSource(client.index))(outcome)


_REUSED, _SMALL, _ZERO = "masks reused", "masks of a smaller range", "masks that are zero"
_KNOWN, _DEALER = "masks that follow from something", "a dealer that does not deal what it must"


def _leak(name: str, cause: str, says: str, plant: Any, breaks: Any, shows: Any,
          **options: Any) -> Leak:  # fmt: skip
    made = changed("fedvs", plant)
    return Leak(f"fedvs: {name}", "fedvs", cause, says, made, breaks, options, shows=shows)


LEAKS = (
    _leak("V is Z", _REUSED, "The first column of V is the first row of Z.",
          each(_same_as_z), (*CLIENTS_DATA, *CLIENTS_MODEL), _first_column_of_v_is_z),
    _leak("rho of an earlier round", _REUSED, "Each dealer deals its first rho again.",
          each(_earlier_rho(2)), UPLOADS, _rho_again),
    _leak("rho of an earlier round, late", _REUSED,
          "From round 4 on each dealer deals an earlier rho again.",
          each(_earlier_rho(4)), UPLOADS, _rho_again, rounds=8),
    _leak("rows of Z repeat", _REUSED, "The second half of the rows has the masks of the first.",
          when(data_mask, _repeated_rows), CLIENTS_DATA, _rows_repeat),
    _leak("two columns of V alike", _REUSED, "Two units of the model have the same masks.",
          when(model_mask, _two_columns_alike), CLIENTS_MODEL, _columns_repeat),
    _leak("Z of half range", _SMALL, "Z is below p/2.", when(data_mask, _half), CLIENTS_DATA,
          _halves),
    _leak("one row without Z", _ZERO, "The last row of each segment has no mask.",
          when(data_mask, _last_row), CLIENTS_DATA, z_zero(-1, 0, 1, 2)),
    _leak("the last client without Z", _ZERO, "The last client's data have no mask.",
          when(lambda c, r, _: r == 0 and c.index == c.peers[-1], np.zeros_like), CLIENTS_DATA,
          z_zero(None, -1)),
    _leak("client 0 without V", _ZERO, "Client 0's models have no mask.",
          when(lambda c, r, p: model_mask(c, r, p) and c.index == 0, np.zeros_like),
          CLIENTS_MODEL, v_zero(0, 1)),
    _leak("V zero from round 4", _ZERO, "From round 4 on no model has a mask.",
          when(lambda c, r, p: model_mask(c, r, p) and r >= 4, np.zeros_like), CLIENTS_MODEL,
          v_zero(1, 4), rounds=8),
    _leak("Z from the data", _KNOWN, "Z is a keystream whose key is a hash of the client's data.",
          from_source(_of_data), CLIENTS_DATA, seeded_z(_of_data)),
    _leak("masks from the seed", _KNOWN, "All masks follow from the run's seed.",
          from_source(_of_seed), (*CLIENTS_DATA, *CLIENTS_MODEL, *UPLOADS), seeded_z(_of_seed)),
    _leak("masks from the secret seed", _KNOWN,
          "All masks follow from the stream that draws the weights too.",
          from_source(_of_secret_seed), (*CLIENTS_DATA, *CLIENTS_MODEL), seeded_z(_of_secret_seed)),
    _leak("masks from the clock", _KNOWN, "All masks follow from the time of the first draw.",
          from_source(_of_time), (*CLIENTS_DATA, *CLIENTS_MODEL, *UPLOADS), _seeded_at_time_zero),
    _leak("masks from 32 bits", _KNOWN, "All masks of a client follow from 32 random bits.",
          from_source(lambda _: SeededSource(os.urandom(4))), (*CLIENTS_DATA, *CLIENTS_MODEL),
          None),
    _leak("rho one degree short", _DEALER, "All dealers leave out the highest power.",
          when(rho, _no_top), (("server + T clients", "features"),), _rho_low),
    _leak("rho with columns of zeros", _DEALER, "Each eighth column of rho is zero.",
          when(rho, _some_zeros), UPLOADS, _rho_sparse),
)  # fmt: skip
