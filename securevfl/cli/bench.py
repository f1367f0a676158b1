"""The commands `bench`: times, thresholds, and tables of methods."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from securevfl.cli import displays, output, tables
from securevfl.cli.commands import AsJson, DataDir
from securevfl.cli.completion import condition_names, dataset_names, epilog, protocol_names
from securevfl.cli.options import plain_number
from securevfl.cli.run import INTERRUPTED, stopping
from securevfl.cli.studies import Display
from securevfl.errors import ConfigurationError
from securevfl.protocols.base.defaults import SCALED, SHOWN

if TYPE_CHECKING:
    from securevfl.bench.troubles import Setting

THRESHOLD_METHODS = (SHOWN["default"], SHOWN["baseline"], SHOWN["asynchronous"])
app = typer.Typer(rich_markup_mode="rich", help="Time parts of the library on this machine.")
#: Options that several of these commands have.
Pairs = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Option of all methods that have it."),
]
Workers = Annotated[
    int, typer.Option(metavar="N", min=1, help="Number of processes that carry out runs.")
]
Seeds = Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Number of seeds.")]
Parties = Annotated[str, typer.Option(metavar="N,...", help="Numbers of parties.")]


def register(root: typer.Typer) -> None:
    """Add the commands to the application."""
    root.add_typer(app, name="bench")


@app.command("round", epilog=epilog("bench round"))
def rounds_of(
    parties: Annotated[int, typer.Option(metavar="N", help="Number of clients.")] = 28,
    segments: Annotated[int, typer.Option(metavar="K", help="Number of data segments.")] = 4,
    privacy: Annotated[
        int, typer.Option(metavar="T", help="Number of clients that may collude.")
    ] = 1,
    batch: Annotated[int, typer.Option(metavar="B", help="Number of rows in a batch.")] = 256,
    width: Annotated[int, typer.Option(metavar="H", help="Width of an embedding.")] = 64,
    rows: Annotated[int, typer.Option(metavar="M", help="Number of training rows.")] = 60_000,
    features: Annotated[
        int, typer.Option(metavar="D", help="Number of columns of all clients together.")
    ] = 784,
    blocks: Annotated[
        int, typer.Option(metavar="N", min=7, help="Number of timed blocks of each method.")
    ] = 9,
    rounds: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of rounds in a block.")
    ] = 3,
    as_json: AsJson = False,
) -> None:
    """Time a round with secret sharing, and one of the same training without it.

    The default sizes are those of the data set fashion-mnist; that takes minutes.
    """
    from securevfl.bench.rounds import RoundSize, bench_round

    size = RoundSize(parties, segments, privacy, batch, width, rows, features)
    with displays.busy("bench round"):
        result = bench_round(size, blocks=blocks, rounds=rounds)
    if as_json:
        output.print_json(result)
    else:
        output.print_rounds(result)


@app.command("field", epilog=epilog("bench field"))
def field(
    repeats: Annotated[
        int, typer.Option(metavar="N", min=3, help="Turns of all operations; medians are shown.")
    ] = 7,
    largest: Annotated[
        int, typer.Option(metavar="N", min=64, help="Number of rows of the square products.")
    ] = 1024,
    as_json: AsJson = False,
) -> None:
    """Time the arithmetic modulo p as shares of what this processor can do at most.

    A share is that of the products of numbers that stay in registers; a copy that of as many bytes.
    """
    from securevfl.bench.field import bench_field

    with displays.busy("bench field"):
        result = bench_field(repeats=repeats, largest=largest)
    if as_json:
        output.print_json(result)
    else:
        output.print_field(result)


@app.command("threshold", epilog=epilog("bench threshold"))
def threshold(
    methods: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="METHOD...",
            help="Protocols, or variants such as NAME:option=value.  \\[default: "
            f"{' '.join(THRESHOLD_METHODS)}]",
            autocompletion=protocol_names,
        ),
    ] = None,
    law: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:PARAMETERS",
            help="Law of delay: exponential, constant, pareto, lognormal, uplinks, or a name of "
            "conditions. A number is its shape, mean or rate; key=value are keys of conditions.",
        ),
    ] = None,
    trace: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Measured delays; docs/stragglers.md has the forms."),
    ] = None,
    conditions: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Conditions by name or from a TOML file.",
            autocompletion=condition_names,
        ),
    ] = None,
    data: Annotated[str, typer.Option(metavar="NAME", help="Data set to train on.")] = "digits",
    parties: Annotated[int, typer.Option(metavar="N", min=2, help="Number of parties.")] = 8,
    target: Annotated[float, typer.Option(metavar="A", help="Accuracy to be reached.")] = 0.9,
    factor: Annotated[
        float,
        typer.Option(metavar="C", help="How many times the time without trouble may be taken."),
    ] = 2.0,
    kinds: Annotated[
        str, typer.Option(metavar="KIND,...", help="Troubles: slow, busy, dead, lying parties.")
    ] = "slow",
    counts: Annotated[
        str,
        typer.Option(metavar="S,...", help="Numbers of parties in trouble.  \\[default: 0 to N]"),
    ] = "",
    slower: Annotated[
        float,
        typer.Option(
            metavar="X", help="How many times slower a slow party is, where all are alike."
        ),
    ] = 10.0,
    until: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Virtual seconds of each run.  \\[default: 400 mean delays of a fast party]",
        ),
    ] = None,
    seeds: Seeds = 10,
    pairs: Pairs = None,
    workers: Workers = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder of runs, tables and picture. A run that is there is not made again.  "
            "\\[default: runs/threshold-DATA]",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find with how many slow, busy, dead or lying parties methods still learn in time.

    Every method is trained with 0 to N parties in trouble. Its threshold is the largest number with
    which the target is reached within C times the time without trouble, with an interval over
    seeds; the threshold of the clock, which counts the time of rounds alone, stands beside it.
    """
    from securevfl.bench.threshold import SMALL, Sweep, cases, latex, rows, thresholds, write_csv
    from securevfl.bench.threshold_picture import draw
    from securevfl.data.source import DataSource
    from securevfl.machine import commit, describe_machine
    from securevfl.runs.engines.run import Interrupted
    from securevfl.studies.variant import parse_pairs

    out = out or Path("runs") / f"threshold-{Path(data).stem}"
    asked: dict[str, Any] = {
        "parties": parties, "target": target, "until": until, "slower": slower, "factor": factor,
    }  # fmt: skip
    sweep = Sweep(
        DataSource(data, {}),
        folder=out,
        seeds=range(seeds),
        counts=_numbers(counts, "--counts") if counts else (),
        options={**SMALL, **parse_pairs(pairs or (), what="bench threshold")},
        **asked,
    )
    found = sweep.methods(methods or THRESHOLD_METHODS)
    settings = _settings(law or (), trace or (), conditions or ())
    wanted = cases(found, settings, [word.strip() for word in kinds.split(",")])
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
    """Settings of all laws, traces and conditions asked for; exponential delays if none is."""
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


@app.command("methods", epilog=epilog("bench methods"))
def methods(
    variants: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="METHOD...",
            help="Protocols, or variants such as NAME:option=value.  \\[default: all]",
            autocompletion=protocol_names,
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Data set, or one with options such as NAME:parties=6; once for each.  "
            "\\[default: five settings of four sets]",
            autocompletion=dataset_names,
        ),
    ] = None,
    seeds: Seeds = 1,
    until: Annotated[
        float, typer.Option(metavar="SECONDS", help="Virtual seconds of each run.")
    ] = 100.0,
    conditions: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help="Delays, by name or from a TOML file.",
            autocompletion=condition_names,
        ),
    ] = "ranks_st",
    rates: Annotated[
        str, typer.Option(metavar="X,...", help="Learning rates that each method tries.")
    ] = "0.003,0.01,0.03",
    attacks: Annotated[
        bool,
        typer.Option("--attacks", help="Attack the first seed of each cell. It takes longer."),
    ] = False,
    pairs: Pairs = None,
    workers: Workers = 1,
    data_dir: DataDir = None,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER",
            help="Folder of runs, tables and picture. A run that is there is not made again.",
        ),
    ] = Path("runs/methods"),
    as_json: AsJson = False,
) -> None:
    """Compare methods on one protocol of evaluation: accuracy, bytes, and what is told.

    All have the same splits, delays and virtual time. Each gets its learning rate on validation
    rows of a seed of its own. Cells that cannot run are named before work begins. The folder gets
    the table as JSON, CSV and LaTeX after each cell, and a picture with the Pareto fronts.
    """
    from securevfl.audit.attack_matrix.strongest import strongest
    from securevfl.bench.methods import DATA, MethodTable
    from securevfl.bench.methods_picture import draw
    from securevfl.runs.catalogue import protocols
    from securevfl.runs.engines.run import Interrupted
    from securevfl.studies.variant import parse_pairs

    table = MethodTable(
        variants or list(protocols()),
        data or list(DATA),
        out,
        seeds=range(seeds),
        rates=_rates(rates),
        options=parse_pairs(pairs or (), what="bench methods"),
        attack=strongest if attacks else None,
        data_dir=None if data_dir is None else str(data_dir),
        until=until,
        conditions=conditions,
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
    """Print a line for each cell of the table of methods: accuracy, bytes and what is revealed."""
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


# -- codes and sizes ------------------------------------------------------------------------------


@app.command("decoding", epilog=epilog("bench decoding"))
def decoding(
    parties: Parties = "6,10,16,28",
    privacy: Annotated[
        str, typer.Option(metavar="T,...", help="Numbers of clients that may collude.")
    ] = "1,2,4,6",
    segments: Annotated[
        int | None,
        typer.Option(
            metavar="K", min=1, help="Largest number of data segments.  \\[default: N/2 + 1]"
        ),
    ] = None,
    tries: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Number of sets of stragglers tried in each cell."),
    ] = 3,
    prime: Annotated[str, typer.Option(metavar="P", help="Modulus of the prime field.")] = "2^61-1",
    time_parties: Annotated[
        int, typer.Option(metavar="N", help="Number of parties in the timed runs.")
    ] = 16,
    rounds: Annotated[
        int, typer.Option(metavar="N", min=2, help="Number of rounds in each timed run.")
    ] = 50,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="File of a drawing of the map.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Map for which N, K and T sums are recovered exactly, and for which they are refused.

    N is the number of parties, K that of data segments, T that of clients that may collude. For
    each cell sets of stragglers are left out. The times of rounds show what K and T cost.
    """
    from securevfl.bench.decoding import draw_threshold, map_threshold, report, time_rounds
    from securevfl.machine import describe_machine

    sizes, privacies = _numbers(parties, "--parties"), _numbers(privacy, "--privacy")
    modulus = _numbers(plain_number(prime), "--prime")[0]
    with Display("decoding") as display:
        cells = map_threshold(
            sizes,
            largest_segments=segments or max(sizes) // 2 + 1,
            privacies=privacies,
            prime=modulus,
            tries=tries,
            progress=lambda done, total: display.part("map", done / total),
        )
        times = time_rounds(
            time_parties,
            privacies=privacies,
            prime=modulus,
            rounds=rounds,
            progress=lambda done, total: display.part("times of rounds", done / total),
        )
    result = {
        **report(cells),
        "rounds": times,
        "prime": modulus,
        "machine": describe_machine(),
    }
    if out is not None:
        draw_threshold(cells, out, times)
        result["picture"] = str(out)
    if as_json:
        output.print_json(result)
    else:
        tables.print_decoding(result)


@app.command("scale", epilog=epilog("bench scale"))
def scale(
    protocols: Annotated[
        str, typer.Option(metavar="NAME,...", help="Protocols that are measured, or `all`.")
    ] = ",".join(SCALED),
    parties: Parties = "8,16,32,64",
    rows: Annotated[
        str, typer.Option(metavar="M,...", help="Numbers of training rows.")
    ] = "512,2048,8192,32768",
    features: Annotated[
        str, typer.Option(metavar="D,...", help="Numbers of columns of all parties together.")
    ] = "64,256,1024,4096",
    rounds: Annotated[
        str, typer.Option(metavar="R,...", help="Numbers of rounds.")
    ] = "10,100,1000",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="File of a drawing of the growth.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure how time, memory and bytes of a simulation grow with its sizes.

    One size varies at a time, in a process for each run; the others are 8 parties, 512 rows, 64
    columns and 6 rounds. An exponent is fitted for each, and what is predicted stands beside it.
    """
    from securevfl.bench.scale import bench_scale, draw_scale
    from securevfl.runs import catalogue

    sizes = {"parties": parties, "rows": rows, "features": features, "rounds": rounds}
    names = sorted(catalogue.protocols()) if protocols == "all" else protocols.split(",")
    values = {axis: _numbers(text, f"--{axis}") for axis, text in sizes.items() if text}
    with Display("scale") as display:
        result = bench_scale(
            names, values, progress=lambda done, total: display.part("runs", done / total)
        )
    if out is not None:
        draw_scale(result, out)
        result["picture"] = str(out)
    if as_json:
        output.print_json(result)
    else:
        tables.print_scale(result)


def _numbers(text: str, flag: str) -> Sequence[int]:
    """Integers of a comma-separated option; ConfigurationError, which names `flag`, if not."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigurationError(
            f"bench: {flag} {text!r} must be integers with commas between them"
        ) from None
