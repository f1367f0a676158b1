"""Fixed point against exact fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securevfl.errors import ConfigurationError, FieldError, RangeError
from securevfl.field import FixedPoint, PrimeField
from securevfl.field.kernels import primes
from securevfl.field.kernels.scratch import aligned
from securevfl.field.kernels.streaming import fixed_point as streaming

F31, F50, F61 = (PrimeField(p) for p in primes.USUAL)
F5 = PrimeField(5)


def half_up(x, bits):
    return math.floor(Fraction(float(x)) * 2**bits + Fraction(1, 2))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_rounding_equals_exact_arithmetic(data):
    width = data.draw(st.sampled_from([32, 64]))
    bits = data.draw(st.integers(0, 30))
    x = data.draw(st.lists(st.floats(-0.875, 0.875, width=width), min_size=1, max_size=20))
    array = np.array(x, f"f{width // 8}")
    for F in (F31, F50, F61):
        q = FixedPoint(F, bits)
        expected = [half_up(v, bits) for v in array]
        assert q.round(array).tolist() == expected
        assert q.quantize(array).tolist() == [v % F.modulus for v in expected]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_halves_go_up_on_both_sides_of_zero(dtype):
    q = FixedPoint(F31, 1)
    x = np.array([0.25, 0.75, -0.25, -0.75, 0.0, -0.0], dtype)
    assert q.round(x).tolist() == [1, 2, 0, -1, 0, 0]


def test_the_number_just_below_a_half_is_not_rounded_up():
    # floor(y + 0.5) in float64 would give 1.
    assert FixedPoint(F31, 0).round(np.array([0.49999999999999994])).tolist() == [0]


@pytest.mark.parametrize("F", [F5, F31, F61], ids=str)
def test_the_range_is_used_to_its_last_number_and_no_further(F):
    q = FixedPoint(F, 0)
    largest = q.largest
    assert Fraction(largest) <= F.half < Fraction(math.nextafter(largest, math.inf))
    assert q.round(np.array([largest, -largest])).tolist() == [int(largest), -int(largest)]
    for beyond in (math.nextafter(largest, math.inf), -math.nextafter(largest, math.inf)):
        with pytest.raises(RangeError):
            q.quantize(np.array([0.0, beyond]))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300, -5e6])
@pytest.mark.parametrize("rng", [None, np.random.default_rng(0)])
def test_what_cannot_be_represented_is_named_with_index_and_remedy(value, rng):
    x = np.zeros((3, 40_000))
    x[2, 39_999] = value
    with pytest.raises(RangeError, match=r"at index \(2, 39999\).*(Lower bits|Replace NaN)"):
        FixedPoint(F31, 10).quantize(x, rng=rng)


def test_stochastic_rounding_is_unbiased_and_moves_by_less_than_one():
    q = FixedPoint(F61, 4)
    x = np.full(400_000, 0.3)
    z = q.round(x, rng=np.random.default_rng(3))
    assert set(z.tolist()) == {4, 5}
    # frac = 0.8; five standard deviations of the mean, seed fixed.
    assert abs(z.mean() - 4.8) < 5 * math.sqrt(0.16 / x.size)


def test_stochastic_rounding_keeps_integers_and_follows_the_words():
    q, rng = FixedPoint(F31, 2), np.random.default_rng(4)
    x = np.random.default_rng(5).uniform(-3, 3, 70_001)
    words = np.random.default_rng(4).integers(0, 2**32, x.size, dtype=np.uint32)
    y = x * 4
    expected = np.floor(y) + (words * 2.0**-32 < y - np.floor(y))
    assert (q.round(x, rng=rng) == expected).all()
    whole = np.array([1.25, -2.5, 0.0])
    assert (q.round(whole, rng=rng) == whole * 4).all()


@pytest.mark.parametrize("F", [F31, F61], ids=str)
def test_quantize_is_phi_of_round(F):
    x = np.random.default_rng(6).normal(size=(50, 3)).astype(np.float32)
    q = FixedPoint(F, 12)
    assert (q.quantize(x) == F.reduce(q.round(x))).all()
    rounded = q.round(x, rng=np.random.default_rng(7))
    assert (q.quantize(x, rng=np.random.default_rng(7)) == F.reduce(rounded)).all()


def test_the_way_back_is_correctly_rounded():
    numbers = [0, 1, F61.half, F61.half + 1, F61.modulus - 1, 2**53 - 1, 2**53 + 1, 2**60 - 2**6]
    for bits in (0, 16, 124):
        back = FixedPoint(F61, 8).dequantize(numbers, bits=bits)
        signed = [v - F61.modulus if v > F61.half else v for v in numbers]
        assert back.tolist() == [float(Fraction(v, 2**bits)) for v in signed]
        assert back.dtype == np.float64


def test_dequantize_undoes_quantize_on_representable_numbers():
    q = FixedPoint(F31, 8)
    x = np.arange(-1000, 1000).reshape(40, 50) / 256
    assert (q.dequantize(q.quantize(x)) == x).all()
    assert (q.dequantize(q.quantize(x).T) == x.T).all()


def test_views_scalars_and_empty_arrays_are_taken():
    q = FixedPoint(F31, 3)
    x = np.arange(12.0).reshape(3, 4)
    assert (q.round(x[:, ::2]) == 8 * x[:, ::2]).all()
    assert q.quantize(np.float32(2)).shape == ()
    assert q.quantize(np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("x", [np.arange(3), np.zeros(2, np.float16), ["a"]])
def test_other_dtypes_are_refused(x):
    with pytest.raises(ConfigurationError, match="float32 or float64"):
        FixedPoint(F31, 3).quantize(x)


def test_masked_numbers_other_generators_and_other_fields_are_refused():
    with pytest.raises(ConfigurationError, match="masked"):
        FixedPoint(F31, 3).quantize(np.ma.array([0.5, 1.0], mask=[0, 1]))
    for rng in (0, np.random.RandomState(0)):
        with pytest.raises(ConfigurationError, match="default_rng"):
            FixedPoint(F31, 3).round(np.ones(2), rng)
    with pytest.raises(FieldError, match="PrimeField"):
        FixedPoint(97, 3)


@pytest.mark.parametrize("bits", [-1, 63, 1.5, True])
def test_impossible_numbers_of_bits_are_refused(bits):
    with pytest.raises(ConfigurationError, match="bits"):
        FixedPoint(F31, bits)


def test_elements_outside_the_field_are_refused_on_the_way_back():
    with pytest.raises(FieldError, match="outside"):
        FixedPoint(F5, 0).dequantize([5])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("F", [F31, PrimeField(2**32 - 5), F61], ids=str)
@pytest.mark.parametrize("offset", [0, 1, 7])
def test_long_arrays_are_converted_like_short_ones(kind, F, offset, monkeypatch):
    q, size = FixedPoint(F, 9), 1000 + offset
    x = np.random.default_rng(8).uniform(-3, 3, size).astype(kind)
    x[:6] = [0.25 / 512, 0.5 / 512, -0.5 / 512, 1.5 / 512, -0.0, 0.49999997 / 512]
    z, signed, back = q.quantize(x), q.round(x), q.dequantize(q.quantize(x))
    monkeypatch.setattr(streaming, "SHORTEST", 1)
    room = aligned((size + 64,), F.dtype)
    room[:] = 5
    assert (q.quantize(x, out=room[offset : offset + size]) == z).all()
    assert (room[:offset] == 5).all()
    assert (room[offset + size :] == 5).all()
    assert (q.round(x) == signed).all()
    real = aligned((size + 64,), np.float64)
    assert (q.dequantize(z, out=real[offset : offset + size]) == back).all()
    assert (q.round(x[: offset + 3]) == signed[: offset + 3]).all()


@pytest.mark.parametrize("place", [0, 3, 500, 1002])
@pytest.mark.parametrize("F", [F31, F61], ids=str)
def test_long_arrays_are_checked_to_their_ends(F, place, monkeypatch):
    monkeypatch.setattr(streaming, "SHORTEST", 1)
    q = FixedPoint(F, 3)
    for kind in (np.float32, np.float64):
        for wrong in (np.nan, np.inf, -(2.0**61)):
            x = np.zeros(1003, kind)
            x[place] = wrong
            with pytest.raises(RangeError, match=rf"at index \({place},\)"):
                q.quantize(x)
    z = np.zeros(1003, F.dtype)
    z[place] = F.modulus
    with pytest.raises(FieldError, match="outside"):
        q.dequantize(z)
    z[place] = F.modulus - 1
    assert q.dequantize(z)[place] == -1 / 8
