"""Lagrange coded computing: shares that hide the data and survive stragglers (FedVS, section 3)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from securevfl.errors import CorruptResultsError, FieldError, NotEnoughResultsError
from securevfl.field import code_checks as checks
from securevfl.field import elements, encoding, error_correction
from securevfl.field.elements import out_array, refuse_overlap
from securevfl.field.kernels.scratch import result
from securevfl.field.lagrange import interpolation_matrix, vanishing
from securevfl.field.prime_field import PrimeField

if TYPE_CHECKING:
    from securevfl.field.dispatch import PreparedMatrix
    from securevfl.field.sampling import Source

Array = NDArray[Any]

_KEPT_MATRICES = 64  # Decode matrices per code: one for each recent set of survivors.


class LagrangeCode:
    """Lagrange code: shares are values of a polynomial through data and masks, one point a party.

    F(z) = sum_{k<=K} X_k l_k(z) + sum_{t<=T} Z_t l_{K+t}(z) with F(beta_k) = X_k; party n holds
    F(alpha_n). Any T shares are uniform and independent of X; products of shares are values of a
    polynomial of the summed degree, so R = degree (K+T-1) + 1 results decode them exactly.

    Parameters
    ----------
    field : PrimeField
        The field.
    parties : int
        Number N of shares.
    segments : int
        K, the number of data segments.
    privacy : int
        T >= 1, the number of colluding parties that learn nothing from their shares.
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
        self.parties = N = checks.count("parties", parties)
        self.segments = checks.count("segments", segments)
        self.privacy = checks.privacy(privacy, parties)
        self.degree = checks.count("degree", degree)
        size = self.segments + self.privacy
        checks.check_sizes(field, N, self.segments, self.privacy, self.degree)
        last = size + N
        self.betas = checks.points(field, "betas", betas, range(1, size + 1), last)
        self.alphas = checks.points(field, "alphas", alphas, range(size + 1, last + 1), last)
        checks.check_points(self.alphas, self.betas)
        # Matrices depend on who answered. Few sets of survivors recur in a run, and each matrix
        # costs O(R^2) products and its preparation for the kernels.
        self._matrices: OrderedDict[Any, tuple[Array, PreparedMatrix]] = OrderedDict()
        self._lock = threading.Lock()

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
        """Number K + T of points through which the polynomial passes."""
        return self.segments + self.privacy

    def recovery_threshold(self, degree: int | None = None) -> int:
        """Recovery threshold R = degree (K+T-1) + 1: results that decode a computation.

        The degree is the code's own when omitted.
        """
        degree = self.degree if degree is None else degree
        return checks.count("degree", degree) * (self.size - 1) + 1

    @cached_property
    def data_matrix(self) -> Array:
        """Coefficients l_k(alpha_n) of the data, shape (N, K), read-only."""
        return _frozen(self._basis[:, : self.segments])

    @cached_property
    def mask_matrix(self) -> Array:
        """Coefficients l_{K+t}(alpha_n) of the masks, shape (N, T), read-only."""
        return _frozen(self._basis[:, self.segments :])

    @cached_property
    def vanishing(self) -> Array:
        """Values P(alpha_n) = prod_{k<=K} (alpha_n - beta_k), never 0; shape (N,), read-only."""
        return _frozen(vanishing(self.field, self.betas[: self.segments], self.alphas))

    @cached_property
    def _basis(self) -> Array:
        return interpolation_matrix(self.field, self.betas, self.alphas)

    @cached_property
    def _left(self) -> PreparedMatrix:
        from securevfl.field import dispatch, ntt

        p = self.field.modulus
        return ntt.left(p, self.alphas, self.betas) or dispatch.prepare(p, self._basis)

    @cached_property
    def _constant_left(self) -> PreparedMatrix:
        from securevfl.field import dispatch

        return dispatch.prepare(self.field.modulus, self._constant_basis)

    @cached_property
    def _constant_basis(self) -> Array:
        """Matrix (N, 1 + T) that encodes one value at all K data points, with T masks."""
        # Equal values at all data points: sum_k l_k(alpha) v = v sum_k l_k(alpha), so K columns of
        # the encoding matrix become their sum. Masks keep their own columns.
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
        """Shares F(alpha_1) .. F(alpha_N) of K segments.

        Parameters
        ----------
        segments : array_like
            Shape (K, ...), elements.
        out : ndarray, optional
            Shape (N, ...) of the field's dtype, for the result.
        source : Source, optional
            Source of the masks; by default the operating system's entropy.
        masks : array_like, optional
            Masks, shape (T, ...), for test vectors and exhaustive tests. Shares protect nothing
            unless the masks are fresh, uniform and secret.
        threads : int
            Number of threads that share the work, 1 or more.

        Returns
        -------
        ndarray
            Shape (N, ...); row n belongs to party n.

        Raises
        ------
        FieldError
            For another shape or dtype of an argument, or a number outside [0, p).
        """
        name = "LagrangeCode.encode"
        data, unproved = elements.unproved(
            segments, self.field.modulus, self.field.dtype, f"{name} segments"
        )
        if data.ndim == 0 or data.shape[0] != self.segments:
            raise FieldError(
                f"{name}: segments must have shape (K, ...) with K={self.segments}, "
                f"got {data.shape}."
            )
        return self._encode(self._left, data, unproved, out, source, masks, threads, name)

    def encode_constant(
        self,
        value: ArrayLike,
        source: Source | None = None,
        masks: ArrayLike | None = None,
    ) -> Array:
        """Shares of a polynomial with one value at all K data points.

        Parameters
        ----------
        value : array_like
            Elements of shape (...), such as a model in FedVS.
        source, masks
            Arguments of `encode`: source of the T masks, or the masks themselves, (T, ...).

        Returns
        -------
        ndarray
            Shape (N, ...).
        """
        name = "LagrangeCode.encode_constant"
        data, unproved = elements.unproved(
            value, self.field.modulus, self.field.dtype, f"{name} value"
        )
        left = self._constant_left
        return self._encode(left, data[None], unproved, None, source, masks, 1, name)

    def _encode(
        self,
        left: PreparedMatrix,
        data: Array,
        unproved: bool,
        out: Array | None,
        source: Source | None,
        masks: ArrayLike | None,
        threads: int,
        name: str,
    ) -> Array:
        shape = data.shape[1:]
        result = out_array(out, (self.parties, *shape), self.field.dtype, name)
        hidden = None
        if masks is not None:
            hidden = self.field.elements(masks, f"{name} masks")
            if hidden.shape != (self.privacy, *shape):
                raise FieldError(
                    f"{name}: masks must have shape (T, ...) = {(self.privacy, *shape)}, got "
                    f"{hidden.shape}."
                )
            hidden = np.ascontiguousarray(hidden).reshape(self.privacy, -1)
        refuse_overlap(result, name, data, *([] if hidden is None else [hidden]))
        flat = data.reshape(data.shape[0], -1)
        good = encoding.encode(
            *(self.field, left, flat, hidden, source, self.privacy),
            result.reshape(self.parties, -1),
            threads,
        )
        if unproved and not good:
            self.field.elements(data, f"{name} data")
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
            Whether to compare further results with the polynomial of the first R; needs R + 1
            results.
        threads : int
            Threads that share the work.

        Returns
        -------
        ndarray
            Shape (K, ...).

        Raises
        ------
        NotEnoughResultsError
            If fewer than R results are given, or fewer than R + 1 with `check`.
        CorruptResultsError
            If `check` is set and further results disagree.
        ConfigurationError
            If party numbers repeat or do not exist, shapes do not fit, or a number is no element
            (FieldError).
        """
        name = "LagrangeCode.decode"
        numbers = checks.party_numbers(parties, self.parties, name)
        results, unproved = elements.unproved(
            results, self.field.modulus, self.field.dtype, f"{name} results"
        )
        checks.check_rows(results, len(numbers), name)
        R = self._enough(len(numbers), degree, name)
        if check and len(numbers) == R:
            raise NotEnoughResultsError(
                f"{name}: check=True compares results beyond the first R = {R} with those, and "
                f"{R} were given. Wait for one more party, or decode without a check."
            )
        if unproved and check:
            self.field.elements(results, f"{name} results")
        flat = results.reshape(len(numbers), -1)
        if check:
            self._verify(flat[:R], flat[R:], numbers, R)
        values = self._interpolate(flat[:R], numbers[:R], threads, name)
        return values.reshape(self.segments, *results.shape[1:])

    def _enough(self, received: int, degree: int | None, name: str) -> int:
        degree = self.degree if degree is None else degree
        return checks.enough(received, degree, self.segments, self.privacy, name)

    def _interpolate(self, rows: Array, numbers: tuple[int, ...], threads: int, name: str) -> Array:
        """Values (K, L) at the betas from rows of parties `numbers`; FieldError for no elements."""
        left = self._decoder(numbers)[1]
        values = result((self.segments, rows.shape[1]), self.field.dtype)
        if not encoding.apply(left, [rows], values, threads):
            self.field.elements(rows, f"{name} results")
        return values

    def decode_matrix(self, parties: Sequence[int]) -> Array:
        """Matrix (K, n) that maps the results of n parties to the values at the betas.

        Matrices of the latest sets of parties are cached.

        Parameters
        ----------
        parties : sequence of int
            Distinct party numbers from 0; n - 1 is the largest degree that is interpolated.
            ConfigurationError if one repeats or does not exist.
        """
        name = "LagrangeCode.decode_matrix"
        return self._decoder(checks.party_numbers(parties, self.parties, name))[0]

    def _decoder(self, key: tuple[int, ...]) -> tuple[Array, PreparedMatrix]:
        from securevfl.field import dispatch

        with self._lock:
            if key in self._matrices:
                self._matrices.move_to_end(key)
                return self._matrices[key]
        # Outside of the lock: two threads may make the same matrix at once, and either will do.
        points = [self.alphas[n] for n in key]
        matrix = interpolation_matrix(self.field, points, self.betas[: self.segments])
        entry = _frozen(matrix), dispatch.prepare(self.field.modulus, matrix)
        with self._lock:
            self._matrices[key] = entry
            while len(self._matrices) > _KEPT_MATRICES:
                self._matrices.popitem(last=False)
        return entry

    def _verify(self, first: Array, rest: Array, numbers: tuple[int, ...], R: int) -> None:
        points = [self.alphas[n] for n in numbers]
        # R values fix the polynomial of degree R - 1, and so its values at the other parties.
        matrix = interpolation_matrix(self.field, points[:R], points[R:])
        implied = self.field.matmul(matrix, first, trusted=True)
        wrong = int((implied != rest).any(axis=1).sum())
        if wrong:
            raise CorruptResultsError(
                f"LagrangeCode.decode: {wrong} of the {len(rest)} results beyond the first {R} "
                f"disagree with those, so at least one result is wrong. "
                f"decode_with_errors corrects up to {len(rest) // 2} here."
            )

    def decode_with_errors(
        self,
        results: ArrayLike,
        parties: Sequence[int],
        degree: int | None = None,
        threads: int = 1,
    ) -> tuple[Array, tuple[int, ...]]:
        """Values at beta_1 .. beta_K, and the parties with wrong results.

        With R' results, up to A = floor((R' - R) / 2) wrong ones, in any number of entries, are
        found and left out. The results are projected on random weights that are drawn from the
        operating system's entropy after they arrived; a Reed-Solomon decoder (syndromes,
        Berlekamp-Massey) names the wrong rows, the others are decoded, and a fresh projection of
        those must be consistent. Rows with numbers outside [0, p) count as known losses.

        Parameters
        ----------
        results, parties, degree, threads
            Arguments of `decode`: results (R', ...), and the R' party numbers in their order.

        Returns
        -------
        values : ndarray
            Shape (K, ...).
        corrupted : tuple of int
            The party numbers whose results were wrong, in ascending order.

        Raises
        ------
        NotEnoughResultsError
            If fewer than R results are given, or fewer than R are left.
        CorruptResultsError
            If no set of at most A wrong results explains the received ones.
        ConfigurationError
            If party numbers repeat or do not exist; FieldError if shapes do not fit.

        Notes
        -----
        A wrong row escapes both projections with probability below 2^-58, whatever its author chose
        before sending. More than A *random* wrong rows raise, except with probability about C(R',
        A) p^(R - R' + A), times 1/p for the re-check. More than A colluders who know each other's
        results can do more: of R' = R + 2A results, A + 1 can agree on another polynomial, force
        wrong values and have an honest party named. Only wrong results are covered; inconsistent
        dealing of shares is at most detected, and nobody is named.

        References
        ----------
        Yu et al., "Lagrange Coded Computing", AISTATS 2019 (A-security).
        """
        name = "LagrangeCode.decode_with_errors"
        numbers = checks.party_numbers(parties, self.parties, name)
        rows, _ = elements.unproved(
            results, self.field.modulus, self.field.dtype, f"{name} results"
        )
        checks.check_rows(rows, len(numbers), name)
        R = self._enough(len(numbers), degree, name)
        flat = np.ascontiguousarray(rows).reshape(len(numbers), -1)
        points = np.array([self.alphas[n] for n in numbers], np.uint64)
        good = error_correction.honest(self.field, points, flat, R)
        kept = np.flatnonzero(good)
        if kept.size < R:
            raise NotEnoughResultsError(
                f"{name}: {len(numbers) - kept.size} of {len(numbers)} results are wrong, and "
                f"decoding needs R = {R}. Wait for more parties."
            )
        survivors = tuple(numbers[i] for i in kept[:R])
        values = self._interpolate(flat[kept[:R]], survivors, threads, name)
        wrong = tuple(sorted(numbers[i] for i in np.flatnonzero(~good)))
        return values.reshape(self.segments, *rows.shape[1:]), wrong


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


def _frozen(array: Array) -> Array:
    copy = np.ascontiguousarray(array)
    copy.flags.writeable = False
    return copy
