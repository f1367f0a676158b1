"""Verdicts on random programs against exact counting, and damaged certificates."""

from __future__ import annotations

from collections import Counter

import pytest

from securevfl.verified import SERVER, FlowError, Judge
from securevfl.verified.check import check
from tests.verified.counting import judge
from tests.verified.fedvs import FedVS

CASES = 150


def test_no_verdict_is_wrong():
    tally: Counter = Counter()
    for number in range(CASES):
        try:
            verdict, private, _, found = judge(("counting", number), tags=number % 3 == 0)
        except FlowError:
            tally["refused"] += 1
            continue
        verdict = "PROVED" if found.sure else verdict  # its outputs are declared to be of one party
        tally[verdict, private] += 1
        assert not (verdict == "PROVED" and not private), (number, found)
        assert not (verdict == "VIOLATED" and private), (number, found)
        assert "ended in" not in found.text, (number, found)
        assert "certificate was refused" not in found.text, (number, found)
    private = tally["PROVED", True] + tally["NOT PROVED", True]
    assert tally["PROVED", True] > 0.8 * private
    assert tally["VIOLATED", False] > 30


@pytest.mark.parametrize("claim", ["clients", "server", "both"])
def test_a_certificate_with_a_step_left_out_is_refused(claim):
    flow = FedVS(rounds=1).run()
    verdict = Judge(flow.world).decide(flow.coalitions()[claim])
    given = flow.world.outputs_of(verdict.coalition)
    assert check(flow.world, verdict.coalition, given, verdict.steps) == (None, 0)
    for drop in range(len(verdict.steps)):
        fewer = verdict.steps[:drop] + verdict.steps[drop + 1 :]
        why, _ = check(flow.world, verdict.coalition, given, fewer)
        assert why, verdict.steps[drop]


def test_a_certificate_is_for_its_coalition_and_outputs():
    flow = FedVS(rounds=1).run()
    verdict = Judge(flow.world).decide({SERVER})
    given = flow.world.outputs_of({SERVER})
    assert check(flow.world, {SERVER, 4}, given, verdict.steps)[0]
    assert check(flow.world, {SERVER}, [], verdict.steps)[0]
