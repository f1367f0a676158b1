"""Options, messages and public parameters of masked sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from securevfl.engine.wire import message
from securevfl.errors import PrivacyError
from securevfl.field import LagrangeCode
from securevfl.field.cohorts import Cohorts, cohorts_of, most_cohorts
from securevfl.protocols.base.options import ShareTimeout
from securevfl.protocols.base.summed_parties import SummedConfig


class SecAggConfig(SummedConfig):
    """Options of secure aggregation."""

    privacy: int = Field(
        1,
        ge=1,
        description=(
            "Privacy threshold T: number of clients that may pool what they see with the "
            "server and still learn no single embedding."
        ),
    )
    threshold: int | None = Field(
        None,
        ge=2,
        description=(
            "Threshold t: number of shares that rebuild a seed. Default: T+1, and more with"
            " consistency."
        ),
    )
    quorum: int | None = Field(
        None,
        ge=1,
        description=(
            "Number of survivors, clients whose upload came, that are summed. Default: N - "
            "floor(N/2), and at least T+2 and t."
        ),
    )
    cohorts: int | None = Field(
        None,
        ge=0,
        description=(
            "Number of cohorts, fixed groups of at least T+2 clients that survive whole or not at "
            "all. 0 sums the first survivors, as in the paper; such sums tell single clients' "
            "embeddings. Default: floor(N/(T+2)) with a quorum below N, else 1."
        ),
    )
    consistency: bool = Field(
        False,
        description=(
            "Whether clients sign the set of survivors (round 3), so that a server can name"
            " only one."
        ),
    )
    security: Literal["semi-honest", "covert"] = Field(
        "semi-honest",
        description=(
            "Against whom: parties that follow the protocol (semi-honest), or a server that tells "
            "clients two stories or sums rows again over fewer of them (covert). Clients then sign "
            "survivors, as with consistency, compare what they were told, and keep a ledger."
        ),
    )
    inference: Literal["responders", "all"] = Field(
        "responders",
        description=(
            "Whose embeddings the evaluation uses: those of the clients that survived most "
            "often (as many as the quorum), or all."
        ),
    )
    prime: int = Field(
        2**61 - 1, description="Modulus p of the prime field in which embeddings are summed."
    )
    share_timeout: ShareTimeout = None
    result_timeout: float | None = Field(
        None,
        gt=0,
        description=(
            "Seconds after which a round with too few answers is given up. Default: it "
            "waits for them."
        ),
    )
    max_attempts: int = Field(
        3, ge=1, description="Rounds given up in a row after which the run ends."
    )

    @property
    def signs(self) -> bool:
        """Whether clients sign the survivors, in round 3."""
        return self.consistency or self.security == "covert"


@message("secagg_split.Deal")
@dataclass(frozen=True)
class Deal:
    """Message of client u to each client in rounds 0 and 1: its key, and shares of secrets.

    Attributes
    ----------
    key : PublicKey
        Public key s_u^PK.
    secret, seed : Element, (limbs,)
        The receiver's shares of s_u^SK and of b_u.
    """

    key: Any
    secret: Any
    seed: Any


@message("secagg_split.Opening")
@dataclass(frozen=True)
class Opening:
    """Message of round 4: the shares that a client reveals.

    Attributes
    ----------
    seeds : dict of int to Element
        Shares of b_v, for the survivors v.
    secrets : dict of int to Element
        Shares of s_v^SK, for the clients that shared and did not survive.
    """

    seeds: dict[int, Any]
    secrets: dict[int, Any]

    def of(self, client: int) -> Any:
        """Opened share of a client's one secret: seed or key, never both."""
        return self.seeds[client] if client in self.seeds else self.secrets[client]


def thresholds(config: SecAggConfig, parties: int) -> tuple[int, int]:
    """Threshold t and quorum for N clients.

    PrivacyError if they are too low for T colluders, or exceed N.
    """
    N, T = parties, config.privacy
    least = (N + T) // 2 + 1 if config.signs else T + 1
    t = config.threshold or least
    quorum = config.quorum or max(N - N // 2, t, T + 2)
    if t < least:
        what = "round 3 needs 2t > N + T" if config.signs else "t must exceed T"
        raise PrivacyError(
            f"secagg_split: threshold = {t} with N = {N} and T = {T}: {what}. Use at least {least}"
        )
    if quorum > N or quorum < max(t, T + 2):
        raise PrivacyError(
            f"secagg_split: {quorum} survivors of N = {N} clients with T = {T} and t = {t}: at "
            f"least max(t, T+2) = {max(t, T + 2)} must survive, and at most N. Lower privacy "
            "or threshold, set quorum, or add clients"
        )
    return t, quorum


def cohorts_for(config: SecAggConfig, parties: int, quorum: int) -> Cohorts:
    """Cohorts of N clients: as many as configured, or as possible if survivors may change.

    PrivacyError for too many cohorts, or for none at a security level that needs them.
    """
    if config.cohorts == 0 and config.security == "covert" and quorum < parties:
        raise PrivacyError(
            "secagg_split: security = covert with cohorts = 0 would promise nothing: after a small "
            "gradient the same rows are summed over other survivors. Leave cohorts out, or set "
            f"quorum = {parties}"
        )
    number = config.cohorts
    if number is None:
        number = most_cohorts(parties, config.privacy) if quorum < parties else 1
    return cohorts_of("secagg_split", number, parties, config.privacy)


@dataclass(frozen=True)
class Parameters:
    """Public parameters of a run.

    Attributes
    ----------
    shamir : LagrangeCode
        t-out-of-N sharing: one segment, t - 1 masks.
    quorum : int
        Size |U3| that the server waits for.
    privacy : int
        Number T of colluding parties.
    consistency : bool
        Whether round 3 is run.
    cohorts : Cohorts
        Groups of clients that enter a sum together or not at all.
    covert : bool
        Whether clients compare announcements, and keep a ledger of summed rows.
    """

    shamir: LagrangeCode
    quorum: int
    privacy: int
    consistency: bool
    cohorts: Cohorts
    covert: bool = False

    @property
    def threshold(self) -> int:
        """Threshold t of the Shamir shares."""
        return self.shamir.size

    @property
    def needed(self) -> int:
        """Fewest survivors for an upload or opening: max(t, T + 2), or the quorum if covert.

        With fewer than T + 2 a coalition of T could subtract its own inputs from the sum and be
        left with that of a single client.
        """
        return self.quorum if self.covert else max(self.threshold, self.privacy + 2)
