"""Multi-VFL: split learning with several data owners and several label owners.

V. Mugunthan, P. Goyal, L. Kagal, "Multi-VFL: A Vertical Federated Learning System for Multiple Data
and Label Owners", 2021, Algorithm 1. D data owners hold columns, K label owners the labels of
different samples. In a global round every label owner trains on its own samples for E local epochs
by split learning with all data owners, each of whom has one copy of its network for each label
owner. Then an aggregation server makes one network of the label owners' by a server optimiser
(`securevfl.models.server_optimizers`), and each data owner averages its K copies.

Ours: cut-layer activations can be clipped and noised, with the cost accounted for as in Wait-DP
(one row of one data owner replaced, the weights given).
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from securevfl.data.alignment.align import align
from securevfl.data.label_partition import partition_labels, unheld_classes
from securevfl.engine.party import SERVER, Party
from securevfl.engine.streams import keyed_stream
from securevfl.errors import ConfigurationError
from securevfl.field.sampling import SYSTEM, SeededSource
from securevfl.models.aggregation import Aggregation
from securevfl.models.client_networks import ClientNetwork, make_client_network
from securevfl.models.server_optimizers import ServerOptimizer, average, make_server_optimizer
from securevfl.models.split import Batches, Centre
from securevfl.models.weights import load_weights, refuse_running_statistics, weights_of
from securevfl.privacy.accountant import Released
from securevfl.privacy.claims import Claim
from securevfl.privacy.mechanisms import clip_gradient, clip_rows, release_rows
from securevfl.privacy.release_counts import after_release, refuse_exceeding, refuse_repeated
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.messages import (
    SELF,
    Formula,
    GaussianNoise,
    MessageKey,
    MessageSpec,
    RunSecrets,
    announcement,
    last_word,
    with_formulas,
)
from securevfl.protocols.base.options import EmbeddingConfig
from securevfl.protocols.base.split import EmbeddingProtocol
from securevfl.protocols.base.split_step import gathered, split_step

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


class MultiVflConfig(EmbeddingConfig):
    """Options of Multi-VFL; a round is a global one."""

    rounds: int = Field(100, ge=1, description="Number R of global rounds.")
    aggregation: Literal["mean", "concat", "max"] = Field(
        "concat", description="How activations are joined to the label owners' input."
    )
    label_owners: int = Field(5, ge=1, description="Number K of label owners.")
    label_partition: str = Field(
        "equal",
        description=(
            "Who holds which labels: equal, dirichlet:A, classes:0,1/2,3, or 1niid to 4niid."
        ),
    )
    samples: int | None = Field(
        None, ge=1, description="Number of labels of each owner. Default: all that there are."
    )
    epochs: int = Field(1, ge=1, description="Local epochs E of a round.")
    server_optimizer: Literal["fedavg", "fedadam", "fedyogi", "feddemonadam"] = Field(
        "fedavg", description="How the server makes new weights of the label owners' weights."
    )
    server_lr: float = Field(
        1e-3, gt=0, description="Learning rate eta_s of the adaptive server optimisers."
    )
    beta1: float = Field(0.9, ge=0, lt=1, description="Decay of the first moment.")
    beta2: float = Field(0.99, ge=0, lt=1, description="Decay of the second moment.")
    tau: float = Field(1e-3, gt=0, description="Bound tau on the adaptivity.")
    intersection: Literal["plain", "psi"] = Field(
        "plain",
        description=(
            "How common samples are found: by identifiers in the clear, or by private set "
            "intersection."
        ),
    )
    epsilon: float | None = Field(
        None, gt=0, description="Epsilon of one release of a row's activations. Default: no noise."
    )
    delta: float = Field(
        1e-5, gt=0, lt=1, description="Delta of one release, and of all of them together."
    )
    clip: float = Field(1.0, gt=0, description="Bound C on the L2 norm of a row's activations.")
    noise: Literal["secure", "seeded"] = Field(
        "secure",
        description=(
            "Source of the noise: the operating system (system), or the run's seed "
            "(seeded), which repeats the run and protects nothing."
        ),
    )


@dataclass(frozen=True)
class Privacy(Released):
    """The noise of activations, and what it costs.

    Attributes
    ----------
    epsilon, delta, clip : float
        As for `Released`.
    seeded : bool
    """

    seeded: bool = False

    def spent(self, releases: int) -> float:
        """Epsilon of so many releases of one row: one in each local epoch, to one label owner."""
        return self.composed(releases)


class Copies:
    """A data owner's networks, one for each label owner: W^C_{d,k}.

    Parameters
    ----------
    make : callable
        New network with the initial weights, and a new optimiser.
    owners : sequence of int
        Numbers of the label owners.
    """

    def __init__(self, make: Callable[[], ClientNetwork], owners: Sequence[int]) -> None:
        self.make = make
        self.networks = {k: make() for k in owners}

    def merged(self) -> ClientNetwork:
        """A network with the mean of the copies' weights."""
        network = self.make()
        load_weights(network, average([weights_of(copy) for copy in self.networks.values()]))
        return network

    def merge(self) -> None:
        """Give every copy the mean of them (lines 12 and 13), and a new local optimiser."""
        weights = weights_of(self.merged())
        for k in self.networks:
            self.networks[k] = self.make()
            load_weights(self.networks[k], weights)

    def state_dict(self) -> dict[str, Any]:
        """State of each copy."""
        return {str(k): network.state_dict() for k, network in self.networks.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state_dict`."""
        for k, own in state.items():
            self.networks[int(k)].load_state_dict(own)


class DataOwner(Party):
    """Data owner d: columns, and a network for each label owner.

    Attributes
    ----------
    limit : int
        Releases of a row that its epsilon allows.
    released : bytes
        How often it has released each row (`securevfl.privacy.release_counts`). Seeded noise
        protects nothing and repeats itself, so it is not counted.
    """

    kept: ClassVar[tuple[str, ...]] = ("copies", "merged")
    kept_ahead: ClassVar[tuple[str, ...]] = ("released",)
    kept_optional: ClassVar[Mapping[str, Any]] = {"released": b""}
    kept_once: ClassVar[tuple[str, ...]] = ("rows",)  # as setup aligned them
    activities: ClassVar[Mapping[str, str]] = {"embedding": "upload"}

    def __init__(
        self,
        index: int,
        peers: Sequence[int],
        features: np.ndarray,
        ids: Sequence[str],
        copies: Copies,
        *,
        batch: int,
        private: bool,
        privacy: Privacy | None,
        limit: int,
    ) -> None:
        super().__init__(index, peers)
        self.limit = limit
        self.released = b""
        self.features = features
        self.ids = ids
        self.copies = copies
        self.batch = batch
        self.private = private
        self.privacy = privacy
        self.merged = 1  # the global round whose copies these are
        self.rows: dict[str, np.ndarray] = {}

    async def setup(self) -> None:
        """Find the samples in common with each label owner."""
        for k in self.copies.networks:
            others = [n for n in (*self.peers, k) if n != self.index]
            self.rows[str(k)] = await align(self, self.ids, others, private=self.private)

    async def run(self) -> None:
        """Serve the label owners; the first request of a new round finds the copies merged."""
        while True:
            payload = await self.receive("request", "gradient", "stop", safe=True)
            message = self.envelope
            assert message is not None
            if payload is None:
                self.copies.merge()
                return
            if message.kind == "request":
                round, places = payload
                if round > self.merged:  # the server began it when all were through with the last
                    self.copies.merge()
                    self.merged = round
                self.answer(message.sender, message.round, places)
            else:
                self.learn(message.sender, *payload)

    def answer(self, owner: int, number: int, places: np.ndarray) -> None:
        """Send the activations of a batch (`DataOwnerUpdate`), clipped and noised if asked to."""
        rows = self.rows[str(owner)][places]
        if self.privacy is not None:
            self.count(rows, owner)
        embedding = self.copies.networks[owner].forward(self.features[rows])
        if self.privacy is not None:
            seeded = self.privacy.seeded
            source = (
                SeededSource(self.stream("noise", owner, number).bytes(32)) if seeded else SYSTEM
            )
            embedding = release_rows(
                embedding, bound=self.privacy.clip, sigma=self.privacy.sigma, source=source
            )
        self.send(owner, "embedding", ((owner, places), embedding), round=number)

    def count(self, rows: np.ndarray, owner: int) -> None:
        """Count a release of these rows before it leaves; refuse what epsilon does not allow."""
        who = f"multivfl: data owner {self.index}, by label owner {owner},"
        refuse_repeated(rows, who)
        if self.privacy is None or self.privacy.seeded:
            return
        refuse_exceeding(self.released, rows, self.limit, who)
        self.released = after_release(self.released, rows, len(self.features))
        self.write_ahead()

    def learn(self, owner: int, named: tuple[int, np.ndarray], gradient: np.ndarray) -> None:
        """Step the owner's copy (`DataOwnerBackProp`)."""
        _, places = named
        own, network = self.features[self.rows[str(owner)][places]], self.copies.networks[owner]
        if self.privacy is not None:
            gradient = clip_gradient(network.forward(own), gradient, self.privacy.clip)
        clipped = network.update(own, gradient)
        if clipped:
            self.record("clipped", weights=clipped, bound=network.bound)

    @property
    def network(self) -> ClientNetwork:
        """The mean of the copies."""
        return self.copies.merged()

    def operations(self, kind: str) -> int:
        """Multiply-adds of embedding a batch: the forward pass, as FedVS counts them."""
        first = next(iter(self.copies.networks.values()))
        return self.batch * first.operations if kind == "embedding" else 0


@dataclass(eq=False, repr=False)
class LabelOwner(Party):
    """Label owner k: the labels of some samples, and the network beyond the cut."""

    kept_once: ClassVar[tuple[str, ...]] = ("rows",)

    index: int
    peers: Sequence[int]  # the data owners
    labels: np.ndarray
    ids: Sequence[str]
    make: Callable[[], Centre]
    aggregation: Aggregation
    public: Callable[..., np.random.Generator]
    _: KW_ONLY
    batch: int
    epochs: int
    private: bool

    def __post_init__(self) -> None:
        super().__init__(self.index, self.peers)
        self.rows = np.empty(0, np.int64)

    async def setup(self) -> None:
        """Find the samples in common with the data owners."""
        self.rows = await align(self, self.ids, self.peers, private=self.private)

    async def run(self) -> None:
        """Train locally in each global round, on the weights that the server announces."""
        async for round_ in self.rounds():
            with round_:
                centre = self.make()
                load_weights(centre, round_.payload)
                labels = self.labels[self.rows]
                batches = Batches(len(labels), 1, self.batch, self.public)
                steps = self.epochs * batches.per_epoch
                losses = [
                    await self.step(centre, batches, labels, (self.round - 1) * steps + n)
                    for n in range(1, steps + 1)
                ]
                self.send(SERVER, "weights", (float(np.mean(losses)), weights_of(centre)))

    async def step(
        self, centre: Centre, batches: Batches, labels: np.ndarray, number: int
    ) -> float:
        """One mini-batch: forward with all activations, back to all data owners; its loss."""
        places = batches.samples(batches.draw(number))
        for d in self.peers:
            self.send(d, "request", (self.round, places), round=number)
        answers = await self.collect("embedding", senders=self.peers, round=number)
        embeddings = {d: answers[d][1] for d in self.peers}
        joint = gathered(self.aggregation, embeddings, len(self.peers))
        step = split_step(centre, joint, places, labels)
        for d, gradient in step.gradients.items():
            self.send(d, "gradient", ((self.index, places), gradient), round=number)
        return step.loss


@dataclass(eq=False, repr=False)
class Server(Party):
    """The aggregation server: the label owners' common network, and the server optimiser."""

    kept: ClassVar[tuple[str, ...]] = ("centre", "optimizer", "steps")

    data_owners: Sequence[int]
    label_owners: Sequence[int]
    centre: Centre
    optimizer: ServerOptimizer
    _: KW_ONLY
    max_steps: int
    epochs: int
    privacy: Privacy | None
    steps: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        super().__init__(SERVER, (*self.data_owners, *self.label_owners))

    async def run(self) -> None:
        """Aggregate what the label owners have trained, once a round (`ServerAggregation`)."""
        while self.steps < self.max_steps:
            self.safe_point()
            weights = weights_of(self.centre)
            self.announce(self.round + 1, weights, to=self.label_owners)
            answers = await self.collect("weights", senders=self.label_owners)
            received = [trained for _, trained in answers.values()]
            load_weights(self.centre, self.optimizer.aggregate(weights, received))
            self.steps += 1
            loss = float(np.mean([own for own, _ in answers.values()]))
            self.record("round", step=self.steps, loss=loss, used=len(answers), **self.cost())
        self.conclude(to=self.label_owners)
        self.broadcast("stop", None, to=self.data_owners)

    def cost(self) -> dict[str, float]:
        """Epsilon that the releases of a row have cost so far."""
        if self.privacy is None:
            return {}
        return {"epsilon_total": self.privacy.spent(self.steps * self.epochs)}


class MultiVfl(EmbeddingProtocol):
    """Multi-VFL on one data set: `--parties` is D, and K = `label_owners` more hold the labels."""

    name = "multivfl"
    Config = MultiVflConfig
    card = Card(
        title="Multi-VFL: several data owners and several label owners",
        paper="Mugunthan, Goyal, Kagal, Multi-VFL: A Vertical Federated Learning System for "
        "Multiple Data and Label Owners, 2021",
        roles={
            "data owner": "holds some columns, and a network for each label owner",
            "label owner": "holds the labels of some samples; trains the network beyond the cut",
            "server": "aggregates the label owners' networks; holds no data",
        },
        sees={
            "data owner": "the identifiers of each label owner's samples (with intersection = "
            "'psi' only those in common), which of them are in a batch, and dL/dA of its own "
            "activations, which depends on their labels",
            "label owner": "every data owner's activations of each of its samples in every local "
            "epoch, exactly unless epsilon is set; the aggregated network",
            "server": "every label owner's network after every round, which its labels have "
            "changed, and its mean loss",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="waits",
        deviations=(
            "activations are vectors side by side, and not images stacked by channel; the label "
            "owners' network may convolve over them (centre = 'conv')",
            "label owners send their weights, of which the server takes the differences t_k: so "
            "FedAvg is the mean itself, without rounding",
            "server optimisers are those of the cited works, for the paper's formulas are garbled "
            "in print: see securevfl.models.server_optimizers",
            "local optimisers begin anew in each round; the paper does not say",
            "the mean loss of each label owner goes to the server, for the history",
            "noise on activations is ours; epsilon is of the releases of a row for given weights, "
            "and what a row teaches the weights is not covered",
            "sizes of networks, the local optimiser, initialisation and batches are ours",
        ),
    )

    def __init__(self, config: MultiVflConfig, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        tried = self.joint_centre(self.stream("centre"))  # looked at and dropped
        refuse_running_statistics(self.name, config.centre, tried.network)
        self.label_sets = partition_labels(
            config.label_partition,
            data.train_labels,
            config.label_owners,
            seed=seed,
            samples=config.samples,
        )
        self.unheld: tuple[int, ...] = ()
        if data.task != "regression":
            self.unheld = unheld_classes(data.train_labels, self.label_sets, data.test_labels)
        lost = np.intersect1d(self.unheld, data.train_labels)
        if len(lost):
            names = ", ".join(data.classes[k] if data.classes else str(k) for k in lost.tolist())
            warnings.warn(
                f"multivfl: no label owner has labels of the classes {names}, which training and "
                "test rows have; they cannot be learnt",
                stacklevel=2,
            )
        self.privacy: Privacy | None = None
        if config.epsilon is not None:
            seeded = config.noise == "seeded"
            self.privacy = Privacy(config.epsilon, config.delta, config.clip, seeded)
            if config.clip > 200 * self.privacy.sigma:
                raise ConfigurationError(
                    f"multivfl: epsilon = {config.epsilon:g} asks for noise of "
                    f"{self.privacy.sigma:.3g} on rows of norm {config.clip:g}, which is next to "
                    "none; lower epsilon"
                )
        self.card = replace(type(self).card)

    @property
    def owners(self) -> range:
        """Numbers of the label owners, after those of the data owners."""
        return range(self.data.parties, self.data.parties + self.config.label_owners)

    def parties(self) -> dict[int, Party]:
        """The server, D data owners and K label owners."""
        config = self.config
        server = Server(
            self.peers(),
            self.owners,
            self.joint_centre(),
            make_server_optimizer(
                config.server_optimizer,
                lr=config.server_lr,
                beta1=config.beta1,
                beta2=config.beta2,
                tau=config.tau,
                rounds=config.rounds,
            ),
            max_steps=config.rounds,
            epochs=config.epochs,
            privacy=self.privacy,
        )
        made: dict[int, Party] = {SERVER: server}
        for d in self.peers():
            made[d] = self.data_owner(d)
        for k in self.owners:
            made[k] = self.label_owner(k)
        return made

    def data_owner(self, index: int) -> DataOwner:
        """Data owner `index`, from 0; it holds its columns of all training rows."""
        return DataOwner(
            index,
            self.peers(),
            self.data.train[index],
            identifiers(np.arange(self.data.rows)),
            Copies(self.maker(index), self.owners),
            batch=self.batch_rows,
            private=self.config.intersection == "psi",
            privacy=self.privacy,
            limit=self.releases,
        )

    def maker(self, index: int) -> Callable[[], ClientNetwork]:
        """Makes new networks of data owner `index`, with the weights that it has everywhere."""
        shapes = self.data.party_image_shapes
        return functools.partial(
            _new_network,
            self.config.client,
            self.data.widths[index],
            self.config.width,
            self.config.degree,
            None if shapes is None else shapes[index],
            functools.partial(self.secrets.stream, index, "init"),
            self.config.client_optimizer(),
            self.config.weight_bound,
            self.config.hidden_layers(),
            self.config.own_client,
            self.data.cardinalities[index],
            self.config.embedding,
        )

    def label_owner(self, index: int) -> LabelOwner:
        """Label owner; the first draws its batches as the server of `split` does."""
        number = index - self.data.parties
        own = self.label_sets[number]
        stream = functools.partial(_own_stream, self.seed, SERVER if number == 0 else index)
        return LabelOwner(
            index,
            self.peers(),
            self.data.train_labels[own],
            identifiers(own),
            self.centre_maker(),
            self.aggregation,
            stream,
            batch=self.config.batch,
            epochs=self.config.epochs,
            private=self.config.intersection == "psi",
        )

    def centre_maker(self) -> Callable[[], Centre]:
        """Makes new networks beyond the cut, with a new local optimiser.

        Their first weights do not matter: a label owner replaces them by the server's in each
        round, and these are the server's secret at first.
        """
        task = self.data.task
        return functools.partial(
            Centre,
            task,
            self.data.num_classes if task == "multiclass" else 1,
            self.aggregation.width(self.config.width),
            network=self.config.centre,
            hidden=self.config.hidden,
            optimizer=self.config.centre_optimizer(),
            seed=int(self.stream("centre").integers(2**31)),
            own=self.config.own_centre,
            own_loss=self.config.own_loss,
        )

    def embed(self, client: Any, rows: np.ndarray) -> np.ndarray:
        """Activations of the mean of the copies; clipped as in training, without noise."""
        embedding: np.ndarray = client.network.forward(rows)
        if self.privacy is None:
            return embedding
        return clip_rows(embedding, self.privacy.clip).astype(np.float32)

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """The alignments, one under each label owner; then Algorithm 1."""
        private, h = self.config.intersection == "psi", self.config.width
        return (
            *(
                one
                for k in self.owners
                for one in with_formulas(
                    alignment_messages(k, private=private), {} if private else self.aligned(k)
                )
            ),
            announcement("label_owner", carries="weights", source="ServerAggregation"),
            MessageSpec(
                *("request", "label_owner", "client", "control"),
                count=lambda key: self.in_run(key.sender, key.round),
                recompute=lambda secrets, key: self.requested(key.sender, key.round),
                source="the batch",
            ),
            MessageSpec(
                *("embedding", "client", "label_owner", "embedding"),
                shape=lambda key: (self.rows_of(key.receiver), h),
                dtype="float32",
                row_by_row=True,
                count=lambda key: self.in_run(key.receiver, key.round),
                noise=self.activation_noise,
                source="DataOwnerUpdate",
            ),
            MessageSpec(
                *("gradient", "label_owner", "client", "gradient"),
                shape=lambda key: (self.rows_of(key.sender), h),
                dtype="float32",
                count=lambda key: self.in_run(key.sender, key.round),
                row_by_row=True,
                source="DataOwnerBackProp",
            ),
            MessageSpec("weights", "label_owner", "server", "weights", source="ServerAggregation"),
            last_word(),
        )

    @property
    def activation_noise(self) -> GaussianNoise | None:
        """Noise of activations: one release for each data owner and request."""
        config = self.config
        if config.epsilon is None:
            return None
        return GaussianNoise(
            *("features", config.epsilon, config.delta, config.clip, "clip"),
            rows=self.requested_rows,
            exact=self.exact_activations,
            releases=int(config.rounds * config.epochs),
            frame=lambda secrets, key, rows: (
                (key.receiver, self.requested(key.receiver, key.round)[1]),
                rows,
            ),
        )

    def aligned(self, owner: int) -> dict[str, Formula]:
        """Identifiers in the clear: the label owner's, all of which the data owners hold."""
        own = self.label_sets[owner - self.data.parties]
        every = np.ones(len(own), bool)
        return {
            f"ids {owner}": lambda secrets, key: identifiers(own),
            f"ids {owner} held": lambda secrets, key: every,
            f"ids {owner} common": lambda secrets, key: every,
        }

    def requested(self, owner: int, number: int) -> tuple[int, np.ndarray]:
        """Global round and places of a label owner's request; its batches are public."""
        batches = self.batches_of(owner)
        steps = int(self.config.epochs) * batches.per_epoch
        return 1 + (number - 1) // steps, batches.samples(batches.draw(number))

    def in_run(self, owner: int, number: int) -> int:
        """Count of a message of every request of a label owner, and of none beyond the last."""
        steps = self.config.rounds * self.config.epochs * self.batches_of(owner).per_epoch
        return int(1 <= number <= steps)

    def batches_of(self, owner: int) -> Batches:
        """Batches of a label owner."""
        entity = SERVER if owner == self.owners[0] else owner
        stream = functools.partial(_own_stream, self.seed, entity)
        held = len(self.label_sets[owner - self.data.parties])
        return Batches(held, 1, self.config.batch, stream)

    def requested_rows(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """Training rows of a request that an embedding answers."""
        held = np.sort(self.label_sets[key.receiver - self.data.parties])
        rows: np.ndarray = held[self.requested(key.receiver, key.round)[1]]
        return rows

    def exact_activations(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """Activations by the data owner's copy for the label owner when it sent them."""
        network = self.maker(key.sender)()
        network.load_state_dict(secrets.state(key)["copies"][str(key.receiver)])
        own = secrets.data(key.sender)["train"]
        return network.forward(own[self.requested_rows(secrets, key)])

    def rows_of(self, owner: int) -> int:
        """Rows of a batch of a label owner, which may hold fewer labels than a batch has rows."""
        held = len(self.label_sets[owner - self.data.parties])
        return int(min(self.config.batch, held))

    def named_rows(self, named: Any) -> np.ndarray | None:
        """Training rows behind a label owner's places, which are those of its samples in order."""
        if named is None:
            return None
        owner, places = named
        own: np.ndarray = self.label_sets[owner - self.data.parties][places]
        return own

    def roles(self) -> dict[str, tuple[int, ...]]:
        """Data owners are the clients."""
        return super().roles() | {"label_owner": tuple(self.owners)}

    def describe(self) -> dict[str, Any]:
        """D, K, how many labels each owner has, the noise and its cost."""
        said: dict[str, Any] = {
            "D": self.data.parties,
            "K": self.config.label_owners,
            "labels_held": [len(own) for own in self.label_sets],
            "batch_rows": self.batch_rows,
            "round": f"{self.config.epochs} local epochs of every label owner",
        }
        if self.unheld:
            said["classes_without_labels"] = list(self.unheld)
        if self.privacy is not None:
            said |= {
                "sigma": self.privacy.sigma,
                "delta": self.privacy.delta,
                "epsilon_release": self.privacy.epsilon,
                "epsilon_all_rounds": self.privacy.spent(self.releases),
                "noise": "seeded, not secure" if self.privacy.seeded else "secure",
            }
        return said

    @property
    def releases(self) -> int:
        """How often a row's activations are sent: once in each local epoch."""
        return int(self.config.rounds * self.config.epochs)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """None but what noise gives."""
        return (
            self._features_claim(),
            Claim("label owner", "model", "none", "activations are of its own choice of rows"),
            Claim("client", "labels", "none", "dL/dA depends on them"),
            Claim("server", "labels", "none", "the label owners' networks depend on them"),
            Claim("server", "features", "none", "the label owners' networks depend on them"),
            Claim("server", "model", "none", "it holds the label owners' network"),
        )

    def _features_claim(self) -> Claim:
        privacy = self.privacy
        if privacy is None:
            return Claim("label owner", "features", "none", "activations are sent in the clear")
        if privacy.seeded:
            why = "the noise is seeded: whoever knows the seed takes it off"
            return Claim("label owner", "features", "none", why)
        return Claim(
            "label owner",
            "features",
            "differential",
            f"({privacy.epsilon:g}, {privacy.delta:g}) for each release of a row and "
            f"({privacy.spent(self.releases):.3g}, {privacy.delta:g}) for all of them, one row of "
            "one data owner replaced; analytic Gaussian mechanism, its weights given",
        )


def alignment_messages(leader: int, *, private: bool) -> tuple[MessageSpec, ...]:
    """Messages of `align` under a label owner, which all data owners are members of."""
    name = f"psi {leader}" if private else f"ids {leader}"
    member, head = "client", "label_owner"
    if not private:
        links = [(name, head, member), (f"{name} held", member, head)]
        links.append((f"{name} common", head, member))
    else:  # a ring of all of them, whose finished sets go to the leader
        ring = [(member, member), (member, head), (head, member)]
        links = [(name, *ends) for ends in ring]
        links += [(f"{name} finished", member, head), (f"{name} finished", head, SELF)]
        links += [(f"{name} common", head, member), (f"{name} common", head, SELF)]
        links += [(f"{name} count", *ends) for ends in ring]
    return tuple(MessageSpec(*link, "identifier", source="setup") for link in links)


def identifiers(rows: np.ndarray) -> tuple[str, ...]:
    """Identifiers of training rows; their order is that of the rows."""
    return tuple(f"{row:010d}" for row in rows.tolist())


def _new_network(
    kind: Any,
    features: int,
    width: int,
    depth: int,
    shape: tuple[int, int, int] | None,
    drawn: Callable[[], np.random.Generator],
    optimizer: dict[str, Any],
    bound: float | None,
    layers: tuple[int, ...],
    own: str,
    cardinalities: tuple[int, ...],
    embedding: int,
) -> ClientNetwork:
    return make_client_network(
        kind,
        features,
        width,
        depth,
        image_shape=shape,
        stream=drawn(),
        optimizer=optimizer,
        bound=bound,
        layers=layers,
        own=own,
        cardinalities=cardinalities,
        embedding=embedding,
    )


def _own_stream(seed: int, entity: int, name: str, *keys: int) -> np.random.Generator:
    """A label owner's layout and order of its samples: public, for its requests name them."""
    return keyed_stream(seed, entity, f"train/{name}", *keys)
