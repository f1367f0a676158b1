"""Options and public parameters of FedVS, and numbers derived from them.

Letters as in `securevfl.protocols.fedvs.algorithm`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from securevfl.errors import ConfigurationError, PrivacyError
from securevfl.field import FixedPoint, LagrangeCode, PrimeField
from securevfl.field.cohorts import Cohorts, cohorts_of, most_cohorts
from securevfl.field.designs import blocks_of, stream_count
from securevfl.field.prss import Prss
from securevfl.models.pretraining.trainer import SupervisedOptions
from securevfl.models.split import Batches
from securevfl.protocols.base.options import (
    BudgetedConfig,
    ShareTimeout,
    corrected_or_detected,
    spare,
)

_PAPER = {
    "degree": 2,
    "width": 64,
    "batch": 128,
    "client_lr": 0.01,
    "lr_decay": "none",
    "sum_budget": 0.0,
}


class FedVSConfig(SupervisedOptions, BudgetedConfig):
    """Options of FedVS."""

    client_lr: float = Field(0.1, gt=0, description="Learning rate of the clients' bottom models.")
    segments: int | None = Field(
        None,
        ge=1,
        description=(
            "Segments K into which each client cuts its rows. Default: the largest K with R"
            " + 2A <= N - floor(N/2), else 1."
        ),
    )
    privacy: int = Field(
        1,
        ge=1,
        description=(
            "Privacy threshold T: number of colluding clients that learn nothing from their shares."
        ),
    )
    # lx + lw = 33 leave row sums times weights the room of 16 bits, as 44 did at 2^61 - 1.
    prime: int = Field(2**50 - 2**14 + 1, description="Modulus p of the prime field.")
    data_bits: int = Field(16, ge=1, le=52, description="Fractional bits lx of the data.")
    model_bits: int = Field(17, ge=1, le=52, description="Fractional bits lw of the weights.")
    masked: bool = Field(
        True,
        description=(
            "Whether uploads are masked. Without masks the evaluation is the paper's, and "
            "shows the server more than the sums."
        ),
    )
    weight_bound: float = Field(
        16.0,
        gt=0,
        description=(
            "Bound on the absolute value of each weight, enforced after each step. Clients tell "
            "how many weights another bound than 16 cuts."
        ),
    )
    tolerate_corrupt: int = Field(
        0,
        ge=0,
        description=(
            "Number A of wrong uploads that are corrected. The server then waits for R + 2A"
            " results."
        ),
    )
    security: Literal["semi-honest", "covert", "active"] = Field(
        "semi-honest",
        description=(
            "Against whom: parties that follow the protocol (semi-honest), or parties that lie. "
            "Clients then compare what the server tells them, and check dealings of data (covert); "
            "besides, dealings of models are checked, and uploads are signed (active). More "
            "results are needed: R' = max(R, floor((N+T)/2) + K), rounded up to a multiple "
            "of K+T-1, plus 1."
        ),
    )
    secure: bool = Field(
        False, description="Whether the test set is evaluated on secret shares (coded inference)."
    )
    share_timeout: ShareTimeout = None
    cohorts: int | None = Field(
        None,
        ge=0,
        description=(
            "Number of cohorts, fixed groups of at least T+2 clients that stand in a masked sum "
            "whole or not at all. 0 sums over whichever shared in time, as in the paper; such sums "
            "tell single clients' embeddings. Default: floor(N/(T+2)) with a share_timeout, else 1."
        ),
    )
    result_timeout: float | None = Field(
        None,
        gt=0,
        description=(
            "Seconds after which an attempt with too few results is given up. Default: it waits."
        ),
    )
    max_attempts: int = Field(
        3, ge=1, description="Attempts given up in a row after which the run ends."
    )
    paper: bool = Field(
        False,
        description=(
            "Whether options that are not given are the paper's instead of ours: degree 2 and no "
            "budget of sums, with width 64, batches of 128 and constant rates of 0.01, with which "
            "its studies are run here."
        ),
    )
    pretrain: Literal["none", "p", "full"] = Field(
        "none",
        description=(
            "Who pre-trains alone, as in VFLHLP: none, p (clients 1 to N-1, by SCARF), or "
            "full (client 0, too, on the labels, which the server gives it)."
        ),
    )

    @model_validator(mode="before")
    @classmethod
    def _as_in_the_paper(cls, values: Any) -> Any:
        asked = isinstance(values, dict) and values.get("paper") in (True, "true", "True", 1)
        return _PAPER | values if asked else values

    @model_validator(mode="after")
    def _of_a_level(self) -> FedVSConfig:
        if self.security != "semi-honest" and not self.masked:
            raise ValueError(
                f"security = {self.security} needs masks, which bind the history: masked = true"
            )
        corrected_or_detected(self)
        return self


@dataclass(frozen=True)
class Parameters:
    """Public parameters of a run.

    Attributes
    ----------
    config : FedVSConfig
        The options.
    code : LagrangeCode
        Evaluation points, K and T.
    data_point, model_point : FixedPoint
        Quantisers with lx and lw bits.
    batches : mapping
        "train" and "test": the layout of rows in segments.
    """

    config: FedVSConfig
    code: LagrangeCode
    data_point: FixedPoint
    model_point: FixedPoint
    batches: Mapping[str, Batches]

    @property
    def field(self) -> PrimeField:
        """Prime field F_p of all shares."""
        return self.code.field

    @property
    def sum_bits(self) -> int:
        """Binary places of decoded sums: lx + lw."""
        return self.config.data_bits + self.config.model_bits

    @functools.cached_property
    def threshold(self) -> int:
        """Results that decode a sum: R = 2(K+T-1) + 1 (Theorem 5.1); more above semi-honest."""
        return self.code.recovery_threshold(self.degree)

    @functools.cached_property
    def degree(self) -> int:
        """Degree of masked uploads in the shares; the computation itself has degree 2."""
        return degree_of(self.config, self.code.segments, self.code.parties)

    @property
    def covert(self) -> bool:
        """Whether clients compare the server's announcements before they upload."""
        return self.config.security != "semi-honest"

    @property
    def active(self) -> bool:
        """Whether dealings of models are also checked, and uploads are signed."""
        return self.config.security == "active"

    @property
    def results_needed(self) -> int:
        """Results that the server waits for: R + 2A, or at active with A = 0 up to R + T."""
        return results_needed(self.config, self.code.segments, self.code.parties)

    @property
    def requirement(self) -> str:
        """Phrase for `results_needed` in the paper's letters, for errors."""
        needed = f"R = {self.degree}(K+T-1)+1 = {self.threshold}"
        more = self.results_needed
        spared = "2A" if self.config.tolerate_corrupt else str(more - self.threshold)
        return f"{needed}, R + {spared} = {more}" if more > self.threshold else needed

    @property
    def telling_uploads(self) -> int:
        """Fewest uploads from which the server and T clients learn anything: K + T.

        For plain evaluation, which remembers no sums, it is N + 1, which is never reached.
        """
        code = self.code
        return code.segments + code.privacy if self.config.masked else code.parties + 1

    @property
    def stories(self) -> int:
        """Largest number of different announcements of one round that a lying server could use.

        The server colludes with T clients. Each announcement needs uploads of R - K - T + 1 other
        clients, usually K + T, to reveal anything; two are possible if 2R <= N + T + 2(K-1).
        """
        code = self.code
        telling = max(self.telling_uploads, self.threshold - code.size + 1)
        return max(1, (code.parties - code.privacy) // telling)

    @property
    def one_sum(self) -> bool:
        """Whether all sums of a row are over the same clients.

        True for plain evaluation, in which clients remember no sums.
        """
        return not self.config.masked or len(self.cohorts.groups) == 1

    @functools.cached_property
    def tells_cut(self) -> bool:
        """Whether clients report clipped weights: only if weight_bound is not the default."""
        return bool(self.config.weight_bound != FedVSConfig.model_fields["weight_bound"].default)

    def order(self, part: str) -> np.ndarray:
        """Row numbers of a part in segments, (K, ceil(M/K)); -1 for padding."""
        batches = self.batches[part]
        order = batches.samples(np.arange(batches.length))
        return order.reshape(batches.segments, batches.length)

    @functools.cached_property
    def lower(self) -> str:
        """Options, with values, that may be lowered if a sum could wrap."""
        config = self.config
        return (
            f"data_bits ({config.data_bits}), model_bits ({config.model_bits}) or weight_bound "
            f"({config.weight_bound:g})"
        )

    @property
    def sharers_change(self) -> bool:
        """Whether masked sums may be over different clients from round to round."""
        return self.config.masked and self.config.share_timeout is not None

    @functools.cached_property
    def cohorts(self) -> Cohorts:
        """Groups of clients that enter a sum all together or not at all."""
        parties, privacy = self.code.parties, self.code.privacy
        return cohorts_of("fedvs", cohort_number(self.config, parties), parties, privacy)

    @functools.cached_property
    def prss(self) -> Prss:
        """Holders of each key of the masks (`securevfl.field.prss`)."""
        return prss_of(self.code, self.degree)

    def enough(self, sharers: Sequence[int]) -> bool:
        """Whether there are enough sharers: T + 2 with masks, so that T cannot isolate one."""
        return len(sharers) > (self.code.privacy + 1 if self.config.masked else 0)


@functools.cache
def upload_streams(parties: int, segments: int, privacy: int, degree: int) -> int:
    """Number of streams of a client's mask of u = (degree - 1)(K+T-1) coefficients."""
    unknown = (degree - 1) * (segments + privacy - 1)
    return stream_count(blocks_of(parties, privacy, unknown), parties, privacy, unknown)


def coded_rows(config: FedVSConfig, segments: int, length: int) -> int:
    """Batch rows |B| within one segment of `length` rows (as in `models.split.Batches`)."""
    return min(max(1, config.batch // segments), length)


def results_needed(config: FedVSConfig, segments: int, parties: int) -> int:
    """Results that the server waits for: the threshold R of this level, plus `spare` ones."""
    size = segments + config.privacy
    threshold = degree_of(config, segments, parties) * (size - 1) + 1
    return threshold + spare(config, parties, threshold)


def degree_of(config: FedVSConfig, segments: int, parties: int) -> int:
    """Degree of masked uploads, as polynomials in the shares.

    Above level semi-honest at most one of two announcements of a round may be decodable, even if T
    clients help the server. 2 R' > N + T + 2 (K - 1) ensures it: the uploads for both then have an
    honest client in common, and fewer uploads reveal nothing. So R' = degree (K+T-1) + 1 is at
    least floor((N+T)/2) + K.
    """
    if config.security == "semi-honest":
        return 2
    least = (parties + config.privacy) // 2 + segments
    return max(2, -(-(least - 1) // (segments + config.privacy - 1)))


def cohort_number(config: FedVSConfig, parties: int) -> int:
    """Number of cohorts: the configured one, or the default.

    By default the number is the largest possible if sharers may change, and one if the server waits
    for all clients to share, which clients enforce. Plain evaluation has none (0), because it
    reveals more than sums to the server.
    """
    if config.cohorts is not None:
        return config.cohorts
    if not config.masked:
        return 0
    return 1 if config.share_timeout is None else most_cohorts(parties, config.privacy)


def refuse_any_sharers(config: FedVSConfig, code: LagrangeCode) -> None:
    """Raise ConfigurationError for cohorts = 0 with masks if the server waits for all clients.

    In that case only a lying server would sum over fewer clients; the message says whether it could
    decode two announcements at once. If the server does not wait, honest runs reveal single
    clients' embeddings, as the claims state. The option `paper` permits cohorts = 0.
    """
    if not config.masked or config.cohorts != 0 or config.share_timeout is not None or config.paper:
        return
    N, K, T = code.parties, code.segments, code.privacy
    twice = 2 * code.recovery_threshold(degree_of(config, K, N))
    most = N + T + 2 * (K - 1)
    how = f"between two steps that hardly move the models (2R = {twice} > N + T + 2(K-1) = {most})"
    if twice <= most:
        how = f"at once, for T = {T} helpers are enough: 2R = {twice} <= N + T + 2(K-1) = {most}"
    raise ConfigurationError(
        "fedvs: with cohorts = 0 and no share_timeout only a server that lies sums over fewer than "
        f"all clients. It gets two such sums {how}; their difference is one client's embedding. "
        "Leave cohorts at its default, or set paper = true, which runs it as the paper has it"
    )


def default_segments(parties: int, privacy: int, corrupt: int = 0) -> int:
    """Largest K with R + 2A = 2(K+T-1) + 1 + 2A <= N - floor(N/2), at least 1."""
    survivors = parties - parties // 2
    return max(1, (survivors - 1) // 2 - privacy - corrupt + 1)


def code_of(config: FedVSConfig, parties: int) -> LagrangeCode:
    """Lagrange code for N clients with the configured K and T, or the default K.

    ConfigurationError if the R + 2A results that the server waits for exceed N. Masked sums need T
    + 2 sharers, which is no further condition, as R >= 2T + 1. FieldError if the prime is too small
    for the points.
    """
    N, T, A = parties, config.privacy, config.tolerate_corrupt
    if N < 3:
        raise ConfigurationError(
            f"fedvs: {N} parties are too few: even with K = 1 and T = 1 it needs "
            f"R = 2(K+T-1)+1 = 3. Add parties; `split` takes fewer, and protects nothing"
        )
    K = config.segments or default_segments(N, T, A)
    needed = results_needed(config, K, N)
    if needed > N:
        error = PrivacyError if T >= N else ConfigurationError
        raise error(
            f"fedvs: K = {K} (segments), T = {T} (privacy) and A = {A} (tolerate_corrupt) need "
            f"R + 2A = {needed} results, R = {degree_of(config, K, N)}(K+T-1)+1, and there are "
            f"{N} clients. Lower "
            "segments, privacy or tolerate_corrupt, or add clients"
        )
    degree = degree_of(config, K, N)
    return LagrangeCode(PrimeField(config.prime), parties=N, segments=K, privacy=T, degree=degree)


def prss_of(code: LagrangeCode, degree: int = 2) -> Prss:
    """Holders of the masks' keys for a code and a degree.

    ConfigurationError if N and T need too many keys; the message says how to run without masks.
    """
    try:
        return Prss(code, degree)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{error}; masked=false runs the paper's evaluation, which shows the server more than "
            "the sums"
        ) from None
