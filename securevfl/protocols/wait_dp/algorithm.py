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

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from securevfl.engine.party import SERVER, Party
from securevfl.field.sampling import SYSTEM, SeededSource, Source
from securevfl.privacy.mechanisms import (
    clip_gradient,
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
from securevfl.protocols.base.split_parties import SplitClient, SplitServer
from securevfl.protocols.base.split_step import JointEmbedding
from securevfl.protocols.wait_dp.parameters import Privacy


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
    begins_once = True

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
    begins_once = True

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
        """Count a release of the rows of a batch, before it is asked for.

        Without counts it notes that gradients of the labels as they were randomised will leave, so
        that they are not randomised again.
        """
        self.released = self.counted(batch)
        if self.released or (self.privacy.labels is not None and not self.seeded):
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
