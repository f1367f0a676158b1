"""The pseudo-random function of masks against its specification, written a second time.

A proof takes the function for a random one in its key and its label. A function that leaves out the
label gives every sum the same mask: formulas that compute masks by the library's own function do
not show it, so it is computed here by other code.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from securevfl.field import PrimeField
from securevfl.field.prss import fill_stream
from tests.oracles.known_answers import elements

_DOMAIN = b"securevfl prss 1"
_SIZE = 2**17 + 3  # elements that are compared, of each key and label


@dataclass(frozen=True)
class Check:
    """One condition, whether it holds, and numbers or what is wrong."""

    name: str
    holds: bool
    detail: str


def pseudo_random(field: PrimeField) -> Check:
    """Check the function at a field: two keys and three labels, all six streams different."""
    keys = [hashlib.sha256(b"key %d" % n).digest() for n in range(2)]
    labels = (b"", b"label 0", b"label 1" + bytes(500))
    found, wrong = set(), 0
    for key in keys:
        for label in labels:
            drawn = np.empty(_SIZE, field.dtype)
            fill_stream(field.modulus, drawn, key, label)
            found.add(drawn.tobytes())
            wrong += not np.array_equal(drawn, specified(field, key, label, _SIZE))
    every = len(keys) * len(labels)
    text = (
        f"the function of key and label is AES-256 in counter mode under HKDF-SHA256, by rejection "
        f"below p, computed by other code for {every} pairs, whose streams differ: the first "
        f"{_SIZE} elements of each"
    )
    if wrong or len(found) < every:
        text = (
            f"of {every} keys and labels {wrong} have another stream than is specified, and "
            f"{every - len(found)} have that of another pair"
        )
    return Check("mask function", not wrong and len(found) == every, text)


def specified(field: PrimeField, key: bytes, label: bytes, size: int) -> np.ndarray:
    """The first elements that are specified for a key and a label, (size,)."""
    return elements(derived(key, label), field.modulus, field.dtype, size, aes=True)


def derived(key: bytes, label: bytes) -> bytes:
    """Key of the cipher for a key and a label."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = _DOMAIN + hashlib.sha256(label).digest()
    return HKDF(SHA256(), length=32, salt=None, info=info).derive(key)
