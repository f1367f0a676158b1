"""Checkpoints of a simulation: a consistent cut, taken while the run goes on.

A moment at which nothing is under way does not exist, so each party's kept attributes are copied at
its own next safe point, and what its waits return from there until the last party is there is
logged (`securevfl.engine.party_state`). The cut holds clock, queue, uplinks and mailboxes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from securevfl.engine.network import Message
from securevfl.engine.party_state import Replay, snapshot
from securevfl.errors import CheckpointError

if TYPE_CHECKING:
    from securevfl.engine.simulation.simulator import Home, Simulation

Entry = tuple[int, int, int, Any]


class Cuts:
    """The checkpoint that is being taken, if any.

    Parameters
    ----------
    simulation : Simulation
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._then: Callable[[dict[str, Any]], None] | None = None

    @property
    def pending(self) -> bool:
        """Whether one is being taken."""
        return self._then is not None

    def request(self, then: Callable[[dict[str, Any]], None]) -> None:
        """Hand the state to `then` as soon as every party has passed a safe point."""
        self._then = then
        for home in self._simulation.homes.values():
            self.forget(home)
            wait = home.mailbox.wait
            if home.down:
                home.snapshot = home.own
            elif home.done or (wait is not None and wait.safe and not wait.satisfied):
                self.take(home, posted=not home.done)

    def forget(self, home: Home) -> None:
        """Drop what was copied of a party."""
        home.snapshot = None
        home.log = []

    def take(self, home: Home, *, posted: bool = False) -> None:
        """Copy a party that is at a safe point, if it is wanted and not copied yet."""
        if self.pending and home.snapshot is None and home.settled:
            time = home.since if posted else self._simulation.clock
            home.snapshot = snapshot(home.party, waits=home.waits - posted, time=time)

    def try_finish(self) -> None:
        """Hand the state on if every party has been copied."""
        homes = self._simulation.homes.values()
        if self._then is None or any(home.snapshot is None for home in homes):
            return
        then, self._then = self._then, None
        state = self._simulation.state()
        for home in homes:
            self.forget(home)
        then(state)


def home_state(home: Home) -> dict[str, Any]:
    """What the engine knows of a party, as a payload of `securevfl.engine.wire`."""
    own = None if home.own is None else {**home.own, "once": {}}  # the snapshot has the constants
    return {
        "snapshot": home.snapshot,
        "log": home.log,
        "done": home.done,
        "mailbox": home.mailbox.state(),
        "uplink_free": home.uplink_free,
        "busy_until": home.busy_until,
        "down": home.down,
        "own": own,
        "epochs": home.epochs,
    }


def restore_home(home: Home, saved: Mapping[str, Any]) -> None:
    """Inverse of `home_state`; the party is then at its safe point, its log before it."""
    home.replay = Replay(home.party, saved["snapshot"], saved["log"])
    home.settled = True
    home.waits = home.replay.waits
    home.mailbox.restore(saved["mailbox"])
    home.uplink_free = saved["uplink_free"]
    home.busy_until = saved["busy_until"]
    home.done = saved["done"]
    home.down = saved["down"]
    home.epochs = saved["epochs"]
    if saved["own"] is not None:
        home.own = {**saved["own"], "once": saved["snapshot"]["once"]}


def check_parties(have: Mapping[int, Any], saved: Mapping[int, Any]) -> None:
    """Refuse a state of other parties."""
    if set(have) != set(saved):
        raise CheckpointError(
            f"checkpoint: it holds the parties {sorted(saved)} and the run has {sorted(have)}; it "
            "is of another run"
        )


def pack_queue(queue: list[Entry], arrive: int, depart: int) -> list[tuple[Any, ...]]:
    """Events as payloads; messages become tuples."""

    def pack(entry: Entry) -> tuple[Any, ...]:
        time, order, what, subject = entry
        if what == arrive:
            subject = tuple(subject)
        elif what == depart:
            subject = (tuple(subject[0]), subject[1])
        return time, order, what, subject

    return [pack(entry) for entry in queue]


def unpack_queue(packed: list[tuple[Any, ...]], arrive: int, depart: int) -> list[Entry]:
    """Inverse of `pack_queue`, as a heap."""

    def unpack(entry: tuple[Any, ...]) -> Entry:
        time, order, what, subject = entry
        if what == arrive:
            subject = Message(*subject)
        elif what == depart:
            subject = (Message(*subject[0]), subject[1])
        return time, order, what, subject

    queue = [unpack(entry) for entry in packed]
    heapq.heapify(queue)
    return queue
