"""Labels of coded split learning, and the requests of its server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from securevfl.engine import wire

STORED_EVERY = 64  # steps after which a holder says anew which ones it has stored
TrainingPart = Literal["train", "test", "release"]


@dataclass(frozen=True)
class Label:
    """Name of one use of the masks; no label is used for two different results.

    Attributes
    ----------
    part : {"train", "test", "release"}
    step : int
        A training batch has the steps 1 to step - 1 in its model, every other part 1 to step.
    piece : int
        Number of a piece of rows, or of an owner.
    life : int
        Always 0: a server that comes back rolls forward, and never goes back to an earlier model.
    """

    part: TrainingPart
    step: int
    piece: int = 0
    life: int = 0

    def told(self, rows: np.ndarray) -> bytes:
        """All that a holder is told of it: the label, and B."""
        named = (self.life, self.part, self.step, self.piece, np.asarray(rows, np.uint32))
        return wire.encode(named)


@wire.message("coded_split.Request")
@dataclass(frozen=True)
class Request:
    """What the server asks of the holders after the last step.

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


def inference_step(coded: int, segments: int) -> int:
    """Rows of each segment of the test set that one request asks for."""
    return max(coded, 4096 // segments)
