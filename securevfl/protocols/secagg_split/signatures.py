"""Signatures of round 3: clients sign the survivors named by the server."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from securevfl.engine import wire
from securevfl.errors import RunError


def survivors_statement(
    round: int,
    sharers: Sequence[int],
    survivors: Sequence[int],
    known: Sequence[int],
    key: bytes,
    *verifiers: bytes,
) -> bytes:
    """Bytes of the statement on round, U2 and U3 that a client signs in round 3.

    The clients' verification keys (of `known`, in order) are drawn in set-up and identify the run.
    The signer's pairing key is new in each round and in each incarnation (after each crash), and
    identifies both. The others received it from the signer, so no statement of another run or an
    earlier incarnation is accepted.
    """
    run = list(zip(known, verifiers, strict=True))
    return wire.encode(("securevfl secagg survivors 2", run, round, key, sharers, survivors))


def enough_signed(
    own: bytes,
    client: int,
    threshold: int,
    signers: Sequence[int],
    round: int,
    sharers: Sequence[int],
    survivors: Sequence[int],
    known: Sequence[int],
    *parts: bytes,
) -> np.ndarray:
    """Number of signers with a valid signature of the survivors' statement (round 3), a scalar.

    RunError when fewer than `threshold` are valid.

    Parameters
    ----------
    signers, round, sharers, survivors, known
        Clients that signed, the round, U2, U3, and clients whose verification key is known.
    own : bytes
        Signature of the client itself.
    client, threshold : int
        Number of the client, and threshold t.
    parts : bytes
        Verifying keys of `known`, then pairing keys and signatures of `signers`.
    """
    verifiers, rest = parts[: len(known)], parts[len(known) :]
    keys, signatures = rest[: len(signers)], rest[len(signers) :]
    run = round, sharers, survivors, known
    valid = sum(
        v in known
        and is_valid(
            verifiers[known.index(v)], signature, survivors_statement(*run, key, *verifiers)
        )
        for v, key, signature in zip(signers, keys, signatures, strict=True)
    )
    if valid < threshold:
        raise RunError(
            f"secagg_split: {valid} clients signed the survivors that the server named to "
            f"client {client}, and t = {threshold} must. Nothing was opened"
        )
    return np.array(valid)


def is_valid(verifier: bytes, signature: bytes, statement: bytes) -> bool:
    """Whether a signature (Ed25519) of a statement is by the owner of a verifying key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(verifier).verify(signature, statement)
    except InvalidSignature:
        return False
    return True
