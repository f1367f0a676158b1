"""FedVS (ICML 2023): the paper's Algorithm 1, its options, its messages and its claims."""

from __future__ import annotations

from securevfl.protocols.fedvs.protocol import FedVS

__all__ = ["FedVS"]
