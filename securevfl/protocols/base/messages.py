"""What a protocol declares of its messages and of its secret randomness.

The engine refuses a message that is not declared. Verifiers recompute what is declared, the planner
sums its sizes, and attacks read what is not public, so that none of them knows a protocol by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

Carries = Literal[
    "control",  # who, which rows, when; no value that depends on data
    "key",  # public keys, and shares of secret ones
    "data_share",
    "model_share",
    "mask",  # shares of masks
    "masked_result",  # an embedding, or a sum of them, that masks hide
    "ciphertext",
    "embedding",  # an embedding as it is, be it noisy
    "gradient",  # dL/dH, or what a step on it needs
    "labels",
    "weights",
]


class MessageKey(NamedTuple):
    """One message of a run; a party sends each kind at most once a round to each receiver."""

    kind: str
    round: int
    sender: int
    receiver: int


class RunSecrets(Protocol):
    """Everything that an observer of a whole run knows; the audit records it."""

    def data(self, party: int) -> Any:
        """What the party was given: its columns, or its labels."""

    def state(self, key: MessageKey) -> Mapping[str, Any]:
        """Kept attributes of the sender (`Party.kept`) when it sent the message."""

    def draw(self, party: int, name: str, round: int) -> np.ndarray:
        """A declared secret draw of a party."""

    def sent(self, kind: str, round: int) -> Mapping[tuple[int, int], Any]:
        """Payloads of a kind in a round, by (sender, receiver)."""


@dataclass(frozen=True)
class MessageSpec:
    """One kind of message that a protocol may send.

    Attributes
    ----------
    kind : str
        Name on the wire; it never changes.
    sender, receiver : str
        Roles, as in `Protocol.roles`. One kind between other roles needs another declaration.
    carries : str
        What the payload is.
    public : bool
        Whether everybody may know the content, as of an announcement.
    shape : callable, optional
        Round to the shape of the payload's array; None where it depends on chance or on data.
    dtype : str
        Of that array; empty where the payload is no array.
    count : callable, optional
        Round to the number of messages from one sender to one receiver; one in every round if not
        given.
    recompute : callable, optional
        The payload by the paper's formula, from all secrets of the run. Where it is missing no
        verdict on what the message tells is stronger than NOT TESTED.
    source : str
        Line of the algorithm, or equation.
    """

    kind: str
    sender: str
    receiver: str
    carries: Carries
    public: bool = False
    shape: Callable[[int], tuple[int, ...]] | None = None
    dtype: str = ""
    count: Callable[[int], int] | None = None
    recompute: Callable[[RunSecrets, MessageKey], Any] | None = None
    source: str = ""


@dataclass(frozen=True)
class Draw:
    """One uniform secret value that a party draws; no draw is used twice.

    Attributes
    ----------
    name : str
        Its letter in the paper.
    role : str
        Who draws it.
    shape : callable
        Round to its shape; rounds count from 0, the setup.
    kinds : tuple of str
        Kinds of message that depend on it.
    """

    name: str
    role: str
    shape: Callable[[int], tuple[int, ...] | None]
    kinds: tuple[str, ...]
