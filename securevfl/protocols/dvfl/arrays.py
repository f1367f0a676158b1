"""Arrays that DVFL's parties put together: rows of a guest's batch, and all hosts' encodings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def own_rows(places: np.ndarray, aligned: int, rows: int) -> np.ndarray:
    """A guest's rows at the places of a batch that all guests draw alike.

    Places below M are the aligned rows, the same for all guests. The other places are unaligned
    rows of the guest, counted from the first again where it has fewer than others; a guest without
    unaligned rows takes aligned ones.

    Parameters
    ----------
    places : ndarray of int, (B,)
    aligned : int
        M.
    rows : int
        All rows of the guest, the aligned ones first.
    """
    unaligned = rows - aligned
    others = aligned + (places - aligned) % unaligned if unaligned else places % aligned
    chosen: np.ndarray = np.where(places < aligned, places, others)
    return chosen


def encodings_side_by_side(
    encodings: Mapping[int, np.ndarray], hosts: Sequence[int], width: int
) -> np.ndarray:
    """Encodings of all hosts, (rows, |K| d_k); zero in the place of a host that has none."""
    rows = len(next(iter(encodings.values())))
    joint = np.zeros((rows, len(hosts) * width), np.float32)
    for place, host in enumerate(hosts):
        if host in encodings:
            joint[:, place * width : (place + 1) * width] = encodings[host]
    return joint
