"""The traffic of a run: declared messages by their roles, and what is seen without secrets."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.engine.simulation.simulator import Simulation
from securevfl.protocols.base.messages import SELF, MessageKey, MessageSpec
from securevfl.protocols.base.protocol import Protocol
from securevfl.runs.threads import one_thread


@dataclass(frozen=True)
class Deviation:
    """One message that is not as it should be.

    Attributes
    ----------
    key : MessageKey
    what : str
        What is wrong with it.
    """

    key: MessageKey
    what: str

    def __str__(self) -> str:
        kind, round, sender, receiver = self.key
        return f"round {round}: {kind!r} from {_name(sender)} to {_name(receiver)}: {self.what}"


def _name(party: int) -> str:
    return "the server" if party < 0 else f"client {party}"


class Declared:
    """The declaration of a protocol, by kind and roles."""

    def __init__(self, protocol: Protocol) -> None:
        self.messages = protocol.messages
        self.roles: Mapping[str, tuple[int, ...]] = protocol.roles()

    def spec_of(self, key: MessageKey) -> MessageSpec | None:
        """The declaration that a message falls under; None for none."""
        return next((spec for spec in self.messages if self._covers(spec, key)), None)

    def _covers(self, spec: MessageSpec, key: MessageKey) -> bool:
        if spec.kind != key.kind or key.sender not in self.roles.get(spec.sender, ()):
            return False
        if spec.receiver == SELF:
            return key.sender == key.receiver
        return key.receiver in self.roles.get(spec.receiver, ())


Envelopes = tuple[tuple[Any, ...], ...]


def traffic_of(protocol: Protocol) -> Envelopes:
    """Envelopes of a run with nobody late, in the order of sending.

    Each is kind, round, sender, receiver, bytes, and when it was sent and arrived in nanoseconds.
    """
    made = Simulation(
        protocol.parties(),
        seed=protocol.seed,
        secrets=protocol.secrets,
        make_party=protocol.party,
    )
    with one_thread():
        made.run()
    columns = made.transcript.columns()
    names = ("kind", "round", "sender", "receiver", "bytes", "sent", "arrived")
    return tuple(zip(*(columns[name].tolist() for name in names), strict=True))


def with_other_data(
    protocol: Protocol,
    *,
    columns: Mapping[int, np.ndarray] | None = None,
    labels: np.ndarray | None = None,
    secrets: Any = None,
) -> Protocol:
    """The protocol with other training columns or labels, and other secrets."""
    data = copy.copy(protocol.data)
    if columns is not None:
        train = tuple(np.resize(columns[n], one.shape) for n, one in enumerate(data.train))
        object.__setattr__(data, "train", train)
    if labels is not None:
        object.__setattr__(data, "train_labels", labels)
    made = type(protocol)(protocol.config, data, seed=protocol.seed)
    if secrets is not None:
        made.secrets = secrets
    return made


def text_of(value: Any) -> str:
    """A value as the files of a run have it: numbers of other types with the same digits."""
    if type(value) is int:
        return str(value)
    try:
        return json.dumps(value, default=_plain)
    except (TypeError, ValueError):  # keys that are no text, or a value that holds itself
        return repr(value)


def _plain(value: Any) -> Any:
    made = getattr(value, "tolist", None)  # of NumPy's numbers and arrays, and of tensors
    return repr(value) if made is None else made()
