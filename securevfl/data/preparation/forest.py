"""Decision trees of one party on its own columns; the leaf of a row becomes further columns.

scikit-learn grows the trees. They are stored as plain numbers, which need no scikit-learn and are
read without running code. A row goes left if its float32 value is at most the threshold, as in
scikit-learn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass as checked

from securevfl.errors import DataError, needs
from securevfl.reading import STORED

_LEAST_ROWS = (
    20  # of a leaf, in tables of 400 rows or more; it keeps leaves from naming single rows
)


@checked(frozen=True, config=STORED)
class Tree:
    """One decision tree: column, threshold and children of each node; child -1 marks a leaf."""

    column: Annotated[tuple[int, ...], Field(min_length=3)]
    threshold: tuple[float, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]

    @model_validator(mode="after")
    def _ends(self) -> Self:
        size = len(self.column)
        if {len(self.threshold), len(self.left), len(self.right)} != {size}:
            raise ValueError("the lists of a tree have different lengths")
        for node, children in enumerate(zip(self.left, self.right, strict=True)):
            if children != (-1, -1) and not all(node < child < size for child in children):
                raise ValueError(f"node {node} of a tree has the children {children}")
        return self

    @property
    def leaves(self) -> tuple[int, ...]:
        """Numbers of the nodes that are leaves."""
        return tuple(node for node, child in enumerate(self.left) if child < 0)

    def apply(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Membership of each row in each leaf, (m, leaves), one 1 a row."""
        column, threshold = np.array(self.column), np.array(self.threshold)
        left, right = np.array(self.left), np.array(self.right)
        node = np.zeros(len(rows), np.intp)
        while (inner := np.flatnonzero(left[node] >= 0)).size:
            at = node[inner]
            low = rows[inner, column[at]] <= threshold[at]
            node[inner] = np.where(low, left[at], right[at])
        member: NDArray[np.float32] = (node[:, None] == np.array(self.leaves)).astype(np.float32)
        return member


@dataclass(frozen=True)
class Forest:
    """Decision trees of one party, each with at least two leaves; possibly none."""

    trees: tuple[Tree, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the leaf columns, such as ``"tree 0 leaf 1"``."""
        return tuple(
            f"tree {t} leaf {k}" for t, one in enumerate(self.trees) for k in range(len(one.leaves))
        )

    def apply(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Rows (m, d), encoded and scaled, followed by their leaf columns, which are 0 or 1."""
        if not self.trees:
            return rows
        return np.ascontiguousarray(np.hstack([rows, *(one.apply(rows) for one in self.trees)]))


def grow(
    rows: NDArray[np.float32], trees: int, depth: int, seed: int, labels: np.ndarray | None = None
) -> Forest:
    """Grow trees on a party's encoded training rows; drop trees without a split.

    Parameters
    ----------
    rows : ndarray of float32, (M, d)
        Encoded training rows.
    trees : int
        Number of trees, 1 or more; for C > 2 classes each boosting stage has C trees, and there is
        at least one stage.
    depth : int
        Maximum depth of a tree, 1 to 8.
    seed : int
        Seed of the trees, 0 or more.
    labels : ndarray, (M,), optional
        Labels for gradient boosting (Friedman 2001): integer classes or float targets. Without
        labels, random trees are grown (Moosmann, Triggs, Jurie 2006).

    Raises
    ------
    DataError
        If a number is out of range.
    MissingPackageError
        Without scikit-learn.
    """
    needs("trees", "sklearn", "sklearn")
    from sklearn.ensemble import (
        GradientBoostingClassifier,
        GradientBoostingRegressor,
        RandomTreesEmbedding,
    )

    whole = all(isinstance(number, int | np.integer) for number in (trees, depth))
    if not whole or trees < 1 or not 1 <= depth <= 8:
        raise DataError(f"trees={trees}, tree_depth={depth}: use 1 or more, and a depth of 1 to 8.")
    shape: dict[str, int] = {
        "max_depth": depth,
        "min_samples_leaf": max(1, min(_LEAST_ROWS, len(rows) // _LEAST_ROWS)),
        "random_state": seed % 2**32,
    }
    if labels is None:
        grown = RandomTreesEmbedding(trees, **shape).fit(rows).estimators_
    elif labels.dtype.kind == "f":
        grown = GradientBoostingRegressor(n_estimators=trees, **shape).fit(rows, labels).estimators_
    else:
        count = len(np.unique(labels))
        stages = max(1, trees // (count if count > 2 else 1))
        model = GradientBoostingClassifier(n_estimators=stages, **shape)
        grown = model.fit(rows, labels).estimators_
    found = [one.tree_ for one in np.ravel(grown)]
    return Forest(tuple(_numbers(tree) for tree in found if tree.node_count > 1))


def _numbers(tree: Any) -> Tree:
    """A scikit-learn tree's columns, thresholds and children as a `Tree`."""
    parts = tree.feature, tree.threshold, tree.children_left, tree.children_right
    return Tree(*(tuple(part.tolist()) for part in parts))
