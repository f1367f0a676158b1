"""The outsider's exact evaluator on cases that are known, and a short run against `decide`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.outsider.fuzz import Maker, judged, run, shrunk, wrong


def masked(by: int, p: int = 3) -> dict[str, Any]:
    return {
        "p": p,
        "steps": [
            {"op": "secret", "home": 0, "shape": [2], "out": "x"},
            {"op": "tape", "home": 0, "shape": [2], "out": "r"},
            {"op": "lin", "home": 0, "args": ["x", "r"], "by": [1, by], "style": 1, "out": "u"},
            {"op": "send", "home": 0, "args": ["u"], "to": -1, "kind": "m", "out": "got"},
        ],
    }


@pytest.mark.parametrize(("by", "private"), [(1, True), (2, True), (3, False), (0, False)])
def test_the_evaluator_knows_a_mask(by: int, private: bool) -> None:
    verdict, found = judged(masked(by), {-1})
    assert found == private
    assert verdict == ("PROVED" if private else "VIOLATED")


def test_an_output_excuses_what_it_tells() -> None:
    program = masked(0)
    program["steps"] += [
        {"op": "spec", "home": None, "args": ["x"], "out": "s"},
        {"op": "output", "home": "spec", "args": ["s"], "name": "o", "to": [-1], "alone": True},
    ]
    assert judged(program, {-1}) == ("NOT PROTECTED", True)


def test_a_wrong_verdict_is_seen_and_shrunk() -> None:
    assert wrong("PROVED", False)
    assert wrong("VIOLATED", True)
    assert not wrong("PROVED", True)
    assert not wrong("NOT PROVED", True)
    program = masked(0)
    program["steps"].append({"op": "tape", "home": 1, "shape": [1], "out": "idle"})
    small = shrunk(program, lambda p: not judged(p, {-1})[1])
    assert [step["op"] for step in small["steps"]] == ["secret", "tape", "lin", "send"]


def test_a_seed_draws_the_same_program() -> None:
    first, second = (Maker(np.random.default_rng([1, 2])).make() for _ in range(2))
    assert first == second


def test_no_verdict_is_wrong_in_a_short_run() -> None:
    counts, bad = run(seed=2026, cases=250)
    assert not bad
    assert counts["linear private PROVED"] > 20
    assert counts["other leaks VIOLATED"] > 5
