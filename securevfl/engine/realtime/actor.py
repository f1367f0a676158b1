"""Actor of a party on a cluster node, which carries out an assignment.

An actor makes its party on the node that has the party's data and keys, from the party's own
checkpoint if it was restarted. It runs the party by a `securevfl.engine.realtime.host.PartyHost`,
and its frames go to the other actors by `securevfl.engine.realtime.peers`.
`securevfl.engine.cluster.supervisor` supervises the actors of a run. This module does not import
Ray, so an actor can be tested without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from securevfl.engine.carriers.direct import DirectCarrier
from securevfl.engine.network import Event
from securevfl.engine.party import Party
from securevfl.engine.realtime.assignment import PartyAssignment, begin_incarnation
from securevfl.engine.realtime.checkpoint_store import CheckpointStore
from securevfl.engine.realtime.host import PartyHost, PartyStatus
from securevfl.engine.realtime.peers import Introduction, PeerLinks

_T = TypeVar("_T")


@dataclass(frozen=True)
class Report:
    """An actor's answer to a poll: the party's status, and news since the last poll."""

    status: PartyStatus
    events: list[Event]
    messages: int
    bytes: int
    process: int


class PartyActor:
    """The actor of one party. All its methods run on one event loop.

    Parameters
    ----------
    index, assignment : int, PartyAssignment
        Number of the party, and the run.
    address : callable
        Function that returns, on the actor's machine, its address for the others.
    """

    def __init__(
        self,
        index: int,
        assignment: PartyAssignment,
        address: Callable[[], str] = lambda: "127.0.0.1",
    ) -> None:
        self.index = index
        self.assignment = assignment
        self.peers: PeerLinks | None = None
        self._address = address
        self.host: PartyHost | None = None
        self.store: CheckpointStore | None = None
        self._reported = 0

    async def claim(self) -> list[int]:
        """Lock the party's checkpoints for this process; return the rounds it can continue from."""
        store = self._claimed()
        if store is None or store.entropy() is None:  # without it the party would be another one
            return []
        return store.whole()

    def _claimed(self) -> CheckpointStore | None:
        if self.store is None:
            self.store = self.assignment.checkpoint_store(self.index)
            if self.store is not None:
                self.store.claim()
        return self.store

    async def begin(
        self,
        epoch: int,
        *,
        restored: bool,
        at: int | None,
        floor: int,
        assignment: PartyAssignment | None = None,
    ) -> Introduction:
        """Create the party as incarnation `epoch` or later; return its introduction.

        If `restored`, it continues from its checkpoint of round `at`, by default the newest;
        `floor` is the lower bound of a server's round. The actor drops its earlier incarnation and,
        with another assignment, its earlier party.
        """
        await self.leave()
        if assignment is not None:
            if self.store is not None:
                self.store.release()
            self.assignment, self.store = assignment, None
        identity = self.assignment.identity(self.index)
        host = begin_incarnation(
            self.assignment,
            self.index,
            self._claimed(),
            self._transmit,
            identity=identity,
            epoch=epoch,
            restored=restored,
            at=at,
            floor=floor,
        )
        carrier = DirectCarrier(self._address())
        self.peers = PeerLinks(host, self.assignment, identity, carrier)
        introduced = await self.peers.open()
        self.host = host
        return introduced

    async def leave(self) -> None:
        """End the incarnation and all its connections."""
        host, peers = self.host, self.peers
        self.host = self.peers = None
        self._reported = 0
        if host is not None:
            host.stop()
        if peers is not None:
            await peers.close()

    async def add_peers(self, introduced: Mapping[int, Introduction]) -> None:
        """Register incarnations of other parties, and connect to them."""
        if self.peers is not None:
            self.peers.add(introduced)

    async def go(self, passed: int) -> bool:
        """Start the party; its clock begins at `passed` nanoseconds of the run. True if started.

        False if the process was restarted meanwhile and has no party yet.
        """
        if self.host is None:
            return False
        self.host.start(passed)
        return True

    async def go_on(self, introduced: Mapping[int, Introduction], passed: int) -> bool:
        """Register the others, then start, in one call, since Ray may reorder two calls."""
        await self.add_peers(introduced)
        return await self.go(passed)

    async def poll(self) -> Report | None:
        """The party's report; None if the process was restarted and has no party yet."""
        host = self.host
        if host is None:
            return None
        events = host.events[self._reported :]
        self._reported = len(host.events)
        sent = host.transcript
        return Report(host.status, events, sent.messages, sent.bytes, os.getpid())

    async def models(self) -> dict[str, object]:
        """Present snapshot of the party, with None for attributes that never change."""
        assert self.host is not None
        saved = self.host.snapshot()
        return saved | {"once": dict.fromkeys(saved["once"])}

    async def ask(self, question: Callable[[Party], _T]) -> _T:
        """Result of the function `question`, called with the party."""
        assert self.host is not None
        return question(self.host.party)

    async def transcript(self) -> dict[str, object]:
        """State of this incarnation's transcript: the messages that it has sent."""
        assert self.host is not None
        return self.host.transcript.state()

    def _transmit(self, receiver: int, data: bytes) -> None:
        if self.peers is not None:
            self.peers.transmit(receiver, data)
