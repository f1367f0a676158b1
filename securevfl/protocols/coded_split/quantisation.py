"""Integers of coded split learning: an owner's rows and first weights, and the server's steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from securevfl.field import FixedPoint, PrimeField
from securevfl.models.polynomial_network import expand
from securevfl.models.split import Batches, rows_of
from securevfl.protocols.coded_split.parameters import CLIP, Parameters

if TYPE_CHECKING:
    from securevfl.verified import Element, Secret


@dataclass(frozen=True)
class Preparation:
    """An owner's fixed preparation of its columns, needed again for new rows; kept secret.

    Attributes
    ----------
    mean, deviation : ndarray, (d,)
        Affine map of the columns; None for no map.
    """

    mean: np.ndarray | None = None
    deviation: np.ndarray | None = None

    def apply(self, features: np.ndarray) -> np.ndarray:
        """Prepared rows, (rows, d) float32: standardised, clipped and divided by sqrt(d)."""
        if self.mean is None or self.deviation is None:
            return features
        rows = np.clip((features - self.mean) / self.deviation, -CLIP, CLIP)
        prepared: np.ndarray = (rows / math.sqrt(features.shape[1])).astype(np.float32)
        return prepared


def preparation_of(prepare: str, train: np.ndarray) -> Preparation:
    """Preparation chosen by an option, fitted on an owner's training rows."""
    if prepare == "none":
        return Preparation()
    rows = train.astype(np.float64)
    deviation = rows.std(axis=0)
    deviation[deviation == 0] = 1.0
    return Preparation(rows.mean(axis=0), deviation)


def whole_rows(public: Parameters, owner: int, prepared: np.ndarray) -> np.ndarray:
    """Rows xbar_i of an owner (line 1), int64, (M, d_n): expanded, rounded, norm <= rho_n."""
    return rounded_rows(prepared, *_numbers(public, owner))


def rounded_rows(prepared: np.ndarray, point: FixedPoint, degree: int, square: int) -> np.ndarray:
    """Expanded and rounded rows, (rows, d) integers, of squared norm at most `square`.

    A longer row is scaled down and rounded towards 0, so that the server's bound holds.
    """
    whole = point.round(expand(prepared, degree))
    rough = (whole.astype(np.float64) ** 2).sum(axis=1)
    beyond = rough > square * (1 + 1e-9)
    near = ~beyond & (rough > square * (1 - 1e-9))
    beyond[near] = (whole[near] ** 2).sum(axis=1) > square
    if beyond.any():
        factor = np.sqrt(square / rough[beyond]) * (1 - 1e-9)
        whole[beyond] = np.trunc(whole[beyond] * factor[:, None]).astype(np.int64)
    return whole


def segments_of(public: Parameters, owner: int, features: Secret, part: str) -> Element:
    """Segments X_n of a part, (K, length, d_n) field elements, from prepared rows."""
    batches, d = public.batches[part], public.sizes[owner]
    made: Element = features.map(
        *(laid_out, order_of(batches), public.field, *_numbers(public, owner)),
        shape=(batches.segments, batches.length, d),
        field=public.field,
    )
    return made


def laid_out(
    prepared: np.ndarray,
    order: np.ndarray,
    field: PrimeField,
    point: FixedPoint,
    degree: int,
    square: int,
) -> np.ndarray:
    """Rows in `order` (K, length; -1: zeros), rounded (`rounded_rows`), as (K, length, d_n)."""
    rows = rows_of(field.reduce(rounded_rows(prepared, point, degree, square)), order.reshape(-1))
    segments: np.ndarray = rows.reshape(*order.shape, -1)
    return segments


def order_of(batches: Batches) -> np.ndarray:
    """Row numbers of each segment, (K, length); -1 for padding."""
    return batches.samples(np.arange(batches.length)).reshape(batches.segments, batches.length)


def _numbers(public: Parameters, owner: int) -> tuple[FixedPoint, int, int]:
    return public.data_point, public.config.degree, public.norms_squared[owner]


def first_model(weights: np.ndarray, point: FixedPoint) -> np.ndarray:
    """Initial weights as field elements Wbar_n (line 2), (d_n, h)."""
    quantised: np.ndarray = point.quantize(weights)
    return quantised


def mean_of_sums(public: Parameters, sums: np.ndarray, steps: int) -> np.ndarray:
    """Mean embedding H (line 6), floats, from signed sums of any shape after `steps` steps."""
    return mean(sums, *scales(public, steps))


def mean(sums: np.ndarray, bits: int, owners: int, scale: float) -> np.ndarray:
    """Mean embedding H from signed sums over `owners` owners."""
    found: np.ndarray = np.ldexp(sums.astype(np.float64), -bits) / owners
    return found * scale


def joint(sums: np.ndarray, field: PrimeField, bits: int, owners: int, scale: float) -> np.ndarray:
    """Mean embedding H of a batch, (K|B|, h), from U_1 to U_K; other arguments as in `scales`."""
    return mean(field.signed(sums), bits, owners, scale).reshape(-1, sums.shape[-1])


def scales(public: Parameters, steps: int) -> tuple[int, int, float]:
    """(Bits of a sum, number of owners, scale of models after `steps` steps), for `joint`."""
    return public.sum_bits, public.owners, public.scale(steps)


def wanted_step(
    public: Parameters, step: int, gradient: np.ndarray, residual: np.ndarray
) -> np.ndarray:
    """Step -eta K 2^lu G / (n_o c) + e_B of line 7, reals of `residual`'s shape, (K, |B|, h).

    The factor K makes the mean over K |B| rows one over the |B| rows of a replica. Models are c
    times the integers in shares, with c after this step, so the step is divided by c.
    """
    config = public.config
    scale = config.rate(step) * public.code.segments * 2.0**config.gradient_bits / public.owners
    scale /= public.scale(step)
    wanted: np.ndarray = residual - scale * gradient.astype(np.float64).reshape(residual.shape)
    return wanted
