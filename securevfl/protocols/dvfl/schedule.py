"""Rounds of DVFL by the clock, and each party's part in them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from securevfl.protocols.dvfl.parameters import DvflConfig


@dataclass(frozen=True)
class RoundSchedule:
    """Schedule of Algorithm 1: the current round, and the rounds in which guests write.

    Attributes
    ----------
    per_epoch : int
        Iterations of a guest's epoch.
    guest_rounds, rounds : int
        Number of rounds in which guests, and in which hosts train. In round r a host reads the
        activations that were written up to round r - 1.
    period : int
        Guest epochs from one communication epoch to the next (appendix F.1).
    interval : float
        Seconds of a round.
    """

    per_epoch: int
    guest_rounds: int
    rounds: int
    period: int
    interval: float

    @classmethod
    def of(cls, config: DvflConfig, per_epoch: int) -> RoundSchedule:
        """Schedule in which hosts train for `host_epochs` epochs from their first input on."""
        guest_rounds = config.guest_epochs * per_epoch
        rounds = guest_rounds + 1
        if config.replay:
            rounds = (config.comm_period - 1 + config.host_epochs) * per_epoch + 1
        return cls(per_epoch, guest_rounds, rounds, config.comm_period, config.interval)

    def round_at(self, seconds: float) -> int:
        """Round at a time in seconds, with tolerance for clocks in nanoseconds."""
        return math.floor(seconds / self.interval + 1e-3) + 1

    def start(self, round: int) -> float:
        """Second at which a round begins."""
        return (round - 1) * self.interval

    def writes(self, round: int) -> bool:
        """Whether guests write in a round, which they do in every `period`-th epoch only."""
        epoch = (round - 1) // self.per_epoch + 1
        return 0 < round <= self.guest_rounds and epoch % self.period == 0
