"""Kernels on single elements: element-wise operations, elimination, interpolation, sampling.

Moduli are odd and below 2^62, elements lie in [0, p). Products of 64-bit fields pass through
Montgomery form with R = 2^64: ``redc(x y) = x y / R mod p`` needs x y < p R, which x < R and y < p
give. A second step with R^2 mod p removes the factor again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from securevfl.field.kernels.ir import high_part, redc
from securevfl.field.kernels.jit import inlined, kernel

Array = NDArray[Any]

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@inlined
def _mont(a: Any, b: Any, p: Any, negative_inverse: Any) -> Any:
    """Return a b / 2^64 mod p, uint64; `negative_inverse` is -1/p mod 2^64."""
    return redc(high_part(a, b), a * b, p, negative_inverse)


@inlined
def _subtract(a: Any, b: Any, p: Any) -> Any:
    return a - b if a >= b else a + (p - b)


@inlined
def _power(base: Any, exponent: Any, one: Any, p: Any, negative_inverse: Any) -> Any:
    """Power base^exponent; base, `one` and result in Montgomery form."""
    result = one
    while exponent != _ZERO:
        if exponent & _ONE:
            result = _mont(result, base, p, negative_inverse)
        base = _mont(base, base, p, negative_inverse)
        exponent >>= _ONE
    return result


@inlined
def _inverse(x: Any, one: Any, p: Any, negative_inverse: Any) -> Any:
    """Inverse 1/x = x^(p-2) for x != 0, in Montgomery form."""
    return _power(x, p - np.uint64(2), one, p, negative_inverse)


@kernel
def add(a: Array, b: Array, p: Any, out: Array) -> None:
    """Write a + b mod p; a + b < 2 p < 2^63."""
    for i in range(out.size):
        s = np.uint64(a[i]) + np.uint64(b[i])
        out[i] = s - p if s >= p else s


@kernel
def subtract(a: Array, b: Array, p: Any, out: Array) -> None:
    """Write a - b mod p to `out`, entry by entry (flat arrays)."""
    for i in range(out.size):
        out[i] = _subtract(np.uint64(a[i]), np.uint64(b[i]), p)


@kernel
def multiply32(a: Array, b: Array, p: Any, inverse: Any, square: Any, out: Array) -> None:
    """Write a b mod p for p < 2^32, with inverse = 1/p and square = 2^64 mod p, R = 2^32.

    t - m p with m = t/p mod 2^32 is a multiple of 2^32; both halves' differences lie in (-p, p).
    """
    for i in range(out.size):
        t = np.uint64(a[i]) * np.uint64(b[i])
        m = ((t & _LOW) * inverse) & _LOW
        r = _subtract(t >> _HALF, (m * p) >> _HALF, p)
        t = r * square
        m = ((t & _LOW) * inverse) & _LOW
        out[i] = _subtract(t >> _HALF, (m * p) >> _HALF, p)


@kernel
def multiply64(a: Array, b: Array, p: Any, negative_inverse: Any, square: Any, out: Array) -> None:
    """Write a b mod p for p < 2^62, with square = 2^128 mod p."""
    for i in range(out.size):
        t = _mont(a[i], b[i], p, negative_inverse)
        out[i] = _mont(t, square, p, negative_inverse)


CHAINS = 4  # Independent products, so that the latency of one hides behind the others.


@inlined
def _invert_all(x: Array, prefix: Array, one: Any, p: Any, negative_inverse: Any) -> None:
    """Replace nonzero elements (Montgomery form) by inverses, with four exponentiations in all.

    Chain c holds the elements c, c + 4, ..; 1/x = (1/product so far) (product before x).
    `prefix` has room for x and CHAINS more.
    """
    running = prefix[x.size :]
    running[:] = one
    for i in range(x.size):
        prefix[i] = running[i % CHAINS]
        running[i % CHAINS] = _mont(prefix[i], x[i], p, negative_inverse)
    for c in range(CHAINS):
        running[c] = _inverse(running[c], one, p, negative_inverse)
    for i in range(x.size - 1, -1, -1):
        rest = running[i % CHAINS]
        running[i % CHAINS] = _mont(rest, x[i], p, negative_inverse)
        x[i] = _mont(rest, prefix[i], p, negative_inverse)


@kernel
def reciprocal(
    a: Array, p: Any, negative_inverse: Any, square: Any, out: Array, work: Array
) -> None:
    """Write 1/a for nonzero uint64 elements; `work` has a.size + CHAINS; `square`: 2^128 mod p."""
    one = redc(_ZERO, square, p, negative_inverse)
    for i in range(a.size):
        out[i] = _mont(a[i], square, p, negative_inverse)
    _invert_all(out, work, one, p, negative_inverse)
    for i in range(a.size):
        out[i] = redc(_ZERO, out[i], p, negative_inverse)


@kernel
def power(a: Array, exponent: Any, p: Any, negative_inverse: Any, square: Any, out: Array) -> None:
    """Write a^exponent to `out` for uint64 elements; 0^0 is 1. `square` is 2^128 mod p."""
    one = redc(_ZERO, square, p, negative_inverse)
    for i in range(a.size):
        base = _mont(a[i], square, p, negative_inverse)
        r = _power(base, exponent, one, p, negative_inverse)
        out[i] = redc(_ZERO, r, p, negative_inverse)


@kernel
def to_montgomery(a: Array, p: Any, negative_inverse: Any, square: Any) -> None:
    """Convert a flat uint64 array to Montgomery form (times 2^64) in place."""
    for i in range(a.size):
        a[i] = _mont(a[i], square, p, negative_inverse)


@kernel
def from_montgomery(a: Array, p: Any, negative_inverse: Any) -> None:
    """Convert a flat uint64 array from Montgomery form in place."""
    for i in range(a.size):
        a[i] = redc(_ZERO, a[i], p, negative_inverse)


@kernel
def eliminate(a: Array, rhs: Array, p: Any, negative_inverse: Any, square: Any) -> Any:
    """Solve a x = rhs in place by Gauss-Jordan, in Montgomery form; return det(a).

    `negative_inverse` is -1/p mod 2^64, `square` 2^128 mod p. A determinant of 0 says that `a` is
    singular; `rhs` is then meaningless. The first non-zero pivot serves, since exact arithmetic has
    no rounding to keep small.
    """
    n = a.shape[0]
    one = redc(_ZERO, square, p, negative_inverse)
    determinant = one
    for c in range(n):
        pivot = c
        while pivot < n and a[pivot, c] == _ZERO:
            pivot += 1
        if pivot == n:
            return _ZERO
        if pivot != c:
            determinant = p - determinant
            for j in range(c, n):
                a[c, j], a[pivot, j] = a[pivot, j], a[c, j]
            for j in range(rhs.shape[1]):
                rhs[c, j], rhs[pivot, j] = rhs[pivot, j], rhs[c, j]
        determinant = _mont(determinant, a[c, c], p, negative_inverse)
        scale = _inverse(a[c, c], one, p, negative_inverse)
        for j in range(c, n):
            a[c, j] = _mont(a[c, j], scale, p, negative_inverse)
        for j in range(rhs.shape[1]):
            rhs[c, j] = _mont(rhs[c, j], scale, p, negative_inverse)
        for i in range(n):
            factor = a[i, c]
            if i == c or factor == _ZERO:
                continue
            for j in range(c, n):
                a[i, j] = _subtract(a[i, j], _mont(factor, a[c, j], p, negative_inverse), p)
            for j in range(rhs.shape[1]):
                rhs[i, j] = _subtract(rhs[i, j], _mont(factor, rhs[c, j], p, negative_inverse), p)
    return determinant


@kernel
def convolve(a: Array, b: Array, p: Any, negative_inverse: Any, square: Any, out: Array) -> None:
    """Write the product of polynomials with coefficients a, b to `out`, (m + n - 1,) uint64."""
    out[:] = _ZERO
    for i in range(a.size):
        factor = _mont(a[i], square, p, negative_inverse)
        for j in range(b.size):
            s = out[i + j] + _mont(b[j], factor, p, negative_inverse)
            out[i + j] = s - p if s >= p else s


@kernel
def interpolate(
    points: Array,
    targets: Array,
    p: Any,
    negative_inverse: Any,
    square: Any,
    out: Array,
    room: Array,
) -> None:
    """Write out[j, i] = l_i(targets[j]), the Lagrange basis of distinct `points`; uint64.

    Barycentric form: l_i(y) = l(y) w_i / (y - x_i) with l(y) = prod_j (y - x_j) and
    1/w_i = prod_{j != i} (x_i - x_j). The w_i and all 1/(y - x_i) come from one batch inversion.
    `room` has 2 (n + n m) + n + 3 m + CHAINS words for n points and m targets; `square` is
    2^128 mod p.
    """
    n, m = points.size, targets.size
    one = redc(_ZERO, square, p, negative_inverse)
    x, y, levels = room[:n], room[n : n + m], room[n + m : n + 2 * m]
    hits, rest = room[n + 2 * m : n + 3 * m], room[n + 3 * m :]
    work, prefix = rest[: n + n * m], rest[n + n * m :]
    hits[:] = n  # No point.
    for i in range(n):
        x[i] = _mont(points[i], square, p, negative_inverse)
    for k in range(m):
        y[k] = _mont(targets[k], square, p, negative_inverse)
        levels[k] = one
    work[:n] = one
    for i in range(n):  # The inner loops run over independent products, which overlap.
        for j in range(n):
            difference = _subtract(x[j], x[i], p) if j != i else one
            work[j] = _mont(work[j], difference, p, negative_inverse)
        for k in range(m):
            difference = _subtract(y[k], x[i], p)
            if difference == _ZERO:
                hits[k] = i
                difference = one
            levels[k] = _mont(levels[k], difference, p, negative_inverse)
            work[n + k * n + i] = difference
    _invert_all(work, prefix, one, p, negative_inverse)
    for k in range(m):
        for i in range(n):
            if hits[k] < n:
                out[k, i] = _ONE if hits[k] == i else _ZERO
            else:
                t = _mont(work[i], work[n + k * n + i], p, negative_inverse)
                t = _mont(t, levels[k], p, negative_inverse)
                out[k, i] = redc(_ZERO, t, p, negative_inverse)


@kernel
def vanishing(roots: Array, targets: Array, p: Any, ninv: Any, square: Any, out: Array) -> None:
    """Write out[j] = prod_k (targets[j] - roots[k]), uint64; `ninv` is -1/p mod 2^64."""
    one = redc(_ZERO, square, p, ninv)
    for j in range(targets.size):
        level = one
        for k in range(roots.size):
            factor = _mont(_subtract(targets[j], roots[k], p), square, p, ninv)
            level = _mont(level, factor, p, ninv)
        out[j] = redc(_ZERO, level, p, ninv)


@kernel
def syndromes(x: Array, s: Array, p: Any, ninv: Any, square: Any, out: Array, room: Array) -> bool:
    """Write S_j = sum_i w_i x_i^j s_i for distinct x, with 1/w_i = prod_{j != i} (x_i - x_j).

    All are zero if s are the values at x of a polynomial of degree below x.size - out.size; the
    sums over wrong rows alone remain otherwise. Montgomery form; returns whether any is non-zero.
    `room` has 3 n + CHAINS words for n values.
    """
    one = redc(_ZERO, square, p, ninv)
    n, wrong = x.size, False
    points, weights = room[:n], room[n : 2 * n]
    for i in range(n):
        points[i] = _mont(x[i], square, p, ninv)
    weights[:] = one
    for i in range(n):
        for j in range(n):
            difference = _subtract(points[j], points[i], p) if j != i else one
            weights[j] = _mont(weights[j], difference, p, ninv)
    _invert_all(weights, room[2 * n :], one, p, ninv)
    for i in range(n):
        weights[i] = _mont(weights[i], _mont(s[i], square, p, ninv), p, ninv)
    for j in range(out.size):
        total = _ZERO
        for i in range(n):
            total += weights[i]
            total = total - p if total >= p else total
            weights[i] = _mont(weights[i], points[i], p, ninv)
        out[j] = total
        wrong |= total != _ZERO
    return wrong


@kernel
def locate(x: Array, s: Array, p: Any, ninv: Any, square: Any, found: Array, room: Array) -> int:
    """Mark rows whose locators 1 - x_i z divide the shortest recurrence of the syndromes.

    Berlekamp-Massey (Massey, "Shift-register synthesis and BCH decoding", 1969) on syndromes `s`
    in Montgomery form; x are non-zero. Returns the degree of the recurrence; with fewer marked
    rows than that there are more wrong rows than s.size / 2. `room` has three rows of s.size + 1
    words.
    """
    one = redc(_ZERO, square, p, ninv)
    size = s.size + 1
    current, previous, kept = room[0], room[1], room[2]
    current[:] = _ZERO
    previous[:] = _ZERO
    current[0], previous[0] = one, one
    degree, gap, last = 0, 1, one
    for n in range(s.size):
        discrepancy = s[n]
        for i in range(1, degree + 1):
            discrepancy += _mont(current[i], s[n - i], p, ninv)
            discrepancy = discrepancy - p if discrepancy >= p else discrepancy
        if discrepancy == _ZERO:
            gap += 1
            continue
        for i in range(size):
            kept[i] = current[i]
        factor = _mont(discrepancy, _inverse(last, one, p, ninv), p, ninv)
        for i in range(gap, size):
            current[i] = _subtract(current[i], _mont(factor, previous[i - gap], p, ninv), p)
        # The recurrence is too short for n + 1 syndromes and must grow to n + 1 - degree (Massey,
        # theorem 2); the one before it becomes the correction of later discrepancies.
        if 2 * degree <= n:
            degree, gap, last = n + 1 - degree, 1, discrepancy
            previous, kept = kept, previous
        else:
            gap += 1
    for i in range(x.size):
        # C(1/x) = 0 exactly if sum_j C_j x^(degree - j) = 0, since x is not 0.
        point, value = _mont(x[i], square, p, ninv), _ZERO
        for j in range(degree + 1):
            value = _mont(value, point, p, ninv) + current[j]
            value = value - p if value >= p else value
        found[i] = value == _ZERO and degree > 0
    return degree


@kernel
def keep_below(words: Array, mask: Any, p: Any) -> int:
    """Mask words in place, move those below p to the front; return their number.

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
