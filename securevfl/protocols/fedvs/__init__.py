"""FedVS (ICML 2023): the paper's Algorithm 1, options, messages and claims."""

from __future__ import annotations

from securevfl.protocols.fedvs.protocol import FedVS

__all__ = ["FedVS"]
