"""Leaf columns: decision trees that each party grows on its own columns before training."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from securevfl.data.preparation.forest import grow
from securevfl.errors import DataError

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


def add_leaves(
    data: VerticalDataset,
    trees: int,
    *,
    depth: int = 3,
    labels_of: str | None = None,
    seed: int = 0,
) -> VerticalDataset:
    """Add columns to each party that mark the leaf of its own trees in which a row falls.

    Each party grows trees on its own training rows; its other columns stay. Random trees use no
    label; only the party `labels_of` boosts trees on the labels. Parties exchange no message, so no
    split combines two parties' columns, unlike in SecureBoost. Plain leaf columns reveal a rough
    value of each column that was split on; boosted ones also reveal information on the label.

    Parameters
    ----------
    data : VerticalDataset
        Data set with its final parties; the result cannot be divided again.
    trees : int
        Number of trees of each party, 1 or more. For C > 2 classes each boosting stage has C trees.
    depth : int
        Maximum depth of a tree, 1 to 8.
    labels_of : str, optional
        Name of the party that has the labels, and whose trees are boosted on them.
    seed : int
        Seed of the trees, 0 or more.

    Raises
    ------
    DataError
        If the party is unknown, the data set already has trees, or a number is out of range.
    MissingPackageError
        Without scikit-learn.
    """
    asked = f"data set {data.name!r}: trees={trees}"
    if data.has_leaves:
        raise DataError(f"{asked}: it has leaf columns already; start from the set without.")
    if labels_of is not None and labels_of not in data.party_names:
        raise DataError(
            f"{asked}: tree_labels={labels_of!r} is no party; the parties are "
            f"{', '.join(data.party_names)}."
        )
    fitted = []
    for n, part in enumerate(data.transform.parties):
        own = data.party_names[n] == labels_of
        rows = data.train[n]
        if data.alone and not own:
            rows = np.concatenate([rows, data.alone[n]])
        forest = grow(rows, trees, depth, seed, data.train_labels if own else None)
        fitted.append(replace(part, forest=forest.trees))
    forests = [part.leaves for part in fitted]

    def widened(parts: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        return tuple(one.apply(X) for one, X in zip(forests, parts, strict=True))

    how = "random trees, which look at no label"
    if labels_of is not None:
        how += f"; those of {labels_of!r} are boosted on the labels, which it has"
    note = f"{sum(len(one.names) for one in forests)} leaf columns of each party's own trees: {how}"
    return replace(
        data,
        train=widened(data.train),
        test=widened(data.test),
        alone=widened(data.alone) if data.alone else (),
        columns=tuple(part.encoded for part in fitted),
        transform=replace(data.transform, parties=tuple(fitted)),
        about=replace(data.about, notes=(*data.about.notes, note)),
        image_shape=None,  # leaves are no pixels
        strips=None,
    )
