"""Columns by their squares: spans of several views, directions, and what is left of the truth."""

import numpy as np
import pytest

from securevfl.audit.attacks.squares import (
    MISFIT,
    Span,
    View,
    centred_basis,
    columns_of_span,
    elements_found,
    judge,
    likenesses,
    side_by_side,
    span_of_views,
)
from securevfl.models.polynomial_network import expand

M, D, R = 150, 6, 13


def stream(seed: int = 3) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


def columns(seed: int = 1) -> np.ndarray:
    draw = stream(seed)
    return np.clip(draw.random((M, D)) ** 2 + 0.2 * draw.random((M, 1)), 0, None)


def view(X: np.ndarray, rows: np.ndarray, seed: int, width: int = 20, degree: int = 2) -> View:
    P = expand(X[rows], degree)
    return View(rows, P @ stream(seed).normal(size=(P.shape[1], width)))


def views(count: int, width: int = 20, rows: int = 100) -> list[View]:
    X = columns()
    return [view(X, stream(s).permutation(M)[:rows], s, width) for s in range(count)]


def test_the_rank_is_read_off_a_gap_and_refused_without_one():
    X = columns()
    basis = centred_basis(view(X, np.arange(M), 5).values)
    assert basis is not None
    assert basis.shape == (M, R - 1)
    assert centred_basis(view(X, np.arange(M), 5, width=R - 2).values) is None
    assert centred_basis(stream().normal(size=(M, 20))) is None


def test_float32_sums_have_the_same_rank():
    values = view(columns(), np.arange(M), 5).values.astype(np.float32)
    basis = centred_basis(values)
    assert basis is not None
    assert basis.shape[1] == R - 1


@pytest.mark.parametrize(("count", "width", "rows"), [(1, 20, 100), (4, 20, 148), (2, 8, None)])
def test_views_determine_the_space(count, width, rows):
    span = span_of_views(views(count, width))
    assert span is not None
    assert span.rank == R
    if rows is not None:
        assert len(span.rows) == rows
    P = expand(columns()[span.rows], 2)
    P = P - P.mean(axis=0)
    rest = P - span.basis @ (span.basis.T @ P)
    assert np.abs(rest).max() < 1e-9


def test_views_without_a_rare_value_each_have_all_of_them_together():
    """Two rows with values of their own, and no view of both: all have a dimension less."""
    X = columns()
    X = np.concatenate([X, np.zeros((M, 2))], axis=1)
    X[0, D], X[1, D + 1] = 1, 1
    parts = [stream(s).permutation(np.arange(2, M))[:90] for s in range(5)]
    seen = [view(X, np.append(rows, s % 2), s) for s, rows in enumerate(parts)]
    assert {1 + centred_basis(v.values).shape[1] for v in seen} == {R + 1}
    span = span_of_views(seen)
    assert span is not None
    # Who has a value alone is left out: its own direction would pass for a column.
    assert (span.rank, span.views) == (R, 5)
    assert not {0, 1} & set(span.rows)
    P = expand(X[span.rows], 2)
    P = P - P.mean(axis=0)
    assert np.abs(P - span.basis @ (span.basis.T @ P)).max() < 1e-9


def test_too_few_sums_determine_nothing():
    assert span_of_views(views(1, width=8)) is None


def test_sums_lie_side_by_side_on_their_common_rows():
    a = View(np.array([4, 1, 2]), np.array([[4.0], [1.0], [2.0]]))
    b = View(np.array([2, 9, 4]), np.array([[20.0], [90.0], [40.0]]))
    rows, values = side_by_side([a, b])
    assert rows.tolist() == [2, 4]
    assert values.tolist() == [[2.0, 20.0], [4.0, 40.0]]


def test_columns_are_found_with_nothing_known():
    span = span_of_views(views(4))
    assert span is not None
    guesses = columns_of_span(span.basis, stream(), starts=60).within(MISFIT)
    found = judge(guesses, span, columns()[span.rows], stream(), "")
    assert (found.success, found.chance, found.samples) == (1.0, 0.0, D)
    assert "6 above 0.999" in found.note
    assert "rank 13 by 4 views of 148 rows" in found.note
    assert elements_found(guesses, columns()[span.rows]) == 1


def test_a_random_space_of_equal_rank_has_none():
    basis = centred_basis(stream().normal(size=(M, R - 1)) @ stream(4).normal(size=(R - 1, 20)))
    assert basis is not None
    assert basis.shape[1] == R - 1
    found = columns_of_span(basis, stream(), starts=30)
    assert found.misfits.min() > 0.3
    assert found.within(MISFIT).shape == (M, 0)


def test_degree_one_has_no_squares_but_of_columns_of_two_values():
    X = columns()
    X[:, 2] = X[:, 2] > np.median(X[:, 2])
    span = span_of_views([view(X, np.arange(M), 1, degree=1)])
    assert span is not None
    assert span.rank == D + 1
    guesses = columns_of_span(span.basis, stream(), starts=40).within(MISFIT)
    assert (likenesses(guesses, X) > 0.999).tolist() == [False, False, True, False, False, False]


def test_a_direction_counts_as_the_column_whatever_its_sign_and_scale():
    X = columns()
    assert likenesses(-3 * X[:, :1] + 2, X)[0] == pytest.approx(1)
    assert elements_found(5 - 2 * X, X) == 1
    assert elements_found(np.zeros((M, 0)), X) == 0
    assert likenesses(np.zeros((M, 0)), X).tolist() == [0.0] * D


def test_columns_that_never_vary_are_not_counted():
    X = columns()
    X[:, 0] = 0.5
    span = Span(np.arange(M), np.linalg.qr(X - X.mean(axis=0))[0][:, :5], 1)
    assert judge(X[:, 1:], span, X, stream(), "").samples == D - 1
