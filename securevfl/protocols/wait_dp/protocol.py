"""The protocol class of Wait-DP: card, options, parties, messages and claims."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.engine.streams import keyed_stream
from securevfl.errors import ConfigurationError
from securevfl.privacy.claims import Claim, Guarantee
from securevfl.privacy.mechanisms import (
    clip_gradient,
    clip_rows,
    keep_probability,
    mean_gradient,
    own_gradients,
)
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.embedding import EmbeddingProtocol
from securevfl.protocols.base.messages import MessageKey, MessageSpec
from securevfl.protocols.base.open_embeddings import FIELD, embedding, updated
from securevfl.protocols.wait_dp.algorithm import (
    Client,
    Server,
    laplaced,
    parts,
    step,
)
from securevfl.protocols.wait_dp.parameters import (
    Privacy,
    WaitDPConfig,
    check_budget,
    check_mechanisms,
)
from securevfl.verified import Provable, Secret, World, bare_of
from securevfl.verified.parties import seeded_labels, seeded_rows


class WaitDP(Provable, EmbeddingProtocol):
    """Wait-DP on one data set."""

    name = "wait_dp"
    apart = True
    Config = WaitDPConfig
    field = FIELD
    traced_options: ClassVar[dict[str, Any]] = {"rounds": 3, "batch": 4, "width": 2, "hidden": 3}
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
            "gradients or both, and the batches; the history, whose losses have no noise",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="waits",
        deviations=(
            "C, delta, Gaussian noise, and that epsilon' is of one release of a row are ours; "
            "mechanism = laplace has the noise of SplitFed, by the range of a batch",
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

    def __init__(self, config: WaitDPConfig, data: Any, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        noised = config.noise_on in ("embeddings", "both")
        self.privacy = Privacy(
            epsilon=config.epsilon,
            delta=config.delta,
            clip=config.clip,
            gradient_clip=config.gradient_clip,
            per_epoch=self.layout.per_epoch,
            embeddings=noised and config.mechanism == "gaussian",
            laplace=noised and config.mechanism == "laplace",
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
        """Raise ConfigurationError if a mechanism's true sensitivity differs from the accounted."""
        super().check_parties(config, parties)
        check_mechanisms(config)

    def server(self) -> Server:
        """Create the server."""
        return Server(
            self.peers(),
            self.layout,
            self.config.aggregation,
            self.joint_centre(),
            self.data.train_labels,
            self.privacy,
            width=self.config.width,
            max_steps=self.config.rounds,
            classes=self.classes,
            budget=self.config.epsilon_budget,
            limit=self.limit,
            seeded=self.config.noise == "seeded",
        )

    def client(self, index: int) -> Client:
        """Create client `index`, counted from 0."""
        return Client(
            index,
            self.peers(),
            self.layout,
            self.data.train[index],
            self.client_network(index),
            self.privacy,
            width=self.config.width,
            limit=self.limit,
            seeded=self.config.noise == "seeded",
        )

    @functools.cached_property
    def limit(self) -> int:
        """Releases of a row that the budget permits; without a budget, those of all rounds."""
        budget = self.config.epsilon_budget
        if budget is None or not self.privacy.releases:
            return self.privacy.planned(self.config.rounds)
        return self.privacy.releases_within(budget)

    @property
    def classes(self) -> int:
        """Number of classes among which randomised response chooses."""
        return self.data.num_classes if self.data.task == "multiclass" else 2

    def colluders(self) -> int:
        """Number of colluding clients: all but one."""
        return len(self.peers()) - 1

    def coalitions(self) -> tuple[frozenset[int], ...]:
        """Coalitions of the base class, and all clients together (against the labels)."""
        return (*super().coalitions(), frozenset(self.peers()))

    def ideal(self, world: World) -> None:
        """Declare outputs besides noisy releases: losses, and values sent without noise.

        Values with noise of a public seed count as sent without noise, because it hides nothing.
        """
        privacy, rule, width = self.privacy, self.config.aggregation, self.config.width
        hides = self.config.noise == "secure"
        columns = [world.the(n, "columns") for n in self.peers()]
        networks = [world.the(n, "network") for n in self.peers()]
        centre, labels = world.the(SERVER, "centre"), world.the(SERVER, "labels")
        if privacy.labels is not None:
            if hides:
                labels = world.released(SERVER, "labels")
            else:
                known = self.noise_seed(SERVER, 0)
                labels = labels.map(seeded_labels, self.classes, privacy.labels, known)
        for r in world.rounds("embedding"):
            samples = self.layout.samples(self.layout.draw(r))
            shape = (len(samples), width)
            embeddings = [
                network.call(embedding, X, samples, shape=shape)
                for network, X in zip(networks, columns, strict=True)
            ]
            released = privacy.embeddings and hides
            if released:
                sent = [world.released(n, f"embedding {r}") for n in self.peers()]
            else:
                sent = [self.ideal_sent(n, r, embeddings[n], samples) for n in self.peers()]
            for n in self.peers() if not released else ():
                world.output(f"embedding {r} of {n}", sent[n], to=[SERVER], alone=True)
            if r not in world.rounds("event round"):  # the server went down before the step
                continue
            wide = (len(samples), self.aggregation.width(width))
            loss, gradient = centre.step(step, samples, labels, rule, *sent, shapes=[(), wide])
            if privacy.gradients:
                if hides:
                    own = world.released(SERVER, f"gradient {r}")
                else:
                    rows = (int((samples >= 0).sum()), wide[1])
                    own = gradient.map(own_gradients, samples, shape=rows)
                    noise = privacy.gradient_sigma, self.noise_seed(SERVER, r)
                    own = own.clip(privacy.gradient_clip).map(seeded_rows, *noise, dtype=np.float32)
                gradient = own.map(mean_gradient, samples, shape=wide)
            world.output(f"loss {r}", loss, alone=True)
            for n, back in enumerate(parts(gradient, rule, sent)):
                if not (privacy.gradients and hides):
                    world.output(f"gradient {r} of {n}", back, to=[n], alone=True)
                inner = back
                if privacy.embeddings:
                    inner = embeddings[n].map(clip_gradient, back, privacy.clip)
                networks[n].step(updated, columns[n], samples, inner, shapes=[()])

    def ideal_sent(self, n: int, r: int, H: Secret, samples: np.ndarray) -> Secret:
        """Embedding, from H, that client n sends in round r without secret noise."""
        privacy, seed, sent = self.privacy, self.noise_seed(n, r), H
        if privacy.laplace:
            sent = H.map(laplaced, samples, privacy.epsilon, seed, dtype=np.float32)
        elif privacy.embeddings:
            sent = H.clip(privacy.clip).map(seeded_rows, privacy.sigma, seed, dtype=np.float32)
        return sent

    def noise_seed(self, party: int, round: int) -> bytes:
        """Public seed of a party's noise of a round."""
        return keyed_stream(self.seed, party, "noise", round).bytes(32)

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Message declarations: an embedding and its gradient a round, up to the last round."""

        def in_run(key: MessageKey) -> int:
            return int(1 <= key.round <= self.config.rounds)

        opening, embedding, gradient = self.step_messages()
        return opening, replace(embedding, count=in_run), replace(gradient, count=in_run)

    def embed(self, client: Any, rows: np.ndarray) -> np.ndarray:
        """Embeddings clipped as in training, without noise, since evaluation releases nothing."""
        embedding: np.ndarray = bare_of(client.network).forward(rows)
        if not self.privacy.embeddings:
            return embedding
        return clip_rows(embedding, self.privacy.clip).astype(np.float32)

    def describe(self) -> dict[str, Any]:
        """Numbers for summaries: N, |B|, the noise and its cost, until the budget ends the run."""
        privacy = self.privacy
        rounds = min(self.config.rounds, self.limit * privacy.per_epoch)
        samples = self.layout.coded * self.layout.segments
        described: dict[str, Any] = {"N": self.data.parties, "batch_rows": self.batch_rows}
        if privacy.embeddings:
            described["sigma"] = privacy.sigma
        if privacy.laplace:
            described["laplace_scale"] = f"range of a batch / {privacy.epsilon:g}"
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
            described |= {
                "epsilon_labels": privacy.labels,
                "labels_kept": keep_probability(privacy.labels, self.classes),
            }
        described["noise"] = "secure" if self.config.noise == "secure" else "seeded, not secure"
        return described

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Claims of differential privacy for each row's own releases, unless noise is seeded."""
        why = "trained on the true rows, and they show in all that is sent afterwards"
        return (
            self._features_claim(),
            Claim("server", "model", "none", why),
            self._labels_claim(),
        )

    @property
    def _paid(self) -> Guarantee:
        """Privacy cost of each release, and of all permitted ones; a restart may repeat some."""
        total = self.privacy.composed(self.limit) if self.privacy.releases else 0.0
        return Guarantee(self.config.epsilon, self.config.delta, total)

    def _features_claim(self) -> Claim:
        if self.privacy.laplace:
            return Claim("server", "features", "none", _BY_RANGE)
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
                "ends: that it diverges tells of labels, and so do the losses of the history"
            )
            paid.append(self._paid)
        if not ways:
            return Claim("client", "labels", "none", "dL/dH depends on them")
        if self.config.noise == "seeded":
            return Claim("client", "labels", "none", _SEEDED)
        why = "; and ".join(ways)
        return Claim("client", "labels", "differential", why, guarantees=tuple(paid))


_BY_RANGE = "noise by the range of a batch, which does not bound what a row changes"
_SEEDED = "the noise is seeded: a party that knows the seed can subtract it"
