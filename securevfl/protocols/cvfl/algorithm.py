"""CVFL: cascade vertical federated learning, where several parties hold labels of different rows.

W. Xia, Y. Li, L. Zhang, Z. Wu, X. Yuan, "A Vertical Federated Learning Framework for Horizontally
Partitioned Labels", 2021. Line numbers are those of its Algorithms 1 to 3, letters those of its
text: M parties with a bottom model theta_m each, L of them active, which hold the labels of the
rows G_l and a copy w_0^l of the top model; a collaborator keeps the top model w_0. F_l is the
objective of active party l (equation 2), h_m an embedding, r(theta_m) a penalty, gamma the learning
rate.

Asynchronously each active party runs a loop of its own, and the order in which messages arrive
decides which gradient is applied when. In step, all active parties launch an update together and
wait for each other: every embedding of a round is of the models after the round before, in whatever
order messages arrive. The objective of a slow active party is F_l^q (equation 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

import numpy as np

from securevfl.engine.party import SERVER, Message, Party
from securevfl.models.aggregation import Aggregation
from securevfl.models.client_networks import ClientNetwork
from securevfl.models.split import Batches, Centre
from securevfl.models.stale import LastEmbeddings
from securevfl.models.weights import load_weights, penalty, weights_of
from securevfl.protocols.cvfl.parameters import CvflConfig
from securevfl.protocols.cvfl.slow_parties import amplified, gradient_factor, is_slow, pace_of

_UNANSWERED = 1000  # launches in a row without an answer after which a party waits without limit


@dataclass(eq=False, repr=False)
class PassiveParty(Party):
    """Party m: sends embeddings to active parties, and steps theta_m with theirs (Algorithm 2).

    Attributes
    ----------
    features : ndarray, (N, d_m)
        Its columns of all training rows.
    network : ClientNetwork
        theta_m, the bottom model.
    batch : int
        Rows of the largest batch that it is asked for.
    gradients_per_step : int
        How many active parties' gradients it waits for before a step: L in step, else 1.
    strict : bool
        Whether it steps exactly once a round, and answers no request before the step of the round
        before: in step, where nobody loses patience.
    pending : dict of int to (ndarray, ndarray)
        Rows and gradients that have arrived, by active party, if it is not strict.
    early : list of tuple
        Requests that wait for a step; fields of messages.
    stepped : int
        Number of its steps; if it is strict, the round of the newest.
    """

    kept: ClassVar[tuple[str, ...]] = ("network", "pending", "stepped")
    kept_optional: ClassVar[Mapping[str, Any]] = {"early": []}
    activities: ClassVar[Mapping[str, str]] = {"embedding": "upload"}

    index: int
    peers: Sequence[int]
    features: np.ndarray
    network: ClientNetwork
    _: KW_ONLY
    batch: int
    gradients_per_step: int
    strict: bool
    pending: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict, init=False)
    early: list[tuple[Any, ...]] = field(default_factory=list, init=False)
    stepped: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        super().__init__(self.index, self.peers)

    async def run(self) -> None:
        """Serve until the collaborator says stop."""
        self.serve()
        if not self.strict:
            await self.receive("stop", safe=True)
            return
        while await self.update_together():
            self.round = self.stepped

    def serve(self) -> None:
        """Answer requests and apply gradients, whatever else the party waits for."""
        self.on("request", self.embed)
        if not self.strict:
            self.on("gradient", self.update)

    def embed(self, request: Message) -> None:
        """Send h_m of the rows, and r(theta_m) if asked (Algorithm 1, lines 7 to 10)."""
        if self.strict and request.round > self.stepped + 1:
            self.early.append(tuple(request))
            return
        rows, slow = request.payload
        h = self.network.forward(self.features[rows])
        self.send(request.sender, "embedding", (rows, h), round=request.round)
        if slow:
            self.send(request.sender, "penalty", penalty(self.network), round=request.round)

    def update(self, message: Message) -> None:
        """Step, as soon as there are gradients of enough active parties."""
        self.pending[message.sender] = message.payload  # line 2
        if len(self.pending) < self.gradients_per_step:
            return
        self.step(self.pending)
        self.pending = {}
        self.rest(message.round)

    async def update_together(self) -> bool:
        """Step with the gradients of all active parties of the next round; False at the end.

        They are waited for: a checkpoint of a round has all of its gradients, and none of the next.
        """
        gradients: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        while len(gradients) < self.gradients_per_step:
            # An active party is within the round that this step ends.
            safe = not gradients and self.round == self.stepped
            payload = await self.receive("gradient", "stop", round=self.stepped + 1, safe=safe)
            if payload is None:
                return False
            assert self.envelope is not None
            gradients[self.envelope.sender] = payload
        self.step(gradients)
        return True

    def step(self, gradients: Mapping[int, tuple[np.ndarray, np.ndarray]]) -> None:
        """theta_m -= gamma (v + lambda grad r(theta_m)), v = J^T dF_l/dh_m (lines 2 to 6).

        In step, with the gradients of all active parties of the round, in the order of their
        numbers. The optimiser adds the gradient of the penalty (line 4).
        """
        for sender in sorted(gradients):
            rows, gradient = gradients[sender]
            clipped = self.network.update(self.features[rows], gradient)  # lines 3 to 5
            if clipped:
                self.record("clipped", weights=clipped, bound=self.network.bound)
        self.stepped += 1
        waiting, self.early = self.early, []
        for request in waiting:
            self.embed(Message(*request))

    def rest(self, round: int) -> None:
        """Keep a step, as of the launch that it followed: a passive party has no other rounds."""
        self.round = max(self.round, round)
        self.safe_point()

    def operations(self, kind: str) -> int:
        """Multiply-adds of embedding a batch: the forward pass, as FedVS counts them."""
        return self.batch * self.network.operations if kind == "embedding" else 0


@dataclass(eq=False, repr=False)
class ActiveParty(PassiveParty):
    """Active party l: launches updates with its own labels (Algorithm 1), and runs Algorithm 2.

    The delay of its uploads is that of its own updates (Definition 4: a slow active party updates
    far less often); it answers requests at once. The delay of a passive party is that of its
    embeddings.

    Attributes
    ----------
    labelled_rows : ndarray of int
        G_l, in ascending order.
    labels : ndarray, (N_l,)
        Labels of these rows.
    batches : Batches
        Batches of places in `labelled_rows`.
    top : Centre
        w_0^l, the copy of the top model.
    pace : float
        Its updates as a part of the fastest active party's.
    unanswered : int
        Launches in a row for which no new top model came.
    stale : LastEmbeddings
        Newest embedding of each party and labelled row.
    """

    kept: ClassVar[tuple[str, ...]] = (
        *("network", "pending", "stepped", "top", "pace", "stale", "unanswered"),
    )
    activities: ClassVar[Mapping[str, str]] = {"gradient": "upload", "top_gradient": "upload"}

    _: KW_ONLY
    labelled_rows: np.ndarray
    labels: np.ndarray
    batches: Batches
    top: Centre
    aggregation: Aggregation
    config: CvflConfig
    pace: float = field(default=1.0, init=False)
    unanswered: int = field(default=0, init=False)
    stale: LastEmbeddings = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        rows = len(self.labelled_rows) if self.config.patience is not None else 0
        self.stale = LastEmbeddings(len(self.peers), rows, self.config.width)

    async def run(self) -> None:
        """Launch updates until the collaborator says stop (lines 2 to 15)."""
        self.serve()
        if self.config.mode == "sync":
            await self.run_in_step()
            return
        while True:
            self.safe_point()
            self.round += 1
            if not (await self.launch() and await self.receive_top()):
                return

    async def run_in_step(self) -> None:
        """Launch one update in each round, which the collaborator announces with w_0."""
        async for round_ in self.rounds():
            with round_:
                load_weights(self.top, round_.payload)  # lines 3 to 5
                await self.launch()
            # Not within the block: the next round may have been announced by now.
            if self.strict:
                await self.update_together()

    def rest(self, round: int) -> None:
        """Nothing: its safe points are between its launches."""

    async def launch(self) -> bool:
        """One update (lines 6 to 14); False when the run is over."""
        places = self.batches.samples(self.batches.draw(self.round))  # line 6
        rows, slow = self.labelled_rows[places], self.is_slow
        others = [m for m in self.peers if m != self.index]
        self.broadcast("request", (rows, slow), to=others)
        embeddings = {self.index: self.network.forward(self.features[rows])}
        penalties = {self.index: penalty(self.network)} if slow else {}
        if not await self.gather(embeddings, penalties, len(self.peers) if slow else 0):
            return False
        bound = self.config.staleness
        # Bounded staleness: an embedding of more than `staleness` launches ago is left out, as the
        # convergence proof needs a bound on its age.
        oldest = 0 if bound is None else max(0, self.round - bound)
        h, present = self.stale.complete(embeddings, places, oldest=oldest)
        joint = self.aggregation.combine(h, present)
        loss, dh, dw = self.top.gradients(joint, places, self.labels)  # lines 11 and 13
        factor = gradient_factor(self.config, self.pace, loss, penalties) if slow else 1.0
        dh, dw = amplified(factor, dh, dw)  # equation 3
        for m in self.peers:
            if present[m].any():
                part = self.aggregation.gradient(dh, h, present, m)
                self.send(m, "gradient", (rows, part))  # line 12
        counts = {"factor": factor, "fresh": len(embeddings), "known": float(present.mean())}
        self.send(SERVER, "top_gradient", (loss, dw, counts))  # line 14
        return True

    async def gather(
        self, embeddings: dict[int, np.ndarray], penalties: dict[int, float], penalties_needed: int
    ) -> bool:
        """Add the other parties' h_m and r(theta_m), as far as they come in time (lines 7 to 10).

        False when the run is over. An embedding of an earlier launch is kept as a stale one.
        """
        patience = self.config.patience
        deadline = None if patience is None else self.now + patience
        while len(embeddings) < len(self.peers) or len(penalties) < penalties_needed:
            left = None if deadline is None else max(0.0, deadline - self.now)
            try:
                payload = await self.receive("embedding", "penalty", "stop", timeout=left)
            except TimeoutError:
                return True
            if payload is None:
                return False
            message = self.envelope
            assert message is not None
            of_this_launch = message.round == self.round
            if message.kind == "embedding":
                rows, h = payload
                # G_l is ascending, so a row's place among the labelled rows is found by bisection.
                places = np.searchsorted(self.labelled_rows, rows)
                self.stale.keep(message.sender, places, h, message.round)
                if of_this_launch:
                    embeddings[message.sender] = h
            elif of_this_launch:
                penalties[message.sender] = payload
        return True

    async def receive_top(self) -> bool:
        """w_0^l = w_0, when it comes (lines 3 to 5); False when the run is over.

        The answer to an earlier launch is dropped. After the timeout, the party goes on with the
        top model that it has.
        """
        timeout = self.config.timeout if self.unanswered < _UNANSWERED else None
        deadline = None if timeout is None else self.now + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - self.now)
            try:
                payload = await self.receive("top", "stop", timeout=left)
            except TimeoutError:
                self.unanswered += 1
                return True
            if payload is None:
                return False
            assert self.envelope is not None
            if self.envelope.round == self.round:
                self.unanswered = 0
                weights, self.pace = payload
                load_weights(self.top, weights)
                return True

    @property
    def is_slow(self) -> bool:
        """Whether its objective is F_l^q (line 8)."""
        return is_slow(self.config, self.pace, self.index)


@dataclass(eq=False, repr=False)
class Collaborator(Party):
    """Collaborator: keeps the top model w_0, and steps it with active parties' gradients.

    Attributes
    ----------
    parties, active : sequence of int
        Numbers of all parties, and of the L active ones.
    centre : Centre
        w_0, the top model.
    steps : int
        Updates of w_0 so far.
    updates : ndarray, (L,)
        How many of them came from each active party.
    """

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps", "updates")
    counts_rounds: ClassVar[bool] = True

    parties: Sequence[int]
    active: Sequence[int]
    centre: Centre
    config: CvflConfig
    steps: int = field(default=0, init=False)
    updates: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        super().__init__(SERVER, self.parties)
        self.updates = np.zeros(len(self.active), np.int64)

    async def run(self) -> None:
        """Update w_0 until there were enough steps, then stop all parties (Algorithm 3)."""
        if self.config.mode == "sync":
            await self.run_in_step()
            return
        while self.steps < self.config.rounds:
            payload = await self.receive("top_gradient", safe=True)  # line 2
            assert self.envelope is not None
            party, round = self.envelope.sender, self.envelope.round
            self.update(party, payload)  # line 3
            answer = (weights_of(self.centre), pace_of(self.updates, party))
            self.send(party, "top", answer, round=round)  # line 4
        self.broadcast("stop", None)

    async def run_in_step(self) -> None:
        """One update of each active party a round, all of them made with the same w_0."""
        turn = 0
        while self.steps < self.config.rounds:
            self.safe_point()
            turn = self.steps // len(self.active) + 1
            self.announce(turn, weights_of(self.centre), to=self.active)
            payloads = await self.collect("top_gradient", senders=self.active)
            for party in self.active:
                self.update(party, payloads[party])
            self.round = turn
        self.conclude(to=self.active)
        self.broadcast("stop", None, to=[n for n in self.peers if n not in self.active])

    def update(self, party: int, payload: Any) -> None:
        """w_0 -= gamma dF_l/dw_0 (line 3), and a row of the history."""
        loss, gradients, counts = payload
        self.centre.apply(gradients)
        self.steps += 1
        self.updates[party] += 1
        if self.config.mode != "sync":
            self.round = self.steps
        self.record("round", step=self.steps, loss=loss, used=1, client=party, **counts)
