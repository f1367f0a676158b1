"""Ideal functionality of CVFL: a trusted party's outputs, with all models in one place.

Which message arrives when is public. Here each arrives when all have that were sent before it. An
active party is k here, and l in the paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.models.weights import weights_of
from securevfl.protocols.base.open_embeddings import embedding, updated
from securevfl.protocols.base.protected_values import loaded, weights_in
from securevfl.protocols.cvfl.algorithm import Batch, Launch, applied, kept, launch, penalty_of
from securevfl.protocols.cvfl.slow_parties import Objective, is_slow, pace_of
from securevfl.verified import Secret, World

Number = tuple[int, int]  # of a launch: its active party, and which one of that


class Ideal:
    """Trusted party: computes all outputs from all inputs, and declares who receives each.

    Parameters
    ----------
    world, made : World, Protocol
        Traced run, with its messages; the configured protocol.
    """

    def __init__(self, world: World, made: Any) -> None:
        self.world, self.made, self.config = world, made, made.config
        self.active = range(len(made.label_sets))
        self.columns = {m: world.the(m, "columns") for m in made.peers()}
        self.networks = {m: world.the(m, "network") for m in made.peers()}
        self.tops = {k: world.the(k, "top") for k in self.active}
        self.labels = {k: world.the(k, "labels") for k in self.active}
        self.stale = {k: world.the(k, "stale") for k in self.active}
        self.centre = world.the(SERVER, "centre")
        self.shapes = {name: one.shape for name, one in weights_of(made.top()).items()}
        self.batches = {k: made.batches_of(k) for k in self.active}
        self.steps, self.updates = 0, np.zeros(len(self.active), np.int64)
        self.pace = dict.fromkeys(self.active, 1.0)
        self.sent: dict[Number, dict[int, Secret]] = {}  # embeddings
        self.penalties: dict[Number, dict[int, Secret]] = {}
        self.done: dict[Number, Launch] = {}

    def tell(self, name: str, value: Secret, to: list[int] | None = None) -> None:
        """Declare a value as an output to `to` or to all, even if it depends on one party only."""
        self.world.output(name, value, to, alone=True)

    def in_order_of_arrival(self) -> None:
        """Compute an asynchronous run; the order of messages gives the order of updates."""
        answers: dict[int, tuple[dict[str, Secret], float]] = {}
        for k in self.active:
            self.ask(k, k, 1)
        for message in list(self.world.messages):
            sender, to, round = message.sender, message.to, message.round
            if to is None:
                continue  # an event
            if message.kind == "request":
                self.ask(sender, to, round)
            elif message.kind == "gradient":
                self.learn(sender, to, round)
            elif message.kind == "top_gradient":
                self.arrive(sender, round)
                answers[sender] = self.hand_out([sender]), pace_of(self.updates, sender)
            elif message.kind == "top":
                W, self.pace[to] = answers[to]
                self.load(to, W)
                self.ask(to, to, round + 1)

    def in_step(self) -> None:
        """Compute a synchronous run: a round's embeddings use the models after the round before."""
        for round in self.world.rounds("request"):
            W = self.hand_out(list(self.active))
            for k in self.active:
                self.load(k, W)
                for m in self.made.peers():
                    self.ask(k, m, round)
            for m in self.made.peers():
                for k in self.active:
                    self.learn(k, m, round)
            for k in self.active:
                self.arrive(k, round)

    def ask(self, k: int, m: int, round: int) -> None:
        """Declare m's answer to an update of k: h_m, and r(theta_m) if k is slow (lines 7-10)."""
        rows, shape = self.batch(k, round).rows, (self.made.batches_of(k).coded, self.config.width)
        H = self.networks[m].call(embedding, self.columns[m], rows, shape=shape)
        self.sent.setdefault((k, round), {})[m] = H
        if m != k:
            self.tell(f"embedding of party {m}", H, [k])
        if is_slow(self.config, self.pace[k], k):
            r = self.penalties.setdefault((k, round), {})[m] = penalty_of(self.networks[m])
            if m != k:
                self.tell(f"penalty of party {m}", r, [k])

    def launch(self, k: int, round: int) -> Launch:
        """Gradients of an update, after all embeddings have arrived."""
        number = k, round
        if number in self.done:
            return self.done[number]
        batch, slow = self.batch(k, round), is_slow(self.config, self.pace[k], k)
        for m in self.senders("embedding", k, round) if self.config.patience is not None else ():
            self.stale[k].step(kept, m, batch.places, round, self.sent[number][m])
        found = launch(
            (self.tops[k], self.labels[k], self.stale[k]),
            self.shapes,
            (batch, self.made.aggregation, Objective.of(self.config, self.pace[k], slow=slow)),
            self.made.peers(),
            self.sent[number],
            {m: self.penalties[number][m] for m in (k, *self.senders("penalty", k, round)) if slow},
        )
        self.done[number] = found
        return found

    def senders(self, kind: str, to: int, round: int) -> list[int]:
        """Senders of an update's messages, in order of arrival."""
        came = [m for m in self.world.messages if (m.kind, m.to, m.round) == (kind, to, round)]
        return [m.sender for m in came]

    def learn(self, k: int, m: int, round: int) -> None:
        """Step of theta_m with dF_l/dh_m, which is an output to party m (Algorithm 2)."""
        part = self.launch(k, round).parts[m]
        if m != k:
            self.tell(f"dF/dh of party {m}", part, [m])
        given = (self.columns[m], self.batch(k, round).rows, part)
        (clipped,) = self.networks[m].step(updated, *given, shapes=[()])
        if self.config.weight_bound is not None:
            self.tell(f"clipped weights of party {m}", clipped)

    def arrive(self, k: int, round: int) -> None:
        """Step of w_0; gradient, loss and factor are outputs to the collaborator."""
        found = self.launch(k, round)
        late = self.config.mode != "sync" and self.steps >= self.config.rounds
        for gradient in found.dw.values():
            self.tell(f"dF/dw by party {k}", gradient, [SERVER])
        for name, number in (("loss", found.loss), ("factor", found.factor)):
            self.tell(name, number, [SERVER] if late else None)
        self.centre.step(applied, tuple(found.dw), *found.dw.values())
        self.steps += 1
        self.updates[k] += 1

    def hand_out(self, to: list[int]) -> dict[str, Secret]:
        """Weights w_0, declared as an output to the active parties `to`."""
        W = weights_in(self.centre, self.shapes)
        for one in W.values():
            self.tell("top model", one, to)
        return W

    def load(self, k: int, W: dict[str, Secret]) -> None:
        """Put the weights W of w_0 into active party k's copy."""
        self.tops[k].step(loaded, tuple(W), *W.values())

    def batch(self, k: int, round: int) -> Batch:
        """Batch of an update: its rows, and the embeddings that it may use."""
        batches = self.batches[k]
        places = batches.samples(batches.draw(round))
        bound = self.config.staleness
        oldest = 0 if bound is None else max(0, round - bound)
        return Batch(places, self.made.label_sets[k][places], oldest)
