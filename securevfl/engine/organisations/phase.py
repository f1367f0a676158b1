"""A phase: part of a session, in which every party runs one coroutine to its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from securevfl.engine.network import Event
from securevfl.engine.realtime.assignment import PartyAssignment
from securevfl.engine.realtime.checkpoint_store import CheckpointStore
from securevfl.engine.realtime.host import PartyHost


@dataclass(frozen=True)
class Phase:
    """One phase of a session at one party.

    Attributes
    ----------
    number, name, assignment : int, str, PartyAssignment
        Number of the phase (phases run in ascending order), its name, and its run.
    store : CheckpointStore
        The party's locked checkpoint store of this phase.
    tolerant : bool
        Whether the protocol's timeouts let the others continue without an absent client, which then
        returns alone. Otherwise all go back to the newest common round.
    finished : callable
        Whether the party's result of this phase is on disk.
    finish : callable
        Writes the result.
    used : callable
        Records that the session is used.
    observe : callable
        Called with each event of the party.
    go_back : callable
        Called with the round to which the party goes back, or None for the beginning. It deletes
        the result and later observations.
    passed : callable
        Function that returns the nanoseconds of the phase that have passed, at which its clock
        starts.
    doing : str
        Activity of the party in this phase, such as "trains", for messages to the user.
    advance : callable
        Called many times a second with the host, while the party runs.
    """

    number: int
    name: str
    assignment: PartyAssignment
    store: CheckpointStore
    tolerant: bool
    finished: Callable[[], bool]
    finish: Callable[[PartyHost], None]
    used: Callable[[], None]
    observe: Callable[[Event], None]
    go_back: Callable[[int | None], None]
    passed: Callable[[], int]
    doing: str
    advance: Callable[[PartyHost], None]

    def rounds(self) -> tuple[int, ...]:
        """Rounds with a checkpoint from which the party can continue."""
        if self.store.entropy() is None:  # without it the party would be another one
            return ()
        return tuple(self.store.whole())
