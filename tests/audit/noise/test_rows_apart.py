"""Networks and losses that couple the rows of a batch are found, whatever noise is added later."""

import pytest
import torch
from torch import nn

from securevfl.audit.noise.rows_apart import coupled_rows
from securevfl.data import load_dataset
from securevfl.models.split import Centre
from securevfl.testing.runs import make

TWO = load_dataset("breast-cancer", parties=4).subset(60, 20)
SOUND = {
    "embeddings": {},
    "perceptrons": {"client": "mlp"},
    "gradients": {"noise_on": "gradients"},
    "labels": {"noise_on": "none", "label_epsilon": 1.0},
}


@pytest.mark.parametrize("name", SOUND)
def test_rows_of_the_library_stand_alone(name):
    for asset in ("features", "labels"):
        assert list(coupled_rows(make("wait_dp", **SOUND[name]), asset)) == []


@pytest.mark.parametrize("name", ["split", "vafl", "fedonce", "multivfl"])
def test_other_methods_have_rows_alone_too(name):
    for asset in ("features", "labels"):
        assert list(coupled_rows(make(name), asset)) == []


def test_normalisation_over_a_batch_is_found():
    made = make("wait_dp", client="mlp")
    parties = made.parties()
    made.parties = lambda: parties
    module = parties[0].network.module
    width = made.config.width
    norm = nn.BatchNorm1d(width, track_running_stats=False)
    parties[0].network.module = nn.Sequential(module, norm)
    assert list(coupled_rows(made, "features")) == [
        "client 0's embedding of a row depends on the others of its batch"
    ]


def test_a_loss_that_mixes_labels_is_found(monkeypatch):
    backward = Centre._backward

    def mixed(self, embedding, samples, labels):
        smooth = 0.8 * labels + 0.2 * labels[samples].mean()
        return backward(self, embedding, samples, smooth.astype("float32"))

    monkeypatch.setattr(Centre, "_backward", mixed)
    found = list(coupled_rows(make("wait_dp", TWO, noise_on="gradients"), "labels"))
    assert found == ["dL/dH of a row depends on the labels of the others of its batch"]


def test_a_centre_that_mixes_embeddings_is_found(monkeypatch):
    made = make("wait_dp", noise_on="gradients")
    parties = made.parties()
    made.parties = lambda: parties

    class Mixed(nn.Module):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return rows - rows.mean(dim=0)

    centre = parties[-1].centre
    centre.network = nn.Sequential(Mixed(), centre.network)
    assert "on the embeddings of the others" in "".join(coupled_rows(made, "labels"))
