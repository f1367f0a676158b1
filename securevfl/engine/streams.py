"""Named random streams: every random choice of an experiment is fixed by its key.

A stream holds no state between calls, so a replayed, resumed or re-ordered run draws the same
numbers. There are two kinds:

- **Public choices** (`keyed_stream`): batches, delays, faults. They are functions of the run's
  seed, which every party knows, so compared protocols have the same delays and batches.
- **Secret choices** (`Secrets`): initial weights, rounding, random views of rows, and other choices
  that only one party needs. Between real parties each party has its own entropy (`OwnEntropy`); in
  a simulation all come from one secret seed (`SecretSeed`).

Masks and noise come from `securevfl.field.sampling` instead.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

ENTROPY = 32  # bytes of a party's own entropy
_CONTEXT = b"securevfl secret stream 1"


@functools.lru_cache(maxsize=1024)
def _name_words(name: str) -> tuple[int, int]:
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")


def keyed_stream(seed: int, entity: int, name: str, *keys: int) -> np.random.Generator:
    """Philox generator fixed by its arguments; other arguments give another stream.

    ValueError for keys out of range: NumPy cuts integers into words of 32 bits without marking
    where one ends, so the key 2^32 would give the stream of the keys 0 and 1.

    Parameters
    ----------
    seed : int
        Seed of the run, at least 0.
    entity : int
        Party number, at least -1 (the server).
    name : str
        Purpose of the stream.
    *keys : int
        Further keys, such as the round; each in [0, 2^32).
    """
    _check_keys(name, keys)
    sequence = np.random.SeedSequence([seed, entity + 1, *_name_words(name), *keys])
    return np.random.Generator(np.random.Philox(sequence))


class Secrets(Protocol):
    """Source of the secret streams of one party or of several."""

    def stream(self, index: int, name: str, *keys: int) -> np.random.Generator:
        """Generator of party `index` for a purpose; equal arguments give equal streams.

        ForeignSecretError when the source does not have that party's secrets.
        """


class ForeignSecretError(RuntimeError):
    """A secret stream was requested that belongs to another party."""


@dataclass(frozen=True)
class SecretSeed:
    """Secrets of all parties from one number, for simulations.

    A party that knows the number knows all secrets. With the run's own seed the streams are those
    of `keyed_stream`.

    Attributes
    ----------
    seed : int
        Seed, at least 0.
    """

    seed: int

    def stream(self, index: int, name: str, *keys: int) -> np.random.Generator:
        """`keyed_stream` of the secret seed."""
        return keyed_stream(self.seed, index, name, *keys)


@dataclass(frozen=True)
class OwnEntropy:
    """Secrets of one party, from entropy that only this party has.

    The key of a stream is HKDF-SHA256 of (entropy, name, keys), 128 bits, and goes into Philox.
    Keys of different purposes are computationally independent: somebody who learns all numbers of
    one stream, and even its key, learns nothing about another stream or the entropy.

    Philox itself is a statistical generator and no cipher. Somebody who sees raw outputs of a
    stream may be able to find its key, and with it the rest of *that* stream. So a stream serves a
    single purpose and its numbers are not published; masks and noise, which must withstand that,
    come from `securevfl.field.sampling`.

    Attributes
    ----------
    index : int
        The party's number; the server's is -1.
    entropy : bytes
        32 bytes from the operating system. The object's `repr` does not show it.
    """

    index: int
    entropy: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.entropy) != ENTROPY:
            raise ValueError(
                f"OwnEntropy: {len(self.entropy)} bytes were given, it takes {ENTROPY}; use "
                "OwnEntropy.draw"
            )

    @classmethod
    def draw(cls, index: int) -> OwnEntropy:
        """New secrets of a party, from the operating system's entropy."""
        return cls(index, os.urandom(ENTROPY))

    def stream(self, index: int, name: str, *keys: int) -> np.random.Generator:
        """Generator for a purpose of this party.

        ForeignSecretError for another party's number.
        """
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        if index != self.index:
            raise ForeignSecretError(
                f"secret stream {name!r}: party {self.index} asked for the one of party {index}, "
                "and has its own entropy only (-1 is the server). What several parties must draw "
                "alike is public: use `stream`"
            )
        _check_keys(name, keys)
        # The name carries its length and keys have four bytes each, so no two purposes are alike.
        text = name.encode()
        words = b"".join(key.to_bytes(4, "big") for key in keys)
        info = _CONTEXT + len(text).to_bytes(4, "big") + text + words
        key = HKDF(SHA256(), length=16, salt=None, info=info).derive(self.entropy)
        return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "big")))


@dataclass(frozen=True)
class Composed:
    """Secrets of several parties together, to simulate a run of separate machines.

    Attributes
    ----------
    parts : mapping of int to OwnEntropy
        Secrets by party.
    """

    parts: Mapping[int, OwnEntropy]

    @classmethod
    def draw(cls, *parties: int) -> Composed:
        """New secrets for these parties, from the operating system's entropy."""
        return cls({n: OwnEntropy.draw(n) for n in parties})

    def stream(self, index: int, name: str, *keys: int) -> np.random.Generator:
        """Generator of one of the parties.

        ForeignSecretError for a party without entropy in `parts`.
        """
        if index not in self.parts:
            raise ForeignSecretError(
                f"secret stream {name!r}: the entropy of party {index} is not among those of "
                f"{sorted(self.parts)}"
            )
        return self.parts[index].stream(index, name, *keys)


@dataclass(frozen=True)
class WithPlaceholders:
    """Secrets of one party; other parties get random placeholders, each used once.

    `Protocol.party` makes objects of all parties to get one of them. The placeholders serve the
    others, which are dropped. They come from the operating system, so a protocol that needs the
    same secret number at two parties fails its tests.
    """

    own: OwnEntropy

    def stream(self, index: int, name: str, *keys: int) -> np.random.Generator:
        """Generator of this party; for another party one with fresh entropy."""
        if index == self.own.index:
            return self.own.stream(index, name, *keys)
        return np.random.Generator(np.random.Philox(int.from_bytes(os.urandom(16), "big")))


def _check_keys(name: str, keys: tuple[int, ...]) -> None:
    if not all(0 <= key < 2**32 for key in keys):
        raise ValueError(f"stream {name!r}: keys must lie in [0, 2^32), they are {keys}")
