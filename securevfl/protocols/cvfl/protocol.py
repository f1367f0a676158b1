"""Cvfl as the library sees it: card, options, parties, messages and claims."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from securevfl.data.label_partition import partition_labels, unheld_classes
from securevfl.engine.party import ANNOUNCE, SERVER, Party
from securevfl.engine.streams import keyed_stream
from securevfl.errors import ConfigurationError
from securevfl.models.client_networks import ClientNetwork
from securevfl.models.split import Batches, Centre
from securevfl.models.stale import LastEmbeddings
from securevfl.models.weights import load_weights, penalty, refuse_running_statistics, weights_of
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.messages import (
    Formula,
    MessageKey,
    MessageSpec,
    RunSecrets,
    announcement,
    last_word,
    with_formulas,
)
from securevfl.protocols.base.split import EmbeddingProtocol
from securevfl.protocols.cvfl.algorithm import Active, Collaborator, Holder
from securevfl.protocols.cvfl.parameters import _GRACE, _SLOW, CvflConfig, amplified, numbers

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


class Cvfl(EmbeddingProtocol):
    """CVFL on one data set: `--parties` is M, and the first L = `active` of them hold labels."""

    name = "cvfl"
    Config = CvflConfig
    fault_options: ClassVar[dict[str, Any]] = {"patience": 1.0}
    card = Card(
        title="CVFL: labels held by several parties",
        paper="Xia, Li, Zhang, Wu, Yuan, A Vertical Federated Learning Framework for Horizontally "
        "Partitioned Labels, 2021",
        roles={
            "active party": "holds some columns, the labels of some rows, a bottom network and a "
            "copy of the top network; launches updates",
            "passive party": "holds some columns and a bottom network; serves active parties",
            "collaborator": "steps the common top network; holds no data",
        },
        sees={
            "active party": "every party's embedding of each of its labelled rows, exactly and "
            "again in every epoch; the top network; if it is slow and q > 1 the values r(theta_m), "
            "the norms of all bottom networks; dL/dh of its own embedding from the others, which "
            "depends on their labels; which rows the others have labels of, and its own pace",
            "passive party": "which rows each active party has labels of, and dL/dh of its own "
            "embedding, which depends on the labels",
            "collaborator": "the gradient of the top network of every batch, from which the labels "
            "of a small batch can often be read, the loss of each batch, who is slow, and how many "
            "embeddings each batch had",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="skips",
        deviations=(
            "the paper holds embeddings to be safe to share when a party has more than two "
            "columns, because infinitely many data have the same embedding; that excludes unique "
            "solutions of a linear map, is no bound on what they tell, and is not claimed here",
            "the batch's loss goes to the collaborator with the gradient, for the history",
            "r(theta) is |theta|^2 / 2 and lambda multiplies its gradient too, as in equation (1); "
            "line 5 of Algorithm 2 has no lambda",
            "q is given up at F <= q^(1/(1-q)), where the factor would fall below 1; the paper "
            "prints q^(1-q)",
            "in step, gradients of a round are applied one after the other, all of them computed "
            "with the same networks",
            "single: the collaborator serves one active party, which changes no number",
            "an active party's own gradient reaches its bottom network without its delay",
            "ours: patience and staleness for slow passive parties, a timeout for lost answers, "
            "q = 'auto', the measured pace, the bound on the amplification",
            "sizes of networks, the optimiser, momentum, initialisation and batches are ours",
        ),
    )

    def __init__(self, config: CvflConfig, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        M = data.parties
        if config.active is not None and config.active > M:
            raise ConfigurationError(
                f"cvfl: active = {config.active} parties hold labels, and there are {M}; use 1 to "
                f"{M}"
            )
        if config.q != "auto" and config.q < 1:
            raise ConfigurationError(f"cvfl: q = {config.q:g} must be at least 1, or 'auto'")
        if config.timeout is not None and config.mode == "sync":
            raise ConfigurationError(
                f"cvfl: timeout = {config.timeout:g} has no meaning in step, where nobody goes on "
                "without the others; leave it out, or use mode = 'async'"
            )
        if config.patience is None and config.staleness is not None:
            raise ConfigurationError(
                f"cvfl: staleness = {config.staleness} needs patience, the seconds after which "
                "stale embeddings are used"
            )
        self.holders = config.active or M
        wrong = [n for n in numbers(config.slow) if not 0 <= n < self.holders]
        if wrong:
            raise ConfigurationError(
                f"cvfl: slow = {config.slow!r}: party {wrong[0]} is none of the active parties 0 "
                f"to {self.holders - 1}"
            )
        refuse_running_statistics(self.name, config.centre, self.top().network)
        sets = partition_labels(config.label_partition, data.train_labels, self.holders, seed=seed)
        self.label_sets = sets[:1] if config.mode == "single" else sets
        self.unheld: tuple[int, ...] = ()
        if data.task != "regression":
            self.unheld = unheld_classes(data.train_labels, self.label_sets, data.test_labels)
        lost = np.intersect1d(self.unheld, data.train_labels)
        if len(lost):
            warnings.warn(
                f"cvfl: no active party has labels of {self.class_names(lost.tolist())}, which "
                "training and test rows have; they cannot be learnt",
                stacklevel=2,
            )
        self.card = replace(type(self).card, absence=self.absence())

    def class_names(self, classes: Sequence[int]) -> str:
        """Names of classes, for messages."""
        names = self.data.classes
        return "the classes " + ", ".join(names[k] if names else str(k) for k in classes)

    def absence(self) -> Literal["waits", "skips", "fills"]:
        """What a party that lags behind is to the others in this configuration."""
        passive = len(self.label_sets) < self.data.parties
        if self.config.patience is not None and (passive or self.config.mode != "sync"):
            return "fills"
        return "waits" if passive or self.config.mode == "sync" else "skips"

    def parties(self) -> dict[int, Party]:
        """The collaborator, L active and M - L passive parties."""
        active = len(self.label_sets)
        made: dict[int, Party] = {
            SERVER: Collaborator(self.peers(), active, self.top(), self.config)
        }
        together = active if self.config.mode == "sync" else 1
        for m in self.peers():
            network, features = self.client_network(m), self.data.train[m]
            if m < active:
                made[m] = self.active_party(m, network, together)
            else:
                made[m] = Holder(
                    m, self.peers(), features, network, batch=self.batch_rows, together=together
                )
        return made

    def active_party(self, index: int, network: ClientNetwork, together: int) -> Active:
        """Active party `index`; the first draws its batches as the server of `split` does."""
        own = self.label_sets[index]
        stream = functools.partial(_own_stream, self.seed, SERVER if index == 0 else index)
        return Active(
            index,
            self.peers(),
            self.data.train[index],
            network,
            own=own,
            labels=self.data.train_labels[own],
            batches=Batches(len(own), 1, self.config.batch, stream),
            top=self.top(),
            aggregation=self.aggregation,
            config=self.config,
            together=together,
        )

    def top(self) -> Centre:
        """New top network; equation (1) has no penalty on it.

        Its first weights are public: all active parties and the collaborator begin with the same.
        """
        centre = self.joint_centre(self.stream("centre"))
        for group in centre.optimizer.param_groups:
            group["weight_decay"] = 0.0
        return centre

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Algorithms 1 to 3; in step, top networks and the end come with the announcement."""
        config, passive = self.config, len(self.label_sets) < self.data.parties
        in_step = config.mode == "sync"
        slow = config.q != 1 and config.slow != "none"
        norms = MessageSpec(
            "penalty", "client", "active", "weights", source="Algorithm 2, line 10: r(theta_m)"
        )
        top = MessageSpec("top", "server", "active", "weights", source="Algorithm 3: w_0")
        end = last_word("passive" if in_step else "client")
        declared = (
            *[announcement("active", carries="weights", source="Algorithm 3: w_0")] * in_step,
            MessageSpec("request", "active", "client", "control", source="Algorithm 1, line 6"),
            MessageSpec(
                *("embedding", "client", "active", "embedding"),
                shape=lambda key: (self.rows_of(key.receiver), config.width),
                dtype="float32",
                row_by_row=True,
                source="Algorithm 2, line 8: h_m",
            ),
            *[norms] * slow,
            MessageSpec(
                *("gradient", "active", "client", "gradient"),
                shape=lambda key: (self.rows_of(key.sender), config.width),
                dtype="float32",
                row_by_row=True,
                source="Algorithm 1, line 13: dL/dh_m",
            ),
            MessageSpec(
                *("top_gradient", "active", "server", "weights"),
                source="Algorithm 1, line 14: dL/dw_0, and the loss",
            ),
            *[top] * (not in_step),
            *[end] * (passive or not in_step),
        )
        formulas: dict[str, Formula] = {
            ANNOUNCE: self.announced_weights,
            "request": self.request_at,
            "embedding": self.embedding_of_the_request,
            "penalty": lambda secrets, key: penalty(self.network_at(secrets, key)),
            "top": self.top_at,
            "stop": lambda secrets, key: None,
        }
        if config.patience is None:  # else it is chance which embeddings a launch has
            formulas |= {"gradient": self.launch_at, "top_gradient": self.launch_at}
        return with_formulas(declared, formulas)

    def network_at(
        self, secrets: RunSecrets, key: MessageKey, party: int | None = None
    ) -> ClientNetwork:
        """Bottom network of the sender when it sent the message."""
        network = self.client_network(key.sender if party is None else party)
        network.load_state_dict(secrets.state(key)["network"])
        return network

    def announced_weights(self, secrets: RunSecrets, key: MessageKey) -> Any:
        """In step: w_0 as the collaborator has it, or the end."""
        server = secrets.state(key)
        return "stop" if server["steps"] >= self.config.rounds else self._weights(server)

    def top_at(self, secrets: RunSecrets, key: MessageKey) -> Any:
        """w_0 after the receiver's update, and its pace."""
        server = secrets.state(key)
        most = int(server["updates"].max())
        pace = 1.0 if most < _GRACE else float(server["updates"][key.receiver]) / most
        return self._weights(server), pace

    def _weights(self, server: Mapping[str, Any]) -> Any:
        centre = self.top()
        centre.load_state_dict(server["centre"])
        return weights_of(centre)

    def rows_at(self, active: int, round: int) -> tuple[np.ndarray, np.ndarray]:
        """Places of a launch's batch among an active party's labels, and the rows themselves."""
        stream = functools.partial(_own_stream, self.seed, SERVER if active == 0 else active)
        own = self.label_sets[active]
        batches = Batches(len(own), 1, self.config.batch, stream)
        places = batches.samples(batches.draw(round))
        return places, own[places]

    def request_at(self, secrets: RunSecrets, key: MessageKey) -> tuple[np.ndarray, bool]:
        """Rows of the launch, and whether the active party is slow."""
        config, pace = self.config, float(secrets.state(key)["pace"])
        slow = config.q != 1 and config.slow != "none"
        if slow:
            measured = config.slow == "measured"
            slow = pace < _SLOW if measured else key.sender in numbers(config.slow)
        return self.rows_at(key.sender, key.round)[1], slow

    def embedding_of_the_request(
        self, secrets: RunSecrets, key: MessageKey
    ) -> tuple[np.ndarray, np.ndarray]:
        """h_m of the rows that were asked for."""
        rows, _ = secrets.sent("request", key.round)[key.receiver, key.sender]
        own = secrets.data(key.sender)["train"][rows]
        return rows, self.network_at(secrets, key).forward(own)

    def launch_at(self, secrets: RunSecrets, key: MessageKey) -> Any:
        """An active party's gradient for a bottom network, or of the top network (lines 6 to 14).

        From the embeddings that it was sent, and its networks when it asked for them.
        """
        active, others = key.sender, [n for n in self.peers() if n != key.sender]
        asked = MessageKey("request", key.round, active, others[0])
        (places, rows), state = self.rows_at(active, key.round), secrets.state(asked)
        own = self.network_at(secrets, asked, active)
        fresh = {active: own.forward(secrets.data(active)["train"][rows])}
        sent = secrets.sent("embedding", key.round)
        fresh |= {n: sent[n, active][1] for n in others}
        stale = LastEmbeddings(self.data.parties, 0, self.config.width)
        stack, present = stale.complete(fresh, places)
        top = self.top()
        load_weights(top, self._top_of(secrets, active, key.round, state))
        labels = secrets.data(SERVER)["train"][self.label_sets[active]]
        loss, gradient, weights = top.gradients(
            self.aggregation.combine(stack, present), places, labels
        )
        factor = 1.0
        if secrets.sent("request", key.round)[active, others[0]][1]:
            norms = {active: penalty(own)}
            norms |= {n: secrets.sent("penalty", key.round)[n, active] for n in others}
            factor = amplified(self.config, float(state["pace"]), loss, norms)
            if factor != 1:
                gradient = gradient * np.float32(factor)
                weights = {name: g * np.float32(factor) for name, g in weights.items()}
        if key.kind == "gradient":
            return rows, self.aggregation.gradient(gradient, stack, present, key.receiver)
        return loss, weights, {"factor": factor, "fresh": len(fresh), "known": 1.0}

    def _top_of(
        self, secrets: RunSecrets, active: int, round: int, state: Mapping[str, Any]
    ) -> Any:
        """w_0 with which an active party launched."""
        if self.config.mode == "sync":
            return secrets.sent(ANNOUNCE, round)[SERVER, active]
        top = self.top()
        top.load_state_dict(state["top"])
        return weights_of(top)

    def rows_of(self, active: int) -> int:
        """|B| of an active party, which may hold fewer labels than a batch has rows."""
        return int(min(self.config.batch, len(self.label_sets[active])))

    def named_rows(self, named: Any) -> np.ndarray | None:
        """Messages name training rows by their numbers."""
        return None if named is None else np.asarray(named, np.int64)

    def roles(self) -> dict[str, tuple[int, ...]]:
        """Active and passive parties are clients."""
        active = len(self.label_sets)
        return super().roles() | {
            "active": tuple(range(active)),
            "passive": tuple(range(active, self.data.parties)),
        }

    def describe(self) -> dict[str, Any]:
        """M, L, how many labels each active party has, and what a round is."""
        said: dict[str, Any] = {
            "M": self.data.parties,
            "L": len(self.label_sets),
            "labels_held": [len(own) for own in self.label_sets],
            "batch_rows": self.batch_rows,
            "round": "one update that an active party launched",
        }
        if self.unheld:
            said["classes_without_labels"] = list(self.unheld)
        return said

    def memory(self) -> int:
        """Bytes of all embeddings of the test rows, and of the stale ones with a checkpoint's."""
        stale = sum(map(len, self.label_sets)) * self.data.parties * (4 * self.config.width + 8)
        return super().memory() + (2 * stale if self.config.patience is not None else 0)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """None: embeddings are sent in the clear, and more than two columns do not change that."""
        clear = "embeddings are sent in the clear; 'secure if d > 2' is no guarantee"
        return (
            Claim("active parties", "features", "none", clear),
            Claim("active parties", "model", "none", clear),
            Claim("client", "labels", "none", "dL/dh depends on them"),
            Claim("server", "labels", "none", "the gradient of the top network depends on them"),
            Claim("server", "features", "none", "the gradient of the top network is the embeddings "
                  "times its errors"),
            Claim("server", "model", "none", "it holds the top network"),
        )  # fmt: skip


def _own_stream(seed: int, entity: int, name: str, *keys: int) -> np.random.Generator:
    """An active party's layout and order of its rows: public, for its requests name them to all."""
    return keyed_stream(seed, entity, f"train/{name}", *keys)
