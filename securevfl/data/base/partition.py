"""Partition of columns among parties, and of rows into training and test rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from securevfl.errors import DataError

_T = TypeVar("_T")
Positions = tuple[tuple[int, ...], ...]
Strips = Literal["rows", "columns"]

#: Number of parties if none was asked for; one per column where there are fewer columns.
DEFAULT_PARTIES = 8


def divide_columns(
    names: Sequence[str],
    parties: int | None = None,
    owners: Sequence[Sequence[str]] | None = None,
) -> tuple[Positions, str]:
    """Positions of each party's columns, by names or evenly in order; and a sentence for reports.

    The number of parties is `parties`, that of `owners`, or at most 8; owners together name every
    column once. DataError if both are given and differ, a party would own no column, a name
    is unknown, or a column has no owner or two.
    """
    if owners is not None:
        if parties not in (None, len(owners)):
            raise DataError(
                f"parties={parties} and owners= for {len(owners)} parties; give one of them."
            )
        return owned_columns(names, owners), "owners named by the user"
    count = min(DEFAULT_PARTIES, len(names)) if parties is None else parties
    rule = f"source columns divided among {count} parties by numpy.array_split"
    return partition_columns(len(names), count), rule


def partition_columns(count: int, parties: int) -> Positions:
    """Divide columns among parties in order, as evenly as `numpy.array_split` does.

    The first parties get one column more if the count does not divide evenly. DataError if a party
    would own no column.

    Examples
    --------
    >>> partition_columns(5, 2)
    ((0, 1, 2), (3, 4))
    """
    if isinstance(parties, bool) or not isinstance(parties, (int, np.integer)) or parties < 1:
        raise DataError(f"parties={parties!r}; at least 1 party is needed, as a whole number.")
    if parties > count:
        raise DataError(
            f"{count} columns cannot be divided among {parties} parties: each party needs at "
            f"least one; use at most {count} parties."
        )
    return tuple(tuple(part.tolist()) for part in np.array_split(np.arange(count), parties))


def side_by_side(widths: Sequence[int]) -> Positions:
    """Positions of each party's columns where the parties' columns follow one another.

    Examples
    --------
    >>> side_by_side([2, 1])
    ((0, 1), (2,))
    """
    ends = np.cumsum(widths).tolist()
    return tuple(tuple(range(b - d, b)) for b, d in zip(ends, widths, strict=True))


def named_owners(
    owners: Sequence[_T] | Mapping[str, _T] | None, party_names: Sequence[str] | None
) -> tuple[Sequence[_T] | None, Sequence[str] | None]:
    """Columns of each party, and the parties' names: of a mapping its values and keys.

    Anything else comes back as given. DataError for a mapping and `party_names` together.
    """
    if not isinstance(owners, Mapping):
        return owners, party_names
    if party_names is not None:
        raise DataError(
            f"the parties are named {tuple(owners)} and, by party_names=, {tuple(party_names)}; "
            f"leave one of them out."
        )
    return tuple(owners.values()), tuple(map(str, owners))


def owned_columns(columns: Sequence[str], owners: Sequence[Sequence[str]]) -> Positions:
    """Positions of each party's columns, which together must be all columns, each once.

    DataError if a party is empty, a name is unknown, or a column has no owner or two.
    """
    place = {name: k for k, name in enumerate(columns)}
    if len(place) < len(columns):
        raise DataError(
            f"{len(columns)} columns share {len(place)} names, so owners cannot be named; "
            f"rename the columns first."
        )
    owner: dict[str, int] = {}
    for party, names in enumerate(owners):
        if isinstance(names, str) or not len(names):
            raise DataError(
                f"party {party} owns no columns: its list is {names!r}; "
                f"give each party a list of at least one column name."
            )
        for name in names:
            if name not in place:
                raise DataError(f"party {party} is said to own {name!r}, which is no column.")
            if name in owner:
                raise DataError(
                    f"column {name!r} is owned by parties {owner[name]} and {party}; "
                    f"a column has one owner."
                )
            owner[name] = party
    rest = [name for name in columns if name not in owner]
    if rest:
        raise DataError(
            f"{len(rest)} of {len(columns)} columns have no owner, the first is {rest[0]!r}; "
            f"name an owner, or drop them with drop=[...]."
        )
    return tuple(tuple(place[name] for name in names) for names in owners)


def strip_columns(shape: tuple[int, int, int], parties: int, strips: Strips) -> Positions:
    """Cut images (channels, height, width) into strips of whole pixel lines, one per party.

    The pixels are the source columns in C order. "rows" cuts from top to bottom, "columns" from
    left to right. Within a strip the pixels keep the order channels, height, width. DataError for
    other strips, and for more parties than lines.
    """
    pixels = np.arange(int(np.prod(shape))).reshape(shape)
    axis = _strip_axis(strips)
    lines = partition_columns(shape[axis], parties)
    return tuple(tuple(pixels.take(line, axis=axis).ravel().tolist()) for line in lines)


def divide_images(
    shape: tuple[int, int, int], parties: int | None, strips: Strips
) -> tuple[Positions, str]:
    """(column numbers of each party's strip, by `strip_columns`; a sentence for reports)."""
    count = min(DEFAULT_PARTIES, int(np.prod(shape))) if parties is None else parties
    rule = f"{count} image strips of pixel {strips}, numpy.array_split"
    return strip_columns(shape, count, strips), rule


def pixel_names(shape: tuple[int, int, int]) -> list[str]:
    """Names of the pixels of an image (channels, height, width) in C order.

    Examples
    --------
    >>> pixel_names((1, 1, 2)), pixel_names((3, 1, 1))
    (['pixel 0,0', 'pixel 0,1'], ['r 0,0', 'g 0,0', 'b 0,0'])
    """
    channels, height, width = shape
    return [
        f"{'pixel' if channels == 1 else 'rgb'[c]} {y},{x}"
        for c in range(channels)
        for y in range(height)
        for x in range(width)
    ]


def strip_shapes(
    shape: tuple[int, int, int], positions: Sequence[Sequence[int]]
) -> tuple[tuple[int, int, int], ...] | None:
    """(channels, height, width) of each party's part of an image.

    None unless every party owns one whole rectangle in C order.
    """
    pixels = np.arange(int(np.prod(shape))).reshape(shape)
    shapes = []
    for owned in positions:
        _, y, x = np.unravel_index([owned[0], owned[-1]], shape)
        part = pixels[:, y[0] : y[1] + 1, x[0] : x[1] + 1]
        if part.size != len(owned) or not np.array_equal(part.ravel(), owned):
            return None
        shapes.append((int(part.shape[0]), int(part.shape[1]), int(part.shape[2])))
    return tuple(shapes)


def split_random(
    count: int, test_fraction: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Training and test rows, int64 in random order: `test_fraction`, in (0, 1), of `count` rows.

    At least one row stays on each side. The same seed, 0 or more, gives the same split on every
    machine. DataError if the fraction or the seed is out of range, or a side would be empty.
    """
    return split_stratified(np.zeros(count, dtype=np.int64), test_fraction, seed)


def split_stratified(
    labels: np.ndarray, test_fraction: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Training and test rows, int64 in random order; the test has the same fraction of each class.

    Labels (rows,) may be of any type that can be sorted. Every class keeps at least one training
    row. The same seed, 0 or more, gives the same split on every machine. DataError if the fraction
    or the seed is out of range, or a side would be empty.
    """
    _check_fraction(test_fraction)
    _, codes = np.unique(labels, return_inverse=True)
    order = shuffled(len(codes), seed, "split")
    members = [order[codes[order] == k] for k in range(int(codes.max(initial=-1)) + 1)]
    sizes = np.array([len(rows) for rows in members], dtype=np.int64)
    held = _apportion(sizes, test_fraction)
    if held.sum() == 0 or held.sum() == len(codes):
        raise DataError(
            f"{len(codes)} rows in {len(members)} classes cannot be split with "
            f"test_fraction={test_fraction}: one side would be empty; give more rows or another "
            f"fraction."
        )
    # Both sides keep the random order of all rows: sorted by class they would make batches of one
    # class.
    test = np.zeros(len(codes), dtype=bool)
    for rows, many in zip(members, held, strict=True):
        test[rows[:many]] = True
    return order[~test[order]], order[test[order]]


def split_groups(
    groups: np.ndarray, labels: np.ndarray, test_fraction: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Training and test rows, with each group of rows, such as a person's, on one side.

    `groups` and `labels` have one value per row. Groups are stratified by the class of their first
    row. Training and test rows come in random order of
    groups, the rows of a group side by side. DataError if the fraction or the seed is out of range,
    or a side would be empty.
    """
    _, first, codes = np.unique(groups, return_index=True, return_inverse=True)
    train, test = split_stratified(labels[first], test_fraction, seed)
    by_group = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
    return (
        np.concatenate([by_group[g] for g in train]).astype(np.int64),
        np.concatenate([by_group[g] for g in test]).astype(np.int64),
    )


def shuffled(count: int, seed: int, purpose: str) -> NDArray[np.int64]:
    """The numbers 0 to count - 1, int64, in a random order fixed by `seed` and `purpose`.

    The order sorts the raw output of Philox, whose stream NumPy guarantees over its versions; it
    does not guarantee `Generator.permutation`. Each purpose has its own stream. DataError unless
    the seed is a whole number of 0 or more.
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise DataError(f"seed={seed!r}; a whole number of 0 or more is needed.")
    entropy = [int(seed), *purpose.encode()]
    philox = np.random.Philox(np.random.SeedSequence(entropy))
    return np.argsort(philox.random_raw(count), kind="stable").astype(np.int64)


def _strip_axis(strips: str) -> int:
    if strips not in ("rows", "columns"):
        raise DataError(f"strips={strips!r} does not exist; use rows, columns or pixels.")
    return 1 if strips == "rows" else 2


def _check_fraction(test_fraction: float) -> None:
    if not isinstance(test_fraction, (int, float)) or not 0.0 < test_fraction < 1.0:
        raise DataError(
            f"test_fraction={test_fraction!r} leaves one side without rows; "
            f"a number between 0 and 1 is needed, for example 0.25."
        )


def _apportion(sizes: NDArray[np.int64], fraction: float) -> NDArray[np.int64]:
    """Test rows of each class by largest remainders; at least one row of a class stays."""
    # Largest remainders (Hamilton): each class gets floor(n_k f), and what is left of round(M f)
    # goes to the largest fractional parts, so that the total is exact and no class is off by a row
    # or more.
    wanted = sizes * fraction
    held = np.floor(wanted).astype(np.int64)
    rest = round(float(sizes.sum()) * fraction) - int(held.sum())
    by_remainder = np.argsort(-(wanted - held), kind="stable")
    held[by_remainder[: max(0, rest)]] += 1
    kept: NDArray[np.int64] = np.minimum(held, sizes - 1)
    return kept
