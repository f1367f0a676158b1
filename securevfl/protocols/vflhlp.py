"""VFLHLP: pre-train locally on all rows, then train together on the few aligned ones.

W. Li, X. Guo, X. Jiao, T. Huang, X. Yan, Y. Yang, "Vertical Federated Learning Hybrid Local
Pre-training", 2024. Client 0 is the active party: it and the server, which holds the labels and the
head, are one organisation. Client k > 0 are the passive parties.

1. Client 0 trains an encoder and a head on all its labelled rows: Theta^1, Theta^0 (equation 4).
2. Each passive client trains its encoder on all its rows by SCARF: Theta^k (equations 5 and 6).
3. Algorithm 1, on the aligned rows: passive encoders start from Theta^k, and
   L = L_vfl + beta/2 (|theta^1 - Theta^1|^2 + |theta^0_s - Theta^0|^2)  (equations 7 and 8),
   where theta^0_s is that part of the head which reads client 0's embedding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from securevfl.engine.party import SERVER, kept_as
from securevfl.errors import ConfigurationError
from securevfl.models.aggregation import Aggregation
from securevfl.models.client_networks import ClientNetwork
from securevfl.models.pretraining.trainer import (
    Pretraining,
    ProximalTerm,
    SupervisedOptions,
    check_rows,
    check_stop,
    pretraining_optimizer,
)
from securevfl.models.split import Centre
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.messages import MessageSpec
from securevfl.protocols.base.open_embeddings import (
    Ideal,
    OpenClient,
    OpenEmbeddings,
    OpenServer,
    joint_step,
    stepped,
    updated,
)
from securevfl.protocols.base.options import EmbeddingConfig
from securevfl.protocols.base.pretraining import (
    WITHIN,
    Beginning,
    all_labels,
    pretraining_messages,
    shapes_of,
    take_over,
    tell,
    weights_learnt,
)
from securevfl.protocols.base.split_training import DownstreamProtocol
from securevfl.verified import Model, Secret, World

_IMAGES = ("conv", "vgg13")  # server models whose first layer is no Linear one


class VflhlpConfig(SupervisedOptions, EmbeddingConfig):
    """Options of VFLHLP."""

    variant: Literal["full", "a", "p", "none"] = Field(
        "full",
        description=(
            "Whose pre-training is used: full (everybody's), a (the active party's, "
            "VFLHLP-A), p (the passive parties', VFLHLP-P), or none, which is split "
            "learning."
        ),
    )
    beta: float = Field(
        0.1,
        ge=0,
        description=(
            "Weight of the proximal term, which holds the active party's model near the one"
            " that it trained alone."
        ),
    )
    clip: float | None = Field(
        None,
        gt=0,
        description=(
            "Largest norm of the gradient of the active party's bottom model, and of the "
            "server model, in joint training, the proximal term included. It bounds steps of "
            "optimizer = sgd; those of adam hardly depend on it. Default: no bound."
        ),
    )
    corruption: float = Field(
        0.6,
        ge=0,
        le=1,
        description="Fraction of a row's values that SCARF replaces to make a view of it.",
    )
    temperature: float = Field(
        1.0, gt=0, description="Temperature tau of the contrastive loss InfoNCE."
    )
    aggregation: Literal["mean", "concat", "max"] = Field(
        "concat", description="How embeddings are joined to the head's input."
    )

    def term(self, theta: Mapping[str, Any]) -> ProximalTerm:
        """Proximal term that holds a model near the weights theta, given by name."""
        return ProximalTerm(tuple(theta), self.beta, self.clip)

    @property
    def active(self) -> bool:
        """Whether step 1 (client 0 pre-trains on labels) is part of the variant."""
        return self.variant in ("full", "a")

    @property
    def passive(self) -> bool:
        """Whether step 2 (passive clients pre-train) is part of the variant."""
        return self.variant in ("full", "p")


def held_update(
    network: ClientNetwork,
    features: np.ndarray,
    samples: np.ndarray,
    gradient: np.ndarray,
    term: ProximalTerm,
    *theta: np.ndarray,
) -> np.float32:
    """Step of client 0's weights theta^1 near `theta` (Theta^1); number of clipped weights."""
    with term.pulling(network, theta):
        return updated(network, features, samples, gradient)


def held_step(
    term: ProximalTerm, centre: Centre, labels: np.ndarray, *given: Any
) -> tuple[np.ndarray | np.float32, ...]:
    """Step of weights theta^0 near Theta^0 (first of `given`); return (loss, each dL/dH_n)."""
    held = len(term.names)
    with term.pulling(centre, given[:held]):
        return stepped(centre, labels, *given[held:])


@dataclass(eq=False, repr=False)
class ActiveClient(OpenClient):
    """Client 0: step 1, and the proximal term towards Theta^1 in step 3."""

    kept: ClassVar[tuple[str, ...]] = (*OpenClient.kept, *kept_as("once", "theta"))
    protected: ClassVar[Mapping[str, Any]] = {**OpenClient.protected, **WITHIN}

    pretraining: Any
    config: VflhlpConfig
    theta: dict[str, Any] | None = field(default=None, init=False)  # Theta^1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pretraining = Beginning(self, self.pretraining)

    async def setup(self) -> None:
        """Step 1: minimise F(f(Theta^0; h(Theta^1; X^1)), Y); send the head to the server."""
        if self.config.active:
            await self.pretraining.make(self.features, how="supervised")
            self.theta = self.pretraining.weights("encoder")

    def step(self, samples: Any, gradient: Secret) -> Secret:
        """Step of the active client's weights theta^1, with the proximal term if there is one."""
        if self.theta is None:
            return super().step(samples, gradient)
        given = self.features, samples, gradient
        return client_step(self.network, given, self.config, self.theta)


def client_step(
    network: Model, given: tuple[Any, ...], config: VflhlpConfig, theta: Mapping[str, Secret]
) -> Secret:
    """Step of theta^1 with `given`: columns, samples, dL/dH_1; number of clipped weights."""
    term = config.term(theta)
    clipped: Secret
    (clipped,) = network.step(held_update, *given, term, *theta.values(), shapes=[()])
    return clipped


@dataclass(eq=False, repr=False)
class PassiveClient(OpenClient):
    """Client k > 0: step 2, then split training from its result."""

    pretraining: Any
    config: VflhlpConfig

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pretraining = Beginning(self, self.pretraining)

    async def setup(self) -> None:
        """Step 2: minimise InfoNCE of projections of rows and their corrupted views."""
        if self.config.passive:
            await self.pretraining.make(self.features, how="scarf")
            self.network.step(take_over, self.pretraining.own)


@dataclass(eq=False, repr=False)
class Server(OpenServer):
    """Server of the active party: gives labels to step 1; its head, too, has a proximal term."""

    kept: ClassVar[tuple[str, ...]] = (*OpenServer.kept, *kept_as("once", "theta"))
    protected = ActiveClient.protected

    alone_labels: Any = field(kw_only=True)
    config: VflhlpConfig = field(kw_only=True)
    theta: dict[str, Any] | None = field(default=None, init=False)  # Theta^0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alone_labels is not None:
            self.alone_labels = self.own("labels of rows alone", self.alone_labels)

    async def setup(self) -> None:
        """Send the labels to client 0 (same organisation), and receive its head."""
        if self.config.active:
            self.send(0, "labels", all_labels(self.labels, self.alone_labels))
            self.theta = await self.receive("head")

    def step(
        self, embeddings: Mapping[int, Secret], samples: Any
    ) -> tuple[Secret, dict[int, Secret]]:
        """Step of server weights theta^0, with any proximal term; return L_vfl and each dL/dH_n."""
        given = samples, self.aggregation, embeddings
        return server_step(self.centre, self.labels, given, self.config, self.theta)


def server_step(
    centre: Model,
    labels: Secret,
    given: tuple[Any, Aggregation, Mapping[int, Secret]],
    config: VflhlpConfig,
    theta: Mapping[str, Secret] | None,
) -> tuple[Secret, dict[int, Secret]]:
    """Step of theta^0 on `given`: samples, rule, embeddings; return (loss, dL/dH_n by n)."""
    if theta is None:
        return joint_step(centre, stepped, labels, *given)
    held = partial(held_step, config.term(theta))
    return joint_step(centre, held, labels, *given, *theta.values())


class IdealVflhlp(Ideal):
    """Ideal functionality of VFLHLP; other parameters are those of `Ideal`.

    Attributes
    ----------
    encoder, head : dict of str to Secret, or None
        Pre-trained weights Theta^1 of the active party's network and Theta^0 of the server model.
    """

    def __init__(
        self, world: World, clients: Sequence[int], bounded: bool, config: VflhlpConfig
    ) -> None:
        super().__init__(world, clients, bounded)
        self.config = config
        self.encoder: dict[str, Secret] | None = None
        self.head: dict[str, Secret] | None = None

    def step_1(self, own: Pretraining, more: Secret | None) -> None:
        """Step 1: labels are an output to client 0, and its head one to the server."""
        labels = all_labels(self.labels, more)
        self.world.output("labels", labels, to=[0], alone=True)
        learnt, shapes = tell(self.world, 0, own.told, labels), shapes_of(own)
        self.encoder = weights_learnt(learnt, "encoder", shapes["encoder"])
        self.head = weights_learnt(learnt, "head", shapes["head"])
        for weight in self.head.values():
            self.world.output("head of party 0", weight, to=[SERVER], alone=True)

    def step(self, client: int, samples: Any, gradient: Secret) -> Secret:
        """Step of a bottom model; client 0's is held near Theta^1."""
        if client > 0 or self.encoder is None:
            return super().step(client, samples, gradient)
        given = self.columns[0], samples, gradient
        return client_step(self.networks[0], given, self.config, self.encoder)


class Vflhlp(OpenEmbeddings, DownstreamProtocol):
    """VFLHLP on one data set with few aligned rows."""

    name = "vflhlp"
    ideal_repeats = False
    apart = True
    traced_alone = 3
    Config = VflhlpConfig
    check_options: ClassVar[dict[str, Any]] = {"pretrain_epochs": 2, "pretrain_batch": 32}
    small_options: ClassVar[dict[str, int]] = {"pretrain_epochs": 2}
    traced_options: ClassVar[dict[str, Any]] = {
        "rounds": 2, "batch": 4, "width": 2, "pretrain_epochs": 2, "pretrain_batch": 4,
        "projection": 2, "hidden": 3,
    }  # fmt: skip
    card = Card(
        title="VFLHLP: hybrid local pre-training for few aligned rows",
        paper="Li, Guo, Jiao, Huang, Yan, Yang, Vertical Federated Learning Hybrid Local "
        "Pre-training, 2024",
        roles={
            "server": "holds the labels and the head; one organisation with client 0, the active "
            "party",
            "client": "holds some columns and an encoder; client 0 pre-trains on labels, the "
            "others without",
        },
        sees={
            "server": "every client's embedding of every batch of aligned rows, exactly; client "
            "0's own head",
            "client": "dL/dH of its own embedding, and the batches; client 0 besides all labels of "
            "its own rows, which are its organisation's",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent, "
            "the messages between client 0 and its server among it",
        },
        absence="waits",
        deviations=(
            "beta, learning rates, epochs, the corruption rate and tau are ours, for the paper "
            "states none; SCARF's are its authors' (0.6 and 1)",
            "theta^0_s is the columns of the head's first layer that read client 0's embedding, "
            "and all of the other layers and biases; with mean or maximum the whole head",
            "the active party starts step 3 from its initial weights, as Algorithm 1 says, and "
            "pre-trains from the same ones",
            "labels and head go between client 0 and the server as two messages, which the paper "
            "has within one party",
            "InfoNCE without the factor 1/N within the logarithm, a constant",
            "the loss of the history is L_vfl",
        ),
    )

    def __init__(self, config: VflhlpConfig, data: Any, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        if config.passive:
            for k in self.peers()[1:]:
                check_rows(self.name, f"client {k}", len(self.all_rows(k)))

    @classmethod
    def check_parties(cls, config: VflhlpConfig, parties: int) -> None:
        """Raise ConfigurationError for a useless `clip`, or if active with an image `centre`."""
        super().check_parties(config, parties)
        check_stop(cls.name, config, on_labels=config.active)
        if config.clip is not None and not config.active:
            raise ConfigurationError(
                f"vflhlp: clip = {config.clip:g} has no use: with variant = {config.variant!r} no "
                "model has a proximal term. Leave it out"
            )
        if config.active and config.aggregation == "concat" and config.centre in _IMAGES:
            raise ConfigurationError(
                f"vflhlp: centre = {config.centre!r} lays all embeddings out as one image, so no "
                "part of it reads the active party's alone; use linear or mlp, or variant = 'p'"
            )

    def server(self) -> Server:
        """Create the server."""
        return self.make_server(Server, alone_labels=self.data.alone_labels, config=self.config)

    def roles(self) -> dict[str, tuple[int, ...]]:
        """Numbers of the parties by role; client 0 is the active party."""
        return super().roles() | {"active": (0,)}

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Messages of step 1 between the active party and its server, then split training."""
        within = pretraining_messages("step 1", "Theta^0") if self.config.active else ()
        return within + self.step_messages()

    def inputs(self, world: World) -> IdealVflhlp:
        """Inputs of all parties, after steps 1 and 2."""
        config = self.config
        ideal = IdealVflhlp(world, self.peers(), config.weight_bound is not None, config)
        if config.active:
            held = self.data.alone_labels is not None
            more = world.the(SERVER, "labels of rows alone") if held else None
            ideal.step_1(self.pretraining(0, self.own_head()), more)
        for k in self.peers()[1:] if config.passive else ():
            own = self.pretraining(k, self.objective(k, "scarf"))
            ideal.networks[k].step(take_over, tell(world, k, own.told))
        return ideal

    def ideal_step(
        self, ideal: Any, samples: np.ndarray, used: Mapping[int, Secret]
    ) -> tuple[Secret, dict[int, Secret]]:
        """Step of server weights theta^0; return L_vfl and these clients' gradients."""
        given = samples, self.aggregation, used
        return server_step(ideal.centre, ideal.labels, given, self.config, ideal.head)

    def client(self, index: int) -> OpenClient:
        """Create client `index`, counted from 0."""
        network, features = self.client_network(index), self.data.train[index]
        given = (index, self.peers(), self.layout, features, network)
        means = self.own_head() if index == 0 else self.objective(index, "scarf")
        own = self.pretraining(index, means)
        kind = ActiveClient if index == 0 else PassiveClient
        return kind(*given, own, self.config, width=self.config.width)

    def own_head(self) -> Centre:
        """New head f of the active party's own model, for one embedding's width."""
        stream = self.secret_stream(0, "head")
        return self.centre(optimizer=pretraining_optimizer(self.config), stream=stream)

    def describe(self) -> dict[str, Any]:
        """Numbers of the base class, the variant, and the labelled rows that step 1 uses."""
        rows = len(self.labelled()[1]) if self.config.active else 0
        return super().describe() | {"variant": self.config.variant, "labelled_rows": rows}
