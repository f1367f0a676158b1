"""The protocol class of secure aggregation: card, options, parties, messages and claims."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from securevfl.engine.party import Party
from securevfl.errors import ConfigurationError
from securevfl.field import LagrangeCode
from securevfl.field.cohorts import TOLD_APART
from securevfl.privacy.claims import SUMS, Claim, given_sums
from securevfl.privacy.released_equations import LAW
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.messages import SELF, MessageSpec, in_rounds, in_setup, with_history
from securevfl.protocols.base.schedule import Needs, Outline, Shape
from securevfl.protocols.base.summed_parties import SummedEmbeddings, usual_of
from securevfl.protocols.secagg_split.algorithm import Client, Server
from securevfl.protocols.secagg_split.covert import FULLER
from securevfl.protocols.secagg_split.parameters import (
    Parameters,
    SecAggConfig,
    cohorts_for,
    thresholds,
)
from securevfl.protocols.secagg_split.schedule import needs_of, outline_of
from securevfl.verified import Schedule, World


class SecAggSplit(SummedEmbeddings):
    """Split learning with secure aggregation on one data set."""

    name = "secagg_split"
    Config = SecAggConfig
    client_kind, server_kind = Client, Server
    fault_options: ClassVar[dict[str, Any]] = {
        "share_timeout": 60.0,
        "result_timeout": 60.0,
        "cohorts": 0,  # few clients are one cohort, and none of them can be spared
    }
    card = Card(
        title="Split learning with secure aggregation",
        paper="Bonawitz et al., Practical Secure Aggregation, CCS 2017, Figure 4",
        roles={
            "server": "holds the labels and the server model; learns sums over the survivors",
            "client": "holds some columns and a network; masks its embedding, holds shares of the "
            "others' seeds and keys",
        },
        sees={
            "server": "the exact sum of the survivors' quantised embeddings of every batch, and "
            "who shared, survived and opened; seeds of survivors, keys of the dropped, of that "
            f"round only. {LAW}. Whoever knows the secret seed of a simulation needs fewer. With "
            "SGD and networks that are linear in their weights the sums of the same survivors and "
            "its own gradients give X X^T of columns and powers, as in FedVS",
            "client": "shares of seeds and keys, of which fewer than t say nothing; who survived; "
            "dL/dH and the batches",
            "server + t clients": "every client's embedding",
            "outsider": "kinds, sizes and times; without sealed links the shares, and with them "
            "everything",
        },
        absence="tolerates",
        deviations=(
            "rounds 0 and 1 are one message over the clients' own sealed links, which stand for "
            "the keys c_u and the encryption of the shares; the server relays nothing of them",
            "keys and seeds are fresh in every round of training; nothing outlives a round",
            "the modulus is a prime, and seeds are shared in limbs over the same field",
            "round 3 signs U2 and U3 and asks for 2t > N + T; without it the server is trusted to "
            "name one set of survivors",
            "round 4 takes the first t openings; sharing is delayed as FedVS's sharing of models "
            "is, though it is far less work",
            "survivors are whole cohorts (ours), fixed groups of at least T+2 clients, and clients "
            "open no other sum; of the differences of such sums nothing is claimed. cohorts=0 sums "
            f"the first survivors, as the paper does: {TOLD_APART}",
            "security = covert (ours): the server signs what it tells, and clients compare it, and "
            "sign no second sum of rows over others before a gradient (docs/active.md). No claim "
            "here is about that, or about clients that lie",
            "a client whose value could wrap stops the run, which reveals one bit about its data, "
            "and to a cluster's driver how large it is",
            "evaluation uses the clients that survived most often, as many as the quorum",
            "h, the optimiser, initialisation and batch order are ours, as in FedVS",
        ),
    )

    def schedules(self) -> tuple[Schedule, ...]:
        """The usual schedules of late and lost parties for a proof."""
        return usual_of(self)

    def __init__(self, config: SecAggConfig, data: Any, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        t, quorum = thresholds(config, data.parties)
        code = {"parties": data.parties, "segments": 1, "privacy": t - 1, "degree": 1}
        self.public = Parameters(
            shamir=LagrangeCode(self.field, **code),
            quorum=quorum,
            privacy=config.privacy,
            consistency=config.signs,
            covert=config.security == "covert",
            cohorts=cohorts_for(config, data.parties, quorum),
        )
        # Who is away takes its cohort along.
        if data.parties - max(map(len, self.public.cohorts.groups)) < quorum:
            self.card = replace(type(self).card, absence="waits")

    @classmethod
    def check_parties(cls, config: SecAggConfig, parties: int) -> None:
        """Raise ConfigurationError for too few clients (t, quorum), or a prime below 2^16."""
        super().check_parties(config, parties)
        cohorts_for(config, parties, thresholds(config, parties)[1])
        if config.prime < 2**16:
            raise ConfigurationError(
                f"secagg_split: prime = {config.prime} leaves no room for quantised sums; use at "
                "least 2^16, such as 2^31 - 1"
            )

    @classmethod
    def outline(cls, config: SecAggConfig, shape: Shape) -> Outline | None:
        """Message schedule of a run; None where it is chance who shares."""
        return outline_of(config, shape)

    @classmethod
    def needs(cls, config: SecAggConfig, shape: Shape) -> Needs:
        """Numbers for the planner: t, the quorum and memory."""
        return needs_of(config, shape)

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Message declarations: Figure 4's between the announcement and the gradient."""
        p = self.field.modulus
        batch, upload, gradient = super().messages
        up, down = ("client", "server"), ("server", "client")
        keys: dict[str, Any] = {"count": in_rounds}
        named: dict[str, Any] = {"public": True, "count": in_rounds}
        identity = MessageSpec("identity", "client", "client", "key", public=True, count=in_setup)
        signed = (
            MessageSpec("signature", *up, "key", **keys, source="round 3"),
            MessageSpec("signatures", *down, "key", **keys, source="round 3"),
        )
        consistency, covert = self.config.signs, self.public.covert
        upload = replace(upload, shape=None, dtype="") if covert else upload  # of fewer rows
        every = (
            *[identity] * (consistency and not covert),
            batch,
            MessageSpec("secret", "client", SELF, "key", **keys, source="s_u^SK, b_u"),
            MessageSpec("deal", "client", "client", "key", **keys, source="rounds 0, 1", modulus=p),
            MessageSpec("shared", *up, "key", public=True, **keys, source="round 0: s_u^PK"),
            MessageSpec("sharers", *down, "control", **named, source="round 1: U2"),
            replace(upload, source="round 2: y_u"),
            MessageSpec("survivors", *down, "control", **named, source="round 2: U3"),
            *signed * consistency,
            MessageSpec("opening", *up, "key", **keys, source="round 4", modulus=p),
            *[MessageSpec("summed", *down, "control", **named, source="U2 and U3")] * covert,
            gradient,
        )
        return with_history(every, *FULLER) if covert else every

    def summed(self, world: World) -> Mapping[int, Sequence[int]]:
        """Survivors U3, whose embeddings are summed, in each round that named them."""
        return world.told("survivors")

    def server(self) -> Server:
        """Create the server."""
        made: Server = self.made_server(self.public, self.config)
        return made

    def client(self, index: int) -> Client:
        """Create client `index`, counted from 0."""
        made: Client = self.made_client(index, self.public)
        return made

    def evaluated(self, parties: Mapping[int, Party]) -> Collection[int]:
        """Clients for evaluation: the quorum that survived most often, or all."""
        return self.most_used(parties, self.public.quorum)

    def describe(self) -> dict[str, Any]:
        """Numbers for summaries: N, T, t, the quorum, p and |B|."""
        return {
            "N": self.data.parties,
            "T": self.config.privacy,
            "t": self.public.threshold,
            "quorum": self.public.quorum,
            "p": self.field.modulus,
            "consistency": self.config.signs,
            "batch_rows": self.batch_rows,
        }

    @property
    def told_apart(self) -> str:
        """Warning if sums over changing survivors reveal single clients, for lack of cohorts."""
        changing = self.public.quorum < self.data.parties
        return TOLD_APART if changing and self.config.cohorts == 0 else ""

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Claims of Bonawitz et al., Theorems 6.2 and 6.3, given the sums and sound primitives."""
        why = (
            "Bonawitz et al. 2017, Theorem {}, honest but curious, T < t: given the sums over the "
            "survivors, under X25519, HKDF-SHA256 and AES-256-CTR; not over dL/dH"
        ) + (f"; {self.told_apart}" if self.told_apart else "")
        hidden = tuple(
            Claim(
                who,
                about,
                "computational",
                why.format(theorem),
                given=(SUMS,) if "server" in who else (),
            )
            for who, theorem in (
                ("server", "6.3"),
                ("T clients", "6.2"),
                ("server + T clients", "6.3"),
            )
            for about in ("features", "model")
        )
        told = Claim("client", "labels", "none", "dL/dH depends on them")
        return given_sums((*hidden, told), self.released())
