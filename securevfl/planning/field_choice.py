"""Choice of a field and fractional bits for which no decoded sum can wrap."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.errors import ConfigurationError, WouldOverflowError
from securevfl.field.kernels.primes import USUAL

DATA_BITS, MODEL_BITS = 20, 24  # more is of no use: float32 weights have 24


@dataclass(frozen=True)
class Bits:
    """A field and fractional bits with which sums cannot wrap.

    Attributes
    ----------
    prime, data_bits, model_bits : int
        Prime p, and fractional bits lx and lw.
    largest : int
        Bound on the magnitude of a decoded sum: sum_n max_i sum_j |X-bar_n[i,j]| ceil(2^lw w), with
        client n's columns X-bar_n in units of 2^-lx, and w the bound on weights. If the
        protocol's bound grows with its steps, it is that of the first sums.
    limit : int
        Largest magnitude that does not wrap, (p - 1) / 2.
    expected, smallest : int
        If the bound grows: its expected value in the last step, and the smallest usual prime above
        twice this value. Else 0.
    """

    prime: int
    data_bits: int
    model_bits: int
    largest: int
    limit: int
    expected: int = 0
    smallest: int = 0


@dataclass(frozen=True)
class RowSums:
    """Bound on one client's row sums of |X_pow| (powers of the features and a column of ones).

    Attributes
    ----------
    largest : float
        max_i sum_j |X_pow[i,j]| of the real values.
    rounded : int
        Number of columns whose rounding may add half a unit each; 0 if `largest` counts columns in
        [0, 1].
    """

    largest: float
    rounded: int = 0

    def units(self, data_bits: int) -> int:
        """Bound on the row sums max_i sum_j |X-bar[i,j]|, in units of 2^-lx, lx = `data_bits`."""
        bound: int = math.ceil(self.largest * 2**data_bits + self.rounded / 2)
        return bound


def row_sum(features: np.ndarray, degree: int) -> float:
    """Largest row sum of |X_pow| with its column of ones: max_i sum_j |X_pow[i,j]|, float64."""
    largest = 0.0
    for start in range(0, len(features), 8192):
        rows = np.abs(features[start : start + 8192].astype(np.float64))
        sums = sum((rows**power).sum(axis=1) for power in range(1, degree + 1))
        largest = max(largest, float(np.max(sums, initial=0.0)))
    return 1.0 + largest


def choose_bits(
    sums: Sequence[RowSums],
    weight_bound: float,
    accuracy_bits: int,
    options: Mapping[str, Any],
) -> Bits:
    """Smallest field with `accuracy_bits` bits for data and weights, and the most bits that fit.

    Parameters
    ----------
    sums : sequence of RowSums
        Bound of each client.
    weight_bound : float
        w, the enforced bound on weights.
    accuracy_bits : int
        Lower limit of lx and of lw, 1 to 20.
    options : mapping
        Those of ``prime``, ``data_bits`` and ``model_bits`` that the user fixed.

    Raises
    ------
    WouldOverflowError
        If no field is large enough.
    ConfigurationError
        If `accuracy_bits` is out of range.
    """
    if type(accuracy_bits) is not int or not 1 <= accuracy_bits <= DATA_BITS:
        raise ConfigurationError(
            f"plan: accuracy_bits must be a whole number from 1 to {DATA_BITS}, it is "
            f"{accuracy_bits!r}"
        )
    primes = (int(options["prime"]),) if "prime" in options else USUAL
    lx, lw = (
        int(options.get(name, min(accuracy_bits, most)))
        for name, most in (("data_bits", DATA_BITS), ("model_bits", MODEL_BITS))
    )
    for prime in primes:
        if largest_sum(sums, weight_bound, lx, lw) <= (prime - 1) // 2:
            lx, lw = _filled(sums, weight_bound, prime, lx, lw, options)
            largest = largest_sum(sums, weight_bound, lx, lw)
            return Bits(prime, lx, lw, largest, (prime - 1) // 2)
    largest, limit = largest_sum(sums, weight_bound, lx, lw), (primes[-1] - 1) // 2
    raise WouldOverflowError(
        f"plan: with lx = {lx} and lw = {lw} a sum of embeddings can reach {largest:.4g} and "
        f"(p-1)/2 = {limit:.4g} for p = {primes[-1]}. Lower accuracy_bits, data_bits, model_bits "
        f"or log2 of weight_bound ({weight_bound:g}) by {math.ceil(math.log2(largest / limit))} "
        "in all, or use a larger prime"
    )


def largest_sum(sums: Sequence[RowSums], weight_bound: float, lx: int, lw: int) -> int:
    """Bound on a decoded sum, in field units: row sums at lx bits of data times ceil(2^lw w)."""
    rows = sum(each.units(lx) for each in sums)
    weight: int = math.ceil(2**lw * weight_bound)
    return rows * weight


def _filled(
    sums: Sequence[RowSums],
    weight_bound: float,
    prime: int,
    lx: int,
    lw: int,
    options: Mapping[str, Any],
) -> tuple[int, int]:
    """(lx, lw) raised in turn while sums fit below `prime`; those in `options` stay."""
    limit = (prime - 1) // 2
    grown = True
    while grown:
        grown = False
        for name, more in (("model_bits", (0, 1)), ("data_bits", (1, 0))):
            wider = (lx + more[0], lw + more[1])
            fits = largest_sum(sums, weight_bound, *wider) <= limit
            if name not in options and fits and wider[0] <= DATA_BITS and wider[1] <= MODEL_BITS:
                (lx, lw), grown = wider, True
    return lx, lw
