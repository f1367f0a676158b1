"""Uniform field elements from a stream cipher, by exact rejection.

Words of bit_length(p) bits are taken from the keystream and those at or above p are dropped, so
every element has the same probability; no word is ever reduced modulo p.
"""

from __future__ import annotations

import hashlib
import os
import threading
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from securevfl.errors import FieldError

Array = NDArray[Any]

_CHUNK = 1 << 18  # Bytes: the keystream and the pass that masks it stay in the L2 cache.
_REKEY = 1 << 30  # Bytes per key: far below the 2^32 blocks at which a ChaCha20 counter ends.
_ZEROS = memoryview(bytes(_CHUNK))


class Keystream:
    """The output of a stream cipher under one key, in order.

    Parameters
    ----------
    key : bytes
        32 bytes; two keystreams with the same key and cipher are equal.
    aes : bool
        Whether the cipher is AES-256-CTR; otherwise ChaCha20.
    """

    def __init__(self, key: bytes, aes: bool) -> None:
        self._key, self._aes = key, aes
        self._cipher: Any = None
        self._left = 0

    def fill(self, out: Array) -> None:
        """Overwrite a contiguous uint8 array with the next bytes."""
        start = 0
        while start < out.size:
            if self._left == 0:
                self._start()
            size = min(_CHUNK, self._left, out.size - start)
            self._cipher.update_into(_ZEROS[:size], out[start : start + size].data)
            self._left -= size
            start += size

    def _start(self) -> None:
        """Begin to encrypt zeros under the key, and derive the key for the next gibibyte."""
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        if self._aes:
            cipher: Cipher[Any] = Cipher(algorithms.AES(self._key), modes.CTR(bytes(16)))
        else:
            cipher = Cipher(algorithms.ChaCha20(self._key, bytes(16)), None)
        self._cipher = cipher.encryptor()
        # The hash runs one way: whoever finds this key in memory does not learn what was drawn
        # before.
        self._key = hashlib.sha256(b"securevfl next key" + self._key).digest()
        self._left = _REKEY


@lru_cache(maxsize=1)
def has_aes_unit() -> bool:
    """Whether the processor encrypts AES in hardware; without that ChaCha20 is faster."""
    from llvmlite import binding

    return bool(binding.get_host_cpu_features().get("aes", False))


@runtime_checkable
class Source(Protocol):
    """A source of random bytes; `secure` is recorded with results."""

    @property
    def secure(self) -> bool:
        """Whether masks from this source are fit to hide data."""

    def keystream(self) -> Keystream:
        """Return a keystream that no other call has returned."""


class SystemSource:
    """A keystream per call, keyed by 32 fresh bytes from the operating system.

    The key is drawn at each call, so a forked child never repeats its parent's masks.
    """

    secure = True

    def keystream(self) -> Keystream:
        """Return a keystream under a fresh key from os.urandom."""
        return Keystream(os.urandom(32), has_aes_unit())

    def __repr__(self) -> str:
        return "SystemSource()"


class SeededSource:
    """A reproducible source for test vectors and verifiers. Not for masks that hide data.

    The whole seed enters the SHA-256 that makes the key, nothing is folded away. Calls are
    numbered: the n-th call on a new source with the same seed returns the same keystream. The
    cipher is AES on every processor, so that vectors do not depend on the machine.

    Parameters
    ----------
    seed : int or bytes
        Any integer or bytes; FieldError for others.
    """

    secure = False

    def __init__(self, seed: int | bytes) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer | bytes):
            raise FieldError(f"SeededSource: the seed must be an integer or bytes, got {seed!r}.")
        text = seed if isinstance(seed, bytes) else str(int(seed)).encode()
        kind = b"bytes" if isinstance(seed, bytes) else b"int"
        self._root = hashlib.sha256(b"securevfl seeded source " + kind + b" " + text).digest()
        self._calls = 0
        self._lock = threading.Lock()

    def keystream(self) -> Keystream:
        """Return the next keystream of the numbered sequence."""
        with self._lock:
            number = self._calls
            self._calls += 1
        return Keystream(hashlib.sha256(self._root + number.to_bytes(8, "big")).digest(), aes=True)

    def __repr__(self) -> str:
        return "SeededSource(...)"


SYSTEM = SystemSource()


def chosen(source: Source | None) -> Source:
    """The source, or that of the operating system for None; FieldError for others, such as 0."""
    if source is None:
        return SYSTEM
    if not isinstance(source, Source):
        raise FieldError(
            f"random elements: {source!r} is no source of bytes. SeededSource(seed) makes one of a "
            f"seed, and None stands for the operating system's."
        )
    return source


def uniform(p: int, dtype: Any, shape: int | tuple[int, ...], source: Source | None) -> Array:
    """Independent uniform integers in [0, p), of `dtype`; FieldError for what is no shape."""
    stream = chosen(source).keystream()
    try:
        out = np.empty(shape, dtype)
    except (TypeError, ValueError) as error:
        raise FieldError(f"random elements: no array has the shape {shape!r}: {error}.") from None
    fill_uniform(p, out.reshape(-1), stream)
    return out


def fill_uniform(p: int, out: Array, stream: Keystream) -> None:
    """Overwrite a flat array with uniform elements drawn from `stream`, in order.

    The keystream is read as little-endian words of the dtype of `out`, cut to bit_length(p) bits;
    words at or above p are dropped and the next one is taken.
    """
    from securevfl.field.kernels.scalar import keep_below

    # Rejection, not reduction: a word modulo p prefers small elements. As p has bit_length(p) bits,
    # at least half of the cut words are below p, and at most two are expected for an element.
    mask, modulus = out.dtype.type((1 << p.bit_length()) - 1), out.dtype.type(p)
    step, done = _CHUNK // out.itemsize, 0
    while done < out.size:
        part = out[done : done + step]
        stream.fill(part.view(np.uint8))
        done += keep_below(part, mask, modulus)
