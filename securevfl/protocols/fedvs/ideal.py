"""Ideal functionality of FedVS: a trusted party's outputs, and who receives each.

It has columns, networks and labels, and knows no share, mask or upload.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from securevfl.engine.party import ANNOUNCE, SERVER
from securevfl.models.polynomial_network import expanded_width
from securevfl.models.pretraining.trainer import Pretraining
from securevfl.privacy.claims import COUNTS
from securevfl.privacy.released_equations import independent_columns
from securevfl.protocols.base.decoding import inference_step, rows_in_order
from securevfl.protocols.base.pretraining import (
    all_labels,
    shapes_of,
    take_over,
    tell,
    weights_learnt,
)
from securevfl.protocols.fedvs.algorithm import COLUMNS, LABELS, MEASURES
from securevfl.protocols.fedvs.messages import Batch
from securevfl.protocols.fedvs.parameters import Parameters
from securevfl.protocols.fedvs.quantisation import mean_of_sums, quantised_weights, segments_of
from securevfl.protocols.fedvs.steps import (
    both_classes,
    measured,
    scores_of,
    take_head,
    train,
    update,
)
from securevfl.verified import Element, Secret, World, stack


class Ideal:
    """Trusted party: computes all outputs from all inputs, and declares who receives each."""

    def __init__(self, world: World, public: Parameters) -> None:
        self.world, self.public = world, public
        self.clients, self.round = range(public.code.parties), 0
        self.networks = [world.the(n, "network") for n in self.clients]
        self.centre = world.the(SERVER, "centre")
        self.X = {part: [self.segments(n, part) for n in self.clients] for part in public.batches}

    def pretrain(self, own: Mapping[int, Pretraining], alone: bool) -> None:
        """Declare outputs of pre-training: figures to all, labels to client 0, head to server.

        Networks, and with a head the server model, start from the pre-trained weights.
        """
        world = self.world
        for n, like in own.items():
            labels = []
            if like.supervised:
                more = world.the(SERVER, "labels of rows alone") if alone else None
                labels = [all_labels(world.the(SERVER, LABELS["train"]), more)]
                world.output("labels", labels[0], to=[n], alone=True)
            model = tell(world, n, like.told, *labels)
            self.networks[n].step(take_over, model)
            if like.supervised:
                head = weights_learnt(model, "head", shapes_of(like)["head"])
                for name, weight in head.items():
                    world.output(f"head of {n}: {name}", weight, to=[SERVER], alone=True)
                first, *others = head.values()
                self.centre.step(take_head, first, list(head), len(self.clients), *others)

    def segments(self, client: int, part: str) -> list[Element]:
        """Rows X-bar of a client's part of the data, by segment."""
        public, X = self.public, self.world.the(client, COLUMNS[part])
        how = public.config.degree, public.data_point, public.order(part)
        shape = *how[2].shape, expanded_width(X.shape[1], how[0])
        made = X.map(segments_of, *how, shape=shape, field=public.field)
        return [made[k] for k in range(public.code.segments)]

    def attempt(self, batch: Batch, sharers: Sequence[int]) -> Secret:
        """Embedding H of a round's attempt; its exact sums are outputs to the server."""
        public, part, width = self.public, batch.part, self.public.config.width
        models = {}
        for n in sharers:
            how = self.world.the(n, "streams"), self.round, public.model_point
            shape = self.X[part][n][0].shape[1], width
            network = self.networks[n]
            models[n] = network.call(quantised_weights, *how, shape=shape, field=public.field)
        sums: list[Element] = []
        for k in range(public.code.segments):
            sums.append(sum(self.X[part][n][k].rows(batch.rows) @ models[n] for n in sharers))
            self.world.output(f"sums {self.round}, segment {k}", sums[k], to=[SERVER])
        scale = public.model_point, public.sum_bits, len(sharers)
        shape = len(sums) * len(batch.rows), width
        found: Secret = stack(sums).map(mean_of_sums, *scale, shape=shape, real=True)
        return found

    def step(self, H: Secret, rows: np.ndarray, sharers: Sequence[int], who: set[int]) -> None:
        """Step on H of the batch `rows`, by clients `who`; loss and dL/dH are outputs to all."""
        samples = self.public.batches["train"].samples(rows)
        loss, gradient = self.centre.step(
            *(train, H, self.world.the(SERVER, LABELS["train"]), samples),
            shapes=[(), H.shape],
            of=[np.float64, np.float32],
        )
        self.world.output(f"loss {self.round}", loss)
        self.world.output(f"gradient {self.round}", gradient)
        rounding = 2.0 ** -max(24, self.public.config.model_bits)
        for n in sorted(who.intersection(sharers)):
            X = self.world.the(n, COLUMNS["train"])
            moved, cut = self.networks[n].step(
                *(update, X, gradient, samples, len(sharers), rounding),
                shapes=[(), ()],
                of=[np.bool_, np.int64],
            )
            if self.public.tells_cut:
                self.world.output(f"weights of model {n} cut in {self.round}", cut, alone=True)
            if not self.public.one_sum:
                self.world.output(f"whether model {n} moved in {self.round}", moved, alone=True)

    def measure(self, scores: Mapping[int, Secret], step: int, task: str) -> None:
        """Declare measures of the test rows as outputs to all."""
        batches, labels = self.public.batches["test"], self.world.the(SERVER, LABELS["test"])
        names = MEASURES[task]
        if task == "binary":
            both = labels.map(both_classes, shape=(), dtype=np.bool_)
            self.world.output("whether test rows are of both classes", both, alone=True)
            names = (*names, "auc")
        found = rows_in_order(batches, scores, step)
        for name in names:
            told = found.map(measured, labels, task, name, shape=(), dtype=np.float64)
            self.world.output(f"{name} of test rows", told)


def declare(
    world: World,
    public: Parameters,
    outputs: int,
    task: str,
    pretraining: Mapping[int, Pretraining],
) -> None:
    """Declare all outputs of a run, for the rounds and clients that its messages show.

    `outputs` is the number of scores of a row, `pretraining` the clients' pre-training. K + T
    uploads already reveal something of a sum, though decoding needs R. An upload counts when it is
    sent, because it reaches the server even after the attempt was abandoned. A client that is down
    when dL/dH arrives misses the step.
    """
    config, ideal = public.config, Ideal(world, public)
    ideal.pretrain(pretraining, (SERVER, "labels of rows alone") in world.inputs)
    if config.budget:
        unit = 2.0**-config.data_bits
        for n in ideal.clients:
            X = world.the(n, COLUMNS["train"])
            told = X.map(independent_columns, unit, shape=(), dtype=np.int64)
            world.output(f"{COUNTS} of {n}", told, alone=True)
    announced, attempts = world.told(ANNOUNCE), world.told("attempt")
    uploads = Counter(m.round for m in world.messages if m.kind == "embedding")
    gradients = world.took("gradient")
    scores: dict[int, Secret] = {}
    for r, (_, sharers, *_) in sorted(attempts.items()):
        if uploads[r] < public.code.segments + public.code.privacy:
            continue
        batch, ideal.round = Batch(*announced[r][1:]), r
        H = ideal.attempt(batch, sharers)
        if batch.part == "test":
            shape, step = (H.shape[0], outputs), test_step(public)
            if r not in world.rounds("event given_up"):
                own = ideal.centre.call(scores_of, H, shape=shape)
                scores[int(batch.rows[0]) // step] = own
        elif r in world.rounds("event round"):
            ideal.step(H, batch.rows, sharers, {n for n, _ in gradients.get(r, ())})
    if world.rounds("event inference"):
        ideal.measure(scores, test_step(public), task)


def test_step(public: Parameters) -> int:
    """Test rows of each segment evaluated in one attempt."""
    return inference_step(public.batches["test"].coded, public.batches["test"].segments)
