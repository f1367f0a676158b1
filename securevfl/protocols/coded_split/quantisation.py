"""Integers of coded split learning: an owner's rows and first weights, and the server's steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from securevfl.models.polynomial_network import expand
from securevfl.protocols.coded_split.parameters import CLIP, Parameters


@dataclass(frozen=True)
class Preparation:
    """An owner's fixed map of its columns, which it needs again for new rows and tells nobody.

    Attributes
    ----------
    mean, deviation : ndarray, (d,)
        None for no map.
    """

    mean: np.ndarray | None = None
    deviation: np.ndarray | None = None

    def apply(self, features: np.ndarray) -> np.ndarray:
        """Rows after the map, float32."""
        if self.mean is None or self.deviation is None:
            return features
        rows = np.clip((features - self.mean) / self.deviation, -CLIP, CLIP)
        prepared: np.ndarray = (rows / math.sqrt(features.shape[1])).astype(np.float32)
        return prepared


def preparation_of(prepare: str, train: np.ndarray) -> Preparation:
    """The map that an option asks for, from an owner's training rows."""
    if prepare == "none":
        return Preparation()
    rows = train.astype(np.float64)
    deviation = rows.std(axis=0)
    deviation[deviation == 0] = 1.0
    return Preparation(rows.mean(axis=0), deviation)


def whole_rows(public: Parameters, owner: int, prepared: np.ndarray) -> np.ndarray:
    """xbar_i of one owner (line 1): expanded, rounded, and of norm at most rho_n; int64, (M, d_n).

    A longer row is scaled down and rounded towards 0, so that the server's bound holds of it.
    """
    whole = public.data_point.round(expand(prepared, public.config.degree))
    square = public.norms_squared[owner]
    rough = (whole.astype(np.float64) ** 2).sum(axis=1)
    beyond = rough > square * (1 + 1e-9)
    near = ~beyond & (rough > square * (1 - 1e-9))
    beyond[near] = (whole[near] ** 2).sum(axis=1) > square
    if beyond.any():
        factor = np.sqrt(square / rough[beyond]) * (1 - 1e-9)
        whole[beyond] = np.trunc(whole[beyond] * factor[:, None]).astype(np.int64)
    return whole


def first_model(public: Parameters, weights: np.ndarray) -> np.ndarray:
    """Wbar_n (line 2), (d_n, h) field elements."""
    quantised: np.ndarray = public.model_point.quantize(weights)
    return quantised


def mean_of_sums(public: Parameters, sums: np.ndarray, steps: int) -> np.ndarray:
    """H of line 6, floats, from signed sums of whatever shape, by models of so many steps."""
    mean: np.ndarray = np.ldexp(sums.astype(np.float64), -public.sum_bits) / public.owners
    return mean * public.scale(steps)


def wanted_step(
    public: Parameters, step: int, gradient: np.ndarray, residual: np.ndarray
) -> np.ndarray:
    """-eta K 2^lu G / (n_o c) + e_B of line 7, reals of the shape of `residual`, (K, |B|, h).

    The factor K makes the mean over K |B| rows one over the |B| rows of a replica. Models are c
    times what stands in shares, c after this step, so the step is divided by it.
    """
    config = public.config
    scale = config.rate(step) * public.code.segments * 2.0**config.gradient_bits / public.owners
    scale /= public.scale(step)
    wanted: np.ndarray = residual - scale * gradient.astype(np.float64).reshape(residual.shape)
    return wanted
