"""DVFL: decoupled vertical federated learning.

A. Amalanshu, Y. Sirvi and D. Inouye, "Decoupled Vertical Federated Learning for Practical Training
on Vertically Partitioned Data", arXiv 2403.03871. The parts are those of its Algorithm 1 (appendix
A): guest training round, host training round, and what the owner executes; section and appendix
numbers are the paper's, too.

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

from securevfl.engine.party import SERVER, Message, kept_as
from securevfl.errors import RunError
from securevfl.models.early_stopping import EarlyStopping
from securevfl.models.split import Batches
from securevfl.protocols.base.open_embeddings import FIELD
from securevfl.protocols.base.protected_values import mean_of
from securevfl.protocols.dvfl.functions import (
    JUDGED,
    beside,
    dead,
    encoded,
    encoding,
    epoch,
    failed,
    mean_code,
    of_rows,
    over,
    own_rows,
    replayed,
    restored,
    taken,
    trained,
    validated,
)
from securevfl.protocols.dvfl.schedule import RoundSchedule
from securevfl.verified import Model, Participant, Secret, bare_of, picked

_ENOUGH = 500  # steps of Adam after which a network that is worse than the mean did not learn


@dataclass(eq=False, repr=False)
class Learner(Participant):
    """Guest or host: trains an encoder without labels, in rounds set by the clock.

    Attributes
    ----------
    index, peers : int, sequence of int
        Its number; numbers of the guests.
    schedule : RoundSchedule
        Schedule of rounds and of the actions in each.
    network : Model
        The party's encoder, with objective and optimiser; passed as an `Encoder`.
    chance : Model
        The party's secret choices; passed as a `Chance`.
    losses : list of Secret
        Losses of the iterations of this epoch so far.
    """

    kept: ClassVar[tuple[str, ...]] = ("network", "losses")
    protected: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("activation", "code", "encoding"), "real"
    )

    index: int
    peers: Sequence[int]  # the guests
    schedule: RoundSchedule
    network: Any
    chance: Any
    losses: list[Secret] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        super().__init__(self.index, self.peers, FIELD)
        self.multiply_adds = int(self.network.operations)
        self.network: Model = self.own_model("network", self.network)
        self.chance: Model = self.own_model("chance", self.chance)

    async def train(self, rounds: int) -> None:
        """Do each round's iteration up to the last round, whatever other parties do."""
        while (round := self.schedule.round_at(self.now)) <= rounds:
            self.round = round
            self.safe_point()
            self.iterate()
            if round % self.schedule.per_epoch == 0 and self.losses:
                loss = mean_of(self.losses)
                self.record("epoch", loss=loss, iterations=len(self.losses))
                self.losses = []
            await self.sleep(max(0.0, self.schedule.start(round + 1) - self.now))

    def iterate(self) -> None:
        """Do one training round, in a subclass (NotImplementedError here)."""
        raise NotImplementedError

    def to_checkpoint(self, value: Any) -> Any:
        """A value of the state for a checkpoint, as of any party; losses become numbers."""
        if self.world is None and value is self.losses:
            return [float(bare_of(loss)) for loss in self.losses]
        return super().to_checkpoint(value)

    def from_checkpoint(self, value: Any) -> Any:
        """A value from a checkpoint (inverse of `to_checkpoint`); the only list is the losses."""
        if self.world is None and isinstance(value, list):
            return [self._value_of(loss, "number") for loss in value]
        return super().from_checkpoint(value)

    def step(self, inputs: Secret) -> None:
        """One step of the encoder on a batch, with the party's own objective."""
        given = inputs, self.chance, self.round
        self.losses += self.network.step(trained, *given, shapes=[()], of=[np.float64])


@dataclass(eq=False, repr=False)
class Guest(Learner):
    """Guest g: trains on all its rows, aligned or not (section 5.3), and sends activations.

    Attributes
    ----------
    hosts : sequence of int
        Numbers of the hosts.
    features : Secret, (rows, d_g)
        Its columns of all its rows, the aligned ones first; given as an array.
    width : int
        Width d_g of its code.
    aligned : int
        M, the number of aligned rows.
    batches : Batches
        Batches of positions, the same for all guests; `own_rows` gives the rows at them.
    """

    activities: ClassVar[Mapping[str, str]] = {"activation": "upload", "code": "upload"}

    _: KW_ONLY
    hosts: Sequence[int]
    features: Any
    width: int
    aligned: int
    batches: Batches

    def __post_init__(self) -> None:
        super().__post_init__()
        self.features: Secret = self.own("columns", self.features)

    async def run(self) -> None:
        """Train, then encode the aligned rows when the owner asks."""
        await self.train(self.schedule.guest_rounds)
        async for round_ in self.rounds():
            with round_:
                self.broadcast("code", self.encode(np.arange(self.aligned)), to=self.hosts)

    def iterate(self) -> None:
        """Guest training round: compute activations, send them to all hosts, update."""
        places = self.batches.samples(self.batches.draw(self.round))
        rows = own_rows(places, self.aligned, self.features.shape[0])
        if self.schedule.writes(self.round):  # a communication epoch (appendix F.1)
            self.broadcast("activation", self.encode(rows), to=self.hosts)
        self.step(self.features.map(of_rows, rows, shape=(len(rows), self.features.shape[1])))

    def encode(self, rows: np.ndarray) -> Secret:
        """Codes of some of the guest's rows."""
        code: Secret = self.network.call(
            encoded, self.features, rows, shape=(len(rows), self.width)
        )
        return code

    def operations(self, kind: str) -> int:
        """Multiply-adds of encoding the sent rows: the forward pass, counted as in FedVS."""
        rows = {"activation": self.batches.coded, "code": self.aligned}.get(kind, 0)
        return rows * self.multiply_adds


@dataclass(eq=False, repr=False)
class Host(Learner):
    """Host k: reads guests' activations, fills its replay buffer and trains on it (section 5.2).

    Attributes
    ----------
    width, own_width : int
        Width d_g of a guest's code, and d_k of the host's encoding.
    bound : int or None
        Largest number of inputs in the replay buffer; None for no bound.
    replay : bool
        Whether it trains on its buffer in rounds in which nothing was written.
    aligned : int
        M, the number of aligned rows.
    patience : float
        Seconds for which it waits for the guests' final codes.
    writings : dict of int to sequence of (int, Secret)
        Its registers: by guest, the newest two activations that it wrote, the newest first, and
        their rounds. The clock of a guest on another machine may be ahead, by less than a round.
    buffer : tuple of Secret, (|B|, N d_g)
        Replay buffer: inputs of earlier rounds, the oldest first; `saved` holds it for checkpoints.
    lives : int
        Number of ended incarnations; the buffer loses its last item at each rejoin.
    steps : int
        Iterations that it has made.
    """

    kept: ClassVar[tuple[str, ...]] = (
        *("network", "losses", "lives"),
        *kept_as("passing", "steps"),
        *kept_as("frozen", "writings", "buffer"),
    )

    _: KW_ONLY
    width: int
    own_width: int
    bound: int | None
    replay: bool
    aligned: int
    patience: float
    writings: dict[int, tuple[tuple[int, Secret], ...]] = field(default_factory=dict, init=False)
    buffer: tuple[Secret, ...] = field(default=(), init=False)
    saved: tuple[Any, ...] = field(default=(), init=False)  # the buffer as checkpoints hold it
    lives: int = field(default=0, init=False)
    steps: int = field(default=0, init=False)

    async def run(self) -> None:
        """Train, then encode the aligned rows for the owner."""
        self.on("activation", self.write)
        if self.lives < self.epoch:  # after a crash the last item of the buffer is lost (D.2)
            self.lives = self.epoch
            self.buffer = self.buffer[:-1]
        self.saved = tuple(Learner.to_checkpoint(self, read) for read in self.buffer)
        await self.train(self.schedule.rounds)
        async for round_ in self.rounds():
            with round_:
                codes = await self.collect("code", timeout=self.patience)
                if codes and self.learned():
                    self.tell_dead(codes)
                    shape = (self.aligned, self.own_width)
                    own = self.network.call(encoding, self.complete(codes), shape=shape)
                    self.send(SERVER, "encoding", own)

    def to_checkpoint(self, value: Any) -> Any:
        """A value of the state for a checkpoint; each item of the long buffer is encoded once."""
        return self.saved if value is self.buffer else super().to_checkpoint(value)

    def write(self, message: Message) -> None:
        """Store a guest's activations in its register, which keeps its two latest rounds."""
        others = (one for one in self.writings.get(message.sender, ()) if one[0] != message.round)
        both = sorted(((message.round, message.payload), *others), key=itemgetter(0), reverse=True)
        self.writings = {**self.writings, message.sender: tuple(both[:2])}

    def written(self) -> dict[int, Secret]:
        """Activations, by guest, that guests sent before this round, stale ones included."""
        known = {
            guest: [one for round, one in held if round < self.round]
            for guest, held in self.writings.items()
        }
        return {guest: ones[0] for guest, ones in known.items() if ones}

    def iterate(self) -> None:
        """Host training round: on new activations if there are any, else on an earlier input."""
        if self.schedule.writes(self.round - 1) and (written := self.written()):
            read = self.side_by_side(written)
            most = self.bound or len(self.buffer) + 1
            self.buffer = (*self.buffer, read)[-most:]
            self.saved = (*self.saved, Learner.to_checkpoint(self, read))[-most:]
            self.step(read)
            self.steps += 1
        elif self.replay and self.buffer:
            self.step(picked(replayed, (self.chance, self.round, len(self.buffer)), self.buffer))
            self.steps += 1

    def side_by_side(self, codes: Mapping[int, Secret]) -> Secret:
        """Codes of all guests side by side; zeros for a guest without any."""
        return joined(codes, self.peers, self.width)

    def complete(self, codes: Mapping[int, Secret]) -> Secret:
        """Codes of all guests side by side; a missing one is the mean of earlier ones, or zeros."""
        missing = [g for g in self.peers if g not in codes]
        if missing:
            self.record("filled", guests=missing)
        filled = {g: self.mean_code(g) for g in missing if self.buffer}
        return self.side_by_side({**codes, **filled})

    def mean_code(self, guest: int) -> Secret:
        """Mean code of a guest in the buffer, repeated for each aligned row."""
        place = self.peers.index(guest) * self.width
        first, *others = self.buffer
        given = place, self.width, self.aligned
        code: Secret = first.map(mean_code, *given, *others, shape=(self.aligned, self.width))
        return code

    def tell_dead(self, codes: Mapping[int, Secret]) -> None:
        """Record a notice if some columns of the guests' codes are constant over all rows."""
        first, *others = codes.values()
        found = first.map(dead, *others, shape=(), dtype=np.int64)
        count = int(self.opened(found, f"dead codes at {self.index}"))
        if count:
            text = (
                f"dvfl: {count} of the {len(codes) * self.width} numbers of the guests' codes are "
                "the same for all rows, and tell nothing. guest_activation=relu with a large "
                "guest_lr makes such numbers, and so do columns that are constant"
            )
            self.record("notice", text=text)

    def learned(self) -> bool:
        """Whether the host can send encodings; False if it never made a step.

        Its error of reconstruction, on the inputs that it trained on last, is compared with that
        of their mean. All may learn the comparison, and if the host is worse, both errors. It is
        then a RunError after `_ENOUGH` steps; before, a notice is recorded.
        """
        who = f"dvfl: party {self.index} (a host)"
        if not self.steps:
            text = (
                f"{who} made no training step, so it sends no encodings: it was down, or no guest"
            )
            self.record("notice", text=f"{text} wrote")
            return False
        last = self.buffer[-JUDGED:]
        if sum(read.shape[0] for read in last) < 2:
            return True
        found = self.network.call(failed, *last, shape=(2,), dtype=np.float64)
        error, variance = self.opened(found, f"failure of {self.index}")
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
        return self.aligned * self.multiply_adds if kind == "encoding" else 0


@dataclass(eq=False, repr=False)
class Owner(Participant):
    """Owner of the labels: times the rounds, then trains on the hosts' encodings.

    Attributes
    ----------
    guests, hosts : sequence of int
        Numbers of the guests and hosts.
    schedule : RoundSchedule
        Schedule of the rounds, which gives the current one.
    centre : Model
        The classifier; given as a `Centre`.
    width : int
        Width d_k of a host's encoding.
    labels : Secret, (M,)
        Labels of the aligned rows; given as an array.
    rows : Model
        The aligned rows for training, in batches, and for validation; given as `OwnRows`.
    validates : int
        Number of validation rows.
    epochs : int
        Largest number of epochs.
    stop_after : int or None
        Epochs without a lower validation loss after which it stops; None to train all epochs.
    patience : float
        Seconds for which a host waits for codes; the owner waits twice as long for encodings.
    answered : tuple of int
        Hosts whose encodings it has.
    encodings : Secret, (M, |K| d_k), or None
        Encodings of all hosts side by side, once they are there.
    """

    kept: ClassVar[tuple[str, ...]] = (
        *("centre", "stopping", "steps", "answered"),
        *kept_as("frozen", "encodings"),
    )
    protected = Learner.protected

    guests: Sequence[int]
    schedule: RoundSchedule
    centre: Any
    _: KW_ONLY
    hosts: Sequence[int]
    width: int
    labels: Any
    rows: Any
    validates: int
    epochs: int
    stop_after: int | None
    patience: float
    stopping: Model = field(init=False)
    steps: int = field(default=0, init=False)
    answered: tuple[int, ...] = field(default=(), init=False)
    encodings: Secret | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__init__(SERVER, self.guests, FIELD)
        self.centre: Model = self.own_model("centre", self.centre)
        self.labels: Secret = self.own("labels", self.labels)
        self.rows: Model = self.own_model("chance of rows", self.rows)
        wait = self.epochs + 1 if self.stop_after is None else self.stop_after
        self.stopping = self.own_model("stopping", EarlyStopping([], wait))

    async def run(self) -> None:
        """Owner's role: let guests and hosts train, request the encodings, train on them."""
        others = (*self.guests, *self.hosts)
        if self.encodings is None:
            await self.keep_time()
            self.announce(self.schedule.round_at(self.now), to=others)
            await self.gather()
            self.conclude(to=others)  # before training, whose length depends on labels
        await self.train()

    async def keep_time(self) -> None:
        """Wait while guests and hosts count their rounds by the clock."""
        while (round := self.schedule.round_at(self.now)) <= self.schedule.rounds:
            self.safe_point()
            self.announce(round, to=())
            await self.sleep(max(0.0, self.schedule.start(round + 1) - self.now))

    async def gather(self) -> None:
        """Collect the hosts' encodings of the aligned rows; RunError if none comes in time."""
        timeout = 2 * self.patience
        encodings = await self.collect("encoding", senders=self.hosts, timeout=timeout)
        if not encodings:
            raise RunError(
                f"dvfl: none of the {len(self.hosts)} hosts sent its encodings within {timeout:g} "
                f"s of round {self.round}: parties {list(self.hosts)}. One that made no training "
                "step sends none; raise patience, or let faults end before that round"
            )
        self.answered = tuple(encodings)
        self.encodings = joined(encodings, self.hosts, self.width)

    async def train(self) -> None:
        """Train the classifier, an epoch a round, up to the last epoch or an early stop."""
        ended = self.stop_after is not None and self.steps > 0 and self.stopped()
        while self.steps < self.epochs and not ended:
            self.safe_point()
            self.round += 1
            loss = self.train_epoch()
            self.steps += 1
            validation = self.validate()
            ended = bool(validation) and self.stopped()
            if validation and (self.steps == self.epochs or ended):
                self.centre.step(restored, self.stopping)
            used = len(self.answered)
            self.record("round", step=self.steps, loss=loss, used=used, **validation)
            await self.sleep(self.schedule.interval)

    def train_epoch(self) -> Secret:
        """Train the classifier for one epoch; return the mean loss."""
        given = self.encodings, self.labels, self.rows, self.steps
        (loss,) = self.centre.step(epoch, *given, shapes=[()], of=[np.float64])
        return loss  # type: ignore[no-any-return]

    def validate(self) -> dict[str, Secret]:
        """Loss on the validation rows, for early stopping; empty without such rows."""
        if not self.validates:
            return {}
        given = self.encodings, self.labels, self.rows
        loss = self.centre.call(validated, *given, dtype=np.float64)
        self.stopping.step(taken, self.centre, loss)
        return {"held_out_loss": loss}

    def stopped(self) -> bool:
        """Whether early stopping ends the training now."""
        return bool(self.opened(self.stopping.call(over, dtype=np.bool_), "whether it stops"))


def joined(parts: Mapping[int, Secret], everyone: Sequence[int], width: int) -> Secret:
    """Arrays of some parties side by side; zeros for a party without one."""
    first, *others = parts.values()
    given = tuple(parts), tuple(everyone), width
    shape = (first.shape[0], len(everyone) * width)
    found: Secret = first.map(beside, *given, *others, shape=shape)
    return found
