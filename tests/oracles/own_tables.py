"""Messages before a training on tables of the parties' own, and the order of rows.

On a cluster and between organisations parties find their common rows before they are parties of a
protocol, and no run of one shows what they say then. Here the owners of three small tables do so,
of which once the columns and once the labels have other values. What they tell each other besides
the private set intersection, the sizes of that, and the rows that each of them keeps, must stay as
they are.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.data.base.partition import split_groups, split_random, split_stratified
from securevfl.data.local_tables import TableOwner, Tables
from securevfl.engine import wire
from securevfl.engine.network import SERVER, Sending
from securevfl.engine.simulation.simulator import Simulation
from securevfl.protocols.base.protocol import Protocol
from securevfl.runs.threads import one_thread

_OWNERS, _PEOPLE, _EACH = 3, 60, 52
_PARTS, _UNEVEN = 5, 12.0  # of an order, and their chi-square by degrees of freedom: groups of rows
_FAR = 8.0  # standard deviations of the number of changes of class in a random order
_FEW = 20  # rows, of fewer of which nothing is said


@dataclass
class _Told:
    """Contents by kind, sender and receiver; sizes of the same; rows and facts that are kept."""

    contents: dict[tuple[str, int, int], list[str]] = field(default_factory=dict)
    sizes: dict[tuple[str, int, int], list[int]] = field(default_factory=dict)
    kept: dict[int, str] = field(default_factory=dict)


class _Listening(Simulation):
    """A simulation that notes what is sent."""

    def __init__(self, parties: dict[int, Any], told: _Told) -> None:
        self._told = told
        super().__init__(parties)

    def send(self, sending: Sending) -> None:
        for to, payload in zip(sending.to, list(sending.payloads), strict=True):
            content, place = wire.encode(payload), (sending.kind, sending.party.index, to)
            digest = hashlib.sha256(content).hexdigest()
            self._told.contents.setdefault(place, []).append(digest)
            self._told.sizes.setdefault(place, []).append(len(content))
        super().send(sending)


def told_before_training(protocol: Protocol) -> str:
    """Dependence of what owners of tables tell on columns or labels, in words; empty for none."""
    return next(_differences(protocol), "") if protocol.apart else ""


def _differences(protocol: Protocol) -> Iterator[str]:
    seed = protocol.seed
    first, again = _told(seed), _told(seed)
    chance = {place[0] for place, own in first.contents.items() if again.contents[place] != own}
    for what, other in {
        "columns": _told(seed, columns=True),
        "labels": _told(seed, labels=True),
    }.items():
        places = first.contents.keys() | other.contents.keys()
        for place in sorted(places):
            kind, sender, _ = place
            whose = "the server" if sender == SERVER else f"party {sender}"
            if first.sizes.get(place) != other.sizes.get(place):
                yield f"before training sizes of {kind!r} of {whose} depend on {what}"
            elif kind not in chance and first.contents.get(place) != other.contents.get(place):
                yield f"before training {kind!r} of {whose} depends on {what}"
        if first.kept != other.kept:
            yield f"before training the rows that parties keep, or their order, depend on {what}"


def _told(seed: int, *, columns: bool = False, labels: bool = False) -> _Told:
    """Messages of the owners of three tables and of the labels, and the rows that they keep."""
    told, peers = _Told(), range(_OWNERS)
    with tempfile.TemporaryDirectory() as folder, one_thread():
        tables = _tables(Path(folder), seed, columns=columns, labels=labels)
        places = {n: Path(folder) / f"owner {n}" for n in (SERVER, *peers)}
        owners: dict[int, Any] = {n: TableOwner(n, peers, tables, places[n]) for n in places}
        _Listening(owners, told).run()
        told.kept = {
            n: f"{_digest_of(places[n])} {sorted(one.facts.items())}" for n, one in owners.items()
        }
    return told


def _digest_of(place: Path) -> str:
    """Arrays of all files that an owner stored."""
    digest = hashlib.sha256()
    for file in sorted(place.rglob("*.npz")):
        with np.load(file, allow_pickle=False) as stored:
            for name in sorted(stored.files):
                digest.update(stored[name].tobytes())
    return digest.hexdigest()


def _tables(folder: Path, seed: int, *, columns: bool, labels: bool) -> Tables:
    """Tables of some people each, with numbers and texts, and a table of labels."""
    import pandas as pd

    stream = np.random.Generator(np.random.Philox(seed + 21))
    people = np.array([f"id-{n:03d}" for n in range(_PEOPLE)])
    files = []
    for n in range(_OWNERS):
        rows = stream.permutation(_PEOPLE)[:_EACH]
        numbers = stream.normal(size=_EACH)
        texts = np.array(["x", "y"])[stream.integers(0, 2, _EACH)]
        if columns:
            numbers, texts = 3.0 + 7.0 * numbers[::-1], texts[::-1]
        frame = pd.DataFrame({"id": people[rows], f"n{n}": numbers, f"t{n}": texts})
        files.append(folder / f"{n}.csv")
        frame.to_csv(files[-1], index=False)
    classes = np.arange(_PEOPLE) % 3
    classes = np.roll(classes, 1) if labels else classes
    file = folder / "labels.csv"
    pd.DataFrame({"id": people, "class": classes}).to_csv(file, index=False)
    options: Mapping[str, Any] = {
        "party_files": [str(one) for one in files],
        "label_file": str(file),
        "label": "class",
        "id_column": "id",
        "seed": seed,
    }
    return Tables.of(options)


def order_tells_labels(labels: np.ndarray | None) -> str:
    """An order of training rows that goes by their classes, in words; empty for none.

    All parties know the order. In a random one each fifth of the rows has about the classes of the
    whole, and the class changes from row to row about as often as it differs between any two rows.
    Rows of one person that stand together change it less often, which is of that person.
    """
    if labels is None or labels.dtype.kind not in "iub" or len(labels) < _FEW:
        return ""
    classes, codes = np.unique(labels, return_inverse=True)
    shares = np.bincount(codes) / len(codes)
    if len(classes) < 2:
        return ""
    found = 0.0
    for fifth in np.array_split(codes, _PARTS):
        wanted = shares * len(fifth)
        found += float(((np.bincount(fifth, minlength=len(classes)) - wanted) ** 2 / wanted).sum())
    freedom = (_PARTS - 1) * (len(classes) - 1)
    differ = 1 - float((shares**2).sum())
    changes, expected = int((codes[1:] != codes[:-1]).sum()), differ * (len(codes) - 1)
    regular = changes - expected > _FAR * np.sqrt(max(len(codes) * differ * (1 - differ), 1.0))
    if found <= _UNEVEN * freedom and not regular:
        return ""
    return (
        f"the order of the {len(labels)} training rows, which all know, tells labels: a fifth of "
        "them has other classes than the next, or classes take turns; shuffle the rows"
    )


def split_tells_labels(seed: int) -> str:
    """The same of how the library divides rows into training and test rows, with known labels."""
    labels = np.repeat(np.arange(3), 80)
    for what, parts in {
        "stratified": split_stratified(labels, 0.25, seed),
        "random": split_random(len(labels), 0.25, seed),
        "by groups": split_groups(np.arange(len(labels)), labels, 0.25, seed),
    }.items():
        for rows in parts:
            if order_tells_labels(labels[rows]):
                return f"rows that are divided ({what}) stand in an order that tells labels"
    return ""
