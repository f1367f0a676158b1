"""CVFL: cascade vertical federated learning, where several parties hold labels of different rows.

W. Xia, Y. Li, L. Zhang, Z. Wu, X. Yuan, "A Vertical Federated Learning Framework for Horizontally
Partitioned Labels", 2021, Algorithms 1 to 3. Of the M parties, who all own columns and a bottom
network, the first L are active: each holds the labels of some rows and a copy of the top network,
collects the embeddings of a batch of its own rows, and sends gradients to everybody. A collaborator
steps the common top network with the active parties' gradients of it.

Asynchronously each active party is a loop of its own, and the order in which its messages arrive
decides what is stepped when; synchronously all launch together and wait for each other. A slow
active party's objective is raised to the power q, which amplifies its gradients while its loss is
large (`securevfl.models.objective`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from securevfl.engine.party import SERVER, Message, Party
from securevfl.models.aggregation import Aggregation
from securevfl.models.client_networks import ClientNetwork
from securevfl.models.split import Batches, Centre
from securevfl.models.stale import LastEmbeddings
from securevfl.models.weights import load_weights, penalty, weights_of
from securevfl.protocols.cvfl.parameters import (
    _GRACE,
    _SLOW,
    _UNANSWERED,
    CvflConfig,
    amplified,
    numbers,
)


class Holder(Party):
    """Owns columns and a bottom network: Algorithm 2, and embeddings for those who ask."""

    kept: ClassVar[tuple[str, ...]] = ("network", "pending")
    activities: ClassVar[Mapping[str, str]] = {"embedding": "upload"}

    def __init__(
        self,
        index: int,
        peers: Sequence[int],
        features: np.ndarray,
        network: ClientNetwork,
        *,
        batch: int,
        together: int,
    ) -> None:
        super().__init__(index, peers)
        self.features = features
        self.network = network
        self.batch = batch
        self.together = together  # gradients that are waited for: L in step, else 1
        self.pending: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def serve(self) -> None:
        """Answer requests and learn from gradients, whatever else the party waits for."""
        self.on("request", self.answer)
        self.on("gradient", self.learn)

    async def run(self) -> None:
        """Serve until the collaborator says stop."""
        self.serve()
        await self.receive("stop", safe=True)

    def answer(self, request: Message) -> None:
        """Send h_m of the rows, and r(theta_m) to a slow active party (lines 7 to 10)."""
        rows, slow = request.payload
        embedding = self.network.forward(self.features[rows])
        self.send(request.sender, "embedding", (rows, embedding), round=request.round)
        if slow:
            value = penalty(self.network)
            self.send(request.sender, "penalty", value, round=request.round)

    def learn(self, message: Message) -> None:
        """Algorithm 2; in step, with all of a round's gradients, in the order of their senders."""
        self.pending[message.sender] = message.payload
        if len(self.pending) < self.together:
            return
        for sender in sorted(self.pending):
            rows, gradient = self.pending[sender]
            clipped = self.network.update(self.features[rows], gradient)
            if clipped:
                self.record("clipped", weights=clipped, bound=self.network.bound)
        self.pending = {}

    def operations(self, kind: str) -> int:
        """Multiply-adds of embedding a batch: the forward pass, as FedVS counts them."""
        return self.batch * self.network.operations if kind == "embedding" else 0


class Active(Holder):
    """Active party l: Algorithm 1, besides what every party does.

    Its delay is that of its own updates (Definition 4: a slow active party updates far less often);
    it serves others at once. Passive parties' delay is that of their embeddings.
    """

    kept: ClassVar[tuple[str, ...]] = (
        "network",
        "pending",
        "top",
        "pace",
        "stale",
        "unanswered",
    )
    activities: ClassVar[Mapping[str, str]] = {"gradient": "upload", "top_gradient": "upload"}

    def __init__(
        self,
        index: int,
        peers: Sequence[int],
        features: np.ndarray,
        network: ClientNetwork,
        *,
        own: np.ndarray,
        labels: np.ndarray,
        batches: Batches,
        top: Centre,
        aggregation: Aggregation,
        config: CvflConfig,
        together: int,
    ) -> None:
        super().__init__(index, peers, features, network, batch=batches.coded, together=together)
        self.own = own  # G_l, ascending
        self.labels = labels
        self.batches = batches
        self.top = top
        self.aggregation = aggregation
        self.config = config
        self.pace = 1.0
        self.unanswered = 0  # launches in a row
        rows = len(own) if config.patience is not None else 0
        self.stale = LastEmbeddings(len(self.peers), rows, config.width)

    async def run(self) -> None:
        """Launch updates until the collaborator says stop."""
        self.serve()
        if self.config.mode == "sync":
            await self.run_in_step()
            return
        while True:
            self.safe_point()
            self.round += 1
            if not (await self.launch() and await self.renewed()):
                return

    async def run_in_step(self) -> None:
        """One update in each round that the collaborator announces with the new top network."""
        async for round_ in self.rounds():
            with round_:
                load_weights(self.top, round_.payload)
                await self.launch()

    async def renewed(self) -> bool:
        """Wait for w_0 (lines 3 to 5); one of an earlier launch is left aside. False at the end."""
        timeout = self.config.timeout if self.unanswered < _UNANSWERED else None
        until = None if timeout is None else self.now + timeout
        while True:
            left = None if until is None else max(0.0, until - self.now)
            try:
                answer = await self.receive("top", "stop", timeout=left)
            except TimeoutError:
                self.unanswered += 1
                return True
            if answer is None:
                return False
            assert self.envelope is not None
            if self.envelope.round == self.round:
                self.unanswered = 0
                weights, self.pace = answer
                load_weights(self.top, weights)
                return True

    @property
    def is_slow(self) -> bool:
        """Whether its objective has an exponent: it is named so, or it lags behind."""
        if self.config.q == 1 or self.config.slow == "none":
            return False
        if self.config.slow == "measured":
            return self.pace < _SLOW
        return self.index in numbers(self.config.slow)

    async def launch(self) -> bool:
        """Lines 6 to 14; False when the run is over."""
        places = self.batches.samples(self.batches.draw(self.round))
        rows, slow = self.own[places], self.is_slow
        others = [n for n in self.peers if n != self.index]
        self.broadcast("request", (rows, slow), to=others)
        fresh = {self.index: self.network.forward(self.features[rows])}
        penalties = {self.index: penalty(self.network)} if slow else {}
        if not await self.gather(fresh, penalties, len(self.peers) if slow else 0):
            return False
        bound = self.config.staleness
        oldest = 0 if bound is None else max(0, self.round - bound)
        stack, present = self.stale.complete(fresh, places, oldest=oldest)
        joint = self.aggregation.combine(stack, present)
        loss, gradient, own = self.top.gradients(joint, places, self.labels)
        factor = self.factor(loss, penalties) if slow else 1.0
        if factor != 1:
            gradient = gradient * np.float32(factor)
            own = {name: g * np.float32(factor) for name, g in own.items()}
        for m in self.peers:
            if present[m].any():
                part = self.aggregation.gradient(gradient, stack, present, m)
                self.send(m, "gradient", (rows, part))
        told = {"factor": factor, "fresh": len(fresh), "known": float(present.mean())}
        self.send(SERVER, "top_gradient", (loss, own, told))
        return True

    async def gather(
        self, fresh: dict[int, np.ndarray], penalties: dict[int, float], wanted: int
    ) -> bool:
        """Take in embeddings of this launch, as far as they come in time; False at the end."""
        patience = self.config.patience
        until = None if patience is None else self.now + patience
        while len(fresh) < len(self.peers) or len(penalties) < wanted:
            left = None if until is None else max(0.0, until - self.now)
            try:
                answer = await self.receive("embedding", "penalty", "stop", timeout=left)
            except TimeoutError:
                return True
            if answer is None:
                return False
            message = self.envelope
            assert message is not None
            now = message.round == self.round
            if message.kind == "embedding":
                rows, embedding = answer
                self.stale.keep(
                    message.sender, np.searchsorted(self.own, rows), embedding, message.round
                )
                if now:
                    fresh[message.sender] = embedding
            elif now:
                penalties[message.sender] = answer
        return True

    def factor(self, loss: float, penalties: Mapping[int, float]) -> float:
        """Amplification of this batch's gradients by the exponent (equation (3))."""
        return amplified(self.config, self.pace, loss, penalties)


class Collaborator(Party):
    """Keeps w_0 and steps it with what the active parties send: Algorithm 3."""

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps", "updates")

    def __init__(
        self, peers: Sequence[int], active: int, centre: Centre, config: CvflConfig
    ) -> None:
        super().__init__(SERVER, peers)
        self.active = range(active)
        self.centre = centre
        self.config = config
        self.steps = 0
        self.updates = np.zeros(active, np.int64)  # of each active party

    async def run(self) -> None:
        """Step until there were enough updates, then stop everybody."""
        if self.config.mode == "sync":
            await self.run_in_step()
            return
        while self.steps < self.config.rounds:
            payload = await self.receive("top_gradient", safe=True)
            assert self.envelope is not None
            party, round = self.envelope.sender, self.envelope.round
            self.step(party, payload)
            self.send(party, "top", (weights_of(self.centre), self.pace(party)), round=round)
        self.broadcast("stop", None)

    async def run_in_step(self) -> None:
        """Updates of all active parties in each round, made with the same networks."""
        turn = 0
        while self.steps < self.config.rounds:
            self.safe_point()
            turn = self.steps // len(self.active) + 1
            self.announce(turn, weights_of(self.centre), to=self.active)
            received = await self.collect("top_gradient", senders=self.active)
            for party in self.active:
                self.step(party, received[party])
            self.round = turn
        self.conclude(to=self.active)
        self.broadcast("stop", None, to=[n for n in self.peers if n not in self.active])

    def step(self, party: int, payload: Any) -> None:
        """``w_0 -= gamma grad``; a row of the history."""
        loss, gradients, told = payload
        self.centre.apply(gradients)
        self.steps += 1
        self.updates[party] += 1
        if self.config.mode != "sync":
            self.round = self.steps
        self.record("round", step=self.steps, loss=loss, used=1, client=party, **told)

    def pace(self, party: int) -> float:
        """Part of the fastest party's updates that a party has made; 1 before that says much."""
        most = int(self.updates.max())
        return 1.0 if most < _GRACE else float(self.updates[party]) / most
