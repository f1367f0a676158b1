"""Exhaustive verification: the exact distribution of a view for every secret, in small fields.

A toy instance of FedVS has secrets X (data), W (models) and tapes Z, V (masks of the shares), all
enumerated. The masks rho of the uploads need no enumeration: they enter a view linearly, so the
view is uniform on cosets of their image, and its histogram is that of its class modulo that image,
times a constant. What is compared are integer histograms; floats appear only in the bits reported.

The formulas are those of `securevfl.protocols.fedvs`; a test compares them with the messages of
real runs, message by message. See docs/verification.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.errors import ConfigurationError
from securevfl.field import LagrangeCode
from securevfl.field.lagrange import interpolation_matrix
from securevfl.privacy.linear import independent_rows, left_null
from securevfl.privacy.views import Coalition

_MOST = 1 << 26  # views enumerated in one examination
_CELLS = 1 << 22  # entries of one histogram
_DENSE = 1 << 16  # entries up to which histograms are convolved by Fourier transforms


@dataclass(frozen=True)
class Toy:
    """A FedVS that is small enough to be enumerated.

    Attributes
    ----------
    code : LagrangeCode
        Points, N, K, T and the field.
    rows, features, width, rounds : int
        |B|, columns of each client, h, and attempts on the same rows with the same data shares.
    honest : int
        Data holders outside the coalition.
    masked : bool
        Whether uploads are masked and one dealer is honest; more honest dealers change nothing.
    coefficients : int, optional
        Coefficients of rho; K + 2T - 1 if not given. Other numbers are planted leaks.
    """

    code: LagrangeCode
    rows: int = 1
    features: int = 1
    width: int = 1
    rounds: int = 1
    honest: int = 1
    masked: bool = True
    coefficients: int | None = None

    @property
    def modulus(self) -> int:
        """The prime p."""
        return self.code.field.modulus

    @property
    def secret_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of one client's X and W^1 .. W^E."""
        data = (self.code.segments, self.rows, self.features)
        return data, (self.rounds, self.features, self.width)

    @property
    def tape_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of one client's Z and V^1 .. V^E."""
        data = (self.code.privacy, self.rows, self.features)
        return data, (self.rounds, self.code.privacy, self.features, self.width)

    @property
    def secrets(self) -> int:
        """Number of secrets of one client."""
        return int(self.modulus ** sum(map(math.prod, self.secret_shapes)))

    @property
    def tapes(self) -> int:
        """Number of tapes (Z, V) of one client."""
        return int(self.modulus ** sum(map(math.prod, self.tape_shapes)))

    def describe(self) -> str:
        """Parameters in one line."""
        code = self.code
        return (
            f"p={self.modulus}, K={code.segments}, T={code.privacy}, {self.rows}x{self.features} "
            f"data, {self.features}x{self.width} models, rounds={self.rounds}, "
            f"honest={self.honest}, {'masked' if self.masked else 'plain'}"
        )


@dataclass(frozen=True)
class Exhaustion:
    """What the enumeration of one instance found.

    Attributes
    ----------
    equal : bool
        Whether all secrets with the same ideal output have the same integer histogram of views.
    bits : float
        I(view; secrets given the ideal output) for uniform secrets; 0 where `equal`.
    distance : float
        Largest total variation between the views of two secrets with the same output.
    secrets, tapes : int
        Secrets of all honest clients, and tapes for each, that the histograms cover.
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


def exhaust(toy: Toy, coalition: Coalition) -> Exhaustion:
    """Enumerate all secrets and tapes of an instance.

    Parameters
    ----------
    toy : Toy
    coalition : Coalition
        With the server, the sums of the honest clients are the ideal output. Without it nothing
        is, and `Coalition.uploads` are the results that it sees.

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
    >>> round(exhaust(Toy(code, masked=False), Coalition(server=True)).bits, 7)
    0.1272301
    >>> exhaust(Toy(code), Coalition(server=True, clients=(0,))).equal
    True
    """
    if toy.secrets * toy.tapes > _MOST:
        raise ConfigurationError(
            f"exhaust: {toy.describe()} has {toy.secrets * toy.tapes:.3g} views of one client, and "
            f"at most {_MOST} are enumerated. Use fewer rows, features, rounds or a smaller prime"
        )
    table = _Table(toy, _Observation(toy, coalition))
    return _decide(toy, table)


class _Observation:
    """The linear maps from values of psi and of shares to what a coalition can tell.

    A view is (shares of C; per attempt and entry, functionals of psi). The functionals are split in
    `wanted`, values of psi at the data points, which are the ideal output, and `rest`.
    """

    def __init__(self, toy: Toy, coalition: Coalition) -> None:
        code, field = toy.code, toy.code.field
        self.points = list(coalition.clients)
        self.uploads = list(range(code.parties)) if coalition.server else list(coalition.uploads)
        unmasked = self._modulo_masks(toy) if self.uploads else np.zeros((0, 0), field.dtype)
        self.wanted = np.zeros((0, len(self.uploads)), field.dtype)
        if coalition.server:
            alphas = [code.alphas[n] for n in self.uploads[: code.recovery_threshold()]]
            self.wanted = np.zeros((code.segments, len(self.uploads)), field.dtype)
            self.wanted[:, : len(alphas)] = interpolation_matrix(
                field, alphas, code.betas[: code.segments]
            )
        self.rest = self._complement(toy, unmasked)

    def _modulo_masks(self, toy: Toy) -> np.ndarray:
        """Rows that span the functionals of the uploads that no mask moves, (q, uploads)."""
        code, field = toy.code, toy.code.field
        if not toy.masked:
            return np.eye(len(self.uploads), dtype=field.dtype)
        count = toy.coefficients
        if count is None:
            count = code.segments + 2 * code.privacy - 1
        alphas = field.elements(list(code.alphas))
        powers = np.stack([field.power(alphas, i) for i in range(count)], axis=1)
        hidden = field.multiply(code.vanishing[:, None], powers)
        seen = len(self.points)
        columns = np.concatenate([powers[self.points], hidden[self.uploads]])
        return left_null(field, columns)[:, seen:]

    def _complement(self, toy: Toy, unmasked: np.ndarray) -> np.ndarray:
        """Functionals that complete `wanted`, each without what the output contributes to it.

        With A_k = l_k sum_j l_j, the polynomials of a client whose masks are zero add up to
        sum_k U_k A_k; subtracting it leaves clients that differ in U only alike.
        """
        code, field = toy.code, toy.code.field
        if not self.uploads:
            return unmasked
        points = self._points_of(code, range(2 * code.size - 1))
        values = interpolation_matrix(field, points, self._points_of(code, self.uploads))
        both = field.matmul(np.concatenate([self.wanted, unmasked]), values)
        chosen = [i - len(self.wanted) for i in independent_rows(field, both)]
        rest = unmasked[[i for i in chosen if i >= 0]]
        if not len(self.wanted):
            return rest
        nodes = [*code.betas[: code.segments], *(code.alphas[n] for n in self.points)]
        nodes = [*nodes, *code.betas[code.segments :]][: code.size]
        basis = interpolation_matrix(field, nodes, self._points_of(code, self.uploads))
        data = basis[:, : code.segments]
        ones = field.matmul(data, np.ones(code.segments, field.dtype))
        known = field.matmul(rest, field.multiply(data, ones[:, None]))
        return field.subtract(rest, field.matmul(known, self.wanted))

    @staticmethod
    def _points_of(code: LagrangeCode, numbers: Sequence[int]) -> list[int]:
        return [code.alphas[n] for n in numbers]


class _Table:
    """Histograms of one honest client's part of the view, for each of its secrets.

    Attributes
    ----------
    classes : list of (keys, counts)
        The different histograms over (shares, rest).
    cells : dict
        (class, output) to (number of secrets, one of them).
    """

    def __init__(self, toy: Toy, seen: _Observation) -> None:
        self.toy, self.seen = toy, seen
        entries = toy.rounds * toy.rows * toy.width
        self.rest_size = toy.modulus ** (len(seen.rest) * entries)
        self.output_digits = len(seen.wanted) * entries
        shared = toy.rows * toy.features + toy.rounds * toy.features * toy.width
        self.share_size = toy.modulus ** (len(seen.points) * shared)
        if self.share_size * self.rest_size >= 1 << 62:
            raise ConfigurationError(f"exhaust: views of {toy.describe()} have too many digits")
        self.classes: list[tuple[np.ndarray, np.ndarray]] = []
        self.cells: dict[tuple[int, int], tuple[int, Any]] = {}
        self._enumerate()

    def _enumerate(self) -> None:
        known: dict[bytes, int] = {}
        parts = _Parts(self.toy, self.seen)
        for secret in parts.secrets():
            keys, output = parts.view(*secret)
            values, counts = np.unique(keys, return_counts=True)
            name = values.tobytes() + counts.tobytes()
            number = known.setdefault(name, len(known))
            if number == len(self.classes):
                self.classes.append((values, counts))
            count, example = self.cells.get((number, output), (0, secret))
            self.cells[number, output] = count + 1, example


class _Parts:
    """All values of one client's polynomials at the points that matter."""

    def __init__(self, toy: Toy, seen: _Observation) -> None:
        self.toy, self.seen, p = toy, seen, toy.modulus
        code = toy.code
        self.at = seen.points + seen.uploads
        self.data = code.data_matrix[self.at].astype(np.int64)
        self.ones = self.data.sum(axis=1) % p
        masks = code.mask_matrix[self.at].astype(np.int64)
        Z = _all(p, toy.tape_shapes[0])
        V = _all(p, toy.tape_shapes[1])
        self.masks_F = np.einsum("at,ntrd->nard", masks, Z) % p
        self.masks_G = np.einsum("at,netdh->neadh", masks, V) % p

    def secrets(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        data, model = self.toy.secret_shapes
        for X in _all(self.toy.modulus, data):
            for W in _all(self.toy.modulus, model):
                yield X, W

    def view(self, X: np.ndarray, W: np.ndarray) -> tuple[np.ndarray, int]:
        """Keys of the view for all tapes, and the key of the output."""
        p, c = self.toy.modulus, len(self.seen.points)
        F = (np.einsum("ak,krd->ard", self.data, X) + self.masks_F) % p
        G = (np.einsum("a,edh->eadh", self.ones, W) + self.masks_G) % p
        shares = _key(p, F[:, :c])[:, None], _key(p, G[:, :, :c])[None, :]
        digits = math.prod(G[0, :, :c].shape)
        keys = shares[0] * p**digits + shares[1]
        output = _key(p, np.einsum("krd,edh->ekrh", X, W)[None] % p)[0]
        if self.seen.uploads:
            psi = np.einsum("zard,veadh->zvearh", F[:, c:], G[:, :, c:]) % p
            rest = np.einsum("qa,zvearh->zveqrh", self.seen.rest.astype(np.int64), psi) % p
            size = p ** math.prod(rest.shape[2:])
            flat = rest.reshape(keys.size, math.prod(rest.shape[2:]))
            keys = keys * size + _key(p, flat).reshape(keys.shape)
        return keys.reshape(-1), int(output) if len(self.seen.wanted) else 0


def _all(p: int, shape: tuple[int, ...]) -> np.ndarray:
    """All arrays of a shape over F_p, (p^size, *shape) int64."""
    size = math.prod(shape)
    numbers = np.arange(p**size, dtype=np.int64)
    digits = [(numbers // p**i) % p for i in range(size)]
    stacked = np.stack(digits, axis=1) if size else np.zeros((1, 0), np.int64)
    return stacked.reshape(-1, *shape)


def _key(p: int, values: np.ndarray) -> np.ndarray:
    """Each array of a stack, read as the digits of one integer."""
    flat = values.reshape(len(values), -1)
    powers = np.array([p**i for i in range(flat.shape[1])], np.int64)
    key: np.ndarray = flat @ powers
    return key


class _Joint:
    """Histograms of several honest clients together: uploads add up, shares stand side by side."""

    def __init__(self, toy: Toy, table: _Table) -> None:
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
        product = math.prod((self.spectra[c] for c in chosen[1:]), start=self.spectra[chosen[0]])
        counts = np.rint(np.fft.ifftn(product).real).astype(np.int64).reshape(-1)
        keys = np.flatnonzero(counts)
        return keys, counts[keys]

    def choices(self) -> Iterator[tuple[tuple[int, ...], int]]:
        """Classes of the honest clients, and in how many orders they come.

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
        """Number of secrets of these classes with each output, and one of them."""
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
        """Number of the joint histogram of clients of these classes."""
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

    def matrix(self, numbers: Sequence[int]) -> np.ndarray:
        """Histograms side by side over the keys that any of them has."""
        keys = np.unique(np.concatenate([self.found[n][0] for n in numbers]))
        rows = np.zeros((len(numbers), len(keys)), np.int64)
        for row, number in zip(rows, numbers, strict=True):
            own, counts = self.found[number]
            row[np.searchsorted(keys, own)] = counts
        return rows


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


def _decide(toy: Toy, table: _Table) -> Exhaustion:
    """Combine the honest clients' parts, and compare secrets with the same output."""
    joint = _Joint(toy, table)
    groups: dict[int, dict[int, tuple[int, Any]]] = {}
    for chosen, orders in joint.choices():
        number = joint.histogram(chosen)
        for output, (count, example) in joint.outputs(chosen, orders).items():
            group = groups.setdefault(output, {})
            before, first = group.get(number, (0, example))
            group[number] = before + count, first
    unequal = [group for group in groups.values() if len(group) > 1]
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


def _information(joint: _Joint, group: dict[int, tuple[int, Any]]) -> float:
    """sum over secrets with one output of log2(p(view | secret) / p(view | output)), expected."""
    rows = joint.matrix(list(group))
    weights = np.array([count for count, _ in group.values()], np.float64)
    each = rows / rows.sum(axis=1, keepdims=True)
    mixture = weights @ each / weights.sum()
    known = sum(w * _entropy(h) for w, h in zip(weights, each, strict=True))
    return float(weights.sum() * _entropy(mixture) - known)


def _entropy(distribution: np.ndarray) -> float:
    positive = distribution[distribution > 0]
    return float(-(positive * np.log2(positive)).sum())


def _distance(joint: _Joint, group: dict[int, tuple[int, Any]]) -> float:
    rows = joint.matrix(list(group))
    total = int(rows[0].sum())
    return max(int(abs(rows[i:] - row).sum(axis=1).max()) for i, row in enumerate(rows)) / 2 / total
