"""Multi-VFL as the library sees it: its card, options, parties, messages and claims."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.data.label_partition import partition_labels, unheld_classes
from securevfl.engine.party import SERVER, Party
from securevfl.engine.streams import keyed_stream
from securevfl.errors import SecureVFLWarning
from securevfl.models.client_networks import ClientNetwork, make_client_network
from securevfl.models.server_optimizers import ServerOptimizer, make_server_optimizer
from securevfl.models.split import Batches, Centre
from securevfl.models.weights import refuse_running_statistics
from securevfl.privacy.claims import Claim, Guarantee
from securevfl.privacy.mechanisms import clip_rows
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.embedding import EmbeddingProtocol
from securevfl.protocols.base.messages import (
    Formula,
    GaussianNoise,
    MessageKey,
    MessageSpec,
    RunSecrets,
    with_formulas,
)
from securevfl.protocols.multivfl import alignment
from securevfl.protocols.multivfl.algorithm import Copies, DataOwner, LabelOwner, Server
from securevfl.protocols.multivfl.declaration import messages_of
from securevfl.protocols.multivfl.formulas import formulas_of
from securevfl.protocols.multivfl.parameters import MultiVflConfig, noise_of

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


class MultiVfl(EmbeddingProtocol):
    """Multi-VFL on one data set: `--parties` is D, and K = `label_owners` more hold the labels."""

    name = "multivfl"
    Config = MultiVflConfig
    card = Card(
        title="Multi-VFL: several data owners and several label owners",
        paper="Mugunthan, Goyal, Kagal, Multi-VFL: A Vertical Federated Learning System for "
        "Multiple Data and Label Owners, 2021",
        roles={
            "data owner": "holds some columns, and a bottom model for each label owner",
            "label owner": "holds the labels of some samples; trains a top model on them",
            "server": "aggregates the label owners' top models; holds no data",
        },
        sees={
            "data owner": "the identifiers of each label owner's samples (with intersection = "
            "'psi' only those in common), which of them are in a batch, and dL/dA of its own "
            "activations, which depends on their labels",
            "label owner": "every data owner's activations of each of its samples in every local "
            "epoch, exactly unless epsilon is set; the aggregated top model",
            "server": "every label owner's top model after every round, which its labels have "
            "changed, and its mean loss",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="waits",
        deviations=(
            "activations are vectors side by side, and not images stacked by channel; the label "
            "owners' top model may convolve over them (centre = 'conv')",
            "label owners send their weights, of which the server takes the differences t_k: so "
            "FedAvg is the mean itself, without rounding",
            "server optimisers are those of the cited works, for the paper's formulas are garbled "
            "in print, but for the division of FedDemonAdam's moment, which the paper alone has: "
            "see securevfl.models.server_optimizers",
            "means over label owners count each owner once, whatever the number of its labels, and "
            "FedYogi's second moment begins at 0, where Reddi et al. want at least tau^2",
            "local optimisers begin anew in each round, and are Adam by default; line 7 of the "
            "paper is plain SGD: optimizer = sgd, momentum = 0",
            "the mean loss of each label owner goes to the server, for the history",
            "noise on activations is ours; epsilon is of the releases of a row for given weights, "
            "and the influence of a row on the weights is not covered",
            "sizes of networks, the local optimiser, initialisation and batches are ours",
        ),
    )

    no_class_weights = (
        "each label owner has labels of its own rows, and none counts the classes of all"
    )

    def __init__(self, config: MultiVflConfig, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        tried = self.joint_centre(self.stream("centre"))  # looked at and dropped
        refuse_running_statistics(self.name, config.centre, tried.network)
        self.label_sets = partition_labels(
            config.label_partition,
            data.train_labels,
            config.label_owners,
            seed=seed,
            samples=config.samples,
        )
        self.unheld: tuple[int, ...] = ()
        if data.task != "regression":
            self.unheld = unheld_classes(data.train_labels, self.label_sets, data.test_labels)
        lost = np.intersect1d(self.unheld, data.train_labels)
        if len(lost):
            names = ", ".join(data.classes[k] if data.classes else str(k) for k in lost.tolist())
            warnings.warn(
                f"multivfl: no label owner has labels of the classes {names}, which training and "
                "test rows have; they cannot be learnt",
                SecureVFLWarning,
                stacklevel=2,
            )
        self.privacy = noise_of(config)
        self.card = replace(type(self).card)

    @property
    def owners(self) -> range:
        """Numbers of the label owners, after those of the data owners."""
        return range(self.data.parties, self.data.parties + self.config.label_owners)

    def parties(self) -> dict[int, Party]:
        """The server, D data owners and K label owners."""
        config = self.config
        server = Server(
            *(self.peers(), self.owners, self.joint_centre(), self.server_optimizer()),
            max_steps=config.rounds,
            epochs=config.epochs,
            privacy=self.privacy,
        )
        data_owners = {d: self.data_owner(d) for d in self.peers()}
        return {SERVER: server} | data_owners | {k: self.label_owner(k) for k in self.owners}

    def server_optimizer(self) -> ServerOptimizer:
        """New server optimiser."""
        config = self.config
        return make_server_optimizer(
            config.server_optimizer,
            lr=config.server_lr,
            beta1=config.beta1,
            beta2=config.beta2,
            tau=config.tau,
            rounds=config.rounds,
        )

    def data_owner(self, index: int) -> DataOwner:
        """Data owner `index`, from 0; it holds its columns of all training rows."""
        return DataOwner(
            index,
            self.peers(),
            self.data.train[index],
            self.identifiers_of(index),
            Copies(self.maker(index), self.owners),
            batch=self.batch_rows,
            private=self.config.intersection == "psi",
            privacy=self.privacy,
            limit=self.releases,
        )

    def identifiers_of(self, member: int) -> tuple[str, ...]:
        """Identifiers of a party's samples: all, or those of which a label owner has labels."""
        number = member - self.data.parties
        return identifiers(np.arange(self.data.rows) if number < 0 else self.label_sets[number])

    def maker(self, index: int) -> Callable[[], ClientNetwork]:
        """Factory of new bottom models of data owner `index`, all with the same first weights."""
        config, data = self.config, self.data
        shapes = data.party_image_shapes
        return functools.partial(
            _new_network,
            functools.partial(self.secrets.stream, index, "init"),
            *(config.client, data.widths[index], config.width, config.degree),
            image_shape=None if shapes is None else shapes[index],
            optimizer=config.client_optimizer(),
            bound=config.weight_bound,
            layers=config.hidden_layers(),
            own=config.own_client,
            cardinalities=data.cardinalities[index],
            embedding=config.embedding,
            device=config.device,
        )

    def label_owner(self, index: int) -> LabelOwner:
        """Label owner; the first draws its batches as the server of `split` does."""
        number = index - self.data.parties
        samples = self.label_sets[number]
        stream = functools.partial(_labels_stream, self.seed, SERVER if number == 0 else index)
        return LabelOwner(
            index,
            self.peers(),
            self.data.train_labels[samples],
            self.identifiers_of(index),
            self.centre_maker(),
            self.aggregation,
            stream,
            batch=self.config.batch,
            epochs=self.config.epochs,
            private=self.config.intersection == "psi",
        )

    def centre_maker(self) -> Callable[[], Centre]:
        """Factory of new top models, with a new local optimiser.

        Their first weights do not matter: a label owner replaces them by the server's in each
        round, and these are the server's secret at first.
        """
        config, task = self.config, self.data.task
        return functools.partial(
            Centre,
            task,
            self.data.num_classes if task == "multiclass" else 1,
            self.aggregation.width(config.width),
            network=config.centre,
            hidden=config.hidden,
            optimizer=config.centre_optimizer(),
            seed=int(self.stream("centre").integers(2**31)),
            own=config.own_centre,
            own_loss=config.own_loss,
            device=config.device,
        )

    def embed(self, client: Any, rows: np.ndarray) -> np.ndarray:
        """Activations of the mean of the copies; clipped as in training, without noise."""
        embedding: np.ndarray = client.network.forward(rows)
        if self.privacy is None:
            return embedding
        return clip_rows(embedding, self.privacy.clip).astype(np.float32)

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """The alignments, one under each label owner; then Algorithm 1."""
        private = self.config.intersection == "psi"
        declared = messages_of(self.owners, self.rows_of, self.config.width, private=private)
        of_requests: dict[str, Any] = {
            "request": {"count": lambda key: self.in_run(key.sender, key.round)},
            "embedding": {
                "count": lambda key: self.in_run(key.receiver, key.round),
                "noise": self.activation_noise,
            },
            "gradient": {"count": lambda key: self.in_run(key.sender, key.round)},
        }
        aligned = alignment.formulas_of(self) if private else {}
        for owner in () if private else self.owners:
            aligned |= self.aligned(owner)
        formulas = aligned | formulas_of(self)
        if self.privacy is not None:
            del formulas["embedding"]  # its noise has no formula: see `activation_noise`
        with_counts = (replace(one, **of_requests.get(one.kind, {})) for one in declared)
        return with_formulas(with_counts, formulas)

    @property
    def activation_noise(self) -> GaussianNoise | None:
        """Noise of activations: one release for each data owner and request."""
        config = self.config
        if config.epsilon is None:
            return None
        return GaussianNoise(
            *("features", config.epsilon, config.delta, config.clip, "clip"),
            rows=self.requested_rows,
            exact=self.exact_activations,
            releases=int(config.rounds * config.epochs),
            frame=lambda secrets, key, rows: (
                (key.receiver, self.requested(key.receiver, key.round)[1]),
                rows,
            ),
        )

    def aligned(self, owner: int) -> dict[str, Formula]:
        """Identifiers in the clear: the label owner's, all of which the data owners hold."""
        own = self.label_sets[owner - self.data.parties]
        every = np.ones(len(own), bool)
        return {
            f"ids {owner}": lambda secrets, key: identifiers(own),
            f"ids {owner} held": lambda secrets, key: every,
            f"ids {owner} common": lambda secrets, key: every,
        }

    def requested(self, owner: int, number: int) -> tuple[int, np.ndarray]:
        """Global round and places of a label owner's request; its batches are public."""
        batches = self.batches_of(owner)
        steps = self.last_request(owner, 1)
        return 1 + (number - 1) // steps, batches.samples(batches.draw(number))

    def in_run(self, owner: int, number: int) -> int:
        """Count of a message of every request of a label owner, and of none beyond the last."""
        return int(1 <= number <= self.last_request(owner, self.config.rounds))

    def last_request(self, owner: int, round: int) -> int:
        """Number of the last request of a label owner in a global round."""
        return int(round * self.config.epochs * self.batches_of(owner).per_epoch)

    def batches_of(self, owner: int) -> Batches:
        """Batches of a label owner."""
        entity = SERVER if owner == self.owners[0] else owner
        stream = functools.partial(_labels_stream, self.seed, entity)
        held = len(self.label_sets[owner - self.data.parties])
        return Batches(held, 1, self.config.batch, stream)

    def requested_rows(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """Training rows of a request that an embedding answers."""
        places = self.requested(key.receiver, key.round)[1]
        rows: np.ndarray = self.held_rows(key.receiver)[places]
        return rows

    def held_rows(self, owner: int) -> np.ndarray:
        """Training rows of a label owner's samples, in the order that the alignment gives."""
        return np.sort(self.label_sets[owner - self.data.parties])

    def exact_activations(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """Activations by the data owner's copy for the label owner when it sent them."""
        network = self.maker(key.sender)()
        network.load_state_dict(secrets.state(key)["copies"][str(key.receiver)])
        own = secrets.data(key.sender)["train"]
        return network.forward(own[self.requested_rows(secrets, key)])

    def rows_of(self, owner: int) -> int:
        """Rows of a batch of a label owner, which may have fewer labels than a batch has rows."""
        return int(min(self.config.batch, len(self.label_sets[owner - self.data.parties])))

    def named_rows(self, named: Any) -> np.ndarray | None:
        """Training rows that a message names, by places among a label owner's samples."""
        if named is None:
            return None
        owner, places = named
        rows: np.ndarray = self.label_sets[owner - self.data.parties][places]
        return rows

    def roles(self) -> dict[str, tuple[int, ...]]:
        """Numbers of the parties by role; data owners are the clients."""
        return super().roles() | {"label_owner": tuple(self.owners)}

    def describe(self) -> dict[str, Any]:
        """D, K, the number of labels of each owner, the noise and its cost."""
        described: dict[str, Any] = {
            "D": self.data.parties,
            "K": self.config.label_owners,
            "labels_held": [len(own) for own in self.label_sets],
            "batch_rows": self.batch_rows,
            "round": f"{self.config.epochs} local epochs of every label owner",
        }
        if self.unheld:
            described["classes_without_labels"] = list(self.unheld)
        if self.privacy is not None:
            described |= {
                "sigma": self.privacy.sigma,
                "delta": self.privacy.delta,
                "epsilon_release": self.privacy.epsilon,
                "epsilon_all_rounds": self.privacy.spent(self.releases),
                "noise": "seeded, not secure" if self.privacy.seeded else "secure",
            }
        return described

    @property
    def releases(self) -> int:
        """Number of times that a row's activations are sent: once in each local epoch."""
        return int(self.config.rounds * self.config.epochs)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Nothing is protected but by noise."""
        return (
            self._features_claim(),
            Claim("label owner", "model", "none", "activations are of its own choice of rows"),
            Claim("client", "labels", "none", "dL/dA depends on them"),
            Claim("server", "labels", "none", "the label owners' top models depend on them"),
            Claim("server", "features", "none", "the label owners' top models depend on them"),
            Claim("server", "model", "none", "it holds the label owners' top model"),
        )

    def _features_claim(self) -> Claim:
        noise = self.privacy
        if noise is None:
            return Claim("label owner", "features", "none", "activations are sent in the clear")
        if noise.seeded:
            why = "the noise is seeded: a party that knows the seed can subtract it"
            return Claim("label owner", "features", "none", why)
        paid = Guarantee(noise.epsilon, noise.delta, noise.spent(self.releases))
        how = "one row of one data owner replaced; analytic Gaussian mechanism, its weights and "
        how += "the preparation of its columns given"
        why = f"{paid}, {how}"
        return Claim("label owner", "features", "differential", why, guarantees=(paid,))


def identifiers(rows: np.ndarray) -> tuple[str, ...]:
    """Identifiers of training rows; their order is that of the rows."""
    return tuple(f"{row:010d}" for row in rows.tolist())


def _new_network(
    stream: Callable[[], np.random.Generator], *sizes: Any, **options: Any
) -> ClientNetwork:
    """Bottom model whose weights a new stream draws, so that all copies begin alike."""
    return make_client_network(*sizes, stream=stream(), **options)


def _labels_stream(seed: int, entity: int, name: str, *keys: int) -> np.random.Generator:
    """Public stream of a label owner's batches, whose samples its requests name."""
    return keyed_stream(seed, entity, f"train/{name}", *keys)
