"""FedVS as a scikit-learn classifier: fit, predict, predict_proba, score."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from securevfl.data.dataset import VerticalDataset
from securevfl.errors import ConfigurationError, DataError
from securevfl.protocols.base.defaults import DEFAULT
from securevfl.reading import NOT_PARSED
from securevfl.runs.export import joint_model, load_models
from securevfl.runs.run import run

if TYPE_CHECKING:
    from securevfl.runs.result import Run

_FILE = "classifier.json"


class FedVSClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Train a FedVS model on the rows of one matrix whose columns are divided among parties.

    All parties are simulated in this process; what the estimator is for is to put FedVS beside
    other classifiers, in pipelines and in searches of parameters. All rows of `fit` are trained on.

    Parameters
    ----------
    parties : int
        Clients among which the columns are divided, in order; fewer where there are fewer columns.
        FedVS needs T + 2 of them (R = 2(K+T-1)+1 without masks): where there are fewer columns than
        that, the others are helpers, whose one column is constant. They hide nothing: the sum of
        one or two clients' embeddings tells much.
    owners : sequence of sequences of int, optional
        Numbers of each client's columns, in the place of `parties`.
    segments, privacy : int
        K, the largest possible if None, and T.
    masked : bool
        Mask the uploads.
    rounds, batch : int
    lr : float
        Learning rate.
    width, hidden, degree : int
        h, width of the centre's hidden layers, and D.
    centre : str or callable
        Central network by name, or one's own: called with the two widths, it makes a torch module.
    scaling : {"minmax", "standard", "none"}
        Of each column, fitted on the rows of `fit`.
    conditions : str or mapping
        Delays and bandwidth, as for `securevfl.run`; they cost no real time.
    sealed : bool
        Encrypt every message.
    options : mapping, optional
        Other options of the protocol, such as ``{"weight_decay": 1e-4}``.
    random_state : int, RandomState or None
        Of weights, batches and delays; never of masks.

    Attributes
    ----------
    classes_ : ndarray
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where X had names.
    n_iter_ : int
        Rounds that were trained.
    owners_ : list of list of int
        Numbers of each client's columns; empty for a helper.
    model_ : JointModel
        All parties' models. It alone survives pickling and `save`.
    run_ : Run
        The whole run, with its history and transcript; not kept by pickling and `save`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = FedVSClassifier(parties=4, rounds=60, lr=0.05, random_state=0).fit(X, y)
    >>> classifier.score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        parties: int = 8,
        *,
        owners: Sequence[Sequence[int]] | None = None,
        segments: int | None = None,
        privacy: int = 1,
        masked: bool = True,
        rounds: int = 200,
        batch: int = 128,
        lr: float = 0.01,
        width: int = 64,
        hidden: int = 128,
        degree: int = 2,
        centre: Any = "mlp",
        scaling: str = "minmax",
        conditions: Any = "none",
        sealed: bool = True,
        options: Mapping[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        self.parties = parties
        self.owners = owners
        self.segments = segments
        self.privacy = privacy
        self.masked = masked
        self.rounds = rounds
        self.batch = batch
        self.lr = lr
        self.width = width
        self.hidden = hidden
        self.degree = degree
        self.centre = centre
        self.scaling = scaling
        self.conditions = conditions
        self.sealed = sealed
        self.options = options
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> FedVSClassifier:
        """Train.

        Parameters
        ----------
        X : array-like of shape (rows, features)
            Numbers.
        y : array-like of shape (rows,)
            Classes of any type, at least two.
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise DataError(
                f"FedVSClassifier: y has 1 class ({self.classes_[0]!r}); at least two are needed"
            )
        self.owners_ = self._deal(X.shape[1])
        seed = self.random_state
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31 - 1)
        # A data set has test rows; none is held out here, so the first row stands for them.
        data = VerticalDataset.from_numpy(
            self._parts(X),
            codes.astype(np.int64),
            test_features=self._parts(X[:1]),
            test_labels=codes[:1],
            task="binary" if len(self.classes_) == 2 else "multiclass",
            name="X",
            scaling=self.scaling,
        )
        self.run_ = run(
            DEFAULT,
            data,
            seed=int(seed),
            eval_every=self.rounds,
            conditions=self.conditions,
            sealed=self.sealed,
            **self._chosen(),
        )
        self.model_ = joint_model(self.run_.protocol, self.run_.parties, self.run_.models())
        self.n_iter_ = len(self.run_.history)
        return self

    def _chosen(self) -> dict[str, Any]:
        """Options of the protocol."""
        own = "centre" if isinstance(self.centre, str) else "own_centre"
        given = dict(self.options or {})
        names = ("segments", "privacy", "masked", "rounds", "batch", "lr", "width", "hidden")
        chosen = {name: getattr(self, name) for name in (*names, "degree")}
        twice = sorted(given.keys() & {*chosen, own})
        if twice:
            raise ConfigurationError(
                f"FedVSClassifier: options has {', '.join(twice)}, which is a parameter of its own"
            )
        return {**chosen, own: self.centre, **given}

    def _deal(self, features: int) -> list[list[int]]:
        """Numbers of each client's columns; none of a helper."""
        if self.owners is not None:
            owners = [[int(k) for k in owned] for owned in self.owners]
            if sorted(k for owned in owners for k in owned) != list(range(features)):
                raise DataError(
                    f"FedVSClassifier: owners name {sum(map(len, owners))} columns; each of the "
                    f"{features} columns, 0 to {features - 1}, needs one owner"
                )
        else:
            count = min(self.parties, features)
            if count < 1:
                raise ConfigurationError(
                    f"FedVSClassifier: parties must be at least 1, they are {self.parties}"
                )
            owners = [part.tolist() for part in np.array_split(np.arange(features), count)]
        segments = self.segments or 1
        least = max(self.privacy + 2, 2 * (segments + self.privacy - 1) + 1)
        return owners + [[] for _ in range(least - len(owners))]

    def _parts(self, X: np.ndarray) -> list[np.ndarray]:
        """Each client's columns; a constant one of a helper."""
        helper = np.zeros((len(X), 1))
        return [X[:, owned] if owned else helper for owned in self.owners_]

    def predict_proba(self, X: Any, *, coded: bool = False) -> np.ndarray:
        """Probabilities of the classes, (rows, C), in the order of `classes_`.

        Parameters
        ----------
        X : array-like of shape (rows, features)
        coded : bool
            Evaluate the rows on secret shares, by the protocol; only before `run_` is lost.
        """
        check_is_fitted(self, "model_")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        parts = self._parts(X)
        if not coded:
            return self.model_.predict_proba(parts)
        if not hasattr(self, "run_"):
            raise ConfigurationError(
                "FedVSClassifier: a coded prediction needs run_, which saving and pickling leave "
                "out; fit again, or predict without coded"
            )
        found: Run = self.run_
        return found.predict_proba(parts, coded=True)

    def predict(self, X: Any, *, coded: bool = False) -> np.ndarray:
        """Classes of rows; the parameters are those of `predict_proba`."""
        chosen: np.ndarray = self.predict_proba(X, coded=coded).argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def save(self, folder: Path | str) -> None:
        """Write parameters, classes and each party's model into a folder, without pickle.

        Raises
        ------
        ConfigurationError
            For parameters that JSON cannot hold, such as a network of one's own.
        """
        check_is_fitted(self, "model_")
        kept = self.get_params(deep=False) | {"random_state": None}
        names = getattr(self, "feature_names_in_", None)
        content = {
            "parameters": kept,
            "classes": self.classes_.tolist(),
            "owners": self.owners_,
            "features": self.n_features_in_,
            "names": None if names is None else names.tolist(),
            "rounds": self.n_iter_,
        }
        try:
            text = json.dumps(content, indent=1)
        except TypeError as error:
            raise ConfigurationError(f"FedVSClassifier: cannot be saved: {error}") from None
        folder = Path(folder)
        self.model_.save(folder)
        (folder / _FILE).write_text(text + "\n")

    @classmethod
    def load(cls, folder: Path | str) -> FedVSClassifier:
        """Read what `save` wrote.

        Raises
        ------
        DataError
            When a file is missing or damaged.
        """
        path = Path(folder) / _FILE
        try:
            content = json.loads(path.read_text())
            made = cls(**content["parameters"])
            made.classes_ = np.array(content["classes"])
            made.owners_, made.n_features_in_ = content["owners"], content["features"]
            made.n_iter_ = content["rounds"]
            if content["names"] is not None:
                made.feature_names_in_ = np.array(content["names"], dtype=object)
        except (OSError, KeyError, TypeError, *NOT_PARSED) as error:
            raise DataError(f"FedVSClassifier: {path} cannot be read: {error}") from None
        made.model_ = load_models(folder)
        return made

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("run_", None)  # parties, engine and data: too much, and no longer needed
        return state
