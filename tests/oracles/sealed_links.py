"""Sealed links: what an outsider on them could do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.engine.carriers.session import Session
from securevfl.engine.security.sealing import Sealer, Sealing
from securevfl.engine.streams import SecretSeed
from securevfl.privacy.adversary import OUTSIDER
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.messages import SELF, MessageKey
from securevfl.protocols.base.protocol import Protocol
from tests.oracles.frames import (
    LENGTHS,
    keys_not_fresh,
    packed_otherwise,
    restored_simulations,
    sealed_otherwise,
    unverified_hellos,
)
from tests.oracles.hosted_runs import weak_keys
from tests.oracles.powers import FRAMES, link_faults
from tests.oracles.sealed_runs import SealedRun, run_sealed, talk_sealed
from tests.oracles.traffic import Envelopes, traffic_of, with_other_data

# That of 2^17 pieces of keystream, of 128 bits, two are equal, or a wrong tag is taken for right.
_CHANCE = 2.0**-94


class SealedLinks:
    """Looks for payloads and keystreams in sealed frames; changes, repeats, readdresses frames.

    Frames of the sealer, of the simulation and between processes are computed anew, and a run is
    made of which each message must open by the keys of its ends.
    """

    name = "sealed links"

    def applies(self, claim: Claim, protocol: Protocol) -> bool:
        """Computational claims against an outsider, whatever the protocol."""
        return claim.against == OUTSIDER and claim.strength == "computational"

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """Faults of the links that runs use; the proof is that of their cipher."""
        faults = subject.shared("link faults", lambda: list(_faults(subject)))
        run = subject.shared("sealed run", lambda: _sealed(subject))
        for fault in (*faults, *run.faults[:1]):
            yield Evidence(self.name, "accuses", fault, "test", 0.0)
        for text in subject.shared("envelopes", lambda: list(_told_by_envelopes(subject))):
            yield Evidence(self.name, "silent", text, "gap")
        if not faults and not run.faults:
            text = (
                "the payload is not in the wire bytes; a frame with a flipped bit, cut or "
                "lengthened, is refused, as is one that comes twice, under another kind, round or "
                "epoch, in another run, on another link, or back at its sender; no keystream is "
                f"used twice in {FRAMES} frames each way, with a third party, under a new key or "
                "in another run; a restored state seals nothing; a party that comes back opens "
                "under its new key alone, and no key that it had is taken again; private keys,"
                f" those of hosts too, are of 32 fresh bytes; frames of {LENGTHS[0]} to "
                f"{LENGTHS[-1]} bytes of each kind, sealed by a party and in a simulation, are "
                "byte by byte what is documented, and so are those within the datagrams of "
                f"processes, by other code; {run.messages} messages of a run"
                f"{' that was resumed' if run.resumed else ''} open by the keys of their ends, and "
                "no counter came twice"
            )
            yield Evidence(self.name, "supports", text, "test", None, _CHANCE)


def _faults(subject: Subject) -> Iterator[str]:
    """Faults of the links that all protocols have, with this one's kinds of messages."""
    protocol = subject.protocol
    own = {spec.kind for spec in protocol.messages if spec.receiver != SELF}
    kinds = sorted(own) or ["model"]
    yield from link_faults(Sealer)
    yield from sealed_otherwise(Sealer, protocol.name, kinds)
    yield from keys_not_fresh(Sealer)
    yield from restored_simulations(Sealing)
    yield from packed_otherwise(protocol.name, kinds, Session)
    yield from unverified_hellos(Session)[:1]
    yield from talk_sealed(protocol.name, kinds).faults[:1]
    yield from weak_keys(subject.instance())[:1]


def _sealed(subject: Subject) -> SealedRun:
    """A run with sealed links, and its second life."""
    subject.progress("a run with sealed links")
    return run_sealed(subject.instance())


def _told_by_envelopes(subject: Subject) -> Iterator[str]:
    """Sizes, numbers and times of messages that are other ones where columns or labels are.

    An outsider sees all of them. Kinds whose sizes are chance, as those of ciphertexts, are left
    out, and so are times where they differ between runs with equal inputs.
    """
    made = subject.instance()
    one, data, again = traffic_of(made), made.data, None
    stream = np.random.Generator(np.random.Philox(subject.seed + 13))
    columns = {n: (own * stream.random()).astype(own.dtype) for n, own in enumerate(data.train)}
    other_ones: dict[str, Any] = {"columns": columns, "secrets": SecretSeed(subject.seed + 13)}
    changes: dict[str, dict[str, Any]] = {"columns or networks": other_ones}
    if data.train_labels is not None:
        changes["labels"] = {"labels": stream.permutation(data.train_labels)}
    for what, changed in changes.items():
        other = traffic_of(with_other_data(made, **changed))
        if one == other:
            continue
        again = again or traffic_of(subject.instance())
        chance = {each.kind for each in _unlike(_sizes, one, again)}
        telling = [key for key in _unlike(_sizes, one, other) if key.kind not in chance]
        if telling:
            key = telling[0]
            yield f"the size of {key.kind!r} depends on {what}, in round {key.round}"
        elif _times(one) == _times(again) and _times(one) != _times(other):
            first = next(_unlike(_times, one, other), None)  # none where one has more messages
            where = "" if first is None else f": first {first.kind!r}, in round {first.round}"
            yield f"number or times of messages depend on {what}{where}"


def _unlike(
    by: Callable[[Envelopes], dict[MessageKey, list[Any]]], one: Envelopes, other: Envelopes
) -> Iterator[MessageKey]:
    """Messages of both that have another number of bytes, or other times."""
    ours, theirs = by(one), by(other)
    yield from (key for key, found in ours.items() if theirs.get(key, found) != found)


def _sizes(traffic: Envelopes) -> dict[MessageKey, list[int]]:
    found: dict[MessageKey, list[int]] = {}
    for *key, size, _, _ in traffic:
        found.setdefault(MessageKey(*key), []).append(size)
    return found


def _times(traffic: Envelopes) -> dict[MessageKey, list[tuple[int, int]]]:
    found: dict[MessageKey, list[tuple[int, int]]] = {}
    for *key, _, sent, arrived in traffic:
        found.setdefault(MessageKey(*key), []).append((sent, arrived))
    return found
