"""Tapes: the secret randomness of one party, recorded as it is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.audit.statistical import digest
from securevfl.verified import bare_of


@dataclass
class Tape:
    """The secret randomness of one party in the order of drawing.

    Attributes
    ----------
    draws : list of ndarray
        Drawn arrays; for a client of FedVS: Z for each part of the data, then V for each round.
    rounds : list of int
        The round in which each was drawn.
    """

    draws: list[np.ndarray] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)

    def every_digest(self) -> Iterator[str]:
        """SHA-256 digest of each draw, in order."""
        yield from (digest([one]) for one in self.draws)

    def at(self, round: int) -> list[np.ndarray]:
        """Draws made in a round, in order; those of the setup are in round 0."""
        return [draw for draw, r in zip(self.draws, self.rounds, strict=True) if r == round]


def record_draws(party: Any) -> Tape:
    """Record all further masks that a party draws, without changing them."""
    tape, draw = Tape(), party.uniform

    def uniform(*shape: Any, **named: Any) -> Any:
        drawn = draw(*shape, **named)
        tape.draws.append(np.array(bare_of(drawn)))
        tape.rounds.append(party.round)
        return drawn

    party.uniform = uniform
    return tape
