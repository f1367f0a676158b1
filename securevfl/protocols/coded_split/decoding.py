"""Decoding of sums by the server and of models by their owner, with correction of wrong uploads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from securevfl.protocols.base.decoding import decode_results
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
    shape, corrected = (rows, public.config.width), public.config.tolerate_corrupt > 0
    sums, wrong = decode_results(public.code, uploads, shape, degree=UPLOAD, corrected=corrected)
    return public.field.signed(sums), wrong


def signed_models(public: Parameters, shares: Mapping[int, np.ndarray]) -> np.ndarray:
    """Models of all replicas, (K, columns, h) signed, from 2(K+T-1)+1 shares by holder."""
    stack = np.stack(list(shares.values()))
    decoded = public.code.decode(stack, tuple(shares), degree=MODEL)
    return public.field.signed(decoded)
