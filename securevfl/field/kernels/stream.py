"""The tile unit's product for few terms and many columns, which memory traffic bounds: encoding.

With at most 32 terms a plane's sum C_j is at most 4 * 32 * 255^2 < 2^23, so that u = C_0 + 2^8 C_1
and v = C_2 + 2^8 C_3 are below 2^31 and the value u + 2^16 v is reduced in 32-bit lanes, sixteen
columns at once. See `tiles` for the planes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numpy.typing import NDArray

from securevfl.field.kernels.ir import I32, copy16, every, load, smaller, splat, store, tile
from securevfl.field.kernels.jit import inlined, intrinsic, kernel, types

Array = NDArray[Any]

MOST_TERMS = 32
_COPIED = 4  # Tiles that are copied at once.

_configure = tile("ldtilecfg", addresses=1)
_release = tile("tilerelease")
_fence = tile("sse.sfence")  # Orders writes past the caches before what follows.
_zero0, _zero1, _zero2 = (tile("tilezero", t) for t in range(3))
_store0, _store1, _store2 = (tile("tilestored64", t, addresses=2) for t in range(3))
_load3, _load4, _load5, _load6, _load7 = (tile("tileloadd64", t, addresses=2) for t in range(3, 8))
# Sums in 0 to 2, left limbs in 3 to 5, the first and second 16 terms of columns in 6 and 7.
_dot036, _dot146, _dot256 = (tile("tdpbuud", t, 3 + t, 6) for t in range(3))
_dot037, _dot147, _dot257 = (tile("tdpbuud", t, 3 + t, 7) for t in range(3))


@intrinsic
def _copy(context: Any, source: Any, target: Any, pitch: Any, seen: Any) -> Any:
    """Copy 256 bytes to four places `pitch` apart; update the 16 maxima at `seen`."""

    def generate(cx: Any, builder: Any, _: Any, args: Any) -> Any:
        source, target, pitch, seen = args
        most = load(builder, seen, 0, I32, 16)
        for t in range(_COPIED):
            x = load(builder, source, 64 * t, I32, 16)
            store(builder, target, 0, x)
            target = builder.add(target, pitch)
            most = builder.select(builder.icmp_unsigned(">", x, most), x, most)
        store(builder, seen, 0, most)
        return cx.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), generate


def _pairs(builder: Any, source: Any, pitch: Any) -> tuple[Any, Any]:
    """Emitted sums u = C_0 + 2^8 C_1 and v = C_2 + 2^8 C_3; the planes lie `pitch` bytes apart."""
    c = []
    for _ in range(4):
        c.append(load(builder, source, 0, I32, 16))
        source = builder.add(source, pitch)
    eight = every(I32, 16, 8)
    u, v = (builder.add(c[j], builder.shl(c[j + 1], eight)) for j in (0, 2))
    return u, v


def _write(builder: Any, target: Any, value: Any, around: bool) -> None:
    """Emit a store of 64 bytes, past the caches if `around` (address then a multiple of 64)."""
    if not around:
        store(builder, target, 0, value)
        return
    place = builder.inttoptr(target, ir.PointerType(value.type))
    written = builder.store(value, place, align=64)
    written.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(I32, 1)]))


def _turning(around: bool) -> Callable[..., Any]:
    """Generator of the reduction modulo 2^31 - 1, where 2^16 v rotates v by 16 bits.

    u <= 257 * 4 * 32 * 255^2 < p and the turned v is at most p, so one subtraction is left.
    """

    def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
        source, pitch, target = args
        u, v = _pairs(builder, source, pitch)
        p = every(I32, 16, 2**31 - 1)
        up = builder.and_(builder.shl(v, every(I32, 16, 16)), p)
        turned = builder.or_(up, builder.lshr(v, every(I32, 16, 15)))
        r = builder.add(u, turned)
        _write(builder, target, smaller(builder, r, builder.sub(r, p)), around)
        return context.get_dummy_value()

    return generate


def _dividing(around: bool) -> Callable[..., Any]:
    """Return the generator of the reduction modulo p, 2^30 < p < 2^31.

    The quotient 2^16 v / p is below 2^17 and single precision errs by less than 2^-5 there, so
    trunc(v factor) with factor just below 2^16/p is right or one less: 2^16 v - q p is in [0, 2p).
    """

    def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
        source, pitch, target, modulus, factor = args
        u, v = _pairs(builder, source, pitch)
        p, scale = splat(builder, modulus, 16), splat(builder, factor, 16)
        real = builder.sitofp(v, ir.VectorType(ir.FloatType(), 16))
        q = builder.fptosi(builder.fmul(real, scale), v.type)
        r = builder.sub(builder.shl(v, every(I32, 16, 16)), builder.mul(q, p))
        parts = [smaller(builder, x, builder.sub(x, p)) for x in (u, r)]
        r = builder.add(*parts)
        _write(builder, target, smaller(builder, r, builder.sub(r, p)), around)
        return context.get_dummy_value()

    return generate


@intrinsic
def _turn(context: Any, source: Any, pitch: Any, target: Any) -> Any:
    """Write 16 columns u + 2^16 v modulo 2^31 - 1, from sums in four planes, `pitch` bytes each."""
    return types.void(*[types.int64] * 3), _turning(around=False)


@intrinsic
def _turn_around(context: Any, source: Any, pitch: Any, target: Any) -> Any:
    """Write what `_turn` writes, past the caches (non-temporal stores)."""
    return types.void(*[types.int64] * 3), _turning(around=True)


@intrinsic
def _divide(context: Any, source: Any, pitch: Any, target: Any, p: Any, factor: Any) -> Any:
    """Write 16 columns u + 2^16 v modulo p, 2^30 < p < 2^31; `factor` is just below 2^16/p."""
    kinds = *[types.int64] * 3, types.uint32, types.float32
    return types.void(*kinds), _dividing(around=False)


@intrinsic
def _divide_around(context: Any, source: Any, pitch: Any, target: Any, p: Any, factor: Any) -> Any:
    """Write what `_divide` writes, past the caches."""
    kinds = *[types.int64] * 3, types.uint32, types.float32
    return types.void(*kinds), _dividing(around=True)


@inlined
def _three(left: int, blocks: int, step: int) -> None:
    """Load the limbs of up to three blocks of 16 rows, at `left` and `step` bytes apart."""
    _load3(left, 64)
    if blocks > 1:
        _load4(left + step, 64)
    if blocks > 2:
        _load5(left + 2 * step, 64)


@inlined
def _products(left: int, blocks: int, panel: int, sums: int, two: bool) -> None:
    """Compute all plane rows of one column tile, up to three blocks of 16 at a time.

    `two`: two steps of 16 terms. With one, and at most three blocks, the limbs are loaded already.
    """
    step = 2048 if two else 1024
    _load6(panel, 64)
    if two:
        _load7(panel + 1024, 64)
    for first in range(0, blocks, 3):
        many = blocks - first
        if two or blocks > 3:
            _three(left, many, step)
        _zero0()
        _dot036()
        if many > 1:
            _zero1()
            _dot146()
        if many > 2:
            _zero2()
            _dot256()
        if two:
            _three(left + 1024, many, step)
            _dot037()
            if many > 1:
                _dot147()
            if many > 2:
                _dot257()
        _store0(sums, 64)
        if many > 1:
            _store1(sums + 1024, 64)
        if many > 2:
            _store2(sums + 2048, 64)
        left += 3 * step
        sums += 3072


@inlined
def _finish(place: Any, count: int, tiles: int, p: Any, factor: Any, around: bool) -> None:
    """Write `count` rows of `tiles` tiles; place is (sums, their size, target, its stride)."""
    sums, size, out, stride = place
    pitch = 64 * count
    for r in range(count):
        source, target = sums + 64 * r, out + stride * r
        if p == 2**31 - 1 and around:
            for t in range(tiles):
                _turn_around(source + size * t, pitch, target + 64 * t)
        elif p == 2**31 - 1:
            for t in range(tiles):
                _turn(source + size * t, pitch, target + 64 * t)
        elif around:
            for t in range(tiles):
                _divide_around(source + size * t, pitch, target + 64 * t, p, factor)
        else:
            for t in range(tiles):
                _divide(source + size * t, pitch, target + 64 * t, p, factor)


@kernel
def multiply(
    left: Array,
    count: int,
    rows: Array,
    tiles: int,
    out: int,
    stride: int,
    p: Any,
    factor: Any,
    around: bool,
    work: Any,
) -> None:
    """Write the product with a matrix of whole 64-byte tiles, for 2^30 < p < 2^31.

    Parameters
    ----------
    left : ndarray
        Plane rows (blocks, steps, 16, 16) of uint32: row j count + r of all
        blocks holds the limbs of plane j of row r, 16 terms in a step.
    count : int
        Rows of the result.
    rows : ndarray
        int64 addresses of the k rows of the right operand.
    tiles : int
        Tiles of 64 bytes in each row.
    out, stride : int
        Address of the result and the bytes between its rows; multiples of 64 if `around`.
    p, factor : uint32, float32
        The modulus and a number just below 2^16 / p.
    around : bool
        Write past the caches.
    work : tuple
        setup; panel (tiles at a time, steps, 16, 16) and sums (group, blocks, 16, 16) of uint32;
        seen, 64 bytes of maxima over all inputs.
    """
    setup, panel, sums, seen = work
    blocks, steps = left.shape[0], left.shape[1]
    pitch, base, top = steps * 1024, panel.ctypes.data, seen.ctypes.data
    limbs, places, size, group = left.ctypes.data, sums.ctypes.data, blocks * 1024, sums.shape[0]
    panel[:] = 0
    _configure(setup.ctypes.data)
    for turn in range(-(-tiles // panel.shape[0])):  # A range with a step may raise.
        begin = turn * panel.shape[0]
        width = min(panel.shape[0], tiles - begin)
        for i in range(rows.size):
            source, target = rows[i] + 64 * begin, base + 64 * i
            for t in range(0, width - _COPIED + 1, _COPIED):
                _copy(source + 64 * t, target + pitch * t, pitch, top)
            for t in range(width // _COPIED * _COPIED, width):
                copy16(source + 64 * t, target + pitch * t, top)
        _three(limbs, blocks, pitch)
        for part in range(-(-width // group)):
            first = part * group
            many = min(group, width - first)
            for t in range(many):
                right = base + pitch * (first + t)
                _products(limbs, blocks, right, places + size * t, steps == 2)
            place = places, size, out + 64 * (begin + first), stride
            _finish(place, count, many, p, factor, around)
    _release()
    if around:
        _fence()
