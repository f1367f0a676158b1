"""Cases of the field benchmark: our kernels beside BLAS, galois, python-flint, NumPy, copies."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from turns import Clock

from securevfl.field.fixed_point import FixedPoint
from securevfl.field.kernels import cpu
from securevfl.field.kernels.scratch import aligned
from securevfl.field.lagrange import interpolation_matrix
from securevfl.field.lagrange_code import LagrangeCode
from securevfl.field.prime_field import PrimeField
from securevfl.field.sampling import SYSTEM, SeededSource

Array = NDArray[Any]

P31, P50, P61, NTT = 2**31 - 1, 2**50 - 2**14 + 1, 2**61 - 1, 2013265921

# A prime that is added here gets its rows; field_rows holds the targets.
PRODUCTS = (P31, P50, P61, NTT)
ENCODED = (P31, P50, P61)
SHAPES = ((1024, 1024, 1024), (256, 784, 64), (256, 256, 256), (64, 1568, 64))
CODES = ((10, 5, 10**6), (28, 14, 10**6), (128, 64, 1 << 18))  # N, K + T, columns.


@contextmanager
def forced(tier: str) -> Iterator[None]:
    """Use the kernels of one tier."""
    before = os.environ.get(cpu.VARIABLE)
    os.environ[cpu.VARIABLE] = tier
    try:
        yield
    finally:
        if before is None:
            del os.environ[cpu.VARIABLE]
        else:
            os.environ[cpu.VARIABLE] = before


def under(tier: str, call: Callable[[], object]) -> Callable[[], object]:
    """Return `call` with the kernels of one tier."""

    def run() -> object:
        with forced(tier):
            return call()

    return run


def optional(name: str) -> Any:
    """Return a module that only tests depend on, or None."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


def flint_product(p: int, a: Array, b: Array) -> Callable[[], object] | None:
    """Return FLINT's product alone, the conversions left out."""
    flint = optional("flint")
    if flint is None:
        return None
    left, right = (flint.nmod_mat(*m.shape, m.astype(object).ravel().tolist(), p) for m in (a, b))
    return lambda: left * right


def true_copy(size: int) -> Callable[[], object]:
    """Return a call that reads and writes `size` bytes in all, from memory that was written.

    A source that nobody wrote is one page of zeros in the cache: copying it times the writes only.
    """
    before, after = np.full(size // 2, 3, np.uint8), np.full(size // 2, 1, np.uint8)
    return lambda: np.copyto(after, before)


def matmul(p: int, shape: tuple[int, int, int], clock: Clock, others: bool) -> dict[str, float]:
    """Return GMAC/s of each method; `others` adds galois, which needs seconds."""
    m, k, n = shape
    case = f"matmul {p} {m}x{k}x{n}"
    F, source = PrimeField(p), SeededSource(1)
    a, b = F.random((m, k), source), F.random((k, n), source)
    out = np.empty((m, n), F.dtype)
    methods: dict[str, Callable[[], object]] = {
        tier: under(tier, lambda: F.matmul(a, b, out=out, trusted=True)) for tier in cpu.available()
    }
    x, y, z = a.astype(float), b.astype(float), np.empty((m, n))
    methods["dgemm"] = lambda: np.matmul(x, y, out=z)
    product = flint_product(p, a, b)
    if product and (others or p == P61):
        methods["flint"] = product
    seconds = clock.time(case, methods)
    galois = optional("galois") if others else None
    if galois:
        G = galois.GF(p)
        left, right = G(a), G(b)
        seconds |= clock.time(case, {"galois": lambda: left @ right}, 1)
    return {name: m * k * n / s / 1e9 for name, s in seconds.items()}


def encode(p: int, N: int, size: int, columns: int, clock: Clock) -> dict[str, float]:
    """Return seconds of encoding with masks given, of a copy of the same bytes, and of others."""
    F, source = PrimeField(p), SeededSource(2)
    code = LagrangeCode(F, parties=N, segments=size - 1, privacy=1, degree=1)
    X, Z = aligned((size - 1, columns), F.dtype), F.random((1, columns), source)
    X[:] = F.random((size - 1, columns), source)
    out = aligned((N, columns), F.dtype)
    codes = {t: LagrangeCode(F, parties=N, segments=size - 1, privacy=1, degree=1) for t in
             cpu.available()}  # fmt: skip
    methods: dict[str, Callable[[], object]] = {
        tier: under(tier, lambda own=own: own.encode(X, out=out, masks=Z))  # type: ignore[misc]
        for tier, own in codes.items()
        if tier != "portable"
    }
    methods["fresh masks"] = lambda: code.encode(X, out=out)
    methods["true copy"] = true_copy((N + size) * columns * out.itemsize)
    x, y = np.ones((1024, 512)), np.ones((512, 512))
    z = np.empty((1024, 512))
    methods["dgemm"] = lambda: np.matmul(x, y, out=z)
    seconds = clock.time(f"encode {p} {N},{size}", methods)
    # dgemm's time for as many multiplications and additions.
    seconds["dgemm"] *= N * size * columns / (1024 * 512 * 512)
    few = max(64, 1 << 22 >> (N * size).bit_length())
    basis = np.concatenate([code.data_matrix, code.mask_matrix], axis=1)
    product = flint_product(p, basis, np.concatenate([X[:, :few], Z[:, :few]]))
    if product:
        case = f"encode {p} {N},{size}, {few} columns"
        seconds["flint"] = clock.time(case, {"flint": product}, 3)["flint"] * columns / few
    return seconds


def transform(clock: Clock, columns: int) -> dict[str, float]:
    """Return seconds of encoding at N = 1024, K + T = 512 by transforms and by our matrices."""
    from securevfl.field import dispatch, ntt

    F = PrimeField(NTT)
    alphas, betas = ntt.coset_points(F, 1024, 512)
    cosets = ntt.recognise(NTT, alphas, betas)
    assert cosets is not None
    X = F.random((512, columns), SeededSource(3))
    out, left = aligned((1024, columns), F.dtype), ntt.NttLeft(cosets, 1024)
    matrix = interpolation_matrix(F, betas, alphas)
    methods: dict[str, Callable[[], object]] = {"ntt": lambda: left.multiply([X], out)}
    for tier in cpu.available():
        if tier not in ("portable", "avx2"):
            with forced(tier):
                own = dispatch.prepare(NTT, matrix)
            methods[tier] = lambda own=own: own.multiply([X], out)  # type: ignore[misc]
    return clock.time("transform 1024,512", methods)


def sampling(p: int, clock: Clock, count: int = 1 << 22) -> dict[str, float]:
    """Return nanoseconds per element of ours, of PCG64 and of the bare keystream."""
    from securevfl.field import sampling as ours

    out = np.empty(count, PrimeField(p).dtype)
    generator = np.random.Generator(np.random.PCG64(0))
    seconds = clock.time(
        f"sample {p}",
        {
            "ours": lambda: ours.fill_uniform(p, out, SYSTEM.keystream()),
            "pcg64": lambda: generator.integers(0, p, count, dtype=out.dtype),
            "keystream": lambda: SYSTEM.keystream().fill(out.view(np.uint8)),
        },
    )
    return {name: s * 1e9 / count for name, s in seconds.items()}


def fixed_point(p: int, kind: type, clock: Clock, count: int = 1 << 22) -> dict[str, float]:
    """Return nanoseconds per element; copies move as many bytes as the operation."""
    from securevfl.field.kernels import fixed_point as dispatch

    F, bits = PrimeField(p), 12
    q, scale = FixedPoint(F, bits), float(1 << bits)
    rng = np.random.default_rng(4)
    x: Array = rng.uniform(-1, 1, count).astype(kind)
    words = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    z, real = q.quantize(x), np.empty(count)

    def numpy_stochastic() -> Array:
        y = x.astype(np.float64) * scale
        down = np.floor(y)
        v = (down + (words * 2.0**-32 < y - down)).astype(np.int64)
        if not (np.abs(y) <= F.half).all():
            raise ValueError("out of range")
        return np.where(v < 0, v + p, v).astype(F.dtype)

    args = float(F.half), np.int64(p), np.empty_like(z)
    seconds = clock.time(
        f"fixed point {p} {kind.__name__}",
        {
            "quantize": lambda: q.quantize(x, out=z),
            "true copy for quantize": true_copy(x.nbytes + z.nbytes),
            "dequantize": lambda: q.dequantize(z, out=real),
            "true copy for dequantize": true_copy(z.nbytes + real.nbytes),
            "stochastic": lambda: dispatch.round_stochastic(x, words, scale, *args),
            "numpy stochastic": numpy_stochastic,
        },
    )
    return {name: s * 1e9 / count for name, s in seconds.items()}


def check(p: int, clock: Clock) -> dict[str, float]:
    """Return GB/s of the honest case's projections (all of them) and of a read pass."""
    from securevfl.field import error_correction

    F = PrimeField(p)
    rows = F.random((28, (1 << 24) // (7 * F.dtype.itemsize)), SeededSource(5))
    seconds = clock.time(
        f"check {p}",
        {
            "check": lambda: error_correction.project(F, rows),
            "read": lambda: rows.max(axis=1),
        },
    )
    speeds = {name: rows.nbytes / s / 1e9 for name, s in seconds.items()}
    return speeds | {"projections": float(error_correction.projections(F))}


def decode_matrix(clock: Clock) -> float:
    """Return milliseconds to build the matrix for R = 127, K = 32."""
    F = PrimeField(P31)
    points, targets = list(range(200, 327)), list(range(1, 33))
    call = {"build": lambda: interpolation_matrix(F, points, targets)}
    return clock.time("decode matrix", call, max(clock.repeats, 15))["build"] * 1e3
