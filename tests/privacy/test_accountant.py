import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
from scipy import integrate, stats

from securevfl.errors import ConfigurationError
from securevfl.privacy.accountant import (
    Released,
    gaussian_epsilon,
    noise_multiplier,
    sensitivity,
)
from securevfl.privacy.mechanisms import MOST_BOUND

DELTA = 1e-5
OPACUS = json.loads((Path(__file__).parents[1] / "vectors" / "dp" / "opacus.json").read_text())


def delta_of(multiplier, epsilon):
    """Smallest delta of one Gaussian release by integrating its definition.

    The largest of P(S) - e^epsilon Q(S) is reached where the densities' ratio exceeds e^epsilon.
    """
    p, q = stats.norm(1 / multiplier), stats.norm(0)
    start = epsilon * multiplier + 1 / (2 * multiplier)
    value, _ = integrate.quad(
        lambda x: p.pdf(x) - math.exp(epsilon) * q.pdf(x), start, start + 40, epsabs=1e-14
    )
    return value


def test_the_analytic_calibration_has_the_published_value():
    assert noise_multiplier(1.0, DELTA) == pytest.approx(3.7306316, abs=1e-6)
    classical = math.sqrt(2 * math.log(1.25 / DELTA))
    assert classical == pytest.approx(4.845, abs=1e-3)  # what the loose formula would ask for


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 50.0])
def test_the_calibration_meets_the_definition(epsilon):
    assert delta_of(noise_multiplier(epsilon, DELTA), epsilon) == pytest.approx(DELTA, rel=1e-4)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_one_release_costs_what_it_was_calibrated_for(epsilon):
    spent = gaussian_epsilon(noise_multiplier(epsilon, DELTA), 1, DELTA)
    assert epsilon * (1 - 1e-6) < spent <= epsilon


def test_releases_compose_exactly_and_cheaper_than_they_add_up():
    multiplier = noise_multiplier(1.0, DELTA)
    spent = [gaussian_epsilon(multiplier, n, DELTA) for n in range(20)]
    assert spent[0] == 0
    assert all(a < b < a + 1 for a, b in pairwise(spent[1:]))
    assert spent[16] == pytest.approx(gaussian_epsilon(multiplier / 4, 1, DELTA))
    assert delta_of(multiplier / 4, spent[16]) == pytest.approx(DELTA, rel=1e-4)


@pytest.mark.parametrize("row", [row for row in OPACUS["rows"] if row["rate"] == 1.0])
def test_releases_of_everything_are_exact_and_below_every_bound(row):
    exact = gaussian_epsilon(row["multiplier"], row["steps"], row["delta"])
    assert exact < min(row["rdp"], row["prv"])
    assert exact == pytest.approx(row["prv"], abs=0.012)


def test_the_sensitivity_names_its_neighbours():
    assert sensitivity(1.5, "replace") == 3.0
    assert sensitivity(1.5, "add or remove") == 1.5


@pytest.mark.parametrize(
    ("bound", "relation"), [(1.5, "Replace"), (1.5, "replace-one"), (-1.5, "replace")]
)
def test_other_relations_and_bounds_have_no_sensitivity(bound, relation):
    with pytest.raises(ConfigurationError, match="'replace', 'add or remove'"):
        sensitivity(bound, relation)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: noise_multiplier(0.0, DELTA),
        lambda: noise_multiplier(math.inf, DELTA),
        lambda: noise_multiplier(1.0, 0.0),
        lambda: noise_multiplier(1.0, 1.0),
        lambda: gaussian_epsilon(0.0, 1, DELTA),
        lambda: gaussian_epsilon(math.nan, 1, DELTA),
        lambda: gaussian_epsilon(1.0, -1, DELTA),
        lambda: gaussian_epsilon(1.0, 2.5, DELTA),
        lambda: gaussian_epsilon(1.0, math.nan, DELTA),
        lambda: Released(1.0, DELTA, 1.0).releases_within(math.nan),
        lambda: Released(1.0, DELTA, 1.0).releases_within(math.inf),
    ],
)
def test_values_out_of_range_are_refused(ask):
    with pytest.raises(ConfigurationError, match="accountant"):
        ask()


def test_noise_that_hides_next_to_nothing_is_refused():
    sound = Released(epsilon=1.0, delta=1e-5, clip=1.0)
    sound.refuse_faint_noise("method")
    assert sound.clip < MOST_BOUND * sound.sigma
    faint = Released(epsilon=1e6, delta=1e-5, clip=1.0)
    assert faint.clip > MOST_BOUND * faint.sigma
    with pytest.raises(ConfigurationError, match=r"method: epsilon = 1e\+06 .* norm 1, .* lower"):
        faint.refuse_faint_noise("method")
