"""Field elements as a stream of bits: against Python's integers, and every refusal."""

import numpy as np
import pytest

from securevfl.errors import FieldError
from securevfl.field import PrimeField
from securevfl.field.packing import element_bits, element_dtype, pack, packed_size, unpack

FIFTY = 2**50 - 2**14 + 1
PRIMES = (3, 97, 2**31 - 1, 2**32 - 5, FIFTY, 2**61 - 1, 4611686018427387847)


def by_integers(values: list[int], bits: int) -> bytes:
    """The stream, from its definition."""
    whole = sum(value << (place * bits) for place, value in enumerate(values))
    return whole.to_bytes((len(values) * bits + 7) // 8, "little")


def elements_of(modulus: int, count: int, seed: int = 0) -> np.ndarray:
    """Uniform elements, with 0 and p - 1 among them."""
    drawn = np.random.default_rng(seed).integers(0, modulus, count, np.uint64)
    drawn[: min(count, 2)] = (modulus - 1, 0)[: min(count, 2)]
    return drawn.astype(element_dtype(modulus))


@pytest.mark.parametrize("bits", range(1, 63))
def test_every_width_and_tail_is_the_integer_of_the_definition(bits):
    # The least and the largest modulus whose elements need so many bits.
    for modulus in (2 ** (bits - 1) + 1, 2**bits - (bits == 62)):
        assert element_bits(modulus) == bits
        for count in [*range(66), 127, 128, 129, 1000]:
            elements = elements_of(modulus, count, seed=count)
            stream = pack(elements, modulus)
            assert stream.tobytes() == by_integers(elements.tolist(), bits), (modulus, count)
            again = unpack(stream.tobytes(), (count,), modulus)
            assert again.dtype == elements.dtype
            assert (again == elements).all(), (modulus, count)


@pytest.mark.parametrize("p", PRIMES)
def test_shape_and_dtype_come_back(p):
    field = PrimeField(p)
    assert element_dtype(p) == field.dtype
    for shape in ((), (0,), (3, 0, 2), (1,), (5, 7), (2, 3, 4)):
        elements = field.random(shape)
        stream = pack(elements, p)
        assert len(stream) == packed_size(elements.size, p)
        again = unpack(memoryview(stream).toreadonly(), shape, p)
        assert (again.shape, again.dtype) == (shape, field.dtype)
        assert (again == elements).all()


def test_a_transposed_array_is_packed_in_c_order():
    elements = elements_of(FIFTY, 24).reshape(4, 6)
    assert pack(elements.T, FIFTY).tobytes() == pack(elements.T.copy(), FIFTY).tobytes()


def test_sizes_are_those_of_the_bits():
    assert [packed_size(8, p) for p in (2**31 - 1, FIFTY, 2**61 - 1)] == [31, 50, 61]


@pytest.mark.parametrize("p", PRIMES)
@pytest.mark.parametrize("place", [0, 7, 99])
def test_a_number_outside_the_field_is_refused_at_both_ends(p, place):
    values = elements_of(p, 100).tolist()
    values[place] = p
    with pytest.raises(FieldError, match=rf"pack: .* is {p}, outside"):
        pack(np.array(values, element_dtype(p)), p)
    if element_bits(p + 1) == element_bits(p):
        with pytest.raises(FieldError, match=rf"unpack: .* is {p}, outside"):
            unpack(by_integers(values, element_bits(p)), (100,), p)


@pytest.mark.parametrize("p", PRIMES)
def test_each_bit_after_the_last_element_is_refused(p):
    stream = bytearray(pack(elements_of(p, 3), p).tobytes())
    for bit in range(3 * element_bits(p), 8 * len(stream)):
        changed = stream.copy()
        changed[bit // 8] |= 1 << bit % 8
        with pytest.raises(FieldError, match="a bit after the last element"):
            unpack(bytes(changed), (3,), p)


@pytest.mark.parametrize(
    ("shape", "nbytes"), [((3,), 18), ((3,), 20), ((0,), 1), ((), 6), ((2**70,), 8), ((-1,), 0)]
)
def test_a_wrong_length_is_refused_before_anything_is_allocated(shape, nbytes):
    with pytest.raises(FieldError, match="elements of 50 bits take"):
        unpack(bytes(nbytes), shape, FIFTY)


def test_other_dtypes_and_moduli_are_refused():
    with pytest.raises(FieldError, match="have dtype uint64, these have uint32"):
        pack(np.zeros(3, np.uint32), FIFTY)
    with pytest.raises(FieldError, match="the modulus must lie in"):
        pack(np.zeros(3, np.uint64), 2**62)


def test_any_stream_that_is_accepted_is_packed_to_itself():
    rng = np.random.default_rng(1)
    accepted = 0
    for _ in range(300):
        stream = rng.bytes(packed_size(9, 127))
        try:
            elements = unpack(stream, (9,), 127)
        except FieldError:
            continue
        accepted += 1
        assert pack(elements, 127).tobytes() == stream
    assert 50 < accepted < 250
