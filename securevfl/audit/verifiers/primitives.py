"""Computational claims: everything that their reductions suppose but the primitives themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from securevfl.audit import statistical as st
from securevfl.audit.coalitions import coalitions_of
from securevfl.audit.deviations import Declared
from securevfl.audit.randomness import unexplained_keys
from securevfl.audit.recording.recorded_run import RecordedMessage, RecordedRun
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.field import PrimeField
from securevfl.privacy.adversary import OUTSIDER
from securevfl.privacy.claims import Claim
from securevfl.privacy.coalition import Coalition
from securevfl.protocols.base.messages import SELF
from securevfl.protocols.base.protocol import Protocol

_OPEN = ("embedding", "data_share", "model_share")


class Hypotheses:
    """Checks what can be checked of a reduction: keys, masks, thresholds, other messages."""

    name = "hypotheses of the reduction"

    def applies(self, claim: Claim, protocol: Protocol) -> bool:
        """Computational claims, but those of the links."""
        return claim.strength == "computational" and claim.against != OUTSIDER

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """One piece of evidence for each hypothesis; a gap for each that does not hold."""
        subject.progress(self.name)
        stated = dict.fromkeys(
            one for run, _ in subject.runs for one in run.protocol.hypotheses(run)
        )
        for one in stated:
            yield self._evidence(one.holds, one.text)
        if not stated:
            text = f"{subject.run.protocol.name} states no hypotheses that could be checked"
            yield Evidence(self.name, "silent", text, "gap")
        yield from self._keys(subject)
        found = coalitions_of(claim.against, subject.run.protocol)
        if not found:
            text = f"no parties of the protocol are {claim.who}"
            yield Evidence(self.name, "silent", text, "gap")
            return
        for coalition in found:
            yield from self._other_messages(subject, coalition)
        yield from self._masks(subject, level)
        text = f"what remains is the primitive's: {claim.reason}"
        yield Evidence(self.name, "silent", text, "hypothesis")

    def _evidence(self, holds: bool, text: str, fault: str = "") -> Evidence:
        if holds:
            return Evidence(self.name, "supports", text, "hypothesis")
        return Evidence(self.name, "silent", fault or f"it does not hold: {text}", "gap")

    def _keys(self, subject: Subject) -> Iterator[Evidence]:
        """Keys that parties draw for themselves come from 32 fresh bytes each."""
        drawn = [(_drawn(run), log) for run, log in subject.runs]
        if not drawn[0][0]:
            return
        strange = sum(1 for keys, log in drawn for _ in unexplained_keys(log, keys))
        strange += sum(found.strange_keys for found in subject.settings)
        number = sum(len(keys) for keys, _ in drawn)
        number += sum(found.keys for found in subject.settings)
        text = f"all {number} keys and seeds are made of 32 fresh bytes of the operating "
        text += "system each, none used twice"
        wrong = f"{strange} of {number} keys have another origin, or were used before"
        yield self._evidence(not strange, text, wrong)

    def _other_messages(self, subject: Subject, coalition: Coalition) -> Iterator[Evidence]:
        """No other message carries an embedding or raw columns to the coalition."""
        members, declared = set(coalition.members), Declared(subject.run.protocol)
        faults = []
        for run, message in _sent(subject):
            spec = declared.spec_of(message.key)
            if message.key.receiver not in members or message.key.sender in members:
                continue
            if spec is not None and spec.carries in _OPEN:
                faults.append(f"{message.key.kind!r} carries {spec.carries}")
            elif message.key.sender >= 0 and _holds_rows(run.data(message.key.sender), message):
                faults.append(f"{message.key.kind!r} holds raw columns")
        words = f"to {coalition} no message carries an embedding or raw columns in the clear"
        yield self._evidence(not faults, words, next(iter(faults), ""))

    def _masks(self, subject: Subject, level: float) -> Iterator[Evidence]:
        """Masked uploads look uniform, and no two are equal."""
        if not any(spec.carries == "masked_result" for spec in subject.protocol.messages):
            return
        modulus = subject.protocol.describe().get("p")
        declared = Declared(subject.run.protocol)
        sent = [
            np.asarray(message.payload)
            for _, message in _sent(subject)
            for spec in [declared.spec_of(message.key)]
            if spec is not None and spec.carries == "masked_result"
        ]
        once = len({one.tobytes() for one in sent}) == len(sent)
        yield self._evidence(once, f"all {len(sent)} masked uploads are different")
        if modulus is None:
            yield Evidence(self.name, "silent", "p is not said, so no test of uniformity", "gap")
            return
        pooled = {"all masked uploads": np.concatenate([one.reshape(-1) for one in sent])}
        tested = st.uniformity(PrimeField(modulus), pooled, level=level)
        text = f"masked uploads, {tested.detail} (p {tested.p_value:.2g}, level {level:g})"
        if tested.rejected:
            yield Evidence(self.name, "silent", f"not uniform: {text}", "gap", tested.p_value)
        else:
            yield Evidence(self.name, "supports", text, "test", tested.p_value, level)


def _sent(subject: Subject) -> Iterator[tuple[RecordedRun, RecordedMessage]]:
    """Messages between two parties in the recorded runs."""
    for run, _ in subject.runs:
        for message in run.sent_to_others:
            yield run, message


def _drawn(run: RecordedRun) -> list[bytes]:
    """Keys that parties put into their own mailboxes."""
    declared = Declared(run.protocol)
    secret = [m for m in run.messages if m.key.sender == m.key.receiver]
    specs = [declared.spec_of(m.key) for m in secret]
    return [
        value
        for m, spec in zip(secret, specs, strict=True)
        if spec is not None and spec.receiver == SELF and spec.carries == "key"
        for value in m.payload
    ]


def _holds_rows(data: Mapping[str, np.ndarray], message: RecordedMessage) -> bool:
    """Whether the first rows of a party's columns stand in a message as they are."""
    rows = np.ascontiguousarray(data["train"][:1])
    return bool(rows.any()) and rows.tobytes() in message.content
