"""Enumeration of one client's part of a view, for all secrets and tapes, in a small field."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.audit.proof.linear_algebra import independent_rows, left_null
from securevfl.errors import ConfigurationError
from securevfl.field import LagrangeCode
from securevfl.field.designs import blocks_of
from securevfl.field.lagrange import interpolation_matrix
from securevfl.privacy.coalition import Coalition

_TOGETHER = 1 << 16  # numbers of an array of views


@dataclass(frozen=True)
class SmallInstance:
    """A FedVS instance that is small enough to enumerate.

    Attributes
    ----------
    code : LagrangeCode
        Points, N, K, T and the field.
    rows, features, width, rounds : int
        |B|, columns of each client, h, and attempts on the same rows with the same data shares.
    honest : int
        Data holders outside the coalition.
    masked : bool
        Whether uploads are masked.
    streams : int, optional
        u, of which rho has T more coefficients; K + T - 1 if not given. Other numbers are planted
        leaks.
    given : bool
        Planted leak: every client holds every key.
    """

    code: LagrangeCode
    rows: int = 1
    features: int = 1
    width: int = 1
    rounds: int = 1
    honest: int = 1
    masked: bool = True
    streams: int | None = None
    given: bool = False

    @property
    def modulus(self) -> int:
        """Prime modulus p."""
        return self.code.field.modulus

    @property
    def secret_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of one client's secrets: data X, and models W^1 to W^E side by side."""
        data = (self.code.segments, self.rows, self.features)
        return data, (self.rounds, self.features, self.width)

    @property
    def tape_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of one client's masks: Z of its data, and V^1 to V^E of its models."""
        data = (self.code.privacy, self.rows, self.features)
        return data, (self.rounds, self.code.privacy, self.features, self.width)

    @property
    def secrets(self) -> int:
        """Number of possible secrets of one client."""
        return int(self.modulus ** sum(map(math.prod, self.secret_shapes)))

    @property
    def tapes(self) -> int:
        """Number of possible tapes (Z, V) of one client."""
        return int(self.modulus ** sum(map(math.prod, self.tape_shapes)))

    def describe(self) -> str:
        """Parameters in one line."""
        code = self.code
        return (
            f"p={self.modulus}, K={code.segments}, T={code.privacy}, {self.rows}x{self.features} "
            f"data, {self.features}x{self.width} models, rounds={self.rounds}, "
            f"honest={self.honest}, {'masked' if self.masked else 'plain'}"
        )


class Observation:
    """Linear maps from sums psi and shares to the coalition's observation.

    A view is (shares of C; per attempt and entry, functionals of psi). The functionals are split in
    `wanted`, values of psi at the data points, which are the ideal output, and `rest`.
    """

    def __init__(self, toy: SmallInstance, coalition: Coalition) -> None:
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

    def _modulo_masks(self, toy: SmallInstance) -> np.ndarray:
        """Rows that span the functionals of uploads unaffected by masks, (q, uploads)."""
        code, field = toy.code, toy.code.field
        if not toy.masked:
            return np.eye(len(self.uploads), dtype=field.dtype)
        count = code.size - 1 if toy.streams is None else toy.streams
        alphas = field.elements(list(code.alphas))
        powers = field.power(alphas[:, None], np.arange(count))
        powers = field.multiply(code.vanishing[:, None], powers)
        columns = [np.zeros((code.parties, 0), field.dtype)]
        for A in blocks_of(code.parties, code.privacy, count):
            if not set(self.points) <= set(A) or (self.points and toy.given):
                continue  # a member of the coalition holds the key
            factors = [math.prod(x - code.alphas[a] for a in A) % toy.modulus for x in code.alphas]
            hidden = powers[:, : max(0, code.privacy + count - len(A))]
            columns.append(field.multiply(hidden, field.elements(factors)[:, None]))
        return left_null(field, np.concatenate(columns, axis=1)[self.uploads])

    def _complement(self, toy: SmallInstance, unmasked: np.ndarray) -> np.ndarray:
        """Functionals that complete the `wanted` ones, without the output's contribution.

        With A_k = l_k sum_j l_j, the polynomials of a client whose masks are zero add up to
        sum_k U_k A_k; subtracting it leaves clients that differ in U only alike.
        """
        code, field = toy.code, toy.code.field
        if not self.uploads:
            return unmasked
        # psi has degree 2(K+T-1), so its values at 2(K+T) - 1 points stand for it. Functionals that
        # are equal on those are one functional, and would count the same digit twice.
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


class Table:
    """Histograms of one honest client's part of the view, one for each of its secrets.

    Attributes
    ----------
    classes : list of (keys, counts)
        The different histograms over (shares, rest).
    cells : dict
        (class, output) to (number of secrets, one of them).
    """

    def __init__(self, toy: SmallInstance, seen: Observation) -> None:
        self.toy, self.seen = toy, seen
        entries = toy.rounds * toy.rows * toy.width
        self.rest_size = toy.modulus ** (len(seen.rest) * entries)
        shared = toy.rows * toy.features + toy.rounds * toy.features * toy.width
        self.share_size = toy.modulus ** (len(seen.points) * shared)
        if self.share_size * self.rest_size >= 1 << 62:
            raise ConfigurationError(f"exhaust: views of {toy.describe()} have too many digits")
        self.classes: list[tuple[np.ndarray, np.ndarray]] = []
        self.cells: dict[tuple[int, int], tuple[int, Any]] = {}
        self._enumerate()

    def _enumerate(self) -> None:
        known: dict[bytes, int] = {}
        for secret, keys, output in _Parts(self.toy, self.seen).views():
            number = known.setdefault(keys.tobytes(), len(known))
            if number == len(self.classes):
                self.classes.append(np.unique(keys, return_counts=True))
            count, example = self.cells.get((number, output), (0, secret))
            self.cells[number, output] = count + 1, example


class _Parts:
    """Values of one client's polynomials at the relevant points."""

    def __init__(self, toy: SmallInstance, seen: Observation) -> None:
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

    def views(self) -> Iterator[tuple[tuple[np.ndarray, np.ndarray], np.ndarray, int]]:
        """For each secret (X, W): sorted view keys over all tapes, and the output's key.

        Those of many models are computed together.
        """
        data, model = self.toy.secret_shapes
        models = _all(self.toy.modulus, model)
        entries = self.toy.tapes * max(1, len(self.at)) * self.toy.rounds * self.toy.rows
        some = max(1, _TOGETHER // (entries * self.toy.width))
        for X in _all(self.toy.modulus, data):
            for start in range(0, len(models), some):
                W = models[start : start + some]
                keys, outputs = self._view(X, W)
                keys.sort(axis=1)
                for one, row, output in zip(W, keys, outputs.tolist(), strict=True):
                    yield (X, one), row, output

    def _view(self, X: np.ndarray, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Integers that encode the view, (models, tapes), and the output, (models,), of models.

        Axes: w models, z tapes of X, v tapes of W, a points, q functionals, e rounds, r rows,
        d columns and h width.
        """
        p, c = self.toy.modulus, len(self.seen.points)
        F = (np.einsum("ak,krd->ard", self.data, X) + self.masks_F) % p
        G = (np.einsum("a,wedh->weadh", self.ones, W)[:, None] + self.masks_G) % p
        G = G.reshape(-1, *G.shape[2:])
        shares = _key(p, F[:, :c])[:, None], _key(p, G[:, :, :c]).reshape(len(W), 1, -1)
        digits = math.prod(G[0, :, :c].shape)
        keys = shares[0] * p**digits + shares[1]
        outputs = _key(p, np.einsum("krd,wedh->wekrh", X, W) % p)
        if self.seen.uploads:
            psi = np.einsum("zard,xeadh->xzearh", F[:, c:], G[:, :, c:]) % p
            rest = np.einsum("qa,xzearh->xzeqrh", self.seen.rest.astype(np.int64), psi) % p
            digits = math.prod(rest.shape[2:])
            read = _key(p, rest.reshape(len(G) * len(F), digits))
            keys = keys * p**digits + read.reshape(len(W), -1, len(F)).transpose(0, 2, 1)
        return keys.reshape(len(W), -1), outputs * bool(len(self.seen.wanted))


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
