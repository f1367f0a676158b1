"""A protocol: one method, configured for one data set and seed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel

from securevfl.engine.party import SERVER, Party
from securevfl.engine.streams import (
    OwnEntropy,
    Secrets,
    SecretSeed,
    WithPlaceholders,
    keyed_stream,
)
from securevfl.errors import ConfigurationError
from securevfl.field.cohorts import Cohorts
from securevfl.privacy.claims import Claim
from securevfl.privacy.released_equations import Odometer
from securevfl.protocols.base.card import Card, Exposure
from securevfl.protocols.base.messages import (
    MessageSpec,
    exposures_of,
)
from securevfl.protocols.base.schedule import Needs, Outline, Shape
from securevfl.verified import bare_of

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


Part = Literal["train", "test"]
_NOT_CODED = (
    "{name}: a coded prediction computes on secret shares, and {name} has none; predict without "
    "coded, or train by fedvs"
)


class Protocol(ABC):
    """A method, configured for one data set and seed.

    The constructor raises ConfigurationError if the configuration cannot run on this data.

    Attributes
    ----------
    card : Card
        Description for readers. An instance whose options change the description has its own card.
    check_options : mapping
        Options of conformance runs (`securevfl.testing.conformance`) for which a default would hide
        a fault, such as noise that no seed repeats.
    fault_options : mapping
        Options, such as a timeout, with which a run continues as the card says after a permanent
        crash. With the defaults it may wait for ever.
    small_options : mapping
        Largest values that small runs of `securevfl.audit` use for options that make a run long,
        besides rounds and batch.
    refused_options : mapping
        Reasons for refusal, by name of an option that the method cannot have.
    apart : bool
        Whether each party needs local data only: a client its own columns, the server the labels,
        and `scores` the clients' embeddings (unless models are in shares). Then no party needs the
        whole data set (`securevfl.data.local_tables`).
    tells_sums : bool
        Whether a party decodes exact sums of embeddings. `released` counts the equations that they
        give.
    weighs_rows : bool
        Whether the training loss supports row weights (`VerticalDataset.train_weights`).
    twin : str or None
        Name of the unprotected baseline, which trains the same models on the same batches in
        floats; the cost of protection is measured against it. None if there is none.

    Parameters
    ----------
    config : BaseModel
        Validated options, of the type `Config`.
    data : VerticalDataset
        Data set, or the view of it that one party has.
    seed : int
        Seed of the run's public choices, such as batches. Initial weights and other choices of a
        single party come from `secrets`; masks come from neither.
    """

    name: ClassVar[str]
    card: Card
    Config: ClassVar[type[BaseModel]]
    check_options: ClassVar[Mapping[str, Any]] = {}
    fault_options: ClassVar[Mapping[str, Any]] = {}
    small_options: ClassVar[Mapping[str, int]] = {}
    refused_options: ClassVar[Mapping[str, str]] = {}
    apart: ClassVar[bool] = False
    tells_sums: ClassVar[bool] = False
    weighs_rows: ClassVar[bool] = False
    twin: ClassVar[str | None] = None

    def __init__(self, config: Any, data: VerticalDataset, *, seed: int) -> None:
        self.check_parties(config, data.parties)
        self.config = self.settled(config, Shape(data.widths, data.rows, data.test_rows))
        why = "" if self.weighs_rows else "has no weights of rows"
        if getattr(self.config, "own_loss", ""):
            why = "has an own_loss, which gives one number for all rows"
        elif getattr(self.config, "pretrain", "none") != "none":
            why = f"pretrains ({self.config.pretrain}) without weights of rows"
        if data.train_weights is not None and why:
            raise ConfigurationError(
                f"{self.name}: {why}. Leave the weights (sample_weight) out, or choose another "
                "method"
            )
        budget: float = getattr(self.config, "budget", 0)
        if data.has_leaves and budget:
            raise ConfigurationError(
                f"{self.name}: sum_budget = {budget:g} counts independent columns, and leaf "
                "columns (trees) are functions of others: it would allow too many sums. Leave the "
                "trees out, or use sum_budget = 0, with which nothing is promised of the columns"
            )
        self.data = data
        self.seed = seed
        self._secrets: Secrets = SecretSeed(seed)
        self._drawn = False

    @classmethod  # noqa: B027
    def check_parties(cls, config: Any, parties: int) -> None:
        """Raise ConfigurationError for options that contradict, or that N parties cannot satisfy.

        It is called without data: when a session's terms are written, and by `__init__`.
        """

    @classmethod
    def settled(cls, config: Any, shape: Shape) -> Any:
        """Options, completed by values that follow from the public sizes of the data."""
        return config

    @property
    def secrets(self) -> Secrets:
        """Source of the parties' secret streams; in a simulation derived from `seed`.

        It can be replaced before its first use, so `__init__` must not draw from it.
        """
        return self._secrets

    @secrets.setter
    def secrets(self, secrets: Secrets) -> None:
        if self._drawn and secrets != self._secrets:
            raise RuntimeError(
                f"{self.name}: secret streams were drawn before `secrets` was set, so they follow "
                "from the public seed; draw them in `parties`, not in `__init__`"
            )
        self._secrets = secrets

    @abstractmethod
    def parties(self) -> dict[int, Party]:
        """New party objects by number; the server is `SERVER`."""

    def party(self, index: int) -> Party:
        """New object of one party, for a restart after a crash or a process of its own.

        By default `parties` creates all parties, and the others are dropped. If only this party's
        secrets are known, the others get placeholders
        (`securevfl.engine.streams.WithPlaceholders`).
        """
        secrets = self._secrets
        if isinstance(secrets, OwnEntropy):
            self._secrets = WithPlaceholders(secrets)
        try:
            return self.parties()[index]
        finally:
            self._secrets = secrets

    @abstractmethod
    def scores(self, parties: Mapping[int, Party], features: Sequence[np.ndarray]) -> np.ndarray:
        """Raw scores, (m, outputs) float32, of rows by the parties' models, without encryption.

        `features` has an encoded (m, d_n) float32 array per client. This evaluation is the
        experimenter's: no single party could compute it.
        """

    def can_spare(self, absent: Collection[int]) -> bool:
        """Whether the trained models are available although these parties are lost for good."""
        return not absent

    def settle(self, parties: Mapping[int, Party]) -> None:  # noqa: B027
        """Apply the steps that parties missed, at the end of a run, before models are stored.

        The experimenter, who has all parties, calls it. By default nothing is missing.
        """

    def predictors(
        self, parties: Mapping[int, Party], features: Sequence[np.ndarray]
    ) -> dict[int, Party]:
        """New parties that predict rows on shares of them, with the models of `parties`.

        ConfigurationError if the protocol has no coded prediction, or cannot predict these rows.

        Parameters
        ----------
        parties : mapping of int to Party
            Parties at the end of the run; they are not changed.
        features : sequence of ndarray, (m, d_n), float32
            Encoded and scaled rows of each client, at least one.

        Returns
        -------
        dict of int to Party
            New parties. After their run the server's ``predicted`` is a pair: the joint embedding,
            (m, h) float64, and the raw scores, (m, outputs) float32.
        """
        raise ConfigurationError(_NOT_CODED.format(name=self.name))

    def predictor(self, index: int, party: Party, features: Sequence[np.ndarray]) -> Party:
        """One of the `predictors`, in a process that has only this party's state.

        Parameters
        ----------
        party : Party
            Party `index` with its trained model.
        features : sequence of ndarray, (m, d_n), float32
            Encoded and scaled rows of each client; those of other parties are placeholders.
        """
        return self.predictors({**self.parties(), index: party}, features)[index]

    @property
    @abstractmethod
    def batch_rows(self) -> int:
        """Batch size |B| in rows of one segment, which sets the delay of sharing a model."""

    @property
    @abstractmethod
    def claims(self) -> tuple[Claim, ...]:
        """Privacy claims of this configuration; strength "none" where nothing is protected."""

    @property
    def paper_claims(self) -> tuple[Claim, ...]:
        """Claims of the paper, if this implementation claims less; else empty."""
        return ()

    @property
    def exposures(self) -> tuple[Exposure, ...]:
        """Message kinds whose receiver sees values row by row."""
        return exposures_of(self.messages)

    def shown(self, payload: Any) -> tuple[Any, Any]:
        """Sample identifiers and row values in the payload of a message with `row_by_row`.

        The identifiers are None if the payload has none; the rows are then those of the round's
        announcement.
        """
        if isinstance(payload, tuple) and len(payload) == 2 and isinstance(payload[1], np.ndarray):
            return payload
        return None, payload

    def named_rows(self, named: Any) -> np.ndarray | None:
        """Row numbers that a message or announcement names (-1 for padding), or None."""
        return None

    def embed(self, client: Any, rows: np.ndarray) -> Any:
        """A client's embedding of rows, (rows, h), for the experimenter; None if it has no network.

        The bottom model computes it, without noise or masks.
        """
        network = bare_of(getattr(client, "network", None))
        return None if network is None else network.forward(rows)

    @classmethod
    def outline(cls, config: Any, shape: Shape) -> Outline | None:
        """Message schedule of a run, for the planner; None if it depends on chance or data."""
        return None

    @classmethod
    def needs(cls, config: Any, shape: Shape) -> Needs | None:
        """Sizes, bounds and memory for the planner; None if it computes them as for FedVS."""
        return None

    @classmethod
    def cohorts(cls, config: Any, parties: int) -> Cohorts | None:
        """Groups of clients that are left out of a sum if a member is late; None for no groups."""
        return None

    @classmethod
    def results(cls, config: Any, parties: int) -> tuple[int, int]:
        """Recovery threshold R = 2(K+T-1)+1, and the results that the server waits for, R + 2A."""
        R = 2 * (config.segments + config.privacy - 1) + 1
        return R, R + 2 * config.tolerate_corrupt

    @property
    def target(self) -> tuple[float, float] | None:
        """Mean and standard deviation by which training targets are scaled; None if not scaled."""
        return None

    @property
    def told_apart(self) -> str:
        """Warning if differences of an honest run's sums reveal single clients' values; else ""."""
        return ""

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Declaration of every message that the parties may send; empty for no declaration.

        Without a declaration the engine cannot refuse messages, and checks of messages do not
        apply.
        """
        return ()

    @property
    def prediction_messages(self) -> tuple[MessageSpec, ...]:
        """Declaration of every message that the parties of `predictors` may send."""
        return ()

    def released(self, rounds: int | None = None) -> Odometer | None:
        """Count of equations that decoded sums reveal about a row, after `rounds` rounds or all.

        None if the protocol decodes no sums.
        """
        return None

    def describe(self) -> dict[str, Any]:
        """Derived parameters for summaries, such as K, T, R and p."""
        return {}

    def memory(self) -> int:
        """Predicted memory, in bytes, of a simulation beyond the data set."""
        return 0

    def advice(self, available: int) -> str:
        """Advice for a run whose predicted `memory` exceeds `available` bytes."""
        return "use fewer rows or parties"

    @property
    def points(self) -> dict[int, int]:
        """Evaluation point of each party's shares; empty for protocols without shares."""
        return {}

    def roles(self) -> dict[str, tuple[int, ...]]:
        """Numbers of the parties by role, for `messages` and for fault schedules of a role."""
        return {"server": (SERVER,), "client": tuple(self.peers())}

    @property
    def last_fault(self) -> int | None:
        """Last round in which fault chains are applied; None for all rounds.

        Scripted outages are not limited by it.
        """
        return None

    def stream(self, name: str, *keys: int) -> np.random.Generator:
        """Public stream of the run, which every party can draw."""
        return keyed_stream(self.seed, SERVER, name, *keys)

    def secret_stream(self, index: int, name: str, *keys: int) -> np.random.Generator:
        """Secret stream of party `index` for choices that no other party needs to know.

        A party that draws later should keep ``functools.partial(self.secrets.stream, index)``,
        which refers to no protocol object, or call `Party.secret_stream`.
        """
        self._drawn = True
        return self._secrets.stream(index, name, *keys)

    def peers(self) -> range:
        """Numbers of the clients."""
        return range(self.data.parties)
