"""The pass over keystream words that keeps those below p."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from securevfl.field.kernels.jit import kernel

Array = NDArray[Any]


@kernel
def keep_below(words: Array, mask: Any, p: Any) -> int:
    """Mask words in place, move those below p to the front, return how many there are.

    The first loop is a vector pass that counts; for a Mersenne prime a rejection happens once in
    2^31 words, so the compaction, which has no branch to mispredict, hardly ever runs.
    """
    rejected = 0
    for i in range(words.size):
        word = words[i] & mask
        words[i] = word
        rejected += word >= p
    if rejected == 0:
        return words.size
    kept = 0
    for i in range(words.size):
        word = words[i]
        words[kept] = word
        kept += word < p
    return kept
