"""Quantised data and models of FedVS (lines 3-5 and 15), and checks that no sum can wrap."""

from __future__ import annotations

import numpy as np

from securevfl.errors import RangeError
from securevfl.field import FixedPoint, PrimeField
from securevfl.models.polynomial_network import PolynomialNetwork, expand
from securevfl.models.split import rows_of
from securevfl.protocols.fedvs.parameters import Parameters
from securevfl.verified import Streams


def magnitude(field: PrimeField, elements: np.ndarray) -> np.ndarray:
    """Absolute values |phi^-1(z)| of elements in the signed reading, as unsigned integers."""
    sizes: np.ndarray = np.minimum(elements, field.dtype.type(field.modulus) - elements)
    return sizes


def segments_of(
    features: np.ndarray, degree: int, point: FixedPoint, order: np.ndarray
) -> np.ndarray:
    """Rows X-bar of one client in K segments (lines 3-5), (K, ceil(M/K), d D + 1), elements.

    Parameters
    ----------
    features, degree : ndarray (M, d) float32, int
        The client's encoded and scaled rows, and the number D of their powers.
    point : FixedPoint
        Quantiser with lx bits.
    order : ndarray, (K, ceil(M/K))
        Row numbers in segments; -1 for padding, which is all zero, the ones column included.
    """
    quantised = point.quantize(expand(features, degree))
    segments = np.zeros((*order.shape, quantised.shape[1]), quantised.dtype)
    segments[order >= 0] = quantised[order[order >= 0]]
    return segments


def row_sum_of(segments: np.ndarray, field: PrimeField) -> int:
    """Largest row sum of magnitudes, max_i sum_j |X-bar_ij|; capped near 2^63 - 1."""
    sizes = magnitude(field, segments)
    rough = float(sizes.sum(axis=-1, dtype=np.float64).max())
    if rough < 2**62:
        return int(sizes.sum(axis=-1, dtype=np.uint64).max())
    return min(int(rough * (1 + 1e-9)), 2**63 - 1)


def quantised_weights(
    network: PolynomialNetwork, streams: Streams, round: int, point: FixedPoint
) -> np.ndarray:
    """Weights as field elements, W-bar (equation 3), rounded by the round's secret stream."""
    return point.quantize(network.values, rng=streams("rounding", round))


def nearest_weights(network: PolynomialNetwork, point: FixedPoint) -> np.ndarray:
    """Weights W-bar, rounded to nearest, so that predictions are deterministic."""
    return point.quantize(network.values)


def refuse_wrap(
    features: np.ndarray,
    model: np.ndarray,
    row_sum: np.ndarray,
    samples: np.ndarray,
    point: FixedPoint,
    degree: int,
    limit: int,
    client: int,
    round: int,
    advice: str,
) -> np.ndarray:
    """Raise RangeError if an entry |X-bar^(B) W-bar| of a client exceeds `limit`.

    Row sum times largest weight bounds every entry; the exact product is computed only where that
    bound does not settle it, in int64, which the protocol's check before the run makes wide enough.

    Parameters
    ----------
    features : ndarray, (M, d), float32
        The client's rows of the batch's part.
    model : ndarray, (d D + 1, h), field elements
        Quantised model W-bar.
    row_sum : ndarray, ()
        Largest row sum of |X-bar| (`row_sum_of`).
    samples : ndarray, (K |B|,)
        Row numbers of the batch.
    point, degree : FixedPoint, int
        Quantiser of the rows, and number D of their powers.
    client, round : int
        Numbers for the error.
    advice : str
        Numbers that may be lowered, for the error.

    Returns
    -------
    ndarray, (0,)
    """
    settled = int(row_sum) * int(magnitude(point.field, model).max()) <= limit
    if not settled:
        data = point.round(expand(rows_of(features, samples), degree))
        largest = int(np.abs(data @ point.field.signed(model)).max())
        if largest > limit:
            raise RangeError(
                f"fedvs: in round {round} client {client} has a quantised embedding of {largest}, "
                f"and floor((p-1)/(2N)) = {limit}. Lower {advice}, or use a larger prime"
            )
    return np.empty(0)


def entry_limit(public: Parameters) -> int:
    """Largest entry that may be shared, floor((p-1)/(2N)), so that N of them cannot wrap."""
    return (public.field.modulus - 1) // (2 * public.code.parties)


def mean_of_sums(sums: np.ndarray, point: FixedPoint, bits: int, terms: int) -> np.ndarray:
    """Mean embedding H, (K |B|, h) floats, from decoded segment sums (Q^-1, equation 7).

    Parameters
    ----------
    sums, point : ndarray (K, |B|, h), FixedPoint
        Decoded sums of the batch by segment, field elements; fixed-point format of the field.
    bits : int
        Binary places of the sums.
    terms : int
        Clients in the sum.
    """
    sums = sums.reshape(-1, sums.shape[-1])  # segment by segment
    embedding: np.ndarray = point.dequantize(sums, bits=bits) / terms
    return embedding
