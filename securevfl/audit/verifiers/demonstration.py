"""Claims that nothing is protected: what the adversary was in fact sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from securevfl.audit.coalitions import coalitions_of
from securevfl.audit.deviations import Declared
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.engine import wire
from securevfl.privacy.claims import Claim
from securevfl.privacy.coalition import Coalition
from securevfl.protocols.base.messages import MessageSpec
from securevfl.protocols.base.protocol import Protocol
from securevfl.runs.threads import one_thread


class SentInTheClear:
    """Finds embeddings that the adversary was sent, or that it can decrypt."""

    name = "sent in the clear"

    def applies(self, claim: Claim, protocol: Protocol) -> bool:
        """Features and models that the card says are not protected."""
        return claim.strength == "none" and claim.asset in ("features", "model")

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """The embeddings that equal those which their senders' networks give."""
        found = coalitions_of(claim.against, subject.protocol) if subject.protocol.messages else []
        exact = max((sum(1 for _ in _embeddings(subject, one)) for one in found), default=0)
        if exact:
            what = (
                "rows of others through their networks"
                if claim.asset == "features"
                else "outputs of others' networks on known rows"
            )
            text = (
                f"in a recorded run it was sent {exact} embeddings, each equal to what its "
                f"sender's network and columns give: {what}, exactly"
            )
            yield Evidence(self.name, "supports", text, "demonstration", 0.0)


def _embeddings(subject: Subject, coalition: Coalition) -> Iterator[MessageSpec]:
    """Declarations of the embeddings, one for each message, that a coalition can read."""
    run, members = subject.run, set(coalition.members)
    declared = Declared(run.protocol)
    with one_thread():
        for message in run.sent_to_others:
            spec = declared.spec_of(message.key)
            if spec is None or spec.recompute is None:
                continue
            if message.key.receiver not in members or message.key.sender in members:
                continue
            keys = declared.roles.get(spec.opened_by, ()) if spec.opened_by else ()
            opened = spec.carries == "ciphertext" and bool(members & set(keys))
            if not (spec.carries == "embedding" or opened):
                continue
            if wire.encode(spec.recompute(run, message.key)) == message.content:
                yield spec
