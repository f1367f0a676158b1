"""secagg_split: split learning on masked sums of embeddings (Bonawitz et al., 2017)."""

from __future__ import annotations

from securevfl.protocols.secagg_split.protocol import SecAggSplit

__all__ = ["SecAggSplit"]
