"""Mistakes that only show where somebody is late, down or back are not proved, in each method."""

from __future__ import annotations

import dataclasses

import pytest

from securevfl.protocols import he_split
from securevfl.protocols.coded_split import algorithm as coded
from securevfl.protocols.coded_split import protocol as coded_protocol
from securevfl.protocols.secagg_split import protocol as secagg
from securevfl.protocols.wait_dp import protocol as wait_dp
from securevfl.verified import FlowError
from securevfl.verified.schedules import UNDISTURBED
from tests.protocols.faulty import proof_under, weak

SILENT = "clients 2, 3 upload nothing in round 1"
SERVER_BACK = "the server goes down within round 1, and comes back"
SERVER_IN_ROUND_2 = "the server goes down within round 2, and comes back"
IMPATIENT = {"share_timeout": 5.0, "result_timeout": 5.0, "cohorts": 0, "quorum": 4}


class SeedAgain(secagg.Client):
    """Takes the seed b again for a round that follows one without a gradient."""

    kept = (*secagg.Client.kept, "seed")
    seed = None

    def key(self, name="k"):
        if name != "b":
            return super().key(name)
        self.seed = super().key(name) if self.seed is None else self.seed
        return self.seed

    def update(self, *given):
        self.seed = None
        super().update(*given)


class Trusting(secagg.Client):
    """Opens what the server names."""

    def check(self, survivors, sharers):
        pass


class FewerAtRetry(secagg.Server):
    """Is content with two uploads once a round was given up."""

    async def aggregate(self):
        self.public = dataclasses.replace(self.public, quorum=2 if self.given_up else 4)
        return await super().aggregate()


class FewerAfterwards(he_split.Server):
    """Asks for a sum of two once it was down."""

    async def run(self):
        if self.returned:
            self.public = dataclasses.replace(self.public, quorum=2)
        await super().run()


class Stale(he_split.Client):
    """Encrypts the embedding that it has, of other rows, where no gradient came for it."""

    last = None

    def quantised(self, samples):
        self.last = super().quantised(samples) if self.last is None else self.last
        return self.last

    def update(self, *given):
        self.last = None
        super().update(*given)


class StepTwice(coded.Owner):
    """Applies a step that is dealt again."""

    def with_step(self, model, step, share, digest):
        W, done, ahead, known = model
        if step > done:
            return super().with_step(model, step, share, digest)
        F = self.data_shares["train"].rows(self.public.batches["train"].draw(step))
        return W + F.T @ share, done, ahead, known


class Paid(wait_dp.Client):
    """Sends embeddings without noise after a release for which no gradient came."""

    kept = (*wait_dp.Client.kept, "waits")
    waits = False

    def release(self, H, samples):
        if self.waits:
            return H
        self.waits = True
        return super().release(H, samples)

    async def train(self, samples):
        await super().train(samples)
        self.waits = False


class LabelsAgain(wait_dp.Server):
    """Randomises the labels at each start."""

    kept = tuple(name for name in wait_dp.Server.kept if name != "labels")

    async def run(self):
        if self.returned:
            self.labels = self.own("labels", self.true)
            await self.setup()
        await super().run()

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.true = given[4]


MISTAKES = {
    "secagg: seed": ("secagg_split", IMPATIENT, SILENT, secagg, [SeedAgain]),
    "secagg: fewer": ("secagg_split", IMPATIENT, SILENT, secagg, [Trusting, FewerAtRetry]),
    "he: fewer": ("he_split", {}, SERVER_BACK, he_split, [FewerAfterwards]),
    "he: stale": ("he_split", {"quorum": 4}, SERVER_BACK, he_split, [Stale]),
    "coded: step": ("coded_split", {}, SERVER_IN_ROUND_2, coded_protocol, [StepTwice]),
}


def planted(module, parties):
    def change(cls, patch):
        for one in parties:
            name = one.__mro__[1].__name__
            if hasattr(cls, "client_kind"):
                patch.setattr(cls, f"{name.lower()}_kind", one)
            else:
                patch.setattr(module, name, one)

    return change


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_that_shows_under_a_schedule_is_not_proved(monkeypatch, mistake):
    name, options, schedule, module, parties = MISTAKES[mistake]
    change = planted(module, parties)
    claims = ("client 0", "server", "server + client 0")
    found = weak(proof_under(monkeypatch, name, options, [schedule], change, claims))
    assert not found[UNDISTURBED.name]
    assert found[schedule]


@pytest.mark.parametrize(
    ("party", "options", "said"),
    [
        (LabelsAgain, {"label_epsilon": 1.0}, "made 2 releases named labels"),
        (Paid, {}, "made 0 releases named embedding 2"),
    ],
)
def test_releases_that_a_schedule_has_more_or_fewer_of_are_no_output(
    monkeypatch, party, options, said
):
    sound = proof_under(monkeypatch, "wait_dp", options, [], planted(wait_dp, [party]))
    assert not any(weak(sound).values())
    with pytest.raises(FlowError, match=said):
        proof_under(monkeypatch, "wait_dp", options, [SERVER_BACK], planted(wait_dp, [party]))
