"""Interface of protocols that compute on Lagrange-coded shares."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from securevfl.field import LagrangeCode
from securevfl.field.prss import Prss
from securevfl.protocols.base.protocol import Protocol


class CodedProtocol(Protocol):
    """A protocol whose clients share data and models by a `LagrangeCode` and upload psi.

    Data shares are of kind "train-data", model shares "model", keys of masks "key", uploads
    "embedding". A round is announced with an object that has `rows` (B), and "attempt" names
    `sharers` (S).
    """

    @property
    @abstractmethod
    def code(self) -> LagrangeCode:
        """Evaluation points, K and T."""

    @property
    @abstractmethod
    def prss(self) -> Prss | None:
        """Keys of the masks of uploads; None without masks."""

    @property
    def masked(self) -> bool:
        """Whether uploads are masked."""
        return self.prss is not None

    @abstractmethod
    def quantised_columns(self) -> dict[int, np.ndarray]:
        """X-bar of the training rows by client, (K, ceil(M/K), columns), field elements."""
