"""Ideal functionality of coded split learning: a trusted party's outputs and their receivers.

It has all columns and first models as whole numbers, and knows no share, mask or upload.
"""

from __future__ import annotations

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.models.split import Centre
from securevfl.privacy.claims import COUNTS
from securevfl.privacy.released_equations import independent_columns
from securevfl.protocols.coded_split.messages import piece_of, pieces_of
from securevfl.protocols.coded_split.parameters import Parameters
from securevfl.protocols.coded_split.quantisation import first_model, joint, scales, segments_of
from securevfl.protocols.coded_split.steps import (
    apply,
    forms_of,
    gradients,
    make_step,
    measures_named,
    measures_of,
    note_sums,
    scores_of,
)
from securevfl.verified import Element, Secret, World, stack


class Ideal:
    """Trusted party: computes all outputs from all inputs, and declares who receives each.

    Parameters
    ----------
    centre : Centre
        A server model like the server's, for its shapes.
    """

    def __init__(self, world: World, public: Parameters, centre: Centre) -> None:
        self.world, self.public, self.like = world, public, centre
        self.owners, self.replicas = range(public.owners), range(public.code.segments)
        self.X = {
            part: [
                segments_of(public, n, world.the(n, f"{part} columns"), part) for n in self.owners
            ]
            for part in public.batches
        }
        first = [
            world.the(n, "weights").map(first_model, public.model_point, field=public.field)
            for n in self.owners
        ]
        self.W = [[one for _ in self.replicas] for one in first]
        self.centre, self.steps = world.the(SERVER, "centre"), world.the(SERVER, "steps")

    def sums(self, part: str, rows: np.ndarray, name: str) -> Element:
        """Sums U_1 to U_K of a batch, (K, |B|, h), declared as an output to the server."""
        found = []
        for k in self.replicas:
            own = zip(self.split(part), self.W, strict=True)
            found.append(sum(X[k].rows(rows) @ W[k] for X, W in own))
            self.world.output(f"{name}, segment {k}", found[k], to=[SERVER])
        return stack(found)

    def split(self, part: str) -> list[list[Element]]:
        """Whole numbers X_{n,k} of a part of the data, by owner n and segment k."""
        return [[X[k] for k in self.replicas] for X in self.X[part]]

    def mean(self, sums: Element, steps: int) -> Secret:
        """Mean embedding H from the sums of a batch."""
        K, rows, h = sums.shape
        numbers = self.public.field, *scales(self.public, steps)
        found: Secret = sums.map(joint, *numbers, shape=(K * rows, h), real=True)
        return found

    def step(self, t: int) -> None:
        """Step t: sums are outputs to the server; loss, and bits by which it was shrunk, to all."""
        batches, labels = self.public.batches["train"], self.world.the(SERVER, "train labels")
        rows = batches.draw(t)
        sums = self.sums("train", rows, f"sums {t}")
        self.steps.step(note_sums, sums, t, rows)
        H = self.mean(sums, t - 1)
        samples, forms = batches.samples(rows), forms_of(self.like, H.shape)
        loss, G, *own = self.centre.call(gradients, H, samples, labels, **forms)
        self.centre.step(apply, *own)
        self.world.output(f"loss {t}", loss)
        Gbar, lacking = self.steps.step(
            *(make_step, G, t, rows), shapes=[sums.shape, ()], of=[self.public.field, np.int64]
        )
        self.world.output(f"bits that step {t} lacks", lacking)
        for n, X in enumerate(self.split("train")):
            for k in self.replicas:
                self.W[n][k] = self.W[n][k] + X[k].rows(rows).T @ Gbar[k]

    def infer(self, steps: int) -> None:
        """Coded inference: sums of test rows are outputs to the server, measures to all."""
        batches, labels, scores = self.public.batches["test"], "test labels", []
        order = []
        for piece in range(pieces_of(batches)):
            rows = piece_of(batches, piece)
            sums = self.sums("test", rows, f"sums of test rows {piece}")
            H = self.mean(sums, steps)
            scores.append(self.centre.call(scores_of, H, shape=(H.shape[0], self.like.outputs)))
            order.append(batches.samples(rows))
        own = self.world.the(SERVER, labels), np.concatenate(order), *scores
        shape = (len(measures_named(self.like.task)),)
        measures = self.centre.call(measures_of, *own, shape=shape, dtype=np.float64)
        self.world.output("measures of test rows", measures)

    def release(self) -> None:
        """Declare each owner's models, as whole numbers, as an output to this owner."""
        for n in self.owners:
            for k in self.replicas:
                name = f"model of {n}, segment {k}"
                self.world.output(name, self.W[n][k], to=[n], alone=True)


def declare(world: World, public: Parameters, steps: int, centre: Centre) -> None:
    """Declare all outputs of a run of `steps` steps with a server model like `centre`."""
    config, ideal = public.config, Ideal(world, public, centre)
    if config.budget:
        unit = 2.0**-config.data_bits
        for n in ideal.owners:
            X = world.the(n, "train columns")
            told = X.map(independent_columns, unit, shape=(), dtype=int)
            world.output(f"{COUNTS} of {n}", told, alone=True)
    for t in range(1, steps + 1):
        ideal.step(t)
    if config.secure:
        ideal.infer(steps)
    if config.release:
        ideal.release()
