"""Product of matrices, for all kernels of this folder: tiles, packed panels, and two loop orders.

A register tile sums a few rows by a few pieces of columns (`tile`). Tiles cover a result in one of
two orders: `blocks` for many terms, `panels` for few terms and many columns, which memory bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from llvmlite import ir
from numpy.typing import NDArray

from securevfl.field.kernels.fifty import lanes
from securevfl.field.kernels.ir import I64, copy_line, load, loop, prefetch, slot, splat, store
from securevfl.field.kernels.ir import tile as machine
from securevfl.field.kernels.jit import inlined, intrinsic, types

Array = NDArray[Any]


class Kernels(NamedTuple):
    """One form of the product: kernels for whole products and few terms, and tile sizes."""

    multiply: Callable[..., None]
    stream: Callable[..., None]
    tile: tuple[int, int]
    flat: tuple[int, int]


class Sum(Protocol):
    """A vector of sums of products, held in registers during its loop."""

    def __init__(self, builder: Any, size: int) -> None:
        """Emit a sum that begins with 0 in `size` lanes."""

    def add(self, x: Any, y: Any) -> None:
        """Emit code that adds the product x y."""

    def split(self) -> None:
        """Emit code that makes room for `GROUP` more terms, without a change of the value."""

    def narrow(self) -> None:
        """Prepare a sum of more than `SHORT` terms for `result`."""

    def result(self, count: Any) -> Any:
        """Return the sum mod p, of `count` terms and splits."""


class Form(NamedTuple):
    """A way of summing products: the class of the sum, its operands, and limits of terms."""

    sum: type[Sum]
    kind: Any  # Of the lanes of operands.
    group: int  # Terms after which sums are split.
    short: int  # Terms of sums that need no narrowing.


def accumulate(
    builder: Any, form: Form, sums: list[Any], count: Any, term: Callable[[Any], None]
) -> list[Any]:
    """Loop over term(k) for k < count, with splits; return the results as generated code."""
    zero, one = ir.Constant(I64, 0), ir.Constant(I64, 1)
    summed = slot(builder, count)
    with loop(builder, zero, count, ir.Constant(I64, form.group)) as (start, _c):
        stop = builder.add(start, ir.Constant(I64, form.group))
        stop = builder.select(builder.icmp_signed("<", stop, count), stop, count)
        with loop(builder, start, stop, one) as (k, _k):
            term(k)
        for each in sums:
            each.split()
        builder.store(builder.add(builder.load(summed), one), summed)
    with builder.if_then(builder.icmp_signed(">", count, ir.Constant(I64, form.short))):
        for each in sums:
            each.narrow()
    return [each.result(builder.load(summed)) for each in sums]


def tile(form: Form, size: int, rows: int, pieces: int, around: bool) -> Callable[..., Any]:
    """Return a register tile as a function that kernels may call.

    It takes the address of the left operand and the bytes between its rows, the panel of the right
    operand, the terms, the result and the bytes between its rows.

    Parameters
    ----------
    form : Form
        How products are summed.
    size : int
        64-bit lanes of a vector.
    rows, pieces : int
        Rows of the left operand and 64-byte pieces of the right one.
    around : bool
        Results are written past the caches, to multiples of 64 bytes.
    """
    vectors = pieces * 8 // size

    def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
        left, stride, right, inner, target, pitch = args
        sums = [form.sum(builder, size) for _ in range(rows * vectors)]
        places = [lanes.at(builder, left, stride, r) for r in range(rows)]

        def term(k: Any) -> None:
            source = builder.add(right, builder.mul(k, ir.Constant(I64, 64 * pieces)))
            columns = [load(builder, source, 8 * size * v, form.kind, size) for v in range(vectors)]
            offset = builder.mul(k, ir.Constant(I64, 8))
            for r in range(rows):
                place = builder.add(places[r], offset)
                number = builder.load(builder.inttoptr(place, ir.PointerType(form.kind)))
                factor = splat(builder, number, size)
                for v in range(vectors):
                    sums[r * vectors + v].add(columns[v], factor)

        results = accumulate(builder, form, sums, inner, term)
        for r in range(rows):
            row = lanes.at(builder, target, pitch, r)
            for v in range(vectors):
                lanes.write(builder, row, 8 * size * v, results[r * vectors + v], around)
        return context.get_dummy_value()

    def entry(
        context: Any, left: Any, stride: Any, right: Any, inner: Any, out: Any, pitch: Any
    ) -> Any:
        return types.void(*[types.int64] * 6), generate

    return intrinsic(entry)


_fence = machine("sse.sfence")  # Orders writes past the caches before what follows.


@inlined
def _finish_edge(shape: Any, spare: int, out: int, pitch: int) -> None:
    """Copy an edge tile's part within the result, from address `spare` to `out`, row by row."""
    wide, rows, pieces = shape
    for r in range(rows):
        for v in range(pieces):
            copy_line(spare + 64 * (r * wide + v), out + r * pitch + 64 * v)


def _packer(convert: Callable[..., Any], wide: int) -> Callable[..., Any]:
    """Intrinsic that packs blocks of `wide` pieces from one row into a panel.

    It takes the source, which is contiguous, the panel, the bytes between the panel's blocks, the
    number of blocks and the address of 64 bytes: lane maxima of the numbers before `convert`, which
    emits what the panel holds for a piece.
    """

    def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
        source, panel, step, count, seen = args
        zero, one = ir.Constant(I64, 0), ir.Constant(I64, 1)
        most = slot(builder, load(builder, seen, 0, I64, 8))
        with loop(builder, zero, count, one) as (b, _c):
            here = builder.add(source, builder.mul(b, ir.Constant(I64, 64 * wide)))
            there = builder.add(panel, builder.mul(b, step))
            for v in range(wide):
                x, old = load(builder, here, 64 * v, I64, 8), builder.load(most)
                above = builder.icmp_unsigned(">", x, old)
                builder.store(builder.select(above, x, old), most)
                store(builder, there, 64 * v, convert(builder, x))
        store(builder, seen, 0, builder.load(most))
        return context.get_dummy_value()

    def entry(context: Any, source: Any, panel: Any, step: Any, count: Any, seen: Any) -> Any:
        return types.void(*[types.int64] * 5), generate

    return intrinsic(entry)


def _filler(convert: Callable[..., Any], wide: int) -> Callable[..., Any]:
    """Function that packs pieces of all rows into a panel, [block][row][piece]."""
    whole, single = _packer(convert, wide), _packer(convert, 1)

    @inlined
    def fill(rows: Array, first: int, pieces: int, panel: int, seen: int) -> None:
        size, count = 64 * wide * rows.size, pieces // wide
        for k in range(rows.size):
            source, target = rows[k] + 64 * first, panel + 64 * wide * k
            whole(source, target, size, count, seen)
            if count * wide < pieces:
                source, target = source + 64 * wide * count, target + size * count
                single(source, target, 64, pieces - count * wide, seen)

    return fill


def blocks(run: Any, convert: Any, tall: int, wide: int) -> Callable[..., Any]:
    """Function that writes a product panel by panel, each row block on a whole panel.

    Parameters
    ----------
    run : compiled function
        Compiled `tile`.
    convert : callable
        Generates what the panel holds for eight elements of the right operand.
    tall, wide : int
        Rows and pieces of 64 bytes of a tile.

    Returns
    -------
    compiled function
        Of left (address, bytes between rows, number of rows; memory has at least `tall`),
        int64 addresses of the k rows of the right operand, pieces in each of them, the result
        (address, bytes between rows), and work: addresses of a panel, of the memory of one tile and
        of 64 bytes of maxima, and how many blocks of columns a panel has.
    """
    fill = _filler(convert, wide)

    @inlined
    def multiply(left: Any, rows: Array, pieces: int, out: Any, work: Any) -> None:
        limbs, stride, count = left
        panel, spare, seen, many = work
        inner, pitch = rows.size, out[1]
        for turn in range(-(-pieces // (many * wide))):  # A range with a step may raise.
            begin = turn * many * wide
            here = min(many * wide, pieces - begin)
            fill(rows, begin, here, panel, seen)
            for m in range(0, count, tall):
                # The last block repeats rows of the one before it, to be a whole one.
                first = max(0, min(m, count - tall))
                own, place = limbs + first * stride, out[0] + first * pitch + 64 * begin
                for b in range(0, here, wide):
                    right, target = panel + b * inner * 64, place + 64 * b
                    if tall <= count and b + wide <= here:
                        run(own, stride, right, inner, target, pitch)
                    else:
                        run(own, stride, right, inner, spare, 64 * wide)
                        shape = wide, min(tall, count), min(wide, here - b)
                        _finish_edge(shape, spare, target, pitch)

    return multiply


# The tile of `blocks` stands here again: as one function for both it costs 8 % on 3 terms (Zen 5).
def panels(run: Any, edge: Any, convert: Any, tall: int, wide: int) -> Callable[..., Any]:
    """Function like that of `blocks`, for few terms and many columns, which memory traffic bounds.

    The tile `run` writes past the caches, to multiples of 64 bytes; the tile `edge` does not.
    `convert` generates what the panel holds; `tall` and `wide` are rows and 64-byte pieces of a
    tile. Rows of the next panel are prefetched between the tiles of this one, because the processor
    itself does not predict several short runs.
    """
    fill = _filler(convert, wide)

    @inlined
    def multiply(left: Any, rows: Array, pieces: int, out: Any, work: Any) -> None:
        limbs, stride, count = left
        panel, spare, seen, many = work
        inner, pitch = rows.size, out[1]
        for turn in range(-(-pieces // (many * wide))):  # A range with a step may raise.
            begin = turn * many * wide
            here = min(many * wide, pieces - begin)
            fill(rows, begin, here, panel, seen)
            for b in range(0, here, wide):
                ahead = 64 * (begin + many * wide + b)
                for k in range(inner):
                    for v in range(wide):
                        prefetch(rows[k] + ahead + 64 * v)
                right = panel + b * inner * 64
                for m in range(0, count, tall):
                    first = max(0, min(m, count - tall))
                    own = limbs + first * stride
                    target = out[0] + first * pitch + 64 * (begin + b)
                    if tall <= count and b + wide <= here:
                        run(own, stride, right, inner, target, pitch)
                    else:
                        edge(own, stride, right, inner, spare, 64 * wide)
                        shape = wide, min(tall, count), min(wide, here - b)
                        _finish_edge(shape, spare, target, pitch)
        _fence()

    return multiply
