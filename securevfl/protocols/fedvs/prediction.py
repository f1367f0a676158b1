"""Parties of a coded prediction: predict new rows on shares, with the models of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from securevfl.models.split import Centre
from securevfl.protocols.base.blinding import Told, blinded, unblinded
from securevfl.protocols.base.decoding import inference_step, rows_in_order
from securevfl.protocols.fedvs.algorithm import Client, Server
from securevfl.protocols.fedvs.messages import Attempt, Batch
from securevfl.protocols.fedvs.parameters import Parameters
from securevfl.protocols.fedvs.quantisation import mean_of_sums, nearest_weights
from securevfl.protocols.fedvs.steps import scores_of
from securevfl.verified import Element, Secret, bare_of


class PredictingClient(Client):
    """Client n of a prediction: shares its columns of new rows, and evaluates them.

    `blind` is the client's share of the masks that hide the sums from the server; None for no
    masks.
    """

    blind: Element | None = None

    def quantised_model(self) -> Element:
        """Weights W-bar, rounded to nearest, so that predictions are deterministic."""
        shape = self.weights, self.public.config.width
        how = nearest_weights, self.public.model_point
        made: Element = self.network.call(*how, shape=shape, field=self.field)
        return made

    def evaluate(self, batch: Batch, attempt: Attempt, shares: Mapping[int, Element]) -> Element:
        """Upload before masking; in a blinded prediction it contains this client's share."""
        upload = super().evaluate(batch, attempt, shares)
        return upload if self.blind is None else upload + self.blind.rows(batch.rows)


class PredictingServer(Server):
    """Server of a prediction: decodes the sums of new rows and scores them.

    All rows are scored at once, so that the last digits do not depend on the number of parts. In a
    `blind` prediction the sums are masked for the asking client.
    """

    kept: ClassVar[tuple[str, ...]] = (*Server.kept, "embeddings")

    def __init__(self, peers: Sequence[int], public: Parameters, centre: Centre) -> None:
        super().__init__(peers, public, centre, {})
        self.embeddings: dict[int, Any] = {}
        self.predicted: tuple[Secret, Secret] | None = None
        self.blind = False

    async def run(self) -> None:
        """Decode the rows' sums from shares, and score the rows."""
        await self.infer()
        self.conclude()

    def mean(self, sums: Element, sharers: int) -> Any:
        """Mean embedding H; in a blinded prediction the masked sums, unchanged."""
        return sums if self.blind else super().mean(sums, sharers)

    def score(self, number: int, embedding: Any) -> None:
        """Store the joint embedding of a part of the rows, or its masked sums."""
        self.embeddings[number] = embedding

    def report_inference(self, step: int) -> None:
        """Store embeddings and scores in row order; new rows have no labels."""
        if not self.blind:
            embedding = rows_in_order(self.public.batches["test"], self.embeddings, step)
            self.predicted = (embedding, self.scores(embedding))
        self.record("predicted", rows=self.public.batches["test"].rows)

    def told(self) -> Told:
        """Message of the server to the client that asked, in a blinded prediction."""
        sums = [self.embeddings[number] for number in sorted(self.embeddings)]
        return blinded(sums, bare_of(self.centre))


def opened_scores(public: Parameters, centre: Centre, told: Any, blind: np.ndarray) -> np.ndarray:
    """Raw scores of the rows, (m, outputs) float32, from the server's message `told`.

    ProtocolError for a malformed message.
    """
    batches, clients = public.batches["test"], public.code.parties
    step = inference_step(batches.coded, batches.segments)
    starts = range(0, batches.length, step)
    pieces = [np.arange(start, min(start + step, batches.length)) for start in starts]
    sums, _ = unblinded(public, centre, told, blind, pieces)
    found = {
        n: mean_of_sums(one, public.model_point, public.sum_bits, clients)
        for n, one in enumerate(sums)
    }
    return scores_of(centre, rows_in_order(batches, found, step))
