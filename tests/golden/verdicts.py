"""The golden verdicts: what `verify` says of each coalition of each method.

Use them before and after a change of the prover::

    python -m tests.golden.verdicts                # compare with verdicts.json; exit code 1
    python -m tests.golden.verdicts --only fedvs   # cases whose names hold the word
    python -m tests.golden.verdicts --write        # set them anew; the commit says why

``tests/golden/verdicts.json`` holds, by method, the verdict on each coalition at default options.
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

from securevfl.protocols.base.registry import find_protocols
from securevfl.verified.traced.proofs import Proof, Traced, prove_protocol

RECORD = Path(__file__).parent / "verdicts.json"

Verdicts = dict[str, str]


def cases() -> dict[str, Callable[[], Verdicts]]:
    """The methods, by name."""
    return {name: partial(_of_method, name) for name in sorted(find_protocols())}


def _of_method(name: str) -> Verdicts:
    """Verdicts on all coalitions of a method with its default options."""
    return scopes(proof_of(name))


def proof_of(name: str) -> Proof:
    """A proof of a method with its default options."""
    return prove_protocol(Traced(name, {}), fresh=False)


def scopes(proof: Proof) -> Verdicts:
    """Verdicts of a proof."""
    return {one.claim: one.scope for one in proof.verdicts}


def judged(name: str, held: Verdicts, now: Verdicts) -> Iterator[str]:
    """Differences, in words.

    Parameters
    ----------
    name : str
        Of the method.
    held, now : dict of str to str
        Verdicts by coalition, as they were and as they are.
    """
    for claim in sorted(held.keys() | now.keys()):
        before, after = held.get(claim, "no claim"), now.get(claim, "no claim")
        if before != after:
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
