"""Wait-DP (FedVS, section 6.2): split learning with noise; options, messages and claims."""

from __future__ import annotations

from securevfl.protocols.wait_dp.protocol import WaitDP

__all__ = ["WaitDP"]
