"""Measures of a finished classifier besides accuracy: against guessing, and probabilities."""

from __future__ import annotations

import numpy as np

from securevfl.models.evaluation import Thresholds, calibration, guesses
from securevfl.models.scores import probabilities

#: Measures of an evaluation during a run.
MEASURES = ("accuracy", "auc", "f1", "rmse", "r2")
#: Measures by name, in the order in which they are shown; the first two are of no model.
QUALITY = (
    "majority_accuracy",
    "mean_rmse",
    "test_balanced_accuracy",
    "test_average_precision",
    "test_brier",
    "test_calibration_error",
)


def quality(
    task: str, scores: np.ndarray, labels: np.ndarray, train_labels: np.ndarray
) -> dict[str, float]:
    """Measures of raw test scores, and baselines that need no model.

    Parameters
    ----------
    task : {"binary", "multiclass", "regression"}
        Learning task of the labels.
    scores : ndarray, (rows, 1) of two classes or (rows, C)
        Raw scores, which `probabilities` converts.
    labels, train_labels : ndarray of int
        Classes of the test and of the training rows.

    Returns
    -------
    dict
        For a regression ``mean_rmse``, the error of predicting the mean of the training rows. Else
        ``majority_accuracy``, the accuracy of predicting the most frequent training class; if at
        least two classes occur, ``test_balanced_accuracy``, the mean recall of the classes that
        occur; for two classes ``test_average_precision`` (of class 1, if both occur);
        ``test_brier``, the mean squared distance between probabilities and truth, in [0, 2];
        ``test_calibration_error``, the expected difference between confidence and accuracy in 15
        equal bins of confidence. All but the Brier score are in [0, 1].

    References
    ----------
    Brier, "Verification of forecasts expressed in terms of probability", 1950; Guo et al., "On
    calibration of modern neural networks", ICML 2017 (expected calibration error).
    """
    if task == "regression":
        mean = train_labels.mean(dtype=np.float64)
        return {"mean_rmse": float(np.sqrt(np.mean((labels - mean) ** 2)))}
    shares = probabilities(task, scores.reshape(len(labels), -1))
    right = guesses(task, scores.reshape(len(labels), -1)) == labels
    usual = np.bincount(train_labels.astype(np.int64)).argmax()
    counts = np.bincount(labels, minlength=shares.shape[1])
    recall = np.bincount(labels, weights=right, minlength=shares.shape[1])
    found = {"majority_accuracy": float(np.mean(labels == usual))}
    if (there := counts > 0).sum() > 1:
        found["test_balanced_accuracy"] = float(np.mean(recall[there] / counts[there]))
    if task == "binary" and 0 < labels.sum() < len(labels):
        found["test_average_precision"] = Thresholds.of(
            labels, scores.reshape(-1)
        ).average_precision
    truth = np.eye(shares.shape[1])[labels]
    found["test_brier"] = float(((shares - truth) ** 2).sum(axis=1).mean())
    rows, confidence, accuracy = (np.array(each) for each in calibration(shares, right).values())
    found["test_calibration_error"] = float(rows @ np.abs(accuracy - confidence) / len(right))
    return found
