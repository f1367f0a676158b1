"""Field elements as a stream of bits: b = ceil(log2 p) bits each, and no more.

The stream is the integer ``sum_i z_i 2^(i b)`` in ceil(n b / 8) bytes, little-endian. The encoding
is unique: `unpack` accepts no other stream of an array.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from securevfl.errors import FieldError

Array = NDArray[Any]

_LARGEST = 1 << 62  # as of `securevfl.field.PrimeField`


@functools.lru_cache(maxsize=64)
def element_bits(modulus: int) -> int:
    """Number b of bits that hold every element of F_p.

    Examples
    --------
    >>> element_bits(2**31 - 1), element_bits(2**50 - 2**14 + 1)
    (31, 50)
    """
    return (modulus - 1).bit_length()


@functools.lru_cache(maxsize=64)
def element_dtype(modulus: int) -> np.dtype[Any]:
    """Dtype of unpacked elements, as `securevfl.field.PrimeField.dtype`."""
    return np.dtype(np.uint32 if modulus < 1 << 32 else np.uint64)


def packed_size(count: int, modulus: int) -> int:
    """Number of bytes of so many elements, ceil(count b / 8).

    Examples
    --------
    >>> packed_size(1000, 2**50 - 2**14 + 1)
    6250
    """
    return (count * element_bits(modulus) + 7) // 8


def pack(elements: Array, modulus: int) -> Array:
    """Bytes of the bit stream of an array of elements, in C order.

    Parameters
    ----------
    elements : ndarray, any shape, uint32 for p < 2^32, else uint64
        Elements in [0, p).
    modulus : int
        Prime p, below 2^62.

    Returns
    -------
    ndarray, (ceil(n b / 8),), uint8

    Raises
    ------
    FieldError
        For another dtype, or a number outside [0, p).

    Examples
    --------
    >>> pack(np.array([1, 2, 96], np.uint32), 97).tolist()  # 1 + 2 * 2^7 + 96 * 2^14
    [1, 1, 24]
    """
    bits, dtype, shifts, kernel, _ = _layout(modulus)
    if elements.dtype != dtype:
        raise FieldError(
            f"pack: elements of the field of {modulus} have dtype {dtype}, these have "
            f"{elements.dtype}. PrimeField.elements converts them."
        )
    flat, stream = elements.ravel(), np.empty((elements.size * bits + 7) // 8, np.uint8)
    most = kernel(id(flat), bits, id(shifts), id(stream))
    if most >= modulus:
        raise FieldError(
            f"pack: a number in the array is {most}, outside [0, {modulus}). PrimeField.reduce "
            f"maps any integers into the field."
        )
    return stream


def unpack(stream: bytes | memoryview, shape: tuple[int, ...], modulus: int) -> Array:
    """Return the array of elements that a bit stream holds; the inverse of `pack`.

    Parameters
    ----------
    stream : bytes or read-only buffer of them
        ceil(n b / 8) bytes, for n elements of b bits.
    shape : tuple of int
        Shape of the array.
    modulus : int
        Prime p, below 2^62.

    Raises
    ------
    FieldError
        If the length does not match the shape (checked before any allocation), an element is not
        below p, or a bit after the last element is set.

    Examples
    --------
    >>> unpack(bytes([1, 1, 24]), (3,), 97)
    array([ 1,  2, 96], dtype=uint32)
    """
    bits, dtype, shifts, _, kernel = _layout(modulus)
    count = math.prod(shape)
    needed = (count * bits + 7) // 8
    data = np.frombuffer(stream, np.uint8)
    if data.size != needed or (shape and min(shape) < 0):
        raise FieldError(
            f"unpack: {count} elements of {bits} bits take {needed} bytes, and there are "
            f"{data.size}."
        )
    elements = np.empty(count, dtype)
    most = kernel(id(data), bits, id(shifts), id(elements))
    # The kernel returns the largest element and, in the top bit, whether a bit after them is set.
    padding, most = most >> 63, most & (1 << 63) - 1
    if most >= modulus:
        raise FieldError(f"unpack: an element is {most}, outside [0, {modulus}).")
    if padding:
        raise FieldError("unpack: a bit after the last element is set; it must be 0.")
    return elements.reshape(shape)


@functools.lru_cache(maxsize=64)
def _layout(modulus: int) -> tuple[int, np.dtype[Any], Array, Any, Any]:
    """Bits and dtype of an element, shifts as in `pack`, two kernels; FieldError for p >= 2^62.

    Messages are many and short, so the kernels are called as compiled, with addresses.
    """
    from securevfl.field.kernels import jit, packing

    if not 2 <= modulus < _LARGEST:
        raise FieldError(f"packing: the modulus must lie in 2 to 2^62 - 1, it is {modulus}.")
    bits = element_bits(modulus)
    # Eight elements end with a whole byte, so the places of all others repeat those of these.
    places = [(m * bits % 8, m * bits // 8, (m + 1) * bits // 8 - m * bits // 8) for m in range(8)]
    shifts = np.array([(shift, first, 8 * step % 64) for shift, first, step in places], np.uint64)
    dtype, stream = element_dtype(modulus), np.empty(0, np.uint8)
    z = np.empty(0, dtype)
    pack = jit.compiled(packing.pack, z, np.uint64(bits), shifts, stream)
    unpack = jit.compiled(packing.unpack, stream, np.uint64(bits), shifts, z)
    return bits, dtype, shifts, pack, unpack
