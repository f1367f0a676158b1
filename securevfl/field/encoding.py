"""Products of a small matrix with very many columns, in panels of bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from securevfl.errors import FieldError
from securevfl.field.kernels.scratch import aligned
from securevfl.field.pool import share

if TYPE_CHECKING:
    from securevfl.field.dispatch import PreparedMatrix
    from securevfl.field.prime_field import PrimeField
    from securevfl.field.sampling import Source

Array = NDArray[Any]

_MASK_BYTES = 1 << 20  # Masks at hand at a time; half of an L2 cache.
_PIECE = 128  # Bytes of columns in a tile of the streams.


def apply(left: PreparedMatrix, blocks: Sequence[Array], out: Array, threads: int) -> bool:
    """Write the product of `left` (m, k) with `blocks`, k rows in all, to `out` (m, n).

    Returns whether all numbers that were read are below p. FieldError where sizes do not fit:
    kernels would read and write past the arrays.
    """
    terms = sum(len(block) for block in blocks)
    if (left.rows, left.inner) != (len(out), terms):
        raise FieldError(
            f"encoding: a matrix of {(left.rows, left.inner)} cannot be multiplied with {terms} "
            f"rows into {len(out)}"
        )
    good: list[bool] = []

    def work(columns: slice) -> None:
        good.append(left.multiply([b[:, columns] for b in blocks], out[:, columns]))

    share(threads, out.shape[1], work, multiple=_PIECE // out.itemsize)
    return all(good)


def encode(
    field: PrimeField,
    left: PreparedMatrix,
    data: Array,
    masks: Array | None,
    source: Source | None,
    T: int,
    out: Array,
    threads: int,
) -> bool:
    """Write left [data; masks] to `out`; T random rows of masks if none are given.

    Returns whether all numbers that were read are below p; if not, `out` is meaningless.

    Row t of the masks is what `field.random(length, source)` returns at its t-th call, in panels
    that are used as soon as they are drawn.
    """
    if masks is not None:
        return apply(left, [data, masks], out, threads)
    from securevfl.field import sampling

    source = sampling.chosen(source)
    streams = [source.keystream() for _ in range(T)]
    columns = max(1024, _MASK_BYTES // (T * out.itemsize) // 1024 * 1024)
    panel = aligned((T, min(columns, out.shape[1])), out.dtype)
    good = True
    for start in range(0, out.shape[1], columns):
        part = slice(start, min(start + columns, out.shape[1]))
        drawn = panel[:, : part.stop - start]
        for row, stream in zip(drawn, streams, strict=True):
            sampling.fill_uniform(field.modulus, row, stream)
        good &= apply(left, [data[:, part], drawn], out[:, part], threads)
    return good
