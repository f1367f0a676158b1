"""Noise that epsilon and delta ask for, by lines of the audit's own.

Nothing here calls `securevfl.privacy`: what mechanisms add by the library's accountant is held
against what the theorems say. A release of rows of norm C with neighbours that differ in one row
replaced, and noise of sigma = 2 C z, is (epsilon, delta)-DP exactly where

    Phi(1/(2z) - epsilon z) - e^epsilon Phi(-1/(2z) - epsilon z) <= delta

(Balle and Wang, ICML 2018, theorem 8), and n releases of a row are one with z / sqrt(n).
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from securevfl.privacy.claims import Claim
from securevfl.protocols.base.messages import GaussianNoise, RandomisedLabels

_NUMBER = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
_PAIR = re.compile(rf"\({_NUMBER}, {_NUMBER}\)")
_ROUNDED = 1e-2  # of numbers in a text, relative: they have three digits
_SLACK = 1e-6  # of epsilon, relative, far beyond the error of what is solved for


def delta_of(epsilon: float, multiplier: float) -> float:
    """Least delta of a Gaussian release: noise of z times the distance of two neighbours.

    Parameters
    ----------
    epsilon, multiplier : float
        Positive and finite; the multiplier is z.
    """
    from scipy.special import log_ndtr, ndtr

    half, shift = 1 / (2 * multiplier), epsilon * multiplier
    # e^epsilon alone exceeds every float where its product with Phi is small.
    return float(ndtr(half - shift) - math.exp(epsilon + log_ndtr(-half - shift)))


@functools.lru_cache(maxsize=256)
def multiplier_of(epsilon: float, delta: float) -> float:
    """Least noise multiplier z of an (epsilon, delta)-DP release.

    Parameters
    ----------
    epsilon : float
        Positive and finite.
    delta : float
        In (0, 1).

    Examples
    --------
    >>> round(multiplier_of(1.0, 1e-5), 7)
    3.7306316
    """
    from scipy.optimize import brentq

    # delta falls from 1 to 0 as z grows; log z in [-20, 40] holds every epsilon from 1e-15 to 1e15.
    excess = lambda log: delta_of(epsilon, math.exp(log)) - delta  # noqa: E731
    return math.exp(brentq(excess, -20.0, 40.0, xtol=1e-13, rtol=1e-13))


def sigma_of(noise: GaussianNoise) -> float:
    """Standard deviation that a declaration asks for: 2 C z, as a replaced row moves by 2 C."""
    return 2 * noise.clip * multiplier_of(noise.epsilon, noise.delta)


def keep_probability(epsilon: float, classes: int) -> float:
    """Probability that randomised response tells the truth: e^eps / (e^eps + C - 1)."""
    return 1 / (1 + (classes - 1) * math.exp(-epsilon))


def faults_of_numbers(
    claim: Claim, noises: Sequence[GaussianNoise], labels: RandomisedLabels | None
) -> Iterator[str]:
    """Numbers of a claim that are not those of the declaration, or of its own words.

    Parameters
    ----------
    claim : Claim
        Of differential privacy, with guarantees.
    noises : sequence of GaussianNoise
    labels : RandomisedLabels or None
        What is declared for the claim's asset.
    """
    declared = [(one.epsilon, one.delta) for one in noises]
    declared += [(labels.epsilon, 0.0)] if labels is not None else []
    promised = [(one.epsilon, one.delta) for one in claim.guarantees]
    for pair in dict.fromkeys(declared + promised):
        if (pair in declared) != (pair in promised):
            where = ("claimed", "declared") if pair in promised else ("declared", "claimed")
            yield f"(epsilon, delta) = {_words(pair)} is {where[0]}, and not {where[1]}"
    yield from _faults_of_totals(claim, noises)
    yield from _faults_of_words(claim)


def faults_of_options(
    noises: Sequence[GaussianNoise], labels: RandomisedLabels | None, config: Any
) -> Iterator[str]:
    """Declared numbers that are not the options of their names, as the library calls them."""
    wanted = [(one.clip_option, one.clip) for one in noises]
    wanted += [("epsilon", one.epsilon) for one in noises]
    wanted += [("delta", one.delta) for one in noises]
    wanted += [("label_epsilon", labels.epsilon)] if labels is not None else []
    for name, value in wanted:
        own = getattr(config, name, value)
        if own != value:
            yield f"noise is declared for {name} = {value:g}, and the option is {own}"


def _faults_of_totals(claim: Claim, noises: Sequence[GaussianNoise]) -> Iterator[str]:
    """Epsilons of all releases that are less than the declared number of releases costs."""
    for noise in noises:
        z = multiplier_of(noise.epsilon, noise.delta) / math.sqrt(max(1, noise.releases))
        for one in claim.guarantees:
            mine = (one.epsilon, one.delta) == (noise.epsilon, noise.delta)
            if mine and delta_of(one.total_epsilon * (1 + _SLACK), z) > noise.delta:
                yield (
                    f"{noise.releases} releases of a row cost more than the epsilon of all "
                    f"releases that is claimed, {one.total_epsilon:.6g}"
                )


def _faults_of_words(claim: Claim) -> Iterator[str]:
    """Pairs in the claim's reason that are not those of its guarantees, to two digits."""
    pairs = [(one.epsilon, one.delta) for one in claim.guarantees]
    pairs += [(one.total_epsilon, one.delta) for one in claim.guarantees]
    for found in _PAIR.findall(claim.reason):
        said = (float(found[0]), float(found[1]))
        if not any(_alike(said[0], one[0]) and _alike(said[1], one[1]) for one in pairs):
            yield f"the claim's words say {_words(said)}, and its numbers do not"


def _alike(said: float, number: float) -> bool:
    return math.isclose(said, number, rel_tol=_ROUNDED)


def _words(pair: tuple[float, float]) -> str:
    return f"({pair[0]:g}, {pair[1]:g})"
