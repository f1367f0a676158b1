"""Confusion, calibration, precision and recall, against scikit-learn and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import average_precision_score, confusion_matrix

from securevfl.models.evaluation import evaluation
from securevfl.models.scores import probabilities

STREAM = np.random.default_rng(4)
MANY = STREAM.normal(size=(90, 4)).astype(np.float32)
TRUE = STREAM.integers(0, 4, 90)
TWO = STREAM.normal(size=(700, 1)).astype(np.float32)
EITHER = (STREAM.random(700) < probabilities("binary", TWO)[:, 1]).astype(np.int64)


def test_confusion_is_that_of_scikit_learn():
    found = evaluation("multiclass", MANY, TRUE, "abcd")
    assert found["confusion"] == confusion_matrix(TRUE, MANY.argmax(axis=1)).tolist()
    assert found["classes"] == list("abcd")


def test_class_numbers_of_a_byte_do_not_wrap():
    labels = np.array([200, 3], np.uint8)
    found = evaluation("multiclass", np.eye(250)[labels], labels, [*map(str, range(250))])
    assert np.argwhere(found["confusion"]).tolist() == [[3, 3], [200, 200]]


def test_a_tie_of_two_classes_is_the_first_as_in_accuracy():
    found = evaluation("binary", np.zeros((3, 1), np.float32), np.array([0, 1, 1]), "ny")
    assert found["confusion"] == [[1, 0], [2, 0]]


def test_calibration_is_that_of_scikit_learn():
    found = evaluation("binary", TWO, EITHER, "ny")["calibration"]
    shares = probabilities("binary", TWO)
    right = (TWO[:, 0] > 0) == EITHER
    accuracy, confidence = calibration_curve(right, shares.max(axis=1), n_bins=15)
    np.testing.assert_allclose(found["accuracy"], accuracy)
    np.testing.assert_allclose(found["confidence"], confidence)
    assert sum(found["rows"]) == len(TWO)


@pytest.mark.parametrize(("place", "name"), list(enumerate("abcd")))
def test_a_curve_stands_for_each_class(place, name):
    curve = evaluation("multiclass", MANY, TRUE, "abcd")["precision_recall"][place]
    share = probabilities("multiclass", MANY)[:, place]
    assert curve["class"] == name
    wanted = average_precision_score(place == TRUE, share)
    assert curve["average_precision"] == pytest.approx(wanted, rel=1e-12)
    assert curve["share"] == np.mean(place == TRUE)


def test_points_of_a_curve_are_thresholds_and_few():
    curve = evaluation("binary", TWO, EITHER, "ny")["precision_recall"][0]
    assert len(curve["recall"]) == len(curve["precision"]) == 200
    assert curve["recall"] == sorted(curve["recall"])
    order = EITHER[np.argsort(-TWO[:, 0])]
    hits = np.cumsum(order)
    points = {(1.0, 0.0), *zip(hits / np.arange(1, 701), hits / hits[-1], strict=True)}
    assert set(zip(curve["precision"], curve["recall"], strict=True)) <= points


def test_a_class_that_does_not_occur_and_a_regression_have_none():
    alone = evaluation("binary", TWO, np.zeros(700, np.int64), "ny")
    assert alone["precision_recall"] == []
    assert evaluation("regression", TWO, TWO[:, 0], ()) == {}
