"""Columns from fewer sums than the space has dimensions."""

import numpy as np
import pytest

from securevfl.audit.attacks.short_span import filled_span, fitted
from securevfl.audit.attacks.squares import MISFIT, columns_of_span, likenesses
from securevfl.models.polynomial_network import expand

M, D = 240, 8


def stream(seed: int = 3) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


def columns() -> np.ndarray:
    return stream(1).random((M, D)) ** 2


def part(width: int, X: np.ndarray) -> np.ndarray:
    U = expand(X, 2) @ stream(7).normal(size=(2 * D + 1, width))
    return np.linalg.svd(U - U.mean(axis=0), full_matrices=False)[0]


@pytest.mark.parametrize("width", [15, 14])
def test_missing_dimensions_are_found(width):
    X = columns()
    filled = filled_span(part(width, X), 2 * D - width, D, stream())
    assert filled is not None
    assert filled.shape == (M, 2 * D)
    P = expand(X, 2)
    P = P - P.mean(axis=0)
    assert np.abs(P - filled @ (filled.T @ P)).max() < 1e-3
    guesses = columns_of_span(filled, stream(), starts=80).within(MISFIT)
    assert (likenesses(guesses, X) > 0.999).all()


def test_a_random_part_is_not_filled():
    basis = np.linalg.qr(stream(5).normal(size=(M, 14)))[0]
    assert filled_span(basis - basis.mean(axis=0), 2, D, stream(), tries=4) is None


def test_no_more_sums_than_columns_leave_too_many_unknowns():
    assert filled_span(part(D, columns()), D, D, stream(), tries=1) is None


def test_columns_near_the_truth_are_moved_onto_it():
    X = columns()
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    basis, start = part(12, X), X + 0.2 * stream().normal(size=X.shape)
    found, misfit = fitted(start, basis, 4)
    assert misfit < 1e-8
    assert (np.abs(np.diag(np.corrcoef(found.T, X.T)[:D, D:])) > 0.9999).all()
