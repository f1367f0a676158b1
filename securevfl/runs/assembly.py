"""The parts of a run, made from its specification: protocol, faults, encrypted links."""

from __future__ import annotations

import gc
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securevfl.data.source import DataSource
from securevfl.engine.conditions import with_helpers
from securevfl.engine.conditions_file import load_conditions
from securevfl.engine.faults import Schedule
from securevfl.engine.message_rules import MessageRules, Route
from securevfl.engine.party import Party
from securevfl.engine.security.sealing import Sealing
from securevfl.engine.transcript_rows import HELD, ROW_BYTES
from securevfl.errors import ConfigurationError, WouldNotFitError
from securevfl.planning.message_bytes import link_memory, sent_messages
from securevfl.protocols.base.messages import SELF, MessageSpec
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.protocols.base.schedule import Shape
from securevfl.runs.spec import RunSpec

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset
    from securevfl.data.local_tables import PublicFacts, Tables
    from securevfl.engine.cluster.supervisor import Cluster


@dataclass(frozen=True)
class LocalTables:
    """Tables that stay at the parties of a run, after their alignment.

    `cluster` contains the actors that aligned them and then train; None for a resumed run.
    """

    tables: Tables
    facts: PublicFacts
    cluster: Cluster | None = None


@dataclass(frozen=True)
class Assembled:
    """A run that is ready to start: everything that an engine needs.

    The protocol has its configuration, data and secrets. `folder` is None if nothing is stored.
    `tables` is set if the parties read their own tables, which needs a folder.
    """

    spec: RunSpec
    protocol: Protocol
    folder: Path | None
    tables: LocalTables | None = None


def specify(
    protocol: Protocol,
    asked: Mapping[str, Any],
    *,
    conditions: str,
    source: DataSource | None,
) -> RunSpec:
    """The specification of a run, with a value for every option left open.

    `asked` has the checked options of the run by name; None leaves the choice to the run.
    `conditions` are the default conditions. `source` is None if the caller passed a data set
    object.
    """
    data, rounds = protocol.data, protocol.config.rounds
    values = {name: value for name, value in asked.items() if value is not None}
    loaded = load_conditions(
        values.get("conditions", conditions), parties=data.parties, batch_rows=protocol.batch_rows
    )
    values["conditions"] = with_helpers(loaded, len(protocol.peers()))
    if "until" in values and not values.keys() & {"eval_every", "eval_seconds"}:
        values["eval_seconds"] = values["until"] / 50
    values.setdefault("eval_every", max(1, rounds // 50))
    return RunSpec(
        protocol=protocol.name,
        options=protocol.config.model_dump(),
        run_id=secrets.token_hex(8),
        source=source,
        fingerprint=data.fingerprint(),
        **values,
    )


def sealing_of(spec: RunSpec, parties: Mapping[int, Party]) -> Sealing | None:
    """The sealed (encrypted) links of a run; None if it has none."""
    return Sealing(spec.protocol, spec.run_id, parties) if spec.sealed else None


def schedule_of(protocol: Protocol, spec: RunSpec) -> Schedule | None:
    """Fault schedule of a run; None without faults."""
    if spec.faults is None:
        return None
    return spec.faults.bind(protocol.roles(), spec.seed, last=protocol.last_fault)


def make_protocol(
    protocol: str, options: Mapping[str, object], data: VerticalDataset, seed: int
) -> tuple[Protocol, Any]:
    """(protocol made for a data set and `seed`, its validated options)."""
    check_default_dtype()
    cls = get_protocol(protocol)
    config = make_config(cls, options)
    return cls(config, data, seed=seed), config


def check_default_dtype() -> None:
    """Raise ConfigurationError unless torch's default dtype is float32, that of all networks."""
    import torch

    if torch.get_default_dtype() != torch.float32:
        raise ConfigurationError(
            f"run: torch's default dtype is {torch.get_default_dtype()}, and models are trained in "
            "float32. Call torch.set_default_dtype(torch.float32) before"
        )


def check_gradients() -> None:
    """Raise ConfigurationError where torch computes no gradients, as inside of torch.no_grad()."""
    import torch

    if not torch.is_grad_enabled():
        raise ConfigurationError(
            "run: torch computes no gradients here, and training needs them. Call it outside of "
            "torch.no_grad() and torch.inference_mode()"
        )


def rules_of(
    protocol: Protocol, messages: Sequence[MessageSpec] | None = None
) -> MessageRules | None:
    """Rules that decide which messages an engine sends; None if the protocol declares none.

    `messages` are declarations, by default those of a run. ConfigurationError if one names a role
    that the protocol does not have.
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
    senders = frozenset(roles[sender])
    return Route(declared.kind, sender, receiver, senders, receivers, declared.modulus)


def check_memory(protocol: Protocol, folder: Path | None = None, *, messages: bool = True) -> None:
    """Refuse a run whose predicted memory exceeds the available memory (WouldNotFitError).

    A simulation with a folder stores all but its newest messages there. The list of messages needs
    43 bytes each (`transcript_bytes`). With `messages` False it is not counted, because the number
    of messages of a run that ends at a virtual second is unknown.
    """
    import psutil

    listed = transcript_bytes(protocol, folder) if messages else 0
    needed, available = planned_memory(protocol) + listed, int(psutil.virtual_memory().available)
    if needed > available // 4:  # a run that ended before in this process may be garbage by now
        gc.collect()
        available = int(psutil.virtual_memory().available)
    if needed > available:
        advice = protocol.advice(available)
        if listed > needed // 2:
            advice = (
                f"{listed / 1e9:.2f} GB are for the list of its messages. Give the simulation a "
                "folder (--out), where they go, or fewer rounds"
            )
        raise WouldNotFitError(
            f"{protocol.name}: this run needs about {needed / 1e9:.2f} GB and "
            f"{available / 1e9:.2f} GB are available; {advice}"
        )


def planned_memory(protocol: Protocol) -> int:
    """Memory, in bytes, of shares and links; 0 where the protocol has no forecast of its own."""
    own = protocol.memory()
    return own + link_memory(len(protocol.peers()), sealed=True) if own else 0


def transcript_bytes(protocol: Protocol, folder: Path | None) -> int:
    """Memory, in bytes, of the list of a run's messages; with a folder only the newest stay in it.

    A protocol without a message schedule counts as split learning: an announcement, an embedding
    and a gradient per client and round.
    """
    data = protocol.data
    shape = Shape(tuple(data.widths), len(data.train_labels), len(data.test_labels))
    outline = protocol.outline(protocol.config, shape)
    N = len(protocol.peers())
    if outline is None:
        rows = 3 * N * getattr(protocol.config, "rounds", 0)
    else:
        rows = sent_messages(outline, N)
    return (rows if folder is None else min(rows, HELD)) * ROW_BYTES


def tolerates(made: Protocol) -> bool:
    """Whether a protocol, with these options, goes on while a client is absent."""
    fields = type(made.config).model_fields
    # Numbers, such as that of groups, only say how many clients can be spared.
    names = [n for n, value in made.fault_options.items() if type(value) is not int]
    return bool(names) and all(getattr(made.config, n) != fields[n].default for n in names)
