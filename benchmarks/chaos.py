"""Runs and sessions under faults of processes, network, clock and disk, compared with simulations.

    python -m benchmarks.chaos --out chaos.jsonl --numbers 0:100

A run has a number, from which carrier, protocol and disturbances follow; the time of a disturbance
also depends on the machine. Each finished run adds a line of JSON to the file: its disturbances,
the ends of its processes, and the differences (losses, history rows, their order) from an
undisturbed simulation with the same secrets. Numbers already in the file are skipped, so a stopped
command continues. A user's files are put into every output folder, and must be there at the end.

Carriers: `relay`, each party a process in a network namespace with one link to the relay; `ray`, a
driver and its actors; `simulation`, one process. A command that ended with an error is started
again; if that keeps failing, the run counts as refused and its last message is under "ends". A run
that does not end within `HUNG` seconds without disturbance counts as hung.

It needs root, iproute2, a C compiler and nats-server. A disk that is filled up is a small tmpfs.
The clock of a process is changed by a library loaded before the C library (LD_PRELOAD).
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import importlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

from securevfl.engine.network import SERVER

Row = dict[str, Any]

HUNG = 300.0
TRIES = 40  # processes of a party at most
SIZE = 24  # MiB of each disk
MINE = ("notes.txt", "results.part/deep.txt", "old.svfl", "party-99.json")  # files of a user
RELAY_AT, PORT = "10.77.255.1", 4222
PROTOCOLS: dict[str, dict[str, Any]] = {
    "fedvs": {"rounds": 40, "width": 6, "hidden": 8, "batch": 32},
    "coded_split": {"rounds": 40, "width": 2, "hidden": 4, "batch": 32, "helpers": 1,
                    "secure": True},
}  # fmt: skip
KINDS = {
    "relay": ("kill", "kill", "stop", "cut", "relay killed", "relay stopped", "disk", "clock",
              "old folder", "old folder"),
    "ray": ("kill", "stop", "disk", "clock", "party killed", "party stopped", "old folder"),
    "simulation": ("kill", "stop", "disk", "clock", "terminate", "old folder"),
}  # fmt: skip
BETWEEN = {"relay": (0.2, 2.5), "ray": (4.0, 20.0), "simulation": (0.5, 5.0)}
ROUNDS = {"ray": 200, "simulation": 200}  # the sessions' are those of `PROTOCOLS`
CLOCK = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t which, struct timespec *now) {
    int code = syscall(SYS_clock_gettime, which, now);
    char text[32] = {0}, *path = getenv("CHAOS_CLOCK");
    int file = which == CLOCK_REALTIME && path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0 && read(file, text, 31) > 0) now->tv_sec += atol(text);
    if (file >= 0) close(file);
    return code;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec found;
    int code = clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec, now->tv_usec = found.tv_nsec / 1000;
    return code;
}
time_t time(time_t *place) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    return place ? (*place = found.tv_sec) : found.tv_sec;
}
"""


# -- the plan of a run, and the verdict on it: no process, no clock ------------------------------


def plan(number: int) -> Row:
    """Plan of a run: ``carrier``, ``protocol``, and ``steps``, its disturbances.

    A step is (pause in seconds, kind, random number in [0, 1)). Of five runs three use the relay,
    one Ray, and one is a simulation.
    """
    chance = random.Random(f"chaos {number}")
    carrier = ("relay", "simulation", "relay", "ray", "relay")[number % 5]
    steps = [
        (round(chance.uniform(*BETWEEN[carrier]), 3), chance.choice(KINDS[carrier]),
         chance.random())
        for _ in range(chance.randint(2, 6))
    ]  # fmt: skip
    names = tuple(PROTOCOLS)
    return {"number": number, "carrier": carrier, "protocol": names[number // 5 % len(names)],
            "steps": steps}  # fmt: skip


def compared(
    rows: Sequence[Row], wanted: Sequence[Row], *, lossless: bool = True
) -> dict[str, int]:
    """Number of losses and rows that differ from an undisturbed run, and of times that decrease.

    Rows are compared in order, without times, bytes and accuracies. If the history is not
    `lossless`, steps may be missing that a killed server had not yet reported.
    """
    if not lossless:
        told = {row["step"] for row in rows} | {wanted[-1]["step"]}
        wanted = [row for row in wanted if row["step"] in told]

    def bare(row: Row) -> Row:
        return {
            k: v for k, v in row.items() if not re.fullmatch("time|bytes|.*accuracy|test_.*", k)
        }

    pairs = list(zip(rows, wanted, strict=False))
    missing = abs(len(rows) - len(wanted))
    back = sum(a["time"] > b["time"] for a, b in pairwise(rows))
    return {
        "losses_differ": missing + sum(a["loss"] != b["loss"] for a, b in pairs),
        "rows_differ": missing + sum(bare(a) != bare(b) for a, b in pairs),
        "times_fall": back,
    }


def explained(code: int, log: str) -> bool:
    """Whether a process ended normally, by our signal, or with a message that is no traceback."""
    ours = (0, -signal.SIGKILL, -signal.SIGTERM)
    return code in ours or ("Traceback" not in log and bool(log.strip()))


def kind_of_end(line: str) -> str:
    """A log line without its numbers, names and paths, at most 110 characters, for counting."""
    line = re.sub(r"'[^']*'|\S*/\S+|\d+(\.\d+)?", "~", line)
    return re.sub(r"\s+", " ", re.sub(r"party ~|server", "X", line)).strip()[:110]


def tally(rows: Sequence[Row]) -> Row:
    """Counts of runs, disturbances, differences and error messages over all result rows."""
    total: Row = {"runs": len(rows), "by_carrier": Counter(row["carrier"] for row in rows),
                  "by_protocol": Counter(row["protocol"] for row in rows)}  # fmt: skip
    total["disturbances"] = Counter(kind for row in rows for kind, _ in row["done"])
    total["disturbances_in_all"] = total["disturbances"].total()
    for name in ("complete", "hung", "refused"):
        total[name] = sum(bool(row[name]) for row in rows)
    for name in ("losses_differ", "rows_differ", "times_fall"):
        total[name] = sum(row.get(name, 0) for row in rows)
    for name in ("files_lost", "unexplained"):
        total[name] = sum(len(row[name]) for row in rows)
    total["ends"] = Counter(
        kind_of_end(end[2]) for row in rows for end in row["ends"] if end[1] > 0
    )
    return total


# -- processes, networks, disks and clocks --------------------------------------------------------


def forked(
    work: Callable[[], None], log: Path, *, network: str = "", clock: Path | None = None
) -> int:
    """Call `work` in a forked process, and return its process number.

    Its output goes to `log`; it enters the network namespace `network`, and its clock is changed by
    the seconds in the file `clock`. Modules that this process has imported need no import, so that
    five processes start in a second.
    """
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.pop("LD_PRELOAD", None)  # of what this process starts
        if clock is not None:
            os.environ["CHAOS_CLOCK"] = str(clock)
        if network:
            with open(f"/var/run/netns/{network}") as file:
                if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0x40000000):
                    raise OSError(ctypes.get_errno(), f"cannot enter the namespace {network}")
        work()
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0) if isinstance(ended.code, int | None) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def command(loaded: Path, *words: str) -> None:
    """Run ``securevfl WORDS`` in this process; at the end list its imported modules in `loaded`."""
    from securevfl.cli import main

    sys.argv = ["securevfl", *words]
    try:
        main()
    finally:
        if not loaded.exists():
            loaded.write_text("\n".join(sys.modules))


def load(loaded: Path) -> None:
    """Import the modules listed in the file `loaded`, which forked processes then have."""
    for name in loaded.read_text().split() if loaded.exists() else ():
        with suppress(Exception):
            importlib.import_module(name)


def ip(*words: str, check: bool = True) -> None:
    """Run the command ``ip`` of iproute2; CalledProcessError if it fails and `check` is true."""
    subprocess.run(["ip", *words], check=check, capture_output=True)


@contextmanager
def networks(names: Sequence[str], relay: str) -> Iterator[None]:
    """Context with network namespaces `names`, each linked to the namespace `relay` only."""
    try:
        for name in (relay, *names):
            ip("netns", "add", name)
        ip("-n", relay, "link", "set", "lo", "up")
        ip("-n", relay, "addr", "add", f"{RELAY_AT}/32", "dev", "lo")
        for n, name in enumerate(names):
            far, near = f"10.77.{n}.1", f"10.77.{n}.2"
            ends = (f"link{n}", "netns", relay, "type", "veth", "peer", "name", "up0")
            ip("link", "add", *ends, "netns", name)
            ip("-n", relay, "addr", "add", f"{far}/30", "dev", f"link{n}")
            ip("-n", relay, "link", "set", f"link{n}", "up")
            ip("-n", name, "addr", "add", f"{near}/30", "dev", "up0")
            ip("-n", name, "link", "set", "up0", "up")
            ip("-n", name, "route", "add", f"{RELAY_AT}/32", "via", far)
        yield
    finally:
        for name in (relay, *names):
            ip("netns", "del", name, check=False)


@contextmanager
def small_disk(place: Path, size: int = SIZE) -> Iterator[Path]:
    """Context with a tmpfs of `size` MiB, mounted at the new folder `place`."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}m", "chaos", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=False)


def fill(place: Path, seconds: float) -> None:
    """Fill the file system of `place` completely, and free it after `seconds`."""
    rest = place / "filler"
    with suppress(OSError), rest.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 12))
    time.sleep(seconds)
    rest.unlink(missing_ok=True)


def stop(process: int, seconds: float) -> None:
    """Suspend a process (SIGSTOP) for `seconds`."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(process, signal.SIGCONT)


def last_line(text: str) -> str:
    """Last line of a log that is not blank, cut to 300 characters: usually an error message."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


# -- a run, whatever carries it -------------------------------------------------------------------


class Run:
    """One disturbed run: its processes, each with a disk and a clock of its own.

    `folder` holds everything; `row` is the plan, to which results are added.
    """

    def __init__(self, folder: Path, row: Row) -> None:
        self.folder, self.row = folder, row
        self.loaded = Path(tempfile.gettempdir()) / f"chaos-modules-{row['carrier']}"
        load(self.loaded)
        self.options = PROTOCOLS[row["protocol"]] | (
            {"rounds": ROUNDS[row["carrier"]]} if row["carrier"] in ROUNDS else {}
        )
        self.running: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        self.starts: Counter[str] = Counter()
        self.since: Counter[str] = Counter()  # errors since the last disturbance
        self.copies: dict[str, Path] = {}
        self.owned: set[str] = set()  # processes in whose folder a user's files lie

    def names(self) -> Sequence[str]:
        """Names of the processes."""
        return ["run"]

    def home(self, name: str) -> Path:
        """Folder that is the disk of a process."""
        return self.folder / f"disk-{name}"

    def out(self, name: str) -> Path:
        """Folder to which the command of a process writes."""
        return self.home(name) / "out"

    def work(self, name: str) -> Callable[[], None]:
        """Function that a forked process calls: the command of the process `name`."""
        raise NotImplementedError

    def simulate(self) -> list[Row]:
        """History of an undisturbed simulation with the same secrets."""
        raise NotImplementedError

    def disturb(self, kind: str, chance: float) -> str:
        """Carry out a disturbance that only this carrier has; name of the affected process.

        `chance` in [0, 1) chooses process and length.
        """
        raise NotImplementedError

    def start(self, name: str) -> None:
        """Start a process, or start it again."""
        self.starts[name] += 1
        log = self.folder / f"{name}-{self.starts[name]}.log"
        clock = self.folder / f"{name}.clock"
        if not clock.exists():
            clock.write_text("0")
        self.ended.pop(name, None)
        self.running[name] = forked(self.work(name), log, network=self.network(name), clock=clock)

    def log(self, name: str) -> str:
        """Log of the newest process called `name`."""
        return (self.folder / f"{name}-{self.starts[name]}.log").read_text()

    def network(self, name: str) -> str:
        """Network namespace of a process; "" for that of this process."""
        return ""

    def kill(self, name: str, how: int = signal.SIGKILL) -> None:
        """Send the signal `how` to a process if it runs; SIGKILL is also waited for."""
        child = self.running.get(name)
        if child is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(child, how) if how == signal.SIGKILL else os.kill(child, how)
        if how == signal.SIGKILL:
            os.waitpid(child, 0)
            del self.running[name]

    def look(self) -> None:
        """Register ended processes, and start those again that ended with an error.

        After five errors without a disturbance, or `TRIES` starts, the run is marked as refused.
        """
        for name, child in list(self.running.items()):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                del self.running[name]
                self.ended[name] = os.waitstatus_to_exitcode(status)
        for name, code in list(self.ended.items()):
            if code == 0:
                continue
            text = self.log(name)
            self.row["ends"].append([name, code, last_line(text)])
            if not explained(code, text):
                self.row["unexplained"].append(text[-2500:])
            self.since[name] += 1
            if self.since[name] < 5 and self.starts[name] < TRIES:
                time.sleep(0.3)
                self.start(name)
            else:
                self.row["refused"] = f"{name}: {last_line(text)}"
                del self.ended[name]

    def plant(self) -> None:
        """Put a user's files into each output folder that a command has begun to use."""
        for name in set(self.names()) - self.owned:
            if not self.is_begun(name):
                continue
            self.owned.add(name)
            for one in MINE:
                path = self.out(name) / one
                with suppress(OSError):
                    path.parent.mkdir(exist_ok=True)
                    path.write_text(f"mine: {one}")

    def is_begun(self, name: str) -> bool:
        """Whether the command of a process has stored a state from which it can continue."""
        raise NotImplementedError

    def do(self, kind: str, chance: float) -> None:
        """Carry out a disturbance of this kind, and record it in the row."""
        alive = sorted(self.running)
        self.since.clear()
        name = alive[int(chance * len(alive))] if alive else ""
        part = chance * 97 % 1  # a second number
        if kind in ("kill", "terminate"):
            self.kill(name, signal.SIGKILL if kind == "kill" else signal.SIGTERM)
            if kind == "kill":
                self.start(name)
        elif kind == "stop":
            stop(self.running[name], 0.3 + 5 * part * part)
        elif kind == "disk":
            fill(self.home(name), 0.2 + 1.5 * part)
        elif kind == "clock":
            step = (-86400, -3600, -30, 45, 3600, 86400)[int(6 * part)]
            (self.folder / f"{name}.clock").write_text(str(step))
            if part < 0.5:  # else it is stepped while the process lives
                self.kill(name)
                self.start(name)
        elif kind == "old folder":
            name = self.put_back(name)
        else:
            name = self.disturb(kind, chance)
        self.row["done"].append([kind, name])

    def put_back(self, name: str) -> str:
        """Restore an earlier copy of a process's disk, and restart it; if there is none, make one.

        Returns the name of the process, with ", copied" for a new copy.
        """
        before = self.copies.pop(name, None)
        if before is None and self.copies:
            name, before = self.copies.popitem()
        if before is None:
            self.copies[name] = copy = self.folder / f"copy-{name}-{self.starts[name]}"
            stopped = self.running.get(name)
            with suppress(ProcessLookupError):
                if stopped:
                    os.kill(stopped, signal.SIGSTOP)
            shutil.copytree(self.home(name), copy, dirs_exist_ok=True)
            with suppress(ProcessLookupError):
                if stopped:
                    os.kill(stopped, signal.SIGCONT)
            return f"{name}, copied"
        self.kill(name)
        for path in self.home(name).iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(before, self.home(name), dirs_exist_ok=True)
        self.owned.discard(name)
        self.start(name)
        return name

    def go(self) -> None:
        """Start all processes, carry out the planned disturbances, and wait for the end."""
        for name in self.names():
            self.start(name)
        for pause, kind, chance in self.row["steps"]:
            self.pause(pause)
            if self.running and not self.row["refused"]:
                self.do(kind, chance)
        while self.copies and self.running and not self.row["refused"]:
            self.pause(2.0)
            if self.running:
                self.do("old folder", 0.0)
        ended = self.wait(HUNG / 5, quiet=True)
        if not ended and not self.row["refused"]:
            for name in list(self.ended):  # whoever came late hears so that the session is over
                self.start(name)
            ended = self.wait(HUNG, quiet=True)
        if not ended and not self.row["refused"]:
            self.row["hung"] = {name: last_line(self.log(name)) for name in self.running}
        self.end()

    def pause(self, length: float) -> None:
        """Wait without disturbances for about `length` seconds."""
        self.wait(length)

    def wait(self, seconds: float, *, quiet: bool = False, past: int | None = None) -> bool:
        """Wait until no process runs; return whether that was so within `seconds`.

        With `quiet` the time starts again whenever a folder changes. With `past` the wait ends
        after that round, too.
        """
        end, before, looked = time.monotonic() + seconds, 0, 0.0
        while time.monotonic() < end:
            self.look()
            if quiet and time.monotonic() > looked + 1:
                looked, state = time.monotonic(), self.state()
                end, before = (looked + seconds, state) if state != before else (end, before)
            self.plant()
            if not self.running or self.row["refused"]:
                return not self.running
            if past is not None and self.rounds() > past:
                return False
            time.sleep(0.03)
        return False

    def rounds(self) -> int:
        """Number of rounds that the server has recorded."""
        path = self.out("server") / "events.jsonl"
        return path.read_text().count('"name": "round"') if path.exists() else 0

    def state(self) -> int:
        """Number that changes when a process starts or writes into its folder."""
        times = [path.lstat().st_mtime_ns for path in self.folder.glob("disk-*/out/**/")]
        return hash((*times, *self.starts.values()))

    def end(self) -> None:
        """Kill all running processes."""
        for name in list(self.running):
            self.kill(name)

    def judge(self) -> None:
        """Add to the row whether the run completed, and its differences from a simulation."""
        row = self.row
        row["complete"] = not row["hung"] and not row["refused"] and all(
            self.ended.get(name) == 0 for name in self.names()
        )  # fmt: skip
        row["starts"] = sum(self.starts.values())
        row["files_lost"] = [
            f"{name}: {one}" for name in self.owned for one in MINE
            if not (self.out(name) / one).is_file()
        ]  # fmt: skip
        if not row["complete"]:
            return
        place, log = self.folder / "simulated.json", self.folder / "simulation.log"
        child = forked(lambda: self.compare(place), log)
        os.waitpid(child, 0)
        row |= json.loads(place.read_text()) if place.exists() else {
            "unexplained": [*row["unexplained"], log.read_text()[-2500:]]
        }  # fmt: skip

    def compare(self, place: Path) -> None:
        """Write the numbers of differences from a simulation to the file `place` as JSON."""
        from securevfl.runs.storage import read_history

        first = self.names()[0]
        rows, _ = read_history(self.out(first))
        summary = json.loads((self.out(first) / "summary.json").read_text())
        found: Row = compared(rows, self.simulate(), lossless=self.row["carrier"] != "ray")
        found["rows_differ"] += summary["train_loss"] != rows[-1]["loss"]
        place.write_text(json.dumps(found | {"rounds": len(rows), "loss": rows[-1]["loss"]}))


class OneRun(Run):
    """Run of one process: a simulation, or a Ray driver with its actors."""

    def work(self, name: str) -> Callable[[], None]:
        return functools.partial(self._run, self.out(name))

    def is_begun(self, name: str) -> bool:
        return any(path.name not in MINE for path in self.out(name).glob("**/*.svfl"))

    def _run(self, out: Path) -> None:
        import securevfl as svfl
        from securevfl.testing.entropies import kept_entropies

        for function in (svfl.run, svfl.resume):
            function.__kwdefaults__["checkpoint_seconds"] = 0.3
        words = ["resume", str(out)]
        if not self.is_begun("run"):
            parties = "4" if self.row["protocol"] == "coded_split" else "3"
            words = ["run", self.row["protocol"], "--data", "digits", "--parties", parties,
                     "--engine", self.row["carrier"], "--out", str(out)]  # fmt: skip
            if self.row["carrier"] == "simulation":
                words += ["--conditions", "none"]
            for key, value in self.options.items():
                shown = str(value).lower() if isinstance(value, bool) else str(value)
                words += ["--rounds", shown] if key == "rounds" else ["--set", f"{key}={shown}"]
        with kept_entropies() as entropies:
            try:
                command(self.loaded, *words)
            finally:
                if entropies:
                    found = {n: one.entropy.hex() for n, one in entropies.items()}
                    (self.folder / "entropies.json").write_text(json.dumps(found))

    def disturb(self, kind: str, chance: float) -> str:
        import psutil

        every = psutil.Process(self.running["run"]).children(recursive=True)
        actors = [one.pid for one in every if "ray::PartyActor" in "".join(one.cmdline()[:1])]
        if not actors:
            return "nobody"
        one = actors[int(chance * len(actors))]
        if kind == "party killed":
            os.kill(one, signal.SIGKILL)
        else:
            stop(one, 0.5 + 4 * (chance * 97 % 1))
        return "an actor"

    def simulate(self) -> list[Row]:
        import securevfl as svfl
        from securevfl.engine.streams import OwnEntropy
        from securevfl.runs.spec import DataSource
        from securevfl.runs.threads import one_thread
        from securevfl.testing.entropies import simulated_with

        parties = 4 if self.row["protocol"] == "coded_split" else 3
        kept = self.folder / "entropies.json"
        with one_thread(), ExitStack() as stack:
            if self.row["carrier"] == "ray":
                secrets = {
                    int(n): bytes.fromhex(e) for n, e in json.loads(kept.read_text()).items()
                }
                stack.enter_context(
                    simulated_with({n: OwnEntropy(n, one) for n, one in secrets.items()})
                )
            source = DataSource("digits", {"parties": parties})
            run = svfl.run(self.row["protocol"], source, conditions="none", **self.options)
        return list(run.history)


class Session(Run):
    """Session of organisations over a relay, each party in a network namespace."""

    def __init__(self, folder: Path, row: Row) -> None:
        super().__init__(folder, row)
        helpers = int(self.options.get("helpers", 0))
        self.parties = (SERVER, *range(3 + helpers))
        self.owners = (SERVER, 0, 1, 2)
        self.label = f"c{os.getpid()}"

    def names(self) -> Sequence[str]:
        return ["server" if n == SERVER else str(n) for n in self.parties]

    def network(self, name: str) -> str:
        return f"{self.label}-{name}"

    def relay_network(self) -> str:
        """Name of the relay's network namespace."""
        return f"{self.label}-relay"

    def prepare(self) -> None:
        """Write keys, tables, the manifest and the relay's folder."""
        from securevfl.engine.security.identity import Identity, Manifest, ManifestEntry
        from securevfl.runs.organisations.relay import init
        from securevfl.runs.organisations.terms import Terms

        self.write_tables()
        entries = {}
        for n, name in zip(self.parties, self.names(), strict=True):
            made = Identity.create(self.home(name) / "own.key")
            entries[n] = ManifestEntry(made.public, relay=made.relay_public)
        terms = Terms.make(
            self.row["protocol"], len(self.parties) - 1, options=self.options, days=30.0,
            data={"tables": {"label": "digit", "id_column": "id"}},
        )  # fmt: skip
        self.manifest = Manifest(
            f"chaos {self.row['number']}", self.row["protocol"], entries, terms=terms.plain()
        )
        for name in self.names():
            self.manifest.write(self.home(name) / "session.toml")
        told = init([self.home("server") / "session.toml"], self.folder / "relay", RELAY_AT, PORT,
                    RELAY_AT)  # fmt: skip
        self.address = told["relay"]

    def write_tables(self) -> None:
        """Write the parties' tables: overlapping ids, each table in its own order."""
        import numpy as np
        import pandas as pd
        from sklearn.datasets import load_digits

        from securevfl.data.alignment.psi import id_order

        digits, draw = load_digits(), np.random.default_rng(self.row["number"])
        for n, columns in enumerate(np.array_split(np.arange(64), 3)):
            rows = draw.permutation(200)[:190]
            table = pd.DataFrame(digits.data[rows][:, columns], columns=[f"x{c}" for c in columns])
            table.insert(0, "id", rows)
            table.to_csv(self.home(str(n)) / "table.csv", index=False)
        rows = draw.permutation(200)
        rows = rows[id_order([str(row) for row in rows])]  # then a simulation has the same order
        labels = pd.DataFrame({"id": rows, "digit": digits.target[rows]})
        labels.to_csv(self.home("server") / "table.csv", index=False)

    def start_relay(self) -> None:
        """Start nats-server in the relay's namespace."""
        from securevfl.runs.organisations.relay import start

        serve = functools.partial(start, self.folder / "relay")
        self.relay = forked(serve, self.folder / "relay.log", network=self.relay_network())

    def work(self, name: str) -> Callable[[], None]:
        return functools.partial(self._join, name)

    def _join(self, name: str) -> None:
        from securevfl.engine.carriers.nats import RelayAddress
        from securevfl.runs.organisations.folder import OwnFolder
        from securevfl.runs.organisations.invitation import Invitation

        home, clear = self.home(name), OwnFolder.clear
        index = SERVER if name == "server" else int(name)
        relays = (RelayAddress.parse(self.address),)
        invitation = Invitation(index, self.manifest.session, self.manifest.digest, relays)
        given = {"key": home / "own.key", "manifest": home / "session.toml", "silence": 5}
        words = ["party", "join", str(invitation), "--out", str(self.out(name))]
        words += [word for key, value in given.items() for word in (f"--{key}", str(value))]
        if index in self.owners:
            words += ["--data", str(home / "table.csv")]

        def reading(own: OwnFolder) -> None:
            entropy = own.phase_store("training").entropy()
            if entropy is not None:
                (self.folder / f"{own.index}.entropy").write_bytes(entropy)
            clear(own)

        with mock.patch.object(OwnFolder, "clear", reading):
            command(self.loaded, *words)

    def pause(self, length: float) -> None:
        self.wait(8 * length, past=self.rounds() + int(3 * length))

    def is_begun(self, name: str) -> bool:
        return (self.out(name) / "own").is_dir()

    def disturb(self, kind: str, chance: float) -> str:
        part = chance * 97 % 1
        if kind == "relay killed":
            os.kill(self.relay, signal.SIGKILL)
            os.waitpid(self.relay, 0)
            time.sleep(2 * part)
            self.start_relay()
            return "relay"
        if kind == "relay stopped":
            stop(self.relay, 0.5 + 5 * part)
            return "relay"
        n = int(chance * len(self.parties))
        link = ("-n", self.relay_network(), "link", "set", f"link{n}")
        ip(*link, "down")
        time.sleep(0.5 + 6 * part * part)
        ip(*link, "up")
        return self.names()[n]

    def go(self) -> None:
        with networks([self.network(name) for name in self.names()], self.relay_network()):
            self.prepare()
            self.start_relay()
            try:
                super().go()
            finally:
                self.end()
                os.kill(self.relay, signal.SIGKILL)
                os.waitpid(self.relay, 0)

    def simulate(self) -> list[Row]:
        import securevfl as svfl
        from securevfl.engine.streams import OwnEntropy
        from securevfl.runs.alignment import data_source
        from securevfl.runs.threads import one_thread
        from securevfl.testing.entropies import simulated_with

        entropies = {}
        for n in self.parties:
            entropies[n] = OwnEntropy(n, (self.folder / f"{n}.entropy").read_bytes())
        files = [str(self.home(str(n)) / "table.csv") for n in range(3)]
        labels = str(self.home("server") / "table.csv")
        given = {"party_files": files, "label_file": labels, "label": "digit", "id_column": "id"}
        with one_thread(), simulated_with(entropies):
            source = data_source("own", given | {"seed": 0})
            run = svfl.run(self.row["protocol"], source, conditions="none", **self.options)
        return list(run.history)


def one(number: int) -> Row:
    """Carry out a run by its number, and return its result row."""
    row: Row = plan(number) | {"done": [], "ends": [], "unexplained": [], "hung": {}, "refused": "",
                               "complete": False, "files_lost": []}  # fmt: skip
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-") as place, ExitStack() as disks:
        kind = Session if row["carrier"] == "relay" else OneRun
        run = kind(Path(place), row)
        for name in run.names():
            size = SIZE if row["carrier"] == "relay" else 4 * SIZE
            disks.enter_context(small_disk(run.home(name), size))
        run.go()
        run.judge()
    return row | {"seconds": round(time.monotonic() - began, 1)}


def with_clock() -> None:
    """Start this program again with the library that changes clocks, unless it is loaded."""
    if "CHAOS_CLOCK" in os.environ:
        return
    place = Path(tempfile.gettempdir()) / f"chaos-clock-{os.getpid()}.so"
    words = ["cc", "-O1", "-shared", "-fPIC", "-x", "c", "-", "-o", place]
    subprocess.run(words, input=CLOCK, text=True, check=True)
    os.environ |= {"LD_PRELOAD": str(place), "CHAOS_CLOCK": "/dev/null"}
    os.execv(sys.executable, [sys.executable, "-m", "benchmarks.chaos", *sys.argv[1:]])


def main() -> None:
    """Carry out the missing runs, and print the counts."""
    parser = argparse.ArgumentParser(description="Runs under chaos; one line of JSON each.")
    parser.add_argument("--out", type=Path, required=True, help="File of results, which grows.")
    parser.add_argument("--numbers", default="0:100", help="First number, and one past the last.")
    parser.add_argument("--carrier", help="Only runs over this one.")
    parser.add_argument("--tally", action="store_true", help="Only print the counts.")
    asked = parser.parse_args()
    if not asked.tally:
        with_clock()
    first, last = map(int, asked.numbers.split(":"))
    done = (
        [json.loads(line) for line in asked.out.read_text().splitlines()]
        if asked.out.exists()
        else []
    )
    numbers = [] if asked.tally else range(first, last)
    for number in numbers:
        if any(row["number"] == number for row in done):
            continue
        if asked.carrier not in (None, plan(number)["carrier"]):
            continue
        print("run", number, plan(number), flush=True)
        row = one(number)
        done.append(row)
        with asked.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print({key: value for key, value in row.items() if key != "steps"}, flush=True)
    print(json.dumps(tally(done), indent=1))


if __name__ == "__main__":
    main()
