"""Two weighted sums of each block of each row, modulo 2^50 - 2^14 + 1, in one pass.

The blocks and their weights are those of kernels.projection. All lanes sum columns of their own,
which are added at the end: sixteen results below 2^50.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from securevfl.field.kernels.fifty import product
from securevfl.field.kernels.ir import I64, ask, load, slot, store
from securevfl.field.kernels.jit import inlined, intrinsic, types
from securevfl.field.kernels.primes import P50
from securevfl.field.kernels.projection import BLOCK

Array = NDArray[Any]

STEP = 16  # Columns of a step, whose two vectors for two weights make sums enough to overlap.
_AHEAD = 4096  # Bytes ahead at which rows are asked for, since sums end with each block.
_P = np.uint64(P50)


def dots(form: product.Form, size: int, convert: Callable[..., Any]) -> Callable[..., Any]:
    """Instruction for kernels: sums of products of a block with two rows of weights.

    It takes the addresses of the block, of the weights (in the form that `convert` emits for the
    block), of 16 results for each row of weights and of eight maxima; the bytes between rows of
    weights; the steps. `size` is the lanes of a vector.
    """
    vectors = STEP // size

    def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
        block, weights, out, seen, pitch, steps = args
        sums = [form.sum(builder, size) for _ in range(2 * vectors)]
        most = slot(builder, load(builder, seen, 0, I64, 8))

        def term(k: Any) -> None:
            offset = builder.mul(k, ir.Constant(I64, 8 * STEP))
            here, first = builder.add(block, offset), builder.add(weights, offset)
            places = first, builder.add(first, pitch)
            for half in range(2):
                ask(builder, builder.add(here, ir.Constant(I64, _AHEAD + 64 * half)))
                x, old = load(builder, here, 64 * half, I64, 8), builder.load(most)
                above = builder.icmp_unsigned(">", x, old)
                builder.store(builder.select(above, x, old), most)
            for v in range(vectors):
                x = convert(builder, load(builder, here, 8 * size * v, I64, size))
                x = builder.bitcast(x, ir.VectorType(form.kind, size))
                for q in range(2):
                    w = load(builder, places[q], 8 * size * v, form.kind, size)
                    sums[q * vectors + v].add(x, w)

        results = product.accumulate(builder, form, sums, steps, term)
        for i, result in enumerate(results):
            store(builder, out, 8 * size * i, result)
        store(builder, seen, 0, builder.load(most))
        return context.get_dummy_value()

    def entry(
        context: Any, block: Any, weights: Any, out: Any, seen: Any, pitch: Any, steps: Any
    ) -> Any:
        return types.void(*[types.int64] * 6), generate

    return intrinsic(entry)


def over_rows(dot: Any) -> Callable[..., Any]:
    """Function that projects all blocks of C-contiguous rows by `dots`.

    Its `work` is memory for the last columns of a row, the results of `dots` and the maxima.
    """

    @inlined
    def total(results: Array, q: int) -> Any:
        """Return the sum of sixteen results, below 2^54, mod p."""
        s = results[q, 0]
        for lane in range(1, STEP):
            s += results[q, lane]
        return s % _P

    @inlined
    def project(rows: Array, weights: Array, out: Array, most: Array, work: Any) -> None:
        tail, results, seen = work
        length, pitch = rows.shape[1], weights.strides[0]
        addresses = results.ctypes.data, seen.ctypes.data
        base = weights.ctypes.data
        for i in range(rows.shape[0]):
            seen[:] = np.uint64(0)
            for b in range(out.shape[2]):
                start = b * BLOCK
                size = min(BLOCK, length - start)
                steps = size // STEP
                block = rows.ctypes.data + i * rows.strides[0] + 8 * start
                dot(block, base, addresses[0], addresses[1], pitch, steps)
                out[0, i, b], out[1, i, b] = total(results, 0), total(results, 1)
                if steps * STEP < size:
                    tail[:] = np.uint64(0)
                    for j in range(steps * STEP, size):
                        tail[j - steps * STEP] = rows[i, start + j]
                    near = base + 8 * STEP * steps
                    dot(tail.ctypes.data, near, addresses[0], addresses[1], pitch, 1)
                    for q in range(2):
                        out[q, i, b] = (out[q, i, b] + total(results, q)) % _P
            for lane in range(8):
                most[i] = max(most[i], seen[lane])

    return project
