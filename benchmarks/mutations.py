"""Changes FedVS at random, one statement at a time, and counts what `verify` notices.

A change is kept if a run sends or draws something else than the unchanged protocol at equal
randomness, as configured or in one of several settings. Kept ones are verified with the options of
that setting (``tests=(), whole=False``). What that does not notice is, with ``--rest``, verified
with other options, then handed to the conformance suite, then to the tests of FedVS. Results go to
benchmarks/results/privacy/mutations.json as they come, and a run that was stopped goes on.
``--page`` writes the section of docs/verification.md.

    python benchmarks/mutations.py [--kept 200] [--seconds S] [--rest] [--page]

The changed code is a copy in a temporary folder; the package itself is not touched.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mutants import FILES, Mutant, all_mutants, in_random_order
from mutation_tables import write_page

HERE = Path(__file__).parent
ROOT = HERE.parent
RESULTS = HERE / "results" / "privacy" / "mutations.json"
SEED, WANTED = 12, 200
SMALL = {"rounds": 6, "batch": 15, "width": 6, "hidden": 6}
TIMED = {"share_timeout": 3.0, "result_timeout": 3.0, "max_attempts": 50}
# Options of the runs, and for which of them the settings of a verification are run as well.
OPTIONS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "K = 2": ({"segments": 2}, ("",)),
    "secure": ({"segments": 2, "secure": True}, ("resumed", "clients late")),
    "timeouts": (
        {"segments": 2, **TIMED},
        ("clients late", "attempts given up", "clients crash"),
    ),
    "T = 2": ({"segments": 1, "privacy": 2}, ("clients late",)),
}
# What all processes import; nothing of the package, which is another one in each.
PRELOADED = (
    *(
        "torch",
        "torch._dynamo",
        "numba",
        "scipy.stats",
        "scipy.linalg",
        "pandas",
        "sklearn.datasets",
    ),
    *("sympy", "galois", "pydantic", "yaml", "rich", "flint", "joblib", "cryptography.fernet"),
    *("cryptography.hazmat.primitives.ciphers", "sklearn.preprocessing", "sklearn.metrics"),
)
CLASSIFY_S, VERIFY_S, TESTS_S = 30, 120, 600
_WAITS = 6  # times the seconds of the processor that a process may last

Row = dict[str, Any]


class Tree:
    """A copy of the package in a temporary folder, changed by one mutant at a time."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="mutations-"))
        leave = shutil.ignore_patterns("*.json.gz")
        shutil.copytree(ROOT / "securevfl", self.home / "securevfl", ignore=leave)
        self._tick = 10**9  # compiled files are known by times, which must not repeat

    def put(self, mutant: Mutant | None, source: bytes, file: str = "") -> None:
        """Write the changed file; or the one as it was."""
        path = self.home / "securevfl" / (mutant.file if mutant else file)
        path.write_bytes(mutant.apply(source) if mutant else source)
        self._tick += 10
        os.utime(path, (self._tick, self._tick))

    def add_tests(self) -> None:
        """The tests, and what they read."""
        if not (self.home / "tests").exists():
            shutil.copytree(ROOT / "tests", self.home / "tests")
            for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md"):
                shutil.copy(ROOT / name, self.home / name)
            for name in ("docs", "benchmarks", "examples"):
                (self.home / name).symlink_to(ROOT / name)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.home, ignore_errors=True)


# -- in processes of their own, which import the changed copy ------------------------------------


def cases() -> dict[str, tuple[dict[str, Any], Any]]:
    """Runs that are compared: the options, and the setting as `verify` has it."""
    from securevfl.audit.followed_runs import ITSELF
    from securevfl.audit.settings import settings_of

    found: dict[str, tuple[dict[str, Any], Any]] = {}
    for name, (options, settings) in OPTIONS.items():
        found[f"{name}, as configured"] = (options, ITSELF)
        for one in settings_of(small(options)):
            if any(one.name.startswith(word) for word in settings):
                found[f"{name}, {one.name}"] = (options, one)
    return found


def small(options: Mapping[str, Any]) -> Any:
    """FedVS with small options on a small data set."""
    from securevfl.testing.runs import make

    return make("fedvs", small_data(), defaults={}, **(SMALL | dict(options)))


def small_data() -> Any:
    """Digits, 101 + 41 rows, 8 parties."""
    from securevfl.data import load_dataset

    return load_dataset("digits", parties=8).subset(101, 41)


def run_of(options: Mapping[str, Any], setting: Any) -> tuple[list[str], list[str], str]:
    """Messages with digests and times, draws, and how the run ended; at equal randomness."""
    from securevfl.audit import followed_runs
    from securevfl.field import sampling

    draws: list[str] = []

    def keystream(self: Any) -> Any:
        draws.append(f"draw {len(draws)}")
        key = hashlib.sha256(f"key {len(draws)}".encode()).digest()
        return sampling.Keystream(key, True)

    sampling.SystemSource.keystream = keystream  # type: ignore[method-assign]
    messages: list[str] = []

    class Run(followed_runs._FollowedRun):
        def _take(self, message: Any) -> None:
            digest = hashlib.sha256(message.content).hexdigest()[:16]
            kind, round, sender, receiver = message.key
            messages.append(f"{kind} {round} {sender} {receiver} {digest}")
            if round > self.newest:
                self.newest = round

    protocol = small(dict(options) | dict(setting.options))
    run = Run(protocol, setting, None)
    try:
        ended = run.make()
    except Exception as error:  # whatever a changed protocol raises
        ended = f"{type(error).__name__}: {error}"
    times = ["times " + " ".join(map(str, one)) for one in
             followed_runs._envelopes(run.simulation.transcript)]  # fmt: skip
    return messages + times, draws, ended


def baseline() -> dict[str, Any]:
    """The unchanged runs, and the lines of the files that are changed that each comes to."""
    import securevfl

    package, found = Path(securevfl.__file__).parent, dict[str, Any]()
    names = {str(package / file): file for file in FILES}
    lines: dict[str, set[int]] = {}

    def follow(frame: Any, event: str, _: Any) -> Any:
        file = names.get(frame.f_code.co_filename)
        if file is None:
            return None
        lines[file].add(frame.f_lineno)
        return follow

    for name, case in cases().items():
        lines = {file: set() for file in FILES}
        sys.settrace(follow)
        found[name] = run_of(*case)
        sys.settrace(None)
        found[name] = (*found[name], lines)
    return found


def classify(known: Mapping[str, Any], mutant: Mutant) -> Row:
    """The first case in which a run of the changed copy differs from the unchanged one."""
    first, last = mutant.span
    met = False
    for name, case in cases().items():
        before, drawn, end, lines = known[name]
        met = met or any(first <= line <= last for line in lines[mutant.file])
        if not met:  # the changed line has not been come to
            continue
        messages, draws, ended = run_of(*case)
        if (messages, draws, ended) == (before, drawn, end):
            continue
        found = {"case": name, "ended": ended[:200] if ended != end else ""}
        sent = [one for one in messages if not one.startswith("times ")]
        was = [one for one in before if not one.startswith("times ")]
        if ended != end and sent == was[: len(sent)] and draws == drawn[: len(draws)]:
            return found | {"state": "error"}
        kinds = sorted({one.split()[0] for one in set(messages) ^ set(before)})
        kinds += ["order"] * (not kinds and messages != before)
        return found | {"state": "kept", "differs": kinds + ["draws"] * (draws != drawn)}
    return {"state": "equivalent"}


def verified(options: Mapping[str, Any]) -> dict[str, Any]:
    """Verdicts of all claims, and what decides them."""
    import securevfl

    given = SMALL | dict(options)
    report = securevfl.verify("fedvs", small_data(), tests=(), whole=False, **given)
    verdicts = {f"{one.who}, {one.about}": str(one.verdict) for one in report.claims}
    words = {}
    for one in report.claims:
        for piece in one.evidence:
            if piece.effect == "accuses" or piece.bearing in ("gap", "failure"):
                words.setdefault(f"{one.who}, {one.about}", f"{piece.verifier}: {piece.text}"[:240])
    return {"verdicts": verdicts, "words": words}


def sums_that_tell_more(name: str) -> list[str]:
    """Pairs of announced sums whose difference tells something, in a run of one case.

    Two sums of a row with the same models but not the same clients, no step between them, and K + T
    or more uploads to each. Sums of too few clients or masks, too.
    """
    from securevfl.audit import followed_runs

    options, setting = cases()[name]
    protocol = small(dict(options) | dict(setting.options))

    class Run(followed_runs._FollowedRun):
        def _compare(self, last: int | None = None) -> None:
            pass  # all messages stay held

    run = Run(protocol, setting, None)
    with contextlib.suppress(Exception):  # what was sent before the end is looked at
        run.make()
    batches, attempts, steps = dict[int, Any](), dict[int, Any](), set[int]()
    uploads: dict[int, set[int]] = {}
    for message in run._pending:
        kind, round, sender, _ = message.key
        if kind == "round" and hasattr(message.payload, "rows"):
            batches[round] = message.payload
        elif kind == "attempt":
            attempts[round] = message.payload
        elif kind == "gradient" and message.payload.any():
            steps.add(round)
        elif kind == "embedding":
            uploads.setdefault(round, set()).add(sender)
    enough = protocol.public.code.segments + protocol.public.code.privacy
    told = sorted(r for r in attempts if len(uploads.get(r, ())) >= enough and r in batches)
    models = {n: set(one.sharers) for n, one in attempts.items()}
    found = []
    for i, one in enumerate(told):
        S, T = attempts[one].sharers, protocol.public.code.privacy
        if len(set(S)) < T + 2:  # not by the code that may be changed
            found.append(f"round {one}: T = {T}, sharers {S}")
        for other in told[i + 1 :]:
            moved = any(one <= step < other for step in steps)
            same = models[one] == models[other]
            rows = set(batches[one].rows.tolist()) & set(batches[other].rows.tolist())
            if not moved and not same and rows and batches[one].part == batches[other].part:
                found.append(f"rounds {one} and {other}: sharers {attempts[one].sharers} and "
                             f"{attempts[other].sharers}")  # fmt: skip
    return found


def _child(home: str, function: Callable[..., Any], arguments: tuple[Any, ...],
           answer: Connection, limit: int) -> None:  # fmt: skip
    sys.path.insert(0, home)

    def over(number: int, frame: Any) -> None:
        answer.send(("raised", f"no end within {limit} s"))
        os._exit(1)

    signal.signal(signal.SIGXCPU, over)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    try:
        import securevfl

        assert securevfl.__file__.startswith(home)
        answer.send(("done", function(*arguments)))
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        answer.send(("raised", f"{type(error).__name__}: {error} ({last.name})"[:300]))


def apart(home: Path, function: Callable[..., Any], *arguments: Any, limit: float) -> Any:
    """What a function returns in a process that imports the copy; ("raised", why) if nothing.

    The limit is in seconds of the processor; a process that waits is ended later.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    ours, theirs = context.Pipe(duplex=False)
    given = (str(home), function, arguments, theirs, int(limit))
    process = context.Process(target=_child, args=given)
    process.start()
    theirs.close()
    try:
        found = (
            ours.recv() if ours.poll(_WAITS * limit) else ("raised", f"no end within {limit:g} s")
        )
    except EOFError:
        found = ("raised", "the process ended")
    process.kill()
    process.join()
    return found


# -- the run --------------------------------------------------------------------------------------


def load() -> dict[str, Any]:
    """Results so far."""
    if RESULTS.exists():
        found: dict[str, Any] = json.loads(RESULTS.read_text())
        return found
    return {"seed": SEED, "data": "digits, 101 rows, 8 parties", "rows": [], "dropped": {}}


def store(results: Mapping[str, Any]) -> None:
    """Write the results."""
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def noticed_in(found: tuple[str, Any], sound: Mapping[str, str]) -> str:
    """How a verification noticed a change: by which verdicts on claims; empty if it did not."""
    state, report = found
    if state == "raised":
        late = report.startswith("no end")
        return f"no verdict within {VERIFY_S} s" if late else "verify ended in an error"
    verdicts = report["verdicts"]
    lost = [verdicts.get(claim) for claim, was in sound.items()
            if was == "PROVED" and verdicts.get(claim) != "PROVED"]  # fmt: skip
    if "VIOLATED" in lost:
        return "accused"
    if lost:
        return "could not be checked" if "COULD NOT BE CHECKED" in lost else "withheld"
    worse = [claim for claim, was in sound.items() if verdicts.get(claim) != was]
    return f"another claim ({worse[0]}: {verdicts.get(worse[0])})" if worse else ""


def evidence_of(found: tuple[str, Any]) -> str:
    """The first evidence against a claim."""
    state, report = found
    return str(report) if state == "raised" else next(iter(report["words"].values()), "")


class Study:
    """The mutation run: what is known of the unchanged copy, and the results."""

    def __init__(self) -> None:
        self.tree, self.results = Tree(), load()
        self.known = self._asked(baseline)
        self.results["cases"] = list(self.known)
        self.sound: dict[str, dict[str, str]] = self.results.setdefault("sound", {})

    def _asked(self, function: Callable[..., Any], *arguments: Any) -> Any:
        state, found = apart(self.tree.home, function, *arguments, limit=600)
        if state == "raised":
            raise RuntimeError(f"mutations: the unchanged copy ends in {found}")
        return found

    def sound_verdicts(self, name: str) -> None:
        """Have the unchanged protocol verified with the options, if that has not been done."""
        if name not in self.sound:
            self.sound[name] = self._asked(verified, OPTIONS[name][0])["verdicts"]

    def verify(self, name: str) -> tuple[str, str]:
        """How a verification of the changed copy notices the change, and by what evidence."""
        found = apart(self.tree.home, verified, OPTIONS[name][0], limit=VERIFY_S)
        return noticed_in(found, self.sound[name]), evidence_of(found)

    def take(self, mutant: Mutant) -> str:
        """Classify a mutant, and verify it if it is kept; the state of it."""
        source = (ROOT / "securevfl" / mutant.file).read_bytes()
        if not mutant.is_python(source):
            return "no Python"
        if not self._is_met(mutant):
            return "equivalent"
        self.tree.put(mutant, source)
        try:
            state, found = apart(self.tree.home, classify, self.known, mutant,
                                 limit=CLASSIFY_S)  # fmt: skip
            if state == "raised" or (found["state"] == "error" and self._at_once(found["case"])):
                return "error"
            if found["state"] == "equivalent":
                return "equivalent"
            begin, name = time.perf_counter(), found["case"].partition(", ")[0]
            row = {"name": mutant.name, "file": mutant.file, "line": mutant.line,
                   "diff": mutant.diff(source), **found}  # fmt: skip
            row["by"], row["evidence"] = self.verify(name)
            row["noticed"] = "verify" if row["by"] else ""
            row["seconds"] = round(time.perf_counter() - begin, 1)
            self.results["rows"].append(row)
            return f"kept, {row['by'] or 'NOT NOTICED'}"
        finally:
            self.tree.put(None, source, mutant.file)

    def _is_met(self, mutant: Mutant) -> bool:
        """Whether a run comes to the statement."""
        first, last = mutant.span
        met = set().union(*(lines[mutant.file] for *_, lines in self.known.values()))
        return any(first <= line <= last for line in met)

    @staticmethod
    def _at_once(case: str) -> bool:
        return case == next(iter(OPTIONS)) + ", as configured"

    def go(self, wanted: int, seconds: float) -> None:
        """Take one mutant after the other, until so many are kept."""
        end = time.perf_counter() + seconds
        for name in OPTIONS:
            self.sound_verdicts(name)
        done = {row["name"] for row in self.results["rows"]} | set(self.results["dropped"])
        changes = {(row["file"], *row["diff"]) for row in self.results["rows"]}
        every = all_mutants(ROOT / "securevfl")
        self.results["all"] = len(every)
        for mutant in in_random_order(every, SEED):
            if len(self.results["rows"]) >= wanted or time.perf_counter() > end:
                break
            if mutant.name in done or change_of(mutant) in changes:
                continue
            begin = time.perf_counter()
            state = self.take(mutant)
            if not state.startswith("kept"):
                self.results["dropped"][mutant.name] = state
            store(self.results)
            print(f"{time.perf_counter() - begin:5.1f} s  {mutant.name}  {state}", flush=True)

    def rest(self, seconds: float) -> None:
        """Hand what verification did not notice to whatever comes after it, stage by stage."""
        end, every = time.perf_counter() + seconds, all_mutants(ROOT / "securevfl")
        if self._sums():
            raise RuntimeError("mutations: sums of the unchanged copy tell more than they may")
        stages = {"sums": self._take_sums, "options": self._other_options}
        stages |= {title: partial(self._test, title) for title in TESTS}
        for stage, take in stages.items():
            if stage in TESTS and time.perf_counter() < end:
                self.tree.add_tests()
                failed = self._failed(TESTS[stage])
                if failed:
                    raise RuntimeError(f"mutations: of the unchanged copy, {stage}: {failed}")
            for row in self.results["rows"]:
                done = row["noticed"] or stage in row.get("rest", ())
                mutant = None if done else found_again(row, every)
                if mutant is not None and time.perf_counter() < end:
                    self._at(mutant, take, row)
                    row["rest"] = [*row.get("rest", ()), stage]
                    store(self.results)
                    print(f"{stage}: {row['name']}  {row['noticed']}  {row['by']}", flush=True)

    def _at(self, mutant: Mutant, take: Callable[[Row], None], row: Row) -> None:
        """Do something with the changed copy."""
        source = (ROOT / "securevfl" / mutant.file).read_bytes()
        self.tree.put(mutant, source)
        try:
            take(row)
        finally:
            self.tree.put(None, source, mutant.file)

    def _take_sums(self, row: Row) -> None:
        row["sums"] = self._sums()

    def _other_options(self, row: Row) -> None:
        for name in OPTIONS:
            if name != row["case"].partition(", ")[0] and not row["noticed"]:
                row["by"], row["evidence"] = self.verify(name)
                row["noticed"] = f"verify, {name}" if row["by"] else ""

    def _test(self, title: str, row: Row) -> None:
        row["by"] = self._failed(TESTS[title])
        row["noticed"] = title if row["by"] else ""

    def _sums(self) -> list[str]:
        """Sums that tell more than they may, in the first case that has any."""
        for name in self.known:
            state, told = apart(self.tree.home, sums_that_tell_more, name, limit=VERIFY_S)
            if state == "done" and told:
                return [f"{name}: {one}" for one in told[:3]]
        return []

    def _failed(self, arguments: tuple[str, ...]) -> str:
        """Name of the first test that fails."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "--timeout", "300",
                   *arguments]  # fmt: skip
        environment = os.environ | {"PYTHONPATH": str(self.tree.home)}
        try:
            done = subprocess.run(command, cwd=self.tree.home, env=environment, text=True,
                                  capture_output=True, timeout=TESTS_S)  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"no end within {TESTS_S} s"
        lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return "" if done.returncode == 0 else (lines or ["the tests do not run"])[0][:200]


def change_of(mutant: Mutant) -> tuple[str, ...]:
    """File and changed lines: they stay where other lines of the file change."""
    return (mutant.file, *mutant.diff((ROOT / "securevfl" / mutant.file).read_bytes()))


def found_again(row: Row, every: list[Mutant]) -> Mutant | None:
    """The mutant of a row, by its name or, where lines have moved since, its change."""
    for one in every:
        if one.name == row["name"]:
            return one
    return next((one for one in every if one.file == row["file"]
                 and change_of(one) == (row["file"], *row["diff"])), None)  # fmt: skip


TESTS = {
    "conformance": ("tests/protocols/test_conformance.py", "-k", "fedvs"),
    "tests of FedVS": ("tests/protocols/fedvs", "tests/field/test_lagrange_code.py",
                       "tests/field/test_prss.py"),
}  # fmt: skip


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kept", type=int, default=WANTED)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--rest", action="store_true")
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    if asked.page:
        write_page(load())
        return
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    study = Study()
    try:
        if asked.rest:
            study.rest(asked.seconds)
        else:
            study.go(asked.kept, asked.seconds)
    finally:
        study.tree.remove()


if __name__ == "__main__":
    main()
