"""Methods that pre-train and then train split: proofs that nothing is seen beside what they say."""

from __future__ import annotations

import numpy as np
import pytest

from securevfl.protocols import vflhlp
from securevfl.protocols.base import open_embeddings, pretraining
from securevfl.verified.traced.proofs import Traced, prove_protocol

N = 3
CLIENTS = [f"client {n}" for n in range(N)]


def found(name, fresh=False, **options):
    """Verdicts by claim, which are all NOT PROTECTED or PROVED."""
    proof = prove_protocol(Traced(name, options, N), fresh=fresh)
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


# -- VFLHLP ----------------------------------------------------------------------------------------


def test_vflhlp_is_proved_in_a_process_of_its_own():
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
    verdicts = found("vflhlp", variant="a")
    assert verdicts[who].verdict in ("NOT PROVED", "VIOLATED"), verdicts[who].scope
