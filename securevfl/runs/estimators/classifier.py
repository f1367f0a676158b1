"""FedVS as a scikit-learn classifier: fit, predict, predict_proba, score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from securevfl.protocols.base.defaults import DEFAULT
from securevfl.runs.estimators.base import VerticalClassifier


class FedVSClassifier(VerticalClassifier):
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
    class_weight : "balanced", dict or None
        Weights of the classes in the loss: all alike if None, such that each class counts as much
        as every other, or numbers above 0 by class label. A class that the dict has not weighs 1.
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
    >>> made = FedVSClassifier(parties=4, rounds=60, width=8, degree=2, random_state=0)
    >>> classifier = made.fit(X, y)
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
        batch: int = 0,
        lr: float = 0.01,
        width: int = 0,
        hidden: int = 128,
        degree: int = 1,
        centre: Any = "mlp",
        scaling: str = "minmax",
        conditions: Any = "none",
        sealed: bool = True,
        class_weight: Mapping[Any, float] | str | None = None,
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
        self.class_weight = class_weight
        self.options = options
        self.random_state = random_state

    _file = "classifier.json"

    @property
    def _trained(self) -> str:
        return DEFAULT

    def _own_options(self) -> dict[str, Any]:
        own = "centre" if isinstance(self.centre, str) else "own_centre"
        names = ("segments", "privacy", "masked", "rounds", "batch", "lr", "width", "hidden")
        return {name: getattr(self, name) for name in (*names, "degree")} | {own: self.centre}

    def _helpers(self, owners: int) -> int:
        segments = self.segments or 1
        return max(0, max(self.privacy + 2, 2 * (segments + self.privacy - 1) + 1) - owners)
