"""The passes of `kernels.fixed_point` for long arrays: results are written past the caches.

A store into a cache first reads the line that it fills, a third of the traffic. Sixteen numbers at
a time; LLVM cuts vectors that are longer than the processor's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from securevfl.field.kernels import cpu
from securevfl.field.kernels.ir import I32, I64, call, every, load, slot, splat
from securevfl.field.kernels.jit import intrinsic, kernel, types
from securevfl.field.kernels.streaming.pieces import (
    bits,
    constant,
    fetch,
    plus,
    repeat,
    unsigned,
    write,
)

Array = NDArray[Any]

LANES = 16
SHORTEST = 1 << 21  # Bytes of a result from which it is written past the caches.
_AHEAD = 4096  # Bytes between what is read and what is asked for.
_SINGLE, _DOUBLE = ir.FloatType(), ir.DoubleType()

Convert = Callable[[Any, Any, Any, Any, Any], tuple[Any, Any]]


def _applied(builder: Any, name: str, x: Any, result: Any = None) -> Any:
    """Emit a call of LLVM's intrinsic `name` on vector x; `result` is its type if another."""
    letter = "i" if isinstance(x.type.element, ir.IntType) else "f"
    full = f"llvm.{name}.v{x.type.count}{letter}{bits(x.type.element)}"
    module = builder.module
    if full not in module.globals:
        ir.Function(module, ir.FunctionType(result or x.type, [x.type]), full)
    return builder.call(module.globals[full], [x])


def _pass(kind: Any, convert: Convert) -> Callable[..., Any]:
    """Intrinsic that converts pieces of LANES numbers and returns whether any is invalid.

    It takes the addresses of the numbers and of the results, a multiple of 64; how many pieces;
    the scale, the largest magnitude, the modulus.
    """
    flags = ir.VectorType(ir.IntType(bits(kind)), LANES)

    def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
        source, target, pieces, *numbers = args
        wrong, place = slot(builder, ir.Constant(flags, [0] * LANES)), slot(builder, target)
        with repeat(builder, pieces) as (i, _i):
            size = LANES * bits(kind) // 8
            here = builder.add(source, builder.mul(i, constant(size)))
            fetch(builder, builder.add(here, constant(_AHEAD)), size)
            y, bad = convert(builder, load(builder, here, 0, kind, LANES), *numbers)
            builder.store(builder.or_(builder.load(wrong), builder.sext(bad, flags)), wrong)
            write(builder, builder.load(place), [y], constant(1))
            plus(builder, place, constant(LANES * bits(y.type.element) // 8))
        call(builder, "llvm.x86.sse.sfence", [])
        found = _applied(builder, "vector.reduce.or", builder.load(wrong), flags.element)
        return builder.zext(builder.icmp_unsigned("!=", found, flags.element(0)), I64)

    def entry(
        context: Any, source: Any, target: Any, pieces: Any, scale: Any, largest: Any, p: Any
    ) -> Any:
        kinds = *[types.int64] * 3, *[types.float64] * 2, types.int64
        return types.int64(*kinds), generate

    return intrinsic(entry)


def _quantize(real: Any, number: Any, result: Any) -> Convert:
    """Emitter that rounds halves up: kinds `real`, then `number`, then `result` (LLVM types)."""

    def convert(builder: Any, x: Any, scale: Any, largest: Any, p: Any) -> tuple[Any, Any]:
        lanes = ir.VectorType(real, LANES)
        if x.type != lanes:
            x = builder.fpext(x, lanes)
        if real is _SINGLE:
            scale, largest = (builder.fptrunc(v, real) for v in (scale, largest))
        y = builder.fmul(x, splat(builder, scale, LANES))
        bound = splat(builder, largest, LANES)
        inside = builder.fcmp_ordered("<=", _applied(builder, "fabs", y), bound)
        y = builder.select(inside, y, every(real, LANES, 0.0))
        down = _applied(builder, "floor", y)
        # y - floor(y) is exact, unlike floor(y + 0.5).
        up = builder.fcmp_ordered(">=", builder.fsub(y, down), every(real, LANES, 0.5))
        integers = ir.VectorType(number, LANES)
        z = builder.sub(builder.fptosi(down, integers), builder.sext(up, integers))
        modulus = splat(builder, p if number is I64 else builder.trunc(p, number), LANES)
        negative = builder.icmp_signed("<", z, every(number, LANES, 0))
        z = builder.select(negative, builder.add(z, modulus), z)
        if number is not result:
            z = builder.trunc(z, ir.VectorType(result, LANES))
        return z, builder.not_(inside)

    return convert


def _dequantize(kind: Any) -> Convert:
    """Emitter of conversion to doubles from elements of `kind`, whose signed values fit it."""

    def convert(builder: Any, z: Any, scale: Any, largest: Any, p: Any) -> tuple[Any, Any]:
        modulus = splat(builder, p if kind is I64 else builder.trunc(p, kind), LANES)
        wrong = builder.icmp_unsigned(">=", z, modulus)
        above = builder.icmp_unsigned(">", z, unsigned(builder, modulus, 1))
        v = builder.select(above, builder.sub(z, modulus), z)
        y = builder.sitofp(v, ir.VectorType(_DOUBLE, LANES))
        return builder.fmul(y, splat(builder, scale, LANES)), wrong

    return convert


_short = _pass(_SINGLE, _quantize(_SINGLE, I32, I32))
_single_wide = _pass(_SINGLE, _quantize(_DOUBLE, I64, I64))
_double = _pass(_DOUBLE, _quantize(_DOUBLE, I64, I32))
_double_wide = _pass(_DOUBLE, _quantize(_DOUBLE, I64, I64))
_back = _pass(I32, _dequantize(I32))
_back_wide = _pass(I64, _dequantize(I64))


@kernel
def quantize_short(x: int, z: int, pieces: int, scale: float, largest: float, p: int) -> int:
    """Quantise float32 at x to elements below 2^31 at z; return 1 if a number is out of range."""
    wrong: int = _short(x, z, pieces, scale, largest, p)
    return wrong


@kernel
def quantize_single_wide(x: int, z: int, pieces: int, scale: float, largest: float, p: int) -> int:
    """Quantise float32 at address x to 64-bit elements at z, or to int64; 1 if out of range."""
    wrong: int = _single_wide(x, z, pieces, scale, largest, p)
    return wrong


@kernel
def quantize_double(x: int, z: int, pieces: int, scale: float, largest: float, p: int) -> int:
    """Quantise float64 at address x to elements of 32 bits at z; return 1 if out of range."""
    wrong: int = _double(x, z, pieces, scale, largest, p)
    return wrong


@kernel
def quantize_double_wide(x: int, z: int, pieces: int, scale: float, largest: float, p: int) -> int:
    """Quantise float64 to elements of 64 bits, or to int64."""
    wrong: int = _double_wide(x, z, pieces, scale, largest, p)
    return wrong


@kernel
def dequantize_short(z: int, x: int, pieces: int, scale: float, largest: float, p: int) -> int:
    """Convert elements < 2^31 at z to float64 at x: signed value times `scale`; 1 if any >= p."""
    wrong: int = _back(z, x, pieces, scale, largest, p)
    return wrong


@kernel
def dequantize_wide(z: int, x: int, pieces: int, scale: float, largest: float, p: int) -> int:
    """Convert elements of 64 bits to float64 numbers, as `dequantize_short`."""
    wrong: int = _back_wide(z, x, pieces, scale, largest, p)
    return wrong


def quantizer(x: Array, out: Array, p: int) -> Callable[..., int] | None:
    """Quantisation kernel for these arrays; None if there is none."""
    if x.dtype == np.float32 and out.itemsize == 4:
        return quantize_short if p < 1 << 31 else None
    if x.dtype == np.float32:
        return quantize_single_wide
    return quantize_double if out.itemsize == 4 else quantize_double_wide


def dequantizer(z: Array, p: int) -> Callable[..., int] | None:
    """Dequantisation kernel for these elements; None if there is none."""
    if z.itemsize == 8:
        return dequantize_wide
    return dequantize_short if p < 1 << 31 else None


def convert(
    kernel: Callable[..., int] | None,
    near: Callable[[Array, Array], bool],
    x: Array,
    out: Array,
    scale: float,
    largest: float,
    p: int,
) -> bool:
    """Convert x to `out`, past the caches if long; return whether any number is invalid.

    Parameters
    ----------
    kernel : callable or None
        One of this module.
    near : callable
        Function of x and `out` that does the same through the caches, for short arrays and for the
        ends before and after whole lines.
    x, out : ndarray
        One axis, contiguous.
    scale, largest : float
        Factor; largest valid magnitude of numbers that are quantised.
    p : int
        The modulus.
    """
    start = -out.ctypes.data % 64 // out.itemsize
    whole = out.ctypes.data % out.itemsize == 0 and cpu.tier() != "portable"
    if kernel is None or out.nbytes < SHORTEST or not whole or out.size < start:
        return near(x, out)
    pieces = (out.size - start) // LANES
    stop = start + LANES * pieces
    places = x[start:].ctypes.data, out[start:].ctypes.data
    wrong = kernel(*places, pieces, scale, largest, p) != 0
    ends = [near(x[part], out[part]) for part in (slice(start), slice(stop, None))]
    return wrong or any(ends)
