"""The golden verdicts: what `verify` says of each method, and of leaks that an author may write.

Use them before and after a change of verifiers::

    python -m tests.golden.verdicts                # compare with verdicts.json; exit code 1
    python -m tests.golden.verdicts --only fedvs   # cases whose names hold the word
    python -m tests.golden.verdicts --write        # set them anew; the commit says why

Each case is a small run, and one in which parties are late or the run is resumed: 101 rows of the
digits, no statistical game. So a verdict here may be stronger than one of a whole configuration.

``tests/golden/verdicts.json`` holds, by case, the verdict on each claim. `judged` compares:

- a leak may get no stronger verdict on a claim that it breaks, and
- a sound method no other verdict, above all no accusation.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from securevfl.audit.verifiers.declaration import AS_DECLARED
from securevfl.protocols.base.registry import find_protocols
from securevfl.testing.runs import make, tiny_data
from securevfl.verified.traced.proofs import Traced, is_provable, prove_protocol
from tests.audit import few_settings
from tests.zoo import all_leaks

RECORD = Path(__file__).parent / "verdicts.json"

# From the word that helps a leak most to the one that helps it least.
ORDER = (
    "PROVED",
    "HYPOTHESES HOLD",
    "NO VIOLATION FOUND",
    "TESTED BUT NOT READ",
    "NOT TESTED",
    "COULD NOT BE CHECKED",
    "VIOLATED",
)

LEAKS = {
    "dvfl": ("labels as a hint",),
    "masked_sum": ("a column as integers", "one value a round", "a column as bytes"),
}

Verdicts = dict[str, str]


def cases() -> dict[str, Callable[[], Verdicts]]:
    """Each case by name: methods by theirs, leaks as the zoo calls them."""
    zoo = {one.name: one for one in all_leaks()}
    names = [f"{method}: {name}" for method, some in LEAKS.items() for name in some]
    methods = {name: partial(_of_method, name) for name in sorted(find_protocols())}
    methods |= {name: partial(_of_proof, name) for name in methods if is_provable(name)}
    return methods | {name: partial(_of_leak, zoo[name]) for name in names}


def _of_method(name: str) -> Verdicts:
    """Verdicts on all claims of a method with its default options."""
    made = make(name, tiny_data())
    return _verdicts(made, (*made.claims, AS_DECLARED))


def _of_proof(name: str) -> Verdicts:
    """Verdicts on all coalitions of a method that is written with protected values."""
    found = prove_protocol(Traced(name, {}), fresh=False).verdicts
    return {one.claim: one.scope for one in found}


def _of_leak(leak: Any) -> Verdicts:
    """Verdicts on the claims that a leak breaks."""
    with leak.around():
        made = make(leak.make(), tiny_data(), **leak.options)
        claims = [one for one in (*made.claims, AS_DECLARED) if (one.who, one.asset) in leak.breaks]
        return _verdicts(made, claims)


def _verdicts(made: Any, claims: Any) -> Verdicts:
    found = few_settings.verdicts(made, claims)
    return {f"{one.who}, {one.asset}": word for one, word in zip(claims, found, strict=True)}


def judged(name: str, held: Verdicts, now: Verdicts) -> Iterator[str]:
    """Differences that a change must not make, in words.

    Parameters
    ----------
    name : str
        Of the case; that of a leak has a colon.
    held, now : dict of str to str
        Verdicts by claim, as they were and as they are.
    """
    for claim in sorted(held.keys() | now.keys()):
        before, after = held.get(claim, "no claim"), now.get(claim, "no claim")
        if before == after:
            continue
        known = before in ORDER and after in ORDER
        if not known or ":" not in name or ORDER.index(after) < ORDER.index(before):
            yield f"{name}, {claim}: {after}, and it was {before}"


def load() -> dict[str, Verdicts]:
    """The record."""
    held: dict[str, Verdicts] = json.loads(RECORD.read_text())
    return held


def main() -> int:
    """Compare or set the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    held = load() if RECORD.exists() else {}
    wrong = 0
    for name, find in cases().items():
        if asked.only not in name:
            continue
        begin = time.process_time()
        now = find()
        print(f"{time.process_time() - begin:6.1f} s  {name}", flush=True)
        for text in judged(name, held.get(name, now), now):
            print("   ", text, flush=True)
            wrong += 1
        if asked.write:
            held[name] = now
            some = {one: held[one] for one in cases() if one in held}
            RECORD.write_text(json.dumps(some, indent=1) + "\n")
    return 0 if asked.write else int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
