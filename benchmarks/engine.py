"""Cost of the simulation: messages per second, and rounds of fedvs and split beside plain torch.

``python benchmarks/engine.py messages``: all parties send to all in each round; at least 100,000
messages per second at 28 parties are required.

``python benchmarks/engine.py rounds``: one model of one size is trained by fedvs at the default
prime and at 2^31-1, by split (its twin in floats), and by a loop in plain torch. They take turns in
one process on one thread. Results are medians of CPU milliseconds per round of all parties, and of
ratios within a turn. ``--against CHECKOUT`` also measures another checkout of this repository in a
second process, turn by turn.

``python benchmarks/engine.py growth``: CPU time and memory of fedvs and split by parties, rows and
rounds, up to larger sizes than `securevfl bench scale`, with exponents and a picture. Only what its
file of results lacks is measured.

Each prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from securevfl.bench.rounds import FIELDS, Rounds, RoundSize, uniform
from securevfl.bench.scale import Point, draw_scale, exponents, measure
from securevfl.engine.conditions import paper
from securevfl.engine.party import Party
from securevfl.engine.simulation.simulator import Simulation
from securevfl.machine import describe_machine
from securevfl.runs.threads import one_thread

GROWTH = Path(__file__).parent / "results/scale/growth_large.json"
REQUIRED = 100_000
WARM_UP = 4
# N, columns, K, batch, degree: digits among 8, the FedVS paper's fashion-mnist among 28 and 50.
SIZES = {8: (64, 1, 128, 2), 28: (784, 4, 256, 1), 50: (784, 4, 256, 1)}
WIDTH, ROWS, CLASSES = 64, 6000, 10
PEERS = (("fedvs", "split"), ("fedvs 31", "split"), ("split", "torch"), ("fedvs", "torch"))


class Talker(Party):
    """Party that sends an array to all parties and collects one from each, for `wanted` rounds."""

    def __init__(self, index: int, peers: range, wanted: int) -> None:
        super().__init__(index, peers)
        self.wanted = wanted
        self.array = np.zeros(64, np.uint64)

    async def run(self) -> None:
        for number in range(1, self.wanted + 1):
            self.round = number
            self.broadcast("model", self.array, to=self.peers)
            await self.collect("model")


def messages_per_second(parties: int = 28, rounds: int = 200) -> dict[str, Any]:
    """Messages per second, all to all, under the paper's delays; those to oneself do not count."""
    talkers = {n: Talker(n, range(parties), rounds) for n in range(parties)}
    simulation = Simulation(talkers, conditions=paper(parties, batch_rows=64))
    start, cpu_start = perf_counter(), process_time()
    simulation.run()
    seconds, cpu_seconds = perf_counter() - start, process_time() - cpu_start
    messages = simulation.transcript.messages
    return {
        "benchmark": "engine, all to all",
        "parties": parties,
        "rounds": rounds,
        "messages": messages,
        "seconds": round(seconds, 3),
        "messages_per_second": round(messages / seconds),
        "messages_per_cpu_second": round(messages / cpu_seconds),
        "required": REQUIRED,
    }


def torch_loop(data: Any, segments: int, batch: int, degree: int) -> Callable[[int], float]:
    """Function that trains the model of split for some rounds in plain torch, and returns the loss.

    Bottom models are linear, their mean goes to the top model, and the optimiser is Adam.
    """
    import torch

    torch.manual_seed(0)
    columns = [torch.from_numpy(own.copy()) for own in data.train]
    labels = torch.from_numpy(data.train_labels.astype(np.int64))
    ones = torch.ones(len(labels), 1)
    powers = [torch.cat([x**i for i in range(1, degree + 1)] + [ones], 1) for x in columns]
    bottoms = [torch.nn.Linear(x.shape[1], WIDTH, bias=False) for x in powers]
    layers: list[Any] = []
    for _ in range(2):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    top = torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, CLASSES))
    weights = [one for part in (*bottoms, top) for one in part.parameters()]
    optimizer, loss_of = torch.optim.Adam(weights, lr=0.01), torch.nn.CrossEntropyLoss()
    batch = max(1, batch // segments) * segments

    def advance(rounds: int) -> float:
        loss = torch.zeros(())
        for _ in range(rounds):
            rows = torch.randperm(len(labels))[:batch]
            parts = [own(x[rows]) for own, x in zip(bottoms, powers, strict=True)]
            loss = loss_of(top(sum(parts) / len(parts)), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return float(loss.item())

    return advance


def methods_of(parties: int, rounds: int) -> dict[str, Callable[[int], Any]]:
    """Function for each method that advances its run by a number of rounds."""
    features, segments, batch, degree = SIZES[parties]
    data = uniform(RoundSize(parties=parties, features=features, rows=ROWS))
    options = {
        "rounds": rounds, "batch": batch, "width": WIDTH, "hidden": WIDTH, "degree": degree,
        "segments": segments,
    }  # fmt: skip
    short, default, _ = FIELDS
    if degree > 1:  # fewer bits, that no sum of 2^31-1 wraps
        short = {**short, "data_bits": 6, "model_bits": 8}
    return {
        "fedvs": Rounds("fedvs", data, {**options, **default, "privacy": 1}).advance,
        "fedvs 31": Rounds("fedvs", data, {**options, **short, "privacy": 1}).advance,
        "split": Rounds("split", data, options).advance,
        "torch": torch_loop(data, segments, batch, degree),
    }


class Here:
    """Runs of all methods in this process, timed in turns."""

    def __init__(self, parties: int, turns: int, rounds: int) -> None:
        self.rounds = rounds
        self.methods = methods_of(parties, WARM_UP + turns * rounds + 1)
        for advance in self.methods.values():
            advance(WARM_UP)

    def turn(self) -> dict[str, float]:
        """CPU milliseconds per round of each method."""
        found = {}
        for name, advance in self.methods.items():
            started = process_time()
            advance(self.rounds)
            found[name] = 1e3 * (process_time() - started) / self.rounds
        return found


class There:
    """Runs of all methods in another process, by the code of another checkout."""

    def __init__(self, checkout: Path, parties: int, turns: int, rounds: int) -> None:
        sizes = [str(each) for each in (parties, turns, rounds)]
        self._process = subprocess.Popen(
            [sys.executable, __file__, "worker", *sizes],
            env={**os.environ, "PYTHONPATH": str(checkout)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=checkout,
        )  # fmt: skip
        self.turn()  # it is built when this comes back

    def turn(self) -> dict[str, float]:
        """CPU milliseconds per round of each method, measured by the other process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found: dict[str, float] = json.loads(self._process.stdout.readline())
        return found


def worker(parties: int, turns: int, rounds: int) -> None:
    """Measure a turn, and print it as JSON, for each line of standard input."""
    with one_thread():
        here = Here(parties, turns + 1, rounds)
        for _ in sys.stdin:
            print(json.dumps(here.turn()), flush=True)


def summary(turns: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Median milliseconds of each method, and median ratios of methods within a turn."""
    return {
        "ms": {name: round(statistics.median(t[name] for t in turns), 2) for name in turns[0]},
        "ratios": {
            f"{a} / {b}": round(statistics.median(t[a] / t[b] for t in turns), 2) for a, b in PEERS
        },
    }


def compare(
    parties: int = 28, turns: int = 9, rounds: int = 3, against: Path | None = None
) -> dict[str, Any]:
    """Medians of all methods by this checkout, and by `against` with ratios if it is given."""
    root = Path(__file__).resolve().parent.parent
    where = {"here": root} if against is None else {"here": root, "against": against.resolve()}
    every = {name: There(path, parties, turns, rounds) for name, path in where.items()}
    taken = [{name: one.turn() for name, one in every.items()} for _ in range(turns)]
    found = {name: summary([turn[name] for turn in taken]) for name in every}
    made = {"benchmark": "rounds", "parties": parties, "turns": turns, "rounds": rounds, **found}
    if against is not None:
        made["before / here"] = {
            name: round(statistics.median(t["against"][name] / t["here"][name] for t in taken), 2)
            for name in taken[0]["here"]
        }
    made["load"] = [round(each, 1) for each in os.getloadavg()]
    return made


def sizes_of_growth() -> list[tuple[str, Point]]:
    """Pairs (varied size, sizes of a run); each party has at least one column."""
    both = ("split", "fedvs")
    parties = [(name, n) for n in (8, 64, 256) for name in both] + [("fedvs", 512), ("split", 1000)]
    rows = [(name, n) for n in (512, 100_000, 1_000_000) for name in both] + [("split", 10**7)]
    rounds = [(name, n) for n in (10, 500) for name in both] + [("split", 5000)]
    return [
        *(("parties", Point(name, parties=n, features=max(64, n))) for name, n in parties),
        *(("rows", Point(name, rows=n, features=8)) for name, n in rows),
        *(("rounds", Point(name, rounds=n)) for name, n in rounds),
    ]


def growth(out: Path) -> dict[str, Any]:
    """Measure the sizes that the file `out` lacks, each in a new process; return exponents.

    All results are also drawn, and printed as rows of a table.
    """
    found = json.loads(out.read_text()) if out.exists() else {"points": []}
    points = found["points"]
    known = [{name: point[name] for name in ("axis", *asdict(Point("")))} for point in points]
    for axis, size in sizes_of_growth():
        if {"axis": axis, **asdict(size)} not in known:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                points.append({"axis": axis, **pool.submit(measure, size).result()})
            out.write_text(json.dumps(found) + "\n")
    found |= {"exponents": exponents(points), "machine": describe_machine()}
    out.write_text(json.dumps(found) + "\n")
    draw_scale(found, out.with_suffix(".png"))
    for point in points:  # rows of a table
        cells = [f"{point['setup']:.2f}", f"{point['seconds']:.3f}", f"{point['memory'] / 1e6:.0f}"]
        print("|", " | ".join([point["protocol"], f"{point[point['axis']]:,}", *cells]), "|")
    return dict(found["exponents"])


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    messages = kinds.add_parser("messages")
    messages.add_argument("--parties", type=int, default=28)
    messages.add_argument("--rounds", type=int, default=200)
    rounds = kinds.add_parser("rounds")
    rounds.add_argument("--parties", type=int, default=28, choices=SIZES)
    rounds.add_argument("--turns", type=int, default=9)
    rounds.add_argument("--rounds", type=int, default=3)
    rounds.add_argument("--against", type=Path)
    sizes = kinds.add_parser("growth")
    sizes.add_argument("--out", type=Path, default=GROWTH)
    process = kinds.add_parser("worker")
    for name in ("parties", "turns", "rounds"):
        process.add_argument(name, type=int)
    given = vars(parser.parse_args(argv))
    kind = given.pop("kind")
    if kind == "worker":
        worker(**given)
        return
    made = {"messages": messages_per_second, "rounds": compare, "growth": growth}[kind]
    print(json.dumps(made(**given), indent=1))


if __name__ == "__main__":
    main()
