"""Evaluation without holders that are late or lost: any 2(K+T-1)+1 with all steps do."""

import math
from types import SimpleNamespace

import pytest

import securevfl as svfl
from securevfl.data import load_dataset
from securevfl.engine.faults import Chain, Faults, Outage
from securevfl.engine.party import SERVER
from securevfl.errors import NotEnoughResultsError, StalledError
from securevfl.protocols.coded_split import CodedSplit
from securevfl.runs.history import HistoryRecorder
from securevfl.testing.runs import simulate
from securevfl.verified import bare_of

DIGITS = load_dataset("digits", parties=8).subset(103, 21)
SMALL = {"rounds": 12, "batch": 16, "width": 5, "hidden": 6, "ask_timeout": 1.5}
SMALL |= {"sum_budget": 0.0}
LOSSY = {"first": 2, "link": {"fault": 0.5, "rejoin": 0.1}}


def late(holder):
    return holder.model[1] < SMALL["rounds"]


@pytest.fixture(scope="module")
def left_behind():
    """A run that ended while its last messages to most holders were lost."""
    faults = Faults({"link": Chain(0.5, 0.1)}, first=2)
    outcome = simulate(CodedSplit, DIGITS, faults=faults, seed=4, **SMALL)
    holders = [outcome.parties[j] for j in outcome.protocol.peers()]
    assert sum(map(late, holders)) > 8 - outcome.protocol.public.models_needed
    return outcome


def test_the_files_of_a_run_whose_end_left_holders_behind_have_its_models(tmp_path):
    """Before, its folder gave the first models, without a word."""
    found = []
    run = svfl.run(
        *("coded_split", DIGITS), faults=LOSSY, conditions="none", seed=4, out=tmp_path, **SMALL
    )
    for one in (run, svfl.load_run(tmp_path, data=DIGITS)):
        found.append(one.protocol.models(one.parties))
        assert not any(late(one.parties[j]) for j in one.protocol.peers())
    assert (found[0] == found[1]).all()


def test_who_is_brought_to_the_end_has_the_shares_and_the_digest_of_the_others(left_behind):
    protocol, parties = left_behind.protocol, left_behind.parties
    models, states = protocol.models(parties), {j: parties[j].model for j in protocol.peers()}
    protocol.settle(parties)
    every = [bare_of(parties[j].model[1:]) for j in protocol.peers()]
    assert len({(*one[:2], one[2].tobytes()) for one in every}) == 1
    for some in (range(3), range(3, 6), range(5, 8)):
        others = {j: SimpleNamespace(model=(), index=j) for j in protocol.peers()}
        others |= {j: parties[j] for j in some} | {SERVER: parties[SERVER]}
        for j in set(protocol.peers()) - set(some):
            others[j].model = states[j][0][:0], 0, (), states[j][3]  # nothing is known of it
        assert (protocol.models(others) == models).all()
    for j, state in states.items():
        parties[j].model = state


def test_too_few_holders_with_all_steps_are_an_error_and_no_first_models(left_behind):
    protocol, parties = left_behind.protocol, dict(left_behind.parties)
    for j in range(6):
        parties[j] = protocol.parties()[j]  # as a mirror of a party that is lost
    with pytest.raises(NotEnoughResultsError, match=r"= 3 of which are needed, and 2 holders have"):
        protocol.models(parties)
    with pytest.raises(NotEnoughResultsError, match=r"R \+ 2A = 4 holders .* 2 have them: party 6"):
        protocol.predictors(parties, DIGITS.test)
    recorder = HistoryRecorder(protocol, parties, eval_every=1, progress=None)
    recorder.rows.append({"step": 12, "party": SERVER, "round": 12, "time": 1.0})
    recorder.finish()
    assert "accuracy" not in recorder.rows[-1]
    (event,) = recorder.events
    assert (event["event"], event["round"]) == ("unmeasured", 12)
    assert "2 holders have one with all 12 steps: party 6, party 7" in event["why"]


def test_models_can_be_had_without_all_but_three_holders_and_not_without_the_server(left_behind):
    can_spare = left_behind.protocol.can_spare
    assert can_spare(())
    assert can_spare(range(5))
    assert not can_spare(range(6))
    assert not can_spare((SERVER,))
    split = svfl.run("split", DIGITS, rounds=1, batch=16, conditions="none").protocol
    assert split.can_spare(())
    assert not split.can_spare((3,))


def test_coded_inference_goes_on_with_r_holders_and_names_who_is_missing_where_fewer_are_left():
    def gone(*parties):
        return Faults(outages=tuple(Outage(n, rounds=(13, math.inf)) for n in parties))

    options = {**SMALL, "secure": True}
    whole = simulate(CodedSplit, DIGITS, **options)
    left = simulate(CodedSplit, DIGITS, faults=gone(0, 2, 5, 7), **options)
    found = [next(e.fields for e in one.events if e.name == "inference") for one in (whole, left)]
    assert found[0] == found[1]
    with pytest.raises(NotEnoughResultsError, match=r"4 uploads .* and 3 came .* party 0, "):
        simulate(CodedSplit, DIGITS, faults=gone(0, 2, 4, 5, 7), result_timeout=9.0, **options)
    with pytest.raises(StalledError, match="3 of 4 'embedding' of round 13; missing: party 0, "):
        simulate(CodedSplit, DIGITS, faults=gone(0, 2, 4, 5, 7), **options)
