"""Tags of keys that several parties hold: the dealer signs the same list of tags for each.

The tags are PRF outputs of the keys under a separate label. A holder recomputes the tags of its own
keys, and holders compare what they received as for dealings (`securevfl.active.dealt`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.active.dealing import NOTHING, hash_of, hash_of_path
from securevfl.active.dealt import Dealing, statement_text
from securevfl.active.signing import Signing
from securevfl.active.statements import DIGEST, digest, is_signed_by
from securevfl.errors import RunError
from securevfl.verified.values import Bytes, Secret

if TYPE_CHECKING:
    from securevfl.verified import Participant

PARTS = ("real", "real", "signature")  # as `Participant.protected` names them
_ZERO, _NO_PATH = np.frombuffer(NOTHING, np.uint8), np.empty((0, DIGEST), np.uint8)


def signed_tags(
    dealer: Participant,
    own: Dealing,
    signing: Signing,
    start: Secret,
    tags: Sequence[Secret],
) -> list[tuple[Any, ...]]:
    """Payload parts for each holder (`PARTS`): `tags` stacked, the start, and the signature."""
    about = own.dealer, own.kind
    every = tags[0].map(_stacked, *tags[1:], shape=(len(tags), DIGEST), dtype=np.uint8)
    return [
        (every, start, dealer.sign(signing.own, _text, *about, j, start, every, signing.run))
        for j in range(own.form.code.parties)
    ]


def checked_tags(
    holder: Participant,
    own: Dealing,
    signing: Signing,
    count: int,
    mine: Mapping[int, Secret],
    parts: Any,
) -> tuple[Secret, tuple[Any, ...]]:
    """Digest of tags that a holder has checked, and its evidence for other holders.

    Parameters
    ----------
    holder, own : Participant, Dealing
        The holder, and the dealing of the keys.
    signing : Signing
        Signing keys of the holder.
    count : int
        Number of keys that the dealer draws.
    mine : mapping of int to Secret
        Tags of the keys that the holder has, by index.
    parts : tuple
        Payload parts beside the keys, which `signed_tags` made.

    Raises
    ------
    RunError
        If tags are not signed, or do not match the keys: a dispute of two parties, because keys
        themselves are not signed.
    """
    wanted = ((Secret, (count, DIGEST)), (Secret, (DIGEST,)), (Bytes, ()))
    if not isinstance(parts, tuple) or [(type(x), getattr(x, "shape", None)) for x in parts] != [
        *wanted
    ]:
        raise _dispute(own.dealer, own.kind, holder.index, "have another form")
    every, start, signature = parts
    about = own.dealer, own.kind, holder.index, signing.run, tuple(mine)
    verifier = signing.verifiers[own.dealer]
    every.map(_refuse, *about, start, signature, verifier, *mine.values(), shape=(0,))
    link = every.map(_link, shape=(DIGEST,))
    return link, (start.map(_shown, every, shape=(6, DIGEST)), signature)


def _stacked(*tags: np.ndarray) -> np.ndarray:
    """All tags in one array, (keys, 32)."""
    return np.stack(tags)


def _text(
    dealer: int, kind: str, place: int, start: np.ndarray, every: np.ndarray, run: bytes
) -> bytes:
    """Signed bytes of a dealing without leaf, path and root; its values c are tags (`every`)."""
    said = start, _ZERO, _ZERO, _NO_PATH, _ZERO, every
    return statement_text(dealer, kind, 0, place, *said, run)


def _link(every: np.ndarray) -> np.ndarray:
    """Digest of the tags for the hash chain."""
    return np.frombuffer(digest("tags", every.tobytes()), np.uint8)


def _shown(start: np.ndarray, every: np.ndarray) -> np.ndarray:
    """Statement on tags without its subject, in the form of a dealing's."""
    parts = start.tobytes(), NOTHING, NOTHING, hash_of_path(()), NOTHING, hash_of(every)
    return np.frombuffer(b"".join(parts), np.uint8).reshape(6, DIGEST)


def _refuse(
    every: np.ndarray,
    dealer: int,
    kind: str,
    place: int,
    run: bytes,
    numbers: tuple[int, ...],
    start: np.ndarray,
    signature: bytes,
    verifier: bytes,
    *mine: np.ndarray,
) -> np.ndarray:
    """Empty array, for `Secret.map`; RunError unless `every` is signed and equals `mine`."""
    if not is_signed_by(verifier, signature, _text(dealer, kind, place, start, every, run)):
        raise _dispute(dealer, kind, place, "lack its signature")
    if any((every[n] != own).any() for n, own in zip(numbers, mine, strict=True)):
        raise _dispute(dealer, kind, place, "are not those of the keys that it sent")
    return np.empty(0, np.uint8)


def _dispute(dealer: int, kind: str, place: int, why: str) -> RunError:
    return RunError(
        f"{kind!r}: the tags that party {place} got of party {dealer} {why}. Dispute of {dealer} "
        f"and {place}: one of both errs, and nobody can tell which"
    )
