"""The command `bench methods`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from securevfl.cli import output
from securevfl.cli.run import INTERRUPTED, stopping
from securevfl.cli.studies import Display
from securevfl.errors import ConfigurationError


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
    try:
        with Display("methods") as display, stopping(display) as stop:
            table.run(
                workers=workers,
                progress=display.progress,
                interrupted=stop,
                finished=lambda: _write(table.content(), out),
            )
    except Interrupted:
        output.say("interrupted; finished runs are kept; the same command goes on")
        raise typer.Exit(INTERRUPTED) from None
    content = table.content()
    _write(content, out)
    draw(content["cells"], out / "methods.png")
    if as_json:
        output.print_json({**content, "folder": str(out)})
        return
    _print(content["cells"])
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


def _write(content: Mapping[str, Any], out: Path) -> None:
    """Write the tables, so that what is finished is there whenever the command stops."""
    from securevfl.bench.methods import latex, write_csv

    (out / "methods.json").write_text(json.dumps(content, separators=(",", ":")) + "\n")
    write_csv(content["cells"], out / "methods.csv")
    (out / "methods.tex").write_text(latex(content["cells"]))


def _print(cells: Sequence[Mapping[str, Any]]) -> None:
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
