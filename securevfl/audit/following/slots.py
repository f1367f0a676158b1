"""Slots of recorded parties, each with the library's own party beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np

from securevfl.audit.following import acts
from securevfl.audit.following.acts import Act
from securevfl.audit.following.chance import Chance
from securevfl.audit.following.library import library_class
from securevfl.audit.following.lines import Lines
from securevfl.audit.following.measures import unlike_measures
from securevfl.audit.following.reference import ReferenceMessage, ReferenceParty
from securevfl.engine.network import SERVER, Message, name_of
from securevfl.engine.party import Party
from securevfl.engine.party_state import snapshot
from securevfl.engine.simulation.slot import PartySlot
from securevfl.protocols.base.protocol import Protocol as Method


class State(Protocol):
    """The state of a party at a message."""

    settled: bool


class Recorded(Protocol):
    """A message as it was recorded: what of it is compared and followed."""

    @property
    def state(self) -> State:
        """The sender's state."""

    @property
    def key(self) -> tuple[str, int, int, int]:
        """Kind, round, sender and receiver."""

    @property
    def content(self) -> bytes:
        """The encoded payload."""

    def follow(self, state: Mapping[str, Any], like: bool) -> None:
        """Note the state of the library's party, and whether it sends the same."""


class References:
    """The library's own parties of a run, which go on when it is resumed.

    Parameters
    ----------
    protocol : Protocol
        Of the recorded run. Where what it is held against is not the library's, there are none.
    keeping : bool
        Whether parties may crash, or the run is resumed.
    noting : bool
        Whether what they write ahead is kept.

    Attributes
    ----------
    known : bool
        Whether there are such parties.
    unsent : int
        Messages that they send and the recorded parties do not.
    lines : Lines
        Takes what parties write.
    """

    def __init__(self, protocol: Method, *, keeping: bool = False, noting: bool = True) -> None:
        self._chance = Chance()
        self._parties: dict[int, ReferenceParty] = {}
        self._unlike: dict[str, int] = {}
        self._odd: list[str] = []  # where recorded parties act otherwise
        self._events: list[tuple[Act, Act]] = []
        self._rows = 0  # of the history
        self._protocol = protocol
        self.unsent, self.lines = 0, Lines()
        cls = library_class(protocol)
        self.known = cls is not None
        if cls is None:
            return
        made = self._library = cls(protocol.config, protocol.data, seed=protocol.seed)
        made.secrets = protocol.secrets
        first = made.parties()
        for index in tuple(first):
            self._parties[index] = ReferenceParty(
                _making(made, first, index),
                self._chance,
                self.lines,
                seed=protocol.seed,
                secrets=protocol.secrets,
                keeping=keeping,
                noting=noting,
            )

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Keep what chance gives to the recorded parties meanwhile, and what they write."""
        if not self.known:
            yield
            return
        with self._chance.watch(), self.lines.watch():
            yield

    def of(self, index: int) -> ReferenceParty | None:
        """The library's party of a number; None for none."""
        return self._parties.get(index)

    def note(self) -> None:
        """Count what was drawn otherwise in the step that was repeated."""
        for name, times in self._chance.unlike.items():
            self._unlike[name] = self._unlike.get(name, 0) + times

    def compare(self, party: Party, found: list[Act], *, replayed: bool) -> None:
        """Hold what a party did in a step against what the library's did.

        Parameters
        ----------
        party : Party
        found : list of Act
        replayed : bool
            Whether it was brought back to a checkpoint: then the engine heard nothing of it, and
            only what it wrote was seen.
        """
        wanted = self._parties[party.index].acts
        if replayed:
            found, wanted = ([one for one in each if one.sort == acts.LINE]
                             for each in (found, wanted))  # fmt: skip
        odd = acts.difference(found, wanted)
        if odd:
            self._odd.append(f"{name_of(party.index)}, round {party.round}: {odd}")
        pairs = zip(found, wanted, strict=False)
        self._events += [(one, other) for one, other in pairs if one.fields and not odd]

    def measure(self, parties: Mapping[int, Party], *, last: bool) -> None:
        """Compare measures and models with those of the library's parties, in some rounds."""
        self._rows += 1
        if not (last or self._rows <= _FIRST or self._rows % _EVERY == 0):
            return
        if any(one.lost for one in self._parties.values()):
            return
        own = {index: one.party for index, one in self._parties.items()}
        with self.lines.into(None):
            self._odd += unlike_measures(self._protocol, parties, self._library, own, last=last)

    @property
    def acts(self) -> tuple[str, ...]:
        """Acts of recorded parties that the library's lack; empty for none."""
        later = (one for one in self._events
                 if acts.text_of(one[0].fields) != acts.text_of(one[1].fields))  # fmt: skip
        return (*self._odd, *(f"afterwards, {one.describe()}" for one, _ in later))

    @property
    def faults(self) -> tuple[str, ...]:
        """Reasons why states are believed, and draws that differ; empty if there are none."""
        lost = [one.lost for one in self._parties.values() if one.lost]
        return (
            *(f"states are believed from there on: {why}" for why in lost),
            *(f"{name} were drawn {times} times more, less or for something else than the "
              "library's parties draw them" for name, times in self._unlike.items()),
            *[f"{self.unsent} messages were not sent that the library's parties send"]
            * bool(self.unsent),
        )  # fmt: skip


_FIRST, _EVERY = 8, 50  # rows of a history of which measures are compared


def _making(protocol: Method, first: dict[int, Party], index: int) -> Callable[[], Party]:
    """Makes a party: the one that was made with all others, and new ones after it."""
    return lambda: first.pop(index) if index in first else protocol.party(index)


class FollowedSlot(PartySlot):
    """A slot that steps the library's party after its own, and notes what that one has and does.

    Its party is given nothing, and runs as in any other slot.
    """

    def __init__(
        self,
        party: Party,
        *rest: Any,
        references: References,
        parties: Mapping[int, Party],
        **options: Any,
    ) -> None:
        super().__init__(party, *rest, **options)
        self._references, self._parties = references, parties
        self._reference = references.of(party.index)
        self._depth = self._rests = 0
        self._brought_back = self._hidden = False
        self._sent: list[Recorded] = []
        self._acts: list[Act] = []
        self.given = WeakValueDictionary[int, Any]()  # longer arrays that came with messages

    def sent(self, message: Recorded) -> None:
        """Note a message of this step."""
        self._sent.append(message)
        message.state.settled = False

    def hide(self) -> None:
        """Note that messages of this step are not recorded."""
        self._hidden = True

    def acted(self, *found: Act) -> None:
        """Note acts of this step."""
        if self._reference is not None:
            self._acts += found

    def rests(self) -> None:
        """Count a safe point."""
        self._rests += 1

    # -- steps ---------------------------------------------------------------------------------

    def step_begins(self) -> int:
        """A step begins; one of a handler within a step is part of it."""
        # A party that is brought back to a checkpoint begins many steps, of which one ends.
        if not self._depth and self._reference is not None:
            self._reference.step_begins(self.now)
            self._references.lines.begins(self._acts)
        self._depth += not (self.replaying and self._depth)
        return super().step_begins()

    def step_ends(self, outer: int) -> None:
        """Let the library's party do the same."""
        super().step_ends(outer)
        self._depth -= 1
        if not self._depth:
            self._acts.append(acts.waiting(self.mailbox.wait, self.party.handlers))
            self._follow()

    def failed(self, error: BaseException) -> None:
        """The run has ended by an error; in this party's step, if it is in one."""
        if self._depth:
            self._acts.append(acts.ending(error))
            self._follow(failed=True)

    def received(self, messages: list[Message], *, over: bool | None) -> None:
        """Note what the party gets."""
        super().received(messages, over=over)
        if self._reference is not None:
            wholes = (one for message in messages for one in acts.longer_arrays(message.payload))
            self.given.update((id(one), one) for one in wholes if isinstance(one, np.ndarray))
            self._reference.given(self.now, over, messages)

    def ended(self) -> None:
        """The party has ended, and the library's should."""
        self._acts.append(acts.waiting(None, self.party.handlers))
        self._follow()
        super().ended()

    def _follow(self, *, failed: bool = False) -> None:
        self._depth = 0
        self._references.lines.ends()
        (sent, self._sent), (done, self._acts) = (self._sent, []), (self._acts, [])
        for message in sent:
            message.state.settled = True
        if self._reference is None:
            return
        wanted = self._reference.step_ends(self._found, failed=failed)
        self._references.note()
        if not self._reference.lost:
            unsent = pair(sent, wanted, self._reference.state)
            if not (self._brought_back or self._hidden):
                self._references.unsent += unsent
            self._references.compare(self.party, done, replayed=self._brought_back)
        self._brought_back = self._hidden = False
        ends = self.runner.done
        if self.party.index == SERVER and (ends or any(one.sort == acts.EVENT for one in done)):
            self._references.measure(self._parties, last=ends)

    def _found(self) -> Mapping[str, Any]:
        return snapshot(self.party, waits=0, time=0)

    # -- crashes and checkpoints ---------------------------------------------------------------

    def crash(self) -> None:
        """End both."""
        super().crash()
        self._depth, self._acts = 0, []
        if self._reference is not None:
            self._reference.close()

    def rejoin(self, party: Party, *, least_round: int) -> None:
        """Put new ones in their places."""
        super().rejoin(party, least_round=least_round)
        if self._reference is not None:
            self._reference.rejoin(self.incarnation, least_round)

    def take_snapshot(self, *, waiting: bool = False) -> None:
        """Copy both at the same safe point."""
        super().take_snapshot(waiting=waiting)
        if self._reference is not None:
            self._reference.mark(self._rests)

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from the copies."""
        super().restore(saved)
        self._brought_back = True  # what it sent before the checkpoint it does not send again
        if self._reference is not None and not (self.done or self.down):
            self._reference.resume(saved["log"], self.party.resumptions)


def pair(
    sent: list[Recorded], wanted: list[ReferenceMessage], state: Callable[[], Mapping[str, Any]]
) -> int:
    """Give each recorded message of a step the state of the library's party at the same one.

    Messages are paired by kind, round and receiver; one that the library's party does not send,
    such as one of another name, by its place in the step.

    Returns
    -------
    int
        Number of messages that the library's party sends and the recorded one does not.
    """
    left: dict[tuple[str, int, int], list[ReferenceMessage]] = {}
    for one in wanted:
        left.setdefault((one.kind, one.round, one.receiver), []).append(one)
    for place, message in enumerate(sent):
        kind, round, _, receiver = message.key
        named = left.get((kind, round, receiver))
        if named:
            found = named.pop(0)
            message.follow(found.state, found.content == message.content)
        elif place < len(wanted):
            message.follow(wanted[place].state, False)
        else:
            message.follow(state(), False)
    return sum(map(len, left.values()))
