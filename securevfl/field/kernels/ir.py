"""Builders of LLVM code, and Montgomery reduction with R = 2^64, shared by the kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from securevfl.field.kernels.jit import cgutils, inlined, intrinsic, types

I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


def splat(builder: Any, value: Any, lanes: int) -> Any:
    """Emitted vector with `value` in every lane."""
    empty = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    first = builder.insert_element(empty, value, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(I32, lanes), [0] * lanes))


def opaque(builder: Any, vector: Any) -> Any:
    """Emitted copy of a vector in a register that the compiler cannot see through.

    LLVM moves shifts of a splat before the splat, out of the vector unit, where the 32-bit
    multiplication would have swallowed them. An empty assembly between the two keeps them apart.
    """
    kind = ir.FunctionType(vector.type, [vector.type])
    return builder.asm(kind, "", "=v,0", [vector], False)


def every(kind: Any, lanes: int, value: Any) -> Any:
    """A constant vector with `value` in every lane."""
    return ir.Constant(ir.VectorType(kind, lanes), [value] * lanes)


def load(builder: Any, address: Any, offset: int, kind: Any, lanes: int) -> Any:
    """Emitted vector at `address` + `offset` bytes."""
    if offset:
        address = builder.add(address, ir.Constant(I64, offset))
    pointer = builder.inttoptr(address, ir.PointerType(ir.VectorType(kind, lanes)))
    return builder.load(pointer, align=4)


def store(builder: Any, address: Any, offset: int, value: Any) -> None:
    """Emit code to write a vector to `address` + `offset` bytes."""
    if offset:
        address = builder.add(address, ir.Constant(I64, offset))
    builder.store(value, builder.inttoptr(address, ir.PointerType(value.type)), align=4)


def smaller(builder: Any, a: Any, b: Any) -> Any:
    """Emit the unsigned minimum; min(r, r - p) reduces r < 2p, since r < p wraps upwards."""
    return builder.select(builder.icmp_unsigned("<", a, b), a, b)


def joined(builder: Any, low: Any, high: Any) -> Any:
    """Emitted concatenation of two vectors."""
    lanes = 2 * low.type.count
    order = ir.Constant(ir.VectorType(I32, lanes), list(range(lanes)))
    return builder.shuffle_vector(low, high, order)


def copier(kind: Any, lanes: int) -> Callable[..., Any]:
    """Return a generator that copies a vector and raises the maxima at a third address."""

    def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
        x, most = (load(builder, address, 0, kind, lanes) for address in (args[0], args[2]))
        store(builder, args[1], 0, x)
        store(builder, args[2], 0, builder.select(builder.icmp_unsigned(">", x, most), x, most))
        return context.get_dummy_value()

    return generate


def high_word(_: Any, builder: Any, __: Any, args: Any) -> Any:
    """Emit the upper 64 bits of the 64 x 64-bit product of two `args`."""
    wide = ir.IntType(128)
    product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
    return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), I64)


def slot(builder: Any, value: Any) -> Any:
    """Emitted stack slot for a vector, which loop optimisation turns into a register."""
    return cgutils.alloca_once_value(builder, value)


def loop(builder: Any, start: Any, stop: Any, step: Any) -> Any:
    """Context that emits a loop: its body runs for (index, count) from start to stop by step."""
    return cgutils.for_range_slice(builder, start, stop, step)


def call(builder: Any, name: str, arguments: list[Any]) -> None:
    """Emit a call of an LLVM intrinsic without result, which is declared once in a module."""
    module = builder.module
    if name not in module.globals:
        kinds = [argument.type for argument in arguments]
        ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
    builder.call(module.globals[name], arguments)


def ask(builder: Any, address: Any) -> None:
    """Emit code to prefetch 64 bytes; an invalid address is harmless."""
    hints = [ir.Constant(I32, n) for n in (0, 3, 1)]  # To read, into all caches, data.
    place = builder.inttoptr(address, ir.PointerType(I8))
    call(builder, "llvm.prefetch.p0", [place, *hints])


def pure(builder: Any, name: str, operands: list[Any]) -> Any:
    """Emitted result of an LLVM intrinsic on vectors of one type, of the same type."""
    module, kind = builder.module, operands[0].type
    if name not in module.globals:
        ir.Function(module, ir.FunctionType(kind, [kind] * len(operands)), name)
    return builder.call(module.globals[name], operands)


def tile(name: str, *tiles: int, addresses: int = 0) -> Callable[..., Any]:
    """Return a tile instruction on fixed registers, with `addresses` 64-bit operands."""
    constants = [ir.Constant(I8, tile) for tile in tiles]

    def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
        operands = list(args)
        if operands:
            operands[0] = builder.inttoptr(operands[0], ir.PointerType(I8))
        call(builder, f"llvm.x86.{name}", constants + operands)
        return context.get_dummy_value()

    def typed() -> Any:
        return types.void(*[types.int64] * addresses), generate

    if addresses == 0:
        return intrinsic(lambda context: typed())
    if addresses == 1:
        return intrinsic(lambda context, address: typed())
    return intrinsic(lambda context, address, stride: typed())


ZERO = np.uint64(0)
ONE = np.uint64(1)


@intrinsic
def prefetch(context: Any, address: Any) -> Any:
    """Prefetch 64 bytes; an invalid address is harmless."""

    def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
        ask(builder, args[0])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def copy_line(context: Any, source: Any, target: Any) -> Any:
    """Copy 64 bytes."""

    def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
        store(builder, args[1], 0, load(builder, args[0], 0, I64, 8))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def copy16(context: Any, source: Any, target: Any, seen: Any) -> Any:
    """Copy 16 words, and update the 16 maxima at `seen`."""
    return types.void(types.int64, types.int64, types.int64), copier(I32, 16)


@intrinsic
def high_part(context: Any, a: Any, b: Any) -> Any:
    """Return the upper 64 bits of a 64 x 64-bit product; one instruction on common processors."""
    return types.uint64(types.uint64, types.uint64), high_word


@inlined
def redc(upper: Any, low: Any, p: Any, negative_inverse: Any) -> Any:
    """Return (upper 2^64 + low) / 2^64 mod p in [0, p) for upper < p < 2^62."""
    # low + m p is 0 mod 2^64, so its carry is 1 unless low is 0; upper + p < 2^63 does not wrap.
    m = low * negative_inverse
    t = upper + high_part(m, p) + (ONE if low != ZERO else ZERO)
    return t - p if t >= p else t
