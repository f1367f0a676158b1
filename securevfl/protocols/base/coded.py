"""Interface of protocols that compute on Lagrange-coded shares, for their verifiers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from securevfl.engine.party import Party
from securevfl.field import LagrangeCode
from securevfl.protocols.base.protocol import Protocol


class CodedProtocol(Protocol):
    """A protocol whose clients share data and models by a `LagrangeCode` and upload psi.

    The verifiers of its claims need more than the declared messages: the code, runs on chosen
    models, and the messages of FedVS. Data shares are of kind "train-data", model
    shares "model", shares of masks "mask", uploads "embedding". A round is announced with an object
    that has `rows` (B), and "attempt" names `sharers` (S), `dealers` (D) and `held` (earlier
    models). A client draws by its method `uniform`: Z in setup, then in each round V and, of a
    dealer, the coefficients of rho.
    """

    @property
    @abstractmethod
    def code(self) -> LagrangeCode:
        """Evaluation points, K and T."""

    @property
    @abstractmethod
    def mask_powers(self) -> np.ndarray | None:
        """Matrix from coefficients of a rho to its values at the clients; None without masks."""

    @property
    def masked(self) -> bool:
        """Whether uploads are masked."""
        return self.mask_powers is not None

    @abstractmethod
    def dealers(self, round: int) -> tuple[int, ...]:
        """Clients that deal masks in a round."""

    @abstractmethod
    def quantised_columns(self) -> dict[int, np.ndarray]:
        """X-bar of the training rows by client, (K, ceil(M/K), columns), field elements."""

    @abstractmethod
    def parties_with(self, models: Mapping[int, Mapping[int, Any]]) -> dict[int, Party]:
        """Parties that share the given models instead of training any.

        Parameters
        ----------
        models : mapping
            W-bar by client and round, any field elements. The check of their range, which an
            arbitrary model cannot pass, is left out.
        """
