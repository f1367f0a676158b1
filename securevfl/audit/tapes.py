"""Tapes: the secret randomness of one party, recorded as it is drawn, and replayed.

A verifier records a run, changes what the other coalition must not be able to tell, and makes the
run again with the same tapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.audit.statistical import digest
from securevfl.errors import ConfigurationError


@dataclass
class Tape:
    """The secret randomness of one party, in the order in which it was drawn.

    Attributes
    ----------
    draws : list of ndarray
        What was drawn; for a client of FedVS: Z for each part of the data, then V for each round.
    rounds : list of int
        The round in which each was drawn.
    digests : list of str
        Of what was drawn and forgotten.
    """

    draws: list[np.ndarray] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)

    @property
    def drawn(self) -> int:
        """Number of draws so far, those that were forgotten included."""
        return len(self.draws) + len(self.digests)

    def __copy__(self) -> Tape:
        """A tape of its own that begins with the same draws."""
        return Tape(list(self.draws), list(self.rounds), list(self.digests))

    def after(self, before: Tape) -> Tape:
        """Digests of what is on this tape and was not on one that it goes on from."""
        left = Counter(self.every_digest()) - Counter(before.every_digest())
        return Tape(digests=list(left.elements()))

    def every_digest(self) -> Iterator[str]:
        """Digests of all draws, those that were forgotten first."""
        yield from self.digests
        yield from (digest([one]) for one in self.draws)

    def forget(self, last: int) -> None:
        """Drop what was drawn in rounds up to `last`, but for the setup; keep digests of it."""
        held = [(d, r) for d, r in zip(self.draws, self.rounds, strict=True) if not 0 < r <= last]
        gone = [d for d, r in zip(self.draws, self.rounds, strict=True) if 0 < r <= last]
        self.digests += [digest([one]) for one in gone]
        self.draws, self.rounds = [d for d, _ in held], [r for _, r in held]

    def at(self, round: int) -> list[np.ndarray]:
        """Draws of a round; 0 is the setup."""
        return [draw for draw, r in zip(self.draws, self.rounds, strict=True) if r == round]


def record_draws(party: Any, tape: Tape | None = None) -> Tape:
    """Let a party draw as it does, and keep what it draws on a tape, be it one that goes on."""
    tape, draw = Tape() if tape is None else tape, party.uniform

    def uniform(shape: tuple[int, ...]) -> np.ndarray:
        drawn: np.ndarray = draw(shape)
        tape.draws.append(drawn.copy())
        tape.rounds.append(party.round)
        return drawn

    party.uniform = uniform
    return tape


def replay_draws(party: Any, tape: Tape) -> None:
    """Let a party draw from a tape instead; what it asks for must be what the tape has."""
    left = iter(tape.draws)

    def uniform(shape: tuple[int, ...]) -> np.ndarray:
        drawn = next(left, None)
        if drawn is None or drawn.shape != tuple(shape):
            has = "no more" if drawn is None else f"shape {drawn.shape}"
            raise ConfigurationError(
                f"tape of party {party.index}: shape {tuple(shape)} was asked for in round "
                f"{party.round}, the tape has {has}. Replay the configuration that was recorded"
            )
        return drawn.copy()

    party.uniform = uniform
