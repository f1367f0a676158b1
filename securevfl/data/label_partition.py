"""Partition of labels among several label owners."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from securevfl.data.base.partition import shuffled
from securevfl.errors import DataError

_TWO = ((0, 1), (2, 3), (4, 5), (6, 7))
_ALL = tuple(range(10))

# The papers' lists of classes, one for each label owner.
CLASS_LISTS: dict[str, tuple[tuple[int, ...], ...]] = {
    # CVFL, section 5.4.2: three classes each, any two owners have at most one in common. The paper
    # names the first two lists; going on with 4, 5, 6 and 6, 7, 8 would leave class 9 to nobody.
    "cvfl-mnist": ((0, 1, 2), (2, 3, 4), (5, 6, 7), (7, 8, 9)),
    # CVFL, section 5.4.2: classes 0 to 5 are everybody's, and each has one of its own.
    "cvfl-cifar10": tuple((0, 1, 2, 3, 4, 5, own) for own in (6, 7, 8, 9)),
    # Multi-VFL, Table 3: the last n of five label owners have two classes each.
    **{f"{n}niid": (_ALL,) * (5 - n) + _TWO[:n] for n in (1, 2, 3, 4)},
}


def told_by_rows(rule: str) -> str:
    """Phrase for what label owners' public row numbers reveal of labels; "" for nothing."""
    if rule == "equal":
        return ""
    return (
        f"with label_partition = {rule} the rows of an owner follow from their classes, and all "
        "parties are told these rows: they tell of labels, and no output declares that"
    )


def partition_labels(
    rule: str,
    labels: np.ndarray,
    owners: int,
    *,
    seed: int,
    samples: int | None = None,
) -> tuple[NDArray[np.int64], ...]:
    """Divide the labels of the training rows among several owners; each label has one owner.

    Parameters
    ----------
    rule : str
        ``"equal"``: at random, in equal parts. ``"dirichlet:a"``: of each class, owner l gets the
        part p_l, (p_1, ..., p_L) drawn from Dirichlet(a, ..., a); the smaller a, the more uneven.
        ``"classes:0,1,2/2,3,4"``: owner l gets labels of the classes in the l-th list only; a class
        in several lists is divided among those owners in equal parts. Or a name in `CLASS_LISTS`.
    labels : ndarray, (rows,)
        Class numbers; real targets for "equal" only.
    owners : int
        Label owners L, at least 1.
    seed : int
        Seed of the assignment of rows, 0 or more.
    samples : int, optional
        Number of labels that each owner keeps, drawn from its own: equally by class if classes are
        listed, at random otherwise. All by default.

    Returns
    -------
    tuple of ndarray of int64
        Row numbers of each owner, ascending; no row is in two of them.

    Raises
    ------
    DataError
        If the rule is unknown, the number of lists is not that of owners, an owner has no labels,
        or `samples` exceeds its labels.

    Examples
    --------
    >>> parts = partition_labels("classes:0/0,1", np.array([0, 1, 1, 0]), 2, seed=0)
    >>> [len(rows) for rows in parts]
    [1, 3]
    """
    if isinstance(owners, bool) or not isinstance(owners, (int, np.integer)) or owners < 1:
        raise DataError(f"label owners={owners!r}; at least 1 is needed, as a whole number.")
    name, _, argument = rule.partition(":")
    if name == "dirichlet":
        found = _partition_by_dirichlet(labels, owners, _concentration(rule, argument), seed)
    elif name == "equal" and not argument:
        order = shuffled(len(labels), seed, "labels")
        found = list(np.array_split(order, owners))
    else:
        lists = _class_lists(rule, owners)
        if not np.issubdtype(np.asarray(labels).dtype, np.integer):
            raise DataError(f"label partition {rule!r} needs classes, and the labels are real.")
        found = _partition_by_class(rule, labels, lists, seed, samples)
    if samples is not None:
        found = [_first_samples(rule, rows, owner, samples) for owner, rows in enumerate(found)]
    sets = tuple(np.sort(rows).astype(np.int64) for rows in found)
    check_label_sets(sets, len(labels))
    return sets


def check_label_sets(sets: Sequence[NDArray[np.int64]], rows: int) -> None:
    """Raise DataError for label owners without labels, or with rows out of range or in common.

    The message names them. `sets` has row numbers below `rows`, by owner.
    """
    owner = np.full(rows, -1, np.int64)
    for number, own in enumerate(sets):
        if not len(own):
            raise DataError(
                f"label owner {number} of {len(sets)} has no labels; give it some, or use fewer "
                f"label owners."
            )
        if own.min() < 0 or own.max() >= rows:
            raise DataError(
                f"label owner {number} has labels of rows {own.min()} to {own.max()}; rows 0 to "
                f"{rows - 1} exist."
            )
        taken = own[owner[own] >= 0]
        if len(taken) or len(np.unique(own)) < len(own):
            other = owner[taken[0]] if len(taken) else number
            raise DataError(
                f"label owners {other} and {number} both have the label of the same row; give "
                f"every row to one of them."
            )
        owner[own] = number


def unheld_classes(
    labels: np.ndarray, sets: Sequence[NDArray[np.int64]], test_labels: np.ndarray
) -> tuple[int, ...]:
    """Class numbers of test rows that no owner's `sets` of rows have: no model learns them."""
    held = np.unique(labels[np.concatenate(list(sets))])
    return tuple(int(k) for k in np.setdiff1d(np.unique(test_labels), held))


def _concentration(rule: str, argument: str) -> float:
    try:
        value = float(argument)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise DataError(
            f"label partition {rule!r}: Dirichlet needs a positive number, as in 'dirichlet:0.5'."
        )
    return value


def _class_lists(rule: str, owners: int) -> tuple[tuple[int, ...], ...]:
    name, _, argument = rule.partition(":")
    if rule in CLASS_LISTS:
        lists = CLASS_LISTS[rule]
    elif name == "classes" and argument:
        try:
            lists = tuple(tuple(int(k) for k in part.split(",")) for part in argument.split("/"))
        except ValueError:
            raise DataError(
                f"label partition {rule!r}: write class numbers, as in 'classes:0,1,2/2,3,4'."
            ) from None
    else:
        raise DataError(
            f"label partition {rule!r} does not exist; use equal, dirichlet:A, "
            f"classes:0,1/2,3 or one of {', '.join(CLASS_LISTS)}."
        )
    if len(lists) != owners:
        raise DataError(
            f"label partition {rule!r} is for {len(lists)} label owners, and there are {owners}."
        )
    return lists


def _partition_by_dirichlet(
    labels: np.ndarray, owners: int, concentration: float, seed: int
) -> list[NDArray[np.int64]]:
    stream = np.random.Generator(
        np.random.Philox(np.random.SeedSequence([int(seed), *b"dirichlet"]))
    )
    order = shuffled(len(labels), seed, "labels")
    parts: list[list[NDArray[np.int64]]] = [[] for _ in range(owners)]
    for k in np.unique(labels):
        rows = order[labels[order] == k]
        share = stream.dirichlet(np.full(owners, concentration))
        cuts = np.round(np.cumsum(share)[:-1] * len(rows)).astype(np.int64)
        for part, own in zip(parts, np.split(rows, cuts), strict=True):
            part.append(own)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    rows_of = [np.concatenate(part) for part in parts]
    return [rows[np.argsort(place[rows])] for rows in rows_of]  # no class before another


def _partition_by_class(
    rule: str,
    labels: np.ndarray,
    lists: Sequence[Sequence[int]],
    seed: int,
    samples: int | None,
) -> list[NDArray[np.int64]]:
    """Rows of each owner's classes: `samples`, or all in equal parts; DataError if too few."""
    order = shuffled(len(labels), seed, "labels")
    parts: list[list[NDArray[np.int64]]] = [[] for _ in lists]
    for k in sorted({k for own in lists for k in own}):
        rows = order[labels[order] == k]
        holders = [owner for owner, own in enumerate(lists) if k in own]
        if samples is None:
            rows_of = np.array_split(rows, len(holders))
        else:
            wanted = [_quota(samples, lists[owner], k) for owner in holders]
            if sum(wanted) > len(rows):
                raise DataError(
                    f"label partition {rule!r} with {samples} samples wants {sum(wanted)} labels "
                    f"of class {k}, and there are {len(rows)}; use fewer samples."
                )
            rows_of = np.split(rows, np.cumsum(wanted))[:-1]
        for owner, own_rows in zip(holders, rows_of, strict=True):
            parts[owner].append(own_rows)
    return [np.concatenate(part) if part else np.empty(0, np.int64) for part in parts]


def _quota(samples: int, classes: Sequence[int], k: int) -> int:
    """Samples of class `k`: an equal share, one more for the first classes if some remain."""
    each, rest = divmod(samples, len(classes))
    return each + (sorted(classes).index(k) < rest)


def _first_samples(
    rule: str, rows: NDArray[np.int64], owner: int, samples: int
) -> NDArray[np.int64]:
    if samples < 1 or samples > len(rows):
        raise DataError(
            f"label partition {rule!r} gives label owner {owner} {len(rows)} labels, and "
            f"{samples} samples are wanted; use 1 to {len(rows)}."
        )
    return rows[:samples]
