"""What the server of FedVS announces: the batch of a round, and who stands in its sum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from securevfl.engine.wire import message


@message("fedvs_parameters.Batch")
@dataclass(frozen=True)
class Batch:
    """What a round is about, said when it is opened.

    Attributes
    ----------
    part : {"train", "test"}
        Whether `rows` numbers rows of the training or of the test shares.
    rows : ndarray, (|B|,), uint32
        B, row numbers within a segment, in [0, ceil(M/K)).
    """

    part: str
    rows: np.ndarray

    def meets(self, other: Batch) -> bool:
        """Whether the two have rows in common."""
        return self.part == other.part and bool(np.isin(self.rows, other.rows).any())


@message("fedvs_parameters.Attempt")
@dataclass(frozen=True)
class Attempt:
    """The evaluation of a round, named once by the server; the round's number is the attempt's.

    Attributes
    ----------
    sharers : tuple of int
        S: clients whose model of this round is in the sum (footnote 2).
    dealers : tuple of int
        D: clients whose masks are in the uploads; none in plain evaluation.
    held : tuple of (int, int)
        With ``absent=last`` (ours), clients outside S and the round whose model of theirs is in
        the sum instead.
    harmless : tuple of int
        Rounds below the threshold: those since the last step to which too few clients uploaded for
        anything to be learned. Only clients that crashed since then act on it, as on `stepped`.
    stepped : int
        Round of the last step.
    """

    sharers: tuple[int, ...]
    dealers: tuple[int, ...] = ()
    held: tuple[tuple[int, int], ...] = ()
    harmless: tuple[int, ...] = ()
    stepped: int = 0

    def same_sum(self, other: Attempt) -> bool:
        """Whether the same models are in both sums, as long as no model has changed."""
        held = set(self.held) == set(other.held)
        return held and set(self.sharers) == set(other.sharers)

    @property
    def terms(self) -> tuple[int, ...]:
        """All clients with a term in the sum."""
        return (*self.sharers, *(n for n, _ in self.held))
