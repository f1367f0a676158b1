"""CVFL (2021): the paper's Algorithms 1 to 3, options, messages and claims."""

from __future__ import annotations

from securevfl.protocols.cvfl.protocol import Cvfl

__all__ = ["Cvfl"]
