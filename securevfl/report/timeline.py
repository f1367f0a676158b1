"""Timeline of a run: a lane a party with delays, late messages, left rounds, crashes."""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from securevfl.engine.network import SERVER
from securevfl.report.records import Messages, Record

CELLS = 240  # columns of a timeline; more rounds than that share columns
MARKS = ("given_up", "skipped", "corrected", "rejected", "filled", "budget", "sum_budget")
_TOLD = ("why", "missing", "clients", "guests")  # what is shown of an event
_MOST_MARKS = 400
_TICKS = 1000  # different times of a party's events that a figure can show


@dataclass(frozen=True)
class Cells:
    """Columns of a timeline: intervals of virtual time.

    Attributes
    ----------
    ends : list of float
        Virtual seconds; a column begins where the one before ends, the first at 0.
    first, last : list of int
        Rounds of each column; empty if each party counts its own rounds.
    step : int
        Number of rounds per column.
    """

    ends: list[float]
    first: list[int]
    last: list[int]
    step: int = 1

    @classmethod
    def of(cls, rounds: Sequence[int], ends: Sequence[float]) -> Cells:
        """Columns of consecutive rounds; a column may hold several."""
        step = math.ceil(len(rounds) / CELLS)
        last = [min(place + step, len(rounds)) - 1 for place in range(0, len(rounds), step)]
        return cls([ends[n] for n in last], list(rounds[::step]), [rounds[n] for n in last], step)

    @classmethod
    def equal(cls, end: float) -> Cells:
        """Columns of equal length, up to the virtual second `end`."""
        number = CELLS // 2
        return cls([(end or 1.0) * (place + 1) / number for place in range(number)], [], [])

    def at_time(self, time: float) -> int:
        """Column of the timeline that contains a virtual second."""
        return min(bisect_left(self.ends, time), len(self.ends) - 1)

    def of_event(self, event: Mapping[str, Any]) -> int:
        """Column of an event: by round if columns are rounds, else by time."""
        if not self.last:
            return self.at_time(event["time"])
        return min(bisect_left(self.last, event["round"]), len(self.last) - 1)


def timeline(record: Record) -> dict[str, Any] | None:
    """Content of a run's timeline in JSON types; None if events were not stored.

    Columns are rounds, from the first message of one to that of the next, with attempts that were
    given up as rounds of their own. Where rounds do not follow one another (asynchronous methods,
    in which each party counts its own), they are stretches of equal length.

    Returns
    -------
    dict
        ``ends``, ``first``, ``last``, ``step``, from `Cells`; ``lanes``: for each party ``bars``
        (of the server the length of a round in seconds; of the others the longest transit of a
        message of that round, or how often the server used them where columns are no rounds; means
        where rounds share a column), ``late``, ``left``, ``lost`` (counts), ``times`` (seconds of
        late and lost messages) and ``down`` (intervals of seconds, end null if it stayed down);
        ``highest``: highest bar of the server and of others; ``marks``: other events; ``there``:
        which of late, left, lost and down occur; ``table``: sums of each party; ``ways``, ``used``:
        whether others' bars are transit times, or uses.
    """
    if not record.whole:
        return None
    cells, lengths = _columns(record)
    ways = _under_way(record.messages) if cells.last and record.messages is not None else {}
    lanes = [_lane(record, cells, party, ways, lengths) for party in _parties(record)]
    kinds = ("late", "left", "lost", "down")
    return {
        "ends": cells.ends,
        "first": cells.first,
        "last": cells.last,
        "step": cells.step,
        "lanes": lanes,
        "highest": {
            "server": max((_highest(lane) for lane in lanes if lane["party"] == SERVER), default=0),
            "others": max((_highest(lane) for lane in lanes if lane["party"] != SERVER), default=0),
        },
        "marks": _marks(record),
        "there": [name for name in kinds if any(any(lane[name]) for lane in lanes)],
        "table": [_sums(record, lane, ways) for lane in lanes],
        "ways": bool(ways),
        "used": any("client" in row for row in record.rows),
    }


def event_counts(record: Record) -> list[dict[str, Any]]:
    """Kinds of recorded events, the most frequent first.

    Each has ``event`` (the kind), ``count``, ``parties`` (names), and the ``first`` and ``last``
    second.
    """
    found: dict[str, dict[str, Any]] = {}
    for event in record.events:
        entry = found.setdefault(
            event["event"], {"count": 0, "parties": set(), "first": event["time"]}
        )
        entry["count"] += 1
        entry["parties"].add(event["party"])
        entry["last"] = event["time"]
    return [
        {"event": name, **entry, "parties": [record.names[p] for p in sorted(entry["parties"])]}
        for name, entry in sorted(found.items(), key=lambda item: -item[1]["count"])
    ]


def _columns(record: Record) -> tuple[Cells, dict[int, float]]:
    """Columns of the timeline, and round lengths in seconds if columns are rounds."""
    end = max(entry["time"] for entry in [*record.rows, *record.events])
    if any("client" in row for row in record.rows):
        return Cells.equal(end), {}
    if record.messages is None:
        rounds = [row["round"] for row in record.rows]
        starts = [0.0, *(row["time"] for row in record.rows[:-1])]
    else:
        rounds, starts = record.messages.starts()
        # On a cluster setup overlaps with round 1.
        if rounds[0] == 0 and len(starts) > 1 and starts[0] > starts[1]:
            rounds, starts = rounds[1:], starts[1:]
    over = max(e["time"] for e in [*record.rows, *record.events] if e["party"] == SERVER)
    done = record.rows[-1]["round"]
    while starts[-1] >= over and rounds[len(starts) - 1] > done:  # announces that all is over
        del starts[-1]
    if any(later < before for before, later in pairwise(starts)):
        return Cells.equal(end), {}
    rounds, ends = rounds[: len(starts)], [*starts[1:], max(over, starts[-1])]
    times = [0.0, *ends]
    lengths = [later - before for before, later in pairwise(times)]
    return Cells.of(rounds, ends), dict(zip(rounds, lengths, strict=True))


def _under_way(messages: Messages) -> dict[int, dict[int, float]]:
    """Longest transit time in seconds of the messages that arrived, by client and then round."""
    columns = messages.columns
    there = (columns["arrived"] >= 0) & (columns["sender"] != SERVER) & (columns["round"] > 0)
    sender, round_ = columns["sender"][there], columns["round"][there]
    seconds = (columns["arrived"][there] - columns["sent"][there]) / 1e9
    keys, where = np.unique(np.stack([sender, round_]), axis=1, return_inverse=True)
    longest = np.zeros(keys.shape[1])
    np.maximum.at(longest, where.reshape(-1), seconds)
    found: dict[int, dict[int, float]] = {}
    for party, number, value in zip(*keys.tolist(), longest.tolist(), strict=True):
        found.setdefault(party, {})[number] = value
    return found


def _parties(record: Record) -> list[int]:
    found = {SERVER, *(event["party"] for event in record.events)}
    if record.messages is not None:
        found |= set(record.messages.parties())
    return sorted(found)


def _lane(
    record: Record,
    cells: Cells,
    party: int,
    ways: Mapping[int, Mapping[int, float]],
    lengths: Mapping[int, float],
) -> dict[str, Any]:
    own = [event for event in record.events if event["party"] == party]
    late = late_times(record, party)
    lost = [event["time"] for event in own if event["event"] == "lost"]
    if party == SERVER or not cells.last:
        bars = _means(cells, lengths) if cells.last else _used(record, cells, party)
    else:
        bars = _means(cells, ways.get(party, {})) if ways else None
    return {
        "party": party,
        "name": record.names[party],
        "bars": bars,
        "late": _counts(cells, [cells.at_time(time) for time in late]),
        "left": _counts(cells, [cells.of_event(e) for e in own if e["event"] == "left"]),
        "lost": _counts(cells, [cells.at_time(time) for time in lost]),
        "times": {"late": _ticks(late, cells.ends[-1]), "lost": _ticks(lost, cells.ends[-1])},
        "down": down_times(own),
    }


def late_times(record: Record, party: int) -> list[float]:
    """Virtual seconds at which late messages of a party arrived.

    On a cluster they are in the receiver's history, because senders do not learn of them.
    """
    if record.messages is not None and record.messages.columns["late"].any():
        return record.messages.late_times(party)
    late = [event for event in record.events if event["event"] == "late"]
    return [e["time"] for e in late if e.get("sender", e["party"]) == party]


def _counts(cells: Cells, places: Sequence[int]) -> list[int]:
    found = np.bincount(np.array(places, np.int64), minlength=len(cells.ends))
    return [int(number) for number in found]


def _ticks(times: Sequence[float], end: float) -> list[float]:
    """At most `_TICKS` distinct times, rounded, up to the end."""
    step = end / _TICKS or 1.0
    return sorted({round(time / step) * step for time in times})


def _highest(lane: Mapping[str, Any]) -> float:
    return float(max(lane["bars"] or (), default=0.0))


def _means(cells: Cells, values: Mapping[int, float]) -> list[float]:
    """Mean of values, given by round, over the rounds of each column; 0 for a column of none."""
    sums, counts = np.zeros(len(cells.ends)), np.zeros(len(cells.ends))
    for number, value in values.items():
        place = bisect_left(cells.last, number)
        if place < len(sums):
            sums[place] += value
            counts[place] += 1
    return [float(mean) for mean in sums / np.maximum(counts, 1)]


def _used(record: Record, cells: Cells, party: int) -> list[float] | None:
    """Number of times that the server used a party, in each column of `cells`; None if unknown."""
    times = [row["time"] for row in record.rows if row.get("client") == party]
    if party == SERVER or not any("client" in row for row in record.rows):
        return None
    return [float(n) for n in _counts(cells, [cells.at_time(time) for time in times])]


def down_times(own: Sequence[Mapping[str, Any]]) -> list[list[float | None]]:
    """Pairs [from, to] of seconds while a party was down; `to` is None if it never came back.

    `own` are its events in order, with "event" ("down", "up", others) and "time".
    """
    found: list[list[float | None]] = []
    for event in own:
        if event["event"] == "down":
            found.append([event["time"], None])
        elif event["event"] == "up" and found and found[-1][1] is None:
            found[-1][1] = event["time"]
    return found


def _marks(record: Record) -> list[dict[str, Any]]:
    return [
        {
            "time": event["time"],
            "party": event["party"],
            "name": event["event"].replace("_", " "),
            "text": ", ".join(f"{k}: {_words(record, event[k])}" for k in _TOLD if k in event),
        }
        for event in record.events
        if event["event"] in MARKS
    ][:_MOST_MARKS]


def _words(record: Record, value: Any) -> str:
    """Text of an event field: a reason, or parties by name."""
    if record.names and isinstance(value, list) and all(isinstance(n, int) for n in value):
        return ", ".join(record.names[n] for n in value)
    return record.names.in_text(str(value))


def _sums(
    record: Record, lane: Mapping[str, Any], ways: Mapping[int, Mapping[int, float]]
) -> dict[str, Any]:
    party = lane["party"]
    end = max(entry["time"] for entry in [*record.rows, *record.events])
    own = ways.get(party, {})
    largest = {r: max(each.get(r, 0.0) for each in ways.values()) for r in own}
    return {
        "party": lane["name"],
        "mean": math.fsum(own.values()) / len(own) if own else None,
        "largest": max(own.values(), default=None),
        "slowest": sum(map(operator.eq, own.values(), largest.values())) if own else None,
        "used": sum(row.get("client") == party for row in record.rows),
        "late": sum(lane["late"]),
        "left": sum(lane["left"]),
        "lost": sum(lane["lost"]),
        "crashes": len(lane["down"]),
        "seconds_down": math.fsum((end if b is None else b) - a for a, b in lane["down"]),
    }
