"""FedVS as Ray actors: the simulation's numbers, kills of parties and drivers, rates and shares.

    python benchmarks/cluster.py same       8 parties in 9 processes against the simulation
    python benchmarks/cluster.py kills      100 rounds, a party killed -9 every 10 rounds
    python benchmarks/cluster.py coded      the same kills of holders of coded_split
    python benchmarks/cluster.py patient    the same as kills with timeouts that outlast a restart
    python benchmarks/cluster.py away       the same losses in simulation, each for one round
    python benchmarks/cluster.py lost       N - R + 1 parties killed for good: seconds to the error
    python benchmarks/cluster.py drivers    20 drivers killed -9 at random rounds, and resumed
    python benchmarks/cluster.py rates      rounds a second and bytes against the simulation
    python benchmarks/cluster.py fashion    28 parties, 100 rounds of fashion-mnist
    python benchmarks/cluster.py chaos      200 runs under kills and forged frames, in one process

Each writes its part of benchmarks/results/cluster/cluster.json. All nodes are of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

import securevfl as svfl
from securevfl.data.source import DataSource
from securevfl.engine.cluster.supervisor import Cluster
from securevfl.engine.faults import faults_from
from securevfl.errors import RunError
from securevfl.machine import commit, describe_machine
from securevfl.runs.engines.ray import Driver
from securevfl.runs.threads import one_thread
from securevfl.testing.entropies import kept_entropies, simulated_with

RESULTS = Path(__file__).parent / "results" / "cluster" / "cluster.json"
DIGITS = DataSource("digits", {"parties": 8})
# While clients compile and share their data, first attempts are given up.
TIMED = {"share_timeout": 1.0, "result_timeout": 1.0, "max_attempts": 100}
PATIENT = TIMED | {"share_timeout": 8.0, "result_timeout": 8.0}
FIRST = 5  # rounds that are over before anything is timed


def losses(run: Any) -> list[float]:
    return [row["loss"] for row in run.history]


def told(run: Any) -> dict[str, Any]:
    said = run.summary()
    names = ("rounds", "test_accuracy", "messages", "bytes", "late", "wall_seconds")
    return {name: said[name] for name in names if name in said}


class Watched:
    """Knows the cluster of the run under way, as progress does not."""

    def __init__(self) -> None:
        self.cluster: Any = None
        before = Cluster.run

        def run(cluster: Any, *arguments: Any, **options: Any) -> Any:
            self.cluster = cluster
            return before(cluster, *arguments, **options)

        Cluster.run = run  # type: ignore[method-assign]

    def kill(self, party: int) -> None:
        os.kill(self.cluster.processes[party], signal.SIGKILL)


def pair(rounds: int, source: DataSource, **options: Any) -> tuple[Any, Any]:
    """A run on a cluster, and the simulation with the secrets that its parties drew."""
    with tempfile.TemporaryDirectory() as place, kept_entropies() as entropies:
        out = Path(place) / "run"
        found = svfl.run("fedvs", source, rounds=rounds, engine="ray", out=out, **options)
    with one_thread(), simulated_with(entropies):
        wanted = svfl.run("fedvs", source, rounds=rounds, conditions="none", **options)
    return wanted, found


def same() -> dict[str, Any]:
    wanted, found = pair(100, DIGITS)
    return {
        "parties": 8,
        "processes": 9,
        "losses_equal": losses(found) == losses(wanted),
        "cluster": told(found),
        "simulation": told(wanted),
    }


def kills(
    rounds: int = 100,
    every: int = 10,
    protocol: str = "fedvs",
    seeds: Sequence[int] = range(3),
    **options: Any,
) -> dict[str, Any]:
    options = options or TIMED
    watched, rows = Watched(), []
    for seed in seeds:
        chance = random.Random(seed)
        killed: dict[int, int] = {}

        def progress(now: Any, chance: random.Random = chance, killed: Any = killed) -> None:
            if now.round % every == 0 and now.round < rounds and now.round not in killed:
                party = chance.randrange(8)
                if psutil.pid_exists(watched.cluster.processes[party]):  # else it is still down
                    killed[now.round] = party
                    watched.kill(party)

        with tempfile.TemporaryDirectory() as folder, kept_entropies() as entropies:
            run = svfl.run(
                protocol, DIGITS, rounds=rounds, seed=seed, engine="ray", out=Path(folder) / "run",
                progress=progress, **options,
            )  # fmt: skip
        with one_thread(), simulated_with(entropies):
            whole = svfl.run(
                protocol, DIGITS, rounds=rounds, seed=seed, conditions="none", **options
            )
        down = [e["party"] for e in run.events if e["event"] == "down"]
        rows.append(
            {
                "seed": seed,
                "killed": list(killed.values()),
                "named_in_events": down,
                "back": [e["party"] for e in run.events if e["event"] == "up"],
                "losses_equal": losses(run) == losses(whole),
                "cluster": told(run),
                "without_kills": told(whole),
            }
        )
        print(rows[-1], flush=True)
    return {"rounds": rounds, "every": every, "options": options, "runs": rows}


def coded() -> dict[str, Any]:
    """Kills as in `kills`, but further apart, since no round waits for who is down.

    A holder that comes back asks for the steps that it missed.
    """
    return kills(500, 50, protocol="coded_split", ask_timeout=2.0)


def patient() -> dict[str, Any]:
    """A round waits for a party that is killed until it is back, some five seconds."""
    return kills(**PATIENT)


def away(rounds: int = 100, every: int = 10) -> dict[str, Any]:
    """Costs to FedVS of the round that each party killed in `kills` misses."""
    rows = []
    for seed in range(3):
        chance = random.Random(seed)
        outages = [
            {"party": chance.randrange(8), "rounds": [at + 1, at + 2]}
            for at in range(every, rounds, every)
        ]
        accuracy, gone = {}, faults_from({"outage": outages})
        for name, faults in (("whole", None), ("away", gone)):
            with one_thread():
                run = svfl.run(
                    "fedvs", DIGITS, rounds=rounds, seed=seed, conditions="none", faults=faults,
                    **TIMED,
                )  # fmt: skip
            accuracy[name] = run.summary()["test_accuracy"]
        rows.append({"seed": seed, **accuracy})
    return {"rounds": rounds, "every": every, "runs": rows}


def lost() -> dict[str, Any]:
    watched = Watched()
    found: dict[str, Any] = {}

    def progress(now: Any) -> None:
        if now.round == 10 and "at" not in found:
            found["at"] = time.monotonic()
            R = 3  # K = T = 1, D = 2: (K + T - 1) D + 1
            for party in range(8 - R + 1):
                watched.kill(party)

    Driver.restarts = 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            svfl.run(
                "fedvs", DIGITS, rounds=1000, engine="ray", out=Path(folder) / "run", segments=1,
                degree=2, progress=progress,
            )  # fmt: skip
        except RunError as error:
            seconds = time.monotonic() - found["at"]
            kept = (Path(folder) / "run" / "parties" / "7").is_dir()
            return {"seconds": round(seconds, 1), "said": str(error), "checkpoints_kept": kept}
    raise AssertionError("the run ended")


DRIVER = """
import sys, securevfl as svfl
from securevfl.runs.spec import DataSource
if __name__ == "__main__":
    svfl.run("fedvs", DataSource("digits", {"parties": 4}), rounds=40, engine="ray",
             out=sys.argv[1], progress=lambda now: print(now.round, flush=True))
"""


def resumed_at(folder: Path) -> tuple[Any, int]:
    """The run, resumed, and the round from which it went on."""
    rounds = []
    before = Driver._take_up

    def take_up(driver: Any) -> int | None:
        rounds.append(before(driver))
        return rounds[-1]

    Driver._take_up = take_up  # type: ignore[method-assign]
    try:
        return svfl.resume(folder), rounds[0] or 0
    finally:
        Driver._take_up = before  # type: ignore[method-assign]


def drivers(count: int = 20) -> dict[str, Any]:
    chance, rows = random.Random(0), []
    source = DataSource("digits", {"parties": 4})
    for number in range(count):
        with tempfile.TemporaryDirectory() as place:
            script = Path(place) / "driver.py"
            script.write_text(DRIVER)
            folder, at = Path(place) / "run", chance.randrange(1, 38)
            command = [sys.executable, str(script), str(folder)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
                assert child.stdout is not None
                for line in child.stdout:
                    if int(line) >= at:
                        break
                child.kill()
            with kept_entropies() as entropies:
                resumed, since = resumed_at(folder)
            with one_thread(), simulated_with(entropies):
                wanted = svfl.run("fedvs", source, rounds=40, conditions="none")
            accuracy = resumed.summary()["test_accuracy"] == wanted.summary()["test_accuracy"]
            equal = losses(resumed) == losses(wanted) and accuracy
            rows.append(
                {
                    "number": number,
                    "killed_at": at,
                    "went_on_from": since,
                    "equals_the_unbroken_run": equal,
                }
            )
            print(rows[-1], flush=True)
    return {"runs": rows, "equal": sum(r["equals_the_unbroken_run"] for r in rows)}


def _processor(ours: bool) -> float:
    """Seconds of processor of this process, or of all that Ray has started and this one."""
    me = psutil.Process()
    if not ours:
        return sum(me.cpu_times()[:2])
    total = 0.0
    for process in psutil.process_iter(["cmdline", "name", "cpu_times"]):
        line = " ".join(process.info["cmdline"] or [])
        if process.pid == me.pid or "ray" in line.lower():
            total += sum((process.info["cpu_times"] or (0, 0))[:2])
    return total


class Timed:
    """Progress that notes clock and processor after the first rounds and at the last."""

    def __init__(self, rounds: int, ours: bool) -> None:
        self.rounds, self.ours = rounds, ours
        self.first: tuple[float, float] | None = None
        self.last: tuple[float, float] | None = None

    def __call__(self, now: Any) -> None:
        if now.round >= FIRST and self.first is None:
            self.first, self.at = (time.perf_counter(), _processor(self.ours)), now.round
        if now.round >= self.rounds and self.last is None:
            self.last = (time.perf_counter(), _processor(self.ours))

    def figures(self) -> dict[str, float]:
        assert self.first is not None
        assert self.last is not None
        wall, cpu = (b - a for a, b in zip(self.first, self.last, strict=True))
        rounds = self.rounds - self.at
        return {"rounds_per_second": round(rounds / wall, 2), "cpu_ms": round(1e3 * cpu / rounds)}


def rates(rounds: int = 60) -> dict[str, Any]:
    """The share of Ray is the processor's time beyond what one process needs for the same run."""
    rows = []
    cases: list[tuple[str, DataSource, str, dict[str, Any]]] = [
        ("digits, 4 parties", DataSource("digits", {"parties": 4}), "fedvs", {}),
        ("digits, 8 parties", DIGITS, "fedvs", {}),
        ("digits, 8 parties", DIGITS, "split", {}),
        ("digits, 8 parties, open links", DIGITS, "fedvs", {"sealed": False}),
    ]
    for what, source, protocol, options in cases:
        row: dict[str, Any] = {"what": what, "protocol": protocol}
        for engine in ("simulation", "ray"):
            timed = Timed(rounds, engine == "ray")
            given = options | ({"conditions": "none"} if engine == "simulation" else {})
            with one_thread():
                run = svfl.run(
                    protocol, source, rounds=rounds, engine=engine, progress=timed, **given
                )
            row[engine] = timed.figures() | told(run)
        ratio = row["simulation"]["cpu_ms"] / row["ray"]["cpu_ms"]
        rows.append(row | {"share_of_ray": round(1 - ratio, 2)})
        print(rows[-1], flush=True)
    return {"rounds": rounds, "runs": rows}


def fashion() -> dict[str, Any]:
    source = DataSource("fashion-mnist", {"parties": 28})
    options = {"degree": 1, "segments": 4, "batch": 256, "width": 64}
    options |= {"prime": 2**31 - 1, "data_bits": 8, "model_bits": 8}  # as `securevfl plan` has it
    timed = Timed(100, True)
    start = time.perf_counter()
    run = svfl.run("fedvs", source, rounds=100, engine="ray", progress=timed, **options)
    return {
        "parties": 28,
        "options": options,
        "seconds_in_all": round(time.perf_counter() - start, 1),
        **timed.figures(),
        **told(run),
    }


def chaos(count: int = 200) -> dict[str, Any]:
    """Runs of tests/engine/realtime/test_chaos.py; one that does not end as it must fails there."""
    with tempfile.TemporaryDirectory() as place:
        log = Path(place) / "log"
        settings = {"SECUREVFL_CHAOS": str(count), "SECUREVFL_CHAOS_LOG": str(log)}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "0",
            "tests/engine/realtime/test_chaos.py",
        ]
        subprocess.run(command, env=os.environ | settings, check=True)
        rows = [json.loads(line) for line in log.read_text().splitlines()]
    killed = [name for row in rows for name in row["killed"]]
    return {
        "runs": len(rows),
        "frames_forged": sum(row["tried"] for row in rows),
        "accepted": sum(row["accepted"] for row in rows),
        "kills": len(killed),
        "kills_of_the_server": killed.count("the server"),
    }


WORK: dict[str, Callable[[], dict[str, Any]]] = {
    "same": same,
    "kills": kills,
    "coded": coded,
    "patient": patient,
    "away": away,
    "lost": lost,
    "drivers": drivers,
    "rates": rates,
    "fashion": fashion,
    "chaos": chaos,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=list(WORK))
    what = parser.parse_args().what
    found = WORK[what]() | {"machine": describe_machine(), "commit": commit()}
    print(found)
    content = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(content | {what: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
