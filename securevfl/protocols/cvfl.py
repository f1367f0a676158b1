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

import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from securevfl.data.label_partition import partition_labels, unheld_classes
from securevfl.engine.party import ANNOUNCE, SERVER, Message, Party
from securevfl.engine.streams import keyed_stream
from securevfl.errors import ConfigurationError
from securevfl.models.aggregation import Aggregation
from securevfl.models.client_networks import ClientNetwork
from securevfl.models.objective import amplification, chosen_exponent
from securevfl.models.split import Batches, Centre
from securevfl.models.stale import LastEmbeddings
from securevfl.models.weights import load_weights, penalty, refuse_running_statistics, weights_of
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.messages import (
    Formula,
    MessageKey,
    MessageSpec,
    RunSecrets,
    announcement,
    last_word,
    with_formulas,
)
from securevfl.protocols.base.options import EmbeddingConfig
from securevfl.protocols.base.split import EmbeddingProtocol

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

_SLOW = 0.75  # part of the fastest party's updates below which a party counts as slow
_UNANSWERED = 1000  # launches in a row after which an active party waits as long as it takes
_GRACE = 5  # updates of the fastest party before which nobody does


class CvflConfig(EmbeddingConfig):
    """Options of CVFL; a round is one update that an active party launched."""

    aggregation: Literal["mean", "concat", "max"] = Field(
        "concat", description="How embeddings are joined to the input of the top models."
    )
    lr: float = Field(
        0.003,
        gt=0,
        description="Learning rate. Keep it low: up to L updates are made with the same networks.",
    )
    weight_decay: float = Field(
        1e-3,
        ge=0,
        description=(
            "Weight lambda of the penalty r(theta_m) = |theta_m|^2 / 2 of each bottom model."
        ),
    )
    mode: Literal["async", "sync", "single"] = Field(
        "async",
        description=(
            "How active parties work: each at its own pace (async), all in step (sync), or "
            "the first one alone with its part of the labels (single)."
        ),
    )
    active: int | None = Field(
        None,
        ge=1,
        description="Number L of active parties: the first L parties hold labels. Default: all M.",
    )
    label_partition: str = Field(
        "equal",
        description=(
            "Who holds which labels: equal, dirichlet:A, classes:0,1/2,3, cvfl-mnist or "
            "cvfl-cifar10."
        ),
    )
    q: float | Literal["auto"] = Field(
        3.0,
        description=(
            "Exponent q of the losses of slow active parties: a number of at least 1, or auto."
        ),
    )
    slow: str = Field(
        "measured",
        description=(
            "Which active parties count as slow: measured (by their number of updates), "
            "none, or their numbers, such as 1,2,3."
        ),
    )
    amplify_at_most: float = Field(
        20.0,
        ge=1,
        description=(
            "Bound on the factor by which gradients of slow parties are amplified. The "
            "paper has none."
        ),
    )
    patience: float | None = Field(
        None,
        ge=0,
        description=(
            "Seconds for which an active party waits for embeddings before it takes the "
            "last ones that it has. Default: it waits for all."
        ),
    )
    timeout: float | None = Field(
        None,
        gt=0,
        description=(
            "Seconds for which an active party waits for the top model before it launches "
            "again with the one it has. Use it where links lose messages. Default: it "
            "waits."
        ),
    )
    staleness: int | None = Field(
        None,
        ge=1,
        description="Largest age of a reused embedding, in launches. Older ones are left out.",
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


class Cvfl(EmbeddingProtocol):
    """CVFL on one data set: `--parties` is M, and the first L = `active` of them hold labels."""

    name = "cvfl"
    Config = CvflConfig
    fault_options: ClassVar[dict[str, Any]] = {"patience": 1.0}
    card = Card(
        title="CVFL: labels held by several parties",
        paper="Xia, Li, Zhang, Wu, Yuan, A Vertical Federated Learning Framework for Horizontally "
        "Partitioned Labels, 2021",
        roles={
            "active party": "holds some columns, the labels of some rows, a bottom network and a "
            "copy of the top network; launches updates",
            "passive party": "holds some columns and a bottom network; serves active parties",
            "collaborator": "steps the common top network; holds no data",
        },
        sees={
            "active party": "every party's embedding of each of its labelled rows, exactly and "
            "again in every epoch; the top network; if it is slow and q > 1 the values r(theta_m), "
            "the norms of all bottom networks; dL/dh of its own embedding from the others, which "
            "depends on their labels; which rows the others have labels of, and its own pace",
            "passive party": "which rows each active party has labels of, and dL/dh of its own "
            "embedding, which depends on the labels",
            "collaborator": "the gradient of the top network of every batch, from which the labels "
            "of a small batch can often be read, the loss of each batch, who is slow, and how many "
            "embeddings each batch had",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="skips",
        deviations=(
            "the paper holds embeddings to be safe to share when a party has more than two "
            "columns, because infinitely many data have the same embedding; that excludes unique "
            "solutions of a linear map, is no bound on what they tell, and is not claimed here",
            "the batch's loss goes to the collaborator with the gradient, for the history",
            "r(theta) is |theta|^2 / 2 and lambda multiplies its gradient too, as in equation (1); "
            "line 5 of Algorithm 2 has no lambda",
            "q is given up at F <= q^(1/(1-q)), where the factor would fall below 1; the paper "
            "prints q^(1-q)",
            "in step, gradients of a round are applied one after the other, all of them computed "
            "with the same networks",
            "single: the collaborator serves one active party, which changes no number",
            "an active party's own gradient reaches its bottom network without its delay",
            "ours: patience and staleness for slow passive parties, a timeout for lost answers, "
            "q = 'auto', the measured pace, the bound on the amplification",
            "sizes of networks, the optimiser, momentum, initialisation and batches are ours",
        ),
    )

    def __init__(self, config: CvflConfig, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        M = data.parties
        if config.active is not None and config.active > M:
            raise ConfigurationError(
                f"cvfl: active = {config.active} parties hold labels, and there are {M}; use 1 to "
                f"{M}"
            )
        if config.q != "auto" and config.q < 1:
            raise ConfigurationError(f"cvfl: q = {config.q:g} must be at least 1, or 'auto'")
        if config.timeout is not None and config.mode == "sync":
            raise ConfigurationError(
                f"cvfl: timeout = {config.timeout:g} has no meaning in step, where nobody goes on "
                "without the others; leave it out, or use mode = 'async'"
            )
        if config.patience is None and config.staleness is not None:
            raise ConfigurationError(
                f"cvfl: staleness = {config.staleness} needs patience, the seconds after which "
                "stale embeddings are used"
            )
        self.holders = config.active or M
        wrong = [n for n in numbers(config.slow) if not 0 <= n < self.holders]
        if wrong:
            raise ConfigurationError(
                f"cvfl: slow = {config.slow!r}: party {wrong[0]} is none of the active parties 0 "
                f"to {self.holders - 1}"
            )
        refuse_running_statistics(self.name, config.centre, self.top().network)
        sets = partition_labels(config.label_partition, data.train_labels, self.holders, seed=seed)
        self.label_sets = sets[:1] if config.mode == "single" else sets
        self.unheld: tuple[int, ...] = ()
        if data.task != "regression":
            self.unheld = unheld_classes(data.train_labels, self.label_sets, data.test_labels)
        lost = np.intersect1d(self.unheld, data.train_labels)
        if len(lost):
            warnings.warn(
                f"cvfl: no active party has labels of {self.class_names(lost.tolist())}, which "
                "training and test rows have; they cannot be learnt",
                stacklevel=2,
            )
        self.card = replace(type(self).card, absence=self.absence())

    def class_names(self, classes: Sequence[int]) -> str:
        """Names of classes, for messages."""
        names = self.data.classes
        return "the classes " + ", ".join(names[k] if names else str(k) for k in classes)

    def absence(self) -> Literal["waits", "skips", "fills"]:
        """What a party that lags behind is to the others in this configuration."""
        passive = len(self.label_sets) < self.data.parties
        if self.config.patience is not None and (passive or self.config.mode != "sync"):
            return "fills"
        return "waits" if passive or self.config.mode == "sync" else "skips"

    def parties(self) -> dict[int, Party]:
        """The collaborator, L active and M - L passive parties."""
        active = len(self.label_sets)
        made: dict[int, Party] = {
            SERVER: Collaborator(self.peers(), active, self.top(), self.config)
        }
        together = active if self.config.mode == "sync" else 1
        for m in self.peers():
            network, features = self.client_network(m), self.data.train[m]
            if m < active:
                made[m] = self.active_party(m, network, together)
            else:
                made[m] = Holder(
                    m, self.peers(), features, network, batch=self.batch_rows, together=together
                )
        return made

    def active_party(self, index: int, network: ClientNetwork, together: int) -> Active:
        """Active party `index`; the first draws its batches as the server of `split` does."""
        own = self.label_sets[index]
        stream = functools.partial(_own_stream, self.seed, SERVER if index == 0 else index)
        return Active(
            index,
            self.peers(),
            self.data.train[index],
            network,
            own=own,
            labels=self.data.train_labels[own],
            batches=Batches(len(own), 1, self.config.batch, stream),
            top=self.top(),
            aggregation=self.aggregation,
            config=self.config,
            together=together,
        )

    def top(self) -> Centre:
        """New top network; equation (1) has no penalty on it.

        Its first weights are public: all active parties and the collaborator begin with the same.
        """
        centre = self.joint_centre(self.stream("centre"))
        for group in centre.optimizer.param_groups:
            group["weight_decay"] = 0.0
        return centre

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Algorithms 1 to 3; in step, top networks and the end come with the announcement."""
        config, passive = self.config, len(self.label_sets) < self.data.parties
        in_step = config.mode == "sync"
        slow = config.q != 1 and config.slow != "none"
        norms = MessageSpec(
            "penalty", "client", "active", "weights", source="Algorithm 2, line 10: r(theta_m)"
        )
        top = MessageSpec("top", "server", "active", "weights", source="Algorithm 3: w_0")
        end = last_word("passive" if in_step else "client")
        declared = (
            *[announcement("active", carries="weights", source="Algorithm 3: w_0")] * in_step,
            MessageSpec("request", "active", "client", "control", source="Algorithm 1, line 6"),
            MessageSpec(
                *("embedding", "client", "active", "embedding"),
                shape=lambda key: (self.rows_of(key.receiver), config.width),
                dtype="float32",
                row_by_row=True,
                source="Algorithm 2, line 8: h_m",
            ),
            *[norms] * slow,
            MessageSpec(
                *("gradient", "active", "client", "gradient"),
                shape=lambda key: (self.rows_of(key.sender), config.width),
                dtype="float32",
                row_by_row=True,
                source="Algorithm 1, line 13: dL/dh_m",
            ),
            MessageSpec(
                *("top_gradient", "active", "server", "weights"),
                source="Algorithm 1, line 14: dL/dw_0, and the loss",
            ),
            *[top] * (not in_step),
            *[end] * (passive or not in_step),
        )
        formulas: dict[str, Formula] = {
            ANNOUNCE: self.announced_weights,
            "request": self.request_at,
            "embedding": self.embedding_of_the_request,
            "penalty": lambda secrets, key: penalty(self.network_at(secrets, key)),
            "top": self.top_at,
            "stop": lambda secrets, key: None,
        }
        if config.patience is None:  # else it is chance which embeddings a launch has
            formulas |= {"gradient": self.launch_at, "top_gradient": self.launch_at}
        return with_formulas(declared, formulas)

    def network_at(
        self, secrets: RunSecrets, key: MessageKey, party: int | None = None
    ) -> ClientNetwork:
        """Bottom network of the sender when it sent the message."""
        network = self.client_network(key.sender if party is None else party)
        network.load_state_dict(secrets.state(key)["network"])
        return network

    def announced_weights(self, secrets: RunSecrets, key: MessageKey) -> Any:
        """In step: w_0 as the collaborator has it, or the end."""
        server = secrets.state(key)
        return "stop" if server["steps"] >= self.config.rounds else self._weights(server)

    def top_at(self, secrets: RunSecrets, key: MessageKey) -> Any:
        """w_0 after the receiver's update, and its pace."""
        server = secrets.state(key)
        most = int(server["updates"].max())
        pace = 1.0 if most < _GRACE else float(server["updates"][key.receiver]) / most
        return self._weights(server), pace

    def _weights(self, server: Mapping[str, Any]) -> Any:
        centre = self.top()
        centre.load_state_dict(server["centre"])
        return weights_of(centre)

    def rows_at(self, active: int, round: int) -> tuple[np.ndarray, np.ndarray]:
        """Places of a launch's batch among an active party's labels, and the rows themselves."""
        stream = functools.partial(_own_stream, self.seed, SERVER if active == 0 else active)
        own = self.label_sets[active]
        batches = Batches(len(own), 1, self.config.batch, stream)
        places = batches.samples(batches.draw(round))
        return places, own[places]

    def request_at(self, secrets: RunSecrets, key: MessageKey) -> tuple[np.ndarray, bool]:
        """Rows of the launch, and whether the active party is slow."""
        config, pace = self.config, float(secrets.state(key)["pace"])
        slow = config.q != 1 and config.slow != "none"
        if slow:
            measured = config.slow == "measured"
            slow = pace < _SLOW if measured else key.sender in numbers(config.slow)
        return self.rows_at(key.sender, key.round)[1], slow

    def embedding_of_the_request(
        self, secrets: RunSecrets, key: MessageKey
    ) -> tuple[np.ndarray, np.ndarray]:
        """h_m of the rows that were asked for."""
        rows, _ = secrets.sent("request", key.round)[key.receiver, key.sender]
        own = secrets.data(key.sender)["train"][rows]
        return rows, self.network_at(secrets, key).forward(own)

    def launch_at(self, secrets: RunSecrets, key: MessageKey) -> Any:
        """An active party's gradient for a bottom network, or of the top network (lines 6 to 14).

        From the embeddings that it was sent, and its networks when it asked for them.
        """
        active, others = key.sender, [n for n in self.peers() if n != key.sender]
        asked = MessageKey("request", key.round, active, others[0])
        (places, rows), state = self.rows_at(active, key.round), secrets.state(asked)
        own = self.network_at(secrets, asked, active)
        fresh = {active: own.forward(secrets.data(active)["train"][rows])}
        sent = secrets.sent("embedding", key.round)
        fresh |= {n: sent[n, active][1] for n in others}
        stale = LastEmbeddings(self.data.parties, 0, self.config.width)
        stack, present = stale.complete(fresh, places)
        top = self.top()
        load_weights(top, self._top_of(secrets, active, key.round, state))
        labels = secrets.data(SERVER)["train"][self.label_sets[active]]
        loss, gradient, weights = top.gradients(
            self.aggregation.combine(stack, present), places, labels
        )
        factor = 1.0
        if secrets.sent("request", key.round)[active, others[0]][1]:
            norms = {active: penalty(own)}
            norms |= {n: secrets.sent("penalty", key.round)[n, active] for n in others}
            factor = amplified(self.config, float(state["pace"]), loss, norms)
            if factor != 1:
                gradient = gradient * np.float32(factor)
                weights = {name: g * np.float32(factor) for name, g in weights.items()}
        if key.kind == "gradient":
            return rows, self.aggregation.gradient(gradient, stack, present, key.receiver)
        return loss, weights, {"factor": factor, "fresh": len(fresh), "known": 1.0}

    def _top_of(
        self, secrets: RunSecrets, active: int, round: int, state: Mapping[str, Any]
    ) -> Any:
        """w_0 with which an active party launched."""
        if self.config.mode == "sync":
            return secrets.sent(ANNOUNCE, round)[SERVER, active]
        top = self.top()
        top.load_state_dict(state["top"])
        return weights_of(top)

    def rows_of(self, active: int) -> int:
        """|B| of an active party, which may hold fewer labels than a batch has rows."""
        return int(min(self.config.batch, len(self.label_sets[active])))

    def named_rows(self, named: Any) -> np.ndarray | None:
        """Messages name training rows by their numbers."""
        return None if named is None else np.asarray(named, np.int64)

    def roles(self) -> dict[str, tuple[int, ...]]:
        """Active and passive parties are clients."""
        active = len(self.label_sets)
        return super().roles() | {
            "active": tuple(range(active)),
            "passive": tuple(range(active, self.data.parties)),
        }

    def describe(self) -> dict[str, Any]:
        """M, L, how many labels each active party has, and what a round is."""
        said: dict[str, Any] = {
            "M": self.data.parties,
            "L": len(self.label_sets),
            "labels_held": [len(own) for own in self.label_sets],
            "batch_rows": self.batch_rows,
            "round": "one update that an active party launched",
        }
        if self.unheld:
            said["classes_without_labels"] = list(self.unheld)
        return said

    def memory(self) -> int:
        """Bytes of all embeddings of the test rows, and of the stale ones with a checkpoint's."""
        stale = sum(map(len, self.label_sets)) * self.data.parties * (4 * self.config.width + 8)
        return super().memory() + (2 * stale if self.config.patience is not None else 0)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """None: embeddings are sent in the clear, and more than two columns do not change that."""
        clear = "embeddings are sent in the clear; 'secure if d > 2' is no guarantee"
        return (
            Claim("active parties", "features", "none", clear),
            Claim("active parties", "model", "none", clear),
            Claim("client", "labels", "none", "dL/dh depends on them"),
            Claim("server", "labels", "none", "the gradient of the top network depends on them"),
            Claim("server", "features", "none", "the gradient of the top network is the embeddings "
                  "times its errors"),
            Claim("server", "model", "none", "it holds the top network"),
        )  # fmt: skip


def amplified(
    config: CvflConfig, pace: float, loss: float, penalties: Mapping[int, float]
) -> float:
    """Factor of a slow party's gradients: derivative of F^q, F the loss with all penalties.

    Parameters
    ----------
    pace : float
        The party's part of the fastest one's updates, for q = "auto".
    penalties : mapping of int to float
        r(theta_m) of all parties.
    """
    F = loss + config.weight_decay * sum(penalties.values())
    if config.q == "auto":
        wanted = min(1 / max(pace, 1e-9), config.amplify_at_most)
        return amplification(F, chosen_exponent(F, wanted))
    return min(amplification(F, config.q), config.amplify_at_most)


def numbers(slow: str) -> tuple[int, ...]:
    """Party numbers in the option `slow`; none where it is a word.

    Raises
    ------
    ConfigurationError
        When it is neither.
    """
    if slow in ("measured", "none"):
        return ()
    try:
        return tuple(int(part) for part in slow.split(","))
    except ValueError:
        raise ConfigurationError(
            f"cvfl: slow = {slow!r} is neither 'measured' nor 'none' nor numbers such as 1,2,3"
        ) from None


def _own_stream(seed: int, entity: int, name: str, *keys: int) -> np.random.Generator:
    """An active party's layout and order of its rows: public, for its requests name them to all."""
    return keyed_stream(seed, entity, f"train/{name}", *keys)
