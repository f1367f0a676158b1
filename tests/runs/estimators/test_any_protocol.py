"""Classifiers and regressors of any protocol: scikit-learn's checks, texts, saved models."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes, load_iris
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import securevfl as svfl
from securevfl import FedVSClassifier, VFLClassifier, VFLRegressor
from securevfl.errors import ConfigurationError, DataError

QUICK = {"rounds": 20, "lr": 0.1, "batch": 256, "random_state": 0, "sealed": False}
LONGER = {**QUICK, "rounds": 60, "lr": 0.05}


@parametrize_with_checks(
    [VFLClassifier("split", 3, **LONGER), VFLRegressor("split", 3, **LONGER)],
    expected_failed_checks=lambda _: {},
)
def test_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.mark.parametrize(
    ("protocol", "options"),
    [("split", {}), ("coded_split", {"helpers": 2, "client_lr": 1.0}), ("vafl", {})],
)
def test_it_is_the_protocol_that_trains(iris, protocol, options):
    X, y = iris
    made = VFLClassifier(protocol, 4, **QUICK, options=options).fit(X, y)
    parts = [X[:, [k]] for k in range(4)]
    data = svfl.VerticalDataset.from_numpy(
        parts, y, test_features=[part[:1] for part in parts], test_labels=y[:1]
    )
    options = {name: value for name, value in QUICK.items() if name != "random_state"} | options
    run = svfl.run(protocol, data, seed=0, conditions="none", eval_every=20, **options)
    assert [row["loss"] for row in made.run_.history] == [row["loss"] for row in run.history]
    assert (made.predict(X) == run.predict(parts).astype(int)).all()


def test_a_regressor_learns_and_a_scaled_target_is_enough():
    X, y = load_diabetes(return_X_y=True)
    options = {**QUICK, "rounds": 150, "lr": 0.01}
    scaled = TransformedTargetRegressor(
        VFLRegressor("split", 5, **options), transformer=StandardScaler()
    )
    assert scaled.fit(X, y).score(X, y) > 0.4
    assert scaled.regressor_.run_.protocol.data.task == "regression"


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 80, 200),
            "town": rng.choice(["Bern", "Chur", "Genf"], 200),
            "member": rng.random(200) < 0.5,
            "plan": pd.Categorical(rng.choice(["a", "b"], 200)),
        }
    )
    return frame, np.where((frame["town"] == "Chur") | frame["member"], "yes", "no")


@pytest.mark.parametrize(
    "made",
    [
        VFLClassifier("split", 3, **QUICK),
        FedVSClassifier(2, **QUICK, width=8, hidden=16),  # one helper
    ],
)
def test_columns_of_texts_are_encoded_and_kept(people, made, tmp_path):
    frame, y = people
    made.fit(frame, y)
    assert made.score(frame, y) > 0.95
    assert list(made.feature_names_in_) == list(frame.columns)
    new = frame.iloc[:9].assign(town=["Bern", "Chur", "Rom"] * 3)
    if made.texts_ and made.run_.protocol.name == "fedvs":
        assert (made.predict(new, coded=True) == made.predict(new)).all()
    made.save(tmp_path)
    again = type(made).load(tmp_path)
    assert (again.predict_proba(new) == made.predict_proba(new)).all()
    with pytest.raises(DataError, match="fitted on a data frame with texts"):
        again.predict(new.to_numpy())
    with pytest.raises(ValueError, match="feature names should match"):
        again.predict(new[["town", "age", "member", "plan"]])


def test_models_that_stay_in_shares_predict_within_their_run(iris):
    made = VFLClassifier("coded_split", 4, **QUICK, options={"helpers": 2}).fit(*iris)
    assert (made.predict(iris[0], coded=True) == made.predict(iris[0])).mean() > 0.9
    again = pickle.loads(pickle.dumps(made))  # noqa: S301 (our own bytes)
    with pytest.raises(ConfigurationError, match="a prediction of coded_split needs run_"):
        again.predict(iris[0])


def test_a_saved_regressor_predicts_the_same(tmp_path):
    X, y = load_diabetes(return_X_y=True)
    made = VFLRegressor("split", 5, **QUICK).fit(X[:50], y[:50] / 100)
    made.save(tmp_path)
    assert (VFLRegressor.load(tmp_path).predict(X) == made.predict(X)).all()
    with pytest.raises(DataError, match=r"classifier\.json cannot be read"):
        VFLClassifier.load(tmp_path)


def test_mistakes_are_named(iris, people):
    X, y = iris
    with pytest.raises(ValueError, match="unknown protocol 'splitt'"):
        VFLClassifier("splitt", 3, **QUICK).fit(X, y)
    with pytest.raises(ValueError, match="options has lr"):
        VFLClassifier("split", 3, **QUICK, options={"lr": 1.0}).fit(X, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        VFLClassifier("split", 3, **QUICK).fit(people[0], people[1][:-1])
    with pytest.raises(ValueError, match="Unknown label type"):
        VFLClassifier("split", 3, **QUICK).fit(X, X[:, 0])
