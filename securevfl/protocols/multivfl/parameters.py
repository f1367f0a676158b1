"""Options of Multi-VFL, and the configured noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from securevfl.privacy.accountant import Released
from securevfl.protocols.base.options import Delta, EmbeddingConfig, NoiseSource


class MultiVflConfig(EmbeddingConfig):
    """Options of Multi-VFL; a round is a global one."""

    rounds: int = Field(100, ge=1, description="Number R of global rounds.")
    aggregation: Literal["mean", "concat", "max"] = Field(
        "concat", description="How activations are joined to the label owners' input."
    )
    label_owners: int = Field(5, ge=1, description="Number K of label owners.")
    label_partition: str = Field(
        "equal",
        description=(
            "Who holds which labels: equal parts (equal), parts of each class drawn with "
            "concentration A (dirichlet:A), listed classes for each owner "
            "(classes:0,1/2,3), or the paper's lists (1niid to 4niid)."
        ),
    )
    samples: int | None = Field(
        None,
        ge=1,
        description="Number of labels that each owner has. Default: all labels are dealt out.",
    )
    epochs: int = Field(
        1, ge=1, description="Number E of local epochs of each label owner in a round."
    )
    server_optimizer: Literal["fedavg", "fedadam", "fedyogi", "feddemonadam", "feddemonadam_t2"] = (
        Field(
            "fedavg",
            description=(
                "How the server makes new weights of the label owners' weights: their mean "
                "(fedavg), or an adaptive step towards it. feddemonadam has v of m^2, as printed, "
                "feddemonadam_t2 of t^2, as in Adam."
            ),
        )
    )
    server_lr: float = Field(
        1e-3, gt=0, description="Learning rate eta_s of the adaptive server optimisers."
    )
    beta1: float = Field(
        0.9, ge=0, lt=1, description="Decay of the first moment, in the adaptive server optimisers."
    )
    beta2: float = Field(
        0.99,
        ge=0,
        lt=1,
        description="Decay of the second moment, in the adaptive server optimisers.",
    )
    tau: float = Field(
        1e-3,
        gt=0,
        description=(
            "Least denominator tau of a step, which bounds its size, in the adaptive server"
            " optimisers."
        ),
    )
    intersection: Literal["plain", "psi"] = Field(
        "plain",
        description=(
            "How common samples are found: by identifiers in the clear, or by private set "
            "intersection."
        ),
    )
    epsilon: float | None = Field(
        None,
        gt=0,
        description=(
            "Privacy cost epsilon of one release of a row's activations. Smaller is more "
            "private and has more noise. Default: no noise."
        ),
    )
    delta: Delta = 1e-5
    clip: float = Field(1.0, gt=0, description="Bound C on the L2 norm of a row's activations.")
    noise: NoiseSource = "secure"


@dataclass(frozen=True)
class ActivationNoise(Released):
    """Clipping and Gaussian noise of released activations, with their privacy cost.

    Attributes
    ----------
    epsilon, delta, clip : float
        Cost of one release of a row, and the bound C on its L2 norm.
    seeded : bool
        Whether the noise follows from the run's seed; then it protects nothing.
    """

    seeded: bool = False

    def spent(self, releases: int) -> float:
        """Epsilon of so many releases of one row: one in each local epoch, to one label owner."""
        return self.composed(releases)


def noise_of(config: MultiVflConfig) -> ActivationNoise | None:
    """Configured noise; None without epsilon.

    ConfigurationError for an epsilon so large that the noise would hide nothing.
    """
    if config.epsilon is None:
        return None
    seeded = config.noise == "seeded"
    noise = ActivationNoise(config.epsilon, config.delta, config.clip, seeded)
    noise.refuse_faint_noise("multivfl")
    return noise
