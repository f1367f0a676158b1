"""Source of a data set: the name and options by which it can be loaded again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from securevfl.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    import numpy as np

    from securevfl.data.dataset import VerticalDataset

#: Rows of the common identifiers in each set, in one order, and notes of what it cost.
Join = Callable[[Sequence[Sequence[str]]], "tuple[list[np.ndarray], list[str]]"]


@dataclass(frozen=True)
class DataSource:
    """Arguments of `securevfl.data.load_dataset` with which a data set can be loaded again.

    Attributes
    ----------
    name : str
        Name of a data set, or path of a file.
    options : mapping
        Keyword arguments: texts, numbers and lists only. ``align = "psi"`` joins party files by
        private set intersection.
    join : callable, optional
        Function that performs the intersection (`securevfl.runs.alignment.match_privately`).
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    join: Join | None = field(default=None, compare=False, repr=False)

    def load(self) -> VerticalDataset:
        """The data set; ConfigurationError for an unknown `align`, or "psi" without `join`."""
        from securevfl.data import load_dataset

        options = dict(self.options)
        align = options.pop("align", "plain")
        if align not in ("plain", "psi"):
            raise ConfigurationError(f"data: align = {align!r} is neither 'plain' nor 'psi'")
        if align == "psi":
            if self.join is None:
                raise ConfigurationError("data: align = 'psi' needs a join that carries it out")
            options["match"] = self.join
        return load_dataset(self.name, **options)


def dataset_of(asked: str, data: object) -> VerticalDataset:
    """A data set, or that of a source; DataError, which begins with `asked`, for anything else."""
    from securevfl.data.dataset import VerticalDataset

    made = data.load() if isinstance(data, DataSource) else data
    if not isinstance(made, VerticalDataset):
        raise DataError(
            f"{asked}: data is of the type {type(made).__name__}, and a VerticalDataset is needed. "
            f"VerticalDataset.from_pandas(frame, label) makes one of a table, from_numpy of arrays"
        )
    return made
