"""Decoding of coded protocols' results by the server, with correction of wrong results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from securevfl.errors import NotEnoughResultsError
from securevfl.field import LagrangeCode, PrimeField, error_correction
from securevfl.field.lagrange import interpolation_matrix
from securevfl.models.split import Batches
from securevfl.protocols.base.received import check_element
from securevfl.verified import Element, Participant, Secret, concatenate
from securevfl.verified.batched import decoded, mixed


def decode_results(
    server: Participant,
    code: LagrangeCode,
    results: Mapping[int, Any],
    shape: tuple[int, ...],
    *,
    degree: int,
    corrected: bool,
) -> tuple[Element, list[int]]:
    """Decoded values at the K data points, and the parties with wrong results.

    NotEnoughResultsError for fewer than R results, CorruptResultsError for more wrong ones than can
    be corrected, and without `corrected` ProtocolError for a malformed one.

    Parameters
    ----------
    server : Participant
        Party that has the results.
    code : LagrangeCode
        Code of the shares.
    results : mapping of int to Element
        Results by party; with `corrected` some may be arbitrary.
    shape : tuple of int
        Shape of each result.
    degree : int
        Degree of the computation in the shares: R = degree (K+T-1) + 1.
    corrected : bool
        Whether malformed results are left out, and wrong ones found and corrected.

    Returns
    -------
    Element, (K, *shape); list of int
        Parties whose results were left out, ascending.
    """
    if not corrected:
        for n, result in results.items():
            check_element("the upload", n, result, shape, code.field)
        return decoded(code, results, degree), []
    sound = {n: Y for n, Y in results.items() if isinstance(Y, Element) and Y.shape == shape}
    threshold = code.recovery_threshold(degree)
    if len(sound) < threshold:
        raise NotEnoughResultsError(
            f"{len(sound)} of {len(results)} uploads have the form that was asked for, and "
            f"decoding needs R = {threshold}; the run cannot go on"
        )
    wrong = _wrong(server, code, sound, threshold)
    good = {n: Y for n, Y in sound.items() if n not in wrong}
    return decoded(code, good, degree), sorted(set(results) - set(good))


def _wrong(
    server: Participant, code: LagrangeCode, results: Mapping[int, Element], R: int
) -> list[int]:
    """Parties whose results do not lie on the polynomial of the others.

    Honest results beyond the first R are a linear function of those R. So the check opens only
    whether differences are zero.
    """
    every, points = list(results.values()), [code.alphas[n] for n in results]
    if len(every) == R:
        return []
    implied = mixed(interpolation_matrix(code.field, points[:R], points[R:]), every[:R])
    apart = [Y - should for Y, should in zip(every[R:], implied, strict=True)]
    some = concatenate(apart).map(is_any, shape=(), real=True, dtype=np.bool_)
    if not server.opened(some, "whether uploads disagree"):
        return []
    numbers = code.field, np.array(points, np.uint64), R, *every[1:]
    found = every[0].map(which_wrong, *numbers, shape=(len(every),), real=True, dtype=np.bool_)
    told = server.opened(found, "whose uploads disagree")
    return [n for n, wrong in zip(results, told, strict=True) if wrong]


def is_any(values: np.ndarray) -> np.bool_:
    """Truth value, a NumPy bool: True if any number is not 0."""
    return np.bool_(values.any())


def which_wrong(
    first: np.ndarray, field: PrimeField, points: np.ndarray, R: int, *others: np.ndarray
) -> np.ndarray:
    """Mask of wrong results, (results,) bool, as found by `honest`; CorruptResultsError if many."""
    flat = np.stack([first, *others]).reshape(1 + len(others), -1)
    good: np.ndarray = error_correction.honest(field, points, flat, R)
    return ~good


def inference_step(coded: int, segments: int) -> int:
    """Test rows of each of K segments in one request, for training batches of `coded` rows."""
    return max(coded, 4096 // segments)


def rows_in_order(batches: Batches, parts: Mapping[int, Any], step: int) -> Any:
    """Values of all rows in row order, (rows, ...), joined from numbered parts.

    Parameters
    ----------
    batches : Batches
        Layout of the rows.
    parts : mapping of int to ndarray or Secret
        Parts by number, (K rows, ...); part n has at most `step` coded rows, from n * `step` on.
    """
    ends = ((n * step, min((n + 1) * step, batches.length)) for n in parts)
    samples = [batches.samples(np.arange(*rows)) for rows in ends]
    first, *others = parts.values()
    if not isinstance(first, Secret):
        return placed(first, batches.rows, samples, *others)
    shape = batches.rows, *first.shape[1:]
    return first.map(placed, batches.rows, samples, *others, shape=shape)


def placed(
    first: np.ndarray, rows: int, samples: list[np.ndarray], *others: np.ndarray
) -> np.ndarray:
    """Values of several parts at the row numbers `samples`; row -1, padding, is left out."""
    values = np.empty((rows, *first.shape[1:]), first.dtype)
    for own, part in zip(samples, (first, *others), strict=True):
        values[own[own >= 0]] = part[own >= 0]
    return values
