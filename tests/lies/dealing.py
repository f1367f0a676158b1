"""False deals of a party of any method with shares and keys: shares, keys, shapes.

Each class is mixed into a party of a method, before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from securevfl.field.prss import KEY
from securevfl.protocols.base.mask_keys import KeyHolder, as_array

FRAMED = 1  # the honest party whose share or key is wrong


class Inconsistent(KeyHolder):
    """Shares something that lies on no polynomial of the degree."""

    kind: ClassVar[str] = ""
    public: Any

    def share(self, kind: str, shares: Sequence[Any] | np.ndarray) -> None:
        """One share is random."""
        if kind == self.kind:
            shares = np.array(shares)
            shares[FRAMED] = self.public.field.random(shares[FRAMED].shape)
        super().share(kind, shares)


class OfAnotherShape(KeyHolder):
    """Shares something with one party in another shape."""

    kind: ClassVar[str] = ""

    def share(self, kind: str, shares: Sequence[Any] | np.ndarray) -> None:
        """One column is missing."""
        if kind == self.kind:
            shares = [one[:, :-1] if n == FRAMED else one for n, one in enumerate(shares)]
        super().share(kind, shares)


class WrongKeys(KeyHolder):
    """Sends one party other keys than it sends the rest."""

    def send(self, to: int, kind: str, payload: Any, **how: Any) -> None:
        """Keys of that party are random."""
        if kind == "key" and to == FRAMED:
            payload = as_array([self.secret_bytes(KEY) for _ in payload])
        super().send(to, kind, payload, **how)


class KeepsKeys(KeyHolder):
    """Draws keys, and never sends them."""

    def send(self, to: int, kind: str, payload: Any, **how: Any) -> None:
        """All but keys."""
        if kind != "key":
            super().send(to, kind, payload, **how)
