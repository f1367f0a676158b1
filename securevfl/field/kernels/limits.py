"""The most that a processor multiplies and adds: products of numbers that stay in registers.

Eight sums take two left operands times four right ones in each step. Nothing is read or written,
so the rate is that of the vector unit, which no matrix product of the same kind can exceed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from securevfl.field.kernels import rings
from securevfl.field.kernels.ir import I64, every, loop, opaque, pure, slot, store
from securevfl.field.kernels.jit import intrinsic, kernel, types

LEFT, RIGHT = 2, 4


def _step(size: int, *, real: bool) -> Callable[..., Any]:
    """Loop of sums in vectors of `size` lanes, of doubles or of 32-bit products in 64 bits."""

    def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
        def number(value: int) -> Any:
            kind = ir.DoubleType() if real else I64
            return opaque(builder, every(kind, size, float(value) if real else value))

        def sum_of(total: Any, a: Any, b: Any) -> Any:
            if real:
                return pure(builder, f"llvm.fma.v{size}f64", [a, b, total])
            return builder.add(total, rings.product(builder, a, b))

        def again(place: Any) -> Any:
            """The number at a place, hidden from the compiler's optimiser."""
            value = opaque(builder, builder.load(place))
            builder.store(value, place)
            return value

        left = [slot(builder, number(2 + i)) for i in range(LEFT)]
        right = [slot(builder, number(3 + j)) for j in range(RIGHT)]
        sums = [slot(builder, number(0)) for _ in range(LEFT * RIGHT)]
        one = ir.Constant(I64, 1)
        with loop(builder, ir.Constant(I64, 0), args[0], one):
            a, b = list(map(again, left)), list(map(again, right))
            for k, place in enumerate(sums):
                builder.store(sum_of(builder.load(place), a[k // RIGHT], b[k % RIGHT]), place)
        for k, place in enumerate(sums):
            store(builder, args[1], 8 * size * k, builder.load(place))
        return context.get_dummy_value()

    return intrinsic(
        lambda context, steps, address: (types.void(types.int64, types.int64), generate)
    )


_words256, _words512 = _step(4, real=False), _step(8, real=False)
_reals256, _reals512 = _step(4, real=True), _step(8, real=True)


@kernel
def words256(steps: Any, out: Any) -> None:
    """Write to `out`, (8, 4) uint64, sums of `steps` products of 32-bit words: eight vectors."""
    _words256(steps, out.ctypes.data)


@kernel
def words512(steps: Any, out: Any) -> None:
    """Write to `out`, (8, 8) uint64, the sums of `words256` with eight lanes a vector."""
    _words512(steps, out.ctypes.data)


@kernel
def reals256(steps: Any, out: Any) -> None:
    """Write eight vectors of sums of `steps` products of doubles, four lanes in each."""
    _reals256(steps, out.ctypes.data)


@kernel
def reals512(steps: Any, out: Any) -> None:
    """Write the sums of `reals256` with eight lanes a vector."""
    _reals512(steps, out.ctypes.data)
