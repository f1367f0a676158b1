"""Inner products of rows from sums and steps: when they are found, and what follows from them."""

import functools

import numpy as np
import pytest

from securevfl.audit.attacks.gram import Visit, gram_by_rank, rough_gram_by_rank
from securevfl.field import PrimeField
from tests.audit.attacks.equations import exact_row_of_gram, gram_of_rows
from tests.audit.attacks.low_rank import solve_low_rank
from tests.audit.attacks.rotation import best_matches, independent_columns, rows_from_known

P61 = PrimeField(2**61 - 1)
BITS = 8  # of a row; steps have 12


def stream(seed=0):
    return np.random.Generator(np.random.Philox(seed))


@functools.cache
def training(rows, columns, width, epochs, batch, seed=0):
    """Rows, and the visits of a server whose steps are no function of the rows alone; integers."""
    rng = stream(seed)
    X = rng.integers(0, 2**BITS + 1, (rows, columns))
    W = np.rint(rng.normal(size=(columns, width)) * 2.0 ** (BITS + 12))
    wanted, visits = rng.normal(size=(rows, width)), []
    for _ in range(epochs):
        for chosen in np.split(rng.permutation(rows), rows // batch):
            U = X[chosen] @ W
            H = U * 2.0 ** -(2 * BITS + 12)
            step = np.rint(-0.3 * 2**12 * (np.tanh(H) - wanted[chosen]))
            visits.append(Visit(chosen, U, step))
            W = W + X[chosen].T @ step
    return X, visits


def unscaled(visits):
    return [Visit(v.rows, v.sums * 2.0 ** -(2 * BITS + 12), v.step * 2.0**-12) for v in visits]


@pytest.mark.parametrize(("rows", "width", "epochs"), [(24, 4, 7), (48, 8, 7), (48, 16, 4)])
def test_rows_come_out_exactly_at_the_epoch_that_the_count_says_and_not_before(rows, width, epochs):
    """(E - 1) h >= M. A square system is singular modulo a large prime only by a rare chance."""
    X, visits = training(rows, 6, width, epochs, 6)
    early = visits[: -rows // 6]
    assert (epochs - 1) * width >= rows > (epochs - 2) * width
    found = [exact_row_of_gram(visits, rows, i, P61) for i in range(rows)]
    right = [i for i in range(rows) if found[i] is not None and (found[i] == X[i] @ X.T).all()]
    assert len(right) > 0.9 * rows  # dependent steps cost a row an epoch more
    assert len(right) == sum(one is not None for one in found)
    assert all(exact_row_of_gram(early, rows, i, P61) is None for i in range(rows))


def test_floats_find_what_whole_numbers_do():
    X, visits = training(24, 6, 4, 8, 6)
    assert (np.rint(gram_of_rows(visits, 24)) == X @ X.T).all()
    assert np.isnan(gram_of_rows(visits[:4], 24)).all()


def test_sums_of_all_rows_give_the_gram_matrix_when_its_rank_is_exceeded():
    """d = 10, h = 4: D has rank 4, 8, 10 after 2, 3, 4 epochs; the fourth says that it is all."""
    X, visits = training(40, 10, 4, 4, 40)
    assert gram_by_rank(visits[:1], P61) is None
    assert gram_by_rank(visits[:3], P61) is None
    assert (gram_by_rank(visits, P61) == X @ X.T).all()
    rough = rough_gram_by_rank(visits, 10)
    assert np.abs(rough - X @ X.T).max() < 1e-6 * (X @ X.T).max()


@pytest.mark.parametrize(("epochs", "succeeds"), [(1, False), (3, True)])
def test_batches_give_it_by_least_squares_long_before_the_equations_are_enough(epochs, succeeds):
    """d = 6, h = 4: more than 2.5 epochs; by plain solving it takes 7."""
    X, visits = training(24, 6, 4, epochs, 6)
    found = solve_low_rank(unscaled(visits), 24, 6, stream(1), starts=3 if succeeds else 1)
    gram = X @ X.T * 4.0**-BITS
    error = np.linalg.norm(found.gram - gram) / np.linalg.norm(gram)
    # One epoch has fewer equations than unknowns: they are solved, by other rows.
    assert found.fits
    assert (error < 1e-9) == succeeds
    assert error > 0.05 or succeeds


def test_the_derivative_is_that_of_the_residuals():
    from tests.audit.attacks.low_rank import _System

    _, visits = training(24, 6, 4, 2, 6)
    system, rng = _System(unscaled(visits), 24, 6), stream(2)
    at, along = rng.normal(size=(2, system.unknowns))
    change = (system.residual(at + 1e-6 * along) - system.residual(at - 1e-6 * along)) / 2e-6
    assert np.allclose(system.jacobian(at) @ along, change, rtol=1e-6, atol=1e-6)


def test_known_rows_take_the_rotation_away_and_one_too_few_do_not():
    X, _ = training(24, 6, 4, 1, 6)
    known = np.arange(6)
    found = rows_from_known((X @ X.T).astype(float), known, X[known])
    assert np.allclose(found, X, atol=1e-5)
    fewer = rows_from_known((X @ X.T).astype(float), known[:5], X[known[:5]])
    assert np.abs(fewer[6:] - X[6:]).max() > 1


def test_independent_columns_come_out_of_their_gram_matrix_and_mixed_ones_do_not():
    columns = stream(3).random((400, 6)) ** 2
    guesses = independent_columns(columns @ columns.T, stream())
    assert best_matches(guesses, columns).min() > 0.96
    normal = stream(4).normal(size=(400, 6))  # of which every rotation looks alike
    assert best_matches(independent_columns(normal @ normal.T, stream()), normal).min() < 0.9
