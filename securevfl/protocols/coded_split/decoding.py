"""Decoding of sums by the server and of models by their owner, with correction of wrong uploads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from securevfl.errors import NotEnoughResultsError
from securevfl.models.split import Batches
from securevfl.protocols.coded_split.parameters import MODEL, UPLOAD, Parameters


def decode_sums(
    public: Parameters, uploads: Mapping[int, np.ndarray], rows: int
) -> tuple[np.ndarray, list[int]]:
    """U_1 to U_K, (K, |B|, h) signed, and the holders whose uploads disagree with the rest.

    Parameters
    ----------
    public : Parameters
    uploads : mapping of int to ndarray, (|B|, h)
        By holder; with A > 0 up to A of them may be anything.
    rows : int
        |B|.

    Raises
    ------
    CorruptResultsError, NotEnoughResultsError
    """
    code = public.code
    if not public.config.tolerate_corrupt:
        sums = code.decode(np.stack(list(uploads.values())), tuple(uploads), degree=UPLOAD)
        return public.field.signed(sums), []
    form = ((rows, public.config.width), public.field.dtype)
    sound = {
        n: upload
        for n, upload in uploads.items()
        if isinstance(upload, np.ndarray) and (upload.shape, upload.dtype) == form
    }
    if len(sound) < public.threshold:
        raise NotEnoughResultsError(
            f"coded_split: {len(sound)} of {len(uploads)} uploads have the form that was asked "
            f"for, and decoding needs R = {public.threshold}; the run cannot go on"
        )
    stack = np.stack(list(sound.values()))
    sums, wrong = code.decode_with_errors(stack, tuple(sound), degree=UPLOAD)
    return public.field.signed(sums), sorted({*wrong, *uploads} - (set(sound) - set(wrong)))


def signed_models(public: Parameters, shares: Mapping[int, np.ndarray]) -> np.ndarray:
    """Models of all replicas, (K, columns, h) signed, from 2(K+T-1)+1 shares by holder."""
    stack = np.stack(list(shares.values()))
    decoded = public.code.decode(stack, tuple(shares), degree=MODEL)
    return public.field.signed(decoded)


def rows_in_order(batches: Batches, parts: Mapping[int, np.ndarray], step: int) -> np.ndarray:
    """Values of all rows in their order, from parts that have `step` coded rows each."""
    first = next(iter(parts.values()))
    values = np.empty((batches.rows, *first.shape[1:]), first.dtype)
    for number, part in parts.items():
        rows = np.arange(number * step, min((number + 1) * step, batches.length))
        samples = batches.samples(rows)
        values[samples[samples >= 0]] = part[samples >= 0]
    return values
