"""Loops of a stream: pack a panel, prefetch the next, multiply tile by tile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from securevfl.field.kernels.ir import call, load, loop, slot, store
from securevfl.field.kernels.jit import intrinsic, types
from securevfl.field.kernels.streaming.pieces import (
    constant,
    fetch,
    number,
    plus,
    raised,
    repeat,
    vectors,
    write,
)

# What a stream takes, at one address as int64 numbers in this order.
ARGUMENTS = (
    "inner",  # k, terms of a sum.
    "left",  # Address of the left operand, tile after tile as [k][rows][limbs] of int32.
    "firsts",  # Address of the first row of each tile.
    "offsets",  # Address of one number for each row of each tile.
    "counts",  # Address of the number of tiles for each entry of Shape.rows.
    "constants",  # Address of the kernel's numbers.
    "rows",  # Address of the addresses of the k rows of the right operand.
    "pieces",  # Pieces of Shape.size bytes in a row.
    "out",  # Address of the result.
    "stride",  # Bytes between its rows.
    "around",  # Write it past the caches: address and stride are multiples of 64.
    "panel",  # Address of a panel.
    "room",  # Pieces for which it has room.
    "seen",  # Address of 64 bytes of maxima of the right operand, which are raised.
)


@dataclass(frozen=True)
class Shape:
    """Tile sizes of a stream.

    Parameters
    ----------
    kind : LLVM type
        Type of an element.
    lanes : int
        Elements of a vector.
    vectors : int
        Vectors of columns in a tile.
    rows : tuple of int
        Rows of the tiles that exist, largest first; one row is always among them.
    limbs : int
        int32 numbers that stand for an element of the left operand.
    """

    kind: Any
    lanes: int
    vectors: int
    rows: tuple[int, ...]
    limbs: int

    @property
    def size(self) -> int:
        """Bytes of columns in a tile."""
        return self.vectors * self.lanes * int(self.kind.width) // 8


@dataclass(frozen=True)
class Operands:
    """Addresses that a tile reads and writes, as LLVM values."""

    left: Any
    right: Any
    inner: Any
    offsets: Any
    constants: Any


def streamer(
    shape: Shape,
    convert: Callable[[Any, Any, Any], Any],
    tile: Callable[[Any, int, Operands], list[list[Any]]],
) -> Callable[..., Any]:
    """Return the generator of code for a stream.

    Parameters
    ----------
    shape : Shape
        Sizes of tiles and panels.
    convert : callable
        Emits what is kept of a vector of columns, from the builder, the vector and the constants.
    tile : callable
        Emits the vectors of each row of a tile, from the builder, its rows and its operands.
    """

    def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
        values = [number(builder, args[0], i) for i in range(len(ARGUMENTS))]
        at = SimpleNamespace(**dict(zip(ARGUMENTS, values, strict=True)))
        size = constant(shape.size)
        pitch = builder.mul(at.inner, size)
        with loop(builder, constant(0), at.pieces, at.room) as (begin, _count):
            rest = builder.sub(at.pieces, begin)
            width = _least(builder, rest, at.room)
            ahead = _least(builder, builder.sub(rest, width), at.room)
            with repeat(builder, at.inner) as (k, _k):
                source = builder.add(number(builder, at.rows, k), builder.mul(begin, size))
                target = builder.add(at.panel, builder.mul(k, size))
                _pack(builder, shape, convert, at, source, target, pitch, width)
            with repeat(builder, width) as (t, _t):
                column = builder.mul(builder.add(begin, t), size)
                _fetch(builder, shape, at, builder.icmp_signed("<", t, ahead), column, width)
                right = builder.add(at.panel, builder.mul(t, pitch))
                _tiles(builder, shape, tile, at, right, builder.add(at.out, column))
        call(builder, "llvm.x86.sse.sfence", [])
        return context.get_dummy_value()

    return generate


def entry(generate: Callable[..., Any]) -> Callable[..., Any]:
    """Stream as an intrinsic that kernels call with the address of its arguments."""
    return intrinsic(lambda context, arguments: (types.void(types.int64), generate))


def _fetch(builder: Any, shape: Shape, at: Any, wanted: Any, column: Any, width: Any) -> None:
    """Emit, if `wanted` (i1): prefetch each row's piece that is `width` pieces after `column`."""
    later = builder.add(column, builder.mul(width, constant(shape.size)))
    with builder.if_then(wanted), repeat(builder, at.inner) as (k, _k):
        fetch(builder, builder.add(number(builder, at.rows, k), later), shape.size)


def _tiles(
    builder: Any, shape: Shape, tile: Callable[..., list[list[Any]]], at: Any, right: Any, out: Any
) -> None:
    """Emit code that multiplies all rows with one piece of columns packed at `right`, to `out`."""
    left, first, offset = (slot(builder, x) for x in (at.left, at.firsts, at.offsets))
    for i, rows in enumerate(shape.rows):
        with repeat(builder, number(builder, at.counts, i)) as (_b, _c):
            places = [builder.load(x) for x in (left, first, offset)]
            operands = Operands(places[0], right, at.inner, places[2], at.constants)
            target = builder.add(out, builder.mul(number(builder, places[1]), at.stride))
            for result in tile(builder, rows, operands):
                write(builder, target, result, at.around)
                target = builder.add(target, at.stride)
            used = builder.mul(at.inner, constant(4 * rows * shape.limbs))
            for place, step in ((left, used), (first, constant(8)), (offset, constant(8 * rows))):
                plus(builder, place, step)


def _least(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def _pack(
    builder: Any,
    shape: Shape,
    convert: Callable[[Any, Any, Any], Any],
    at: Any,
    source: Any,
    target: Any,
    pitch: Any,
    count: Any,
) -> None:
    """Emit: `convert` `count` pieces of a row to places `pitch` bytes apart; update maxima."""
    most = slot(builder, load(builder, at.seen, 0, shape.kind, shape.lanes))
    with repeat(builder, count) as (t, _t):
        begin = builder.add(source, builder.mul(t, constant(shape.size)))
        place = builder.add(target, builder.mul(t, pitch))
        for i, x in enumerate(vectors(builder, begin, shape.kind, shape.lanes, shape.size)):
            raised(builder, most, x)
            y = convert(builder, x, at.constants)
            store(builder, place, i * shape.size // shape.vectors, y)
    store(builder, at.seen, 0, builder.load(most))
