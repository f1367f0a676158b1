"""Unknowns of a row over all parties, and the odometer of a configuration."""

from types import SimpleNamespace

import numpy as np
import pytest

from securevfl.privacy.claims import COUNTS, given_sums
from securevfl.protocols.base.sum_budget import odometer, unknowns_of
from securevfl.testing.runs import make

CONFIG = SimpleNamespace(degree=2, data_bits=16, width=2, rounds=40)


@pytest.fixture
def columns():
    """Two real columns and a constant one; a column of zeros and ones."""
    rng = np.random.default_rng(0)
    real = np.c_[rng.random((50, 2)), np.full(50, 0.5)]
    return [real.astype(np.float32), rng.integers(0, 2, (50, 1)).astype(np.float32)]


def test_powers_of_zeros_and_ones_and_constants_are_no_new_columns(columns):
    # [x1, x2, x1^2, x2^2], [z], and ones.
    assert unknowns_of(columns, CONFIG) == (3, 6)


def test_columns_of_parties_elsewhere_count_all(columns):
    columns[0] = np.zeros_like(columns[0])
    assert unknowns_of(columns, CONFIG) == (1, 2)  # as if it were constant
    assert unknowns_of(columns, CONFIG, unseen=[0]) == (4, 8)


def test_networks_have_no_rank(columns):
    config = SimpleNamespace(client_kind="mlp", degree=2)
    assert unknowns_of(columns, config) == (3, None)


def test_a_budget_ends_the_count():
    free = odometer(CONFIG, 10, 21, 4)
    assert (free.visits, free.visits_planned, free.state) == (10, 10, "beyond")
    config = SimpleNamespace(**vars(CONFIG), budget=1.0)
    assert (odometer(config, 10, 21, 4).visits, odometer(config, 10, 21, 4).state) == (4, "below")
    assert odometer(CONFIG, 10, 21, 4, 5).visits == 2


@pytest.mark.parametrize("protocol", ["fedvs", "coded_split"])
def test_a_budget_grants_the_numbers_of_columns_that_it_tells(protocol):
    made = make(protocol, rounds=2, sum_budget=0.9, width=1)
    claims = given_sums(made.claims, made.released())  # a second time, as a run does at its end
    perfect = [claim for claim in claims if claim.strength == "perfect"]
    assert {claim.given.count(COUNTS) for claim in perfect if claim.asset == "features"} == {1}
    assert not any(COUNTS in claim.given for claim in perfect if claim.asset != "features")
    free = make(protocol, rounds=2, sum_budget=0, width=1)
    assert not any(COUNTS in claim.given for claim in free.claims)


@pytest.mark.parametrize("protocol", ["fedvs", "coded_split", "secagg_split", "he_split"])
def test_methods_with_sums_count_and_say_it_with_each_claim(protocol, tmp_path):
    made = make(protocol, width=2, rounds=4)
    told = made.released()
    granted = [claim for claim in made.claims if claim.given]
    assert told.equations == told.visits * 2
    assert granted
    for claim in granted:
        assert f"are {told.equations} equations" in claim.source
        assert f"about its {told.unknowns} unknowns" in claim.source
        assert claim.to_dict()["given"] == ["decoded sums"]
    assert (
        "Each sum is h equations about each of its rows (docs/sums.md)" in made.card.sees["server"]
    )


def test_methods_without_sums_have_no_odometer():
    assert make("split").released() is None
