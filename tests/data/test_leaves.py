"""Leaf columns of each party's own trees: grown on training rows, and applied to new rows."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import securevfl as svfl
from securevfl.data import load_dataset
from securevfl.data.leaves import add_leaves
from securevfl.data.local_tables import TableOwner, Tables
from securevfl.data.overlap import limit_overlap
from securevfl.engine.party import SERVER
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import ConfigurationError, DataError
from securevfl.protocols.base.registry import find_protocols, make_config


@pytest.fixture(scope="module")
def frame():
    draw = np.random.default_rng(1)
    made = pd.DataFrame(draw.normal(size=(200, 6)), columns=list("abcdef"))
    made["town"] = draw.choice(["north", "south"], 200)
    made["ill"] = (made["a"] * made["b"] + made["e"] > 0).astype(int)
    return made


@pytest.fixture(scope="module")
def data(frame):
    return svfl.VerticalDataset.from_pandas(frame, "ill", parties=3)


def test_trees_look_at_training_rows_and_the_named_party_s_labels_alone(data):
    widened = add_leaves(data, 5, labels_of="party 1", seed=2)
    turned = replace(
        data, test=tuple(-X for X in data.test), train_labels=np.roll(data.train_labels, 1)
    )
    other = add_leaves(turned, 5, labels_of="party 1", seed=2)
    same = [a == b for a, b in zip(widened.transform.parties, other.transform.parties, strict=True)]
    assert same == [True, False, True]
    for n in range(3):
        assert np.array_equal(widened.without_leaves[n], data.train[n])
        assert widened.widths[n] > data.widths[n]
    assert "those of 'party 1' are boosted on the labels" in widened.about.notes[-1]


def test_a_run_its_folder_and_its_export_have_the_leaves_of_new_rows(data, frame, tmp_path):
    widened = add_leaves(data, 5, labels_of="party 0")
    small = {"rounds": 3, "width": 2, "batch": 16, "conditions": "none", "seed": 0}
    run = svfl.run("split", widened, out=tmp_path / "run", **small)
    new = frame.drop(columns="ill").iloc[:7]
    for part, X in zip(widened.transform.apply(new), widened.train, strict=True):
        assert part.shape == (7, X.shape[1])
    wanted = run.scores(new)
    np.testing.assert_allclose(svfl.load_models(tmp_path / "run").scores(new), wanted, rtol=1e-5)
    run.export(tmp_path / "models")
    np.testing.assert_allclose(svfl.load_models(tmp_path / "models").scores(new), wanted, rtol=1e-5)


def test_rows_that_a_party_holds_alone_have_leaves_too(data):
    widened = add_leaves(limit_overlap(data, 60), 4)
    assert [X.shape[1] for X in widened.alone] == list(widened.widths)


def test_a_set_is_named_with_its_trees():
    named = load_dataset("digits", parties=2, trees=3, tree_depth=2, seed=4)
    assert all(32 < width <= 32 + 12 for width in named.widths)
    assert named.image_shape is None
    again = load_dataset("digits", parties=2, trees=3, tree_depth=2, seed=4)
    assert named.fingerprint() == again.fingerprint()


def test_owners_of_tables_grow_their_own_trees(data, tmp_path):
    for n, X in enumerate(data.train):
        names = [f"x{k}" for k in range(X.shape[1])]
        pd.DataFrame(X, columns=names).to_csv(tmp_path / f"{n}.csv", index=False)
    labels = pd.DataFrame({"ill": data.train_labels})
    labels.to_csv(tmp_path / "labels.csv", index=False)
    files = {
        "party_files": [str(tmp_path / f"{n}.csv") for n in range(3)],
        "label_file": str(tmp_path / "labels.csv"),
        "label": "ill",
    }
    tables = Tables.of({**files, "trees": 4, "seed": 5})
    owners = {n: TableOwner(n, range(3), tables, tmp_path / str(n)) for n in (SERVER, 0, 1, 2)}
    Simulation(owners).run()
    facts = tables_facts(owners)
    seen = tables.seen_by(1, facts, tmp_path / "1")
    plain = Tables.of({**files, "seed": 5}).part(1, *rows_of(tmp_path / "1"))
    assert np.array_equal(seen.train[1], add_leaves(plain, 4, seed=5).train[0])
    server = tables.seen_by(SERVER, facts, tmp_path / str(SERVER))
    assert server.has_leaves
    assert server.widths == seen.widths
    with pytest.raises(DataError, match="version of scikit-learn"):
        Tables.of({**files, "trees": 4, "seed": 6}).seen_by(1, facts, tmp_path / "1")
    with pytest.raises(DataError, match="tree_labels"):
        Tables.of({**files, "trees": 4, "tree_labels": "party 0"})


def tables_facts(owners):
    from securevfl.data.local_tables import PublicFacts

    return PublicFacts.of(owners[SERVER].facts)


def rows_of(place):
    kept = np.load(place / "rows.npz")
    return kept["train"], kept["test"]


def test_a_budget_of_sums_does_not_count_leaves_as_unknowns(data):
    widened = add_leaves(data, 5)
    cls = find_protocols()["fedvs"]
    with pytest.raises(ConfigurationError, match="leaf columns"):
        cls(make_config(cls, {"rounds": 2}), widened, seed=0)
    free = make_config(cls, {"rounds": 2, "width": 4})
    told = cls(free, widened, seed=0).released()
    assert told.unknowns == cls(free, data, seed=0).released().unknowns
    assert told.rank > told.unknowns + 1


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"trees": 3, "tree_labels": "bank"}, "is no party; the parties are guest, host"),
        ({"tree_labels": "guest"}, "there are no trees"),
        ({"trees": -1}, "use 1 or more"),
        ({"trees": 2.5}, "use 1 or more"),
        ({"trees": 3, "tree_depth": 1.5}, "a depth of 1 to 8"),
    ],
)
def test_what_cannot_be_grown_is_refused(asked, why):
    with pytest.raises(DataError, match=why):
        load_dataset("breast-cancer", **asked)


def test_grown_sets_are_not_divided_and_not_grown_again(data):
    widened = add_leaves(data, 2)
    with pytest.raises(DataError, match="choose the parties first"):
        widened.with_parties(2)
    with pytest.raises(DataError, match="has leaf columns already"):
        add_leaves(widened, 2)


def test_an_estimator_has_leaves_in_prediction(frame):
    X, y = frame.drop(columns=["ill", "town"]).to_numpy(), frame["ill"]
    small = {"rounds": 3, "batch": 16, "options": {"width": 2}, "random_state": 0}
    made = svfl.VFLClassifier("split", 2, trees=3, **small).fit(X, y)
    assert made.run_.protocol.data.has_leaves
    assert made.predict_proba(X[:5]).shape == (5, 2)
