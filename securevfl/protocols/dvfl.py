"""DVFL: decoupled vertical federated learning.

Anonymous authors, "Decoupled Vertical Federated Learning for Practical Training on Vertically
Partitioned Data", under review (MLSys): section 5, Algorithm 1 and appendices D and F. Guests train
encoders on an objective of their own and write what these make of their batches into registers;
hosts, of which there are several for redundancy, train auto-encoders on what the registers hold.
Nobody waits for anybody, and nothing flows back. At the end the owner learns a classifier on the
hosts' encodings of the rows that all guests have and whose labels it holds.

Guests and hosts go by the clock: round r begins at (r - 1) `interval`. A party that was down goes
on with the round that it then is, and those that it missed are lost to it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from securevfl.engine.party import ANNOUNCE, SERVER, Message, Party
from securevfl.engine.streams import Secrets, keyed_stream
from securevfl.errors import ConfigurationError, RunError
from securevfl.models.early_stopping import EarlyStopping
from securevfl.models.pretraining.autoencoder import Encoder, make_autoencoder, make_contrastive
from securevfl.models.split import Batches, Centre, mean_loss
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.messages import (
    Formula,
    MessageKey,
    MessageSpec,
    RunSecrets,
    announcement,
    fixed,
    with_formulas,
)
from securevfl.protocols.base.protocol import Protocol

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


class DvflConfig(BaseModel):
    """Options of DVFL."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    rounds: int = Field(60, ge=1, description="Largest number of epochs of the label owner.")
    guest_epochs: int = Field(20, ge=1, description="Epochs of the guests over all their rows.")
    host_epochs: int = Field(
        40, ge=1, description="Epochs of the hosts, including those of replay."
    )
    hosts: int = Field(3, ge=1, description="Number |K| of redundant hosts.")
    comm_period: int = Field(
        1, ge=1, description="Guest epochs between two that write their activations."
    )
    batch: int = Field(64, ge=1, description="Rows of a batch, for guests, hosts and the owner.")
    objective: Literal["autoencoder", "simclr"] = Field(
        "autoencoder",
        description=(
            "Objective of the guests: reconstruction of their columns, or contrast of two "
            "views (simclr)."
        ),
    )
    temperature: float = Field(0.5, gt=0, description="Temperature tau of simclr.")
    width: int = Field(40, ge=1, description="Width d_g of a guest's code.")
    guest_hidden: int | None = Field(
        None,
        ge=1,
        description="Width of the hidden layer of the guests' encoders. Default: (d + d_g) / 2.",
    )
    host_width: int = Field(120, ge=1, description="Width d_k of a host's encoding.")
    host_hidden: int | None = Field(
        None,
        ge=1,
        description="Width of the hidden layer of the hosts' encoders. Default: (N d_g + d_k) / 2.",
    )
    hidden: int = Field(128, ge=1, description="Number of hidden layers of the owner's network.")
    centre: str = Field("mlp", description="Network of the owner: mlp, batch_norm_mlp or linear.")
    guest_lr: float = Field(3e-3, gt=0, description="Learning rate of the guests' Adam.")
    host_lr: float = Field(3e-3, gt=0, description="Learning rate of the hosts' Adam.")
    optimizer: Literal["sgd", "adam"] = Field("adam", description="Optimiser of the owner.")
    lr: float = Field(2e-3, gt=0, description="Learning rate of the owner.")
    momentum: float = Field(0.5, ge=0, lt=1, description="Momentum of the owner's SGD.")
    lr_decay: Literal["none", "linear"] = Field(
        "linear",
        description=(
            "Schedule of the owner's learning rate: constant, or falling linearly to 0 over"
            " its epochs."
        ),
    )
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty of guests and hosts.")
    buffer: int | None = Field(
        None,
        ge=1,
        description="Largest number of inputs in a host's replay buffer. Default: all of them.",
    )
    replay: bool = Field(
        True, description="Whether hosts train on their buffer when nothing new has come."
    )
    stop_after: int | None = Field(
        None,
        ge=1,
        description=(
            "Early stopping: epochs without a lower loss on held-out rows after which the "
            "owner stops and takes its best network."
        ),
    )
    held_out: float = Field(
        0.1,
        gt=0,
        lt=1,
        description="Fraction of the aligned rows that is held out for early stopping.",
    )
    interval: float = Field(0.1, ge=1e-3, description="Seconds from one round to the next.")
    patience: float = Field(
        300.0,
        gt=0,
        description=(
            "Seconds for which hosts wait for the guests' final codes. Then they take the "
            "mean of what a guest wrote before."
        ),
    )


@dataclass(frozen=True)
class Calendar:
    """Which round it is, and what happens in it: the communication schedule of Algorithm 1.

    Attributes
    ----------
    per_epoch : int
        Iterations of a guest's epoch.
    guest_rounds, rounds : int
        Rounds in which guests train, and in which hosts do: host h reads in round r what was
        written up to round r - 1.
    period : int
        Every so many guest epochs activations are written.
    interval : float
        Seconds of a round.
    """

    per_epoch: int
    guest_rounds: int
    rounds: int
    period: int
    interval: float

    @classmethod
    def of(cls, config: DvflConfig, per_epoch: int) -> Calendar:
        """Calendar in which hosts train `host_epochs` epochs from their first input on."""
        guest_rounds = config.guest_epochs * per_epoch
        rounds = guest_rounds + 1
        if config.replay:
            rounds = (config.comm_period - 1 + config.host_epochs) * per_epoch + 1
        return cls(per_epoch, guest_rounds, rounds, config.comm_period, config.interval)

    def round_at(self, seconds: float) -> int:
        """The round that it is; clocks count nanoseconds, so a start may come out a bit early."""
        return math.floor(seconds / self.interval + 1e-3) + 1

    def start(self, round: int) -> float:
        """Second at which a round begins."""
        return (round - 1) * self.interval

    def writes(self, round: int) -> bool:
        """Whether guests write in a round: it belongs to a communication epoch."""
        epoch = (round - 1) // self.per_epoch + 1
        return 0 < round <= self.guest_rounds and epoch % self.period == 0


class Learner(Party):
    """What guests and hosts have in common: a round after the other by the clock."""

    kept: ClassVar[tuple[str, ...]] = ("network", "losses")

    def __init__(
        self, index: int, peers: Sequence[int], calendar: Calendar, network: Encoder
    ) -> None:
        super().__init__(index, peers)
        self.calendar = calendar
        self.network = network
        self.losses: list[float] = []  # of the epoch so far

    async def train(self, rounds: int) -> None:
        """Do what is to be done in each round up to the last one, whoever else is there."""
        while (round := self.calendar.round_at(self.now)) <= rounds:
            self.round = round
            self.safe_point()
            self.iterate()
            if round % self.calendar.per_epoch == 0 and self.losses:
                loss = float(np.mean(self.losses))
                self.record("epoch", loss=loss, iterations=len(self.losses))
                self.losses = []
            await self.sleep(max(0.0, self.calendar.start(round + 1) - self.now))

    def iterate(self) -> None:
        """Take part in the round."""
        raise NotImplementedError


class Guest(Learner):
    """Guest g: trains on all its rows, in or out of the intersection, and writes activations."""

    activities: ClassVar[Mapping[str, str]] = {"activation": "upload", "code": "upload"}

    def __init__(
        self,
        index: int,
        peers: Sequence[int],
        calendar: Calendar,
        network: Encoder,
        *,
        hosts: Sequence[int],
        features: np.ndarray,
        aligned: int,
        batches: Batches,
    ) -> None:
        super().__init__(index, peers, calendar, network)
        self.hosts = hosts
        self.features = features  # the aligned rows first
        self.aligned = aligned
        self.batches = batches

    async def run(self) -> None:
        """Train, then encode the intersection when the owner asks."""
        await self.train(self.calendar.guest_rounds)
        async for round_ in self.rounds():
            with round_:
                codes = self.network.encode(self.features[: self.aligned])
                self.broadcast("code", codes, to=self.hosts)

    def iterate(self) -> None:
        """Guest training round: forward, write to the registers of all hosts, update."""
        places = self.batches.samples(self.batches.draw(self.round))
        rows = self.features[own_rows(places, self.aligned, len(self.features))]
        if self.calendar.writes(self.round):
            self.broadcast("activation", self.network.encode(rows), to=self.hosts)
        self.losses.append(self.network.train(rows, self.secret_stream("views", self.round)))

    def operations(self, kind: str) -> int:
        """Multiply-adds of encoding what it sends: the forward pass, as FedVS counts them."""
        rows = {"activation": self.batches.coded, "code": self.aligned}.get(kind, 0)
        return rows * self.network.operations


class Host(Learner):
    """Host k: reads its registers, fills its replay buffer and trains on that."""

    kept: ClassVar[tuple[str, ...]] = ("network", "losses", "lives")
    kept_frozen: ClassVar[tuple[str, ...]] = ("registers", "buffer")

    def __init__(
        self,
        index: int,
        peers: Sequence[int],
        calendar: Calendar,
        network: Encoder,
        *,
        width: int,
        bound: int | None,
        replay: bool,
        aligned: int,
        patience: float,
    ) -> None:
        super().__init__(index, peers, calendar, network)
        self.width = width  # of a guest's code
        self.bound = bound
        self.replay = replay
        self.aligned = aligned
        self.patience = patience
        self.registers: dict[int, tuple[int, np.ndarray]] = {}  # round and activations by guest
        self.buffer: tuple[np.ndarray, ...] = ()
        self.lives = 0  # that have ended

    async def run(self) -> None:
        """Train, then encode the intersection for the owner."""
        self.on("activation", self.write)
        if self.lives < self.epoch:  # a crash: the last item of the buffer is lost
            self.lives = self.epoch
            self.buffer = self.buffer[:-1]
        await self.train(self.calendar.rounds)
        async for round_ in self.rounds():
            with round_:
                codes = await self.collect("code", timeout=self.patience)
                if codes:
                    self.send(SERVER, "encoding", self.network.encode(self.complete(codes)))

    def write(self, message: Message) -> None:
        """A guest writes to its register; what an older round wrote late does not count."""
        before, _ = self.registers.get(message.sender, (0, None))
        if message.round >= before:
            self.registers = {**self.registers, message.sender: (message.round, message.payload)}

    def iterate(self) -> None:
        """Host training round: on what the registers hold, or else on an input of before."""
        if self.calendar.writes(self.round - 1) and self.registers:
            self.buffer = (*self.buffer, self.read())[-(self.bound or len(self.buffer) + 1) :]
            self.learn(self.buffer[-1])
        elif self.replay and self.buffer:
            place = self.secret_stream("replay", self.round).integers(len(self.buffer))
            self.learn(self.buffer[place])

    def learn(self, item: np.ndarray) -> None:
        """One step of the auto-encoder on an input."""
        self.losses.append(self.network.train(item, self.secret_stream("views", self.round)))

    def read(self) -> np.ndarray:
        """All registers side by side, fresh or stale; one that was never written to reads zero."""
        rows = len(next(iter(self.registers.values()))[1])
        empty = (0, np.zeros((rows, self.width), np.float32))
        return np.concatenate([self.registers.get(n, empty)[1] for n in self.peers], axis=1)

    def complete(self, codes: Mapping[int, np.ndarray]) -> np.ndarray:
        """All guests' codes side by side; for one that did not send them its mean of before."""
        missing = [n for n in self.peers if n not in codes]
        if missing:
            self.record("filled", guests=missing)
        parts = [codes[n] if n in codes else self.usual(n) for n in self.peers]
        return np.concatenate(parts, axis=1)

    def usual(self, guest: int) -> np.ndarray:
        """Mean of what the buffer holds of a guest, for each aligned row; zero if nothing."""
        place = self.peers.index(guest) * self.width
        known = [item[:, place : place + self.width] for item in self.buffer]
        mean = np.mean(np.concatenate(known), axis=0) if known else np.zeros(self.width)
        return np.tile(mean.astype(np.float32), (self.aligned, 1))

    def operations(self, kind: str) -> int:
        """Multiply-adds of encoding the aligned rows."""
        return self.aligned * self.network.operations if kind == "encoding" else 0


class Owner(Party):
    """Keeps the time while guests and hosts train, and learns from labels when they are ready."""

    kept: ClassVar[tuple[str, ...]] = ("centre", "stopping", "steps", "answered")
    kept_frozen: ClassVar[tuple[str, ...]] = ("encodings",)

    def __init__(
        self,
        peers: Sequence[int],
        calendar: Calendar,
        centre: Centre,
        *,
        hosts: Sequence[int],
        width: int,
        labels: np.ndarray,
        batches: Batches,
        order: np.ndarray,
        epochs: int,
        stop_after: int | None,
        patience: float,
    ) -> None:
        super().__init__(SERVER, peers)
        self.calendar = calendar
        self.centre = centre
        self.hosts = hosts
        self.width = width  # of a host's encoding
        self.labels = labels
        self.batches = batches
        self.trained = order[: batches.rows]
        self.held_out = order[batches.rows :]
        self.epochs = epochs
        self.stopping = EarlyStopping(centre, epochs + 1 if stop_after is None else stop_after)
        self.patience = patience
        self.steps = 0
        self.answered: tuple[int, ...] = ()  # hosts whose encodings it has
        self.encodings: np.ndarray | None = None

    async def run(self) -> None:
        """Let guests and hosts train, ask for the encodings, and train on those."""
        everybody = (*self.peers, *self.hosts)
        if self.encodings is None:
            await self.keep_time()
            self.announce(self.calendar.round_at(self.now), to=everybody)
            await self.gather()
            self.conclude(to=everybody)  # before training, whose length depends on labels
        await self.train()

    async def keep_time(self) -> None:
        """Begin a round after the other; nobody needs to hear of it."""
        while (round := self.calendar.round_at(self.now)) <= self.calendar.rounds:
            self.safe_point()
            self.announce(round, to=())
            await self.sleep(max(0.0, self.calendar.start(round + 1) - self.now))

    async def gather(self) -> None:
        """Take the hosts' encodings of the labelled intersection; hosts wait before they send."""
        found = await self.collect("encoding", senders=self.hosts, timeout=2 * self.patience)
        if not found:
            raise RunError(
                f"dvfl: none of the {len(self.hosts)} hosts sent its encodings within "
                f"{2 * self.patience:g} s of round {self.round}; raise patience, or let faults end "
                f"before that round"
            )
        self.answered = tuple(found)
        self.encodings = side_by_side(found, self.hosts, self.width)

    async def train(self) -> None:
        """Train the classifier, an epoch a round, until there were enough or it gets no better."""
        while self.steps < self.epochs and not self.stopping.over:
            self.safe_point()
            self.round += 1
            loss = self.sweep()
            self.steps += 1
            told = self.look()
            if self.steps == self.epochs or self.stopping.over:
                self.stopping.restore_best()
            self.record("round", step=self.steps, loss=loss, used=len(self.answered), **told)
            await self.sleep(self.calendar.interval)

    def sweep(self) -> float:
        """Owner training: mean loss of an epoch's steps."""
        assert self.encodings is not None
        losses = []
        for turn in range(self.batches.per_epoch):
            batch = self.batches.draw(self.steps * self.batches.per_epoch + turn + 1)
            rows = self.trained[self.batches.samples(batch)]
            losses.append(self.centre.step(self.encodings[rows], rows, self.labels)[0])
        return float(np.mean(losses))

    def look(self) -> dict[str, float]:
        """Loss on the held-out rows, for early stopping; nothing where there are none."""
        if not len(self.held_out):
            return {}
        assert self.encodings is not None
        scores = self.centre.scores(self.encodings[self.held_out])
        loss = mean_loss(self.centre.task, scores, self.labels[self.held_out])
        self.stopping.take(loss)
        return {"held_out_loss": loss}


class Dvfl(Protocol):
    """DVFL on one data set: the clients are guests, and hosts come after them by number."""

    name = "dvfl"
    Config = DvflConfig
    small_options: ClassVar[Mapping[str, int]] = {"guest_epochs": 3, "host_epochs": 3}
    check_options: ClassVar[Mapping[str, Any]] = {
        "guest_epochs": 4,
        "host_epochs": 4,
        "hosts": 2,
        "guest_lr": 0.02,
        "host_lr": 0.01,
        "lr": 0.005,
        "interval": 1.0,
    }
    card = Card(
        title="DVFL",
        paper='"Decoupled Vertical Federated Learning for Practical Training on Vertically '
        'Partitioned Data", anonymous, under review (MLSys)',
        roles={
            "guest": "holds some columns, of aligned rows and of others; trains an encoder on an "
            "objective of its own and writes activations to every host's register",
            "host": "one of several with the same task: joins the registers and trains an "
            "auto-encoder on that; redundant, so that one may fail",
            "owner": "holds the labels of the aligned rows; learns from the hosts' encodings",
        },
        sees={
            "guest": "that the owner asks for codes; nothing that depends on labels or on others",
            "host": "every guest's activations of each batch that is written, and codes of all "
            "aligned rows, exactly",
            "owner": "each host's encodings of all aligned rows, exactly",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="fills",
        deviations=(
            "chains of faults strike guests, hosts and links up to the last training round, as in "
            "the paper; what a fault script takes down stays down as long as the script says. "
            "Then hosts fill a guest's missing codes with the mean of what it wrote, and the owner "
            "leaves out hosts that do not answer (their part is zero)",
            "guests, hosts and owner go by the clock, a round each `interval`; a host reads in a "
            "round what was written up to the one before. The paper simulates in lockstep and "
            "trains hosts after the guests",
            "a host that is down loses what is written meanwhile and, when it is back, the last "
            "item of its buffer",
            "a register that was never written to reads zero",
            "hidden layers, |K|, d_k, rates and weight decay are not legible in the copy that we "
            "have; our hidden layers are half-way between input and output. The owner's are ReLU",
            "the owner has Adam whose rate falls to 0 (`optimizer`, `lr_decay`) where the paper "
            "has SGD, and stops early only where it is asked to (`stop_after`)",
            "guests decode to a sigmoid where their own rows lie in [0, 1], and linearly elsewhere",
            "outside the intersection guests' batches pair rows of different samples in a host's "
            "input; guests with fewer rows alone go through these more often in an epoch",
            "views of simclr are ours: strips of images are moved by a pixel or two, values of "
            "tables exchanged between rows; both get noise",
        ),
    )

    def __init__(self, config: DvflConfig, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        _check(config, data)
        alone = max((len(rows) for rows in data.alone), default=0)
        order = functools.partial(_guests_stream, self.seed)
        self.batches = Batches(data.rows + alone, 1, config.batch, order)
        self.calendar = Calendar.of(config, self.batches.per_epoch)
        self.hosts = tuple(range(data.parties, data.parties + config.hosts))
        self.features = [_own(data, n) for n in self.peers()]

    def parties(self) -> dict[int, Party]:
        """The owner, N guests, and the hosts after them."""
        return {n: self.party(n) for n in (SERVER, *self.peers(), *self.hosts)}

    def party(self, index: int) -> Party:
        """New object of one party."""
        if index == SERVER:
            return self._owner()
        if index in self.hosts:
            return self._host(index)
        return Guest(
            index,
            self.peers(),
            self.calendar,
            self._guest_network(index),
            hosts=self.hosts,
            features=self.features[index],
            aligned=self.data.rows,
            batches=self.batches,
        )

    def _host_network(self, index: int) -> Encoder:
        config = self.config
        joint = self.data.parties * config.width
        return make_autoencoder(
            joint,
            config.host_hidden or (joint + config.host_width) // 2,
            config.host_width,
            stream=self.secret_stream(index, "init"),
            optimizer=_adam(config, config.host_lr),
            output="leaky_relu",
            decoded="relu",  # guests' codes are at least 0
        )

    def _host(self, index: int) -> Host:
        config = self.config
        return Host(
            index,
            self.peers(),
            self.calendar,
            self._host_network(index),
            width=config.width,
            bound=config.buffer,
            replay=config.replay,
            aligned=self.data.rows,
            patience=config.patience,
        )

    def _guest_network(self, index: int) -> Encoder:
        config, own = self.config, self.features[index]
        features = own.shape[1]
        sizes = (features, config.guest_hidden or (features + config.width + 1) // 2, config.width)
        stream = self.secret_stream(index, "init")
        optimizer = _adam(config, config.guest_lr)
        if config.objective == "simclr":
            shapes = self.data.party_image_shapes
            return make_contrastive(
                *sizes,
                stream=stream,
                optimizer=optimizer,
                temperature=config.temperature,
                image_shape=None if shapes is None else shapes[index],
            )
        bounded = own.min() >= 0 and own.max() <= 1
        decoded: Literal["sigmoid", "none"] = "sigmoid" if bounded else "none"
        return make_autoencoder(*sizes, stream=stream, optimizer=optimizer, decoded=decoded)

    def _owner(self) -> Owner:
        config, data = self.config, self.data
        held_out = 0 if config.stop_after is None else int(config.held_out * data.rows)
        order = functools.partial(_owner_stream, self.secrets)
        batches = Batches(data.rows - held_out, 1, config.batch, order)
        optimizer = {
            "name": config.optimizer,
            "lr": config.lr,
            "momentum": config.momentum,
            "decay_steps": config.rounds * batches.per_epoch * (config.lr_decay == "linear"),
        }
        centre = Centre(
            data.task,
            data.num_classes if data.task == "multiclass" else 1,
            config.hosts * config.host_width,
            network=config.centre,
            hidden=config.hidden,
            optimizer=optimizer,
            seed=int(self.secret_stream(SERVER, "centre").integers(2**31)),
        )
        return Owner(
            self.peers(),
            self.calendar,
            centre,
            hosts=self.hosts,
            width=config.host_width,
            labels=data.train_labels,
            batches=batches,
            order=self.secret_stream(SERVER, "held out").permutation(data.rows),
            epochs=config.rounds,
            stop_after=config.stop_after,
            patience=config.patience,
        )

    def embed(self, client: Any, rows: np.ndarray) -> np.ndarray:
        """A guest's code of rows."""
        code: np.ndarray = client.network.encode(rows)
        return code

    def scores(self, parties: Mapping[int, Party], features: Sequence[np.ndarray]) -> np.ndarray:
        """The owner's scores by all guests' codes and the encodings of the hosts that it knows."""
        models: Any = parties
        codes = [self.embed(models[n], rows) for n, rows in enumerate(features)]
        joint = np.concatenate(codes, axis=1)
        owner = models[SERVER]
        found = {k: models[k].network.encode(joint) for k in owner.answered or self.hosts}
        scores: np.ndarray = owner.centre.scores(
            side_by_side(found, self.hosts, self.config.host_width)
        )
        return scores

    @property
    def batch_rows(self) -> int:
        """|B|."""
        return self.batches.coded

    @property
    def last_fault(self) -> int:
        """The last round in which guests or hosts train."""
        return self.calendar.rounds

    def roles(self) -> dict[str, tuple[int, ...]]:
        """Guests, hosts and owner; guests are the clients of other methods."""
        guests = tuple(self.peers())
        return {"guest": guests, "client": guests, "host": self.hosts, "owner": (SERVER,)}

    @property
    def claims(self) -> tuple[Claim, ...]:
        """That labels stay where they are; nothing about features, which go as codes."""
        why = "it receives nothing that depends on them; what its own columns tell of them remains"
        return (
            Claim("guest", "labels", "perfect", why),
            Claim("host", "labels", "perfect", "it receives codes only, made without labels"),
            Claim("host", "features", "none", "activations and codes are sent in the clear"),
            Claim("owner", "features", "none", "encodings are sent in the clear"),
            Claim("host", "model", "none", "activations and codes are sent in the clear"),
        )

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Algorithm 1: what guests write, and at the end the codes and what hosts make of them."""
        config, rows = self.config, self.data.rows

        def written(key: MessageKey) -> int:
            return int(self.calendar.writes(key.round))

        def at_the_end(key: MessageKey) -> int:
            return int(key.round > self.calendar.rounds)

        declared = (
            MessageSpec(
                *("activation", "guest", "host", "embedding"),
                shape=fixed(self.batch_rows, config.width),
                dtype="float32",
                count=written,
                source="guest training round",
            ),
            announcement("guest", sender="owner", source="section 5: the owner asks"),
            announcement("host", sender="owner", source="section 5: the owner asks"),
            MessageSpec(
                *("code", "guest", "host", "embedding"),
                shape=fixed(rows, config.width),
                dtype="float32",
                count=at_the_end,
                row_by_row=True,
                source="section 5: the intersection",
            ),
            MessageSpec(
                *("encoding", "host", "owner", "embedding"),
                shape=fixed(rows, config.host_width),
                dtype="float32",
                count=at_the_end,
                source="section 5: the intersection",
            ),
        )
        formulas: dict[str, Formula] = {
            ANNOUNCE: lambda secrets, key: (
                None if key.round <= self.calendar.rounds + 1 else "stop"
            ),
            "activation": self.activation_at,
            "code": self.code_at,
            "encoding": self.encoding_at,
        }
        return with_formulas(declared, formulas)

    def asked_at(self, secrets: RunSecrets, key: MessageKey) -> str | None:
        """The owner asks for codes once, with nothing but the round, and then ends the run."""
        return None if key.round <= self.calendar.rounds + 1 else "stop"

    def activation_at(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """A guest's code of the round's batch, by its encoder of then."""
        encoder = self._guest_network(key.sender)
        encoder.load_state_dict(secrets.state(key)["network"])
        places = self.batches.samples(self.batches.draw(key.round))
        features = self.features[key.sender]
        rows = own_rows(places, self.data.rows, len(features))
        return encoder.encode(features[rows])

    def code_at(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """A guest's code of all aligned rows."""
        encoder = self._guest_network(key.sender)
        encoder.load_state_dict(secrets.state(key)["network"])
        return encoder.encode(self.features[key.sender][: self.data.rows])

    def encoding_at(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """A host's encoding of the codes of all guests, side by side."""
        encoder = self._host_network(key.sender)
        encoder.load_state_dict(secrets.state(key)["network"])
        sent = secrets.sent("code", key.round)
        codes = [sent[guest, key.sender] for guest in self.peers()]
        return encoder.encode(np.concatenate(codes, axis=1))

    def shown(self, payload: Any) -> tuple[Any, Any]:
        """Codes are those of all aligned rows in order."""
        return np.arange(len(payload)), payload

    def named_rows(self, named: Any) -> np.ndarray | None:
        """The rows themselves."""
        return np.asarray(named)

    def describe(self) -> dict[str, Any]:
        """Sizes, how long what lasts, and what a round is."""
        calendar = self.calendar
        return {
            "N": self.data.parties,
            "hosts": len(self.hosts),
            "batch_rows": self.batch_rows,
            "guest_rounds": calendar.guest_rounds,
            "training_rounds": calendar.rounds,
            "writes": self.writes,
            "round": "an iteration of guests and hosts; after that an epoch of the owner, which is "
            "a step of the history",
        }

    @property
    def writes(self) -> int:
        """Rounds in which guests write."""
        return int(self.config.guest_epochs // self.config.comm_period * self.calendar.per_epoch)

    def memory(self) -> int:
        """Bytes of buffers, of the final codes and encodings, and of guests' copies of rows."""
        config, data = self.config, self.data
        items = min(self.writes, config.buffer or self.writes)
        joint = 4 * data.parties * config.width
        buffers = config.hosts * items * self.batch_rows * joint
        row = joint + 4 * config.hosts * config.host_width
        rows = sum(own.nbytes for own in self.features if data.alone)
        return int(buffers + 2 * (data.rows + data.test_rows) * row + rows)

    def advice(self, available: int) -> str:
        """The replay buffers are what grows."""
        return "bound the hosts' buffer, raise comm_period, or use fewer hosts or rows"


def own_rows(places: np.ndarray, aligned: int, rows: int) -> np.ndarray:
    """A guest's rows at the places of a batch that all guests draw alike.

    Places below M are the aligned rows, the same for all; the others are rows that it holds alone,
    from the first on again where it has fewer than others, or aligned ones where it has none.

    Parameters
    ----------
    places : ndarray of int, (B,)
    aligned : int
        M.
    rows : int
        All rows of the guest, the aligned ones first.
    """
    alone = rows - aligned
    elsewhere = aligned + (places - aligned) % alone if alone else places % aligned
    found: np.ndarray = np.where(places < aligned, places, elsewhere)
    return found


def side_by_side(
    encodings: Mapping[int, np.ndarray], hosts: Sequence[int], width: int
) -> np.ndarray:
    """Encodings of all hosts, (rows, hosts x width); zero in the place of one that has none."""
    rows = len(next(iter(encodings.values())))
    joint = np.zeros((rows, len(hosts) * width), np.float32)
    for place, host in enumerate(hosts):
        if host in encodings:
            joint[:, place * width : (place + 1) * width] = encodings[host]
    return joint


def _check(config: DvflConfig, data: VerticalDataset) -> None:
    """Refuse schedules in which hosts learn nothing new, and columns of code numbers."""
    if config.comm_period > config.guest_epochs:
        raise ConfigurationError(
            f"dvfl: comm_period = {config.comm_period} is longer than guest_epochs = "
            f"{config.guest_epochs}, so nothing would be written; lower it"
        )
    if config.replay and config.host_epochs < config.guest_epochs:
        raise ConfigurationError(
            f"dvfl: host_epochs = {config.host_epochs} must be at least guest_epochs = "
            f"{config.guest_epochs}, or inputs would be left unused; raise it, or set replay=false"
        )
    if config.stop_after is not None and int(config.held_out * data.rows) < 1:
        raise ConfigurationError(
            f"dvfl: held_out = {config.held_out} of {data.rows} aligned rows is no row to stop by; "
            f"raise it, or leave stop_after out"
        )
    for n, counts in enumerate(data.cardinalities):
        if any(counts):
            raise ConfigurationError(
                f"dvfl: {sum(c > 0 for c in counts)} columns of party {n} hold code numbers of "
                f"categories, which an auto-encoder would take for sizes; load the data with "
                f"coding='onehot' (--set data.coding=onehot)"
            )


def _own(data: VerticalDataset, party: int) -> np.ndarray:
    """All rows of a party, the aligned ones first."""
    if not data.alone:
        return data.train[party]
    return np.concatenate([data.train[party], data.alone[party]])


def _adam(config: DvflConfig, lr: float) -> dict[str, Any]:
    return {"name": "adam", "lr": lr, "weight_decay": config.weight_decay}


def _guests_stream(seed: int, name: str, *keys: int) -> np.random.Generator:
    """The guests' batches, which they draw alike: public."""
    return keyed_stream(seed, SERVER, f"dvfl/guests/{name}", *keys)


def _owner_stream(secrets: Secrets, name: str, *keys: int) -> np.random.Generator:
    """The owner's batches, which nobody else needs."""
    return secrets.stream(SERVER, f"dvfl/owner/{name}", *keys)
