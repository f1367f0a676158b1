"""Coded split learning against integers: ``python benchmarks/coded_split.py``.

Trains on digits for 500 rounds under the paper's delays, in which holders crash, links fail and
late holders catch up, and compares every decoded sum with a twin in plain integers. A second run is
cut half way and resumed; its history and models must be those of the unbroken one, bit for bit.
Where a wrong upload is tolerated, one holder uploads noise in every round of the first run. Writes
exactness.json: sizes, rounds, accuracy, the largest sum, crashes, messages lost, corrections.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from coded_twin import check_against_twin, watched

from securevfl.data import load_dataset
from securevfl.engine.faults import Chain, Faults
from securevfl.machine import commit, describe_machine
from securevfl.models.split import measure
from securevfl.protocols.coded_split import CodedSplit
from securevfl.testing.runs import resume_from, simulate, state_at

OUT = Path(__file__).parent / "results" / "coded_split" / "exactness.json"
FAULTS = Faults({"client": Chain(0.05, 0.4), "link": Chain(0.02, 0.7)}, first=3, tick=0.5)
# Where R is nearly N a link that is down may hold up the round in which it would come back.
CRASHES = Faults({"client": Chain(0.05, 0.4)}, first=3, tick=0.5)
TIGHT = {"8,2,1", "8,1,2", "11,2,2"}
SIZES: dict[str, tuple[int, dict[str, Any]]] = {  # owners and options by (N, K, T)
    "8,1,1": (8, {}),
    "8,1,1 at 2^31-1": (8, {"prime": 2**31 - 1, "data_bits": 6, "gradient_bits": 8}),
    "8,1,1 at 2^40-87": (8, {"prime": 2**40 - 87}),
    "8,1,1 at 2^61-1": (8, {"prime": 2**61 - 1, "data_bits": 10, "gradient_bits": 20}),
    "8,2,1": (8, {"segments": 2}),
    "8,1,2": (8, {"privacy": 2, "prime": 2**61 - 1, "data_bits": 10, "gradient_bits": 20}),
    "10,1,1, A = 1": (8, {"helpers": 2, "tolerate_corrupt": 1}),
    "10,2,1": (8, {"segments": 2, "helpers": 2, "gradient_bits": 16}),
    "11,2,2": (8, {"segments": 2, "privacy": 2, "helpers": 3}),
    "28,4,1": (28, {"segments": 4}),
}
LIAR = 2  # the holder that uploads noise where a wrong upload is tolerated


class Wrong(CodedSplit):
    """coded_split in which one holder uploads noise."""

    def parties(self) -> dict[int, Any]:
        made: dict[int, Any] = super().parties()
        send, field = made[LIAR].send, self.public.field

        def sending(to: int, kind: str, payload: Any, **more: Any) -> None:
            noise = field.random(payload.shape) if kind == "embedding" else payload
            send(to, kind, noise, **more)

        made[LIAR].send = sending
        return made


def exact(name: str, rounds: int) -> dict[str, Any]:
    """One size: what was compared, and what happened meanwhile."""
    owners, options = SIZES[name]
    data = load_dataset("digits", parties=owners)
    options = {"rounds": rounds, "width": 16, "ask_timeout": 2.0, **options}
    started = time.monotonic()
    faults = CRASHES if name in TIGHT else FAULTS
    cls = Wrong if options.get("tolerate_corrupt") else CodedSplit
    outcome = simulate(watched(cls), data, faults=faults, defaults={}, **options)
    largest = check_against_twin(outcome, rounds=None, kind=np.int64)
    scores = outcome.protocol.scores(outcome.parties, data.test)
    happened = Counter(event.name for event in outcome.events)
    named = [event.fields["clients"] for event in outcome.events if event.name == "corrected"]
    assert all(clients == [LIAR] for clients in named)
    kinds = outcome.simulation.transcript.columns()["kind"].tolist()
    return {
        "rounds": len(outcome.losses),
        "compared": len(outcome.parties[-1].seen),  # type: ignore[attr-defined]
        "accuracy": measure(data.task, scores, data.test_labels)["accuracy"],
        "bits of the largest sum": largest.bit_length(),
        "p": outcome.protocol.describe()["p"],
        "crashes": happened["down"],
        "lost": happened["lost"],
        "caught up": kinds.count("missed"),
        "shrunk": happened["shrunk"],
        "corrected": happened["corrected"],
        "seconds": round(time.monotonic() - started, 1),
    }


def resumed(name: str, rounds: int) -> bool:
    """Whether a run that is cut half way and resumed is the unbroken one, bit for bit."""
    owners, options = SIZES[name]
    data = load_dataset("digits", parties=owners)
    options = {"rounds": rounds, "width": 16, **options}
    whole = simulate(CodedSplit, data, **options)
    instants = len(np.unique(whole.simulation.transcript.columns()["arrived"]))
    saved, events = state_at(CodedSplit, data, instants // 2, **options)
    again = resume_from(CodedSplit, data, saved, events, **options)
    return again.fingerprint() == whole.fingerprint()


def main() -> None:
    """Run all sizes, and write what was found after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--only", choices=sorted(SIZES))
    asked = parser.parse_args()
    found: dict[str, Any] = {"machine": describe_machine(), "commit": commit(), "sizes": {}}
    if asked.only and OUT.exists():
        found["sizes"] = json.loads(OUT.read_text())["sizes"]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    for name in [asked.only] if asked.only else SIZES:
        found["sizes"][name] = exact(name, asked.rounds)
        found["sizes"][name]["resumed alike"] = resumed(name, max(4, asked.rounds // 5))
        print(name, found["sizes"][name], flush=True)
        OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
