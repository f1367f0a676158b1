"""False deals of a party of any method with shares and keys: shares, keys, shapes.

Each class is mixed into a party of a method, before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from securevfl.protocols.base.mask_keys import KeyParticipant
from securevfl.verified import bare_of

FRAMED = 1  # the honest party whose share or key is wrong


class Inconsistent(KeyParticipant):
    """Shares something that lies on no polynomial of the degree."""

    kind: ClassVar[str] = ""
    framed: ClassVar[int] = FRAMED
    public: Any

    def share(self, kind: str, shares: Any) -> None:
        """One share is random."""
        if kind == self.kind:
            shares = [bare_of(shares[n]) for n in self.peers]
            shares[self.framed] = self.public.field.random(shares[self.framed].shape)
        super().share(kind, shares)


class OfAnotherShape(KeyParticipant):
    """Shares something with one party in another shape."""

    kind: ClassVar[str] = ""

    def share(self, kind: str, shares: Any) -> None:
        """One column is missing."""
        if kind == self.kind:
            shares = [bare_of(shares[n]) for n in self.peers]
            shares[FRAMED] = shares[FRAMED][:, :-1]
        super().share(kind, shares)


class WrongKeys(KeyParticipant):
    """Sends one party other keys than it sends the rest."""

    def broadcast(self, kind: str, payload: Any, to: Sequence[int] | None = None) -> None:
        """Keys of that party are random."""
        if kind == "key" and to and FRAMED in to:
            other = [self.key(f"other {n} ") for n in range(len(payload))]
            super().broadcast(kind, other, [FRAMED])
            to = [n for n in to if n != FRAMED]
        super().broadcast(kind, payload, to)


class KeepsKeys(KeyParticipant):
    """Draws keys, and never sends them."""

    def broadcast(self, kind: str, payload: Any, to: Sequence[int] | None = None) -> None:
        """All but keys."""
        if kind != "key":
            super().broadcast(kind, payload, to)
