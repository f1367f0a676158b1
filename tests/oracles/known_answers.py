"""Known answers of the sampler, of secret streams and of rows, held against other code.

Formulas expand keys with the library's own sampler, and the log of its calls sees 32 fresh bytes
go in, but not what becomes of them. So known keys are expanded here as well: words of the cipher
under the whole key, cut to bit_length(p) bits, those at or above p dropped. Likewise a recorded
run and the library's parties beside it draw first weights from the same streams of the same
entropy. So the keys of such streams are derived here as well. And a formula says what rows give by
the function that took them.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.engine.realtime.assignment import begun_secrets
from securevfl.engine.realtime.checkpoint_store import CheckpointStore
from securevfl.engine.streams import ENTROPY, OwnEntropy
from securevfl.field import sampling
from securevfl.field.sampling import Keystream
from securevfl.models.split import rows_of
from tests.oracles.stand_ins import in_place_of

_SIZES = (5, 1000, 70_000)  # elements; the last are several pieces of the library's sampler
# First block of each cipher, AES or ChaCha20, under the key 0, 1, ..., 31, from a counter of zeros.
_ANSWERS = {True: "f29000b62a499fd0a9f39a6add2e7780", False: "39fd2b7dd9c5196a8dbd0377b8dc4a49"}
_PIECES = (1, 31, 4096, 300_000, 17)  # bytes that are taken from a keystream one after the other
_PER_KEY = 1 << 30  # bytes of a keystream, after which it goes on under the next key
_NEXT = b"securevfl next key"  # SHA-256 of this and a key is the next one
# Streams that are compared: the party, the purpose, further keys.
_PURPOSES = (
    (-1, "centre", ()),
    (3, "init", ()),
    (0, "rounding", (7, 2**32 - 1)),
    (3, "\u00e9", (0,)),
)
_WORDS = 64  # bytes of each


def sampler_fault(modulus: int, dtype: Any) -> str:
    """Fault of the sampler at a prime, in words; empty if there is none.

    Parameters
    ----------
    modulus : int
        p.
    dtype : dtype
        Of the elements of F_p.
    """
    for aes in (True, False):
        key = os.urandom(32)
        stream = Keystream(key, aes)
        taken = [np.empty(size, np.uint8) for size in _PIECES]
        for piece in taken:
            stream.fill(piece)
        if np.concatenate(taken).tobytes() != expanded(key, sum(_PIECES), aes=aes):
            return "a keystream is not the cipher's under its key"
        if _second_block(key, aes) != expanded(hashlib.sha256(_NEXT + key).digest(), 16, aes=aes):
            return "after a gibibyte a keystream does not go on under its next key"
        for size in _SIZES:
            found = sampling.uniform(modulus, dtype, size, _Given(key, aes))
            if not np.array_equal(found, elements(key, modulus, np.dtype(dtype), size, aes=aes)):
                return f"{size} elements of the sampler are not those of their key"
    first, second = np.empty(32, np.uint8), np.empty(32, np.uint8)
    sampling.SYSTEM.keystream().fill(first)
    sampling.SYSTEM.keystream().fill(second)
    return "two fresh keystreams are equal" if np.array_equal(first, second) else ""


def _second_block(key: bytes, aes: bool) -> bytes:
    """First block of a keystream's second gibibyte, to which it is led without the first one."""
    stream, block = Keystream(key, aes), np.empty(16, np.uint8)
    stream.fill(block)
    if not 0 < stream._left < _PER_KEY:
        return b""
    stream._left = 0
    stream.fill(block)
    return block.tobytes()


@dataclass(frozen=True)
class _Given:
    """A source with one keystream."""

    key: bytes
    aes: bool
    secure = False

    def keystream(self) -> Keystream:
        return Keystream(self.key, self.aes)


def expanded(key: bytes, size: int, *, aes: bool) -> bytes:
    """First bytes of AES-256-CTR, or of ChaCha20, under a key and, by gibibytes, the next ones.

    Raises
    ------
    RuntimeError
        Where the package's ciphers do not give their published answers.
    """
    for one, answer in _ANSWERS.items():
        if _keystream(bytes(range(32)), 16, aes=one).hex() != answer:
            raise RuntimeError(
                f"the package cryptography computes another {'AES-256' if one else 'ChaCha20'} "
                "than is published: something in this process replaced it"
            )
    pieces = []
    for start in range(0, size, _PER_KEY):
        pieces.append(_keystream(key, min(_PER_KEY, size - start), aes=aes))
        key = hashlib.sha256(_NEXT + key).digest()
    return b"".join(pieces)


def _keystream(key: bytes, size: int, *, aes: bool) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    if aes:
        cipher: Cipher[Any] = Cipher(algorithms.AES(key), modes.CTR(bytes(16)))
    else:
        cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), None)
    return bytes(cipher.encryptor().update(bytes(size)))


def elements(key: bytes, modulus: int, dtype: np.dtype[Any], size: int, *, aes: bool) -> np.ndarray:
    """First elements of F_p from the keystream of a key."""
    bits = modulus.bit_length()
    words = 64 + int(1.1 * size * 2**bits / modulus)
    read = np.frombuffer(expanded(key, words * dtype.itemsize, aes=aes), dtype.newbyteorder("<"))
    masked = read & dtype.type((1 << bits) - 1)
    kept: np.ndarray = masked[masked < dtype.type(modulus)][:size]
    return kept.astype(dtype)


def entropy_fault() -> str:
    """Fault of the secret streams that follow from a party's own entropy; empty if there is none.

    Each of its 256 bits must change a stream, and each stream be the one that is specified: Philox
    under the first 16 bytes of HKDF-SHA256 of the entropy, bound to the purpose. Another run of a
    party has other entropy.
    """
    own = os.urandom(ENTROPY)
    with in_place_of((os, "urandom", lambda size: own[:size])):
        begun = OwnEntropy.draw(1), begun_secrets(None, 1, restored=False)
        if begun != (OwnEntropy(1, own),) * 2:
            return "a party's own entropy is not 32 bytes of the operating system"
    for index, name, keys in _PURPOSES:
        if _begun(own, index, name, keys) != _specified(own, name, keys):
            return f"the secret stream {name!r} of a party is not that of its entropy"
    index, name, keys = _PURPOSES[0]
    flipped = [_flip(own, bit) for bit in range(8 * ENTROPY)]
    found = [_begun(one, index, name, keys) for one in flipped]
    if found != [_specified(one, name, keys) for one in flipped] or len(set(found)) < len(found):
        return "not each bit of a party's entropy changes its secret streams as specified"
    return "" if _begins_anew() else "a run that begins anew has the entropy of an earlier one"


def _begins_anew() -> bool:
    """Whether another run in a party's folder has fresh entropy, and one that comes back its own.

    Else two runs have the same first weights, and sums of both tell a difference of clients.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = CheckpointStore(Path(folder))
        first, second = (begun_secrets(store, 1, restored=False) for _ in range(2))
        back = begun_secrets(store, 1, restored=True)
    return first.entropy != second.entropy == back.entropy


def _begun(entropy: bytes, index: int, name: str, keys: tuple[int, ...]) -> bytes:
    """Beginning of a secret stream, as the library gives it."""
    return OwnEntropy(index, entropy).stream(index, name, *keys).bytes(_WORDS)


def _specified(entropy: bytes, name: str, keys: tuple[int, ...]) -> bytes:
    """Beginning of the stream that is specified."""
    text = name.encode()
    info = b"securevfl secret stream 1" + len(text).to_bytes(4, "big") + text
    info += b"".join(key.to_bytes(4, "big") for key in keys)
    key = derived_key(entropy, info)[:16]
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "big"))).bytes(_WORDS)


def derived_key(secret: bytes, info: bytes) -> bytes:
    """HKDF-SHA256 of a secret without salt, 32 bytes (RFC 5869)."""
    extracted = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")


def rows_fault(features: Sequence[np.ndarray]) -> str:
    """Fault of `rows_of` on columns of clients, in words; empty if there is none.

    Parameters
    ----------
    features : sequence of ndarray, (M, d_n)
    """
    chance = np.random.Generator(np.random.PCG64())  # of the operating system's entropy
    for columns in features:
        total = len(columns)
        for size in {1, 2, min(15, total), total}:
            samples = chance.integers(-1, total, size)
            wanted = np.stack([columns[n] if n >= 0 else np.zeros_like(columns[0])
                               for n in samples.tolist()])  # fmt: skip
            if not np.array_equal(rows_of(columns, samples), wanted):
                return f"{size} rows that a batch names are not those that are taken of a table"
    return ""


def _flip(entropy: bytes, bit: int) -> bytes:
    flipped = bytearray(entropy)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)
