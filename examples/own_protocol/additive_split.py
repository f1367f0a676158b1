"""Split learning whose server gets only the sum of the embeddings, by additive secret shares.

Each client n cuts its quantised embedding into N shares that are uniform but for their sum,

    H_n = s_n1 + ... + s_nN  (mod p),

and sends s_nj to client j. Client j sends the sum of what it got to the server, whose total over j
is the sum of all embeddings, exactly. Nobody may be missing: that is what FedVS mends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from securevfl.engine.party import SERVER, Party
from securevfl.errors import ConfigurationError, RangeError
from securevfl.field import FixedPoint, PrimeField
from securevfl.models.polynomial_network import PolynomialNetwork
from securevfl.models.split import Batches, Centre, rows_of
from securevfl.privacy.claims import Claim
from securevfl.protocols.protocol import (
    Card,
    MessageSpec,
    SplitProtocol,
    TrainingConfig,
    announcement,
    in_rounds,
)

FIELD = PrimeField(2**61 - 1)


class AdditiveConfig(TrainingConfig):
    """Options; each one is `--name` on the command line."""

    fraction_bits: int = Field(24, ge=1, le=40, description="binary places of an embedding")


class Client(Party):
    """Holds some columns and a network."""

    kept: ClassVar[tuple[str, ...]] = ("network",)  # all that changes; the rest follows from it
    activities: ClassVar[Mapping[str, str]] = {"share": "share", "embedding": "upload"}

    def __init__(
        self,
        index: int,
        peers: Sequence[int],
        batches: Batches,
        features: np.ndarray,
        network: PolynomialNetwork,
        point: FixedPoint,
    ) -> None:
        super().__init__(index, peers)
        self.batches = batches
        self.features = features
        self.network = network
        self.point = point

    async def run(self) -> None:
        """Take part in every round; called anew after a resume."""
        async for round_ in self.rounds():  # a safe point
            with round_:  # left quietly when the next round is announced
                own = rows_of(self.features, self.batches.samples(round_.payload))
                self.share("share", self.cut(self.quantised(self.network.forward(own))))
                shares = await self.collect("share", senders=self.peers)
                self.send(SERVER, "embedding", total(shares))
                self.network.update(own, await self.receive("gradient"))

    def quantised(self, embedding: np.ndarray) -> np.ndarray:
        """Field elements of H_n; refused where the sum over N clients could wrap modulo p."""
        limit = FIELD.half // len(self.peers)
        largest = int(np.abs(self.point.round(embedding)).max(initial=0))
        if largest > limit:
            raise RangeError(
                f"additive_split: client {self.index} has an embedding of {largest} units of "
                f"2^-{self.point.bits}, and {len(self.peers)} clients may have {limit} each; lower "
                "fraction_bits or the learning rate"
            )
        return self.point.quantize(embedding)

    def cut(self, secret: np.ndarray) -> np.ndarray:
        """N shares, (N, rows, h): all but the own one uniform, and their sum the secret."""
        shares = self.uniform((len(self.peers), *secret.shape))
        place = self.peers.index(self.index)
        shares[place] = 0
        shares[place] = FIELD.subtract(secret, total(dict(enumerate(shares))))
        return shares

    def uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """Masks: uniform elements of the operating system's entropy, never of a seed."""
        return FIELD.random(shape)


class Server(Party):
    """Holds the labels and the centre; sees sums of embeddings."""

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps")

    def __init__(
        self,
        peers: Sequence[int],
        batches: Batches,
        centre: Centre,
        labels: np.ndarray,
        point: FixedPoint,
        rounds: int,
    ) -> None:
        super().__init__(SERVER, peers)
        self.batches = batches
        self.centre = centre
        self.labels = labels
        self.point = point
        self.wanted = rounds
        self.steps = 0

    async def run(self) -> None:
        """Take one step a round."""
        N = np.float32(len(self.peers))
        while self.steps < self.wanted:
            self.safe_point()
            batch = self.batches.draw(self.round + 1)
            self.announce(self.round + 1, batch)
            parts = await self.collect("embedding", senders=self.peers)
            mean = self.point.dequantize(total(parts)).astype(np.float32) / N
            loss, gradient = self.centre.step(mean, self.batches.samples(batch), self.labels)
            self.steps += 1
            self.broadcast("gradient", gradient / N)
            self.record("round", step=self.steps, loss=loss, used=len(parts))
        self.conclude()


def total(parts: Mapping[int, np.ndarray]) -> np.ndarray:
    """Sum modulo p."""
    summed, *rest = parts.values()
    for part in rest:
        summed = FIELD.add(summed, part)
    return summed


class AdditiveSplit(SplitProtocol):
    """The method, configured for one data set: what `securevfl` looks for."""

    name = "additive_split"
    Config = AdditiveConfig
    card = Card(
        title="Split learning with additive shares",
        paper="none: an example; additive secret sharing is folklore",
        roles={
            "server": "holds the labels and the central model",
            "client": "holds some columns and a network; adds up shares",
        },
        sees={
            "server": "the sum of all embeddings of every batch, exactly",
            "client": "one uniform share of each other client's embedding, dL/dH, the batches",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="waits",
    )

    def __init__(self, config: AdditiveConfig, data: Any, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        self.layout = self.batches(1)
        self.point = FixedPoint(FIELD, bits=config.fraction_bits)

    @classmethod
    def check_parties(cls, config: AdditiveConfig, parties: int) -> None:
        """Refuse a sum of one term."""
        super().check_parties(config, parties)
        if parties < 2:
            raise ConfigurationError(
                "additive_split: a sum hides its terms from 2 clients on, and there is 1; use "
                "more parties"
            )

    def parties(self) -> dict[int, Party]:
        """Give each party its own data, and nothing else."""
        labels, rounds = self.data.train_labels, self.config.rounds
        server = Server(self.peers(), self.layout, self.centre(), labels, self.point, rounds)
        return {SERVER: server} | {n: self.client(n) for n in self.peers()}

    def client(self, index: int) -> Client:
        """Client `index`, from 0."""
        features, network = self.data.train[index], self.network(index)
        return Client(index, self.peers(), self.layout, features, network, self.point)

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Every message that a party may send; the engine refuses all others."""
        shape, field = (self.batch_rows, self.config.width), FIELD.dtype.name
        share = MessageSpec(
            *("share", "client", "client", "result_share"),  # kind, from, to, what it is
            shape=lambda key: shape,
            dtype=field,
            modulus=FIELD.modulus,  # elements of F_p: sent in the bits that they need
            count=in_rounds,
        )
        upload = replace(share, kind="embedding", receiver="server", row_by_row=True)
        gradient = MessageSpec(
            *("gradient", "server", "client", "gradient"),
            shape=lambda key: shape,
            dtype="float32",
            count=in_rounds,
            row_by_row=True,
        )
        return (announcement("client"), share, upload, gradient)

    @property
    def batch_rows(self) -> int:
        """|B|."""
        return self.layout.coded

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Say what is not protected, too."""
        why = "N - 1 of N additive shares are uniform; given the sum of the embeddings"
        return (
            Claim("server", "features", "perfect", why),
            Claim("server", "model", "perfect", why),
            Claim("server + N - 1 clients", "features", "none", "the last one's is the difference"),
            Claim("client", "labels", "none", "dL/dH depends on them"),
        )
