"""Secure aggregation as the library sees it: card, options, parties, messages and claims."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from securevfl.engine.party import ANNOUNCE, SERVER, Party
from securevfl.errors import (
    ConfigurationError,
    PrivacyError,
)
from securevfl.field import FixedPoint, LagrangeCode, PrimeField
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.messages import (
    SELF,
    Draw,
    Formula,
    Hypothesis,
    MessageKey,
    MessageSpec,
    RunSecrets,
    in_rounds,
    in_setup,
    with_formulas,
)
from securevfl.protocols.base.split import EmbeddingProtocol
from securevfl.protocols.secagg_split.algorithm import (
    Client,
    Pairing,
    Server,
    pair_masks,
)
from securevfl.protocols.secagg_split.parameters import (
    SEED,
    Deal,
    Opening,
    Parameters,
    SecAggConfig,
)
from securevfl.protocols.secagg_split.signatures import (
    signing_key,
    survivors_statement,
    verifying_key,
)

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


class SecAggSplit(EmbeddingProtocol):
    """Split learning with secure aggregation on one data set."""

    name = "secagg_split"
    apart = True
    Config = SecAggConfig
    fault_options: ClassVar[dict[str, Any]] = {"share_timeout": 60.0, "result_timeout": 60.0}
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
            "round only",
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
            "sums over changing survivors differ by few clients, in batches and in models; nothing "
            "is claimed about their differences",
            "a client whose value could wrap stops the run, which reveals one bit about its data",
            "evaluation uses the clients that survived most often, as many as the quorum",
            "h, the optimiser, initialisation and batch order are ours, as in FedVS",
        ),
    )

    def __init__(self, config: SecAggConfig, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        N, T = data.parties, config.privacy
        least = (N + T) // 2 + 1 if config.consistency else T + 1
        t = config.threshold or least
        quorum = config.quorum or max(N - N // 2, t, T + 2)
        if t < least:
            what = "round 3 needs 2t > N + T" if config.consistency else "t must exceed T"
            raise PrivacyError(
                f"secagg_split: threshold = {t} with N = {N} and T = {T}: {what}. Use at least "
                f"{least}"
            )
        if quorum > N or quorum < max(t, T + 2):
            raise PrivacyError(
                f"secagg_split: {quorum} survivors of N = {N} clients with T = {T} and t = {t}: at "
                f"least max(t, T+2) = {max(t, T + 2)} must survive, and at most N. Lower privacy "
                "or threshold, set quorum, or add clients"
            )
        prime = PrimeField(config.prime)
        if config.prime < 2**16:
            raise ConfigurationError(
                f"secagg_split: prime = {config.prime} leaves no room for quantised sums; use at "
                "least 2^16, such as 2^31 - 1"
            )
        self.public = Parameters(
            shamir=LagrangeCode(prime, parties=N, segments=1, privacy=t - 1, degree=1),
            point=FixedPoint(prime, bits=config.bits),
            quorum=quorum,
            privacy=T,
            consistency=config.consistency,
            width=config.width,
        )

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Figure 4, round by round, between the announcement and the gradient."""
        batch, upload, gradient = self.step_messages("masked_result", self.public.field.dtype.name)
        p = self.public.field.modulus
        identity = MessageSpec("identity", "client", "client", "key", public=True, count=in_setup)
        signed = (
            MessageSpec("signature", "client", "server", "control", count=in_rounds),
            MessageSpec("signatures", "server", "client", "control", count=in_rounds),
        )
        consistency = self.config.consistency
        declared = (
            *[identity] * consistency,
            batch,
            MessageSpec("secret", "client", SELF, "key", count=in_rounds, source="s_u^SK, b_u"),
            MessageSpec(
                *("deal", "client", "client", "key"),
                count=in_rounds,
                source="rounds 0, 1",
                modulus=p,
            ),
            MessageSpec(
                *("shared", "client", "server", "key"),
                public=True,
                count=in_rounds,
                source="round 0: s_u^PK",
            ),
            MessageSpec(
                *("sharers", "server", "client", "control"),
                public=True,
                count=in_rounds,
                punctual=True,
                source="round 1: U2",
            ),
            replace(upload, source="round 2: y_u", modulus=p),
            MessageSpec(
                *("survivors", "server", "client", "control"),
                public=True,
                count=in_rounds,
                punctual=True,
                source="round 2: U3",
            ),
            *[replace(one, source="round 3") for one in signed] * consistency,
            MessageSpec(
                *("opening", "client", "server", "key"),
                count=in_rounds,
                source="round 4",
                modulus=p,
            ),
            gradient,
        )
        return with_formulas(declared, self.formulas())

    def formulas(self) -> dict[str, Formula]:
        """Formula of each kind of message, from the keys, seeds and inputs of all clients."""
        return {
            ANNOUNCE: self.announced_at,
            "identity": lambda secrets, key: verifying_key(secrets.state(key)["identity"]),
            "deal": self.deal_at,
            "shared": lambda secrets, key: self.pairing_at(secrets, key.sender, key.round).public,
            "sharers": lambda secrets, key: tuple(
                sorted(n for n, _ in secrets.sent("shared", key.round))
            ),
            "embedding": self.masked_at,
            "survivors": lambda secrets, key: tuple(
                sorted(n for _, n in secrets.sent("gradient", key.round))
            ),
            "signature": self.signature_at,
            "signatures": lambda secrets, key: {
                n: one for (n, _), one in sorted(secrets.sent("signature", key.round).items())
            },
            "opening": self.opening_at,
            "gradient": self.gradient_of_the_sum,
        }

    def hypotheses(self, secrets: RunSecrets) -> tuple[Hypothesis, ...]:
        """Keys and seeds of one use, thresholds, and openings of only one secret of a client."""
        public, T = self.public, self.config.privacy
        rounds = range(1, self.config.rounds + 1)
        drawn = [pair for r in rounds for pair in secrets.sent("secret", r).values()]
        values = [value for pair in drawn for value in pair]
        sizes = [len(one) for r in rounds for one in secrets.sent("survivors", r).values()]
        openings = [one for r in rounds for one in secrets.sent("opening", r).values()]
        return (
            Hypothesis(
                f"the {len(values)} keys and seeds of all clients and rounds are different",
                0 < len(set(values)) == len(values),
            ),
            Hypothesis(
                f"t = {public.threshold} shares rebuild a seed, more than T = {T}",
                public.threshold > T,
            ),
            Hypothesis(
                f"{min(sizes, default=0)} survivors or more are summed, and max(t, T+2) = "
                f"{public.needed} are needed",
                min(sizes, default=0) >= public.needed,
            ),
            Hypothesis(
                f"in {len(openings)} openings no client reveals shares of both secrets of another",
                not any(set(one.seeds) & set(one.secrets) for one in openings),
            ),
        )

    def pairing_at(self, secrets: RunSecrets, client: int, round: int) -> Pairing:
        """Key agreement of a client in a round, with the key that it drew."""
        return Pairing(client, round, secrets.sent("secret", round)[client, client][0])

    def deal_at(self, secrets: RunSecrets, key: MessageKey) -> Deal:
        """s_u^PK, and the receiver's shares of s_u^SK and b_u.

        Their polynomials have degree t - 1 and these constants, so t - 1 shares of other clients
        fix the share of this one.
        """
        shamir, sent = self.public.shamir, secrets.sent("deal", key.round)
        secret, seed = secrets.sent("secret", key.round)[key.sender, key.sender]
        limbs = [*self.public.split(secret), *self.public.split(seed)]
        constants = self.public.field.elements([limbs])
        others = [n for n in self.peers() if n != key.receiver][: shamir.privacy]
        deals = [sent[key.sender, n] for n in others]
        shares = np.stack([np.concatenate([one.secret, one.seed]) for one in deals])
        field = self.public.field
        known = field.matmul(shamir.data_matrix[others], constants)
        masks = field.matmul(field.inv(shamir.mask_matrix[others]), field.subtract(shares, known))
        row = shamir.encode(constants, masks=masks)[key.receiver]
        half = len(limbs) // 2
        own = self.pairing_at(secrets, key.sender, key.round).public
        return Deal(own, row[:half], row[half:])

    def masked_at(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """y_u = x_u + PRG(b_u) + sum over U2 of +-PRG(s_{u,v})."""
        x = self.upload(secrets, key.sender, key.round)
        sharers = secrets.sent("sharers", key.round)[SERVER, key.sender]
        deals = secrets.sent("deal", key.round)
        keys = {v: deals[v, key.sender].key for v in sharers}
        seed = secrets.sent("secret", key.round)[key.sender, key.sender][1]
        pairing = self.pairing_at(secrets, key.sender, key.round)
        own = self.public.field.add(x, self.public.stream(seed, x.shape))
        masked: np.ndarray = self.public.field.add(
            own, pair_masks(self.public, pairing, keys, x.shape)
        )
        return masked

    def signature_at(self, secrets: RunSecrets, key: MessageKey) -> bytes:
        """Ed25519 signature of U2 and U3, in this run and incarnation."""
        sharers = secrets.sent("sharers", key.round)[SERVER, key.sender]
        survivors = secrets.sent("survivors", key.round)[SERVER, key.sender]
        state, own = secrets.state(key), (key.sender, key.sender)
        pairing = secrets.sent("deal", key.round)[own].key
        named = survivors_statement(state["verifiers"], key.round, sharers, survivors, pairing)
        signature: bytes = signing_key(state["identity"]).sign(named)
        return signature

    def opening_at(self, secrets: RunSecrets, key: MessageKey) -> Opening:
        """Shares of b_v for v in U3, of s_v^SK for v in U2 but not in U3."""
        survivors = secrets.sent("survivors", key.round)[SERVER, key.sender]
        deals = secrets.sent("deal", key.round)
        own = {v: deals[v, key.sender]
               for v in secrets.sent("sharers", key.round)[SERVER, key.sender]}  # fmt: skip
        return Opening(
            seeds={v: deal.seed for v, deal in own.items() if v in survivors},
            secrets={v: deal.secret for v, deal in own.items() if v not in survivors},
        )

    def gradient_of_the_sum(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """dL/dH of the mean over U3, whose sum the server must have found exactly."""
        survivors = secrets.sent("survivors", key.round)[SERVER, key.receiver]
        total = self.ideal_output(secrets, MessageKey("opening", *key[1:]))
        return self.gradient_at(secrets, key, self.public.point.dequantize(total) / len(survivors))

    @property
    def draws(self) -> tuple[Draw, ...]:
        """Signing key, s_u^SK, b_u, and the polynomials that share the last two.

        They are 32 bytes each, and field elements. s_{u,v} follows from s_u^SK and s_v^PK, and
        both kinds of pairwise mask from s_{u,v} and b_u: they are computed, not drawn.
        """
        later = ("deal", "embedding", "opening")
        limbs = 2 * len(self.public.split(bytes(SEED)))
        polynomials = (self.public.threshold - 1, limbs)
        identity = Draw("identity", "client", _in_setup(SEED), ("identity", "signature"), "uint8")
        return (
            *[identity] * self.config.consistency,
            Draw("s_u^SK", "client", _in_rounds(SEED), ("shared", *later), "uint8"),
            Draw("b_u", "client", _in_rounds(SEED), later, "uint8"),
            Draw("shares", "client", _in_rounds(*polynomials), ("deal", "opening")),
        )

    def ideal_output(self, secrets: RunSecrets, key: MessageKey) -> Any:
        """Sum of x_u over U3, which uploads and openings reveal to the server; else None."""
        if key.kind not in ("embedding", "opening"):
            return None
        named = secrets.sent("survivors", key.round)
        survivors = next(iter(named.values()), ())
        inputs = [self.upload(secrets, u, key.round) for u in survivors]
        return functools.reduce(self.public.field.add, inputs) if inputs else None

    def upload(self, secrets: RunSecrets, client: int, round: int) -> np.ndarray:
        """x_u of a round, from a client's rows and its network in that round."""
        key = MessageKey("embedding", round, client, SERVER)
        return self.public.point.quantize(self.embedding_at(secrets, key))

    def parties(self) -> dict[int, Party]:
        """The server and N clients."""
        server = Server(
            self.peers(),
            self.layout,
            self.aggregation,
            self.joint_centre(),
            self.data.train_labels,
            self.public,
            self.config,
            max_steps=self.config.rounds,
        )
        return {SERVER: server} | {n: self.client(n) for n in self.peers()}

    def client(self, index: int) -> Client:
        """Client `index`, from 0."""
        network, features = self.client_network(index), self.data.train[index]
        return Client(index, self.peers(), self.layout, features, network, self.public)

    def evaluated(self, parties: Mapping[int, Party]) -> Collection[int]:
        """All clients, or those that survived most often, the lowest first among equals."""
        if self.config.inference == "all":
            return self.peers()
        return self.most_used(parties, self.public.quorum)

    def describe(self) -> dict[str, Any]:
        """N, T, t, the quorum, p and |B|."""
        return {
            "N": self.data.parties,
            "T": self.config.privacy,
            "t": self.public.threshold,
            "quorum": self.public.quorum,
            "p": self.public.field.modulus,
            "consistency": self.config.consistency,
            "batch_rows": self.batch_rows,
        }

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Bonawitz et al., Theorems 6.2 and 6.3: given the sums, if the primitives hold."""
        why = (
            "Bonawitz et al. 2017, Theorem {}, honest but curious, T < t: given the sums over the "
            "survivors, under X25519, HKDF-SHA256 and AES-256-CTR; not over dL/dH"
        )
        hidden = tuple(
            Claim(who, about, "computational", why.format(theorem))
            for who, theorem in (
                ("server", "6.3"),
                ("T clients", "6.2"),
                ("server + T clients", "6.3"),
            )
            for about in ("features", "model")
        )
        return (*hidden, Claim("client", "labels", "none", "dL/dH depends on them"))


def _in_setup(*shape: int) -> Callable[[int, int], tuple[int, ...] | None]:
    """Shape of a draw that is made once."""
    return lambda party, round: None if round else shape


def _in_rounds(*shape: int) -> Callable[[int, int], tuple[int, ...] | None]:
    """Shape of a draw that is made anew in each round."""
    return lambda party, round: shape if round else None
