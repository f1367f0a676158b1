"""Parties of a coded prediction: predict new rows on shares, with the models of a run.

Rows are shared again with new keys, so labels of one prediction are useless in another. Labels
contain the digest of all steps of the run: a share with other steps has other masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from securevfl.models.split import Centre
from securevfl.protocols.base.blinding import Told, blinded, unblinded
from securevfl.protocols.coded_split.messages import piece_of, pieces_of
from securevfl.protocols.coded_split.parameters import Parameters
from securevfl.protocols.coded_split.quantisation import joint, scales
from securevfl.protocols.coded_split.server import Server
from securevfl.protocols.coded_split.steps import in_order, scores_of, sums_in_range
from securevfl.verified import Element, Secret, bare_of


class PredictingServer(Server):
    """Server of a prediction: decodes the sums of new rows, and scores all rows at once.

    In a `blind` prediction the sums are masked for the asking client. `lasting` bounds a new
    row's sum (`RangeBound.lasting`); `trained` is the number of steps of the run.
    """

    kept: ClassVar[tuple[str, ...]] = (*Server.kept, "embeddings")

    def __init__(
        self, peers: Sequence[int], public: Parameters, centre: Centre, lasting: int, trained: int
    ) -> None:
        super().__init__(peers, public, centre, {}, None)
        self.largest, self.steps_before = lasting, trained
        self.embeddings: dict[int, Any] = {}
        self.predicted: tuple[Secret, Secret] | None = None
        self.blind = False

    async def run(self) -> None:
        """Decode the rows' sums from shares, and score the rows."""
        self.on("lacks", self.deal_again)
        await self.infer(0)
        self.broadcast("stop", None)

    @property
    def trained(self) -> int:
        """Number of steps of the run, all contained in its models."""
        return self.steps_before

    def check(self, sums: Element) -> None:
        """Raise RangeError for sums larger than the run's models can give for new rows."""
        if not self.blind:
            numbers = self.field, self.largest, self.round
            sums.map(sums_in_range, *numbers, shape=(0,), real=True)

    def mean(self, sums: Element) -> Any:
        """Mean embedding H; in a blinded prediction the masked sums, unchanged."""
        return sums if self.blind else super().mean(sums)

    def score(self, piece: int, embedding: Any) -> None:
        """Store the joint embedding of a piece of the rows, or its masked sums."""
        self.embeddings[piece] = embedding
        self.test_scores[piece] = embedding

    def report_inference(self) -> None:
        """Store embeddings and scores in row order; new rows have no labels."""
        rows, first = self.public.batches["test"].rows, self.embeddings[0]
        if not self.blind:
            others = [one for piece, one in self.embeddings.items() if piece]
            shape = rows, first.shape[1]
            H = first.map(in_order, self.order, *others, shape=shape)
            scores = self.centre.call(scores_of, H, shape=(rows, self.outputs))
            self.predicted = H, scores
        self.record("predicted", rows=rows)

    def told(self) -> Told:
        """Message of the server to the client that asked, in a blinded prediction."""
        sums = [self.embeddings[piece] for piece in sorted(self.embeddings)]
        return blinded(sums, bare_of(self.centre), self.largest, self.steps_before)


def opened_scores(public: Parameters, centre: Centre, told: Any, blind: np.ndarray) -> np.ndarray:
    """Raw scores of the rows, (m, outputs) float32, from the server's message `told`.

    ProtocolError for a malformed message, RangeError for sums too large.
    """
    batches, field = public.batches["test"], public.field
    pieces = [piece_of(batches, piece) for piece in range(pieces_of(batches))]
    sums, (largest, steps) = unblinded(public, centre, told, blind, pieces)
    embeddings = []
    for one in sums:
        sums_in_range(one, field, largest, 0)
        embeddings.append(joint(one, field, *scales(public, steps)))
    order = np.concatenate([batches.samples(rows) for rows in pieces])
    return scores_of(centre, in_order(embeddings[0], order, *embeddings[1:]))
