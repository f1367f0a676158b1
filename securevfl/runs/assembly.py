"""The parts of a run, made from its specification: protocol, faults, encrypted links."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from securevfl.engine.faults import Schedule
from securevfl.engine.message_rules import MessageRules, Route
from securevfl.engine.party import Party
from securevfl.engine.security.sealing import Sealing
from securevfl.errors import ConfigurationError, WouldNotFitError
from securevfl.protocols.base.messages import SELF, MessageSpec
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.runs.spec import Plan

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


def sealing_of(plan: Plan, parties: Mapping[int, Party]) -> Sealing | None:
    """The sealed links of a run, if it has them."""
    return Sealing(plan.protocol, plan.run_id, parties) if plan.sealed else None


def schedule_of(protocol: Protocol, plan: Plan) -> Schedule | None:
    """What breaks in a run, if anything."""
    if plan.faults is None:
        return None
    return plan.faults.bind(protocol.roles(), plan.seed, last=protocol.last_fault)


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


def rules_of(
    protocol: Protocol, messages: Sequence[MessageSpec] | None = None
) -> MessageRules | None:
    """What the engine of a run lets pass; None where the protocol declares no messages.

    Parameters
    ----------
    protocol : Protocol
    messages : sequence of MessageSpec, optional
        Those of a run if not given.

    Raises
    ------
    ConfigurationError
        When a declaration names a role that the protocol has not.
    """
    declared = protocol.messages if messages is None else messages
    if not declared:
        return None
    return MessageRules(protocol.name, [_route(protocol, one) for one in declared])


def _route(protocol: Protocol, declared: MessageSpec) -> Route:
    roles = protocol.roles()
    sender, receiver = declared.sender, declared.receiver
    for role in (sender, receiver):
        if role not in {*roles, SELF} or sender == SELF:
            raise ConfigurationError(
                f"{protocol.name}: the message {declared.kind!r} is declared from {sender!r} to "
                f"{receiver!r}, and the roles are {', '.join(roles)}; name one of these, or add it "
                "to roles()"
            )
    receivers = None if receiver == SELF else frozenset(roles[receiver])
    return Route(declared.kind, sender, receiver, frozenset(roles[sender]), receivers)


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
