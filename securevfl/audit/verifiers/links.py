"""Sealed links: what an outsider on them could do."""

from __future__ import annotations

from collections.abc import Iterable

from securevfl.audit.sealed_links import lives_that_meet, open_links, repeated_frames
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.engine.security.sealing import Sealer
from securevfl.privacy.adversary import OUTSIDER
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.protocol import Protocol

_CHANCE = 31 * 2.0**-128  # that a wrong tag of 31 is taken for right


class SealedLinks:
    """Looks for payloads in sealed frames, and changes, repeats and readdresses frames."""

    name = "sealed links"

    def applies(self, claim: Claim, protocol: Protocol) -> bool:
        """Computational claims against an outsider, whatever the protocol."""
        return claim.against == OUTSIDER and claim.strength == "computational"

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """Faults of the sealer that runs use; the proof is that of its cipher."""
        faults = open_links(Sealer) + repeated_frames(Sealer) + lives_that_meet(Sealer)
        for fault in faults:
            yield Evidence(self.name, "accuses", fault, "demonstration", 0.0)
        if not faults:
            text = (
                "the payload is not in the wire bytes; a frame with a flipped bit in its counter, "
                "its payload or its tag is refused, as is one that comes twice, or under another "
                "kind, round or epoch; equal payloads give different frames; a party that comes "
                "back opens under its new key alone, and no key that it had is taken again"
            )
            yield Evidence(self.name, "supports", text, "test", None, _CHANCE)
