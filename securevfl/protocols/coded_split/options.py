"""Options of coded split learning, and other methods' options that it refuses by name."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, field_validator, model_validator

from securevfl.protocols.base.options import BudgetedConfig, corrected_or_detected

# Line 10 adds F^T Gamma to a share: the step of a model must be linear in what the server deals.
_ONLY_SGD = "holders add their shares of the step to their shares of the models, so it must be "
_ONLY_SGD += "linear in the gradient: plain SGD"

_NO_CLIP = "a clip is not linear, and nobody sees an owner's gradient X_n^T G: holders have it in "
_NO_CLIP += "shares, and the server has G and no X_n. Lower client_lr; the server shrinks steps by "
_NO_CLIP += "itself where a sum could leave the field"
REFUSED = {
    **dict.fromkeys(
        (
            *("clip", "clip_grad", "clip_grad_norm", "clip_norm", "clipping", "client_clip"),
            *("grad_clip", "gradient_clip", "gradient_clipping", "max_grad_norm", "max_norm"),
        ),
        _NO_CLIP,
    ),
    "client_momentum": f"{_ONLY_SGD}, without momentum",
    "weight_bound": "models exist as shares only, and nobody can clip what nobody sees: the server "
    "bounds the sums by its own steps",
}


class CodedSplitConfig(BudgetedConfig):
    """Options of coded split learning."""

    segments: int = Field(
        1,
        ge=1,
        description=(
            "Segments K into which each owner cuts its rows. Replica k of the models is trained "
            "on segment k; the replicas are never averaged."
        ),
    )
    privacy: int = Field(
        1, ge=1, description="Privacy threshold T: number of colluding holders that learn nothing."
    )
    helpers: int = Field(
        0,
        ge=0,
        le=1000,
        description=(
            "Helpers: parties without data that hold shares and compute, as owners do. One that an "
            "owner or the server runs counts with it: at K = T = 1 an owner with one helper has "
            "everything."
        ),
    )
    prime: int | None = Field(
        None,
        description=(
            "Modulus p of the prime field. Default: the smallest of 2^31-1, 2^50-2^14+1 "
            "and 2^61-1 that has room for the bits."
        ),
    )
    data_bits: int = Field(8, ge=1, le=26, description="Fractional bits lx of the data.")
    gradient_bits: int = Field(
        12, ge=1, le=40, description="Fractional bits lu of the steps that the server deals."
    )
    client_lr: float = Field(
        32.0, gt=0, description="Learning rate of the owners' models, by plain SGD."
    )
    client_lr_decay: Literal["none", "linear", "cosine", "halving"] = Field(
        "linear",
        description=(
            "Schedule of client_lr over the rounds: constant, linear to 0, half a cosine to 0, or "
            "halved after each quarter."
        ),
    )
    prepare: Literal["none", "scale"] = Field(
        "none",
        description=(
            "What an owner does to its columns before sharing: nothing, or scale them (subtract "
            "the mean, divide by the deviation and by the root of their number, clip at 5)."
        ),
    )
    rounding: Literal["feedback", "stochastic"] = Field(
        "feedback",
        description=(
            "How the server rounds its steps: with feedback of what was lost, or stochastically."
        ),
    )
    tolerate_corrupt: int = Field(
        0,
        ge=0,
        description=(
            "Number A of wrong uploads that are corrected. The server then waits for R + 2A."
        ),
    )
    masks: Literal["auto", "keys", "dealt"] = Field(
        "auto",
        description=(
            "Origin of the masks of uploads: keys that are agreed once (keys), or T + 1 holders "
            "who deal them for each batch (dealt). Default: keys, or dealt where there would be "
            "too many."
        ),
    )
    security: Literal["semi-honest", "covert", "active"] = Field(
        "semi-honest",
        description=(
            "Against whom: parties that follow the protocol (semi-honest), or parties that lie. "
            "Each holder then checks dealings of data, models and steps (covert); besides, no two "
            "stories of the server decode, and uploads are signed (active)."
        ),
    )
    secure: bool = Field(
        False, description="Whether the test set is evaluated on secret shares (coded inference)."
    )
    release: bool = Field(
        False,
        description=(
            "Whether each owner gets its own models at the end. They tell it X_n^T A, linear "
            "equations in the gradients, hence in the labels."
        ),
    )
    result_timeout: float | None = Field(
        None,
        gt=0,
        description=(
            "Seconds without R uploads after which the run ends, naming who is missing. "
            "Default: it waits."
        ),
    )
    ask_timeout: float | None = Field(
        None,
        gt=0,
        description=(
            "Seconds without a word of the server after which a holder asks for what it missed. It "
            "asks 20 times at this interval, then 10 times more, after a wait that doubles each "
            "time, then only waits. "
            "Default: it asks when a later step comes, and when it comes back after a crash."
        ),
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum of SGD, at the server only.")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty, at the server only.")
    optimizer: Literal["sgd", "adam"] = Field(
        "adam", description="Optimiser of the server model; the owners' is always SGD."
    )
    client_step: Literal["sgd", "adam"] = Field(
        "sgd", description="Step of the owners' models: only sgd; adam is refused."
    )
    client_weight_decay: float = Field(
        0.0,
        ge=0,
        description=(
            "Weight decay of the owners' models, by a public factor: client_lr times it must be "
            "below 1. It costs bits of the field."
        ),
    )

    @field_validator("client_step")
    @classmethod
    def _sgd(cls, value: str) -> str:
        if value != "sgd":
            raise ValueError(f"{_ONLY_SGD}, client_step = sgd; prepare = scale helps it")
        return value

    @model_validator(mode="after")
    def _of_a_level(self) -> CodedSplitConfig:
        if self.security != "active":
            return self
        corrected_or_detected(self)
        if self.release or self.masks == "dealt":
            raise ValueError(
                "security = active has no release and no dealt masks: an owner cannot tell that "
                "what it is released is right, nor a holder the masks that it is dealt. Use "
                "security = covert, which does not promise it"
            )
        return self

    @model_validator(mode="after")
    def _decaying(self) -> CodedSplitConfig:
        factor = self.client_lr * self.client_weight_decay
        if factor >= 1:
            raise ValueError(
                f"client_lr * client_weight_decay = {factor:.4g} must be below 1: a step "
                "multiplies the models by 1 minus that. Lower client_weight_decay"
            )
        return self

    def rate(self, step: int) -> float:
        """Learning rate eta of the owners' models in a step, counted from 1."""
        done = (step - 1) / self.rounds
        factor = {
            "none": 1.0,
            "linear": 1 - done,
            "cosine": (1 + math.cos(math.pi * done)) / 2,
            "halving": 0.5 ** int(4 * done),
        }[self.client_lr_decay]
        return self.client_lr * factor
