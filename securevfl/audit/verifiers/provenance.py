"""Verifiers of the origin of secrets: of parties' own entropy, and the draws of coded runs."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.audit import randomness
from securevfl.audit.keyed.mask_keys import faults_of_keys
from securevfl.audit.recorded_runs import CodedRun
from securevfl.audit.recording.recorded_run import RecordedRun
from securevfl.audit.settings import hides_columns
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.audit.verifiers.coded import CodedVerifier, coded, factory, provable
from securevfl.data.dataset import VerticalDataset
from securevfl.engine.party import Party
from securevfl.engine.streams import OwnEntropy
from securevfl.field import PrimeField
from securevfl.privacy.adversary import OUTSIDER
from securevfl.privacy.claims import Asset, Claim
from securevfl.protocols.base.coded import CodedProtocol
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.shared_models import SharedModels

_HIDDEN: dict[Asset, str] = {"features": "data_share", "model": "model_share"}
_MANY = 20  # equal elements; so many more than are expected are an accident of 2^-40
_CHANCE = 2.0**-40
_DEEP = 6  # parts of parts of a party in which arrays are looked for
_FEW = 16  # numbers of an array, below which chance may leave it nearly as it was


class Sources:
    """Makes parties by two entropies: what they draw must differ, and what they share be theirs."""

    name = "sources of secrets"

    def applies(self, claim: Claim, protocol: Protocol) -> bool:
        """Claims that rest on secrets of parties: strong ones, where columns are hidden."""
        strong = claim.strength in ("perfect", "computational") and claim.against != OUTSIDER
        return strong and hides_columns(protocol)

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """A gap for each secret that does not follow from a party's own entropy."""
        found = subject.shared(self.name, lambda: list(_faults(subject)))
        for fault in found:
            yield Evidence(self.name, "silent", fault, "gap")
        if not found:
            text = "each party's secret choices follow from its own entropy, to its last byte"
            yield Evidence(self.name, "silent", text)


def _faults(subject: Subject) -> Iterator[str]:
    yield from filter(None, [_altered_columns(subject.protocol)])
    for numbers in subject.protocol.roles().values():
        what = numbers and _alike(subject, numbers[0])
        if what:
            yield (
                f"party {numbers[0]} is made with {what} under two entropies that differ in the "
                "last byte alone"
            )


def arrays_of(party: Party) -> list[np.ndarray]:
    """All arrays that a party has in its attributes and in those of their parts, in order."""
    return list(_arrays(vars(party), _DEEP))


def _arrays(thing: Any, deep: int) -> Iterator[np.ndarray]:
    if isinstance(thing, np.ndarray):
        yield thing
    elif hasattr(thing, "detach") and hasattr(thing, "numpy"):
        yield thing.numpy(force=True)
    elif not deep or isinstance(thing, (type, Protocol, VerticalDataset)):
        return
    elif isinstance(thing, (list, tuple)):
        for one in thing:
            yield from _arrays(one, deep - 1)
    elif isinstance(thing, functools.partial):
        yield from _arrays((thing.args, thing.keywords), deep - 1)
    else:
        held = thing if isinstance(thing, dict) else getattr(thing, "__dict__", {})
        for one in held.values():
            yield from _arrays(one, deep - 1)


def _alike(subject: Subject, index: int) -> str:
    """Arrays, or parts of them, that secret streams do not move, though they were asked for.

    The public seed is the same, so what does not move follows from it: all arrays, rows of one that
    is moved elsewhere, or most of every number of it.
    """
    own = OwnEntropy.draw(index).entropy
    first, second = (_Asked(index, own[:-1] + bytes([own[-1] ^ bit])) for bit in (0, 1))
    had = [arrays_of(subject.instance(secrets=secrets).party(index)) for secrets in (first, second)]
    if not first.names:
        return ""
    pairs = [(one, two) for one, two in zip(*had, strict=False)
             if (one.dtype, one.shape) == (two.dtype, two.shape)]  # fmt: skip
    if len(pairs) == len(had[0]) and all(np.array_equal(one, two) for one, two in pairs):
        return "the same arrays"
    return next(filter(None, (_partly_alike(one, two) for one, two in pairs)), "")


def _partly_alike(one: np.ndarray, two: np.ndarray) -> str:
    """The part of two numeric arrays that is the same, in words; empty for all of it, or nothing.

    Numbers that are drawn independently differ by about as much as they are large.
    """
    if one.dtype.kind != "f" or one.size < _FEW or np.array_equal(one, two):
        return ""
    for axis in range(one.ndim if one.ndim > 1 else 0):
        rest = tuple(other for other in range(one.ndim) if other != axis)
        same = (one == two).all(axis=rest) & one.any(axis=rest)
        if same.any():
            return f"{same.sum()} of {len(same)} equal rows or columns in an array"
    moved, size = np.linalg.norm(one.astype(np.float64) - two), np.linalg.norm(one)
    return "numbers that hardly differ in an array" if moved < size / 4 else ""


def _altered_columns(protocol: Protocol) -> str:
    """A client whose shared columns are not its own, rounded: by other code, of all its rows.

    A row that most clients leave out of a sum is one of whom the sum tells.
    """
    if not isinstance(protocol, (CodedProtocol, SharedModels)):
        return ""
    shared = protocol.quantised_columns()
    for n, own in enumerate(protocol.data.train):
        rows = shared[n].reshape(-1, shared[n].shape[-1])
        sizes = np.abs(own).max(axis=1)
        there = np.count_nonzero(sizes > sizes.max() / 100)
        if rows.any(axis=1).sum() < there:
            return (
                f"client {n} shares {rows.any(axis=1).sum()} rows that are not all zero, and has "
                f"{there}"
            )
        wanted = _rounded(protocol, own)
        if wanted is not None and not _within_one(protocol.code.field, rows, wanted):
            return f"client {n} shares other numbers than its columns, rounded"
    return ""


def _rounded(protocol: Protocol, own: np.ndarray) -> np.ndarray | None:
    """Columns with their powers and ones, rounded, row by row; None where it is not told how."""
    config: Any = protocol.config
    if not isinstance(protocol, CodedProtocol) or not hasattr(config, "data_bits"):
        return None
    powers = np.cumprod([own] * config.degree, axis=0, dtype=own.dtype).astype(np.float64)
    rounded: np.ndarray = np.rint(
        np.hstack([*powers, np.ones((len(own), 1))]) * 2**config.data_bits
    )
    return rounded


def _within_one(field: PrimeField, rows: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether the same rows are there in some order, but for the rounding of halves.

    A sum of a row with random weights tells it from others whatever the order.
    """
    signed = field.signed(rows).astype(np.float64)
    weights = np.random.Generator(np.random.PCG64()).random((wanted.shape[1],))
    sums = np.sort((signed @ weights)[signed.any(axis=1)]), np.sort(wanted @ weights)
    return len(sums[0]) == len(sums[1]) and bool((abs(sums[0] - sums[1]) <= weights.sum()).all())


@dataclass(frozen=True)
class _Asked(OwnEntropy):
    """Own entropy that notes which streams are asked for."""

    names: list[str] = field(default_factory=list, compare=False)

    def stream(self, index: int, name: str, *keys: int) -> np.random.Generator:
        """The stream as it is."""
        self.names.append(name)
        return super().stream(index, name, *keys)


class Provenance(CodedVerifier):
    """Traces every draw of all runs to one call of the sampler each, and that to fresh entropy.

    One run is small and held against the proof; the others have all options of the configuration.
    """

    name = "provenance"

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """All draws are results of secure calls, each used once; so are keys of masks."""
        if not provable(coded(subject), claim.against):
            return
        origins = subject.shared("provenance", lambda: _trace(subject))
        weak = subject.shared("weak masks", lambda: dict(_weak_masks(subject.run)))
        if claim.asset in weak and claim.against.clients:
            yield Evidence(self.name, "accuses", weak[claim.asset], "demonstration", 0.0, _CHANCE)
        text = (
            f"all {origins.draws} draws, also those of the runs with the protocol's own options, "
            "came from the one sampler, each call keyed by 32 fresh bytes of the operating system"
        )
        strange = origins.strange
        yield self.condition(
            not strange, f"masks of another origin: {strange[0]}" if strange else text
        )
        if claim.against.server:
            text = (
                f"all {origins.keys} keys of masks are 32 fresh bytes of the operating system "
                "each, drawn by one client in the run that uses them, and asked for the sums of "
                "that run alone, one upload of a client for each label; others get them as the "
                "formula of their message says, over links that claims against an outsider are "
                "about"
            )
            strange = origins.strange_keys
            yield self.condition(not strange, f"keys of masks: {strange[0]}" if strange else text)


def _weak_masks(run: RecordedRun) -> Iterator[tuple[Asset, str]]:
    """Assets whose masks are repeated, or not of all of F_p, with the fault in words.

    Of n uniform elements about n^2 / 2p have a value that another has, too.
    """
    protocol = run.protocol
    assert isinstance(protocol, CodedProtocol)
    carried = {spec.kind: spec.carries for spec in protocol.messages}
    drawn = list(_masks(run))
    every = np.concatenate([one.reshape(-1) for _, one in drawn]) if drawn else np.empty(0)
    values, times = np.unique(every, return_counts=True)
    repeated, p = values[times > 1], protocol.code.field.modulus
    for asset, carries in _HIDDEN.items():
        own = [one for kinds, one in drawn if carries in {carried.get(kind) for kind in kinds}]
        if not own:
            continue
        again = sum(np.isin(one, repeated).sum() for one in own)
        expected = every.size**2 / p
        if again > _MANY + 10 * expected:
            yield (
                asset,
                f"{again} elements of masks have values that come again, not {expected:.2g}",
            )
        elif any(one.size > _MANY * 10 and one.max() < 0.75 * p for one in own):
            yield asset, "masks are not of all of F_p: no element is in its upper quarter"


def _masks(run: RecordedRun) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
    """Kinds of messages that a declared draw is in, and the draw, of each party and round."""
    for draw in run.protocol.draws:
        for n, tape in run.tapes.items():
            for round in dict.fromkeys(tape.rounds):
                if not draw.dtype and draw.shape(n, round) is not None:
                    with suppress(LookupError, ValueError):  # it was not drawn
                        yield draw.kinds, run.draw(n, draw.name, round)


@dataclass(frozen=True)
class _Origins:
    """Draws and keys of all runs, and what is strange about them."""

    strange: list[str]
    draws: int
    strange_keys: list[str]
    keys: int


def _trace(subject: Subject) -> _Origins:
    subject.progress("provenance of masks")
    protocol, made = coded(subject), factory(subject)
    with randomness.watch() as log:
        recorded = made.run()
    runs = [(log, recorded.tapes.values())]
    runs += [(log, run.tapes.values()) for run, log in subject.runs]
    modulus = protocol.code.field.modulus
    strange = [one for log, tapes in runs for one in randomness.unexplained(log, tapes, modulus)]
    draws = sum(len(tape.draws) for _, tapes in runs for tape in tapes)
    strange_keys, keys = _keys(protocol, recorded, log)
    for found in subject.settings:
        name = found.setting.name
        strange += [f"the run {name!r}, {one}" for one in found.strange]
        strange_keys += [f"the run {name!r}, {one}" for one in found.mask_keys]
        draws, keys = draws + found.draws, keys + found.keys
        if found.thrown and not found.setting.resumed_in:
            strange.append(f"the run {name!r}, {found.thrown} thrown away")
    return _Origins(strange, draws, strange_keys, keys)


def _keys(
    protocol: CodedProtocol, recorded: CodedRun, log: randomness.Log
) -> tuple[list[str], int]:
    """Faults of the keys of the small run, and their number."""
    if protocol.prss is None:
        return [], 0
    drawn = [key for keys in recorded.keys.values() for key in keys]
    return list(faults_of_keys(drawn, len(protocol.prss.blocks), log)), len(drawn)
