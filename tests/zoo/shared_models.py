"""Leaks of coded_split that its specification names: each breaks one hypothesis of its theorem."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.engine.streams import keyed_stream
from securevfl.field import LagrangeCode
from securevfl.field.lagrange import interpolation_matrix
from securevfl.field.prss import mask_streams
from securevfl.protocols.base.mask_keys import as_array
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.coded_split.dealing import Dealing
from securevfl.protocols.coded_split.messages import NO_STEPS, Label, Request, joined
from securevfl.protocols.coded_split.parameters import UPLOAD
from securevfl.testing.runs import Outcome
from tests.zoo.planting import (
    Leak,
    Pairs,
    Plant,
    begun,
    changed,
    clients,
    masks,
    messages,
    redraw,
    tap,
)

HOLDERS: Pairs = tuple(("T clients", asset) for asset in ("features", "model"))
STEPS: Pairs = (*HOLDERS, ("T clients", "labels"))
SERVERS: Pairs = tuple(
    (who, asset) for who in ("server", "server + T clients") for asset in ("features", "model")
)
CERTAIN = frozenset({"VIOLATED"})

_MASKS, _KEYS, _LABELS = "masks of uploads", "keys in wrong hands", "labels used twice"
_STEPS, _SHARES = "steps that are not hidden", "shares that hide nothing"


def each(plant: Callable[[Any], None]) -> Plant:
    """Plant that changes every holder."""

    def every(protocol: Protocol, parties: dict[int, Any]) -> None:
        for one in clients(protocol, parties):
            plant(one)

    return every


def at(index: int, plant: Callable[[Any], None]) -> Plant:
    """Plant that changes one party."""
    return lambda protocol, parties: plant(parties[index])


def believed(plant: Plant) -> Plant:
    """Plant beside which the server believes sums beyond their range, which the fault makes."""

    def both(protocol: Protocol, parties: dict[int, Any]) -> None:
        parties[SERVER].check_range = lambda *rest: None
        plant(protocol, parties)

    return both


# -- the faults -----------------------------------------------------------------------------------


def _psi(holder: Any, part: str, rows: np.ndarray) -> np.ndarray:
    product: np.ndarray = holder.public.field.matmul(
        holder.data_shares[part][rows], holder.model[0]
    )
    return product


def _unmasked(holder: Any) -> None:
    holder.upload = lambda label, rows, round: holder.send(
        SERVER, "embedding", _psi(holder, label.part, rows), round=round
    )


def _relabelled(holder: Any, told: Callable[[Label, np.ndarray], bytes]) -> None:
    """Masks are drawn under other labels than they must be."""

    def upload(label: Label, rows: np.ndarray, round: int) -> None:
        psi = _psi(holder, label.part, rows)
        masked = holder.public.prss.mask(holder.index, holder.keys, told(label, rows), psi, UPLOAD)
        holder.send(SERVER, "embedding", masked, round=round)

    holder.upload = upload


def _one_label(holder: Any) -> None:
    first = holder.public.batches["train"].draw(1)
    _relabelled(holder, lambda label, rows: Label("train", 1).told(first, NO_STEPS))


def _without_steps(holder: Any) -> None:
    _relabelled(holder, lambda label, rows: label.told(rows, NO_STEPS))


def _other_mask(holder: Any, *, first: int, times_p: bool) -> None:
    """Masks of the keys from a first one on, or without the factor P."""
    public = holder.public

    def upload(label: Label, rows: np.ndarray, round: int) -> None:
        psi = _psi(holder, label.part, rows)
        rho = _of_keys(holder, label.told(rows, holder.model[3]), psi.shape, first)
        if times_p:
            rho = public.field.multiply(public.code.vanishing[holder.index], rho)
        holder.send(SERVER, "embedding", public.field.add(psi, rho), round=round)

    holder.upload = upload


def _of_keys(holder: Any, told: bytes, shape: tuple[int, ...], first: int) -> np.ndarray:
    """Part of rho that a holder's keys from a first one on make."""
    public, keys = holder.public, {key: one for key, one in holder.keys.items() if key >= first}
    unknown = mask_streams(public.code, UPLOAD)
    found: np.ndarray = public.prss.part(holder.index, keys, told, shape, unknown)
    return found


def _first_with_one(protocol: Any) -> int:
    """Key of the first block with holder 1 that holder 0 deals."""
    return int(next(key for key in protocol.prss.dealt(0) if 1 in protocol.prss.blocks[key]))


def _to_a_member(protocol: Any, parties: dict[int, Any]) -> None:
    """Holder 0 sends holder 1 a key of a block with holder 1, in one message with the others."""
    place = protocol.prss.dealt(0).index(_first_with_one(protocol))
    drawn: list[bytes] = []

    def change(one: dict[str, Any]) -> None:
        if one["kind"] == "own-keys":
            drawn[:] = one["payload"]
        if (one["kind"], one["to"]) == ("key", 1):
            one["payload"] = np.concatenate([one["payload"], as_array([drawn[place]])])

    tap(parties[0], change)
    collect = parties[1].collect

    async def collecting(kind: str, **more: Any) -> Any:
        found = await collect(kind, **more)
        return {n: rows[:-1] for n, rows in found.items()} if kind == "key" else found

    parties[1].collect = collecting


def _drawn_anew(holder: Any) -> None:
    run = holder.run

    async def running() -> None:
        if holder.returned:
            holder.keys = {key: holder.secret_bytes(32) for key in holder.keys}
        await run()

    holder.run = running


class _SameMasks(Dealing):
    """Deals all steps with the masks of the first."""

    def seeds(self, secret: bytes, number: int, step: np.ndarray) -> list[bytes]:
        """The seeds of step 1."""
        return super().seeds(secret, 1, np.zeros_like(step))


def _reused(server: Any) -> None:
    server.dealing = _SameMasks(server.public.code)


def _in_clear(server: Any) -> None:
    def change(one: dict[str, Any]) -> None:
        if one["kind"] == "deal":
            step = server.public.field.reduce(server.log[-1][0].astype(np.int64))
            one["payload"] = one["payload"][0], step

    tap(server, change)


class _PlainDigests(Dealing):
    """Digests of steps that anybody can compute from the step."""

    def digest(self, secret: bytes, number: int, step: np.ndarray) -> bytes:
        """A hash without a key."""
        return hashlib.sha256(np.ascontiguousarray(step, np.int64).tobytes()).digest()


def _plain_digests(server: Any) -> None:
    server.dealing = _PlainDigests(server.public.code)


def _public_weights(protocol: Protocol, index: int, like: np.ndarray) -> np.ndarray:
    stream = keyed_stream(protocol.seed, index, "first weights")
    drawn: np.ndarray = (0.2 * stream.uniform(-1, 1, like.shape)).astype(like.dtype)
    return drawn


def _from_the_seed(protocol: Protocol, parties: dict[int, Any]) -> None:
    for one in clients(protocol, parties):
        if hasattr(one, "weights"):
            one.weights = _public_weights(protocol, one.index, one.weights)


def _equal_masks(holder: Any) -> None:
    redraw(holder, lambda drawn, round, place: np.repeat(drawn[:1], len(drawn), axis=0))


def _on_a_data_point(protocol: Any) -> None:
    code: LagrangeCode = protocol.public.code
    made = LagrangeCode(
        code.field,
        parties=code.parties,
        segments=code.segments,
        privacy=code.privacy,
        degree=code.degree,
    )
    made.alphas = (*made.alphas[:-1], made.betas[0])
    protocol.public = replace(protocol.public, code=made)


def _stale(holder: Any) -> None:
    """Uploads from its share as it was before the last step."""
    apply, upload = holder.apply, holder.upload
    old: list[Any] = [None]

    def applying(step: int, share: np.ndarray, digest: bytes) -> None:
        old[0] = holder.model[0]
        apply(step, share, digest)

    def uploading(label: Label, rows: np.ndarray, round: int) -> None:
        now = holder.model
        if old[0] is not None:
            holder.model = (old[0], *now[1:])
        upload(label, rows, round)
        holder.model = now

    holder.apply, holder.upload = applying, uploading


def _twice(holder: Any) -> None:
    """Applies step 1 twice."""
    apply, field = holder.apply, holder.public.field
    holder.apply = lambda step, share, digest: apply(
        step, field.add(share, share) if step == 1 else share, digest
    )


def _bare_release(holder: Any) -> None:
    def release() -> None:
        start = 0
        for n, size in enumerate(holder.public.sizes):
            share = holder.model[0][start : start + size]
            holder.send(n, "release", share, round=holder.public.config.rounds)
            start += size

    holder.release = release


def _two_batches(protocol: Protocol, parties: dict[int, Any]) -> None:
    """The server names two batches by one number, and masks do not depend on the batch."""
    for one in clients(protocol, parties):
        _answers_all(one)
    server = parties[SERVER]
    broadcast = server.broadcast

    def asking(kind: str, payload: Any, **more: Any) -> None:
        broadcast(kind, payload, **more)
        if kind == "request":
            broadcast(kind, Request("test", payload.piece, payload.rows[::-1].copy()), **more)

    server.broadcast = asking


def _answers_all(holder: Any) -> None:
    """Any rows under any number, and masks that do not depend on the rows."""
    take, no_rows = holder.take, np.empty(0, np.uint32)

    def taking(kind: str, step: int, payload: Any) -> None:
        if kind == "request":
            holder.asked = payload
        else:
            take(kind, step, payload)

    def told(label: Label, rows: np.ndarray) -> bytes:
        return label.told(no_rows if label.part == "test" else rows, holder.model[3])

    holder.take = taking
    _relabelled(holder, told)


# -- seeing them ----------------------------------------------------------------------------------


def _uploads(outcome: Outcome, round: int) -> dict[int, list[np.ndarray]]:
    found: dict[int, list[np.ndarray]] = {}
    for one in messages(outcome, "embedding", round):
        found.setdefault(int(one["sender"]), []).append(one["payload"])
    return found


def _share(outcome: Outcome, holder: int, steps: int, *, twice: int = 0) -> np.ndarray:
    """W(alpha_j) after some steps, from what the holder ended with; one step counted twice."""
    made: Any = outcome.protocol
    party: Any = outcome.parties[holder]
    server: Any = outcome.parties[SERVER]
    field, values = made.public.field, party.model[0]
    first = steps + 1
    for t in range(first, party.model[1] + 1):
        rows = made.public.batches["train"].draw(t)
        dealt = server.dealing.shares(server.secret, t, server.log[t - 1])[holder]
        values = field.subtract(values, field.matmul(party.data_shares["train"][rows].T, dealt))
    if twice:
        rows = made.public.batches["train"].draw(twice)
        dealt = server.dealing.shares(server.secret, twice, server.log[twice - 1])[holder]
        values = field.subtract(values, field.matmul(party.data_shares["train"][rows].T, dealt))
    result: np.ndarray = values
    return result


def _result(outcome: Outcome, holder: int, round: int, **more: int) -> np.ndarray:
    """psi of a holder for an upload; `steps` in the place of those that the label says."""
    made: Any = outcome.protocol
    party: Any = outcome.parties[holder]
    use = made.use_of(round)
    share = _share(outcome, holder, more.get("steps", use.steps), twice=more.get("twice", 0))
    result: np.ndarray = made.public.field.matmul(party.data_shares[use.part][use.rows], share)
    return result


def _masks_of(outcome: Outcome, round: int) -> dict[int, np.ndarray]:
    """Masks that hide the holders' results, by holder."""
    made: Any = outcome.protocol
    return {
        j: made.public.field.subtract(sent[0], _result(outcome, j, round))
        for j, sent in _uploads(outcome, round).items()
    }


def _bare(outcome: Outcome) -> bool:
    return not any(mask.any() for mask in _masks_of(outcome, 1).values())


def _same_mask(outcome: Outcome) -> bool:
    one, two = (_masks_of(outcome, round) for round in (1, 2))
    return any(np.array_equal(one[j], two[j]) for j in set(one) & set(two))


def _masked_without_steps(outcome: Outcome) -> bool:
    """Whether the second mask is the one that any other first step would have had, too."""
    made: Any = outcome.protocol
    label = made.use_of(2).label(NO_STEPS)
    return any(
        np.array_equal(mask, _expected(outcome, j, label, np.zeros_like(mask)))
        for j, mask in _masks_of(outcome, 2).items()
    )


def _label(outcome: Outcome, round: int) -> bytes:
    """The label that an upload must have."""
    made: Any = outcome.protocol
    server: Any = outcome.parties[SERVER]
    use = made.use_of(round)
    steps = enumerate(server.log[: use.steps], 1)
    found: bytes = use.label(joined(server.dealing.digest(server.secret, t, g) for t, g in steps))
    return found


def _expected(outcome: Outcome, holder: int, label: bytes, psi: np.ndarray) -> np.ndarray:
    """A holder's upload of a result under a label."""
    made: Any = outcome.protocol
    party: Any = outcome.parties[holder]
    found: np.ndarray = made.prss.mask(holder, party.keys, label, psi, UPLOAD)
    return found


def _lacks_a_key(outcome: Outcome) -> bool:
    """Whether masks are those without the first key."""
    made: Any = outcome.protocol
    code, label = made.code, _label(outcome, 1)
    return all(
        np.array_equal(
            code.field.multiply(
                code.vanishing[j], _of_keys(outcome.parties[j], label, mask.shape, 1)
            ),
            mask,
        )
        for j, mask in _masks_of(outcome, 1).items()
    )


def _fits(code: LagrangeCode, names: list[int], values: np.ndarray, count: int) -> bool:
    """Whether values lie on a polynomial with so many coefficients."""
    points = [code.alphas[j] for j in names]
    onto = interpolation_matrix(code.field, points[:count], points[count:])
    return len(names) > count and np.array_equal(
        code.field.matmul(onto, values[:count]), values[count:]
    )


def _no_factor(outcome: Outcome) -> bool:
    """Whether what hides results lies on a polynomial of the degree of rho alone."""
    made: Any = outcome.protocol
    code, found = made.code, _masks_of(outcome, 1)
    names = sorted(found)
    values = np.stack([found[j] for j in names]).reshape(len(names), -1)
    return _fits(code, names, values, code.privacy + mask_streams(code, UPLOAD))


def _member_has_it(outcome: Outcome) -> bool:
    party: Any = outcome.parties[0]
    key = party.keys.get(_first_with_one(outcome.protocol))
    return any(
        one["receiver"] == 1 and key in [row.tobytes() for row in one["payload"]]
        for one in messages(outcome, "key")
    )


def _seeds_again(outcome: Outcome) -> bool:
    one, two = (
        {int(m["receiver"]): m["payload"][1].tobytes() for m in messages(outcome, "seed", round)}
        for round in (1, 2)
    )
    return one == two


def _dealt_in_clear(outcome: Outcome) -> bool:
    server: Any = outcome.parties[SERVER]
    step = server.public.field.reduce(server.log[0][0].astype(np.int64))
    return any(np.array_equal(one["payload"][1], step) for one in messages(outcome, "deal", 1))


def _digests_are_plain(outcome: Outcome) -> bool:
    server: Any = outcome.parties[SERVER]
    plain = _PlainDigests(server.public.code).digest(b"", 1, server.log[0])
    return all(one["payload"][0] == plain for one in messages(outcome, "deal", 1))


def _known_weights(outcome: Outcome) -> bool:
    owner: Any = outcome.parties[2]
    return np.array_equal(owner.weights, _public_weights(outcome.protocol, 2, owner.weights))


def _rows_alike(outcome: Outcome) -> bool:
    z = masks(outcome, "train-data", 1)
    return np.array_equal(z[0], z[1])


def _raw_share(outcome: Outcome) -> bool:
    made: Any = outcome.protocol
    holder: Any = outcome.parties[made.code.parties - 1]
    X = made.integers(outcome.parties[1]).data["train"][0]
    start = made.public.sizes[0]
    return np.array_equal(holder.data_shares["train"][:, start : start + X.shape[1]], X)


def _of_share(outcome: Outcome, round: int, **more: int) -> bool:
    """Whether some holder's upload is its mask and the result of another share than it must be."""
    label, found = _label(outcome, round), False
    for j, sent in _uploads(outcome, round).items():
        psi = _result(outcome, j, round, **more)
        wanted = _expected(outcome, j, label, psi)
        right = np.array_equal(psi, _result(outcome, j, round))
        found |= not right and np.array_equal(sent[0], wanted)
    return found


def _doubled(outcome: Outcome) -> bool:
    """The second upload is as if step 1 were in the share once more than by the label."""
    label, j = _label(outcome, 2), 3
    sent = _uploads(outcome, 2).get(j)
    if sent is None:
        return False
    wanted = _expected(outcome, j, label, _result(outcome, j, 2, steps=1))
    once = _expected(outcome, j, label, _result(outcome, j, 2, twice=1))
    return np.array_equal(sent[0], wanted) and _ends_doubled(outcome) and not (once == wanted).all()


def _ends_doubled(outcome: Outcome) -> bool:
    """Whether holder 3's share, less each step once, is another than it was sent."""
    made: Any = outcome.protocol
    start = made.public.sizes[0]
    share = _share(outcome, 3, 0)[:start]
    sent = [
        m["payload"] for m in messages(outcome, "model") if (m["sender"], m["receiver"]) == (0, 3)
    ]
    return not np.array_equal(share, sent[0])


def _bare_models(outcome: Outcome) -> bool:
    made: Any = outcome.protocol
    found = False
    for one in messages(outcome, "release"):
        holder: Any = outcome.parties[int(one["sender"])]
        start = sum(made.public.sizes[: int(one["receiver"])])
        own = holder.model[0][start : start + len(one["payload"])]
        found |= np.array_equal(one["payload"], own)
    return found


def _one_mask_two_batches(outcome: Outcome) -> bool:
    made: Any = outcome.protocol
    last = made.config.rounds
    for j, sent in _uploads(outcome, last + 1).items():
        psi = _result(outcome, j, last + 1)
        if len(sent) > 1:
            difference = made.public.field.subtract(sent[0], sent[1])
            return np.array_equal(difference, made.public.field.subtract(psi, psi[::-1]))
    return False


def _leak(name: str, cause: str, says: str, plant: Plant, breaks: Pairs, shows: Any,
          attributes: dict[str, Any] | None = None, **options: Any) -> Leak:  # fmt: skip
    made = changed("coded_split", plant, **(attributes or {}))
    return Leak(f"coded_split: {name}", "coded_split", cause, says, made, breaks, options, CERTAIN,
                shows)  # fmt: skip


def _nothing(protocol: Protocol, parties: dict[int, Any]) -> None:
    """The public code is changed instead."""


_SHORT = functools.partial(_other_mask, first=1, times_p=True)
_PLAIN = functools.partial(_other_mask, first=0, times_p=False)
_POINTS = {"__init__": begun("coded_split", _on_a_data_point)}

LEAKS = (
    _leak("no mask", _MASKS, "Uploads are not masked.", each(_unmasked), SERVERS, _bare),
    _leak("one stream fewer", _MASKS, "One key makes nothing of masks.", each(_SHORT),
          (("server + T clients", "features"), ("server + T clients", "model")), _lacks_a_key),
    _leak("P left out", _MASKS, "Masks are not multiplied by P.", believed(each(_PLAIN)), SERVERS,
          _no_factor),
    _leak("one label for all", _LABELS, "All uploads have the mask of the first.",
          each(_one_label), SERVERS, _same_mask),
    _leak("labels without steps", _LABELS, "Masks do not depend on the steps in the model.",
          each(_without_steps), SERVERS, _masked_without_steps),
    _leak("two batches of one label", _LABELS,
          "The server asks for two batches under one number, and masks do not depend on B.",
          _two_batches, SERVERS, _one_mask_two_batches, secure=True),
    _leak("keys drawn anew", _KEYS, "A holder that comes back draws new keys.",
          believed(each(_drawn_anew)), SERVERS, None),
    _leak("a key for a member", _KEYS, "Holder 1 is sent the key of a block with it.", _to_a_member,
          (("server + T clients", "features"), ("server + T clients", "model")), _member_has_it),
    _leak("masks of steps reused", _STEPS, "All steps are dealt with the masks of the first.",
          at(SERVER, _reused), STEPS, _seeds_again),
    _leak("steps in the clear", _STEPS, "Holders are sent the step instead of shares of it.",
          believed(at(SERVER, _in_clear)), STEPS, _dealt_in_clear),
    _leak("digests without a key", _STEPS, "Digests of steps are hashes that anybody can compute.",
          at(SERVER, _plain_digests), (("T clients", "labels"),), _digests_are_plain),
    _leak("first weights from the seed", _SHARES, "W^0 follows from the run's public seed.",
          _from_the_seed, SERVERS, _known_weights),
    _leak("Z_1 = Z_2", _SHARES, "The two masks of data and models are the same.",
          each(_equal_masks), HOLDERS, _rows_alike, privacy=2, helpers=2),
    _leak("a holder on a data point", _SHARES, "The last holder has beta_1 for its alpha.",
          _nothing, HOLDERS, _raw_share, _POINTS),
    _leak("before catching up", _SHARES, "Holder 3 uploads from a share without the last step.",
          believed(at(3, _stale)), SERVERS, lambda run: _of_share(run, 3, steps=1)),
    _leak("a step applied twice", _SHARES, "Holder 3 applies step 1 twice.",
          believed(at(3, _twice)), SERVERS, _doubled),
    _leak("release without masks", _MASKS, "Models are released in bare shares.",
          each(_bare_release), HOLDERS, _bare_models, release=True),
)  # fmt: skip
