"""Changes FedVS at random, one statement at a time, and counts what `verify` notices.

A change is kept if a run sends or draws something else than the unchanged protocol at equal
randomness, as configured or in one of several settings. Kept ones are verified with the options of
that setting (``tests=(), whole=False``). What that does not notice is, with ``--rest``, verified
with other options, then handed to the conformance suite, then to the tests of FedVS. Results go to
benchmarks/results/privacy/mutations.json as they come, and a run that was stopped goes on.
``--page`` writes the section of docs/results-verification.md.

    python benchmarks/mutations.py [--kept 200] [--seconds S] [--rest [STAGE ...]] [--page]

The changed code is a copy in a temporary folder; the package itself is not touched.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from changed_copy import ROOT, Tree, apart
from mutant_runs import (
    OPTIONS,
    baseline,
    classify,
    first_failure,
    sums_that_tell_more,
    verified,
)
from mutants import Mutant, all_mutants, in_random_order
from mutation_tables import write_page

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "privacy" / "mutations.json"
SEED, WANTED = 12, 200
CLASSIFY_S, VERIFY_S, TESTS_S = 30, 300, 60

Row = dict[str, Any]


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
    """Verdicts on claims by which a verification noticed a change; empty if it did not."""
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
        self.known: dict[str, Any] = {}
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
        """The way in which a verification of the copy notices the change, and its evidence."""
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
        self.known = self._asked(baseline)
        self.results["cases"] = list(self.known)
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

    def rest(self, seconds: float, chosen: Sequence[str], names: Sequence[str]) -> None:
        """Hand what verification did not notice to whatever comes after it, stage by stage."""
        end, every = time.perf_counter() + seconds, all_mutants(ROOT / "securevfl")
        self.sound = {}  # of the present verifiers
        if "sums" in chosen and self._sums():
            raise RuntimeError("mutations: sums of the unchanged copy tell more than they may")
        takes = {"sums": self._take_sums, "again": self._again, "options": self._other_options}
        takes |= {title: partial(self._test, title) for title in TESTS}
        for stage in chosen:
            take = takes[stage]
            if stage in TESTS:
                self.tree.add_tests()
                failed = self._failed(TESTS[stage])
                if failed:
                    raise RuntimeError(f"mutations: of the unchanged copy, {stage}: {failed}")
            for row in self.results["rows"]:
                done = _is_done(stage, row)
                done = done or stage in row.get("rest", ())
                done = done or not any(name in row["name"] for name in names)
                mutant = None if done else found_again(row, every)
                if mutant is not None and time.perf_counter() < end:
                    for name in _compared(stage, row):  # while nothing is changed
                        self.sound_verdicts(name)
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

    def _again(self, row: Row) -> None:
        """Verify with the same options: the verifiers may know more than before."""
        by, evidence = self.verify(row["case"].partition(", ")[0])
        if by:
            row["before"] = [row["noticed"], row["by"]]
            row |= {"by": by, "evidence": evidence, "noticed": f"verify, later verifiers: {by}"}

    def _other_options(self, row: Row) -> None:
        for name in OPTIONS:
            if name != row["case"].partition(", ")[0] and not row["noticed"]:
                row["by"], row["evidence"] = self.verify(name)
                row["noticed"] = f"verify, {name}" if row["by"] else ""

    def _test(self, title: str, row: Row) -> None:
        failed = self._failed(TESTS[title])
        if title == "conformance":
            row["conformance"] = failed
        if not row["noticed"]:
            row["by"], row["noticed"] = failed, title if failed else ""

    def _sums(self) -> list[str]:
        """Sums that tell more than they may, in the first case that has any."""
        for name in self.results["cases"]:
            state, told = apart(self.tree.home, sums_that_tell_more, name, limit=VERIFY_S)
            if state == "raised":
                return [f"{name}: no answer: {told}"]
            if told:
                return [f"{name}: {one}" for one in told[:3]]
        return []

    def _failed(self, arguments: tuple[str, ...]) -> str:
        """Name of the first test that fails."""
        home = self.tree.home
        return str(apart(home, first_failure, str(home), arguments, limit=TESTS_S)[1])


def _is_done(stage: str, row: Row) -> bool:
    """Whether a stage has nothing to do with a row."""
    if stage == "again":
        return judged(row)
    if stage == "conformance":  # it is counted whatever other tests notice
        return bool(row["noticed"].startswith("verify"))
    return bool(row["noticed"])


def _compared(stage: str, row: Row) -> list[str]:
    """Options under which a stage verifies the change of a row."""
    own = row["case"].partition(", ")[0]
    others = [name for name in OPTIONS if name != own]
    return {"again": [own], "options": others}.get(stage, [])


def judged(row: Row) -> bool:
    """Whether verify had a verdict on a change."""
    late = row["by"].startswith(("no verdict", "verify ended"))
    return bool(row["noticed"].startswith("verify")) and not late


def change_of(mutant: Mutant) -> tuple[str, ...]:
    """File and changed lines: they stay where other lines of the file change."""
    return (mutant.file, *mutant.diff((ROOT / "securevfl" / mutant.file).read_bytes()))


def found_again(row: Row, every: list[Mutant]) -> Mutant | None:
    """The mutant of a row, by its name or, where lines have moved since, the nearest like it."""
    for one in every:
        if one.name == row["name"]:
            return one
    change = (row["file"], *row.get("now", row["diff"]))
    same = [one for one in every if one.file == row["file"] and change_of(one) == change]
    return min(same, key=lambda one: abs(one.line - row["line"]), default=None)


TESTS = {
    "conformance": ("tests/protocols/test_conformance.py", "-k", "fedvs"),
    "tests of FedVS": ("tests/protocols/fedvs/test_sums.py", "tests/protocols/fedvs"),
    "tests of the field": ("tests/field/test_lagrange_code.py", "tests/field/test_lagrange.py",
                           "tests/field/test_prss.py", "tests/field/test_designs.py"),
}  # fmt: skip
STAGES = ("sums", "again", "options", *TESTS)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kept", type=int, default=WANTED)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument(
        "--rest",
        nargs="*",
        choices=STAGES,
        metavar="STAGE",
        help=f"stages for what was not noticed, of {STAGES}; all by default",
    )
    parser.add_argument("--names", nargs="*", default=[""], help="parts of names of changes")
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    if asked.page:
        write_page(load())
        return
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    study = Study()
    try:
        if asked.rest is not None:
            study.rest(asked.seconds, asked.rest or STAGES, asked.names)
        else:
            study.go(asked.kept, asked.seconds)
    finally:
        study.tree.remove()


if __name__ == "__main__":
    main()
