"""The event queue: order, ties, and its state."""

import numpy as np

from securevfl.engine import wire
from securevfl.engine.network import Message
from securevfl.engine.simulation.event_queue import (
    ARRIVE,
    DEPART,
    FAULTS,
    RESUME,
    TIMER,
    TOGETHER,
    EventQueue,
)

MESSAGE = Message(0, 1, "x", np.arange(3), 2, 0, 5)


def test_events_of_one_instant_happen_in_the_order_of_scheduling():
    queue = EventQueue()
    queue.schedule(5, TIMER, (0, 1))
    queue.schedule(3, RESUME, (0, 2))
    queue.schedule(5, ARRIVE, MESSAGE)
    queue.schedule(5, ARRIVE, MESSAGE)  # equal to the one before: nothing compares messages
    queue.schedule(5, FAULTS, True)
    assert [queue.pop()[0] for _ in range(5)] == [RESUME, TIMER, ARRIVE, ARRIVE, FAULTS]
    assert not queue.events


def test_the_clock_stands_at_the_event_that_happens():
    queue = EventQueue()
    queue.schedule(7, TIMER, (0, 1))
    assert queue.now == 0
    assert queue.pop() == (TIMER, (0, 1))
    assert queue.now == 7


def test_its_state_goes_through_bytes_and_keeps_the_order():
    queue = EventQueue()
    for time, kind, subject in (
        (9, DEPART, (MESSAGE, 40)),
        (4, ARRIVE, MESSAGE),
        (4, TIMER, (2, 3)),
        (4, RESUME, (1, 3)),
    ):
        queue.schedule(time, kind, subject)
    twin = EventQueue()
    twin.restore(wire.decode(wire.encode(queue.state())))
    twin.schedule(4, FAULTS, False)
    queue.schedule(4, FAULTS, False)
    for _ in range(5):
        (kind, subject), (other, theirs) = queue.pop(), twin.pop()
        assert kind == other
        assert repr(subject) == repr(theirs)
        assert twin.now == queue.now
        if kind == ARRIVE:
            assert isinstance(theirs, Message)


def test_looks_at_the_fault_schedule_are_no_messages():
    queue = EventQueue()
    assert queue.no_messages_in_flight
    queue.schedule(1, FAULTS, False)
    assert queue.no_messages_in_flight
    queue.schedule(2, TIMER, (0, 1))
    assert not queue.no_messages_in_flight


def test_messages_that_depart_together_are_events_of_their_own_in_a_checkpoint():
    together, one_by_one = EventQueue(), EventQueue()
    for queue in (together, one_by_one):
        queue.schedule(9, TIMER, (0, 1))
    messages = [(MESSAGE._replace(receiver=n), 40 + n) for n in range(3)]
    together.schedule_together(9, messages)
    together.schedule_together(9, [])
    for message in messages:
        one_by_one.schedule(9, DEPART, message)
    for queue in (together, one_by_one):
        queue.schedule(9, RESUME, (0, 2))
    assert repr(together.state()) == repr(one_by_one.state())
    twin = EventQueue()
    twin.restore(wire.decode(wire.encode(together.state())))
    assert [twin.pop()[0] for _ in range(5)] == [TIMER, DEPART, DEPART, DEPART, RESUME]
    assert [together.pop()[0] for _ in range(3)] == [TIMER, TOGETHER, RESUME]
