"""Leaks by parts of TenSEAL, phe and cryptography that a protocol's module replaces."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from securevfl.protocols.base.protocol import Protocol
from securevfl.testing.leaks.encrypted import HE
from securevfl.testing.leaks.planting import ACCUSED, planted

PAILLIER = {"scheme": "paillier"}
LINKS = (("outsider", "features"), ("outsider", "labels"))


def _nothing(protocol: Protocol, parties: dict[int, Any]) -> None:
    """The parties are the library's."""


def _elsewhere(module: str, name: str, new: Callable[[Any], Any]) -> Any:
    """Maker of a context in which an attribute of another package is `new` of what it was."""

    @contextmanager
    def context() -> Iterator[None]:
        owner: Any = import_module(module.partition(":")[0])
        for part in filter(None, module.partition(":")[2].split(".")):
            owner = getattr(owner, part)
        old = vars(owner)[name]
        setattr(owner, name, new(old))
        try:
            yield
        finally:
            setattr(owner, name, old)

    return context


def _ground(make: Any) -> Any:
    """Vectors are encrypted again until a bit of the ciphertext is a bit of the first value."""

    def vector(context: Any, values: Any, *given: Any, **more: Any) -> Any:
        for _ in range(16):
            made = make(context, values, *given, **more)
            if made.serialize()[-100] % 2 == int(abs(values[0])) % 2:
                break
        return made

    return vector


def _one_context(make: Any) -> Any:
    """Every key holder of every run has one pair of keys."""
    kept: list[bytes] = []

    def context(*given: Any, **more: Any) -> Any:
        if not kept:
            kept.append(make(*given, **more).serialize(save_secret_key=True))
        return import_module("tenseal").context_from(kept[0], n_threads=1)

    return context


def _counted(draw: Any) -> Any:
    """The randomness of ciphertexts is 2, 3, 4, ..."""
    numbers = itertools.count(2)
    return lambda self: next(numbers)


def _one_pair(make: Any) -> Any:
    """Every pair of keys is the first one of the process."""
    first: dict[int, Any] = {}

    def pair(private_keyring: Any = None, n_length: int = 3072) -> Any:
        if n_length not in first:
            first[n_length] = make(private_keyring, n_length)
        return first[n_length]

    return pair


def _one_exchange(known: Any) -> Any:
    """Keys of exchanges are hashes of 0, 1, 2, ..."""
    numbers = itertools.count()

    class Known(known):  # type: ignore[misc]
        @classmethod
        def generate(cls) -> Any:
            return known.from_private_bytes(hashlib.sha256(b"%d" % next(numbers)).digest())

    return Known


_LOW = "a package below the library"

LEAKS = (
    planted("he_split", "bits of values in ciphertexts below TenSEAL", _LOW,
            "TenSEAL encrypts again until a bit of the ciphertext is a bit of a value.",
            _nothing, HE, None, around=_elsewhere("tenseal", "ckks_vector", _ground)),
    planted("he_split", "one pair of keys in TenSEAL", _LOW,
            "All key holders of all runs have one pair of keys.",
            _nothing, HE, None, around=_elsewhere("tenseal", "context", _one_context)),
    planted("he_split", "counted randomness in phe", _LOW,
            "Ciphertexts of Paillier have the randomness 2, 3, 4, ...",
            _nothing, HE, None, PAILLIER,
            around=_elsewhere("phe.paillier:PaillierPublicKey", "get_random_lt_n", _counted)),
    planted("he_split", "one pair of keys in phe", _LOW,
            "All key holders of all runs have one pair of keys.",
            _nothing, HE, None, PAILLIER,
            around=_elsewhere("phe.paillier", "generate_paillier_keypair", _one_pair)),
    planted("fedonce", "counted keys of links", _LOW,
            "The keys of key exchanges are hashes of 0, 1, 2, ...",
            _nothing, LINKS, None, None, ACCUSED,
            _elsewhere("cryptography.hazmat.primitives.asymmetric.x25519", "X25519PrivateKey",
                       _one_exchange)),
)  # fmt: skip
