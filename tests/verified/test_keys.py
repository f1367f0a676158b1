"""Keys of parties: agreed for a use, expanded once, shared by a code, and used to sign."""

from __future__ import annotations

import os

import numpy as np
import pytest

from securevfl.engine import wire
from securevfl.field import LagrangeCode, PrimeField
from securevfl.verified import SERVER, FlowError, World, decide
from securevfl.verified.parties import agreed_key, fill, limbs_of, public_half

P = 2**61 - 1


class Two:
    """A world of two clients with an input each, and keys that they agree on."""

    def __init__(self):
        self.world = World(P)
        self.a, self.b, self.server = (self.world.party(n) for n in (0, 1, SERVER))
        self.x, self.y = self.world.secret(0, "x", (2,)), self.world.secret(1, "y", (2,))
        self.own = self.a.key("a"), self.b.key("b")
        self.to_b = self.a.send(1, "public", self.a.public_key(self.own[0]))
        self.to_a = self.b.send(0, "public", self.b.public_key(self.own[1]))

    def agreed(self, *use):
        one = self.a.agree(self.own[0], self.to_a, use=use, ends=(0, 1))
        return one, self.b.agree(self.own[1], self.to_b, use=use, ends=(1, 0))

    def sums(self, one, two, shift=0):
        """Both inputs to the server, under masks that cancel."""
        self.a.send(SERVER, "up", self.x + self.a.expand(one, 2))
        self.b.send(SERVER, "up", self.y - self.b.expand(two, 2) + shift)
        total = self.world.spec(self.x) + self.world.spec(self.y)
        self.world.output("sum", total, to=[SERVER])

    def verdict(self, *who):
        return decide(self.world, set(who) or {SERVER}).verdict


def test_masks_of_a_key_agreed_for_a_use_cancel():
    s = Two()
    s.sums(*s.agreed("pair", 3))
    assert s.verdict() == "PROVED"


def test_keys_for_two_uses_are_independent_and_of_one_use_equal():
    for use, expected in ((("other", 3), "PROVED"), (("pair", 3), "VIOLATED")):
        s = Two()
        s.sums(*s.agreed("pair", 3))
        s.a.send(SERVER, "key", s.agreed(*use)[0])
        assert s.verdict() == expected


def test_a_key_whose_public_key_was_sent_hides_nothing_and_may_be_given():
    s = Two()
    answer = s.a.prf(s.own[0], "m", 2)
    s.a.send(SERVER, "up", s.x + answer)
    assert s.verdict(SERVER) == "PROVED"  # the server has no public key
    found = decide(s.world, {SERVER, 1})
    assert found.verdict == "NOT PROVED"
    assert "refused" not in found.text
    s = Two()
    s.a.send(SERVER, "answer", s.a.prf(s.own[0], "m", 2))
    assert s.verdict(SERVER, 1) == "PROVED"


def test_other_ends_are_another_key():
    s = Two()
    one, _ = s.agreed("pair", 3)
    s.sums(one, s.b.agree(s.own[1], s.to_b, use=("pair", 3), ends=(1, 5)))
    assert s.verdict() == "PROVED"  # two masks that do not cancel


def test_a_seed_of_one_stream_has_no_labels():
    s = Two()
    for first, then in ((0, 1), (1, 0)):
        key = s.a.key()
        uses = (lambda k: s.a.expand(k, 2), lambda k: s.a.prf(k, "label", 2))
        uses[first](key)
        with pytest.raises(FlowError, match="no labels"):
            uses[then](key)


def test_an_agreed_key_is_hkdf_of_x25519_bound_to_use_ends_and_public_keys():
    from cryptography.hazmat.primitives.asymmetric import x25519
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    own, other = os.urandom(32), os.urandom(32)
    shared = x25519.X25519PrivateKey.from_private_bytes(own).exchange(
        x25519.X25519PublicKey.from_public_bytes(public_half(other))
    )
    ends = [(2, public_half(own)), (7, public_half(other))]
    context = wire.encode(("use", 3, ends))
    expected = HKDF(SHA256(), length=32, salt=None, info=context).derive(shared)
    assert agreed_key(own, public_half(other), ("use", 3), (2, 7)) == expected
    assert agreed_key(other, public_half(own), ("use", 3), (7, 2)) == expected


def test_limbs_are_whole_bytes_the_lowest_first():
    key = os.urandom(32)
    for p, size in ((P, 7), (2**31 - 1, 3)):
        wanted = [int.from_bytes(key[i : i + size], "little") for i in range(0, 32, size)]
        assert limbs_of(key, PrimeField(p)).tolist() == wanted


def test_a_seed_is_a_key_of_aes_in_counter_mode():
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key, out = os.urandom(32), np.empty(4, np.uint64)
    fill(P, out, key, None)
    cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    words = np.frombuffer(cipher.update(bytes(80)), "<u8") & np.uint64(P)
    assert out.tolist() == [w for w in words.tolist() if w < P][:4]


@pytest.mark.parametrize(("told", "expected"), [(2, "PROVED"), (3, "VIOLATED")])
def test_shares_of_keys_below_the_threshold_tell_nothing(told, expected):
    s = Two()
    code = LagrangeCode(PrimeField(P), parties=4, segments=1, privacy=2, degree=1)
    seed, other = s.a.key(), s.a.key()
    shares = s.a.share_keys(code, seed, other)
    back = s.a.join_key({n: shares[n][0] for n in (3, 1, 2)}, code)
    assert back._value == seed._value
    for n in range(told):
        s.a.send(SERVER, "share", shares[n])
    s.a.send(SERVER, "up", s.x + s.a.expand(back, 2))
    assert s.verdict() == expected


def test_too_few_shares_are_no_key():
    s = Two()
    code = LagrangeCode(PrimeField(P), parties=4, segments=1, privacy=2, degree=1)
    shares = s.a.share_keys(code, s.a.key())
    with pytest.raises(FlowError, match="not enough shares"):
        s.a.join_key({n: shares[n][0] for n in (0, 1)}, code)


def statement(round: int, key: bytes, *values: np.ndarray) -> bytes:
    """What is signed."""
    return wire.encode((round, key, [value.tobytes() for value in values]))


def right(signature: bytes, verifier: bytes, *values: np.ndarray) -> np.ndarray:
    """Whether a signature is valid."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    Ed25519PublicKey.from_public_bytes(verifier).verify(signature, statement(1, *values))
    return np.array(1)


def signed(*values):
    """A world in which party 0 signs its public key, and values of a function of it."""
    s = Two()
    identity, key = s.a.key(), s.a.public_key(s.own[0])
    s.a.send(SERVER, "verifier", s.a.verifying_key(identity))
    made = s.a.sign(identity, statement, 1, key, *(value(s) for value in values))
    got = s.a.send(SERVER, "signature", made)
    return s, identity, got, key


def test_signatures_of_public_keys_tell_nothing():
    s, identity, got, key = signed()
    made = s.a.verifying_key(identity)
    assert got.map(right, s.a.send(SERVER, "again", made), s.a.send(SERVER, "k", key)).shape == ()
    s.sums(*s.agreed("pair"))
    assert s.verdict() == "PROVED"


def test_a_signature_of_data_tells_of_it():
    assert signed(lambda s: s.x)[0].verdict() != "PROVED"


def test_a_key_that_signs_and_masks_is_not_proved():
    s, identity, *_ = signed()
    s.a.send(SERVER, "up", s.x + s.a.expand(identity, 2))
    assert s.verdict() != "PROVED"


def test_a_secret_key_of_an_agreement_that_signs_is_not_proved():
    s = Two()
    s.a.send(SERVER, "signature", s.a.sign(s.own[0], statement, 1, s.a.public_key(s.own[0])))
    s.sums(*s.agreed("pair"))
    assert s.verdict() != "PROVED"
