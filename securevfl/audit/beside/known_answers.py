"""Known answers of the sampler: its output under known keys, held against a second sampler.

Formulas expand keys with the library's own sampler, and the log of its calls sees 32 fresh bytes
go in, but not what becomes of them. So known keys are expanded here as well: words of the cipher
under the whole key, cut to bit_length(p) bits, those at or above p dropped.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.field import sampling
from securevfl.field.sampling import Keystream

_SIZES = (5, 1000, 70_000)  # elements; the last are several pieces of the library's sampler
# First block of each cipher, AES or ChaCha20, under the key 0, 1, ..., 31, from a counter of zeros.
_ANSWERS = {True: "f29000b62a499fd0a9f39a6add2e7780", False: "39fd2b7dd9c5196a8dbd0377b8dc4a49"}
_PIECES = (1, 31, 4096, 300_000, 17)  # bytes that are taken from a keystream one after the other


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
        for size in _SIZES:
            found = sampling.uniform(modulus, dtype, size, _Given(key, aes))
            if not np.array_equal(found, elements(key, modulus, np.dtype(dtype), size, aes=aes)):
                return f"{size} elements of the sampler are not those of their key"
    first, second = np.empty(32, np.uint8), np.empty(32, np.uint8)
    sampling.SYSTEM.keystream().fill(first)
    sampling.SYSTEM.keystream().fill(second)
    return "two fresh keystreams are equal" if np.array_equal(first, second) else ""


@dataclass(frozen=True)
class _Given:
    """A source with one keystream."""

    key: bytes
    aes: bool
    secure = False

    def keystream(self) -> Keystream:
        return Keystream(self.key, self.aes)


def expanded(key: bytes, size: int, *, aes: bool) -> bytes:
    """First bytes of AES-256-CTR, or of ChaCha20, under a key; below one gibibyte.

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
    return _keystream(key, size, aes=aes)


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
