"""The baselines of few aligned rows: the active party alone, local SSL, FedHSSL."""

from dataclasses import replace

import numpy as np
import pytest

import securevfl as svfl
from securevfl.data import VerticalDataset, load_dataset
from securevfl.data.overlap import limit_overlap
from securevfl.engine.party import SERVER
from securevfl.errors import ConfigurationError
from securevfl.models.pretraining.cross_party import upper_names
from securevfl.models.weights import weights_of
from securevfl.testing.runs import make, simulate, tiny_data
from securevfl.verified import bare_of

SMALL = {"rounds": 4, "batch": 20, "width": 4, "pretrain_epochs": 2, "pretrain_batch": 25}


def few(aligned=50, parties=3, local=60):
    data = load_dataset("digits", parties=parties).subset(200, 50)
    return limit_overlap(data, aligned, rest="kept", local=local)


def first_party(data):
    """The same rows with the first party's columns only."""
    return VerticalDataset.from_numpy(
        data.train[0],
        data.train_labels,
        test_features=data.test[0],
        test_labels=data.test_labels,
        scaling="none",
        parties=1,
    )


# -- the active party alone ------------------------------------------------------------------------


def test_alone_on_the_aligned_rows_it_is_split_learning_of_one_party_bit_for_bit():
    data = few()
    options = {"rounds": 9, "batch": 20, "client": "mlp"}
    ours = simulate("local", data, rows="aligned", **options)
    theirs = simulate("split", first_party(data), **options)
    assert ours.losses == theirs.losses
    scores = [o.protocol.scores(o.parties, data.test) for o in (ours, theirs)]
    assert (scores[0] == scores[1]).all()


def test_alone_it_uses_the_labelled_rows_that_nobody_shares():
    data = few()
    outcome = simulate("local", data, rounds=2, batch=1000)
    assert outcome.protocol.describe()["labelled_rows"] == 110
    assert (bare_of(outcome.parties[0].features)[50:] == data.alone[0]).all()
    assert (bare_of(outcome.parties[SERVER].labels)[50:] == data.alone_labels).all()


def test_without_labels_of_those_rows_the_aligned_ones_are_used():
    unlabelled = replace(few(), alone_labels=None)
    assert simulate("local", unlabelled, rounds=2).protocol.describe()["labelled_rows"] == 50


def test_the_others_are_told_of_the_end_and_of_nothing_else():
    sent = simulate("local", few(), rounds=3).simulation.transcript.columns()
    theirs = (sent["receiver"] > 0) | (sent["sender"] > 0)
    assert sent["kind"][theirs].tolist() == ["stop", "stop"]


def test_rows_beyond_the_aligned_ones_are_nobody_s_training_rows():
    made = make("local", few())
    rows = made.named_rows(np.arange(110))
    assert sorted(rows[rows >= 0].tolist()) == list(range(50))


# -- local self-supervised learning ----------------------------------------------------------------


@pytest.mark.parametrize("method", ["simsiam", "byol", "moco", "scarf"])
def test_training_starts_from_what_every_party_learnt_alone(method):
    data, options = few(), SMALL | {"client": "mlp", "lr": 1e-9}
    outcome = simulate("ssl_local", data, method=method, **options)
    fresh = make("ssl_local", data, method=method, **options)
    for k in range(3):
        learnt = weights_of(bare_of(outcome.parties[k].pretraining.own).encoder)
        start = weights_of(fresh.client_network(k))
        for name, weight in weights_of(bare_of(outcome.parties[k].network)).items():
            np.testing.assert_allclose(weight, learnt[name], atol=1e-6)
        assert (learnt["0.weight"] != start["0.weight"]).any()
    rows = {e.party: e.fields["rows"] for e in outcome.events if e.name == "pretrained"}
    assert rows == {0: 110, 1: 110, 2: 110}


def test_without_epochs_it_is_split_learning_bit_for_bit():
    options = {"rounds": 8, "client": "mlp", "aggregation": "concat"}
    ours = simulate("ssl_local", few(), pretrain_epochs=0, **options)
    assert ours.losses == simulate("split", few(), **options).losses


# -- FedHSSL ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["simsiam", "byol", "moco"])
def test_only_upper_layers_of_local_encoders_are_shared(method):
    data = few()
    outcome = simulate("fedhssl", data, method=method, layers="7,5", **SMALL)
    pairs = [bare_of(outcome.parties[k].encoders) for k in range(3)]
    locals_ = [weights_of(pair.local) for pair in pairs]
    crosses = [weights_of(pair.cross) for pair in pairs]
    upper = upper_names(pairs[0].local.module)
    for name in locals_[0]:
        same = locals_[0][name].shape == locals_[1][name].shape and all(
            (own[name] == locals_[0][name]).all() for own in locals_[1:]
        )
        assert same == (name in upper), name
        assert not (
            crosses[0][name].shape == crosses[1][name].shape
            and (crosses[0][name] == crosses[1][name]).all()
        )
    kinds = outcome.simulation.transcript.columns()["kind"].tolist()
    assert kinds.count("upper") == kinds.count("mean") == 2 * 3


def test_shared_layers_are_the_mean_by_rows_of_what_was_sent():
    outcome = simulate(
        "fedhssl", few(), payloads=True, layers="7", **SMALL | {"pretrain_epochs": 1}
    )
    sent = outcome.simulation.transcript
    kinds = sent.columns()["kind"].tolist()
    payloads = [p for kind, p in zip(kinds, sent.payloads, strict=True) if kind == "upper"]
    total = sum(rows for rows, _, _ in payloads)
    for name in payloads[0][2]:
        wanted = sum(rows / total * own[name] for rows, _, own in payloads)
        if name.startswith("encoder/"):
            local = bare_of(outcome.parties[1].encoders).local
            place = int(name.removeprefix("encoder/"))
            found = weights_of(local)[upper_names(local.module)[place]]
        else:
            found = weights_of(bare_of(outcome.parties[1].local).heads)[name.removeprefix("heads/")]
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_client_0_meets_each_other_and_they_do_not_meet():
    sent = simulate("fedhssl", few(), **SMALL).simulation.transcript.columns()
    met = sent["kind"] == "projection"
    ends = set(zip(sent["sender"][met].tolist(), sent["receiver"][met].tolist(), strict=True))
    assert ends == {(0, 1), (0, 2), (1, 0), (2, 0)}


def test_split_training_starts_from_both_encoders():
    outcome = simulate("fedhssl", few(), **SMALL | {"lr": 1e-9})
    for k in range(3):
        party = outcome.parties[k]
        for half in ("cross", "local"):
            learnt = weights_of(getattr(bare_of(party.encoders), half))
            for name, weight in weights_of(getattr(bare_of(party.network), half)).items():
                np.testing.assert_allclose(weight, learnt[name], atol=1e-6)


def test_rounds_of_pretraining_come_before_those_of_training():
    outcome = simulate("fedhssl", few(), **SMALL)
    # Two batches of aligned rows and one local epoch an iteration, two iterations, then 4 rounds.
    hows = [e.fields["how"] for e in outcome.events if e.name == "pretrained"]
    assert hows == ["cross", "cross", "local"] * 2
    assert [e.round for e in outcome.events if e.name == "round"] == [7, 8, 9, 10]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"client": "pn"}, "client = 'pn' with 2 layers has no upper"),
        ({"degree": 1}, "with 1 layers has no upper"),
        ({"batch": 1}, "a batch has 1 rows"),
    ],
)
def test_networks_without_upper_layers_are_refused(options, said):
    with pytest.raises(ConfigurationError, match=said):
        make("fedhssl", few(), **options)


def test_one_party_has_nobody_to_meet():
    with pytest.raises(ConfigurationError, match="needs at least 2 parties, and there is 1"):
        make("fedhssl", first_party(few()))


@pytest.mark.parametrize("method", ["simsiam", "byol", "moco"])
@pytest.mark.parametrize("protocol", ["fedhssl", "ssl_local"])
def test_what_a_run_learnt_can_be_saved_and_read(protocol, method, tmp_path):
    data = limit_overlap(tiny_data(), 30, seed=0)
    small = {"rounds": 2, "pretrain_epochs": 1, "memory": 8, "width": 4, "batch": 10}
    svfl.run(protocol, data, method=method, conditions="none", out=tmp_path / "run", **small)
    with np.load(tmp_path / "run" / "model.npz") as saved:  # no pickles
        arrays = {name: saved[name] for name in saved.files}
    assert all(array.dtype.kind in "fiub" for array in arrays.values())
    again = svfl.load_run(tmp_path / "run", data=data).models()
    assert again.keys() == arrays.keys()
    assert all(np.array_equal(again[name], arrays[name]) for name in arrays)
