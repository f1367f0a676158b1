"""Base of all estimators: columns are divided among simulated parties; a protocol trains."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_regressor
from sklearn.utils import check_random_state
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from securevfl.data.base.checks import checked_weights
from securevfl.data.dataset import VerticalDataset
from securevfl.data.leaves import add_leaves
from securevfl.data.preparation.tables import as_frame
from securevfl.errors import ConfigurationError, DataError, SecureVFLWarning
from securevfl.protocols.base.coded import CodedProtocol
from securevfl.protocols.base.defaults import DEFAULT
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.runs.engines.run import run
from securevfl.runs.export import joint_model

if TYPE_CHECKING:
    import pandas as pd

_LABEL = "the label"
_MOST_HELPERS = 64


def _whole(number: object) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def _remedy(features: int, parties: int) -> str:
    """Advice for the case of too many helpers."""
    if features <= parties:
        return f"X has {features} columns, of which each party needs one"
    return "give more parties, or a smaller privacy or segments"


class ScoredByWeights:
    """Mixin with `score`, whose `sample_weight` must be finite and not negative."""

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy of classes, or R squared of a regression.

        Parameters
        ----------
        X : array-like of shape (rows, features), or data frame
            Rows in the form of `fit`.
        y : array-like of shape (rows,)
            Labels, or targets.
        sample_weight : array-like of shape (rows,), optional
            Weights of the rows, finite and not negative, not all 0.
        """
        if sample_weight is not None:
            sample_weight = checked_weights("score", sample_weight, len(np.asarray(y)), zero=True)
        found: float = super().score(X, y, sample_weight)  # type: ignore[misc]
        return found


@dataclass(eq=False, repr=False)
class VerticalEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator that trains a protocol on all rows of `fit`."""

    protocol: str = DEFAULT
    parties: int = 8
    _: KW_ONLY
    owners: Sequence[Sequence[int]] | None = None
    rounds: int | None = None
    batch: int | None = None
    lr: float | None = None
    scaling: str = "minmax"
    conditions: str | Mapping[str, object] = "none"
    sealed: bool = True
    options: Mapping[str, object] | None = None
    trees: int = 0
    random_state: int | np.random.RandomState | None = None

    # -- fitting -----------------------------------------------------------------------------

    def _train(
        self,
        X: np.ndarray | pd.DataFrame,
        y: np.ndarray,
        task: str,
        weights: np.ndarray | None = None,
        **more: object,
    ) -> None:
        """Train on columns (rows, d) and targets (rows,), store the results; DataError for one row.

        `weights` has a weight above 0 per row. `more` has options of the protocol that depend on
        the targets.
        """
        if len(X) < 2:
            raise DataError(f"{type(self).__name__}: n_samples={len(X)}; at least two are needed")
        self.owners_ = self._deal(X.shape[1])
        seed = self.random_state
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31 - 1)
        options = self._chosen(more)
        rounds = options.get("rounds")
        data = self._dataset(X, y, task)
        if weights is not None:
            data = replace(data, train_weights=weights)
        if self.trees:
            data = add_leaves(data, self.trees, seed=int(seed))
        self.run_ = run(
            self.protocol,
            data,
            seed=int(seed),
            conditions=self.conditions,
            sealed=self.sealed,
            **({} if rounds is None else {"eval_every": rounds}),
            **options,
        )
        self.model_ = joint_model(self.run_.protocol, self.run_.parties)
        self.n_iter_ = len(self.run_.history)

    def _weighed(
        self, X: np.ndarray | pd.DataFrame, y: np.ndarray, weights: ArrayLike | None
    ) -> tuple[np.ndarray | pd.DataFrame, np.ndarray, np.ndarray | None]:
        """(X, y, weights) without the rows of weight 0; unchanged for no weights."""
        if weights is None:
            return X, y, None
        weights = checked_weights("fit", weights, len(y), zero=True)
        kept = weights > 0
        return X[kept], y[kept], weights[kept]

    def _dataset(self, X: np.ndarray | pd.DataFrame, y: np.ndarray, task: str) -> VerticalDataset:
        """Data set of all rows for training; the first row also fills the required test part."""
        parts = self._parts(X)
        if isinstance(X, np.ndarray):
            return VerticalDataset.from_numpy(
                parts,
                y,
                test_features=[part[:1] for part in parts],
                test_labels=y[:1],
                task=task,
                name="X",
                scaling=self.scaling,
            )
        import pandas as pd

        whole = pd.concat([*parts, pd.Series(y, name=_LABEL, index=X.index)], axis=1)
        return VerticalDataset.from_pandas(
            whole,
            _LABEL,
            test_frame=whole.iloc[:1],
            owners=[list(part.columns) for part in parts],
            task=task,
            name="X",
            scaling=self.scaling,
        )

    def _checked(self, X: object, y: object = None, *, fitting: bool = False) -> Any:
        """X, or (X, y) if `fitting`: float64, or a data frame if it has texts; or DataError."""
        table = as_frame(X)
        given = {"y": y, "y_numeric": is_regressor(self)} if fitting else {}
        if fitting:
            self.texts_ = has_texts(table)
        if not self.texts_:
            return validate_data(self, table, **given, dtype=np.float64, reset=fitting)
        if not hasattr(table, "columns"):
            raise DataError(
                f"{type(self).__name__}: it was fitted on a data frame with texts; give one"
            )
        validate_data(self, table, skip_check_array=True, reset=fitting)
        frame = table.set_axis([str(name) for name in table.columns], axis=1)
        if not fitting:
            return frame
        y = column_or_1d(y, warn=True)
        check_consistent_length(frame, y)
        return frame, y

    def _chosen(self, more: Mapping[str, object]) -> dict[str, Any]:
        """Options of the protocol from the parameters; ConfigurationError for one given twice."""
        named = {name: getattr(self, name) for name in ("rounds", "batch", "lr")}
        own = {name: value for name, value in named.items() if value is not None} | dict(more)
        given = dict(self.options or {})
        twice = sorted(given.keys() & own.keys())
        if twice:
            raise ConfigurationError(
                f"{type(self).__name__}: options has {', '.join(twice)}, which is a parameter of "
                "its own"
            )
        return {**own, **given}

    def _deal(self, features: int) -> list[list[int]]:
        """Column numbers of each client, [] for a helper; DataError, ConfigurationError."""
        if self.owners is not None:
            owners = [list(owned) for owned in self.owners]
            if not all(_whole(k) for owned in owners for k in owned):
                raise DataError(
                    f"{type(self).__name__}: owners are lists of the numbers of columns, such as "
                    f"[[0, 1], [2]], not {self.owners!r}"
                )
            owners = [[int(k) for k in owned] for owned in owners]
            if sorted(k for owned in owners for k in owned) != list(range(features)):
                raise DataError(
                    f"{type(self).__name__}: owners name {sum(map(len, owners))} columns; each of "
                    f"the {features} columns, 0 to {features - 1}, needs one owner"
                )
        else:
            if not _whole(self.parties) or self.parties < 1:
                raise ConfigurationError(
                    f"{type(self).__name__}: parties must be at least 1, a whole number; they are "
                    f"{self.parties!r}"
                )
            count = min(self.parties, features)
            owners = [part.tolist() for part in np.array_split(np.arange(features), count)]
        helpers = self._helpers(len(owners))
        if helpers:
            warnings.warn(
                f"{type(self).__name__}: {len(owners)} parties have columns, and the protocol "
                f"needs {len(owners) + helpers} for these K and T, so {helpers} helper(s) "
                f"without columns were added; {_remedy(features, self.parties)}",
                SecureVFLWarning,
                stacklevel=4,
            )
        return owners + [[] for _ in range(helpers)]

    def _helpers(self, owners: int) -> int:
        """Number of helpers, parties with one constant column, that a coded protocol needs."""
        cls = get_protocol(self.protocol)
        if not issubclass(cls, CodedProtocol):
            return 0
        config = make_config(cls, self._chosen({}))
        for helpers in range(_MOST_HELPERS):
            with suppress(ConfigurationError):
                cls.check_parties(config, owners + helpers)
                return helpers
        return 0  # whatever is wrong, the run says it

    def _parts(self, X: Any) -> list[Any]:
        """Columns of each client; one constant column for a helper."""
        if isinstance(X, np.ndarray):
            helper = np.zeros((len(X), 1))
            return [X[:, owned] if owned else helper for owned in self.owners_]
        return [
            X.iloc[:, owned] if owned else _constant(X, n) for n, owned in enumerate(self.owners_)
        ]

    # -- use ---------------------------------------------------------------------------------

    def _scores(self, X: object, coded: bool, what: str) -> np.ndarray:
        """Result of method `what` by the model or, if `coded`, on shares; ConfigurationError."""
        check_is_fitted(self, "model_")
        parts = self._parts(self._checked(X))
        # Models that stay in secret shares are of use within their run only.
        alone = self.model_.server.about["network"] is not None
        if alone and not coded:
            return np.asarray(getattr(self.model_, what)(parts))
        if not hasattr(self, "run_"):
            which = "a coded prediction" if alone else f"a prediction of {self.protocol}"
            raise ConfigurationError(
                f"{type(self).__name__}: {which} needs run_, which pickling leaves out; "
                "fit again" + (", or predict without coded" if alone else "")
            )
        return np.asarray(getattr(self.run_, what)(parts, coded=coded))

    def __getstate__(self) -> dict[str, object]:
        state: dict[str, object] = dict(super().__getstate__())
        state.pop("run_", None)  # parties, engine and data: too much, and no longer needed
        return state


def has_texts(X: object) -> bool:
    """Whether X is a data frame with a column that is not numeric."""
    kinds = getattr(X, "dtypes", None)
    if kinds is None or not hasattr(X, "columns"):
        return False
    return any(getattr(kind, "kind", "O") not in "iufb" for kind in kinds)


def _constant(X: pd.DataFrame, number: int) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({f"helper {number}": np.zeros(len(X))}, index=X.index)
