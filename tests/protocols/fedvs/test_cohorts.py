"""Sums of FedVS are over whole cohorts, so that honest runs tell no single client's embedding."""

import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from securevfl.engine.conditions import Conditions, Delay
from securevfl.errors import ConfigurationError, NotEnoughResultsError, PrivacyError, RunError
from securevfl.protocols.fedvs.messages import Attempt, Batch
from securevfl.protocols.fedvs.parameters import (
    FedVSConfig,
    Parameters,
    code_of,
    cohort_number,
)
from securevfl.testing.runs import make, simulate
from tests.protocols.joint import data

BATCH = Batch("train", np.arange(3, dtype=np.uint32))
PATIENT = {"share_timeout": 1.0, "rounds": 3}
ROOT = Path(__file__).parents[3]


def late(*slow, parties=8):
    delays = tuple(Delay(shift=3.0 if n in slow else 0.01) for n in range(parties))
    return Conditions(uploads=delays, share_factor=1.0)


@pytest.mark.parametrize(
    ("options", "number"),
    [
        ({}, 1),  # all share, and clients hold the server to it
        ({"share_timeout": 1.0}, 3),
        ({"share_timeout": 1.0, "privacy": 3}, 2),
        ({"share_timeout": 1.0, "cohorts": 2}, 2),
        ({"share_timeout": 1.0, "cohorts": 0}, 0),
        ({"share_timeout": 1.0, "masked": False}, 0),
    ],
)
def test_there_are_as_many_cohorts_as_can_be_where_sharers_may_change(options, number):
    assert cohort_number(FedVSConfig(**options), 10) == number


def test_cohorts_that_are_too_small_are_refused_before_the_run():
    with pytest.raises(PrivacyError, match=r"fedvs: 3 cohorts of N = 8 .* 2 in the smallest"):
        make("fedvs", data(8), cohorts=3)


@pytest.mark.parametrize(
    ("options", "sharers", "cut"),
    [
        ({}, range(7), r"cut the cohort \[0, 1, 2, 3, 4, 5, 6, 7\]"),
        (PATIENT, (0, 1, 2, 3, 4), r"cut the cohort \[4, 5, 6, 7\]"),
    ],
)
def test_a_client_uploads_to_no_sum_over_a_part_of_a_cohort(options, sharers, cut):
    client = make("fedvs", data(8), **options).parties()[0]
    client.checked(Attempt(tuple(range(8))))
    with pytest.raises(RunError, match=f"{cut}.*Nothing was uploaded"):
        client.checked(Attempt(tuple(sharers)))


@pytest.mark.parametrize(("parties", "segments"), [(9, 2), (8, 2), (8, 1)])
def test_two_announcements_that_could_be_decoded_do_not_differ_by_a_client(parties, segments):
    """2R <= N + T + 2(K - 1): a server with T helpers has enough uploads of both."""
    protocol = make("fedvs", data(parties), segments=segments, **PATIENT)
    assert 2 * protocol.public.threshold <= parties + 1 + 2 * (segments - 1)
    assert protocol.public.stories > 1
    whole = tuple(range(parties))
    sharers = {protocol.public.cohorts.whole(set(whole) - {n}) for n in whole}
    for other in sharers:
        protocol.parties()[other[0]].checked(Attempt(other))
        assert len(set(whole) - set(other)) >= protocol.code.privacy + 2


@pytest.mark.parametrize("privacy", [1, 2])
def test_two_stories_are_possible_just_where_2r_is_at_most_n_and_t_and_2k_less_2(privacy):
    for parties in range(2 * privacy + 1, 30):
        for segments in range(1, (parties - 1) // 2 - privacy + 2):
            config = FedVSConfig(segments=segments, privacy=privacy)
            public = Parameters(config, code_of(config, parties), *[None] * 2, {})
            two = 2 * public.threshold <= parties + privacy + 2 * (segments - 1)
            assert (public.stories > 1) is two
            covert = config.model_copy(update={"security": "covert"})
            assert replace(public, config=covert).stories == 1  # R is raised for it


@pytest.mark.parametrize(
    ("parties", "segments", "words"),
    [(9, 1, r"T = 1 helpers .* 2R = 6 <= N \+ T \+ 2\(K-1\) = 10"), (5, 2, r"2R = 10 > .* = 8")],
)
def test_sums_over_any_clients_are_refused_where_only_a_liar_asks_for_them(
    parties, segments, words
):
    options = {"segments": segments, "cohorts": 0, "paper": False}
    with pytest.raises(ConfigurationError, match=f"{words}.*one client's embedding"):
        make("fedvs", data(parties), **options)
    for more in ({"share_timeout": 1.0}, {"paper": True}, {"masked": False}):
        assert make("fedvs", data(parties), **options | more)


def test_a_budget_says_how_much_more_a_server_gets_that_tells_different_things():
    small = {"defaults": {}, "width": 1, "rounds": 1, "sum_budget": 1.0}
    levels = (("coded_split", 8, factor, level) for level, factor in (("covert", 2), ("active", 0)))
    plain = (("fedvs", 8, 3), ("fedvs", 4, 0), ("coded_split", 8, 2))
    for method, parties, factor, *level in (*plain, *levels):
        given = small | ({"security": level[0]} if level else {})
        made = make(method, data(parties), segments=1, **given)
        (claim,) = [one for one in made.claims if one.notion == "undetermined"]
        assert (f"up to {factor} times as many sums" in claim.source) is (factor > 0)
        assert ("tells all parties the same" in claim.source) is (factor > 0)


def test_a_cohort_with_a_late_client_is_left_out_whole():
    outcome = simulate("fedvs", data(8), conditions=late(5), **PATIENT)
    assert {e.fields["sharers"] for e in outcome.events if e.name == "round"} == {4}
    moved = simulate("fedvs", data(8), conditions=late(5), cohorts=0, **PATIENT)
    assert {e.fields["sharers"] for e in moved.events if e.name == "round"} == {7}


def test_where_no_cohort_is_whole_the_attempt_is_given_up_and_says_what_to_change():
    options = {**PATIENT, "max_attempts": 2}
    with pytest.raises(NotEnoughResultsError, match=r"clients \[1, 5\] were late.*cohorts = 0"):
        simulate("fedvs", data(8), conditions=late(1, 5), **options)


def test_without_cohorts_claims_and_notices_say_that_single_clients_follow():
    told = [make("fedvs", data(8), cohorts=n, **PATIENT) for n in (0, 2)]
    for protocol, single in zip(told, (True, False), strict=True):
        assert bool(protocol.told_apart) is single
        server = [one for one in protocol.claims if one.who == "server"]
        assert all(("single clients' embeddings follow" in c.reason) is single for c in server)
    assert make("fedvs", data(8), cohorts=0).told_apart == ""  # nobody is ever left out


def test_honest_runs_tell_single_embeddings_without_cohorts_and_not_with_them(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    script = importlib.import_module("changing_sharers")
    found = [script.single_embeddings(script.run(24, cohorts=n)) for n in (0, 2)]
    changing = found[0]["not_always_there"]
    assert changing == found[1]["not_always_there"] == [5, 6, 7, 8, 9]
    assert max(found[0]["errors"][n] for n in changing) < 1e-4
    assert min(found[1]["errors"]) > 0.5
