"""Classifiers and regressors of any protocol: scikit-learn's checks, texts, weights."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes, load_iris
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import securevfl as svfl
from securevfl import VFLClassifier, VFLRegressor
from securevfl.errors import ConfigurationError, DataError, SecureVFLWarning
from tests.runs.estimators.rounds import ROUNDED, as_short_as_it_may_be

QUICK = {"rounds": 20, "lr": 0.1, "batch": 256, "random_state": 0, "sealed": False}
LONGER = {**QUICK, "rounds": 60, "lr": 0.05}
SMALL = {"width": 8, "hidden": 16}


@parametrize_with_checks(
    [VFLClassifier("split", 3, **QUICK | {"rounds": 30}), VFLRegressor("split", 3, **LONGER)],
    expected_failed_checks=lambda _: ROUNDED,
)
def test_the_checks_of_scikit_learn(estimator, check):
    check(as_short_as_it_may_be(estimator, check))


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
        VFLClassifier("fedvs", 2, **QUICK, options=SMALL),  # one helper
    ],
)
@pytest.mark.filterwarnings("ignore:.* without columns:securevfl.errors.SecureVFLWarning")
@pytest.mark.filterwarnings("ignore:column 'town'.*lack:securevfl.errors.SecureVFLWarning")
def test_columns_of_texts_are_encoded_and_kept(people, made):
    frame, y = people
    made.fit(frame, y)
    assert made.score(frame, y) > 0.95
    assert list(made.feature_names_in_) == list(frame.columns)
    new = frame.iloc[:9].assign(town=["Bern", "Chur", "Rom"] * 3)
    again = pickle.loads(pickle.dumps(made))  # noqa: S301 (our own bytes)
    with pytest.warns(SecureVFLWarning, match="'town': 3 of 9 rows have a text .* first 'Rom' in"):
        told = made.predict_proba(new)
    assert (again.predict_proba(new) == told).all()
    if made.texts_ and made.run_.protocol.name == "fedvs":
        assert (made.predict(new, coded=True) == made.predict(new)).all()
    with pytest.raises(DataError, match="fitted on a data frame with texts"):
        again.predict(new.to_numpy())
    with pytest.raises(ValueError, match="feature names should match"):
        again.predict(new[["town", "age", "member", "plan"]])


@pytest.mark.parametrize(
    ("made", "option"),
    [
        (VFLClassifier("split", 3, class_weight={"yes": 4, "no": 0.5}, **QUICK), "0.5,4"),
        (VFLClassifier("split", 3, class_weight={"yes": 4}, **QUICK), "1,4"),
        (VFLClassifier("fedvs", 3, class_weight={"yes": 4}, options=SMALL, **QUICK), "1,4"),
        (VFLClassifier("split", 3, class_weight="balanced", **QUICK), "balanced"),
        (VFLClassifier("split", 3, **QUICK), "none"),
    ],
)
def test_weights_of_classes_are_the_option_of_the_protocol(people, made, option):
    assert made.fit(*people).run_.protocol.config.class_weights == option


def test_weights_by_numbers_of_classes_follow_sorted_labels(iris):
    X, y = iris
    labels = np.array([30, 10, 20])[y]
    made = VFLClassifier("split", 3, class_weight={20: 2, 30: 3}, **QUICK).fit(X, labels)
    assert made.run_.protocol.config.class_weights == "1,2,3"  # of 10, 20 and 30


def test_a_weightier_class_is_predicted_more_often(iris):
    X, y = iris
    found = [
        VFLClassifier("split", 3, class_weight={1: weight}, **QUICK | {"lr": 0.05}).fit(X, y)
        for weight in (0.1, 1, 10)
    ]
    counts = [int((made.predict(X) == 1).sum()) for made in found]
    assert counts[0] < counts[1] < counts[2]


@pytest.mark.parametrize(
    ("protocol", "weight", "message"),
    [
        ("split", {0: 1, 1: 0}, "0 is no weight of a class"),
        ("split", {0: 1, 3: 2}, r"The classes, \[.*1.*2.*\], are not in class_weight"),
        ("split", "equal", "class_weight"),
        ("dvfl", "balanced", "class_weight = 'balanced', and dvfl has no weights of classes"),
        ("cvfl", "balanced", "cvfl: class_weights = 'balanced' has no use"),
    ],
)
def test_weights_that_cannot_be_used_are_refused(iris, protocol, weight, message):
    with pytest.raises(ValueError, match=message):
        VFLClassifier(protocol, 3, class_weight=weight, **QUICK).fit(*iris)


def test_weights_are_given_once_and_regressors_have_none(iris):
    options = {"class_weights": "balanced"}
    made = VFLClassifier("split", 3, options=options, **QUICK).fit(*iris)
    assert made.run_.protocol.config.class_weights == "balanced"
    with pytest.raises(ConfigurationError, match="options has class_weights, which is a parameter"):
        VFLClassifier("split", 3, class_weight="balanced", options=options, **QUICK).fit(*iris)
    assert "class_weight" not in VFLRegressor().get_params()


def test_models_that_stay_in_shares_predict_within_their_run(iris):
    made = VFLClassifier("coded_split", 4, **QUICK, options={"helpers": 2}).fit(*iris)
    assert (made.predict(iris[0], coded=True) == made.predict(iris[0])).mean() > 0.9
    again = pickle.loads(pickle.dumps(made))  # noqa: S301 (our own bytes)
    with pytest.raises(ConfigurationError, match="a prediction of coded_split needs run_"):
        again.predict(iris[0])


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


WEIGHED = ["split", "vafl", "fedvs", "coded_split", "secagg_split", "he_split"]


def weighed_rows(task):
    """Rows with weights 1 to 3, and the same rows repeated so often."""
    draw = np.random.default_rng(3)
    X = draw.random((24, 4))
    X[:2] = [[0.0] * 4, [1.0] * 4]
    y = X[:, 0] + X[:, 2] - 1
    y = y if task is VFLRegressor else (y > 0).astype(int)
    times = draw.integers(1, 4, 24)
    return (X, y, times), (np.repeat(X, times, axis=0), np.repeat(y, times))


@pytest.mark.parametrize("kind", [VFLClassifier, VFLRegressor])
def test_weights_are_repeated_rows(kind):
    weighed, repeated = weighed_rows(kind)
    made = kind("split", 2, rounds=15, lr=0.05, batch=256, options=SMALL, random_state=0)
    wanted = made.fit(*repeated).model_.scores([X := repeated[0][:, :2], repeated[0][:, 2:]])
    found = made.fit(*weighed).model_.scores([X, repeated[0][:, 2:]])
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)
    even = made.fit(*weighed[:2]).model_.scores([X, repeated[0][:, 2:]])
    assert np.abs(even - wanted).max() > 0.01
    assert made.score(*weighed) == pytest.approx(made.score(*repeated))


@pytest.mark.parametrize("protocol", WEIGHED)
def test_weights_change_what_is_learnt(protocol):
    pytest.importorskip("tenseal") if protocol == "he_split" else None
    (X, y, times), _ = weighed_rows(VFLClassifier)
    small = {"rounds": 2, "lr": 0.1, "batch": 24, "random_state": 0}
    made = VFLClassifier(protocol, 4, **small, options={"width": 2, "hidden": 4})
    losses = [made.fit(X, y, w).run_.history[-1]["loss"] for w in (None, times, 2.0 * times)]
    assert losses[0] != losses[1]
    assert losses[1] == losses[2]


@pytest.mark.parametrize("protocol", ["local", "cvfl", "wait_dp", "dvfl", "flexvfl"])
def test_methods_that_cannot_weigh_rows_refuse(protocol):
    (X, y, times), _ = weighed_rows(VFLClassifier)
    with pytest.raises(ConfigurationError, match="Leave the weights"):
        VFLClassifier(protocol, 4, rounds=1).fit(X, y, times)


def test_a_row_of_weight_0_is_left_out():
    (X, y, times), _ = weighed_rows(VFLClassifier)
    kept = times < 3
    assert 1 < kept.sum() < len(y)
    made = VFLClassifier("split", 2, rounds=3, batch=8, random_state=0)
    losses = [
        made.fit(*rows).run_.history[-1]["loss"]
        for rows in ((X, y, times * kept), (X[kept], y[kept], times[kept]))
    ]
    assert losses[0] == losses[1]
    assert made.score(X, y, times * kept) == made.score(X[kept], y[kept], times[kept])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda w: w * 0, "weights of all rows are zero"),
        (lambda w: -w, "the weight of row 0 is -"),
        (lambda w: np.where(w < 2, np.nan, w), "the weight of row . is nan"),
        (lambda w: w[1:], r"shape \(23,\)"),
        (lambda w: ["a"] * len(w), "no numbers"),
    ],
)
def test_weights_that_mean_nothing_are_refused(change, why):
    (X, y, times), _ = weighed_rows(VFLClassifier)
    made = VFLClassifier("split", 2, rounds=1, batch=8, random_state=0).fit(X, y)
    for use in (made.fit, made.score):
        with pytest.raises(DataError, match=why):
            use(X, y, change(times))


def test_a_class_without_weight_is_no_class_and_moves_no_other(iris):
    X, y = iris
    made = VFLClassifier("split", 4, **QUICK, options=SMALL)
    made.fit(X, y, sample_weight=(y != 1).astype(float))
    assert made.classes_.tolist() == [0, 2]
    assert made.predict_proba(X).shape == (len(X), 2)
    assert made.score(X[y != 1], y[y != 1]) > 0.9
    with pytest.raises(DataError, match="y has 1 class"):
        VFLClassifier("split", 4).fit(X, y, sample_weight=(y == 1).astype(float))


def test_targets_that_float32_makes_alike_are_refused(iris):
    X, _ = iris
    with pytest.raises(DataError, match=r"lose up to .* as float32; subtract"):
        VFLRegressor("split", 4).fit(X, 1.7e9 + 10 * X[:, 0])


def test_weights_that_float32_makes_0_or_infinite_are_named(iris):
    X, y = iris
    for number, text in ((1e-46, "1e-46"), (1e39, "1e\\+39")):
        weights = np.ones(len(y))
        weights[7] = number
        with pytest.raises(DataError, match=f"row 7 is {text}; give weights from 1e-38"):
            VFLClassifier("split", 4).fit(X, y, sample_weight=weights)
