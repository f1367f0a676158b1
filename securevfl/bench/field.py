"""Speed of the field kernels on this machine, relative to its vector unit and memory.

A limit is measured beside the kernels and in turn with them: products of numbers that stay in
registers (`securevfl.field.kernels.limits`), and copies and reads of memory. A product modulo p
takes one 32-bit product for each multiply-add where p < 2^31, three at 2^61 - 1 (Karatsuba), and
two of doubles at 2^50 - 2^14 + 1; see the kernels. Encoding and conversions are bound by memory,
draws by the key stream of AES-256. FLINT, a peer, comes with `securevfl[attacks]`.
"""

from __future__ import annotations

import operator
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from securevfl.errors import ConfigurationError
from securevfl.field import FixedPoint, LagrangeCode, PrimeField
from securevfl.field.kernels import cpu, limits, primes
from securevfl.machine import describe_machine
from securevfl.runs.threads import one_thread

FLAT = (256, 784, 64)
CODES = ((10, 5), (28, 14))  # parties N, and K + T
_BYTES = 1 << 26  # of the arrays that are copied and read: past all caches
_DRAWN = 1 << 23  # bytes of a key stream
_STEPS = 1 << 20
_FEW = 1 << 12  # columns that FLINT encodes
#: Products for each multiply-add and their kind, by prime, for tiers whose unit is measured.
_PRODUCTS = {primes.P31: ("words", 1), primes.P50: ("doubles", 2), primes.P61: ("words", 3)}
_UNITS = {  # of a tier: primes whose products are of a measured kind, and lanes of a vector
    "avx2": ((primes.P31, primes.P50, primes.P61), 4),
    "avx512": ((primes.P31, primes.P50, primes.P61), 8),
    "ifma": ((primes.P31, primes.P61), 8),
}


def bench_field(
    *, repeats: int = 7, largest: int = 1024, elements: int = 1 << 20
) -> dict[str, Any]:
    """Time the kernels for three primes, the hardware limits, and other libraries.

    Parameters
    ----------
    repeats : int
        Turns of all operations, at least 3; figures are medians of them.
    largest : int
        Rows of the square products, at least 64.
    elements : int
        Elements that are converted and drawn, at least 4096; of the data that is encoded a segment
        has a quarter of them.

    Returns
    -------
    dict
        ``tier``, the kernels in use; ``limits``: 10^9 products a second of ``words`` (32 bits) and
        ``doubles``, where the tier's unit is measured, and ``copy``, ``read`` and ``keystream`` in
        10^9 bytes a second; ``products``: for each prime and shape ``gmacs`` (10^9 multiply-adds
        modulo p a second), ``share`` of its limit (None where it is not measured), and how many
        times as fast as ``dgemm``, numpy's product of doubles, and as ``flint`` (None for square
        products, and where it is not installed); ``passes``: for each prime and operation its
        ``ms``, ``share`` of its limit (a copy of as many bytes, or as many of a key stream for
        draws) and how many times as fast as ``flint`` (None but for encoding); ``machine``. Times
        are CPU seconds of one thread.

    Raises
    ------
    ConfigurationError
        Where a size is too small, or this machine lacks the named tier.
    """
    if repeats < 3 or largest < 64 or elements < 4096:
        raise ConfigurationError(
            f"bench field: {repeats} repeats, products of {largest} rows, {elements} elements; at "
            "least 3, 64 and 4096 are needed"
        )
    tier = cpu.tier()
    with one_thread():
        work = _limits(tier) | _products(largest) | _passes(elements)
        for one in work.values():
            one()  # compiled, and memory that was written
        turns: dict[Named, list[float]] = {name: [] for name in work}
        for _ in range(repeats):
            for name, one in work.items():
                turns[name].append(_seconds(one))
    found = {name: statistics.median(some) for name, some in turns.items()}
    limit = _limit_rates(found, tier)
    shapes = (("square", (largest,) * 3), ("flat", FLAT))
    return {
        "tier": tier,
        "limits": limit,
        "products": [
            _product_row(p, name, shape, found, turns, limit, tier)
            for p in primes.USUAL
            for name, shape in shapes
        ],
        "passes": [_pass_row(name, found, limit) for name in work if name[0] == "pass"],
        "machine": describe_machine(),
    }


Named = tuple[Any, ...]


def _seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _limits(tier: str) -> dict[Named, Callable[[], object]]:
    source, target = np.ones(_BYTES // 8), np.empty(_BYTES // 8)
    found: dict[Named, Callable[[], object]] = {
        ("limit", "copy"): partial(np.copyto, target, source),
        ("limit", "read"): source.max,
        ("limit", "keystream"): _keystream(),
    }
    if tier in _UNITS:
        lanes = _UNITS[tier][1]
        whole, real = (np.zeros((8, lanes), kind) for kind in (np.int64, np.float64))
        words, doubles = (
            (limits.words256, limits.reals256) if lanes == 4 else (limits.words512, limits.reals512)
        )
        found["limit", "words"] = partial(words, _STEPS, whole)
        found["limit", "doubles"] = partial(doubles, _STEPS, real)
    return found


def _keystream() -> Callable[[], object]:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    stream = Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16))).encryptor()
    zeros, room = bytes(_DRAWN), bytearray(_DRAWN + 15)
    return partial(stream.update_into, zeros, room)


def _limit_rates(found: dict[Named, float], tier: str) -> dict[str, float]:
    rates = {
        "copy": 2 * _BYTES / found["limit", "copy"] / 1e9,
        "read": _BYTES / found["limit", "read"] / 1e9,
        "keystream": _DRAWN / found["limit", "keystream"] / 1e9,
    }
    for kind in ("words", "doubles"):
        if ("limit", kind) in found:
            products = _STEPS * limits.LEFT * limits.RIGHT * _UNITS[tier][1]
            rates[kind] = products / found["limit", kind] / 1e9
    return rates


def _products(largest: int) -> dict[Named, Callable[[], object]]:
    found: dict[Named, Callable[[], object]] = {}
    flint = _flint()
    for name, (m, k, n) in (("square", (largest,) * 3), ("flat", FLAT)):
        a, b = np.ones((m, k)), np.ones((k, n))
        found["dgemm", name] = partial(np.matmul, a, b)
        for p in primes.USUAL:
            field = PrimeField(p)
            x, y = field.random((m, k)), field.random((k, n))
            found["product", p, name] = partial(field.matmul, x, y, trusted=True)
            if flint is not None and name == "flat":  # the other takes it seconds
                left, right = flint(x.tolist(), p), flint(y.tolist(), p)
                found["flint", p, name] = partial(operator.mul, left, right)
    return found


def _flint() -> Callable[[list[list[int]], int], Any] | None:
    try:
        from flint import nmod_mat
    except ImportError:
        return None
    return nmod_mat


def _passes(elements: int) -> dict[Named, Callable[[], object]]:
    found: dict[Named, Callable[[], object]] = {}
    flint = _flint()
    for p in primes.USUAL:
        field = PrimeField(p)
        for N, terms in CODES:
            code = LagrangeCode(field, parties=N, segments=terms - 1, privacy=1)
            columns = elements // 4
            data, masks = field.random((terms - 1, columns)), field.random((1, columns))
            out = np.empty((N, columns), field.dtype)
            size = (N + terms) * columns * out.itemsize
            encode = partial(code.encode, data, masks=masks, out=out)
            found["pass", p, f"encode N={N}, K+T={terms}", size, "copy"] = encode
            if flint is not None:
                few = field.random((terms, _FEW)).tolist()
                left, right = flint(field.random((N, terms)).tolist(), p), flint(few, p)
                named = "flint", p, f"encode N={N}, K+T={terms}"
                found[(*named, columns / _FEW)] = partial(operator.mul, left, right)
        fixed, numbers = FixedPoint(field, 12), np.linspace(-1, 1, elements)
        z = fixed.quantize(numbers)
        size = elements * (8 + z.itemsize)
        found["pass", p, "quantize", size, "copy"] = partial(fixed.quantize, numbers)
        found["pass", p, "dequantize", size, "copy"] = partial(fixed.dequantize, z)
        size = elements * field.dtype.itemsize
        found["pass", p, "random", size, "keystream"] = partial(field.random, elements)
    return found


def _product_row(
    p: int,
    name: str,
    shape: tuple[int, int, int],
    found: dict[Named, float],
    turns: dict[Named, list[float]],
    limit: dict[str, float],
    tier: str,
) -> dict[str, Any]:
    def times(peer: Named) -> float | None:
        """Median of another library's time over ours, turn by turn; None if it was not timed."""
        if peer not in turns:
            return None
        pairs = zip(turns[peer], turns["product", p, name], strict=True)
        return statistics.median(theirs / ours for theirs, ours in pairs)

    gmacs = shape[0] * shape[1] * shape[2] / found["product", p, name] / 1e9
    share = None
    if tier in _UNITS and p in _UNITS[tier][0]:
        kind, products = _PRODUCTS[p]
        share = gmacs * products / limit[kind]
    return {
        "prime": p,
        "shape": list(shape),
        "gmacs": gmacs,
        "share": share,
        "dgemm": times(("dgemm", name)),
        "flint": times(("flint", p, name)),
    }


def _pass_row(name: Named, found: dict[Named, float], limit: dict[str, float]) -> dict[str, Any]:
    _, p, what, size, kind = name
    peers = [peer for peer in found if peer[:3] == ("flint", p, what)]
    return {
        "prime": p,
        "operation": what,
        "ms": 1e3 * found[name],
        "share": size / found[name] / (1e9 * limit[kind]),
        "flint": found[peers[0]] * peers[0][3] / found[name] if peers else None,
    }
