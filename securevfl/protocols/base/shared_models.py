"""Interface of protocols in which models stay in shares."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from securevfl.field import LagrangeCode
from securevfl.field.prss import Prss
from securevfl.protocols.base.protocol import Protocol


class SharedModels(Protocol):
    """A protocol in which models stay in shares, and the server deals its steps.

    Its clients compute on shares and mask results by a `Prss`. Uploads are of kind "embedding".
    """

    @property
    @abstractmethod
    def code(self) -> LagrangeCode:
        """Evaluation points, K and T."""

    @property
    @abstractmethod
    def prss(self) -> Prss:
        """Keys of the masks, by holder."""

    @property
    @abstractmethod
    def owners(self) -> int:
        """Number of clients with data: the first ones."""

    @abstractmethod
    def quantised_columns(self) -> dict[int, np.ndarray]:
        """X-bar of the training rows by owner, (K, rows, columns), field elements."""
