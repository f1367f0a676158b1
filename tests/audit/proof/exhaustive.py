"""Exhaustive verification: the exact distribution of a view for every secret, in small fields.

A toy instance of FedVS has secrets X (data), W (models) and tapes Z, V (masks of the shares), all
enumerated. The masks rho of the uploads need no enumeration: they enter a view linearly, so the
view is uniform on cosets of their image, and its histogram is that of its class modulo that image,
times a constant. The comparison uses integer histograms; only the reported bits are floats.

The formulas are those of the algorithm of FedVS; a test compares them with the messages of real
runs, message by message. See docs/verification.md.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.errors import ConfigurationError
from securevfl.field import LagrangeCode, PrimeField
from securevfl.privacy.coalition import Coalition
from tests.audit.proof.enumeration import Observation, SmallInstance, Table

__all__ = ["Exhaustion", "SmallInstance", "equal_views", "exhaust", "small_code", "small_instances"]

_MOST = 1 << 26  # views enumerated in one examination
_CELLS = 1 << 22  # entries of one histogram
_DENSE = 1 << 16  # entries up to which histograms are convolved by Fourier transforms


@dataclass(frozen=True)
class Exhaustion:
    """Result of the enumeration of one instance.

    Attributes
    ----------
    equal : bool
        Whether all secrets with the same ideal output have the same integer histogram of views.
    bits : float
        I(view; secrets given the ideal output) for uniform secrets; 0 if `equal`.
    distance : float
        Largest total variation between the views of two secrets with the same output.
    secrets, tapes : int
        Number of secrets of all honest clients, and of tapes for each, in the histograms.
    witness : tuple or None
        Two secrets, each a tuple of (X, W) for the honest clients, with the same output and
        different histograms.
    """

    equal: bool
    bits: float
    distance: float
    secrets: int
    tapes: int
    witness: tuple[Any, Any] | None


def small_code(p: int, segments: int, privacy: int) -> LagrangeCode:
    """Code with N = R over a small field: betas 0 to K+T-1, alphas the next N numbers."""
    size = segments + privacy
    parties = 2 * (size - 1) + 1
    return LagrangeCode(
        PrimeField(p),
        parties=parties,
        segments=segments,
        privacy=privacy,
        betas=range(size),
        alphas=range(size, size + parties),
    )


_SHAPES: tuple[tuple[int, int, int, dict[str, Any]], ...] = (
    (5, 1, 1, {}),
    (5, 1, 1, {"rows": 2}),
    (5, 1, 1, {"features": 2}),
    (5, 1, 1, {"width": 2}),
    (5, 1, 1, {"rows": 2, "width": 2}),
    (5, 1, 1, {"honest": 2}),
    (5, 1, 1, {"honest": 3}),
    (5, 1, 1, {"rounds": 2}),
    (5, 1, 1, {"rounds": 2, "honest": 2}),
    (5, 1, 1, {"rounds": 2, "rows": 2}),
    (5, 1, 1, {"rounds": 3}),
    (7, 1, 1, {}),
    (7, 1, 1, {"rounds": 2}),
    (7, 1, 1, {"rows": 2}),
    (7, 1, 1, {"width": 2, "honest": 2}),
    (11, 1, 1, {"rounds": 2}),
    (11, 2, 1, {}),
    (11, 2, 1, {"honest": 2}),
    (11, 1, 2, {}),
    (11, 1, 2, {"honest": 2}),
    (13, 1, 1, {}),
    (13, 2, 1, {}),
)
_SLOW: tuple[tuple[int, int, int, dict[str, Any]], ...] = (
    (5, 1, 1, {"rounds": 2, "width": 2}),
    (11, 2, 1, {"rounds": 2}),
    (11, 2, 1, {"width": 2}),
    (11, 2, 2, {}),
    (11, 2, 2, {"honest": 2}),
    (13, 1, 2, {}),
)


def small_instances(masked: bool, *, slow: bool = False) -> tuple[SmallInstance, ...]:
    """Shapes that are enumerated to verify a claim.

    Parameters
    ----------
    masked : bool
    slow : bool
        Whether to include shapes that take seconds each, such as K = T = 2.
    """
    shapes = _SHAPES + (_SLOW if slow else ())
    return tuple(
        SmallInstance(small_code(p, K, T), masked=masked, **more) for p, K, T, more in shapes
    )


@functools.lru_cache(maxsize=512)
def exhaust(toy: SmallInstance, coalition: Coalition) -> Exhaustion:
    """Enumerate all secrets and tapes of an instance.

    Parameters
    ----------
    toy : SmallInstance
    coalition : Coalition
        Coalition. With the server the ideal output is the sums of the honest clients; without it
        there is none, and `Coalition.uploads` are the results that it sees.

    Raises
    ------
    ConfigurationError
        When there are more than 2^26 views of one client, or a histogram would have more than 2^22
        entries.

    Examples
    --------
    >>> from securevfl.field import PrimeField
    >>> code = LagrangeCode(PrimeField(5), parties=3, segments=1, privacy=1,
    ...                     alphas=(2, 3, 4), betas=(0, 1))
    >>> round(exhaust(SmallInstance(code, masked=False), Coalition(server=True)).bits, 7)
    0.1272301
    >>> exhaust(SmallInstance(code), Coalition(server=True, clients=(0,))).equal
    True
    """
    joint = _joint(toy, coalition)
    unequal = _unequal(joint)
    secrets = toy.secrets**toy.honest
    witness = None
    if unequal:
        (_, one), (_, two) = list(unequal[0].values())[:2]
        witness = one, two
    return Exhaustion(
        equal=not unequal,
        bits=sum(_information(joint, group) for group in unequal) / secrets,
        distance=max((_distance(joint, group) for group in unequal), default=0.0),
        secrets=secrets,
        tapes=toy.tapes,
        witness=witness,
    )


def equal_views(toy: SmallInstance, coalition: Coalition) -> bool:
    """Whether all views are equal (`Exhaustion.equal`); stops at the first difference.

    How much a view tells takes all pairs of histograms; of a code that hides nothing there are so
    many that they fill the memory.

    Raises
    ------
    ConfigurationError
        In the cases of `exhaust`.
    """
    return not _unequal(_joint(toy, coalition), first=True)


def _joint(toy: SmallInstance, coalition: Coalition) -> _Joint:
    if toy.secrets * toy.tapes > _MOST:
        raise ConfigurationError(
            f"exhaust: {toy.describe()} has {toy.secrets * toy.tapes:.3g} views of one client, and "
            f"at most {_MOST} are enumerated. Use fewer rows, features, rounds or a smaller prime"
        )
    return _Joint(toy, Table(toy, Observation(toy, coalition)))


class _Joint:
    """Histograms of honest clients together: uploads add up, shares are side by side."""

    def __init__(self, toy: SmallInstance, table: Table) -> None:
        self.toy, self.table = toy, table
        self.known: dict[bytes, int] = {}
        self.found: list[tuple[np.ndarray, np.ndarray]] = []
        self.by_class: dict[int, dict[int, tuple[int, Any]]] = {}
        for (number, output), cell in table.cells.items():
            self.by_class.setdefault(number, {})[output] = cell
        self.blind = len(table.classes) == 1
        few = table.share_size == 1 and table.rest_size <= _DENSE
        self.dense = not self.blind and few and toy.tapes**toy.honest < 1 << 40 and toy.honest > 1
        self.spectra = [self._spectrum(*c) for c in table.classes] if self.dense else []

    def _spectrum(self, keys: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Fourier transform over F_p^v of a histogram."""
        histogram = np.zeros(self.table.rest_size)
        histogram[keys] = counts
        digits = round(math.log(self.table.rest_size, self.toy.modulus))
        return np.fft.fftn(histogram.reshape((self.toy.modulus,) * digits))

    def _convolve(self, chosen: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Histogram of a sum over F_p^v; its counts are integers below 2^40, so rounding is exact.

        The error of a transform of n doubles is below about 2^-52 log2(n) of the total.
        """
        # Uploads of clients add up, so the histogram of the sum is the convolution of theirs over
        # F_p^v, and its transform the product of their transforms.
        product = math.prod((self.spectra[c] for c in chosen[1:]), start=self.spectra[chosen[0]])
        counts = np.rint(np.fft.ifftn(product).real).astype(np.int64).reshape(-1)
        keys = np.flatnonzero(counts)
        return keys, counts[keys]

    def choices(self) -> Iterator[tuple[tuple[int, ...], int]]:
        """Combinations of the honest clients' classes, and the number of orders of each.

        Clients whose shares are not seen can be exchanged, so their classes come in order.
        """
        numbers = range(len(self.table.classes))
        if self.table.share_size > 1:
            yield from ((c, 1) for c in itertools.product(numbers, repeat=self.toy.honest))
            return
        for chosen in itertools.combinations_with_replacement(numbers, self.toy.honest):
            repeats = [math.factorial(chosen.count(c)) for c in set(chosen)]
            yield chosen, math.factorial(self.toy.honest) // math.prod(repeats)

    def outputs(self, chosen: tuple[int, ...], orders: int) -> dict[int, tuple[int, Any]]:
        """Number of secrets of these classes for each output, and one example."""
        p, total = self.toy.modulus, {0: (orders, ())}
        for number in chosen:
            added: dict[int, tuple[int, Any]] = {}
            for output, (count, example) in total.items():
                for own, (more, secret) in self.by_class[number].items():
                    key = _add(p, output, own)
                    before, first = added.get(key, (0, (*example, secret)))
                    added[key] = before + count * more, first
            total = added
        return total

    def histogram(self, chosen: tuple[int, ...]) -> int:
        """Index of the joint histogram of clients in these classes."""
        if self.blind:  # every client's part is the same whatever its secret
            chosen = ()
        name_parts = self._convolve(chosen) if self.dense else self._combine(chosen)
        name = name_parts[0].tobytes() + name_parts[1].tobytes()
        number = self.known.setdefault(name, len(self.known))
        if number == len(self.found):
            self.found.append(name_parts)
        return number

    def _combine(self, chosen: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        zero = np.zeros(1, np.int64)
        shares, rests, counts = zero, zero, np.ones(1, np.int64)
        size = self.table.rest_size
        for number in chosen:
            keys, more = self.table.classes[number]
            if len(keys) * len(counts) > _CELLS:
                raise ConfigurationError(
                    f"exhaust: a histogram of {self.toy.describe()} has more than {_CELLS} "
                    "entries. Use fewer honest clients or rounds, or a smaller prime"
                )
            shares = (shares[:, None] * self.table.share_size + keys // size).reshape(-1)
            rests = _add_arrays(self.toy.modulus, rests[:, None], keys % size, size).reshape(-1)
            counts = (counts[:, None] * more).reshape(-1)
            joint, where = np.unique(shares * size + rests, return_inverse=True)
            summed = np.zeros(len(joint), np.int64)
            np.add.at(summed, where.reshape(-1), counts)
            shares, rests, counts = joint // size, joint % size, summed
        return shares * size + rests, counts


def _add(p: int, one: int, two: int) -> int:
    """Sum of two keys, digit by digit modulo p."""
    total, power = 0, 1
    while one or two:
        total += (one + two) % p * power
        one, two, power = one // p, two // p, power * p
    return total


def _add_arrays(p: int, one: np.ndarray, two: np.ndarray, size: int) -> np.ndarray:
    total, power = np.zeros(np.broadcast_shapes(one.shape, two.shape), np.int64), 1
    while power < size:
        total += (one // power + two // power) % p * power
        power *= p
    return total


def _unequal(joint: _Joint, *, first: bool = False) -> list[dict[int, tuple[int, Any]]]:
    """Groups of secrets with equal output but different histograms, which views tell apart.

    The sum does not tell them apart. Of the histograms of a group, the number of secrets that have
    each, and one of them.
    """
    groups: dict[int, dict[int, tuple[int, Any]]] = {}
    for chosen, orders in joint.choices():
        number = joint.histogram(chosen)
        for output, (count, example) in joint.outputs(chosen, orders).items():
            group = groups.setdefault(output, {})
            before, known = group.get(number, (0, example))
            group[number] = before + count, known
            if first and len(group) > 1:
                return [group]
    return [group for group in groups.values() if len(group) > 1]


def _information(joint: _Joint, group: dict[int, tuple[int, Any]]) -> float:
    """Expected log2(p(view | secret) / p(view | output)) over secrets with one output, in bits."""
    found = [joint.found[number] for number in group]
    weights = np.array([count for count, _ in group.values()], np.float64)
    each = [counts / counts.sum() for _, counts in found]
    _, where = np.unique(np.concatenate([keys for keys, _ in found]), return_inverse=True)
    weighted = np.concatenate([w * h for w, h in zip(weights, each, strict=True)])
    mixture = np.bincount(where.reshape(-1), weighted) / weights.sum()
    known = sum(w * _entropy(h) for w, h in zip(weights, each, strict=True))
    return float(weights.sum() * _entropy(mixture) - known)


def _entropy(distribution: np.ndarray) -> float:
    positive = distribution[distribution > 0]
    return float(-(positive * np.log2(positive)).sum())


def _distance(joint: _Joint, group: dict[int, tuple[int, Any]]) -> float:
    """Largest total variation distance between two of the histograms, at most 1."""
    found = [joint.found[number] for number in group]
    total, largest = int(found[0][1].sum()), 0
    for (keys, counts), (others, more) in itertools.combinations(found, 2):
        _, here, there = np.intersect1d(keys, others, assume_unique=True, return_indices=True)
        shared = int(np.minimum(counts[here], more[there]).sum())
        largest = max(largest, total - shared)
        if largest == total:
            break
    return largest / total
