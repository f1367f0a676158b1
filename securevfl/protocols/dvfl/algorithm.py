"""DVFL: decoupled vertical federated learning.

Anonymous authors, "Decoupled Vertical Federated Learning for Practical Training on Vertically
Partitioned Data", under review (MLSys). The parts are those of its Algorithm 1 (appendix A): guest
training round, host training round, and what the owner executes; section and appendix numbers are
the paper's, too.

Guests g (they own columns) train encoders on an objective of their own, and write the activations
of their batches to a register of every host. Hosts k, of which there are |K| for redundancy, train
auto-encoders on the content of their registers. No party waits for another, and no gradient flows
back. At the end the owner (of the labels) trains a classifier on the hosts' encodings of the
aligned rows, which all guests have.

Guests and hosts go by the clock: round r begins at (r - 1) `interval`. A party that was down goes
on with the round of that moment; the rounds that it missed are lost to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np

from securevfl.engine.party import SERVER, Message, Party
from securevfl.errors import RunError
from securevfl.models.early_stopping import EarlyStopping
from securevfl.models.pretraining.autoencoder import AutoEncoder, Encoder
from securevfl.models.split import Batches, Centre, mean_loss
from securevfl.protocols.dvfl.arrays import encodings_side_by_side, own_rows
from securevfl.protocols.dvfl.schedule import RoundSchedule

_ENOUGH = 500  # steps of Adam after which a network that is worse than the mean did not learn
_JUDGED = 32  # inputs by which it is judged


@dataclass(eq=False, repr=False)
class Learner(Party):
    """Guest or host: trains an encoder without labels, one round after the other by the clock.

    Attributes
    ----------
    schedule : RoundSchedule
        Which round it is, and what happens in it.
    network : Encoder
        Its encoder, with objective and optimiser.
    losses : list of float
        Of the iterations of this epoch so far.
    """

    kept: ClassVar[tuple[str, ...]] = ("network", "losses")

    index: int
    peers: Sequence[int]  # the guests
    schedule: RoundSchedule
    network: Encoder
    losses: list[float] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        super().__init__(self.index, self.peers)

    async def train(self, rounds: int) -> None:
        """Do the iteration of each round up to the last one, whatever the other parties do."""
        while (round := self.schedule.round_at(self.now)) <= rounds:
            self.round = round
            self.safe_point()
            self.iterate()
            if round % self.schedule.per_epoch == 0 and self.losses:
                loss = float(np.mean(self.losses))
                self.record("epoch", loss=loss, iterations=len(self.losses))
                self.losses = []
            await self.sleep(max(0.0, self.schedule.start(round + 1) - self.now))

    def iterate(self) -> None:
        """Do one training round."""
        raise NotImplementedError

    def step(self, inputs: np.ndarray) -> None:
        """One step of the encoder on a batch of its inputs, on the party's own objective."""
        views = self.secret_stream("views", self.round)
        self.losses.append(self.network.train(inputs, views))


@dataclass(eq=False, repr=False)
class Guest(Learner):
    """Guest g: trains on all its rows, aligned or not (section 5.3), and writes activations.

    Attributes
    ----------
    hosts : sequence of int
        Numbers of the hosts.
    features : ndarray, (rows, d_g)
        Its columns of all its rows, the aligned ones first.
    aligned : int
        M, the number of aligned rows.
    batches : Batches
        Batches of places, which all guests draw alike (`own_rows`).
    """

    activities: ClassVar[Mapping[str, str]] = {"activation": "upload", "code": "upload"}

    _: KW_ONLY
    hosts: Sequence[int]
    features: np.ndarray
    aligned: int
    batches: Batches

    async def run(self) -> None:
        """Train, then encode the aligned rows when the owner asks."""
        await self.train(self.schedule.guest_rounds)
        async for round_ in self.rounds():
            with round_:
                codes = self.network.encode(self.features[: self.aligned])
                self.broadcast("code", codes, to=self.hosts)

    def iterate(self) -> None:
        """Guest training round: forward, write to the registers of all hosts, update."""
        places = self.batches.samples(self.batches.draw(self.round))
        rows = self.features[own_rows(places, self.aligned, len(self.features))]
        if self.schedule.writes(self.round):  # a communication epoch (appendix F.1)
            self.broadcast("activation", self.network.encode(rows), to=self.hosts)
        self.step(rows)

    def operations(self, kind: str) -> int:
        """Multiply-adds of encoding the rows it sends: the forward pass, as FedVS counts them."""
        rows = {"activation": self.batches.coded, "code": self.aligned}.get(kind, 0)
        return rows * self.network.operations


@dataclass(eq=False, repr=False)
class Host(Learner):
    """Host k: reads its registers, fills its replay buffer and trains on that (section 5.2).

    Attributes
    ----------
    width : int
        d_g, of a guest's code.
    bound : int or None
        Largest number of inputs in the replay buffer; None for no bound.
    replay : bool
        Whether it trains on its buffer in rounds in which nothing was written.
    aligned : int
        M, the number of aligned rows.
    patience : float
        Seconds for which it waits for the guests' final codes.
    writings : dict of int to sequence of (int, ndarray)
        Its registers: by guest, the newest two activations that it wrote, the newest first, and
        their rounds. The clock of a guest on another machine may be ahead, by less than a round.
    buffer : tuple of ndarray, (|B|, N d_g)
        Replay buffer: inputs of earlier rounds, the oldest first.
    lives : int
        Number of ended incarnations; the buffer loses its last item at each rejoin.
    steps : int
        Iterations that it has made.
    """

    kept: ClassVar[tuple[str, ...]] = ("network", "losses", "lives")
    kept_optional: ClassVar[Mapping[str, Any]] = {"steps": 1}  # unknown of an older checkpoint
    kept_frozen: ClassVar[tuple[str, ...]] = ("writings", "buffer")

    network: AutoEncoder
    _: KW_ONLY
    width: int
    bound: int | None
    replay: bool
    aligned: int
    patience: float
    writings: dict[int, tuple[tuple[int, np.ndarray], ...]] = field(
        default_factory=dict, init=False
    )
    buffer: tuple[np.ndarray, ...] = field(default=(), init=False)
    lives: int = field(default=0, init=False)
    steps: int = field(default=0, init=False)

    async def run(self) -> None:
        """Train, then encode the aligned rows for the owner."""
        self.on("activation", self.write)
        if self.lives < self.epoch:  # after a crash the last item of the buffer is lost (D.2)
            self.lives = self.epoch
            self.buffer = self.buffer[:-1]
        await self.train(self.schedule.rounds)
        async for round_ in self.rounds():
            with round_:
                codes = await self.collect("code", timeout=self.patience)
                if codes and self.learned():
                    self.tell_dead(codes)
                    self.send(SERVER, "encoding", self.network.encode(self.complete(codes)))

    def write(self, message: Message) -> None:
        """Put a guest's activations into its register, unless newer ones are there."""
        others = (one for one in self.writings.get(message.sender, ()) if one[0] != message.round)
        both = sorted(((message.round, message.payload), *others), key=itemgetter(0), reverse=True)
        self.writings = {**self.writings, message.sender: tuple(both[:2])}

    def written(self) -> dict[int, np.ndarray]:
        """Activations of guests that wrote before this round, new or stale."""
        known = {
            guest: [one for round, one in held if round < self.round]
            for guest, held in self.writings.items()
        }
        return {guest: ones[0] for guest, ones in known.items() if ones}

    def iterate(self) -> None:
        """Host training round: on the registers if they were written, else on an earlier input."""
        if self.schedule.writes(self.round - 1) and (written := self.written()):
            read = self.read(written)
            self.buffer = (*self.buffer, read)[-(self.bound or len(self.buffer) + 1) :]
            self.step(self.buffer[-1])
            self.steps += 1
        elif self.replay and self.buffer:
            place = self.secret_stream("replay", self.round).integers(len(self.buffer))
            self.step(self.buffer[place])
            self.steps += 1

    def read(self, written: Mapping[int, np.ndarray]) -> np.ndarray:
        """All registers side by side; zero for a guest that never wrote."""
        empty = np.zeros((len(next(iter(written.values()))), self.width), np.float32)
        return np.concatenate([written.get(g, empty) for g in self.peers], axis=1)

    def complete(self, codes: Mapping[int, np.ndarray]) -> np.ndarray:
        """All guests' codes side by side; the mean of earlier ones for a guest that sent none."""
        missing = [g for g in self.peers if g not in codes]
        if missing:
            self.record("filled", guests=missing)
        parts = [codes[g] if g in codes else self.mean_code(g) for g in self.peers]
        return np.concatenate(parts, axis=1)

    def mean_code(self, guest: int) -> np.ndarray:
        """Mean code of a guest in the buffer, once for each aligned row; zero without a buffer."""
        place = self.peers.index(guest) * self.width
        known = [inputs[:, place : place + self.width] for inputs in self.buffer]
        mean = np.mean(np.concatenate(known), axis=0) if known else np.zeros(self.width)
        return np.tile(mean.astype(np.float32), (self.aligned, 1))

    def tell_dead(self, codes: Mapping[int, np.ndarray]) -> None:
        """Say how many numbers of the guests' codes are the same for all rows."""
        dead = sum(int((code == code[0]).all(axis=0).sum()) for code in codes.values())
        if dead:
            text = (
                f"dvfl: {dead} of the {len(codes) * self.width} numbers of the guests' codes are "
                "the same for all rows, and tell nothing. guest_activation=relu with a large "
                "guest_lr makes such numbers, and so do columns that are constant"
            )
            self.record("notice", text=text)

    def learned(self) -> bool:
        """Whether it has something to encode with; a host without a step is left out.

        It is judged on the inputs that it trained on last: an aligned row may lack a guest.

        Raises
        ------
        RunError
            When after `_ENOUGH` steps it reconstructs them worse than their mean does.
        """
        who = f"dvfl: party {self.index} (a host)"
        if not self.steps:
            text = (
                f"{who} made no training step, so it sends no encodings: it was down, or no guest"
            )
            self.record("notice", text=f"{text} wrote")
            return False
        inputs = np.concatenate(self.buffer[-_JUDGED:]) if self.buffer else np.zeros((0, 1))
        if len(inputs) < 2:
            return True
        error, variance = self.network.error(inputs), float(np.mean(np.var(inputs, axis=0)))
        if error > variance:
            why = (
                f"{who} reconstructs its last inputs with a mean square error of {error:.3g} after "
                f"{self.steps} steps, and their mean alone has {variance:.3g}"
            )
            if self.steps >= _ENOUGH:
                raise RunError(f"{why}: it did not learn. Lower host_lr, or raise host_width")
            self.record("notice", text=f"{why}. Raise guest_epochs and host_epochs")
        return True

    def operations(self, kind: str) -> int:
        """Multiply-adds of encoding the aligned rows."""
        return self.aligned * self.network.operations if kind == "encoding" else 0


@dataclass(eq=False, repr=False)
class Owner(Party):
    """Owner of the labels: keeps the time of the rounds, then trains on the hosts' encodings.

    Attributes
    ----------
    guests, hosts : sequence of int
        Their numbers.
    schedule : RoundSchedule
        Which round it is.
    centre : Centre
        The classifier.
    width : int
        d_k, of a host's encoding.
    labels : ndarray, (M,)
        Labels of the aligned rows.
    batches : Batches
        Batches of places in `training_rows`.
    order : ndarray, (M,)
        The aligned rows in random order: those of `batches` train, the rest validates.
    epochs : int
        Largest number of epochs.
    stop_after : int or None
        Epochs without a lower validation loss after which it stops; None to train all epochs.
    patience : float
        Seconds for which a host waits for codes; the owner waits twice as long for encodings.
    answered : tuple of int
        Hosts whose encodings it has.
    encodings : ndarray, (M, |K| d_k), or None
        Encodings of all hosts side by side, once they are there.
    """

    kept: ClassVar[tuple[str, ...]] = ("centre", "stopping", "steps", "answered")
    kept_frozen: ClassVar[tuple[str, ...]] = ("encodings",)

    guests: Sequence[int]
    schedule: RoundSchedule
    centre: Centre
    _: KW_ONLY
    hosts: Sequence[int]
    width: int
    labels: np.ndarray
    batches: Batches
    order: np.ndarray
    epochs: int
    stop_after: int | None
    patience: float
    stopping: EarlyStopping = field(init=False)
    steps: int = field(default=0, init=False)
    answered: tuple[int, ...] = field(default=(), init=False)
    encodings: np.ndarray | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__init__(SERVER, self.guests)
        self.training_rows = self.order[: self.batches.rows]
        self.validation_rows = self.order[self.batches.rows :]
        wait = self.epochs + 1 if self.stop_after is None else self.stop_after
        self.stopping = EarlyStopping([self.centre], wait)

    async def run(self) -> None:
        """Owner executes: let guests and hosts train, ask for the encodings, train on those."""
        others = (*self.guests, *self.hosts)
        if self.encodings is None:
            await self.keep_time()
            self.announce(self.schedule.round_at(self.now), to=others)
            await self.gather()
            self.conclude(to=others)  # before training, whose length depends on labels
        await self.train()

    async def keep_time(self) -> None:
        """Count the rounds of guests and hosts, which need no message for that."""
        while (round := self.schedule.round_at(self.now)) <= self.schedule.rounds:
            self.safe_point()
            self.announce(round, to=())
            await self.sleep(max(0.0, self.schedule.start(round + 1) - self.now))

    async def gather(self) -> None:
        """Take the hosts' encodings of the aligned rows; hosts wait for codes before they send."""
        timeout = 2 * self.patience
        encodings = await self.collect("encoding", senders=self.hosts, timeout=timeout)
        if not encodings:
            raise RunError(
                f"dvfl: none of the {len(self.hosts)} hosts sent its encodings within {timeout:g} "
                f"s of round {self.round}: parties {list(self.hosts)}. One that made no training "
                "step sends none; raise patience, or let faults end before that round"
            )
        self.answered = tuple(encodings)
        self.encodings = encodings_side_by_side(encodings, self.hosts, self.width)

    async def train(self) -> None:
        """Train the classifier, an epoch a round, up to the last epoch or the early stop."""
        while self.steps < self.epochs and not self.stopping.over:
            self.safe_point()
            self.round += 1
            loss = self.train_epoch()
            self.steps += 1
            validation = self.validate()
            if self.steps == self.epochs or self.stopping.over:
                self.stopping.restore_best()
            used = len(self.answered)
            self.record("round", step=self.steps, loss=loss, used=used, **validation)
            await self.sleep(self.schedule.interval)

    def train_epoch(self) -> float:
        """One epoch of the classifier; its mean loss."""
        assert self.encodings is not None
        losses = []
        for turn in range(self.batches.per_epoch):
            batch = self.batches.draw(self.steps * self.batches.per_epoch + turn + 1)
            rows = self.training_rows[self.batches.samples(batch)]
            losses.append(self.centre.step(self.encodings[rows], rows, self.labels)[0])
        return float(np.mean(losses))

    def validate(self) -> dict[str, float]:
        """Loss on the validation rows, which early stopping reads; empty without such rows."""
        if not len(self.validation_rows):
            return {}
        assert self.encodings is not None
        scores = self.centre.scores(self.encodings[self.validation_rows])
        loss = mean_loss(self.centre.task, scores, self.labels[self.validation_rows])
        self.stopping.take(loss)
        return {"held_out_loss": loss}
