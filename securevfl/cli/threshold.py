"""The command `bench threshold`."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securevfl.cli import output
from securevfl.cli.studies import Display, numbers

if TYPE_CHECKING:
    from securevfl.bench.threshold import Cell


def threshold(
    methods: Sequence[str],
    *,
    data: str,
    parties: int,
    grid: tuple[str, str, str],
    kinds: str,
    laws: str,
    until: float,
    seeds: int,
    every: bool,
    pairs: Sequence[str],
    out: Path,
    as_json: bool,
) -> None:
    """Carry out ``securevfl bench threshold``."""
    from securevfl.bench.threshold import SMALL, Sweep, boundaries, cases, write_csv
    from securevfl.bench.threshold import map_boundaries as map_all
    from securevfl.bench.threshold_picture import draw
    from securevfl.data.source import DataSource
    from securevfl.machine import commit, describe_machine
    from securevfl.studies.variant import parse_pairs

    K, T, A = (
        numbers(text, flag)
        for text, flag in zip(grid, ("--segments", "--privacy", "--corrupt"), strict=True)
    )
    options = {**SMALL, **parse_pairs(pairs, what="bench threshold")}
    sweep = Sweep(DataSource(data, {}), parties, out, until, range(seeds), options)
    wanted = cases(sweep.methods(methods, K, T, A), _words(kinds), _words(laws))
    out.mkdir(parents=True, exist_ok=True)
    with Display("threshold") as display:
        cells = list(
            map_all(
                sweep,
                wanted,
                every=every,
                progress=lambda done, total: display.part("cases", done / total),
            )
        )
    write_csv(cells, out / "cells.csv")
    draw(cells, out / "cells.png")
    found = boundaries(cells)
    if as_json:
        content = {
            "boundaries": [_flat(row) for row in found],
            "until": until,
            "seeds": seeds,
            "machine": describe_machine(),
            "commit": commit(),
            "folder": str(out),
        }
        output.print_json(content)
        return
    _print(found)
    output.out().print(f"written to {shlex.quote(str(out))}", soft_wrap=True)


def _words(text: str) -> list[Any]:
    return [word.strip() for word in text.split(",")]


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose cells are the numbers of interest alone; None for those that do not exist."""
    flat = {key: value for key, value in row.items() if key not in _PLACES}
    for place in _PLACES:
        cell = row[place]
        for name in ("round_seconds", "accuracy", "sent"):
            value = math.nan if cell is None else getattr(cell, name)
            flat[f"{place}_{name}"] = value if math.isfinite(value) else None
    return flat


_PLACES = ("without", "within", "beyond")


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print boundaries beside predictions, then times and accuracies at both sides of them."""
    names = ("label", "K", "T", "A", "R")
    output.print_table(
        (
            "method",
            *names[1:],
            "trouble",
            "predicted",
            "boundary",
            "seconds of a round",
            "accuracy",
        ),
        [
            (
                *(_text(row[name]) for name in names),
                f"{row['kind']}, {row['law']}",
                _text(row["predicted"]),
                _text(row["boundary"]),
                " | ".join(_number(row[place], "round_seconds", "{:.2f}") for place in _PLACES),
                " | ".join(_number(row[place], "accuracy", "{:.1%}") for place in _PLACES),
            )
            for row in rows
        ],
        title="Seconds and accuracy: without trouble | at the boundary | one party beyond",
    )


def _text(value: Any) -> str:
    return "-" if value is None else str(value)


def _number(cell: Cell | None, name: str, form: str) -> str:
    """A number of a cell; "-" where there is none."""
    value = math.nan if cell is None else float(getattr(cell, name))
    return form.format(value) if math.isfinite(value) else "-"
