"""Declarations of messages, which each protocol makes.

The engine refuses an undeclared message (`securevfl.engine.message_rules`), and attacks read the
messages whose rows are declared. So neither depends on a protocol's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from securevfl.engine.party import ANNOUNCE
from securevfl.protocols.base.card import Exposure

Carries = Literal[
    "control",  # numbers of parties and rows, and rounds; no value that depends on data
    "identifier",  # identifiers of rows, blinded or not, or their places
    "measure",  # a loss, or a number of rows
    "key",  # public keys, signatures by them, and shares of secret ones
    "data_share",
    "model_share",
    "mask",  # shares of masks
    "result_share",  # a share of a result: too few of them reveal nothing, enough reveal it
    "masked_result",  # an embedding, or a sum of them, that masks hide
    "ciphertext",
    "result",  # a value that the protocol reveals to the receiver on purpose, such as a sum
    "embedding",  # an embedding in the clear, with noise or without
    "gradient",  # dL/dH, or values from which a step with it is computed
    "labels",
    "weights",  # of a network, their gradients, or their norm
]

SELF = "itself"  # receiver of a message that a party puts into its own mailbox


class MessageKey(NamedTuple):
    """Key of a message of a run: each party sends each kind once a round to each receiver."""

    kind: str
    round: int
    sender: int
    receiver: int


UPLOADS = ("masked_result", "result_share")  # what a client of a coded protocol computes on shares


@dataclass(frozen=True)
class MessageSpec:
    """Declaration of one kind of message that a protocol may send.

    Attributes
    ----------
    kind : str
        Name in the message; it must not change between versions.
    sender, receiver : str
        Roles in `Protocol.roles`. One kind between two pairs of roles needs two declarations.
        The receiver is `SELF` if a party sends to itself only. Shares that all clients send each
        other (`Party.share`) go from "client" to "client".
    carries : str
        Meaning of the payload.
    public : bool
        Whether the content is public, such as an announcement.
    shape : callable, optional
        Function from the message's key to the shape of the payload's array (`array_of`). The
        function, or its result for a message, is None if the shape depends on chance or on data.
    dtype : str
        Dtype of that array; empty if the payload has none.
    count : callable, optional
        Function from the key to the number of such messages, 0 or 1; 1 if it depends on which
        parties are present. By default one message in every round.
    row_by_row : bool
        Whether the receiver sees values of single training rows, which `Protocol.shown` and
        `Protocol.named_rows` identify for attacks (`Protocol.exposures`).
    source : str
        Line of the algorithm, or equation, that defines the message.
    modulus : int, optional
        p, if arrays in the payload with the dtype of F_p hold its elements. These are sent with the
        number of bits of an element (`securevfl.engine.wire`). All declarations of a kind have one
        modulus.
    """

    kind: str
    sender: str
    receiver: str
    carries: Carries
    public: bool = False
    shape: Callable[[MessageKey], tuple[int, ...] | None] | None = None
    dtype: str = ""
    count: Callable[[MessageKey], int] | None = None
    row_by_row: bool = False
    source: str = ""
    modulus: int | None = None


_Exposed = Literal["embedding", "upload", "gradient", "gradient share"]
_EXPOSED: Mapping[str, _Exposed] = {
    "embedding": "embedding",
    "masked_result": "upload",
    "result_share": "upload",
    "ciphertext": "upload",
    "gradient": "gradient",
}


def exposures_of(messages: Iterable[MessageSpec]) -> tuple[Exposure, ...]:
    """Messages that show values row by row, each kind once, in declared order."""
    shown = {one.kind: _exposed(one) for one in messages if one.row_by_row}
    return tuple(Exposure(kind, carries) for kind, carries in shown.items())


def _exposed(spec: MessageSpec) -> _Exposed:
    """Content that a message shows; a result share sent by the server is a gradient share."""
    dealt = (spec.sender, spec.carries) == ("server", "result_share")
    return "gradient share" if dealt else _EXPOSED[spec.carries]


def announcement(
    receiver: str = "client",
    *,
    sender: str = "server",
    carries: Carries = "control",
    source: str = "",
) -> MessageSpec:
    """Declaration of `Party.announce`'s messages, of a round or the end ("stop"), by roles."""
    return MessageSpec(
        ANNOUNCE, sender, receiver, carries, public=carries == "control", source=source
    )


def last_word(receiver: str = "client") -> MessageSpec:
    """Declaration of the message "stop" for parties that do not loop over announced rounds."""
    return MessageSpec(
        *("stop", "server", receiver, "control"),
        public=True,
        source="ours: the end",
    )


def in_setup(key: MessageKey) -> int:
    """Count for a message that is sent once, before round 1: 1 in round 0, else 0."""
    return int(key.round == 0)


def in_rounds(key: MessageKey) -> int:
    """Count for a message sent in every round: 1 from round 1 on, 0 in set-up."""
    return int(key.round > 0)


def fixed(*shape: int) -> Callable[[MessageKey], tuple[int, ...]]:
    """Shape function that gives every message of a kind the same shape."""
    return lambda key: shape


def array_of(payload: Any) -> np.ndarray | None:
    """Array of a payload: the payload itself, or the second of a pair that names rows first."""
    value = payload[-1] if isinstance(payload, tuple) and len(payload) == 2 else payload
    return value if isinstance(value, np.ndarray) else None


def with_history(messages: Iterable[MessageSpec], *fuller: str) -> tuple[MessageSpec, ...]:
    """Message declarations with a signed history added, which clients compare.

    Parameters
    ----------
    messages : iterable of MessageSpec
        Declarations of the method.
    *fuller : str
        Kinds with further parts: messages that the server signs, and shares sent with the history
        hash h.
    """
    made = [
        replace(one, shape=None, dtype="", row_by_row=False) if one.kind in fuller else one
        for one in messages
    ]
    peers, page = ("client", "client"), "docs/active.md"
    return (
        *made,
        MessageSpec("identity", *peers, "key", public=True, count=in_setup, source=page),
        MessageSpec(
            "identity", "server", "client", "key", public=True, count=in_setup, source=page
        ),
        MessageSpec("doubted", *peers, "control"),
        MessageSpec("history", *peers, "key", source=page),
        MessageSpec("lacks", "client", "server", "control"),
        MessageSpec("missed", "server", "client", "key", source=page),
    )
