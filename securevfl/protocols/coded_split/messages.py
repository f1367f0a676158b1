"""Labels of coded split learning, and the server's requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from securevfl.engine import wire
from securevfl.field import PrimeField
from securevfl.models.split import Batches
from securevfl.protocols.base.decoding import inference_step

DIGEST = 32  # bytes
STORED_EVERY = 64  # steps after which a holder says anew which ones it has stored
TrainingPart = Literal["train", "test", "release"]


@dataclass(frozen=True)
class Label:
    """Name of one use of the masks; no label is used for two different results.

    Attributes
    ----------
    part : {"train", "test", "release"}
        Sum of a training batch, sum of test rows, or release of a model.
    step : int
        For a training batch the model contains the steps 1 to step - 1; for other parts 1 to step.
    piece : int
        Number of a piece of rows, or of an owner.
    """

    part: TrainingPart
    step: int
    piece: int = 0

    def told(self, rows: np.ndarray) -> bytes:
        """Bytes of the public part of a mask use: the label and rows B.

        The digest of the model's steps is the other part. A server that goes back and makes
        different steps thereby gets different masks.
        """
        return wire.encode((self.part, self.step, self.piece, np.asarray(rows, np.uint32)))


def digest_words(field: PrimeField) -> int:
    """Number of field elements of a digest, which has 32 bytes; digests of steps add up.

    A step's digest is pseudo-random and depends on its number, so different steps collide with
    probability p to minus this number, at most 2^-200.
    """
    return DIGEST // int(field.dtype.itemsize)


@wire.message("coded_split.Request")
@dataclass(frozen=True)
class Request:
    """Request of the server to the holders after the last step.

    Attributes
    ----------
    part : str
        "test".
    piece : int
        Number of the piece.
    rows : ndarray, (|B|,), uint32
        B, row numbers within a segment.
    """

    part: str
    piece: int
    rows: np.ndarray


def pieces_of(batches: Batches) -> int:
    """Number of requests that cover all test rows."""
    return -(-batches.length // inference_step(batches.coded, batches.segments))


def piece_of(batches: Batches, piece: int) -> np.ndarray:
    """Row numbers B, within a segment, of the request with a number, (|B|,), uint32."""
    size = inference_step(batches.coded, batches.segments)
    return np.arange(piece * size, min((piece + 1) * size, batches.length), dtype=np.uint32)
