"""Signatures of round 3: clients sign the survivors that the server names to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from securevfl.engine import wire


def signing_key(secret: bytes) -> Any:
    """Ed25519 key object of a secret key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(secret)


def verifying_key(secret: bytes) -> bytes:
    """Public key that belongs to a secret key."""
    raw: bytes = signing_key(secret).public_key().public_bytes_raw()
    return raw


def survivors_statement(
    verifiers: Mapping[int, bytes],
    round: int,
    sharers: Sequence[int],
    survivors: Sequence[int],
    key: bytes,
) -> bytes:
    """Statement that a client signs in round 3.

    The clients' verifying keys are drawn in setup and stand for the run. The signer's pairing key
    is drawn in each round, anew in each incarnation (after each crash) of the signer, and stands
    for both. The others have it from the signer itself, so no statement of another run or of an
    earlier incarnation is accepted.
    """
    run = sorted(verifiers.items())
    return wire.encode(("securevfl secagg survivors 2", run, round, key, sharers, survivors))


def valid_signers(
    statements: Mapping[int, bytes],
    signatures: Mapping[int, bytes],
    verifiers: Mapping[int, bytes],
) -> Iterator[int]:
    """Clients whose signature of their own statement is valid."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    for v, signature in signatures.items():
        try:
            Ed25519PublicKey.from_public_bytes(verifiers[v]).verify(signature, statements[v])
        except (InvalidSignature, KeyError):
            continue
        yield v
