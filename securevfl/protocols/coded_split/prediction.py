"""Parties of a coded prediction: they predict new rows on shares, by the models of a run.

Rows are shared anew and keys are drawn anew, so labels of one prediction mean nothing in another.
Labels have the digest of all steps of the run: a share with other steps has other masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from securevfl.models.split import Centre
from securevfl.protocols.coded_split.parameters import Parameters
from securevfl.protocols.coded_split.server import Server
from securevfl.protocols.coded_split.steps import in_order, scores_of, sums_in_range
from securevfl.verified import Element, Secret


class PredictingServer(Server):
    """Server of a prediction: decodes the sums of new rows, and scores them all at once."""

    kept: ClassVar[tuple[str, ...]] = (*Server.kept, "embeddings")

    def __init__(
        self, peers: Sequence[int], public: Parameters, centre: Centre, lasting: int, trained: int
    ) -> None:
        super().__init__(peers, public, centre, {}, None)
        self.largest, self.steps_before = lasting, trained
        self.embeddings: dict[int, Secret] = {}
        self.predicted: tuple[Secret, Secret] | None = None

    async def run(self) -> None:
        """Decode the rows' sums from their shares, and score the rows."""
        self.on("lacks", self.deal_again)
        await self.infer(0)
        self.broadcast("stop", None)

    @property
    def trained(self) -> int:
        """Number of steps of the run, all of which are in its models."""
        return self.steps_before

    def check(self, sums: Element) -> None:
        """Refuse sums so large that the models of the run cannot make them of new rows."""
        numbers = self.field, self.largest, self.round
        sums.map(sums_in_range, *numbers, shape=(0,), real=True)

    def score(self, piece: int, embedding: Secret) -> None:
        """Store the joint embedding of a piece of the rows."""
        self.embeddings[piece] = embedding
        self.test_scores[piece] = embedding

    def report_inference(self) -> None:
        """Store embeddings and scores in the order of the rows; there are no labels."""
        rows, first = self.public.batches["test"].rows, self.embeddings[0]
        others = [one for piece, one in self.embeddings.items() if piece]
        shape = rows, first.shape[1]
        H = first.map(in_order, self.order, *others, shape=shape)
        scores = self.centre.call(scores_of, H, shape=(rows, self.outputs))
        self.predicted = H, scores
        self.record("predicted", rows=rows)
