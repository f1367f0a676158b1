"""Class weights: every protocol with a cross-entropy takes them, or says why not."""

from __future__ import annotations

import numpy as np
import pytest

import securevfl as svfl
from securevfl.data import VerticalDataset
from securevfl.errors import ConfigurationError
from securevfl.protocols.base.registry import find_protocols, get_protocol

SMALL = {"rounds": 4, "width": 4, "hidden": 4, "batch": 16}
WITH = [
    n for n in sorted(find_protocols()) if "class_weights" in get_protocol(n).Config.model_fields
]
REFUSED = {"cvfl": "counts the classes", "multivfl": "counts the classes", "wait_dp": "noise"}
STREAM = np.random.default_rng(0)
X = STREAM.random((160, 4))
RARE = (np.arange(160) % 8 == 0).astype(int)


def data(labels=RARE, task="binary"):
    return VerticalDataset.from_numpy(np.split(X, 4, axis=1), labels, task=task, name="rare")


def test_all_but_dvfl_have_the_option():
    assert set(find_protocols()) - set(WITH) == {"dvfl"}


@pytest.mark.parametrize("name", ["fedvs", "coded_split", "split", "vafl", "secagg_split", "local"])
def test_weights_change_the_losses_of_a_run(name):
    plain, weighted = (
        svfl.run(name, data(), class_weights=kind, **SMALL) for kind in ("none", "balanced")
    )
    assert [row["loss"] for row in plain.history] != [row["loss"] for row in weighted.history]


@pytest.mark.parametrize(("name", "why"), REFUSED.items())
def test_others_say_why_they_do_not_take_them(name, why):
    with pytest.raises(ConfigurationError, match=rf"{name}: class_weights = 'balanced'.*{why}"):
        svfl.run(name, data(), class_weights="balanced", **SMALL)


def test_real_labels_and_own_losses_are_refused():
    with pytest.raises(ConfigurationError, match="real numbers"):
        svfl.run("split", data(X[:, 0], "regression"), class_weights="balanced", **SMALL)
    own = "tests.models.own_networks:plain"
    with pytest.raises(ConfigurationError, match="own_loss gives one number"):
        svfl.run("split", data(), class_weights="balanced", own_loss=own, **SMALL)


def test_a_rare_class_is_found_more_often():
    labels = (X[:, 0] + X[:, 1] > 1.45).astype(int)
    recall = {}
    for kind in ("none", "balanced"):
        run = svfl.run(
            "split",
            data(labels),
            class_weights=kind,
            rounds=60,
            width=8,
            hidden=8,
            lr=0.02,
            client="mlp",
        )
        cells = np.array(run.evaluation["confusion"])
        recall[kind] = cells[1, 1] / cells[1].sum()
    assert recall["balanced"] > recall["none"]
