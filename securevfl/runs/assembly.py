"""The parts of a run, made from its specification: protocol, faults, encrypted links."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from securevfl.engine.faults import Schedule
from securevfl.engine.party import Party
from securevfl.engine.security.sealing import Sealing
from securevfl.errors import WouldNotFitError
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.runs.spec import RunSpec

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


def sealing_of(spec: RunSpec, parties: Mapping[int, Party]) -> Sealing | None:
    """The sealed links of a run, if it has them."""
    return Sealing(spec.protocol, spec.run_id, parties) if spec.sealed else None


def schedule_of(protocol: Protocol, spec: RunSpec) -> Schedule | None:
    """What breaks in a run, if anything."""
    if spec.faults is None:
        return None
    return spec.faults.bind(protocol.roles(), spec.seed, last=protocol.last_fault)


def reviver(protocol: Protocol) -> Callable[[int], Party]:
    """Makes parties anew that come back after a crash."""
    return protocol.party


def make_protocol(
    protocol: str, options: Mapping[str, Any], data: VerticalDataset, seed: int
) -> tuple[Protocol, Any]:
    """A protocol with its validated options, for a data set."""
    cls = get_protocol(protocol)
    config = make_config(cls, options)
    return cls(config, data, seed=seed), config


def check_memory(protocol: Protocol) -> None:
    """Refuse a run whose predicted memory exceeds what is available.

    Raises
    ------
    WouldNotFitError
        Naming both numbers and what to change.
    """
    import psutil

    needed, available = protocol.memory(), int(psutil.virtual_memory().available)
    if needed > available:  # a run that ended before in this process may be garbage by now
        gc.collect()
        available = int(psutil.virtual_memory().available)
    if needed > available:
        raise WouldNotFitError(
            f"{protocol.name}: this run needs about {needed / 1e9:.2f} GB and "
            f"{available / 1e9:.2f} GB are available; {protocol.advice(available)}"
        )
