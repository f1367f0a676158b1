"""The covert level of coded split learning: dealers of wrong shares or two versions are named.

Owners prove that shares of data and models lie on one polynomial; the server proves this for shares
of each step (docs/active.md, theorem 1). All dealings form a hash chain, which is part of each
upload's label: holders that received two versions have masks that do not fit together. In set-up,
and every `STORY` steps, holders send each other what they received, with the dealer's signature.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np

from securevfl.active.dealing import Form, repetitions
from securevfl.active.dealt import (
    BEFORE,
    PARTS,
    Dealing,
    chained,
    link_of,
    proofs,
    refuse_lie,
    story_of,
)
from securevfl.active.signing import PROTECTED as SIGNED
from securevfl.active.statements import DIGEST, digest
from securevfl.engine import wire
from securevfl.engine.party import SERVER, kept_as
from securevfl.errors import RunError
from securevfl.protocols.base.levels import proved_shares as sharing
from securevfl.protocols.base.levels.signed_uploads import PROTECTED as UPLOADS
from securevfl.protocols.base.levels.signed_uploads import signed_messages
from securevfl.protocols.base.messages import MessageSpec, in_setup
from securevfl.protocols.base.received import refusal
from securevfl.protocols.coded_split.dealing import Dealing as Shares
from securevfl.protocols.coded_split.dealing import from_seed
from securevfl.protocols.coded_split.messages import Label, digest_words, piece_of
from securevfl.protocols.coded_split.parameters import Parameters
from securevfl.verified import Element, Key, Participant, Secret
from securevfl.verified.batched import mixed
from securevfl.verified.trace import received

STORY = 16  # steps after which holders compare what they were dealt; a fork ends within twice that
Parts = tuple[Any, ...]
Step = tuple[int, Element, Parts]

#: Kinds of dealing, and how their payloads are protected at this level.
DEALT = ("train-data", "test-data", "model", "deal", "seed")
PROTECTED: Mapping[str, str | tuple[str, ...]] = {
    **SIGNED,
    **sharing.PROTECTED,
    **dict.fromkeys(DEALT, sharing.PROVED),
    "seed": ("seed", *PARTS),
    "missed": ("public", *("field",) * 3, "real", "real", "keys", "real", "real", "signature"),
    "story": ("public", "real", "signature"),
}


def keep(party: Any, protected: Mapping[str, Any], active: bool, *names: str) -> None:
    """Adapt a party to levels covert and active: protected kinds, and state for checkpoints.

    The state is its signing key and the attributes `names`, with received dealings.
    """
    party.protected = {**protected, **PROTECTED, **(UPLOADS if active else {})}
    own = *kept_as("once", "sworn"), *kept_as("frozen", *names, shares=True)
    (noted,) = kept_as("passing", "named", ahead=True, shares=True)  # digests of random roots
    party.kept = (*(noted if name == noted else name for name in party.kept), *own)


def dealing_of(public: Parameters, dealer: int, kind: str, step: int = 0) -> Dealing:
    """Dealing as all parties know it in advance; `kind` is "step", "model" or "PART-data"."""
    if kind == "step":
        shape = public.batches["train"].coded, public.config.width
    elif kind == "model":
        shape = public.sizes[dealer], public.config.width
    else:
        shape = public.batches[kind.removesuffix("-data")].length, public.sizes[dealer]
    form = Form(public.code, shape, repetitions(public.code), kind == "model")
    return Dealing(form, dealer, kind, step)


def share_with_proof(owner: Any, public: Parameters, kind: str, value: Element) -> None:
    """Share data or a model (lines 1 and 2), each share with its proof."""
    sharing.share_with_proof(owner, dealing_of(public, owner.index, kind), value)


def check_shared(
    holder: Any, public: Parameters, kind: str, received: Mapping[int, Any]
) -> dict[int, Element]:
    """Shares of a kind by owner, after the holder has checked the proof of each."""

    def dealing(n: int, shape: tuple[int, ...]) -> Dealing:
        return dealing_of(public, n, kind)

    return sharing.check_shared(holder, dealing, received, f"coded_split: {kind!r}")


def told_of(public: Parameters, round: int) -> bytes:
    """Public part of a round's label, as bytes."""
    last = public.last_step
    if round <= last:
        return Label("train", round).told(public.batches["train"].draw(round))
    piece = round - last - 1
    return Label("test", last, piece).told(piece_of(public.batches["test"], piece))


def step_proofs(
    server: Any, public: Parameters, number: int, step: Element, shares: Sequence[Element]
) -> tuple[list[Parts], Secret]:
    """Proofs for the shares of a step (line 9), and its digest; equal if it is dealt again."""
    own, code, secret = dealing_of(public, SERVER, "step", number), public.code, server.secret
    K, T, m = code.segments, code.privacy, own.form.repetitions
    b = server.prf(secret, wire.encode(("blind", number)), K + T, m, of=[step])
    drawn = [b[K + t] for t in range(T)]
    blinds = [*drawn, *mixed(Shares(code).matrix, [*(b[k] for k in range(K)), *drawn])]
    labels = [wire.encode(("nonce", number, j)) for j in range(code.parties)]
    nonces = [server.derived_key(secret, label, of=[step]) for label in labels]
    start, before = server.stories[number - server.forgotten - 1]
    return proofs(server, own, server.signs, start, shares, blinds, nonces, before)


def steps_in(
    holder: Participant, public: Parameters, kind: str, round: int, payload: Any
) -> list[Step]:
    """Steps in a "deal", "seed" or "missed" message, proofs unchecked; ProtocolError: malformed."""
    what = f"coded_split: {kind!r} of round {round}"
    columns = 2 + len(PARTS) if kind == "missed" else 1 + len(PARTS)
    if not isinstance(payload, tuple) or len(payload) != columns:
        raise refusal(what, SERVER, "one without a proof", "a share with its proof")
    shape = public.batches["train"].coded, public.config.width
    if kind == "missed":
        first, *lists = payload
        counts = {len(one) if isinstance(one, list) else -1 for one in lists}
        last = public.last_step + 1 - max(counts)
        if type(first) is not int or len(counts) != 1 or not 1 <= first <= last or -1 in counts:
            raise refusal(what, SERVER, "one of another form", "steps in a row, with their proofs")
        rows = list(zip(*lists, strict=True))
    else:
        first, rows = round, [payload]
        if not 1 <= first <= public.last_step:
            raise refusal(what, SERVER, f"step {first}", f"a step up to {public.last_step}")
    found = []
    for i, (share, *parts) in enumerate(rows):
        if kind == "seed" and isinstance(share, Key):
            share = from_seed(holder, share, shape)
        if type(share) is not Element or share.shape != shape:
            raise refusal(what, SERVER, "no share", f"elements of shape {shape}")
        found.append((first + i, share, tuple(parts)))
    return found


def name_of_setup(holder: Any) -> Secret:
    """Name of a set-up, (32,) uint8: digest of the roots of everything dealt in it.

    For a prediction it also contains the label of the models, so that a holder whose model has
    other steps signs no upload under the others' label, and is not accused.
    """
    first, *others = holder.roots
    others += [] if holder.public.trains else [holder.model[3]]
    found: Secret = first.map(_named, *others, shape=(DIGEST,), dtype=np.uint8)
    return found


def _named(*roots: np.ndarray) -> np.ndarray:
    """Digest of all roots."""
    return np.frombuffer(digest("set-up", *(one.tobytes() for one in roots)), np.uint8)


def after(root: Secret, trained: Element) -> Secret:
    """Hash chain of a coded prediction: its set-up `root` and the digest of the run's steps."""
    found: Secret = root.map(_after, trained, shape=(DIGEST,), dtype=np.uint8)
    return found


def _after(root: np.ndarray, trained: np.ndarray) -> np.ndarray:
    """Digest of a set-up's chain and the label of earlier steps."""
    return np.frombuffer(digest("after", root.tobytes(), trained.tobytes()), np.uint8)


def _words(root: np.ndarray, chain: np.ndarray, p: int) -> np.ndarray:
    """Elements, (8,) uint32 or (4,) uint64, for two digests; equal for others by chance 2^-128."""
    size = 4 if p < 2**32 else 8
    raw = hashlib.shake_256(root.tobytes() + chain.tobytes()).digest(8 * (DIGEST // size))
    found = np.frombuffer(raw, "<u8") % np.uint64(p)
    return found.astype(np.uint32 if size == 4 else np.uint64)


def _refuse_other_history(
    chain: np.ndarray,
    before: np.ndarray,
    holder: int,
    step: int,
    run: bytes,
    verifier: bytes,
    *stories: Any,
) -> np.ndarray:
    """Raise RunError if a step's chain `before` is not the holder's `chain`; else empty array.

    LieFoundError, with evidence, if `stories` (those of steps step - 1 and step, each as two
    values, signed with the server's key `verifier`) contradict each other.
    """
    if not np.array_equal(chain, before):
        if stories:
            own = zip((step - 1, step), stories[::2], stories[1::2], strict=True)
            told = [story_of(run, SERVER, "step", t, holder, *one) for t, *one in own]
            refuse_lie(verifier, *told)
        raise RunError(
            f"coded_split: step {step} goes on with other steps than party {holder} was dealt: the "
            "server went back to an older state, or tells two stories. Compare what the others "
            "were dealt (`story`); if it went back, resume the run, and all go back"
        )
    return np.empty(0)


def caught_up(server: Any, holder: Any) -> Element:
    """Label (`History.label`) of a holder after the experimenter gave it the missing steps."""
    history, public = holder.history, holder.public
    for t in range(history.step + 1, server.steps + 1):
        if t not in history.ahead:
            parts = received(server.proofs_of(t)[holder.index], holder.index)
            link = link_of(parts)
            story = link, ()
            history = history.with_step(holder, t, story, parts[BEFORE])
    found: Element = history.label(public)
    return found


@dataclass(frozen=True)
class History:
    """Steps that a holder received from the server, and other holders' statements on them.

    Attributes
    ----------
    root : Secret
        The chain of the set-up.
    chain : Secret
        The chain of the server's steps up to `step`.
    newest : tuple
        Received statement on the step `step`.
    ahead : dict of int to (Secret, Secret, tuple)
        For later steps: digest, the chain that each continues, and the statement.
    own : dict of int to tuple
        Newest statements, by step, that holders compare.
    agreed : dict of int to tuple of int
        By such a step, the holders that sent an equal statement.
    early : tuple of (int, int, tuple)
        Others' statements that arrived before the holder's own: sender, step, statement.
    name : Secret
        Unique public name of the set-up, from its roots.
    """

    root: Secret
    chain: Secret
    step: int = 0
    newest: tuple[Any, ...] = ()
    ahead: Mapping[int, tuple[Secret, Secret, tuple[Any, ...]]] = field(default_factory=dict)
    own: Mapping[int, Any] = field(default_factory=dict)
    agreed: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    early: tuple[Any, ...] = ()
    name: Any = None

    def kept(self) -> tuple[Any, ...]:
        """Values of all fields, for a checkpoint."""
        return tuple(getattr(self, one.name) for one in fields(self))

    def with_step(self, holder: Any, number: int, told: tuple[Secret, Any], before: Secret) -> Self:
        """The history extended by a received step: `told` is (digest, statement).

        `before` is the chain that the step continues, as the server says.
        """
        ahead = {**self.ahead, number: (*told[:1], before, told[1])}
        chain, step, newest, last = self.chain, self.step, self.newest, holder.last_step
        while step + 1 in ahead:
            step += 1
            link, goes_on, story = ahead.pop(step)
            both = (*newest, *story) if newest and story else ()
            signs = holder.signs
            about = holder.index, step, signs.run, signs.verifiers[SERVER]
            chain.map(_refuse_other_history, goes_on, *about, *both, shape=(0,))
            chain, newest = chained(chain, link), story
            if step + 1 in holder.answered:  # before a crash, and with these steps or not
                after = replace(self, chain=chain).label(holder.public)
                holder.refuse_other_steps(step + 1, after)
        own = dict(self.own)
        if is_compared(number, last):
            own = {n: one for n, one in own.items() if n > number - 3 * STORY} | {number: told[1]}
        return replace(self, chain=chain, step=step, newest=newest, ahead=ahead, own=own)

    def label(self, public: Parameters) -> Element:
        """Digest of set-up and steps, which is part of mask labels."""
        words = digest_words(public.field)
        found: Element = self.root.map(
            _words, self.chain, public.field.modulus, shape=(words,), field=public.field
        )
        return found

    def due(self, last: int) -> int:
        """Step to compare before the next upload, in a run of `last` steps; 0 for none."""
        return last if self.step == last else max(0, self.step // STORY - 1) * STORY

    def is_confirmed(self, public: Parameters, last: int) -> bool:
        """Whether a quorum has sent statements on the due step; `last` is the run's last step."""
        due, code = self.due(last), public.code
        return not due or len(self.agreed.get(due, ())) + 1 >= quorum_of(code.parties, code.privacy)


def quorum_of(parties: int, privacy: int) -> int:
    """Smallest size such that two sets of holders of this size share an honest holder."""
    return (parties + privacy) // 2 + 1


def is_compared(step: int, last: int) -> bool:
    """Whether holders compare their statements on a step, in a run of `last` steps."""
    return step % STORY == 0 or step == last


def covert_messages(public: Parameters, messages: Sequence[MessageSpec]) -> tuple[MessageSpec, ...]:
    """Message declarations for levels covert and active, from those for semi-honest."""
    changed = (*DEALT, "missed", *(UPLOADS if public.active else ()))
    made = [replace(one, shape=None, dtype="") if one.kind in changed else one for one in messages]
    key = MessageSpec("identity", "client", "client", "key", public=True, count=in_setup)
    made += [
        replace(key, sender=one, source="docs/active.md: verifying keys")
        for one in ("client", "server")
    ]
    made += sharing.echo_messages()
    if public.active:
        made += signed_messages(public.prss)
    if public.trains:
        made.append(MessageSpec("story", "client", "client", "key", source="docs/active.md: L1"))
        asked = MessageSpec("untold", "client", "client", "control")
        made.append(asked)
    return tuple(made)
