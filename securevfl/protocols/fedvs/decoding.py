"""Decoding of uploads by the server of FedVS (lines 27-30), with correction of wrong ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from securevfl.errors import NotEnoughResultsError
from securevfl.models.split import Batches
from securevfl.protocols.fedvs.parameters import Parameters


def decode_uploads(
    public: Parameters, uploads: Mapping[int, np.ndarray], rows: int
) -> tuple[np.ndarray, list[int]]:
    """psi(beta_1..beta_K), and the clients whose uploads disagree with the rest.

    Parameters
    ----------
    public : Parameters
    uploads : mapping of int to ndarray, (|B|, h)
        By client; with A > 0 up to A of them may be anything.
    rows : int
        |B|.

    Raises
    ------
    CorruptResultsError, NotEnoughResultsError
    """
    code = public.code
    if not public.config.tolerate_corrupt:
        return code.decode(np.stack(list(uploads.values())), tuple(uploads), degree=2), []
    form = ((rows, public.config.width), public.field.dtype)
    sound = {
        n: upload
        for n, upload in uploads.items()
        if isinstance(upload, np.ndarray) and (upload.shape, upload.dtype) == form
    }
    if len(sound) < public.threshold:
        raise NotEnoughResultsError(
            f"{len(sound)} of {len(uploads)} uploads have the form that was asked for, and "
            f"decoding needs R = {public.threshold}"
        )
    sums, wrong = code.decode_with_errors(np.stack(list(sound.values())), tuple(sound), degree=2)
    return sums, sorted({*wrong, *uploads} - (set(sound) - set(wrong)))


def rows_in_order(batches: Batches, parts: Mapping[int, np.ndarray], step: int) -> np.ndarray:
    """Values of all rows in their order, from parts that have `step` coded rows each."""
    first = next(iter(parts.values()))
    values = np.empty((batches.rows, *first.shape[1:]), first.dtype)
    for number, part in parts.items():
        rows = np.arange(number * step, min((number + 1) * step, batches.length))
        samples = batches.samples(rows)
        values[samples[samples >= 0]] = part[samples >= 0]
    return values
