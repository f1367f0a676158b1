import math
import os

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from securevfl.errors import ConfigurationError, RangeError
from securevfl.field.sampling import SeededSource
from securevfl.privacy.mechanisms import (
    clip_gradient,
    clip_rows,
    gaussian,
    keep_probability,
    randomised_response,
    release_rows,
)
from tests.oracles.normals import release_gradient

matrices = hnp.arrays(
    np.float32, (4, 3), elements=st.floats(-100, 100, width=32, allow_subnormal=False)
)
bounds = st.floats(0.01, 50)


@given(rows=matrices, bound=bounds)
def test_rows_are_clipped_in_length_and_not_in_direction(rows, bound):
    clipped = clip_rows(rows, bound)
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    assert (np.linalg.norm(clipped, axis=1) <= bound * (1 + 1e-12)).all()
    short = norms <= bound
    assert (clipped[short] == rows[short]).all()
    np.testing.assert_allclose(
        clipped[~short], rows[~short] * (bound / norms[~short])[:, None], rtol=1e-9
    )


@given(one=matrices, other=matrices, bound=bounds)
def test_two_rows_differ_by_at_most_the_sensitivity(one, other, bound):
    from securevfl.privacy.accountant import sensitivity

    a, b = clip_rows(one, bound), clip_rows(other, bound)
    most = sensitivity(bound, "replace") * (1 + 1e-12)
    assert (np.linalg.norm(a - b, axis=1) <= most).all()
    assert (np.linalg.norm(a, axis=1) <= sensitivity(bound, "add or remove") * (1 + 1e-12)).all()


@given(rows=matrices, gradient=matrices, bound=bounds)
def test_the_gradient_through_clipping_is_autograds(rows, gradient, bound):
    inputs = torch.from_numpy(rows.astype(np.float64)).requires_grad_()
    norms = inputs.norm(dim=1, keepdim=True)
    clipped = torch.where(norms <= bound, inputs, inputs * bound / norms.clamp(min=1e-300))
    clipped.backward(torch.from_numpy(gradient.astype(np.float64)))
    own = clip_gradient(rows, gradient, bound)
    assert own.dtype == np.float32
    np.testing.assert_allclose(own, inputs.grad.numpy(), rtol=1e-4, atol=1e-3)


def test_zero_rows_pass_without_a_warning():
    zeros, ones = np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)
    assert not clip_rows(zeros, 1.0).any()
    assert (clip_gradient(zeros, ones, 1.0) == 1).all()


def test_noise_is_standard_normal_and_uncorrelated():
    # Each of these fails a true normal sample with probability below 1e-6; the seed is fixed.
    values = gaussian((100_001,), SeededSource(5))
    assert stats.kstest(values, "norm").pvalue > 1e-6
    half = len(values) // 2 + 1
    pairs = np.corrcoef(values[: half - 1], values[half:])[0, 1]  # the two of each pair
    neighbours = np.corrcoef(values[:-1], values[1:])[0, 1]
    assert max(abs(pairs), abs(neighbours)) < 5 / math.sqrt(half - 1)
    squares = np.corrcoef(values[: half - 1] ** 2, values[half:] ** 2)[0, 1]
    assert abs(squares) < 0.03


@pytest.mark.parametrize("shape", [(0,), (1,), (3,), (2, 5), (4, 0)])
def test_noise_has_the_shape_that_was_asked_for(shape):
    assert gaussian(shape).shape == shape


def test_a_seeded_source_repeats_and_the_systems_does_not():
    one, two = (gaussian((50,), SeededSource(b"x")) for _ in range(2))
    assert (one == two).all()
    assert (gaussian((50,), SeededSource(1)) != one).any()
    assert (gaussian((50,)) != gaussian((50,))).all()


def test_noise_comes_from_the_operating_system_unless_asked_otherwise(monkeypatch):
    asked = []

    def constant(count):
        asked.append(count)
        return bytes(count)

    monkeypatch.setattr(os, "urandom", constant)
    rows = np.ones((3, 4), np.float32)
    one, two = (release_rows(rows, bound=1.0, sigma=1.0) for _ in range(2))
    assert (one == two).all()  # nothing but those bytes enters
    assert asked == [32, 32]  # a fresh key for each release


@given(rows=matrices, bound=st.floats(0.01, 50), ratio=st.floats(0.01, 100))
def test_what_is_released_lies_on_a_grid_that_depends_on_sigma_alone(rows, bound, ratio):
    sigma = bound * ratio
    released = release_rows(rows, bound=bound, sigma=sigma)
    assert released.dtype == np.float32
    grid = 2.0 ** (math.floor(math.log2(sigma)) - 14)
    steps = released.astype(np.float64) / grid
    assert (steps == np.round(steps)).all()
    assert grid <= sigma / 2**14


def test_a_release_is_the_clipped_row_with_noise_of_the_stated_size():
    rows = np.tile(np.array([3.0, 4.0, 0.0], np.float32), (20_000, 1))
    noise = release_rows(rows, bound=1.0, sigma=0.5, source=SeededSource(3)) - [0.6, 0.8, 0.0]
    # p-value below 1e-6 happens to a true sample with that probability; the seed is fixed.
    assert all(stats.kstest(noise[:, j] / 0.5, "norm").pvalue > 1e-6 for j in range(3))


@pytest.mark.parametrize(
    ("bound", "sigma"), [(0, 1), (-1, 1), (1, 0), (1, math.nan), (math.inf, 1), (1, 0.004)]
)
def test_values_out_of_range_are_refused(bound, sigma):
    with pytest.raises(ConfigurationError, match="release_rows"):
        release_rows(np.ones((1, 2), np.float32), bound=bound, sigma=sigma)


# -- randomised response -----------------------------------------------------------------------


@given(epsilon=st.floats(0.01, 30), classes=st.integers(2, 50))
def test_one_answer_is_at_most_e_to_the_epsilon_times_as_likely(epsilon, classes):
    truth = keep_probability(epsilon, classes)
    other = (1 - truth) / (classes - 1)
    assert truth / other == pytest.approx(math.exp(epsilon), rel=1e-2)
    assert truth > 1 / classes


@pytest.mark.parametrize(("epsilon", "classes"), [(0.5, 2), (1.0, 10), (4.0, 3)])
def test_an_accountant_of_others_agrees_on_randomised_response(epsilon, classes):
    from dp_accounting.pld import privacy_loss_distribution as pld

    # There the answer is uniform over all classes with probability q, and else the truth.
    q = (1 - keep_probability(epsilon, classes)) * classes / (classes - 1)
    loss = pld.from_randomized_response(q, classes)
    assert loss.get_epsilon_for_delta(0.0) == pytest.approx(epsilon, abs=1e-3)
    assert loss.get_delta_for_epsilon(epsilon + 1e-3) == 0


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_labels_are_told_and_replaced_as_often_as_stated(classes):
    """Chi-square of the offsets; a true sample fails with probability 1e-6; the seed is fixed."""
    labels = np.arange(60_000, dtype=np.int64) % classes
    said = randomised_response(labels, classes, 1.0, SeededSource(11))
    counts = np.bincount((said - labels) % classes, minlength=classes)
    truth = keep_probability(1.0, classes)
    expected = [truth] + [(1 - truth) / (classes - 1)] * (classes - 1)
    assert stats.chisquare(counts, len(labels) * np.array(expected)).pvalue > 1e-6


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float32])
def test_answers_are_labels_of_the_same_kind(dtype):
    labels = (np.arange(500) % 2).astype(dtype)
    said = randomised_response(labels, 2, 0.1)
    assert said.dtype == dtype
    assert set(said.tolist()) == {0, 1}
    assert (randomised_response(labels, 2, 50.0) == labels).all()
    assert randomised_response(labels[:0], 2, 1.0).shape == (0,)


def test_answers_come_from_the_operating_system_unless_asked_otherwise(monkeypatch):
    labels = np.arange(200) % 10
    one, two = (randomised_response(labels, 10, 1.0, SeededSource(1)) for _ in range(2))
    assert (one == two).all()
    assert (randomised_response(labels, 10, 1.0) != randomised_response(labels, 10, 1.0)).any()
    asked = []
    monkeypatch.setattr(os, "urandom", lambda n: asked.append(n) or bytes(n))
    randomised_response(labels, 10, 1.0)
    assert asked == [32]


@pytest.mark.parametrize(("epsilon", "classes"), [(0.0, 2), (-1.0, 2), (math.inf, 2), (1.0, 1)])
def test_responses_that_promise_nothing_are_refused(epsilon, classes):
    with pytest.raises(ConfigurationError, match="randomised response"):
        randomised_response(np.zeros(3, np.int64), classes, epsilon)


# -- gradients ---------------------------------------------------------------------------------


@given(gradient=matrices, bound=st.floats(0.01, 50))
def test_a_released_gradient_is_that_of_clipped_samples(gradient, bound):
    samples = np.array([4, -1, 2, 9])
    gradient[1] = 0
    sigma = bound / 150
    released = release_gradient(gradient, samples, bound=bound, sigma=sigma, source=SeededSource(2))
    assert released.dtype == np.float32
    assert (released[1] == 0).all()
    own = clip_rows(gradient[samples >= 0] * np.float32(3), bound) / 3
    assert np.abs(released[samples >= 0] - own).max() < 10 * sigma / 3 + 1e-6 * bound


def test_one_sample_moves_its_own_row_of_the_gradient_alone():
    rng = np.random.default_rng(0)
    one = rng.normal(size=(6, 3)).astype(np.float32)
    other = one.copy()
    other[2] = rng.normal(size=3) * 100
    samples = np.arange(6)
    released = [
        release_gradient(g, samples, bound=0.5, sigma=1.0, source=SeededSource(3))
        for g in (one, other)
    ]
    moved = np.abs(released[0] - released[1]).max(axis=1) > 0
    assert moved.tolist() == [False, False, True, False, False, False]
    # 2C for the sample's own gradient, less 1/b of it; the grid adds at most half a step each.
    assert np.linalg.norm(released[0][2] - released[1][2]) <= (2 * 0.5 + 1e-3) / 6


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_rows_that_overflow_are_not_released(bad):
    """Noise does not move them, so they would leave as they are."""
    with pytest.raises(RangeError, match="1 of 2 rows to be released are not finite"):
        release_rows(np.array([[bad, 1.0], [3.0, 4.0]]), bound=1.0, sigma=1.0)


@pytest.mark.parametrize("bound", [-2.0, 0.0, math.nan, math.inf])
def test_rows_are_not_clipped_to_what_is_no_bound(bound):
    with pytest.raises(ConfigurationError, match="positive and finite"):
        clip_rows(np.ones((2, 2)), bound)


def test_a_row_whose_norm_overflows_is_refused_and_not_clipped_to_zero():
    with pytest.raises(RangeError, match="exceeds float64"):
        clip_rows(np.array([[1e200, 0.0]]), 2.0)


def test_a_label_between_two_classes_is_refused():
    with pytest.raises(RangeError, match="whole numbers"):
        randomised_response(np.array([0, 0.5]), 4, 1.0)
