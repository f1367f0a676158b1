"""A verifier of one's own: no client sends the same field elements twice.

Shares and masked values are uniform, so that two long arrays of them are equal with a probability
of about p^-m for m elements. Where a client sends the same array twice, masks were used again, or
there were none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.engine.party import SERVER
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.protocol import Protocol

SHORTEST = 16  # elements; at p >= 2^31 two such arrays are equal with probability below 2^-490


class NoRepeats:
    """Looks for arrays of field elements that a client sends more than once."""

    name = "no_repeats"

    def applies(self, claim: Claim, protocol: Protocol) -> bool:
        """Perfect secrecy of features and models."""
        return claim.strength == "perfect" and claim.asset in ("features", "model")

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """Compare everything that clients send to others in the recorded run."""
        subject.progress("arrays that are sent twice")
        seen: set[tuple[int, bytes]] = set()
        count = repeats = 0
        for message in subject.run.sent_to_others:
            if message.key.sender == SERVER:
                continue
            for array in field_elements(message.payload):
                key = (message.key.sender, array.tobytes())
                repeats += key in seen
                count += 1
                seen.add(key)
        if not count:
            return
        text = f"{repeats} of {count} arrays of field elements that clients send were sent before"
        if repeats:
            yield Evidence(self.name, "accuses", text, "test", 2.0**-400, level)
        else:
            yield Evidence(self.name, "supports", text, "test", 1.0, level)


def field_elements(payload: Any) -> Iterator[np.ndarray]:
    """Arrays of integers within a payload, the short ones left out."""
    if isinstance(payload, np.ndarray):
        if payload.dtype.kind in "iu" and payload.size >= SHORTEST:
            yield payload
    elif isinstance(payload, dict):
        for part in payload.values():
            yield from field_elements(part)
    elif isinstance(payload, tuple | list):
        for part in payload:
            yield from field_elements(part)


VERIFIER = NoRepeats()
