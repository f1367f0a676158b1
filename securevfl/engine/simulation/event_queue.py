"""Event queue of a simulation: virtual time and scheduled events.

Events are ordered by (time, number of scheduling). So two events of one instant happen in the order
in which they were scheduled, whatever they are, and a run is a function of its seed: no event is
ever compared by its content, and the order does not depend on the heap.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Any

from securevfl.engine.network import Message, computed

# Kinds of event; their numbers stand in checkpoints, but for TOGETHER: messages that depart at
# once are one event here, and an event each in a checkpoint; and for WAKE, which follows from the
# messages on their way.
DEPART, ARRIVE, TIMER, RESUME, FAULTS, TOGETHER, WAKE = range(7)
_ALL = 1 << 62
Coming = tuple[int, int, Message]  # time of arrival, number of scheduling, message


class EventQueue:
    """The virtual clock and the scheduled events.

    Attributes
    ----------
    now : int
        Virtual nanoseconds: the time of the event that happens.
    number : int
        Number of the current event; above all numbers once all events of this instant are over.
    events : list
        Heap of (time, number, kind, subject) of the events that are to come.
    quiet : list of int
        Heap of instants after `now` at which messages arrive without an event.
    """

    def __init__(self) -> None:
        self.now = 0
        self.number = 0
        self.events: list[tuple[int, int, int, object]] = []
        self.quiet: list[int] = []
        self._scheduled = 0

    def pop(self) -> tuple[int, Any]:
        """Move the clock to the next event; return its kind and subject."""
        self.now, self.number, kind, subject = heapq.heappop(self.events)
        return kind, subject

    def next_instant(self) -> int | None:
        """Time of the next event or arrival; None if there is none."""
        quiet, events = self.quiet, self.events
        while quiet and quiet[0] <= self.now:
            heapq.heappop(quiet)
        if quiet and (not events or quiet[0] < events[0][0]):
            return quiet[0]
        return events[0][0] if events else None

    def end_instant(self) -> None:
        """Note that all events of this instant are done."""
        self.number = _ALL

    def pass_quietly(self, instant: int) -> bool:
        """Move the clock to an instant with only quiet arrivals; False if an event is due."""
        if self.events and self.events[0][0] <= instant:
            return False
        self.now, self.number = instant, _ALL
        return True

    def take(self, count: int) -> int:
        """Reserve `count` consecutive event numbers; return the first."""
        self._scheduled += count
        return self._scheduled - count

    def schedule_as(self, time: int, number: int, kind: int, subject: object) -> None:
        """Schedule an event at `time` (ns) under a message's number, which orders ties."""
        heapq.heappush(self.events, (time, number, kind, subject))

    def schedule(self, time: int, kind: int, subject: object) -> None:
        """Schedule an event.

        Parameters
        ----------
        time : int
            Virtual nanoseconds, not before `now`.
        kind : int
            `DEPART` (message and its bytes), `ARRIVE` (message), `TIMER` or `RESUME` (party and
            number of its wait), `FAULTS` (reason for the check of the fault schedule).
        subject
            Subject of the event, as `kind` requires.
        """
        heapq.heappush(self.events, (time, self._scheduled, kind, subject))
        self._scheduled += 1

    def schedule_together(self, time: int, messages: list[tuple[Message, int]]) -> None:
        """Schedule the departure of messages, each with its bytes, as one event."""
        if messages:
            heapq.heappush(self.events, (time, self._scheduled, TOGETHER, messages))
            self._scheduled += len(messages)  # numbers for each of them, as a checkpoint has it

    @property
    def no_messages_in_flight(self) -> bool:
        """Whether only checks of the fault schedule remain, no message and no timer."""
        return all(kind == FAULTS for _, _, kind, _ in self.events)

    def state(self, coming: Iterable[Coming] = ()) -> dict[str, object]:
        """The content as a payload of `securevfl.engine.wire`; messages become tuples.

        `coming` are messages in flight without an event; the content has an event for each.
        """
        events = [entry for entry in self.events if entry[2] != WAKE]
        events += [(time, number, ARRIVE, message) for time, number, message in coming]
        return {
            "clock": self.now,
            "scheduled": self._scheduled,
            "queue": [one for entry in sorted(events, key=_place) for one in _packed(*entry)],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state from `state`."""
        self.now = state["clock"]
        self._scheduled = state["scheduled"]
        # Times and numbers order events totally, so the heap built here yields them as the old one
        # would, whatever its inner order was.
        self.events = [_unpacked(*entry) for entry in state["queue"]]
        heapq.heapify(self.events)


def _place(entry: tuple[int, int, int, object]) -> tuple[int, int]:
    return entry[:2]


def _packed(time: int, number: int, kind: int, subject: Any) -> list[tuple[int, int, int, object]]:
    if kind == TOGETHER:
        return [
            (time, number + place, DEPART, (tuple(computed(message)), nbytes))
            for place, (message, nbytes) in enumerate(subject)
        ]
    if kind == ARRIVE:
        subject = tuple(computed(subject))
    elif kind == DEPART:
        subject = (tuple(computed(subject[0])), subject[1])
    return [(time, number, kind, subject)]


def _unpacked(time: int, number: int, kind: int, subject: Any) -> tuple[int, int, int, object]:
    if kind == ARRIVE:
        subject = Message(*subject)
    elif kind == DEPART:
        subject = (Message(*subject[0]), subject[1])
    return time, number, kind, subject
