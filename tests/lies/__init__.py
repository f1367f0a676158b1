"""Lies: parties that deviate from a protocol in one point, and what each gains, measured.

`all_lies` has servers and clients of FedVS and of coded split learning that lie once, and some
parties of other methods. Each
runs against the real parties in a simulation. ``benchmarks/lies.py`` measures all of them and
writes their tables. Not for use outside tests.
"""

from __future__ import annotations

from tests.lies.lie import FULL, SMALL, Finding, Lie, Outcome, Size


def all_lies() -> tuple[Lie, ...]:
    """Every lie, in the order of the table."""
    from tests.lies import (
        coded_split_holders,
        coded_split_server,
        fedvs_announcements,
        fedvs_clients,
        fedvs_gradients,
        fedvs_sums,
        others,
    )

    steps = (fedvs_sums, fedvs_gradients, fedvs_announcements, fedvs_clients)
    modules = (*steps, coded_split_server, coded_split_holders, others)
    return tuple(one for module in modules for one in module.LIES)


__all__ = ["FULL", "SMALL", "Finding", "Lie", "Outcome", "Size", "all_lies"]
