"""Decoding of uploads by the server of FedVS (lines 27-30), with correction of wrong ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from securevfl.protocols.base.decoding import decode_results
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
    corrected = public.config.tolerate_corrupt > 0
    shape = (rows, public.config.width)
    return decode_results(public.code, uploads, shape, degree=2, corrected=corrected)
