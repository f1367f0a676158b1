"""A privacy claim, in words that a machine can read: against whom, about what, how strong, why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Notion = Literal["perfect", "statistical", "computational", "differential", "none"]


@dataclass(frozen=True)
class Claim:
    """One line of a protocol's card.

    Attributes
    ----------
    who : str
        The adversary: "server", "T clients", "server + T clients", "outsider".
    about : str
        What is protected: "features", "model", "labels".
    notion : str
        "perfect" supposes ideal randomness and private channels; "none" says that the protocol
        claims nothing here, which is stated so that nobody has to guess.
    source : str
        The theorem, or the reason.
    """

    who: str
    about: str
    notion: Notion
    source: str


#: Of methods whose clients send embeddings and get gradients as they are.
OPEN_EMBEDDINGS = (
    Claim("server", "features", "none", "embeddings are sent in the clear"),
    Claim("server", "model", "none", "embeddings are sent in the clear"),
    Claim("client", "labels", "none", "dL/dH depends on them"),
)


def link_claims(sealed: bool) -> tuple[Claim, ...]:
    """What the engine's links claim against an outsider, whatever the protocol."""
    if not sealed:
        why = "links are not sealed; K+T shares, or plain embeddings, reveal everything"
        return tuple(Claim("outsider", about, "none", why) for about in ("features", "model"))
    why = "sealed links: X25519, HKDF-SHA256, ChaCha20-Poly1305; sizes, kinds and times are seen"
    return tuple(
        Claim("outsider", about, "computational", why) for about in ("features", "model", "labels")
    )
