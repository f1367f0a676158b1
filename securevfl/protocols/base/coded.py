"""Interfaces of protocols that compute on Lagrange-coded shares."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.engine.party import SERVER, Party
from securevfl.errors import ConfigurationError
from securevfl.protocols.base.blinding import blind_share, draw_blind
from securevfl.protocols.base.protocol import Part, Protocol
from securevfl.protocols.base.schedule import Shape

if TYPE_CHECKING:
    from typing import Self

    from securevfl.field import LagrangeCode
    from securevfl.field.prss import Prss


class OnShares(Protocol):
    """A protocol whose clients compute on shares of data and models; uploads are "embedding".

    Attributes
    ----------
    public : object
        Public parameters: `code`, a `LagrangeCode`, and `batches`, the layouts of training and test
        rows.
    """

    public: Any

    @classmethod
    def settled(cls, config: Any, shape: Shape) -> Any:
        """Options whose open sizes follow from the shape of the data (`BudgetedConfig.settled`)."""
        return config.settled(sum(shape.widths), shape.rows)

    @property
    def code(self) -> LagrangeCode:
        """Lagrange code of data and models, with its evaluation points, K and T."""
        code: LagrangeCode = self.public.code
        return code

    @property
    @abstractmethod
    def prss(self) -> Prss | None:
        """Secret sharing of the masks of uploads, with each key's holders; None without masks."""

    @abstractmethod
    def quantised_columns(self) -> dict[int, np.ndarray]:
        """Training rows X-bar in F_p by client: (K, ceil(M/K), columns)."""

    @property
    def shared_parts(self) -> tuple[Part, ...]:
        """Parts of the data that are secret-shared."""
        return ("train", "test") if self.config.secure else ("train",)

    def features(self, part: Part) -> tuple[np.ndarray, ...]:
        """All clients' columns of a part: training rows for "train", else test rows."""
        return self.data.train if part == "train" else self.data.test

    @property
    def batch_rows(self) -> int:
        """Batch size |B| in rows of one segment."""
        return int(self.public.batches["train"].coded)

    @property
    def points(self) -> dict[int, int]:
        """Evaluation point alpha_n of each client's shares."""
        return {n: int(alpha) for n, alpha in enumerate(self.code.alphas)}

    @classmethod
    def check_blinded(cls, config: Any) -> None:
        """Raise ConfigurationError for options that allow no prediction hidden from the server.

        These are ``masked = false`` and ``security = "active"``.
        """
        if not getattr(config, "masked", True):
            raise ConfigurationError(
                "predict: with masked = false the server reads more than sums; only it can ask"
            )
        if config.security == "active":
            raise ConfigurationError(
                "predict: with security = active only the server can ask: another party that asks "
                "could have others' uploads look wrong, and they would be blamed"
            )

    @abstractmethod
    def predicting(self, rows: int) -> Self:
        """Copy of the protocol, with parameters for a coded prediction of so many rows."""

    def draw_blind(self, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Masks of a prediction of so many rows, and all clients' shares of them (`draw_blind`)."""
        return draw_blind(self.predicting(rows).public)

    def blind(self, party: Party, rows: int, asker: int, share: Any) -> None:
        """Set `party.blind` for a prediction: the received share of masks; True at the server.

        `asker` is the client that sent the share. ProtocolError if the share is malformed.
        """
        made: Any = party
        public = self.predicting(rows).public
        made.blind = party.index == SERVER or blind_share(party, public, asker, share)

    @abstractmethod
    def opened_scores(self, rows: int, told: Any, blind: np.ndarray) -> np.ndarray:
        """Raw scores of a prediction, (rows, outputs) float32, at the client that asked.

        ProtocolError or RangeError for numbers that the server cannot have decoded.

        Parameters
        ----------
        rows : int
            Number of rows that were asked for.
        told : tuple
            Payload of the server's message.
        blind : ndarray, (K, length, h)
            Masks from `draw_blind`.
        """


class CodedProtocol(OnShares):
    """A protocol whose clients share data and models by a `LagrangeCode` and upload sums psi.

    psi is the sum of all clients' embeddings, computed on shares. Kinds of message are "train-data"
    (data shares), "model" (model shares) and "key" (keys of masks). The announcement of a round has
    `rows`, the batch B; the message "attempt" has `sharers`, the clients S in the sum.
    """

    @property
    def masked(self) -> bool:
        """Whether uploads carry pseudo-random masks."""
        return self.prss is not None


class SharedModels(OnShares):
    """A protocol whose models stay in shares; the server sends each step in shares, too."""

    @property
    @abstractmethod
    def owners(self) -> int:
        """Number of clients with data, which are the first ones."""
