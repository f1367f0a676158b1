"""Split learning that waits for all and sends differentially private embeddings (Wait-DP).

The baseline of FedVS, section 6.2, after C. Thapa et al., "SplitFed", AAAI 2022: every client adds
calibrated noise to the output of its network. Each row of H_n is clipped to the L2 norm C and gets
Gaussian noise of the analytic mechanism, so that one release of a row is (epsilon', delta)-DP; the
history tells what all releases of a row have cost so far.

Neighbours are two data sets that differ in one row of one client, replaced by any other: the L2
sensitivity of what is sent of that row is 2C. That holds for given weights of the client. The
weights were trained on the true rows, so a row also shows, a little, in the noisy embeddings of the
other rows that are sent after it was trained on; that way out is not covered by epsilon, and the
bound that covers it (`WaitDP.describe`) is far too large to protect anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from securevfl.engine.party import SERVER, Party
from securevfl.errors import ConfigurationError
from securevfl.field.sampling import SYSTEM, SeededSource, Source
from securevfl.models.aggregation import Aggregation, gather
from securevfl.models.client_networks import ClientNetwork
from securevfl.models.split import Batches, Centre, rows_of
from securevfl.privacy.accountant import gaussian_epsilon, noise_multiplier, sensitivity
from securevfl.privacy.claims import Claim
from securevfl.privacy.mechanisms import clip_gradient, clip_rows, release_rows
from securevfl.protocols.protocol import Card, EmbeddingConfig, EmbeddingProtocol

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


class WaitDPConfig(EmbeddingConfig):
    """Options of Wait-DP."""

    epsilon: float = Field(5.0, gt=0, description="epsilon' of one release of a row")
    delta: float = Field(1e-5, gt=0, lt=1, description="delta, of one release and of all")
    clip: float = Field(1.0, gt=0, description="C, bound on the L2 norm of a row's embedding")
    epsilon_budget: float | None = Field(
        None, gt=0, description="epsilon of all releases of a row that is never exceeded"
    )
    noise: Literal["secure", "seeded"] = Field(
        "secure",
        description="from the operating system; or from the seed of the run, which repeats the "
        "run and protects nothing",
    )


@dataclass(frozen=True)
class Privacy:
    """Parameters of the mechanism, and what it costs.

    Attributes
    ----------
    epsilon, delta : float
        Of one release of a row.
    clip : float
        C.
    per_epoch : int
        Rounds in which the public batches use each row at most once.
    """

    epsilon: float
    delta: float
    clip: float
    per_epoch: int

    @property
    def multiplier(self) -> float:
        """Noise over sensitivity, z."""
        return noise_multiplier(self.epsilon, self.delta)

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise of each entry: 2 C z."""
        return self.multiplier * sensitivity(self.clip, "replace")

    def spent(self, rounds: int) -> float:
        """Epsilon of all releases of one row within so many rounds: one in each epoch."""
        releases = -(-rounds // self.per_epoch)
        if releases == 1:
            return self.epsilon
        return gaussian_epsilon(self.multiplier, releases, self.delta)

    def spent_through_weights(self, rounds: int, samples: int) -> float:
        """Epsilon if from its first use on a row may change all that its client sends."""
        releases = 1 + (rounds - 1) * samples
        return gaussian_epsilon(self.multiplier, releases, self.delta)


class Client(Party):
    """Client n: sends clipped and noised embeddings, and steps with the gradient."""

    kept: ClassVar[tuple[str, ...]] = ("network",)

    def __init__(
        self,
        index: int,
        peers: Sequence[int],
        batches: Batches,
        features: np.ndarray,
        network: ClientNetwork,
        privacy: Privacy,
        *,
        seeded: bool,
    ) -> None:
        super().__init__(index, peers)
        self.batches = batches
        self.features = features
        self.network = network
        self.privacy = privacy
        self.seeded = seeded

    async def run(self) -> None:
        """Take part in every round."""
        async for round_ in self.rounds():
            with round_:
                own = rows_of(self.features, self.batches.samples(round_.payload))
                embedding = self.network.forward(own)
                self.send(SERVER, "embedding", self.release(embedding))
                gradient = await self.receive("gradient")
                through = clip_gradient(embedding, gradient, self.privacy.clip)
                clipped = self.network.update(own, through)
                if clipped:
                    self.record("clipped", weights=clipped, bound=self.network.bound)

    def release(self, embedding: np.ndarray) -> np.ndarray:
        """Clipped rows of H_n with noise of this round."""
        privacy = self.privacy
        return release_rows(
            embedding, bound=privacy.clip, sigma=privacy.sigma, source=self.source()
        )

    def source(self) -> Source:
        """Source of the noise."""
        if not self.seeded:
            return SYSTEM
        return SeededSource(self.stream("noise", self.round).bytes(32))

    def operations(self, kind: str) -> int:
        """Multiply-adds of embedding a batch: the forward pass, as FedVS counts them."""
        samples = self.batches.coded * self.batches.segments
        return samples * self.network.operations if kind == "embedding" else 0


class Server(Party):
    """Aggregates the noisy embeddings of all clients, trains the centre, keeps the budget."""

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps")

    def __init__(
        self,
        peers: Sequence[int],
        batches: Batches,
        aggregation: Aggregation,
        centre: Centre,
        labels: np.ndarray,
        privacy: Privacy,
        *,
        rounds: int,
        budget: float | None,
    ) -> None:
        super().__init__(SERVER, peers)
        self.batches = batches
        self.aggregation = aggregation
        self.centre = centre
        self.labels = labels
        self.privacy = privacy
        self.wanted = rounds
        self.budget = budget
        self.steps = 0

    async def run(self) -> None:
        """One step a round, as long as the next one is within the budget."""
        while self.steps < self.wanted and self.affordable():
            self.safe_point()
            batch = self.batches.draw(self.round + 1)
            self.announce(self.round + 1, batch)
            embeddings = await self.collect("embedding")
            self.train(batch, embeddings)
        self.conclude()

    def affordable(self) -> bool:
        """Whether another round stays within the budget; where not, that is an event."""
        next_ = self.privacy.spent(self.round + 1)
        if self.budget is None or next_ <= self.budget:
            return True
        spent = self.privacy.spent(self.round)
        self.record("budget", epsilon=spent, next=next_, budget=self.budget, steps=self.steps)
        return False

    def train(self, batch: np.ndarray, embeddings: dict[int, np.ndarray]) -> None:
        """Update the centre and return dL/dH_n; padded rows have no loss and no gradient."""
        samples = self.batches.samples(batch)
        stack, present = gather(embeddings, len(self.peers))
        joint = self.aggregation.combine(stack, present)
        loss, gradient = self.centre.step(joint, samples, self.labels)
        self.steps += 1
        for n in embeddings:
            self.send(n, "gradient", self.aggregation.gradient(gradient, stack, present, n))
        self.record(
            "round",
            step=self.steps,
            loss=loss,
            used=len(embeddings),
            epsilon_round=self.privacy.epsilon,
            epsilon_total=self.privacy.spent(self.round),
        )


class WaitDP(EmbeddingProtocol):
    """Wait-DP on one data set."""

    name = "wait_dp"
    Config = WaitDPConfig
    # Checks compare two runs of a seed, and expect that something is learnt in a few rounds.
    check_options: ClassVar[dict[str, Any]] = {"noise": "seeded", "epsilon": 1000.0}
    card = Card(
        title="Split learning with noisy embeddings (Wait-DP)",
        paper="FedVS section 6.2, after Thapa et al., SplitFed, AAAI 2022",
        roles={
            "server": "holds the labels and the central model; aggregates noisy embeddings",
            "client": "holds some columns and a network; clips its embeddings and adds noise",
        },
        sees={
            "server": "every client's clipped embedding of every batch, with noise",
            "client": "dL/dH_n of its own noisy embedding, and the batches",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="waits",
        deviations=(
            "C, delta, and that epsilon' is of one release of a row are ours",
            "neighbours: one row of one client replaced, the client's weights given; what a row "
            "teaches the weights is not covered (epsilon_through_weights bounds it)",
            "batches are public, so they amplify nothing; releases of a row compose exactly",
            "evaluation is of clipped embeddings without noise; inference by the parties would "
            "add it and spend epsilon of the rows that are asked for",
            "noise of 53-bit uniforms, and embeddings rounded to a grid set by sigma",
            "a resumed run sends again, with fresh noise, what came after its checkpoint",
            "h, the optimiser, initialisation and batch order are ours, as in FedVS",
        ),
    )

    def __init__(self, config: WaitDPConfig, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        self.privacy = Privacy(
            epsilon=config.epsilon,
            delta=config.delta,
            clip=config.clip,
            per_epoch=self.layout.per_epoch,
        )
        if config.epsilon_budget is not None and config.epsilon_budget < config.epsilon:
            raise ConfigurationError(
                f"wait_dp: epsilon_budget = {config.epsilon_budget:g} does not allow a single "
                f"round, which costs epsilon = {config.epsilon:g}; lower epsilon or raise the "
                "budget"
            )
        if config.clip > 200 * self.privacy.sigma:
            raise ConfigurationError(
                f"wait_dp: epsilon = {config.epsilon:g} asks for noise of {self.privacy.sigma:.3g} "
                f"on rows of norm {config.clip:g}, which is next to none; lower epsilon"
            )

    def parties(self) -> dict[int, Party]:
        """The server and N clients."""
        server = Server(
            self.peers(),
            self.layout,
            self.aggregation,
            self.joint_centre(),
            self.data.train_labels,
            self.privacy,
            rounds=self.config.rounds,
            budget=self.config.epsilon_budget,
        )
        return {SERVER: server} | {n: self.client(n) for n in self.peers()}

    def client(self, index: int) -> Client:
        """Client `index`, from 0."""
        return Client(
            index,
            self.peers(),
            self.layout,
            self.data.train[index],
            self.client_network(index),
            self.privacy,
            seeded=self.config.noise == "seeded",
        )

    def embed(self, client: Any, rows: np.ndarray) -> np.ndarray:
        """Clipped as in training, without noise: what the models are worth, at no cost."""
        return clip_rows(client.network.forward(rows), self.privacy.clip).astype(np.float32)

    def describe(self) -> dict[str, Any]:
        """N, |B|, the noise and what it costs."""
        privacy, rounds = self.privacy, self.config.rounds
        samples = self.layout.coded * self.layout.segments
        return {
            "N": self.data.parties,
            "batch_rows": self.batch_rows,
            "sigma": privacy.sigma,
            "delta": privacy.delta,
            "epsilon_round": privacy.epsilon,
            "epsilon_all_rounds": privacy.spent(rounds),
            "epsilon_through_weights": privacy.spent_through_weights(rounds, samples),
            "noise": "secure" if self.config.noise == "secure" else "seeded, not secure",
        }

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Each row's own releases are differentially private, unless the noise is seeded."""
        config, total = self.config, self.privacy.spent(self.config.rounds)
        if config.epsilon_budget is not None:
            total = min(total, config.epsilon_budget)
        features = Claim(
            "server",
            "features",
            "differential",
            f"({config.epsilon:g}, {config.delta:g}) for each release of a row and "
            f"({total:.3g}, {config.delta:g}) for all of them, one row of one client replaced; "
            "analytic Gaussian mechanism, the client's weights given",
        )
        if config.noise == "seeded":
            why = "the noise is seeded: whoever knows the seed takes it off"
            features = Claim("server", "features", "none", why)
        why = "trained on the true rows, and they show in all embeddings that follow"
        return (
            features,
            Claim("server", "model", "none", why),
            Claim("client", "labels", "none", "dL/dH depends on them"),
        )
