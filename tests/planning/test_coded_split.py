"""A plan of coded split learning says what its runs count: bytes, and times without chance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import securevfl as svfl
from securevfl.engine.conditions import Conditions, Delay
from securevfl.planning.forecast import plan

DIGITS = svfl.load_dataset("digits", parties=8).subset(103, 41)
P31, P61 = 2**31 - 1, 2**61 - 1
SIZES = {  # owners and options: other N, K, T, p, |B|, h, helpers, sealing
    "5,1,1": (5, {"batch": 7, "width": 3, "sealed": False}),
    "8,1,1 at 2^31-1": (8, {"prime": P31, "data_bits": 5, "gradient_bits": 6, "width": 2}),
    "9,2,1": (7, {"helpers": 2, "segments": 2, "batch": 33, "width": 4, "prime": P61}),
    "11,2,2": (8, {"helpers": 3, "segments": 2, "privacy": 2, "batch": 10, "width": 1}),
    "8,1,1, long": (8, {"batch": 8, "width": 1, "rounds": 132}),
    "8,1,1, dealt masks": (8, {"masks": "dealt", "batch": 16, "width": 3}),
    "12,2,2, dealt": (8, {"masks": "dealt", "helpers": 4, "segments": 2, "privacy": 2, "batch": 9}),
    "9,1,1, dealt, secure": (8, {"masks": "dealt", "helpers": 1, "batch": 103, "secure": True}),
    "8,1,2, secure": (8, {"privacy": 2, "batch": 103, "width": 5, "secure": True}),
    "8,1,1, covert": (8, {"security": "covert", "batch": 7, "width": 3, "rounds": 17}),
    "8,1,1, active": (8, {"security": "active", "tolerate_corrupt": 1, "batch": 103, "width": 1}),
}
STEADY = Conditions(
    name="steady",
    uploads=tuple(Delay(0.0, 0.01 + 0.007 * (3 * n % 8)) for n in range(8)),
    bandwidth=1e6,
)


@pytest.mark.parametrize("name", SIZES)
def test_bytes_of_setup_round_and_run_are_those_that_the_run_counts(name):
    owners, options = SIZES[name]
    data = DIGITS.with_parties(owners)
    asked = {"segments": 1, "rounds": 4, "hidden": 3, "degree": 1, **options}
    (choice,) = plan(data, protocol="coded_split", **asked).choices
    columns = svfl.run("coded_split", data, conditions="none", **asked).transcript.columns()
    counted = columns["bytes"]
    rounds = asked["rounds"]
    kinds = ["embedding", "deal", "seed", "stored", "mask", "story"]
    training = np.isin(columns["kind"], kinds) & (columns["round"] <= rounds)
    assert choice.bytes == counted.sum()
    assert choice.setup_bytes == counted[np.isin(columns["round"], 0)].sum()
    assert choice.round_bytes == round(counted[training].sum() / rounds)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"helpers": 2, "privacy": 2},
        {"segments": 2, "rounds": 30, "secure": True},
        {"masks": "dealt"},
        {"masks": "dealt", "helpers": 4, "privacy": 2, "secure": True},
    ],
)
def test_times_without_chance_are_those_of_the_run_to_the_microsecond(more):
    """Slow uplinks, so that the order of dealing and of setup counts."""
    asked = {"segments": 1, "rounds": 12, "batch": 16, "width": 4, "hidden": 3, **more}
    found = plan(DIGITS, protocol="coded_split", conditions=STEADY, **asked).best
    run = svfl.run("coded_split", DIGITS, conditions=STEADY, **asked)
    events = run.history if not more.get("secure") else run.events
    assert found.total_seconds == pytest.approx(events[-1]["time"], abs=1e-6)


def test_times_are_those_of_the_run_where_steps_queue_on_downlinks():
    """The server deals to the fastest first, and each holder's downlink is another."""
    slow = replace(STEADY, downlinks=(3e4, 1e5, 2e4, 4e5, None, 6e4, 5e4, 1e4))
    asked = {"segments": 1, "rounds": 12, "batch": 16, "width": 4, "hidden": 3}
    found = plan(DIGITS, protocol="coded_split", conditions=slow, **asked).best
    run = svfl.run("coded_split", DIGITS, conditions=slow, **asked)
    assert found.total_seconds == pytest.approx(run.history[-1]["time"], abs=1e-6)


def test_a_run_in_which_busy_parties_leave_out_rounds_is_not_held_against_planned_bytes():
    asked = {"segments": 1, "rounds": 4, "batch": 16, "width": 4, "hidden": 3}
    for mode, whole in (("latency", True), ("occupies", False)):
        run = svfl.run("coded_split", DIGITS, conditions=replace(STEADY, delay_mode=mode), **asked)
        compared = run.summary()["planned"]
        assert (compared["bytes"] is not None) is whole


def test_a_plan_proposes_the_helpers_with_which_fast_parties_suffice():
    """Of 8 owners under the paper's delays 4 are fast: R = 4 is met, 7 and 10 need 3 and 6."""
    asked = {"protocol": "coded_split", "rounds": 20, "batch": 16, "width": 2}
    found = plan(DIGITS, helpers=2, **asked)
    assert [one.helpers for one in found.choices] == [2, 3, 6]
    for one in found.choices[1:]:
        assert one.helped_seconds < one.round_seconds / 3
    assert found.choices[0].helped_seconds == found.choices[0].round_seconds
    wrong = plan(DIGITS, helpers=2, tolerate_corrupt=1, segments=1, **asked).best
    assert (wrong.threshold, wrong.tolerated, wrong.helpers) == (4, 4, 2)


def test_a_plan_prices_each_level_and_says_why_there_is_none():
    asked = {"protocol": "coded_split", "segments": 1, "rounds": 4, "batch": 16, "width": 2}
    semi_honest, covert, active = plan(DIGITS, **asked).levels
    assert semi_honest.bytes < covert.bytes < active.bytes
    assert semi_honest.messages < covert.messages < active.messages
    assert [one.tolerated for one in (semi_honest, covert, active)] == [4, 4, 2]
    *_, none = plan(DIGITS, masks="dealt", **asked).levels
    assert "no dealt masks" in none.refused
    levels = plan(DIGITS, protocol="fedvs", segments=1, rounds=4, batch=16, width=2).levels
    assert [one.tolerated for one in levels] == [5, 3, 2]
    assert levels[0].bytes < levels[1].bytes < levels[2].bytes


def test_a_plan_says_keys_replay_and_the_smallest_field():
    asked = {
        "protocol": "coded_split",
        "segments": 1,
        "helpers": 2,
        "privacy": 2,
        "width": 3,
        "degree": 2,
        "client_lr": 4.0,
    }
    found = plan(DIGITS, batch=16, prime=P61, **asked)
    assert found.best.keys == 18
    assert found.best.replay == 16 * 8 * 17 * 3
    assert (found.bits.prime, found.bits.smallest) == (P61, 2**50 - 2**14 + 1)
    assert found.bits.largest < found.bits.expected < 2**39
