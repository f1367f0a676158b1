"""Runs and verifications of a changed copy, each made in a process that imports the copy.

Nothing of the package is imported at the top: it is another one in each process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mutants import FILES, Mutant

Row = dict[str, Any]
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


def cases() -> dict[str, tuple[dict[str, Any], Any]]:
    """Runs that are compared: the options, and the setting as `verify` has it."""
    from securevfl.audit.settings import settings_of
    from securevfl.audit.traffic.setting import ITSELF

    found: dict[str, tuple[dict[str, Any], Any]] = {}
    for name, (options, settings) in OPTIONS.items():
        found[f"{name}, as configured"] = (options, ITSELF)
        for one in settings_of(small(options)):
            if any(one.name.startswith(word) for word in settings):
                found[f"{name}, {one.name}"] = (options, one)
    return found


def small(options: Mapping[str, Any], multiple: int = 1) -> Any:
    """FedVS with small options on a small data set, of a multiple of some number of rows."""
    from securevfl.testing.runs import make

    data = small_data()
    data = data.subset(data.rows - data.rows % multiple, data.test_rows)
    return make("fedvs", data, defaults={}, **(SMALL | dict(options)))


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

    protocol = small(dict(options) | dict(setting.options), setting.multiple)
    run = Run(protocol, setting, None, None)
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
            if piece.effect == "accuses" or piece.bearing in ("gap", "channel", "failure"):
                words.setdefault(f"{one.who}, {one.about}", f"{piece.verifier}: {piece.text}"[:240])
    return {"verdicts": verdicts, "words": words}


def sums_that_tell_more(name: str) -> list[str]:
    """Pairs of announced sums whose difference tells something, in a run of one case.

    Two sums of a row with the same models but not the same clients, no step between them, and K + T
    or more uploads to each. Sums of too few clients or masks, too.
    """
    from securevfl.audit import followed_runs

    options, setting = cases()[name]
    protocol = small(dict(options) | dict(setting.options), setting.multiple)

    class Run(followed_runs._FollowedRun):
        def _compare(self, last: int | None = None) -> None:
            pass  # all messages stay held

    run = Run(protocol, setting, None, None)
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


def first_failure(home: str, arguments: tuple[str, ...]) -> str:
    """Name of the first test of the copy that fails; empty if all pass."""
    import pytest

    class Watch:
        failed = ""

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed and not self.failed:
                self.failed = report.nodeid

    os.chdir(home)
    watch = Watch()
    given = ["-q", "-x", "-n", "0", "--timeout", "300", "-p", "no:warnings", *arguments]
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        code = pytest.main(given, plugins=[watch])
    return watch.failed or ("" if code == 0 else f"pytest ends with {code}")
