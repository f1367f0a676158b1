"""Public parameters of coded split learning, and numbers derived from them.

Letters as in `securevfl.protocols.coded_split.algorithm`.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from securevfl.errors import ConfigurationError, PrivacyError, WouldOverflowError
from securevfl.field import FixedPoint, LagrangeCode, PrimeField
from securevfl.field.designs import blocks_of
from securevfl.field.prss import Prss, mask_streams
from securevfl.models.polynomial_network import expanded_width
from securevfl.models.split import Batches
from securevfl.protocols.base.options import spare
from securevfl.protocols.base.schedule import HELPERS_COUNT
from securevfl.protocols.base.sum_budget import rounds_allowed
from securevfl.protocols.coded_split.options import CodedSplitConfig

PRIMES = (2**31 - 1, 2**50 - 2**14 + 1, 2**61 - 1)  # those with kernels of their own
UPLOAD, MODEL = 3, 2  # degrees of sums and of models, in units of K + T - 1
CLIP = 5.0  # of scaled columns, in deviations
_OMEGA = 1 + 2.0**-20  # bound on the norm of a column of W_n^0, rounding to float32 included


@dataclass(frozen=True)
class Parameters:
    """Public parameters of a run.

    Attributes
    ----------
    config : CodedSplitConfig
        The options.
    code : LagrangeCode
        Evaluation points, K and T, of all N holders.
    batches : mapping
        Layout of rows in segments, and the batch of each step, for "train" and "test".
    widths : tuple of int
        Number of columns of each owner, before expansion.
    """

    config: CodedSplitConfig
    code: LagrangeCode
    batches: Mapping[str, Batches]
    widths: tuple[int, ...]

    @property
    def field(self) -> PrimeField:
        """Prime field F_p of all shares."""
        return self.code.field

    @property
    def trains(self) -> bool:
        """Whether models are shared and trained; False in a prediction."""
        return "train" in self.batches

    @property
    def covert(self) -> bool:
        """Whether dealings are proved and checked: at the levels covert and active."""
        return self.config.security != "semi-honest"

    @property
    def active(self) -> bool:
        """Whether uploads are signed, and at most one of two step histories can be decoded."""
        return self.config.security == "active"

    @property
    def last_step(self) -> int:
        """Number of steps of a whole run; 0 for a prediction."""
        return self.config.rounds if self.trains else 0

    def steps_allowed(self, unknowns: int) -> int:
        """Steps of a run: all rounds, or as many epochs as the budget of sums allows.

        An epoch releases each row once at most.
        """
        if not self.trains:
            return 0
        return rounds_allowed(self.config, unknowns, self.batches["train"].per_epoch)

    @functools.cached_property
    def prss(self) -> Prss:
        """Holders of each key of the masks (`securevfl.field.prss`)."""
        degree = lowest_degree(self.config, self.degree)
        unknown = mask_streams(self.code, degree)
        return Prss(self.code, degree, dealt_masks(self.config, self.code.parties, unknown))

    @functools.cached_property
    def streams(self) -> int:
        """Pseudo-random streams that a holder computes to mask an upload."""
        return self.prss.most_streams(mask_streams(self.code, self.degree))

    @property
    def owners(self) -> int:
        """Number n_o of holders with columns."""
        return len(self.widths)

    @functools.cached_property
    def sizes(self) -> tuple[int, ...]:
        """Columns d_n of each owner, with powers and the column of ones."""
        return tuple(expanded_width(d, self.config.degree) for d in self.widths)

    @functools.cached_property
    def threshold(self) -> int:
        """Recovery threshold R = 3(K+T-1) + 1, or more at level active (`upload_degree`)."""
        return int(self.code.recovery_threshold(self.code.degree))

    @property
    def degree(self) -> int:
        """Degree of masked uploads, in units of K + T - 1."""
        return self.code.degree

    @property
    def stories(self) -> int:
        """Largest number of different step histories of one run that a lying server could use.

        T holders collude with it. To reveal anything, each history needs R - K - T + 1 other
        holders.
        """
        code = self.code
        telling = self.threshold - code.size + 1
        return max(1, (code.parties - code.privacy) // telling)

    @functools.cached_property
    def models_needed(self) -> int:
        """Shares of the models needed to decode them: 2(K+T-1) + 1."""
        return self.code.recovery_threshold(MODEL)

    @property
    def results_needed(self) -> int:
        """Uploads to wait for: R + 2A, or at level active with A = 0 up to R + T (`spare`)."""
        return self.threshold + spare(self.config, self.code.parties, self.threshold)

    @property
    def results_wanted(self) -> str:
        """Formula of `results_needed` with its value, for errors: "R + 2A = 9"."""
        spared = "2A"
        if self.active and not self.config.tolerate_corrupt:
            spared = str(self.results_needed - self.threshold)
        return f"R + {spared} = {self.results_needed}"

    @functools.cached_property
    def data_point(self) -> FixedPoint:
        """Quantiser of data, with lx fractional bits."""
        return FixedPoint(self.field, bits=self.config.data_bits)

    @functools.cached_property
    def model_point(self) -> FixedPoint:
        """Quantiser of models, with lx + lu fractional bits."""
        return FixedPoint(self.field, bits=self.config.data_bits + self.config.gradient_bits)

    @property
    def sum_bits(self) -> int:
        """Fractional bits of a decoded sum: 2 lx + lu."""
        return 2 * self.config.data_bits + self.config.gradient_bits

    @functools.cached_property
    def norms_squared(self) -> tuple[int, ...]:
        """Bounds rho_n^2 on |xbar_i|^2 for each owner's rows, from the options alone."""
        return tuple(_norm_squared(self.config, d) for d in self.widths)

    @property
    def largest_first_sum(self) -> int:
        """Bound w0 on sums before the first step."""
        return _first_sum(self.config, self.widths)

    @functools.cached_property
    def _scales(self) -> tuple[float, ...]:
        return scales_of(self.config)

    def scale(self, steps: int) -> float:
        """Scale c after some steps: the models are c times the shared integers."""
        return self._scales[steps]

    @property
    def cumulative(self) -> bool:
        """Whether sums may be requested of rows that were not decoded lately (section 7)."""
        return self.config.secure or self.config.release


def scales_of(config: CodedSplitConfig) -> tuple[float, ...]:
    """Scales c_t = prod_{s <= t} (1 - eta_s lambda), t = 0 to all rounds, lambda weight decay."""
    decay = config.client_weight_decay
    if decay == 0:  # a run until some time may have a million rounds, and each factor is 1
        return (1.0,) * (config.rounds + 1)
    factors = (1 - config.rate(step) * decay for step in range(1, config.rounds + 1))
    return tuple(itertools.accumulate(factors, operator.mul, initial=1.0))


def _norm_squared(config: CodedSplitConfig, columns: int) -> int:
    """Bound rho_n^2 in units of 2^-2lx: all columns in [0, 1], or scaled by `prepare`."""
    unit = int(4**config.data_bits)
    if config.prepare == "none":
        return int(expanded_width(columns, config.degree) * unit)
    each = CLIP**2 / columns
    return math.ceil(unit * (1 + columns * math.fsum(each**i for i in range(1, config.degree + 1))))


def check_numbers(config: CodedSplitConfig, owners: int) -> None:
    """Raise ConfigurationError for fewer holders than R + 2A, PrivacyError for too few owners.

    `owners` is their number, without helpers; T of them may collude.
    """
    K, T, A = config.segments, config.privacy, config.tolerate_corrupt
    N = owners + config.helpers
    degree = upload_degree(config, N)
    needed = degree * (K + T - 1) + 1 + 2 * A
    if owners < T + 2:
        raise PrivacyError(
            f"coded_split: with {owners} owners and T = {T}, T colluding ones leave "
            f"{max(0, owners - T)} honest, and the sum of fewer than 2 is no secret. It needs T+2 "
            f"= {T + 2} owners; helpers do not count here. Lower privacy or add owners"
        )
    if needed > N:
        raise ConfigurationError(
            f"coded_split: decoding needs R + 2A = {degree}(K+T-1)+1+2A = {needed} uploads with "
            f"K = {K}, T = {T}, A = {A}, and there are N = {N} holders ({owners} owners, "
            f"{config.helpers} helpers). Use helpers = {needed - owners}, or lower segments, "
            f"privacy or tolerate_corrupt. {HELPERS_COUNT}"
        )


def _first_sum(config: CodedSplitConfig, widths: Sequence[int]) -> int:
    """Bound w0 = ceil(sum_n rho_n (omega_n 2^(lx+lu) + sqrt(d_n)/2)) on the first sums."""
    unit = 2.0 ** (config.data_bits + config.gradient_bits)
    total = math.fsum(  # rounded once: sum() of floats differs between 3.11 and 3.12
        math.sqrt(_norm_squared(config, d))
        * (_OMEGA * unit + math.sqrt(expanded_width(d, config.degree)) / 2)
        for d in widths
    )
    return math.ceil(total * (1 + 1e-9))


def expected_bound(config: CodedSplitConfig, widths: Sequence[int], rows: int) -> int:
    """Expected size of the bound of section 7: w0 + rho2 eta 2^lu s / (2 n_o).

    A training row's base is an epoch old, s = M / b steps; the |Gbar[., c]| of a step added up to
    less than eta 2^lu / (2 n_o) wherever it was measured (docs/coded-split.md). A bound that counts
    from the beginning was up to 8 times as large. Weight decay makes the integers in shares 1 / c
    times as large as the models are.
    """
    steps = max(1, rows // config.batch)
    dealt = config.client_lr * 2.0**config.gradient_bits * steps / (2 * len(widths))
    square = sum(_norm_squared(config, d) for d in widths)
    lasting = 8 if config.secure or config.release else 1
    grown = Fraction(_first_sum(config, widths) + math.ceil(lasting * square * dealt))
    return math.ceil(grown / Fraction(max(scales_of(config)[-1], 2.0**-1000)))


def choose_prime(config: CodedSplitConfig, widths: Sequence[int], rows: int) -> int:
    """The configured prime, or the smallest with room for the expected bound, else the largest.

    With a smaller prime than expected the server shrinks steps, so that no sum overflows.
    """
    if config.prime is not None:
        return config.prime
    wanted = expected_bound(config, widths, rows)
    return next((p for p in PRIMES if (p - 1) // 2 >= wanted), PRIMES[-1])


def check_decay(config: CodedSplitConfig, widths: Sequence[int], rows: int, prime: int) -> None:
    """Raise WouldOverflowError for a weight decay with which steps in F_p would shrink to 0."""
    decay, limit = config.client_weight_decay, (prime - 1) // 2
    wanted = expected_bound(config, widths, rows) if decay else 0
    if wanted > limit:
        scale = scales_of(config)[-1]
        raise WouldOverflowError(
            f"coded_split: client_weight_decay = {decay:g} brings the public factor of the models "
            f"to c = {scale:.3g} in {config.rounds} rounds. What stands in shares is 1/c times as "
            f"large, so sums are expected to need 2^{math.log2(wanted):.0f}, and (p-1)/2 = "
            f"{limit:.4g} for p = {prime}. Lower client_weight_decay, client_lr, data_bits or "
            "gradient_bits, or use a larger prime"
        )


def make_parameters(
    config: CodedSplitConfig, widths: Sequence[int], batches: Mapping[str, Batches]
) -> Parameters:
    """Parameters of a run from its options, the owners' columns and the layouts of rows by part.

    ConfigurationError if the number of parties or keys is not possible.
    """
    check_numbers(config, len(widths))
    prime = choose_prime(config, widths, batches["train"].rows)
    check_decay(config, widths, batches["train"].rows, prime)
    code = LagrangeCode(
        PrimeField(prime),
        parties=len(widths) + config.helpers,
        segments=config.segments,
        privacy=config.privacy,
        degree=upload_degree(config, len(widths) + config.helpers),
    )
    public = Parameters(config, code, batches, tuple(widths))
    dealt = public.prss.by_dealers  # refuses too many keys
    if dealt and public.active:
        raise ConfigurationError(
            "coded_split: at security = active masks are of keys, which holders compare; a dealer "
            "of masks could have an honest holder named. Use masks = keys with a lower privacy or "
            "fewer holders, or security = covert"
        )
    if config.release and dealt:
        raise ConfigurationError(
            "coded_split: release = true needs masks of two degrees, and dealt masks have one. "
            "Leave it out, or use masks = keys with a lower privacy or fewer holders"
        )
    return public


def upload_degree(config: CodedSplitConfig, parties: int) -> int:
    """Degree of masked uploads, in units of K + T - 1: 3, or more at level active.

    At that level two contradicting histories must not both be decodable: 2R > N + T + 2(K-1),
    docs/active.md. Masks of a higher degree ensure this. R is rounded up to 1 more than a multiple
    of K + T - 1.
    """
    K, T = config.segments, config.privacy
    if config.security != "active":
        return UPLOAD
    return max(UPLOAD, -(-((parties + T) // 2 + K - 1) // (K + T - 1)))


def lowest_degree(config: CodedSplitConfig, upload: int) -> int:
    """Lowest degree of a masked value: of uploads, or of models if they are released."""
    return MODEL if config.release else upload


def dealt_masks(config: CodedSplitConfig, parties: int, unknown: int) -> bool:
    """Whether masks come from dealers: by option, or because keys would be too many."""
    if config.masks != "auto":
        return config.masks == "dealt"
    try:
        blocks_of(parties, config.privacy, unknown)
    except ConfigurationError:
        return True
    return False
