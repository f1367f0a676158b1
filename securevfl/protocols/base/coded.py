"""Interface of protocols that compute on Lagrange-coded shares, for their verifiers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from securevfl.engine.party import Party
from securevfl.field import LagrangeCode
from securevfl.field.prss import Prss
from securevfl.protocols.base.protocol import Protocol


class CodedProtocol(Protocol):
    """A protocol whose clients share data and models by a `LagrangeCode` and upload psi.

    The verifiers of its claims need more than the declared messages: the code, runs on chosen
    models, and the messages of FedVS. Data shares are of kind "train-data", model
    shares "model", keys of masks "key", uploads "embedding". A round is announced with an object
    that has `rows` (B), and "attempt" names `sharers` (S). A client draws by its method `uniform`:
    Z in setup, then in each round V. It draws keys by `secret_bytes`, once, sends those that it
    drew to itself as "own-keys", and computes its values of the masks by `rho`.
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
    def told(self, round: int, batch: Any, attempt: Any) -> bytes:
        """All that clients are told of a sum, by which they mask it."""

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
