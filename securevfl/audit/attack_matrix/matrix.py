"""Results of all attacks on all runs as a table for files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from securevfl.models.quality import MEASURES

FORMAT = 1
FIGURES = (*(f"test_{m}" for m in MEASURES), "virtual_seconds", "bytes")


@dataclass(frozen=True)
class Matrix:
    """Results of all attacks against all protocols.

    Attributes
    ----------
    title : str
        Title for readers.
    labels : tuple of str
        Variants, in the given order.
    rows : list of dict
        One for each (protocol, attack, seed): ``metric``, ``success``, ``chance``, ``low``,
        ``high``, ``samples``, ``controls``, ``note``; `success` is None if there is no view; the
        note gives the reason. ``failed`` is true if the attack raised an error.
    cells : list of dict
        One for each (protocol, attack), over seeds: means of ``success`` and ``chance``, the
        ``excess`` of one over the other with its 95 % interval ``low`` to ``high``, ``seeds``, and
        ``verdict``: "above chance", "at chance", "no view", "FAILED" or "not run".
    figures : mapping
        For each variant: accuracy (and AUC), virtual seconds and bytes, as mean and half-width of
        the 95 % interval.
    settings : mapping
        All settings.
    """

    title: str
    labels: tuple[str, ...]
    rows: list[dict[str, Any]]
    cells: list[dict[str, Any]]
    figures: Mapping[str, Mapping[str, Any]]
    settings: Mapping[str, Any]

    def cell(self, protocol: str, attack: str) -> dict[str, Any]:
        """The cell of a variant and an attack.

        KeyError if there is none.
        """
        for cell in self.cells:
            if (cell["protocol"], cell["attack"]) == (protocol, attack):
                return cell
        raise KeyError(f"no cell of {protocol} and {attack}")

    def to_dict(self) -> dict[str, Any]:
        """The matrix in JSON types."""
        return {"format": FORMAT, **asdict(self)}
