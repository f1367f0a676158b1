"""Keys and ciphertexts that others could open are found, though formulas decrypt them."""

import os

import numpy as np
import pytest

pytest.importorskip("tenseal")
pytest.importorskip("phe")
import gmpy2

from securevfl.audit.randomness import watch
from securevfl.models.homomorphic import Ckks, Paillier, _padded, _unpadded
from tests.oracles import encryption
from tests.oracles.encryption import encryption_faults, randomness_of, watch_ckks

BITS = 2048


def paillier():
    return Paillier(4, BITS)


def faults(scheme, keys=None, ciphertexts=None, key_bits=BITS):
    keys = keys or scheme.generate()
    if ciphertexts is None:
        values = [np.arange(60) * n for n in range(3)]
        ciphertexts = [c for x in values for c in scheme.encrypt(keys[0], x)]
    return list(encryption_faults(scheme, key_bits, keys, ciphertexts))


@pytest.mark.parametrize("make", [paillier, lambda: Ckks(4)])
def test_keys_and_ciphertexts_of_the_library_have_no_fault(make):
    scheme = make()
    keys = scheme.generate()
    one, two = (scheme.encrypt(keys[0], np.arange(60)) for _ in range(2))
    assert faults(scheme, keys, [*one, *two, *scheme.add(keys[0], [one, two])]) == []


def test_nothing_is_said_of_a_run_without_ciphertexts():
    assert faults(paillier(), None, []) == ["no ciphertext was sent"]


# -- Paillier ----------------------------------------------------------------------------------


def keys_of(p, q):
    made = [int(n).to_bytes(BITS // 8, "little") for n in (p * q, p, q)]
    return made[0], b"".join(made[1:])


def prime(bits):
    start = int.from_bytes(os.urandom(bits // 8), "little") | 3 << bits - 2
    return int(gmpy2.next_prime(start))


def test_randomness_is_recovered():
    p, q = prime(1024), prime(1024)
    r = int.from_bytes(os.urandom(250), "little")
    c = pow(1 + p * q, 12345, (p * q) ** 2) * pow(r, p * q, (p * q) ** 2) % (p * q) ** 2
    assert randomness_of(c, p, q) == r


@pytest.mark.parametrize("size", [1, 2, 200])
def test_short_randomness_is_found(monkeypatch, size):
    """The edit of a review has r of 8 bits, so that a whole plaintext can be tried."""

    def encrypt(self, key, values):
        public = self.key(key)
        rows = (values + self.limit).tolist()
        r = 2 + int.from_bytes(os.urandom(size), "little")
        return (self._bytes(public.raw_encrypt(self._pack(rows[: self.slots]), r)),)

    monkeypatch.setattr(Paillier, "encrypt", encrypt)
    assert "3 of 3 ciphertexts have randomness far shorter than the modulus" in faults(paillier())


def test_randomness_that_comes_again_is_found(monkeypatch):
    r = int.from_bytes(os.urandom(255), "little")

    def encrypt(self, key, values):
        rows = (values + self.limit).tolist()
        return (self._bytes(self.key(key).raw_encrypt(self._pack(rows[: self.slots]), r)),)

    monkeypatch.setattr(Paillier, "encrypt", encrypt)
    assert faults(paillier()) == ["two ciphertexts have the same randomness"]


def smooth_prime(bits):
    """A prime p such that p - 1 has small factors alone."""
    small = [int(one) for one in np.flatnonzero(~(np.arange(3000)[:, None] % np.arange(2, 55) == 0)
                                                .any(axis=1)) if one > 55]  # fmt: skip
    while True:
        found = 2
        while found.bit_length() < bits - 11:
            found *= small[int.from_bytes(os.urandom(4), "little") % len(small)]
        for _ in range(400):
            one = found * small[int.from_bytes(os.urandom(4), "little") % len(small)]
            if one.bit_length() == bits and gmpy2.is_prime(one + 1):
                return one + 1


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        (lambda p: (p, int(gmpy2.next_prime(p + 2**64))), "near each other"),
        (lambda p: (p, int(gmpy2.next_prime(p * 5 // 7))), "near each other"),
        (lambda p: (p, smooth_prime(1024)), "without large prime factors"),
        (lambda p: (p // 3 * 3, prime(1024)), "two prime factors"),
    ],
)
def test_factors_that_anybody_finds_are_found(factors, words):
    p, q = factors(prime(1024))
    assert any(words in one for one in faults(paillier(), keys_of(p, q), [bytes(512)]))


def test_a_short_modulus_is_found():
    keys = keys_of(prime(512), prime(512))
    assert any("1024 bits, and 2048" in one for one in faults(paillier(), keys, [bytes(512)]))


def test_one_pair_of_keys_for_all_is_found(monkeypatch):
    kept = paillier().generate()
    monkeypatch.setattr(Paillier, "generate", lambda self: kept)
    assert faults(paillier()) == ["two keys have a factor in common"]


# -- CKKS --------------------------------------------------------------------------------------


def hand_over_backwards(monkeypatch):
    """The edit of a review: others get the secret key too, its bytes in reverse."""
    load, generate = Ckks.load, Ckks.generate

    def backwards(self):
        _, secret = generate(self)
        return _padded(secret[::-1], 2 * self.KEY_NBYTES), secret

    def loaded(self, key):
        if len(key) != 2 * self.KEY_NBYTES:
            return load(self, key)
        return self.tenseal.context_from(_unpadded(key)[::-1], n_threads=1)

    monkeypatch.setattr(Ckks, "generate", backwards)
    monkeypatch.setattr(Ckks, "load", loaded)


def test_a_public_key_with_the_secret_one_backwards_is_found(monkeypatch):
    """Nobody finds the secret key by searching for its bytes."""
    hand_over_backwards(monkeypatch)
    (found,) = faults(Ckks(4))
    assert found.startswith("the public key is no context of TenSEAL's")


def test_a_public_key_with_the_secret_one_is_found(monkeypatch):
    generate = Ckks.generate

    def whole(self):
        _, secret = generate(self)
        return _padded(secret, 2 * self.KEY_NBYTES), secret

    def loaded(self, key):
        packed = len(key) == 2 * self.KEY_NBYTES
        return self.tenseal.context_from(_unpadded(key) if packed else key, n_threads=1)

    monkeypatch.setattr(Ckks, "generate", whole)
    monkeypatch.setattr(Ckks, "load", loaded)
    assert "the key that others get holds the secret one" in faults(Ckks(4))


def test_bytes_behind_the_public_key_are_found():
    scheme = Ckks(4)
    public, secret = scheme.generate()
    keys = public[:-5] + b"abcde", secret
    ciphertexts = scheme.encrypt(public, np.arange(5))
    assert faults(scheme, keys, ciphertexts) == [
        "something stands beside the public key in its bytes"
    ]


def test_parameters_that_are_too_small_are_found(monkeypatch):
    """SEAL itself refuses them, so the bound is what is moved here."""
    monkeypatch.setitem(encryption._STANDARD, Ckks.DEGREE, 119)
    assert faults(Ckks(4)) == ["a modulus of 120 bits at degree 8192 has no 128-bit security"]


def test_equal_ciphertexts_are_found():
    scheme = Ckks(4)
    keys = scheme.generate()
    assert faults(scheme, keys, [*scheme.encrypt(keys[0], np.arange(5))] * 2) == [
        "two ciphertexts are equal",
        "two ciphertexts have the same randomness",
    ]


def test_values_that_are_added_to_one_encryption_are_found():
    """Anybody who sees both gets their difference: no key is needed."""
    scheme = Ckks(4)
    keys = scheme.generate()
    public = scheme.load(keys[0])
    zero = scheme.tenseal.ckks_vector(public, np.zeros(scheme.SLOTS), scale=scheme.SCALE)
    made = [zero + [float(n)] * scheme.SLOTS for n in range(2)]
    ciphertexts = [_padded(one.serialize(), scheme.NBYTES) for one in made]
    assert faults(scheme, keys, ciphertexts) == ["two ciphertexts have the same randomness"]


def test_ciphertexts_of_paillier_that_nobody_sends_are_found():
    scheme = paillier()
    keys = scheme.generate()
    with watch() as log:
        own = [scheme.encrypt(keys[0], np.arange(3))[0] for _ in range(4)]
    every = list(encryption_faults(scheme, BITS, keys, own, own=own, log=log))
    some = list(encryption_faults(scheme, BITS, keys, own[1:], own=own[1:], log=log))
    assert every == []
    assert some == ["of 4 fresh ciphertexts 3 were sent: those that were may be chosen"]


def test_ciphertexts_of_ckks_that_nobody_sends_are_found():
    scheme = Ckks(4)
    keys = scheme.generate()
    with watch_ckks() as made:
        own = [scheme.encrypt(keys[0], np.arange(3))[0] for _ in range(4)]
    every = list(encryption_faults(scheme, 0, keys, own, own=own, made=made))
    some = list(encryption_faults(scheme, 0, keys, own[1:], own=own[1:], made=made))
    assert every == []
    assert some == ["of 4 fresh ciphertexts 3 were sent: those that were may be chosen"]


class InSlots(Ckks):
    """Values in slots, as they were once: each client rounds them to coefficients."""

    def encrypt(self, key, values):
        row = np.zeros(self.SLOTS)
        row[: values.size] = values
        vector = self.tenseal.ckks_vector(self.key(key), row, scale=self.SCALE)
        return (_padded(vector.serialize(), self.NBYTES),)


@pytest.mark.parametrize(("kind", "size"), [(InSlots, 1000), (Ckks, 1000), (Ckks, 1 << 32)])
def test_plaintexts_that_are_rounded_are_found(kind, size):
    """Who opens a sum sees the sum of the roundings, which tells more than the sum."""
    scheme, stream = kind(4), np.random.default_rng(0)
    keys = scheme.generate()
    with watch_ckks() as made:
        own = [scheme.encrypt(keys[0], stream.integers(-size, size, 4096))[0] for _ in range(3)]
    found = [one for one in encryption_faults(scheme, 0, keys, own, made=made) if "rounded" in one]
    assert [one[:21] for one in found] == ["3 of 3 plaintexts are"] * (kind is InSlots)


@pytest.mark.parametrize("related", [False, True])
def test_randomness_that_follows_from_anothers_is_found(related):
    scheme = paillier()
    keys = scheme.generate()
    with watch() as log:
        public = scheme.key(keys[0])
        first = public.get_random_lt_n()
        second = 2 * first % public.n if related else public.get_random_lt_n()
        own = [public.raw_encrypt(7, r).to_bytes(BITS // 4, "little") for r in (first, second)]
    found = list(encryption_faults(scheme, BITS, keys, own, own=own, log=log))
    wanted = "1 of 2 ciphertexts have randomness that is no number of its own from the operating"
    assert [one.startswith(wanted) for one in found] == [True] * related


@pytest.mark.parametrize(
    ("added", "words"),
    [
        (lambda x: 0.0, ""),
        (lambda x: 1.6 * Ckks.NOISE * np.sign(x) * (np.arange(x.size) % 8 == 0), "the signs"),
        (lambda x: Ckks.NOISE * (np.arange(x.size) % 2), "times what it must be"),
    ],
)
def test_noise_that_tells_of_numbers_is_found(added, words):
    """Sums are rounded, but who opens them sees what was rounded away."""
    scheme, stream = Ckks(4), np.random.default_rng(0)
    public, secret = scheme.generate()
    own = []
    for _ in range(12):
        x = stream.integers(-1000, 1000, 4096).astype(float)
        own += scheme.encrypt(public, x + added(x))
    found = list(encryption._told_by_noise(scheme, secret, own))
    assert bool(found) == bool(words)
    assert all(words in one for one in found[:1])


def test_a_scheme_whose_noise_was_looked_at_has_no_more_keys():
    """Else the protocol holds an object of another package, and nothing of it is the library's."""
    scheme = Ckks(4)
    public, secret = scheme.generate()
    own = scheme.encrypt(public, np.arange(60))
    before = set(scheme._keys)
    assert list(encryption._told_by_noise(scheme, secret, own)) == []
    assert set(scheme._keys) == before
