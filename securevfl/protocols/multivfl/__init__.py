"""Multi-VFL (2021): the paper's Algorithm 1, options, messages and claims."""

from __future__ import annotations

from securevfl.protocols.multivfl.protocol import MultiVfl

__all__ = ["MultiVfl"]
