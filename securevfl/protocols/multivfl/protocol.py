"""The protocol class of Multi-VFL: card, options, parties, messages and claims."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from securevfl.data.label_partition import partition_labels, told_by_rows, unheld_classes
from securevfl.engine.party import SERVER, Party
from securevfl.engine.streams import keyed_stream
from securevfl.errors import SecureVFLWarning
from securevfl.models.client_networks import ClientNetwork, make_client_network
from securevfl.models.server_optimizers import ServerOptimizer, make_server_optimizer
from securevfl.models.split import Batches, Centre
from securevfl.models.weights import refuse_running_statistics, weights_of
from securevfl.privacy.claims import Claim, Guarantee
from securevfl.privacy.mechanisms import clip_gradient, clip_rows
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.embedding import EmbeddingProtocol
from securevfl.protocols.base.messages import MessageSpec
from securevfl.protocols.base.open_embeddings import FIELD, embedding, joint_step, stepped, updated
from securevfl.protocols.base.protected_values import loaded, mean_of, weights_in
from securevfl.protocols.base.split import batch_stream
from securevfl.protocols.multivfl.algorithm import (
    Copies,
    DataOwner,
    LabelOwner,
    Server,
    aggregate,
    chosen,
)
from securevfl.protocols.multivfl.declaration import messages_of
from securevfl.protocols.multivfl.parameters import MultiVflConfig, noise_of
from securevfl.verified import Provable, World
from securevfl.verified.parties import seeded_rows

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


class MultiVfl(Provable, EmbeddingProtocol):
    """Multi-VFL on one data set: `--parties` is D, and K = `label_owners` more hold the labels."""

    name = "multivfl"
    ideal_repeats = False
    Config = MultiVflConfig
    field = FIELD
    traced_options: ClassVar[dict[str, Any]] = {
        "rounds": 2, "batch": 4, "width": 2, "hidden": 3, "label_owners": 2,
    }  # fmt: skip
    role_options = ("label_owners",)
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
            "FedDemonAdam is as printed, with Demon's own decay and Adam's bias correction of v; "
            "FedAdam and FedYogi are those of Reddi et al., where the paper prints m^2 for t^2: "
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

    scales_targets = False
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
        """Data owner `index`, counted from 0, with its columns of all training rows."""
        return DataOwner(
            index,
            self.peers(),
            self.data.train[index],
            self.identifiers_of(index),
            self.maker(index),
            self.owners,
            width=self.config.width,
            batch=self.batch_rows,
            private=self.config.intersection == "psi",
            privacy=self.privacy,
            limit=self.releases,
        )

    def identifiers_of(self, member: int) -> tuple[str, ...]:
        """Identifiers of a party's samples: all, or those whose labels a label owner has."""
        number = member - self.data.parties
        return identifiers(np.arange(self.data.rows) if number < 0 else self.label_sets[number])

    def maker(self, index: int) -> Callable[[], ClientNetwork]:
        """Factory of bottom models of data owner `index`, all with equal initial weights."""
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
        """Label owner with number `index`; the first draws its batches as `split`'s server does."""
        number = index - self.data.parties
        samples = self.label_sets[number]
        stream = functools.partial(
            batch_stream, self.seed, SERVER if number == 0 else index, "train"
        )
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

        Their initial weights have no effect: a label owner replaces them by the server's in each
        round, whose initial weights only the server has.
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
        """Activations by the mean of a data owner's copies, clipped as in training, not noised."""
        embedding: np.ndarray = client.network.forward(rows)
        if self.privacy is None:
            return embedding
        return clip_rows(embedding, self.privacy.clip).astype(np.float32)

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Message declarations: alignment with each label owner, then Algorithm 1."""
        private = self.config.intersection == "psi"
        declared = messages_of(self.owners, self.rows_of, self.config.width, private=private)
        counts = {
            "request": lambda key: self.in_run(key.sender, key.round),
            "embedding": lambda key: self.in_run(key.receiver, key.round),
            "gradient": lambda key: self.in_run(key.sender, key.round),
        }
        return tuple(
            replace(one, count=counts[one.kind]) if one.kind in counts else one for one in declared
        )

    def coalitions(self) -> tuple[frozenset[int], ...]:
        """Coalitions to prove: each party; all label owners, also with the server; data owners."""
        alone = [frozenset((n,)) for n in (*self.peers(), *self.owners, SERVER)]
        owners = frozenset(self.owners)
        return (*alone, owners, owners | {SERVER}, frozenset(self.peers()))

    def ideal(self, world: World) -> None:
        """Declare outputs: all values sent, except activations with noise.

        The run is computed as in Algorithm 1. Noise of a public seed hides nothing, so A_{d,k} with
        it is an output.
        """
        world.faults += filter(None, [told_by_rows(self.config.label_partition)])
        centre, optimizer = world.the(SERVER, "centre"), world.the(SERVER, "optimizer")
        shapes = {name: value.shape for name, value in weights_of(self.joint_centre()).items()}
        copies = {d: self.ideal_copies(world, d) for d in self.peers()}
        for r in range(1, self.config.rounds + 1):
            W = weights_in(centre, shapes)
            for name, value in W.items():
                world.output(f"W {r}: {name}", value, to=self.owners, alone=True)
            losses, trained = [], []
            for k in self.owners:
                loss, own = self.ideal_round(world, copies, W, k, r)
                world.output(f"loss {r} of {k}", loss, to=[SERVER], alone=True)
                for name, value in own.items():
                    world.output(f"W {r} of {k}: {name}", value, to=[SERVER], alone=True)
                losses.append(loss)
                trained.append(own)
            aggregate(centre, optimizer, W, trained)
            world.output(f"loss {r}", mean_of(losses), alone=True)
            for own in copies.values():
                own.merge()

    def ideal_copies(self, world: World, d: int) -> Copies:
        """Copies W^C_{d,k} of a data owner with initial weights."""
        shapes = {name: value.shape for name, value in weights_of(self.maker(d)()).items()}
        networks = {k: world.the(d, f"network {k}") for k in self.owners}
        return Copies(world.the(d, "network"), networks, shapes)

    def ideal_round(self, world: World, copies: Any, W: Any, k: int, r: int) -> tuple[Any, Any]:
        """Global round r of label owner k from W; return (its mean loss, W^S_k after it)."""
        centre, rows = world.the(k, "top"), self.held_rows(k)
        centre.step(loaded, tuple(W), *W.values())
        own = np.argsort(self.label_sets[k - self.data.parties], kind="stable")
        labels = world.the(k, "labels").map(chosen, own, shape=own.shape)
        batches, steps, losses = self.batches_of(k), self.last_request(k, 1), []
        for number in range((r - 1) * steps + 1, r * steps + 1):
            places, A, sent = batches.samples(batches.draw(number)), {}, {}
            for d in self.peers():
                X, shape = world.the(d, "columns"), (len(places), self.config.width)
                A[d] = copies[d].networks[k].call(embedding, X, rows[places], shape=shape)
                if self.privacy is None or self.privacy.seeded:
                    sent[d] = self.ideal_sent(d, k, number, A[d])
                    world.output(f"A {number} of {d} for {k}", sent[d], to=[k], alone=True)
                else:
                    sent[d] = world.released(d, f"activations {number} for {k}")
            loss, gradients = joint_step(centre, stepped, labels, places, self.aggregation, sent)
            losses.append(loss)
            for d, back in gradients.items():
                world.output(f"dA {number} of {d} by {k}", back, to=[d], alone=True)
                inner = back
                if self.privacy is not None:
                    inner = A[d].map(clip_gradient, back, self.privacy.clip)
                X = world.the(d, "columns")
                (cut,) = copies[d].networks[k].step(updated, X, rows[places], inner, shapes=[()])
                if self.config.weight_bound is not None:
                    world.output(f"clipped {number} of {d} by {k}", cut, alone=True)
        return mean_of(losses), weights_in(centre, {name: one.shape for name, one in W.items()})

    def ideal_sent(self, d: int, k: int, number: int, A: Any) -> Any:
        """Activations A_{d,k} as sent without secret noise."""
        if self.privacy is None:
            return A
        seed = keyed_stream(self.seed, d, "noise", k, number).bytes(32)
        clipped = A.clip(self.privacy.clip)
        return clipped.map(seeded_rows, self.privacy.sigma, seed, dtype=np.float32)

    def in_run(self, owner: int, number: int) -> int:
        """Number of messages of a label owner's request: 1, or 0 for one beyond the run's last."""
        return int(1 <= number <= self.last_request(owner, self.config.rounds))

    def last_request(self, owner: int, round: int) -> int:
        """Number of the last request of a label owner in a global round."""
        return int(round * self.config.epochs * self.batches_of(owner).per_epoch)

    def batches_of(self, owner: int) -> Batches:
        """Batches of a label owner."""
        entity = SERVER if owner == self.owners[0] else owner
        stream = functools.partial(batch_stream, self.seed, entity, "train")
        held = len(self.label_sets[owner - self.data.parties])
        return Batches(held, 1, self.config.batch, stream)

    def held_rows(self, owner: int) -> np.ndarray:
        """Training rows of a label owner's samples, in the order that the alignment gives."""
        return np.sort(self.label_sets[owner - self.data.parties])

    def rows_of(self, owner: int) -> int:
        """Rows of a label owner's batch: fewer than `batch` if it has fewer labels."""
        return int(min(self.config.batch, len(self.label_sets[owner - self.data.parties])))

    def named_rows(self, named: Any) -> np.ndarray | None:
        """Training rows that a message names by positions among a label owner's samples."""
        if named is None:
            return None
        owner, places = named
        rows: np.ndarray = self.label_sets[owner - self.data.parties][places]
        return rows

    def roles(self) -> dict[str, tuple[int, ...]]:
        """Numbers of the parties by role; data owners are the clients."""
        return super().roles() | {"label_owner": tuple(self.owners)}

    def describe(self) -> dict[str, Any]:
        """Numbers for summaries: D, K, labels of each owner, the noise and its cost."""
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
        """Releases of a row's activations: one in each local epoch."""
        return int(self.config.rounds * self.config.epochs)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Claims; without noise there is no protection."""
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
    """Identifiers of training rows, in order."""
    return tuple(f"{row:010d}" for row in rows.tolist())


def _new_network(
    stream: Callable[[], np.random.Generator], *sizes: Any, **options: Any
) -> ClientNetwork:
    """Bottom model with weights from a new stream, so that all copies start equal."""
    return make_client_network(*sizes, stream=stream(), **options)
