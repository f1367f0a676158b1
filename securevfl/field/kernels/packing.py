"""Passes between field elements and a stream of bits, for any number of bits from 1 to 62.

Element i occupies the bits i b to (i+1) b - 1 of the stream; bit t is bit t mod 8 of byte t // 8.
All shifts stay below 64: an element that crosses the end of a 64-bit word has at most 62 bits, so
at least 2 of them lie in the word where it begins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from securevfl.field.kernels.jit import intrinsic, kernel, types

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
def pack(z: Array, bits: Any, shifts: Array, stream: Array) -> Any:
    """Write the bit stream of all elements; return the largest element.

    Eight elements begin and end with a byte, so the places of the eight are the same in every
    group. Up to 57 bits an element, shifted by at most 7, fits a word: it is joined to what its
    neighbour left over, and 8 bytes are written, which the next ones overwrite from their first on.

    Parameters
    ----------
    z : ndarray, (n,), unsigned
        Elements to write.
    bits : uint64
        Number b of bits of an element.
    shifts : ndarray, (8, 3), uint64
        Of each element m of a group: m b mod 8; its first byte, floor(m b / 8); and 8 times the
        number of bytes from there to the first byte of the next one. That is 64 for the last
        element at b = 57 alone, where 0 stands for it: nothing is left over to the next group.
    stream : ndarray, (ceil(n b / 8),), uint8
        Array for the result.
    """
    full, eight, three = np.uint64(64), np.uint64(8), np.uint64(3)
    place, size, n = np.uint64(stream.ctypes.data), np.uint64(stream.size), np.uint64(z.size)
    word, used, most = np.uint64(0), np.uint64(0), np.uint64(0)
    groups = np.uint64(0)
    if bits <= 57 and size > eight:
        groups = min(n >> three, (size - eight) // bits)
    for group in range(groups):
        left = np.uint64(0)
        for m in range(8):
            value = np.uint64(z[group * eight + np.uint64(m)])
            most = max(most, value)
            word = (value << shifts[m, 0]) | left
            _put_word(place + shifts[m, 1], word)
            left = word >> shifts[m, 2]
        place += bits
    word = np.uint64(0)
    for i in range(groups * eight, n):
        value = np.uint64(z[i])
        most = max(most, value)
        word |= value << used
        beyond = used + bits
        if beyond >= full:
            _put_word(place, word)
            place += eight
            word = value >> (full - used)  # used > 0, as one element does not fill a word
            used = beyond - full
        else:
            used = beyond
    for byte in range(size - ((used + np.uint64(7)) >> three), size):
        stream[byte] = word & np.uint64(255)
        word >>= eight
    return most


@kernel
def unpack(stream: Array, bits: Any, shifts: Array, z: Array) -> Any:
    """Read all elements; return the largest, plus 2^63 if a bit that follows the last one is set.

    Parameters
    ----------
    stream : ndarray, (ceil(n b / 8),), uint8
        Bits to read.
    bits, shifts : uint64, ndarray (8, 3) of uint64
        Number b of bits of an element, and shifts of eight elements (`pack`).
    z : ndarray, (n,), unsigned
        Array for the elements.
    """
    one, seven, three, last = np.uint64(1), np.uint64(7), np.uint64(3), np.uint64(63)
    eight = np.uint64(8)
    mask, start = (one << bits) - one, np.uint64(stream.ctypes.data)
    n, size = np.uint64(z.size), np.uint64(stream.size)
    most, groups = np.uint64(0), np.uint64(0)
    if bits <= 57 and size > eight:
        groups = min(n >> three, (size - eight) // bits)
    for group in range(groups):
        place = start + group * bits
        for m in range(8):
            value = (_word_at(place + shifts[m, 1]) >> shifts[m, 0]) & mask
            most = max(most, value)
            z[group * eight + np.uint64(m)] = value
    # An element lies in the 9 bytes from the one in which it begins.
    inside = min(n, (size - np.uint64(9)) * eight // bits) if size > 9 else np.uint64(0)
    bit = groups * eight * bits
    for i in range(groups * eight, max(inside, groups * eight)):
        place, shift = bit >> three, bit & seven
        beyond = np.uint64(stream[place + eight])
        word = (_word_at(start + place) >> shift) | ((beyond << one) << (last - shift))
        most = max(most, word & mask)
        z[i] = word & mask
        bit += bits
    for i in range(max(inside, groups * eight), n):
        place, shift = bit >> three, bit & seven
        word = np.uint64(0)
        for byte in range(min(eight, size - place)):
            word |= np.uint64(stream[place + byte]) << (byte * eight)
        word >>= shift
        if place + eight < size:
            word |= (np.uint64(stream[place + eight]) << one) << (last - shift)
        most = max(most, word & mask)
        z[i] = word & mask
        bit += bits
    if bit & seven and np.uint64(stream[bit >> three]) >> (bit & seven):
        most |= one << last
    return most
