"""Cards: descriptions of protocols for readers, and the messages that show row values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Absence = Literal["waits", "skips", "fills", "tolerates"]


@dataclass(frozen=True)
class Card:
    """Description of a protocol: its roles, what each sees, absence, and deviations from a paper.

    Attributes
    ----------
    title, paper : str
        Name of the method, and the publication with version.
    roles : mapping
        Description of each role.
    sees : mapping
        Everything that each role learns, whether or not a claim covers it.
    absence : {"waits", "skips", "fills", "tolerates"}
        Behaviour of other parties if a party's message does not arrive.
    deviations : tuple of str
        Differences of this implementation from the paper, and choices that the paper leaves open.
    """

    title: str
    paper: str
    roles: Mapping[str, str]
    sees: Mapping[str, str]
    absence: Absence
    deviations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exposure:
    """A kind of message whose receiver sees values row by row; attacks use these.

    `Protocol.messages` marks these kinds by `MessageSpec.row_by_row`.

    Attributes
    ----------
    kind : str
        Kind of the message.
    carries : {"embedding", "upload", "gradient", "gradient share"}
        "embedding": the sender's embedding, with or without noise. "upload": a protected embedding:
        masked, shared or encrypted. "gradient": dL/dH of the receiver's embedding. "gradient
        share": the receiver's share of a step, from which dL/dH follows.
    """

    kind: str
    carries: Literal["embedding", "upload", "gradient", "gradient share"]
