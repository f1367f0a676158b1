"""DVFL once more, with all models in one place: what a trusted party computes, and tells to whom.

Who wrote, and who answered, is public. A party that is down is so for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.protocols.base.protected_values import mean_of
from securevfl.protocols.dvfl.algorithm import joined
from securevfl.protocols.dvfl.functions import (
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
    taken,
    trained,
    validated,
)
from securevfl.verified import Secret, World, picked

JUDGED = 32  # inputs by which a host is judged
OPENED = "opened "


class Ideal:
    """Outputs of a run.

    Parameters
    ----------
    world : World
        With the messages of the run.
    """

    def __init__(self, world: World, made: Any) -> None:
        self.world, self.made, self.schedule = world, made, made.schedule
        self.guests, self.hosts = tuple(made.peers()), made.hosts
        learners = (*self.guests, *self.hosts)
        self.networks = {n: world.the(n, "network") for n in learners}
        self.chance = {n: world.the(n, "chance") for n in learners}
        self.columns = {g: world.the(g, "columns") for g in self.guests}
        self.losses: dict[int, list[Secret]] = {n: [] for n in learners}
        self.written: dict[int, Secret] = {}  # by guest, before this round
        self.buffers: dict[int, tuple[Secret, ...]] = dict.fromkeys(self.hosts, ())
        self.sent = {(m.kind, m.sender, m.round) for m in world.messages}

    def tell(self, name: str, value: Secret, to: Sequence[int] | None = None) -> None:
        """Declare an output that is of one party, or may be."""
        self.world.output(name, value, to, alone=True)

    def run(self) -> None:
        """Rounds by the clock, and then what the owner executes."""
        for round in range(1, self.schedule.rounds + 1):
            for k in self.hosts:  # they read what was written before this round
                self.iterate(k, round)
            for g in self.guests if round <= self.schedule.guest_rounds else ():
                self.write(g, round)
            for n, losses in self.losses.items() if round % self.schedule.per_epoch == 0 else ():
                if ("event epoch", n, round) in self.sent:
                    self.tell(f"loss of party {n}", mean_of(losses))
                losses.clear()
        self.execute(self.schedule.rounds + 1)

    def encode(self, g: int, rows: np.ndarray) -> Secret:
        """Codes of a guest."""
        shape = (len(rows), self.made.config.width)
        code: Secret = self.networks[g].call(encoded, self.columns[g], rows, shape=shape)
        return code

    def step(self, n: int, inputs: Secret, round: int) -> None:
        """A step of an encoder."""
        given = inputs, self.chance[n], round
        self.losses[n] += self.networks[n].step(trained, *given, shapes=[()], of=[np.float64])

    def write(self, g: int, round: int) -> None:
        """Guest training round."""
        places = self.made.batches.samples(self.made.batches.draw(round))
        X = self.columns[g]
        rows = own_rows(places, self.made.data.rows, X.shape[0])
        if ("activation", g, round) in self.sent:
            self.written[g] = self.encode(g, rows)
            self.tell(f"activation of party {g}", self.written[g], self.hosts)
        self.step(g, X.map(of_rows, rows, shape=(len(rows), X.shape[1])), round)

    def iterate(self, k: int, round: int) -> None:
        """Host training round."""
        config, buffer = self.made.config, self.buffers[k]
        if self.schedule.writes(round - 1) and self.written:
            read = joined(dict(sorted(self.written.items())), self.guests, config.width)
            self.buffers[k] = (*buffer, read)[-(config.buffer or len(buffer) + 1) :]
            self.step(k, read, round)
        elif config.replay and buffer:
            self.step(k, picked(replayed, (self.chance[k], round, len(buffer)), buffer), round)

    def execute(self, asked: int) -> None:
        """Work of the owner (section 5)."""
        rows, config = self.made.data.rows, self.made.config
        codes = {
            g: self.encode(g, np.arange(rows))
            for g in self.guests
            if ("code", g, asked) in self.sent
        }
        for g, code in codes.items():
            self.tell(f"code of party {g}", code, self.hosts)
        encodings = {}
        for k in self.hosts:
            if ("encoding", k, asked) not in self.sent:
                continue
            inputs = {g: codes[g] if g in codes else self.mean_code(k, g) for g in self.guests}
            if (f"{OPENED}failure of {k}", k, asked) in self.sent:
                last = self.buffers[k][-JUDGED:]
                failure = self.networks[k].call(failed, *last, shape=(2,), dtype=np.float64)
                self.tell(f"failure of party {k}", failure)
            first, *others = codes.values()
            self.tell("dead codes", first.map(dead, *others, shape=(), dtype=np.int64))
            joint = joined(inputs, self.guests, config.width)
            shape = (rows, config.host_width)
            encodings[k] = self.networks[k].call(encoding, joint, shape=shape)
            self.tell(f"encoding of party {k}", encodings[k], [SERVER])
        self.train(joined(encodings, self.hosts, config.host_width), alone=len(encodings) == 1)

    def mean_code(self, k: int, g: int) -> Secret:
        """Mean code of a guest in a host's buffer."""
        width, rows = self.made.config.width, self.made.data.rows
        first, *others = self.buffers[k]
        given = g * width, width, rows
        code: Secret = first.map(mean_code, *given, *others, shape=(rows, width))
        return code

    def train(self, encodings: Secret, *, alone: bool) -> None:
        """Epochs of the owner; of one host alone the losses tell it of the labels alone."""
        centre, stopping = self.world.the(SERVER, "centre"), self.world.the(SERVER, "stopping")
        labels, rows = self.world.the(SERVER, "labels"), self.world.the(SERVER, "chance of rows")
        stops = self.made.config.stop_after is not None
        for number in range(len(self.world.rounds("event round"))):
            given = encodings, labels, rows
            (loss,) = centre.step(epoch, *given, number, shapes=[()], of=[np.float64])
            self.world.output("loss", loss, alone=alone)
            if stops:
                held_out = centre.call(validated, *given, dtype=np.float64)
                self.world.output("held out loss", held_out, alone=alone)
                stopping.step(taken, centre, held_out)
                ends = stopping.call(over, dtype=np.bool_)
                self.world.output("whether it stops", ends, alone=alone)
