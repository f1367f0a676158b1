"""Lies: a party's uploads are replaced in form and in the stated rounds, and nothing else is."""

import numpy as np
import pytest

import securevfl as svfl
from securevfl.engine.faults import Faults, Outage, faults_from
from securevfl.engine.simulation.lies import replaced
from securevfl.errors import ConfigurationError

SMALL = {"batch": 32, "width": 8, "hidden": 8, "sealed": False, "conditions": "none"}


def stream():
    return np.random.Generator(np.random.Philox(1))


def test_values_are_replaced_in_their_form_and_names_of_rows_are_not():
    rows = np.arange(4)
    embedding = np.full((4, 3), 2.0, np.float32)
    payload = replaced((7, rows, [embedding]), stream(), None)
    assert payload[0] == 7
    assert payload[1] is rows
    wrong = payload[2][0]
    assert (wrong.shape, wrong.dtype) == (embedding.shape, embedding.dtype)
    # 12 normal values of deviation 20: that all lie below 1 in absolute value has chance 1e-17.
    assert np.abs(wrong).max() > 1


@pytest.mark.parametrize("prime", [97, 2**31 - 1, 2**61 - 1])
def test_elements_of_a_field_stay_elements(prime):
    dtype = np.uint32 if prime < 1 << 32 else np.uint64
    wrong = replaced(np.zeros((50, 4), dtype), stream(), prime)
    assert wrong.dtype == dtype
    assert wrong.max() < prime
    assert len(np.unique(wrong)) > 50
    assert not replaced(np.zeros(3, dtype), stream(), None).any()  # of no field: no values


def test_a_lie_strikes_its_party_in_its_rounds():
    faults = faults_from({"lie": [{"party": 2, "rounds": [3, 5]}, {"party": 0, "seconds": [9.0]}]})
    assert faults_from(faults.describe()) == Faults(
        lies=(Outage(2, rounds=(3, 5)), Outage(0, seconds=(9.0, np.inf)))
    )
    bound = faults.bind({"server": (-1,), "client": (0, 1, 2)}, seed=0)
    assert [bound.lies(2, r, 0.0) for r in (2, 3, 4, 5)] == [False, True, True, False]
    assert [bound.lies(0, 1, s) for s in (8.9, 9.0)] == [False, True]
    assert bound.may_crash == frozenset()


def test_a_lie_of_a_link_or_of_the_server_is_refused():
    for entity in ({"link": [0, "server"]}, {"party": "server"}):
        with pytest.raises(ConfigurationError, match="a lie is of a client"):
            faults_from({"lie": [{**entity, "rounds": [1]}]})
    with pytest.raises(ConfigurationError, match="party 9 does not exist"):
        svfl.run("split", "digits", rounds=1, faults={"lie": [{"party": 9, "rounds": [1]}]})


def test_a_run_differs_from_the_first_lie_on_and_sends_as_much():
    data = svfl.load_dataset("digits", parties=3).subset(96, 20)
    true = svfl.run("split", data, rounds=4, **SMALL)
    lied = svfl.run("split", data, rounds=4, faults={"lie": [{"party": 1, "rounds": [3]}]}, **SMALL)
    losses = [[row["loss"] for row in run.history] for run in (true, lied)]
    assert losses[0][:2] == losses[1][:2]
    assert losses[0][2] != losses[1][2]
    assert true.transcript.bytes == lied.transcript.bytes


def test_one_liar_is_corrected_where_one_is_allowed_for_and_not_otherwise():
    data = svfl.load_dataset("digits", parties=6).subset(96, 20)
    lie = {"faults": {"lie": [{"party": 0, "rounds": [2]}]}, **SMALL}
    true = svfl.run("fedvs", data, rounds=3, segments=1, **SMALL)
    corrected = svfl.run("fedvs", data, rounds=3, segments=1, tolerate_corrupt=1, **lie)
    believed = svfl.run("fedvs", data, rounds=3, segments=1, **lie)
    losses = [[row["loss"] for row in run.history] for run in (true, corrected, believed)]
    assert losses[0] == losses[1]
    assert losses[0][1] != losses[2][1]
