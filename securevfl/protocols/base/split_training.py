"""Base class of methods that pre-train and then train split on the aligned rows.

Their parties are those of `securevfl.protocols.base.open_embeddings`: with the same seed and
without pre-training they give the same run as `split` that waits for all clients, bit for bit.
Protocols add their pre-training to these classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.models.client_networks import ClientNetwork
from securevfl.models.pretraining.pretext import Objective, make_objective
from securevfl.models.pretraining.trainer import Pretraining, own_rows, pretraining_optimizer
from securevfl.models.split import Centre
from securevfl.privacy.claims import OPEN_EMBEDDINGS, Claim
from securevfl.protocols.base.embedding import EmbeddingProtocol


class DownstreamProtocol(EmbeddingProtocol):
    """A method that pre-trains, then trains split on the aligned rows."""

    def alone(self, index: int) -> np.ndarray | None:
        """Unaligned rows of client `index`; None if no party has any."""
        return self.data.alone[index] if self.data.alone else None

    def all_rows(self, index: int) -> np.ndarray:
        """All rows of client `index`, the aligned ones first."""
        return own_rows(self.data.train[index], self.alone(index))

    def labelled(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows of client 0 that have labels, (rows, d_0), aligned ones first, and the labels."""
        data = self.data
        if data.alone_labels is None:
            return data.train[0], data.train_labels
        return self.all_rows(0), np.concatenate([data.train_labels, data.alone_labels])

    def pretraining_network(self, index: int, drawn: str = "init") -> ClientNetwork:
        """New network of client `index`, with initial weights and the optimiser of pre-training."""
        optimizer = pretraining_optimizer(self.config)
        return self.client_network(index, optimizer=optimizer, drawn=drawn)

    def objective(self, index: int, method: str, drawn: str = "init") -> Objective:
        """New self-supervised objective of client `index`; `drawn` names its network's stream."""
        return make_objective(
            method,
            self.config.width,
            self.config.sizes(),
            make_target=lambda: self.pretraining_network(index, drawn),
            stream=self.secret_stream(index, "heads"),
            optimizer=pretraining_optimizer(self.config),
        )

    def pretraining(self, index: int, means: Centre | Objective) -> Pretraining:
        """Pre-training of client `index`, with `means`: a head, or a self-supervised objective."""
        encoder = self.pretraining_network(index)
        return Pretraining(self.config, encoder, self.alone(index), means)

    def describe(self) -> dict[str, Any]:
        """Numbers for summaries: N, batch size, and the rows that each client uses."""
        held = [len(self.all_rows(k)) for k in self.peers()]
        return {
            "N": self.data.parties,
            "batch_rows": self.batch_rows,
            "aligned_rows": self.data.rows,
            "rows_of_each_party": held,
        }

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Claims of no protection: embeddings are sent unencrypted."""
        return OPEN_EMBEDDINGS
