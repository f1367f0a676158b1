"""Edits of the library's own source by hand, each of which leaks, and what `verify` says of them.

benchmarks/edits.toml has them: the protocol with the options under which each leaks, the claim that
it breaks, its cause, and the texts that change. Each is made in a copy of the package, and that
claim is judged as by `securevfl.verify` with ``tests=()``, of small runs and of the configuration
itself. Results go to benchmarks/results/privacy/edits.json as they come, and edits that are there
are left out. ``--tests`` runs the tests that concern the files of what was missed.

    python benchmarks/edits.py [--names PART ...] [--again] [--tests]
"""

from __future__ import annotations

import argparse
import json
import os
import time
import tomllib
from pathlib import Path
from typing import Any

from changed_copy import Tree, apart
from mutant_runs import first_failure

HERE = Path(__file__).parent
LIST, RESULTS = HERE / "edits.toml", HERE / "results" / "privacy" / "edits.json"
STRONG = ("PROVED", "HYPOTHESES HOLD", "NO VIOLATION FOUND", "CONFIRMED OPEN")
# The strongest verdict that a claim can have; no unchanged copy has a stronger one.
BEST = {
    "perfect": "PROVED",
    "computational": "HYPOTHESES HOLD",
    "differential": "NO VIOLATION FOUND",
}
LIMIT_S, TESTS_S = 240, 150
ASKED = ("protocol", "claim", "options", "data", "parties", "rows", "test_rows")
SMALL = {"rounds": 6, "batch": 15, "width": 6, "hidden": 6}

# Tests that concern a file, by the beginning of its name.
TESTS = {
    "engine/realtime/": (
        "tests/engine/realtime/test_frames.py",
        "tests/engine/realtime/test_host.py",
    ),
    "engine/security/": ("tests/engine/security/test_sealing.py",),
    "engine/simulation/": ("tests/engine/simulation/test_simulator.py",),
    "engine/streams": ("tests/engine/test_streams.py", "tests/protocols/test_own_entropy.py"),
    "engine/wire": ("tests/engine/test_wire.py",),
    "field/encoding": ("tests/field/test_encoding.py", "tests/field/test_lagrange_code.py"),
    "field/prss": ("tests/field/test_prss.py", "tests/protocols/base/test_mask_keys.py"),
    "field/sampling": ("tests/field/test_sampling.py",),
    "models/homomorphic": ("tests/models/test_homomorphic.py", "tests/protocols/test_he_split.py"),
    "privacy/": ("tests/privacy", "tests/protocols/test_wait_dp.py"),
    "protocols/coded_split/": ("tests/protocols/coded_split",),
    "protocols/fedvs/": (
        "tests/protocols/fedvs/test_algorithm.py",
        "tests/protocols/fedvs/test_sums.py",
    ),
    "protocols/secagg_split/": ("tests/protocols/test_secagg_split.py",),
    "protocols/wait_dp/": ("tests/protocols/test_wait_dp.py",),
    "runs/organisations/": ("tests/runs/organisations",),
}

Edit = dict[str, Any]


def load_edits() -> list[Edit]:
    """All edits, with what they have in common filled in."""
    common = {"options": {}, "data": "breast-cancer", "parties": 6, "rows": 101, "test_rows": 41}
    edits: list[Edit] = tomllib.loads(LIST.read_text())["edit"]
    return [common | one | {"options": SMALL | one.get("options", {})} for one in edits]


def apply(tree: Tree, edit: Edit) -> None:
    """Make the changes in the copy; each old text stands in its file once."""
    for change in edit["change"]:
        path = tree.home / "securevfl" / change["file"]
        text = path.read_text()
        if text.count(change["old"]) != 1:
            raise ValueError(f"edits: {edit['name']}: {change['old']!r} is not once in {path.name}")
        path.write_text(text.replace(change["old"], change["new"]))


def verdict(edit: Edit) -> dict[str, Any]:
    """Verdict on the claim, and the evidence that is no support; of the package in this process."""
    from securevfl.audit.following.given import Given
    from securevfl.audit.subject import Subject
    from securevfl.audit.verifiers.registry import VERIFIERS
    from securevfl.audit.verify import judge
    from securevfl.data import load_dataset
    from securevfl.privacy.claims import link_claims
    from securevfl.protocols.base.registry import get_protocol, make_config

    cls = get_protocol(edit["protocol"])
    data = load_dataset(edit["data"], parties=edit["parties"])
    data = data.subset(edit["rows"] or data.rows, edit["test_rows"])
    config = make_config(cls, {k: v for k, v in edit["options"].items()
                               if k in cls.Config.model_fields})  # fmt: skip
    given = Given.of(config, data, 0)
    made = cls(config, data, seed=0)
    subject = Subject(made, seed=0, tests=(), whole=True, given=given)
    claims = {f"{one.who}, {one.about}": one for one in (*made.claims, *link_claims(True))}
    found = judge(claims[edit["claim"]], subject, tuple(VERIFIERS.all().values()))
    against = [f"{e.verifier}: {e.text}"[:400] for e in found.evidence
               if e.effect == "accuses" or e.bearing in _AGAINST]  # fmt: skip
    claim = found.claim
    best = BEST[claim.strength] if claim.against.role != "outsider" else BEST["differential"]
    return {"verdict": str(found.verdict), "against": against[:3], "best": best}


_AGAINST = ("gap", "channel", "failure")


def judged(now: str, sound: str) -> str:
    """Word for a verdict: accused, withheld if it is weaker than the sound one, or MISSED."""
    if now == "VIOLATED":
        return "accused"
    as_strong = now in STRONG and STRONG.index(now) <= STRONG.index(sound)
    return "MISSED" if as_strong else "withheld"


def found_of(edit: Edit, changed: bool) -> dict[str, Any]:
    """Verdict of the verifiers on a copy, with the edit or without."""
    tree = Tree()
    try:
        if changed:
            apply(tree, edit)
        state, found = apart(tree.home, verdict, edit, limit=LIMIT_S)
    finally:
        tree.remove()
    return found if state == "done" else {"verdict": "error", "against": [found]}


def take(edit: Edit, known: dict[str, str]) -> dict[str, Any]:
    """Verify with the edit and, once for all edits with these options and claim, without."""
    key = json.dumps([edit[name] for name in ASKED], sort_keys=True)
    row = found_of(edit, changed=True)
    best = row.pop("best", "")
    if key not in known and row["verdict"] not in ("VIOLATED", best, "error"):
        known[key] = found_of(edit, changed=False)["verdict"]
        if known[key] == "error":  # it refuses these options: only a changed one takes them
            known[key] = best
    sound = known.get(key, best if row["verdict"] == best else "")
    noticed = "no verdict" if row["verdict"] == "error" else judged(row["verdict"], sound)
    return {"noticed": noticed, "sound": sound, **row}


def failed(edit: Edit) -> str:
    """The first test that fails, of those that concern the files."""
    files = [change["file"] for change in edit["change"]]
    found = [
        one
        for name, tests in TESTS.items()
        for one in tests
        if any(file.startswith(name) for file in files)
    ]
    if not found:
        return "none is listed"
    tree = Tree()
    try:
        tree.add_tests()
        apply(tree, edit)
        asked = (str(tree.home), tuple(found))
        said = apart(tree.home, first_failure, *asked, limit=TESTS_S)[1]
    finally:
        tree.remove()
    return str(said) or "none fails"


def store(stored: dict[str, Any], name: str, row: dict[str, Any]) -> None:
    """Write the result of an edit; another process may have written others."""
    if RESULTS.exists():
        now = json.loads(RESULTS.read_text())
        stored["edits"], stored["sound"] = now["edits"], now["sound"] | stored["sound"]
    stored["edits"][name] = row
    RESULTS.write_text(json.dumps(stored, indent=1) + "\n")


def main() -> None:
    """Take all edits that have no result, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", nargs="*", default=[""], help="parts of names of edits")
    parser.add_argument("--again", action="store_true", help="also edits that have a result")
    parser.add_argument("--tests", action="store_true", help="run tests on what was missed")
    parser.add_argument("--missed", action="store_true", help="verify what was missed once more")
    asked = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"sound": {}, "edits": {}}
    for edit in load_edits():
        named = any(part in edit["name"] for part in asked.names)
        row = stored["edits"].get(edit["name"], {})
        if asked.tests and named and row.get("noticed") == "MISSED" and "test" not in row:
            row["test"] = failed(edit)
            store(stored, edit["name"], row)
            print(f"{edit['name']}: {row['test']}", flush=True)
        if asked.missed and named and row.get("noticed") == "MISSED" and "later" not in row:
            row["later"] = found_of(edit, changed=True) | {"by": "later verifiers"}
            store(stored, edit["name"], row)
            print(f"{edit['name']}: {row['later']}", flush=True)
        if (
            asked.tests
            or asked.missed
            or not named
            or (edit["name"] in stored["edits"] and not asked.again)
        ):
            continue
        begin = time.perf_counter()
        try:
            row = take(edit, stored["sound"])
        except ValueError as error:  # the library's text has changed since it was written down
            print(f"not taken: {error}", flush=True)
            continue
        store(stored, edit["name"], row | {"claim": edit["claim"], "cause": edit["cause"]})
        seconds = time.perf_counter() - begin
        print(f"{seconds:4.0f} s  {edit['name']}: {row['noticed']} ({row['sound']}, now "
              f"{row['verdict']}) {row['against'][:1]}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
