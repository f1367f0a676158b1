"""Declaration of DVFL: one line for each kind of message, and the formula of each.

The rows and the encoders of all parties determine every message. The audit computes them, and
compares byte by byte. The formulas are those of runs in which no party is absent.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any
from typing import Protocol as Interface

import numpy as np

from securevfl.engine.party import ANNOUNCE
from securevfl.models.pretraining.autoencoder import Encoder
from securevfl.models.split import Batches
from securevfl.protocols.base.messages import (
    Formula,
    MessageKey,
    MessageSpec,
    RunSecrets,
    announcement,
    fixed,
    with_formulas,
)
from securevfl.protocols.dvfl.arrays import own_rows
from securevfl.protocols.dvfl.parameters import DvflConfig
from securevfl.protocols.dvfl.schedule import RoundSchedule


class Method(Interface):
    """The attributes of the protocol that the declaration reads."""

    config: DvflConfig
    data: Any
    schedule: RoundSchedule
    batches: Batches

    @property
    def features(self) -> Sequence[np.ndarray]:
        """All rows of each guest, the aligned ones first."""

    def peers(self) -> range:
        """Numbers of the guests."""

    def guest_network(self, index: int) -> Encoder:
        """New encoder of a guest."""

    def host_network(self, index: int) -> Encoder:
        """New encoder of a host."""


def messages_of(protocol: Method) -> tuple[MessageSpec, ...]:
    """Every message of a run: activations in training, at the end codes and encodings."""
    config, schedule, aligned = protocol.config, protocol.schedule, protocol.data.rows

    def when_written(key: MessageKey) -> int:
        return int(schedule.writes(key.round))

    def at_the_end(key: MessageKey) -> int:
        return int(key.round > schedule.rounds)

    declared = (
        MessageSpec(
            *("activation", "guest", "host", "embedding"),
            shape=fixed(protocol.batches.coded, config.width),
            dtype="float32",
            count=when_written,
            source="guest training round",
        ),
        announcement("guest", sender="owner", source="section 5: the owner asks"),
        announcement("host", sender="owner", source="section 5: the owner asks"),
        MessageSpec(
            *("code", "guest", "host", "embedding"),
            shape=fixed(aligned, config.width),
            dtype="float32",
            count=at_the_end,
            row_by_row=True,
            source="section 5: the intersection",
        ),
        MessageSpec(
            *("encoding", "host", "owner", "embedding"),
            shape=fixed(aligned, config.host_width),
            dtype="float32",
            count=at_the_end,
            source="section 5: the intersection",
        ),
    )
    formulas: dict[str, Any] = {
        ANNOUNCE: announced,
        "activation": activation,
        "code": code,
        "encoding": encoding,
    }
    bound: dict[str, Formula] = {
        kind: functools.partial(formula, protocol) for kind, formula in formulas.items()
    }
    return with_formulas(declared, bound)


def announced(protocol: Method, secrets: RunSecrets, key: MessageKey) -> str | None:
    """Nothing but the number of the round in which the owner asks for codes; then the end."""
    return None if key.round <= protocol.schedule.rounds + 1 else "stop"


def activation(protocol: Method, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
    """A guest's codes of the round's batch, by its encoder of that round."""
    features = protocol.features[key.sender]
    places = protocol.batches.samples(protocol.batches.draw(key.round))
    rows = own_rows(places, protocol.data.rows, len(features))
    encoder = protocol.guest_network(key.sender)
    return _as_it_was(encoder, secrets, key).encode(features[rows])


def code(protocol: Method, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
    """A guest's codes of all aligned rows."""
    rows = protocol.features[key.sender][: protocol.data.rows]
    encoder = protocol.guest_network(key.sender)
    return _as_it_was(encoder, secrets, key).encode(rows)


def encoding(protocol: Method, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
    """A host's encodings of the codes of all guests, side by side."""
    sent = secrets.sent("code", key.round)
    codes = [sent[guest, key.sender] for guest in protocol.peers()]
    encoder = protocol.host_network(key.sender)
    return _as_it_was(encoder, secrets, key).encode(np.concatenate(codes, axis=1))


def _as_it_was(encoder: Encoder, secrets: RunSecrets, key: MessageKey) -> Encoder:
    """The sender's encoder with the weights that it had when it sent the message."""
    encoder.load_state_dict(secrets.state(key)["network"])
    return encoder
