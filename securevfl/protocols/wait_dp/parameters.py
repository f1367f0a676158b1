"""Options of Wait-DP, refused combinations, and the privacy cost of its noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from securevfl.errors import ConfigurationError
from securevfl.privacy.accountant import Released, gaussian_epsilon, sensitivity
from securevfl.protocols.base.options import Delta, NoiseSource, SegmentedConfig

# Server models in which a row's gradient depends on no other row; batch normalisation mixes them.
_SEPARABLE = ("mlp", "leaky_mlp", "host_mlp", "linear")


class WaitDPConfig(SegmentedConfig):
    """Options of Wait-DP."""

    noise_on: Literal["embeddings", "gradients", "both", "none"] = Field(
        "embeddings",
        description=(
            "What is clipped and gets Gaussian noise before it is sent. Choose none to use "
            "label_epsilon alone."
        ),
    )
    mechanism: Literal["gaussian", "laplace"] = Field(
        "gaussian",
        description=(
            "Noise on embeddings: gaussian, on rows clipped to C, or laplace, on each entry, of "
            "scale (range of the batch) / epsilon', after SplitFed, whose epsilon' FedVS takes. "
            "That range is data, so nothing is claimed of laplace, and it needs noise = seeded."
        ),
    )
    epsilon: float = Field(
        5.0,
        gt=0,
        description=(
            "Privacy cost epsilon' of one release of a row. Smaller is more private and has"
            " more noise."
        ),
    )
    delta: Delta = 1e-5
    clip: float = Field(1.0, gt=0, description="Bound C on the L2 norm of a row's embedding.")
    gradient_clip: float = Field(
        1.0, gt=0, description="Bound C_g on the L2 norm of a sample's gradient."
    )
    label_epsilon: float | None = Field(
        None,
        gt=0,
        description=(
            "Epsilon of the labels, by randomised response before training. Default: labels"
            " are exact."
        ),
    )
    epsilon_budget: float | None = Field(
        None,
        gt=0,
        description=(
            "Largest epsilon of all releases of a row together. The run ends before it is "
            "exceeded; a simulation that is resumed from an older checkpoint has forgotten the "
            "releases since. Default: no budget."
        ),
    )
    noise: NoiseSource = "secure"


@dataclass(frozen=True)
class Privacy(Released):
    """Parameters of the noise mechanisms, and their privacy cost.

    Attributes
    ----------
    epsilon, delta, clip : float
        Cost of one release of an embedding, and the bound C on its L2 norm.
    gradient_clip : float
        Clipping bound C_g of gradients.
    per_epoch : int
        Number of rounds in which the public batches use each row at most once.
    embeddings, gradients : bool
        Whether embeddings, and whether gradients, get noise whose cost is accounted for.
    laplace : bool
        Whether embeddings get Laplace noise, whose cost is not accounted for.
    labels : float or None
        Epsilon of the randomised labels.
    """

    gradient_clip: float
    per_epoch: int
    embeddings: bool = True
    gradients: bool = False
    laplace: bool = False
    labels: float | None = None

    @property
    def releases(self) -> bool:
        """Whether a round releases anything with accounted privacy."""
        return self.embeddings or self.gradients

    @property
    def gradient_sigma(self) -> float:
        """Standard deviation of the noise on each entry of a sample's gradient: 2 C_g z."""
        return self.multiplier * sensitivity(self.gradient_clip, "replace")

    def planned(self, rounds: int) -> int:
        """Releases of one row in this number of rounds: one in each epoch."""
        return -(-rounds // self.per_epoch)

    def spent(self, rounds: int) -> float:
        """Epsilon of all releases of one row in `rounds` rounds, none of them repeated.

        0 if no noise is accounted for, which is no protection. Epsilon of labels is not in it.
        """
        return self.composed(self.planned(rounds)) if self.releases else 0.0

    def spent_through_weights(self, rounds: int, samples: int) -> float:
        """Epsilon if a row may change all messages after its first use, of `samples` rows a round.

        These are 1 + (rounds - 1) * samples releases. 0 as in `spent`.
        """
        if not self.releases:
            return 0.0
        releases = 1 + (rounds - 1) * samples
        return gaussian_epsilon(self.multiplier, releases, self.delta)


def check_mechanisms(config: WaitDPConfig) -> None:
    """Raise ConfigurationError for no mechanism, or one of another sensitivity than accounted.

    The message names the option to change.
    """
    if config.noise_on == "none" and config.label_epsilon is None:
        raise ConfigurationError(
            "wait_dp: noise_on = 'none' needs label_epsilon; split is the method without noise"
        )
    if config.mechanism == "laplace" and (
        config.noise != "seeded" or config.noise_on not in ("embeddings", "both")
    ):
        raise ConfigurationError(
            "wait_dp: mechanism = 'laplace' is of embeddings and protects nothing that is claimed; "
            "set noise = 'seeded', and noise_on = 'embeddings' or 'both'"
        )
    if config.noise_on not in ("gradients", "both"):
        return
    if config.own_centre or config.own_loss:
        raise ConfigurationError(
            "wait_dp: noise on gradients needs a sample's gradient to depend on no other "
            "sample, which cannot be checked of own code; leave out own_centre and own_loss"
        )
    if config.centre not in _SEPARABLE:
        raise ConfigurationError(
            "wait_dp: noise on gradients needs a server model in which a sample's gradient depends "
            f"on no other sample, which is not so of {config.centre!r}, or not known; use one of "
            f"{', '.join(_SEPARABLE)}"
        )
    if config.aggregation == "max":
        raise ConfigurationError(
            "wait_dp: with aggregation = 'max' the zeros of a client's gradient tell who had "
            "the largest entry, whatever the noise; use 'mean' or 'concat'"
        )


def check_budget(config: WaitDPConfig, privacy: Privacy) -> None:
    """Raise ConfigurationError for a budget below one round's cost, or noise below C / 200.

    C is the clipping bound. The message names the option to change.
    """
    first = max(config.epsilon if privacy.releases else 0.0, config.label_epsilon or 0.0)
    if config.epsilon_budget is not None and config.epsilon_budget < first:
        raise ConfigurationError(
            f"wait_dp: epsilon_budget = {config.epsilon_budget:g} does not allow a single "
            f"round, which costs epsilon = {first:g}; lower epsilon or raise the budget"
        )
    if privacy.releases:
        privacy.refuse_faint_noise("wait_dp")
