"""Matrix products on processors with tile units for bytes (AMX-INT8).

A product a x mod p is written with the bytes x_b of x and the bytes of a 2^(8b) mod p:
    a x = sum_b (a 2^(8b) mod p) x_b = sum_j 2^(8j) sum_b limb_j(a 2^(8b) mod p) x_b   (mod p).
The left operand is expanded once into those limbs, one plane per j; the right operand's own bytes
in memory are already in the order that the tile unit reads, four per 32-bit word. One tile
instruction adds 16 x 16 sums of 16 terms each to one plane; planes are combined and reduced at the
end. Elements of 64 bits have eight planes, and a second set of columns for their upper words.

Bound: a plane's sum of k terms is at most 4 k 255^2 < 2^32 for k <= 16384, and sums of limbs over
planes are at most sum_k sum_b (a 2^(8b) mod p) x_b < 4 k 255 p <= 2^24 p.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from securevfl.field.kernels.ir import I32, every, tile
from securevfl.field.kernels.jit import inlined

Array = NDArray[Any]

MOST_TERMS = 16384
BLOCK = 8  # Steps of 16 terms whose limbs, 32 KiB, stay in the L1 cache.


def setup(left: tuple[int, ...], right: tuple[int, ...], terms: int) -> Array:
    """AMX tile configuration, uint8 (64,); `left`, `right`: tile registers (0 to 7) of operands.

    Left tiles have 4 bytes a row for each of `terms` <= 16 terms; right tiles a row for each. The
    other tiles hold sums.
    """
    config = np.zeros(64, np.uint8)
    config[0] = 1  # The palette with eight tiles of up to 16 rows and 64 bytes.
    config[16:32:2], config[48:56] = 64, 16
    config[[16 + 2 * tile for tile in left]] = 4 * terms
    config[[48 + tile for tile in right]] = terms
    return config


# Sums in 0 to 3, columns in 4, limbs in 5 to 7.
SETUP = setup((5, 6, 7), (4,), 16)

configure = tile("ldtilecfg", addresses=1)
release = tile("tilerelease")
_zero0, _zero1, _zero2, _zero3 = (tile("tilezero", t) for t in range(4))
_load0, _load1, _load2, _load3, _load4, _load5, _load6, _load7 = (
    tile("tileloadd64", t, addresses=2) for t in range(8)
)
_store0, _store1, _store2, _store3 = (tile("tilestored64", t, addresses=2) for t in range(4))
_dot0, _dot1 = tile("tdpbuud", 0, 5, 4), tile("tdpbuud", 1, 6, 4)
_dot2, _dot3 = tile("tdpbuud", 2, 7, 4), tile("tdpbuud", 3, 5, 4)


def planes(builder: Any, v: list[Any]) -> list[Any]:
    """Emitted byte transpose of four vectors of words: plane j has byte j of each v_b in order."""

    def mix(a: Any, b: Any, bits: int, low: int) -> tuple[Any, Any]:
        shift, keep = every(I32, 16, bits), every(I32, 16, low)
        rest = every(I32, 16, low << bits)
        first = builder.or_(builder.and_(a, keep), builder.and_(builder.shl(b, shift), rest))
        second = builder.or_(builder.and_(builder.lshr(a, shift), keep), builder.and_(b, rest))
        return first, second

    even01, odd01 = mix(v[0], v[1], 8, 0x00FF00FF)
    even23, odd23 = mix(v[2], v[3], 8, 0x00FF00FF)
    plane0, plane2 = mix(even01, even23, 16, 0x0000FFFF)
    plane1, plane3 = mix(odd01, odd23, 16, 0x0000FFFF)
    return [plane0, plane1, plane2, plane3]


@inlined
def accumulate(left: int, panel: int, sums: int, steps: int, first: bool) -> None:
    """Add `steps` steps of 16 terms to a tile's sums in four planes, from 0 if `first`."""
    if first:
        _zero0()
        _zero1()
        _zero2()
        _zero3()
    else:
        _load0(sums, 64)
        _load1(sums + 1024, 64)
        _load2(sums + 2048, 64)
        _load3(sums + 3072, 64)
    for _ in range(steps):
        _load4(panel, 64)
        _load5(left, 64)
        _dot0()
        _load6(left + 1024, 64)
        _dot1()
        _load7(left + 2048, 64)
        _dot2()
        _load5(left + 3072, 64)
        _dot3()
        left += 4096
        panel += 1024
    _store0(sums, 64)
    _store1(sums + 1024, 64)
    _store2(sums + 2048, 64)
    _store3(sums + 3072, 64)
