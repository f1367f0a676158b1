"""Any protocol as a scikit-learn classifier or regressor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from securevfl.errors import ConfigurationError, DataError
from securevfl.protocols.base.registry import get_protocol
from securevfl.runs.estimators.base import ScoredByWeights, VerticalEstimator

if TYPE_CHECKING:
    import pandas as pd


@dataclass(eq=False, repr=False)
class VFLClassifier(ScoredByWeights, ClassifierMixin, VerticalEstimator):  # type: ignore[misc]
    """Classifier that trains any protocol on one matrix, its columns divided among parties.

    All parties are simulated in this process. The class works in scikit-learn's pipelines,
    comparisons and parameter searches. `fit` trains on all rows; none is held out.

    Parameters
    ----------
    protocol : str
        Name of a method that `securevfl protocols` lists.
    parties : int
        Number of clients among which the columns are divided, in order; reduced to the number of
        columns. If a coded protocol needs more clients, helpers with one constant column are added.
        Helpers protect nothing: a sum of one or two clients' embeddings reveals much.
    owners : sequence of sequences of int, optional
        Column numbers of each client; replaces `parties`.
    rounds, batch, lr : optional
        The protocol's own defaults if None.
    scaling : {"minmax", "standard", "none"}
        Scaling of each numeric column, fitted on the rows of `fit`.
    conditions : str or mapping
        Delays and bandwidth (`securevfl.run`); they are simulated and cost no real time.
    sealed : bool
        Whether every message is encrypted.
    class_weight : "balanced", dict or None
        Weights of the classes in the loss. None weighs all rows equally, "balanced" gives all
        classes equal total weight, and a dict has weights above 0 by class label, 1 for labels not
        in it. Some protocols refuse weights with an error that gives the reason.
    options : mapping, optional
        Further options of the protocol, such as ``{"width": 16}`` or your own network,
        ``{"own_centre": make}``.
    trees : int
        Number of random trees that each party grows on its own columns; the leaves are added as
        columns (`securevfl.data.leaves.add_leaves`). 0 for none.
    random_state : int, RandomState or None
        Seed of initial weights, batches and delays; not of masks and keys.

    Attributes
    ----------
    classes_ : ndarray, (C,)
        Labels of rows with a weight above 0, in ascending order, of the type of `y`.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of str
        Only if X had column names.
    texts_ : bool
        Whether X was a data frame with non-numeric columns.
    n_iter_ : int
        Number of training rounds.
    owners_ : list of list of int
        Column numbers of each client; empty for a helper.
    model_ : JointModel
        All parties' models; kept by pickling.
    run_ : Run
        The run, with its history and transcript; lost by pickling.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> sizes = {"width": 8, "degree": 2}
    >>> classifier = VFLClassifier(parties=4, rounds=30, lr=0.05, options=sizes, random_state=0)
    >>> classifier.fit(X, y).score(X, y) > 0.9
    True
    """

    class_weight: Mapping[bool | int | float | str, float] | str | None = field(
        default=None, kw_only=True
    )

    def fit(
        self, X: ArrayLike | pd.DataFrame, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Train on rows X and labels y.

        Parameters
        ----------
        X : array-like of shape (rows, features), or data frame
            Numbers; a data frame may have columns of texts, categories and truth values, which are
            encoded as `VerticalDataset.from_pandas` says.
        y : array-like of shape (rows,)
            Classes of any type, at least two.
        sample_weight : array-like of shape (rows,), optional
            Weights of the rows in the loss, finite and not negative; rows of weight 0 are left out.
            They are multiplied by class weights. For a batch of all rows an integer weight equals
            repeating the row. Column scaling ignores them. Some protocols refuse weights with an
            error that gives the reason.

        Raises
        ------
        DataError
            For unusable rows or weights, and for a single class.
        ConfigurationError
            For options or weights that the protocol refuses.
        RunError
            If the run cannot continue.
        """
        rows, labels = self._checked(X, y, fitting=True)
        check_classification_targets(labels)
        # A class of rows that do not count is none: scores have a column for each class trained.
        rows, labels, weights = self._weighed(rows, np.asarray(labels), sample_weight)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(
                f"{type(self).__name__}: y has 1 class ({self.classes_[0]!r}); at least two are "
                "needed"
            )
        task = "binary" if len(self.classes_) == 2 else "multiclass"
        self._train(rows, codes.astype(np.int64), task, weights, **self._weights(labels))
        return self

    def _weights(self, y: np.ndarray) -> dict[str, object]:
        """Protocol option for `class_weight`, none for None; ConfigurationError if it is unfit."""
        weight = self.class_weight
        if weight is None:
            return {}
        if "class_weights" not in get_protocol(self.protocol).Config.model_fields:
            raise ConfigurationError(
                f"{type(self).__name__}: class_weight = {weight!r}, and {self.protocol} has no "
                "weights of classes; leave class_weight out, or choose another protocol"
            )
        found = compute_class_weight(weight, classes=self.classes_, y=y)
        if isinstance(weight, str):
            return {"class_weights": weight}
        return {"class_weights": tuple(map(float, found))}

    def predict_proba(self, X: ArrayLike | pd.DataFrame, *, coded: bool = False) -> np.ndarray:
        """Probabilities of the classes, (rows, C), in the order of `classes_`.

        Parameters
        ----------
        X : array-like of shape (rows, features), or data frame
            Rows in the form of `fit`.
        coded : bool
            Whether to evaluate on secret shares, by the protocol; needs `run_`, which pickling
            loses.
        """
        return self._scores(X, coded, "predict_proba")

    def predict(self, X: ArrayLike | pd.DataFrame, *, coded: bool = False) -> np.ndarray:
        """Classes of rows X, (rows,); `coded` evaluates on secret shares."""
        chosen = self.predict_proba(X, coded=coded).argmax(axis=1)
        return np.asarray(self.classes_[chosen])


class VFLRegressor(ScoredByWeights, RegressorMixin, VerticalEstimator):  # type: ignore[misc]
    """Regressor that trains any protocol that supports regression on one matrix.

    Parameters and attributes are those of `VFLClassifier`, without `class_weight` and `classes_`.
    Targets are float32; protocols train on them with mean 0 and deviation 1.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> sizes = {"batch": 64, "options": {"width": 16}}
    >>> regressor = VFLRegressor(parties=5, rounds=60, lr=0.02, random_state=0, **sizes)
    >>> regressor.fit(X, (y - y.mean()) / y.std()).score(X, (y - y.mean()) / y.std()) > 0.4
    True
    """

    def fit(
        self, X: ArrayLike | pd.DataFrame, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Train on rows X and targets y.

        Parameters
        ----------
        X : array-like of shape (rows, features), or data frame
            Numbers; a data frame may have columns of texts, categories and truth values.
        y : array-like of shape (rows,)
            Finite numbers.
        sample_weight : array-like of shape (rows,), optional
            Weights of the rows in the loss, at least 0.

        Raises
        ------
        DataError, ConfigurationError, RunError
            For unusable rows or weights; for options that the protocol refuses; if the run cannot
            continue.
        """
        rows, targets = self._checked(X, y, fitting=True)
        rows, targets, weights = self._weighed(rows, np.asarray(targets), sample_weight)
        self._train(rows, targets, "regression", weights)
        return self

    def predict(self, X: ArrayLike | pd.DataFrame, *, coded: bool = False) -> np.ndarray:
        """Predicted values of rows X, (rows,) float64; `coded` evaluates on secret shares."""
        return self._scores(X, coded, "predict").astype(np.float64)
