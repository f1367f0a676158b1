"""Local training: the active party with its own columns and labels, without federation.

"Local-A" of VFLHLP (Li et al., 2024, section 5): client 0 trains the network and the head that
split training would give it, on the aligned rows or on all its labelled ones. The server, which
holds the labels and the head, is one organisation with client 0, so no message leaves the
organisation; the other clients take no part.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from pydantic import Field

from securevfl.engine.party import SERVER, Party
from securevfl.models.aggregation import make_aggregation
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.messages import MessageSpec, last_word
from securevfl.protocols.base.open_embeddings import (
    FIELD,
    Ideal,
    OpenClient,
    OpenEmbeddings,
    OpenServer,
)
from securevfl.protocols.base.options import EmbeddingConfig
from securevfl.protocols.base.split_training import DownstreamProtocol
from securevfl.verified import Participant, World


class LocalConfig(EmbeddingConfig):
    """Options of training alone."""

    rows: Literal["all", "aligned"] = Field(
        "all",
        description=(
            "Training rows: all labelled rows of client 0, or only the aligned ones, which "
            "every party has."
        ),
    )


class Idle(Participant):
    """Client that takes no part, except to receive the end of the run."""

    async def run(self) -> None:
        """Wait for the end of the run."""
        await self.receive("stop", safe=True)


@dataclass(eq=False, repr=False)
class Server(OpenServer):
    """Server of the active party, whose only peer is client 0."""

    others: Sequence[int] = field(kw_only=True)

    async def run(self) -> None:
        """Train with client 0, then send the end to the others."""
        await super().run()
        self.broadcast("stop", None, to=self.others)


class Local(OpenEmbeddings, DownstreamProtocol):
    """Training of client 0 alone."""

    name = "local"
    ideal_repeats = False
    traced_alone = 3
    Config = LocalConfig
    card = Card(
        title="The active party alone",
        paper="Li et al., Vertical Federated Learning Hybrid Local Pre-training, 2024: Local-A",
        roles={
            "server": "holds the labels and the head; one organisation with client 0",
            "client": "client 0 holds some columns and an encoder; the others do nothing",
        },
        sees={
            "server": "client 0's embeddings, within its own organisation",
            "client": "client 0 dL/dH of its embedding, within its own organisation; the others "
            "that a run has ended",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="skips",
        deviations=(
            "whether client 0 comes late or goes down decides everything; whether others do, "
            "nothing",
            "optimiser, rounds and batches are ours",
        ),
    )

    def __init__(self, config: LocalConfig, data: Any, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        self.aggregation = make_aggregation(config.aggregation, 1)
        features, labels = self.labelled() if config.rows == "all" else (data.train[0], None)
        self.used = features, data.train_labels if labels is None else labels
        self.layout = self.batches(1, rows=len(self.used[1]))

    def parties(self) -> dict[int, Party]:
        """The server, client 0, and idle clients."""
        features, labels = self.used
        others = self.peers()[1:]
        server = Server(
            (0,),
            self.layout,
            self.aggregation,
            self.joint_centre(),
            labels,
            others=others,
            max_steps=self.config.rounds,
        )
        given = (0, self.peers(), self.layout, features, self.client_network(0))
        active = OpenClient(*given, width=self.config.width)
        idle: dict[int, Party] = {k: Idle(k, self.peers(), FIELD) for k in others}
        return {SERVER: server, 0: active} | idle

    def roles(self) -> dict[str, tuple[int, ...]]:
        """Party numbers by role: client 0 is the active party, the others are idle."""
        return super().roles() | {"active": (0,), "idle": tuple(self.peers()[1:])}

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Messages of split training with client 0, and the end for the others."""
        others = len(self.peers()) > 1
        return (*self.step_messages(client="active"), *[last_word("idle")] * others)

    def inputs(self, world: World) -> Ideal:
        """Inputs of the active party."""
        return Ideal(world, (0,), self.config.weight_bound is not None)

    def evaluated(self, parties: Mapping[int, Party]) -> Collection[int]:
        """Clients for evaluation: client 0 alone."""
        return (0,)

    def named_rows(self, named: Any) -> np.ndarray | None:
        """Sample indices of a batch; -1 for unaligned rows of client 0."""
        rows = super().named_rows(named)
        return None if rows is None else np.where(rows < self.data.rows, rows, -1)

    def describe(self) -> dict[str, Any]:
        """Numbers of the base class, and the number of labelled rows that train."""
        return super().describe() | {"labelled_rows": len(self.used[1])}

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Claims of no protection between the server and client 0, which are one organisation."""
        return (
            Claim("server", "features", "none", "client 0's embeddings are sent in the clear"),
            Claim("server", "model", "none", "client 0's embeddings are sent in the clear"),
            Claim("client", "labels", "none", "client 0's dL/dH depends on them"),
        )
