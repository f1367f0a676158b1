"""Rows from inner products, by other rows of the same population."""

import numpy as np

from securevfl.audit.attacks.other_rows import rows_by_others


def stream(seed: int = 3) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


def population(rows: int, seed: int, other: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Two classes, dependent columns of several scales, one with a long tail."""
    draw = stream(seed)
    labels = draw.integers(2, size=rows)
    hidden = draw.normal(size=(rows, 5)) * np.array([3.0, 1.5, 0.8, 0.4, 0.2])
    hidden[:, 0] += 3 * labels
    hidden[:, 1] = np.exp(hidden[:, 1] / 2)
    return hidden @ np.linalg.qr(stream(other).normal(size=(5, 5)))[0], labels


def part_explained(guess: np.ndarray, truth: np.ndarray) -> float:
    errors = ((guess - truth) ** 2).sum()
    return float(1 - errors / ((truth - truth.mean(axis=0)) ** 2).sum())


def test_rows_follow_from_inner_products_and_other_rows():
    X, y = population(200, 1)
    others, labels = population(150, 2)
    guess = rows_by_others(X @ X.T, y, others, labels, stream())
    assert guess.shape == X.shape
    assert part_explained(guess, X) > 0.9


def test_rows_of_another_population_are_no_help():
    X, y = population(200, 1)
    others, labels = population(150, 2, other=9)
    assert part_explained(rows_by_others(X @ X.T, y, others, labels, stream()), X) < 0.7


def test_inner_products_of_other_rows_are_no_help():
    X, y = population(200, 1)
    wrong = population(200, 5)[0]
    others, labels = population(150, 2)
    assert part_explained(rows_by_others(wrong @ wrong.T, y, others, labels, stream()), X) < 0.6
