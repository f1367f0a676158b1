"""Split learning with an embedding of each client, and rules for embeddings that do not come.

FedVS, section 2.1 and its baselines Wait and Ignore: every round each client sends its embedding
H_n of the batch, the server aggregates those that it uses (mean, concatenation or maximum), steps
the server model and returns dL/dH_n to each of them. With the same seed it draws the same rows,
batches and initial weights as FedVS. With ``quantized=True`` it computes on the de-quantised data
and weights of FedVS, so that mean and waiting give a history equal to FedVS's number for number.

DVFL, section 6, gives a round a timeout. After that the round is dropped (SplitNN-skip), or
missing embeddings are replaced: by zeros (-zeros), by the client's last message, which was of other
rows (-buffer), or, ours, by the last ones of the same rows or a moving average of the client's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from securevfl.engine.party import ANNOUNCE, SERVER, Party
from securevfl.errors import ConfigurationError, RangeError, RunError
from securevfl.field import FixedPoint, PrimeField
from securevfl.models.client_networks import ClientNetwork
from securevfl.models.imputation import IMPUTATIONS, Imputation, make_imputation
from securevfl.models.polynomial_network import PolynomialNetwork, expand
from securevfl.models.split import rows_of
from securevfl.privacy.claims import OPEN_EMBEDDINGS, Claim
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.embedding import EmbeddingProtocol
from securevfl.protocols.base.messages import (
    Formula,
    MessageKey,
    MessageSpec,
    RunSecrets,
    with_formulas,
)
from securevfl.protocols.base.options import SegmentedConfig
from securevfl.protocols.base.split_parties import SplitClient, SplitServer
from securevfl.protocols.base.split_step import JointEmbedding, SplitStep, aggregated

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


class SplitConfig(SegmentedConfig):
    """Options of split learning."""

    stragglers: Literal["wait", "ignore", "skip", "zeros", "buffer", "message", "mean"] = Field(
        "wait",
        description=(
            "What the server does about stragglers, clients that are late: wait for every "
            "client; ignore all but the first (see quorum); or, after the timeout, skip the"
            " round, or put zeros, the rows' last embeddings (buffer), the client's last message,"
            " of whatever rows (message), or its running mean (mean) in place of what is missing."
        ),
    )
    timeout: float | None = Field(
        None,
        gt=0,
        description=(
            "Seconds for which a round waits for embeddings. It is needed with stragglers ="
            " skip, zeros, buffer, message or mean. Default: none."
        ),
    )
    quorum: int | None = Field(
        None,
        ge=1,
        description="Number of embeddings used with stragglers = ignore. Default: N - floor(N/2).",
    )
    inference: Literal["responders", "all"] = Field(
        "responders",
        description=(
            "Whose embeddings the evaluation uses with stragglers = ignore: those of the "
            "clients used most often in training (as many as the quorum), or all."
        ),
    )
    quantized: bool = Field(
        False, description="Whether data and weights are rounded as FedVS rounds them."
    )
    data_bits: int = Field(
        16,
        ge=1,
        le=52,
        description="Number lx of fractional bits to which data are rounded, with quantized.",
    )
    model_bits: int = Field(
        17,
        ge=1,
        le=52,
        description="Number lw of fractional bits to which weights are rounded, with quantized.",
    )


@dataclass(frozen=True)
class Rounding:
    """Quantisers of FedVS: they compute with the values that its field elements represent."""

    network: PolynomialNetwork
    data_point: FixedPoint
    model_point: FixedPoint

    def forward(self, rows: np.ndarray, stream: np.random.Generator) -> np.ndarray:
        """Embedding of the rounded powers by the stochastically rounded weights, float64.

        The integers are multiplied in int64, and refused where they could leave it.

        Raises
        ------
        RangeError
            Where the largest row sum times the largest weight reaches 2^63.
        """
        data = self.data_point.round(expand(rows, self.network.degree))
        model = self.model_point.round(self.network.values, rng=stream)
        largest = np.abs(data).sum(axis=1, dtype=np.float64).max(initial=0.0)
        largest *= np.abs(model).max(initial=0)
        if largest >= 2.0**63:
            raise RangeError(
                f"split: rounded embeddings can reach {largest:.3g}, and int64 ends at 2^63 = "
                f"9.22e+18. Lower data_bits ({self.data_point.bits}) or model_bits "
                f"({self.model_point.bits})"
            )
        scale = 2.0 ** -(self.data_point.bits + self.model_point.bits)
        embedding: np.ndarray = (data @ model) * scale
        return embedding


@dataclass(eq=False, repr=False)
class Client(SplitClient):
    """Client n of split training, with the rounding of FedVS if wanted."""

    rounding: Rounding | None

    def embed(self, own: np.ndarray) -> np.ndarray:
        """H_n, float32; with FedVS's rounding float64."""
        if self.rounding is None:
            return super().embed(own)
        return self.rounding.forward(own, self.secret_stream("rounding", self.round))


@dataclass(eq=False, repr=False)
class Server(SplitServer):
    """Server of split training: waits for a number of embeddings, or for a time.

    A round ends with `quorum` embeddings or after `timeout` seconds. With fewer than `needed` of
    them it is skipped.
    """

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps", "skipped", "answered", "filling")

    _: KW_ONLY
    quorum: int
    needed: int
    timeout: float | None
    filling: Imputation
    skipped: int = field(default=0, init=False)
    answered: np.ndarray = field(init=False)  # rounds in which each client was used

    def __post_init__(self) -> None:
        super().__post_init__()
        self.answered = np.zeros(len(self.peers), np.int64)

    async def run(self) -> None:
        """Do one step a round, with the embeddings that came in time; the others are late."""
        while self.steps + self.skipped < self.max_steps:
            self.safe_point()
            batch = self.batches.draw(self.round + 1)
            self.announce(self.round + 1, batch)
            embeddings = await self.collect("embedding", count=self.quorum, timeout=self.timeout)
            if len(embeddings) >= self.needed:
                self.train(batch, embeddings)
            else:
                self.skip(embeddings)
        self.conclude()

    def skip(self, embeddings: Collection[int]) -> None:
        """Drop the round; end the run if all rounds were dropped."""
        missing = [n for n in self.peers if n not in embeddings]
        self.skipped += 1
        self.record("skipped", came=len(embeddings), missing=missing)
        if self.skipped == self.max_steps:
            raise RunError(
                f"split: no model was trained. All {self.max_steps} rounds were skipped: each "
                f"needs {self.needed} of {len(self.peers)} embeddings within {self.timeout} s, "
                f"and in round {self.round} there were none of "
                f"{', '.join(f'party {n}' for n in missing)}. Use more rounds, raise timeout, or "
                "choose another straggler rule"
            )

    def join(self, uploads: Mapping[int, np.ndarray], samples: np.ndarray) -> JointEmbedding:
        """Aggregate the embeddings and imputed ones; only clients that sent one get a gradient."""
        stack, present, details = self.filling.fill(uploads, samples, self.round)
        return aggregated(self.aggregation, stack, present, uploads.keys(), **details)

    def answer(self, batch: np.ndarray, step: SplitStep) -> None:
        """Send each client its gradient, and count it as used."""
        self.answered[list(step.clients)] += 1
        super().answer(batch, step)


class Split(EmbeddingProtocol):
    """Split learning on one data set."""

    name = "split"
    apart = True
    Config = SplitConfig
    card = Card(
        title="Split learning",
        paper="Ceballos et al., SplitNN-driven vertical partitioning, 2020; FedVS section 2.1; "
        "DVFL section 6",
        roles={
            "server": "holds the labels and the server model; aggregates the embeddings",
            "client": "holds some columns and a network",
        },
        sees={
            "server": "every client's embedding of every batch, exactly",
            "client": "dL/dH_n of its own embedding, and the batches",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="waits",
        deviations=(
            "h, the optimiser, initialisation and batch order are ours, as in FedVS",
            "maximum: equal entries count as that of the lowest client",
            "ignore: the quorum is ours; concatenation has zeros in the place of the absent",
            "ignore: evaluation uses the clients that trained most often, as many as the quorum, "
            "because a mean over all has another scale; inference='all' uses all",
            "skip: a round that was dropped counts as one of the rounds, and its batch is lost",
            "zeros, buffer, message, mean: imputed embeddings count as present in mean and "
            "maximum; who was absent gets no gradient; a round without any embedding is skipped",
            "message is DVFL's SplitNN-buffer by what its text says of it; it is not defined there",
            "buffer is ours: the last embeddings of the same rows",
            "mean is ours: DVFL names statistics as perhaps the best replacement, without trying",
            "MLP and CNN widths, and how an embedding enters VGG13, are ours",
        ),
    )

    def __init__(self, config: SplitConfig, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        if config.stragglers != "wait":
            skips = config.stragglers in ("ignore", "skip")
            self.card = replace(type(self).card, absence="skips" if skips else "fills")

    @classmethod
    def check_parties(cls, config: SplitConfig, parties: int) -> None:
        """Refuse a timeout or quorum without use, and quantised models of other kinds."""
        super().check_parties(config, parties)
        ignore = config.stragglers == "ignore"
        timed = config.stragglers not in ("wait", "ignore")
        if timed != (config.timeout is not None):
            raise ConfigurationError(
                f"split: stragglers = {config.stragglers!r} "
                + (
                    "needs a timeout, the seconds that a round waits for embeddings, such as 1.0"
                    if timed
                    else f"has no timeout, and timeout = {config.timeout:g} was given; leave it "
                    "out, or use 'skip', 'zeros', 'buffer', 'message' or 'mean'"
                )
            )
        if config.quorum is not None and not (ignore and config.quorum <= parties):
            raise ConfigurationError(
                f"split: quorum = {config.quorum} needs stragglers = 'ignore' (it is "
                f"{config.stragglers!r}) and at most {parties} clients"
            )
        if config.quantized and config.client_kind != "pn":
            raise ConfigurationError(
                f"split: quantized needs polynomial clients, as FedVS has them, and client = "
                f"{config.client_kind!r}; use 'pn'"
            )

    @property
    def quorum(self) -> int:
        """Number of embeddings that the server waits for."""
        N = self.data.parties
        if self.config.stragglers != "ignore":
            return N
        return int(self.config.quorum or N - N // 2)

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """One embedding and its gradient a round; with FedVS's rounding in float64."""
        declared = self.step_messages(dtype="float64" if self.config.quantized else "float32")
        formulas: dict[str, Formula] = {
            ANNOUNCE: self.announced_at,
            "embedding": self.sent_embedding,
            "gradient": self.own_gradient,
        }
        return with_formulas(declared, formulas)

    def sent_embedding(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """H_n of the batch, by the client's network of that round; rounded as FedVS's if wanted."""
        if not self.config.quantized:
            return self.embedding_at(secrets, key)
        network = self.client_network(key.sender)
        network.load_state_dict(secrets.state(key)["network"])
        batch = secrets.sent(ANNOUNCE, key.round)[SERVER, key.sender]
        own = rows_of(secrets.data(key.sender)["train"], self.layout.samples(batch))
        rounding = self.rounding(network)
        assert rounding is not None
        return rounding.forward(own, self.secret_stream(key.sender, "rounding", key.round))

    def own_gradient(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """The client's part of dL/dH, with the embeddings of the clients that got a gradient."""
        opened = MessageKey(ANNOUNCE, key.round, SERVER, key.receiver)
        answered = {n for _, n in secrets.sent("gradient", key.round)}
        sent = secrets.sent("embedding", key.round).items()
        embeddings = {n: one for (n, _), one in sorted(sent) if n in answered}
        filling = self.new_filling()
        filling.load_state_dict(secrets.state(opened)["filling"])
        samples = self.layout.samples(secrets.sent(ANNOUNCE, key.round)[SERVER, key.receiver])
        stack, present, _ = filling.fill(embeddings, samples, key.round)
        joint = self.aggregation.combine(stack, present)
        whole = self.gradient_at(secrets, key, joint)
        return self.aggregation.gradient(whole, stack, present, key.receiver)

    def new_filling(self) -> Imputation:
        """New imputation of missing embeddings."""
        rule = self.config.stragglers if self.fills else "nothing"
        return make_imputation(rule, self.data.parties, self.data.rows, self.config.width)

    @property
    def fills(self) -> bool:
        """Whether missing embeddings are imputed."""
        return self.config.stragglers in IMPUTATIONS

    def server(self) -> Server:
        """The server."""
        return self.make_server(
            Server,
            quorum=self.quorum,
            needed=1 if self.fills else self.quorum,
            timeout=self.config.timeout,
            filling=self.new_filling(),
        )

    def client(self, index: int) -> Client:
        """Client `index`, from 0."""
        network, features = self.client_network(index), self.data.train[index]
        return Client(index, self.peers(), self.layout, features, network, self.rounding(network))

    def rounding(self, network: ClientNetwork) -> Rounding | None:
        """FedVS's quantisers, where asked for."""
        if not (self.config.quantized and isinstance(network, PolynomialNetwork)):
            return None
        field = PrimeField(2**61 - 1)
        return Rounding(
            network,
            FixedPoint(field, bits=self.config.data_bits),
            FixedPoint(field, bits=self.config.model_bits),
        )

    def evaluated(self, parties: Mapping[int, Party]) -> Collection[int]:
        """All clients, or those that were used most often, the lowest first among equals."""
        if self.config.stragglers != "ignore":
            return self.peers()
        return self.most_used(parties, self.quorum)

    def describe(self) -> dict[str, Any]:
        """N, the quorum and |B|."""
        return {"N": self.data.parties, "quorum": self.quorum, "batch_rows": self.batch_rows}

    def memory(self) -> int:
        """Bytes of the base class, and of a buffer with its copies in a checkpoint."""
        buffered = self.config.stragglers == "buffer"
        row = 4 * int(self.config.width) + 8
        table = 4 * self.data.parties * (self.data.rows + 1) * row
        return super().memory() + (table if buffered else 0)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """No protection: embeddings are sent in the clear."""
        return OPEN_EMBEDDINGS
