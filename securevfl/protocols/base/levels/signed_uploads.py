"""Uploads at security level active: signed with a label, and mask keys that holders compare.

An upload can be wrong only by its sender's fault if everything else in it is the same for all
holders: shares and steps, by the label, and the mask's keys, by their tags. A label consists of
public values, a name and a hash chain, such as those of a set-up and of all earlier steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from securevfl.active.dealing import Form
from securevfl.active.dealt import Dealing
from securevfl.active.signing import new_start
from securevfl.active.statements import DIGEST, ApartError, is_signed_by
from securevfl.active.tags import PARTS, checked_tags, signed_tags
from securevfl.active.uploads import (
    are_named,
    encoded,
    label_of,
    text_of,
)
from securevfl.engine import wire
from securevfl.errors import CorruptResultsError
from securevfl.field.lagrange_code import LagrangeCode
from securevfl.field.prss import Prss
from securevfl.protocols.base.decoding import decode_results
from securevfl.protocols.base.messages import MessageKey, MessageSpec, in_setup
from securevfl.verified import Element, Secret
from securevfl.verified.values import Bytes

Signed = tuple[Secret, Element, Bytes]  # the name of the set-up, the upload, the signature
TAGS = "key-tags"
#: Protected values of what this level adds.
PROTECTED: Mapping[str, tuple[str, ...]] = {
    TAGS: PARTS,
    "embedding": ("real", "field", "signature"),
}


def undetected(code: LagrangeCode, waited: int, who: str) -> str:
    """Warning if T parties together can upload wrong values unnoticed; else "".

    Parameters
    ----------
    code : LagrangeCode
        Code of the uploads.
    waited : int
        Number of uploads that the server waits for.
    who : str
        Plural word for the parties, such as "clients", for the text.
    """
    T, R = code.privacy, recovery_of(code)
    more = waited - R
    if more >= T:
        return ""
    return (
        f"security = active: with N = {code.parties} holders and R = {R}, "
        f"{more + 1} holders that upload wrong values together move the sums unnoticed. Use "
        f"{T - more} {who} more to detect T = {T}, or {2 * T - more} and tolerate_corrupt = {T} "
        "to correct and name them"
    )


def signed_messages(prss: Prss) -> tuple[MessageSpec, ...]:
    """Message declarations that level active adds: verifying keys, and tags of mask keys."""

    def tagged(key: MessageKey) -> int:
        return int(key.round == 0 and bool(prss.dealt(key.sender)))

    key = MessageSpec("identity", "client", "server", "key", public=True, count=in_setup)
    return (
        replace(key, source="docs/active.md: verifying keys"),
        MessageSpec(TAGS, "client", "client", "key", count=tagged),
    )


def recovery_of(code: LagrangeCode) -> int:
    """Recovery threshold R of the code of uploads."""
    return code.recovery_threshold(code.degree)


async def compare_keys(holder: Any, code: LagrangeCode, prss: Prss, known: Any) -> None:
    """Sign and send tags (hashes) of the mask keys drawn; check the tags of those received.

    Parameters
    ----------
    holder, code, prss : Participant, LagrangeCode, Prss
        The holder, the code of the uploads, and the holders of each key.
    known : Element or Secret
        Value that all parties have before the first step: the protected part of the tags' labels.
    """

    def tags(keys: Sequence[int]) -> list[Secret]:
        # A label of a mask has a protected part, so these have one, too.
        own = [(holder.keys[n], wire.encode(("tag of a key", n))) for n in keys]
        return [holder.tag(*one, of=[known]) for one in own]

    if drawn := prss.dealt(holder.index):
        own, start = _keys_of(code, holder.index), new_start(holder)
        holder.share(TAGS, signed_tags(holder, own, holder.signs, start, tags(drawn)))
    dealers = [i for i in holder.peers if prss.dealt(i)]
    for i, parts in (await holder.collect(TAGS, senders=dealers)).items():
        held = [n for n in prss.dealt(i) if n in holder.keys]
        mine = dict(zip(map(prss.dealt(i).index, held), tags(held), strict=True))
        own = _keys_of(code, i)
        told = checked_tags(holder, own, holder.signs, len(prss.dealt(i)), mine, parts)
        holder.dealings = (*holder.dealings, (own, *told))


def _keys_of(code: LagrangeCode, dealer: int) -> Dealing:
    return Dealing(Form(code, (0, 0), 0), dealer, "keys of masks")


def signed_upload(
    holder: Any, code: LagrangeCode, told: bytes, label: tuple[Secret, Secret], upload: Element
) -> Signed:
    """(Name, upload, signature of both, chain and `told`); the label is (name, chain)."""
    signs, (name, chain) = holder.signs, label
    said = holder.index, encoded(code), told, name, chain, upload, signs.run
    return name, upload, holder.sign(signs.own, upload_text, *said)


def upload_text(
    party: int,
    code: bytes,
    told: bytes,
    name: np.ndarray,
    chain: np.ndarray,
    upload: np.ndarray,
    run: bytes,
) -> bytes:
    """Bytes that a holder signs for an upload, with its label: code, `told`, name and chain."""
    label = label_of(code, told, name.tobytes(), chain.tobytes())
    return text_of(run, label, party, upload)


def decode_signed(
    server: Any,
    code: LagrangeCode,
    told: bytes,
    chain: Secret,
    uploads: Mapping[int, Any],
    shape: tuple[int, int],
) -> Element:
    """Decoded U_1 to U_K, (K, |B|, h), from signed uploads; wrong ones are corrected and stored.

    Parameters
    ----------
    server : Participant
        Server with `caught`, a tuple of the wrong uploads found, and `apart`, the set of parties
        that ever sent an upload without signature or under another label than most.
    code : LagrangeCode
        Code of the uploads.
    told : bytes
        The public part of the label.
    chain : Secret (32,) uint8
        Hash chain of the server.
    uploads : mapping of int to tuple
        Received payloads by party: name in the label, upload, signature.
    shape : (int, int)
        |B|, h.

    Raises
    ------
    CorruptResultsError
        If there are more wrong uploads than can be attributed correctly.
    NotEnoughResultsError
        If fewer than R uploads are signed and have the right form.
    """
    form = [(Secret, (DIGEST,)), (Element, shape), (Bytes, ())]
    formed = {
        j: one
        for j, one in uploads.items()
        if isinstance(one, tuple) and [(type(x), getattr(x, "shape", None)) for x in one] == form
    }
    apart: set[int] = set(uploads) - set(formed)
    try:
        _check_signed(server, code, told, chain, formed)
    except ApartError as found:
        apart.update(found.parties)
    server.apart |= apart
    for j in sorted(apart):
        why = "its upload is not signed, or under another label than most, and does not count"
        server.record("refused", party=j, why=why)
    good = {j: one[1] for j, one in formed.items() if j not in apart}
    how: dict[str, Any] = {"degree": code.degree, "corrected": True}
    n, T = len(good), code.privacy
    try:
        sums, wrong = decode_results(server, code, good, shape, **how)
        named = not wrong or are_named(len(wrong), n, code)
    except CorruptResultsError:
        named = False
    if not named:
        raise CorruptResultsError(
            f"round {server.round}: {n} uploads disagree, and whose are wrong nobody "
            f"can tell: with R = {recovery_of(code)} and T = {T} liars that takes T + d <= n - R "
            f"for d wrong ones. Use tolerate_corrupt = {T}"
        )
    if wrong:
        why = f"uploads of {wrong} are wrong, under their signatures"
        server.record("corrected", clients=wrong, why=why)
        known = {j for found, *_ in server.caught for j in found}
        if {*wrong} - known:
            kept = {j: formed[j][1:] for j in good}
            label = formed[wrong[0]][0], chain
            server.caught = (*server.caught, (wrong, told, label, kept, server.signs.run))
    return sums


def _check_signed(
    server: Any, code: LagrangeCode, told: bytes, chain: Secret, formed: Mapping[int, Any]
) -> None:
    """Raise ApartError for uploads without valid signature, or of another label than most."""
    if not formed:
        return
    names, values, signatures = zip(*formed.values(), strict=True)
    signs = server.signs
    about = encoded(code), told, signs.run, tuple(formed)
    rest = *names, *values, *signatures, *(signs.verifiers[j] for j in formed)
    chain.map(_apart, *about, *rest, shape=(0,))


def _apart(
    chain: np.ndarray, code: bytes, told: bytes, run: bytes, parties: tuple[int, ...], *rest: Any
) -> np.ndarray:
    """ApartError for parties whose uploads do not count; an empty array if all count."""
    n, labels = len(parties), {}
    columns = (rest[i * n : (i + 1) * n] for i in range(4))
    for j, own, upload, signature, verifier in zip(parties, *columns, strict=True):
        text = upload_text(j, code, told, own, chain, upload, run)
        if is_signed_by(verifier, signature, text):
            labels[j] = own.tobytes()
    most = Counter(labels.values()).most_common(1)
    apart = [j for j in parties if not most or labels.get(j) != most[0][0]]
    if apart:
        raise ApartError(apart)
    return np.empty(0, np.uint8)
