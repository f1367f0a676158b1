"""Any protocol as a scikit-learn classifier or regressor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from securevfl.protocols.base.defaults import DEFAULT
from securevfl.runs.estimators.base import VerticalClassifier, VerticalEstimator


class _AnyProtocol(VerticalEstimator):
    """Parameters of an estimator that may train any protocol."""

    def __init__(
        self,
        protocol: str = DEFAULT,
        parties: int = 8,
        *,
        owners: Sequence[Sequence[int]] | None = None,
        rounds: int | None = None,
        batch: int | None = None,
        lr: float | None = None,
        scaling: str = "minmax",
        conditions: Any = "none",
        sealed: bool = True,
        options: Mapping[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        self.protocol = protocol
        self.parties = parties
        self.owners = owners
        self.rounds = rounds
        self.batch = batch
        self.lr = lr
        self.scaling = scaling
        self.conditions = conditions
        self.sealed = sealed
        self.options = options
        self.random_state = random_state

    @property
    def _trained(self) -> str:
        return self.protocol

    def _own_options(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("rounds", "batch", "lr")}
        return {name: value for name, value in own.items() if value is not None}


class VFLClassifier(VerticalClassifier, _AnyProtocol):
    """Train any protocol on the rows of one matrix whose columns are divided among parties.

    All parties are simulated in this process. All rows of `fit` are trained on.

    Parameters
    ----------
    protocol : str
        Name of a method, as `securevfl protocols` lists them.
    parties : int
        Clients among which the columns are divided, in order; fewer where there are fewer columns.
    owners : sequence of sequences of int, optional
        Numbers of each client's columns, in the place of `parties`.
    rounds, batch, lr : optional
        The protocol's own defaults if None.
    scaling : {"minmax", "standard", "none"}
        Of each column of numbers, fitted on the rows of `fit`.
    conditions : str or mapping
        Delays and bandwidth, as for `securevfl.run`; they cost no real time.
    sealed : bool
        Encrypt every message.
    class_weight : "balanced", dict or None
        Weights of the classes in the loss: all alike if None, such that each class counts as much
        as every other, or numbers above 0 by class label. A class that the dict has not weighs 1.
        Some protocols refuse weights, and say why.
    options : mapping, optional
        Other options of the protocol, such as ``{"width": 16}``.
    random_state : int, RandomState or None
        Of weights, batches and delays; never of masks and keys.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_, n_iter_, owners_, model_, run_
        As those of `FedVSClassifier`.
    texts_ : bool
        Whether X was a data frame with columns that are no numbers.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> sizes = {"width": 8, "degree": 2}
    >>> classifier = VFLClassifier(parties=4, rounds=60, options=sizes, random_state=0)
    >>> classifier.fit(X, y).score(X, y) > 0.9
    True
    """

    _file = "classifier.json"

    def __init__(
        self,
        protocol: str = DEFAULT,
        parties: int = 8,
        *,
        owners: Sequence[Sequence[int]] | None = None,
        rounds: int | None = None,
        batch: int | None = None,
        lr: float | None = None,
        scaling: str = "minmax",
        conditions: Any = "none",
        sealed: bool = True,
        class_weight: Mapping[Any, float] | str | None = None,
        options: Mapping[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            protocol,
            parties,
            owners=owners,
            rounds=rounds,
            batch=batch,
            lr=lr,
            scaling=scaling,
            conditions=conditions,
            sealed=sealed,
            options=options,
            random_state=random_state,
        )
        self.class_weight = class_weight


class VFLRegressor(RegressorMixin, _AnyProtocol):  # type: ignore[misc]
    """Train any protocol that knows regressions; the parameters are those of `VFLClassifier`
    but for ``class_weight``.

    The target is trained on as it is. Where its values are large, put the estimator into
    `sklearn.compose.TransformedTargetRegressor` with a scaler.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> regressor = VFLRegressor(parties=5, rounds=300, lr=0.02, random_state=0)
    >>> regressor.fit(X, (y - y.mean()) / y.std()).score(X, (y - y.mean()) / y.std()) > 0.4
    True
    """

    _file = "regressor.json"

    def fit(self, X: Any, y: Any) -> Self:
        """Train.

        Parameters
        ----------
        X : array-like of shape (rows, features), or data frame
            As for `VFLClassifier.fit`.
        y : array-like of shape (rows,)
            Finite numbers.
        """
        X, y = self._checked(X, y, fitting=True)
        self._train(X, np.asarray(y, np.float32), "regression")
        return self

    def predict(self, X: Any, *, coded: bool = False) -> np.ndarray:
        """Predicted values, (rows,) float64; the parameters are those of `VFLClassifier`."""
        found: np.ndarray = np.asarray(self._scores(X, coded, "predict"), np.float64)
        return found
