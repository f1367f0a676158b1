"""Verifier of plaintext: no message may hold columns, rows or weights as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from securevfl.audit.coalitions import may_see
from securevfl.audit.columns.told_columns import ToldColumns, is_secret
from securevfl.audit.deviations import Declared
from securevfl.audit.recording.recorded_run import RecordedMessage, RecordedRun
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.engine.party import SERVER
from securevfl.privacy.adversary import OUTSIDER
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.coded import CodedProtocol
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.shared_models import SharedModels

_LENGTH = 12  # values that are looked for together
_DEEP = 3  # mappings and sequences of a party's attributes that are looked into
_SHORT = 4096  # values of a message that are looked for in all columns together
_DISTINCT = 4  # of them that differ, or they may stand there by chance
_WORD = 8  # bytes; no stretch is shorter
_MARKS = 16  # bits of a mark of a word


class Plaintext:
    """Looks in every message of a recorded run for values that a claim says are hidden.

    They are looked for as numbers of 32 and of 64 bits and, of protocols that code them, as field
    elements, whatever the message is called and whoever declared it.
    """

    name = "plaintext"

    def applies(self, claim: Claim, protocol: Protocol) -> bool:
        """Secrecy of features and models, perfect or by a primitive."""
        return is_secret(claim) and claim.asset in ("features", "model")

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """The first message with values in the clear that the adversary sees."""
        run = subject.run
        if claim.asset == "features":
            against = claim.against
            for holder, owner in subject.shared("held columns", lambda: list(_held(subject))):
                if not (against.server if holder == SERVER else against.clients or against.role):
                    continue
                text = f"party {holder} holds columns of client {owner} before anything is sent"
                yield Evidence(self.name, "accuses", text, "demonstration", 0.0)
                return
        what = f"{claim.asset} in the clear"
        in_the_clear = subject.shared(what, lambda: _InTheClear(run, claim.asset))
        looked = 0
        for message in run.sent_to_others:
            key = message.key
            if not may_see(claim.against, run.protocol, key):
                continue
            looked += 1
            for n in in_the_clear.of(message):
                if n != key.receiver:
                    text = (
                        f"round {key.round}: {key.kind!r} from {key.sender} to {key.receiver} "
                        f"holds {claim.asset} of client {n} in the clear"
                    )
                    yield Evidence(self.name, "accuses", text, "demonstration", 0.0)
                    return
        text = f"no {claim.asset} stand in the clear in {looked} messages that the adversary sees"
        declared = bool(subject.protocol.messages)
        yield Evidence(self.name, "supports" if declared else "silent", text)


class PlainHistory:
    """Looks for columns in what parties tell the history of a run, whatever the events are called.

    The history is no party's view: whoever runs an experiment reads it, and on a cluster its
    driver. So a finding is a gap, and not a leak to the claim's adversary.
    """

    name = "history"

    def applies(self, claim: Claim, protocol: Protocol) -> bool:
        """Features that are hidden from a party, in whatever way."""
        kinds = ("perfect", "computational", "differential")
        return claim.asset == "features" and claim.strength in kinds and claim.against != OUTSIDER

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """A gap where an event holds columns; nothing else is said."""
        for text in subject.shared("columns in the history", lambda: list(_in_events(subject))):
            yield Evidence(self.name, "silent", text, "gap")


def _in_events(subject: Subject) -> Iterator[str]:
    """The first event of a recorded run that holds columns of a client."""
    for run in subject.runs:
        if not run.events:
            continue
        told = ToldColumns(run.protocol, {n: run.data(n)["train"] for n in _owners(run.protocol)})
        for message in run.messages:
            told.note(message.key.round, message.payload)
        for key, fields in run.events:
            for n in sorted(told.within(key, fields)):
                yield (
                    f"round {key.round}: the event {key.kind!r} of party {key.sender} holds "
                    f"features of client {n} in the clear; leave them out"
                )
                return


def _owners(protocol: Protocol) -> range:
    return range(protocol.data.parties)  # helpers have no columns


class _InTheClear:
    """Clients whose values stand in the clear in a message; each content is looked into once.

    Several adversaries see one message, and what is sent to all parties has one content.
    """

    def __init__(self, run: RecordedRun, asset: str) -> None:
        owners = _owners(run.protocol)
        self._needles = _Needles({n: _values(run, n, asset) for n in owners})
        columns = {n: run.data(n)["train"] for n in owners if asset == "features"}
        self._whole = {n: _whole(own) for n, own in columns.items()}
        self._declared = Declared(run.protocol)
        self._told = None
        if columns:
            self._told = told = ToldColumns(run.protocol, columns)
            for message in run.messages:
                told.note(message.key.round, message.payload)
        self._found: dict[tuple[bytes, int, int], list[int]] = {}

    def of(self, message: RecordedMessage) -> list[int]:
        """The clients, the sender before others."""
        payload, (_, round, sender, _) = message.payload, message.key
        key = message.content, round, sender
        if key not in self._found:
            pieces, found = _pieces(payload), self._needles.within(message.content)
            found |= {n for n, own in self._whole.items() if any(one in own for one in pieces)}
            if self._told is not None:
                spec = self._declared.spec_of(message.key)
                modulus = None if spec is None else spec.modulus
                found |= self._told.within(message.key, payload, modulus)
            self._found[key] = sorted(found, key=lambda n: (n != sender, n))
        return self._found[key]


class _Needles:
    """Stretches of bytes of several clients, which are looked for all at once.

    Few contents hold one, and there are thousands of both. So the words of a content are looked up
    among the first words of the stretches, and a stretch whose first word is there is looked for.
    """

    def __init__(self, needles: Mapping[int, Iterable[bytes]]) -> None:
        self._by_word: dict[int, set[tuple[int, bytes]]] = {}
        for n, stretches in needles.items():
            for one in stretches:
                word = int.from_bytes(one[:_WORD], "little")
                self._by_word.setdefault(word, set()).add((n, one))
        self._marked = np.zeros(1 << _MARKS, bool)
        self._marked[_marks(np.array([*self._by_word], np.uint64))] = True

    def within(self, content: bytes) -> set[int]:
        """Clients of which it holds a stretch."""
        places = (np.frombuffer(content, "<u8", (len(content) - at) // _WORD, at)
                  for at in range(min(_WORD, len(content))))  # fmt: skip
        likely = {word for words in places for word in words[self._marked[_marks(words)]].tolist()}
        known = (one for word in likely for one in self._by_word.get(word, ()))
        return {n for n, stretch in known if stretch in content}


def _marks(words: np.ndarray) -> np.ndarray:
    """A number below 2^_MARKS for each word, which depends on all its bits."""
    marks: np.ndarray = (words * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - _MARKS)
    return marks


def _held(subject: Subject) -> Iterator[tuple[int, int]]:
    """Parties that are made with columns of a client that they are not, and that client."""
    made = subject.instance()
    columns = dict(enumerate(made.data.train))
    for index, party in made.parties().items():
        held = [array for array in _arrays(vars(party), _DEEP) if array.dtype.kind == "f"]
        for n, own in columns.items():
            if n != index and any(_is_among(own, array) for array in held):
                yield index, n


def _is_among(columns: np.ndarray, array: np.ndarray) -> bool:
    """Whether an array has the same values, in whatever shape, or is the same memory."""
    alike = array.size == columns.size and np.array_equal(array.reshape(-1), columns.reshape(-1))
    return bool(alike and np.ptp(columns))


def _arrays(thing: Any, deep: int) -> Iterator[np.ndarray]:
    """Arrays in attributes, mappings and sequences."""
    if isinstance(thing, np.ndarray):
        yield thing
    elif deep and isinstance(thing, dict):
        for one in thing.values():
            yield from _arrays(one, deep - 1)
    elif deep and isinstance(thing, (list, tuple)):
        for one in thing:
            yield from _arrays(one, deep - 1)


def _values(run: RecordedRun, client: int, asset: str) -> Iterator[bytes]:
    """Bytes of some consecutive values of a client, in every form."""
    if asset == "model":
        sent = [m for m in run.messages if m.key.sender == client]
        for message in (*sent[:1], *sent[-1:]):
            yield from _weights(message)
        return
    own = run.data(client)["train"]
    yield from _needles(own)
    protocol = run.protocol
    if isinstance(protocol, CodedProtocol | SharedModels):
        for segment in protocol.quantised_columns()[client]:
            yield from _windows(segment, segment.dtype)


def _weights(message: RecordedMessage) -> Iterator[bytes]:
    state = message.state.attributes().get("network")
    for value in state.values() if isinstance(state, dict) else ():
        array: Any = value.numpy() if hasattr(value, "numpy") else value
        if isinstance(array, np.ndarray) and array.dtype.kind == "f":
            yield from _needles(array)


def _whole(columns: np.ndarray) -> bytes:
    """All values, row by row and column by column, in 64 bits."""
    table = columns.reshape(len(columns), -1).astype("<f8")
    return table.tobytes() + np.ascontiguousarray(table.T).tobytes()


def _pieces(payload: Any) -> list[bytes]:
    """Short arrays of a payload that would hardly be found in a table by chance, in 64 bits."""
    if isinstance(payload, (tuple, list)):
        return [piece for one in payload for piece in _pieces(one)]
    if isinstance(payload, dict):
        return [piece for one in payload.values() for piece in _pieces(one)]
    short = isinstance(payload, np.ndarray) and payload.size <= _SHORT
    if not short or payload.dtype.kind not in "fiu" or len(np.unique(payload)) < _DISTINCT:
        return []
    values = payload.astype("<f8")
    return [values.tobytes(), np.ascontiguousarray(values.T).tobytes()]


def _needles(values: np.ndarray) -> Iterator[bytes]:
    table = values.reshape(len(values), -1) if values.ndim > 1 else values.reshape(1, -1)
    for dtype in (np.dtype("<f4"), np.dtype("<f8")):
        yield from _windows(table, dtype)


def _windows(table: np.ndarray, dtype: np.dtype[Any]) -> Iterator[bytes]:
    """Of the first rows and of each column, the stretch with the most different values."""
    for line in (*table[:3], *table.T):
        starts = range(0, max(1, min(len(line), 200) - _LENGTH), _LENGTH)
        stretches = [line[at : at + _LENGTH] for at in starts]
        best = max(stretches, key=lambda one: len(np.unique(one)))
        if len(np.unique(best)) >= _DISTINCT:
            yield np.ascontiguousarray(best).astype(dtype).tobytes()
