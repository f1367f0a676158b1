"""The parties of each phase in one organisation's process: tables, training, evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from securevfl.data.local_tables import TableOwner, Tables
from securevfl.engine.network import SERVER
from securevfl.engine.party import Party
from securevfl.engine.streams import OwnEntropy, Secrets, WithPlaceholders
from securevfl.models.quality import quality
from securevfl.privacy.claims import Asset, Claim
from securevfl.protocols.base.coded import SharedModels
from securevfl.protocols.base.protocol import Protocol
from securevfl.runs.engines.own_tables import known_embeddings
from securevfl.runs.history import measures_of as scored
from securevfl.verified import bare_of

Measuring = Literal["coded inference", "embeddings of test rows", "none"]


class SharingTableOwner(TableOwner):
    """Owner of a local table, which receives the public facts of the data from the server.

    The `helpers`, a number of parties without tables, receive the same facts.
    """

    def __init__(
        self, index: int, peers: Sequence[int], tables: Tables, place: Path, helpers: int
    ) -> None:
        super().__init__(index, peers, tables, place)
        self.all_clients = range(len(peers) + helpers)

    async def setup(self) -> None:
        """Find the common rows, split them and fit the own columns; a helper has none."""
        if self.index < len(self.peers):
            await super().setup()

    async def run(self) -> None:
        """Send the public facts (server), or receive and store them (others)."""
        if self.index == SERVER:
            self.broadcast("facts", self.facts, to=self.all_clients)
        else:
            self.facts = dict(await self.receive("facts", sender=SERVER))
        self.forget_pairs()


_OPEN: tuple[Asset, ...] = ("features", "model")
# No claim of a protocol covers what is sent after training.
SENT_TO_MEASURE = tuple(
    Claim("server", about, "none", "test rows: their embeddings are sent in the clear to measure")
    for about in _OPEN
)


def measuring(made: Protocol) -> Measuring:
    """Way to measure models when no party sees another's: on shares, by embeddings, or none.

    A protocol with coded inference is measured by it. "none" if the run itself evaluates on
    shares (option `secure`), or a party's model needs more than this party's own columns.
    """
    if getattr(made.config, "secure", False) or not made.apart or isinstance(made, SharedModels):
        return "none"
    return "coded inference" if made.prediction_messages else "embeddings of test rows"


@dataclass(frozen=True)
class PredictingMaker:
    """Factory of this organisation's party in a coded prediction (test rows if `rows` is None).

    `make` creates the configured protocol as this organisation has it; `trained` returns a new
    party with its trained state. `blind`, if given, makes a party blind the scores to the server.
    """

    make: Callable[[], Protocol]
    trained: Callable[[Party], Party]
    rows: Sequence[np.ndarray] | None = None
    blind: Callable[[Party], None] | None = None

    def __call__(self, index: int, secrets: Secrets) -> Party:
        """Create party `index`; placeholders for the others are dropped."""
        made = self.make()
        assert isinstance(secrets, OwnEntropy)
        made.secrets = WithPlaceholders(secrets)
        party = self.trained(made.parties()[index])
        rows = made.data.test if self.rows is None else self.rows
        predicting = made.predictor(index, party, rows)
        if self.blind is not None:
            self.blind(predicting)
        return predicting


class Embedding(Party):
    """Client of an evaluation: sends the embedding of its own test rows, (m, h)."""

    def __init__(self, index: int, peers: Sequence[int], embedding: np.ndarray) -> None:
        super().__init__(index, peers)
        self.embedding = embedding

    async def run(self) -> None:
        """Send the embedding to the server."""
        self.send(SERVER, "test embedding", self.embedding)


class EmbeddingJudge(Party):
    """Server of an evaluation: scores the clients' embeddings with its model."""

    def __init__(
        self, peers: Sequence[int], score: Callable[[dict[int, np.ndarray]], np.ndarray]
    ) -> None:
        super().__init__(SERVER, peers)
        self.scores: np.ndarray | None = None
        self._score = score

    async def run(self) -> None:
        """Collect all parties' embeddings of test rows, and store their measures in `scores`."""
        embeddings = await self.collect("test embedding")
        self.scores = self._score(embeddings)


@dataclass(frozen=True)
class EmbeddingMaker:
    """Factory of this organisation's party in an evaluation by embeddings."""

    make: Callable[[], Protocol]
    trained: Callable[[Party], Party]

    def __call__(self, index: int, secrets: Secrets) -> Party:
        """Create party `index`."""
        made = self.make()
        assert isinstance(secrets, OwnEntropy)
        made.secrets = secrets
        own = self.trained(made.party(index))
        if index != SERVER:
            return Embedding(index, made.peers(), made.embed(own, made.data.test[index]))

        def score(embeddings: dict[int, np.ndarray]) -> np.ndarray:
            parties = known_embeddings(embeddings) | {SERVER: own}
            return made.scores(parties, made.data.test)

        return EmbeddingJudge(made.peers(), score)


def evaluation_maker(
    made: Protocol, make: Callable[[], Protocol], trained: Callable[[Party], Party]
) -> Callable[[int, Secrets], Party] | None:
    """Factory (number, secrets) of this organisation's party in the evaluation, or None."""
    how = measuring(made)
    if how == "none":
        return None
    return (PredictingMaker if how == "coded inference" else EmbeddingMaker)(make, trained)


def measures_of(party: Any, made: Protocol) -> dict[str, float]:
    """Measures on the test rows from the server's party of a finished evaluation."""
    scores = bare_of(party.predicted)[1] if hasattr(party, "predicted") else party.scores
    data = made.data
    return scored(made, scores) | quality(data.task, scores, data.test_labels, data.train_labels)
