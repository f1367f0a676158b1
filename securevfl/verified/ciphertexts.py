"""Ciphertexts of the library's encryption schemes: parties create, add and decrypt them.

Messages carry the scheme's own bytes. In a trace a ciphertext represents its plaintext, which only
the key's holder can decrypt (the ideal functionality: lemma L6 of docs/proof.md). A public key
consists of randomness only and represents nothing; a secret key cannot be sent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from securevfl.verified.functions import FlowError
from securevfl.verified.parties import Hands
from securevfl.verified.values import (
    Ciphertext,
    Element,
    OpeningKey,
    SealingKey,
    describe,
    home_of,
)


class Sealing(Hands):
    """Encryption abilities of parties: encrypt, add, decrypt under a public scheme."""

    def sealing_keys(self, scheme: Any) -> tuple[SealingKey, OpeningKey]:
        """A fresh public key to send, and its secret key."""
        public, secret = _own(scheme).generate()
        where = None, self.index, self.world
        return SealingKey(public, *where, self.index), OpeningKey(secret, *where)

    def seal(self, scheme: Any, key: Any, value: Any) -> Ciphertext:
        """Ciphertexts of an Element, as integers in [-(p-1)/2, (p-1)/2]; FlowError for others."""
        if not isinstance(key, SealingKey) or not isinstance(value, Element):
            raise FlowError(f"seal of {describe(value)} under {describe(key)}: an Element and a "
                            "key of sealing_keys are needed")  # fmt: skip
        home_of((key, value), self.index)
        sealed = _own(scheme).encrypt(key._value, self.field.signed(value._value).reshape(-1))
        return self._sealed(sealed, key, value)

    def add_sealed(self, scheme: Any, key: Any, values: Sequence[Any]) -> Ciphertext:
        """Ciphertexts of the sum of ciphertexts under one key; FlowError for other values."""
        if not isinstance(key, SealingKey) or not all(isinstance(v, Ciphertext) for v in values):
            raise FlowError("add_sealed: ciphertexts and their public key are needed")
        home_of((key, *values), self.index)
        inside = None
        if self.world is not None:
            if {one._holder for one in values} != {key._holder}:
                raise FlowError("add_sealed: ciphertexts under one key are needed, and it")
            first, *rest = (one._inside for one in values)
            inside = sum(rest, first)
        return self._sealed(_own(scheme).add(key._value, [v._value for v in values]), key, inside)

    def open_sealed(
        self, scheme: Any, secret: Any, value: Any, shape: tuple[int, ...], summands: int
    ) -> Element:
        """Plaintext of a sum of `summands` blocks; FlowError for another party's, or shape."""
        if not isinstance(secret, OpeningKey) or not isinstance(value, Ciphertext):
            raise FlowError(f"open_sealed of {describe(value)}: a ciphertext and a secret key of "
                            "sealing_keys are needed")  # fmt: skip
        home_of((secret, value), self.index)
        size = math.prod(shape)
        found = _own(scheme).decrypt(secret._value, value._value, size, summands)
        opened = self.field.reduce(found).reshape(shape)
        inside, node = value._inside, None
        if inside is not None:
            if value._holder != self.index or inside.shape != tuple(shape):
                raise FlowError(f"open_sealed of {describe(value)}: another party's, or a shape "
                                f"that is not {shape}")  # fmt: skip
            node = inside._node
            if not np.array_equal(opened, inside._value) and self.world is not None:
                self.world.faults.append("a ciphertext held something else than what was sealed")
        return Element(opened, node, self.index, self.world, self.field)

    def _sealed(self, cipher: Any, key: SealingKey, value: Element | None) -> Ciphertext:
        if self.world is None or value is None:
            return Ciphertext(cipher, None, self.index, None)
        inside = Element(value._value, value._node, None, value._world, value._field)
        return Ciphertext(cipher, inside._node, self.index, self.world, key._holder, inside)


def _own(scheme: Any) -> Any:
    """A scheme, checked to be one of the library's.

    FlowError for another scheme, whose ciphertexts were not reviewed.
    """
    if not type(scheme).__module__.startswith("securevfl."):
        raise FlowError(f"ciphertexts of {type(scheme).__name__}: a scheme of the library is "
                        "needed")  # fmt: skip
    return scheme
