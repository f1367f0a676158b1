"""What a ciphertext may hold: the values, zeros in all other slots, and nothing beside them."""

import math

import numpy as np
import pytest

from securevfl.models.homomorphic import Ckks, Paillier, _padded, _unpadded

pytest.importorskip("tenseal")
pytest.importorskip("phe")

VALUES = np.arange(-45, 45, dtype=np.int64) * 1000


@pytest.fixture(scope="module")
def ckks():
    scheme = Ckks(3)
    return scheme, *scheme.generate()


@pytest.fixture(scope="module")
def paillier():
    scheme = Paillier(3, 2048)
    return scheme, *scheme.generate()


@pytest.mark.parametrize("name", ["ckks", "paillier"])
def test_sound_ciphertexts_and_sums_have_no_fault(name, request):
    scheme, public, secret = request.getfixturevalue(name)
    one, two = (scheme.encrypt(public, v) for v in (VALUES, VALUES[::-1].copy()))
    assert scheme.fault(secret, one, VALUES, 1) == ""
    assert scheme.fault(secret, scheme.add(public, [one, two]), VALUES + VALUES[::-1], 2) == ""


@pytest.mark.parametrize("name", ["ckks", "paillier"])
def test_other_values_and_sizes_are_faults(name, request):
    scheme, public, secret = request.getfixturevalue(name)
    other = VALUES.copy()
    other[7] += 1
    assert scheme.fault(secret, scheme.encrypt(public, other), VALUES, 1)
    own = scheme.encrypt(public, VALUES)
    assert "bytes in a tuple" in scheme.fault(secret, (*own, b"more"), VALUES, 1)
    assert "bytes in a tuple" in scheme.fault(secret, [*own], VALUES, 1)


def test_ckks_sums_of_the_largest_values_have_no_fault(ckks):
    scheme, public, secret = ckks
    values = np.full(5000, scheme.limit, np.int64) * np.resize([1, -1, 1], 5000)
    parts = [scheme.encrypt(public, values) for _ in range(3)]
    assert scheme.fault(secret, scheme.add(public, parts), 3 * values, 3) == ""


@pytest.mark.parametrize("size", [1 << 20, 1 << 32])
def test_ckks_plaintexts_of_a_sum_say_nothing_but_the_sum(size, ckks, monkeypatch):
    """Who opens a sum of two would see the sum of their roundings, were there any.

    Of values in slots he named the right one of two pairs with one sum in 711 of 900 ciphertexts.
    """
    scheme, public, secret = ckks
    seal, taken = pytest.importorskip("tenseal.sealapi"), []
    encrypt = scheme.tenseal.ckks_vector

    def watched(key, row, scale):
        taken.append(np.array(row))
        return encrypt(key, row, scale=scale)

    monkeypatch.setattr(scheme.tenseal, "ckks_vector", watched)
    stream = np.random.default_rng(0)
    one, two = stream.integers(-size, size, (2, scheme.SLOTS))
    for values in (one, two, one + two):
        scheme.encrypt(public, values)
    encoder = seal.CKKSEncoder(scheme.key(secret).seal_context().data)
    plain = []
    for row in taken:
        encoded = seal.Plaintext()
        encoder.encode(row.tolist(), scheme.SCALE, encoded)
        plain.append(np.array(encoder.decode_complex(encoded)) * scheme.SCALE)
    apart = plain[0] + plain[1] - plain[2]
    coefficient = np.sqrt((np.abs(apart) ** 2).mean() / scheme.DEGREE)  # Parseval
    assert coefficient < 0.1  # of an integer; roundings of three are 0.5


def encrypted(scheme, public, slots, scale=Ckks.SCALE):
    vector = scheme.tenseal.ckks_vector(scheme.key(public), slots, scale=scale)
    return (_padded(vector.serialize(), scheme.NBYTES),)


def slots_of(values):
    slots = np.zeros(Ckks.SLOTS)
    slots[: values.size] = values
    return slots


def padding_slots(scheme, public):
    slots = slots_of(VALUES)
    slots[3000:3010] = 0.01
    return encrypted(scheme, public, slots)


def fractions(scheme, public):
    slots = slots_of(VALUES)
    slots[3] += 0.01
    return encrypted(scheme, public, slots)


def small_fractions_everywhere(scheme, public):
    return encrypted(scheme, public, slots_of(VALUES) + 2.0**-13.2 * np.resize([1, -1], Ckks.SLOTS))


def another_scale(scheme, public):
    return encrypted(scheme, public, slots_of(VALUES), scale=2.0**26)


def fewer_slots(scheme, public):
    return encrypted(scheme, public, slots_of(VALUES)[:100])


def bytes_in_the_frame(scheme, public):
    (framed,) = scheme.encrypt(public, VALUES)
    return (framed[:-6] + b"secret",)


def bytes_in_the_format(scheme, public):
    """An unknown field of the serialisation, which a reader skips."""
    raw = _unpadded(scheme.encrypt(public, VALUES)[0])
    return (_padded(raw + b"\xfa\x01\x06secret", scheme.NBYTES),)


def no_ciphertext(scheme, public):
    return (bytes(scheme.NBYTES),)


CKKS_FAULTS = [
    padding_slots,
    fractions,
    small_fractions_everywhere,
    another_scale,
    fewer_slots,
    bytes_in_the_frame,
    bytes_in_the_format,
    no_ciphertext,
]


@pytest.mark.parametrize("make", CKKS_FAULTS)
def test_whatever_else_a_ckks_ciphertext_holds_is_a_fault(make, ckks):
    scheme, public, secret = ckks
    made = make(scheme, public)
    assert len(made[0]) == scheme.NBYTES
    assert scheme.fault(secret, made, VALUES, 1)


def test_imaginary_parts_of_ckks_slots_are_seen(ckks):
    """TenSEAL decrypts real parts alone, so these would pass every comparison of values."""
    scheme, _, secret = ckks
    seal = pytest.importorskip("tenseal.sealapi")
    context = scheme.key(secret)
    own = context.seal_context().data
    slots = slots_of(VALUES).astype(complex)
    slots[9] += 0.5j
    plain, found = seal.Plaintext(), seal.Ciphertext()
    seal.CKKSEncoder(own).encode(slots.tolist(), scheme.SCALE, plain)
    seal.Encryptor(own, context.public_key().data).encrypt(plain, found)

    class Vector:
        """What `_faults` asks of TenSEAL's vectors."""

        def ciphertext(self):
            return [found]

    residue = scheme._slots(secret, Vector()) - slots_of(VALUES)
    assert math.isclose(np.abs(residue.imag).max(), 0.5, abs_tol=0.01)
    assert np.abs(residue.real).max() < 0.01


def test_padding_slots_of_paillier_are_seen(paillier):
    scheme, public, secret = paillier
    longer = np.append(VALUES, 5 - scheme.limit)
    assert VALUES.size % scheme.slots
    assert scheme.nbytes(longer.size) == scheme.nbytes(VALUES.size)
    assert "plaintext" in scheme.fault(secret, scheme.encrypt(public, longer), VALUES, 1)


def test_a_paillier_ciphertext_above_the_square_of_the_modulus_is_seen(paillier):
    """It decrypts to the same, and which multiple was added would be a message."""
    scheme, public, secret = paillier
    square = scheme.key(public).nsquare
    size = scheme.key_bits // 4
    for _ in range(60):
        (own,) = scheme.encrypt(public, VALUES)
        first = int.from_bytes(own[:size], "little") + square
        if first.bit_length() <= 8 * size:
            break
    changed = (first.to_bytes(size, "little") + own[size:],)
    assert np.array_equal(scheme.decrypt(secret, changed, VALUES.size, 1), VALUES)
    assert "square" in scheme.fault(secret, changed, VALUES, 1)
