"""Matrix products of 32-bit elements by the tile unit, for p < 2^31; see `tiles` for the planes."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from securevfl.field.kernels.ir import I32, I64, copy16, every, joined, load, smaller, splat, store
from securevfl.field.kernels.jit import inlined, intrinsic, kernel, types
from securevfl.field.kernels.tiles import BLOCK, accumulate, configure, planes, release

Array = NDArray[Any]


@intrinsic
def _expand32(context: Any, source: Any, target: Any, p: Any, factor: Any) -> Any:
    """Write the four byte planes of 16 words below p < 2^31 to target, target + 1024, ..

    256 x mod p: q = trunc(x factor) with factor just below 256/p is floor(256 x / p) or one less,
    since the quotient is below 256 and single precision errs by less than 2^-14 there; so
    256 x - q p lies in [0, 2p), below 2^32.
    """

    def generate(cx: Any, builder: Any, _: Any, args: Any) -> Any:
        source, target, p, factor = args
        modulus, scale = splat(builder, p, 16), splat(builder, factor, 16)
        v = [load(builder, source, 0, I32, 16)]
        for _step in range(3):
            x = v[-1]
            real = builder.sitofp(x, ir.VectorType(ir.FloatType(), 16))
            q = builder.fptosi(builder.fmul(real, scale), x.type)
            r = builder.sub(builder.shl(x, every(I32, 16, 8)), builder.mul(q, modulus))
            v.append(smaller(builder, r, builder.sub(r, modulus)))
        for j, plane in enumerate(planes(builder, v)):
            store(builder, target, 1024 * j, plane)
        return cx.get_dummy_value()

    return types.void(types.int64, types.int64, types.uint32, types.float32), generate


@intrinsic
def _expand31(context: Any, source: Any, target: Any) -> Any:
    """Write the four byte planes of 16 words modulo 2^31 - 1, where 2^8 x rotates 8 bits."""

    def generate(cx: Any, builder: Any, _: Any, args: Any) -> Any:
        v = [load(builder, args[0], 0, I32, 16)]
        for _step in range(3):
            x = v[-1]
            left = builder.and_(builder.shl(x, every(I32, 16, 8)), every(I32, 16, 2**31 - 1))
            v.append(builder.or_(left, builder.lshr(x, every(I32, 16, 23))))
        for j, plane in enumerate(planes(builder, v)):
            store(builder, args[1], 1024 * j, plane)
        return cx.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def _combine32(context: Any, source: Any, target: Any, p: Any, inverse: Any) -> Any:
    """Write 16 words sum_j 2^(8j) C_j mod p for p < 2^31, inverse just below 1/p.

    The sum t is below 2^57 and t/p below 2^24, so the quotient in double precision is the true
    one or one less and fits 32 bits.
    """

    def generate(cx: Any, builder: Any, _: Any, args: Any) -> Any:
        source, target, p, inverse = args
        words = every(I64, 8, 0xFFFFFFFF)
        modulus = builder.and_(splat(builder, p, 8), words)
        scale = splat(builder, inverse, 8)
        halves = []
        for half in range(2):
            t = every(I64, 8, 0)
            for j in range(4):
                plane = load(builder, source, 1024 * j + 32 * half, I32, 8)
                wide = builder.zext(plane, t.type)
                t = builder.add(t, builder.shl(wide, every(I64, 8, 8 * j)))
            real = builder.sitofp(t, ir.VectorType(ir.DoubleType(), 8))
            q = builder.and_(builder.fptosi(builder.fmul(real, scale), t.type), words)
            r = builder.sub(t, builder.mul(q, modulus))
            r = smaller(builder, r, builder.sub(r, modulus))
            halves.append(builder.trunc(r, ir.VectorType(I32, 8)))
        store(builder, target, 0, joined(builder, *halves))
        return cx.get_dummy_value()

    return types.void(types.int64, types.int64, types.uint64, types.float64), generate


@inlined
def _expand(a: Array, m: int, left: Array, edge: Array, p: Any, factor: Any) -> None:
    """Write the byte planes of rows 16 m .. 16 m + 15 of `a` to left[step, plane, row, word].

    Rows and terms beyond the matrix are zero; `edge` holds one short piece of a row.
    """
    rows, inner = a.shape
    for s in range(left.shape[0]):
        for r in range(16):
            i, count = 16 * m + r, min(16, inner - 16 * s)
            source = a.ctypes.data + i * a.strides[0] + 64 * s
            if i >= rows or count < 16:
                edge[:] = np.uint32(0)
                for j in range(count if i < rows else 0):
                    edge[j] = a[i, 16 * s + j]
                source = edge.ctypes.data
            target = left.ctypes.data + s * 4096 + r * 64
            if p == np.uint64(2**31 - 1):
                _expand31(source, target)
            else:
                _expand32(source, target, p, factor)


@kernel
def expand(a: Array, left: Array, p: Any, factor: Any, edge: Array) -> None:
    """Write the byte planes of a whole matrix to left[m tile, step, plane, row, word].

    `edge` is room for 16 elements.
    """
    for m in range(left.shape[0]):
        _expand(a, m, left[m], edge, p, factor)


@kernel
def multiply(
    a: Array, left: Array, rows: Array, tiles: int, out: int, stride: int, constants: Any, work: Any
) -> None:
    """Write the product of `a` with a matrix of whole 64-byte tiles.

    Parameters
    ----------
    a : ndarray
        The left operand (m, k).
    left : ndarray
        Room for the planes of 16 rows, (steps, 4, 16, 16) of uint32. They are made again for each
        panel, which costs less than fetching planes from beyond the L2 cache.
    rows : ndarray
        int64 addresses of the k rows of the right operand.
    tiles : int
        Tiles of 64 bytes in each row.
    out, stride : int
        Address of the result and the bytes between its rows.
    constants : tuple
        p (uint64), a number just below 1/p (float64), one just below 256/p (float32).
    work : tuple
        setup (64 bytes); panel (tiles at a time, steps, 16, 16) and sums (tiles at a time, 4, 16,
        16) of uint32; seen, 64 bytes of maxima over all inputs; edge, 16 elements.
    """
    p, reciprocal, factor = constants
    setup, panel, sums, seen, edge = work
    steps, count, pitch = left.shape[0], a.shape[0], panel.shape[1] * 1024
    limbs, base, place = left.ctypes.data, panel.ctypes.data, sums.ctypes.data
    configure(setup.ctypes.data)
    panel[:] = np.uint32(0)
    for turn in range(-(-tiles // panel.shape[0])):  # A range with a step may raise.
        begin = turn * panel.shape[0]
        width = min(panel.shape[0], tiles - begin)
        for i in range(rows.size):
            for t in range(width):
                source = rows[i] + 64 * (begin + t)
                copy16(source, base + pitch * t + 64 * i, seen.ctypes.data)
        for m in range((count + 15) // 16):
            _expand(a, m, left, edge, p, factor)
            for start in range(0, steps, BLOCK):
                many = min(BLOCK, steps - start)
                for t in range(width):
                    right = base + pitch * t + 1024 * start
                    accumulate(limbs + 4096 * start, right, place + 4096 * t, many, start == 0)
            for r in range(min(16, count - 16 * m)):
                target = out + (16 * m + r) * stride + 64 * begin
                for t in range(width):
                    _combine32(place + 4096 * t + 64 * r, target + 64 * t, p, reciprocal)
    release()
