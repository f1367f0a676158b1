"""Streams by vectors against exact integers: rows, terms, tails, extremes, places of results."""

import importlib
import re

import numba
import numpy as np
import pytest

from securevfl.field import LagrangeCode, PrimeField, SeededSource, dispatch
from securevfl.field.kernels import cpu, scratch
from securevfl.field.kernels.streaming import left as streaming
from tests.field.test_dispatch import exact

# The Mersenne primes, the largest and the smallest of the others, one between.
MODULI = [2**31 - 1, 2**31 - 19, 2013265921, 4099, 2**61 - 1]


@pytest.fixture(params=["avx512", "avx2"])
def wide(request):
    if request.param not in cpu.available():
        pytest.skip(f"this machine has no {request.param}")
    return request.param == "avx512"


def agrees(p, a, b, wide):
    out = np.empty((a.shape[0], b.shape[1]), a.dtype)
    assert streaming.StreamingLeft(p, a, wide).multiply([b], out)
    return out.ravel().tolist() == exact(a, b, p)


@pytest.mark.parametrize("p", MODULI)
def test_every_number_of_rows_and_of_terms(wide, p):
    F, source = PrimeField(p), SeededSource(1)
    big = F.random((64, 64), source)
    for rows in [*range(1, 17), 28, 31]:
        assert agrees(p, big[:rows, :5], big[:5, :33], wide), rows
    for terms in [*range(1, 30), 35, 36, 42, 43, 64]:
        assert agrees(p, big[:6, :terms], big[:terms, :35], wide), terms


@pytest.mark.parametrize("p", MODULI)
def test_tails_of_every_size(wide, p):
    F, source = PrimeField(p), SeededSource(2)
    a, b = F.random((7, 9), source), F.random((9, 200), source)
    for columns in range(1, 131):
        assert agrees(p, a, np.ascontiguousarray(b[:, -columns:]), wide), columns


@pytest.mark.parametrize("p", MODULI)
def test_extremes_at_the_longest_groups(wide, p):
    F = PrimeField(p)
    values = [0, 1, (p - 1) // 2 - 1, (p - 1) // 2, (p + 1) // 2, p - 2, p - 1]
    for terms in (6, 7, 12, 14, 18, 21, 35, 140):
        for x in values:
            b = np.repeat(np.array(values, F.dtype)[None], terms, axis=0)
            out = np.empty((3, len(values)), F.dtype)
            left = streaming.StreamingLeft(p, np.full((3, terms), x, F.dtype), wide)
            assert left.multiply([b], out)
            assert out.tolist() == [[terms * x * y % p for y in values]] * 3, (terms, x)


@pytest.mark.parametrize("wanted", [j * 2**62 + d for j in (1, 2, 3) for d in (-2, -1, 0, 1)])
def test_sums_whose_parts_are_all_ones_are_not_carried_away(wide, wanted):
    # `wanted` is the sum before its parts of 31, 31 and 2 bits are added; 3 2^62 - 1 is 2^31 - 1
    # twice and 2, which together pass 2^32.
    p, h = 2**31 - 1, 2**30 - 1
    a = [h] * 6 + [1]
    constant = h * sum(a) % p + ((7 << 60) + (1 << 40)) // p * p + p
    many, rest = divmod(wanted - constant, h)
    x = [(many + i) // 6 for i in range(6)] + [rest]
    assert max(map(abs, x)) <= h
    assert sum(map(int.__mul__, a, x)) + constant == wanted
    F = PrimeField(p)
    assert agrees(p, F.elements([a]), F.elements([[(y + h) % p] * 3 for y in x]), wide)


@pytest.mark.parametrize("p", [2**31 - 1, 2013265921, 2**61 - 1])
@pytest.mark.parametrize("terms", [5, 700, streaming.MOST_TERMS])
def test_panels_of_any_width_and_results_past_the_caches(wide, p, terms, monkeypatch):
    F, source = PrimeField(p), SeededSource(3)
    columns = 3000 if terms == 5 else 300
    a, b = F.random((9, terms), source), F.random((terms, columns + 3), source)
    left, expected = streaming.StreamingLeft(p, a, wide), exact(a, b, p)
    for least, offset, stride in ((1, 0, 64), (1, 0, 4), (1, 1, 64), (1 << 40, 0, 64)):
        monkeypatch.setattr(streaming, "_AROUND", least)
        per_line = stride // F.dtype.itemsize or 1
        pitch = -(-(columns + 3) // per_line) * per_line
        room = scratch.aligned((9 * pitch + 32,), F.dtype)
        room[:] = 1
        out = room[offset : offset + 9 * pitch].reshape(9, pitch)[:, : columns + 3]
        assert left.multiply([b], out)
        assert out.ravel().tolist() == expected
        assert (room[:offset] == 1).all()
        assert (room[offset + 8 * pitch + columns + 3 :] == 1).all()


@pytest.mark.parametrize("p", MODULI)
def test_numbers_beyond_p_are_seen_wherever_they_stand(wide, p):
    F = PrimeField(p)
    left = streaming.StreamingLeft(p, F.random((4, 3), SeededSource(4)), wide)
    blocks = [np.zeros((1, 5000), F.dtype), np.zeros((2, 6000), F.dtype)[:, 7:5007]]
    out = np.empty((4, 5000), F.dtype)
    assert left.multiply(blocks, out)
    for block, row, column in ((0, 0, 0), (0, 0, 4999), (1, 1, 1023), (1, 0, 1024), (1, 1, 4991)):
        for wrong in (p, np.iinfo(F.dtype).max):
            blocks[block][row, column] = wrong
            assert not left.multiply(blocks, out)
        blocks[block][row, column] = p - 1
    assert left.multiply(blocks, out)


@pytest.mark.parametrize("sizes", [(5, 4, 1), (4, 3, 1), (3, 2, 1), (2, 1)])
def test_tiles_cover_every_row_and_no_other(sizes):
    for rows in range(1, 120):
        starts, counts = streaming.blocks_of(rows, sizes)
        heights = [size for size, count in zip(sizes, counts, strict=True) for _ in range(count)]
        covered = [
            {*range(start, start + height)} for start, height in zip(starts, heights, strict=True)
        ]
        assert set().union(*covered) == {*range(rows)}
        assert sum(heights) < rows + sizes[0]


def test_codes_stream_whatever_the_tier_but_long_sums_and_few_columns_do_not(wide, monkeypatch):
    monkeypatch.setenv(cpu.VARIABLE, "avx512" if wide else "avx2")
    for F in (PrimeField(2**31 - 1), PrimeField(2013265921), PrimeField(2**61 - 1)):
        code = LagrangeCode(F, parties=12, segments=4, privacy=1)
        assert isinstance(code._left, streaming.StreamingLeft)
        assert isinstance(code._decoder(tuple(range(9)))[1], streaming.StreamingLeft)
        X = F.random((4, 70), SeededSource(5))
        shares = code.encode(X, source=SeededSource(6))
        assert (code.decode(shares[3:8], range(3, 8), degree=1) == X).all()
        long = F.random((2, streaming.MOST_TERMS + 1), SeededSource(7))
        for left in (dispatch.prepare(F.modulus, long), dispatch.prepare(F.modulus, long, 40)):
            assert not isinstance(left, streaming.StreamingLeft)


def test_one_compilation_serves_all_matrices(wide):
    from securevfl.field.kernels.streaming import narrow

    left = streaming.StreamingLeft(2**31 - 1, np.ones((5, 3), np.uint32), wide)
    assert left.multiply([np.ones((3, 9), np.uint32)], np.empty((5, 9), np.uint32))
    kernel = narrow.mersenne512 if wide else narrow.mersenne256
    assert list(kernel._compiled) == [(int,)]


def _products(assembly):
    """Return the instructions of each innermost loop that multiplies."""
    lines = [line.strip() for line in assembly.splitlines()]
    starts = {line[:-1]: i for i, line in enumerate(lines) if line.endswith(":")}
    for end, line in enumerate(lines):
        jump = re.fullmatch(r"j\w+\s+(\S+)", line)
        start = starts.get(jump.group(1), end) if jump else end
        body = lines[start + 1 : end]
        if start < end and not any(other.endswith(":") for other in body):
            found = [text for text in body if text and text[0] not in ".#"]
            if any(text.startswith("vpmuldq") for text in found):
                yield found


@pytest.mark.skipif("avx512" not in cpu.available(), reason="the loops of 512-bit vectors")
@pytest.mark.parametrize("name", ["narrow._mersenne512", "narrow._other512", "wide._limbs512"])
def test_inner_loops_hold_what_they_need_and_nothing_else(name):
    module, _, stream = name.partition(".")
    found = getattr(importlib.import_module(f"securevfl.field.kernels.streaming.{module}"), stream)
    compiled = numba.njit(numba.void(numba.int64))(lambda arguments: found(arguments))
    loops = [loop for text in compiled.inspect_asm().values() for loop in _products(text)]
    assert len(loops) >= 3
    for loop in loops:
        names = [text.split()[0] for text in loop]
        assert names.count("vpmuldq") in (4, 6, 16, 18, 20, 24)
        assert not {"vpmullq", "vpmuludq", "vmovq", "vmovd"} & {*names}, names
        assert sum("rsp" in text or "rbp" in text for text in loop) <= 4, loop
