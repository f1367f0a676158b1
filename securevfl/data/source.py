"""Where a data set came from, so that it can be loaded again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from securevfl.errors import ConfigurationError

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


@dataclass(frozen=True)
class DataSource:
    """How to load a data set again: arguments of `securevfl.data.load_dataset`.

    Attributes
    ----------
    name : str
        Name or file.
    options : mapping
        Its keyword arguments; text, numbers and lists only. ``align = "psi"`` joins party files by
        private set intersection.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> VerticalDataset:
        """The data set."""
        from securevfl.data import load_dataset

        options = dict(self.options)
        align = options.pop("align", "plain")
        if align not in ("plain", "psi"):
            raise ConfigurationError(f"data: align = {align!r} is neither 'plain' nor 'psi'")
        if align == "psi":
            from securevfl.runs.alignment import match_privately

            options["match"] = match_privately
        return load_dataset(self.name, **options)
