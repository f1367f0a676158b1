"""Sealed links: what an outsider on them could do."""

from __future__ import annotations

from collections.abc import Iterable

from securevfl.audit.following.sources import altered
from securevfl.audit.links.powers import FRAMES, link_faults
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.engine.security.sealing import Sealer
from securevfl.privacy.adversary import OUTSIDER
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.protocol import Protocol

# That of 2^17 pieces of keystream, of 128 bits, two are equal, or a wrong tag is taken for right.
_CHANCE = 2.0**-94


class SealedLinks:
    """Looks for payloads and keystreams in sealed frames; changes, repeats, readdresses frames."""

    name = "sealed links"

    def applies(self, claim: Claim, protocol: Protocol) -> bool:
        """Computational claims against an outsider, whatever the protocol."""
        return claim.against == OUTSIDER and claim.strength == "computational"

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """Faults of the sealer that runs use; the proof is that of its cipher."""
        others = [name for name in altered() if name.startswith("cryptography.")]
        if others:
            text = f"functions that keys and frames come from are not the package's: {others[0]}"
            yield Evidence(self.name, "silent", text, "channel")
        faults = subject.shared("link faults", lambda: link_faults(Sealer))
        for fault in faults:
            yield Evidence(self.name, "accuses", fault, "demonstration", 0.0)
        if not faults:
            text = (
                "the payload is not in the wire bytes; a frame with a flipped bit, cut or "
                "lengthened, is refused, as is one that comes twice, under another kind, round or "
                "epoch, in another run, on another link, or back at its sender; no keystream is "
                f"used twice in {FRAMES} frames each way, with a third party, under a new key or "
                "in another run; a restored state seals nothing; a party that comes back opens "
                "under its new key alone, and no key that it had is taken again"
            )
            yield Evidence(self.name, "supports", text, "test", None, _CHANCE)
