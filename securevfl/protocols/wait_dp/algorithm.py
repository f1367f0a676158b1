"""Split learning that waits for all clients, with differential privacy (Wait-DP).

The baseline of FedVS, section 6.2, after C. Thapa et al., "SplitFed", AAAI 2022: every client adds
calibrated noise to the output of its network. Three mechanisms, alone or together:

- **embeddings** (the baseline): each row of H_n is clipped to the L2 norm C and gets Gaussian
  noise before it goes to the server; or, with ``mechanism = laplace``, each entry gets the noise
  that SplitFed has, of which nothing is claimed;
- **gradients**: each sample's gradient dl_i/dH_i is clipped to the norm C_g and gets Gaussian noise
  before it goes to the clients, once for all of them, so that colluding clients gain nothing;
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

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from securevfl.engine.party import SERVER, kept_as
from securevfl.field.sampling import SeededSource
from securevfl.models.aggregation import make_aggregation
from securevfl.models.client_networks import ClientNetwork
from securevfl.models.split import Batches, Centre
from securevfl.privacy.mechanisms import (
    clip_gradient,
    laplace_by_range,
    mean_gradient,
    own_gradients,
)
from securevfl.privacy.release_counts import (
    after_release,
    most_releases,
    refuse_exceeding,
    refuse_repeated,
)
from securevfl.protocols.base.open_embeddings import FIELD, embedding, updated
from securevfl.protocols.wait_dp.parameters import Privacy
from securevfl.verified import Participant


def step(
    centre: Centre, samples: np.ndarray, labels: np.ndarray, rule: str, *H: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Step of the server model on the joint embedding; return the loss before it, and dL/dH."""
    everywhere = np.ones((len(H), len(samples)), bool)
    joint = make_aggregation(rule, len(H)).combine(np.stack(H), everywhere)
    loss, gradient = centre.step(joint, samples, labels)
    return np.array(loss, np.float32), gradient


def part(gradient: np.ndarray, rule: str, n: int, *H: np.ndarray) -> np.ndarray:
    """Gradient dL/dH_n, client n's part of dL/dH; mean and concatenation use only H's shapes."""
    everywhere = np.ones((len(H), len(gradient)), bool)
    return make_aggregation(rule, len(H)).gradient(gradient, np.stack(H), everywhere, n)


def parts(gradient: Any, rule: str, H: Sequence[Any]) -> list[Any]:
    """Gradient dL/dH_n of each client n, from dL/dH."""
    shape = H[0].shape
    if rule != "max":
        H = [np.zeros(shape, np.float32)] * len(H)
    return [gradient.map(part, rule, n, *H, shape=shape) for n in range(len(H))]


def laplaced(H: np.ndarray, samples: np.ndarray, epsilon: float, seed: bytes) -> np.ndarray:
    """Embeddings with Laplace noise, scale range / epsilon of the batch, from a public seed."""
    return laplace_by_range(H, samples, epsilon, SeededSource(seed))


class Client(Participant):
    """Client n: sends its embeddings, clipped and noised by `privacy`; steps with the gradient.

    `features` are its columns of all training rows, (M, d), `network` its bottom model of output
    `width`, and `batches` the layout of batches; with `seeded`, noise comes from the run's seed.

    Attributes
    ----------
    limit : int
        Number of releases of a row that its epsilon permits.
    released : bytes
        Number of releases of each row (`securevfl.privacy.release_counts`). Seeded noise protects
        nothing, so it is not counted.
    """

    kept: ClassVar[tuple[str, ...]] = ("network", *kept_as("passing", "released", ahead=True))
    begins_once = True
    protected: ClassVar[Mapping[str, str]] = {"embedding": "real", "gradient": "real"}

    def __init__(
        self,
        index: int,
        peers: Sequence[int],
        batches: Batches,
        features: np.ndarray,
        network: ClientNetwork,
        privacy: Privacy,
        *,
        width: int,
        limit: int,
        seeded: bool,
    ) -> None:
        super().__init__(index, peers, FIELD)
        self.batches, self.privacy, self.width = batches, privacy, width
        self.limit, self.seeded, self.released = limit, seeded, b""
        self.bound, self.multiply_adds = network.bound, network.operations
        self.features = self.own("columns", features)
        self.network = self.own_model("network", network)

    async def run(self) -> None:
        """Take part in every round."""
        async for round_ in self.rounds():
            with round_:
                await self.train(self.batches.samples(round_.payload))

    async def train(self, samples: np.ndarray) -> None:
        """One step of split training with a released embedding."""
        own, noisy, C = (self.features, samples), self.privacy.embeddings, self.privacy.clip
        if noisy:
            self.count(samples)
        H = self.network.call(embedding, *own, shape=(len(samples), self.width))
        self.send(SERVER, "embedding", self.release(H, samples))
        gradient = await self.receive("gradient")
        if noisy:
            gradient = H.map(clip_gradient, gradient, C)
        (cut,) = self.network.step(updated, *own, gradient, shapes=[()])
        if self.bound is not None:
            clipped = int(self.opened(cut, "clipped"))
            if clipped:
                self.record("clipped", weights=clipped, bound=self.bound)

    def count(self, samples: np.ndarray) -> None:
        """Count a release before sending, unless noise is seeded; PrivacyError for too many."""
        rows, who = samples[samples >= 0], f"wait_dp: client {self.index}"
        refuse_repeated(rows, who)
        if self.seeded:
            return
        refuse_exceeding(self.released, rows, self.limit, who)
        self.released = after_release(self.released, rows, self.features.shape[0])
        self.write_ahead()

    def release(self, H: Any, samples: np.ndarray) -> Any:
        """Rows of H_n as sent: clipped, and with this round's noise if wanted."""
        privacy, seed = self.privacy, seed_of(self)
        if privacy.laplace:
            return H.map(laplaced, samples, privacy.epsilon, seed, dtype=np.float32)
        if not privacy.embeddings:
            return H
        clipped = H.clip(privacy.clip)
        name = f"embedding {self.round}"
        return self.gaussian(clipped, privacy.sigma, name=name, rows=samples, seed=seed)

    def operations(self, kind: str) -> int:
        """Multiply-adds of embedding a batch: the forward pass, counted as in FedVS."""
        samples = self.batches.coded * self.batches.segments
        return samples * self.multiply_adds if kind == "embedding" else 0


def seed_of(party: Any) -> bytes | None:
    """Public seed of a party's noise in this round; None for secret noise."""
    return party.stream("noise", party.round).bytes(32) if party.seeded else None


class Server(Participant):
    """Server: aggregates all embeddings, trains the server model, ends within the budget.

    `centre` is the server model, of input `width` and for `classes` classes; `rule` names the
    aggregation. With `seeded`, noise comes from the run's seed. Steps are at most `max_steps`.

    Attributes
    ----------
    labels : Secret, (M,)
        Labels as used in training: randomised once, if configured.
    budget : float or None
        Largest epsilon of all releases of a row together.
    limit : int
        Number of releases of a row that the budget permits; without a budget, that of all rounds.
    released : bytes
        Number of releases of each row, as the server counts them. Clients have their own counts.
    """

    kept: ClassVar[tuple[str, ...]] = (
        *("centre", "steps"),
        *kept_as("once", "labels"),
        *kept_as("passing", "released", ahead=True),
    )
    begins_once = True
    protected = Client.protected

    def __init__(
        self,
        peers: Sequence[int],
        batches: Batches,
        rule: str,
        centre: Centre,
        labels: np.ndarray,
        privacy: Privacy,
        *,
        width: int,
        max_steps: int,
        classes: int,
        budget: float | None,
        limit: int,
        seeded: bool,
    ) -> None:
        super().__init__(SERVER, peers, FIELD)
        self.batches, self.rule, self.width, self.privacy = batches, rule, width, privacy
        self.max_steps, self.classes, self.budget, self.limit = max_steps, classes, budget, limit
        self.seeded, self.released, self.steps = seeded, b"", 0
        self.centre = self.own_model("centre", centre)
        self.labels = self.own("labels", labels)

    async def setup(self) -> None:
        """Randomise the labels; the true ones are not used again."""
        epsilon = self.privacy.labels
        if epsilon is not None:
            self.labels = self.randomised(self.labels, self.classes, epsilon, seed=seed_of(self))

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
            self.train(self.batches.samples(batch), await self.collect("embedding"))
        self.conclude()

    def train(self, samples: np.ndarray, uploads: Mapping[int, Any]) -> None:
        """One step on all embeddings; each client gets its part of the released dL/dH."""
        H = [uploads[n] for n in self.peers]
        wide = make_aggregation(self.rule, len(H)).width(self.width)
        loss, gradient = self.centre.step(
            *(step, samples, self.labels, self.rule, *H), shapes=[(), (len(samples), wide)]
        )
        self.steps += 1
        if self.privacy.gradients:
            gradient = self.release(gradient, samples)
        for n, own in zip(self.peers, parts(gradient, self.rule, H), strict=True):
            self.send(n, "gradient", own)
        self.record("round", step=self.steps, loss=loss, used=len(H), **self.costs())

    def release(self, gradient: Any, samples: np.ndarray) -> Any:
        """Gradient dL/dH with each sample's gradient clipped and noised, once for all clients."""
        privacy, rows = self.privacy, samples[samples >= 0]
        own = gradient.map(own_gradients, samples, shape=(len(rows), gradient.shape[1]))
        clipped = own.clip(privacy.gradient_clip)
        name, seed = f"gradient {self.round}", seed_of(self)
        noised = self.gaussian(clipped, privacy.gradient_sigma, name=name, rows=rows, seed=seed)
        return noised.map(mean_gradient, samples, shape=gradient.shape)

    def affordable(self, batch: np.ndarray) -> bool:
        """Whether the budget permits one more release of a batch; a refusal is recorded."""
        # Two counts must allow it: the public schedule says how often a row would be released in an
        # unbroken run, the counts how often it was, after crashes and resumes.
        planned = self.budget is None or self.privacy.spent(self.round + 1) <= self.budget
        after = most_releases(self.counted(batch))
        if planned and after <= self.limit:
            return True
        next_ = max(self.privacy.spent(self.round + 1), self.privacy.composed(after))
        budget = self.privacy.composed(self.limit) if self.budget is None else self.budget
        self.record("budget", epsilon=self.spent(), next=next_, budget=budget, steps=self.steps)
        return False

    def count(self, batch: np.ndarray) -> None:
        """Count a release of a batch's rows before requesting it.

        Without counts it records that gradients of the randomised labels will be sent, so that
        labels are not randomised again.
        """
        self.released = self.counted(batch)
        if self.released or (self.privacy.labels is not None and not self.seeded):
            self.write_ahead()

    def counted(self, batch: np.ndarray) -> bytes:
        """Release counts after one more release of a batch; empty without accounting."""
        if self.seeded or not self.privacy.releases:
            return b""
        samples = self.batches.samples(batch)
        return after_release(self.released, samples[samples >= 0], self.labels.shape[0])

    def spent(self) -> float:
        """Epsilon of all releases so far; releases repeated by a resumed run count again."""
        counted = self.privacy.composed(most_releases(self.released)) if self.released else 0.0
        return max(self.privacy.spent(self.round), counted)

    def costs(self) -> dict[str, float]:
        """Fields for the history: epsilon of this round, and of all so far."""
        privacy = self.privacy
        if privacy.laplace and not privacy.releases and privacy.labels is None:
            return {}  # no cost is known
        costs = {
            "epsilon_round": privacy.epsilon if privacy.releases else 0.0,
            "epsilon_total": self.spent(),
        }
        return costs if privacy.labels is None else costs | {"epsilon_labels": privacy.labels}
