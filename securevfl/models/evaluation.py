"""Confusion, calibration, precision and recall of a finished classifier on the test rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from securevfl.models.scores import probabilities

BINS = 15
_MOST_POINTS = 200  # of a curve of precision and recall; beyond, points of even places are kept
_MOST_CURVES = 10  # classes that get a curve of their own


def guesses(task: str, scores: np.ndarray) -> np.ndarray:
    """Class numbers for raw scores, (rows,) int64; a tie of two classes gives class 0."""
    if task == "binary":
        return (scores.reshape(-1) > 0).astype(np.int64)
    return np.asarray(scores.argmax(axis=1), np.int64)


def calibration(shares: np.ndarray, right: np.ndarray) -> dict[str, list[float]]:
    """Rows, mean confidence and accuracy of 15 equal bins of confidence that are not empty.

    Parameters
    ----------
    shares : ndarray, (rows, C)
        Probabilities of the classes.
    right : ndarray of bool, (rows,)
        Whether the predicted class is the true one.

    Returns
    -------
    dict
        ``rows``, ``confidence``, ``accuracy``: one number per bin, in the order of the bins.

    References
    ----------
    Guo et al., "On calibration of modern neural networks", ICML 2017.
    """
    confidence = shares.max(axis=1)
    bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    rows = np.bincount(bins, minlength=BINS)
    there = rows > 0
    sums = (np.bincount(bins, weights=each, minlength=BINS) for each in (confidence, right))
    means = [(each[there] / rows[there]).tolist() for each in sums]
    return {"rows": rows[there].tolist(), "confidence": means[0], "accuracy": means[1]}


def evaluation(
    task: str, scores: np.ndarray, labels: np.ndarray, classes: Sequence[str]
) -> dict[str, Any]:
    """Counts over test rows from which reports draw figures; empty for a regression.

    A bin may have one row: then its sums reveal that row's confidence, and whether its prediction
    was right.

    Parameters
    ----------
    task : {"binary", "multiclass", "regression"}
        Learning task of the labels.
    scores : ndarray, (rows, 1) of two classes or (rows, C)
        Raw scores.
    labels : ndarray of int, (rows,)
        Class numbers.
    classes : sequence of str
        Names of the classes in order.

    Returns
    -------
    dict
        ``classes``; ``confusion``, numbers of rows by true class (outer) and predicted class
        (inner); ``calibration``, the result of `calibration`; ``precision_recall``: for class 1 of
        two, or for each of at most 10 classes that occurs, ``class``, ``share`` (of the rows),
        ``average_precision``, ``precision`` and ``recall`` at thresholds of falling score.
    """
    if task == "regression":
        return {}
    scores = scores.reshape(len(labels), -1)
    shares, guess = probabilities(task, scores), guesses(task, scores)
    size = shares.shape[1]
    pairs = np.bincount(labels.astype(np.int64) * size + guess, minlength=size**2).reshape(
        size, size
    )
    curves = {1: scores[:, 0]} if task == "binary" else dict(enumerate(shares.T))
    chosen = curves if len(curves) <= _MOST_CURVES else {}
    return {
        "classes": [str(name) for name in classes],
        "confusion": pairs.tolist(),
        "calibration": calibration(shares, guess == labels),
        "precision_recall": [
            {"class": str(classes[number]), **_precision_recall(labels == number, score)}
            for number, score in chosen.items()
            if 0 < np.count_nonzero(labels == number) < len(labels)
        ],
    }


@dataclass(frozen=True, eq=False)
class Thresholds:
    """Rows of a class and of all others with at least a score, for each distinct score, descending.

    Attributes
    ----------
    true, false : ndarray of int64, (T,)
        Number of rows of the class, and of others, whose score is at least the threshold.
    """

    true: np.ndarray
    false: np.ndarray

    @classmethod
    def of(cls, truth: np.ndarray, score: np.ndarray) -> Self:
        """Thresholds of scores, (rows,); `truth` marks the rows of the class, some but not all."""
        order = np.argsort(-score, kind="stable")
        last = np.append(np.flatnonzero(np.diff(score[order])), len(order) - 1)
        taken = np.cumsum(truth[order], dtype=np.int64)[last]
        return cls(taken, 1 + last - taken)

    @property
    def precision(self) -> np.ndarray:
        """Precision at each threshold: share of the class among the rows taken."""
        return np.asarray(self.true / (self.true + self.false))

    @property
    def recall(self) -> np.ndarray:
        """Recall at each threshold: share of the class's rows that are taken."""
        return np.asarray(self.true / self.true[-1])

    @property
    def average_precision(self) -> float:
        """Mean precision, weighted by each threshold's increase in recall."""
        return float(self.precision @ np.diff(self.recall, prepend=0.0))

    @property
    def auc(self) -> float:
        """Area below the curve of recall against the false positive rate (ROC)."""
        true = np.insert(self.true, 0, 0)
        area = np.diff(self.false, prepend=0) @ (true[1:] + true[:-1]) / 2
        return float(area / (self.true[-1] * self.false[-1]))


def _precision_recall(truth: np.ndarray, score: np.ndarray) -> dict[str, Any]:
    """Points of the precision-recall curve from the highest threshold on, without interpolation."""
    found = Thresholds.of(truth, score)
    # Of points of one recall between two others nothing is seen: their line is drawn already.
    turns = (np.diff(found.true, prepend=-1) != 0) | (np.diff(found.true, append=-1) != 0)
    precision = np.insert(found.precision[turns], 0, 1.0)
    recall = np.insert(found.recall[turns], 0, 0.0)
    places = np.unique(np.linspace(0, len(recall) - 1, _MOST_POINTS).astype(np.int64))
    return {
        "share": float(truth.mean()),
        "average_precision": found.average_precision,
        "precision": precision[places].tolist(),
        "recall": recall[places].tolist(),
    }
