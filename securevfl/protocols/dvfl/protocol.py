"""Dvfl as the library sees it: card, options, parties, messages and claims."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from securevfl.engine.party import ANNOUNCE, SERVER, Party
from securevfl.engine.streams import Secrets, keyed_stream
from securevfl.models.pretraining.autoencoder import Encoder, make_autoencoder, make_contrastive
from securevfl.models.split import Batches, Centre
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.messages import (
    Formula,
    MessageKey,
    MessageSpec,
    RunSecrets,
    announcement,
    fixed,
    with_formulas,
)
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.dvfl.algorithm import Guest, Host, Owner, own_rows, side_by_side
from securevfl.protocols.dvfl.parameters import DvflConfig, _check
from securevfl.protocols.dvfl.schedule import Calendar

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


class Dvfl(Protocol):
    """DVFL on one data set: the clients are guests, and hosts come after them by number."""

    name = "dvfl"
    Config = DvflConfig
    small_options: ClassVar[Mapping[str, int]] = {"guest_epochs": 3, "host_epochs": 3}
    check_options: ClassVar[Mapping[str, Any]] = {
        "guest_epochs": 4,
        "host_epochs": 4,
        "hosts": 2,
        "guest_lr": 0.02,
        "host_lr": 0.01,
        "lr": 0.005,
        "interval": 1.0,
    }
    card = Card(
        title="DVFL",
        paper='"Decoupled Vertical Federated Learning for Practical Training on Vertically '
        'Partitioned Data", anonymous, under review (MLSys)',
        roles={
            "guest": "holds some columns, of aligned rows and of others; trains an encoder on an "
            "objective of its own and writes activations to every host's register",
            "host": "one of several with the same task: joins the registers and trains an "
            "auto-encoder on that; redundant, so that one may fail",
            "owner": "holds the labels of the aligned rows; learns from the hosts' encodings",
        },
        sees={
            "guest": "that the owner asks for codes; nothing that depends on labels or on others",
            "host": "every guest's activations of each batch that is written, and codes of all "
            "aligned rows, exactly",
            "owner": "each host's encodings of all aligned rows, exactly",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="fills",
        deviations=(
            "chains of faults strike guests, hosts and links up to the last training round, as in "
            "the paper; what a fault script takes down stays down as long as the script says. "
            "Then hosts fill a guest's missing codes with the mean of what it wrote, and the owner "
            "leaves out hosts that do not answer (their part is zero)",
            "guests, hosts and owner go by the clock, a round each `interval`; a host reads in a "
            "round what was written up to the one before. The paper simulates in lockstep and "
            "trains hosts after the guests",
            "a host that is down loses what is written meanwhile and, when it is back, the last "
            "item of its buffer",
            "a register that was never written to reads zero",
            "hidden layers, |K|, d_k, rates and weight decay are not legible in the copy that we "
            "have; our hidden layers are half-way between input and output. The owner's are ReLU",
            "the owner has Adam whose rate falls to 0 (`optimizer`, `lr_decay`) where the paper "
            "has SGD, and stops early only where it is asked to (`stop_after`)",
            "guests decode to a sigmoid where their own rows lie in [0, 1], and linearly elsewhere",
            "outside the intersection guests' batches pair rows of different samples in a host's "
            "input; guests with fewer rows alone go through these more often in an epoch",
            "views of simclr are ours: strips of images are moved by a pixel or two, values of "
            "tables exchanged between rows; both get noise",
        ),
    )

    def __init__(self, config: DvflConfig, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        _check(config, data)
        alone = max((len(rows) for rows in data.alone), default=0)
        order = functools.partial(_guests_stream, self.seed)
        self.batches = Batches(data.rows + alone, 1, config.batch, order)
        self.calendar = Calendar.of(config, self.batches.per_epoch)
        self.hosts = tuple(range(data.parties, data.parties + config.hosts))
        self.features = [_own(data, n) for n in self.peers()]

    def parties(self) -> dict[int, Party]:
        """The owner, N guests, and the hosts after them."""
        return {n: self.party(n) for n in (SERVER, *self.peers(), *self.hosts)}

    def party(self, index: int) -> Party:
        """New object of one party."""
        if index == SERVER:
            return self._owner()
        if index in self.hosts:
            return self._host(index)
        return Guest(
            index,
            self.peers(),
            self.calendar,
            self._guest_network(index),
            hosts=self.hosts,
            features=self.features[index],
            aligned=self.data.rows,
            batches=self.batches,
        )

    def _host_network(self, index: int) -> Encoder:
        config = self.config
        joint = self.data.parties * config.width
        return make_autoencoder(
            joint,
            config.host_hidden or (joint + config.host_width) // 2,
            config.host_width,
            stream=self.secret_stream(index, "init"),
            optimizer=_adam(config, config.host_lr),
            output="leaky_relu",
            decoded="relu",  # guests' codes are at least 0
        )

    def _host(self, index: int) -> Host:
        config = self.config
        return Host(
            index,
            self.peers(),
            self.calendar,
            self._host_network(index),
            width=config.width,
            bound=config.buffer,
            replay=config.replay,
            aligned=self.data.rows,
            patience=config.patience,
        )

    def _guest_network(self, index: int) -> Encoder:
        config, own = self.config, self.features[index]
        features = own.shape[1]
        sizes = (features, config.guest_hidden or (features + config.width + 1) // 2, config.width)
        stream = self.secret_stream(index, "init")
        optimizer = _adam(config, config.guest_lr)
        if config.objective == "simclr":
            shapes = self.data.party_image_shapes
            return make_contrastive(
                *sizes,
                stream=stream,
                optimizer=optimizer,
                temperature=config.temperature,
                image_shape=None if shapes is None else shapes[index],
            )
        bounded = own.min() >= 0 and own.max() <= 1
        decoded: Literal["sigmoid", "none"] = "sigmoid" if bounded else "none"
        return make_autoencoder(*sizes, stream=stream, optimizer=optimizer, decoded=decoded)

    def _owner(self) -> Owner:
        config, data = self.config, self.data
        held_out = 0 if config.stop_after is None else int(config.held_out * data.rows)
        order = functools.partial(_owner_stream, self.secrets)
        batches = Batches(data.rows - held_out, 1, config.batch, order)
        optimizer = {
            "name": config.optimizer,
            "lr": config.lr,
            "momentum": config.momentum,
            "decay_steps": config.rounds * batches.per_epoch * (config.lr_decay == "linear"),
        }
        centre = Centre(
            data.task,
            data.num_classes if data.task == "multiclass" else 1,
            config.hosts * config.host_width,
            network=config.centre,
            hidden=config.hidden,
            optimizer=optimizer,
            seed=int(self.secret_stream(SERVER, "centre").integers(2**31)),
        )
        return Owner(
            self.peers(),
            self.calendar,
            centre,
            hosts=self.hosts,
            width=config.host_width,
            labels=data.train_labels,
            batches=batches,
            order=self.secret_stream(SERVER, "held out").permutation(data.rows),
            epochs=config.rounds,
            stop_after=config.stop_after,
            patience=config.patience,
        )

    def embed(self, client: Any, rows: np.ndarray) -> np.ndarray:
        """A guest's code of rows."""
        code: np.ndarray = client.network.encode(rows)
        return code

    def scores(self, parties: Mapping[int, Party], features: Sequence[np.ndarray]) -> np.ndarray:
        """The owner's scores by all guests' codes and the encodings of the hosts that it knows."""
        models: Any = parties
        codes = [self.embed(models[n], rows) for n, rows in enumerate(features)]
        joint = np.concatenate(codes, axis=1)
        owner = models[SERVER]
        found = {k: models[k].network.encode(joint) for k in owner.answered or self.hosts}
        scores: np.ndarray = owner.centre.scores(
            side_by_side(found, self.hosts, self.config.host_width)
        )
        return scores

    @property
    def batch_rows(self) -> int:
        """|B|."""
        return self.batches.coded

    @property
    def last_fault(self) -> int:
        """The last round in which guests or hosts train."""
        return self.calendar.rounds

    def roles(self) -> dict[str, tuple[int, ...]]:
        """Guests, hosts and owner; guests are the clients of other methods."""
        guests = tuple(self.peers())
        return {"guest": guests, "client": guests, "host": self.hosts, "owner": (SERVER,)}

    @property
    def claims(self) -> tuple[Claim, ...]:
        """That labels stay where they are; nothing about features, which go as codes."""
        why = "it receives nothing that depends on them; what its own columns tell of them remains"
        return (
            Claim("guest", "labels", "perfect", why),
            Claim("host", "labels", "perfect", "it receives codes only, made without labels"),
            Claim("host", "features", "none", "activations and codes are sent in the clear"),
            Claim("owner", "features", "none", "encodings are sent in the clear"),
            Claim("host", "model", "none", "activations and codes are sent in the clear"),
        )

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Algorithm 1: what guests write, and at the end the codes and what hosts make of them."""
        config, rows = self.config, self.data.rows

        def written(key: MessageKey) -> int:
            return int(self.calendar.writes(key.round))

        def at_the_end(key: MessageKey) -> int:
            return int(key.round > self.calendar.rounds)

        declared = (
            MessageSpec(
                *("activation", "guest", "host", "embedding"),
                shape=fixed(self.batch_rows, config.width),
                dtype="float32",
                count=written,
                source="guest training round",
            ),
            announcement("guest", sender="owner", source="section 5: the owner asks"),
            announcement("host", sender="owner", source="section 5: the owner asks"),
            MessageSpec(
                *("code", "guest", "host", "embedding"),
                shape=fixed(rows, config.width),
                dtype="float32",
                count=at_the_end,
                row_by_row=True,
                source="section 5: the intersection",
            ),
            MessageSpec(
                *("encoding", "host", "owner", "embedding"),
                shape=fixed(rows, config.host_width),
                dtype="float32",
                count=at_the_end,
                source="section 5: the intersection",
            ),
        )
        formulas: dict[str, Formula] = {
            ANNOUNCE: lambda secrets, key: (
                None if key.round <= self.calendar.rounds + 1 else "stop"
            ),
            "activation": self.activation_at,
            "code": self.code_at,
            "encoding": self.encoding_at,
        }
        return with_formulas(declared, formulas)

    def asked_at(self, secrets: RunSecrets, key: MessageKey) -> str | None:
        """The owner asks for codes once, with nothing but the round, and then ends the run."""
        return None if key.round <= self.calendar.rounds + 1 else "stop"

    def activation_at(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """A guest's code of the round's batch, by its encoder of then."""
        encoder = self._guest_network(key.sender)
        encoder.load_state_dict(secrets.state(key)["network"])
        places = self.batches.samples(self.batches.draw(key.round))
        features = self.features[key.sender]
        rows = own_rows(places, self.data.rows, len(features))
        return encoder.encode(features[rows])

    def code_at(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """A guest's code of all aligned rows."""
        encoder = self._guest_network(key.sender)
        encoder.load_state_dict(secrets.state(key)["network"])
        return encoder.encode(self.features[key.sender][: self.data.rows])

    def encoding_at(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """A host's encoding of the codes of all guests, side by side."""
        encoder = self._host_network(key.sender)
        encoder.load_state_dict(secrets.state(key)["network"])
        sent = secrets.sent("code", key.round)
        codes = [sent[guest, key.sender] for guest in self.peers()]
        return encoder.encode(np.concatenate(codes, axis=1))

    def shown(self, payload: Any) -> tuple[Any, Any]:
        """Codes are those of all aligned rows in order."""
        return np.arange(len(payload)), payload

    def named_rows(self, named: Any) -> np.ndarray | None:
        """The rows themselves."""
        return np.asarray(named)

    def describe(self) -> dict[str, Any]:
        """Sizes, how long what lasts, and what a round is."""
        calendar = self.calendar
        return {
            "N": self.data.parties,
            "hosts": len(self.hosts),
            "batch_rows": self.batch_rows,
            "guest_rounds": calendar.guest_rounds,
            "training_rounds": calendar.rounds,
            "writes": self.writes,
            "round": "an iteration of guests and hosts; after that an epoch of the owner, which is "
            "a step of the history",
        }

    @property
    def writes(self) -> int:
        """Rounds in which guests write."""
        return int(self.config.guest_epochs // self.config.comm_period * self.calendar.per_epoch)

    def memory(self) -> int:
        """Bytes of buffers, of the final codes and encodings, and of guests' copies of rows."""
        config, data = self.config, self.data
        items = min(self.writes, config.buffer or self.writes)
        joint = 4 * data.parties * config.width
        buffers = config.hosts * items * self.batch_rows * joint
        row = joint + 4 * config.hosts * config.host_width
        rows = sum(own.nbytes for own in self.features if data.alone)
        return int(buffers + 2 * (data.rows + data.test_rows) * row + rows)

    def advice(self, available: int) -> str:
        """The replay buffers are what grows."""
        return "bound the hosts' buffer, raise comm_period, or use fewer hosts or rows"


def _own(data: VerticalDataset, party: int) -> np.ndarray:
    """All rows of a party, the aligned ones first."""
    if not data.alone:
        return data.train[party]
    return np.concatenate([data.train[party], data.alone[party]])


def _adam(config: DvflConfig, lr: float) -> dict[str, Any]:
    return {"name": "adam", "lr": lr, "weight_decay": config.weight_decay}


def _guests_stream(seed: int, name: str, *keys: int) -> np.random.Generator:
    """The guests' batches, which they draw alike: public."""
    return keyed_stream(seed, SERVER, f"dvfl/guests/{name}", *keys)


def _owner_stream(secrets: Secrets, name: str, *keys: int) -> np.random.Generator:
    """The owner's batches, which nobody else needs."""
    return secrets.stream(SERVER, f"dvfl/owner/{name}", *keys)
