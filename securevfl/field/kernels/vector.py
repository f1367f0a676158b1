"""Matrix products by register tiles of 256- and 512-bit vectors.

The left operand stays in rows of 32-bit words; each is broadcast from memory, and `opaque` keeps
the compiler from moving the broadcast to general registers. One register tile holds some rows and
vectors of columns; `rings` says what is summed in it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from securevfl.field.kernels.ir import (
    I8,
    I32,
    I64,
    every,
    load,
    loop,
    opaque,
    slot,
    splat,
    store,
)  # fmt: skip
from securevfl.field.kernels.jit import cgutils, intrinsic, kernel, types
from securevfl.field.kernels.rings import Long, Mersenne, Short, product

MOST_TERMS = 4096  # A panel of so many rows still fits the L2 cache.


def _number(value: int) -> Any:
    return ir.Constant(I64, value)


def _word(builder: Any, address: Any, index: Any) -> Any:
    """Emit 64-bit word `index` at an address."""
    place = builder.add(address, builder.shl(index, _number(3)))
    return builder.load(builder.inttoptr(place, ir.PointerType(I64)))


def _least(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def _copy(builder: Any, target: Any, source: Any, size: Any) -> None:
    """Emit code to copy `size` bytes from address `source` to `target`."""
    kind = ir.PointerType(I8)
    places = builder.inttoptr(target, kind), builder.inttoptr(source, kind)
    cgutils.raw_memcpy(builder, *places, size, 1)


def _broadcast(builder: Any, address: Any, lanes: int) -> Any:
    """Emit the 32-bit word at an address in the low half of each lane."""
    word = builder.load(builder.inttoptr(address, ir.PointerType(I32)))
    wide = opaque(builder, splat(builder, word, 2 * lanes))
    return builder.bitcast(wide, ir.VectorType(I64, lanes))


class Plan(NamedTuple):
    """The 64-bit words that a product reads: addresses, counts, and sizes in bytes.

    Behind them stand the address of each block of rows of the right operand, the bytes from one of
    its rows to the next, and their number.
    """

    left: int  # The left operand (height, inner), C-contiguous.
    inner: int
    height: int
    length: int  # Bytes in a row of the result.
    out: int  # The result.
    stride: int  # Bytes from one of its rows to the next.
    blocks: int  # Blocks of the right operand.
    sources: int  # Room for `inner` addresses.
    limbs: int  # Room for the limbs of one group of rows, or of all.
    kept: int  # Whether it is for all.
    panel: int  # Room for `many` times `inner` times the width of a tile.
    many: int
    edge: int  # Room for a tile of results.
    tail: int  # Room for the width of a tile.
    terms: int  # Terms between two folds.
    modulus: int  # p, and 2^32 mod p centred.
    radix: int


class _Product:
    """Code generator of one matrix product; see `tile` and `Plan`.

    Columns are packed, centred, into a panel [block][term][vectors] that stays in the L2 cache;
    then each group of rows passes over the panel's blocks, one register tile each. The limbs of a
    group are written when it meets the first panel; they are kept if there are more panels.
    """

    def __init__(self, builder: Any, ring: Any, size: int, rows: int, vectors: int, plan: Any):
        self.builder, self.size, self.count, self.vectors = builder, size, rows, vectors
        words = (_word(builder, plan, _number(i)) for i in range(len(Plan._fields)))
        self.plan = Plan(*words)
        self.blocks = builder.add(plan, _number(8 * len(Plan._fields)))
        self.ring = ring(builder, size // 8, self.plan.modulus, self.plan.radix)
        self.kind = ring.word, 8 * size // ring.word.width
        self.width = _number(size * vectors)
        self.most = slot(builder, every(*self.kind, 0))

    def emit(self) -> Any:
        """Emit loops over panels, rows and blocks; value: whether all numbers are below p (i1)."""
        builder, plan, zero, one = self.builder, self.plan, _number(0), _number(1)
        self.addresses()
        for v in range(self.vectors):
            store(builder, plan.tail, self.size * v, every(I64, self.size // 8, 0))
        last = builder.sub(builder.add(plan.length, self.width), one)
        blocks = builder.sdiv(last, self.width)
        pitch = builder.mul(plan.inner, self.width)
        with loop(builder, zero, blocks, plan.many) as (begin, _):
            stop = _least(builder, builder.add(begin, plan.many), blocks)
            with loop(builder, begin, stop, one) as (b, i):
                self.pack(b, builder.add(plan.panel, builder.mul(i, pitch)))
            with loop(builder, zero, plan.height, _number(self.count)) as (m, _):
                rows = self.rows(m, builder.icmp_signed("==", begin, zero))
                with loop(builder, begin, stop, one) as (b, i):
                    sums = self.sums(rows, builder.add(plan.panel, builder.mul(i, pitch)))
                    self.write(sums, m, builder.mul(b, self.width))
        wrong = builder.icmp_unsigned(">=", builder.load(self.most), self.ring.words)
        wrong = builder.bitcast(wrong, ir.IntType(self.kind[1]))
        return builder.icmp_unsigned("==", wrong, ir.Constant(wrong.type, 0))

    def addresses(self) -> None:
        """Emit code that writes the address of each row of the right operand to `Plan.sources`."""
        builder, plan = self.builder, self.plan
        target = slot(builder, plan.sources)
        with loop(builder, _number(0), plan.blocks, _number(1)) as (block, _):
            words = builder.add(self.blocks, builder.mul(block, _number(24)))
            start, stride, count = (_word(builder, words, _number(i)) for i in range(3))
            with loop(builder, _number(0), count, _number(1)) as (k, _):
                row = builder.add(start, builder.mul(k, stride))
                to = builder.load(target)
                builder.store(row, builder.inttoptr(to, ir.PointerType(I64)))
                builder.store(builder.add(to, _number(8)), target)

    def pack(self, block: Any, target: Any) -> None:
        """Emit code that centres a block's columns, to address `target`; `tail` pads the last."""
        builder, plan = self.builder, self.plan
        begin = builder.mul(block, self.width)
        room = builder.sub(plan.length, begin)
        short = builder.icmp_signed("<", room, self.width)
        with loop(builder, _number(0), plan.inner, _number(1)) as (k, _):
            source = builder.add(_word(builder, plan.sources, k), begin)
            with builder.if_then(short, likely=False):
                _copy(builder, plan.tail, source, room)
            source = builder.select(short, plan.tail, source)
            to = builder.add(target, builder.mul(k, self.width))
            for v in range(self.vectors):
                x = load(builder, source, self.size * v, *self.kind)
                most = builder.load(self.most)
                above = builder.icmp_unsigned(">", x, most)
                builder.store(builder.select(above, x, most), self.most)
                store(builder, to, self.size * v, self.ring.pack(builder, x))

    def rows(self, m: Any, first: Any) -> list[Any]:
        """Emitted addresses of limbs of rows m, m + 1, ...; beyond the end, of the last row.

        The emitted code writes the limbs if `first` (i1).
        """
        builder, plan = self.builder, self.plan
        pitch = builder.mul(plan.inner, _number(4 * self.ring.limbs))
        kept = builder.icmp_signed("!=", plan.kept, _number(0))
        place = builder.select(kept, builder.mul(m, pitch), _number(0))
        place = builder.add(plan.limbs, place)
        many = _least(builder, builder.sub(plan.height, m), _number(self.count))
        with builder.if_then(first):
            skipped = builder.mul(m, builder.mul(plan.inner, _number(self.ring.word.width // 8)))
            self.limbs(builder.add(plan.left, skipped), builder.mul(many, plan.inner), place)
        most = builder.sub(many, _number(1))
        numbers = (_least(builder, _number(r), most) for r in range(self.count))
        return [builder.add(place, builder.mul(n, pitch)) for n in numbers]

    def limbs(self, source: Any, elements: Any, target: Any) -> None:
        """Emit code that writes the limbs of so many elements, from address to address."""
        builder, ring = self.builder, self.ring
        whole = builder.and_(elements, _number(-self.kind[1]))
        for start, stop, step in ((_number(0), whole, self.kind[1]), (whole, elements, 1)):
            with loop(builder, start, stop, _number(step)) as (i, _):
                place = builder.add(source, builder.mul(i, _number(ring.word.width // 8)))
                written = ring.expand(builder, load(builder, place, 0, ring.word, step))
                place = builder.mul(i, _number(4 * ring.limbs))
                store(builder, builder.add(target, place), 0, written)

    def sums(self, rows: list[Any], right: Any) -> list[list[Any]]:
        """Emit the sums of one tile (see `term`); an emitted vector for each row and vector."""
        builder, ring, lanes = self.builder, self.ring, self.size // 8
        zero = every(I64, lanes, 0)
        tile = [
            [[slot(builder, zero) for _ in ring.pairs] for _ in range(self.vectors)] for _ in rows
        ]
        with loop(builder, _number(0), self.plan.inner, self.plan.terms) as (start, group):
            stop = _least(builder, builder.add(start, self.plan.terms), self.plan.inner)
            with loop(builder, start, stop, _number(1)) as (k, _):
                self.term(rows, right, k, tile)
            for places in (places for row in tile for places in row):
                folded = ring.fold(builder, [builder.load(place) for place in places], group)
                for place, value in zip(places, folded, strict=True):
                    builder.store(value, place)
        return [
            [ring.finish(builder, [builder.load(place) for place in places]) for places in row]
            for row in tile
        ]

    def term(self, rows: list[Any], right: Any, k: Any, tile: Any) -> None:
        """Emit code that adds term k to all sums of a tile.

        rows: addresses of the rows' limbs; right: address of the packed block; tile: slots by row,
        vector and pair of parts.
        """
        builder, ring, lanes = self.builder, self.ring, self.size // 8
        source = builder.add(right, builder.mul(k, self.width))
        vectors = [load(builder, source, self.size * v, I64, lanes) for v in range(self.vectors)]
        parts = [ring.parts(builder, x) for x in vectors]
        offset = builder.mul(k, _number(4 * ring.limbs))
        for row, sums in zip(rows, tile, strict=True):
            at = builder.add(row, offset)
            places = (builder.add(at, _number(4 * f)) for f in range(ring.limbs))
            limbs = [_broadcast(builder, place, lanes) for place in places]
            for v in range(self.vectors):
                for place, (part, limb) in zip(sums[v], ring.pairs, strict=True):
                    term = product(builder, parts[v][part], limbs[limb])
                    builder.store(builder.add(builder.load(place), term), place)

    def write(self, values: list[list[Any]], m: Any, at: Any) -> None:
        """Emit code that writes a tile at row m, byte `at`; one at an edge goes through `edge`."""
        builder, plan, rows = self.builder, self.plan, _number(self.count)
        height = _least(builder, builder.sub(plan.height, m), rows)
        room = _least(builder, builder.sub(plan.length, at), self.width)
        target = builder.add(builder.add(plan.out, at), builder.mul(m, plan.stride))
        whole = builder.and_(
            builder.icmp_signed("==", height, rows), builder.icmp_signed("==", room, self.width)
        )
        place = builder.select(whole, target, plan.edge)
        step = builder.select(whole, plan.stride, self.width)
        for row in values:
            for v, value in enumerate(row):
                store(builder, place, self.size * v, value)
            place = builder.add(place, step)
        # The edge.
        height = builder.select(whole, _number(0), height)
        with loop(builder, _number(0), height, _number(1)) as (r, _):
            source = builder.add(plan.edge, builder.mul(r, self.width))
            _copy(builder, builder.add(target, builder.mul(r, plan.stride)), source, room)


def tile(ring: Any, size: int, rows: int, vectors: int) -> Any:
    """Return an instruction that computes a matrix product by register tiles; see `Plan`.

    Parameters
    ----------
    ring : type
        Short, Mersenne or Long.
    size : int
        Bytes of a vector register, 32 or 64.
    rows, vectors : int
        Rows of the left operand and vectors of columns that one tile covers.
    """

    def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
        return _Product(builder, ring, size, rows, vectors, args[0]).emit()

    return intrinsic(lambda context, plan: (types.boolean(types.int64), generate))


_short512, _short256 = tile(Short, 64, 6, 2), tile(Short, 32, 2, 2)
_mersenne512, _mersenne256 = tile(Mersenne, 64, 6, 2), tile(Mersenne, 32, 2, 2)
_long512, _long256 = tile(Long, 64, 8, 1), tile(Long, 32, 3, 1)


@kernel
def short512(plan: int) -> bool:
    """Write the product of the `Plan` at `plan`, p < 2^31, by tiles (6, 32); whether all < p."""
    return bool(_short512(plan))


@kernel
def short256(plan: int) -> bool:
    """Write the product of the `Plan` at `plan`, p < 2^31, by tiles (2, 16); whether all < p."""
    return bool(_short256(plan))


@kernel
def mersenne512(plan: int) -> bool:
    """Write the product of the `Plan` at `plan` mod 2^31 - 1 by tiles (6, 32); whether all < p."""
    return bool(_mersenne512(plan))


@kernel
def mersenne256(plan: int) -> bool:
    """Write the product of the `Plan` at `plan` mod 2^31 - 1 by tiles (2, 16); whether all < p."""
    return bool(_mersenne256(plan))


@kernel
def long512(plan: int) -> bool:
    """Write the product of the `Plan` at `plan` mod 2^61 - 1 by tiles (8, 8); whether all < p."""
    return bool(_long512(plan))


@kernel
def long256(plan: int) -> bool:
    """Write the product of the `Plan` at `plan` mod 2^61 - 1 by tiles (3, 4); whether all < p."""
    return bool(_long256(plan))


class Form(NamedTuple):
    """A compiled product kernel with its tile sizes."""

    multiply: Any
    rows: int
    width: int  # Bytes.
    limbs: int  # Words of an element of the left operand.
    terms: int  # Between two folds; 0 where they follow from p.


FORMS = {
    ("short", True): Form(short512, 6, 128, 1, 0),
    ("short", False): Form(short256, 2, 64, 1, 0),
    ("mersenne", True): Form(mersenne512, 6, 128, 1, 8),
    ("mersenne", False): Form(mersenne256, 2, 64, 1, 8),
    ("long", True): Form(long512, 8, 64, 3, 7),
    ("long", False): Form(long256, 3, 32, 3, 7),
}
