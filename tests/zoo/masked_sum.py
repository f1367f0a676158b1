"""A researcher's own protocol, as docs/own-protocol.md says: a sum of embeddings under masks.

The server gets the sum of the embeddings, as in secagg_split, but nobody may be missing: client n
draws a mask r_n, gives it to client n + 1, and uploads H_n + r_n - r_(n-1). It declares its
messages and claims that the server learns nothing else. What `Extras` adds is sound or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from securevfl.engine.party import SERVER, Party
from securevfl.field import FixedPoint, PrimeField
from securevfl.models.split import Batches, Centre, rows_of
from securevfl.privacy.claims import Claim
from securevfl.protocols.protocol import (
    Card,
    MessageKey,
    MessageSpec,
    RunSecrets,
    SplitProtocol,
    TrainingConfig,
    announcement,
    in_rounds,
)

FIELD = PrimeField(2**61 - 1)
POINT = FixedPoint(FIELD, bits=24)
Form = Callable[[np.ndarray, np.ndarray, np.ndarray], Any]  # of a table, a batch, the one before


@dataclass(frozen=True)
class Extras:
    """Additions of clients to masks and masked embeddings, and how they send the latter."""

    kinds: Mapping[str, Form] = field(default_factory=dict)  # messages of their own
    within: Form | None = None  # beside the masked embedding in an upload
    formulas: bool = False  # whether `kinds` are declared with their formulas
    turned: bool = False  # whether masked embeddings are transposed

    def framed(self, upload: np.ndarray, table: np.ndarray, layout: Batches, round: int) -> Any:
        """Payload of an upload."""
        if self.within:
            return {"sum": upload, "rows": told(self.within, table, layout, round)}
        return np.ascontiguousarray(upload.T) if self.turned else upload

    def opened(self, payload: Any) -> np.ndarray:
        """The masked embedding in an upload."""
        upload: np.ndarray = payload["sum"] if self.within else payload
        return upload.T if self.turned else upload


def told(form: Form, table: np.ndarray, layout: Batches, round: int) -> Any:
    """Payload that a form makes of a client's columns in a round."""
    batch, before = (layout.samples(layout.draw(max(1, r))) for r in (round, round - 1))
    return form(table, batch, before)


class Client(Party):
    """Holds some columns and a network."""

    kept: ClassVar[tuple[str, ...]] = ("network",)
    activities: ClassVar[Mapping[str, str]] = {"mask": "share", "embedding": "upload"}

    def __init__(
        self, index: int, peers: Sequence[int], given: tuple[np.ndarray, Batches, Any, Extras]
    ) -> None:
        super().__init__(index, peers)
        self.features, self.batches, self.network, self.extras = given

    async def run(self) -> None:
        """Take part in every round."""
        N = len(self.peers)
        async for round_ in self.rounds():
            with round_:
                own = rows_of(self.features, self.batches.samples(round_.payload))
                hidden = POINT.quantize(self.network.forward(own))
                mask = self.uniform(hidden.shape)
                self.send((self.index + 1) % N, "mask", mask)
                now = (self.features, self.batches, self.round)
                for kind, form in self.extras.kinds.items():
                    self.send(SERVER, kind, told(form, *now))
                upload = masked(hidden, mask, await self.receive("mask"))
                self.send(SERVER, "embedding", self.extras.framed(upload, *now))
                self.network.update(own, await self.receive("gradient"))

    def uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """Masks, of the operating system's entropy."""
        return FIELD.random(shape)


class Server(Party):
    """Holds the labels and the server model; sees sums of embeddings."""

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps")

    def __init__(
        self, peers: Sequence[int], given: tuple[np.ndarray, Batches, Centre, Extras], rounds: int
    ) -> None:
        super().__init__(SERVER, peers)
        self.labels, self.batches, self.centre, self.extras = given
        self.wanted, self.steps = rounds, 0

    async def run(self) -> None:
        """Take one step a round."""
        N = np.float32(len(self.peers))
        while self.steps < self.wanted:
            self.safe_point()
            batch = self.batches.draw(self.round + 1)
            self.announce(self.round + 1, batch)
            parts = await self.collect("embedding", senders=self.peers)
            joint = total([self.extras.opened(one) for one in parts.values()])
            mean = POINT.dequantize(joint).astype(np.float32) / N
            loss, gradient = self.centre.step(mean, self.batches.samples(batch), self.labels)
            self.steps += 1
            self.broadcast("gradient", gradient / N)
            self.record("round", step=self.steps, loss=loss, used=len(parts))
        self.conclude()


def total(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Sum modulo p."""
    summed, *rest = parts
    for part in rest:
        summed = FIELD.add(summed, part)
    return summed


def masked(hidden: np.ndarray, mask: np.ndarray, before: np.ndarray) -> np.ndarray:
    """H_n + r_n - r_(n-1) modulo p."""
    return FIELD.subtract(FIELD.add(hidden, mask), before)


class MaskedSum(SplitProtocol):
    """Sum of embeddings under masks that neighbours share."""

    name = "masked_sum"
    Config = TrainingConfig
    card = Card(
        title="Split learning with masks of neighbours",
        paper="none: a researcher's own",
        roles={
            "server": "holds the labels and the server model",
            "client": "holds some columns and a network; knows the mask of one other client",
        },
        sees={
            "server": "the sum of all embeddings of every batch, exactly",
            "client": "the mask of the client before it, dL/dH, the batches",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="waits",
    )
    extras: ClassVar[Extras] = Extras()

    def parties(self) -> dict[int, Party]:
        """Give each party its own data, and nothing else."""
        peers, layout, labels = self.peers(), self.batches(1), self.data.train_labels
        given = (labels, layout, self.centre(), self.extras)
        made: dict[int, Party] = {SERVER: Server(peers, given, self.config.rounds)}
        for n in peers:
            own = (self.data.train[n], layout, self.network(n), self.extras)
            made[n] = Client(n, peers, own)
        return made

    @property
    def batch_rows(self) -> int:
        """|B|."""
        return self.batches(1).coded

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Say what is not protected, too."""
        why = "N - 1 of the N masks r_n - r_(n-1) are uniform; given the sum of the embeddings"
        return (
            Claim("server", "features", "perfect", why),
            Claim("client", "labels", "none", "dL/dH depends on them"),
        )

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Every message that a party may send."""
        shape, N = (self.batch_rows, self.config.width), self.data.parties
        mask = MessageSpec(
            *("mask", "client", "client", "mask"),
            shape=lambda key: shape,
            dtype=FIELD.dtype.name,
            modulus=FIELD.modulus,
            count=lambda key: int(key.round > 0 and key.receiver == (key.sender + 1) % N),
        )
        turned = shape[::-1] if self.extras.turned else shape
        upload = MessageSpec(
            *("embedding", "client", "server", "masked_result"),
            shape=None if self.extras.within else lambda key: turned,
            dtype="" if self.extras.within else FIELD.dtype.name,
            modulus=FIELD.modulus,
            count=in_rounds,
        )
        gradient = MessageSpec(
            *("gradient", "server", "client", "gradient"),
            shape=lambda key: shape,
            dtype="float32",
            count=in_rounds,
        )
        extras = (self.extra(kind, form) for kind, form in self.extras.kinds.items())
        return (announcement("client"), mask, upload, gradient, *extras)

    def extra(self, kind: str, form: Form) -> MessageSpec:
        """Declaration of one more kind."""

        def formula(secrets: RunSecrets, key: MessageKey) -> Any:
            return told(form, secrets.data(key.sender)["train"], self.batches(1), key.round)

        spec = MessageSpec(kind, "client", "server", "measure", count=in_rounds)
        return replace(spec, recompute=formula) if self.extras.formulas else spec
