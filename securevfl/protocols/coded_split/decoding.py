"""Decoding of sums by the server and of models by the experimenter; wrong uploads are corrected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from securevfl.protocols.base.decoding import decode_results
from securevfl.protocols.coded_split.parameters import MODEL, Parameters
from securevfl.verified import Element, Participant


def decode_sums(
    server: Participant, public: Parameters, uploads: Mapping[int, Any], shape: tuple[int, int]
) -> tuple[Element, list[int]]:
    """Sums U_1 to U_K, (K, |B|, h), and the holders whose uploads disagree with the rest.

    CorruptResultsError for more than A wrong uploads, NotEnoughResultsError for fewer than R, and
    ProtocolError for a malformed one if A = 0.

    Parameters
    ----------
    server, public : Participant, Parameters
        Party that has the uploads; public parameters.
    uploads : mapping of int to Element, (|B|, h)
        Uploads by holder; up to A of them may be arbitrary.
    shape : tuple of int
        (|B|, h).
    """
    how: Any = {"degree": public.degree, "corrected": bool(public.config.tolerate_corrupt)}
    return decode_results(server, public.code, uploads, shape, **how)


def signed_models(public: Parameters, shares: Mapping[int, np.ndarray]) -> np.ndarray:
    """Models of all replicas, (K, columns, h) signed, from 2(K+T-1)+1 shares by holder.

    NotEnoughResultsError for fewer shares.
    """
    found = public.code.decode(np.stack(list(shares.values())), tuple(shares), degree=MODEL)
    return public.field.signed(found)
