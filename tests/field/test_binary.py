"""Bits: against numpy, and the code against galois and its weights."""

from __future__ import annotations

import numpy as np
import pytest

from securevfl.field import binary


def words(draw: np.random.Generator, *shape: int) -> np.ndarray:
    return draw.integers(0, 2**64, shape, dtype=np.uint64)


def bits(rows: np.ndarray) -> np.ndarray:
    return np.unpackbits(np.ascontiguousarray(rows).view(np.uint8), axis=1, bitorder="little")


@pytest.mark.parametrize("count", [0, 1, 5, 400])
def test_bands_are_solved(count):
    draw = np.random.default_rng(count)
    m = 128 + 64 * (count // 50 + 1)
    starts, bands = draw.integers(0, m - 127, count), words(draw, count, 2)
    values = words(draw, count, 2)
    found = binary.solve_bands(starts, bands, values, m)
    dense = np.zeros((count, m), np.int64)
    for i, start in enumerate(starts):
        dense[i, start : start + 128] = bits(bands)[i]
    assert np.array_equal(dense @ bits(found) % 2, bits(values))
    assert np.array_equal(binary.combine_rows(starts, bands, found), values)


@pytest.mark.parametrize(("second", "solvable"), [(0, False), (1, True)])
def test_equations_that_depend_on_each_other(second, solvable):
    """The second is the first again; a sum of both is 0 = 1 + value."""
    bands = np.array([[5, 9], [5, 9]], np.uint64)
    values = np.array([[1, 0], [second, 0]], np.uint64)
    found = binary.solve_bands(np.array([3, 3]), bands, values, 192)
    assert (found is not None) == solvable


def test_transposition_and_sums_of_rows():
    draw = np.random.default_rng(1)
    rows, masks = words(draw, 192, 5), words(draw, 192)
    assert np.array_equal(bits(binary.transpose_bits(rows)), bits(rows).T)
    wanted = bits(masks[:, None]).astype(np.int64).T @ bits(rows) % 2
    assert np.array_equal(bits(binary.add_selected(masks, rows)), wanted)


def test_the_generator_has_the_zeros_of_the_bch_code():
    """Dimension 511 - 435 = 76; zeros x^1 to x^170, so words differ in 171 places at least."""
    g = binary.generator()
    power = [1]
    for _ in range(510):
        power.append(power[-1] << 1 ^ (0b1000010001 if power[-1] >> 8 else 0))
    assert len(set(power)) == 511  # x is primitive
    assert power[-1] << 1 ^ 0b1000010001 == 1
    assert g.bit_length() - 1 == 511 - binary.CODE_BITS
    for root in range(1, 171):
        value = 0
        for k in range(436):
            value ^= power[root * k % 511] * (g >> k & 1)
        assert value == 0
    left = 1 << 511 | 1  # g divides z^511 + 1: the code is cyclic
    while left.bit_length() >= g.bit_length():
        left ^= g << left.bit_length() - g.bit_length()
    assert left == 0


def test_words_are_multiples_of_the_generator_with_a_parity():
    draw, g = np.random.default_rng(2), binary.generator()
    messages = words(draw, 40, 2)
    found = bits(binary.encode(messages))
    for message, word in zip(messages, found, strict=True):
        product = 0
        for k in range(binary.CODE_BITS):
            product ^= (g << k) * (int(message[k // 64]) >> k % 64 & 1)
        assert [product >> k & 1 for k in range(511)] == word[:511].tolist()
        assert word.sum() % 2 == 0
    assert found.sum(axis=1).min() >= binary.CODE_DISTANCE


def test_the_code_is_linear_and_reads_76_bits():
    draw = np.random.default_rng(3)
    one, two = words(draw, 9, 2), words(draw, 9, 2)
    assert np.array_equal(binary.encode(one) ^ binary.encode(two), binary.encode(one ^ two))
    high = np.array([[0, 1 << 12]], np.uint64)
    assert not binary.encode(high).any()
