"""Fixed-point numbers as field elements (FedVS, section 3: phi, Round and Round_stoc)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Never

import numpy as np
from numpy.typing import ArrayLike, NDArray

from securevfl.errors import ConfigurationError, FieldError, RangeError
from securevfl.field.elements import out_array, refuse_masked
from securevfl.field.prime_field import PrimeField

Array = NDArray[Any]

_CHUNK = 1 << 15  # Elements per draw of random words: the words stay in the L1 and L2 caches.


@dataclass(frozen=True)
class FixedPoint:
    """Fixed-point numbers with `bits` binary places, as elements of a prime field.

    phi(z) = z for z >= 0 and p + z for z < 0; a real x is represented by phi(Round(2^bits x)).

    Parameters
    ----------
    field : PrimeField
        The field.
    bits : int
        Binary places, 0 to 62; else ConfigurationError.

    Examples
    --------
    >>> q = FixedPoint(PrimeField(2**31 - 1), bits=8)
    >>> q.quantize(np.array([0.5, -1.0]))
    array([       128, 2147483391], dtype=uint32)
    >>> q.dequantize(q.quantize(np.array([0.5, -1.0])))
    array([ 0.5, -1. ])
    """

    field: PrimeField
    bits: int

    def __post_init__(self) -> None:
        if not isinstance(self.field, PrimeField):
            raise FieldError(f"FixedPoint: the field must be a PrimeField, got {self.field!r}.")
        object.__setattr__(self, "bits", _places(self.bits, 62))

    @property
    def largest(self) -> float:
        """The largest magnitude that `quantize` accepts: (p-1)/2 * 2^-bits, rounded down."""
        return math.ldexp(_below(self.field.half), -self.bits)

    def round(self, x: ArrayLike, rng: np.random.Generator | None = None) -> Array:
        """Return Round(2^bits x) as int64, the numbers that `quantize` maps into the field.

        Parameters
        ----------
        x : array_like
            float32 or float64, any shape, |x| <= (p-1)/2 * 2^-bits.
        rng : numpy.random.Generator, optional
            Without it halves are rounded up: floor(y) if frac(y) < 1/2, else floor(y) + 1. With it
            rounding is stochastic, floor(y) + Bernoulli(frac(y)), from one 32-bit word of the
            generator per element, so frac(y) counts in steps of 2^-32 (rounded up).

        Returns
        -------
        ndarray
            int64, the shape of `x`.

        Raises
        ------
        RangeError
            If an element is NaN, infinite or too large; the message names it and its index.
        ConfigurationError
            For another dtype or generator, and for masked values.
        """
        return self._apply(x, rng, np.dtype(np.int64))

    def quantize(
        self, x: ArrayLike, rng: np.random.Generator | None = None, out: Array | None = None
    ) -> Array:
        """Field elements phi(Round(2^bits x)) of the shape of `x`.

        Parameters
        ----------
        x, rng
            Arguments of `round`, which raises the errors.
        out : ndarray, optional
            C-contiguous array of the field's dtype for the result; FieldError for another.
        """
        return self._apply(x, rng, self.field.dtype, out)

    def dequantize(
        self,
        z: ArrayLike,
        bits: int | None = None,
        out: Array | None = None,
    ) -> Array:
        """Real numbers 2^-bits times the signed values of field elements z, as float64.

        Exact where that number is below 2^53 in magnitude, correctly rounded above.

        Parameters
        ----------
        z : array_like
            Elements; FieldError for a number outside [0, p).
        bits : int, optional
            Binary places of `z`, 0 to 124 (a product has the sum of its factors'); by default the
            instance's. ConfigurationError for others.
        out : ndarray, optional
            C-contiguous float64 array for the result; FieldError for another.
        """
        from securevfl.field.kernels import fixed_point as kernels
        from securevfl.field.kernels.streaming import fixed_point as streaming

        places = self.bits if bits is None else _places(bits, 124)
        # The kernel proves the range of arrays of the field's dtype in its one pass.
        if not (isinstance(z, np.ndarray) and z.dtype == self.field.dtype):
            z = self.field.elements(z, "FixedPoint.dequantize")
        flat = np.ascontiguousarray(z).reshape(-1)
        out = out_array(out, z.shape, np.dtype(np.float64), "FixedPoint.dequantize")
        p, half = self.field.modulus, self.field.half
        scale, kind = math.ldexp(1.0, -places), flat.dtype.type
        kernel = kernels.dequantize_short if p < 1 << 31 else kernels.dequantize

        def near(z: Array, out: Array) -> bool:
            return kernel(z, kind(p), kind(half), scale, out)

        past = streaming.dequantizer(flat, p)
        if streaming.convert(past, near, flat, out.reshape(-1), scale, 0.0, p):
            self.field.elements(z, "FixedPoint.dequantize")
        return out

    def _apply(
        self,
        x: ArrayLike,
        rng: np.random.Generator | None,
        dtype: np.dtype[Any],
        target: Array | None = None,
    ) -> Array:
        from securevfl.field.kernels.fixed_point import round_stochastic

        refuse_masked(x, "FixedPoint")
        if rng is not None and not isinstance(rng, np.random.Generator):
            raise ConfigurationError(
                f"FixedPoint: rng must be a numpy.random.Generator, got {rng!r}. "
                f"numpy.random.default_rng(seed) makes one."
            )
        array = np.asarray(x)
        if array.dtype not in (np.float32, np.float64):
            raise ConfigurationError(
                f"FixedPoint: x must be float32 or float64, got {array.dtype}. Convert it first, "
                f"so that any rounding is yours."
            )
        flat = np.ascontiguousarray(array).reshape(-1)
        result = out_array(target, array.shape, dtype, "FixedPoint.quantize")
        out = result.reshape(-1)
        # Signed results are phi with a modulus of 0.
        p = np.int64(0 if dtype == np.int64 else self.field.modulus)
        scale, largest = math.ldexp(1.0, self.bits), _below(self.field.half)
        if rng is None:
            wrong = self._half_up(flat, scale, largest, int(p), out)
        else:
            wrong = False
            for start in range(0, flat.size, _CHUNK):
                part = slice(start, start + _CHUNK)
                size = flat[part].size
                words = rng.integers(0, 1 << 32, size, dtype=np.uint32)
                wrong |= round_stochastic(flat[part], words, scale, largest, p, out[part])
        if wrong:
            self._refuse(array)
        return result

    def _half_up(self, x: Array, scale: float, largest: float, p: int, out: Array) -> bool:
        """Round halves up into `out`; return whether a number is out of range."""
        from securevfl.field.kernels import fixed_point as kernels
        from securevfl.field.kernels.streaming import fixed_point as streaming

        short = x.dtype == np.float32 and 0 < p < 1 << 31
        if short:
            largest = _below(self.field.half, 24)

        def near(x: Array, out: Array) -> bool:
            if short:
                single = np.float32(scale), np.float32(largest), np.int32(p)
                return kernels.round_half_up_short(x, *single, out)
            return kernels.round_half_up(x, scale, largest, np.int64(p), out)

        past = streaming.quantizer(x, out, p)
        return streaming.convert(past, near, x, out, scale, largest, p)

    def _refuse(self, x: Array) -> Never:
        limit = self.largest
        inside = np.abs(x.astype(np.float64)) <= limit
        index = tuple(int(i) for i in np.argwhere(~inside)[0])
        value = float(x[index])
        advice = (
            f"Lower bits below {self.bits}, scale the data, or use a larger prime."
            if math.isfinite(value)
            else "Replace NaN and infinite numbers before sharing."
        )
        raise RangeError(
            f"FixedPoint: the number {value!r} at index {index} cannot be represented with "
            f"{self.bits} binary places modulo {self.field.modulus}: |x| must be at most "
            f"(p-1)/2 * 2^-{self.bits} = {limit:g}. {advice}"
        )


def _places(bits: int, most: int) -> int:
    if isinstance(bits, bool) or not isinstance(bits, int | np.integer) or not 0 <= bits <= most:
        raise ConfigurationError(
            f"FixedPoint: bits must be an integer from 0 to {most}, got {bits!r}."
        )
    return int(bits)


def _below(n: int, bits: int = 53) -> float:
    """Return the largest float with a mantissa of `bits` bits that does not exceed `n`."""
    # (p-1)/2 has up to 60 bits and a double 53: rounding to nearest could give a bound above
    # (p-1)/2 and let a number through that wraps.
    spare = max(0, n.bit_length() - bits)
    return float(n >> spare << spare)
