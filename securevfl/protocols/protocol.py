"""What a protocol is to the rest of the library, and how protocols are found.

A protocol is one module with one concrete subclass of `Protocol`: its card, its options, and the
parties it needs. Modules of `securevfl.protocols` are found by themselves; those of others by the
entry-point group ``securevfl.protocols``, whose entries name such a class.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from securevfl.engine.party import SERVER, Party
from securevfl.engine.streams import (
    OwnEntropy,
    Secrets,
    SecretSeed,
    WithPlaceholders,
    keyed_stream,
)
from securevfl.errors import ConfigurationError, UnknownNameError
from securevfl.models.aggregation import gather, make_aggregation
from securevfl.models.centralised import Centralised
from securevfl.models.client_networks import ClientNetwork, make_client_network, refuse_codes
from securevfl.models.networks import training_bytes
from securevfl.models.own import OwnCode
from securevfl.models.polynomial_network import PolynomialNetwork
from securevfl.models.split import Batches, Centre
from securevfl.privacy.claims import Claim

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

Part = Literal["train", "test"]
Absence = Literal["waits", "skips", "fills", "tolerates"]


@dataclass(frozen=True)
class Card:
    """What a reader should know before using a protocol.

    Attributes
    ----------
    title, paper : str
        Name of the method, and the publication with version.
    roles : mapping
        Role to what it does.
    sees : mapping
        Role to everything it learns, whether or not a claim covers it.
    absence : {"waits", "skips", "fills", "tolerates"}
        What happens when a party's message does not come.
    deviations : tuple of str
        Where this implementation departs from the paper or fills a gap.
    """

    title: str
    paper: str
    roles: Mapping[str, str]
    sees: Mapping[str, str]
    absence: Absence
    deviations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exposure:
    """A kind of message whose receiver sees values row by row; attacks look for them.

    Attributes
    ----------
    kind : str
    carries : {"embedding", "upload", "gradient"}
        "embedding": the sender's own embedding, be it noisy. "upload": what stands for it where it
        is protected: masked, shared or encrypted. "gradient": dL/dH of the receiver's embedding.
    """

    kind: str
    carries: Literal["embedding", "upload", "gradient"]


@dataclass(frozen=True)
class Shape:
    """What a plan needs to know of a data set.

    Attributes
    ----------
    widths : tuple of int
        Columns of each client, d_1 to d_N.
    rows, test_rows : int
        Training and test rows.
    """

    widths: tuple[int, ...]
    rows: int
    test_rows: int = 0


@dataclass(frozen=True)
class Post:
    """One message to each of `to`, without its content.

    Attributes
    ----------
    kind : str
    to : {"peers", "server", "clients"}
        "peers" are all clients but the sender, in order.
    payloads : tuple
        Skeletons of the right types and shapes (`hollow`): one for each client that may send, or
        a single one for all of them and for the server.
    senders : callable, optional
        Round to the clients that send it; all of them if not given.
    operations : tuple of int
        Multiply-adds that each sender states for it (`securevfl.engine.party.Party.operations`).
    """

    kind: str
    to: Literal["peers", "server", "clients"]
    payloads: tuple[Any, ...]
    senders: Callable[[int], Sequence[int]] | None = None
    operations: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Stage:
    """What one side sends at once when it has what the other side sent before.

    Attributes
    ----------
    posts : tuple of Post
        In the order in which they are sent.
    activity : str or None
        Work that delays them, as in `securevfl.engine.party.Party.activities`.
    count : int
        Clients from whom the server waits for the last of them; 0 in its own stages. Whoever gets
        an earlier one must not need it before the server has these.
    """

    posts: tuple[Post, ...]
    activity: str | None = None
    count: int = 0


@dataclass(frozen=True)
class Phase:
    """Equal rounds: an announcement, then stages of the clients and of the server in turn."""

    announcement: Any
    stages: tuple[Stage, ...]
    rounds: int


@dataclass(frozen=True)
class Outline:
    """All messages of a run, in advance.

    Attributes
    ----------
    setup : tuple of Post
        Sent by every client to its peers, one after the other: each when all of those of the one
        before have come.
    phases : tuple of Phase
        Training first. Rounds are numbered through, from 1.
    batch_rows : int
        |B| in training.
    """

    setup: tuple[Post, ...]
    phases: tuple[Phase, ...]
    batch_rows: int


def hollow(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Array of a shape and dtype that occupies no memory, for skeletons of messages."""
    return np.broadcast_to(np.zeros((), dtype), shape)


class TrainingConfig(BaseModel):
    """Options of every protocol that trains a split model."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    rounds: int = Field(500, ge=1, description="server steps")
    batch: int = Field(128, ge=1, description="samples of a batch, K |B|")
    lr: float = Field(0.01, gt=0, description="learning rate of the centre")
    client_lr: float | None = Field(None, gt=0, description="of the clients; that of the centre")
    momentum: float = Field(0.9, ge=0, lt=1, description="of SGD")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty of the optimisers")
    lr_decay: Literal["none", "linear"] = Field(
        "none", description="let the learning rates fall to 0 over the rounds"
    )
    optimizer: Literal["sgd", "adam"] = Field("adam", description="of the centre and the clients")
    width: int = Field(64, ge=1, description="embedding width h")
    hidden: int = Field(128, ge=1, description="width of the centre's hidden layers")
    degree: int = Field(2, ge=1, le=8, description="layers D of the clients' networks")
    centre: str = Field(
        "mlp", description="central network: mlp, batch_norm_mlp, linear, conv or vgg13"
    )
    own_centre: OwnCode = Field(
        "",
        description="module:name of your own central network in the place of centre: called with "
        "the widths of what it takes in and gives, it makes a torch module",
    )
    own_loss: OwnCode = Field(
        "",
        description="module:name of your own loss: of raw scores and labels, one number, the mean "
        "over the rows",
    )

    def centre_optimizer(self) -> dict[str, Any]:
        """Arguments of `make_optimizer` for the server."""
        return {
            "name": self.optimizer,
            "lr": self.lr,
            "momentum": self.momentum,
            "weight_decay": self.weight_decay,
            "decay_steps": self.rounds if self.lr_decay == "linear" else 0,
        }

    def client_optimizer(self) -> dict[str, Any]:
        """Arguments of `make_optimizer` for a client."""
        return self.centre_optimizer() | {"lr": self.client_lr or self.lr}


class EmbeddingConfig(TrainingConfig):
    """Options of split methods whose server gets the clients' embeddings one by one."""

    client: Literal["pn", "mlp", "cnn", "strided_cnn"] = Field(
        "pn",
        description="the clients' networks: polynomial, Linear-ReLU, or convolutional, with a "
        "stride or without",
    )
    aggregation: Literal["mean", "concat", "max"] = Field(
        "mean", description="how the centre's input is made of the embeddings"
    )
    weight_bound: float | None = Field(None, gt=0, description="bound on |W|, as FedVS enforces it")
    embedding: int = Field(
        8, ge=1, description="numbers looked up for a column of code numbers, by client = mlp"
    )
    layers: str = Field(
        "",
        pattern=r"^([1-9][0-9]*(,[1-9][0-9]*)*)?$",
        description="widths of the hidden layers of client = mlp, such as 64,64; without them it "
        "has degree layers of the embedding's width",
    )
    own_client: OwnCode = Field(
        "",
        description="module:name of your own clients' network in the place of client: called with "
        "the widths of its rows and of the embedding, it makes a torch module",
    )

    @property
    def client_kind(self) -> str:
        """`client`, or "own" where the user brings a network."""
        return "own" if self.own_client else self.client

    def hidden_layers(self) -> tuple[int, ...]:
        """`layers` as numbers."""
        return tuple(int(word) for word in self.layers.split(",") if word)


class SegmentedConfig(EmbeddingConfig):
    """Options of those whose server draws the batches of each round, the same as FedVS's."""

    segments: int = Field(1, ge=1, description="K of the FedVS whose batches are to be drawn")


class Protocol(ABC):
    """A method, configured for one data set and seed.

    Attributes
    ----------
    card : Card
        Of the class; an object whose options change it has one of its own.
    check_options : mapping
        Options that `securevfl.testing.conformance` sets where a default would hide what it
        checks, such as noise that no seed repeats.
    fault_options : mapping
        Options with which it does what its card says of absence when a party is lost for good,
        such as a timeout; the defaults may wait.
    apart : bool
        Whether each client needs its own columns only, the server the labels only, and `scores`
        the clients' embeddings only, so that nobody has to hold the whole data set
        (`securevfl.data.apart`).

    Parameters
    ----------
    config : Config
    data : VerticalDataset
    seed : int
        Seed of the run's public choices, such as batches. Initial weights and whatever else only
        one party uses follow from `secrets`; masks follow from neither.

    Raises
    ------
    ConfigurationError
        When the configuration cannot run on this data, before anything is started.
    """

    name: ClassVar[str]
    card: Card
    Config: ClassVar[type[BaseModel]]
    check_options: ClassVar[Mapping[str, Any]] = {}
    fault_options: ClassVar[Mapping[str, Any]] = {}
    apart: ClassVar[bool] = False

    def __init__(self, config: Any, data: VerticalDataset, *, seed: int) -> None:
        self.config = config
        self.data = data
        self.seed = seed
        self._secrets: Secrets = SecretSeed(seed)
        self._drawn = False

    @property
    def secrets(self) -> Secrets:
        """Source of the parties' secret streams; in a simulation they follow from `seed`.

        It can be replaced before the first use. `__init__` must not draw from it.
        """
        return self._secrets

    @secrets.setter
    def secrets(self, secrets: Secrets) -> None:
        if self._drawn and secrets != self._secrets:
            raise RuntimeError(
                f"{self.name}: secret streams were drawn before `secrets` was set, so they follow "
                "from the seed that everybody knows; draw them in `parties`, not in `__init__`"
            )
        self._secrets = secrets

    @abstractmethod
    def parties(self) -> dict[int, Party]:
        """New party objects by number; the server is `SERVER`."""

    def party(self, index: int) -> Party:
        """New object of one party, for one that comes back after a crash or runs by itself.

        The others that `parties` makes besides are dropped. Where only this party's secrets are
        there, the others get placeholders (`securevfl.engine.streams.WithPlaceholders`).
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
        """Raw scores of rows by the models that the parties hold, computed in the clear.

        It is the experimenter's view: no party of the protocol could compute it alone.
        """

    def predictors(
        self, parties: Mapping[int, Party], features: Sequence[np.ndarray]
    ) -> dict[int, Party]:
        """New parties that predict rows without showing them, by the models that `parties` hold.

        Parameters
        ----------
        parties : mapping of int to Party
            As the run left them; they are not changed.
        features : sequence of ndarray, (m, d_n), float32
            Encoded and scaled rows of each client, at least one.

        Returns
        -------
        dict of int to Party
            When they have run, the server's ``predicted`` is a pair: the joint embedding, (m, h)
            float64, and the raw scores, (m, outputs) float32.

        Raises
        ------
        ConfigurationError
            Where the protocol has no such way, or the rows cannot be predicted by it.
        """
        raise ConfigurationError(
            f"{self.name}: a coded prediction computes on secret shares, and {self.name} has none; "
            "predict without coded, or train by fedvs"
        )

    @property
    @abstractmethod
    def batch_rows(self) -> int:
        """|B|: rows of a coded batch, which the delay of sharing a model depends on."""

    @property
    @abstractmethod
    def claims(self) -> tuple[Claim, ...]:
        """What is claimed in this configuration; "none" where nothing is."""

    @property
    def paper_claims(self) -> tuple[Claim, ...]:
        """What the paper claims of its own method, where the card of a variant claims less."""
        return ()

    @property
    def exposures(self) -> tuple[Exposure, ...]:
        """Kinds of message whose receiver sees values row by row; none if not said otherwise."""
        return ()

    def shown(self, payload: Any) -> tuple[Any, Any]:
        """What an exposing message names its rows by, and its values.

        (None, values) where it names none: they are then the rows of the round's announcement.
        """
        if isinstance(payload, tuple) and len(payload) == 2 and isinstance(payload[1], np.ndarray):
            return payload
        return None, payload

    def named_rows(self, named: Any) -> np.ndarray | None:
        """Training rows that a message or an announcement names; -1 for padding, None for none."""
        return None

    def embed(self, client: Any, rows: np.ndarray) -> Any:
        """A client's embedding of rows, (rows, h), as the experimenter computes it; None if none.

        It is what the client's own trained network makes of them, without noise or masks.
        """
        network = getattr(client, "network", None)
        return None if network is None else network.forward(rows)

    @classmethod
    def outline(cls, config: Any, shape: Shape) -> Outline | None:
        """All messages of a run, for the planner; None where they depend on chance or on data."""
        return None

    def describe(self) -> dict[str, Any]:
        """Derived parameters that summaries show, such as K, T, R and p."""
        return {}

    def memory(self) -> int:
        """Predicted bytes that a simulation needs beyond the data set itself."""
        return 0

    def advice(self, available: int) -> str:
        """What to change when `memory` exceeds the bytes that are available."""
        return "use fewer rows or parties"

    @property
    def points(self) -> dict[int, int]:
        """Where each party's shares are evaluated; empty where there are no such points."""
        return {}

    def roles(self) -> dict[str, tuple[int, ...]]:
        """Numbers of the parties by role, for faults that strike a role."""
        return {"server": (SERVER,), "client": tuple(self.peers())}

    @property
    def last_fault(self) -> int | None:
        """Last round in which chains of faults strike; None where they strike to the end.

        What a script takes down stays down for as long as it says.
        """
        return None

    def stream(self, name: str, *keys: int) -> np.random.Generator:
        """Public stream of the run, which every party can draw."""
        return keyed_stream(self.seed, SERVER, name, *keys)

    def secret_stream(self, index: int, name: str, *keys: int) -> np.random.Generator:
        """Secret stream of party `index`, for what the other parties need not know.

        A party that draws later keeps ``functools.partial(self.secrets.stream, index)``, which
        refers to no protocol object, or asks `Party.secret_stream`.
        """
        self._drawn = True
        return self._secrets.stream(index, name, *keys)

    def peers(self) -> range:
        """Numbers of the clients."""
        return range(self.data.parties)


class SplitProtocol(Protocol):
    """A method with a network at each client, a centre at the server and their mean between them.

    Its clients have an attribute ``network`` (a `PolynomialNetwork`), its server has ``centre``.
    """

    def check_sizes(self) -> None:
        """Refuse columns of code numbers, which a polynomial network would take for sizes."""
        for counts in self.data.cardinalities:
            if any(counts):
                refuse_codes("pn", sum(count > 0 for count in counts))

    def network(
        self, index: int, *, bound: float | None = None, optimizer: dict[str, Any] | None = None
    ) -> PolynomialNetwork:
        """New network of client `index`; the same weights in every protocol with its secrets."""
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
        """New centre of the server; the same weights in every protocol with its secrets.

        Parameters
        ----------
        width : int, optional
            Width of what it takes in; that of an embedding if not given.
        optimizer : dict, optional
            Arguments of `make_optimizer`; the server's if not given.
        stream : numpy Generator, optional
            Draws the weights; a secret stream of the server if not given.
        """
        return Centre(
            self.data.task,
            self.data.num_classes if self.data.task == "multiclass" else 1,
            self.config.width if width is None else width,
            network=self.config.centre,
            hidden=self.config.hidden,
            optimizer=optimizer or self.config.centre_optimizer(),
            seed=int((stream or self.secret_stream(SERVER, "centre")).integers(2**31)),
            own=self.config.own_centre,
            own_loss=self.config.own_loss,
        )

    def batches(
        self, segments: int, part: Part = "train", rows: int | None = None, *, short: bool = False
    ) -> Batches:
        """Layout of the training or test rows in K segments, and the batches of each round.

        Parameters
        ----------
        segments : int
        part : {"train", "test"}
        rows : int, optional
            How many there are, where they are not those of the data set.
        short : bool
            Allow fewer rows than segments.
        """
        if rows is None:
            rows = len(self.data.train_labels if part == "train" else self.data.test_labels)
        stream = functools.partial(_public_stream, self.seed, part)
        return Batches(rows, segments, self.config.batch, stream, short=short)

    @property
    def exposures(self) -> tuple[Exposure, ...]:
        """Protected uploads to the server, and gradients to the clients."""
        return (Exposure("embedding", "upload"), Exposure("gradient", "gradient"))

    def named_rows(self, named: Any) -> np.ndarray | None:
        """Rows of a coded batch in the layout of the training rows; None for test rows."""
        if getattr(named, "part", "train") != "train":
            return None
        return self.train_layout().samples(np.asarray(getattr(named, "rows", named)))

    def train_layout(self) -> Batches:
        """Layout of the training rows, as the announced batches count them."""
        public: Any = getattr(self, "public", None)
        return self.batches(1) if public is None else public.batches["train"]

    def scores(self, parties: Mapping[int, Party], features: Sequence[np.ndarray]) -> np.ndarray:
        """Centre's scores of the mean of the clients' embeddings, all computed in the clear."""
        models: Any = parties
        total = np.zeros((len(features[0]), self.config.width), np.float32)
        for n, rows in enumerate(features):
            total += models[n].network.forward(rows)
        scores: np.ndarray = models[SERVER].centre.scores(total / np.float32(len(features)))
        return scores


class EmbeddingProtocol(SplitProtocol):
    """A split method whose server gets single embeddings and aggregates them itself.

    Attributes
    ----------
    layout : Batches
        Rows in segments and the batch of each round; the same as those of FedVS.
    aggregation : Aggregation
    """

    def __init__(self, config: Any, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        self.layout = self.batches(getattr(config, "segments", 1))
        self.aggregation = make_aggregation(config.aggregation, data.parties)
        if config.client_kind.endswith("cnn") and data.party_image_shapes is None:
            raise ConfigurationError(
                f"{self.name}: client = {config.client!r} needs parties that own whole strips of "
                f"pixel rows or columns of an image, and those of {data.name!r} do not; use 'mlp' "
                f"or 'pn'"
            )

    def most_used(self, parties: Mapping[int, Party], count: int) -> list[int]:
        """So many clients, those whose embeddings the server used most often (`answered`)."""
        server: Any = parties[SERVER]
        often = np.argsort(-server.answered, kind="stable")  # the lowest first among equals
        return sorted(often[:count].tolist())

    def client_network(
        self, index: int, *, optimizer: dict[str, Any] | None = None, drawn: str = "init"
    ) -> ClientNetwork:
        """New network of client `index`; a polynomial one has the weights that FedVS's has.

        Parameters
        ----------
        index : int
        optimizer : dict, optional
            Arguments of `make_optimizer`; the client's own if not given.
        drawn : str
            Name of the stream that draws the weights.
        """
        shapes = self.data.party_image_shapes
        return make_client_network(
            self.config.client,
            self.data.widths[index],
            self.config.width,
            self.config.degree,
            image_shape=None if shapes is None else shapes[index],
            stream=self.secret_stream(index, drawn),
            optimizer=optimizer or self.config.client_optimizer(),
            bound=self.config.weight_bound,
            cardinalities=self.data.cardinalities[index],
            embedding=self.config.embedding,
            layers=self.config.hidden_layers(),
            own=self.config.own_client,
        )

    @property
    def exposures(self) -> tuple[Exposure, ...]:
        """Embeddings to the server, single ones unless a claim hides them, and gradients."""
        hiding = ("perfect", "statistical", "computational")
        hidden = any((c.who, c.about) == ("server", "features") and c.notion in hiding
                     for c in self.claims)  # fmt: skip
        carries: Literal["upload", "embedding"] = "upload" if hidden else "embedding"
        return (Exposure("embedding", carries), Exposure("gradient", "gradient"))

    def train_layout(self) -> Batches:
        """Layout of the training rows, as the announced batches count them."""
        return self.layout

    def joint_centre(self, stream: np.random.Generator | None = None) -> Centre:
        """New centre, as wide as the aggregated embedding; `stream` as for `centre`."""
        return self.centre(self.aggregation.width(self.config.width), stream=stream)

    def centralised(self) -> Centralised:
        """The same networks with the same weights, to be trained without any partition."""
        networks = [self.client_network(n) for n in self.peers()]
        return Centralised(networks, self.joint_centre(), joined=self.config.aggregation)

    def evaluated(self, parties: Mapping[int, Party]) -> Collection[int]:
        """Clients whose embeddings the experimenter's evaluation uses."""
        return self.peers()

    def scores(self, parties: Mapping[int, Party], features: Sequence[np.ndarray]) -> np.ndarray:
        """Centre's scores of the aggregated embeddings, all computed in the clear."""
        server: Any = parties[SERVER]
        used = self.evaluated(parties)
        embeddings = {n: self.embed(parties[n], features[n]) for n in used}
        joint = self.aggregation.combine(*gather(embeddings, self.data.parties))
        scores: np.ndarray = server.centre.scores(joint)
        return scores

    @property
    def batch_rows(self) -> int:
        """|B|."""
        return self.layout.coded

    def memory(self) -> int:
        """Bytes of all embeddings of the test rows, one by one and as one array, and a step's."""
        batch, h = self.layout.coded * self.layout.segments, int(self.config.width)
        embeddings = self.data.parties * max(self.data.test_rows, batch) * h
        centre = training_bytes(self.config.centre, self.aggregation.width(h), batch)
        return 2 * 4 * embeddings + centre

    def advice(self, available: int) -> str:
        """Nothing but the sizes of the embeddings matters."""
        return "use a smaller width, or fewer rows or parties"


def _public_stream(seed: int, part: Part, name: str, *keys: int) -> np.random.Generator:
    """Stream of the layout of the training or test rows; every party may hold it."""
    return keyed_stream(seed, SERVER, f"{part}/{name}", *keys)


@functools.cache
def find_protocols() -> dict[str, type[Protocol]]:
    """All protocols by name: the library's own and those of installed entry points.

    Raises
    ------
    ConfigurationError
        When two protocols have the same name, or an entry point names no protocol.
    """
    from importlib.metadata import entry_points

    package = importlib.import_module("securevfl.protocols")
    found: dict[str, type[Protocol]] = {}
    for module in pkgutil.iter_modules(package.__path__):
        content = importlib.import_module(f"securevfl.protocols.{module.name}")
        for thing in vars(content).values():
            if _is_protocol(thing) and thing.__module__ == content.__name__:
                _add(found, thing)
    for entry in entry_points(group="securevfl.protocols"):
        thing = entry.load()
        if not _is_protocol(thing):
            raise ConfigurationError(f"entry point {entry.name!r}: {entry.value} is no Protocol")
        _add(found, thing)
    return dict(sorted(found.items()))


def _is_protocol(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, Protocol) and not inspect.isabstract(thing)


def _add(found: dict[str, type[Protocol]], protocol: type[Protocol]) -> None:
    if found.setdefault(protocol.name, protocol) is not protocol:
        raise ConfigurationError(
            f"two protocols are called {protocol.name!r}: {found[protocol.name]} and {protocol}"
        )


def get_protocol(name: str) -> type[Protocol]:
    """Protocol by name.

    Raises
    ------
    UnknownNameError
        With the nearest names.
    """
    found = find_protocols()
    if name not in found:
        raise UnknownNameError("protocol", name, found)
    return found[name]


def make_config(protocol: type[Protocol], values: Mapping[str, Any]) -> BaseModel:
    """Validated options of a protocol.

    Raises
    ------
    UnknownNameError
        For an option that it does not have.
    ConfigurationError
        For a value out of its range, naming option, value and range.
    """
    known = protocol.Config.model_fields
    for name in values:
        if name not in known:
            raise UnknownNameError(f"option of {protocol.name}", name, known)
    try:
        return protocol.Config(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "options"
        message = first["msg"].removeprefix("Value error, ")
        raise ConfigurationError(
            f"{protocol.name}: {name} = {first['input']!r}: {message}"
        ) from None
