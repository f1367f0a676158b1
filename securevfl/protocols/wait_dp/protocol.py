"""Wait-DP as the library sees it: its card, options, parties, messages and claims."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from securevfl.errors import ConfigurationError
from securevfl.privacy.claims import Claim, Guarantee
from securevfl.privacy.mechanisms import clip_rows, keep_probability
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.embedding import EmbeddingProtocol
from securevfl.protocols.base.messages import GaussianNoise, MessageSpec, RandomisedLabels
from securevfl.protocols.wait_dp.algorithm import Client, Server
from securevfl.protocols.wait_dp.declaration import (
    embedding_noise,
    gradient_noise,
    messages_of,
    randomised_labels,
)
from securevfl.protocols.wait_dp.parameters import (
    Privacy,
    WaitDPConfig,
    check_budget,
    check_mechanisms,
)

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


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
            "neighbours: one row replaced, the weights given, and the scale, the categories and "
            "the indicators of columns, which are fitted on all training rows; the influence of a "
            "row on these is not covered (epsilon_through_weights bounds that on weights), except "
            "by randomised labels",
            "noise on gradients and randomised labels are ours; gradients of all clients are one "
            "release, so max aggregation and batch normalisation are refused with it",
            "batches are public, so they amplify nothing; releases of a row compose exactly",
            "evaluation is of clipped embeddings without noise, also where organisations measure "
            "by sending those of test rows: no claim covers test rows; inference by the parties "
            "would add noise and spend epsilon of the rows that are asked for",
            "a client whose embedding overflows stops the run, which reveals one bit about its "
            "data",
            "noise of 53-bit uniforms, and embeddings rounded to a grid set by sigma",
            "a resumed run sends again, with fresh noise, what came after its checkpoint; parties "
            "of their own processes count both releases, and end before epsilon is exceeded",
            "h, the optimiser, initialisation and batch order are ours, as in FedVS",
        ),
    )

    no_class_weights = "a row of a rare class would weigh more than the noise is made for"

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
        if config.label_epsilon is not None and data.task == "regression":
            raise ConfigurationError(
                "wait_dp: label_epsilon needs classes, and the labels are real numbers; use "
                "noise_on = 'gradients'"
            )
        check_budget(config, self.privacy)

    @classmethod
    def check_parties(cls, config: WaitDPConfig, parties: int) -> None:
        """Refuse mechanisms whose sensitivity would not be what is accounted."""
        super().check_parties(config, parties)
        check_mechanisms(config)

    def server(self) -> Server:
        """The server."""
        return self.make_server(
            Server,
            self.privacy,
            classes=self.data.num_classes if self.data.task == "multiclass" else 2,
            budget=self.config.epsilon_budget,
            limit=self.limit,
            seeded=self.config.noise == "seeded",
        )

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
        return messages_of(
            self, embedding_noise=self.embedding_noise, gradient_noise=self.gradient_noise
        )

    @property
    def embedding_noise(self) -> GaussianNoise:
        """Noise of embeddings, with noise_on = embeddings or both."""
        return embedding_noise(self)

    @property
    def gradient_noise(self) -> GaussianNoise:
        """Noise of dL/dH, with noise_on = gradients or both."""
        return gradient_noise(self)

    @property
    def randomised_labels(self) -> RandomisedLabels | None:
        """The server's labels, where label_epsilon is set."""
        return randomised_labels(self)

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
    def _paid(self) -> Guarantee:
        """Cost of each release, and of all that parties allow: a restart may repeat some."""
        total = self.privacy.composed(self.limit) if self.privacy.releases else 0.0
        return Guarantee(self.config.epsilon, self.config.delta, total)

    def _features_claim(self) -> Claim:
        if not self.privacy.embeddings:
            return Claim("server", "features", "none", "embeddings are sent in the clear")
        if self.config.noise == "seeded":
            return Claim("server", "features", "none", _SEEDED)
        how = "one row of one client replaced; analytic Gaussian mechanism, the client's weights "
        how += "and the preparation of its columns given"
        why, paid = f"{self._paid}, {how}", (self._paid,)
        return Claim("server", "features", "differential", why, guarantees=paid)

    def _labels_claim(self) -> Claim:
        """Claim on a row's label, against all clients together."""
        privacy, ways, paid = self.privacy, list[str](), list[Guarantee]()
        if privacy.labels is not None:
            ways.append(
                f"({privacy.labels:g}, 0) for the whole training, one label replaced; randomised "
                "response before it"
            )
            paid.append(Guarantee(privacy.labels, 0.0, privacy.labels))
        if privacy.gradients:
            ways.append(
                f"{self._paid}, one row replaced (label and columns of clients that do not pool); "
                "analytic Gaussian mechanism on gradients, given the weights and that training "
                "ends: that it diverges tells of labels"
            )
            paid.append(self._paid)
        if not ways:
            return Claim("client", "labels", "none", "dL/dH depends on them")
        if self.config.noise == "seeded":
            return Claim("client", "labels", "none", _SEEDED)
        why = "; and ".join(ways)
        return Claim("client", "labels", "differential", why, guarantees=tuple(paid))


_SEEDED = "the noise is seeded: a party that knows the seed can subtract it"
