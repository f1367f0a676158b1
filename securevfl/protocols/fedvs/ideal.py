"""The outputs of FedVS: what a trusted party would compute of all inputs, and tell to whom.

It has columns, networks and labels, and knows no share, mask or upload.
"""

from __future__ import annotations

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.models.polynomial_network import expanded_width
from securevfl.privacy.released_equations import independent_columns
from securevfl.protocols.base.decoding import rows_in_order
from securevfl.protocols.fedvs.algorithm import COLUMNS, LABELS, MEASURES
from securevfl.protocols.fedvs.parameters import Parameters, inference_step
from securevfl.protocols.fedvs.quantisation import mean_of_sums, quantised_weights, segments_of
from securevfl.protocols.fedvs.steps import both_classes, measured, scores_of, train, update
from securevfl.verified import Element, Secret, World, stack


class Ideal:
    """The trusted party.

    Parameters
    ----------
    world : World
    public : Parameters
    """

    def __init__(self, world: World, public: Parameters) -> None:
        self.world, self.public = world, public
        self.clients, self.round = range(public.code.parties), 0
        self.networks = [world.the(n, "network") for n in self.clients]
        self.centre = world.the(SERVER, "centre")
        self.X = {part: [self.segments(n, part) for n in self.clients] for part in public.batches}

    def segments(self, client: int, part: str) -> list[Element]:
        """X-bar of a client, by segment."""
        public, X = self.public, self.world.the(client, COLUMNS[part])
        how = public.config.degree, public.data_point, public.order(part)
        shape = *how[2].shape, expanded_width(X.shape[1], how[0])
        made = X.map(segments_of, *how, shape=shape, field=public.field)
        return [made[k] for k in range(public.code.segments)]

    def mean(self, part: str, rows: np.ndarray) -> Secret:
        """H of one more round; the server may have its sums, which are exact."""
        self.round += 1
        public, width = self.public, self.public.config.width
        models = []
        for n, network in enumerate(self.networks):
            how = self.world.the(n, "streams"), self.round, public.model_point
            shape = self.X[part][n][0].shape[1], width
            models.append(network.call(quantised_weights, *how, shape=shape, field=public.field))
        sums: list[Element] = []
        for k in range(public.code.segments):
            own = zip(self.X[part], models, strict=True)
            sums.append(sum(X[k].rows(rows) @ W for X, W in own))
            self.world.output(f"sums {self.round}, segment {k}", sums[k], to=[SERVER])
        bits = public.config.data_bits + public.config.model_bits
        scale = public.model_point, bits, len(models)
        shape = len(sums) * len(rows), width
        found: Secret = stack(sums).map(mean_of_sums, *scale, shape=shape, real=True)
        return found

    def step(self) -> None:
        """One step: all may have its loss and dL/dH."""
        batches = self.public.batches["train"]
        rows = batches.draw(self.round + 1)
        H, samples = self.mean("train", rows), batches.samples(rows)
        loss, gradient = self.centre.step(
            *(train, H, self.world.the(SERVER, LABELS["train"]), samples),
            shapes=[(), H.shape],
            of=[np.float64, np.float32],
        )
        self.world.output(f"loss {self.round}", loss)
        self.world.output(f"gradient {self.round}", gradient)
        rounding = 2.0 ** -max(24, self.public.config.model_bits)
        for n, network in enumerate(self.networks):
            X = self.world.the(n, COLUMNS["train"])
            moved, cut = network.step(
                *(update, X, gradient, samples, len(self.networks), rounding),
                shapes=[(), ()],
                of=[np.bool_, np.int64],
            )
            if self.public.tells_cut:
                self.world.output(f"weights of model {n} cut in {self.round}", cut, alone=True)
            if not self.public.one_sum:
                self.world.output(f"whether model {n} moved in {self.round}", moved, alone=True)

    def infer(self, outputs: int, task: str) -> None:
        """Coded inference: all may have the measures."""
        batches, labels = self.public.batches["test"], self.world.the(SERVER, LABELS["test"])
        step, scores = inference_step(batches.coded, batches.segments), dict[int, Secret]()
        for start in range(0, batches.length, step):
            rows = np.arange(start, min(start + step, batches.length), dtype=np.uint32)
            H = self.mean("test", rows)
            scores[start // step] = self.centre.call(scores_of, H, shape=(H.shape[0], outputs))
        names = MEASURES[task]
        if task == "binary":
            both = labels.map(both_classes, shape=(), dtype=np.bool_)
            self.world.output("whether test rows are of both classes", both)
            names = (*names, "auc")
        found = rows_in_order(batches, scores, step)
        for name in names:
            told = found.map(measured, labels, task, name, shape=(), dtype=np.float64)
            self.world.output(f"{name} of test rows", told)


def declare(world: World, public: Parameters, rounds: int, outputs: int, task: str) -> None:
    """Declare all outputs of a run of so many rounds."""
    config, ideal = public.config, Ideal(world, public)
    if config.budget:
        unit = 2.0**-config.data_bits
        for n in ideal.clients:
            X = world.the(n, COLUMNS["train"])
            told = X.map(independent_columns, unit, shape=(), dtype=np.int64)
            world.output(f"independent columns of {n}", told, alone=True)
    for _ in range(rounds):
        ideal.step()
    if config.secure:
        ideal.infer(outputs, task)
