"""Runs `verify` over the zoo of leaks: what is caught, missed and wrongly blamed.

Without arguments all leaks and variants, in full. ``--quick`` leaves out the statistical games and
the run of the whole configuration, which can only accuse more; ``--missed`` takes up again, in
full, what was verified so and not caught; ``--older`` takes up again what was verified by earlier
verifiers, ``--again`` all. Words of names are taken in their order. Results go to
benchmarks/results/privacy/zoo.json as they come, and a run that was stopped goes on. ``--page``
writes the table into docs/results-verification.md.

    python benchmarks/zoo.py [--quick] [--older] [--again] [--missed] [--page] [--seconds S] [words]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import securevfl
from securevfl.audit.verdicts import NOT_READ, Evidence
from securevfl.testing.leaks import ENDORSED, Leak, Variant, all_leaks, sound_variants

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "privacy" / "zoo.json"
PAGE = HERE.parent / "docs" / "results-verification.md"
BEGIN, END = "<!-- zoo: begin -->", "<!-- zoo: end -->"

UNREAD = f"{NOT_READ}: nothing else was found"

Verdicts = dict[tuple[str, str], str]


def verdicts(
    protocol: Any, options: Any, data: str, *, quick: bool
) -> tuple[Verdicts, dict[str, str], float]:
    """Verdict and first evidence of each claim, and the seconds that it took.

    A verdict that is weaker for no other reason than that nobody has read the code is `UNREAD`.
    """
    begin = time.perf_counter()
    given = dict(options) | {"data": data} | ({"tests": (), "whole": False} if quick else {})
    try:
        report = securevfl.verify(protocol, **given)
    except Exception as error:  # a verifier must not end so; it is written down as it is
        why = f"{type(error).__name__}: {error}"
        return {}, {"exception": why[:300]}, time.perf_counter() - begin
    told = {(one.who, one.about): telling(one) for one in report.claims if one.evidence}
    found = {(one.who, one.about): str(one.verdict) for one in report.claims}
    found |= {claim: UNREAD for claim, one in told.items()
              if found[claim] == NOT_READ and one.bearing == "unread"}  # fmt: skip
    words = {", ".join(claim): str(one.text)[:300] for claim, one in told.items()}
    return found, words, time.perf_counter() - begin


def verifier() -> str:
    """Digest of the verifiers' code, by which rows of earlier ones are known."""
    code, folder = hashlib.sha256(), Path(securevfl.__file__).parent / "audit"
    for path in sorted(folder.rglob("*.py")):
        code.update(path.read_bytes())
    return code.hexdigest()[:10]


def by_verifier(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Lines that say which rows are of which verifiers."""
    lines, present = [], verifier()
    found = Counter(row.get("verifier", "") for row in rows.values())
    for one, count in sorted(found.items(), key=lambda each: each[0] != present):
        some = Counter(r["protocol"] for r in rows.values() if r.get("verifier", "") == one)
        which = ", ".join(f"{number} {name}" for name, number in sorted(some.items()))
        name = "the present verifiers" if one == present else "earlier verifiers"
        digest = f" (code {one})" if one else " (no code noted)"
        lines.append(f"- {count} of {len(rows)} rows are of {name}{digest}: {which}")
    return lines


def telling(claim: Any) -> Evidence:
    """The evidence that decides a verdict: against the claim, or an error, or a gap."""
    order = {"failure": 1, "channel": 2, "gap": 3, "unread": 4}
    return min(
        claim.evidence, key=lambda one: 0 if one.effect == "accuses" else order.get(one.bearing, 5)
    )


def outcome_of(leak: Leak, found: Verdicts, sound: Verdicts) -> str:
    """Outcome of a leak: accused, withheld, unread, indistinct, missed, or an exception.

    "accused" where a broken claim is VIOLATED; "missed" where one is endorsed, or has a word that
    is not expected of it; else "withheld" where something was found and the sound protocol's
    verdict is another, "unread" where a sound class of others would have the same verdict, and
    "indistinct" where the sound protocol has the same weak word. "elsewhere" is one of the
    last two or "missed" where another claim is VIOLATED.
    """
    if not found:
        return "exception"
    broken = {claim: found[claim] for claim in leak.breaks if claim in found}
    blamed = [word for word in found.values() if word == "VIOLATED"]
    if "VIOLATED" in broken.values():
        return "accused"
    plain = [word.partition(":")[0] for word in broken.values()]
    wrong = [word for word in plain if word in ENDORSED or word not in leak.expected]
    if wrong:
        return "elsewhere" if blamed else "missed"
    other = {word for claim, word in broken.items() if sound.get(claim) != word}
    if other:
        return "unread" if other == {UNREAD} else "withheld"
    return "elsewhere" if blamed else "indistinct"


def blame_of(found: Verdicts, sound: Verdicts) -> str:
    """Outcome of a sound variant: as sound, weaker, blamed, or an exception."""
    if not found:
        return "exception"
    if "VIOLATED" in found.values():
        return "blamed"
    tested = {*ENDORSED, "NO VIOLATION FOUND"}
    for claim, word in found.items():
        for strong in (ENDORSED, tested):
            if sound.get(claim) in strong and word not in strong:
                return "weaker"
    return "as sound"


def examine(one: Leak | Variant, sound: dict[str, Verdicts], *, quick: bool) -> dict[str, Any]:
    """Row of results."""
    around = one.around if isinstance(one, Leak) else nullcontext
    with around():
        found, words, seconds = verdicts(one.make(), one.options, one.data, quick=quick)
    key = f"{one.protocol} {one.data} {sorted(one.options.items())}"
    if key not in sound:
        sound[key] = verdicts(one.sound, one.options, one.data, quick=quick)[0]
    row: dict[str, Any] = {
        "name": one.name,
        "protocol": one.protocol,
        "seconds": round(seconds, 1),
        "quick": quick,
        "verifier": verifier(),
        "verdicts": {", ".join(claim): word for claim, word in found.items()},
        "evidence": words,
    }
    if isinstance(one, Leak):
        row |= {"cause": one.cause, "outcome": outcome_of(one, found, sound[key])}
        row["breaks"] = {", ".join(claim): found.get(claim, "") for claim in one.breaks}
        row["sound"] = {", ".join(claim): sound[key].get(claim, "") for claim in one.breaks}
    else:
        row["outcome"] = blame_of(found, sound[key])
    return row


def load() -> dict[str, dict[str, Any]]:
    """Rows by name."""
    if not RESULTS.exists():
        return {}
    return {row["name"]: row for row in json.loads(RESULTS.read_text())["rows"]}


def store(rows: dict[str, dict[str, Any]]) -> None:
    """Write all rows."""
    names = {one.name for one in (*all_leaks(), *sound_variants())}
    rows = {name: row for name, row in rows.items() if name in names}
    RESULTS.write_text(json.dumps({"rows": list(rows.values())}, indent=1) + "\n")


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Markdown: counts by protocol and cause, what was missed, and the variants."""
    leaks = [row for row in rows.values() if "cause" in row]
    columns = ("accused", "withheld", "unread", "elsewhere", "indistinct", "missed", "exception")
    lines = ["| protocol | cause | leaks | " + " | ".join(columns) + " | seconds each |",
             "|---|---|" + "---|" * (len(columns) + 2)]  # fmt: skip
    for protocol, cause in dict.fromkeys((row["protocol"], row["cause"]) for row in leaks):
        some = [row for row in leaks if (row["protocol"], row["cause"]) == (protocol, cause)]
        counts = [sum(row["outcome"] == name for row in some) for name in columns]
        mean = sum(row["seconds"] for row in some) / len(some)
        words = " | ".join(str(count or "") for count in (len(some), *counts))
        lines.append(f"| {protocol} | {cause} | {words} | {mean:.0f} |")
    totals = [sum(row["outcome"] == name for row in leaks) for name in columns]
    lines.append(f"| all | | {len(leaks)} | " + " | ".join(map(str, totals)) + " | |")
    bad = [row for row in leaks if row["outcome"] not in ("accused", "withheld", "unread")]
    unread = sum(row["outcome"] == "unread" for row in leaks)
    said = f"{unread} are unread: not endorsed, but not told from sound code of others, either"
    lines += ["", f"Neither caught nor unread ({said}):", ""]
    lines += [f"- {row['name']} ({row['cause']}): {row['outcome']}" for row in bad] or ["- none"]
    variants = [row for row in rows.values() if "cause" not in row]
    wrong = [row for row in variants if row["outcome"] != "as sound"]
    lines += ["", f"Of {len(variants)} sound variants {len(variants) - len(wrong)} have the "
              "verdicts of the sound protocol. The others:", ""]  # fmt: skip
    lines += [f"- {row['name']}: {row['outcome']}" for row in wrong] or ["- none"]
    every = len(all_leaks()), len(sound_variants())
    if (len(leaks), len(variants)) != every:
        some = f"{len(leaks)} of {every[0]} leaks and {len(variants)} of {every[1]} variants"
        lines += ["", f"These are {some}: the others were not run with the present verifiers."]
    quick = sum(row["quick"] for row in rows.values())
    if quick:
        lines += [
            "",
            f"{quick} of {len(rows)} were verified quickly, in small runs.",
        ]
    lines += ["", "Each row has a digest of the verifiers' code in zoo.json:", ""]
    lines += by_verifier(rows)
    return "\n".join(lines)


def write_page(rows: dict[str, dict[str, Any]]) -> None:
    """Put the table between the marks of the page."""
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table(rows)}\n{END}{rest.split(END)[1]}")


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--older", action="store_true")
    parser.add_argument("--missed", action="store_true")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    asked, rows = parser.parse_args(), load()
    end, sound = time.perf_counter() + asked.seconds, {}  # type: ignore[var-annotated]
    every, present = (*all_leaks(), *sound_variants()), verifier()
    named = {one.name: one for word in asked.names for one in every if word in one.name}
    for one in named.values() if asked.names else every:
        older = asked.older and rows.get(one.name, {}).get("verifier") != present
        known = one.name in rows and not (asked.again or older)
        if asked.quick and not rows.get(one.name, {}).get("quick", True):
            known = True  # a full verification is not replaced by a quick one
        if asked.missed:
            before = rows.get(one.name, {})
            caught = before.get("outcome") in ("accused", "withheld", "unread", "as sound")
            known = caught or not before.get("quick", False)
        if asked.page or known or time.perf_counter() > end:
            continue
        rows[one.name] = examine(one, sound, quick=asked.quick)
        store(rows)
        row = rows[one.name]
        print(f"{row['outcome']:11} {row['seconds']:6.1f} s  {one.name}", flush=True)
    if asked.page:
        write_page(rows)


if __name__ == "__main__":
    main()
