"""The library's own party beside a recorded one: what its state must be, and what it would send.

At a safe point the kept attributes of a party are its whole state, and what it does from there on
follows from what its waits give back, and from chance. So a party of the library, made anew and
given what the recorded one was given, has at each message the state that follows from first values,
own data, received messages and draws. No protocol has to say how: its parties do.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from securevfl.audit.following import acts
from securevfl.audit.following.acts import Act
from securevfl.audit.following.chance import Chance
from securevfl.audit.following.lines import Lines
from securevfl.engine import wire
from securevfl.engine.network import Message, PartyState, RoundOverError, Sending, Wait, name_of
from securevfl.engine.party import Party
from securevfl.engine.party_state import ahead, restore, snapshot
from securevfl.engine.streams import Secrets


@dataclass(frozen=True)
class ReferenceMessage:
    """One message that the library's party sends.

    Attributes
    ----------
    kind : str
    round, receiver : int
    content : bytes
        The encoded payload.
    state : mapping
        The snapshot of the party as it sends.
    """

    kind: str
    round: int
    receiver: int
    content: bytes
    state: Mapping[str, Any]


@dataclass(frozen=True)
class _Given:
    """Messages that a wait gave back, or a handler was given: see `PartySlot.received`."""

    time: int
    over: bool | None
    messages: tuple[bytes, ...]

    @property
    def decoded(self) -> list[Message]:
        """The messages, made anew."""
        return [Message(*wire.decode(each)) for each in self.messages]


class ReferenceParty:
    """A party of the library, stepped after the recorded one. It is the `Network` of its party.

    Parameters
    ----------
    make : callable
        Makes the party anew, as it is before a run.
    chance : Chance
        What the recorded party drew in the step.
    lines : Lines
        Takes what its code writes.
    seed : int
    secrets : Secrets
    keeping : bool
        Whether to copy the party at its safe points, as one that crashes or is resumed needs it.
    noting : bool
        Whether what it writes ahead is put beside the copy.

    Attributes
    ----------
    lost : str
        Why it is not followed any more; empty where it is.
    acts : list of Act
        What it did in the newest step that others can see.
    """

    def __init__(
        self,
        make: Callable[[], Party],
        chance: Chance,
        lines: Lines,
        *,
        seed: int,
        secrets: Secrets,
        keeping: bool,
        noting: bool,
    ) -> None:
        self.seed, self.secrets, self.lost = seed, secrets, ""
        self._make, self._chance, self._lines = make, chance, lines
        self.acts: list[Act] = []
        self._keeping, self._noting = keeping, noting
        self._given: deque[_Given] = deque()
        self._sent: list[ReferenceMessage] = []
        self._rests = 0  # safe points so far
        self._rest: dict[str, Any] | None = None  # copy at the last of them
        self._marked: tuple[int, dict[str, Any] | None] = (-1, None)
        self._time = 0
        self._generator: Any = None
        self._begin(make(), setup_done=False)

    def _begin(self, party: Party, *, setup_done: bool) -> None:
        self._party, self._setup_done = party, setup_done
        party.engine = self
        self._coroutine: Coroutine[Wait, Any, None] | None = None
        self._begun = self._replays = False
        self._wait: Wait | None = None

    async def _life(self) -> None:
        if not self._setup_done:
            await self._party.setup()
        self._setup_done = True
        await self._party.run()

    # -- the recorded party --------------------------------------------------------------------

    def given(self, time: int, over: bool | None, messages: Sequence[Message]) -> None:
        """Note what the recorded party gets, before it can change it."""
        if self.lost:
            return
        encoded = tuple(wire.encode(tuple(message)) for message in messages)
        self._given.append(_Given(time, over, encoded))

    @property
    def party(self) -> Party:
        """The library's party."""
        return self._party

    def state(self) -> Mapping[str, Any]:
        """Snapshot of the library's party."""
        return snapshot(self._party, waits=0, time=0)

    def step_begins(self, time: int) -> None:
        """Note that the recorded party's code runs from now on, at a time on its clock."""
        if not self._begun:
            self._time = time
        self._generator = torch_generator()
        self._chance.begin()

    def step_ends(
        self, found: Callable[[], Mapping[str, Any]], *, failed: bool = False
    ) -> list[ReferenceMessage]:
        """Do what the recorded party has done since `step_begins`; what the party sends.

        Parameters
        ----------
        found : callable
            Snapshot of the recorded party. Where it drew otherwise than the library's party, and
            its state is another one now, it is not followed any more.
        failed : bool
            Whether the step of the recorded party ended in an error.
        """
        self._chance.end()
        self.acts = []
        if self.lost:
            return []
        self._sent = []
        try:
            with (
                self._chance.again(),
                torch_at(self._generator),
                self._lines.step(self.acts),
            ):
                self._advance()
            self.acts.append(acts.waiting(self._wait, self._party.handlers))
        except Exception as error:  # whatever the recorded party was given made it fail
            self.acts.append(acts.ending(error))
            if not failed:
                self._lose(f"the library's party fails ({type(error).__name__}: {error})")
        odd = self._chance.in_states
        if odd and not self.lost and not same_state(self.state(), found()):
            self._lose(f"it drew other {', '.join(odd)} than the library's party draws")
        return self._sent

    def close(self) -> None:
        """End the party where it stands: the recorded one has crashed."""
        if self._coroutine is not None:
            self._coroutine.close()
        self._coroutine, self._begun = None, True
        self._given.clear()

    def rejoin(self, epoch: int, least_round: int) -> None:
        """Go on from its own checkpoint, as the recorded party does from its."""
        if self._rest is None:
            self._lose("it crashed before its first safe point")
            return
        party = self._make()
        restore(party, self._rest)
        party.epoch, party.round = epoch, max(party.round, least_round)
        party.resumptions = self._party.resumptions
        self._begin(party, setup_done=True)

    def mark(self, number: int) -> None:
        """Keep the copy of a safe point for `resume`; it may be still to come."""
        self._marked = number, self._rest if number == self._rests else None

    def resume(self, log: Sequence[Any], resumptions: int) -> None:
        """Go on from the marked safe point, with what the party got until the checkpoint."""
        copied = self._marked[1]
        if copied is None:
            self._lose("no safe point of it is known from which it was resumed")
            return
        party = self._make()
        restore(party, copied)
        party.resumptions = resumptions
        self._begin(party, setup_done=True)
        self._given.clear()
        self._replays = True
        for time, over, fields in log:
            self.given(time, over, [Message(*each) for each in fields])

    def _lose(self, why: str) -> None:
        self.lost = f"{name_of(self._party.index)}, round {self._party.round}: {why}"
        self._sent = []

    # -- its coroutine -------------------------------------------------------------------------

    def _advance(self) -> None:
        if not self._begun:
            self._begun, self._coroutine = True, self._life()
            self._step(None, None)
        while self._given:
            one = self._given.popleft()
            if one.over is None:  # it stands in a wait that began before
                self._handle(one)
                continue
            self._time = one.time
            if one.over:
                self._step(None, RoundOverError())
            else:
                self._step(one.decoded, None)
        self._replays = False

    def _handle(self, one: _Given) -> None:
        before, self._time = self._time, one.time
        message = one.decoded[0]
        self._party.handlers[message.kind](message)
        self._time = before

    def _step(self, messages: Any, error: BaseException | None) -> None:
        if self._coroutine is None:
            raise RuntimeError("it has ended")
        try:
            own = self._coroutine
            wait = own.send(messages) if error is None else own.throw(error)
        except StopIteration:
            self._coroutine = self._wait = None
            return
        self._wait = wait
        if wait.safe:
            self._at_rest()

    def _at_rest(self) -> None:
        self._rests += 1
        if self._keeping and self._setup_done:
            self._rest = snapshot(self._party, waits=0, time=self._time)
            if self._marked[0] == self._rests:
                self._marked = self._rests, self._rest

    # -- the engine, as the library's party sees it --------------------------------------------

    def time(self, party: PartyState) -> int:
        """Nanoseconds when the recorded party did the same."""
        return self._time

    def send(self, sending: Sending) -> None:
        """Keep what would be sent, with the state."""
        self.acts += acts.sendings(sending)
        _, to, kind, payloads, round, _ = sending
        state, known, content = self.state(), None, b""
        for receiver, payload in zip(to, payloads, strict=True):
            if payload is not known or not content:  # a broadcast sends one object to all
                known, content = payload, wire.encode(payload)
            self._sent.append(ReferenceMessage(kind, round, receiver, content, state))

    def record(self, party: PartyState, name: str, fields: dict[str, Any]) -> None:
        """Keep the event."""
        self.acts.append(acts.event(party, name, fields))

    def safe_point(self, party: PartyState) -> None:
        """Copy the party, as the engine would."""
        self.acts.append(acts.call("safe_point"))
        self._at_rest()

    def write_ahead(self, party: PartyState) -> None:
        """Put what is written ahead beside the copy."""
        self.acts.append(acts.call("write_ahead"))
        if self._rest is not None and self._noting:
            self._rest = {**self._rest, "ahead": ahead(self._party)}

    def round_over(self, party: PartyState, round: int, left: bool) -> None:
        """Keep that it says so."""
        self.acts.append(acts.call("round_over", round, left))

    def handled(self, party: PartyState, kind: str) -> None:
        """Give it what the recorded party's handler got at once."""
        while self._given and not self._replays and self._is_held(kind, self._given[0]):
            self._handle(self._given.popleft())

    def _is_held(self, kind: str, one: _Given) -> bool:
        return one.over is None and one.decoded[0].kind == kind

    def enter_round(self, party: PartyState, round: int) -> None:
        """Keep that it says so."""
        self.acts.append(acts.call("enter_round", round))


def same_state(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two snapshots hold the same kept attributes."""
    return all(wire.encode(one[part]) == wire.encode(other[part])
               for part in ("kept", "once", "frozen"))  # fmt: skip


def torch_generator() -> Any:
    """State of torch's global generator, from which networks of users may draw."""
    torch = sys.modules.get("torch")
    return None if torch is None else torch.get_rng_state()


@contextmanager
def torch_at(state: Any) -> Iterator[None]:
    """Draw from torch's global generator as from this state on."""
    if state is None:
        yield
        return
    import torch

    now = torch.get_rng_state()
    torch.set_rng_state(state)
    try:
        yield
    finally:
        torch.set_rng_state(now)
