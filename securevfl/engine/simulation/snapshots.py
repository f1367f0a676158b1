"""Consistent snapshot of a simulation: a checkpoint taken while the run continues.

At no moment are all messages delivered: those of stragglers are always in flight. So parties are
copied one by one, each at its own next safe point, where its kept attributes are its whole state.
From then on its slot logs the outcomes of its waits, until the last party has reached a safe point.
Then clock, queue, uplinks and mailboxes are copied at that instant.

The copies are of different instants, and the log makes them agree: a resumed party starts at its
safe point and is given its logged outcomes (`securevfl.engine.simulation.slot.Replay`), with its
sends suppressed, as their messages are in the copied queue and mailboxes. It is then in its state
at the completion of the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from securevfl.engine.simulation.slot import PartySlot
from securevfl.errors import CheckpointError


class ConsistentSnapshot:
    """The consistent snapshot that is being taken, if any.

    Parameters
    ----------
    state : callable
        Function that returns the content of the checkpoint, once every party has been copied.
    """

    def __init__(
        self, slots: Mapping[int, PartySlot], state: Callable[[], dict[str, object]]
    ) -> None:
        self._slots = slots
        self._state = state
        self._then: Callable[[dict[str, object]], None] | None = None

    @property
    def pending(self) -> bool:
        """Whether a snapshot is being taken."""
        return self._then is not None

    def request(self, then: Callable[[dict[str, object]], None]) -> None:
        """Begin a snapshot; `then` is called with the state once every party is copied.

        A request replaces a pending one.
        """
        self._then = then
        # Whoever stands at a safe point now is copied at once; a party that is down is already
        # copied by its own checkpoint. The others follow at their next safe point.
        for slot in self._slots.values():
            slot.forget_snapshot()
            if slot.down:
                slot.take_own_snapshot()
            elif slot.done:
                self.take(slot)
            elif slot.waits_safely:
                self.take(slot, waiting=True)

    def take(self, slot: PartySlot, *, waiting: bool = False) -> None:
        """Copy a party at a safe point, if a snapshot is under way and lacks it."""
        if self.pending and slot.saved is None and slot.setup_done:
            slot.take_snapshot(waiting=waiting)

    def on_crash(self, slot: PartySlot) -> None:
        """Replace a crashed party's copy by its own checkpoint, from which it returns."""
        if self.pending:
            slot.take_own_snapshot()

    def try_finish(self) -> None:
        """Hand the state on if every party has been copied."""
        slots = self._slots.values()
        if self._then is None or any(slot.saved is None for slot in slots):
            return
        then, self._then = self._then, None
        # At this instant the copies, brought forward by their logs, and the queue agree: a message
        # that a party sent after its copy is in the queue or in a mailbox, and its replay does not
        # send it again.
        state = self._state()
        for slot in slots:
            slot.forget_snapshot()
        then(state)


def check_parties(have: Mapping[int, object], saved: Mapping[int, object]) -> None:
    """Refuse, by a CheckpointError, a state of other parties than the run has."""
    if set(have) != set(saved):
        raise CheckpointError(
            f"checkpoint: it holds the parties {sorted(saved)} and the run has {sorted(have)}; it "
            "is of another run"
        )
