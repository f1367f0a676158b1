"""Base class of split methods whose server receives each embedding and aggregates them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from securevfl.engine.party import SERVER, Party
from securevfl.errors import ConfigurationError
from securevfl.models.aggregation import gather, make_aggregation
from securevfl.models.client_networks import ClientNetwork, make_client_network
from securevfl.models.networks import training_bytes
from securevfl.models.split import Batches, Centre
from securevfl.protocols.base.card import Exposure
from securevfl.protocols.base.messages import (
    Carries,
    MessageKey,
    MessageSpec,
    announcement,
    in_rounds,
)
from securevfl.protocols.base.split import SplitProtocol

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


S = TypeVar("S", bound=Party)  # class of a server


class EmbeddingProtocol(SplitProtocol):
    """A split method whose server receives each client's embedding and aggregates them.

    Attributes
    ----------
    layout : Batches
        Division of rows into segments, and the batch of each round, as for shared data.
    """

    def __init__(self, config: Any, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        self.layout = self.batches(getattr(config, "segments", 1))
        self.aggregation = make_aggregation(config.aggregation, data.parties)
        if config.client_kind.endswith("cnn") and data.party_image_shapes is None:
            raise ConfigurationError(
                f"{self.name}: client = {config.client!r} needs parties that own whole strips of "
                f"pixel rows or columns of an image, and those of {data.name!r} do not; use 'mlp' "
                f"or 'pn'"
            )

    def parties(self) -> dict[int, Party]:
        """The server and N clients; methods with other roles override this."""
        return {SERVER: self.server()} | {n: self.client(n) for n in self.peers()}

    def server(self) -> Party:
        """Create the server, in a subclass (NotImplementedError here)."""
        raise NotImplementedError

    def client(self, index: int) -> Party:
        """Create client `index`, counted from 0, in a subclass (NotImplementedError here)."""
        raise NotImplementedError

    def make_server(self, kind: Callable[..., S], *more: Any, **options: Any) -> S:
        """Server of class `kind`, from the arguments of `OpenServer` and its own."""
        return kind(
            self.peers(),
            self.layout,
            self.aggregation,
            self.joint_centre(),
            self.data.train_labels,
            *more,
            max_steps=self.config.rounds,
            **options,
        )

    def most_used(self, parties: Mapping[int, Party], count: int) -> Collection[int]:
        """The `count` clients whose embeddings the server used most often.

        All clients if ``inference = "all"``.
        """
        if self.config.inference == "all":
            return self.peers()
        server: Any = parties[SERVER]
        often = np.argsort(-server.answered, kind="stable")  # the lowest first among equals
        return sorted(often[:count].tolist())

    def client_network(
        self, index: int, *, optimizer: dict[str, Any] | None = None, drawn: str = "init"
    ) -> ClientNetwork:
        """New bottom model of client `index`; a polynomial one has the same weights as in FedVS.

        Parameters
        ----------
        index : int
            Number of the client.
        optimizer : dict, optional
            Arguments of `make_optimizer`; the client's own if not given.
        drawn : str
            Name of the random stream of the weights.
        """
        shapes = self.data.party_image_shapes
        return make_client_network(
            self.config.client,
            self.data.widths[index],
            self.config.width,
            self.config.degree,
            image_shape=None if shapes is None else shapes[index],
            stream=self.secret_stream(index, drawn),
            optimizer=optimizer or self.config.client_optimizer(),
            bound=self.config.weight_bound,
            cardinalities=self.data.cardinalities[index],
            embedding=self.config.embedding,
            layers=self.config.hidden_layers(),
            own=self.config.own_client,
            device=self.config.device,
        )

    def step_messages(
        self,
        carries: Carries = "embedding",
        dtype: str = "float32",
        *,
        client: str = "client",
        width: int | None = None,
    ) -> tuple[MessageSpec, ...]:
        """Declarations of a step's messages, in order: announcement, embedding, gradient.

        Parameters
        ----------
        carries : str
            Meaning of a client's upload.
        dtype : str
            Dtype of the uploaded array; empty if the upload is no array.
        client : str
            Role of the parties that train.
        width : int, optional
            Width of an embedding; `config.width` if not given.
        """
        h = self.config.width if width is None else width

        def of_samples(key: MessageKey) -> tuple[int, ...]:
            layout = self.train_layout()
            return (layout.coded * layout.segments, h)

        return (
            announcement(client, source="the batch, and the end"),
            MessageSpec(
                *("embedding", client, "server", carries),
                shape=of_samples if dtype else None,
                dtype=dtype,
                count=in_rounds,
                row_by_row=True,
                source="H_n",
            ),
            MessageSpec(
                *("gradient", "server", client, "gradient"),
                shape=of_samples,
                dtype="float32",
                count=in_rounds,
                row_by_row=True,
                source="dL/dH_n",
            ),
        )

    @property
    def exposures(self) -> tuple[Exposure, ...]:
        """Message kinds with row values.

        Without declared messages: "gradient", and "embedding", which counts as an upload if a claim
        hides the features from the server.
        """
        if self.messages:
            return super().exposures
        hiding = ("perfect", "statistical", "computational")
        hidden = any((c.who, c.about) == ("server", "features") and c.notion in hiding
                     for c in self.claims)  # fmt: skip
        carries: Literal["upload", "embedding"] = "upload" if hidden else "embedding"
        return (Exposure("embedding", carries), Exposure("gradient", "gradient"))

    def train_layout(self) -> Batches:
        """Layout of the training rows to which the row numbers of announced batches refer."""
        return self.layout

    def joint_centre(self, stream: np.random.Generator | None = None) -> Centre:
        """New server model, as wide as the aggregated embedding; `stream` draws its weights."""
        return self.centre(self.aggregation.width(self.config.width), stream=stream)

    def evaluated(self, parties: Mapping[int, Party]) -> Collection[int]:
        """Clients whose embeddings `scores` aggregates: all, unless a method overrides this."""
        return self.peers()

    def scores(self, parties: Mapping[int, Party], features: Sequence[np.ndarray]) -> np.ndarray:
        """Server model's scores of the aggregated embeddings, without encryption."""
        server: Any = parties[SERVER]
        used = self.evaluated(parties)
        embeddings = {n: self.embed(parties[n], features[n]) for n in used}
        joint = self.aggregation.combine(*gather(embeddings, self.aggregation.parties))
        scores: np.ndarray = server.centre.scores(joint)
        return scores

    @property
    def batch_rows(self) -> int:
        """Batch size |B| in rows of one segment."""
        return self.layout.coded

    def memory(self) -> int:
        """Bytes of the test rows' embeddings, single and stacked, and of a training step."""
        batch, h = self.layout.coded * self.layout.segments, int(self.config.width)
        embeddings = self.data.parties * max(self.data.test_rows, batch) * h
        needed = 2 * 4 * embeddings
        if self.config.device == "cpu":
            needed += training_bytes(self.config.centre, self.aggregation.width(h), batch)
        return needed

    def advice(self, available: int) -> str:
        """Advice to a user with too little memory, most of which the embeddings take."""
        return "use a smaller width, or fewer rows or parties"
