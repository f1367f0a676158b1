"""Checks that every protocol must pass, published for authors of protocols.

Each check is a function of a protocol, a data set and options, and raises `AssertionError` with the
protocol's name and the fault. Use them from pytest::

    import pytest
    from securevfl.testing.conformance import CHECKS

    @pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
    def test_conformance(check):
        check(MyProtocol, segments=2)

or all at once by ``check_protocol(MyProtocol)``. Without a data set the bundled digits are used:
few rows, divided unevenly among six parties; or 400 rows and eight parties for checks of learning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from securevfl.testing.basics import Check
from securevfl.testing.declaration_checks import (
    check_card,
    check_config,
    check_memory,
    check_source,
)
from securevfl.testing.disturbance_checks import (
    check_absence,
    check_faults,
    check_resume,
    check_senders,
)
from securevfl.testing.endurance_checks import check_endurance
from securevfl.testing.run_checks import (
    check_accounting,
    check_copying,
    check_determinism,
    check_end,
    check_global_state,
    check_messages,
    check_own_entropy,
    check_ownership,
    check_payloads,
    check_training,
)
from securevfl.testing.runs import ProtocolLike

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

__all__ = [
    "CHECKS",
    "check_absence",
    "check_accounting",
    "check_card",
    "check_config",
    "check_copying",
    "check_determinism",
    "check_end",
    "check_endurance",
    "check_faults",
    "check_global_state",
    "check_memory",
    "check_messages",
    "check_own_entropy",
    "check_ownership",
    "check_payloads",
    "check_protocol",
    "check_resume",
    "check_senders",
    "check_source",
    "check_training",
]

CHECKS: dict[str, Check] = {
    "card": check_card,
    "config": check_config,
    "source": check_source,
    "memory": check_memory,
    "training": check_training,
    "determinism": check_determinism,
    "own entropy": check_own_entropy,
    "copying": check_copying,
    "ownership": check_ownership,
    "payloads": check_payloads,
    "messages": check_messages,
    "senders": check_senders,
    "resume": check_resume,
    "global state": check_global_state,
    "absence": check_absence,
    "faults": check_faults,
    "endurance": check_endurance,
    "end": check_end,
    "accounting": check_accounting,
}


def check_protocol(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Run all conformance checks of a protocol.

    Parameters
    ----------
    protocol : str or Protocol class
        Name of an installed protocol, or a class.
    data : VerticalDataset, optional
        Data set; the bundled digits if not given.
    **options
        Options of the protocol that all checks use.

    Raises
    ------
    AssertionError
        If checks failed; the message has their names and reasons.
    """
    failures = []
    for name, check in CHECKS.items():
        try:
            check(protocol, data, **options)
        except AssertionError as error:
            failures.append(f"[{name}] {error}")
    if failures:
        raise AssertionError("\n".join(failures))
