"""Theorem 1 and 2 of docs/sums.md at small sizes, by a second table and by exact counting."""

import itertools

import numpy as np
import pytest

from securevfl.audit.equal_sums import equal_sums

CASES = [
    {"optimizer": optimizer, "degree": degree, "width": width, "epochs": epochs}
    for optimizer, degree in itertools.product(("sgd", "adam"), (1, 2))
    for width, epochs in ((1, 4), (2, 2), (4, 1))
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_another_table_gives_the_same_sums_below_the_unknowns(case):
    found = equal_sums(**case)
    assert found.equal, (found.distance, found.least_change)
    assert found.free >= found.promised > 0


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_no_other_table_is_near_where_equations_are_many(optimizer):
    """With E h = 3 d the fibre is a point, or what an exact symmetry of the method leaves."""
    found = equal_sums(columns=2, width=3, epochs=2, degree=2, optimizer=optimizer)
    assert found.promised < 0
    assert found.free == 0
    assert not found.equal


@pytest.mark.parametrize(
    ("p", "columns", "equations"), [(3, 4, 2), (3, 4, 3), (5, 3, 2), (2, 6, 4)]
)
def test_given_weights_a_row_has_as_many_preimages_as_the_rank_leaves(p, columns, equations):
    """Theorem 2, counted over F_p: each view of a row has p^(w - rank A) rows."""
    rng = np.random.default_rng(p * columns + equations)
    every = np.array([*itertools.product(range(p), repeat=columns)])
    for _ in range(20):
        A = rng.integers(0, p, (columns, equations))
        views, counts = np.unique(every @ A % p, axis=0, return_counts=True)
        rank = columns - round(np.log(counts[0]) / np.log(p))
        assert set(counts.tolist()) == {p ** (columns - rank)}
        assert len(views) == p**rank
        assert p ** (columns - rank) >= p ** (columns - equations)
