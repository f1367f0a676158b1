"""Uploads at the level active: signed with their label, and keys of masks that holders compare.

An upload is wrong by its sender's fault alone where all else that makes it is the same for all
holders: shares and steps, by the label's chain, and the keys of its mask, by their tags.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.active.dealing import Form
from securevfl.active.dealt import Dealing
from securevfl.active.signing import new_start
from securevfl.active.statements import DIGEST, is_signed_by
from securevfl.active.tags import checked_tags, signed_tags
from securevfl.active.uploads import (
    Upload,
    WrongUpload,
    are_named,
    encoded,
    label_of,
    text_of,
)
from securevfl.engine import wire
from securevfl.errors import CorruptResultsError, RunError
from securevfl.protocols.base.decoding import decode_results
from securevfl.protocols.coded_split.messages import Label, piece_of
from securevfl.protocols.coded_split.parameters import Parameters
from securevfl.verified import Element, Secret, bare_of
from securevfl.verified.values import Bytes

Signed = tuple[Secret, Element, Bytes]  # the name of the set-up, the upload, the signature
TAGS = "key-tags"


def told_of(public: Parameters, round: int) -> bytes:
    """The public part of the label of a round, in bytes."""
    last = public.last_step
    if round <= last:
        return Label("train", round).told(public.batches["train"].draw(round))
    piece = round - last - 1
    return Label("test", last, piece).told(piece_of(public.batches["test"], piece))


def undetected(public: Parameters) -> str:
    """Warning if T holders can upload wrong values together unnoticed; else ""."""
    T, more = public.code.privacy, public.results_needed - public.threshold
    if more >= T:
        return ""
    return (
        f"security = active: with N = {public.code.parties} holders and R = {public.threshold}, "
        f"{more + 1} holders that upload wrong values together move the sums unnoticed. Use "
        f"{T - more} helpers more to detect T = {T}, or {2 * T - more} and tolerate_corrupt = {T} "
        "to correct and name them"
    )


async def compare_keys(holder: Any, public: Parameters) -> None:
    """Sign tags of the keys that a holder drew; check those of the keys that it was sent."""
    prss = public.prss

    def tags(keys: Sequence[int]) -> list[Secret]:
        # A label of a mask has a protected part, so these have one, too.
        own = [(holder.keys[n], wire.encode(("tag of a key", n))) for n in keys]
        return [holder.tag(*one, of=[holder.no_steps]) for one in own]

    if drawn := prss.dealt(holder.index):
        own, start = _keys_of(public, holder.index), new_start(holder)
        holder.share(TAGS, signed_tags(holder, own, holder.signs, start, tags(drawn)))
    dealers = [i for i in holder.peers if prss.dealt(i)]
    for i, parts in (await holder.collect(TAGS, senders=dealers)).items():
        held = [n for n in prss.dealt(i) if n in holder.keys]
        mine = dict(zip(map(prss.dealt(i).index, held), tags(held), strict=True))
        own = _keys_of(public, i)
        told = checked_tags(holder, own, holder.signs, len(prss.dealt(i)), mine, parts)
        holder.dealings = (*holder.dealings, (own, *told))


def _keys_of(public: Parameters, dealer: int) -> Dealing:
    return Dealing(Form(public.code, (0, 0), 0), dealer, "keys of masks")


def signed_upload(holder: Any, public: Parameters, told: bytes, upload: Element) -> Signed:
    """An upload with the name of its set-up, and the signature of both and of all steps before."""
    signs, known = holder.signs, holder.history
    said = holder.index, encoded(public.code), told, known.name, known.chain, upload, signs.run
    return known.name, upload, holder.sign(signs.own, upload_text, *said)


def upload_text(
    party: int,
    code: bytes,
    told: bytes,
    name: np.ndarray,
    chain: np.ndarray,
    upload: np.ndarray,
    run: bytes,
) -> bytes:
    """Bytes that a holder signs for an upload."""
    label = label_of(code, told, name.tobytes(), chain.tobytes())
    return text_of(run, label, party, upload)


class ApartError(RunError):
    """Uploads that do not count: not signed, or under another label than most.

    Attributes
    ----------
    parties : frozenset of int
    """

    def __init__(self, parties: frozenset[int]) -> None:
        super().__init__(f"uploads of {sorted(parties)} are not signed, or of another label")
        self.parties = parties


def decode_signed(
    server: Any, public: Parameters, uploads: Mapping[int, Any], shape: tuple[int, int]
) -> Element:
    """U_1 to U_K, (K, |B|, h), of signed uploads; wrong ones are corrected, and kept as evidence.

    Raises
    ------
    CorruptResultsError
        Where more are wrong than can be rightly named.
    NotEnoughResultsError
    """
    told = told_of(public, server.round)
    form = [(Secret, (DIGEST,)), (Element, shape), (Bytes, ())]
    formed = {
        j: one
        for j, one in uploads.items()
        if isinstance(one, tuple) and [(type(x), getattr(x, "shape", None)) for x in one] == form
    }
    apart: set[int] = set(uploads) - set(formed)
    try:
        _check_signed(server, told, formed)
    except ApartError as found:
        apart |= found.parties
    for j in sorted(apart):
        why = "its upload is not signed, or under another label than most, and does not count"
        server.record("refused", party=j, why=why)
    good = {j: one[1] for j, one in formed.items() if j not in apart}
    how: dict[str, Any] = {"degree": public.degree, "corrected": True}
    n, T = len(good), public.code.privacy
    try:
        sums, wrong = decode_results(server, public.code, good, shape, **how)
        named = not wrong or are_named(len(wrong), n, public.code)
    except CorruptResultsError:
        named = False
    if not named:
        raise CorruptResultsError(
            f"coded_split: round {server.round}: {n} uploads disagree, and whose are wrong nobody "
            f"can tell: with R = {public.threshold} and T = {T} liars that takes T + d <= n - R "
            f"for d wrong ones. Use tolerate_corrupt = {T}"
        )
    if wrong:
        why = f"uploads of {wrong} are wrong, under their signatures"
        server.record("corrected", clients=wrong, why=why)
        known = {j for found, *_ in server.caught for j in found}
        if {*wrong} - known:
            kept = {j: formed[j][1:] for j in good}
            label = formed[wrong[0]][0], *server.chain
            server.caught = (*server.caught, (wrong, told, label, kept))
    return sums


def _check_signed(server: Any, told: bytes, formed: Mapping[int, Any]) -> None:
    """Refuse uploads that are not signed, or under another label than most."""
    if not formed:
        return
    names, values, signatures = zip(*formed.values(), strict=True)
    signs, (chain,) = server.signs, server.chain
    about = encoded(server.public.code), told, signs.run, tuple(formed)
    rest = *names, *values, *signatures, *(signs.verifiers[j] for j in formed)
    chain.map(_apart, *about, *rest, shape=(0,))


def _apart(
    chain: np.ndarray, code: bytes, told: bytes, run: bytes, parties: tuple[int, ...], *rest: Any
) -> np.ndarray:
    """Nothing, or the error of uploads that do not count."""
    n, labels = len(parties), {}
    columns = (rest[i * n : (i + 1) * n] for i in range(4))
    for j, own, upload, signature, verifier in zip(parties, *columns, strict=True):
        text = upload_text(j, code, told, own, chain, upload, run)
        if is_signed_by(verifier, signature, text):
            labels[j] = own.tobytes()
    most = Counter(labels.values()).most_common(1)
    apart = frozenset(j for j in parties if not most or labels.get(j) != most[0][0])
    if apart:
        raise ApartError(apart)
    return np.empty(0, np.uint8)


def evidence_of(server: Any) -> tuple[WrongUpload, ...]:
    """Evidence against each holder whose wrong upload the server found; the experimenter has it."""
    public, run, made = server.public, server.signs.run, list[WrongUpload]()

    for wrong, told, label, kept in server.caught:
        bare = [(j, bare_of(Y), bare_of(signature)) for j, (Y, signature) in kept.items()]
        uploads = tuple(Upload(*one) for one in bare)
        name, chain = (bare_of(one).tobytes() for one in label)
        made += [WrongUpload(j, public.code, run, told, name, chain, uploads) for j in wrong]
    return tuple(made)
