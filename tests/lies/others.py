"""Lies in secagg_split, he_split, wait_dp and private set intersection."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.data.alignment.psi import intersect
from securevfl.engine.network import SERVER
from securevfl.engine.party import Party
from securevfl.protocols import he_split
from securevfl.protocols.base.summed_parties import SummedClient
from securevfl.protocols.secagg_split import algorithm as secagg
from securevfl.protocols.wait_dp.algorithm import Server as WaitDPServer
from securevfl.runs.assembly import rules_of
from securevfl.testing.runs import make
from securevfl.verified import bare_of
from tests.lies.lie import Finding, Lie, Outcome, Size
from tests.lies.running import carry_out, who_noticed

PARTIES = 6
VICTIM = 0
PATIENCE = 5.0
READ = "share of one client's embedding that is read"


def deviate(
    name: str, size: Size, liars: Mapping[int, type[Party]], **options: Any
) -> tuple[dict[int, Any], str, Any]:
    """Parties after a run with liars among them, who noticed, and the transcript."""
    small = {"rounds": 1, "batch": size.batch, "width": size.width}
    protocol: Any = make(name, size.data(PARTIES), defaults=small, **options)
    parties: dict[int, Any] = protocol.parties()
    for n, liar in liars.items():
        parties[n].__class__ = liar
        parties[n].found = {}
    client = parties[VICTIM]
    batch = protocol.layout.draw(1)
    if isinstance(client, SummedClient):
        parties[SERVER].truth = bare_of(client.quantised(protocol.layout.samples(batch)))
    elif hasattr(client, "quantised"):
        parties[SERVER].truth = client.quantised(client.rows_of(batch))
    simulation, events, error = carry_out(parties, rules=rules_of(protocol))
    return parties, who_noticed(events, error), simulation.transcript


# -- secure aggregation -----------------------------------------------------------------------


class Survivors(secagg.Server):
    """Names survivors as it likes to each client."""

    found: dict[str, Any]
    truth: np.ndarray

    async def run(self) -> None:
        """One round."""
        self.announce(1, self.batches.draw(1))
        keys = await self.collect("shared")
        self.broadcast("sharers", tuple(keys), to=tuple(keys))
        uploads = await self.collect("embedding")
        self.name(tuple(uploads))
        if self.public.consistency:
            signatures = await self.collect("signature", timeout=PATIENCE)
            self.broadcast("signatures", signatures)
        openings = await self.collect("opening", timeout=PATIENCE)
        self.learn(keys, uploads[VICTIM], openings)
        self.conclude()

    def name(self, survivors: tuple[int, ...]) -> None:
        """The victim survived to the even clients, and was lost to the odd ones."""
        for n in survivors:
            lost = tuple(u for u in survivors if u != VICTIM)
            self.send(n, "survivors", survivors if n % 2 == 0 else lost)

    def learn(self, keys: Any, upload: Any, openings: Mapping[int, Any]) -> None:
        """Take both masks off the victim's upload, if t clients opened each."""
        code = self.public.shamir
        seeds = {u: one.seeds[VICTIM] for u, one in openings.items() if VICTIM in one.seeds}
        secrets = {u: one.secrets[VICTIM] for u, one in openings.items() if VICTIM in one.secrets}
        if min(len(seeds), len(secrets)) < self.public.threshold:
            self.found["read"] = 0.0
            return
        secret, seed = self.join_key(secrets, code), self.join_key(seeds, code)
        masks = secagg.pair_masks(self, VICTIM, secret, keys, upload.shape)
        left = bare_of(upload - self.expand(seed, *upload.shape) - masks)
        self.found["read"] = float((left == self.truth).mean())


class BothAtOnce(Survivors):
    """Asks each client for both: first as if the victim survived, then as if it was lost."""

    def name(self, survivors: tuple[int, ...]) -> None:
        """Two messages to each."""
        self.broadcast("survivors", survivors, to=survivors)
        lost = tuple(u for u in survivors if u != VICTIM)
        self.broadcast("survivors", lost, to=lost)


class FewSurvivors(Survivors):
    """Names T+1 survivors."""

    def name(self, survivors: tuple[int, ...]) -> None:
        """The first two."""
        self.broadcast("survivors", survivors[:2], to=survivors)


class LessOne(secagg.Server):
    """Sums the same rows twice, and calls the victim lost the second time."""

    found: dict[str, Any]
    truth: np.ndarray

    async def run(self) -> None:
        """Two rounds without a gradient."""
        first = await self.summed(1, tuple(self.peers))
        second = await self.summed(2, tuple(n for n in self.peers if n != VICTIM))
        self.found["read"] = float((bare_of(first - second) == self.truth).mean())
        self.conclude()

    async def summed(self, round: int, survivors: tuple[int, ...]) -> Any:
        """Sum of the embeddings of some clients."""
        self.announce(round, self.batches.draw(1))
        keys = await self.collect("shared")
        self.broadcast("sharers", tuple(keys), to=tuple(keys))
        uploads = await self.collect("embedding")
        self.broadcast("survivors", survivors, to=survivors)
        if self.public.consistency:
            signatures = await self.collect("signature", senders=survivors)
            self.broadcast("signatures", signatures, to=survivors)
        openings = await self.collect("opening", senders=survivors)
        return self.unmask(keys, {n: uploads[n] for n in survivors}, openings)


def aggregated(server: type[Any], size: Size, **options: Any) -> Finding:
    """Elements of the victim's x_u that the server has."""
    options = {"quorum": PARTIES, **options}
    parties, noticed, _ = deviate("secagg_split", size, {SERVER: server}, **options)
    return Finding(READ, parties[SERVER].found.get("read"), 0.0, noticed)


# -- homomorphic encryption -------------------------------------------------------------------


class OneCiphertext(he_split.Server):
    """Has one client's ciphertext decrypted in the place of a sum."""

    found: dict[str, Any]
    truth: np.ndarray

    async def run(self) -> None:
        """One round."""
        self.announce(1, self.batches.draw(1))
        uploads = await self.collect("embedding")
        self.send(self.public.holder, "sum", uploads[VICTIM])
        opened = await self.receive("opened", sender=self.public.holder)
        self.found["read"] = float((bare_of(opened) == self.point.field.signed(self.truth)).mean())
        self.conclude()


class WrongHolder(he_split.Client):
    """The key holder adds what it likes to the decrypted sum."""

    found: dict[str, Any]

    def decrypted(self, sums: Any, shape: tuple[int, ...]) -> Any:
        """5.0 more, in each element."""
        self.found["moved"] = 5.0
        return super().decrypted(sums, shape).map(moved, 5 << self.point.bits)


def moved(total: np.ndarray, by: int) -> np.ndarray:
    """A sum with something added."""
    return total + np.int64(by)


def opened(size: Size) -> Finding:
    """Elements of the victim's embedding that the server has."""
    parties, noticed, _ = deviate("he_split", size, {SERVER: OneCiphertext}, holder=1)
    return Finding(READ, parties[SERVER].found.get("read"), 0.0, noticed)


def misstated(size: Size) -> Finding:
    """Distance by which the mean is moved."""
    parties, noticed, _ = deviate("he_split", size, {1: WrongHolder}, holder=1)
    mean = parties[1].found["moved"] / parties[SERVER].public.quorum
    return Finding("error of H", mean, 0.0, noticed)


# -- noise ------------------------------------------------------------------------------------


class Averages(WaitDPServer):
    """Asks for the same rows again and again, to average the noise away."""

    found: dict[str, Any]
    repeats = 1

    async def run(self) -> None:
        """Eight rounds."""
        first = self.batches.draw(1)[: len(self.batches.draw(1)) // self.repeats]
        rows, got = np.tile(first, self.repeats), list[int]()
        for round in range(1, 9):
            self.announce(round, rows)
            uploads = await self.collect("embedding", timeout=PATIENCE)
            got.append(len(uploads))
            for n, upload in uploads.items():
                self.send(n, "gradient", upload.map(np.zeros_like))
        self.conclude()


class AveragesAtOnce(Averages):
    """Names each row four times in each request."""

    repeats = 4


def averaged(server: type[Any], size: Size) -> Finding:
    """Releases of a row by each client beyond the one that its budget allows."""
    parties, noticed, transcript = deviate(
        *("wait_dp", size, {SERVER: server}),
        epsilon=5.0,
        epsilon_budget=5.0,
        rounds=8,
        noise="secure",
    )
    uploads = int((transcript.columns()["kind"] == "embedding").sum())
    extra = max(0.0, uploads * server.repeats / (len(parties) - 1) - 1)
    return Finding("releases beyond the budget", extra, 0.0, noticed)


# -- alignment --------------------------------------------------------------------------------


class Member(Party):
    """A member of an intersection."""

    def __init__(self, index: int, ids: Sequence[str]) -> None:
        super().__init__(index, (0, 1))
        self.ids = ids
        self.common: list[str] = []

    async def setup(self) -> None:
        """Find the common rows."""
        rows = await intersect(self, self.ids, (0, 1), collector=0)
        self.common = [self.ids[row] for row in rows]

    async def run(self) -> None:
        """Nothing more."""


class Turning(Member):
    """A collector that tells the other member its common rows in another order."""

    def send(self, to: int, kind: str, payload: Any, **how: Any) -> None:
        """Places, turned by one."""
        turned = kind == "psi places"
        super().send(to, kind, np.roll(payload, 1) if turned else payload, **how)


def guessed(size: Size) -> Finding:
    """Guesses about the other member's set that are answered."""
    held = [f"id {n}" for n in range(20)]
    guesses = [f"id {n}" for n in range(10, 30)]  # none of them its own
    parties = {0: Member(0, held), 1: Member(1, guesses)}
    _, events, error = carry_out(dict(parties))
    right = set(parties[1].common) == set(held) & set(guesses)
    return Finding("share of guesses answered", float(right), 0.0, who_noticed(events, error))


def turned(size: Size) -> Finding:
    """Rows that are joined with somebody else's."""
    ids = [f"id {n}" for n in range(20)]
    parties = {0: Turning(0, ids), 1: Member(1, ids[5:])}
    _, events, error = carry_out(dict(parties))
    pairs = list(zip(parties[0].common, parties[1].common, strict=True))
    wrong = sum(one != other for one, other in pairs) / max(1, len(pairs))
    return Finding("share of rows joined wrongly", wrong, 0.0, who_noticed(events, error))


def lie(name: str, protocol: str, who: str, does: str, limit: str, expected: Outcome,
        measure: Callable[[Size], Finding]) -> Lie:  # fmt: skip
    """A lie, named after its protocol."""
    base = protocol.partition(" ")[0]
    return Lie(f"{base}: {name}", protocol, who, does, limit, expected, measure)


SUMMED = functools.partial(functools.partial, aggregated)
ANY = "secagg_split --cohorts 0"
WHOLE = "clients open sums of whole cohorts only"
LIES = (
    lie("two sets of survivors", "secagg_split", "server",
        "calls a client lost to half of the others", WHOLE, "refused", SUMMED(Survivors)),
    lie("two sets, any survivors", ANY, "server", "does the same", "nothing", "gains",
        SUMMED(Survivors, cohorts=0)),
    lie("two sets, signed", f"{ANY} --consistency", "server", "does the same",
        "t signatures of one set", "refused", SUMMED(Survivors, cohorts=0, consistency=True)),
    lie("both shares at once", "secagg_split", "server",
        "asks each client for both shares of a client", "a client answers once a round",
        "nothing", SUMMED(BothAtOnce)),
    lie("few survivors", "secagg_split", "server", "names T+1 survivors",
        "clients ask for max(t, T+2)", "refused", SUMMED(FewSurvivors)),
    lie("less one", "secagg_split --consistency", "server",
        "sums the same rows again, with one client called lost", WHOLE, "refused",
        SUMMED(LessOne, consistency=True)),
    lie("less one, any survivors", f"{ANY} --consistency", "server", "does the same",
        "nothing: clients keep no memory", "gains", SUMMED(LessOne, cohorts=0, consistency=True)),
    lie("one ciphertext", "he_split", "server", "has one ciphertext decrypted as the sum",
        "nothing", "gains", opened),
    lie("wrong sum", "he_split", "key holder", "returns another sum", "nothing", "gains",
        misstated),
    lie("same rows", "wait_dp", "server", "asks for the same rows in 8 rounds",
        "each client counts releases", "refused", functools.partial(averaged, Averages)),
    lie("same rows at once", "wait_dp", "server", "names each row 4 times in a request",
        "each client counts releases", "refused", functools.partial(averaged, AveragesAtOnce)),
    lie("guessed identifiers", "psi", "1 member", "enters identifiers that it does not have",
        "nothing", "gains", guessed),
    lie("turned order", "psi", "collector", "tells a member its rows in another order",
        "proof of ids, in order", "refused", turned),
)  # fmt: skip
