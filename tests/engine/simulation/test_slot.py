"""The slot of a party: busy times, crash and rejoin, snapshot, state and replay."""

import pytest

from securevfl.engine import wire
from securevfl.engine.network import Message
from securevfl.engine.party import Party
from securevfl.engine.simulation.event_queue import RESUME, TIMER, EventQueue
from securevfl.engine.simulation.slot import PartySlot


class Counter(Party):
    """Counts what it hears; every wait is a safe point. Writes down the time of each step."""

    kept = ("total",)

    def __init__(self):
        super().__init__(0, (0, 1))
        self.total = 0
        self.times = []

    async def run(self):
        while self.total < 100:
            value = await self.receive("x", timeout=2.0, safe=True)
            self.times.append(self.engine.time(self))
            self.total += value
            await self.receive("y")


class Place:
    """A slot with a queue, and the network of its party."""

    def __init__(self, party, saved=None, now=0):
        self.queue = EventQueue()
        self.queue.now = now
        self.rests, self.late = [], []
        self.slot = PartySlot(
            party, self.queue, self.late.append, self.rests.append, measured=False
        )
        party.engine = self
        if saved is not None:
            self.slot.restore(wire.decode(wire.encode(saved)))
        self.slot.start()

    def time(self, party):
        return self.slot.now

    def hear(self, payload, kind="x", time=None):
        self.queue.now = self.queue.now if time is None else time
        self.slot.runner.deliver(Message(1, 0, kind, payload, 0, 0, 3))


def test_a_timer_counts_from_when_the_party_is_free():
    place = Place(Counter())
    assert place.queue.events == [(2_000_000_000, 0, TIMER, (0, 1))]
    place.hear(1)
    place.slot.occupy(50)
    place.hear(1, "y")  # the party is busy, and goes on when it is free
    assert place.queue.events[0] == (50, 1, RESUME, (0, 2))
    place.queue.pop()
    place.slot.runner.resume(2)
    assert place.queue.events[-1] == (2_000_000_050, 2, TIMER, (0, 3))


def test_a_party_does_one_piece_of_work_after_the_other():
    slot = Place(Counter()).slot
    assert slot.occupy(7) == 7
    assert slot.occupy(7) == 14


def test_a_crash_loses_messages_and_a_rejoin_goes_on_from_the_own_checkpoint():
    place = Place(Counter())
    place.hear(3)
    place.hear(None, "y")
    place.slot.keep_own()
    place.hear(4)
    place.hear(5)  # held, as the party waits for y
    waits = place.slot.runner.waits
    place.slot.crash()
    assert place.slot.down
    assert not place.slot.done
    assert place.slot.describe_wait() is None
    assert place.slot.mailbox.state()["held"] == []
    assert place.late == []
    party = Counter()
    party.engine = place
    place.slot.rejoin(party, least_round=4)
    place.slot.start()
    assert (party.total, party.epoch, party.round) == (3, 1, 4)
    assert place.slot.runner.waits == waits + 2  # timers of the incarnation before name other waits
    place.hear(6)
    assert party.total == 9


def test_a_copied_party_is_replayed_to_where_its_slot_was_saved():
    place = Place(Counter())
    place.hear(3, time=10)
    place.hear(None, "y", time=20)
    place.slot.take_snapshot(waiting=True)
    place.hear(4, time=30)
    place.hear(5, time=40)
    saved = place.slot.state()
    assert saved["snapshot"]["time"] == 20

    party = Counter()
    twin = Place(party, saved, now=40)
    assert party.total == 7
    assert party.times == [30]  # the clock of the moment that was replayed
    assert twin.time(party) == 40
    assert not twin.slot.replaying
    assert twin.queue.events == []  # its timers are in the queue of the checkpoint
    for each in (place, twin):
        each.hear(None, "y", time=50)
    assert party.total == place.slot.party.total == 12


def test_a_snapshot_is_of_a_party_at_rest():
    place = Place(Counter())
    assert place.rests == [place.slot]
    assert place.slot.waits_safely
    place.hear(3)
    assert not place.slot.waits_safely
    assert place.slot.saved is None
    place.slot.take_snapshot()
    place.slot.forget_snapshot()
    assert place.slot.saved is None
    place.hear(1, "y")
    place.hear(97)
    place.slot.take_snapshot()
    place.hear(1, "y")
    assert place.slot.done
    assert place.slot.saved is None  # at its end it is copied anew, by the one that is told
    assert place.rests[-1] is place.slot


@pytest.mark.parametrize("down", [False, True])
def test_a_party_that_is_down_is_copied_from_its_own_checkpoint(down):
    place = Place(Counter())
    place.slot.keep_own()
    place.hear(3)
    if down:
        place.slot.crash()
    place.slot.take_own_snapshot()
    saved = place.slot.state()
    assert wire.decode(saved["snapshot"]["kept"]) == {"total": 0}
    assert saved["own"]["once"] == {}
    assert saved["down"] is down
