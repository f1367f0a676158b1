"""Who straggled, was late, left a round or was down, and when: one lane for each party."""

from __future__ import annotations

import itertools
import math
import operator
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from securevfl.engine.conditions import Conditions, conditions_from
from securevfl.engine.network import SERVER
from securevfl.errors import ConfigurationError
from securevfl.study.report.loading import Record

CELLS = 240  # columns of a timeline; more rounds than that share columns
DRAWS = 60_000  # delays that are drawn anew for a report at most
MARKS = ("given_up", "skipped", "corrected", "rejected", "filled", "budget")
_MOST_MARKS = 400
_TICKS = 1000  # different times of a party's events that a figure can show


def party_name(party: int) -> str:
    """What a report calls a party."""
    return "server" if party == SERVER else f"party {party}"


@dataclass(frozen=True)
class Cells:
    """Columns of a timeline: stretches of virtual time, each with the rounds that ended in it.

    Attributes
    ----------
    ends : list of float
        Virtual seconds; a column begins where the one before ends, the first at 0.
    first, last : list of int
        Rounds, where columns are rounds; empty where parties have rounds of their own.
    """

    ends: list[float]
    first: list[int]
    last: list[int]

    def at_time(self, time: float) -> int:
        """Column of a virtual second."""
        return min(bisect_left(self.ends, time), len(self.ends) - 1)

    def of_round(self, round: int) -> int:
        """Column of a round; attempts that were given up are in that of the step that followed."""
        return min(bisect_left(self.last, round), len(self.last) - 1)


def timeline(record: Record) -> dict[str, Any] | None:
    """Content of a run's timeline, in JSON types; None where a study kept no events.

    Returns
    -------
    dict
        ``ends``, ``first``, ``last`` as in `Cells`; ``asynchronous``; ``lanes``: for each party
        ``bars`` (of the server the mean length of a round in seconds; of the others the mean delay
        of their uploads in seconds, or how often they were used where each goes its own pace),
        ``late``, ``left``, ``lost`` (counts), ``times`` (seconds of late and lost messages, as far
        as the history tells) and ``down`` (stretches of seconds, null where it did not come back);
        ``highest``: the highest bar of the server and of the others; ``marks``: what else happened;
        ``there``: which of late, left, lost and down there are; ``table``: sums for each party.
    """
    if not record.whole:
        return None
    asynchronous = any("client" in row for row in record.rows)
    cells = _bins(record) if asynchronous else _rounds(record.rows)
    delays = {} if asynchronous else _delays(record)
    parties = _parties(record)
    lanes = [_lane(record, cells, party, delays.get(party)) for party in parties]
    return {
        "asynchronous": asynchronous,
        "ends": cells.ends,
        "first": cells.first,
        "last": cells.last,
        "lanes": lanes,
        "highest": {
            "server": max((_highest(lane) for lane in lanes if lane["party"] == SERVER), default=0),
            "others": max((_highest(lane) for lane in lanes if lane["party"] != SERVER), default=0),
        },
        "marks": _marks(record),
        "table": [_sums(record, party, delays) for party in parties],
        "there": [
            name
            for name in ("late", "left", "lost", "down")
            if any(any(lane[name]) for lane in lanes)
        ],
        "delays": bool(delays),
        "rounds_of_a_column": math.ceil(len(record.rows) / CELLS),
    }


def event_counts(record: Record) -> list[dict[str, Any]]:
    """How often each kind of event was recorded, by whom, and when first and last."""
    found: dict[str, dict[str, Any]] = {}
    for event in record.events:
        entry = found.setdefault(
            event["event"], {"count": 0, "parties": set(), "first": event["time"]}
        )
        entry["count"] += 1
        entry["parties"].add(event["party"])
        entry["last"] = event["time"]
    return [
        {"event": name, **entry, "parties": [party_name(p) for p in sorted(entry["parties"])]}
        for name, entry in sorted(found.items(), key=lambda item: -item[1]["count"])
    ]


def _rounds(rows: Sequence[Mapping[str, Any]]) -> Cells:
    step = math.ceil(len(rows) / CELLS)
    groups = [rows[start : start + step] for start in range(0, len(rows), step)]
    return Cells(
        ends=[group[-1]["time"] for group in groups],
        first=[group[0]["round"] for group in groups],
        last=[group[-1]["round"] for group in groups],
    )


def _bins(record: Record) -> Cells:
    number = CELLS // 2
    end = max(entry["time"] for entry in [*record.rows, *record.events]) or 1.0
    return Cells([end * (place + 1) / number for place in range(number)], [], [])


def _parties(record: Record) -> list[int]:
    found = {SERVER, *(event["party"] for event in record.events)}
    found |= set(range(len(record.config.get("conditions", {}).get("upload_mean", ()))))
    if record.messages is not None:
        found |= {party for _, *ends in record.messages.links for party in ends}
    return sorted(found)


def _delays(record: Record) -> dict[int, list[float]]:
    """Upload delay of each client in each row's round, in seconds; empty where there are none.

    Delays are a function of (seed, party, round), so the run's are drawn anew from its conditions.
    """
    made = _conditions(record)
    if made is None or len(record.rows) * len(made.uploads) > DRAWS:
        return {}
    return {
        party: [made.delay(record.seed, party, row["round"], "upload") / 1e9 for row in record.rows]
        for party in range(len(made.uploads))
    }


def _conditions(record: Record) -> Conditions | None:
    said = dict(record.config.get("conditions", {}))
    name, parties = str(said.pop("name", "")), len(said.get("upload_mean", ()))
    try:
        made = conditions_from(said, parties=parties, batch_rows=1, name=name)
    except (ConfigurationError, TypeError, ValueError):
        return None
    return made if any(delay.expectation for delay in made.uploads) else None


def _lane(
    record: Record, cells: Cells, party: int, delays: Sequence[float] | None
) -> dict[str, Any]:
    own = [event for event in record.events if event["party"] == party]
    counts = {name: [0] * len(cells.ends) for name in ("late", "left", "lost")}
    for event in own:
        name = event["event"]
        if name in ("left", "lost"):
            by_round = name == "left" and cells.last
            place = cells.of_round(event["round"]) if by_round else cells.at_time(event["time"])
            counts[name][place] += 1
    for place, number in _late(record, cells, party, own):
        counts["late"][place] += number
    return {
        "party": party,
        "name": party_name(party),
        "bars": _bars(record, cells, party, delays),
        **counts,
        "times": {name: _times(own, name, cells.ends[-1]) for name in ("late", "lost")},
        "down": down_times(own),
    }


def _highest(lane: Mapping[str, Any]) -> float:
    return float(max(lane["bars"] or (), default=0.0))


def _times(own: Sequence[Mapping[str, Any]], name: str, end: float) -> list[float]:
    """When a kind of event happened, at most `_TICKS` different times."""
    step = end / _TICKS or 1.0
    return sorted({round(e["time"] / step) * step for e in own if e["event"] == name})


def _late(
    record: Record, cells: Cells, party: int, own: Sequence[Mapping[str, Any]]
) -> list[tuple[int, int]]:
    """Columns and numbers of a party's late messages: by round, or by time where that is told."""
    if cells.last and record.messages is not None:
        late = record.messages.late.items()
        return [(cells.of_round(r), number) for (sender, r), number in late if sender == party]
    return [(cells.at_time(event["time"]), 1) for event in own if event["event"] == "late"]


def _bars(
    record: Record, cells: Cells, party: int, delays: Sequence[float] | None
) -> list[float] | None:
    if not cells.last:
        if party == SERVER:
            return None
        used = [0.0] * len(cells.ends)
        for row in record.rows:
            if row.get("client") == party:
                used[cells.at_time(row["time"])] += 1
        return used
    if party == SERVER:
        times = [0.0, *(row["time"] for row in record.rows)]
        delays = [after - before for before, after in itertools.pairwise(times)]
    if delays is None:
        return None
    step = math.ceil(len(record.rows) / CELLS)
    groups = [delays[start : start + step] for start in range(0, len(delays), step)]
    return [math.fsum(group) / len(group) for group in groups]


def down_times(own: Sequence[Mapping[str, Any]]) -> list[list[float | None]]:
    """Stretches of seconds in which a party was down; of its events in the order of time."""
    found: list[list[float | None]] = []
    for event in own:
        if event["event"] == "down":
            found.append([event["time"], None])
        elif event["event"] == "up" and found and found[-1][1] is None:
            found[-1][1] = event["time"]
    return found


def _marks(record: Record) -> list[dict[str, Any]]:
    told = ("why", "missing", "clients", "guests")
    return [
        {
            "time": event["time"],
            "party": event["party"],
            "name": event["event"].replace("_", " "),
            "text": ", ".join(f"{k}: {event[k]}" for k in told if k in event),
        }
        for event in record.events
        if event["event"] in MARKS
    ][:_MOST_MARKS]


def _sums(record: Record, party: int, delays: Mapping[int, Sequence[float]]) -> dict[str, Any]:
    own = [event for event in record.events if event["party"] == party]
    end = max(entry["time"] for entry in [*record.rows, *record.events])
    down = down_times(own)
    drawn = delays.get(party)
    late = sum(event["event"] == "late" for event in own)
    if record.messages is not None:
        late = sum(n for (sender, _), n in record.messages.late.items() if sender == party)
    slowest = [max(at) for at in zip(*delays.values(), strict=True)]
    return {
        "party": party_name(party),
        "mean_delay": math.fsum(drawn) / len(drawn) if drawn else None,
        "largest_delay": max(drawn) if drawn else None,
        "slowest": sum(map(operator.eq, drawn, slowest)) if drawn else None,
        "used": sum(row.get("client") == party for row in record.rows)
        if any("client" in row for row in record.rows)
        else None,
        "late": late,
        "left": sum(event["event"] == "left" for event in own),
        "lost": sum(event["event"] == "lost" for event in own),
        "crashes": len(down),
        "seconds_down": math.fsum((end if b is None else b) - (a or 0.0) for a, b in down),
    }
