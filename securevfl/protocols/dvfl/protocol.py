"""The protocol class of DVFL: card, options, parties, messages and claims."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from securevfl.engine.party import SERVER, Party
from securevfl.engine.streams import Secrets, keyed_stream
from securevfl.models.pretraining.autoencoder import (
    AutoEncoder,
    Encoder,
    make_autoencoder,
    make_contrastive,
)
from securevfl.models.pretraining.trainer import own_rows
from securevfl.models.split import Batches, Centre, target_scale
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.messages import MessageKey, MessageSpec, announcement, fixed
from securevfl.protocols.base.open_embeddings import FIELD
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.dvfl.algorithm import Guest, Host, Owner
from securevfl.protocols.dvfl.functions import OwnRows, side_by_side
from securevfl.protocols.dvfl.ideal import Ideal
from securevfl.protocols.dvfl.parameters import DvflConfig, check_data, check_schedule
from securevfl.protocols.dvfl.schedule import RoundSchedule
from securevfl.verified import UNDISTURBED, Chance, Provable, Schedule, World, bare_of
from securevfl.verified.schedules import down

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


class Dvfl(Provable, Protocol):
    """DVFL on one data set: the clients are guests, and hosts have the numbers after them."""

    name = "dvfl"
    Config = DvflConfig
    field = FIELD
    # Hosts learn well enough that none says it did not: numbers in such words would be public.
    traced_options: ClassVar[dict[str, Any]] = {
        "rounds": 2, "guest_epochs": 2, "host_epochs": 30, "hosts": 2, "batch": 8, "width": 2,
        "hidden": 2, "guest_activation": "leaky_relu", "host_width": 16, "host_hidden": 16,
        "host_lr": 0.03,
    }  # fmt: skip
    role_options = ("hosts",)
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
        paper='Amalanshu, Sirvi, Inouye, "Decoupled Vertical Federated Learning for Practical '
        'Training on Vertically Partitioned Data", arXiv 2403.03871',
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
            "fault chains apply to guests, hosts and links up to the last training round, as in "
            "the paper; scripted outages last as long as the script says. Then hosts replace a "
            "guest's missing codes by the mean of its earlier ones, and the owner leaves out hosts "
            "that do not answer (their part is zero)",
            "guests, hosts and owner go by the clock, a round each `interval`; a host reads in a "
            "round the activations of the one before and of earlier ones. The paper simulates in "
            "lockstep and trains hosts after the guests",
            "a host that is down loses activations of that time and, when it is back, the last "
            "item of its buffer",
            "a register that was never written to reads zero",
            "hidden layers, |K|, d_k, rates and weight decay are not legible in the copy that we "
            "have; our hidden layers are half-way between input and output. The owner's are ReLU "
            "by default, where the paper has leaky ones (`centre=leaky_mlp`)",
            "a host that made no step sends no encodings, and one that after 500 steps "
            "reconstructs its inputs worse than their mean does is an error; the paper has no such "
            "check",
            "the owner has Adam whose rate falls to 0 (`optimizer`, `lr_decay`) where the paper "
            "has SGD, and stops early only with `stop_after`",
            "guests decode to a sigmoid where their own rows lie in [0, 1], and linearly elsewhere",
            "outside the intersection guests' batches pair rows of different samples in a host's "
            "input; guests with fewer unaligned rows use these more often in an epoch",
            "views of simclr are ours: strips of images are moved by a pixel or two, values of "
            "tables exchanged between rows; both get noise",
        ),
    )

    def __init__(self, config: DvflConfig, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        check_data(config, data)
        unaligned = max((len(rows) for rows in data.alone), default=0)
        order = functools.partial(_guests_stream, self.seed)
        self.batches = Batches(data.rows + unaligned, 1, config.batch, order)
        self.schedule = RoundSchedule.of(config, self.batches.per_epoch)
        self.hosts = tuple(range(data.parties, data.parties + config.hosts))
        alone = data.alone or [None] * data.parties
        self.features = [own_rows(*both) for both in zip(data.train, alone, strict=True)]

    @classmethod
    def check_parties(cls, config: DvflConfig, parties: int) -> None:
        """Raise ConfigurationError for schedules in which hosts learn nothing new."""
        super().check_parties(config, parties)
        check_schedule(config)

    def parties(self) -> dict[int, Party]:
        """The owner, N guests, and the hosts after them."""
        return {n: self.party(n) for n in (SERVER, *self.peers(), *self.hosts)}

    def party(self, index: int) -> Party:
        """New object of one party."""
        if index == SERVER:
            return self.owner()
        return self.host(index) if index in self.hosts else self.guest(index)

    def guest(self, index: int) -> Guest:
        """Create guest `index`, counted from 0."""
        return Guest(
            *(index, self.peers(), self.schedule, self.guest_network(index)),
            Chance(self.secrets, index),
            hosts=self.hosts,
            features=self.features[index],
            width=self.config.width,
            aligned=self.data.rows,
            batches=self.batches,
        )

    def host(self, index: int) -> Host:
        """Host `index`; the first one has the number N."""
        return Host(
            *(index, self.peers(), self.schedule, self.host_network(index)),
            Chance(self.secrets, index),
            width=self.config.width,
            own_width=self.config.host_width,
            bound=self.config.buffer,
            replay=self.config.replay,
            aligned=self.data.rows,
            patience=self.config.patience,
        )

    def owner(self) -> Owner:
        """The owner, with rows for training and rows for validation."""
        config, data = self.config, self.data
        validation = 0 if config.stop_after is None else int(config.held_out * data.rows)
        order = functools.partial(_owner_stream, self.secrets)
        batches = Batches(data.rows - validation, 1, config.batch, order)
        return Owner(
            *(self.peers(), self.schedule, self.classifier(batches.per_epoch)),
            hosts=self.hosts,
            width=config.host_width,
            labels=data.train_labels,
            rows=OwnRows(self.secret_stream(SERVER, "held out").permutation(data.rows), batches),
            validates=validation,
            epochs=config.rounds,
            stop_after=config.stop_after,
            patience=config.patience,
        )

    def classifier(self, steps_per_epoch: int) -> Centre:
        """New classifier of the owner, over the encodings of all hosts."""
        config, data = self.config, self.data
        optimizer = {
            "name": config.optimizer,
            "lr": config.lr,
            "momentum": config.momentum,
            "decay_steps": config.rounds * steps_per_epoch * (config.lr_decay == "linear"),
        }
        return Centre(
            data.task,
            data.num_classes if data.task == "multiclass" else 1,
            config.hosts * config.host_width,
            network=config.centre,
            hidden=config.hidden,
            optimizer=optimizer,
            seed=int(self.secret_stream(SERVER, "centre").integers(2**31)),
            target=self.target,
        )

    @property
    def target(self) -> tuple[float, float] | None:
        """Mean and deviation that scale a regression's training targets; None for no scaling."""
        return target_scale(self.data.task, self.data.train_labels)

    def guest_network(self, index: int) -> Encoder:
        """New encoder of a guest, with its objective."""
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
                output=config.guest_activation,
                temperature=config.temperature,
                image_shape=None if shapes is None else shapes[index],
            )
        bounded = own.min() >= 0 and own.max() <= 1
        decoded: Literal["sigmoid", "none"] = "sigmoid" if bounded else "none"
        return make_autoencoder(
            *sizes,
            stream=stream,
            optimizer=optimizer,
            output=config.guest_activation,
            decoded=decoded,
        )

    def host_network(self, index: int) -> AutoEncoder:
        """New auto-encoder of a host, over the codes of all guests."""
        config = self.config
        joint = self.data.parties * config.width
        return make_autoencoder(
            joint,
            config.host_hidden or (joint + config.host_width) // 2,
            config.host_width,
            stream=self.secret_stream(index, "init"),
            optimizer=_adam(config, config.host_lr),
            output=config.host_activation,
            decoded="relu" if config.guest_activation == "relu" else "none",
        )

    def embed(self, client: Any, rows: np.ndarray) -> np.ndarray:
        """Code that a guest's encoder makes of rows."""
        code: np.ndarray = bare_of(client.network).encode(rows)
        return code

    def scores(self, parties: Mapping[int, Party], features: Sequence[np.ndarray]) -> np.ndarray:
        """The owner's scores from all guests' codes and the encodings of hosts that answered."""
        models: Any = parties
        codes = [self.embed(models[g], rows) for g, rows in enumerate(features)]
        joint = np.concatenate(codes, axis=1)
        owner = models[SERVER]
        encodings = {k: self.embed(models[k], joint) for k in owner.answered or self.hosts}
        all_hosts = side_by_side(encodings, self.hosts, self.config.host_width)
        scores: np.ndarray = bare_of(owner.centre).scores(all_hosts)
        return scores

    @property
    def batch_rows(self) -> int:
        """Batch size |B| in rows."""
        return self.batches.coded

    @property
    def last_fault(self) -> int:
        """Last round in which fault chains are applied: the last in which parties train."""
        return self.schedule.rounds

    def roles(self) -> dict[str, tuple[int, ...]]:
        """Numbers of the parties by role; guests count as clients."""
        guests = tuple(self.peers())
        return {"guest": guests, "client": guests, "host": self.hosts, "owner": (SERVER,)}

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Claims: labels stay with the owner; features are unprotected, as codes depend on them."""
        ends = "; given the losses of the history, and that training ends, for both tell of labels"
        why = "it receives nothing that depends on them; what its own columns tell of them remains"
        codes = "it receives codes only, made without labels"
        return (
            Claim("guest", "labels", "perfect", why + ends),
            Claim("host", "labels", "perfect", codes + ends),
            Claim("host", "features", "none", "activations and codes are sent in the clear"),
            Claim("owner", "features", "none", "encodings are sent in the clear"),
            Claim("host", "model", "none", "activations and codes are sent in the clear"),
        )

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Declared messages: activations in guest training rounds, codes and encodings after."""
        config, aligned = self.config, self.data.rows

        def when_written(key: MessageKey) -> int:
            return int(self.schedule.writes(key.round))

        def at_the_end(key: MessageKey) -> int:
            return int(key.round > self.schedule.rounds)

        return (
            MessageSpec(
                *("activation", "guest", "host", "embedding"),
                shape=fixed(self.batches.coded, config.width),
                dtype="float32",
                count=when_written,
                source="guest training round",
            ),
            announcement("guest", sender="owner", source="section 5: the owner asks"),
            announcement("host", sender="owner", source="section 5: the owner asks"),
            MessageSpec(
                *("code", "guest", "host", "embedding"),
                shape=fixed(aligned, config.width),
                dtype="float32",
                count=at_the_end,
                row_by_row=True,
                source="section 5: the intersection",
            ),
            MessageSpec(
                *("encoding", "host", "owner", "embedding"),
                shape=fixed(aligned, config.host_width),
                dtype="float32",
                count=at_the_end,
                source="section 5: the intersection",
            ),
        )

    def coalitions(self) -> tuple[frozenset[int], ...]:
        """Coalitions to prove: each party alone; all guests; the owner with each host."""
        guests = frozenset(self.peers())
        alone = [frozenset((n,)) for n in (*self.peers(), *self.hosts, SERVER)]
        return (*alone, guests, *(frozenset((SERVER, k)) for k in self.hosts))

    def schedules(self) -> tuple[Schedule, ...]:
        """Two schedules for a proof: in one no party is down, in the other four are.

        The last guest and host go down for good, the first ones for a while.
        """
        t = self.config.interval
        some = {  # a host that is the first and the last one comes back
            self.peers()[-1]: (0.5 * t, math.inf),
            self.hosts[-1]: (1.5 * t, math.inf),
            self.peers()[0]: (0.5 * t, 1.5 * t),
            self.hosts[0]: (1.5 * t, 3.5 * t),
        }
        name = (
            "the first guest goes down within round 1 and the first host within round 2, and they "
            "come back; the last ones go down then for good"
        )
        return UNDISTURBED, down(name, some)

    def ideal(self, world: World) -> None:
        """Declare outputs: activations and codes to hosts, encodings to the owner, losses to all.

        All may also learn whether a host reconstructs badly, how many entries of codes are equal
        for all rows and, with early stopping, whether training stops.
        """
        Ideal(world, self).run()

    def shown(self, payload: Any) -> tuple[Any, Any]:
        """Row numbers and codes of a disclosing message: all aligned rows, in order."""
        return np.arange(len(payload)), payload

    def named_rows(self, named: Any) -> np.ndarray | None:
        """Training rows that a message names, by the numbers from `shown`."""
        return np.asarray(named)

    def describe(self) -> dict[str, Any]:
        """Figures for summaries: sizes, rounds of each phase, and the event counted as a round."""
        schedule = self.schedule
        return {
            "N": self.data.parties,
            "hosts": len(self.hosts),
            "batch_rows": self.batch_rows,
            "guest_rounds": schedule.guest_rounds,
            "training_rounds": schedule.rounds,
            "writes": self.writes,
            "round": "an iteration of guests and hosts; after that an epoch of the owner, which is "
            "a step of the history",
        }

    @property
    def writes(self) -> int:
        """Number of rounds in which guests send activations."""
        return int(self.config.guest_epochs // self.config.comm_period * self.schedule.per_epoch)

    def memory(self) -> int:
        """Bytes of replay buffers, final codes and encodings, and guests' own rows."""
        config, data = self.config, self.data
        items = min(self.writes, config.buffer or self.writes)
        joint = 4 * data.parties * config.width
        buffers = config.hosts * items * self.batch_rows * joint
        row = joint + 4 * config.hosts * config.host_width
        rows = sum(own.nbytes for own in self.features if data.alone)
        return int(buffers + 2 * (data.rows + data.test_rows) * row + rows)

    def advice(self, available: int) -> str:
        """Advice for less memory: only the replay buffers grow with the length of a run."""
        return "bound the hosts' buffer, raise comm_period, or use fewer hosts or rows"


def _adam(config: DvflConfig, lr: float) -> dict[str, Any]:
    return {"name": "adam", "lr": lr, "weight_decay": config.weight_decay}


def _guests_stream(seed: int, name: str, *keys: int) -> np.random.Generator:
    """Public stream of the guests' batches, which all guests draw alike."""
    return keyed_stream(seed, SERVER, f"dvfl/guests/{name}", *keys)


def _owner_stream(secrets: Secrets, name: str, *keys: int) -> np.random.Generator:
    """Secret stream of the owner's batches."""
    return secrets.stream(SERVER, f"dvfl/owner/{name}", *keys)
