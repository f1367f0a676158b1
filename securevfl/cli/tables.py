"""Tables on standard output for studies, comparisons, plans and benchmarks of codes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from securevfl.cli.options import power_form
from securevfl.cli.output import coloured, out, print_machine, print_table
from securevfl.report.in_words import NAMES, clock, is_fraction, number_text, percent, size
from securevfl.studies.intervals import differing
from securevfl.studies.summary import MEASURES, QUALITY

if TYPE_CHECKING:
    from securevfl.planning.forecast import Forecast

_NAMES = {name: NAMES[f"test_{name}"] for name in MEASURES}
_COLUMNS = 6  # virtual times that are shown; the files have all of them


def print_study(content: Mapping[str, Any]) -> None:
    """Print means and intervals beside the paper's values, then differences and times."""
    runs = content["runs"]
    measures = [m for m in _NAMES if any(f"test_{m}" in run for run in runs.values())]
    paper = {label: _paper(content, label) for label in runs}
    shown = any(value is not None for value in paper.values())
    columns = ["run", "seeds", *(_NAMES[m] for m in measures), *(["paper"] if shown else [])]
    rows = [
        (
            label,
            str(len(run["seeds"])) + _failed(run),
            *(_with_interval(run.get(f"test_{m}"), m) for m in measures),
            *([_in_paper(paper[label])] if shown else []),
            *(_mean(run, name) for name in ("rounds", "virtual_seconds", "bytes", "late")),
            _mean(run, "wall_seconds"),
        )
        for label, run in runs.items()
    ]
    columns += ["rounds", "virtual time", "sent", "late", "real time"]
    modes = {run.get("delay_mode", "latency") for run in runs.values()} - {"none"}
    delays = f"; delay mode: {', '.join(sorted(modes))}" if modes else ""
    print_table(
        columns, rows, title=f"{content['title']} (mean and 95 % interval over seeds{delays})"
    )
    _print_differences(content, measures)
    _print_times(content.get("times") or {})
    _print_speed(content.get("speed") or {})
    _print_quality(runs)
    _print_trivial(runs)
    for label, run in runs.items():
        for seed, error in run.get("errors", {}).items():
            out().print(f"{label}, seed {seed}, could not go on: {error}", markup=False)


def _print_trivial(runs: Mapping[str, Any]) -> None:
    """Print the runs that learned nothing, whose differences say nothing about methods."""
    means = {
        label: [run[name]["mean"] for name in ("test_accuracy", "majority_accuracy") if name in run]
        for label, run in runs.items()
    }
    trivial = [label for label, found in means.items() if len(found) == 2 and found[0] <= found[1]]
    if trivial:
        usual = max(means[label][1] for label in trivial)
        out().print(
            f"No better than always naming the most frequent class of the training rows "
            f"({percent(usual)}): {', '.join(trivial)}. Train longer, or choose other rates.",
            markup=False,
        )


def _failed(run: Mapping[str, Any]) -> str:
    count = len(run.get("errors", ()))
    return f" + {count} failed" if count else ""


def _paper(content: Mapping[str, Any], label: str) -> float | None:
    """The paper's accuracy of a run in per cent: from its own table, else the common value."""
    paper = content["paper"]
    own = paper.get(label)
    if isinstance(own, Mapping):
        return own.get("accuracy")
    return None if label == content.get("baseline") else paper.get("accuracy")


def _in_paper(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} %"


def _with_interval(entry: Mapping[str, Any] | None, measure: str) -> str:
    if entry is None:
        return "-"
    mean, half = entry["mean"], entry["half_width_95"]
    if is_fraction(measure):
        spread = "" if half is None else f" ± {100 * half:.2f}"
        return f"{100 * mean:.2f}{spread} %"
    return number_text(mean) + ("" if half is None else f" ± {number_text(half)}")


def _mean(run: Mapping[str, Any], name: str) -> str:
    if name not in run:
        return "-"
    mean = run[name]["mean"]
    if name.endswith("seconds"):
        return clock(mean)
    return size(mean) if name == "bytes" else f"{mean:,.0f}"


def _print_differences(content: Mapping[str, Any], measures: Sequence[str]) -> None:
    differences = content["differences"]
    if not differences:
        return
    found = [
        (label, measure, entry[f"test_{measure}"])
        for label, entry in differences.items()
        for measure in measures
        if f"test_{measure}" in entry
    ]
    sure = differing([entry for _, _, entry in found])
    words = {True: "yes", False: "no", None: "-"}
    rows = [
        (label, _NAMES[measure], _with_interval(entry, measure), str(entry["pairs"]), words[one])
        for (label, measure, entry), one in zip(found, sure, strict=True)
    ]
    print_table(
        ("run", "measure", f"minus {content['baseline']}", "pairs", "differs"),
        rows,
        title="Paired differences, each with its 95 % interval; 'differs' is a test at 5 % that is "
        "corrected for the number of rows (Holm)"
        + ("; -: one pair of seeds has no interval" if None in sure else ""),
    )


def _print_times(times: Mapping[str, Any]) -> None:
    every = sorted({entry["time"] for run in times.get("runs", {}).values() for entry in run})
    if not every:
        return
    columns = min(_COLUMNS, len(every))
    chosen = [every[(place + 1) * len(every) // columns - 1] for place in range(columns)]
    rows = []
    for label, entries in times["runs"].items():
        by_time = {entry["time"]: entry for entry in entries}
        cells = []
        for time in chosen:
            entry = by_time.get(time)
            mark = "*" if entry is not None and entry["ended"] else ""
            cells.append(_with_interval(entry, times["measure"]) + mark)
        rows.append((label, *cells))
    print_table(
        ("run", *(clock(time) for time in chosen)),
        rows,
        title=f"{_NAMES[times['measure']]} at equal virtual times "
        "(* a run had ended before: its last value)",
    )


def _print_speed(speed: Mapping[str, Any]) -> None:
    """Print the measure's mean over time, and the cost of reaching the target."""
    if not speed:
        return
    measure, target = speed["measure"], speed["target"]
    shown = _with_interval({"mean": target or 0.0, "half_width_95": None}, measure)
    rows = []
    for label, run in speed["runs"].items():
        cells = [_with_interval(run.get("area"), measure)]
        if target is not None:
            cells += [_spent(run.get("seconds"), clock), _spent(run.get("bytes"), size)]
            cells += [f"{run['reached']} of {run['seeds']}"]
        rows.append((label, *cells))
    columns = ["run", f"mean {_NAMES[measure]} over time"]
    if target is not None:
        columns += [f"time to {shown}", "sent until then", "seeds that reach it"]
    print_table(columns, rows, title=f"Speed of learning, up to {clock(speed['horizon'])}")


def _spent(entry: Mapping[str, Any] | None, form: Callable[[float], str]) -> str:
    """Mean with its interval; a dash if some seed missed the target."""
    if entry is None:
        return "-"
    half = entry["half_width_95"]
    return form(entry["mean"]) + ("" if half is None else f" ± {form(half)}")


def _print_quality(runs: Mapping[str, Any]) -> None:
    """Print measures of the final models besides those in histories."""
    names = [name for name in QUALITY if any(name in run for run in runs.values())]
    if not names:
        return
    rows = [
        (label, *(_with_interval(run.get(name), name) for name in names))
        for label, run in runs.items()
    ]
    columns = [NAMES[name] for name in names]
    print_table(("run", *columns), rows, title="Final models beside guessing, and probabilities")


def print_plan(found: Forecast, given: str) -> None:
    """Print the feasible K with expected costs, then field, bits and command.

    `given` are the options of the data and of the conditions.
    """
    marks = [f"{choice.segments}{' <-' * (choice is found.best)}" for choice in found.choices]
    print_table(
        ("K", "R", "may lose", "|B|", "setup", "round", "rounds", "whole run"),
        [
            (
                mark,
                str(choice.threshold),
                str(choice.tolerated),
                str(choice.batch_rows),
                clock(choice.setup_seconds),
                f"{choice.round_seconds:.4g} s ± {2 * choice.round_error:.1g}",
                f"{choice.rounds:,}" + f" of {found.rounds:,}" * (choice.rounds < found.rounds),
                clock(choice.total_seconds),
            )
            for mark, choice in zip(marks, found.choices, strict=True)
        ],
        title=f"{found.protocol}: N={found.parties} T={found.privacy}, {found.shape.rows:,} rows, "
        f"{sum(found.shape.widths):,} columns, conditions {found.conditions}",
    )
    print_table(
        ("K", "sent", "setup", "a round", "by server", "by a client", "client memory", "in all"),
        [
            (
                mark,
                size(choice.bytes),
                size(choice.setup_bytes),
                size(choice.round_bytes),
                size(choice.server_bytes),
                size(choice.client_bytes),
                size(choice.client_memory),
                size(choice.simulation_memory),
            )
            for mark, choice in zip(marks, found.choices, strict=True)
        ],
        title="Bytes of a run, and memory of a client and of all parties in one process",
    )
    bits, best = found.bits, found.best
    console = out()
    what = "first sums" if bits.expected else "sums"
    console.print(
        f"field and bits: p = {power_form(bits.prime)}, lx = {bits.data_bits}, "
        f"lw = {bits.model_bits}: {what} reach {bits.largest:.4g} at most, (p-1)/2 = "
        f"{bits.limit:.4g}"
    )
    if bits.expected:
        console.print(
            f"range bound: {math.log2(bits.expected):.1f} bits are expected, and p = "
            f"{power_form(bits.smallest)} is the smallest usual prime with room for them"
        )
    if best.helpers is not None:
        console.print(
            f"catching up: {best.replay:.3g} multiply-adds for each round that a client missed"
        )
        console.print(
            f"helpers: with {best.helpers} of them, R = {best.threshold} is met by fast parties, "
            f"and a round takes {best.helped_seconds:.4g} s; {best.keys} keys"
        )
    if best.tolerated == 0:
        _print_remedies(found)
    if found.levels:
        _print_levels(found)
    if told := _told_by_sums(found):
        console.print(told, soft_wrap=not console.is_terminal)
    for warning in found.warnings:
        console.print(f"warning: {warning}")
    words = " ".join(filter(None, (given, found.command)))
    console.print(f"run: securevfl run {found.protocol} {words}", soft_wrap=True)


def _print_levels(found: Forecast) -> None:
    """Print the cost of each security level at the proposed K."""
    print_table(
        ("security", "setup", "a round", "whole run", "messages", "may lose"),
        [
            (one.name, "-", "-", "-", "-", "-")
            if one.refused
            else (
                one.name,
                size(one.setup_bytes),
                size(one.round_bytes),
                size(one.bytes),
                f"{one.messages:,}",
                str(one.tolerated),
            )
            for one in found.levels
        ],
        title=f"Levels of security at K = {found.best.segments}",
    )
    for one in found.levels:
        if one.refused:
            out().print(f"notice: security = {one.name}: {one.refused}")


def _told_by_sums(found: Forecast) -> str:
    """Sentence on what a planned run's sums reveal of a row, coloured; empty without sums."""
    released = found.released
    if released is None:
        return ""
    text = f"decoded sums: {coloured(released.words, released.state)}"
    made = found.best.rounds
    if made == found.rounds:
        return text
    return (
        f"{text}. The budget ends the run after {made:,} of {found.rounds:,} rounds, which are "
        f"{released.visits} epochs. To make them all: {released.ways_below(shorter=False)}"
    )


def _print_remedies(found: Forecast) -> None:
    """Print that no straggler is tolerated, and changes that would tolerate one, with cost."""
    best = found.best
    needed = "R" if best.threshold == found.parties else "R + 2A"
    out().print(
        f"notice: no straggler is tolerated: each round waits for the uploads of all "
        f"{needed} = N = {found.parties} parties"
    )
    if not found.remedies:
        return
    planned = ("as planned", best.round_seconds, best.total_seconds, best.bytes, "")
    changed = [
        (
            f"{one.protocol} {one.options}",
            one.round_seconds,
            one.total_seconds,
            one.bytes,
            one.price,
        )
        for one in found.remedies
    ]
    print_table(
        ("change", "a round", "in all", "sent", "price besides"),
        [
            (what, f"{round_:.4g} s", clock(total), size(sent), price)
            for what, round_, total, sent, price in (planned, *changed)
        ],
        title="What would tolerate one",
    )


def print_scale(result: Mapping[str, Any]) -> None:
    """Print a table for each protocol: a line for each size, then the exponents of each axis."""
    points = result["points"]
    names = ("size", "setup", "CPU of a round", "memory", "predicted", "bytes a round", "predicted")
    for protocol in dict.fromkeys(point["protocol"] for point in points):
        own = [point for point in points if point["protocol"] == protocol]
        lines = [
            (
                f"{point[point['axis']]:,} {point['axis']}",
                f"{point['setup']:.2f} s",
                f"{1e3 * point['seconds']:.1f} ms",
                size(point["memory"]),
                _predicted(point["predicted_memory"]),
                size(point["bytes"]),
                _predicted(point["predicted_bytes"]),
            )
            for point in own
        ]
        print_table(names, lines, title=protocol)
        for axis, slopes in result["exponents"][protocol].items():
            what = ", ".join(f"{name} {slope:+.2f}" for name, slope in slopes.items())
            of = "of the whole run " if axis == "rounds" else ""
            out().print(f"exponents {of}over {axis}: {what}")
    print_machine(result["machine"])


def _predicted(found: float | None) -> str:
    return "-" if found is None else size(found)


def print_decoding(result: Mapping[str, Any]) -> None:
    """Print the map's counts, every cell that contradicts the theorem, and round times."""
    console = out()
    console.print(
        f"{result['cells']:,} cells of (N, K, T, stragglers): {result['exact']:,} exact, "
        f"{result['refused']:,} refused, {len(result['not_as_predicted'])} not as predicted"
    )
    if result["not_as_predicted"]:
        names = ("N", "K", "T", "stragglers", "tolerated", "outcome")
        print_table(
            names, [[str(cell[name]) for name in names] for cell in result["not_as_predicted"]]
        )
    times = result["rounds"]
    if times:
        print_table(
            ("T", "K", "R", "virtual", "computing, all parties"),
            [
                (
                    str(row["T"]),
                    str(row["K"]),
                    str(row["R"]),
                    f"{row['virtual_seconds']:.3f} s",
                    f"{1e3 * row['real_seconds']:.1f} ms",
                )
                for row in times
            ],
            title=f"Mean time of a round, N = {times[0]['N']}, the paper's delays",
        )
    print_machine(result["machine"])
