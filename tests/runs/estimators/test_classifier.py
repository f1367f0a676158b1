"""The classifier with FedVS: scikit-learn's checks, the protocol behind it, and helpers."""

from __future__ import annotations

import pickle
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import securevfl as svfl
from securevfl import VFLClassifier
from securevfl.errors import ConfigurationError, SecureVFLWarning
from securevfl.verified import bare_of
from tests.runs.estimators.rounds import ROUNDED, as_short_as_it_may_be

QUICK = {"rounds": 20, "lr": 0.1, "batch": 256, "random_state": 0}
SMALL = {"width": 8, "hidden": 16, "degree": 2}


def fedvs(parties=8, options=None, **more):
    """A small classifier that trains FedVS."""
    return VFLClassifier("fedvs", parties, options=SMALL | (options or {}), **QUICK | more)


# All of scikit-learn's checks of classifiers apply, and none is expected to fail. It skips
# check_array_api_input by itself: FedVS computes on NumPy arrays only. Many of
# them have one or two columns.
@pytest.mark.filterwarnings("ignore:.* without columns:securevfl.errors.SecureVFLWarning")
@parametrize_with_checks(
    [fedvs(3, {"lr_decay": "none"}, sealed=False)],
    expected_failed_checks=lambda _: ROUNDED,
)
def test_the_checks_of_scikit_learn(estimator, check):
    check(as_short_as_it_may_be(estimator, check))


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X, np.array(["setosa", "versicolor", "virginica"])[y]


@pytest.fixture(scope="module")
def fitted(iris):
    return fedvs(4, {"segments": 1}).fit(*iris)


def test_it_is_the_protocol_that_trains(iris, fitted):
    X, y = iris
    data = svfl.data.VerticalDataset.from_numpy(
        [X[:, [k]] for k in range(4)], y, test_features=[X[:5, [k]] for k in range(4)],
        test_labels=y[:5],
    )  # fmt: skip
    options = {name: value for name, value in QUICK.items() if name != "random_state"} | SMALL
    run = svfl.run("fedvs", data, segments=1, seed=0, conditions="none", **options)
    assert [row["loss"] for row in fitted.run_.history] == [row["loss"] for row in run.history]
    assert (fitted.predict(X) == run.predict(X)).all()
    assert fitted.n_iter_ == 20
    assert fitted.owners_ == [[0], [1], [2], [3]]


def test_it_learns(iris, fitted):
    assert fitted.score(*iris) > 0.9
    assert list(fitted.classes_) == ["setosa", "versicolor", "virginica"]
    np.testing.assert_allclose(fitted.predict_proba(iris[0]).sum(axis=1), 1)


def test_a_coded_prediction_is_the_same(iris, fitted):
    X = iris[0][::7]
    assert (fitted.predict(X, coded=True) == fitted.predict(X)).all()
    np.testing.assert_allclose(
        fitted.predict_proba(X, coded=True), fitted.predict_proba(X), atol=1e-4
    )


def test_pickling_keeps_the_models_and_leaves_the_run(iris, fitted):
    again = pickle.loads(pickle.dumps(fitted))  # noqa: S301 (our own bytes)
    assert (again.predict_proba(iris[0]) == fitted.predict_proba(iris[0])).all()
    assert not hasattr(again, "run_")
    with pytest.raises(ConfigurationError, match="needs run_"):
        again.predict(iris[0], coded=True)


def test_columns_keep_their_names(fitted, iris):
    X = pd.DataFrame(iris[0], columns=["a", "b", "c", "d"])
    named = clone(fitted).fit(X, iris[1])
    with pytest.raises(ValueError, match="feature names should match"):
        named.predict(X[["b", "a", "c", "d"]])


def test_pipelines_and_searches(iris):
    pipeline = make_pipeline(StandardScaler(), fedvs(sealed=False))
    tried = {"vflclassifier__options": [SMALL | {"degree": degree} for degree in (1, 2)]}
    search = GridSearchCV(pipeline, tried, cv=2, error_score="raise").fit(*iris)
    assert search.best_score_ > 0.8


@pytest.mark.parametrize(
    ("features", "options", "owners"),
    [
        (1, {}, [[0], [], []]),
        (2, {"options": {"privacy": 2}, "parties": 1}, [[0, 1], [], [], [], []]),
        (4, {"owners": [[3], [0, 2], [1]]}, [[3], [0, 2], [1]]),
        (4, {"parties": 3}, [[0, 1], [2], [3]]),
        (3, {"options": {"masked": False, "segments": 2}}, [[0], [1], [2], [], []]),
    ],
)
def test_columns_are_dealt_and_helpers_make_up_the_number(iris, features, options, owners):
    X, y = iris[0][:, :features], iris[1]
    made = fedvs(**{"rounds": 2, "sealed": False, **options})
    helpers = owners.count([])
    warned = pytest.warns(SecureVFLWarning, match=rf"{helpers} helper\(s\)")
    with warned if helpers else nullcontext():
        made.fit(X, y)
    assert made.owners_ == owners
    assert made.run_.protocol.data.parties == len(owners)
    assert made.predict(X).shape == (150,)


def test_one_s_own_centre(iris):
    from torch import nn

    def head(inputs, outputs):
        return nn.Sequential(nn.Tanh(), nn.Linear(inputs, outputs))

    made = fedvs(options={"own_centre": head}, sealed=False).fit(*iris)
    assert isinstance(bare_of(made.run_.parties[-1].centre).network[0], nn.Tanh)
    assert made.score(*iris) > 0.7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"owners": [[0, 1], [1, 2]]}, "each of the 4 columns, 0 to 3, needs one owner"),
        ({"owners": [[0.5, 1], [2, 3]]}, "numbers of columns"),
        ({"owners": [[False, 1], [2, 3]]}, "numbers of columns"),
        ({"parties": 0}, "parties must be at least 1"),
        ({"parties": 2.5}, "a whole number; they are 2.5"),
        ({"options": {"lr": 1.0}}, "options has lr"),
        ({"options": {"lrr": 1.0}}, "unknown option of fedvs 'lrr'"),
        ({"prime": 7}, "unexpected keyword"),
        ({"options": {"segments": 3, "prime": 7}}, "7"),
    ],
)
@pytest.mark.filterwarnings("ignore:.* without columns:securevfl.errors.SecureVFLWarning")
def test_mistakes_are_named(iris, options, message):
    kind = TypeError if "prime" in options else ValueError
    with pytest.raises(kind, match=message):
        fedvs(**options).fit(*iris)
