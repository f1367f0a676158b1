"""Loops over rows of bits: banded systems over F_2, their inverse map, transposition.

Rows are of whole words of 64 bits, bit k of a row in word k // 64. A band is 128 bits, in two
words.
"""

from __future__ import annotations

import numpy as np

from securevfl.field.kernels.jit import kernel

BAND = 128  # bits of a band: `solve` and `combine` take it apart into two words


@kernel
def solve(
    starts: np.ndarray, bands: np.ndarray, values: np.ndarray, pivots: np.ndarray, out: np.ndarray
) -> bool:
    """Solve sum_j bands[i, j] out[starts[i] + j] = values[i] over GF(2); False without solution.

    `bands` and `values`, uint64 (n, 2), hold 128 bits a row: j runs over the bits of a band.
    `starts` are int64 in [0, m - 128]; `out` and `pivots`, uint64 (m, 2), begin as zeros. Unknowns
    without a pivot are 0. Rows in the order of their starts are the fastest.
    """
    one = np.uint64(1)
    for i in range(len(starts)):
        s = starts[i]
        a, b, u, v = bands[i, 0], bands[i, 1], values[i, 0], values[i, 1]
        placed = False
        # Bit 0 of (a, b) is the coefficient of unknown s. A pivot of s has no coefficient beyond
        # s + 127, since the start of its row is at most s: the sum of both fits the band.
        while a | b:
            if a & one:
                if not pivots[s, 0]:
                    pivots[s, 0], pivots[s, 1], out[s, 0], out[s, 1] = a, b, u, v
                    placed = True
                    break
                a ^= pivots[s, 0]
                b ^= pivots[s, 1]
                u ^= out[s, 0]
                v ^= out[s, 1]
            a = (a >> one) | (b << np.uint64(63))
            b >>= one
            s += 1
        if not placed and u | v:
            return False
    for s in range(len(out) - 1, -1, -1):
        a, b = pivots[s, 0], pivots[s, 1]
        if not a:
            continue
        u, v = out[s, 0], out[s, 1]
        for j in range(1, 64):
            take = np.uint64(0) - ((a >> np.uint64(j)) & one)
            u ^= take & out[min(s + j, len(out) - 1), 0]
            v ^= take & out[min(s + j, len(out) - 1), 1]
        for j in range(64):
            take = np.uint64(0) - ((b >> np.uint64(j)) & one)
            u ^= take & out[min(s + 64 + j, len(out) - 1), 0]
            v ^= take & out[min(s + 64 + j, len(out) - 1), 1]
        out[s, 0], out[s, 1] = u, v
    return True


@kernel
def combine(starts: np.ndarray, bands: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    """Write out[i] = sum_j bands[i, j] rows[starts[i] + j], words of rows (m, w) and out (n, w)."""
    one = np.uint64(1)
    for i in range(len(starts)):
        for k in range(rows.shape[1]):
            out[i, k] = np.uint64(0)
        for half in range(2):
            band, s = bands[i, half], starts[i] + 64 * half
            for j in range(64):
                if band >> np.uint64(j) & one:
                    for k in range(rows.shape[1]):
                        out[i, k] ^= rows[s + j, k]


@kernel
def add_selected(masks: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    """Add rows to 64 sums out[l] (64, w): row i goes to sum l if its mask, uint64, has bit l."""
    for i in range(len(masks)):
        for j in range(64):
            if masks[i] >> np.uint64(j) & np.uint64(1):
                for k in range(rows.shape[1]):
                    out[j, k] ^= rows[i, k]


@kernel
def encode(messages: np.ndarray, table: np.ndarray, out: np.ndarray) -> None:
    """Write codewords of a binary linear code: out[i] = XOR_b table[b, messages[i, b]].

    Messages are uint8 (n, bytes), the table (bytes, 256, w) and out (n, w) words.
    """
    for i in range(len(messages)):
        for k in range(out.shape[1]):
            out[i, k] = np.uint64(0)
        for b in range(messages.shape[1]):
            byte = messages[i, b]
            for k in range(out.shape[1]):
                out[i, k] ^= table[b, byte, k]


@kernel
def transpose(rows: np.ndarray, out: np.ndarray, work: np.ndarray) -> None:
    """Transpose bits of rows (64 r, w), uint64, to out (64 w, r); `work` has 64 words.

    Each square of 64 bits by exchange of halves, quarters and so on (Warren, Hacker's Delight,
    section 7-3).
    """
    for block in range(out.shape[1]):
        for k in range(rows.shape[1]):
            for i in range(64):
                work[i] = rows[64 * block + i, k]
            width = 32
            mask = np.uint64(0x00000000FFFFFFFF)
            while width:
                by = np.uint64(width)
                for i in range(64):
                    if i & width:
                        continue
                    change = ((work[i] >> by) ^ work[i + width]) & mask
                    work[i] ^= change << by
                    work[i + width] ^= change
                width >>= 1
                mask ^= mask << np.uint64(width)
            for i in range(64):
                out[64 * k + i, block] = work[i]
