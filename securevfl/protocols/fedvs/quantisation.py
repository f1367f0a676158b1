"""Quantised data and models of FedVS (lines 3-5 and 15), and checks that no sum can wrap."""

from __future__ import annotations

import numpy as np

from securevfl.errors import RangeError
from securevfl.field import PrimeField
from securevfl.models.polynomial_network import expand
from securevfl.models.split import rows_of
from securevfl.protocols.fedvs.messages import Batch
from securevfl.protocols.fedvs.parameters import Parameters


def magnitude(field: PrimeField, elements: np.ndarray) -> np.ndarray:
    """|phi^-1(z)|: distance of each element to 0, as unsigned integers."""
    sizes: np.ndarray = np.minimum(elements, field.dtype.type(field.modulus) - elements)
    return sizes


def quantised_data(public: Parameters, features: np.ndarray, part: str) -> tuple[np.ndarray, int]:
    """X-bar of one client in K segments (lines 3-5), and its largest row sum of |X-bar|.

    Parameters
    ----------
    features : ndarray, (M, d), float32
    part : {"train", "test"}

    Returns
    -------
    segments : ndarray, (K, ceil(M/K), d D + 1), field elements
        Padded rows are all zero, the ones column included.
    row_sum : int
        max_i sum_j |X-bar_ij|; from 2^62 on it is rounded up.
    """
    powers = expand(features, public.config.degree)
    quantised = public.data_point.quantize(powers)
    sizes = magnitude(public.field, quantised)
    rough = float(sizes.sum(axis=1, dtype=np.float64).max())
    exact = rough < 2**62
    row_sum = int(sizes.sum(axis=1, dtype=np.uint64).max()) if exact else int(rough * (1 + 1e-9))
    return public.batches[part].lay_out(quantised), row_sum


def could_wrap(
    public: Parameters, features: np.ndarray, batch: Batch, model: np.ndarray, row_sum: int
) -> int | None:
    """The largest |X-bar^(B) W-bar| of a client if it exceeds `entry_limit`, else None.

    Row sum times largest weight bounds every entry; the exact product is computed only where that
    bound does not settle it, in int64, which the protocol's check before the run makes wide
    enough.

    Parameters
    ----------
    public : Parameters
    features : ndarray, (M, d), float32
        The client's rows of the batch's part.
    batch : Batch
    model : ndarray, (d D + 1, h), field elements
        W-bar.
    row_sum : int
        As `quantised_data` returns it, of all parts.
    """
    limit = entry_limit(public)
    largest = int(magnitude(public.field, model).max())
    if row_sum * largest <= limit:
        return None
    rows = rows_of(features, public.batches[batch.part].samples(batch.rows))
    data = public.data_point.round(expand(rows, public.config.degree))
    product = int(np.abs(data @ public.field.signed(model)).max())
    return product if product > limit else None


def entry_limit(public: Parameters) -> int:
    """floor((p-1)/(2N)): N entries up to it cannot wrap in their sum."""
    return (public.field.modulus - 1) // (2 * public.code.parties)


def out_of_range(public: Parameters, client: int, round: int, largest: int) -> RangeError:
    """The error of a client whose part could wrap."""
    config = public.config
    return RangeError(
        f"fedvs: in round {round} client {client} has a quantised embedding of {largest}, and "
        f"floor((p-1)/(2N)) = {entry_limit(public)}. Lower data_bits ({config.data_bits}), "
        f"model_bits ({config.model_bits}) or weight_bound ({config.weight_bound:g}), or use a "
        "larger prime"
    )


def mean_of_sums(public: Parameters, sums: np.ndarray, terms: int) -> np.ndarray:
    """H, (K |B|, h) floats, from the decoded sums of the K segments (Q^-1, equation 7).

    Parameters
    ----------
    public : Parameters
    sums : ndarray, (K, |B|, h), field elements
    terms : int
        Clients in the sum.
    """
    sums = sums.reshape(-1, sums.shape[-1])  # segment by segment
    bits = public.config.data_bits + public.config.model_bits
    embedding: np.ndarray = public.model_point.dequantize(sums, bits=bits) / terms
    return embedding
