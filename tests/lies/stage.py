"""Runs of FedVS in which some party lies, and a judge who knows what every party holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.engine.conditions import NONE, Conditions
from securevfl.engine.faults import faults_from
from securevfl.engine.network import SERVER
from securevfl.models.polynomial_network import expand
from securevfl.models.split import rows_of
from securevfl.protocols.fedvs.algorithm import Client, Server
from securevfl.protocols.fedvs.messages import Attempt, Batch
from securevfl.protocols.fedvs.protocol import FedVS
from securevfl.runs.assembly import rules_of
from securevfl.testing.runs import make
from securevfl.verified import Secret, bare_of
from tests.lies.lie import Size
from tests.lies.running import Played, carry_out

PARTIES = 10
VICTIM = 7
PATIENCE = 5.0  # seconds that a lying server waits for clients that may refuse


@dataclass
class Judge:
    """Knowledge of the script that no liar has.

    Attributes
    ----------
    parties : mapping of int to Party
    plain : dict of int to ndarray
        The last upload of each client before masks were added.
    uploads : int
        How many there were.
    means : list of ndarray
        H of each step of an honest server.
    """

    parties: Mapping[int, Any]
    plain: dict[int, np.ndarray] = field(default_factory=dict)
    uploads: int = 0
    means: list[np.ndarray] = field(default_factory=list)

    def watch(self) -> None:
        """Note uploads and decoded means; nothing of the run changes."""
        for party in self.parties.values():
            if party.index == SERVER:
                party.train = self._noting_mean(party.train)
            else:
                party.evaluate = self._noting_upload(party.index, party.evaluate)

    def _noting_upload(self, index: int, evaluate: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*arguments: Any) -> Any:
            upload = evaluate(*arguments)
            self.plain[index] = bare_of(upload)
            self.uploads += 1
            return upload

        return noting

    def _noting_mean(self, train: Callable[..., Any]) -> Callable[..., Any]:
        def noting(batch: Batch, attempt: Attempt, embedding: Secret) -> Any:
            self.means.append(bare_of(embedding))
            return train(batch, attempt, embedding)

        return noting

    def powers(self, client: int, batch: Batch) -> np.ndarray:
        """The client's rows as its network takes them, float64; padded rows are all zero."""
        party = self.parties[client]
        samples = party.public.batches[batch.part].samples(batch.rows)
        own = rows_of(bare_of(party.features[batch.part]), samples)
        made: np.ndarray = expand(own, party.public.config.degree).astype(np.float64)
        made[samples < 0] = 0
        return made

    def embedding(self, client: int, batch: Batch) -> np.ndarray:
        """The client's embedding of the rows by its present model."""
        weights = bare_of(self.parties[client].network).values.astype(np.float64)
        embedding: np.ndarray = self.powers(client, batch) @ weights
        return embedding


class LyingServer(Server):
    """A server that asks for what it likes. `found` has what its run brought."""

    judge: Judge
    found: dict[str, Any]

    def rows(self) -> Batch:
        """The first batch."""
        return Batch("train", self.public.batches["train"].draw(1))

    def all_but(self, *left_out: int) -> tuple[int, ...]:
        """All other clients."""
        return tuple(n for n in self.peers if n not in left_out)

    def named(self, sharers: Sequence[int] | None = None, **words: Any) -> Attempt:
        """An attempt over the sharers."""
        return Attempt(tuple(self.peers if sharers is None else sharers), **words)

    async def ask(
        self, batch: Batch, sharers: Sequence[int] | None = None, **words: Any
    ) -> dict[int, np.ndarray]:
        """Uploads to one more sum; those that come."""
        self.batch = batch
        self.announce(self.round + 1, batch)
        await self.collect("shared", timeout=PATIENCE)
        self.broadcast("attempt", self.named(sharers, **words))
        return await self.uploads()

    async def uploads(self) -> dict[int, np.ndarray]:
        """Uploads that come within its patience, bare."""
        found: dict[int, np.ndarray] = bare_of(await self.collect("embedding", timeout=PATIENCE))
        return found

    def sums(self, uploads: Mapping[int, np.ndarray]) -> np.ndarray | None:
        """Sums of embeddings from uploads, as real numbers; None from fewer than R."""
        if len(uploads) < self.public.threshold:
            return None
        decoded = self.public.code.decode(
            np.stack(list(uploads.values())), tuple(uploads), degree=2
        )
        bits = self.public.config.data_bits + self.public.config.model_bits
        stacked = decoded.reshape(-1, decoded.shape[-1])
        made: np.ndarray = self.public.model_point.dequantize(stacked, bits=bits)
        return made

    def gradient(self, values: np.ndarray | float, to: Iterable[int] | None = None) -> None:
        """Send a gradient that is none of a loss."""
        samples = len(self.batch.rows) * self.public.code.segments
        shape = (samples, self.public.config.width)
        sent = np.broadcast_to(np.asarray(values, np.float32), shape).copy()
        self.broadcast("gradient", sent, None if to is None else tuple(to))


# Fine enough that what a lie gains is not hidden behind rounding.
FIELD = {"prime": 2**61 - 1, "data_bits": 20, "model_bits": 24}


def play(
    size: Size,
    server: type[Server] | None = None,
    *,
    liars: Mapping[int, type[Client]] | None = None,
    parties: int = PARTIES,
    conditions: Conditions = NONE,
    outages: Sequence[Mapping[str, Any]] = (),
    **options: Any,
) -> Played:
    """Run FedVS with its parties, some of which are liars.

    Parameters
    ----------
    size : Size
    server : type, optional
        Class of a lying server.
    liars : mapping of int to type, optional
        Classes of lying clients.
    parties : int
    conditions : Conditions
    outages : sequence of mapping
        Clients that are down for a while.
    **options
        Of the protocol; one round if not given.
    """
    # Without cohorts, so that what clients check besides is seen.
    small = {"rounds": 1, "batch": size.batch, "width": size.width, "cohorts": 0, **FIELD}
    small |= {"paper": True}  # no budget, which would end the lie before it gains
    protocol: Any = make(FedVS, size.data(parties), defaults=small, **options)
    made: dict[int, Any] = protocol.parties()
    judge = Judge(made)
    if server is not None:
        made[SERVER].__class__ = server
        made[SERVER].judge, made[SERVER].found = judge, {}
    for n, liar in (liars or {}).items():
        made[n].__class__ = liar
    judge.watch()
    faults = faults_from({"outage": list(outages)}) if outages else None
    _, events, error = carry_out(
        made,
        conditions=conditions,
        faults=faults and faults.bind(protocol.roles(), 0, last=protocol.last_fault),
        make_party=protocol.party,
        rules=rules_of(protocol),
    )
    return Played(made[SERVER], judge, events, error)


def relative(guess: np.ndarray, truth: np.ndarray) -> float:
    """Frobenius norm of the error over that of the truth."""
    return float(np.linalg.norm(guess - truth) / np.linalg.norm(truth))
