"""Source of a data set: the name and options by which it can be loaded again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from securevfl.errors import ConfigurationError

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
