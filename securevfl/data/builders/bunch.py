"""Data sets from what `sklearn.datasets` returns (`sklearn.utils.Bunch`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from securevfl.data.base.content import D
from securevfl.data.builders.arrays import FromArrays
from securevfl.data.builders.frames import FromFrames
from securevfl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

_LABEL = "target"


class FromBunch(FromArrays, FromFrames):
    """Class method of `VerticalDataset` that builds it from a `Bunch`, by arrays or frames."""

    @classmethod
    def from_sklearn(cls, bunch: Mapping[str, Any], **options: Any) -> Self:
        """Build a data set from a `sklearn.utils.Bunch`.

        Parameters
        ----------
        bunch : Bunch
            With ``data`` (an array, or a data frame where it was loaded with ``as_frame=True``) and
            ``target``. Class numbers are shown by the names of ``target_names`` and predicted as
            numbers; the shape of ``images`` is kept, so that ``strips=`` works.
        **options
            As for `from_pandas` where the data are a frame, else as for
            `from_numpy`.

        Raises
        ------
        DataError
            For data that are sparse or have several targets, and for whatever cannot be used.
        """
        for part in ("data", "target"):
            if part not in bunch:
                raise DataError(f"the bunch has no {part!r}; it has {', '.join(sorted(bunch))}.")
        features, target = bunch["data"], bunch["target"]
        if hasattr(features, "toarray"):
            raise DataError(
                f"the data are a sparse matrix of shape {features.shape}; parties hold plain "
                f"columns, so choose some and give their toarray() to from_numpy."
            )
        if np.ndim(target) != 1:
            raise DataError(
                f"the bunch has targets of shape {np.shape(target)}; one label per row is needed."
            )
        options.setdefault("name", "bunch")
        names = _names(np.asarray(target), bunch.get("target_names"))
        if names:
            options.setdefault("task", "multiclass")
        return _renamed(cls._of_parts(features, target, bunch, options), names)

    @classmethod
    def _of_parts(
        cls,
        features: np.ndarray | pd.DataFrame,
        labels: ArrayLike,
        bunch: Mapping[str, Any],
        options: dict[str, Any],
    ) -> Self:
        """By frames or arrays, as the features are."""
        import pandas as pd

        if isinstance(features, pd.DataFrame):
            if _LABEL in features.columns:
                raise DataError(
                    f"the data have a column {_LABEL!r}, which the labels need; rename it."
                )
            whole = features.assign(**{_LABEL: np.asarray(labels)})
            return cls.from_pandas(whole, _LABEL, **options)
        names = bunch.get("feature_names")
        if names is not None and len(names) == features.shape[1]:
            options.setdefault("columns", tuple(map(str, names)))
        images = bunch.get("images")
        if images is not None and np.ndim(images) == 3 and images[0].size == features.shape[1]:
            options.setdefault("image_shape", (1, *images.shape[1:]))
        return cls.from_numpy(features, labels, **options)


def _names(target: np.ndarray, names: Sequence[object] | None) -> tuple[str, ...]:
    """Names of class numbers; () where there are none."""
    if names is None or len(names) < 2 or target.dtype.kind not in "iu":
        return ()
    if target.min(initial=0) < 0 or target.max(initial=0) >= len(names):
        return ()
    return tuple(map(str, names))


def _renamed(data: D, names: tuple[str, ...]) -> D:
    """The data set with the names of its class numbers."""
    if not (names and data.classes):
        return data
    return replace(data, classes=tuple(names[int(number)] for number in data.classes))
