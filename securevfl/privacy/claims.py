"""A privacy claim, in words that a machine can read: against whom, about what, how strong, why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from securevfl.privacy.adversary import OUTSIDER, Adversary

Asset = Literal["features", "model", "labels", "messages"]
Strength = Literal["perfect", "statistical", "computational", "differential", "none"]
Notion = Strength  # the word of summaries and of reports


@dataclass(frozen=True, init=False)
class Claim:
    """One line of a protocol's card.

    `who`, `about`, `notion` and `source` are the words that summaries and verdicts are written
    with: the phrase of the adversary, and the other three attributes.

    Attributes
    ----------
    against : Adversary
        May be given by its phrase: "server", "T clients", "server + T clients", "outsider".
    asset : {"features", "model", "labels", "messages"}
        What is protected. "messages": that nothing is sent but what is declared.
    strength : {"perfect", "statistical", "computational", "differential", "none"}
        "perfect" supposes ideal randomness and private channels; "none" says that the protocol
        claims nothing here, which is stated so that nobody has to guess.
    reason : str
        The theorem, or why nothing is claimed.
    given : tuple of str
        What the adversary is granted besides, such as "decoded sums".

    Examples
    --------
    >>> claim = Claim("server", "features", "none", "embeddings are sent in the clear")
    >>> claim.against == Adversary(server=True), claim.who, claim.notion
    (True, 'server', 'none')
    """

    against: Adversary
    asset: Asset
    strength: Strength
    reason: str
    given: tuple[str, ...] = ()

    def __init__(
        self,
        against: Adversary | str,
        asset: Asset,
        strength: Strength,
        reason: str,
        given: tuple[str, ...] = (),
    ) -> None:
        adversary = Adversary.parse(against) if isinstance(against, str) else against
        values = (adversary, asset, strength, reason, tuple(given))
        for name, value in zip(self.__dataclass_fields__, values, strict=True):
            object.__setattr__(self, name, value)

    @property
    def who(self) -> str:
        """Phrase of the adversary."""
        return str(self.against)

    @property
    def about(self) -> Asset:
        """The asset."""
        return self.asset

    @property
    def notion(self) -> Strength:
        """The strength."""
        return self.strength

    @property
    def source(self) -> str:
        """The reason."""
        return self.reason

    def to_dict(self) -> dict[str, str]:
        """The four words that are written to files."""
        return {
            "who": self.who,
            "about": self.about,
            "notion": self.notion,
            "source": self.source,
        }


#: Of methods whose clients send embeddings and get gradients as they are.
OPEN_EMBEDDINGS = (
    Claim("server", "features", "none", "embeddings are sent in the clear"),
    Claim("server", "model", "none", "embeddings are sent in the clear"),
    Claim("client", "labels", "none", "dL/dH depends on them"),
)


def link_claims(sealed: bool) -> tuple[Claim, ...]:
    """Claims of the engine's links against an outsider, whatever the protocol."""
    assets: tuple[Asset, ...] = ("features", "model", "labels")
    if not sealed:
        why = "links are not sealed; K+T shares, or plain embeddings, reveal everything"
        return tuple(Claim(OUTSIDER, asset, "none", why) for asset in assets[:2])
    why = "sealed links: X25519, HKDF-SHA256, ChaCha20-Poly1305; sizes, kinds and times are seen"
    return tuple(Claim(OUTSIDER, asset, "computational", why) for asset in assets)
