"""Ideal functionality of DVFL: a trusted party's outputs, with all models in one place.

It is public who wrote, who answered, and when a party was at a safe point. A party that returns has
its state of the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.protocols.base.protected_values import mean_of
from securevfl.protocols.dvfl.algorithm import joined
from securevfl.protocols.dvfl.functions import (
    JUDGED,
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
from securevfl.verified import Model, Secret, World, picked

OPENED = "opened "


@dataclass
class State:
    """State of a guest or host at the trusted party.

    Attributes
    ----------
    network : Model
        The guest's encoder, or the host's auto-encoder.
    losses : list of Secret
        Losses of the iterations of this epoch so far.
    buffer : tuple of Secret
        Replay buffer of a host; empty for a guest.
    register : dict of int to list of (int, Secret)
        By guest, the newest activations that a host has, and their rounds.
    """

    network: Model
    losses: list[Secret] = field(default_factory=list)
    buffer: tuple[Secret, ...] = ()
    register: dict[int, list[tuple[int, Secret]]] = field(default_factory=dict)

    def at(self, world: World, round: int) -> State:
        """Copy of the state without values written in this round or later."""
        register = {g: [one for one in held if one[0] < round] for g, held in self.register.items()}
        return State(world.spec(self.network), list(self.losses), self.buffer, register)


class Ideal:
    """Trusted party: computes all outputs from all inputs, and declares who receives each.

    Parameters
    ----------
    world, made : World, Protocol
        Traced run, with its messages; the configured protocol.
    """

    def __init__(self, world: World, made: Any) -> None:
        self.world, self.made, self.schedule = world, made, made.schedule
        self.guests, self.hosts = tuple(made.peers()), made.hosts
        learners = (*self.guests, *self.hosts)
        self.now = {n: State(world.the(n, "network")) for n in learners}
        self.rested = {n: (0, state.at(world, 0)) for n, state in self.now.items()}
        self.chance = {n: world.the(n, "chance") for n in learners}
        self.columns = {g: world.the(g, "columns") for g in self.guests}
        self.sent = {(m.kind, m.sender, m.round) for m in world.messages}
        self.took = world.took("activation")

    def tell(self, name: str, value: Secret, to: Sequence[int] | None = None) -> None:
        """Declare a value as an output to `to` or to all, even if it depends on one party only."""
        self.world.output(name, value, to, alone=True)

    def run(self) -> None:
        """Compute a whole run: rounds in the order of the parties' safe points, then the owner."""
        last = dict.fromkeys(self.guests, self.schedule.guest_rounds)
        last |= dict.fromkeys(self.hosts, self.schedule.rounds)
        for n, life, round, seconds in self.world.rests:
            if n not in last:
                continue
            self.rest(n, life, round)
            if self.schedule.round_at(seconds) != round or round > last[n]:
                continue  # it waits
            if n in self.hosts:
                self.iterate(n, round)
            else:
                self.write(n, round)
            losses = self.now[n].losses
            if losses and round % self.schedule.per_epoch == 0:
                self.tell(f"loss of party {n}", mean_of(losses))
                losses.clear()
        self.execute(self.schedule.rounds + 1)

    def rest(self, n: int, life: int, round: int) -> None:
        """Store party n's state at a safe point; with a new `life` it first returns to the last."""
        lived, state = self.rested[n]
        if life != lived:  # a host has lost the last item of its buffer (D.2)
            state.buffer = state.buffer[:-1]
            self.now[n] = state
        self.rested[n] = life, self.now[n].at(self.world, round)

    def encode(self, g: int, rows: np.ndarray) -> Secret:
        """Codes of guest g's rows, (rows, width)."""
        shape = (len(rows), self.made.config.width)
        code: Secret = self.now[g].network.call(encoded, self.columns[g], rows, shape=shape)
        return code

    def step(self, n: int, inputs: Secret, round: int) -> None:
        """Step of the encoder of party n on inputs; its loss is added to the state's losses."""
        given = inputs, self.chance[n], round
        state = self.now[n]
        state.losses += state.network.step(trained, *given, shapes=[()], of=[np.float64])

    def write(self, g: int, round: int) -> None:
        """A guest's training round: send activations, and step."""
        places = self.made.batches.samples(self.made.batches.draw(round))
        X = self.columns[g]
        rows = own_rows(places, self.made.data.rows, X.shape[0])
        if self.schedule.writes(round):
            code = self.encode(g, rows)
            self.tell(f"activation of party {g}", code, self.hosts)
            for k, _ in (one for one in self.took.get(round, ()) if one[1] == g):
                self.now[k].register[g] = [*self.now[k].register.get(g, ()), (round, code)][-2:]
        self.step(g, X.map(of_rows, rows, shape=(len(rows), X.shape[1])), round)

    def iterate(self, k: int, round: int) -> None:
        """Training round of host k (section 5.2)."""
        config, buffer = self.made.config, self.now[k].buffer
        earlier = {
            g: [code for r, code in held if r < round]
            for g, held in sorted(self.now[k].register.items())
        }
        written = {g: codes[-1] for g, codes in earlier.items() if codes}
        if self.schedule.writes(round - 1) and written:
            read = joined(written, self.guests, config.width)
            self.now[k].buffer = (*buffer, read)[-(config.buffer or len(buffer) + 1) :]
            self.step(k, read, round)
        elif config.replay and buffer:
            self.step(k, picked(replayed, (self.chance[k], round, len(buffer)), buffer), round)

    def execute(self, asked: int) -> None:
        """Compute the owner's part (section 5), and declare its outputs."""
        rows, config = self.made.data.rows, self.made.config
        codes = {
            g: self.encode(g, np.arange(rows))
            for g in self.guests
            if ("code", g, asked) in self.sent
        }
        for g, code in codes.items():
            self.tell(f"code of party {g}", code, self.hosts)
        encodings, took = {}, self.world.took("code").get(asked, ())
        for k in self.hosts:
            if ("encoding", k, asked) not in self.sent:
                continue
            came = {g: codes[g] for to, g in took if to == k}  # in the order in which they did
            missing = [g for g in self.guests if g not in came and self.now[k].buffer]
            inputs = {**came, **{g: self.mean_code(k, g) for g in missing}}
            if (f"{OPENED}failure of {k}", k, asked) in self.sent:
                last = self.now[k].buffer[-JUDGED:]
                failure = self.now[k].network.call(failed, *last, shape=(2,), dtype=np.float64)
                self.tell(f"failure of party {k}", failure)
            first, *others = came.values()
            self.tell("dead codes", first.map(dead, *others, shape=(), dtype=np.int64))
            joint = joined(inputs, self.guests, config.width)
            shape = (rows, config.host_width)
            encodings[k] = self.now[k].network.call(encoding, joint, shape=shape)
            self.tell(f"encoding of party {k}", encodings[k], [SERVER])
        self.train(joined(encodings, self.hosts, config.host_width), alone=len(encodings) == 1)

    def mean_code(self, k: int, g: int) -> Secret:
        """Mean code of a guest in a host's buffer."""
        width, rows = self.made.config.width, self.made.data.rows
        first, *others = self.now[k].buffer
        given = g * width, width, rows
        code: Secret = first.map(mean_code, *given, *others, shape=(rows, width))
        return code

    def train(self, encodings: Secret, *, alone: bool) -> None:
        """Epochs of the owner; with one host the losses reveal labels to that host alone."""
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
