"""The protocol class of CVFL: card, options, parties, messages and claims."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from securevfl.data.label_partition import partition_labels, told_by_rows, unheld_classes
from securevfl.engine.party import SERVER, Party
from securevfl.errors import SecureVFLWarning
from securevfl.models.split import Batches, Centre
from securevfl.models.weights import refuse_running_statistics
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.embedding import EmbeddingProtocol
from securevfl.protocols.base.messages import MessageSpec, announcement, last_word
from securevfl.protocols.base.open_embeddings import FIELD
from securevfl.protocols.base.split import batch_stream
from securevfl.protocols.cvfl.algorithm import ActiveParty, Collaborator, PassiveParty
from securevfl.protocols.cvfl.ideal import Ideal
from securevfl.protocols.cvfl.parameters import CvflConfig, check_options
from securevfl.verified import Provable, World

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


class Cvfl(Provable, EmbeddingProtocol):
    """CVFL on one data set: `--parties` is M, and the first L = `active` of them hold labels."""

    name = "cvfl"
    ideal_repeats = False
    Config = CvflConfig
    field = FIELD
    traced_options: ClassVar[dict[str, Any]] = {"rounds": 3, "batch": 2, "width": 2, "hidden": 2}
    fault_options: ClassVar[dict[str, Any]] = {"patience": 1.0}
    card = Card(
        title="CVFL: labels held by several parties",
        paper="Xia, Li, Zhang, Wu, Yuan, A Vertical Federated Learning Framework for Horizontally "
        "Partitioned Labels, 2021",
        roles={
            "active party": "holds some columns, the labels of some rows, a bottom model and a "
            "copy of the top model; launches updates",
            "passive party": "holds some columns and a bottom model; answers active parties",
            "collaborator": "steps the common top model; holds no data",
        },
        sees={
            "active party": "every party's embedding of each of its labelled rows, exactly and "
            "again in every epoch; the top model; if it is slow and q > 1 the values r(theta_m), "
            "the norms of all bottom models; dL/dh of its own embedding from the others, which "
            "depends on their labels; which rows the others have labels of, and its own pace",
            "passive party": "which rows each active party has labels of, and dL/dh of its own "
            "embedding, which depends on the labels",
            "collaborator": "the gradient of the top model of every batch, from which the labels "
            "of a small batch can often be read, the loss of each batch, who is slow, and how many "
            "embeddings each batch had",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="skips",
        deviations=(
            "the paper takes embeddings to be safe to share when a party has more than two "
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
            "an active party's own gradient reaches its bottom model without its delay",
            "a slow party's delay stands between computing a gradient and its arrival, so that its "
            "gradients are as old as that when they are used; the paper does not say where it is",
            "section 5.5 proposes, without a trial, to use stale embeddings of slow passive "
            "parties once a certain number have come; here they are used after patience seconds, "
            "up to an age of staleness: both are ours",
            "ours: a timeout for lost answers, q = 'auto', the measured pace, the bound on the "
            "amplification",
            "sizes of networks, the optimiser, momentum, initialisation and batches are ours",
        ),
    )

    scales_targets = False
    no_class_weights = (
        "each active party has labels of its own rows, and none counts the classes of all"
    )

    def __init__(self, config: CvflConfig, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        L = config.active or data.parties
        refuse_running_statistics(self.name, config.centre, self.top().network)
        sets = partition_labels(config.label_partition, data.train_labels, L, seed=seed)
        self.label_sets = sets[:1] if config.mode == "single" else sets
        self.unheld: tuple[int, ...] = ()
        if data.task != "regression":
            self.unheld = unheld_classes(data.train_labels, self.label_sets, data.test_labels)
        lost = np.intersect1d(self.unheld, data.train_labels)
        if len(lost):
            warnings.warn(
                f"cvfl: no active party has labels of {self.class_names(lost.tolist())}, which "
                "training and test rows have; they cannot be learnt",
                SecureVFLWarning,
                stacklevel=2,
            )
        self.card = replace(type(self).card, absence=self.absence())

    @classmethod
    def check_parties(cls, config: CvflConfig, parties: int) -> None:
        """Raise ConfigurationError for options that contradict or do not fit M parties."""
        super().check_parties(config, parties)
        check_options(config, parties)

    def class_names(self, classes: Sequence[int]) -> str:
        """Phrase for classes in a warning, such as "the classes 7, 8"."""
        names = self.data.classes
        return "the classes " + ", ".join(names[k] if names else str(k) for k in classes)

    def absence(self) -> Literal["waits", "skips", "fills"]:
        """Behaviour of the other parties while one is late, in this configuration."""
        passive = len(self.label_sets) < self.data.parties
        if self.config.patience is not None and (passive or self.config.mode != "sync"):
            return "fills"
        return "waits" if passive or self.config.mode == "sync" else "skips"

    def parties(self) -> dict[int, Party]:
        """The collaborator, L active and M - L passive parties."""
        collaborator = Collaborator(
            self.peers(), range(len(self.label_sets)), self.top(), self.config
        )
        return {SERVER: collaborator} | {m: self.data_party(m) for m in self.peers()}

    def data_party(self, index: int) -> PassiveParty:
        """Party `index`, counted from 0; the first L are active."""
        active = len(self.label_sets)
        in_step = self.config.mode == "sync"
        gradients = active if in_step else 1
        strict = in_step and self.config.patience is None
        network, features = self.client_network(index), self.data.train[index]
        given: dict[str, Any] = {"gradients_per_step": gradients, "strict": strict}
        given["width"] = self.config.width
        if index >= active:
            return PassiveParty(index, self.peers(), self.layout, features, network, **given)
        labelled_rows = self.label_sets[index]
        labels = np.full_like(self.data.train_labels, -1)
        labels[labelled_rows] = self.data.train_labels[labelled_rows]
        return ActiveParty(
            *(index, self.peers(), self.batches_of(index), features, network),
            labelled_rows=labelled_rows,
            labels=labels,
            top=self.top(),
            aggregation=self.aggregation,
            config=self.config,
            **given,
        )

    def batches_of(self, active: int) -> Batches:
        """Batches of an active party; those of party 0 equal the batches of `split`'s server.

        They are public: the requests name their rows to all parties.
        """
        entity = SERVER if active == 0 else active
        stream = functools.partial(batch_stream, self.seed, entity, "train")
        return Batches(len(self.label_sets[active]), 1, self.config.batch, stream)

    def top(self) -> Centre:
        """New top model, without a penalty, as in equation 1.

        Its first weights are public: all active parties and the collaborator begin with the same.
        """
        centre = self.joint_centre(self.stream("centre"))
        for group in centre.optimizer.param_groups:
            group["weight_decay"] = 0.0
        return centre

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Requests, embeddings and gradients of Algorithms 1 and 2, top models of Algorithm 3.

        In mode "sync", top models and the end of the run are parts of the announcement.
        """
        config, in_step = self.config, self.config.mode == "sync"
        has_passive = len(self.label_sets) < self.data.parties

        def batch_of(active: int) -> tuple[int, int]:
            return min(config.batch, len(self.label_sets[active])), int(config.width)

        return (
            *[announcement("active", carries="weights", source="Algorithm 3, line 4")] * in_step,
            MessageSpec("request", "active", "client", "control", source="Algorithm 1, line 6"),
            MessageSpec(
                *("embedding", "client", "active", "embedding"),
                shape=lambda key: batch_of(key.receiver),
                dtype="float32",
                row_by_row=True,
                source="Algorithm 1, line 7: h_m",
            ),
            *[
                MessageSpec(
                    *("penalty", "client", "active", "weights"),
                    source="Algorithm 1, line 9: r(theta_m)",
                )
            ]
            * (config.q != 1 and config.slow != "none"),
            MessageSpec(
                *("gradient", "active", "client", "gradient"),
                shape=lambda key: batch_of(key.sender),
                dtype="float32",
                row_by_row=True,
                source="Algorithm 1, line 12: dF_l/dh_m",
            ),
            MessageSpec(
                *("top_gradient", "active", "server", "weights"),
                source="Algorithm 1, line 14: dF_l/dw_0, and the loss",
            ),
            *[MessageSpec("top", "server", "active", "weights", source="Algorithm 3, line 4: w_0")]
            * (not in_step),
            *[last_word("passive" if in_step else "client")] * (has_passive or not in_step),
        )

    def coalitions(self) -> tuple[frozenset[int], ...]:
        """Coalitions to prove: each party, and all active ones; both also with the collaborator."""
        active = frozenset(self.roles()["active"])
        some = [active, active | {SERVER}] if 1 < len(active) < self.data.parties else []
        return (*super().coalitions(), *some)

    def colluders(self) -> int:
        """Number of colluding clients: 1, since more learn nothing that one does not."""
        return 1

    def ideal(self, world: World) -> None:
        """Declare outputs: all values sent, such as h_m, gradients, w_0, losses and factors."""
        world.faults += filter(None, [told_by_rows(self.config.label_partition)])
        ideal = Ideal(world, self)
        if self.config.mode == "sync":
            ideal.in_step()
        else:
            ideal.in_order_of_arrival()

    def named_rows(self, named: Any) -> np.ndarray | None:
        """Training rows that a message names by their numbers."""
        return None if named is None else np.asarray(named, np.int64)

    def roles(self) -> dict[str, tuple[int, ...]]:
        """Numbers of the parties by role; active and passive parties are clients, too."""
        active = len(self.label_sets)
        return super().roles() | {
            "active": tuple(range(active)),
            "passive": tuple(range(active, self.data.parties)),
        }

    def describe(self) -> dict[str, Any]:
        """Figures for summaries: M, L, labels of each active party; event counted as a round."""
        described: dict[str, Any] = {
            "M": self.data.parties,
            "L": len(self.label_sets),
            "labels_held": [len(own) for own in self.label_sets],
            "batch_rows": self.batch_rows,
            "round": "one update that an active party launched",
        }
        if self.unheld:
            described["classes_without_labels"] = list(self.unheld)
        return described

    def memory(self) -> int:
        """Bytes of all test embeddings and of stale ones, twice for a checkpoint."""
        stale = sum(map(len, self.label_sets)) * self.data.parties * (4 * self.config.width + 8)
        return super().memory() + (2 * stale if self.config.patience is not None else 0)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Claims of no protection: embeddings are sent unencrypted."""
        clear = "embeddings are sent in the clear; 'secure if d > 2' is no guarantee"
        return (
            Claim("active parties", "features", "none", clear),
            Claim("active parties", "model", "none", clear),
            Claim("client", "labels", "none", "dL/dh depends on them"),
            Claim("server", "labels", "none", "the gradient of the top model depends on them"),
            Claim("server", "features", "none", "the gradient of the top model is the embeddings "
                  "times its errors"),
            Claim("server", "model", "none", "it holds the top model"),
        )  # fmt: skip
