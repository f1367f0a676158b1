"""FedOnce: guests learn without labels and send their representations once.

Z. Wu, Q. Li, B. He, "Practical Vertical Federated Learning with Unsupervised Representation
Learning", 2022, as DVFL has it for a baseline. Each guest trains its network on an objective of its
own: noise as targets (`securevfl.models.pretraining.noise_targets`), or an auto-encoder. Then the
server asks once for the representations of the aligned rows, batch by batch, and trains its model
on them with its labels. Nothing that depends on a label ever leaves the server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np
from pydantic import Field

from securevfl.engine.party import SERVER, Party, kept_as
from securevfl.errors import ConfigurationError, RunError
from securevfl.models.aggregation import Aggregation
from securevfl.models.client_networks import Kind
from securevfl.models.pretraining.autoencoder import AutoEncoder, make_autoencoder
from securevfl.models.pretraining.noise_targets import NoiseTargets
from securevfl.models.pretraining.trainer import own_rows
from securevfl.models.split import Batches, Centre, rows_of
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.embedding import EmbeddingProtocol
from securevfl.protocols.base.messages import MessageKey, MessageSpec, in_setup
from securevfl.protocols.base.open_embeddings import FIELD
from securevfl.protocols.base.options import SegmentedConfig
from securevfl.protocols.base.split_step import aggregated, split_step
from securevfl.verified import Chance, Model, Participant, Provable, Secret, World, bare_of

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
        """Arguments of `make_optimizer` for a guest's local updates."""
        steps = self.local_rounds or self.rounds
        falls = self.lr_decay == "linear"
        return super().client_optimizer() | {"decay_steps": steps if falls else 0}


class Learner(Protocol):
    """Interface of a guest's network with its objective."""

    @property
    def operations(self) -> int:
        """Multiply-adds of `encode` for each row."""

    def learn(self, features: np.ndarray, places: np.ndarray, epoch: int) -> tuple[float, int]:
        """One step on rows `places`; return (loss before it, number of clipped weights)."""

    def encode(self, rows: np.ndarray) -> np.ndarray:
        """Representations of rows, (rows, h) float32."""

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimiser state, and the state of the objective."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from `state_dict`."""


class Noise(NoiseTargets):
    """Learner with noise as targets, reassigned in every `every`-th epoch from the first on."""

    def __init__(self, *given: Any, every: int, **more: Any) -> None:
        super().__init__(*given, **more)
        self.every = every

    @property
    def operations(self) -> int:
        """Multiply-adds of the network for each row."""
        return self.network.operations

    def learn(self, features: np.ndarray, places: np.ndarray, epoch: int) -> tuple[float, int]:
        """One step towards targets, reassigned each `every`-th epoch; (loss, clipped weights)."""
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
        """One step of reconstruction of rows `places`; return (loss before it, 0 clipped)."""
        return self.encoder.train(features[places], self._stream), 0


def order(chance: Chance, rows: int, size: int, epoch: int) -> np.ndarray:
    """Row numbers of a guest's batches in an epoch, (batches, |B|), in a secret order."""

    def stream(name: str, *keys: int) -> np.random.Generator:
        return chance.stream(f"local/{name}", *keys)

    own = Batches(rows, 1, size, stream)
    first = epoch * own.per_epoch + 1
    return np.stack([own.samples(own.draw(first + n)) for n in range(own.per_epoch)])


def learn(
    learner: Learner, rows: np.ndarray, batches: np.ndarray, place: int, epoch: int
) -> tuple[np.float32, np.float32]:
    """One step on batch number `place`; return (loss before it, number of clipped weights)."""
    loss, clipped = learner.learn(rows, batches[place], epoch)
    return np.float32(loss), np.float32(clipped)


def encode(learner: Learner, rows: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Representations of rows `samples` (-1: of zeros) of the matrix `rows`."""
    return learner.encode(rows_of(rows, samples))


def added(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Sum of two counts."""
    total: np.ndarray = np.add(one, other)
    return total


def stack(first: np.ndarray, parties: int, came: Sequence[int], *others: np.ndarray) -> np.ndarray:
    """Representations, (N, rows, h), from the guests in `came`; zeros for the others."""
    whole = np.zeros((parties, *first.shape), np.float32)
    whole[list(came)] = np.stack((first, *others))
    return whole


def table(
    one: np.ndarray, rows: int, samples: Sequence[np.ndarray], *stacks: np.ndarray
) -> np.ndarray:
    """Representations of all rows, (N, M + 1, h), from pieces; the last row is for padding."""
    whole = np.zeros((len(one), rows + 1, one.shape[2]), np.float32)
    for some, found in zip(samples, stacks, strict=True):
        whole[:, some] = found
    return whole


def step(
    centre: Centre, labels: np.ndarray, samples: np.ndarray, rule: Aggregation, whole: np.ndarray
) -> np.float32:
    """One step of the server's model on columns `samples` of table `whole`; loss before it."""
    some = whole[:, samples]
    joint = aggregated(rule, some, np.ones(some.shape[:2], bool), clients=())
    return np.float32(split_step(centre, joint, samples, labels).loss)


def table_of(layout: Batches, stacks: Sequence[Any], rows: int) -> Secret:
    """Protected `table` (N, M + 1, h) of representations from pieces, M = `rows`."""
    one = next(found for found in stacks if isinstance(found, Secret))
    samples = [layout.samples(piece(layout, n)) for n in range(len(stacks))]
    shape = (one.shape[0], rows + 1, one.shape[2])
    whole: Secret = one.map(table, rows, samples, *stacks, shape=shape)
    return whole


class Guest(Participant):
    """Guest n: learns from all its own rows, then sends representations of the aligned ones."""

    kept: ClassVar[tuple[str, ...]] = ("learner", "trained")
    protected: ClassVar[Mapping[str, str]] = {"embedding": "real"}

    def __init__(
        self,
        index: int,
        peers: Sequence[int],
        layout: Batches,
        own: np.ndarray,  # the aligned rows, then its unaligned ones
        learner: Learner,
        chance: Chance,
        *,
        batch: int,
        width: int,
        bound: float | None,
        updates: int,
    ) -> None:
        super().__init__(index, peers, FIELD)
        self.multiply_adds = learner.operations
        self.learner = self.own_model("network", learner)
        self.own_rows = self.own("columns", own)
        self.chance = self.own_model("chance", chance)
        self.layout, self.width, self.bound, self.updates = layout, width, bound, updates
        self.batch, self.coded = batch, min(batch, len(own))
        self.per_epoch = max(1, len(own) // self.coded)
        self.trained = 0

    async def run(self) -> None:
        """Train before round 1; then send each round's rows, every row once."""
        await self.train()
        async for round_ in self.rounds():
            with round_:
                samples = self.layout.samples(round_.payload)
                shape = (len(samples), self.width)
                found = self.learner.call(encode, self.own_rows, samples, shape=shape)
                self.send(SERVER, "embedding", found)

    async def train(self) -> None:
        """Do all remaining local updates."""
        if self.trained == self.updates:
            return
        total: Any = 0
        drawn: tuple[int, Any] = (-1, None)
        while self.trained < self.updates:
            self.safe_point()
            await self.sleep(0)  # other parties run meanwhile, and the run can be interrupted
            epoch, place = divmod(self.trained, self.per_epoch)
            if drawn[0] != epoch:
                drawn = epoch, self.batches_of(epoch)
            given = (self.own_rows, drawn[1], place, epoch)
            loss, clipped = self.learner.step(learn, *given, shapes=[(), ()])
            if self.bound is not None:
                total = clipped.map(added, total, dtype=np.int64)
            self.trained += 1
        self.record("trained", updates=self.updates, loss=loss, clipped=total)
        self.send(SERVER, "trained", None)

    def batches_of(self, epoch: int) -> Secret:
        """Row numbers of the batches of an epoch, (batches, |B|), in a secret order."""
        shape = (self.per_epoch, self.coded)
        public = (self.own_rows.shape[0], self.batch, epoch)
        found: Secret = self.chance.call(order, *public, shape=shape, dtype=np.int64)
        return found

    def operations(self, kind: str) -> int:
        """Multiply-adds: forward and backward of all local updates, and forward of a batch."""
        if kind == "trained":
            return 3 * self.updates * self.coded * self.multiply_adds
        samples = self.layout.coded * self.layout.segments
        return samples * self.multiply_adds if kind == "embedding" else 0


class Server(Participant):
    """Server: collects the representations once, and trains its model on them."""

    kept: ClassVar[tuple[str, ...]] = (
        *("centre", "steps", "ready", "came", "concluded"),
        *kept_as("frozen", "received"),
    )
    protected = Guest.protected

    def __init__(
        self,
        peers: Sequence[int],
        layout: Batches,
        aggregation: Aggregation,
        centre: Centre,
        labels: np.ndarray,
        *,
        max_steps: int,
        width: int,
        timeout: float | None,
    ) -> None:
        super().__init__(SERVER, peers, FIELD)
        self.layout, self.aggregation, self.width = layout, aggregation, width
        self.centre = self.own_model("centre", centre)
        self.labels = self.own("labels", labels)
        self.max_steps, self.timeout = max_steps, timeout
        self.ready = self.concluded = False
        self.steps = 0
        self.received: tuple[Any, ...] = ()
        # (N, pieces): whether each piece of each guest came
        self.came = np.zeros((len(self.peers), pieces(layout)), bool)

    async def run(self) -> None:
        """Wait for the guests' training, request every row's representation, stop them, and train.

        RunError if no representation came.
        """
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
        """Request one piece of the rows; zeros replace missing representations."""
        number = len(self.received)
        batch = piece(self.layout, number)
        self.announce(self.round + 1, batch)
        came = await self.collect("embedding", timeout=self.timeout)
        shape = (len(self.peers), len(self.layout.samples(batch)), self.width)
        found: Any = np.zeros(shape, np.float32)
        if came:
            first, *others = came.values()
            found = first.map(stack, shape[0], tuple(came), *others, shape=shape)
        self.came[list(came), number] = True
        self.received = (*self.received, found)
        missing = [n for n in self.peers if n not in came]
        self.record("collected", piece=number, filled=len(missing), missing=missing)

    async def train(self) -> None:
        """Train the server model without messages."""
        whole = table_of(self.layout, self.received, self.labels.shape[0])
        used = int(self.came.any(axis=1).sum())
        while self.steps < self.max_steps:
            self.safe_point()
            await self.sleep(0)
            self.round += 1
            samples = self.layout.samples(self.layout.draw(self.steps + 1))
            given = (self.labels, samples, self.aggregation, whole)
            (loss,) = self.centre.step(step, *given, shapes=[()])
            self.steps += 1
            self.record("round", step=self.steps, loss=loss, used=used)


class FedOnce(Provable, EmbeddingProtocol):
    """FedOnce on one data set."""

    name = "fedonce"
    apart = True
    Config = FedOnceConfig
    field = FIELD
    traced_options: ClassVar[dict[str, Any]] = {
        "rounds": 2, "batch": 4, "width": 2, "hidden": 3, "guest_hidden": 3,
    }  # fmt: skip
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
        """Raise ConfigurationError for a useless or missing timeout, or unfit networks."""
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
        """Guest `index`, counted from 0; it also learns from its unaligned rows."""
        own = own_rows(self.data.train[index], self.data.alone[index] if self.data.alone else None)
        return Guest(
            *(index, self.peers(), self.layout, own, self.learner(index, own)),
            Chance(self.secrets, index),
            batch=self.config.batch,
            width=self.config.width,
            bound=self.config.weight_bound if self.config.objective == "nat" else None,
            updates=self.updates,
        )

    @property
    def updates(self) -> int:
        """Number of local updates of each guest."""
        return int(self.config.local_rounds or self.config.rounds)

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
        """Representation that a guest's network makes of rows."""
        embedding: np.ndarray = bare_of(client.learner).encode(rows)
        return embedding

    @property
    def last_fault(self) -> int:
        """Last round with messages; afterwards only the server trains."""
        return pieces(self.layout)

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Message declarations: each guest's end of training, then its representations, once."""
        opening, embedding, _ = self.step_messages()
        trained = MessageSpec("trained", "client", "server", "control", count=in_setup)
        of_piece = replace(embedding, shape=self.of_piece, source="the representations")
        return trained, opening, of_piece

    def colluders(self) -> int:
        """Number of colluding guests: N - 1, all but one."""
        return len(self.peers()) - 1

    def ideal(self, world: World) -> None:
        """Declare outputs: representations to the server, losses to all."""
        guests, M = len(self.peers()), self.data.rows
        stacks: list[list[Any]] = [[] for _ in range(pieces(self.layout))]
        for n in self.peers():
            learner, rows = world.the(n, "network"), world.the(n, "columns")
            self.ideal_guest(world, n, learner, rows)
            for number, found in enumerate(stacks):
                samples = self.layout.samples(piece(self.layout, number))
                shape = (len(samples), self.config.width)
                found.append(learner.call(encode, rows, samples, shape=shape))
                world.output(f"piece {number} of {n}", found[-1], to=[SERVER], alone=True)
        whole = [
            first.map(stack, guests, tuple(self.peers()), *rest, shape=(guests, *first.shape))
            for first, *rest in stacks
        ]
        centre, labels = world.the(SERVER, "centre"), world.the(SERVER, "labels")
        for r in range(1, self.config.rounds + 1):
            samples = self.layout.samples(self.layout.draw(r))
            given = (labels, samples, self.aggregation, table_of(self.layout, whole, M))
            (loss,) = centre.step(step, *given, shapes=[()])
            world.output(f"loss {r}", loss)

    def ideal_guest(self, world: World, n: int, learner: Model, rows: Secret) -> None:
        """Train a guest; its last loss and the number of clipped weights are outputs to all."""
        chance, held, total = world.the(n, "chance"), rows.shape[0], None
        coded = min(self.config.batch, held)
        shape = (max(1, held // coded), coded)
        for number in range(self.updates):
            epoch, place = divmod(number, shape[0])
            public = (held, self.config.batch, epoch)
            batches = chance.call(order, *public, shape=shape, dtype=np.int64)
            loss, clipped = learner.step(learn, rows, batches, place, epoch, shapes=[(), ()])
            if self.config.weight_bound is not None and self.config.objective == "nat":
                total = clipped.map(added, 0 if total is None else total, dtype=np.int64)
        world.output(f"loss of {n}", loss, alone=True)
        if total is not None:
            world.output(f"clipped weights of {n}", total, alone=True)

    def of_piece(self, key: MessageKey) -> tuple[int, int] | None:
        """Shape of a guest's representations in a round; None if it is not known in advance.

        The last piece of the rows may be short. A server that crashed requests a piece again in a
        later round, so from the first round of the last piece on the shape is not known.
        """
        rows, last = self.layout.coded, pieces(self.layout) - 1
        if key.round > last and len(piece(self.layout, last)) < rows:
            return None
        return rows * self.layout.segments, self.config.width

    def describe(self) -> dict[str, Any]:
        """Figures for summaries: N, |B|, local updates, and the event counted as a round."""
        return {
            "N": self.data.parties,
            "batch_rows": self.batch_rows,
            "local_updates": self.updates,
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
        """Claims of no protection against the server; no message depends on labels."""
        return (
            Claim("server", "features", "none", "representations are sent in the clear"),
            Claim("server", "model", "none", "representations are sent in the clear"),
            Claim("client", "labels", "perfect", "guests are sent nothing but row numbers, in an "
                  "order that depends on no label; the names of the classes are public; given "
                  "that training ends: that it diverges tells of labels"),
        )  # fmt: skip


def pieces(layout: Batches) -> int:
    """Number of pieces, each at most a batch, that cover all rows."""
    return -(-layout.length // layout.coded)


def piece(layout: Batches, number: int) -> np.ndarray:
    """Row numbers, within segments, of a piece, uint32; the last piece may be shorter."""
    start = number * layout.coded
    return np.arange(start, min(start + layout.coded, layout.length), dtype=np.uint32)
