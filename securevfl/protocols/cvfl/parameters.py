"""Options of CVFL, and refused combinations."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from securevfl.errors import ConfigurationError
from securevfl.protocols.base.options import EmbeddingConfig


class CvflConfig(EmbeddingConfig):
    """Options of CVFL; a round is one update by an active party."""

    aggregation: Literal["mean", "concat", "max"] = Field(
        "concat", description="How embeddings are joined to the input of the top models."
    )
    lr: float = Field(
        0.003,
        gt=0,
        description=(
            "Learning rate of all models. Keep it low: up to L active parties compute their"
            " updates with the same models."
        ),
    )
    weight_decay: float = Field(
        1e-3,
        ge=0,
        description=(
            "Weight lambda of the penalty r(theta_m) = |theta_m|^2 / 2 on the weights "
            "theta_m of each bottom model."
        ),
    )
    mode: Literal["async", "sync", "single"] = Field(
        "async",
        description=(
            "How active parties, those with labels, work: each at its own pace (async), all"
            " in step (sync), or the first one alone with its part of the labels (single)."
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
            "Who holds which labels: equal parts (equal), parts of each class drawn with "
            "concentration A (dirichlet:A), listed classes for each party "
            "(classes:0,1/2,3), or the paper's lists (cvfl-mnist, cvfl-cifar10)."
        ),
    )
    q: float | Literal["auto"] = Field(
        3.0,
        description=(
            "Exponent q of the losses of slow active parties: a number of at least 1 (1 "
            "treats all alike), or auto, which follows each party's pace."
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
        description=(
            "Largest age of a reused embedding, in updates that the active party has begun "
            "since. Older ones are left out. Default: no limit."
        ),
    )


def check_options(config: CvflConfig, parties: int) -> None:
    """Raise ConfigurationError for options that contradict each other or do not fit M parties.

    The message names the option to change.
    """
    if config.active is not None and config.active > parties:
        raise ConfigurationError(
            f"cvfl: active = {config.active} parties hold labels, and there are {parties}; use 1 "
            f"to {parties}"
        )
    if config.q != "auto" and config.q < 1:
        raise ConfigurationError(f"cvfl: q = {config.q:g} must be at least 1, or 'auto'")
    if config.timeout is not None and config.mode == "sync":
        raise ConfigurationError(
            f"cvfl: timeout = {config.timeout:g} has no meaning in step, where no party goes on "
            "without the others; leave it out, or use mode = 'async'"
        )
    if config.patience is None and config.staleness is not None:
        raise ConfigurationError(
            f"cvfl: staleness = {config.staleness} needs patience, the seconds after which stale "
            "embeddings are used; set patience, or leave staleness out"
        )
    active = config.active or parties
    wrong = [n for n in named_parties(config.slow) if not 0 <= n < active]
    if wrong:
        raise ConfigurationError(
            f"cvfl: slow = {config.slow!r}: party {wrong[0]} is none of the active parties 0 to "
            f"{active - 1}; name active parties only"
        )


def named_parties(slow: str) -> tuple[int, ...]:
    """Party numbers in the option `slow`; empty if it is a word.

    ConfigurationError when it is neither numbers nor "measured" or "none".
    """
    if slow in ("measured", "none"):
        return ()
    try:
        return tuple(int(part) for part in slow.split(","))
    except ValueError:
        raise ConfigurationError(
            f"cvfl: slow = {slow!r} is neither 'measured' nor 'none' nor party numbers. Use one of "
            "the two words, or numbers such as 1,2,3"
        ) from None
