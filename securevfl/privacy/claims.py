"""Privacy claims in machine-readable form: adversary, asset, strength and reason."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from decimal import ROUND_CEILING, Decimal
from typing import Any, Literal, get_args

from securevfl.errors import ConfigurationError
from securevfl.privacy.adversary import OUTSIDER, Adversary
from securevfl.privacy.released_equations import BOUNDED, Odometer

Asset = Literal["features", "model", "labels", "messages"]
Strength = Literal[
    "perfect", "statistical", "computational", "differential", "undetermined", "none"
]
_EXACT = (
    1e-7  # relative error of an epsilon, of which the accountant's root finding makes a quarter
)


@dataclass(frozen=True)
class Guarantee:
    """Differential privacy that a claim promises for one mechanism: epsilon and delta.

    Attributes
    ----------
    epsilon : float
        Epsilon of one release of a row; positive and finite.
    delta : float
        Delta of one release, and of all releases together; in [0, 1).
    total_epsilon : float
        Epsilon of all releases of a row in a run together; at least `epsilon`.

    Raises
    ------
    ConfigurationError
        When a number is out of range.
    """

    epsilon: float
    delta: float
    total_epsilon: float

    def __post_init__(self) -> None:
        if not (0 < self.epsilon <= self.total_epsilon < math.inf and 0 <= self.delta < 1):
            raise ConfigurationError(
                f"claim: epsilon = {self.epsilon} must be positive, epsilon of all releases = "
                f"{self.total_epsilon} at least that and finite, and delta = {self.delta} in [0, 1)"
            )

    def __str__(self) -> str:
        return (
            f"({self.epsilon:g}, {self.delta:g}) for each release of a row and "
            f"({rounded_up(self.total_epsilon)}, {self.delta:g}) for all of them"
        )


def rounded_up(value: float, digits: int = 3) -> str:
    """Text of a positive number rounded up to `digits` digits, apart from its float error."""
    number = Decimal(value * (1 - _EXACT))
    step = Decimal(1).scaleb(number.adjusted() + 1 - digits)
    return f"{float(number.quantize(step, ROUND_CEILING)):.{digits}g}"


@dataclass(frozen=True, init=False)
class Claim:
    """One privacy claim of a protocol's card.

    Summaries and verdicts read it as texts: `who` (`against`), `about` (`asset`), `notion`
    (`strength`) and `source` (`reason`, then `tells`).

    Attributes
    ----------
    against : Adversary
        Adversary, or its phrase: "server", "T clients", "server + T clients", "outsider".
    asset : {"features", "model", "labels", "messages"}
        Protected asset. "messages" claims that only declared messages are sent.
    strength : {"perfect", "statistical", "computational", "differential", "undetermined", "none"}
        "perfect" assumes ideal randomness and private channels. "undetermined" means that some
        other values give the adversary the same view, not that all values do. "none" states that
        the protocol claims nothing.
    reason : str
        The theorem, or the reason for claiming nothing.
    given : tuple of str
        Further information of the adversary, such as "decoded sums". A name "X" also grants each
        declared output "X of N" of one party N.
    guarantees : tuple of Guarantee
        For a differential claim: epsilon and delta of each mechanism that protects the asset.
    tells : str
        Sentence on what the ideal output reveals by itself in this configuration. `source` ends
        with it, so that a reader sees both.

    Raises
    ------
    ConfigurationError
        For another asset or strength, because nothing would be compared with it.

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
    guarantees: tuple[Guarantee, ...] = ()
    tells: str = ""

    def __init__(
        self,
        against: Adversary | str,
        asset: Asset,
        strength: Strength,
        reason: str,
        given: tuple[str, ...] = (),
        guarantees: tuple[Guarantee, ...] = (),
        tells: str = "",
    ) -> None:
        for what, word, known in (("asset", asset, Asset), ("strength", strength, Strength)):
            if word not in get_args(known):
                named = ", ".join(get_args(known))
                raise ConfigurationError(f"claim: the {what} {word!r} is none of {named}")
        adversary = Adversary.parse(against) if isinstance(against, str) else against
        values = (adversary, asset, strength, reason, tuple(given), tuple(guarantees), tells)
        for name, value in zip(self.__dataclass_fields__, values, strict=True):
            object.__setattr__(self, name, value)

    @property
    def who(self) -> str:
        """Phrase for the adversary."""
        return str(self.against)

    @property
    def about(self) -> Asset:
        """Asset that the claim protects."""
        return self.asset

    @property
    def notion(self) -> Strength:
        """Claimed strength of protection."""
        return self.strength

    @property
    def source(self) -> str:
        """The reason of the claim, and what its ideal output reveals."""
        return f"{self.reason}. {self.tells}" if self.tells else self.reason

    def to_dict(self) -> dict[str, Any]:
        """The claim as files store it: its texts, granted facts, and epsilon and delta."""
        numbers = [asdict(one) for one in self.guarantees]
        return {
            "who": self.who,
            "about": self.about,
            "notion": self.notion,
            "source": self.source,
            **({"given": list(self.given)} if self.given else {}),
            **({"tells": self.tells} if self.tells else {}),
            **({"guarantees": numbers} if numbers else {}),
        }


SUMS = "decoded sums"  # among what an adversary is granted
COUNTS = "number of independent columns"  # of each party, which a budget of sums tells all


def given_sums(claims: Iterable[Claim], odometer: Odometer | None) -> tuple[Claim, ...]:
    """The claims, with a sentence on what decoded sums reveal added where a claim allows them.

    `odometer` is None if nobody decodes sums. With a budget, perfect claims about features also
    allow the number of independent columns, which each party tells all for the budget.
    """
    if odometer is None:
        return tuple(claims)
    sentence = f"What these sums tell: {odometer.sentence()}"
    said = [replace(c, tells=sentence) if SUMS in c.given else c for c in claims]
    if not odometer.budget:
        return tuple(said)
    return tuple(
        replace(c, given=(*c.given, COUNTS))
        if (c.asset, c.strength) == ("features", "perfect") and COUNTS not in c.given
        else c
        for c in said
    )


def budget_claims(odometer: Odometer | None, stories: int = 1) -> tuple[Claim, ...]:
    """Claim that the budget of sums leaves columns undetermined; empty without a budget.

    Parameters
    ----------
    odometer : Odometer or None
        Count of the run's equations; None if nobody decodes sums.
    stories : int
        Factor by which a server with T colluding helpers gets more sums than are counted, if it
        announces different sums to different parties; 1 if it cannot.
    """
    if odometer is None or not odometer.budget:
        return ()
    below = odometer.budget * odometer.unknowns
    reason = (
        f"{BOUNDED}, while E h < {below:g}: around almost every table lie others that give the "
        "server the same sums in the whole run, in all rows jointly. Of real numbers, of who has "
        "nothing else, and no bound on guesses: columns that depend on each other are estimated "
        "from fewer equations, and columns of two values may come out exactly"
    )
    if stories > 1:
        reason += (
            "; and of a server that tells all parties the same: one with T helpers that tells "
            f"them different things gets up to {stories} times as many sums"
        )
    return (Claim("server", "features", "undetermined", reason),)


#: Of methods whose clients send embeddings and get gradients as they are.
OPEN_EMBEDDINGS = (
    Claim("server", "features", "none", "embeddings are sent in the clear"),
    Claim("server", "model", "none", "embeddings are sent in the clear"),
    Claim("client", "labels", "none", "dL/dH depends on them"),
)


def link_claims(sealed: bool) -> tuple[Claim, ...]:
    """Claims of the links between parties against an outsider, for any protocol."""
    assets: tuple[Asset, ...] = ("features", "model", "labels")
    if not sealed:
        why = "links are not sealed; K+T shares, or plain embeddings, reveal everything"
        return tuple(Claim(OUTSIDER, asset, "none", why) for asset in assets[:2])
    why = "sealed links: X25519, HKDF-SHA256, ChaCha20-Poly1305; sizes, kinds and times are seen"
    return tuple(Claim(OUTSIDER, asset, "computational", why) for asset in assets)
