"""Measures of a classifier beside its accuracy."""

import numpy as np
import pytest

from securevfl.models.quality import QUALITY, quality

TRAIN = np.array([0, 0, 0, 1, 1])


def test_two_classes_by_hand():
    # Probabilities of class 1: 0.8, 0.8, 0.2, 0.2; the truth: 1, 0, 0, 0.
    scores = np.log(4.0) * np.array([[1.0], [1.0], [-1.0], [-1.0]])
    found = quality("binary", scores, np.array([1, 0, 0, 0]), TRAIN)
    assert tuple(found) == tuple(name for name in QUALITY if name != "mean_rmse")
    assert found["majority_accuracy"] == 0.75
    assert found["test_balanced_accuracy"] == pytest.approx((1 + 2 / 3) / 2)
    assert found["test_average_precision"] == pytest.approx(0.5)
    assert found["test_brier"] == pytest.approx((3 * 2 * 0.2**2 + 2 * 0.8**2) / 4)
    assert found["test_calibration_error"] == pytest.approx(0.8 - 0.75)


def test_many_classes_by_hand():
    shares = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.2, 0.5, 0.3]])
    labels = np.array([0, 1, 2])
    found = quality("multiclass", np.log(shares), labels, np.array([2, 2, 1]))
    assert "test_average_precision" not in found
    assert found["majority_accuracy"] == pytest.approx(1 / 3)
    assert found["test_balanced_accuracy"] == pytest.approx(2 / 3)
    brier = ((shares - np.eye(3)) ** 2).sum() / 3
    assert found["test_brier"] == pytest.approx(brier)
    # One bin holds the first row (right, 0.6), another both others (one of two right, 0.5).
    assert found["test_calibration_error"] == pytest.approx(0.4 / 3)


def test_a_class_without_rows_does_not_count():
    scores = np.array([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]])
    found = quality("multiclass", scores, np.array([0, 1]), TRAIN)
    assert found["test_balanced_accuracy"] == 1.0
    assert "test_average_precision" not in quality(
        "binary", np.ones((2, 1)), np.ones(2, int), TRAIN
    )


def test_a_regression_has_the_error_of_the_mean_of_the_training_rows():
    found = quality("regression", np.ones((2, 1)), np.array([1.0, 5.0]), np.array([2.0, 4.0]))
    assert found == {"mean_rmse": 2.0}


def test_test_rows_of_one_class_have_no_balanced_accuracy():
    found = quality("binary", -np.ones((3, 1)), np.zeros(3, np.int64), np.array([0, 0, 1]))
    assert found["majority_accuracy"] == 1
    assert "test_balanced_accuracy" not in found
