"""The commands `bench threshold` and `bench methods`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from securevfl.cli import output
from securevfl.cli.run import INTERRUPTED, stopping
from securevfl.cli.studies import Display, numbers
from securevfl.errors import ConfigurationError

if TYPE_CHECKING:
    from securevfl.bench.troubles import Setting


def threshold(
    methods: Sequence[str],
    *,
    data: str,
    settings: tuple[Sequence[str], Sequence[Path], Sequence[str]],
    kinds: str,
    counts: str,
    seeds: int,
    pairs: Sequence[str],
    workers: int,
    out: Path,
    as_json: bool,
    **asked: Any,
) -> None:
    """Carry out ``securevfl bench threshold``."""
    from securevfl.bench.threshold import SMALL, Sweep, cases, latex, rows, thresholds, write_csv
    from securevfl.bench.threshold_picture import draw
    from securevfl.data.source import DataSource
    from securevfl.machine import commit, describe_machine
    from securevfl.runs.engines.run import Interrupted
    from securevfl.studies.variant import parse_pairs

    sweep = Sweep(
        DataSource(data, {}),
        folder=out,
        seeds=range(seeds),
        counts=numbers(counts, "--counts") if counts else (),
        options={**SMALL, **parse_pairs(pairs, what="bench threshold")},
        **asked,
    )
    found = sweep.methods(methods)
    wanted = cases(found, _settings(*settings), [word.strip() for word in kinds.split(",")])
    out.mkdir(parents=True, exist_ok=True)
    try:
        with Display("threshold") as display, stopping(display) as stop:
            cells = sweep.run(
                wanted,
                workers=workers,
                progress=display.progress,
                watch=display.watch,
                interrupted=stop,
            )
    except Interrupted:
        output.say("interrupted; finished runs are kept; the same command goes on")
        raise typer.Exit(INTERRUPTED) from None
    declared = {method.label: method.declared for method in found}
    edges = thresholds(cells, sweep.factor, declared)
    content: dict[str, Any] = {
        "thresholds": [_flat(asdict(edge)) for edge in edges],
        "cells": rows(cells, sweep.factor),
        "settings": asked | {"data": data, "seeds": seeds, "options": dict(sweep.options)},
        "machine": describe_machine(),
        "commit": commit(),
    }
    (out / "threshold.json").write_text(json.dumps(content, indent=1) + "\n")
    write_csv(content["cells"], out / "cells.csv")
    write_csv(content["thresholds"], out / "thresholds.csv")
    (out / "thresholds.tex").write_text(latex(edges))
    draw(content["cells"], content["thresholds"], out / "threshold.png")
    if as_json:
        output.print_json({**content, "folder": str(out)})
        return
    _print(content["thresholds"])
    output.out().print(f"written to {shlex.quote(str(out))}", soft_wrap=True)


def _settings(
    laws: Sequence[str], traces: Sequence[Path], conditions: Sequence[str]
) -> list[Setting]:
    """Settings for all options; exponential delays if none is given."""
    from securevfl.bench.troubles import conditions_setting, parse_law, trace_setting

    found = [parse_law(text) for text in laws]
    found += [trace_setting(path) for path in traces]
    found += [conditions_setting(source) for source in conditions]
    return found or [parse_law("exponential")]


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row in JSON types; None for a number that does not exist."""
    return {
        key: None if isinstance(value, float) and value == float("inf") else value
        for key, value in row.items()
    }


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print learning thresholds beside the clock's thresholds."""
    output.print_table(
        ("method", "setting", "kind", "seconds", "threshold", "95 %", "clock", "declared"),
        [
            (
                *(row["method"], row["setting"], row["kind"]),
                "not reached" if row["time"] is None else f"{row['time']:.3g}",
                "-" if row["learning"] < 0 else f"{'>=' * row['open']}{row['learning']}",
                f"{row['low']} to {row['high']}",
                str(row["clock"]),
                "-" if row["declared"] is None else str(row["declared"]),
            )
            for row in rows
        ],
        title="Most parties in trouble with which the target is reached in time",
    )


# -- the table of methods --------------------------------------------------------------------------


def methods(
    variants: Sequence[str],
    *,
    data: Sequence[str],
    seeds: int,
    rates: str,
    attacks: bool,
    pairs: Sequence[str],
    workers: int,
    data_dir: Path | None,
    out: Path,
    as_json: bool,
    **asked: Any,
) -> None:
    """Carry out ``securevfl bench methods``."""
    from securevfl.audit.attack_matrix.strongest import strongest
    from securevfl.bench.methods import DATA, MethodTable
    from securevfl.bench.methods_picture import draw
    from securevfl.runs.catalogue import protocols
    from securevfl.runs.engines.run import Interrupted
    from securevfl.studies.variant import parse_pairs

    table = MethodTable(
        list(variants) or list(protocols()),
        list(data) or list(DATA),
        out,
        seeds=range(seeds),
        rates=_rates(rates),
        options=parse_pairs(pairs, what="bench methods"),
        attack=strongest if attacks else None,
        data_dir=None if data_dir is None else str(data_dir),
        **asked,
    )
    for (name, variant), why in table.check().items():
        output.say(f"bench methods: {variant} on {name} cannot run: {why}")
    out.mkdir(parents=True, exist_ok=True)
    _write_cells(table.content(), out)
    try:
        with Display("methods") as display, stopping(display) as stop:
            table.run(
                workers=workers,
                progress=display.progress,
                interrupted=stop,
                finished=lambda: _write_cells(table.content(), out),
            )
    except Interrupted:
        output.say("interrupted; finished runs are kept; the same command goes on")
        raise typer.Exit(INTERRUPTED) from None
    content = table.content()
    _write_cells(content, out)
    draw(content["cells"], out / "methods.png")
    if as_json:
        output.print_json({**content, "folder": str(out)})
        return
    _print_cells(content["cells"])
    output.out().print(f"written to {shlex.quote(str(out))}", soft_wrap=True)


def _rates(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < rate < float("inf") for rate in found):
        raise ConfigurationError(
            f"bench methods: --rates {text!r} must be positive numbers with commas between them"
        )
    return found


def _write_cells(content: Mapping[str, Any], out: Path) -> None:
    """Write the tables, so that finished cells are on disk whenever the command stops."""
    from securevfl.bench.methods import latex, write_csv

    (out / "methods.json").write_text(json.dumps(content, separators=(",", ":")) + "\n")
    write_csv(content["cells"], out / "methods.csv")
    (out / "methods.tex").write_text(latex(content["cells"]))


def _print_cells(cells: Sequence[Mapping[str, Any]]) -> None:
    """Print a line for each cell."""
    from securevfl.bench.methods import flat, percent

    rows = []
    for cell, row in zip(cells, flat(list(map(dict, cells))), strict=True):
        if not cell["seeds"]:
            rows.append((cell["data"], cell["method"], *[""] * 5, cell["empty"]))
            continue
        rows.append(
            (
                *(cell["data"], cell["method"], percent(dict(cell)), f"{cell['bytes'] / 1e6:.3g}"),
                *(f"{cell['rounds']:.0f}", str(row["front"]), str(row["sums"] or row["features"])),
                cell["error"],
            )
        )
    output.print_table(
        ("data", "method", "accuracy", "MB", "rounds", "front", "told of columns", "empty, error"),
        rows,
        title="Methods at equal virtual time",
    )
