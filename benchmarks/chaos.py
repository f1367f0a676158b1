"""Runs of all engines under kills, stops, cuts, full disks and steps of the clock.

    python benchmarks/chaos.py simulation --runs 100     a run and its resumptions, in virtual time
    python benchmarks/chaos.py ray --runs 50             a driver and its parties' processes
    python benchmarks/chaos.py organisations --runs 50   nine processes in namespaces and a relay

Each run has a number, from which its protocol and its disturbances follow; when they happen depends
on the machine. Afterwards its losses are compared with those of an undisturbed simulation with the
same secrets. A run hangs if a process does not end in `HUNG` seconds without a disturbance. An end
is explained if it is one line of the library, and no traceback. Results go to
benchmarks/results/faults/chaos-ENGINE.json as they come. It needs root: a full disk is a file
system of its own in memory, a cut takes down a network interface.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
from namespaces import forked, last_lines, namespace
from organisations import PARTIES, SAME, SMALL, Session, in_session

import securevfl as svfl
from securevfl.engine.network import SERVER, name_of
from securevfl.engine.streams import OwnEntropy
from securevfl.machine import commit, describe_machine
from securevfl.runs.spec import DataSource
from securevfl.runs.storage import read_history
from securevfl.runs.threads import one_thread
from securevfl.testing.entropies import kept_entropies, simulated_with

RESULTS = Path(__file__).parent / "results" / "faults"
HUNG = 180.0
MOST = 6  # disturbances of a run
SIZE = 96  # MiB of the file system that is filled up
PROTOCOLS: dict[str, dict[str, Any]] = {
    "fedvs": dict(SMALL),
    "coded_split": dict(SMALL),
    "split": dict(SMALL),
    "secagg_split": {"quorum": 4, **SMALL},
    "cvfl": {"mode": "sync", **SMALL},
}
# No timeouts: what is late is waited for, so that no loss depends on time.
ROUNDS = {"simulation": 300, "ray": 200, "organisations": 30}
BETWEEN = {"simulation": (0.3, 1.5), "ray": (1.0, 8.0)}  # seconds from one disturbance to the next
SOURCE = DataSource("digits", {"parties": 4})

Row = dict[str, Any]


# -- disturbances ------------------------------------------------------------------------------


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """A file system of `SIZE` MiB."""
    size = f"size={SIZE}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "chaos", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def fill(place: Path, seconds: float) -> None:
    """Leave no byte free for so long."""
    rest = place / "filler"
    with suppress(OSError), rest.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    with suppress(OSError), rest.open("ab", buffering=0) as file:
        while True:
            file.write(b"\0")
    time.sleep(seconds)
    rest.unlink(missing_ok=True)  # a session that is over has removed its folder


class Clock:
    """The wall clock of processes to come, and of those that run: it is stepped by a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.write_text("0")

    def step(self, seconds: float) -> None:
        """Set the clock to another time."""
        self.file.write_text(str(seconds))

    def wrong(self) -> None:
        """Let this process read it."""
        true, true_ns = time.time, time.time_ns
        time.time = lambda: true() + self._ahead()
        time.time_ns = lambda: true_ns() + int(self._ahead() * 1e9)

    def _ahead(self) -> float:
        try:
            return float(self.file.read_text() or 0)
        except (OSError, ValueError):
            return 0.0


def stop(process: int, seconds: float) -> None:
    """Stop a process for so long."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(process, signal.SIGCONT)


def explained(code: int, log: str) -> bool:
    """Whether an end is by a signal of ours, or a line of the library.

    Before a process has loaded the library, a signal ends it without a word.
    """
    ours = (0, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)
    return code in ours or ("Traceback" not in log and bool(log.strip()))


# -- one process, and a driver of a cluster ----------------------------------------------------


def work(engine: str, name: str, folder: Path, clock: Clock, *, resumes: bool) -> None:
    """A run, or its resumption, as the command makes it; entropies are kept beside its folder."""
    from securevfl.cli import main

    clock.wrong()
    for function in (svfl.run, svfl.resume):
        function.__kwdefaults__["checkpoint_seconds"] = 0.3
    options = PROTOCOLS[name] | {"rounds": ROUNDS[engine]}
    words = ["resume", str(folder)] if resumes else [
        *("run", name, "--data", "digits", "--parties", "4", "--engine", engine),
        *("--out", str(folder), "--conditions", "none"),
        *(word for key, value in options.items()
          for word in (f"--{key.replace('_', '-')}", str(value))),
    ]  # fmt: skip
    if engine == "ray":
        words = [word for word in words if word not in ("--conditions", "none")]
    sys.argv = ["securevfl", *words]
    with kept_entropies() as entropies:
        try:
            main()
        finally:
            if entropies:
                found = {n: one.entropy.hex() for n, one in entropies.items()}
                (folder.parent / "entropies.json").write_text(json.dumps(found))


def parties_of(driver: int) -> list[int]:
    """Processes of the parties of a driver's cluster."""
    with suppress(psutil.Error):
        every = psutil.Process(driver).children(recursive=True)
        return [one.pid for one in every if "ray::PartyActor" in "".join(one.cmdline()[:1])]
    return []


def disturb(engine: str, chance: random.Random, driver: int, place: Path, clock: Clock) -> str:
    """Do one thing, chosen at random, to a run; what was done."""
    kinds = ["kill", "terminate", "interrupt", "stop", "disk", "clock"]
    others = parties_of(driver) if engine == "ray" else []
    kind = chance.choice(kinds + 3 * ["kill a party", "stop a party"] if others else kinds)
    how = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "interrupt": signal.SIGINT}
    with suppress(ProcessLookupError):
        if kind in how:
            os.kill(driver, how[kind])
        elif kind == "stop":
            stop(driver, chance.uniform(0.2, 2.0))
        elif kind == "kill a party":
            os.kill(chance.choice(others), signal.SIGKILL)
        elif kind == "stop a party":
            stop(chance.choice(others), chance.uniform(0.5, 4.0))
        elif kind == "disk":
            fill(place, chance.uniform(0.3, 1.5))
        else:
            clock.step(chance.choice([-86400.0, -60.0, 60.0, 86400.0]))
    return kind


def ended(process: int, seconds: float) -> int | None:
    """Code of a child process that ends within so many seconds; None for one that does not."""
    end = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            return None
        time.sleep(0.02)


def one_run(engine: str, number: int) -> Row:
    """A run of one process, or of a driver and its cluster, until it is complete."""
    chance = random.Random(f"{engine} {number}")
    names = list(PROTOCOLS)
    name = names[number % len(names)]
    row: Row = {"engine": engine, "number": number, "protocol": name, "disturbances": [],
                "ends": [], "hung": False, "unexplained": []}  # fmt: skip
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as outer:
        disk, folder = Path(outer) / "disk", Path(outer) / "disk" / "run"
        disk.mkdir()
        clock = Clock(Path(outer) / "clock")
        with small_disk(disk):
            left, said = chance.randint(2, MOST), ""
            for attempt in range(4 * MOST):
                log = Path(outer) / f"{attempt}.log"
                resumes = folder.exists() and "start it again" not in said
                begin = functools.partial(work, engine, name, folder, clock, resumes=resumes)
                child = forked(begin, log)
                code = None
                while left and code is None:
                    code = ended(child, chance.uniform(*BETWEEN[engine]))
                    if code is None:
                        left -= 1
                        row["disturbances"].append(disturb(engine, chance, child, disk, clock))
                if code is None:
                    code = ended(child, HUNG)
                if code is None:
                    row["hung"] = True
                    os.killpg(child, signal.SIGKILL)
                    ended(child, 10.0)
                text = log.read_text()
                said = "" if code == 0 else last_lines(log, 1)[:300]
                row["ends"].append([code, said])
                if not explained(code or 0, text):
                    row["unexplained"].append(text[-1500:])
                if code == 0 or code is None:
                    break
            row["complete"] = code == 0
            if code == 0:
                row["losses_that_differ"] = differing(engine, name, folder)
    return row | {"seconds": round(time.monotonic() - began, 1)}


def differing(engine: str, name: str, folder: Path) -> int:
    """Losses of a complete run that are not those of an undisturbed one with its secrets."""
    found = {row["step"]: row["loss"] for row in read_history(folder)[0]}
    secrets = None
    if engine == "ray":
        kept = json.loads((folder.parent / "entropies.json").read_text())
        secrets = {int(n): OwnEntropy(int(n), bytes.fromhex(one)) for n, one in kept.items()}
    wanted = of_the_seed(name) if secrets is None else undisturbed(engine, name, secrets)
    # Steps that a killed server had told to nobody are in no history of a cluster.
    wrong = sum(wanted.get(step) != loss for step, loss in found.items())
    return wrong + (max(found) != max(wanted))


@functools.cache
def of_the_seed(name: str) -> dict[int, float]:
    """Losses of an undisturbed simulation with the secrets of its seed."""
    return undisturbed("simulation", name, None)


def undisturbed(
    engine: str, name: str, secrets: Mapping[int, OwnEntropy] | None
) -> dict[int, float]:
    """Losses by step of a simulation."""
    options = PROTOCOLS[name] | {"rounds": ROUNDS[engine]}
    with one_thread(), simulated_with(dict(secrets)) if secrets else nullcontext():
        run = svfl.run(name, SOURCE, conditions="none", **options)
    return {row["step"]: row["loss"] for row in run.history}


# -- organisations -----------------------------------------------------------------------------


def one_session(number: int) -> Row:
    """A session of nine processes, until it is over."""
    chance = random.Random(f"organisations {number}")
    names = [name for name in SAME if name != "dvfl"]  # dvfl goes by each machine's clock
    name = names[number % len(names)]
    row: Row = {"engine": "organisations", "number": number, "protocol": name,
                "disturbances": [], "ends": [], "unexplained": [], "named_after": []}  # fmt: skip

    def torment(session: Session) -> bool:
        for _ in range(chance.randint(2, MOST)):
            time.sleep(chance.uniform(0.5, 3.0))
            come_back(session, row)
            if not session.processes.running:
                break
            row["disturbances"].append(disturb_session(session, chance, row))
        end = time.monotonic() + HUNG
        while time.monotonic() < end:
            come_back(session, row)
            if not session.processes.running:
                return True
            time.sleep(0.2)
        return session.processes.wait(0.0)

    with (
        tempfile.TemporaryDirectory() as place,
        small_disk(Path(place)),
        mock.patch.object(tempfile, "tempdir", place),
    ):
        found = in_session(
            *(name, torment),
            more=("--silence", "4"),
            noting=False,  # it writes beside the parties' folders, and the disk gets full
            options={"rounds": ROUNDS["organisations"]},
        )
    row["complete"] = found["all_ended_well"]
    row["hung"] = found["hung"]
    row["losses_that_differ"] = found.get("losses_that_differ")
    row["seconds"] = found["seconds"]
    return row | {key: found[key] for key in ("logs", "restarts") if key in found}


def come_back(session: Session, row: Row) -> None:
    """Give a command again that ended in an error."""
    session.processes.look()
    for index, code in list(session.processes.codes.items()):
        if code == 0:
            continue
        text = session.log(index).read_text()
        row["ends"].append([name_of(index), code, last_lines(session.log(index), 1)[:300]])
        if not explained(code, text.rpartition("--- again")[2]):
            row["unexplained"].append(text[-1500:])
        del session.processes.codes[index]
        with session.log(index).open("a") as log:
            log.write("--- again\n")
        session.start(index, "--silence", "4")


def disturb_session(session: Session, chance: random.Random, row: Row) -> str:
    """Do one thing, chosen at random, to a session; what was done."""
    kind = chance.choice(["kill", "stop", "long stop", "relay", "cut", "disk"])
    index = chance.choice(list(session.processes.running))
    if kind == "kill":
        session.processes.kill(index)
        session.start(index, "--silence", "4")
    elif kind == "stop":
        stop(session.processes.running[index], chance.uniform(0.5, 3.0))
    elif kind == "long stop":
        row["named_after"] += named_after(session, index)
    elif kind == "relay":
        session.stop_relay()
        time.sleep(chance.uniform(0.0, 3.0))
        session.start_relay()
    elif kind == "cut":
        link = ["ip", "-n", namespace(index), "link", "set", "up0"]
        subprocess.run([*link, "down"], check=True)
        time.sleep(chance.uniform(0.5, 6.0))
        subprocess.run([*link, "up"], check=True)
        route = ["route", "add", "10.77.255.1/32", "via", f"10.77.{index + 1}.1"]
        subprocess.run(["ip", "-n", namespace(index), *route], check=False, capture_output=True)
    else:
        fill(session.folder, chance.uniform(0.3, 1.5))
    return f"{kind} of {name_of(index)}" if kind not in ("relay", "disk") else kind


def named_after(session: Session, index: int, most: float = 25.0) -> list[float]:
    """Seconds from the stop of a party's process to its being named, by each other party."""
    said = f"{'server' if index == SERVER else f'party {index}'} was not heard"
    others = [n for n in session.processes.running if n != index]
    before = {n: session.log(n).read_text().count(said) for n in others}
    child, named = session.processes.running[index], dict[int, float]()
    os.kill(child, signal.SIGSTOP)
    began = time.monotonic()
    while len(named) < len(others) and time.monotonic() < began + most:
        session.processes.look()
        others = [n for n in others if n in session.processes.running or n in named]
        for n in others:
            if n not in named and session.log(n).read_text().count(said) > before[n]:
                named[n] = round(time.monotonic() - began, 2)
        time.sleep(0.05)
    with suppress(ProcessLookupError):  # it ended as it was stopped
        os.kill(child, signal.SIGCONT)
    return sorted(named.values())


# -- all ---------------------------------------------------------------------------------------


def main() -> None:
    """Make the runs that are missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=[*ROUNDS])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    asked = parser.parse_args()
    assert PARTIES == 8
    make: Callable[[int], Row] = functools.partial(one_run, asked.engine)
    make = one_session if asked.engine == "organisations" else make
    place, end = RESULTS / f"chaos-{asked.engine}.json", time.monotonic() + asked.seconds
    for number in range(asked.runs):
        found = json.loads(place.read_text()) if place.exists() else {"runs": []}
        if any(row["number"] == number for row in found["runs"]) or time.monotonic() > end:
            continue
        row = make(number)
        found["runs"].append(row)
        found["machine"], found["commit"] = describe_machine(), commit()
        place.write_text(json.dumps(found, indent=1) + "\n")
        shown = ("number", "protocol", "disturbances", "complete", "hung", "losses_that_differ")
        print({key: row.get(key) for key in shown}, row["unexplained"][:1], flush=True)


if __name__ == "__main__":
    main()
