"""FedOnce: guests learn without labels and send their representations once.

Z. Wu, Q. Li, B. He, "Practical Vertical Federated Learning with Unsupervised Representation
Learning", 2022, as DVFL has it for a baseline. Each guest trains its network on an objective of its
own: noise as targets (`securevfl.models.pretraining.noise_targets`), or an auto-encoder. Then the
server asks once for the representations of the aligned rows, batch by batch, and trains its model
on them with its labels. Nothing that depends on a label ever leaves the server.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from pydantic import Field

from securevfl.engine.party import ANNOUNCE, SERVER, Party
from securevfl.engine.streams import Secrets
from securevfl.errors import ConfigurationError, RunError
from securevfl.models.aggregation import Aggregation
from securevfl.models.client_networks import Kind
from securevfl.models.pretraining.autoencoder import AutoEncoder, make_autoencoder
from securevfl.models.pretraining.noise_targets import NoiseTargets
from securevfl.models.split import Batches, Centre, rows_of
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.embedding import EmbeddingProtocol
from securevfl.protocols.base.messages import (
    MessageKey,
    MessageSpec,
    RunSecrets,
    in_setup,
    nothing,
)
from securevfl.protocols.base.options import SegmentedConfig
from securevfl.protocols.base.split_step import aggregated, split_step

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


class FedOnceConfig(SegmentedConfig):
    """Options of FedOnce; a round is a step of the server's model."""

    width: int = Field(
        16,
        ge=1,
        description="Width h of a representation: how many numbers a guest makes of one row.",
    )
    aggregation: Literal["mean", "concat", "max"] = Field(
        "concat", description="How representations are joined to the server's input."
    )
    client: Kind = Field("mlp", description="Networks of the guests, with objective = nat.")
    objective: Literal["nat", "autoencoder"] = Field(
        "nat",
        description=(
            "What guests learn without labels: to match random targets (nat, noise as "
            "targets), or to reconstruct their columns (autoencoder)."
        ),
    )
    local_rounds: int | None = Field(
        None, ge=1, description="Updates of each guest before it sends. Default: as many as rounds."
    )
    reassign: int = Field(
        3, ge=1, description="Epochs between exchanges of targets, with objective = nat."
    )
    guest_hidden: int = Field(
        64, ge=1, description="Width of the guests' hidden layer, with objective = autoencoder."
    )
    absent: Literal["wait", "zeros"] = Field(
        "wait",
        description=(
            "What happens when a representation is missing: wait for it, or put zeros after"
            " the timeout."
        ),
    )
    timeout: float | None = Field(
        None,
        gt=0,
        description=(
            "Seconds for which the server waits for a batch. It is needed with absent = "
            "zeros. Default: it waits for all."
        ),
    )

    def client_optimizer(self) -> dict[str, Any]:
        """Arguments of `make_optimizer` for a guest, whose updates are the local ones."""
        steps = self.local_rounds or self.rounds
        falls = self.lr_decay == "linear"
        return super().client_optimizer() | {"decay_steps": steps if falls else 0}


class Learner(Protocol):
    """Interface of a guest's network with its objective."""

    @property
    def operations(self) -> int:
        """Multiply-adds of `encode` for each row."""

    def learn(self, features: np.ndarray, places: np.ndarray, epoch: int) -> tuple[float, int]:
        """One step on some rows; the loss before it, and weights that were clipped."""

    def encode(self, rows: np.ndarray) -> np.ndarray:
        """Representations of rows, (rows, h) float32."""

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimiser state, and the state of the objective."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""


class Noise(NoiseTargets):
    """Learner with noise as targets, assigned anew in every `every`-th epoch from the first on."""

    def __init__(self, *given: Any, every: int, **more: Any) -> None:
        super().__init__(*given, **more)
        self.every = every

    @property
    def operations(self) -> int:
        """Multiply-adds of the network for each row."""
        return self.network.operations

    def learn(self, features: np.ndarray, places: np.ndarray, epoch: int) -> tuple[float, int]:
        """One step towards the targets."""
        return self.train(features[places], places, reassign=epoch % self.every == 0)


class Reconstruction:
    """Learner with an auto-encoder."""

    def __init__(self, encoder: AutoEncoder, stream: np.random.Generator) -> None:
        self.encoder = encoder
        self.operations = encoder.operations
        self.encode = encoder.encode
        self.state_dict = encoder.state_dict
        self.load_state_dict = encoder.load_state_dict
        self._stream = stream  # unused: an auto-encoder draws nothing

    def learn(self, features: np.ndarray, places: np.ndarray, epoch: int) -> tuple[float, int]:
        """One step of reconstruction."""
        return self.encoder.train(features[places], self._stream), 0


@dataclass(eq=False, repr=False)
class Guest(Party):
    """Guest n: learns from all its own rows, then sends representations of the aligned ones."""

    kept: ClassVar[tuple[str, ...]] = ("learner", "trained")

    index: int
    peers: Sequence[int]
    layout: Batches
    shared: np.ndarray
    own: np.ndarray  # the aligned rows, then its unaligned ones
    batches: Batches
    learner: Learner
    updates: int = field(kw_only=True)
    trained: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        super().__init__(self.index, self.peers)

    async def run(self) -> None:
        """Train before the first round; then send the rows of each round, every row once."""
        await self.train()
        async for round_ in self.rounds():
            with round_:
                rows = rows_of(self.shared, self.layout.samples(round_.payload))
                self.send(SERVER, "embedding", self.learner.encode(rows))

    async def train(self) -> None:
        """Do all local updates that are left."""
        if self.trained == self.updates:
            return
        loss, clipped = 0.0, 0
        while self.trained < self.updates:
            self.safe_point()
            await self.sleep(0)  # other parties run meanwhile, and the run can be interrupted
            places = self.batches.samples(self.batches.draw(self.trained + 1))
            epoch = self.trained // self.batches.per_epoch
            loss, beyond = self.learner.learn(self.own, places, epoch)
            clipped += beyond
            self.trained += 1
        self.record("trained", updates=self.updates, loss=loss, clipped=clipped)
        self.send(SERVER, "trained", None)

    def operations(self, kind: str) -> int:
        """Multiply-adds: forward and backward of all local updates, and forward of a batch."""
        if kind == "trained":
            return 3 * self.updates * self.batches.coded * self.learner.operations
        samples = self.layout.coded * self.layout.segments
        return samples * self.learner.operations if kind == "embedding" else 0


@dataclass(eq=False, repr=False)
class Server(Party):
    """Server: collects the representations once, and trains its model on them."""

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps", "ready", "came", "concluded")
    kept_frozen: ClassVar[tuple[str, ...]] = ("received",)

    peers: Sequence[int]
    layout: Batches
    aggregation: Aggregation
    centre: Centre
    labels: np.ndarray
    _: KW_ONLY
    max_steps: int
    width: int
    timeout: float | None
    ready: bool = field(default=False, init=False)
    concluded: bool = field(default=False, init=False)
    steps: int = field(default=0, init=False)
    received: tuple[np.ndarray, ...] = field(default=(), init=False)
    came: np.ndarray = field(init=False)  # (N, pieces), whether each piece of each guest came

    def __post_init__(self) -> None:
        super().__init__(SERVER, self.peers)
        self.came = np.zeros((len(self.peers), pieces(self.layout)), bool)

    async def run(self) -> None:
        """Wait for the guests' training, ask for every row once, end their part, and train."""
        if not self.ready:
            await self.wait_for_guests()
        self.ready = True
        while len(self.received) < pieces(self.layout):
            self.safe_point()
            await self.ask()
        if not self.concluded:
            self.conclude()
        self.concluded = True
        if not self.came.any():
            raise RunError(
                f"fedonce: no model was trained: not one of {self.came.size} representations came "
                f"within {self.timeout} s; in round {self.round - 1} there were none of "
                f"{', '.join(f'party {n}' for n in self.peers)}. Use a longer timeout, or "
                "absent = 'wait'"
            )
        await self.train()

    async def wait_for_guests(self) -> None:
        """Wait until all guests have trained; with a timeout, at most so long after the first."""
        others = set(self.peers)
        if self.timeout is not None:
            await self.receive("trained")
            assert self.envelope is not None
            others.remove(self.envelope.sender)
        if others:
            await self.collect("trained", senders=others, timeout=self.timeout)

    async def ask(self) -> None:
        """Ask for one piece of the rows; zeros replace representations that do not come."""
        number = len(self.received)
        batch = piece(self.layout, number)
        self.announce(self.round + 1, batch)
        representations = await self.collect("embedding", timeout=self.timeout)
        shape = (len(self.peers), len(self.layout.samples(batch)), self.width)
        stack = np.zeros(shape, np.float32)
        for n, representation in representations.items():
            stack[n], self.came[n, number] = representation, True
        self.received = (*self.received, stack)
        missing = [n for n in self.peers if n not in representations]
        self.record("collected", piece=number, filled=len(missing), missing=missing)

    async def train(self) -> None:
        """Train the server model; nothing is sent."""
        table = self.table()
        while self.steps < self.max_steps:
            self.safe_point()
            await self.sleep(0)
            self.round += 1
            samples = self.layout.samples(self.layout.draw(self.steps + 1))
            stack = table[:, samples]
            everywhere = np.ones(stack.shape[:2], bool)
            joint = aggregated(self.aggregation, stack, everywhere, clients=())
            step = split_step(self.centre, joint, samples, self.labels)
            self.steps += 1
            used = int(self.came.any(axis=1).sum())
            self.record("round", step=self.steps, loss=step.loss, used=used)

    def table(self) -> np.ndarray:
        """Representations of all rows, (N, M + 1, h); the last row is that of padding."""
        table = np.zeros((len(self.peers), len(self.labels) + 1, self.width), np.float32)
        for number, stack in enumerate(self.received):
            table[:, self.layout.samples(piece(self.layout, number))] = stack
        return table


class FedOnce(EmbeddingProtocol):
    """FedOnce on one data set."""

    name = "fedonce"
    apart = True
    Config = FedOnceConfig
    fault_options: ClassVar[dict[str, Any]] = {"absent": "zeros", "timeout": 1.0}
    card = Card(
        title="FedOnce",
        paper="Wu, Li, He, Practical Vertical Federated Learning with Unsupervised Representation "
        "Learning, 2022; DVFL section 6 for zeros",
        roles={
            "server": "holds the labels; collects all representations once and trains its model",
            "client": "a guest: holds some columns, learns a representation without labels",
        },
        sees={
            "server": "every guest's representation of every shared row, exactly and once",
            "client": "which rows are asked for when: a public order; nothing of labels, of others "
            "or of what the server learns",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="waits",
        deviations=(
            "the label holder has no columns; in the paper it has some, and its network is trained "
            "with the model",
            "the one communication is cut into batches, so that faults apply to parts of it, as "
            "DVFL's figures suppose; each row is sent once",
            "local training comes before the first round, where fault chains do not apply; "
            "they apply to the communication, and not the server's training, as in DVFL",
            "noise as targets: the batches' targets are exchanged in epochs 0, 3, 6, ...; what is "
            "sent has norm 1, as in training",
            "the auto-encoder is DVFL's, d - hidden - h with a leaky ReLU and a ReLU",
            "no noise is added; the paper has a variant with differential privacy",
            "sizes of networks, the optimiser, initialisation and batches are ours",
        ),
    )

    def __init__(self, config: FedOnceConfig, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        if config.absent == "zeros":
            self.card = replace(type(self).card, absence="fills")

    @classmethod
    def check_parties(cls, config: FedOnceConfig, parties: int) -> None:
        """Refuse a timeout without use or none, and clients that the objective does not have."""
        super().check_parties(config, parties)
        fills = config.absent == "zeros"
        if fills != (config.timeout is not None):
            raise ConfigurationError(
                f"fedonce: absent = {config.absent!r} "
                + (
                    "needs a timeout, the seconds that a batch is waited for, such as 1.0"
                    if fills
                    else f"has no timeout, and timeout = {config.timeout:g} was given; leave it "
                    "out, or use absent = 'zeros'"
                )
            )
        if config.objective == "autoencoder" and config.client_kind != "mlp":
            raise ConfigurationError(
                "fedonce: an auto-encoder has two Linear layers, so client = "
                f"{config.client_kind!r} has no meaning for it; leave it out"
            )

    def parties(self) -> dict[int, Party]:
        """The server and N guests."""
        server = self.make_server(Server, width=self.config.width, timeout=self.config.timeout)
        return {SERVER: server} | {n: self.guest(n) for n in self.peers()}

    def guest(self, index: int) -> Guest:
        """Guest `index`, from 0; it learns from its unaligned rows, too."""
        shared = self.data.train[index]
        own = self.own_rows(shared, index)
        stream = functools.partial(_own_stream, self.secrets, index)
        return Guest(
            index,
            self.peers(),
            self.layout,
            shared,
            own,
            Batches(len(own), 1, self.config.batch, stream),
            self.learner(index, own),
            updates=self.config.local_rounds or self.config.rounds,
        )

    def own_rows(self, shared: np.ndarray, index: int) -> np.ndarray:
        """All rows of a guest, the shared ones first."""
        return np.concatenate([shared, self.data.alone[index]]) if self.data.alone else shared

    def learner(self, index: int, own: np.ndarray) -> Learner:
        """New network of a guest, with its objective."""
        config = self.config
        if config.objective == "nat":
            targets = self.secret_stream(index, "targets")
            network = self.client_network(index)
            return Noise(network, len(own), config.width, stream=targets, every=config.reassign)
        inside = own.size > 0 and own.min() >= 0 and own.max() <= 1
        encoder = make_autoencoder(
            self.data.widths[index],
            config.guest_hidden,
            config.width,
            stream=self.secret_stream(index, "init"),
            optimizer=config.client_optimizer(),
            decoded="sigmoid" if inside else "none",
        )
        return Reconstruction(encoder, self.secret_stream(index, "objective"))

    def embed(self, client: Any, rows: np.ndarray) -> np.ndarray:
        """A guest's representation of rows."""
        embedding: np.ndarray = client.learner.encode(rows)
        return embedding

    @property
    def last_fault(self) -> int:
        """The last round of the communication."""
        return pieces(self.layout)

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Ends of the guests' training, and each representation once; nothing is sent back."""
        opening, embedding, _ = self.step_messages()
        return (
            MessageSpec(
                *("trained", "client", "server", "control"), count=in_setup, recompute=nothing
            ),
            replace(opening, recompute=self.piece_asked_for),
            replace(
                embedding,
                shape=self.of_piece,
                recompute=self.representation,
                source="the representations",
            ),
        )

    def piece_asked_for(self, secrets: RunSecrets, key: MessageKey) -> Any:
        """The next rows that the server does not have, or the end."""
        number = len(secrets.state(key)["received"])
        return "stop" if number == pieces(self.layout) else piece(self.layout, number)

    def representation(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """A guest's representation of the rows, by its network when it sent it."""
        own = self.own_rows(secrets.data(key.sender)["train"], key.sender)
        learner = self.learner(key.sender, own)
        learner.load_state_dict(secrets.state(key)["learner"])
        batch = secrets.sent(ANNOUNCE, key.round)[SERVER, key.sender]
        shared = secrets.data(key.sender)["train"]
        return learner.encode(rows_of(shared, self.layout.samples(batch)))

    def of_piece(self, key: MessageKey) -> tuple[int, int] | None:
        """Shape of the representations of a round: the last piece may be short.

        A server that crashed asks for a piece again, in a later round. So from the round on in
        which the last piece can be asked for, a short one is known by its announcement alone: None.
        """
        rows, last = self.layout.coded, pieces(self.layout) - 1
        if key.round > last and len(piece(self.layout, last)) < rows:
            return None
        return rows * self.layout.segments, self.config.width

    def describe(self) -> dict[str, Any]:
        """N, |B|, local updates, and what a round is."""
        return {
            "N": self.data.parties,
            "batch_rows": self.batch_rows,
            "local_updates": self.config.local_rounds or self.config.rounds,
            "communication_rounds": pieces(self.layout),
            "round": "one step of the server's model, after the communication",
        }

    def memory(self) -> int:
        """Bytes of the base class, of all representations (pieces and table) and of the targets."""
        every = 4 * self.data.parties * (self.data.rows + 1) * int(self.config.width)
        alone = sum(map(len, self.data.alone))
        return super().memory() + 3 * every + alone * (4 * int(self.config.width) + 8)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """No protection against the server; nothing that depends on labels is sent."""
        return (
            Claim("server", "features", "none", "representations are sent in the clear"),
            Claim("server", "model", "none", "representations are sent in the clear"),
            Claim("client", "labels", "perfect", "guests are sent nothing but row numbers, in an "
                  "order that depends on no label; the names of the classes are public; given "
                  "that training ends: that it diverges tells of labels"),
        )  # fmt: skip


def pieces(layout: Batches) -> int:
    """Number of batches that hold every row once."""
    return -(-layout.length // layout.coded)


def piece(layout: Batches, number: int) -> np.ndarray:
    """Coded rows of one of these batches, uint32; the last one may be short."""
    start = number * layout.coded
    return np.arange(start, min(start + layout.coded, layout.length), dtype=np.uint32)


def _own_stream(secrets: Secrets, guest: int, name: str, *keys: int) -> np.random.Generator:
    """Secret stream of a guest's order of its rows."""
    return secrets.stream(guest, f"local/{name}", *keys)
