"""Input layer for columns of category codes: each code is looked up in a table of embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


def tabular_front(cardinalities: Sequence[int], width: int) -> tuple[nn.Module, int]:
    """Module from rows with category codes to rows of numbers, and the width of these.

    Numeric columns come first, in their order, then the embedding of each coded column.

    Parameters
    ----------
    cardinalities : sequence of int
        For each column the number of its category codes, 0 for a numeric one
        (`securevfl.data.VerticalDataset.cardinalities`).
    width : int
        Width of the embedding of a coded column.
    """
    import torch
    from torch import nn

    numeric = [place for place, count in enumerate(cardinalities) if not count]
    coded = [place for place, count in enumerate(cardinalities) if count]

    class Front(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList(
                nn.Embedding(count, width) for count in cardinalities if count
            )

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            # Category codes are whole and below 2^24, so float32 holds them exactly.
            looked_up = [
                table(rows[:, place].long())
                for place, table in zip(coded, self.tables, strict=True)
            ]
            return torch.cat([rows[:, numeric], *looked_up], dim=1)

    return Front(), len(numeric) + width * len(coded)
