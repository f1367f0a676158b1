"""Base class of methods with a bottom model at each client and a server model."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from securevfl.engine.party import SERVER, Party
from securevfl.engine.streams import keyed_stream
from securevfl.errors import ConfigurationError
from securevfl.models.client_networks import refuse_codes
from securevfl.models.polynomial_network import PolynomialNetwork
from securevfl.models.split import Batches, Centre, target_scale
from securevfl.privacy.released_equations import Odometer
from securevfl.protocols.base.card import Exposure
from securevfl.protocols.base.options import EQUAL, read
from securevfl.protocols.base.protocol import Part, Protocol
from securevfl.protocols.base.sum_budget import odometer, unknowns_of

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


class SplitProtocol(Protocol):
    """A method whose server model reads the mean of the clients' embeddings.

    Clients have the attribute ``network``, the bottom model (a `PolynomialNetwork`); the server has
    ``centre``, the server model.
    """

    no_class_weights: ClassVar[str] = ""  # why the method takes none, in words
    scales_targets: ClassVar[bool] = True  # whether one party has all labels

    def __init__(self, config: Any, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        if data.task == "regression":
            self._check_class_weights(config, "the labels are real numbers, which have no classes")
        weights = read(config.class_weights)
        if not isinstance(weights, str) and len(weights) != data.num_classes:
            raise ConfigurationError(
                f"{self.name}: class_weights = {config.class_weights!r} has {len(weights)} "
                f"numbers, and there are {data.num_classes} classes ({', '.join(data.classes)}); "
                "give one for each, in this order"
            )

    @classmethod
    def check_parties(cls, config: Any, parties: int) -> None:
        """Raise ConfigurationError for class weights that the loss cannot use."""
        super().check_parties(config, parties)
        own = "own_loss gives one number for all rows; weigh them in it"
        cls._check_class_weights(config, cls.no_class_weights or (own if config.own_loss else ""))

    @classmethod
    def _check_class_weights(cls, config: Any, why: str) -> None:
        """Raise ConfigurationError for class weights if `why`, a reason against them, is not ""."""
        if why and config.class_weights != EQUAL:
            raise ConfigurationError(
                f"{cls.name}: class_weights = {config.class_weights!r} has no use: {why}. "
                "Leave class_weights out"
            )

    @property
    def target(self) -> tuple[float, float] | None:
        """Mean and deviation that scale a regression's training targets; None for no scaling.

        None also for a user's own loss, which gets unscaled labels, and if no party has all labels.
        """
        if self.config.own_loss or not self.scales_targets:
            return None
        return target_scale(self.data.task, self.data.train_labels, self.data.train_weights)

    def check_sizes(self) -> None:
        """Raise ConfigurationError for category codes, which polynomials take for numbers."""
        for counts in self.data.cardinalities:
            if any(counts):
                refuse_codes("pn", sum(count > 0 for count in counts))

    def network(
        self, index: int, *, bound: float | None = None, optimizer: dict[str, Any] | None = None
    ) -> PolynomialNetwork:
        """New polynomial bottom model of client `index`; its secret seed determines the weights."""
        self.check_sizes()
        return PolynomialNetwork(
            self.data.widths[index],
            self.config.width,
            self.config.degree,
            stream=self.secret_stream(index, "init"),
            optimizer=optimizer or self.config.client_optimizer(),
            bound=bound,
        )

    def centre(
        self,
        width: int | None = None,
        *,
        optimizer: dict[str, Any] | None = None,
        stream: np.random.Generator | None = None,
    ) -> Centre:
        """New server model; the secret seed of the server determines the weights.

        Parameters
        ----------
        width : int, optional
            Width of its input; by default that of an embedding.
        optimizer : dict, optional
            Arguments of `make_optimizer`; by default the server's.
        stream : numpy Generator, optional
            Generator of the weights; by default a secret stream of the server.
        """
        return Centre(
            self.data.task,
            self.data.num_classes if self.data.task == "multiclass" else 1,
            self.config.width if width is None else width,
            network=self.config.centre,
            hidden=self.config.hidden,
            optimizer=optimizer or self.config.centre_optimizer(),
            seed=stream or self.secret_stream(SERVER, "centre"),
            own=self.config.own_centre,
            own_loss=self.config.own_loss,
            class_weights=read(self.config.class_weights),
            device=self.config.device,
            target=self.target,
            rows_weigh=self.data.train_weights,
        )

    def batches(
        self, segments: int, part: Part = "train", rows: int | None = None, *, short: bool = False
    ) -> Batches:
        """Layout of training or test rows in K segments, and each round's batch.

        Parameters
        ----------
        segments : int
            Number K of segments.
        part : {"train", "test"}
            Rows to lay out.
        rows : int, optional
            Number of rows; by default that of the data set.
        short : bool
            Whether fewer rows than segments are allowed.
        """
        if rows is None:
            rows = len(self.data.train_labels if part == "train" else self.data.test_labels)
        stream = functools.partial(batch_stream, self.seed, SERVER, part)
        return Batches(rows, segments, self.config.batch, stream, short=short)

    @property
    def exposures(self) -> tuple[Exposure, ...]:
        """Message kinds with row values; if undeclared, protected uploads and gradients."""
        undeclared = (Exposure("embedding", "upload"), Exposure("gradient", "gradient"))
        return super().exposures if self.messages else undeclared

    def released(self, rounds: int | None = None) -> Odometer | None:
        """Count of equations that decoded sums reveal about a row, after `rounds` rounds or all.

        None if no party decodes sums. A row is in at most one batch of an epoch.
        """
        if not self.tells_sums:
            return None
        unknowns, rank, at_most = self._unknowns
        per_epoch = self.train_layout().per_epoch
        return odometer(self.config, unknowns, rank, per_epoch, rounds, at_most=at_most)

    @functools.cached_property
    def _unknowns(self) -> tuple[int, int | None, bool]:
        """Number of independent columns, rank of their powers, and whether a party's are unseen."""
        data, remote = self.data, self.data.unseen
        unknowns, rank = unknowns_of(data.train, self.config, remote)
        if data.has_leaves:  # which are functions of other columns, as powers are
            unknowns, _ = unknowns_of(data.without_leaves, self.config, remote)
        return unknowns, rank, bool(remote)

    def named_rows(self, named: Any) -> np.ndarray | None:
        """Sample indices of a coded batch of training rows; None for test rows."""
        if getattr(named, "part", "train") != "train":
            return None
        return self.train_layout().samples(np.asarray(getattr(named, "rows", named)))

    def train_layout(self) -> Batches:
        """Layout of the training rows to which the row numbers of announced batches refer."""
        public: Any = getattr(self, "public", None)
        return self.batches(1) if public is None else public.batches["train"]

    def scores(self, parties: Mapping[int, Party], features: Sequence[np.ndarray]) -> np.ndarray:
        """Server model's scores of the mean embedding, without encryption."""
        models: Any = parties
        total = np.zeros((len(features[0]), self.config.width), np.float32)
        for n, rows in enumerate(features):
            total += models[n].network.forward(rows)
        scores: np.ndarray = models[SERVER].centre.scores(total / np.float32(len(features)))
        return scores


def batch_stream(seed: int, party: int, part: Part, name: str, *keys: int) -> np.random.Generator:
    """Public stream for layout and batches of training or test rows, drawn by `party` or all."""
    return keyed_stream(seed, party, f"{part}/{name}", *keys)
