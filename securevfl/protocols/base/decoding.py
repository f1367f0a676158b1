"""Decoding of the results of coded protocols by their server, with correction of wrong ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from securevfl.errors import NotEnoughResultsError, ProtocolError
from securevfl.field import LagrangeCode
from securevfl.models.split import Batches
from securevfl.protocols.base.received import check_array


def decode_results(
    code: LagrangeCode,
    results: Mapping[int, np.ndarray],
    shape: tuple[int, ...],
    *,
    degree: int,
    corrected: bool,
) -> tuple[np.ndarray, list[int]]:
    """Values of the computed polynomial at the data points, and whose results disagree.

    Parameters
    ----------
    code : LagrangeCode
    results : mapping of int to ndarray, `shape`
        By party. Where wrong ones are corrected, some of them may be anything.
    shape : tuple of int
    degree : int
        Of the computation in the shares: R = degree (K+T-1) + 1.
    corrected : bool
        Whether results of another form are left out, and wrong ones found and corrected.

    Returns
    -------
    ndarray, (K, *shape); list of int
        Field elements; parties whose results were left out, ascending.

    Raises
    ------
    CorruptResultsError, NotEnoughResultsError, ProtocolError
    """
    sound, threshold = dict[int, np.ndarray](), code.recovery_threshold(degree)
    for n, result in results.items():
        try:
            check_array("the upload", n, result, shape, code.field.dtype, code.field.modulus)
        except ProtocolError:
            if not corrected:
                raise
        else:
            sound[n] = result
    if not corrected:
        return code.decode(np.stack(list(sound.values())), tuple(sound), degree=degree), []
    if len(sound) < threshold:
        raise NotEnoughResultsError(
            f"{len(sound)} of {len(results)} uploads have the form that was asked for, and "
            f"decoding needs R = {threshold}; the run cannot go on"
        )
    stack = np.stack(list(sound.values()))
    values, wrong = code.decode_with_errors(stack, tuple(sound), degree=degree)
    return values, sorted({*wrong, *results} - (set(sound) - set(wrong)))


def rows_in_order(batches: Batches, parts: Mapping[int, np.ndarray], step: int) -> np.ndarray:
    """Values of all rows in their order, from parts that have `step` coded rows each."""
    first = next(iter(parts.values()))
    values = np.empty((batches.rows, *first.shape[1:]), first.dtype)
    for number, part in parts.items():
        rows = np.arange(number * step, min((number + 1) * step, batches.length))
        samples = batches.samples(rows)
        values[samples[samples >= 0]] = part[samples >= 0]
    return values
