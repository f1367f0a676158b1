"""A recorded run of any protocol: every message, the sender's state when it sent it, all draws.

A run of hundreds of rounds does not fit into memory. So whoever reads it can be told of each
message as it is sent, and the run forgets its oldest rounds beyond a limit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

from securevfl.audit import views
from securevfl.audit.views import View
from securevfl.engine import wire
from securevfl.engine.party import SERVER, Party
from securevfl.engine.transcript import Transcript
from securevfl.privacy.coalition import Coalition
from securevfl.protocols.base.messages import MessageKey
from securevfl.protocols.base.protocol import Protocol

_T = TypeVar("_T")
_NEWEST = 6  # rounds of each kind that are never forgotten
_CACHED = 12  # kinds of message of a round whose decoded payloads are kept: those of two rounds


class ForgottenError(LookupError):
    """A message, state or draw is asked for whose round the run has forgotten."""


@dataclass(frozen=True)
class RecordedMessage:
    """One message as it left its sender; to itself, too.

    Attributes
    ----------
    key : MessageKey
    content : bytes
        The encoded payload.
    state : Snapshot
        The sender's state at that moment; one object for all receivers of one sending.
    """

    key: MessageKey
    content: bytes
    state: Snapshot

    @property
    def payload(self) -> Any:
        """The payload, decoded anew; its arrays cannot be written to."""
        return wire.decode(self.content)


class Snapshot:
    """State of a party; of its networks and optimisers the ``state_dict``.

    Attributes
    ----------
    content : mapping
        The state.
    life : int
        `Party.life`, as the engine counts it.
    from_setup : mapping
        Attributes that the party itself had from its setup.
    """

    def __init__(self, content: Mapping[str, Any], life: int = 0) -> None:
        self.content = content
        self.life = life
        self.from_setup: Mapping[str, Any] = content["once"]
        self.made: dict[Hashable, Any] = {}  # what was computed from it: `RecordedRun.once`

    def fresh(self) -> Snapshot:
        """The same state, of which nothing was computed yet."""
        made = copy(self)
        made.made = {}
        return made

    @property
    def nbytes(self) -> int:
        """Bytes of what changes in a run; the rest is shared by all snapshots of a party."""
        return len(self.content["kept"])

    @functools.cached_property
    def kept(self) -> Mapping[str, Any]:
        """Kept attributes by name, decoded once."""
        return self.attributes()

    def attributes(self) -> dict[str, Any]:
        """Kept attributes by name."""
        kept: dict[str, Any] = wire.decode(self.content["kept"])
        return kept | dict(self.content["once"]) | dict(self.content["frozen"])


class RecordedRun:
    """Everything that an observer of a whole run knows: a `RunSecrets` of the declarations.

    Parameters
    ----------
    protocol : Protocol
    parties : mapping of int to Party
    transcript : Transcript
        Sizes and times of what passed between two parties.
    limit : int, optional
        Bytes of messages and states beyond which the oldest rounds are forgotten, but for the setup
        and the newest six of each kind.

    Attributes
    ----------
    messages : list of RecordedMessage
        In the order of sending; those to oneself among them. Without those that were forgotten.
    forgotten : dict of str to int
        Last round that was forgotten, by kind of message; not all parties count the same rounds.
    events : list of (MessageKey, mapping)
        What parties but the server tell the history: the event's name as the kind, its round, the
        party, and its fields.
    resumptions : int
        How often the run was resumed so far.
    """

    def __init__(
        self,
        protocol: Protocol,
        parties: Mapping[int, Party],
        transcript: Transcript,
        limit: int | None = None,
    ) -> None:
        self.protocol = protocol
        self.parties = parties
        self.transcript = transcript
        self.messages: list[RecordedMessage] = []
        self.by_key: dict[MessageKey, list[RecordedMessage]] = {}
        self.forgotten: dict[str, int] = {}
        self._by_kind: dict[tuple[str, int], dict[tuple[int, int], RecordedMessage]] = {}
        self._decoded: dict[tuple[str, int], dict[tuple[int, int], Any]] = {}
        self._sizes: dict[tuple[str, int], int] = {}
        self._states: dict[tuple[str, int], list[tuple[int, Snapshot]]] = {}  # in order
        self._limit, self._held = limit, 0
        self.events: list[tuple[MessageKey, dict[str, Any]]] = []
        self.resumptions = 0
        self._memory: dict[str, dict[int, Any]] = {}

    def again(self, messages: Sequence[RecordedMessage]) -> RecordedRun:
        """Another life of the run, from when these were its messages.

        What formulas made of the messages is forgotten: they are compared once more, in order.
        """
        made = RecordedRun(self.protocol, self.parties, self.transcript, self._limit)
        made.resumptions = self.resumptions + 1
        made.forgotten = dict(self.forgotten)
        states: dict[int, Snapshot] = {}
        for key, content, state in map(attrgetter("key", "content", "state"), messages):
            states.setdefault(id(state), state.fresh())
            made.add(RecordedMessage(key, content, states[id(state)]))
        return made

    def add(self, message: RecordedMessage) -> None:
        """Take in a message that is sent."""
        kind, round, sender, receiver = message.key
        self.messages.append(message)
        self.by_key.setdefault(message.key, []).append(message)
        self._by_kind.setdefault((kind, round), {}).setdefault((sender, receiver), message)
        self._decoded.pop((kind, round), None)
        size, states = len(message.content), self._states.setdefault((kind, sender), [])
        if not states or states[-1][1] is not message.state:
            states.append((round, message.state))
            size += message.state.nbytes
        self._sizes[kind, round] = self._sizes.get((kind, round), 0) + size
        self._held += size
        if self._limit is not None and self._held > self._limit:
            self._forget(self._limit // 2)

    def _forget(self, limit: int) -> None:
        """Drop the oldest rounds of all kinds, until no more bytes than the limit are held."""
        gone, rounds = set(), dict[str, list[int]]()
        for kind, round in self._by_kind:
            rounds.setdefault(kind, []).append(round)
        newest = {kind: set(sorted(held)[-_NEWEST:]) for kind, held in rounds.items()}
        for kind, round in self._by_kind:  # in the order of sending
            if self._held <= limit:
                break
            if round > 0 and round not in newest[kind]:
                gone.add((kind, round))
                self._held -= self._sizes.pop((kind, round))
                self.forgotten[kind] = max(round, self.forgotten.get(kind, 0))
        self.messages = [m for m in self.messages if (m.key.kind, m.key.round) not in gone]
        self.by_key = {k: held for k, held in self.by_key.items() if (k.kind, k.round) not in gone}
        self._by_kind = {at: held for at, held in self._by_kind.items() if at not in gone}
        self._states = {
            (kind, sender): [one for one in states if (kind, one[0]) not in gone]
            for (kind, sender), states in self._states.items()
        }

    @property
    def nbytes(self) -> int:
        """Bytes of messages and states after the setup that are held."""
        return sum(size for (_, round), size in self._sizes.items() if round > 0)

    @property
    def sent_to_others(self) -> Iterator[RecordedMessage]:
        """Messages between two different parties."""
        return (m for m in self.messages if m.key.sender != m.key.receiver)

    def data(self, party: int) -> Any:
        """A client's columns by part; the server's labels by part."""
        data = self.protocol.data
        if party == SERVER:
            return {"train": data.train_labels, "test": data.test_labels}
        return {"train": data.train[party], "test": data.test[party]}

    def state(self, key: MessageKey) -> Mapping[str, Any]:
        """Kept attributes of the sender when it sent the message.

        Raises
        ------
        KeyError
            When there was no such message.
        ForgottenError
            When there may have been.
        """
        self._check(key.kind, key.round)
        return self.by_key[key][0].state.kept  # KeyError where there is none

    def life(self, key: MessageKey) -> int:
        """The sender's `Party.life` when it sent the message; errors are those of `state`."""
        self._check(key.kind, key.round)
        return self.by_key[key][0].state.life

    def state_before(self, key: MessageKey, counter: str) -> Mapping[str, Any] | None:
        """State of the sender at its last message of the kind with another value of `counter`.

        None where there was none before. Errors are those of `state`.
        """
        now = self.state(key)[counter]
        states = [state for _, state in self._states[key.kind, key.sender]]
        place = next(i for i, one in enumerate(states) if one is self.by_key[key][0].state)
        for state in reversed(states[:place]):
            if state.kept[counter] != now:
                return state.kept
        if key.kind in self.forgotten:
            raise ForgottenError(f"the state before round {key.round} was forgotten")
        return None

    def once(self, key: MessageKey, name: str, make: Callable[[], _T]) -> _T:
        """Result of `make`, which is called once for all receivers of one sending of a message."""
        self._check(key.kind, key.round)
        if key not in self.by_key:  # of a message that goes by another name on the wire
            return make()
        made: dict[Hashable, Any] = self.by_key[key][0].state.made
        place = (name, key.kind, key.round)
        if place not in made:
            made[place] = make()
        value: _T = made[place]
        return value

    def memory(self, name: str) -> dict[int, Any]:
        """Values that formulas of a name keep from earlier rounds; empty at first."""
        return self._memory.setdefault(name, {})

    def sent(self, kind: str, round: int) -> Mapping[tuple[int, int], Any]:
        """Payloads of a kind in a round by (sender, receiver); of several the first."""
        self._check(kind, round)
        found = self._decoded.get((kind, round))
        if found is None:
            held = self._by_kind.get((kind, round), {})
            found = {ends: message.payload for ends, message in held.items()}
            self._decoded[kind, round] = found
            while len(self._decoded) > _CACHED:
                self._decoded.pop(next(iter(self._decoded)))
        return found

    def _check(self, kind: str, round: int) -> None:
        gone = 0 < round <= self.forgotten.get(kind, 0)
        if gone and (kind, round) not in self._by_kind:
            raise ForgottenError(
                f"round {round} of {kind!r} was forgotten; the run holds later ones"
            )

    def view(self, coalition: Coalition) -> View:
        """View of a coalition at the end: messages."""
        return views.cut(self.transcript, coalition)

    def departures(self) -> list[tuple[int, int]]:
        """Times at which each message left and arrived, in virtual nanoseconds."""
        columns = self.transcript.columns()
        return list(zip(columns["sent"].tolist(), columns["arrived"].tolist(), strict=True))
