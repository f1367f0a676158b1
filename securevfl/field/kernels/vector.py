"""Matrix products by 256- and 512-bit vectors, for p < 2^31 and for p = 2^61 - 1.

Both operands are centred, so that more products fit a signed 64-bit sum, and both use the
multiplication of signed 32-bit halves of 64-bit lanes. The left operand stays in rows of 32-bit
words; each is broadcast from memory, and `opaque` keeps the compiler from moving the broadcast to
general registers. One register tile holds some rows and vectors of columns, with these sums:

p < 2^31
    A lane holds the elements of two neighbouring columns, and each has its sum. |a|, |b| <= h =
    (p - 1)/2. A fold t = (t mod 2^32) + R (t >> 32) with R = 2^32 mod p centred leaves |t| <=
    2^32 + 2^31 |R|; `terms` products of at most h^2 may follow while the total is below 2^63.
p = 2^31 - 1
    The same, with the fold t = (t mod 2^31) + (t >> 31). It leaves |t| <= 2^32 + 2^31, and
    8 h^2 = 2^63 - 2^34 + 8: eight terms fit.
p = 2^61 - 1
    A lane holds b = 2^31 b1 + b0, the left operand a0, a1 and a0 + a1, with |a0| <= 2^30 and
    |a1| <= 2^29. Karatsuba's sums S0 = a0 b0, S1 = a1 b1, S2 = (a0 + a1)(b0 + b1) give
    S0 + 2 S1 + 2^31 X with X = S2 - S0 - S1, since 2^62 = 2. S2 may wrap modulo 2^64, because only
    X, a0 b1 + a1 b0 <= 2^60 per term, must fit: seven terms. |S1| grows by 2^58 per term and is
    folded after 28. See `Long.fold`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils

from securevfl.field.kernels.ir import (
    I8,
    I32,
    I64,
    every,
    joined,
    load,
    loop,
    opaque,
    slot,
    smaller,
    splat,
    store,
)  # fmt: skip
from securevfl.field.kernels.jit import intrinsic, kernel

MOST_TERMS = 4096  # A panel of so many rows still fits the L2 cache.


def _low_signed(builder: Any, x: Any) -> Any:
    """Sign-extend the low halves, in the form that selects the 32-bit multiplication."""
    shift = every(I64, x.type.count, 32)
    return builder.ashr(builder.shl(x, shift), shift)


def _product(builder: Any, a: Any, b: Any) -> Any:
    """Multiply the signed low halves of 64-bit lanes."""
    return builder.mul(_low_signed(builder, a), _low_signed(builder, b))


def _cut(builder: Any, t: Any, bits: int) -> tuple[Any, Any]:
    """Return t mod 2^bits and floor(t / 2^bits) of signed t."""
    lanes = t.type.count
    low = builder.and_(t, every(I64, lanes, (1 << bits) - 1))
    return low, builder.ashr(t, every(I64, lanes, bits))


class Short:
    """Elements below 2^31 modulo any prime: one limb, a sum for even and one for odd columns."""

    word = I32
    limbs = 1
    pairs = ((0, 0), (1, 0))  # Which part of the right operand meets which limb, for each sum.

    def __init__(self, builder: Any, lanes: int, p: Any, radix: Any) -> None:
        self.lanes = lanes
        self.p, self.radix = splat(builder, p, lanes), splat(builder, radix, lanes)
        self.modulus = builder.trunc(p, I32)
        self.words = splat(builder, self.modulus, 2 * lanes)
        one = ir.Constant(ir.DoubleType(), 1.0)
        inverse = builder.fdiv(one, builder.sitofp(p, ir.DoubleType()))
        self.inverse = splat(builder, inverse, lanes)

    def expand(self, builder: Any, x: Any) -> Any:
        """Return the words of elements of the left operand, centred."""
        return centred(builder, x, splat(builder, self.modulus, x.type.count))

    def pack(self, builder: Any, x: Any) -> Any:
        """Return x, words below p, centred; as 64-bit lanes."""
        return builder.bitcast(centred(builder, x, self.words), ir.VectorType(I64, self.lanes))

    def parts(self, builder: Any, x: Any) -> list[Any]:
        """Return what the limbs are multiplied by: even and odd columns."""
        return [x, builder.lshr(x, every(I64, self.lanes, 32))]

    def fold(self, builder: Any, sums: list[Any], group: Any) -> list[Any]:
        """Return smaller sums of the same values modulo p, after group `group` of terms."""
        folded = []
        for t in sums:
            low, high = _cut(builder, t, 32)
            folded.append(builder.add(low, _product(builder, high, self.radix)))
        return folded

    def finish(self, builder: Any, sums: list[Any]) -> Any:
        """Return the elements of folded sums.

        |t / p| is below 2^31, so that its double-precision quotient errs by less than one and fits
        32 bits: t - q p lies in (-2p, 2p), and the two minima add and subtract p where needed.
        """
        ends = []
        for t in sums:
            real = builder.sitofp(t, ir.VectorType(ir.DoubleType(), self.lanes))
            q = builder.fptosi(builder.fmul(real, self.inverse), t.type)
            r = builder.sub(t, _product(builder, q, self.p))
            r = smaller(builder, r, builder.add(r, self.p))
            ends.append(smaller(builder, r, builder.sub(r, self.p)))
        return builder.or_(ends[0], builder.shl(ends[1], every(I64, self.lanes, 32)))


class Mersenne(Short):
    """Elements modulo 2^31 - 1."""

    def fold(self, builder: Any, sums: list[Any], group: Any) -> list[Any]:
        """See Short; 2^31 = 1."""
        return [builder.add(*_cut(builder, t, 31)) for t in sums]

    def finish(self, builder: Any, sums: list[Any]) -> Any:
        """See Short; t + 8p lies in (0, 2^35), so that a fold leaves less than 2p."""
        up = every(I64, self.lanes, 8 * (2**31 - 1))
        even, odd = self.fold(builder, [builder.add(t, up) for t in sums], None)
        both = builder.or_(even, builder.shl(odd, every(I64, self.lanes, 32)))
        x = builder.bitcast(both, ir.VectorType(I32, 2 * self.lanes))
        return smaller(builder, x, builder.sub(x, every(I32, 2 * self.lanes, 2**31 - 1)))


class Long:
    """Elements modulo 2^61 - 1: three limbs and three sums."""

    word = I64
    limbs = 3
    pairs = ((0, 0), (1, 1), (2, 2))
    groups = 4  # Groups of seven terms after which S1, at most 2^58 for each term, is folded.

    def __init__(self, builder: Any, lanes: int, p: Any, radix: Any) -> None:
        self.lanes, self.words = lanes, every(I64, lanes, 2**61 - 1)

    def expand(self, builder: Any, x: Any) -> Any:
        """Return a0, a1 and a0 + a1 of each element, next to each other."""
        low, high = _halves(builder, x)
        lanes = x.type.count
        words = ir.VectorType(I32, lanes)
        low, high, both = (builder.trunc(v, words) for v in (low, high, builder.add(low, high)))
        order = [lanes * part + i for i in range(lanes) for part in range(3)]
        first, second = joined(builder, low, high), joined(builder, both, both)
        return builder.shuffle_vector(
            first, second, ir.Constant(ir.VectorType(I32, 3 * lanes), order)
        )

    def pack(self, builder: Any, x: Any) -> Any:
        """Return b0 + 2^32 b1 of elements b = b0 + 2^31 b1, centred."""
        low, high = _halves(builder, x)
        low = builder.and_(low, every(I64, self.lanes, 0xFFFFFFFF))
        return builder.or_(low, builder.shl(high, every(I64, self.lanes, 32)))

    def parts(self, builder: Any, x: Any) -> list[Any]:
        """Return b0, b1 and b0 + b1 in the low halves."""
        high = opaque(builder, builder.lshr(x, every(I64, self.lanes, 32)))
        return [x, high, opaque(builder, builder.add(x, high))]

    def fold(self, builder: Any, sums: list[Any], group: Any) -> list[Any]:
        """Return S0', S1', S2' with S0' + 2 S1' + 2^31 X' = S0 + 2 S1 + 2^31 X modulo p.

        X = 2^30 high + low carries high to S0, since 2^61 = 1; S0 = 2^31 high + low carries high to
        X. Both are then below 2^34 in magnitude. S1 = 2^60 high + low carries 2^61 high.
        """
        s0, s1, s2 = sums
        x = builder.sub(builder.sub(s2, s0), s1)
        low0, high0 = _cut(builder, s0, 31)
        lowx, highx = _cut(builder, x, 30)
        s0, x = builder.add(low0, highx), builder.add(lowx, high0)
        if group is not None:
            last = ir.Constant(I64, self.groups - 1)
            due = builder.icmp_signed("==", builder.and_(group, last), last)
            low1, high1 = _cut(builder, s1, 60)
            s0 = builder.select(due, builder.add(s0, high1), s0)
            s1 = builder.select(due, low1, s1)
        return [s0, s1, builder.add(builder.add(s0, s1), x)]

    def finish(self, builder: Any, sums: list[Any]) -> Any:
        """Return the elements of folded sums.

        A second fold leaves S0 in [-16, 2^31 + 16] and X in [-8, 2^30 + 8], and with S1 in
        [0, 2^60) the total t lies in (-2^35, 2^62 + 2^35): t + p is positive and below 4p.
        """
        s0, s1, s2 = self.fold(builder, sums, None)
        low1, high1 = _cut(builder, s1, 60)
        x = builder.sub(builder.sub(s2, s0), s1)
        p = every(I64, self.lanes, 2**61 - 1)
        t = builder.add(builder.add(s0, high1), builder.shl(low1, every(I64, self.lanes, 1)))
        t = builder.add(builder.add(t, builder.shl(x, every(I64, self.lanes, 31))), p)
        r = builder.add(*_cut(builder, t, 61))
        return smaller(builder, r, builder.sub(r, p))


def centred(builder: Any, x: Any, p: Any) -> Any:
    """Return x - p where x > (p - 1)/2, else x."""
    half = builder.lshr(p, every(p.type.element, p.type.count, 1))
    return builder.select(builder.icmp_unsigned(">", x, half), builder.sub(x, p), x)


def _halves(builder: Any, x: Any) -> tuple[Any, Any]:
    """Return x0, |x0| <= 2^30, and x1, |x1| <= 2^29, with x = x0 + 2^31 x1 modulo 2^61 - 1."""
    lanes = x.type.count
    x = centred(builder, x, every(I64, lanes, 2**61 - 1))
    moved = every(I64, lanes, 2**30)
    low, high = _cut(builder, builder.add(x, moved), 31)
    return builder.sub(low, moved), high


def _number(value: int) -> Any:
    return ir.Constant(I64, value)


def _word(builder: Any, address: Any, index: Any) -> Any:
    """Return 64-bit word `index` at an address."""
    place = builder.add(address, builder.shl(index, _number(3)))
    return builder.load(builder.inttoptr(place, ir.PointerType(I64)))


def _least(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def _copy(builder: Any, target: Any, source: Any, size: Any) -> None:
    """Copy bytes."""
    kind = ir.PointerType(I8)
    places = builder.inttoptr(target, kind), builder.inttoptr(source, kind)
    cgutils.raw_memcpy(builder, *places, size, 1)  # type: ignore[no-untyped-call]


def _broadcast(builder: Any, address: Any, lanes: int) -> Any:
    """Return the 32-bit word at an address in the low half of each lane."""
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
    """The code of one matrix product; see `tile` and `Plan`.

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
        """Emit the loops over panels, rows and blocks; return whether all numbers are below p."""
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
        """Write the address of each row of the right operand."""
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
        """Centre the columns of a block; those that do not fill it pass through `tail`."""
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
        """Return where the limbs of the tile's rows stand; beyond the last row that one stands in.

        They are written if `first`.
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
        """Write the limbs of elements that stand one after the other."""
        builder, ring = self.builder, self.ring
        whole = builder.and_(elements, _number(-self.kind[1]))
        for start, stop, step in ((_number(0), whole, self.kind[1]), (whole, elements, 1)):
            with loop(builder, start, stop, _number(step)) as (i, _):
                place = builder.add(source, builder.mul(i, _number(ring.word.width // 8)))
                written = ring.expand(builder, load(builder, place, 0, ring.word, step))
                place = builder.mul(i, _number(4 * ring.limbs))
                store(builder, builder.add(target, place), 0, written)

    def sums(self, rows: list[Any], right: Any) -> list[list[Any]]:
        """Compute one register tile; return a vector for each row and vector of columns."""
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
        """Add term k to all sums of a tile."""
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
                    product = _product(builder, parts[v][part], limbs[limb])
                    builder.store(builder.add(builder.load(place), product), place)

    def write(self, values: list[list[Any]], m: Any, at: Any) -> None:
        """Write a tile to the result; at its edges by way of `edge`."""
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
    """Compute a product modulo p < 2^31, six rows and 32 columns at a time."""
    return bool(_short512(plan))


@kernel
def short256(plan: int) -> bool:
    """Compute a product modulo p < 2^31, two rows and 16 columns at a time."""
    return bool(_short256(plan))


@kernel
def mersenne512(plan: int) -> bool:
    """Compute a product modulo 2^31 - 1, six rows and 32 columns at a time."""
    return bool(_mersenne512(plan))


@kernel
def mersenne256(plan: int) -> bool:
    """Compute a product modulo 2^31 - 1, two rows and 16 columns at a time."""
    return bool(_mersenne256(plan))


@kernel
def long512(plan: int) -> bool:
    """Compute a product modulo 2^61 - 1, eight rows and 8 columns at a time."""
    return bool(_long512(plan))


@kernel
def long256(plan: int) -> bool:
    """Compute a product modulo 2^61 - 1, three rows and 4 columns at a time."""
    return bool(_long256(plan))


class Form(NamedTuple):
    """A compiled product with the shape of its tiles."""

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
