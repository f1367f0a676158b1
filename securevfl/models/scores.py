"""Raw scores as classes and probabilities."""

from __future__ import annotations

import numpy as np

from securevfl.errors import ConfigurationError


def decided(task: str, classes: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Classes predicted by raw scores, or the values of a regression.

    Parameters
    ----------
    task : {"binary", "multiclass", "regression"}
        Learning task of the labels.
    classes : ndarray, (C,)
        Classes in order, in the user's type, which the result has.
    scores : ndarray, (rows, 1) of two classes or a regression, or (rows, C)
        Raw scores.
    """
    if task == "regression":
        return scores.reshape(-1)
    best = scores.argmax(axis=1) if task == "multiclass" else scores.reshape(-1) > 0
    found: np.ndarray = classes[best.astype(np.int64)]
    return found


def probabilities(task: str, scores: np.ndarray) -> np.ndarray:
    """Softmax of raw scores, or the logistic function for two classes, (rows, C) float64.

    ConfigurationError for a regression, which has no classes.
    """
    exact = scores.astype(np.float64)
    if task == "regression":
        raise ConfigurationError("predict_proba: a regression has no classes; use predict")
    if task == "binary":
        exact = np.concatenate([np.zeros_like(exact), exact], axis=1)
    raised = np.exp(exact - exact.max(axis=1, keepdims=True))
    shares: np.ndarray = raised / raised.sum(axis=1, keepdims=True)
    return shares
