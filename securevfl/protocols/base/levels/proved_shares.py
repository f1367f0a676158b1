"""Shares with proofs in set-up, and comparison of everything dealt in set-up.

A party that deals and receives proved shares has `signs` (`securevfl.active.signing.signing_of`)
and two tuples: `dealings`, with form, digest and signed statement of each dealing, and `roots`,
with the root of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from securevfl.active.dealt import (
    PARTS,
    ROOT,
    Dealing,
    chained,
    checked,
    compared,
    no_chain,
    proofs,
)
from securevfl.active.signing import new_start
from securevfl.active.statements import DIGEST, ApartError, digest, refuse_apart
from securevfl.errors import RunError
from securevfl.protocols.base.messages import MessageSpec, in_setup
from securevfl.protocols.base.received import refusal
from securevfl.verified import Element, Secret
from securevfl.verified.batched import encoded, encoded_constant

_PATIENCE = 600.0  # seconds to wait for what others were dealt, where it is not the same
#: Protected values of what is shared with a proof, and of the two kinds of message of `echo`.
PROVED = ("field", *PARTS)
PROTECTED: Mapping[str, str | tuple[str, ...]] = {
    "echo": "real",
    "echoed": ("real", "signature"),
}


def share_with_proof(
    owner: Any, own: Dealing, value: Element, start: Secret | None = None, beside: Any = ()
) -> Element:
    """Share K segments of an array, or a model, with a proof for each share.

    Returns the check values c of the proofs, (K + T, m), where m is the number of checks.

    Parameters
    ----------
    owner : Participant
        Party that shares.
    own : Dealing
        Dealing, with its dealer, kind, step and form.
    value : Element
        (K, rows, columns); a model (rows, columns).
    start : Secret (32,) uint8, optional
        Random bytes that name this start of the owner (`new_start`); new ones by default.
    beside : tuple
        Payload parts after the proof of each share.
    """
    form, code, kind = own.form, own.form.code, own.kind
    m = form.repetitions
    if form.constant:
        dealt = encoded_constant(owner, code, value)
        hiding = encoded_constant(owner, code, owner.uniform(m, name="b"))
    else:
        dealt = encoded(owner, code, value, apart=True)
        hiding = encoded(owner, code, owner.uniform(code.segments, m, name="b"))
    shares, blinds = ([one[j] for j in range(code.parties)] for one in (dealt, hiding))
    nonces = [owner.key(f"nonce {kind} {j}.") for j in range(code.parties)]
    start, before = new_start(owner) if start is None else start, no_chain(owner)
    made, _ = proofs(owner, own, owner.signs, start, shares, blinds, nonces, before)
    whole = [(share, *parts, *beside) for share, parts in zip(shares, made, strict=True)]
    owner.share(kind, whole)
    values: Element = made[0][1]
    return values


def check_shared(
    holder: Any,
    dealing_of: Callable[[int, tuple[int, ...]], Dealing],
    received: Mapping[int, Any],
    what: str,
) -> dict[int, Element]:
    """Shares of a kind by owner, after the holder has checked the proof of each.

    Parameters
    ----------
    holder : Participant
        Party that received the shares.
    dealing_of : callable
        Function from an owner and the shape of its share to the dealing.
    received : mapping of int to tuple
        By owner, its share and the payload parts that prove it.
    what : str
        Name of method and kind, for errors.

    Raises
    ------
    ProtocolError
        For a share without a proof.
    LieFoundError
        If an owner signed a dealing that fails the check; RunError if it is not signed.
    """
    shares = {}
    for n, payload in received.items():
        first = payload[0] if isinstance(payload, tuple) and payload else None
        if type(first) is not Element or len(first.shape) != 2:
            raise refusal(what, n, "one without a proof", "a share with one")
        share, *parts = payload
        shares[n] = share
        own = dealing_of(n, share.shape)
        told = checked(holder, own, holder.index, holder.signs, share, tuple(parts))
        holder.roots = (*holder.roots, tuple(parts)[ROOT])
        holder.dealings = (*holder.dealings, (own, *told))
    return shares


async def echo(holder: Any, method: str) -> Secret:
    """Compare digests of everything dealt in set-up with the other holders.

    Each holder sends all others a digest. Two holders with different digests then send each other
    all statements; both see the difference, so neither needs to ask.

    Returns
    -------
    Secret
        Hash chain of all dealings of the set-up, (32,) uint8, which mask labels contain.

    Raises
    ------
    LieFoundError
        If a dealer signed two contradicting statements.
    RunError
        If another holder sends nothing, or something unsigned: a dispute of two parties.
    """
    own, index = holder.dealings, holder.index
    others = [n for n in holder.peers if n != index]
    shown, signatures = [one[2][0] for one in own], [one[2][1] for one in own]
    said = shown[0].map(_said, *shown[1:], shape=(DIGEST,), dtype=np.uint8)
    holder.broadcast("echo", said, others)
    received = await holder.collect("echo", senders=others)
    for n, one in received.items():
        if type(one) is not Secret:
            raise refusal(f"{method}: 'echo'", n, "another form", "a digest")
    try:
        said.map(refuse_apart, tuple(received), *received.values(), shape=(0,))
    except ApartError as found:
        holder.broadcast("echoed", (shown, signatures), found.parties)
        told = await holder.collect("echoed", senders=found.parties, timeout=_PATIENCE)
        if silent := sorted(set(found.parties) - set(told)):
            raise RunError(
                f"{method}: party {index} was dealt other things in set-up than "
                f"{' and '.join(f'party {n}' for n in silent)}, of which nothing is shown. Dispute "
                f"of {index} and {silent[0]}: one of both errs, or was killed in set-up. Start the "
                "run again"
            ) from None
        for sender, payload in told.items():
            form = [len(one) if isinstance(one, list) else -1 for one in payload]
            if form != [len(own)] * 2:
                raise refusal(
                    f"{method}: 'echoed'", sender, "another form", f"{len(own)} stories"
                ) from None
            for (dealing, _, story), *other in zip(own, *payload, strict=True):
                compared(dealing, (index, sender), holder.signs, (story, tuple(other)))
    return chained(no_chain(holder), *(one[1] for one in own))


def _said(*stories: np.ndarray) -> np.ndarray:
    """Digest of all dealings: the chain, the root and the hash of the check values of each."""
    return np.frombuffer(digest("echo", *(one[[1, 4, 5]].tobytes() for one in stories)), np.uint8)


def echo_messages() -> tuple[MessageSpec, ...]:
    """Declarations of the messages in which holders compare set-ups (`echo`)."""
    return (
        MessageSpec("echo", "client", "client", "key", count=in_setup, source="set-up echo"),
        MessageSpec("echoed", "client", "client", "key", source="set-up echo: where they differ"),
    )
