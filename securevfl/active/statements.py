"""Signed statements: a party that signs one cannot later claim something else.

Two different statements by one signer about one subject are evidence against it. So the subject
(what a statement is about: run, incarnation, start, signer, kind and step) is separate from its
content (docs/active.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from securevfl.engine import wire
from securevfl.errors import RunError

SIGNATURE = 64  # bytes
DIGEST = 32  # bytes of SHA-256
RUN = b"key of this run"  # names the run where its keys were drawn for it
_TAG = "securevfl statement 1"


@dataclass(frozen=True)
class Subject:
    """Subject of a statement; an honest signer makes one statement on each.

    Attributes
    ----------
    run : bytes
        Digest of the run's manifest, or `RUN` if keys were drawn for the run.
    life : int
        Incarnation number of the signer; 0 in dealings, which `start` distinguishes.
    start : bytes
        32 random bytes of the signer's start. A restored folder begins another start, so its
        statements contradict no earlier ones.
    signer : int
        Number of the party.
    kind : str
        Kind of statement, such as "model" or "history".
    step : int
        Round, or number of the step; 0 in set-up.
    """

    run: bytes
    life: int
    start: bytes
    signer: int
    kind: str
    step: int

    def encoded(self) -> bytes:
        """Bytes of all attributes; only equal subjects give equal bytes."""
        return wire.encode((self.run, self.life, self.start, self.signer, self.kind, self.step))


@dataclass(frozen=True)
class Statement:
    """A subject and a content, with a signature of both.

    Attributes
    ----------
    subject, content : Subject, bytes
        What the statement is about, and what it says.
    signature : bytes
        Ed25519 signature, 64 bytes.
    """

    subject: Subject
    content: bytes
    signature: bytes

    def is_valid(self, keys: Mapping[int, bytes]) -> bool:
        """Whether the signer's key signed the statement.

        Parameters
        ----------
        keys : mapping of int to bytes
            Public keys by party, 32 bytes each.
        """
        key = keys.get(self.subject.signer)
        return key is not None and is_signed_by(
            key, self.signature, signed(self.subject, self.content)
        )

    def contradicts(self, other: Statement) -> bool:
        """Whether both are on one start and step, but differ in content or incarnation number."""
        one, two = self.subject, other.subject
        alike = one == replace(two, life=one.life)  # a start has one life
        return alike and (one.life, self.content) != (two.life, other.content)


def signed(subject: Subject, content: bytes) -> bytes:
    """Bytes of a statement that its signature covers."""
    return wire.encode((_TAG, subject.encoded(), content))


def is_signed_by(key: bytes, signature: bytes, text: bytes) -> bool:
    """Whether the owner of a verifying key (Ed25519) signed a text."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


def digest(name: str, *parts: bytes) -> bytes:
    """SHA-256 of a name and parts, encoded without ambiguity.

    Parameters
    ----------
    name : str
        Use of the digest: digests of two uses are never equal.
    *parts : bytes
        Content to hash, in order.
    """
    return hashlib.sha256(wire.encode((name, *parts))).digest()


class ApartError(RunError):
    """Some parties hold a statement that differs from one's own.

    Attributes
    ----------
    parties : list of int
        Numbers of these parties.
    """

    def __init__(self, parties: list[int]) -> None:
        super().__init__(f"parties {parties} say something else")
        self.parties = parties


def refuse_apart(own: np.ndarray, parties: tuple[int, ...], *others: np.ndarray) -> np.ndarray:
    """Empty array, for `Secret.map`; ApartError if a digest differs from this party's."""
    found = [n for n, one in zip(parties, others, strict=True) if not np.array_equal(own, one)]
    if found:
        raise ApartError(found)
    return np.empty(0)
