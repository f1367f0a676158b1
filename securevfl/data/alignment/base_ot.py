"""Base oblivious transfers of random seeds, secure against parties that deviate.

The endemic oblivious transfer of Masny and Rindal ("Endemic oblivious transfer", CCS 2019) over the
prime-order curve P-256. For each transfer the sender S gets two seeds, and the receiver R gets the
one that it chooses:

    S: a, A = a G.    R with choice b: k, y_b = k G, random r_{1-b}, r_b = y_b - H_b(r_{1-b}).
    S: y_b = r_b + H_b(r_{1-b}) and seed_b = KDF(a y_b), b = 0, 1.    R: seed_b = KDF(k A).

(r_0, r_1) are uniform whatever b is, so S learns nothing of b. R knows no logarithm of the other y,
which the random oracle H fixes after r_0 and r_1: the other seed is the computational
Diffie-Hellman problem, with KDF a random oracle. A party may influence its own seeds, which the
extension of these transfers permits. Each transfer has its own keys and a number, which are inputs
of H and KDF.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from securevfl.errors import RunError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )

POINT = 65  # bytes of an uncompressed point
SEED = 16
_DOMAIN = b"securevfl psi 2 "
_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_TRIES = 256  # half of all hashes are no x of the curve: failing so often has probability 2^-256


class Point(NamedTuple):
    """Affine point of the curve P-256; the point at infinity has no value."""

    x: int
    y: int

    def encoded(self) -> bytes:
        """Uncompressed encoding, 65 bytes (SEC 1, section 2.3.3)."""
        return b"\x04" + self.x.to_bytes(32, "big") + self.y.to_bytes(32, "big")

    def negative(self) -> Point:
        """The inverse of this point in the group of the curve: (x, -y)."""
        return Point(self.x, -self.y % _P)

    def plus(self, other: Point) -> Point:
        """Sum of two points (SEC 1, 2.2.1); ZeroDivisionError if it is the point at infinity."""
        if self.x != other.x:
            top, bottom = other.y - self.y, other.x - self.x
        elif self.y == other.y:
            top, bottom = 3 * self.x * self.x - 3, 2 * self.y
        else:
            raise ZeroDivisionError("the sum of a point and its negative has no coordinates")
        slope = top * pow(bottom, -1, _P) % _P
        x = (slope * slope - self.x - other.x) % _P
        return Point(x, (slope * (self.x - x) - self.y) % _P)


def hash_to_curve(*parts: bytes) -> Point:
    """Curve point derived from bytes by SHA-512, try and increment; its discrete log is unknown."""
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey

    digest = hashlib.sha512(_DOMAIN + b"point" + b"".join(parts))
    for attempt in range(_TRIES):
        tried = digest.copy()
        tried.update(bytes([attempt]))
        found = tried.digest()
        compressed = bytes([2 + (found[32] & 1)]) + found[:32]
        try:
            return _point(EllipticCurvePublicKey.from_encoded_point(SECP256R1(), compressed))
        except ValueError:
            continue
    raise AssertionError("256 hashes off the curve")


def offer(count: int) -> tuple[list[EllipticCurvePrivateKey], np.ndarray]:
    """The sender's secret keys and its message of public keys, uint8 (count, 65)."""
    keys = [_new_key() for _ in range(count)]
    return keys, _stack([_point(key.public_key()).encoded() for key in keys])


def choose(
    session: bytes, offered: np.ndarray, choices: np.ndarray, whose: str
) -> tuple[np.ndarray, np.ndarray]:
    """The receiver's seeds, uint8 (count, 16), and its message (r_0, r_1), uint8 (count, 130).

    `offered` is the sender's message, uint8 (count, 65); `choices`, (count,), are 0 or 1; `session`
    has bytes unique to the session. RunError if a row of `offered` is no point of the curve;
    `whose` names its sender.
    """
    from cryptography.hazmat.primitives.asymmetric.ec import ECDH

    seeds, answers = [], []
    for i, b in enumerate(choices.tolist()):
        offer = offered[i].tobytes()
        k = _new_key()
        r = [_point(_new_key().public_key())] * 2
        mask = hash_to_curve(session, _number(i, b), r[1 - b].encoded())
        r[b] = _point(k.public_key()).plus(mask.negative())
        answer = r[0].encoded() + r[1].encoded()
        shared = k.exchange(ECDH(), _public(offer, whose))
        seeds.append(_seed(session, i, b, offer, answer, shared))
        answers.append(answer)
    return _stack(seeds), _stack(answers)


def both_seeds(
    session: bytes,
    keys: list[EllipticCurvePrivateKey],
    offered: np.ndarray,
    answers: np.ndarray,
    whose: str,
) -> np.ndarray:
    """The sender's two seeds of each transfer, uint8 (2, count, 16), from its `keys`.

    RunError if a row of `answers` is no point of the curve; `whose` names its sender.
    """
    from cryptography.hazmat.primitives.asymmetric.ec import ECDH

    seeds: tuple[list[bytes], list[bytes]] = ([], [])
    for i, a in enumerate(keys):
        offer, answer = offered[i].tobytes(), answers[i].tobytes()
        r = [_point(_public(half, whose)) for half in (answer[:POINT], answer[POINT:])]
        for b in (0, 1):
            try:
                y = r[b].plus(hash_to_curve(session, _number(i, b), r[1 - b].encoded()))
            except ZeroDivisionError:
                raise _foreign(whose) from None
            shared = a.exchange(ECDH(), _public(y.encoded(), whose))
            seeds[b].append(_seed(session, i, b, offer, answer, shared))
    return np.stack([_stack(half) for half in seeds])


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

    return generate_private_key(SECP256R1())


def _point(key: EllipticCurvePublicKey) -> Point:
    numbers = key.public_numbers()
    return Point(numbers.x, numbers.y)


def _public(encoded: bytes, whose: str) -> EllipticCurvePublicKey:
    """Public key of an encoded P-256 point; RunError, which names `whose` it is, if it is none."""
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey

    try:
        return EllipticCurvePublicKey.from_encoded_point(SECP256R1(), encoded)
    except ValueError:
        raise _foreign(whose) from None


def _foreign(whose: str) -> RunError:
    return RunError(f"psi: {whose} sent bytes that are no point of P-256; do not go on with it")


def _number(i: int, b: int) -> bytes:
    return i.to_bytes(4, "little") + bytes([b])


def _seed(session: bytes, i: int, b: int, offer: bytes, answer: bytes, shared: bytes) -> bytes:
    told = b"".join([_DOMAIN, b"seed", session, _number(i, b), offer, answer, shared])
    return hashlib.sha256(told).digest()[:SEED]


def _stack(rows: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)
