"""Trees as numbers: leaves are those of scikit-learn, and a stranger's file is compared first."""

import json

import numpy as np
import pytest
from pydantic import TypeAdapter
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomTreesEmbedding,
)

from securevfl.data.preparation.forest import Forest, Tree, grow
from securevfl.errors import DataError

ROWS = np.random.default_rng(0).random((400, 3)).astype(np.float32)
CLASSES = (ROWS[:, 0] * 3).astype(np.int64)


@pytest.mark.parametrize("labels", [None, CLASSES, CLASSES > 1, ROWS[:, 1]])
def test_leaves_are_those_of_scikit_learn(labels):
    labels = labels if labels is None or labels.dtype != bool else labels.astype(np.int64)
    forest = grow(ROWS[:300], 6, 3, 7, None if labels is None else labels[:300])
    membership = forest.apply(ROWS)[:, 3:]
    assert membership.sum(axis=1).tolist() == [len(forest.trees)] * 400
    shape = {"max_depth": 3, "min_samples_leaf": 15, "random_state": 7}
    if labels is None:
        model = RandomTreesEmbedding(6, **shape).fit(ROWS[:300])
        leaves = model.apply(ROWS)
    elif labels.dtype.kind == "f":
        leaves = GradientBoostingRegressor(n_estimators=6, **shape)
        leaves = leaves.fit(ROWS[:300], labels[:300]).apply(ROWS)
    else:  # of three classes two stages of three trees
        stages = 2 if labels.max() == 2 else 6
        model = GradientBoostingClassifier(n_estimators=stages, **shape)
        leaves = model.fit(ROWS[:300], labels[:300]).apply(ROWS).reshape(400, -1)
    found = [sorted(set(leaves[:300, t])) for t in range(6)]
    split = [leaves[:, [t]] == found[t] for t in range(6) if len(found[t]) > 1]
    own = np.hstack(split)
    assert len(split) >= 5
    assert np.array_equal(membership, own)


def test_a_forest_survives_its_file():
    forest = grow(ROWS, 4, 2, 0, CLASSES)
    stored = TypeAdapter(tuple[Tree, ...])
    again = Forest(stored.validate_json(stored.dump_json(forest.trees)))
    assert again == forest
    assert np.array_equal(again.apply(ROWS), forest.apply(ROWS))


def test_a_constant_column_has_no_tree():
    assert grow(np.zeros((40, 1), np.float32), 3, 3, 0).trees == ()
    assert Forest().apply(ROWS) is ROWS


@pytest.mark.parametrize("numbers", [(0, 3), (5, 0), (5, 9)])
def test_numbers_out_of_range_are_refused(numbers):
    with pytest.raises(DataError, match="use 1 or more, and a depth of 1 to 8"):
        grow(ROWS, *numbers, 0)


@pytest.mark.parametrize(
    "change",
    [{"left": [0, -1, -1]}, {"right": [9, -1, -1]}, {"left": [-1, -1, -1]}, {"threshold": [0.5]}],
)
def test_a_tree_that_has_no_end_is_refused(change):
    tree = {"column": [0, -2, -2], "threshold": [0.5, -2.0, -2.0]}
    tree |= {"left": [1, -1, -1], "right": [2, -1, -1]}
    stored = TypeAdapter(Tree)
    stored.validate_json(json.dumps(tree))
    with pytest.raises(ValueError, match=r"children|lengths"):
        stored.validate_json(json.dumps(tree | change))
