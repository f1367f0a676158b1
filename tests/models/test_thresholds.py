"""Precision, recall and areas at all thresholds, against scikit-learn's."""

import numpy as np
import pytest
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    precision_recall_curve,
    roc_auc_score,
)

from securevfl.models.evaluation import Thresholds, evaluation
from securevfl.models.split import measure


@pytest.mark.parametrize("values", [2, 7, 10**6])
def test_measures_of_two_classes_are_those_of_scikit_learn(values):
    """With many equal scores and without."""
    draw = np.random.default_rng(values)
    for rows in (2, 3, 17, 150):
        labels = np.append([0, 1], draw.integers(0, 2, rows - 2))
        scores = draw.integers(-values, values, rows) / 8
        found = Thresholds.of(labels, scores)
        assert found.average_precision == pytest.approx(average_precision_score(labels, scores))
        assert found.auc == pytest.approx(roc_auc_score(labels, scores))
        measured = measure("binary", scores.reshape(-1, 1), labels)
        assert measured["f1"] == f1_score(labels, scores > 0, zero_division=0.0)
        assert measured["auc"] == found.auc
        told = evaluation("binary", scores.reshape(-1, 1), labels, ("a", "b"))
        curve = told["precision_recall"][0]
        precision, recall, _ = precision_recall_curve(labels, scores, drop_intermediate=True)
        assert curve["precision"] == pytest.approx(precision[::-1])
        assert curve["recall"] == pytest.approx(recall[::-1])
