"""Builders that all streams share: operands, groups of terms, prefetches, stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from securevfl.field.kernels.ir import I32, I64, ask, every, load, loop, opaque, splat

LINE = 64


def constant(number: int) -> Any:
    """64-bit integer constant."""
    return ir.Constant(I64, number)


def bits(kind: Any) -> int:
    """Number of bits of a number of this LLVM type."""
    return (
        int(kind.width) if isinstance(kind, ir.IntType) else {"float": 32, "double": 64}[str(kind)]
    )


def number(builder: Any, address: Any, index: Any = 0) -> Any:
    """Emitted int64 with this index in the array at `address`."""
    index = constant(index) if isinstance(index, int) else index
    place = builder.add(address, builder.mul(index, constant(8)))
    return builder.load(builder.inttoptr(place, ir.PointerType(I64)), align=8)


def halves(builder: Any, a: Any, b: Any) -> Any:
    """Emitted products of the signed low halves of 64-bit lanes."""
    return builder.mul(*(shifted(builder, shifted(builder, x, 32, up=True), 32) for x in (a, b)))


def broadcast(builder: Any, address: Any, index: int, lanes: int) -> Any:
    """Emitted int32 with this index in the low half of every 64-bit lane."""
    place = builder.add(address, constant(4 * index))
    half = builder.load(builder.inttoptr(place, ir.PointerType(I32)), align=4)
    both = opaque(builder, splat(builder, half, 2 * lanes))
    return builder.bitcast(both, ir.VectorType(I64, lanes))


def shifted(builder: Any, x: Any, count: int, *, up: bool = False) -> Any:
    """Emitted lanes of x, shifted by `count` bits; downwards the sign is kept."""
    by = every(x.type.element, x.type.count, count)
    return builder.shl(x, by) if up else builder.ashr(x, by)


def unsigned(builder: Any, x: Any, count: int) -> Any:
    """Emitted lanes shifted downwards by a constant, filled with zeros."""
    return builder.lshr(x, every(x.type.element, x.type.count, count))


def masked(builder: Any, x: Any, bits: int) -> Any:
    """Emitted lowest `bits` bits of every lane."""
    return builder.and_(x, every(x.type.element, x.type.count, (1 << bits) - 1))


def plus(builder: Any, place: Any, term: Any) -> None:
    """Emit code to add a vector to the one stored at a place."""
    builder.store(builder.add(builder.load(place), term), place)


def repeat(builder: Any, count: Any) -> Any:
    """Context that emits a loop of `count` rounds that yields index and round, which are equal."""
    return loop(builder, constant(0), count, constant(1))


def grouped(
    builder: Any,
    inner: Any,
    terms: int,
    term: Callable[[Any], None],
    fold: Callable[[], None],
    after_folds: Callable[[], None] | None = None,
) -> None:
    """Emit a loop: `term` for 0 .. inner - 1, and `fold` after each group of `terms` but the last.

    `after_folds` is called once, after the last `fold`, unless there is a single group.
    """

    def group(start: Any, stop: Any) -> None:
        with loop(builder, start, stop, constant(1)) as (k, _count):
            term(k)

    most = constant(terms)
    with loop(builder, constant(0), builder.sub(inner, most), most) as (start, _count):
        group(start, builder.add(start, most))
        fold()
    groups = builder.sdiv(builder.sub(inner, constant(1)), most)
    if after_folds is not None:
        with builder.if_then(builder.icmp_signed(">", groups, constant(0))):
            after_folds()
    group(builder.mul(groups, most), inner)


def fetch(builder: Any, address: Any, size: int) -> None:
    """Emit code to ask for `size` bytes from `address` on."""
    for offset in range(0, size, LINE):
        ask(builder, builder.add(address, constant(offset)))


def write(builder: Any, address: Any, values: list[Any], around: Any) -> None:
    """Emit stores of vectors in sequence; `around`: past the caches, at an aligned address."""
    size = values[0].type.count * bits(values[0].type.element) // 8
    aligned = min(size, LINE)
    hint = builder.module.add_metadata([ir.Constant(I32, 1)])
    with builder.if_else(builder.icmp_signed("!=", around, constant(0))) as branches:
        for branch, align in zip(branches, (aligned, 4), strict=True):
            with branch:
                for i, value in enumerate(values):
                    place = builder.add(address, constant(size * i))
                    pointer = builder.inttoptr(place, ir.PointerType(value.type))
                    written = builder.store(value, pointer, align=align)
                    if align == aligned:
                        written.set_metadata("nontemporal", hint)


def raised(builder: Any, place: Any, x: Any) -> None:
    """Emit code to update the maxima stored at a place with a vector x."""
    most = builder.load(place)
    builder.store(builder.select(builder.icmp_unsigned(">", x, most), x, most), place)


def vectors(builder: Any, address: Any, kind: Any, lanes: int, size: int) -> list[Any]:
    """Emitted vectors in the `size` bytes from `address` on."""
    step = lanes * kind.width // 8
    return [load(builder, address, offset, kind, lanes) for offset in range(0, size, step)]
