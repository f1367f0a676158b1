"""Growth of a simulation with parties, rows, features and rounds: time, memory and bytes.

Each point is a run of its own in a new process. Beside it stands what is predicted before a run:
bytes by the planner, memory by what `securevfl.run` checks. An exponent is the slope of a straight
line through the logarithms; where a part of the cost is constant it is below the exponent of the
rest.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.bench.rounds import RoundSize, uniform
from securevfl.errors import ConfigurationError, needs
from securevfl.machine import describe_machine
from securevfl.protocols.base.registry import get_protocol

AXES = ("parties", "rows", "features", "rounds")
MEASURES = {"seconds": "CPU time (s)", "memory": "memory (bytes)", "bytes": "sent (bytes)"}
PREDICTED = {"memory": "predicted_memory", "bytes": "predicted_bytes"}
_WARM_UP: dict[str, Any] = {"parties": 4, "rows": 64, "features": 8, "rounds": 3}
_SIZES = {"batch": 32, "width": 16}  # of the protocols that have them


@dataclass(frozen=True)
class Point:
    """Size of one run: clients, training rows, columns of all clients, and server steps."""

    protocol: str
    parties: int = 8
    rows: int = 512
    features: int = 64
    rounds: int = 6


def measure(point: Point) -> dict[str, Any]:
    """Measure one run in this process, after a small warm-up run.

    Besides the sizes, the result has ``setup`` and ``seconds``, CPU seconds of all parties until
    the first step and for each round after it; ``memory``, the largest growth of the process in
    bytes; ``bytes`` of all messages of a round; ``predicted_memory`` and ``predicted_bytes``, None
    if unknown; and of the whole run ``messages``, ``whole_seconds`` and ``whole_bytes``.
    """
    from securevfl.planning.message_bytes import sent_bytes
    from securevfl.protocols.base.schedule import Shape
    from securevfl.runs.assembly import planned_memory, transcript_bytes
    from securevfl.runs.engines.run import run

    def carry_out(size: Point, progress: Any = None) -> Any:
        shape = RoundSize(parties=size.parties, rows=size.rows, features=size.features)
        known = get_protocol(size.protocol).Config.model_fields
        options: dict[str, Any] = {name: value for name, value in _SIZES.items() if name in known}
        return run(
            size.protocol, uniform(shape), rounds=size.rounds, eval_every=size.rounds,
            progress=progress, **options,
        )  # fmt: skip

    carry_out(replace(point, **_WARM_UP))
    before, steps = _peak(), list[float]()
    started = time.process_time()
    done = carry_out(point, lambda _: steps.append(time.process_time()))
    ended = time.process_time()
    protocol, rows = done.protocol, done.history
    data, between = protocol.data, max(1, len(rows) - 1)
    shape = Shape(tuple(data.widths), len(data.train_labels), len(data.test_labels))
    outline = protocol.outline(protocol.config, shape)
    planned = None
    if outline is not None:
        sent = sent_bytes(outline, len(protocol.peers()), sealed=True).training
        planned = sum(sent.values()) / point.rounds
    listed = transcript_bytes(protocol, None)
    return {
        **asdict(point),
        "setup": steps[0] - started,
        "seconds": (steps[-1] - steps[0]) / between,
        "memory": max(0, _peak() - before),
        "bytes": (rows[-1]["bytes"] - rows[0]["bytes"]) / between,
        "predicted_bytes": planned,
        "predicted_memory": planned_memory(protocol) + listed if protocol.memory() else None,
        "messages": done.transcript.messages,
        "whole_seconds": ended - started,
        "whole_bytes": done.transcript.bytes,
    }


def _peak() -> int:
    """Largest memory of this process so far, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # `ru_maxrss` would count the process that started this one
        lines = status.read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) << 10
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most << 10


def bench_scale(
    protocols: Sequence[str],
    sizes: Mapping[str, Sequence[int]],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Measure how runs grow with one size at a time; other sizes have the defaults of `Point`.

    `sizes` has values of ``parties``, ``rows``, ``features`` and ``rounds``; an axis without is
    left out. `progress` is called with (points done, all points). The result has ``points``, each
    with its ``axis`` and the fields of `measure`; ``exponents`` by protocol, axis and measure; and
    ``machine``.
    ConfigurationError for an unknown protocol, and for a size below 2.
    """
    for name in protocols:
        get_protocol(name)
    for axis, values in sizes.items():
        if min(values, default=2) < 2:
            raise ConfigurationError(
                f"bench scale: {axis} of {min(values)}; each must be at least 2"
            )
    points = [
        (axis, _sized(name, axis, value))
        for name in protocols
        for axis, values in sizes.items()
        for value in sorted(set(values))
    ]
    found = []
    for done, (axis, point) in enumerate(points):
        # A process for each: memory that one run took is not given back to the machine.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            found.append({"axis": axis, **pool.submit(measure, point).result()})
        if progress is not None:
            progress(done + 1, len(points))
    return {"points": found, "exponents": exponents(found), "machine": describe_machine()}


def _sized(protocol: str, axis: str, value: int) -> Point:
    varied: dict[str, Any] = {axis: value}
    return Point(protocol, **varied)


def value_of(point: Mapping[str, Any], name: str) -> float | None:
    """Measure of a point for each round, or for the whole run if rounds vary."""
    if point["axis"] == "rounds" and name in ("seconds", "bytes"):
        return float(point[f"whole_{name}"])
    if point["axis"] == "rounds" and name == "predicted_bytes":
        return None
    found = point[name]
    return None if found is None else float(found)


def exponents(points: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Slopes of log measure over log size, by protocol, axis and measure.

    A measure has none for fewer than two points, or if a value is not positive.

    Examples
    --------
    >>> sizes = {"protocol": "p", "axis": "parties", "seconds": 0.0, "memory": 5}
    >>> exponents([{**sizes, "parties": n, "bytes": 3 * n**2} for n in (4, 8, 16)])
    {'p': {'parties': {'memory': 0.0, 'bytes': 2.0}}}
    """
    result: dict[str, dict[str, dict[str, float]]] = {}
    for name, axis in dict.fromkeys((point["protocol"], point["axis"]) for point in points):
        own = [point for point in points if (point["protocol"], point["axis"]) == (name, axis)]
        slopes = result.setdefault(name, {}).setdefault(axis, {})
        for measured in MEASURES:
            pairs = [(point[axis], value_of(point, measured)) for point in own]
            x, y = zip(*pairs, strict=True)
            if len(pairs) > 1 and all(value and value > 0 for value in y):
                slope = float(np.polyfit(np.log(x), np.log(y), 1)[0])
                slopes[measured] = round(slope, 2) + 0.0
    return result


def draw_scale(result: Mapping[str, Any], path: Path) -> None:
    """Draw the results of `bench_scale`: a row a measure, a column a varied size."""
    needs("pictures", "report", "matplotlib")
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    points = result["points"]
    axes = list(dict.fromkeys(point["axis"] for point in points))
    names = list(dict.fromkeys(point["protocol"] for point in points))
    figure = Figure(figsize=(3.6 * len(axes) + 0.6, 9.0), layout="constrained")
    panels = figure.subplots(len(MEASURES), len(axes), squeeze=False)
    for row, (measured, words) in zip(panels, MEASURES.items(), strict=True):
        for panel, axis in zip(row, axes, strict=True):
            for number, name in enumerate(names):
                own = [p for p in points if (p["protocol"], p["axis"]) == (name, axis)]
                _draw_line(panel, own, measured, f"C{number % 10}")
            whole = measured == "memory" or axis == "rounds"
            panel.set(title=f"{words}, {'whole run' if whole else 'a round'}", xlabel=axis)
            panel.set(xscale="log", yscale="log")
            sizes = sorted({point[axis] for point in points if point["axis"] == axis})
            named = [f"{n:,}" if n < 100_000 else f"{n / 1e6:g} M" for n in sizes]
            panel.set_xticks(sizes, labels=named)
            panel.xaxis.set_minor_formatter(NullFormatter())
            panel.margins(y=0.7)  # room for the legend
            panel.grid(alpha=0.25, which="both")
            panel.legend(frameon=False, fontsize=8, loc="upper left")
    figure.suptitle("Solid: measured, with its exponent. Dashed: predicted before the run.")
    figure.savefig(path, dpi=110)


def _draw_line(panel: Any, points: Sequence[Mapping[str, Any]], measured: str, colour: str) -> None:
    if not points:
        return
    name, axis = points[0]["protocol"], points[0]["axis"]
    slope = exponents(points)[name][axis].get(measured)
    label = name if slope is None else f"{name}: {slope:.2f}"
    shown = [(p[axis], value_of(p, measured)) for p in points]
    panel.plot(*zip(*shown, strict=True), "o-", color=colour, label=label, markersize=4)
    predicted = PREDICTED.get(measured)
    if predicted is not None:
        pairs = [(p[axis], value_of(p, predicted)) for p in points]
        known = [(x, y) for x, y in pairs if y is not None]
        if known:
            panel.plot(*zip(*known, strict=True), "--", color=colour, linewidth=2, alpha=0.5)
