"""Verifiable dealing (`securevfl.active.dealing`) on values that `securevfl.verified` protects.

It proves that a coalition's view of a dealing (shares, blinds, c, root and paths) can be simulated
from T shares of the data, because leaves are PRF outputs of keys that are used once.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.active.dealing import (
    NOTHING,
    Dealt,
    Form,
    Proof,
    challenge,
    checks,
    hash_of,
    hash_of_path,
    label_of,
    name_of,
    off_polynomial,
)
from securevfl.active.judge import BadDealing, LieFoundError, TwoStories, judge
from securevfl.active.signing import Signing
from securevfl.active.statements import (
    DIGEST,
    RUN,
    Statement,
    Subject,
    digest,
    is_signed_by,
    signed,
)
from securevfl.active.tree import paths_of, root_of
from securevfl.errors import RunError
from securevfl.verified.parties import bytes_of
from securevfl.verified.values import Bytes, Element, Key, Secret, public_element, stack

if TYPE_CHECKING:
    from securevfl.verified import Participant

#: Of the parts beside a share, as `Participant.protected` names them.
PARTS = ("field", "field", "real", "real", "seed", "real", "real", "signature")
ROOT, BEFORE = 2, 6  # places of the root and of the chain among them


@dataclass(frozen=True)
class Dealing:
    """One dealing, as dealer and holders know it in advance.

    Attributes
    ----------
    form : Form
        Code, shape of a share, and number of checks.
    dealer, step : int
        Number of the dealing party; round, 0 in set-up.
    kind : str
        Name of the dealt values, such as "model".
    """

    form: Form
    dealer: int
    kind: str
    step: int = 0

    @property
    def name(self) -> str:
        """Name under which the dealing's root determines the checks."""
        return name_of(self.form, self.dealer, self.kind, self.step)

    def label(self, place: int) -> bytes:
        """Label of a holder's Merkle leaf."""
        return label_of(self.form, self.dealer, self.kind, self.step, place)


def proofs(
    dealer: Participant,
    own: Dealing,
    signing: Signing,
    start: Secret,
    shares: Sequence[Element],
    blinds: Sequence[Element],
    nonces: Sequence[Key],
    before: Secret,
) -> tuple[list[tuple[Any, ...]], Secret]:
    """Payload parts (as in `Proof`) for each holder beside its share, and the dealing's digest.

    Parameters
    ----------
    dealer, own : Participant, Dealing
        The dealing party, and its dealing.
    signing : Signing
        Signing keys of the dealer.
    start : Secret (32,) uint8
        Random bytes of the dealer's start.
    shares : sequence of Element (rows, columns)
        Share of each holder.
    blinds : sequence of Element (m,)
        Shares of the blinding columns, which must be used once.
    nonces : sequence of Key
        Keys for the leaves, which must be used once.
    before : Secret (32,) uint8
        Hash chain of the dealer's earlier dealings (`chained`).
    """
    form = own.form
    N, size = form.code.parties, form.code.size
    leaves = [dealer.tag(nonces[j], own.label(j), of=[shares[j], blinds[j]]) for j in range(N)]
    root = leaves[0].map(_root, *leaves[1:], shape=(DIGEST,), dtype=np.uint8)
    rows = challenge(form, dealer.coins(own.name, root, leaves))
    values = stack([checks(form, rows, shares[j]) + blinds[j] for j in range(size)])
    made = []
    for j in range(N):
        siblings = leaves[0].map(_siblings, *leaves[1:], j, **_path_of(N))
        about = own.dealer, own.kind, own.step, j
        said = (*about, start, before, leaves[j], siblings, root, values)
        signature = dealer.sign(signing.own, statement_text, *said, signing.run)
        made.append((blinds[j], values, root, siblings, nonces[j], start, before, signature))
    return made, root.map(_link, values, shape=(DIGEST,), dtype=np.uint8)


def checked(
    holder: Participant,
    own: Dealing,
    place: int,
    signing: Signing,
    share: Element,
    parts: tuple[Any, ...],
) -> tuple[Secret, tuple[Any, ...]]:
    """Digest of a dealing that a holder has checked, and its evidence for other holders.

    Parameters
    ----------
    holder, place : Participant, int
        The holder, and its number j.
    own : Dealing
        The dealing that is checked.
    signing : Signing
        Signing keys of the holder.
    share, parts : Element (rows, columns), tuple
        The holder's share, and the payload parts beside it, which `proofs` made.

    Returns
    -------
    link : Secret (32,) uint8
        Digest H(root, c).
    story : tuple
        Evidence: start, chain, leaf, path, root, H(c) as one Secret, (6, 32) uint8, and the
        signature.

    Raises
    ------
    LieFoundError
        If the dealer signed a dealing that fails the check; with the evidence.
    RunError
        If the dealing is not signed: a dispute of two parties.
    """
    form = own.form
    found = _parts_of(own, place, share, parts)
    blind, values, root, siblings, nonce, start, before, signature = found
    leaf = holder.tag(nonce, own.label(place), of=[share, blind])
    rows = challenge(form, holder.coins(own.name, root))
    mine = checks(form, rows, share) + blind
    about = own.dealer, own.kind, own.step, place
    said = (*about, start, before, leaf, siblings, root, values)
    limbs = holder._limbs(nonce)
    mine.map(
        _refuse, form.encoded(), place, share, blind, limbs, signature,
        signing.verifiers[own.dealer], *said, signing.run, shape=(0,), real=True,
    )  # fmt: skip
    link = root.map(_link, values, shape=(DIGEST,), dtype=np.uint8)
    shown = start.map(_shown, *said[5:], shape=(6, DIGEST), dtype=np.uint8)
    return link, (shown, signature)


def link_of(parts: tuple[Any, ...]) -> Secret:
    """Digest of a dealing, (32,) uint8, from the payload parts beside a share (`PARTS`)."""
    found: Secret = parts[2].map(_link, parts[1], shape=(DIGEST,), dtype=np.uint8)
    return found


def chained(before: Secret, *links: Secret) -> Secret:
    """Hash chain after dealings with these digests, in order, (32,) uint8."""
    if not links:
        return before
    found: Secret = before.map(_chained, *links, shape=(DIGEST,), dtype=np.uint8)
    return found


def compared(
    own: Dealing,
    places: tuple[int, int],
    signing: Signing,
    stories: tuple[tuple[Any, ...], tuple[Any, ...]],
) -> None:
    """Compare the statement that a holder received on a dealing with another holder's.

    Parameters
    ----------
    own : Dealing
        The dealing of both statements.
    places : (int, int)
        The holder, and the sender of the other statement.
    signing : Signing
        Signing keys of the holder.
    stories : (story, story)
        Own and other evidence, as `checked` returns them.

    Raises
    ------
    LieFoundError
        If the dealer signed contradicting statements within one start; with both as evidence.
    RunError
        If the other statement is not signed (a dispute of two parties), or belongs to another
        start, as after the dealer was restored to an older state.
    """
    (mine, signature), other = stories
    formed = isinstance(other, tuple) and len(other) == 2
    if not formed or type(other[0]) is not Secret or type(other[1]) is not Bytes:
        raise _dispute(own.dealer, own.kind, own.step, places, "has another form than a story")
    about = own.dealer, own.kind, own.step, places, signing.run
    key = signing.verifiers[own.dealer]
    mine.map(_compare, *about, signature, *other, key, shape=(0,))


def _parts_of(own: Dealing, place: int, share: Any, parts: Any) -> tuple[Any, ...]:
    form, m = own.form, own.form.repetitions
    wanted: tuple[tuple[type[Any], tuple[int, ...]], ...] = (
        (Element, (m,)),
        (Element, (form.code.size, m)),
        (Secret, (DIGEST,)),
        (Secret, _path_of(form.code.parties)["shape"]),
        (Key, ()),
        (Secret, (DIGEST,)),
        (Secret, (DIGEST,)),
        (Bytes, ()),
    )
    fits = isinstance(parts, tuple) and len(parts) == len(wanted) and share.shape == form.shape
    if not fits or any(
        type(part) is not kind or part.shape != shape
        for part, (kind, shape) in zip(parts, wanted, strict=True)
    ):
        raise RunError(
            f"{own.kind!r} of step {own.step}: what party {place} got of party {own.dealer} has "
            f"another form than a dealing. Dispute of {own.dealer} and {place}: one of both errs"
        )
    return tuple(parts)


def _path_of(parties: int) -> dict[str, Any]:
    from securevfl.active.tree import depth_of

    return {"shape": (depth_of(parties), DIGEST), "dtype": np.uint8}


def _bytes(rows: np.ndarray) -> list[bytes]:
    return [row.tobytes() for row in rows]


#: Root and paths of the newest trees: a dealer asks for one path after the other.
_tree = functools.lru_cache(maxsize=2)(paths_of)


def _root(*leaves: np.ndarray) -> np.ndarray:
    """Root of the Merkle tree with these leaves."""
    return np.frombuffer(_tree(tuple(_bytes(np.stack(leaves))))[0], np.uint8)


def _siblings(*given: Any) -> np.ndarray:
    """Merkle path of the leaf whose number is the last argument."""
    *leaves, place = given
    path = _tree(tuple(_bytes(np.stack(leaves))))[1][place]
    return np.frombuffer(b"".join(path), np.uint8).reshape(len(path), DIGEST)


def _link(root: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Digest H(root, c) of a dealing."""
    return np.frombuffer(digest("dealt", root.tobytes(), hash_of(values)), np.uint8)


def _shown(
    start: np.ndarray,
    before: np.ndarray,
    leaf: np.ndarray,
    siblings: np.ndarray,
    root: np.ndarray,
    values: np.ndarray,
) -> np.ndarray:
    """Statement without its subject, (6, 32) uint8: start, chain, leaf, path digest, root, H(c)."""
    rest = hash_of_path(_bytes(siblings)), root.tobytes(), hash_of(values)
    whole = b"".join((start.tobytes(), before.tobytes(), leaf.tobytes(), *rest))
    return np.frombuffer(whole, np.uint8).reshape(6, DIGEST)


def no_chain(party: Participant) -> Secret:
    """Hash chain before the first dealing, which all parties know."""
    zero = public_element(np.zeros(1, party.field.dtype), party.field, party.world)
    found: Secret = zero.map(_nothing, shape=(DIGEST,), real=True, dtype=np.uint8)
    return found


def _nothing(zero: np.ndarray) -> np.ndarray:
    """Hash chain before the first dealing."""
    return np.frombuffer(NOTHING, np.uint8)


def _chained(before: np.ndarray, *links: np.ndarray) -> np.ndarray:
    """Hash chain extended by these dealings' digests."""
    found = before.tobytes()
    for link in links:
        found = digest("chain", found, link.tobytes())
    return np.frombuffer(found, np.uint8)


def _compare(
    mine: np.ndarray,
    dealer: int,
    kind: str,
    step: int,
    places: tuple[int, int],
    run: bytes,
    signature: bytes,
    other: np.ndarray,
    other_signature: bytes,
    verifier: bytes,
) -> np.ndarray:
    """Empty array, for `Secret.map`; LieFoundError or RunError as in `compared`."""
    if other.shape != (6, DIGEST) or other.dtype != np.uint8:
        raise _dispute(dealer, kind, step, places, "has another form than a story")
    shown = zip(places, (mine, other), (signature, other_signature), strict=True)
    statements = [story_of(run, dealer, kind, step, *one) for one in shown]
    if not statements[1].is_valid({dealer: verifier}):
        keys = run == RUN  # which nobody else vouches for
        raise _dispute(dealer, kind, step, places, "lacks the dealer's signature", keys)
    if (mine[[1, 4, 5]] == other[[1, 4, 5]]).all():  # chain, root, H(c): one story
        return np.empty(0)
    refuse_lie(verifier, *statements)
    raise RunError(
        f"{kind!r} of step {step}: party {dealer} told parties {places[0]} and {places[1]} two "
        "stories, in two starts: it was put back to an older state, or it lies, and nobody can "
        "tell which. Start the run again"
    )


def story_of(
    run: bytes, dealer: int, kind: str, step: int, place: int, rows: np.ndarray, signature: bytes
) -> Statement:
    """Statement on a dealing that holder `place` shows; `rows`, signature as from `checked`."""
    start, before, leaf, path, root, hashed = _bytes(rows)
    content = Dealt(place, leaf, path, root, hashed, before).encoded()
    return Statement(Subject(run, 0, start, dealer, kind, step), content, signature)


def refuse_lie(verifier: bytes, one: Statement, other: Statement) -> None:
    """Raise LieFoundError if statements `one` and `other` show that their signer is guilty.

    `verifier` is the signer's public key, 32 bytes.
    """
    evidence = TwoStories(one, other)
    found = judge(evidence, {one.subject.signer: verifier})
    if found is not None:
        raise LieFoundError(found.party, found.why, evidence)


def _dispute(
    dealer: int, kind: str, step: int, places: tuple[int, int], why: str, keys: bool = False
) -> RunError:
    """Error for a dispute of two holders, why; with `keys` the dealer may have sent two keys."""
    return RunError(
        f"{kind!r} of step {step}: what party {places[1]} says that party {dealer} dealt it {why}. "
        f"Dispute of {places[0]} and {places[1]}: one of both errs"
        f"{f', or {dealer} gave them two keys' if keys else ''}"
    )


def statement_text(
    dealer: int,
    kind: str,
    step: int,
    place: int,
    start: np.ndarray,
    before: np.ndarray,
    leaf: np.ndarray,
    siblings: np.ndarray,
    root: np.ndarray,
    values: np.ndarray,
    run: bytes,
) -> bytes:
    """Bytes that a dealer signs for a holder."""
    content = _content(place, before, leaf, siblings, root, values).encoded()
    return signed(Subject(run, 0, start.tobytes(), dealer, kind, step), content)


def _content(
    place: int,
    before: np.ndarray,
    leaf: np.ndarray,
    siblings: np.ndarray,
    root: np.ndarray,
    values: np.ndarray,
) -> Dealt:
    path = hash_of_path(_bytes(siblings))
    return Dealt(place, leaf.tobytes(), path, root.tobytes(), hash_of(values), before.tobytes())


def _refuse(
    mine: np.ndarray,
    encoded: bytes,
    place: int,
    share: np.ndarray,
    blind: np.ndarray,
    limbs: np.ndarray,
    signature: bytes,
    verifier: bytes,
    *said: Any,
) -> np.ndarray:
    """Empty array, for `Secret.map`; RunError if unsigned, LieFoundError if signed and wrong."""
    dealer, kind, step, _, start, *own, run = said
    leaf, siblings, root, values = own[1:]
    if not is_signed_by(verifier, signature, statement_text(*said)):
        raise RunError(
            f"{kind!r} of step {step}: what party {place} got of party {dealer} lacks its "
            f"signature, and counts as not received. Dispute of {dealer} and {place}: one of both "
            "errs, and nobody can tell which"
        )
    form = Form.read(encoded)
    path = tuple(_bytes(siblings))
    why = off_polynomial(form, place, mine, values)
    if root_of(leaf.tobytes(), place, path, form.code.parties) != root.tobytes():
        why = "the share is not under the root that was signed"
    if not why:
        return np.empty(0)
    subject = Subject(run, 0, start.tobytes(), dealer, kind, step)
    content = _content(place, *own)
    nonce = bytes_of(limbs, form.code.field)
    assert nonce is not None
    statement = Statement(subject, content.encoded(), signature)
    evidence = BadDealing(form, place, share, Proof(blind, values, path, nonce, statement))
    raise LieFoundError(dealer, f"{kind!r} of step {step} to party {place}: {why}", evidence)
