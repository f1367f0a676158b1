"""Noise by the audit's own lines, against the definition and against published values."""

import math

import pytest
from scipy import integrate, stats

from securevfl.audit.noise.calibration import (
    delta_of,
    keep_probability,
    multiplier_of,
)
from securevfl.privacy import accountant, mechanisms

EPSILONS, DELTAS = [1e-3, 0.1, 1.0, 5.0, 100.0, 1e4], [1e-12, 1e-5, 0.1]


def integrated(multiplier, epsilon):
    """Least delta of a release by the definition of (epsilon, delta)-DP."""
    p, q = stats.norm(1 / multiplier), stats.norm(0)
    start = epsilon * multiplier + 1 / (2 * multiplier)
    return integrate.quad(
        lambda x: p.pdf(x) - math.exp(epsilon) * q.pdf(x), start, start + 40, epsabs=1e-14
    )[0]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 50.0])
@pytest.mark.parametrize("delta", [1e-6, 1e-2])
def test_the_multiplier_meets_the_definition(epsilon, delta):
    z = multiplier_of(epsilon, delta)
    assert integrated(z, epsilon) == pytest.approx(delta, rel=1e-5)
    assert delta_of(epsilon, z * 1.001) < delta < delta_of(epsilon, z * 0.999)


def test_the_multiplier_has_the_published_value():
    assert multiplier_of(1.0, 1e-5) == pytest.approx(3.7306316, abs=1e-7)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_the_library_adds_that_noise(epsilon, delta):
    """Rounded up by 1e-9, and by no more."""
    ratio = accountant.noise_multiplier(epsilon, delta) / multiplier_of(epsilon, delta)
    assert 1 <= ratio < 1 + 3e-9


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("classes", [2, 10])
def test_labels_are_kept_so_often_that_the_ratio_is_e_to_the_epsilon(epsilon, classes):
    keep = keep_probability(epsilon, classes)
    other = (1 - keep) / (classes - 1)
    assert math.log(keep / other) == pytest.approx(epsilon, rel=1e-2 if epsilon > 20 else 1e-9)
    assert keep == mechanisms.keep_probability(epsilon, classes)
