"""Lagrange coded computing: shares that hide the data and survive stragglers (FedVS, section 3)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from securevfl.errors import (
    ConfigurationError,
    CorruptResultsError,
    FieldError,
    NotEnoughResultsError,
    PrivacyError,
)
from securevfl.field._elements import out_array, refuse_overlap
from securevfl.field.lagrange import interpolation_matrix, vanishing
from securevfl.field.prime_field import PrimeField

if TYPE_CHECKING:
    from securevfl.field.sampling import Source

Array = NDArray[Any]

_KEPT_MATRICES = 64  # Decode matrices per code: one for each recent set of survivors.


class LagrangeCode:
    """A code that evaluates, at each party's own point, a polynomial through data and masks.

    F(z) = sum_{k<=K} X_k l_k(z) + sum_{t<=T} Z_t l_{K+t}(z) with F(beta_k) = X_k; party n holds
    F(alpha_n). Any T shares are uniform and independent of X; products of shares are values of a
    polynomial of the summed degree, so R = degree (K+T-1) + 1 results decode them exactly.

    Parameters
    ----------
    field : PrimeField
        The field.
    parties : int
        N, the number of shares.
    segments : int
        K, the number of data segments.
    privacy : int
        T >= 1, how many parties may pool their shares and learn nothing.
    alphas, betas : sequence of int, optional
        The N points of the parties and the K + T points of data and masks. By default
        beta = 1..K+T and alpha = K+T+1..K+T+N. All must be distinct and alphas not 0.
    degree : int
        The degree, in shares, of the computation that must be decodable; 2 in FedVS.

    Raises
    ------
    PrivacyError
        If T < 1 or T >= N, or an alpha lies on a beta (that party would hold raw data).
    ConfigurationError
        If N < R, or N, K or the degree is not a positive integer.
    FieldError
        If the field has too few elements, or points repeat, are not elements, or an alpha is 0.

    References
    ----------
    Li, Yao, Liu, "FedVS", ICML 2023, sections 3 and 5; Yu et al., "Lagrange Coded Computing",
    AISTATS 2019.

    Examples
    --------
    >>> F = PrimeField(2**31 - 1)
    >>> code = LagrangeCode(F, parties=4, segments=1, privacy=1)
    >>> shares = code.encode(F.elements([[5, 7]]))
    >>> code.decode(F.multiply(shares[1:], shares[1:]), parties=[1, 2, 3])
    array([[25, 49]], dtype=uint32)
    """

    def __init__(
        self,
        field: PrimeField,
        *,
        parties: int,
        segments: int,
        privacy: int,
        alphas: Sequence[int] | None = None,
        betas: Sequence[int] | None = None,
        degree: int = 2,
    ) -> None:
        self.field = field
        self.parties = _count("parties", parties)
        self.segments = _count("segments", segments)
        self.privacy = _privacy(privacy, parties)
        self.degree = _count("degree", degree)
        N, size = self.parties, self.segments + self.privacy
        self._check_sizes(size)
        self.betas = self._points("betas", betas, range(1, size + 1), size)
        self.alphas = self._points("alphas", alphas, range(size + 1, size + N + 1), N)
        self._check_points()
        self._matrices: OrderedDict[Any, Array] = OrderedDict()
        self._lock = threading.Lock()

    def _check_sizes(self, size: int) -> None:
        N, R, p = self.parties, self.recovery_threshold(self.degree), self.field.modulus
        if R > N:
            raise ConfigurationError(
                f"LagrangeCode: {N} parties cannot decode with K={self.segments}, "
                f"T={self.privacy}: a degree-{self.degree} computation needs "
                f"{self.degree}(K+T-1)+1 = {R} results. Lower K or T, or add parties."
            )
        if p < N + size:
            raise FieldError(
                f"LagrangeCode: N + K + T = {N + size} distinct points are needed, but the field "
                f"has {p} elements. Use a larger prime."
            )

    def _points(
        self, name: str, given: Sequence[int] | None, default: range, count: int
    ) -> tuple[int, ...]:
        p = self.field.modulus
        if given is None:
            if default[-1] >= p:
                raise FieldError(
                    f"LagrangeCode: the default points 1..N+K+T = {self.parties + self.size} do "
                    f"not fit the field of {p}. Use a larger prime, or give betas and alphas."
                )
            return tuple(default)
        points = tuple(int(v) for v in self.field.elements(list(given), f"LagrangeCode {name}"))
        if len(points) != count:
            raise FieldError(f"LagrangeCode: {count} {name} are needed, got {len(points)}.")
        if len(set(points)) < count:
            raise FieldError(f"LagrangeCode: the {name} must be distinct, got {list(points)}.")
        return points

    def _check_points(self) -> None:
        shared = set(self.alphas) & set(self.betas)
        if shared:
            raise PrivacyError(
                f"LagrangeCode: the points {sorted(shared)} are both an alpha and a beta; such a "
                f"party would be handed a raw segment or mask. Choose disjoint points."
            )
        if 0 in self.alphas:
            raise FieldError(
                "LagrangeCode: alpha = 0 is refused, because the locator of wrong results has the "
                "inverses of the alphas as its roots. Choose non-zero alphas."
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LagrangeCode) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return (
            f"LagrangeCode({self.field!r}, parties={self.parties}, segments={self.segments}, "
            f"privacy={self.privacy})"
        )

    def __reduce__(self) -> Any:
        return _rebuild, self._identity

    @property
    def _identity(self) -> tuple[Any, ...]:
        numbers = (self.parties, self.segments, self.privacy, self.degree)
        return self.field, *numbers, self.alphas, self.betas

    @property
    def size(self) -> int:
        """K + T, the number of points through which the polynomial passes."""
        return self.segments + self.privacy

    def recovery_threshold(self, degree: int = 2) -> int:
        """Return R = degree (K+T-1) + 1, how many results decode a degree-`degree` computation."""
        return _count("degree", degree) * (self.size - 1) + 1

    @cached_property
    def data_matrix(self) -> Array:
        """The coefficients l_k(alpha_n) of the data, shape (N, K), read-only."""
        return _frozen(self._basis[:, : self.segments])

    @cached_property
    def mask_matrix(self) -> Array:
        """The coefficients l_{K+t}(alpha_n) of the masks, shape (N, T), read-only."""
        return _frozen(self._basis[:, self.segments :])

    @cached_property
    def vanishing(self) -> Array:
        """P(alpha_n) = prod_{k<=K} (alpha_n - beta_k), never 0; shape (N,), read-only."""
        return _frozen(vanishing(self.field, self.betas[: self.segments], self.alphas))

    @cached_property
    def _basis(self) -> Array:
        return interpolation_matrix(self.field, self.betas, self.alphas)

    @cached_property
    def _constant_basis(self) -> Array:
        """The matrix (N, 1 + T) that encodes one value at all K data points."""
        one = np.ones(self.segments, self.field.dtype)
        row_sums = self.field.matmul(self.data_matrix, one, trusted=True)
        return np.concatenate([row_sums[:, None], self.mask_matrix], axis=1)

    def encode(
        self,
        segments: ArrayLike,
        out: Array | None = None,
        source: Source | None = None,
        masks: ArrayLike | None = None,
        threads: int = 1,
    ) -> Array:
        """Return the shares F(alpha_1) .. F(alpha_N) of K segments.

        Parameters
        ----------
        segments : array_like
            Shape (K, ...), elements.
        out : ndarray, optional
            Shape (N, ...) of the field's dtype, for the result.
        source : Source, optional
            Where the masks come from; the operating system's entropy when omitted.
        masks : array_like, optional
            Shape (T, ...): the masks themselves, for test vectors and exhaustive verifiers. Shares
            hide nothing unless the masks are fresh, uniform and kept secret.
        threads : int
            Threads that share the work.

        Returns
        -------
        ndarray
            Shape (N, ...); row n belongs to party n.
        """
        data = self.field.elements(segments, "LagrangeCode.encode segments")
        if data.ndim == 0 or data.shape[0] != self.segments:
            raise FieldError(
                f"LagrangeCode.encode: segments must have shape (K, ...) with K={self.segments}, "
                f"got {data.shape}."
            )
        return self._encode(self._basis, data, out, source, masks, threads, "encode")

    def encode_constant(
        self,
        value: ArrayLike,
        out: Array | None = None,
        source: Source | None = None,
        masks: ArrayLike | None = None,
        threads: int = 1,
    ) -> Array:
        """Return the shares of a polynomial with the same value at all K data points.

        Parameters
        ----------
        value : array_like
            Shape (...), elements; FedVS shares its model so.
        out, source, masks, threads
            As for `encode`.

        Returns
        -------
        ndarray
            Shape (N, ...).
        """
        data = self.field.elements(value, "LagrangeCode.encode_constant value")[None]
        return self._encode(
            self._constant_basis, data, out, source, masks, threads, "encode_constant"
        )

    def _encode(
        self,
        matrix: Array,
        data: Array,
        out: Array | None,
        source: Source | None,
        masks: ArrayLike | None,
        threads: int,
        name: str,
    ) -> Array:
        name = f"LagrangeCode.{name}"
        shape = data.shape[1:]
        result = out_array(out, (self.parties, *shape), self.field.dtype, name)
        if masks is None:
            hidden = self.field.random((self.privacy, *shape), source)
        else:
            hidden = self.field.elements(masks, f"{name} masks")
            if hidden.shape != (self.privacy, *shape):
                raise FieldError(
                    f"{name}: masks must have shape (T, ...) = {(self.privacy, *shape)}, got "
                    f"{hidden.shape}."
                )
        refuse_overlap(result, name, data, hidden)
        from securevfl.field import kernels

        rows = np.concatenate([data, hidden]).reshape(matrix.shape[1], -1)
        kernels.matmul(self.field.modulus, matrix, rows, result.reshape(self.parties, -1), threads)
        return result

    def decode(
        self,
        results: ArrayLike,
        parties: Sequence[int],
        degree: int | None = None,
        check: bool = False,
        threads: int = 1,
    ) -> Array:
        """Return the values of the computed polynomial at beta_1 .. beta_K.

        Parameters
        ----------
        results : array_like
            Shape (R', ...), R' >= R, elements: one result per party.
        parties : sequence of int
            The R' party numbers, from 0, in the order of `results`. The first R are used.
        degree : int, optional
            The degree of the computation in the shares; the code's own when omitted.
        check : bool
            Compare the results beyond the first R with what those R imply.
        threads : int
            Threads that share the work.

        Returns
        -------
        ndarray
            Shape (K, ...).

        Raises
        ------
        NotEnoughResultsError
            If fewer than R results are given.
        CorruptResultsError
            If `check` is set and further results disagree.
        ConfigurationError
            If party numbers repeat or do not exist, or shapes do not fit.
        """
        rows, numbers = self._received(results, parties, "LagrangeCode.decode")
        R = self._enough(len(numbers), self.degree if degree is None else degree)
        first = rows[:R].reshape(R, -1)
        if check and len(numbers) > R:
            self._verify(first, rows[R:].reshape(len(numbers) - R, -1), numbers, R)
        matrix = self.decode_matrix(numbers[:R])
        values = self.field.matmul(matrix, first, threads=threads, trusted=True)
        return values.reshape(self.segments, *rows.shape[1:])

    def decode_matrix(self, parties: Sequence[int]) -> Array:
        """Return the matrix (K, R) that maps the results of R parties to the values at the betas.

        Kept for the sets of survivors seen last.
        """
        key = tuple(parties)
        with self._lock:
            if key in self._matrices:
                self._matrices.move_to_end(key)
                return self._matrices[key]
        points = [self.alphas[n] for n in key]
        matrix = interpolation_matrix(self.field, points, self.betas[: self.segments])
        with self._lock:
            self._matrices[key] = _frozen(matrix)
            while len(self._matrices) > _KEPT_MATRICES:
                self._matrices.popitem(last=False)
        return matrix

    def _received(
        self, results: ArrayLike, parties: Sequence[int], name: str
    ) -> tuple[Array, tuple[int, ...]]:
        rows = self.field.elements(results, f"{name} results")
        if isinstance(parties, int | np.integer) or any(
            isinstance(n, bool) or not isinstance(n, int | np.integer) for n in parties
        ):
            raise ConfigurationError(f"{name}: parties must be integers from 0, got {parties!r}.")
        numbers = tuple(int(n) for n in parties)
        if rows.ndim == 0 or rows.shape[0] != len(numbers):
            raise FieldError(
                f"{name}: {len(numbers)} parties are named, so results must have shape "
                f"({len(numbers)}, ...), got {rows.shape}."
            )
        strangers = sorted({n for n in numbers if not 0 <= n < self.parties})
        if strangers:
            raise ConfigurationError(
                f"{name}: parties {strangers} do not exist; numbers run from 0 to "
                f"{self.parties - 1}."
            )
        twice = sorted({n for n in numbers if numbers.count(n) > 1})
        if twice:
            raise ConfigurationError(
                f"{name}: parties {twice} are named more than once. Give one result per party."
            )
        return rows, numbers

    def _enough(self, received: int, degree: int) -> int:
        R = self.recovery_threshold(degree)
        if received < R:
            raise NotEnoughResultsError(
                f"LagrangeCode: decoding a degree-{degree} computation with K={self.segments}, "
                f"T={self.privacy} needs {degree}(K+T-1)+1 = {R} results, got {received}. "
                f"Wait for more parties, or lower K or T."
            )
        return R

    def _verify(self, first: Array, rest: Array, numbers: tuple[int, ...], R: int) -> None:
        points = [self.alphas[n] for n in numbers]
        matrix = interpolation_matrix(self.field, points[:R], points[R:])
        implied = self.field.matmul(matrix, first, trusted=True)
        wrong = int((implied != rest).any(axis=1).sum())
        if wrong:
            raise CorruptResultsError(
                f"LagrangeCode.decode: {wrong} of the {len(rest)} results beyond the first {R} "
                f"disagree with those, so at least one result is wrong. "
                f"decode_with_errors corrects up to {len(rest) // 2} here."
            )


def _rebuild(
    field: PrimeField,
    parties: int,
    segments: int,
    privacy: int,
    degree: int,
    alphas: Sequence[int],
    betas: Sequence[int],
) -> LagrangeCode:
    return LagrangeCode(
        field,
        parties=parties,
        segments=segments,
        privacy=privacy,
        degree=degree,
        alphas=alphas,
        betas=betas,
    )


def _count(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ConfigurationError(f"LagrangeCode: {name} must be a positive integer, got {value!r}.")
    return int(value)


def _privacy(T: int, N: int) -> int:
    if isinstance(T, bool) or not isinstance(T, int | np.integer) or T < 1:
        raise PrivacyError(
            f"LagrangeCode: privacy T must be at least 1, got {T!r}: without a mask every share "
            f"is a plain combination of the data."
        )
    if T >= N:
        raise PrivacyError(
            f"LagrangeCode: T={T} colluders among N={N} parties would be all of them, and all "
            f"shares together determine the data. Lower T below N."
        )
    return int(T)


def _frozen(array: Array) -> Array:
    copy = np.ascontiguousarray(array)
    copy.flags.writeable = False
    return copy
