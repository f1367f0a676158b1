"""Methods that pre-train and then train split: proofs that nothing is seen beside what they say."""

from __future__ import annotations

import numpy as np
import pytest

from securevfl.protocols import fedhssl, vflhlp
from securevfl.protocols.base import open_embeddings, pretraining
from securevfl.verified.traced.proofs import Traced, prove_protocol
from tests.protocols.faulty import verdict_on

N = 3


def found(name, fresh=False, parties=N, **options):
    """Verdicts by claim."""
    proof = prove_protocol(Traced(name, options, parties), fresh=fresh)
    return {v.claim: v for v in proof.verdicts}


def clear(name, **options):
    """What a coalition is told as it is, by claim; nothing beside it is proved."""
    verdicts = found(name, **options)
    assert {v.verdict for v in verdicts.values()} <= {"NOT PROTECTED", "PROVED"}
    return {claim: set(v.clear) for claim, v in verdicts.items()}


def losses(*parties):
    return {f"loss of pre-training of party {n}" for n in parties}


def embeddings(*parties):
    return {f"embedding of party {n}" for n in parties}


@pytest.mark.parametrize("name", ["fedhssl", "local", "ssl_local", "vflhlp"])
def test_methods_for_few_aligned_rows_are_traced_with_others(name):
    traced = Traced(name, {}, N)
    assert "and 3 of each alone" in traced.sizes
    assert len(traced._made(0).data.alone[1]) == 3


# -- VFLHLP ----------------------------------------------------------------------------------------


def test_vflhlp_is_proved_and_its_certificate_accepted():
    told = clear("vflhlp", fresh=True)
    assert told["client 0"] == losses(0, 1, 2) | {"labels"}
    assert told["client 1"] == losses(0, 2)
    assert told["server"] == losses(0, 1, 2) | embeddings(0, 1, 2) | {"head of party 0"}
    assert told["server + client 0"] == losses(1, 2) | embeddings(1, 2)


@pytest.mark.parametrize(
    ("options", "to_0", "to_1"),
    [
        ({"variant": "a"}, {"labels"} | losses(0), losses(0)),
        ({"variant": "p"}, losses(1, 2), losses(2)),
        ({"variant": "none"}, set(), set()),
        ({"variant": "a", "clip": 0.5, "aggregation": "max"}, {"labels"} | losses(0), losses(0)),
    ],
)
def test_each_variant_of_vflhlp_is_proved(options, to_0, to_1):
    told = clear("vflhlp", **options)
    assert (told["client 0"], told["client 1"]) == (to_0, to_1)


def test_early_stopping_tells_when_it_stopped():
    told = clear("vflhlp", variant="a", pretrain_stop=1, pretrain_epochs=4)
    of_0 = {f"{name} of pre-training of party 0" for name in ("loss", "epochs", "held_out_loss")}
    assert told["client 1"] == of_0


def head_with_a_column(self, part):
    weights = learnt(self, part)
    if part == "head":
        name = next(name for name, one in weights.items() if len(one.shape) == 1)
        first = weights[name].shape[0]
        columns = self.client.features
        weights[name] = columns.map(first_values, first, shape=(first,), dtype=np.float32)
    return weights


learnt = pretraining.Beginning.weights


def first_values(columns, number):
    return columns[:number, 0]


def unheld(self, samples, gradient):
    """A step without the proximal term, in the place of the one that was declared."""
    return open_embeddings.OpenClient.step(self, samples, gradient)


def label_sum(labels):
    return labels.sum(dtype=np.float64)


def told_labels(self, embeddings, samples):
    return {"mean": self.labels.map(label_sum, shape=(), dtype=np.float64)}


IN_VFLHLP = {
    "a column in the head": (pretraining.Beginning, "weights", head_with_a_column, "server"),
    "a step that is not held": (vflhlp.ActiveClient, "step", unheld, "server"),
    "labels in the history": (vflhlp.Server, "details", told_labels, "client 1"),
}


@pytest.mark.parametrize("name", IN_VFLHLP)
def test_a_mistake_in_vflhlp_is_not_proved(name, monkeypatch):
    kind, method, planted, who = IN_VFLHLP[name]
    monkeypatch.setattr(kind, method, planted)
    verdict = verdict_on(who, "vflhlp", {"variant": "a"}, parties=2)
    assert verdict.verdict in ("NOT PROVED", "VIOLATED"), verdict.scope


# -- FedHSSL ---------------------------------------------------------------------------------------


def of_party(*names):
    return {f"{name} of party {n}" for name in names for n in range(N)}


TOLD = of_party("loss of the meeting", "loss of local learning", "upper layers", "embedding")


def test_fedhssl_is_proved_and_its_certificate_accepted():
    told = clear("fedhssl", fresh=True)
    assert told["client 0"] == {f"projection of party {n}" for n in (1, 2)}
    assert told["client 1"] == {"projection of party 0"}
    assert told["server"] == TOLD
    assert told["server + client 1"] == TOLD | {"projection of party 0"}


@pytest.mark.parametrize(
    "options",
    [
        {"method": "byol"},
        {"method": "moco", "batch": 8},
        {"pretrain_epochs": 2, "batch": 8, "aggregation": "mean", "guidance": 0.0},
    ],
    ids=str,
)
def test_each_method_of_fedhssl_is_proved(options):
    told = clear("fedhssl", **options)
    assert told["client 2"] == {"projection of party 0"}
    assert told["server"] == TOLD


def test_without_pretraining_fedhssl_shows_what_split_does():
    told = clear("fedhssl", pretrain_epochs=0)
    assert (told["client 1"], told["server"]) == (set(), of_party("embedding"))


def columns_in_place(cross, encoders, features, samples):
    projected = np.array(fedhssl.projection(cross, encoders, features, samples))
    projected[:, 0] = features[samples, 0]
    return projected


def project_columns(self, samples):
    shape = (len(samples), self.projection)
    return self.cross.call(columns_in_place, self.encoders, self.rows[0], samples, shape=shape)


async def upper_of_one(self, epoch):
    """Clients are sent the upper layers of client 1 in the place of the mean."""
    self.announce(self.round + 1, ("local", epoch))
    answers = await self.collect("upper")
    self.broadcast("mean", answers[1][2], to=self.peers)
    loss = fedhssl.mean_of([loss for _, loss, _ in answers.values()])
    self.record("pretrained", how="local", loss=loss)


IN_FEDHSSL = {
    "columns in projections": (fedhssl.Client, "learner", None, "client 0"),
    "one client's upper layers for the mean": (
        fedhssl.Server,
        "open_local",
        upper_of_one,
        "client 0",
    ),
    "labels in the history": (fedhssl.Server, "details", told_labels, "client 1"),
}


def own_learner(self):
    class Shows(fedhssl.Learner):
        project = project_columns

    models = self.encoders, self.cross, self.local, self.streams
    return Shows(*models, tuple(self.rows), self.how, self.shapes, self.projection)


@pytest.mark.parametrize("name", IN_FEDHSSL)
def test_a_mistake_in_fedhssl_is_not_proved(name, monkeypatch):
    kind, method, planted, who = IN_FEDHSSL[name]
    monkeypatch.setattr(kind, method, property(own_learner) if planted is None else planted)
    # With two parties the mean of losses tells the other one's, mistake or not.
    verdict = verdict_on(who, "fedhssl", {"batch": 8}, parties=N)
    assert verdict.verdict in ("NOT PROVED", "VIOLATED"), verdict.scope
    assert "outputs up to" not in verdict.text
