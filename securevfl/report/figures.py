"""Curves and links of a run, in JSON types, for the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from securevfl.report.in_words import NAMES
from securevfl.report.records import Record

AXES = ("step", "time", "bytes")
_HELD = ("accuracy", "auc", "f1", "rmse", "r2")
MEASURES = {name: NAMES[f"test_{name}"].replace("test", "Test") for name in _HELD} | {
    "test_loss": "Test loss",
    "loss": "Training loss",
    "epsilon_total": "Epsilon spent",
}
HELD_OUT = (*_HELD, "test_loss")
_MOST = 1500  # rows of a curve without a measure on test rows; beyond, every k-th is drawn


def curves(record: Record) -> dict[str, Any]:
    """Columns of a run's history: rounds, virtual seconds, bytes and all measures.

    For a long history they contain every k-th row (k is ``every``), all rows with a measure on test
    rows, and the last row.
    """
    every = math.ceil(len(record.rows) / _MOST)
    last = len(record.rows) - 1
    kept = [
        row
        for place, row in enumerate(record.rows)
        if place % every == 0 or place == last or any(name in row for name in HELD_OUT)
    ]
    names = [name for name in MEASURES if any(_number(row.get(name)) is not None for row in kept)]
    columns = {name: [_number(row.get(name)) for row in kept] for name in (*AXES, *names)}
    return {"every": every, **columns}


def evaluated(record: Record) -> list[dict[str, Any]]:
    """Rows of the table behind the curves: rows with a test measure, and the last row."""
    names = (*AXES, *MEASURES)
    return [
        {name: _number(row.get(name)) for name in names}
        for row in record.rows
        if row is record.rows[-1] or any(name in row for name in HELD_OUT)
    ]


def measures_of(records: Sequence[Record]) -> list[str]:
    """Names of measures of which some run has two values or more, in page order.

    One value gives no curve. If there are no such measures, the result has all that occur.
    """
    most = {
        name: max(
            (sum(_number(row.get(name)) is not None for row in one.rows) for one in records),
            default=0,
        )
        for name in MEASURES
    }
    return [name for name in MEASURES if most[name] > 1] or [n for n in MEASURES if most[n]]


def links(record: Record) -> dict[str, Any] | None:
    """Messages, bytes and late messages for each kind, sender and receiver; None if unknown.

    Returns
    -------
    dict
        ``parties`` (names), ``kinds`` (with sums, the largest first), ``bytes`` in all; ``cells``:
        rows of kind, sender and receiver (as places in those lists), messages, bytes, late.
    """
    if record.messages is None:
        return None
    parties, sums_of = record.messages.parties(), record.messages.links()
    if not any(late for *_, late in sums_of.values()):  # on a cluster the receiver's history tells
        for event in record.events:
            link = (event.get("kind"), event.get("sender"), event["party"])
            if event["event"] == "late" and link in sums_of:
                sums_of[link][2] += 1
    place = {party: number for number, party in enumerate(parties)}
    kinds: dict[str, list[int]] = {}
    for (kind, _, _), sums in sums_of.items():
        kinds[kind] = [a + b for a, b in zip(kinds.get(kind, (0, 0, 0)), sums, strict=True)]
    order = sorted(kinds, key=lambda kind: -kinds[kind][1])
    total = sum(sums[1] for sums in kinds.values())
    return {
        "parties": [record.names[party] for party in parties],
        "kinds": [_kind(kind, kinds[kind], total) for kind in order],
        "cells": [
            [order.index(kind), place[sender], place[receiver], *sums]
            for (kind, sender, receiver), sums in sorted(sums_of.items())
        ],
        "bytes": total,
    }


def _kind(name: str, sums: Sequence[int], total: int) -> dict[str, Any]:
    share = sums[1] / total if total else 0.0
    return {
        "kind": name,
        "messages": sums[0],
        "bytes": sums[1],
        "late": sums[2],
        "share": share,
    }


def summed(record: Record, name: str) -> Any:
    """A figure of the summary by name, or from the history if there is no summary."""
    if name in record.summary:
        return record.summary[name]
    if name == "equations_each":
        return (record.summary.get("released") or {}).get("share")
    last = record.rows[-1]
    of_history = {"rounds": len(record.rows), "virtual_seconds": last["time"]}
    return of_history.get(name, last.get(name.removeprefix("test_")))


def finite(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Rows with finite numbers under all of the names, reduced to these numbers."""
    found = [{name: _number(row.get(name)) for name in names} for row in rows]
    return [row for row in found if None not in row.values()]


def _number(value: Any) -> float | int | None:
    """A finite number or None, since JSON has no others; curves then have a gap."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if math.isfinite(value) else None


def flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values of nested tables, by names such as ``outer.inner``."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found
