"""A client infers the server's labels from its gradients or from its trained network.

The gradient of a row is dL/dH_n = J^T (prediction - label): its length tells how wrong the model
is, which differs between a rare and a frequent class, and its direction which class it should have
said (O. Li et al., "Label Leakage and Protection in Two-party Split Learning", ICLR 2022). Model
completion puts a small head on the client's trained bottom network and fits it with a few labels
(C. Fu et al., "Label Inference Attacks Against Vertical Federated Learning", USENIX Security 2022,
section 4.1; a linear head is used here, and the bottom network is not trained further).

Class numbers are 0 to C - 1. Few labels are taken to be known to the client, those of the rows
``known``; they are never counted among the attacked ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from securevfl.audit.attacks.outcome import (
    MOST,
    Outcome,
    area,
    balanced_accuracy,
    bootstrap,
)
from securevfl.errors import ConfigurationError, needs

_AUC, _BALANCED = "AUC", "balanced accuracy"
_STARTS = 4  # of k-means
_PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)  # 1/penalty of a head
_FOLDS = 5  # of the known labels, to choose it


def known_rows(labels: np.ndarray, per_class: int, stream: np.random.Generator) -> np.ndarray:
    """Rows whose labels the client knows: `per_class` of each class, at most half of its rows."""
    chosen = []
    for c in np.unique(labels):
        rows = np.flatnonzero(labels == c)
        chosen.append(stream.permutation(rows)[: min(per_class, max(1, len(rows) // 2))])
    return np.sort(np.concatenate(chosen))


def gradient_norm(
    gradients: np.ndarray, labels: np.ndarray, stream: np.random.Generator
) -> Outcome:
    """Attack on two classes: rows with longer gradients are guessed to be of the rarer class.

    Parameters
    ----------
    gradients : ndarray, (rows, h)
        dL/dH of each row.
    labels : ndarray, (rows,), 0 or 1
        Class numbers.
    stream : numpy Generator
        Source of random choices.

    Raises
    ------
    ConfigurationError
        When there are more than two classes.
    """
    if labels.max() > 1:
        raise ConfigurationError(
            f"gradient norm: {labels.max() + 1} classes; a length separates two. Use directions"
        )
    rarer = int(labels.mean() <= 0.5)
    return _two_classes(np.linalg.norm(gradients, axis=1), labels == rarer, stream)


def gradient_sign(
    gradients: np.ndarray, labels: np.ndarray, stream: np.random.Generator
) -> Outcome:
    """Attack on two classes by the sign of gradients along their first principal direction.

    `gradients` are dL/dH, (rows, h), `labels` class numbers, (rows,). No label is known, only which
    class is rarer: the side with fewer rows is guessed to be it. ConfigurationError for more than
    two classes.
    """
    if labels.max() > 1:
        raise ConfigurationError(
            f"gradient sign: {labels.max() + 1} classes; a sign separates two. Use clusters"
        )
    directions = unit(gradients)
    _, _, axes = np.linalg.svd(directions, full_matrices=False)
    along = directions @ axes[0]
    rarer = int(labels.mean() <= 0.5)
    score = along if (along > 0).mean() <= 0.5 else -along
    return _two_classes(score, labels == rarer, stream)


def gradient_clusters(
    gradients: np.ndarray,
    labels: np.ndarray,
    known: np.ndarray,
    classes: int,
    stream: np.random.Generator,
) -> Outcome:
    """Attack by clusters of gradient directions, one a class, which known rows label.

    Parameters
    ----------
    gradients : ndarray, (rows, h)
        dL/dH of each row.
    labels : ndarray, (rows,)
        Class numbers.
    known : ndarray
        Rows whose labels are known; a cluster without any takes the commonest class of them.
    classes : int
        Number C of classes.
    stream : numpy Generator
        Source of random choices.
    """
    needs("attacks", "attacks", "sklearn")
    from sklearn.cluster import KMeans

    directions = unit(gradients)
    seed = int(stream.integers(2**31))
    groups = KMeans(classes, n_init=_STARTS, random_state=seed).fit_predict(directions)
    votes = np.zeros((classes, classes))
    np.add.at(votes, (groups[known], labels[known]), 1)
    votes += 1e-6 * votes.sum(axis=0)
    return _classes(votes.argmax(axis=1)[groups], labels, known, classes, stream)


def gradient_directions(
    gradients: np.ndarray,
    labels: np.ndarray,
    known: np.ndarray,
    classes: int,
    stream: np.random.Generator,
) -> Outcome:
    """Outcome of guessing the class whose `known` rows have the nearest mean gradient direction."""
    directions = unit(gradients)
    own = labels[known]
    means = [directions[known[own == c]].mean(axis=0) for c in np.unique(own)]
    cosines = directions @ unit(np.stack(means)).T
    if classes == 2 and len(means) == 2:
        left = attacked(len(labels), known)
        return _two_classes((cosines[:, 1] - cosines[:, 0])[left], labels[left] == 1, stream)
    guess = np.unique(own)[cosines.argmax(axis=1)]
    return _classes(guess, labels, known, classes, stream)


def model_completion(
    trained: np.ndarray,
    without: Mapping[str, np.ndarray],
    labels: np.ndarray,
    known: np.ndarray,
    classes: int,
    stream: np.random.Generator,
) -> Outcome:
    """Attack by a linear head on the bottom network's outputs, fitted to few known labels.

    Chance is the best success of the controls, since a head on the client's own columns, or on an
    untrained network, uses no leak of the protocol.

    Parameters
    ----------
    trained : ndarray, (rows, h)
        Outputs of the client's trained bottom network.
    without : mapping of str to ndarray
        The controls' inputs by name, such as the raw columns.
    labels, known : ndarray of int, (rows,) and (any,)
        Class numbers of all rows, and numbers of the rows whose labels the client knows.
    classes, stream : int, numpy Generator
        Number C of classes, and source of random choices.
    """
    left = attacked(len(labels), known)
    left = np.sort(stream.permutation(left)[:MOST])
    score = _head(trained, labels, known, left)
    controls = {name: _head(x, labels, known, left) for name, x in without.items()}
    truth = labels[left]
    found = {name: _measure(s, truth, classes) for name, s in controls.items()}
    low, high = bootstrap(
        lambda rows: _measure(score[rows], truth[rows], classes), len(left), stream
    )
    blind = 1 / classes if classes > 2 else 0.5
    return Outcome(
        _AUC if classes == 2 else _BALANCED,
        _measure(score, truth, classes),
        max([blind, *found.values()]),
        low,
        high,
        len(left),
        {"guess": blind, **found},
        f"{len(known)} labels known; chance is the best control",
    )


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows of length one, float64; a row of zeros stays."""
    # The largest entry goes first: squares of late gradients would underflow.
    wide = vectors.astype(np.float64)  # 1e-300 is zero in float32
    scaled = wide / np.maximum(np.abs(wide).max(axis=1, keepdims=True), 1e-300)
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    directions: np.ndarray = scaled / np.maximum(lengths, 1e-300)
    return directions


def attacked(rows: int, known: np.ndarray) -> np.ndarray:
    """Row numbers of unknown label, the targets of the attack."""
    return np.setdiff1d(np.arange(rows), known)


def _head(
    inputs: np.ndarray, labels: np.ndarray, known: np.ndarray, left: np.ndarray
) -> np.ndarray:
    """Class probabilities, (rows, C), of a linear head on inputs of mean square 1.

    All columns have one scale, since training enlarges the directions that separate classes. The
    penalty is chosen by cross-validation on the known labels, separately for each input.
    """
    needs("attacks", "attacks", "sklearn")
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    centred = inputs - inputs[known].mean(axis=0)
    scaled = centred / max(float(np.sqrt((centred[known] ** 2).mean())), 1e-12)
    own = labels[known]
    folds = min(_FOLDS, int(np.bincount(own)[np.unique(own)].min()))
    head: Any = LogisticRegression(max_iter=500, tol=1e-3)
    if folds > 1:
        splits = StratifiedKFold(folds)
        head = GridSearchCV(head, {"C": _PENALTIES}, scoring="neg_log_loss", cv=splits)
    head.fit(scaled[known], own)
    full = np.zeros((len(left), int(labels.max()) + 1))
    full[:, head.classes_] = head.predict_proba(scaled[left])
    return full


def _measure(scores: np.ndarray, labels: np.ndarray, classes: int) -> float:
    if classes == 2:
        return area(scores[:, 1], labels == 1)
    return balanced_accuracy(scores.argmax(axis=1), labels)


def _two_classes(scores: np.ndarray, positive: np.ndarray, stream: np.random.Generator) -> Outcome:
    if len(scores) > MOST:
        chosen = stream.permutation(len(scores))[:MOST]
        scores, positive = scores[chosen], positive[chosen]
    low, high = bootstrap(lambda rows: area(scores[rows], positive[rows]), len(scores), stream)
    return Outcome(_AUC, area(scores, positive), 0.5, low, high, len(scores))


def _classes(
    guess: np.ndarray,
    labels: np.ndarray,
    known: np.ndarray,
    classes: int,
    stream: np.random.Generator,
) -> Outcome:
    left = attacked(len(labels), known)
    left = np.sort(stream.permutation(left)[:MOST])
    own, truth = guess[left], labels[left]
    low, high = bootstrap(lambda rows: balanced_accuracy(own[rows], truth[rows]), len(left), stream)
    success = balanced_accuracy(own, truth)
    note = f"{len(known)} labels known"
    return Outcome(_BALANCED, success, 1 / classes, low, high, len(left), note=note)
