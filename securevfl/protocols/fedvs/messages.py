"""Announcements of FedVS's server: the batch of a round, and the clients in its sum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from securevfl.engine.wire import message


@message("fedvs_parameters.Batch")
@dataclass(frozen=True)
class Batch:
    """Batch of a round, announced when the round is opened.

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
        """Whether the two batches share a row."""
        return self.part == other.part and bool(np.isin(self.rows, other.rows).any())


@message("fedvs_parameters.Attempt")
@dataclass(frozen=True)
class Attempt:
    """Evaluation of a round: its sharers and dealers, announced once; each attempt has its round.

    Attributes
    ----------
    sharers : tuple of int
        S: clients whose model of this round is in the sum (footnote 2).
    dealers : tuple of int
        D: clients whose masks are in the uploads; none in plain evaluation.
    held : tuple
        Always empty, and clients refuse another value. Earlier versions named terms here that
        stood in the sum with models of earlier rounds.
    harmless : tuple of int
        Rounds below the threshold: those since the last step to which too few clients uploaded to
        reveal anything. Only clients that crashed since then use it, and `stepped`.
    stepped : int
        Round of the last step.
    """

    sharers: tuple[int, ...]
    dealers: tuple[int, ...] = ()
    held: tuple[()] = ()
    harmless: tuple[int, ...] = ()
    stepped: int = 0

    def same_sum(self, other: Attempt) -> bool:
        """Whether the same models are in both sums, as long as no model has changed."""
        return set(self.sharers) == set(other.sharers)
