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

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from securevfl.engine.party import SERVER, Message, Party
from securevfl.errors import RunError
from securevfl.models.early_stopping import EarlyStopping
from securevfl.models.pretraining.autoencoder import Encoder
from securevfl.models.split import Batches, Centre, mean_loss
from securevfl.protocols.dvfl.schedule import Calendar


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
