"""Split learning with each client's embedding, and rules for missing embeddings.

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

from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from securevfl.engine.party import SERVER, Party
from securevfl.errors import ConfigurationError, RangeError, RunError
from securevfl.field import FixedPoint, PrimeField
from securevfl.models.aggregation import Aggregation
from securevfl.models.imputation import IMPUTATIONS, Imputation, make_imputation
from securevfl.models.polynomial_network import PolynomialNetwork, expand
from securevfl.models.split import Centre, rows_of
from securevfl.privacy.claims import OPEN_EMBEDDINGS, Claim
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.embedding import EmbeddingProtocol
from securevfl.protocols.base.messages import MessageSpec
from securevfl.protocols.base.open_embeddings import (
    Ideal,
    OpenClient,
    OpenEmbeddings,
    OpenServer,
    joint_step,
)
from securevfl.protocols.base.options import SegmentedConfig
from securevfl.protocols.base.split_step import aggregated, split_step
from securevfl.verified import Chance, Model, Secret, World

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


def rounded(
    network: PolynomialNetwork,
    features: np.ndarray,
    chance: Chance,
    samples: np.ndarray,
    round: int,
    quantisers: tuple[FixedPoint, FixedPoint],
) -> np.ndarray:
    """Embedding, (rows, h) float64, of the rounded powers by stochastically rounded weights.

    With the `quantisers` of data and weights it computes with the values that field elements would
    represent. Integers are multiplied in int64; RangeError if the largest row sum times the largest
    weight reaches 2^63.
    """
    of_data, of_model = quantisers
    data = of_data.round(expand(rows_of(features, samples), network.degree))
    model = of_model.round(network.values, rng=chance.stream("rounding", round))
    largest = np.abs(data).sum(axis=1, dtype=np.float64).max(initial=0.0)
    largest *= np.abs(model).max(initial=0)
    if largest >= 2.0**63:
        raise RangeError(
            f"split: rounded embeddings can reach {largest:.3g}, and int64 ends at 2^63 = "
            f"9.22e+18. Lower data_bits ({of_data.bits}) or model_bits ({of_model.bits})"
        )
    embedding: np.ndarray = (data @ model) * 2.0 ** -(of_data.bits + of_model.bits)
    return embedding


def taken(
    filling: Imputation, samples: np.ndarray, round: int, clients: Sequence[int], *sent: np.ndarray
) -> None:
    """Store the embeddings `sent` by `clients` of rows `samples`, for imputation later."""
    filling.take(dict(zip(clients, sent, strict=True)), samples, round)


def filled(
    centre: Centre,
    labels: np.ndarray,
    filling: Imputation,
    samples: np.ndarray,
    aggregation: Aggregation,
    clients: Sequence[int],
    *sent: np.ndarray,
) -> tuple[np.ndarray | np.float32, ...]:
    """Step on embeddings `sent` by `clients` and imputed ones; (loss, dL/dH_n of senders...)."""
    stack, present = filling.complete(dict(zip(clients, sent, strict=True)), samples)
    step = split_step(centre, aggregated(aggregation, stack, present, clients), samples, labels)
    return np.float32(step.loss), *step.gradients.values()


@dataclass(eq=False, repr=False)
class Client(OpenClient):
    """Client n of split training; it rounds to fixed-point numbers if it has quantisers.

    Attributes
    ----------
    quantisers : (FixedPoint, FixedPoint) or None
        Quantisers of data and of weights; None for no rounding.
    chance : Model
        Source of stochastic rounding of the weights; passed as a
        `securevfl.verified.chance.Chance`.
    """

    _: KW_ONLY
    quantisers: tuple[FixedPoint, FixedPoint] | None
    chance: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        self.chance = self.own_model("chance", self.chance)

    def embed(self, samples: np.ndarray) -> Secret:
        """Embedding H_n of the samples, float32; float64 if rounded as in FedVS."""
        if self.quantisers is None:
            return super().embed(samples)
        given = (self.features, self.chance, samples, self.round, self.quantisers)
        shape = (len(samples), self.width)
        found: Secret = self.network.call(rounded, *given, shape=shape, dtype=np.float64)
        return found


@dataclass(eq=False, repr=False)
class Server(OpenServer):
    """Server of split training: waits for a number of embeddings, or for a time.

    A round ends with `quorum` embeddings or after `timeout` seconds. With fewer than `needed`
    embeddings it is skipped. If `how` is a rule of imputation, imputed embeddings count as present.
    """

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps", "skipped", "answered", "filling")

    _: KW_ONLY
    quorum: int
    needed: int
    timeout: float | None
    how: str
    filling: Any
    skipped: int = field(default=0, init=False)
    answered: np.ndarray = field(init=False)  # rounds in which each client was used

    def __post_init__(self) -> None:
        super().__post_init__()
        self.filling = self.own_model("filling", self.filling)
        self.answered = np.zeros(len(self.peers), np.int64)

    async def run(self) -> None:
        """Do one step a round with the embeddings in time; others are late."""
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
        """Drop the round; RunError if all rounds were dropped."""
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

    def step(
        self, embeddings: Mapping[int, Secret], samples: np.ndarray
    ) -> tuple[Secret, dict[int, Secret]]:
        """One step on received and imputed embeddings; only senders get a gradient."""
        if not self.how:
            return super().step(embeddings, samples)
        models = self.centre, self.labels, self.filling
        return filled_step(models, self.aggregation, embeddings, samples, self.round)

    def details(self, embeddings: Mapping[int, Secret], samples: np.ndarray) -> dict[str, Any]:
        """Number of absent clients, the rule, and unknown pairs; empty without imputation."""
        if not self.how:
            return {}
        absent = len(self.peers) - len(embeddings)
        return {"filled": absent, "how": self.how, "unknown": unknown(self.filling, samples)}

    def answer(self, batch: np.ndarray, gradients: Mapping[int, Secret]) -> None:
        """Send each client its gradient, and count its embedding as used."""
        self.answered[list(gradients)] += 1
        super().answer(batch, gradients)


def filled_step(
    models: tuple[Model, Secret, Model],
    aggregation: Aggregation,
    embeddings: Mapping[int, Secret],
    samples: np.ndarray,
    round: int,
) -> tuple[Secret, dict[int, Secret]]:
    """(Loss, gradients by client) of a step; `models`: server model, labels, imputation."""
    centre, labels, filling = models
    filling.step(taken, samples, round, tuple(embeddings), *embeddings.values())
    return joint_step(centre, filled, labels, samples, aggregation, embeddings, filling)


def unknown(filling: Model, samples: np.ndarray) -> Secret:
    """Number of (client, row) pairs without a known embedding."""
    found: Secret = filling.call(rows_unknown, samples, shape=(), dtype=np.int64)
    return found


def rows_unknown(filling: Imputation, samples: np.ndarray) -> int:
    """Number of (client, row) pairs without a known embedding (`Imputation.unknown`)."""
    return filling.unknown(samples)


class Split(OpenEmbeddings, EmbeddingProtocol):
    """Split learning on one data set."""

    name = "split"
    weighs_rows = True
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
        """Raise ConfigurationError for a wrong timeout or quorum, or rounding without PN."""
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
        """Message declarations: one embedding and its gradient a round; float64 if quantised."""
        return self.step_messages(dtype="float64" if self.config.quantized else "float32")

    def new_filling(self) -> Imputation:
        """New imputation of missing embeddings."""
        rule = self.config.stragglers if self.fills else "nothing"
        return make_imputation(rule, self.data.parties, self.data.rows, self.config.width)

    @property
    def fills(self) -> bool:
        """Whether missing embeddings are imputed."""
        return self.config.stragglers in IMPUTATIONS

    def server(self) -> Server:
        """Create the server."""
        return self.make_server(
            Server,
            quorum=self.quorum,
            needed=1 if self.fills else self.quorum,
            timeout=self.config.timeout,
            how=self.config.stragglers if self.fills else "",
            filling=self.new_filling(),
        )

    def client(self, index: int) -> Client:
        """Create client `index`, counted from 0."""
        network, features = self.client_network(index), self.data.train[index]
        return Client(
            *(index, self.peers(), self.layout, features, network),
            width=self.config.width,
            quantisers=self.quantisers,
            chance=Chance(self.secrets, index),
        )

    @property
    def quantisers(self) -> tuple[FixedPoint, FixedPoint] | None:
        """FedVS's quantisers of data and weights; None unless `quantized` is set."""
        if not self.config.quantized:
            return None
        field = PrimeField(2**61 - 1)
        bits = self.config.data_bits, self.config.model_bits
        return FixedPoint(field, bits=bits[0]), FixedPoint(field, bits=bits[1])

    def inputs(self, world: World) -> Ideal:
        """Inputs of all parties, with secret choices and the table of embeddings."""
        return IdealSplit(world, self)

    def ideal_step(
        self, ideal: Any, samples: np.ndarray, used: Mapping[int, Secret]
    ) -> tuple[Secret, dict[int, Secret]]:
        """(Loss, gradients by client) of a step on embeddings `used` and imputed ones."""
        if not self.fills:
            return super().ideal_step(ideal, samples, used)
        models = ideal.centre, ideal.labels, ideal.filling
        found = filled_step(models, self.aggregation, used, samples, ideal.round)
        ideal.world.output("unknown rows", unknown(ideal.filling, samples))
        return found

    def evaluated(self, parties: Mapping[int, Party]) -> Collection[int]:
        """Clients for evaluation: with "ignore" those used most often; else all."""
        if self.config.stragglers != "ignore":
            return self.peers()
        return self.most_used(parties, self.quorum)

    def describe(self) -> dict[str, Any]:
        """Numbers for summaries: N, the quorum and |B|."""
        return {"N": self.data.parties, "quorum": self.quorum, "batch_rows": self.batch_rows}

    def memory(self) -> int:
        """Bytes of the base class; with "buffer" also of stored embeddings and their copies."""
        buffered = self.config.stragglers == "buffer"
        row = 4 * int(self.config.width) + 8
        table = 4 * self.data.parties * (self.data.rows + 1) * row
        return super().memory() + (table if buffered else 0)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Claims of no protection: embeddings are sent unencrypted."""
        return OPEN_EMBEDDINGS


class IdealSplit(Ideal):
    """Ideal functionality of split training, with rounding and imputation."""

    def __init__(self, world: World, made: Split) -> None:
        super().__init__(world, made.peers(), made.config.weight_bound is not None)
        self.quantisers = made.quantisers
        self.chances = {n: world.the(n, "chance") for n in made.peers()}
        self.filling = world.the(SERVER, "filling")

    def embed(self, client: int, samples: np.ndarray, width: int) -> Secret:
        """Embedding H_n of the samples, rounded if wanted, declared as an output to the server."""
        if self.quantisers is None:
            return super().embed(client, samples, width)
        given = self.columns[client], self.chances[client], samples, self.round, self.quantisers
        made: Secret = self.networks[client].call(
            rounded, *given, shape=(len(samples), width), dtype=np.float64
        )
        return self.shown(client, made)
