"""Parties of a coded prediction: they predict new rows on shares, by the models of a run.

Rows are shared anew and keys are drawn anew, so labels of one prediction mean nothing in another.
Labels have the digest of all steps of the run: a share with other steps has other masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from securevfl.models.split import Centre
from securevfl.protocols.base.decoding import rows_in_order
from securevfl.protocols.coded_split.parameters import Parameters
from securevfl.protocols.coded_split.server import Server


class PredictingServer(Server):
    """Server of a prediction: decodes the sums of new rows, and scores them all at once."""

    kept: ClassVar[tuple[str, ...]] = (*Server.kept, "embeddings")

    def __init__(
        self, peers: Sequence[int], public: Parameters, centre: Centre, lasting: int, trained: int
    ) -> None:
        super().__init__(peers, public, centre, {})
        self.largest, self.steps_before = lasting, trained
        self.residual = np.zeros((0, 0, 0))
        self.embeddings: dict[int, np.ndarray] = {}
        self.predicted: tuple[np.ndarray, np.ndarray] | None = None

    async def run(self) -> None:
        """Score the rows from their shares."""
        self.on("lacks", self.deal_again)
        await self.infer(0)
        self.broadcast("stop", None)

    @property
    def trained(self) -> int:
        """Steps of the run, in whose models there are no others."""
        return self.steps_before

    @property
    def lasting(self) -> int:
        """Bound on the sums of new rows by the models of the run."""
        return self.largest

    def score(self, piece: int, embedding: np.ndarray) -> None:
        """Store the joint embedding of a piece of the rows."""
        self.embeddings[piece] = embedding
        self.test_scores[piece] = np.empty(0)

    def report_inference(self, size: int) -> None:
        """Store embeddings and scores in the order of the rows; there are no labels."""
        batches = self.public.batches["test"]
        embedding = rows_in_order(batches, self.embeddings, size)
        self.predicted = (embedding, self.centre.scores(embedding))
        self.record("predicted", rows=batches.rows)
