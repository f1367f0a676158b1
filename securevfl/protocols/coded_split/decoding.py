"""Decoding of sums by the server and of models by the experimenter; wrong uploads are corrected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from securevfl.errors import NotEnoughResultsError
from securevfl.field import PrimeField, error_correction
from securevfl.field.lagrange import interpolation_matrix
from securevfl.protocols.coded_split.parameters import MODEL, UPLOAD, Parameters
from securevfl.protocols.coded_split.terms import check_elements
from securevfl.verified import Element, Participant, concatenate
from securevfl.verified.batched import decoded, mixed


def decode_sums(
    server: Participant, public: Parameters, uploads: Mapping[int, Any], shape: tuple[int, int]
) -> tuple[Element, list[int]]:
    """U_1 to U_K, (K, |B|, h), and the holders whose uploads disagree with the rest.

    Parameters
    ----------
    server : Participant
    public : Parameters
    uploads : mapping of int to Element, (|B|, h)
        By holder; with A > 0 up to A of them may be anything.
    shape : tuple of int
        (|B|, h).

    Raises
    ------
    CorruptResultsError, NotEnoughResultsError, ProtocolError
    """
    if not public.config.tolerate_corrupt:
        for n, upload in uploads.items():
            check_elements(public, "the upload", n, upload, shape)
        return decoded(public.code, uploads, UPLOAD), []
    sound = {n: Y for n, Y in uploads.items() if isinstance(Y, Element) and Y.shape == shape}
    if len(sound) < public.threshold:
        raise NotEnoughResultsError(
            f"{len(sound)} of {len(uploads)} uploads have the form that was asked for, and "
            f"decoding needs R = {public.threshold}; the run cannot go on"
        )
    wrong = wrong_uploads(server, public, sound)
    good = {n: Y for n, Y in sound.items() if n not in wrong}
    return decoded(public.code, good, UPLOAD), sorted(set(uploads) - set(good))


def wrong_uploads(
    server: Participant, public: Parameters, uploads: Mapping[int, Element]
) -> list[int]:
    """Holders whose uploads are on another polynomial than the rest.

    What those beyond the first R should be is a linear function of these, so honest uploads open
    zeros and nothing else.
    """
    code, R, every = public.code, public.threshold, list(uploads.values())
    points = [code.alphas[n] for n in uploads]
    implied = mixed(interpolation_matrix(code.field, points[:R], points[R:]), every[:R])
    apart = [Y - should for Y, should in zip(every[R:], implied, strict=True)]
    if not apart:
        return []
    some = concatenate(apart).map(is_any, shape=(), real=True, dtype=np.bool_)
    if not server.opened(some, "whether uploads disagree"):
        return []
    numbers = code.field, np.array(points, np.uint64), R, *every[1:]
    found = every[0].map(which_wrong, *numbers, shape=(len(every),), real=True, dtype=np.bool_)
    return [n for n, bad in zip(uploads, server.opened(found, "wrong uploads"), strict=True) if bad]


def is_any(values: np.ndarray) -> np.ndarray:
    """Presence of a number that is not 0."""
    return np.array(values.any())


def which_wrong(
    first: np.ndarray, field: PrimeField, points: np.ndarray, R: int, *others: np.ndarray
) -> np.ndarray:
    """Mask of the wrong uploads, (uploads,) bool."""
    flat = np.stack([first, *others]).reshape(1 + len(others), -1)
    good: np.ndarray = error_correction.honest(field, points, flat, R)
    return ~good


def signed_models(public: Parameters, shares: Mapping[int, np.ndarray]) -> np.ndarray:
    """Models of all replicas, (K, columns, h) signed, from 2(K+T-1)+1 shares by holder."""
    found = public.code.decode(np.stack(list(shares.values())), tuple(shares), degree=MODEL)
    return public.field.signed(found)
