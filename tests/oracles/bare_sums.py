"""Entries of the summed embedding to which too few clients add: knowing the sum is knowing these.

A claim supposes that the sums may be known. Where an entry has few terms, it tells these, whatever
hides the rest. Clients have T + 2 terms in each entry, at first and when a run ends, and the server
steps with sums of whole embeddings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from securevfl.engine.network import Sending
from securevfl.engine.party import SERVER
from securevfl.engine.simulation.simulator import Simulation
from securevfl.models.split import Centre
from securevfl.planning.sums import few_in_residues, steps_of_columns
from securevfl.protocols.base.coded import CodedProtocol, SharedModels
from securevfl.protocols.base.messages import MessageKey
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.split import SplitProtocol
from securevfl.protocols.coded_split.quantisation import first_model, segments_of
from securevfl.runs.threads import one_thread
from securevfl.verified import bare_of
from tests.oracles.stand_ins import in_place_of
from tests.oracles.traffic import Declared

_NOTHING = 1e-6  # of the largest part: rounding takes away what is less
_LITTLE = 1e-2  # of the largest part, for one that was ten times as much at first
_ROWS = 2000
_APART = 10  # times: first weights are drawn alike, and networks of one kind make parts alike
_FAR = 0.25  # of the largest entry's size
_BITS = 6  # of numbers: with fewer rounding moves some entries further
_TOO_FEW = 4  # bits, with fewer of which it moves them so far that nothing can be told


def bare_at_first(made: Protocol, parties: Mapping[int, Any]) -> str:
    """Entries with fewer terms than T + 2 by first models, in words; empty for none.

    A client whose columns are constant adds nothing to any entry.
    """
    parts = parts_of(made, parties)
    if parts is None:
        return ""
    varied = parts > _NOTHING
    needed = min(_needed(made), varied.any(1).sum())
    return _words(varied, np.flatnonzero(varied.sum(0) < needed), needed)


def few_in_low_digits(
    made: CodedProtocol | SharedModels, models: Iterable[Mapping[int, np.ndarray]]
) -> str:
    """Clients that alone are in the low digits of exact sums, in words; empty for none.

    Parameters
    ----------
    made : CodedProtocol or SharedModels
        With the columns that are looked at.
    models : iterable of mapping
        By client W-bar of a sum, (columns, h) field elements.
    """
    columns, needed, field = steps_of_columns(made), made.code.privacy + 2, made.code.field
    alone = {n: math.gcd(*own.tolist()) for n, own in columns.items()}
    parts = (
        {n: _step(columns[n], field.signed(model)) for n, model in each.items()} for each in models
    )
    return next(filter(None, (few_in_residues(one, needed) for one in (alone, *parts))), "")


def _step(columns: np.ndarray, weights: np.ndarray) -> int:
    """Number by multiples of which products of rows with weights differ, whatever the rows are.

    Parameters
    ----------
    columns : ndarray of int64, (columns,)
        Steps of the columns.
    weights : ndarray of int64, (columns, h)
    """
    of_weights = np.gcd.reduce(np.abs(weights), axis=1)
    pairs = zip(columns.tolist(), of_weights.tolist(), strict=True)
    return math.gcd(*(step * weight for step, weight in pairs))


def apart_at_first(made: Protocol, parties: Mapping[int, Any]) -> str:
    """Clients whose embeddings vary far more than their columns do, beside those of the others.

    By first models, which are drawn alike, so that the sum is nearly of these clients. The mean
    variance of an entry is that of the columns times that of a weight, however columns depend on
    each other.
    """
    sizes = {}
    for n in (n for n in made.peers() if n in parties and n < made.data.parties):
        found = _variances(made, n, parties[n])
        if found is None:
            return ""
        columns, entries = found
        if columns > 0 and entries > 0:
            sizes[n] = math.sqrt(entries / columns)
    needed = min(_needed(made), len(sizes))
    large = [n for n, size in sizes.items() if size > max(sizes.values()) / _APART]
    if len(large) >= needed:
        return ""
    return (
        f"embeddings of clients {large} are more than {_APART} times as large beside their columns "
        f"as those of the others, so that the sum is nearly theirs; {needed} are needed"
    )


def _variances(made: Protocol, client: int, party: Any) -> tuple[float, float] | None:
    """Mean variance over rows of a client's columns, and of its entries; None if it has none."""
    if isinstance(made, SharedModels):
        data, model = integers_of(made, party)
        rows = made.code.field.signed(np.concatenate(data)).astype(np.float64)
        columns, entries = rows, rows @ made.code.field.signed(model).astype(np.float64)
    else:
        columns = made.data.train[client][:_ROWS].astype(np.float64)
        entries = made.embed(party, made.data.train[client][:_ROWS])
        if entries is None:
            return None
    return float(columns.var(axis=0).mean()), float(np.var(entries, axis=0).mean())


def bare_at_last(made: Protocol, first: np.ndarray | None, parties: Mapping[int, Any]) -> str:
    """Entries to which fewer clients than T + 2, and than at first, add a hundredth of the largest.

    Parameters
    ----------
    made : Protocol
    first : ndarray, (N, h)
        `parts_of` the first models.
    parties : mapping of int to Party
        At the end of a run.
    """
    last = None if first is None else parts_of(made, parties)
    if first is None or last is None:
        return ""
    kept, needed = last > _LITTLE, _needed(made)
    had = np.minimum(needed, (first > 10 * _LITTLE).sum(0))
    return _words(kept, np.flatnonzero(kept.sum(0) < had), needed, " when a run ends")


def parts_of(made: Protocol, parties: Mapping[int, Any]) -> np.ndarray | None:
    """Spread of each client's entries over rows as parts of the largest, (N, h) in [0, 1].

    None for clients that embed nothing: only of a protocol of others, which no proof is about.
    """
    clients = [n for n in made.peers() if n in parties and n < made.data.parties]
    found = [_varied(made, n, parties[n]) for n in clients]
    entries = [one for one in found if one is not None]
    if len(entries) < len(found) or not entries:
        return None
    spread = np.stack(entries)
    largest = spread.max(axis=0)
    parts: np.ndarray = spread / np.where(largest > 0, largest, 1)
    return parts


def other_sums(made: Protocol) -> str:
    """A step with another number than the mean of the embeddings of whom it is of, in words.

    Those that a gradient is sent to are whose embeddings were summed. A run is made in which nobody
    is late. Nothing is said of protocols with noise, of numbers with fewer than 4 bits, and of
    models that nobody has.
    """
    noisy = any(one.strength == "differential" for one in made.claims)
    if noisy or not isinstance(made, SplitProtocol) or isinstance(made, SharedModels):
        return ""
    config = made.config
    bits = min(getattr(config, name, _BITS) for name in ("data_bits", "model_bits", "bits"))
    if bits < _TOO_FEW:
        return ""
    parties: dict[int, Any] = made.parties()
    declared, step = Declared(made), Centre.step
    receivers: dict[int, set[int]] = {}
    steps: list[tuple[int, np.ndarray, dict[int, np.ndarray]]] = []

    class Listening(Simulation):
        def send(self, sending: Sending) -> None:
            for n in sending.to:
                key = MessageKey(sending.kind, sending.round, sending.party.index, n)
                spec = declared.spec_of(key)
                if spec is not None and spec.carries == "gradient":
                    receivers.setdefault(sending.round, set()).add(n)
            super().send(sending)

    def stepping(centre: Centre, H: np.ndarray, samples: np.ndarray, labels: np.ndarray) -> Any:
        if centre is bare_of(getattr(parties[SERVER], "centre", None)):
            true = samples >= 0
            rows = {n: made.data.train[n][samples[true]] for n in range(made.data.parties)}
            own = {n: np.asarray(made.embed(parties[n], x)) for n, x in rows.items()}
            steps.append((parties[SERVER].round, np.asarray(H, np.float64)[true], own))
        return step(centre, H, samples, labels)

    with in_place_of((Centre, "step", stepping)), one_thread():
        Listening(parties, seed=made.seed, secrets=made.secrets).run()
    for round, H, own in steps:
        summed = sorted(receivers.get(round, set()) & own.keys())
        if not summed or any(own[n].dtype == object for n in summed):  # None: it embeds nothing
            continue
        wanted = np.mean([own[n] for n in summed], axis=0)
        far = np.linalg.norm(H - wanted, axis=0)
        wrong = np.flatnonzero(far > _FAR * np.linalg.norm(wanted, axis=0).max())
        if len(wrong) > (H.shape[1] // 4 if bits < _BITS else 0):
            return (
                f"round {round}: {len(wrong)} of {H.shape[1]} entries with which the server steps "
                f"are not those of the mean of the embeddings of clients {summed}"
            )
    return ""


def _needed(made: Protocol) -> int:
    return int(getattr(made.config, "privacy", 1) or 1) + 2


def _words(varied: np.ndarray, few: np.ndarray, needed: int, when: str = "") -> str:
    if not len(few):
        return ""
    return (
        f"to {len(few)} of {varied.shape[1]} entries of the summed embedding fewer than {needed} "
        f"clients add anything{when}: entry {few[0]} is that of clients "
        f"{np.flatnonzero(varied[:, few[0]]).tolist()}"
    )


def integers_of(made: SharedModels, owner: Any) -> tuple[np.ndarray, np.ndarray]:
    """X-bar of the training rows, (K, rows, columns), and W-bar before the first step."""
    public = owner.public
    data = segments_of(public, owner.index, owner.features["train"], "train")
    return bare_of(data), first_model(bare_of(owner.weights), public.model_point)


def _varied(made: Protocol, client: int, party: Any) -> np.ndarray | None:
    """Spread of each entry of a client's embedding over its rows, (h,); None if it has none."""
    if not isinstance(made, SharedModels):
        embedding = made.embed(party, made.data.train[client][:_ROWS])
        if embedding is None:
            return None
        moved: np.ndarray = np.ptp(embedding, axis=0).astype(np.float64)
    else:
        data, model = integers_of(made, party)
        columns = np.concatenate(data)
        weights = abs(made.code.field.signed(model[(columns != columns[0]).any(axis=0)]))
        moved = weights.max(axis=0, initial=0).astype(np.float64)
    return moved
