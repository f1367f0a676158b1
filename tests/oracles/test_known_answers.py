"""The sampler, secret streams and rows by other code: the library is right, plants are found."""

import hashlib
import os
import struct
import time

import numpy as np
import pytest
from cryptography.hazmat.primitives import ciphers

from securevfl.engine import streams
from securevfl.engine.realtime.assignment import begun_secrets
from securevfl.engine.realtime.checkpoint_store import CheckpointStore
from securevfl.engine.streams import OwnEntropy
from securevfl.field import PrimeField, sampling
from securevfl.field.sampling import Keystream
from securevfl.models.split import rows_of
from securevfl.testing.runs import make
from tests.oracles import known_answers
from tests.oracles.known_answers import (
    elements,
    entropy_fault,
    expanded,
    rows_fault,
    sampler_fault,
)

STREAM, DRAW, START = OwnEntropy.stream, vars(OwnEntropy)["draw"], Keystream._start
P50 = 2**50 - 2**14 + 1
TRUE_CIPHER = ciphers.Cipher


def cut_to(size):
    """Secret streams that depend on the first bytes of an entropy."""

    def stream(self, index, name, *keys):
        entropy = self.entropy[:size].ljust(32, b"\0")
        return STREAM(OwnEntropy(self.index, entropy), index, name, *keys)

    return stream


def without_the_last_key(self, index, name, *keys):
    return STREAM(self, index, name, *keys[:-1])


def of_another_generator(self, index, name, *keys):
    return np.random.Generator(np.random.PCG64(STREAM(self, index, name, *keys).integers(2**60)))


def half_drawn(cls, index):
    return cls(index, DRAW.__func__(cls, index).entropy[:16] * 2)


def begins_anew(self):
    """The edit of a review: the second gibibyte has the key of the first."""
    key = self._key
    START(self)
    self._key = key


def folded_key(self):
    START(self)
    self._key = hashlib.sha256(self._key[:2]).digest()


def never_goes_on(self):
    START(self)
    self._left = 1 << 40


def test_the_librarys_sources_have_no_fault():
    assert entropy_fault() == ""
    assert sampler_fault(P50, np.dtype(np.uint64)) == ""


@pytest.mark.parametrize("stream", [cut_to(2), cut_to(31), without_the_last_key,
                                    of_another_generator])  # fmt: skip
def test_streams_that_leave_something_out_are_found(monkeypatch, stream):
    monkeypatch.setattr(OwnEntropy, "stream", stream)
    assert "stream" in entropy_fault()


def test_entropy_of_fewer_bytes_is_found(monkeypatch):
    monkeypatch.setattr(OwnEntropy, "draw", classmethod(half_drawn))
    assert "not 32 bytes of the operating system" in entropy_fault()


def test_entropy_that_a_cluster_takes_from_the_clock_is_found(monkeypatch):
    def begun(store, index, *, restored):
        if restored:
            return begun_secrets(store, index, restored=True)
        secrets = OwnEntropy(index, hashlib.sha256(str(time.time_ns()).encode()).digest())
        if store is not None:
            store.new_entropy(secrets.entropy)
        return secrets

    monkeypatch.setattr(known_answers, "begun_secrets", begun)
    assert "not 32 bytes of the operating system" in entropy_fault()


def test_a_fault_of_one_bit_alone_is_found(monkeypatch):
    """Known answers of one entropy do not show it, as the bit is zero in half of them."""

    def stream(self, index, name, *keys):
        entropy = self.entropy[:-1] + bytes([self.entropy[-1] & 0xFE])
        return STREAM(OwnEntropy(self.index, entropy), index, name, *keys)

    monkeypatch.setattr(streams.OwnEntropy, "stream", stream)
    assert {bool(entropy_fault()) for _ in range(8)} == {True}


def test_entropy_of_an_earlier_run_is_found(monkeypatch):
    """The edit of a review: a run that begins anew has the first models of the one before."""
    new = CheckpointStore.new_entropy

    def once(self, entropy):
        if self.entropy() is None:
            new(self, entropy)

    def kept(store, index, *, restored):
        found = begun_secrets(store, index, restored=restored)
        return OwnEntropy(index, (store and store.entropy()) or found.entropy)

    monkeypatch.setattr(CheckpointStore, "new_entropy", once)
    assert "of an earlier one" in entropy_fault()  # one that comes back has another one's
    monkeypatch.setattr(known_answers, "begun_secrets", kept)
    assert "of an earlier one" in entropy_fault()


@pytest.mark.parametrize("start", [begins_anew, folded_key, never_goes_on])
def test_a_keystream_that_goes_on_otherwise_after_a_gibibyte_is_found(monkeypatch, start):
    monkeypatch.setattr(Keystream, "_start", start)
    assert "after a gibibyte" in sampler_fault(P50, np.dtype(np.uint64))


@pytest.mark.parametrize("aes", [True, False])
def test_long_streams_are_computed_by_other_code_under_all_their_keys(monkeypatch, aes):
    monkeypatch.setattr(sampling, "_REKEY", 4096)
    monkeypatch.setattr(known_answers, "_PER_KEY", 4096)
    key, found = bytes(range(32)), np.empty(10_000, np.uint8)
    Keystream(key, aes).fill(found)
    assert expanded(key, found.size, aes=aes) == found.tobytes()
    drawn = np.empty(2000, np.uint64)
    sampling.fill_uniform(P50, drawn, Keystream(key, aes))
    assert np.array_equal(elements(key, P50, drawn.dtype, drawn.size, aes=aes), drawn)


def test_another_row_than_was_asked_for_is_found(monkeypatch):
    def first_row_too(features, samples):
        rows = rows_of(features, samples)
        rows[0] = features[0]
        return rows

    features = make("secagg_split").data.train
    assert rows_fault(features) == ""
    monkeypatch.setattr(known_answers, "rows_of", first_row_too)
    assert "not those that are taken of a table" in rows_fault(features)


@pytest.mark.parametrize("p", [2**31 - 1, 2**50 - 2**14 + 1])
def test_the_sampler_gives_what_its_keys_say(p):
    assert sampler_fault(p, PrimeField(p).dtype) == ""


def rotated(word, by):
    return ((word << by) | (word >> (32 - by))) & 0xFFFFFFFF


def chacha20(key):
    """The first block under a key from a counter of zeros (RFC 8439, section 2.3), by Python."""
    state = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), 0, 0, 0, 0]
    x = list(state)
    columns = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]
    diagonals = [(0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]
    for a, b, c, d in (columns + diagonals) * 10:
        for first, second, third, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[first] = (x[first] + x[second]) & 0xFFFFFFFF
            x[third] = rotated(x[third] ^ x[first], by)
    return struct.pack(
        "<16I", *((one + two) & 0xFFFFFFFF for one, two in zip(x, state, strict=True))
    )


def test_the_stream_cipher_is_the_published_one():
    for key in (bytes(32), bytes(range(32)), os.urandom(32)):
        assert expanded(key, 64, aes=False) == chacha20(key)


@pytest.mark.parametrize("short", ["AES", "ChaCha20"])
def test_ciphers_that_use_one_byte_of_a_key_are_found(monkeypatch, short):
    def cipher(algorithm, mode):
        if type(algorithm).__name__ == short:
            key = algorithm.key[:1] * 32
            nonce = () if short == "AES" else (algorithm.nonce,)
            algorithm = type(algorithm)(key, *nonce)
        return TRUE_CIPHER(algorithm, mode)

    monkeypatch.setattr(ciphers, "Cipher", cipher)
    with pytest.raises(RuntimeError, match=f"another {short}.* than is published"):
        expanded(bytes(range(32)), 5, aes=True)
