"""Parties of a coded prediction: they predict new rows on shares, by the models of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from securevfl.models.split import Centre
from securevfl.protocols.base.decoding import rows_in_order
from securevfl.protocols.fedvs.algorithm import Client, Server
from securevfl.protocols.fedvs.parameters import Parameters
from securevfl.protocols.fedvs.quantisation import nearest_weights
from securevfl.verified import Element, Secret


class PredictingClient(Client):
    """Client n of a prediction: shares its columns of new rows, and evaluates them."""

    def quantised_model(self) -> Element:
        """Weights W-bar, rounded to the nearest, so that a prediction has no chance in it."""
        shape = self.weights, self.public.config.width
        how = nearest_weights, self.public.model_point
        made: Element = self.network.call(*how, shape=shape, field=self.field)
        return made


class PredictingServer(Server):
    """Server of a prediction: decodes the sums of new rows, as of test rows, and scores them.

    All rows are scored at once, so that the last digits do not depend on the number of parts.
    """

    kept: ClassVar[tuple[str, ...]] = (*Server.kept, "embeddings")

    def __init__(self, peers: Sequence[int], public: Parameters, centre: Centre) -> None:
        super().__init__(peers, public, centre, {})
        self.embeddings: dict[int, Secret] = {}
        self.predicted: tuple[Secret, Secret] | None = None

    async def run(self) -> None:
        """Decode the rows' sums from their shares, and score the rows."""
        await self.infer()
        self.conclude()

    def score(self, number: int, embedding: Secret) -> None:
        """Store the joint embedding of a part of the rows."""
        self.embeddings[number] = embedding

    def report_inference(self, step: int) -> None:
        """Store embeddings and scores in the order of the rows; there are no labels."""
        embedding = rows_in_order(self.public.batches["test"], self.embeddings, step)
        self.predicted = (embedding, self.scores(embedding))
        self.record("predicted", rows=self.public.batches["test"].rows)
