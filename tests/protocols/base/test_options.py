"""Class weights: every protocol with a cross-entropy takes them, or says why not."""

from __future__ import annotations

import numpy as np
import pytest

import securevfl as svfl
from securevfl.data import VerticalDataset
from securevfl.errors import ConfigurationError
from securevfl.protocols.base.options import read
from securevfl.protocols.base.registry import find_protocols, get_protocol, make_config

SMALL = {"rounds": 4, "width": 4, "hidden": 4, "batch": 16}
WITH = [
    n for n in sorted(find_protocols()) if "class_weights" in get_protocol(n).Config.model_fields
]
REFUSED = {
    "flexvfl": "clients are told the labels of one batch",
    "cvfl": "counts the classes",
    "multivfl": "counts the classes",
    "wait_dp": "noise",
}
STREAM = np.random.default_rng(0)
X = STREAM.random((160, 4))
RARE = (np.arange(160) % 8 == 0).astype(int)


def data(labels=RARE, task="binary"):
    return VerticalDataset.from_numpy(np.split(X, 4, axis=1), labels, task=task, name="rare")


def test_all_but_dvfl_have_the_option():
    assert set(find_protocols()) - set(WITH) == {"dvfl"}


@pytest.mark.parametrize("name", ["fedvs", "coded_split", "split", "vafl", "secagg_split", "local"])
def test_weights_change_the_losses_of_a_run(name):
    plain, balanced, numbers = (
        [row["loss"] for row in svfl.run(name, data(), class_weights=kind, **SMALL).history]
        for kind in ("none", "balanced", balanced_numbers())
    )
    assert plain != balanced
    assert numbers == balanced


def balanced_numbers():
    """Weights of the training rows' classes, as numbers."""
    counts = np.bincount(data().train_labels)
    return tuple(counts.sum() / (2 * counts))


@pytest.mark.parametrize("kind", ["balanced", (1, 5)])
@pytest.mark.parametrize(("name", "why"), REFUSED.items())
def test_others_say_why_they_do_not_take_them(name, why, kind):
    with pytest.raises(ConfigurationError, match=rf"{name}: class_weights = '(bal|1,5).*{why}"):
        svfl.run(name, data(), class_weights=kind, **SMALL)


@pytest.mark.parametrize("name", sorted({*WITH} - {*REFUSED}))
def test_numbers_are_one_for_each_class_everywhere(name):
    cls = get_protocol(name)
    made = make_config(cls, {"class_weights": [1, 2.5, 3]})
    assert made.class_weights == "1,2.5,3"
    with pytest.raises(
        ConfigurationError,
        match=rf"{name}: .*has 3 numbers, and there are 2 classes \(0, 1\); give",
    ):
        cls(made, data(), seed=0)


@pytest.mark.parametrize("given", [(1, 5), [1.0, 5.0], np.array([1, 5]), "1,5", " 1, 5.0", "1,5."])
def test_numbers_become_one_text(given):
    made = make_config(get_protocol("split"), {"class_weights": given})
    assert made.class_weights == "1,5"
    assert read(made.class_weights) == (1.0, 5.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        *((one, "write none, balanced, or a number for each class") for one in (
            "x", "", "3", 3, None, (1,), (), (1, "x"), {0: 1, 1: 2}, {1, 2}, [[1, 2], [3, 4]],
            "1,,2",
        )),
        ((1, 0), "0 is no weight of a class; give finite numbers above 0"),
        ((-1, 1), "-1 is no weight"),
        ((1, np.nan), "nan is no weight"),
        ("1,inf", "inf is no weight"),
        ((1, 1e-60), "1e-60 is no weight"),
        ((1e60, 1), r"1e\+60 is no weight"),
    ],
)  # fmt: skip
def test_what_is_no_weight_is_refused(given, message):
    with pytest.raises(ConfigurationError, match=f"split: class_weights = .*: {message}"):
        make_config(get_protocol("split"), {"class_weights": given})


def test_numbers_are_kept_in_the_folder_of_a_run(tmp_path):
    run = svfl.run("split", data(), class_weights=(1, 5), out=tmp_path, **SMALL)
    again = svfl.load_run(tmp_path, data=data())
    assert again.spec.options["class_weights"] == run.spec.options["class_weights"] == "1,5"
    assert read(again.protocol.config.class_weights) == (1, 5)


def test_real_labels_and_own_losses_are_refused():
    with pytest.raises(ConfigurationError, match="real numbers"):
        svfl.run("split", data(X[:, 0], "regression"), class_weights=(1, 5), **SMALL)
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
