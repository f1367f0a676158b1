"""Split learning that waits for all and pays for differential privacy (Wait-DP).

The baseline of FedVS, section 6.2, after C. Thapa et al., "SplitFed", AAAI 2022: every client adds
calibrated noise to the output of its network. Three mechanisms, alone or together:

- **embeddings** (the baseline): each row of H_n is clipped to the L2 norm C and gets Gaussian
  noise before it goes to the server;
- **gradients**: each sample's gradient dl_i/dH_i is clipped to the norm C_g and gets Gaussian noise
  before it goes to the clients, once for all of them, so that they may pool their gradients;
- **labels**: each label is replaced by randomised response, once, before training.

Neighbours are two data sets that differ in one row, replaced by any other: in one client's columns
(embeddings), in the label and the columns of clients that do not pool (gradients), in the label
(labels). The L2 sensitivity of what is sent of that row is then 2C, or 2C_g, *for given weights*:
noise of the analytic Gaussian mechanism makes one release of a row (epsilon', delta)-DP, and the
history says what all releases of a row have cost so far. The weights were trained on the true
rows, so a row also influences, a little, the later releases of other rows. Epsilon does not cover
this influence, and the bound that covers it (`WaitDP.describe`) is far too large to protect
anything. Randomised labels have no such influence: everything later is computed from them, and
(label_epsilon, 0) holds for the whole training.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from securevfl.engine.party import ANNOUNCE, SERVER, Party
from securevfl.errors import ConfigurationError
from securevfl.field.sampling import SYSTEM, SeededSource, Source
from securevfl.models.aggregation import gather
from securevfl.privacy.accountant import Released, gaussian_epsilon, sensitivity
from securevfl.privacy.claims import Claim
from securevfl.privacy.mechanisms import (
    clip_gradient,
    clip_rows,
    keep_probability,
    randomised_response,
    release_gradient,
    release_rows,
)
from securevfl.privacy.release_counts import (
    after_release,
    most_releases,
    refuse_exceeding,
    refuse_repeated,
)
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.messages import (
    GaussianNoise,
    MessageKey,
    MessageSpec,
    RandomisedLabels,
    RunSecrets,
)
from securevfl.protocols.base.options import SegmentedConfig
from securevfl.protocols.base.split import EmbeddingProtocol
from securevfl.protocols.base.split_parties import SplitClient, SplitServer
from securevfl.protocols.base.split_step import JointEmbedding

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


# Server models in which a row's gradient depends on no other row; batch normalisation mixes them.
_SEPARABLE = ("mlp", "linear")


class WaitDPConfig(SegmentedConfig):
    """Options of Wait-DP."""

    noise_on: Literal["embeddings", "gradients", "both", "none"] = Field(
        "embeddings",
        description=(
            "What is clipped and gets Gaussian noise before it is sent. Choose none to use "
            "label_epsilon alone."
        ),
    )
    epsilon: float = Field(
        5.0,
        gt=0,
        description=(
            "Privacy cost epsilon' of one release of a row. Smaller is more private and has"
            " more noise."
        ),
    )
    delta: float = Field(
        1e-5,
        gt=0,
        lt=1,
        description=(
            "Probability delta with which the bound epsilon may fail, for one release and "
            "for all of them together."
        ),
    )
    clip: float = Field(1.0, gt=0, description="Bound C on the L2 norm of a row's embedding.")
    gradient_clip: float = Field(
        1.0, gt=0, description="Bound C_g on the L2 norm of a sample's gradient."
    )
    label_epsilon: float | None = Field(
        None,
        gt=0,
        description=(
            "Epsilon of the labels, by randomised response before training. Default: labels"
            " are exact."
        ),
    )
    epsilon_budget: float | None = Field(
        None,
        gt=0,
        description=(
            "Largest epsilon of all releases of a row together. The run ends before it is "
            "exceeded. Default: no budget."
        ),
    )
    noise: Literal["secure", "seeded"] = Field(
        "secure",
        description=(
            "Source of the noise: the operating system (secure), or the run's seed "
            "(seeded), which repeats the run and protects nothing."
        ),
    )


@dataclass(frozen=True)
class Privacy(Released):
    """Parameters of the mechanisms, and their cost.

    Attributes
    ----------
    epsilon, delta, clip : float
        As for `Released`, of embeddings.
    gradient_clip : float
        C_g.
    per_epoch : int
        Rounds in which the public batches use each row at most once.
    embeddings, gradients : bool
        Whether embeddings, and whether gradients, get noise.
    labels : float or None
        Epsilon of the randomised labels.
    """

    gradient_clip: float
    per_epoch: int
    embeddings: bool = True
    gradients: bool = False
    labels: float | None = None

    @property
    def releases(self) -> bool:
        """Whether a round releases anything that is accounted for."""
        return self.embeddings or self.gradients

    @property
    def gradient_sigma(self) -> float:
        """Standard deviation of the noise of each entry of a sample's gradient: 2 C_g z."""
        return self.multiplier * sensitivity(self.gradient_clip, "replace")

    def planned(self, rounds: int) -> int:
        """Releases of one row in this number of rounds: one in each epoch."""
        return -(-rounds // self.per_epoch)

    def spent(self, rounds: int) -> float:
        """Epsilon of all releases of one row in this number of rounds, none of them repeated."""
        return self.composed(self.planned(rounds)) if self.releases else 0.0

    def spent_through_weights(self, rounds: int, samples: int) -> float:
        """Epsilon if a row may change all messages from its first use on."""
        if not self.releases:
            return 0.0
        releases = 1 + (rounds - 1) * samples
        return gaussian_epsilon(self.multiplier, releases, self.delta)


@dataclass(eq=False, repr=False)
class Client(SplitClient):
    """Client n: sends its embeddings, clipped and noised if wanted; steps with the gradient.

    Attributes
    ----------
    limit : int
        Releases of a row that its epsilon allows.
    released : bytes
        How often it has released each row (`securevfl.privacy.release_counts`). Seeded noise
        protects nothing and repeats itself, so it is not counted.
    """

    kept_ahead: ClassVar[tuple[str, ...]] = ("released",)
    kept_optional: ClassVar[Mapping[str, Any]] = {"released": b""}

    privacy: Privacy
    limit: int = field(kw_only=True)
    seeded: bool = field(kw_only=True)
    released: bytes = field(default=b"", init=False)

    async def train(self, batch: np.ndarray) -> None:
        """One step of split training, with a released embedding."""
        if self.privacy.embeddings:
            self.count(self.batches.samples(batch))
        own = self.rows_of(batch)
        embedding = self.embed(own)
        self.send(SERVER, "embedding", self.release(embedding))
        gradient = await self.receive("gradient")
        if self.privacy.embeddings:
            gradient = clip_gradient(embedding, gradient, self.privacy.clip)
        self.update(own, gradient)

    def count(self, samples: np.ndarray) -> None:
        """Count a release of these rows before it is sent; refuse more than epsilon allows."""
        rows, who = samples[samples >= 0], f"wait_dp: client {self.index}"
        refuse_repeated(rows, who)
        if self.seeded:
            return
        refuse_exceeding(self.released, rows, self.limit, who)
        self.released = after_release(self.released, rows, len(self.features))
        self.write_ahead()

    def release(self, embedding: np.ndarray) -> np.ndarray:
        """Clipped rows of H_n with noise of this round, or H_n as it is."""
        privacy = self.privacy
        if not privacy.embeddings:
            return embedding
        return release_rows(
            embedding, bound=privacy.clip, sigma=privacy.sigma, source=source_of(self, self.seeded)
        )


def source_of(party: Party, seeded: bool) -> Source:
    """Source of a party's noise of this round."""
    return SeededSource(party.stream("noise", party.round).bytes(32)) if seeded else SYSTEM


@dataclass(eq=False, repr=False)
class Server(SplitServer):
    """Server: aggregates all embeddings, trains the server model, ends within the budget.

    Attributes
    ----------
    budget : float or None
        Epsilon that all releases of a row may cost.
    limit : int
        Releases of a row that the budget allows; without a budget, those of all rounds.
    released : bytes
        As a client's. The clients refuse by counts of their own.
    """

    kept_ahead: ClassVar[tuple[str, ...]] = ("released",)
    kept_once: ClassVar[tuple[str, ...]] = ("labels",)  # randomised once
    kept_optional: ClassVar[Mapping[str, Any]] = {"released": b""}

    privacy: Privacy
    _: KW_ONLY
    classes: int
    budget: float | None
    limit: int
    seeded: bool
    released: bytes = field(default=b"", init=False)

    async def setup(self) -> None:
        """Randomise the labels; the true ones are not used again."""
        if self.privacy.labels is not None:
            source = source_of(self, self.seeded)
            self.labels = randomised_response(
                self.labels, self.classes, self.privacy.labels, source
            )

    async def run(self) -> None:
        """Do one step a round, as long as the next one is within the budget."""
        while self.steps < self.max_steps:
            batch = self.batches.draw(self.round + 1)
            if not self.affordable(batch):
                break
            self.safe_point()
            self.round += 1  # the counts that are written ahead belong to the round that follows
            self.count(batch)
            self.announce(self.round, batch)
            embeddings = await self.collect("embedding")
            self.train(batch, embeddings)
        self.conclude()

    def affordable(self, batch: np.ndarray) -> bool:
        """Whether one more release of a batch is allowed; a refusal is recorded as an event."""
        planned = self.budget is None or self.privacy.spent(self.round + 1) <= self.budget
        after = most_releases(self.counted(batch))
        if planned and after <= self.limit:
            return True
        next_ = max(self.privacy.spent(self.round + 1), self.privacy.composed(after))
        budget = self.privacy.composed(self.limit) if self.budget is None else self.budget
        self.record("budget", epsilon=self.spent(), next=next_, budget=budget, steps=self.steps)
        return False

    def count(self, batch: np.ndarray) -> None:
        """Count a release of the rows of a batch, before it is asked for."""
        self.released = self.counted(batch)
        if self.released:
            self.write_ahead()

    def counted(self, batch: np.ndarray) -> bytes:
        """Counts after one more release of a batch; empty without accounting."""
        if self.seeded or not self.privacy.releases:
            return b""
        samples = self.batches.samples(batch)
        return after_release(self.released, samples[samples >= 0], len(self.labels))

    def spent(self) -> float:
        """Epsilon of all releases so far, those that a resume repeated included."""
        counted = self.privacy.composed(most_releases(self.released)) if self.released else 0.0
        return max(self.privacy.spent(self.round), counted)

    def join(self, uploads: Mapping[int, np.ndarray], samples: np.ndarray) -> JointEmbedding:
        """Aggregate all embeddings; the history says what their releases have cost."""
        return replace(super().join(uploads, samples), details=self.costs())

    def costs(self) -> dict[str, float]:
        """Epsilon of this round and of all so far."""
        privacy = self.privacy
        costs = {
            "epsilon_round": privacy.epsilon if privacy.releases else 0.0,
            "epsilon_total": self.spent(),
        }
        return costs if privacy.labels is None else costs | {"epsilon_labels": privacy.labels}

    def release(self, gradient: np.ndarray, samples: np.ndarray) -> np.ndarray:
        """dL/dH with each sample's own gradient clipped and noised; one release for all clients."""
        privacy = self.privacy
        if not privacy.gradients:
            return gradient
        return release_gradient(
            gradient,
            samples,
            bound=privacy.gradient_clip,
            sigma=privacy.gradient_sigma,
            source=source_of(self, self.seeded),
        )


class WaitDP(EmbeddingProtocol):
    """Wait-DP on one data set."""

    name = "wait_dp"
    apart = True
    Config = WaitDPConfig
    # Checks compare two runs of a seed, and expect that something is learnt in a few rounds.
    check_options: ClassVar[dict[str, Any]] = {"noise": "seeded", "epsilon": 1000.0}
    card = Card(
        title="Split learning with differential privacy (Wait-DP)",
        paper="FedVS section 6.2, after Thapa et al., SplitFed, AAAI 2022",
        roles={
            "server": "holds the labels and the server model; aggregates embeddings, adds noise "
            "to gradients and randomises labels if wanted",
            "client": "holds some columns and a network; clips its embeddings and adds noise",
        },
        sees={
            "server": "every client's embedding of every batch, clipped and with noise unless "
            "noise_on is gradients or none",
            "client": "dL/dH_n of its own embedding, clipped and with noise where noise_on is "
            "gradients or both, and the batches",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="waits",
        deviations=(
            "C, delta, and that epsilon' is of one release of a row are ours",
            "neighbours: one row replaced, the weights given; the influence of a row on them is "
            "not covered (epsilon_through_weights bounds it), except by randomised labels",
            "noise on gradients and randomised labels are ours; gradients of all clients are one "
            "release, so max aggregation and batch normalisation are refused with it",
            "batches are public, so they amplify nothing; releases of a row compose exactly",
            "evaluation is of clipped embeddings without noise; inference by the parties would "
            "add it and spend epsilon of the rows that are asked for",
            "noise of 53-bit uniforms, and embeddings rounded to a grid set by sigma",
            "a resumed run sends again, with fresh noise, what came after its checkpoint; parties "
            "of their own processes count both releases, and end before epsilon is exceeded",
            "h, the optimiser, initialisation and batch order are ours, as in FedVS",
        ),
    )

    def __init__(self, config: WaitDPConfig, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        self.privacy = Privacy(
            epsilon=config.epsilon,
            delta=config.delta,
            clip=config.clip,
            gradient_clip=config.gradient_clip,
            per_epoch=self.layout.per_epoch,
            embeddings=config.noise_on in ("embeddings", "both"),
            gradients=config.noise_on in ("gradients", "both"),
            labels=config.label_epsilon,
        )
        self.check_mechanisms()
        self.check_budget()

    def check_mechanisms(self) -> None:
        """Refuse mechanisms whose sensitivity would not be what is accounted, or none at all."""
        config = self.config
        if config.noise_on == "none" and config.label_epsilon is None:
            raise ConfigurationError(
                "wait_dp: noise_on = 'none' needs label_epsilon; split is the method without noise"
            )
        if config.label_epsilon is not None and self.data.task == "regression":
            raise ConfigurationError(
                "wait_dp: label_epsilon needs classes, and the labels are real numbers; use "
                "noise_on = 'gradients'"
            )
        if not self.privacy.gradients:
            return
        if config.own_centre or config.own_loss:
            raise ConfigurationError(
                "wait_dp: noise on gradients needs a sample's gradient to depend on no other "
                "sample, which cannot be checked of own code; leave out own_centre and own_loss"
            )
        if config.centre not in _SEPARABLE:
            raise ConfigurationError(
                f"wait_dp: noise on gradients needs a centre in which a sample's gradient depends "
                f"on no other sample, and {config.centre!r} normalises over the batch; use one of "
                f"{', '.join(_SEPARABLE)}"
            )
        if config.aggregation == "max":
            raise ConfigurationError(
                "wait_dp: with aggregation = 'max' the zeros of a client's gradient tell who had "
                "the largest entry, whatever the noise; use 'mean' or 'concat'"
            )

    def check_budget(self) -> None:
        """Refuse a budget that allows nothing, and noise that is next to none."""
        config, privacy = self.config, self.privacy
        first = max(config.epsilon if privacy.releases else 0.0, config.label_epsilon or 0.0)
        if config.epsilon_budget is not None and config.epsilon_budget < first:
            raise ConfigurationError(
                f"wait_dp: epsilon_budget = {config.epsilon_budget:g} does not allow a single "
                f"round, which costs epsilon = {first:g}; lower epsilon or raise the budget"
            )
        if privacy.releases and config.clip > 200 * privacy.sigma:
            raise ConfigurationError(
                f"wait_dp: epsilon = {config.epsilon:g} asks for noise of {privacy.sigma:.3g} "
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
            classes=self.data.num_classes if self.data.task == "multiclass" else 2,
            max_steps=self.config.rounds,
            budget=self.config.epsilon_budget,
            limit=self.limit,
            seeded=self.config.noise == "seeded",
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
            limit=self.limit,
            seeded=self.config.noise == "seeded",
        )

    @functools.cached_property
    def limit(self) -> int:
        """Releases of a row that the budget allows; those of all rounds where there is none."""
        budget = self.config.epsilon_budget
        if budget is None or not self.privacy.releases:
            return self.privacy.planned(self.config.rounds)
        return self.privacy.releases_within(budget)

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """An embedding and its gradient a round; noise is declared where it must be."""
        opening, embedding, gradient = self.step_messages()
        noisy = self.config.noise_on
        if noisy in ("embeddings", "both"):
            embedding = replace(embedding, noise=self.embedding_noise)
        else:
            embedding = replace(embedding, recompute=self.embedding_at)
        if noisy in ("gradients", "both"):
            gradient = replace(gradient, noise=self.gradient_noise)
        elif not self.config.own_centre:  # which may draw at random, as dropout does
            gradient = replace(gradient, recompute=self.exact_part)
        return (
            replace(opening, recompute=self.announced_at),
            replace(embedding, count=self.in_run),
            replace(gradient, count=self.in_run),
        )

    def in_run(self, key: MessageKey) -> int:
        """Count of a message of every round, and of none beyond the last."""
        return int(1 <= key.round <= self.config.rounds)

    @property
    def embedding_noise(self) -> GaussianNoise:
        """Noise of embeddings: one release for each client, of the rows that were announced."""
        config = self.config
        return GaussianNoise(
            *("features", config.epsilon, config.delta, config.clip, "clip"),
            rows=self.announced_samples,
            exact=self.embedding_at,
            releases=self.allowed_releases,
        )

    @property
    def gradient_noise(self) -> GaussianNoise:
        """Noise of dL/dH: one release for all clients, who get their parts of it."""
        config = self.config
        return GaussianNoise(
            *("labels", config.epsilon, config.delta, config.gradient_clip, "gradient_clip"),
            rows=self.announced_samples,
            exact=self.joint_gradient,
            releases=self.allowed_releases,
            mean_loss=True,
            joint=True,
            whole=self.whole_gradient,
            part=self.part_of,
        )

    @property
    def randomised_labels(self) -> RandomisedLabels | None:
        """The server's labels, where label_epsilon is set."""
        if self.config.label_epsilon is None:
            return None
        return RandomisedLabels(
            self.config.label_epsilon,
            self.data.num_classes if self.data.task == "multiclass" else 2,
            "server",
            true=lambda secrets: secrets.data(SERVER)["train"],
            used=lambda secrets, key: secrets.state(key)["labels"],
        )

    def announced_at(self, secrets: RunSecrets, key: MessageKey) -> Any:
        """The round's batch, or the end after the last step or before an epsilon is exceeded."""
        steps = secrets.state(key)["steps"]
        next_ = -(-(steps + 1) // self.layout.per_epoch)  # releases of a row, if it goes on
        spends = self.config.noise_on != "none" and next_ > self.allowed_releases
        over = steps >= self.config.rounds or spends
        return "stop" if over else self.layout.draw(key.round)

    @property
    def allowed_releases(self) -> int:
        """Releases of a row in a run, by the options alone: one in each epoch, in the budget."""
        config, planned = self.config, -(-int(self.config.rounds) // self.layout.per_epoch)
        if config.epsilon_budget is None or config.noise_on == "none":
            return planned
        paid = Released(config.epsilon, config.delta, config.clip)
        return min(planned, paid.releases_within(config.epsilon_budget))

    def announced_samples(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """Training rows of the batch that was announced in the round of a message."""
        client = key.receiver if key.sender == SERVER else key.sender
        return self.layout.samples(secrets.sent(ANNOUNCE, key.round)[SERVER, client])

    def joint_gradient(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """dL/dH by the server's model, the labels that it kept and the embeddings that it got."""
        state = secrets.state(MessageKey(ANNOUNCE, key.round, SERVER, key.receiver))
        centre = self.joint_centre()
        centre.load_state_dict(state["centre"])
        joint = self.aggregation.combine(*self.received(secrets, key))
        labels = secrets.data(SERVER)["train"]
        if self.config.label_epsilon is not None:
            labels = state["labels"]
        return centre.step(joint, self.announced_samples(secrets, key), labels)[1]

    def received(self, secrets: RunSecrets, key: MessageKey) -> tuple[np.ndarray, np.ndarray]:
        """Embeddings of a round as the server got them, (N, rows, h), and who was there."""
        sent = secrets.sent("embedding", key.round)
        return gather({n: payload for (n, _), payload in sent.items()}, self.data.parties)

    def exact_part(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """A client's part of dL/dH without noise."""
        return self.part_of(secrets, key, self.joint_gradient(secrets, key))

    def part_of(self, secrets: RunSecrets, key: MessageKey, joint: np.ndarray) -> np.ndarray:
        """A client's part of a dL/dH."""
        return self.aggregation.gradient(joint, *self.received(secrets, key), key.receiver)

    def whole_gradient(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """dL/dH as it was released, from the parts that were sent."""
        sent = secrets.sent("gradient", key.round)
        parts = [sent[SERVER, n] for n in self.peers()]
        if self.config.aggregation == "concat":
            return np.concatenate(parts, axis=1)
        first: np.ndarray = parts[0] * np.float32(len(parts))
        return first

    def embed(self, client: Any, rows: np.ndarray) -> np.ndarray:
        """Embeddings clipped as in training, without noise: evaluation releases nothing."""
        embedding: np.ndarray = client.network.forward(rows)
        if not self.privacy.embeddings:
            return embedding
        return clip_rows(embedding, self.privacy.clip).astype(np.float32)

    def describe(self) -> dict[str, Any]:
        """N, |B|, the noise and its cost."""
        privacy, rounds = self.privacy, self.config.rounds
        samples = self.layout.coded * self.layout.segments
        described: dict[str, Any] = {"N": self.data.parties, "batch_rows": self.batch_rows}
        if privacy.embeddings:
            described["sigma"] = privacy.sigma
        if privacy.gradients:
            described["gradient_sigma"] = privacy.gradient_sigma
        if privacy.releases:
            described |= {
                "delta": privacy.delta,
                "epsilon_round": privacy.epsilon,
                "epsilon_all_rounds": privacy.spent(rounds),
                "epsilon_through_weights": privacy.spent_through_weights(rounds, samples),
            }
        if privacy.labels is not None:
            classes = self.data.num_classes if self.data.task == "multiclass" else 2
            described |= {
                "epsilon_labels": privacy.labels,
                "labels_kept": keep_probability(privacy.labels, classes),
            }
        described["noise"] = "secure" if self.config.noise == "secure" else "seeded, not secure"
        return described

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Each row's own releases are differentially private, unless the noise is seeded."""
        why = "trained on the true rows, and they show in all that is sent afterwards"
        return (
            self._features_claim(),
            Claim("server", "model", "none", why),
            self._labels_claim(),
        )

    @property
    def _paid(self) -> str:
        """Cost of each release, and of all of them."""
        config, total = self.config, self.privacy.spent(self.config.rounds)
        if config.epsilon_budget is not None:
            total = min(total, config.epsilon_budget)
        return (
            f"({config.epsilon:g}, {config.delta:g}) for each release of a row and "
            f"({total:.3g}, {config.delta:g}) for all of them"
        )

    def _features_claim(self) -> Claim:
        if not self.privacy.embeddings:
            return Claim("server", "features", "none", "embeddings are sent in the clear")
        if self.config.noise == "seeded":
            return Claim("server", "features", "none", _SEEDED)
        how = "one row of one client replaced; analytic Gaussian mechanism, the client's weights "
        return Claim("server", "features", "differential", f"{self._paid}, {how}given")

    def _labels_claim(self) -> Claim:
        """Claim on a row's label, against all clients together."""
        privacy, ways = self.privacy, []
        if privacy.labels is not None:
            ways.append(
                f"({privacy.labels:g}, 0) for the whole training, one label replaced; randomised "
                "response before it"
            )
        if privacy.gradients:
            ways.append(
                f"{self._paid}, one row replaced (label and columns of clients that do not pool); "
                "analytic Gaussian mechanism on gradients, the weights given"
            )
        if not ways:
            return Claim("client", "labels", "none", "dL/dH depends on them")
        if self.config.noise == "seeded":
            return Claim("client", "labels", "none", _SEEDED)
        return Claim("client", "labels", "differential", "; and ".join(ways))


_SEEDED = "the noise is seeded: a party that knows the seed can subtract it"
