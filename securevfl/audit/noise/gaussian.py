"""Exact tests that residuals are independent standard normal values.

Every statistic has a known distribution where they are: sums of squares are chi-square, sums are
normal, and the product of one vector with another that is independent of it, over the norm of the
other, is standard normal whatever the other is. So each p value is exact but for the rounding of
what is sent, which changes a variance by less than 1e-8. Bonferroni within each family of tests;
the families share the level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from securevfl.audit.noise.releases import NoisyRelease
from securevfl.audit.statistical import Outcome

#: Families that share the level of a battery.
FAMILIES = ("moments", "exact values", "distribution", "entries", "rows", "messages", "data",
            "other run")  # fmt: skip
_MOST_ROWS = 8000  # compared in pairs; evenly chosen of more
_CHUNK = 1024
_NEIGHBOURS = 4  # by norm, that are compared as sets
_NEAR = 2.0**-12  # of sigma: an entry this close to its exact value counts as not noised

_Found = Iterator[tuple[float, str]]  # smallest p value of several tests, times their number


def battery(
    releases: Sequence[NoisyRelease], other: Sequence[NoisyRelease], level: float
) -> list[Outcome]:
    """All tests of the releases of a run.

    Parameters
    ----------
    releases : sequence of NoisyRelease
    other : sequence of NoisyRelease
        Of another run with the same seeds and data.
    level : float
        Probability that any of them rejects noise that is as claimed.

    Returns
    -------
    list of Outcome
        One of each family, at its share of the level.
    """
    families: dict[str, _Found] = {
        "moments": _moments(releases),
        "exact values": _exact_values(releases),
        "distribution": _distribution(releases),
        "entries": _entries(releases),
        "rows": _rows(releases),
        "messages": _messages(releases),
        "data": _data(releases),
        "other run": _repeated(releases, other),
    }
    return [_outcome(name, found, level / len(FAMILIES)) for name, found in families.items()]


def _outcome(name: str, found: _Found, level: float) -> Outcome:
    """Bonferroni over what a family found; each entry already counts its own tests."""
    tested = list(found)
    p_value, detail = min(tested, default=(1.0, "nothing to test"))
    return Outcome(name, min(1.0, p_value * max(1, len(tested))), level, detail)


def _least(p_values: np.ndarray, names: Sequence[Hashable] | None = None) -> tuple[float, Hashable]:
    """Smallest of several p values, times their number, and whose it is."""
    if not p_values.size:
        return 1.0, ""
    place = int(p_values.argmin())
    return float(p_values.flat[place]) * p_values.size, place if names is None else names[place]


# -- Variance and mean ---------------------------------------------------------------------------


def _moments(releases: Sequence[NoisyRelease]) -> _Found:
    for grouping, groups in _groupings(releases).items():
        names = list(groups)
        table = np.array([groups[name] for name in names]).reshape(-1, 3)
        yield from _of_groups(grouping, names, *table.T)
    for (sender, shape), (count, sums, squares) in _by_entry(releases).items():
        where = f"client {sender}, {shape}" if sender >= 0 else f"the server, {shape}"
        for grouping, axes in (("a column", (0,)), ("a place", (1,)), ("an entry", ())):
            parts = [np.sum(one, axis=axes).reshape(-1) if axes else one.reshape(-1)
                     for one in (sums, squares)]  # fmt: skip
            numbers = np.full(parts[0].size, float(count * sums.size / parts[0].size))
            names = [f"{number} of {where}" for number in range(parts[0].size)]
            yield from _of_groups(grouping, names, numbers, *parts)


def _of_groups(
    grouping: str, names: Sequence[Hashable], n: np.ndarray, sums: np.ndarray, squares: np.ndarray
) -> _Found:
    """Two-sided chi-square of the sums of squares, and normal of the sums."""
    from scipy.stats import chi2, norm

    variance = 2 * np.minimum(chi2.sf(squares, n), chi2.cdf(squares, n))
    p_value, name = _least(variance, names)
    number = names.index(name) if names else 0
    ratio = float(np.sqrt(squares[number] / n[number])) if names else 1.0
    yield p_value, f"the standard deviation of {grouping} ({name}) is {ratio:.4g} of sigma"
    p_value, name = _least(2 * norm.sf(np.abs(sums) / np.sqrt(n)), names)
    yield p_value, f"the mean of {grouping} ({name}) is not zero"


def _groupings(
    releases: Sequence[NoisyRelease],
) -> Mapping[str, Mapping[Hashable, np.ndarray]]:
    """Number of entries, sum and sum of squares of groups, by grouping."""
    found: dict[str, dict[Hashable, np.ndarray]] = {}

    def add(grouping: str, name: Hashable, part: np.ndarray) -> None:
        groups = found.setdefault(grouping, {})
        groups[name] = groups[name] + part if name in groups else part

    for one in releases:
        x, key = one.residual, one.key
        rows = np.stack([np.full(len(x), float(x.shape[1])), x.sum(1), (x * x).sum(1)], axis=1)
        total = rows.sum(0)
        add("all noise", "all", total)
        add("one sender", key.sender, total)
        add("one receiver", key.receiver, total)
        add("one round", key.round, total)
        add("one message", tuple(key), total)
        for place, (row, part) in enumerate(zip(one.noised_rows.tolist(), rows, strict=True)):
            add("one row", (*key, place), part)
            if row >= 0:
                add("all releases of one row", (key.sender, row), part)
    return found


def _by_entry(
    releases: Sequence[NoisyRelease],
) -> dict[tuple[int, tuple[int, ...]], tuple[int, np.ndarray, np.ndarray]]:
    """Number of releases, sums and sums of squares of each entry, by sender and shape."""
    found: dict[tuple[int, tuple[int, ...]], tuple[int, np.ndarray, np.ndarray]] = {}
    for one in releases:
        x, name = one.residual, (one.key.sender, one.residual.shape)
        count, sums, squares = found.get(name, (0, np.zeros(x.shape), np.zeros(x.shape)))
        found[name] = count + 1, sums + x, squares + x * x
    return found


def _exact_values(releases: Sequence[NoisyRelease]) -> _Found:
    """Binomial of entries within 2^-12 sigma of what they are without noise."""
    from scipy.stats import binom, norm

    chance = float(2 * norm.cdf(_NEAR) - 1)
    for grouping, name_of in _PARTS.items():
        near: dict[Hashable, list[int]] = {}
        for one in releases:
            counted = near.setdefault(name_of(one), [0, 0])
            counted[0] += int((np.abs(one.residual) < _NEAR).sum())
            counted[1] += one.residual.size
        names = list(near)
        table = np.array([near[name] for name in names]).reshape(-1, 2)
        p_value, name = _least(binom.sf(table[:, 0] - 1, table[:, 1], chance), names)
        if name != "":
            yield p_value, f"{near[name][0]} of {near[name][1]} entries of {grouping} have no noise"


_PARTS: Mapping[str, Callable[[NoisyRelease], Hashable]] = {
    "all messages": lambda one: "all",
    "one sender": lambda one: one.key.sender,
    "one message": lambda one: tuple(one.key),
}


def _distribution(releases: Sequence[NoisyRelease]) -> _Found:
    """Kolmogorov-Smirnov, with the exact distribution of its statistic."""
    from scipy.stats import kstwo, norm

    for grouping, name_of in _PARTS.items():
        parts: dict[Hashable, list[np.ndarray]] = {}
        for one in releases:
            parts.setdefault(name_of(one), []).append(one.residual.reshape(-1))
        found = []
        for values in parts.values():
            x = np.sort(np.concatenate(values))
            if x.size == 0:
                continue
            steps = np.arange(x.size + 1) / x.size
            below = norm.cdf(x)
            distance = float(max((steps[1:] - below).max(), (below - steps[:-1]).max()))
            found.append(float(kstwo.sf(distance, x.size)))
        p_value, _ = _least(np.array(found))
        yield p_value, f"the noise of {grouping} is not normal (Kolmogorov-Smirnov)"


# -- Independence --------------------------------------------------------------------------------


def _entries(releases: Sequence[NoisyRelease]) -> _Found:
    """Entries of a row against each other, over the rows of each sender, and of all of a width."""
    for name_of in (lambda one: one.key.sender, lambda one: "all"):
        for name, rows in _stacked(releases, name_of).items():
            if len(rows):
                yield _correlated(rows.T), f"two entries of rows (sender {name}) have common noise"


def _rows(releases: Sequence[NoisyRelease]) -> _Found:
    """All rows against each other: of one message, of other rounds, clients and receivers."""
    for rows in _stacked(releases, lambda one: "all").values():
        chosen = np.linspace(0, len(rows) - 1, min(len(rows), _MOST_ROWS)).astype(int)
        yield _correlated(rows[chosen]), "two rows have common noise"


def _messages(releases: Sequence[NoisyRelease]) -> _Found:
    """All messages of a shape against each other."""
    for flat in _flat(releases).values():
        yield _correlated(flat), "two messages have common noise"
        yield _permuted(flat), "two messages have the same noise in another order"
    yield from _successive(releases, lambda one: (one.key.sender, one.key.receiver))
    yield from _successive(releases, lambda one: one.key.sender)
    yield from _successive(releases, lambda one: one.key.round)


def _repeated(releases: Sequence[NoisyRelease], other: Sequence[NoisyRelease]) -> _Found:
    """Messages against those of another run: noise must not follow from seeds, rows or data."""
    from scipy.stats import norm

    one, two = _flat(releases), _flat(other)
    for shape in one.keys() & two.keys():
        p_value = _correlated(one[shape], two[shape])
        yield p_value, "a second run with the same seeds and data has the same noise"
    before = {one.key: one.residual for one in other}
    pairs = [(one.residual, before[one.key]) for one in releases if one.key in before]
    along = [z for x, y in pairs if x.shape == y.shape for z in _along(x, y)]
    if along:
        total = float(np.sum(along)) / np.sqrt(len(along))
        p_value = float(2 * norm.sf(abs(total)))
        yield p_value, "a second run with the same seeds and data has partly the same noise"


def _data(releases: Sequence[NoisyRelease]) -> _Found:
    """Noise along the exact rows, along the clipped rows, and along what clipping takes off."""
    from scipy.stats import norm

    directions: Mapping[str, Callable[[NoisyRelease], np.ndarray]] = {
        "exact rows": lambda one: one.exact,
        "clipped rows": lambda one: one.clipped,
        "what clipping takes off": lambda one: one.exact - one.clipped,
    }
    for name, direction in directions.items():
        along = np.array([z for one in releases for z in _along(one.residual, direction(one))])
        if along.size:
            yield _least(2 * norm.sf(np.abs(along)))[0], f"the noise of a message follows {name}"
            total = abs(along.sum()) / np.sqrt(along.size)  # each is normal, given those before
            yield float(2 * norm.sf(total)), f"the noise follows {name}"
        single = np.concatenate(
            [_row_by_row(one.residual, direction(one)) for one in releases] or [np.empty(0)]
        )
        yield _least(2 * norm.sf(np.abs(single)))[0], f"the noise of a row follows {name}"


def _along(noise: np.ndarray, direction: np.ndarray) -> Iterable[float]:
    norm = float(np.linalg.norm(direction))
    return [float((noise * direction).sum()) / norm] if norm > 0 else []


def _row_by_row(noise: np.ndarray, direction: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(direction, axis=1)
    along: np.ndarray = (noise * direction).sum(1)[norms > 0] / norms[norms > 0]
    return along


def _correlated(one: np.ndarray, two: np.ndarray | None = None) -> float:
    """Smallest p value of all pairs of vectors, times the number of tests; 1 for no pairs.

    Two tests of each pair. The product over the norm of the second vector is standard normal where
    the first is noise that is independent of the second: it sees a common part. Half the square of
    the distance is chi-square, and likewise that of the sum: it sees that vectors of few entries
    are equal. Pairs of a set with itself leave out each vector's own.
    """
    from scipy.stats import chi2, norm

    same = two is None
    other = one if two is None else two
    if len(one) < 1 + same or not other.size:
        return 1.0
    largest, closest = 0.0, np.inf
    left, right = one.astype(np.float32), other.astype(np.float32)
    squares = (right * right).sum(1)
    norms = np.sqrt(np.maximum(squares, np.finfo(np.float32).tiny))
    for start in range(0, len(left), _CHUNK):
        part = left[start : start + _CHUNK]
        products = np.abs(part @ right.T)
        distances = (part * part).sum(1)[:, None] + squares - 2 * products
        if same:
            rows = np.arange(len(part))
            products[rows, rows + start] = 0
            distances[rows, rows + start] = np.inf
        largest = max(largest, float((products / norms).max()))
        i, j = np.unravel_index(int(distances.argmin()), distances.shape)
        x, y = one[i + start], other[j]  # again in float64, for float32 cancels
        closest = min(closest, float(((x - y) ** 2).sum()), float(((x + y) ** 2).sum()))
    pairs = len(one) * (len(other) - same)
    correlated = float(2 * norm.sf(largest))
    equal = float(2 * chi2.cdf(closest / 2, one.shape[1]))
    return 2 * min(correlated, equal) * pairs


def _permuted(flat: np.ndarray) -> float:
    """A bound on the p value of two vectors that have equal entries in some order.

    Two entries are within t of each other with probability below 2t / sqrt(4 pi), and there are n!
    orders. Such vectors have nearly equal norms, so only neighbours by norm are compared.
    """
    pairs, n = len(flat) * (len(flat) - 1) // 2, flat.shape[1]
    bound = math.lgamma(n + 1) + n * math.log(2 * _NEAR / math.sqrt(4 * math.pi))
    ordered = np.sort(flat[np.argsort((flat * flat).sum(1))], axis=1)
    for lag in range(1, min(_NEIGHBOURS, len(flat) - 1) + 1):
        if (np.abs(ordered[lag:] - ordered[:-lag]).max(axis=1) < _NEAR).any():
            return min(1.0, math.exp(min(0.0, bound)) * pairs)
    return 1.0


def _successive(
    releases: Sequence[NoisyRelease], name_of: Callable[[NoisyRelease], Hashable]
) -> _Found:
    """Each message against the one before it in its group; such products add up to a normal one."""
    from scipy.stats import norm

    last: dict[Hashable, np.ndarray] = {}
    found: list[float] = []
    for one in releases:
        name = (name_of(one), one.residual.shape)
        if name in last:
            found += _along(one.residual, last[name])
        last[name] = one.residual
    if found:
        total = float(np.sum(found)) / np.sqrt(len(found))
        yield float(2 * norm.sf(abs(total))), "successive messages have partly common noise"


def _stacked(
    releases: Sequence[NoisyRelease], name_of: Callable[[NoisyRelease], Hashable]
) -> dict[tuple[Hashable, int], np.ndarray]:
    """Rows of noise by group and width."""
    found: dict[tuple[Hashable, int], list[np.ndarray]] = {}
    for one in releases:
        found.setdefault((name_of(one), one.residual.shape[1]), []).append(one.residual)
    return {name: np.concatenate(rows) for name, rows in found.items()}


def _flat(releases: Sequence[NoisyRelease]) -> dict[tuple[int, ...], np.ndarray]:
    """Noise of messages, one a row, by shape."""
    found: dict[tuple[int, ...], list[np.ndarray]] = {}
    for one in releases:
        found.setdefault(one.residual.shape, []).append(one.residual.reshape(-1))
    return {shape: np.stack(rows) for shape, rows in found.items()}
