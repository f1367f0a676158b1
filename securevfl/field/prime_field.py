"""The prime field F_p as operations on plain NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from securevfl.errors import FieldError, needs
from securevfl.field.elements import (
    as_elements,
    out_array,
    refuse_masked,
    refuse_other_field,
    refuse_overlap,
    unproved,
)
from securevfl.field.kernels import primes

if TYPE_CHECKING:
    from securevfl.field.sampling import Source


Array = NDArray[Any]

_USUAL = "2**31 - 1, 2**50 - 2**14 + 1 and 2**61 - 1"  # primes.USUAL
_FEW = 32  # Elements that are inverted by Python integers, a microsecond each.
LARGEST = 1 << 62  # The lazy sums of the kernels need two spare bits in a 64-bit word.


@dataclass(frozen=True)
class PrimeField:
    """The field of integers modulo an odd prime below 2^62.

    Elements are plain arrays of `dtype` with values in [0, p). Arguments may be any unsigned or
    object arrays, Python integers or lists of them; signed and floating arrays and numbers outside
    [0, p) are refused. Results are new arrays of `dtype`, but for `elements`, which returns an
    array of elements itself; no input is changed. Shapes broadcast.

    Products are fastest at the usual primes, `primes.USUAL`: 2^31-1, 2^50-2^14+1 and 2^61-1.
    The second has roots of unity of orders up to 2^14, and takes a quarter of the third's time.

    Parameters
    ----------
    modulus : int
        The prime p.

    Raises
    ------
    FieldError
        If `modulus` is not an odd prime below 2^62.

    Examples
    --------
    >>> F = PrimeField(2**31 - 1)
    >>> F.multiply([2**30, 3], 4)
    array([ 2, 12], dtype=uint32)
    """

    modulus: int

    def __post_init__(self) -> None:
        p = self.modulus
        if isinstance(p, bool) or not isinstance(p, int | np.integer):
            raise FieldError(f"PrimeField: the modulus must be an integer, got {p!r}.")
        object.__setattr__(self, "modulus", int(p))
        if not 3 <= p < LARGEST:
            raise FieldError(
                f"PrimeField: the modulus must be an odd prime below 2^62, got {p}. "
                f"{_USUAL} are the usual ones."
            )
        if not primes.is_prime(int(p)):
            hint = " In Python ^ is exclusive or; powers are written **." if p < 64 else ""
            raise FieldError(
                f"PrimeField: the modulus must be prime, but {p} is composite; division would not "
                f"be defined. {_USUAL} are the usual ones.{hint}"
            )

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """NumPy dtype of elements: uint32 for p below 2^32, else uint64."""
        return np.dtype(np.uint32 if self.modulus < 1 << 32 else np.uint64)

    @property
    def half(self) -> int:
        """Largest positive number in the signed reading: (p - 1) / 2."""
        return (self.modulus - 1) // 2

    def elements(self, values: ArrayLike, name: str = "elements") -> Array:
        """The values as an array of `dtype`, checked to lie in [0, p).

        FieldError if the dtype is signed or floating, or a value is outside; the message names the
        index.
        """
        return as_elements(values, self.modulus, self.dtype, name)

    def reduce(self, values: ArrayLike) -> Array:
        """Any integers (signed, unsigned or Python's) reduced modulo p; FieldError for others."""
        refuse_masked(values, "PrimeField.reduce")
        try:
            array = np.asarray(values)
            if array.dtype.kind not in "iu":
                array = np.array(values, dtype=object)
        except ValueError as error:
            raise FieldError(f"PrimeField.reduce: the values are no array: {error}.") from None
        if array.dtype == object:
            wrong = [v for v in array.flat if not isinstance(v, int | np.integer)]
            if wrong:
                raise FieldError(
                    f"PrimeField.reduce: values must be integers, got {wrong[0]!r}. "
                    f"FixedPoint.quantize maps real numbers."
                )
            return np.asarray(np.mod(array, self.modulus)).astype(self.dtype)
        wide = array.astype(np.int64 if array.dtype.kind == "i" else np.uint64, copy=False)
        return np.mod(wide, wide.dtype.type(self.modulus)).astype(self.dtype)

    def signed(self, values: ArrayLike) -> Array:
        """Return the int64 representatives in [-(p-1)/2, (p-1)/2]."""
        z = self.elements(values, "PrimeField.signed").astype(np.int64)
        return np.where(z > self.half, z - self.modulus, z)

    def random(self, shape: int | tuple[int, ...], source: Source | None = None) -> Array:
        """Independent uniform elements.

        Parameters
        ----------
        shape : int or tuple of int
            The shape of the result.
        source : Source, optional
            Source of the bytes; by default the operating system's entropy.
        """
        from securevfl.field.sampling import uniform

        return uniform(self.modulus, self.dtype, shape, source)

    # The same elements as arrays of galois.

    def to_galois(self, values: ArrayLike) -> Any:
        """Elements as an array of `galois.GF(p)`, which has operators of its own.

        FieldError if a value is no element; MissingPackageError without galois.

        Examples
        --------
        >>> F = PrimeField(97)
        >>> F.to_galois([5, 96]) * 2
        GF([10, 95], order=97)
        """
        needs("PrimeField.to_galois", "galois", "galois")
        import galois

        array = self.elements(values, "PrimeField.to_galois")
        GF = galois.GF(self.modulus)
        return GF(array.astype(GF.dtypes[0]))

    def from_galois(self, array: Any) -> Array:
        """Return an array of `galois.GF(p)` as plain elements of `dtype`.

        FieldError if it is no galois array, or one of another field.
        """
        if not hasattr(type(array), "order"):
            raise FieldError(
                f"PrimeField.from_galois: got {type(array).__name__}, which is no array of galois; "
                f"PrimeField.elements takes plain arrays."
            )
        refuse_other_field(array, self.modulus, "PrimeField.from_galois")
        return np.array(array, dtype=object).astype(self.dtype)

    # Element-wise operations.

    def add(self, a: ArrayLike, b: ArrayLike) -> Array:
        """Sum a + b of elements."""
        from securevfl.field.kernels import scalar

        a, b, out = self._pair(a, b, "PrimeField.add")
        scalar.add(a, b, np.uint64(self.modulus), out.reshape(-1))
        return out

    def subtract(self, a: ArrayLike, b: ArrayLike) -> Array:
        """Difference a - b of elements."""
        from securevfl.field.kernels import scalar

        a, b, out = self._pair(a, b, "PrimeField.subtract")
        scalar.subtract(a, b, np.uint64(self.modulus), out.reshape(-1))
        return out

    def negative(self, a: ArrayLike) -> Array:
        """Negative -a of elements."""
        return self.subtract(np.zeros((), self.dtype), a)

    def multiply(self, a: ArrayLike, b: ArrayLike) -> Array:
        """Element-wise product of elements."""
        from securevfl.field.kernels import scalar

        a, b, out = self._pair(a, b, "PrimeField.multiply")
        p, flat = np.uint64(self.modulus), out.reshape(-1)
        if self.dtype == np.uint32:
            constants = primes.montgomery(self.modulus, 32)
            inverse = np.uint64((1 << 32) - constants.negative_inverse)
            scalar.multiply32(a, b, p, inverse, np.uint64(constants.square), flat)
        else:
            scalar.multiply64(a, b, *self._constants, flat)
        return out

    def divide(self, a: ArrayLike, b: ArrayLike) -> Array:
        """Return a / b; FieldError for a zero in `b`."""
        return self.multiply(a, self.reciprocal(b))

    def reciprocal(self, a: ArrayLike) -> Array:
        """Inverses 1/a of elements; FieldError with the index of a zero."""
        x = self.elements(a, "PrimeField.reciprocal")
        if not x.all():
            first = int((x == 0).argmax())
            place = tuple(int(i) for i in np.unravel_index(first, x.shape)) if x.ndim else ()
            raise FieldError(
                f"PrimeField.reciprocal: the element at index {place} is 0, which has no inverse. "
                f"Divide by non-zero elements only."
            )
        if x.size <= _FEW:  # No compiled loop is loaded, or even compiled, for these.
            few = [pow(v, -1, self.modulus) for v in x.ravel().tolist()]
            return np.array(few, self.dtype).reshape(x.shape)
        from securevfl.field.kernels import scalar

        flat = np.ascontiguousarray(x).reshape(-1).astype(np.uint64)
        out = np.empty(x.size, np.uint64)
        work = np.empty(x.size + scalar.CHAINS, np.uint64)
        scalar.reciprocal(flat, *self._constants, out, work)
        return out.astype(self.dtype).reshape(x.shape)

    def power(self, a: ArrayLike, exponent: int | ArrayLike) -> Array:
        """Return a^exponent; 0^0 is 1, and a negative exponent inverts first.

        Parameters
        ----------
        a : array_like
            Field elements.
        exponent : int or array_like of int
            One exponent, or an array that broadcasts with `a`; any integers.

        Returns
        -------
        ndarray
            Of the broadcast shape.

        Raises
        ------
        FieldError
            When an exponent is no integer, a negative one meets a zero, or `a` has no elements.

        Examples
        --------
        >>> F = PrimeField(7)
        >>> F.power([[2], [3]], [-1, 0, 1, 2]).tolist()
        [[4, 1, 2, 4], [5, 1, 3, 2]]
        """
        if np.ndim(exponent):
            return self._powers(a, exponent)
        if isinstance(exponent, bool) or not isinstance(exponent, int | np.integer):
            raise FieldError(f"PrimeField.power: the exponent must be an integer: {exponent!r}.")
        from securevfl.field.kernels import scalar

        e = int(exponent)
        x = self.reciprocal(a) if e < 0 else self.elements(a, "PrimeField.power")
        e, order = abs(e), self.modulus - 1
        if e > order:  # a^(p-1) = 1 except for 0, whose powers stay 0: keep the exponent positive.
            e = e % order + order
        flat = np.ascontiguousarray(x).reshape(-1).astype(np.uint64)
        out = np.empty(x.size, np.uint64)
        scalar.power(flat, np.uint64(e), *self._constants, out)
        return out.astype(self.dtype).reshape(x.shape)

    def _powers(self, a: ArrayLike, exponents: ArrayLike) -> Array:
        """Powers by an array of exponents, by repeated squaring; FieldError as in `power`."""
        wanted = np.asarray(exponents)
        if wanted.dtype.kind == "f" and not isinstance(exponents, np.ndarray):
            wanted = np.array(exponents, object)  # 2^63 beside -1 became floats; or there are none
        if wanted.dtype.kind not in "iu" and not all(type(e) is int for e in wanted.flat):
            raise FieldError(
                f"PrimeField.power: exponents must be integers, they are {wanted.dtype.name}."
            )
        base = self.elements(a, "PrimeField.power")
        try:
            base, wanted = np.broadcast_arrays(base, wanted)
        except ValueError:
            raise FieldError(
                f"PrimeField.power: shapes {base.shape} and {wanted.shape} do not broadcast."
            ) from None
        negative = np.asarray(wanted < 0, bool)
        base = base.copy()
        base[negative] = self.reciprocal(base[negative])
        order = self.modulus - 1
        # a^(p-1) = 1 except for 0, whose powers stay 0: a multiple of p-1 other than 0 stays p-1.
        if wanted.dtype.kind == "O":
            whole = np.abs(wanted)
            left = np.where(whole > order, whole % order + order, whole).astype(np.uint64)
        else:  # |e| in 64 bits, also of the least int64
            whole = np.where(negative, ~wanted, wanted).astype(np.uint64) + negative
            left = np.where(whole > order, whole % np.uint64(order) + np.uint64(order), whole)
        result = np.ones_like(base)
        for _ in range(int(left.max(initial=0)).bit_length()):
            odd = (left & np.uint64(1)).astype(bool)
            result[odd] = self.multiply(result[odd], base[odd])
            base, left = self.multiply(base, base), left >> np.uint64(1)
        return result

    # Linear algebra.

    def matmul(
        self,
        a: ArrayLike,
        b: ArrayLike,
        *,
        out: Array | None = None,
        threads: int = 1,
        trusted: bool = False,
    ) -> Array:
        """Return the matrix product, with numpy.matmul's rules for one and more dimensions.

        Parameters
        ----------
        a, b : array_like
            Shapes (..., m, k) and (..., k, n), or vectors.
        out : ndarray, optional
            C-contiguous array of `dtype` for the result, which must not overlap `a` or `b`. Its
            content is undefined if a number in `b` is refused.
        threads : int
            Threads that share the work.
        trusted : bool
            Whether to skip the range check. Both must be arrays of `dtype` with values in [0, p),
            like all results of this class.

        Raises
        ------
        FieldError
            If shapes do not fit, a number is not in [0, p), or `out` cannot take the result.
        """
        from securevfl.field.dispatch import matmul

        name, to_prove = "PrimeField.matmul", False
        if trusted:
            a, b = np.asarray(a, self.dtype), np.asarray(b, self.dtype)
        else:
            a = self.elements(a, f"{name} a")
            b, to_prove = unproved(b, self.modulus, self.dtype, f"{name} b")
        if a.ndim == 0 or b.ndim == 0 or a.shape[-1] != b.shape[max(-2, -b.ndim)]:
            long = "b" if b.ndim == 1 else "the last but one of b"
            why = f"the last axis of a must be as long as {long}."
            if a.ndim == 0 or b.ndim == 0:
                why = "neither may be a single number."
            raise FieldError(f"{name}: shapes {a.shape} and {b.shape} do not fit: {why}")
        left = a[None, :] if a.ndim == 1 else a
        right = b[:, None] if b.ndim == 1 else b
        try:
            stack = left.shape[:-2]
            if stack or right.ndim > 2:
                stack = np.broadcast_shapes(stack, right.shape[:-2])
        except ValueError:
            raise FieldError(
                f"{name}: stacks {a.shape[:-2]} and {b.shape[:-2]} do not broadcast."
            ) from None
        full = (*stack, left.shape[-2], right.shape[-1])
        shape = (*stack, *(full[-2:-1] if a.ndim > 1 else ()), *(full[-1:] if b.ndim > 1 else ()))
        out = out_array(out, shape, self.dtype, name)
        refuse_overlap(out, name, a, b)
        # The pass that multiplies proves the range of b, which it reads whole.
        if not matmul(self.modulus, left, right, out.reshape(full), threads) and to_prove:
            self.elements(b, f"{name} b")
        return out

    def solve(self, a: ArrayLike, b: ArrayLike) -> Array:
        """Return x with a x = b for a square `a` (n, n) and `b` of shape (n,) or (n, m).

        FieldError if `a` is singular, the shapes do not fit, or a number is no element.
        """
        x = self._square(a, "PrimeField.solve")
        y = self.elements(b, "PrimeField.solve b")
        if y.ndim not in (1, 2) or y.shape[0] != x.shape[0]:
            raise FieldError(
                f"PrimeField.solve: a has {x.shape[0]} rows, so b must have shape "
                f"({x.shape[0]},) or ({x.shape[0]}, m), got {y.shape}."
            )
        solution, determinant = self._eliminate(x, y.reshape(y.shape[0], -1))
        if determinant == 0:
            raise FieldError(
                f"PrimeField.solve: the {x.shape[0]} x {x.shape[0]} matrix is singular modulo "
                f"{self.modulus}; there is no unique solution."
            )
        return solution.reshape(y.shape)

    def inv(self, a: ArrayLike) -> Array:
        """Return the inverse of a square matrix; FieldError if it is singular."""
        x = self._square(a, "PrimeField.inv")
        return self.solve(x, np.eye(x.shape[0], dtype=self.dtype))

    def det(self, a: ArrayLike) -> int:
        """Return the determinant of a square matrix (n, n); FieldError for another shape."""
        x = self._square(a, "PrimeField.det")
        return self._eliminate(x, np.zeros((x.shape[0], 0), self.dtype))[1]

    def convolve(self, a: ArrayLike, b: ArrayLike) -> Array:
        """Product of polynomials: (m + n - 1,) of coefficients (m,), (n,); FieldError if empty."""
        from securevfl.field.kernels import scalar

        x, y = (self.elements(v, "PrimeField.convolve").astype(np.uint64) for v in (a, b))
        if x.ndim != 1 or y.ndim != 1 or not x.size or not y.size:
            raise FieldError(
                f"PrimeField.convolve: needs two non-empty vectors, got shapes {x.shape} and "
                f"{y.shape}."
            )
        out = np.empty(x.size + y.size - 1, np.uint64)
        scalar.convolve(x, y, *self._constants, out)
        return out.astype(self.dtype)

    # Inside.

    @property
    def _constants(self) -> tuple[np.uint64, np.uint64, np.uint64]:
        """Constants p, -1/p mod 2^64 and 2^128 mod p."""
        c = primes.montgomery(self.modulus, 64)
        return np.uint64(c.p), np.uint64(c.negative_inverse), np.uint64(c.square)

    def _pair(self, a: ArrayLike, b: ArrayLike, name: str) -> tuple[Array, Array, Array]:
        """Both operands, broadcast and flat, and an array for the result; FieldError by `name`."""
        a, b = self.elements(a, f"{name} a"), self.elements(b, f"{name} b")
        try:
            shape = a.shape if a.shape == b.shape else np.broadcast_shapes(a.shape, b.shape)
        except ValueError:
            raise FieldError(f"{name}: shapes {a.shape} and {b.shape} do not broadcast.") from None
        if a.shape != shape or b.shape != shape:
            a, b = np.broadcast_to(a, shape), np.broadcast_to(b, shape)
        a, b = np.ascontiguousarray(a.reshape(-1)), np.ascontiguousarray(b.reshape(-1))
        return a, b, np.empty(shape, self.dtype)

    def _square(self, a: ArrayLike, name: str) -> Array:
        x = self.elements(a, f"{name} a")
        if x.ndim != 2 or x.shape[0] != x.shape[1]:
            raise FieldError(f"{name}: needs a square matrix, got shape {x.shape}.")
        return x

    def _eliminate(self, a: Array, rhs: Array) -> tuple[Array, int]:
        """Return the solution (n, m) of a x = rhs and det(a)."""
        from securevfl.field.kernels import scalar

        left = np.array(a, dtype=np.uint64, order="C")
        right = np.array(rhs, dtype=np.uint64, order="C")
        for matrix in (left, right):
            scalar.to_montgomery(matrix.reshape(-1), *self._constants)
        determinant = np.array([scalar.eliminate(left, right, *self._constants)], np.uint64)
        for array in (right.reshape(-1), determinant):
            scalar.from_montgomery(array, *self._constants[:2])
        return right.astype(self.dtype), int(determinant[0])
