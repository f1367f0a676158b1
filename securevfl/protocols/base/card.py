"""What a reader should know of a protocol before using it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Absence = Literal["waits", "skips", "fills", "tolerates"]


@dataclass(frozen=True)
class Card:
    """What a reader should know before using a protocol.

    Attributes
    ----------
    title, paper : str
        Name of the method, and the publication with version.
    roles : mapping
        Role to what it does.
    sees : mapping
        Role to everything it learns, whether or not a claim covers it.
    absence : {"waits", "skips", "fills", "tolerates"}
        What happens when a party's message does not come.
    deviations : tuple of str
        Where this implementation departs from the paper or fills a gap.
    """

    title: str
    paper: str
    roles: Mapping[str, str]
    sees: Mapping[str, str]
    absence: Absence
    deviations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exposure:
    """A kind of message whose receiver sees values row by row; attacks look for them.

    `Protocol.messages` says which they are; see `MessageSpec.row_by_row`.

    Attributes
    ----------
    kind : str
    carries : {"embedding", "upload", "gradient"}
        "embedding": the sender's own embedding, be it noisy. "upload": what stands for it where it
        is protected: masked, shared or encrypted. "gradient": dL/dH of the receiver's embedding.
    """

    kind: str
    carries: Literal["embedding", "upload", "gradient"]
