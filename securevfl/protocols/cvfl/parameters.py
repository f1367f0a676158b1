"""Options of Cvfl, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from securevfl.errors import ConfigurationError
from securevfl.models.objective import amplification, chosen_exponent
from securevfl.protocols.base.options import EmbeddingConfig

_SLOW = 0.75  # part of the fastest party's updates below which a party counts as slow
_UNANSWERED = 1000  # launches in a row after which an active party waits as long as it takes
_GRACE = 5  # updates of the fastest party before which nobody does


class CvflConfig(EmbeddingConfig):
    """Options of CVFL; a round is one update that an active party launched."""

    aggregation: Literal["mean", "concat", "max"] = Field(
        "concat", description="How embeddings are joined to the input of the top models."
    )
    lr: float = Field(
        0.003,
        gt=0,
        description="Learning rate. Keep it low: up to L updates are made with the same networks.",
    )
    weight_decay: float = Field(
        1e-3,
        ge=0,
        description=(
            "Weight lambda of the penalty r(theta_m) = |theta_m|^2 / 2 of each bottom model."
        ),
    )
    mode: Literal["async", "sync", "single"] = Field(
        "async",
        description=(
            "How active parties work: each at its own pace (async), all in step (sync), or "
            "the first one alone with its part of the labels (single)."
        ),
    )
    active: int | None = Field(
        None,
        ge=1,
        description="Number L of active parties: the first L parties hold labels. Default: all M.",
    )
    label_partition: str = Field(
        "equal",
        description=(
            "Who holds which labels: equal, dirichlet:A, classes:0,1/2,3, cvfl-mnist or "
            "cvfl-cifar10."
        ),
    )
    q: float | Literal["auto"] = Field(
        3.0,
        description=(
            "Exponent q of the losses of slow active parties: a number of at least 1, or auto."
        ),
    )
    slow: str = Field(
        "measured",
        description=(
            "Which active parties count as slow: measured (by their number of updates), "
            "none, or their numbers, such as 1,2,3."
        ),
    )
    amplify_at_most: float = Field(
        20.0,
        ge=1,
        description=(
            "Bound on the factor by which gradients of slow parties are amplified. The "
            "paper has none."
        ),
    )
    patience: float | None = Field(
        None,
        ge=0,
        description=(
            "Seconds for which an active party waits for embeddings before it takes the "
            "last ones that it has. Default: it waits for all."
        ),
    )
    timeout: float | None = Field(
        None,
        gt=0,
        description=(
            "Seconds for which an active party waits for the top model before it launches "
            "again with the one it has. Use it where links lose messages. Default: it "
            "waits."
        ),
    )
    staleness: int | None = Field(
        None,
        ge=1,
        description="Largest age of a reused embedding, in launches. Older ones are left out.",
    )


def amplified(
    config: CvflConfig, pace: float, loss: float, penalties: Mapping[int, float]
) -> float:
    """Factor of a slow party's gradients: derivative of F^q, F the loss with all penalties.

    Parameters
    ----------
    pace : float
        The party's part of the fastest one's updates, for q = "auto".
    penalties : mapping of int to float
        r(theta_m) of all parties.
    """
    F = loss + config.weight_decay * sum(penalties.values())
    if config.q == "auto":
        wanted = min(1 / max(pace, 1e-9), config.amplify_at_most)
        return amplification(F, chosen_exponent(F, wanted))
    return min(amplification(F, config.q), config.amplify_at_most)


def numbers(slow: str) -> tuple[int, ...]:
    """Party numbers in the option `slow`; none where it is a word.

    Raises
    ------
    ConfigurationError
        When it is neither.
    """
    if slow in ("measured", "none"):
        return ()
    try:
        return tuple(int(part) for part in slow.split(","))
    except ValueError:
        raise ConfigurationError(
            f"cvfl: slow = {slow!r} is neither 'measured' nor 'none' nor numbers such as 1,2,3"
        ) from None
