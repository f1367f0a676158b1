"""CVFL: cascade vertical federated learning; several parties hold labels of different rows.

W. Xia, Y. Li, L. Zhang, Z. Wu, X. Yuan, "A Vertical Federated Learning Framework for Horizontally
Partitioned Labels", 2021. Line numbers are those of its Algorithms 1 to 3, letters those of its
text: M parties with a bottom model theta_m each, L of them active, which hold the labels of the
rows G_l and a copy w_0^l of the top model; a collaborator keeps the top model w_0. F_l is the
objective of active party l (equation 2), h_m an embedding, r(theta_m) a penalty, gamma the learning
rate.

In asynchronous mode each active party runs its own loop, and gradients are applied in the order of
arrival. In mode "sync" all active parties launch an update together and wait for each other:
every embedding of a round is of the models after the round before, for any order of arrival. The
objective of a slow active party is F_l^q (equation 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

import numpy as np

from securevfl.engine.party import ANNOUNCE, SERVER, Message, kept_as
from securevfl.models.aggregation import Aggregation
from securevfl.models.split import Centre
from securevfl.models.stale import LastEmbeddings
from securevfl.models.weights import penalty, weights_of
from securevfl.protocols.base.open_embeddings import FIELD, OpenClient
from securevfl.protocols.base.protected_values import Shapes, loaded, weights_in
from securevfl.protocols.cvfl.parameters import CvflConfig
from securevfl.protocols.cvfl.slow_parties import Objective, amplified, is_slow, pace_of
from securevfl.verified import Model, Participant, Secret

_UNANSWERED = 1000  # launches in a row without an answer after which a party waits without limit


@dataclass(frozen=True)
class Batch:
    """Batch of an update, which is public.

    Attributes
    ----------
    places, rows : ndarray of int, (|B|,)
        Positions among the party's labelled rows, and their row numbers.
    oldest : int
        Number of the earliest update whose embeddings may still be used.
    """

    places: np.ndarray
    rows: np.ndarray
    oldest: int


def penalty_of(network: Model) -> Secret:
    """Penalty r(theta_m) of a bottom model."""
    found: Secret = network.call(penalty, dtype=np.float64)
    return found


def kept(last: LastEmbeddings, party: int, places: np.ndarray, round: int, H: np.ndarray) -> None:
    """Store a party's embedding H of rows at `places`, of a round, unless a newer is stored."""
    last.keep(party, places, H, round)


def launched(
    top: Centre,
    labels: np.ndarray,
    last: LastEmbeddings,
    batch: Batch,
    aggregation: Aggregation,
    objective: Objective,
    senders: Sequence[int],
    receivers: Sequence[int],
    *given: np.ndarray,
) -> tuple[Any, ...]:
    """Loss of an update, its factor (equation 3), dF_l/dw_0, and dF_l/dh_m of `receivers`."""
    fresh = dict(zip(senders, given, strict=False))  # after them come penalties
    h, present = last.complete(fresh, batch.places, oldest=batch.oldest)
    joint = aggregation.combine(h, present)
    loss, dh, dw = top.gradients(joint, batch.rows, labels)  # lines 11 and 13
    factor = objective.factor(loss, map(float, given[len(fresh) :]))
    dh, dw = amplified(factor, dh, dw)  # equation 3
    parts = [aggregation.gradient(dh, h, present, m) for m in receivers]
    return loss, factor, *dw.values(), *parts


def applied(centre: Centre, names: Sequence[str], *gradients: np.ndarray) -> None:
    """Step of the top model with given gradients: w_0 -= gamma dF_l/dw_0 (Algorithm 3, line 3)."""
    centre.apply(dict(zip(names, gradients, strict=True)))


@dataclass(frozen=True)
class Launch:
    """Results of a launched update at an active party.

    Attributes
    ----------
    loss, factor : Secret, ()
        Loss of the batch; factor of equation 3.
    dw : dict of str to Secret
        Gradient dF_l/dw_0 by name of the weight.
    parts : dict of int to Secret
        dF_l/dh_m by party m with embeddings in the batch.
    """

    loss: Secret
    factor: Secret
    dw: dict[str, Secret]
    parts: dict[int, Secret]


def launch(
    models: tuple[Model, Secret, Model],
    shapes: Shapes,
    public: tuple[Batch, Aggregation, Objective],
    receivers: Sequence[int],
    embeddings: Mapping[int, Secret],
    penalties: Mapping[int, Secret],
) -> Launch:
    """Gradients of an update (lines 11 to 14).

    Parameters
    ----------
    models : (Model, Secret, Model)
        w_0^l, labels by row, and the newest embeddings.
    shapes : mapping of str to tuple of int
        Shapes of the weights of w_0 by name.
    public : (Batch, Aggregation, Objective)
        The batch, the rule that joins embeddings, and the numbers of the objective F_l^q.
    receivers : sequence of int
        Parties that have embeddings in it.
    embeddings, penalties : mapping of int to Secret
        h_m made for this update, and penalties r(theta_m). These are summed in their order, which
        decides the last bit.
    """
    top, *own = models
    fresh = dict(sorted(embeddings.items()))
    size = next(iter(fresh.values())).shape
    given = (*own, *public, tuple(fresh), tuple(receivers), *fresh.values(), *penalties.values())
    loss, factor, *found = top.call(
        launched,
        *given,
        shapes=[(), (), *shapes.values(), *[size] * len(receivers)],
        of=[np.float64] * 2 + [np.float32] * (len(shapes) + len(receivers)),
    )
    dw, parts = found[: len(shapes)], found[len(shapes) :]
    return Launch(
        loss, factor, dict(zip(shapes, dw, strict=True)), dict(zip(receivers, parts, strict=True))
    )


class Stale(LastEmbeddings):
    """Newest embeddings of all parties, which are protected; their updates' numbers are public.

    Parameters
    ----------
    embeddings : Model
        A `LastEmbeddings` with this number of parties and rows.
    """

    def __init__(self, embeddings: Model, parties: int, rows: int) -> None:
        super().__init__(parties, rows, 0)
        self.embeddings = embeddings

    def keep(self, party: int, places: np.ndarray, embedding: Any, round: int) -> None:
        """Store a party's embedding of some labelled rows, unless a newer one is stored."""
        if self.rows:
            self.embeddings.step(kept, party, places, round, embedding)
        super().keep(party, places, np.empty((len(places), 0)), round)

    def present(self, fresh: Iterable[int], batch: Batch) -> np.ndarray:
        """Mask, (M, |B|) bool, of the embeddings, fresh or stale, that an update can use."""
        new = dict.fromkeys(fresh, np.empty((len(batch.places), 0)))
        return self.complete(new, batch.places, oldest=batch.oldest)[1]

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint: that of the embeddings, and the number of their version."""
        return {**self.embeddings.state_dict(), "version": self.version}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from `state_dict`."""
        self.embeddings.load_state_dict(state)
        self.version = np.array(state["version"])


@dataclass(eq=False, repr=False)
class PassiveParty(OpenClient):
    """Party m: sends embeddings to active parties, and steps theta_m with gradients (Algorithm 2).

    Attributes
    ----------
    batches : Batches
        Layout for the largest batch that other parties request.
    network : Model
        theta_m, the bottom model.
    gradients_per_step : int
        Number of active parties' gradients to wait for before a step: L in mode "sync", else 1.
    strict : bool
        Whether it steps exactly once per round, and answers no request before the previous round's
        step: in mode "sync", without timeouts.
    pending : dict of int to (ndarray, Secret)
        Rows and gradients that have arrived, by active party, if it is not strict.
    early : list of tuple
        Requests that wait for a step; fields of messages.
    stepped : int
        Number of its steps; if it is strict, the round of the newest.
    """

    kept: ClassVar[tuple[str, ...]] = (
        *("network", "pending", "stepped"),
        *kept_as("passing", "early"),
    )
    activities: ClassVar[Mapping[str, str]] = {"embedding": "upload"}
    protected: ClassVar[Mapping[str, Any]] = {
        ANNOUNCE: "real",
        "embedding": ("public", "real"),
        "penalty": "number",
        "gradient": ("public", "real"),
        "top_gradient": ("number", "real", {"factor": "number"}),
        "top": ("real", "public"),
    }

    _: KW_ONLY
    gradients_per_step: int
    strict: bool
    pending: dict[int, tuple[np.ndarray, Secret]] = field(default_factory=dict, init=False)
    early: list[tuple[Any, ...]] = field(default_factory=list, init=False)
    stepped: int = field(default=0, init=False)

    async def run(self) -> None:
        """Answer requests until the collaborator sends "stop"."""
        self.serve()
        if not self.strict:
            await self.receive("stop", safe=True)
            return
        while await self.update_together():
            self.round = self.stepped

    def serve(self) -> None:
        """Register handlers for requests and gradients, which run during any wait."""
        self.on("request", self.answer)
        if not self.strict:
            self.on("gradient", self.take)

    def answer(self, request: Message) -> None:
        """Send h_m of the rows, and r(theta_m) if asked (Algorithm 1, lines 7 to 10)."""
        if self.strict and request.round > self.stepped + 1:
            self.early.append(tuple(request))
            return
        rows, slow = request.payload
        self.send(request.sender, "embedding", (rows, self.embed(rows)), round=request.round)
        if slow:
            own = penalty_of(self.network)
            self.send(request.sender, "penalty", own, round=request.round)

    def take(self, message: Message) -> None:
        """Store a gradient; step once enough active parties have sent theirs."""
        self.pending[message.sender] = message.payload  # line 2
        if len(self.pending) < self.gradients_per_step:
            return
        self.step_with(self.pending)
        self.pending = {}
        self.rest(message.round)

    async def update_together(self) -> bool:
        """Step with all active parties' gradients of the next round; return False at the end.

        They are waited for: a checkpoint of a round has all of its gradients, and none of the next.
        """
        gradients: dict[int, tuple[np.ndarray, Secret]] = {}
        while len(gradients) < self.gradients_per_step:
            # An active party is within the round that this step ends.
            safe = not gradients and self.round == self.stepped
            payload = await self.receive("gradient", "stop", round=self.stepped + 1, safe=safe)
            if payload is None:
                return False
            assert self.envelope is not None
            gradients[self.envelope.sender] = payload
        self.step_with(gradients)
        return True

    def step_with(self, gradients: Mapping[int, tuple[np.ndarray, Secret]]) -> None:
        """Step theta_m -= gamma (v + lambda grad r(theta_m)), v = J^T dF_l/dh_m (lines 2 to 6).

        `gradients` are pairs (rows, dF/dh_m), by number of the active party, and used in that
        order. The optimiser adds the gradient of the penalty (line 4). Early requests are answered.
        """
        for sender in sorted(gradients):
            self.update(*gradients[sender])  # lines 3 to 5
        self.stepped += 1
        waiting, self.early = self.early, []
        for request in waiting:
            self.answer(Message(*request))

    def rest(self, round: int) -> None:
        """Mark a safe point after a step; its round is that of the update it belongs to."""
        self.round = max(self.round, round)
        self.safe_point()


@dataclass(eq=False, repr=False)
class ActiveParty(PassiveParty):
    """Active party l: starts updates with its own labels (Algorithm 1), and runs Algorithm 2.

    The delay of its uploads is that of its own updates (Definition 4: a slow active party updates
    far less often); it answers requests at once. The delay of a passive party is that of its
    embeddings.

    Attributes
    ----------
    labelled_rows : ndarray of int
        G_l, in ascending order.
    labels : Secret, (N,)
        Labels of these rows; -1 in the place of others. Given as an array.
    batches : Batches
        Batches of places in `labelled_rows`.
    top : Model
        w_0^l, the copy of the top model; given as a `Centre`.
    aggregation, config : Aggregation, CvflConfig
        Rule that joins embeddings; the options.
    pace : float
        Its number of updates relative to the fastest active party's.
    unanswered : int
        Number of consecutive launches without a new top model.
    stale : Stale
        Embeddings of earlier launches.
    """

    kept: ClassVar[tuple[str, ...]] = (
        *("network", "pending", "stepped", "top", "pace", "stale", "unanswered"),
    )
    activities: ClassVar[Mapping[str, str]] = {"gradient": "upload", "top_gradient": "upload"}

    _: KW_ONLY
    labelled_rows: np.ndarray
    labels: Any
    top: Any
    aggregation: Aggregation
    config: CvflConfig
    pace: float = field(default=1.0, init=False)
    unanswered: int = field(default=0, init=False)
    stale: Stale = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.labels: Secret = self.own("labels", self.labels)
        self.shapes = {name: one.shape for name, one in weights_of(self.top).items()}
        self.top: Model = self.own_model("top", self.top)
        rows = len(self.labelled_rows) if self.config.patience is not None else 0
        last = LastEmbeddings(len(self.peers), rows, self.width)
        self.stale = Stale(self.own_model("stale", last), len(self.peers), rows)

    async def run(self) -> None:
        """Start updates until the collaborator sends "stop" (lines 2 to 15)."""
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
        """Make one update in each round, which the collaborator announces with w_0."""
        async for round_ in self.rounds():
            with round_:
                self.load(round_.payload)  # lines 3 to 5
                await self.launch()
            # Not within the block: the next round may have been announced by now.
            if self.strict:
                await self.update_together()

    def rest(self, round: int) -> None:
        """Do nothing: an active party's safe points lie between its updates."""

    async def launch(self) -> bool:
        """One update (lines 6 to 14); return False when the run is over."""
        places = self.batches.samples(self.batches.draw(self.round))  # line 6
        # Bounded staleness: an embedding of more than `staleness` launches ago is left out, as the
        # convergence proof needs a bound on its age.
        bound = self.config.staleness
        oldest = 0 if bound is None else max(0, self.round - bound)
        batch, slow = Batch(places, self.labelled_rows[places], oldest), self.is_slow
        others = [m for m in self.peers if m != self.index]
        self.broadcast("request", (batch.rows, slow), to=others)
        embeddings = {self.index: self.embed(batch.rows)}
        penalties = {self.index: penalty_of(self.network)} if slow else {}
        if not await self.gather(embeddings, penalties, len(self.peers) if slow else 0):
            return False
        present = self.stale.present(embeddings, batch)
        found = launch(
            (self.top, self.labels, self.stale.embeddings),
            self.shapes,
            (batch, self.aggregation, Objective.of(self.config, self.pace, slow=slow)),
            [m for m in self.peers if present[m].any()],
            embeddings,
            penalties,
        )
        for m, part in found.parts.items():
            self.send(m, "gradient", (batch.rows, part))  # line 12
        known = float(present.mean())
        counts = {"factor": found.factor, "fresh": len(embeddings), "known": known}
        self.send(SERVER, "top_gradient", (found.loss, found.dw, counts))  # line 14
        return True

    async def gather(
        self, embeddings: dict[int, Secret], penalties: dict[int, Secret], penalties_needed: int
    ) -> bool:
        """Add the other parties' h_m and r(theta_m) that arrive in time (lines 7 to 10).

        It waits for `penalties_needed` penalties. False when the run is over. An embedding of an
        earlier launch is kept as a stale one.
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
        """Copy the new top model when it arrives (lines 3 to 5); return False if the run is over.

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
                self.load(weights)
                return True

    def load(self, weights: Mapping[str, Secret]) -> None:
        """Put the weights of w_0 into this party's copy w_0^l."""
        self.top.step(loaded, tuple(weights), *weights.values())

    @property
    def is_slow(self) -> bool:
        """Whether the party counts as slow, with objective F_l^q (line 8)."""
        return is_slow(self.config, self.pace, self.index)


@dataclass(eq=False, repr=False)
class Collaborator(Participant):
    """Collaborator: holds the top model w_0, and trains it on active parties' gradients.

    Attributes
    ----------
    parties, active : sequence of int
        Numbers of all parties, and of the L active ones.
    centre : Model
        w_0, the top model; given as a `Centre`.
    config : CvflConfig
        The options.
    steps : int
        Updates of w_0 so far.
    updates : ndarray, (L,)
        Number of updates from each active party.
    """

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps", "updates")
    counts_rounds: ClassVar[bool] = True
    protected = PassiveParty.protected

    parties: Sequence[int]
    active: Sequence[int]
    centre: Any
    config: CvflConfig
    steps: int = field(default=0, init=False)
    updates: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        super().__init__(SERVER, self.parties, FIELD)
        self.shapes = {name: one.shape for name, one in weights_of(self.centre).items()}
        self.centre: Model = self.own_model("centre", self.centre)
        self.updates = np.zeros(len(self.active), np.int64)

    async def run(self) -> None:
        """Update w_0 until there are enough steps, then stop all parties (Algorithm 3)."""
        if self.config.mode == "sync":
            await self.run_in_step()
            return
        while self.steps < self.config.rounds:
            payload = await self.receive("top_gradient", safe=True)  # line 2
            assert self.envelope is not None
            party, round = self.envelope.sender, self.envelope.round
            self.update(party, payload)  # line 3
            answer = (weights_in(self.centre, self.shapes), pace_of(self.updates, party))
            self.send(party, "top", answer, round=round)  # line 4
        self.broadcast("stop", None)

    async def run_in_step(self) -> None:
        """One update of each active party in each round, all with the same w_0."""
        turn = 0
        while self.steps < self.config.rounds:
            self.safe_point()
            turn = self.steps // len(self.active) + 1
            self.announce(turn, weights_in(self.centre, self.shapes), to=self.active)
            payloads = await self.collect("top_gradient", senders=self.active)
            for party in self.active:
                self.update(party, payloads[party])
            self.round = turn
        self.conclude(to=self.active)
        self.broadcast("stop", None, to=[n for n in self.peers if n not in self.active])

    def update(self, party: int, payload: Any) -> None:
        """Step w_0 with an active party's gradient (line 3), and record a row of the history."""
        loss, gradients, counts = payload
        self.centre.step(applied, tuple(gradients), *gradients.values())
        self.steps += 1
        self.updates[party] += 1
        if self.config.mode != "sync":
            self.round = self.steps
        self.record("round", step=self.steps, loss=loss, used=1, client=party, **counts)
