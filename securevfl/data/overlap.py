"""Few aligned rows: rows that parties hold beyond those they share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from securevfl.data.base.partition import shuffled
from securevfl.errors import DataError

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

Rest = Literal["dealt", "kept"]


def limit_overlap(
    data: VerticalDataset,
    aligned: int,
    *,
    rest: Rest = "dealt",
    local: int | None = None,
    seed: int = 0,
) -> VerticalDataset:
    """Data set with `aligned` training rows; the others become unaligned rows of single parties.

    Parameters
    ----------
    data : VerticalDataset
        Data set whose training rows are all aligned.
    aligned : int
        Number of rows, drawn at random, that stay aligned and labelled; 1 to M.
    rest : {"dealt", "kept"}
        "dealt": each other row goes to a single party, which holds its own columns of it, in equal
        parts (DVFL, section "Learning from a Limited Intersection"). "kept": each party holds its
        columns of all other rows, and nobody knows which of them belong together (VFLHLP).
    local : int, optional
        Maximum number of the other rows for each party; all by default.
    seed : int
        Seed of the choice, 0 or more.

    Returns
    -------
    VerticalDataset
        Data set with unaligned rows in ``alone``, and labels of party 0's in ``alone_labels``. Test
        rows, encoding and scaling are unchanged.

    Raises
    ------
    DataError
        For a number of rows out of range, an unknown `rest`, or a set with unaligned rows.
    """
    asked = f"data set {data.name!r}: {aligned} aligned rows"
    if data.alone:
        raise DataError(f"{asked}: its parties hold rows alone already; start from the whole set.")
    if rest not in get_args(Rest):
        raise DataError(f"{asked}: rest={rest!r} does not exist; use dealt or kept.")
    if not isinstance(aligned, int | np.integer) or not 1 <= aligned <= data.rows:
        raise DataError(f"{asked}: there are {data.rows} training rows; use 1 to {data.rows}.")
    if local is not None and (not isinstance(local, int | np.integer) or local < 0):
        raise DataError(f"{asked}: local={local} is below 0 or not whole; give a number of rows.")
    order = shuffled(data.rows, seed, "overlap")
    chosen, others = np.sort(order[:aligned]), order[aligned:]
    if rest == "dealt":
        parts = np.array_split(others, data.parties)
    else:
        parts = [others[shuffled(len(others), seed, f"overlap {n}")] for n in range(data.parties)]
    parts = [part[:local] for part in parts]
    sizes = ", ".join(str(len(part)) for part in parts)
    limited = data.subset(chosen)
    note = f"{aligned} of {data.rows} training rows are aligned; alone the parties hold {sizes}"
    return replace(
        limited,
        alone=tuple(array[part] for array, part in zip(data.train, parts, strict=True)),
        alone_labels=data.train_labels[parts[0]],
        about=replace(data.about, notes=(*data.about.notes, f"{note} ({rest}, seed {seed})")),
    )
