"""Passes between field elements and a stream of bits, for any number of bits from 1 to 62.

Element i occupies the bits i b to (i+1) b - 1 of the stream; bit t is bit t mod 8 of byte t // 8.
All shifts stay below 64: an element that crosses the end of a 64-bit word has at most 62 bits, so
at least 2 of them lie in the word where it begins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from securevfl.field.kernels.jit import intrinsic, kernel

Array = NDArray[Any]

_WORD = ir.IntType(64)


@intrinsic
def _word_at(context: Any, address: Any) -> Any:
    """The 8 bytes at an address, aligned or not."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], ir.PointerType(_WORD)), align=1)

    return types.uint64(types.uintp), generate


@intrinsic
def _put_word(context: Any, address: Any, word: Any) -> Any:
    """Write 8 bytes to an address, aligned or not."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], builder.inttoptr(args[0], ir.PointerType(_WORD)), align=1)
        return context.get_dummy_value()

    return types.void(types.uintp, types.uint64), generate


@kernel
def pack(z: Array, bits: Any, stream: Array) -> Any:
    """Write the stream of all elements; return the largest of them.

    Parameters
    ----------
    z : ndarray, (n,), unsigned
    bits : uint64
        b.
    stream : ndarray, (ceil(n b / 8),), uint8
    """
    full, place = np.uint64(64), stream.ctypes.data
    word, used, most = np.uint64(0), np.uint64(0), np.uint64(0)
    for i in range(np.uint64(z.size)):
        value = np.uint64(z[i])
        most = max(most, value)
        word |= value << used
        beyond = used + bits
        if beyond >= full:
            _put_word(place, word)
            place += 8
            word = value >> (full - used)  # used > 0, as one element does not fill a word
            used = beyond - full
        else:
            used = beyond
    size = np.uint64(stream.size)
    for byte in range(size - ((used + np.uint64(7)) >> np.uint64(3)), size):
        stream[byte] = word & np.uint64(255)
        word >>= np.uint64(8)
    return most


@kernel
def unpack(stream: Array, bits: Any, z: Array) -> Any:
    """Read all elements; return the largest, and the bits that follow the last one.

    Parameters
    ----------
    stream : ndarray, (ceil(n b / 8),), uint8
    bits : uint64
        b.
    z : ndarray, (n,), unsigned
    """
    one, seven, three, last = np.uint64(1), np.uint64(7), np.uint64(3), np.uint64(63)
    mask, start = (one << bits) - one, np.uint64(stream.ctypes.data)
    n, size = np.uint64(z.size), np.uint64(stream.size)
    bit, most = np.uint64(0), np.uint64(0)
    # An element lies in the 9 bytes from the one in which it begins.
    inside = min(n, (size - np.uint64(9)) * np.uint64(8) // bits) if size > 9 else np.uint64(0)
    for i in range(inside):
        place, shift = bit >> three, bit & seven
        beyond = np.uint64(stream[place + np.uint64(8)])
        word = (_word_at(start + place) >> shift) | ((beyond << one) << (last - shift))
        most = max(most, word & mask)
        z[i] = word & mask
        bit += bits
    for i in range(inside, n):
        place, shift = bit >> three, bit & seven
        word = np.uint64(0)
        for byte in range(min(np.uint64(8), size - place)):
            word |= np.uint64(stream[place + byte]) << (byte * np.uint64(8))
        word >>= shift
        if place + np.uint64(8) < size:
            word |= (np.uint64(stream[place + np.uint64(8)]) << one) << (last - shift)
        most = max(most, word & mask)
        z[i] = word & mask
        bit += bits
    padding = np.uint64(0)
    if bit & seven:
        padding = np.uint64(stream[bit >> three]) >> (bit & seven)
    return most, padding
