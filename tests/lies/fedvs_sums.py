"""A server of FedVS that lies about its sums: second sums of the same rows, and equivocation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from securevfl.engine.mailbox import ANNOUNCE
from securevfl.field.lagrange import interpolation_matrix
from securevfl.field.prss import mask_streams
from securevfl.protocols.fedvs.messages import Attempt, Batch
from securevfl.verified import Element, bare_of
from tests.lies.lie import Finding, Lie, Outcome, Size
from tests.lies.running import Played
from tests.lies.stage import PARTIES, VICTIM, LyingServer, play, relative

HELPER = 0  # a client that helps the server
EMBEDDING = "relative error of one client's embedding"
_DOWN = [{"party": n, "seconds": [0.2, 0.5]} for n in range(5)]


class SecondSum(LyingServer):
    """Has rows summed over all clients, and again without the victim."""

    words: ClassVar[Mapping[str, Any]] = {}
    victim: ClassVar[int] = VICTIM
    outside: ClassVar[tuple[int, ...]] = ()  # clients that stand in neither sum

    async def run(self) -> None:
        """Ask twice and subtract."""
        batch = self.rows()
        first = self.sums(await self.ask(batch, self.all_but(*self.outside)))
        assert first is not None
        truth = self.judge.embedding(self.victim, batch)
        await self.between()
        less = self.all_but(self.victim, *self.outside)
        second = self.sums(await self.ask(self.again(batch), less, **self.words))
        terms = len(self.peers) - len(self.outside)
        self.found["guess"] = relative(first / terms, truth)
        if second is not None:
            self.found["error"] = relative(first - second, truth)
        self.conclude()

    async def between(self) -> None:
        """Steps between the two sums; none here."""

    def again(self, batch: Batch) -> Batch:
        """The rows of the second sum."""
        return batch


class SaysStepped(SecondSum):
    """Calls the first round a step."""

    words: ClassVar[Mapping[str, Any]] = {"stepped": 1}


class SaysHarmless(SecondSum):
    """Says that too few uploaded in the first round, all of whose uploads it has."""

    words: ClassVar[Mapping[str, Any]] = {"harmless": (1,)}


class ZeroGradient(SecondSum):
    """Sends a gradient that moves nothing."""

    async def between(self) -> None:
        """No step."""
        self.gradient(0.0)


class TinyGradient(SecondSum):
    """Sends a gradient that moves every model by some units of its rounding."""

    async def between(self) -> None:
        """Let every bias move by 2^-22: Adam steps by lr g / (|g| + 1e-8)."""
        config = self.public.config
        lr = config.client_lr or config.lr
        wanted = 2.0**-22 / lr * (1e-8 if config.optimizer == "adam" else 1.0)
        samples = len(self.batch.rows) * self.public.code.segments
        self.gradient(wanted * len(self.peers) / samples)


class Crashed(SaysStepped):
    """Waits until enough clients have crashed and come back, and calls the round a step."""

    async def between(self) -> None:
        """The outages are over after a second."""
        await self.sleep(1.0)


class Outside(SecondSum):
    """Leaves R clients out of both sums: these believe that a gradient was a step of the others."""

    outside: ClassVar[tuple[int, ...]] = (0, 1, 2, 3, 4)

    async def between(self) -> None:
        """A gradient below what any model is moved by."""
        self.gradient(1e-30)


class NegativeRows(SecondSum):
    """Names the rows by their numbers from the end the second time."""

    def again(self, batch: Batch) -> Batch:
        """The same rows by other numbers."""
        length = self.public.batches["train"].length
        return Batch("train", batch.rows.astype(np.int64) - length)


class OfTestRows(SecondSum):
    """Does so with test rows."""

    def rows(self) -> Batch:
        """The first test rows."""
        return Batch("test", np.arange(self.public.batches["test"].coded, dtype=np.uint32))


class RoundTwice(LyingServer):
    """Announces a round a second time, with other rows."""

    async def run(self) -> None:
        """A client answers a round once."""
        await self.ask(self.rows())
        self.gradient(0.0)
        self.round = 0
        await self.ask(Batch("train", self.public.batches["train"].draw(2)))
        self.found["again"] = self.judge.uploads / len(self.peers) - 1
        self.round = 1
        self.conclude()


class TwoSharers(LyingServer):
    """Names all sharers to one half of the clients, and all but the victim to the other half."""

    victim: ClassVar[int] = VICTIM

    async def run(self) -> None:
        """Decode each half by itself."""
        batch = self.batch = self.rows()
        self.announce(1, batch)
        await self.collect("shared")
        half = len(self.peers) // 2
        one, two = tuple(self.peers)[:half], tuple(self.peers)[half:]
        self.broadcast("attempt", self.named(), to=one)
        self.broadcast("attempt", self.named(self.all_but(self.victim)), to=two)
        uploads = await self.uploads()
        sums = [self.sums({n: uploads[n] for n in side if n in uploads}) for side in (one, two)]
        truth = self.judge.embedding(self.victim, batch)
        if sums[0] is not None:
            self.found["guess"] = relative(sums[0] / len(self.peers), truth)
            if sums[1] is not None:
                self.found["error"] = relative(sums[0] - sums[1], truth)
        self.conclude()


class HelpedTwoSharers(LyingServer):
    """Does so with a client that computes, from its shares and keys, what it would upload to both.

    Nine clients, R = 5: with the helper each of the two sums has five uploads.
    """

    async def run(self) -> None:
        """Decode each half with the helper."""
        batch = self.batch = self.rows()
        self.announce(1, batch)
        await self.collect("shared")
        helper = self.judge.parties[HELPER]
        whole, less = self.named(), self.named(self.all_but(VICTIM))
        shares: dict[int, Element] = {}
        plain = helper.evaluate

        def noting(batch: Batch, attempt: Attempt, models: Mapping[int, Element]) -> Any:
            shares.update(models)
            return plain(batch, attempt, models)

        helper.evaluate = noting
        half = len(self.peers) // 2 + 1
        one, two = tuple(self.peers)[:half], tuple(self.peers)[half:]
        self.broadcast("attempt", whole, to=one)
        self.broadcast("attempt", less, to=two)
        uploads = await self.uploads()
        truth = self.judge.embedding(VICTIM, batch)
        first = self.sums({n: uploads[n] for n in one if n in uploads})
        if first is not None:
            self.found["guess"] = relative(first / len(self.peers), truth)
            own = helper.masked(plain(batch, less, shares), less.told(self.round, batch))
            second = self.sums(
                {n: uploads[n] for n in two if n in uploads} | {HELPER: bare_of(own)}
            )
            if second is not None:
                self.found["error"] = relative(first - second, truth)
        self.conclude()


class TwoBatches(LyingServer):
    """Names one batch to one half of the clients, and another one to the other half."""

    async def run(self) -> None:
        """Subtract the two polynomials, which had the same masks if labels did not tell rows."""
        batches = self.public.batches["train"]
        half = len(self.peers) // 2
        one, two = tuple(self.peers)[:half], tuple(self.peers)[half:]
        self.round = 1
        self.engine.enter_round(self, 1)
        self.broadcast(ANNOUNCE, Batch("train", batches.draw(1)), to=one)
        self.broadcast(ANNOUNCE, Batch("train", batches.draw(2)), to=two)
        await self.collect("shared")
        self.broadcast("attempt", self.named())
        uploads = await self.uploads()
        if len(uploads) == len(self.peers):
            field = self.public.field
            masked, plain = [
                field.subtract(
                    *[elsewhere(self, {n: sent[n] for n in side}) for side in (one, two)]
                )
                for sent in (uploads, self.judge.plain)
            ]
            self.found["read"] = float((masked == plain).mean())
        self.conclude()


class Listens(LyingServer):
    """Interpolates the polynomial of the uploads."""

    async def run(self) -> None:
        """One round; the judge compares with the uploads before masks."""
        uploads = await self.ask(self.rows())
        chosen = list(self.peers)[: self.public.threshold]
        masked, plain = [
            elsewhere(self, {n: sent[n] for n in chosen})
            for sent in (self.unmasked(uploads), self.judge.plain)
        ]
        self.found["read"] = float((masked == plain).mean())
        self.conclude()

    def unmasked(self, uploads: Mapping[int, np.ndarray]) -> Mapping[int, np.ndarray]:
        """The uploads, without what it knows of their masks."""
        return uploads


class HasKeys(Listens):
    """Has the keys of some clients, and takes off what these make of the masks."""

    of: ClassVar[tuple[int, ...]] = ()

    def unmasked(self, uploads: Mapping[int, np.ndarray]) -> Mapping[int, np.ndarray]:
        """Uploads less P times the part of rho whose keys it has."""
        public, field, prss = self.public, self.public.field, self.public.prss
        told = self.named().told(self.round, self.batch)
        unknown = mask_streams(public.code, degree=2)
        known: dict[int, bytes] = {}
        for n in self.of:
            known |= bare_of(self.judge.parties[n].keys)
        found = {}
        for n, upload in uploads.items():
            some = {key: known[key] for key in prss.held(n) if key in known}
            rho = prss.part(n, some, told, upload.shape, unknown)
            hidden = field.multiply(public.code.vanishing[n], rho)
            found[n] = field.subtract(upload, hidden)
        return found


class LabelAgain(LyingServer):
    """Asks clients that crashed for the same round again, whose label they have used."""

    async def run(self) -> None:
        """The same announcement again: V is another one, and the masks would be the same."""
        await self.ask(self.rows())
        await self.sleep(1.0)
        self.round = 0
        self.found["again"] = len(await self.ask(self.rows()))
        self.round = 1
        self.conclude()


class OneRow(Listens):
    """Names one row at all places of the batch."""

    def rows(self) -> Batch:
        """The first row again and again."""
        rows = super().rows().rows
        return Batch("train", np.full_like(rows, rows[0]))


def elsewhere(server: LyingServer, uploads: Mapping[int, np.ndarray]) -> np.ndarray:
    """The polynomial of some uploads at R points that are nobody's."""
    code = server.public.code
    points = list(range(10**6, 10**6 + server.public.threshold))
    matrix = interpolation_matrix(code.field, [code.alphas[n] for n in uploads], points)
    values = np.stack(list(uploads.values())).reshape(len(uploads), -1)
    made: np.ndarray = code.field.matmul(matrix, values)
    return made


def embedding_of(server: type[LyingServer], size: Size, **options: Any) -> Finding:
    """Error of the victim's embedding from two sums; the guess is the mean of all embeddings."""
    played = play(size, server, **options)
    return Finding(
        *(EMBEDDING, played.found.get("error"), played.found.get("guess", 1.0)),
        played.noticed(),
        sign=-1,
    )


def label_again(size: Size) -> Finding:
    """Clients that upload under a label again; the server's engine takes them as late ones."""
    every = [{"party": n, "seconds": [0.2, 0.5]} for n in range(PARTIES)]
    played = play(size, LabelAgain, outages=every)
    late = [e for e in played.events if e.name == "late" and e.fields["kind"] == "embedding"]
    quantity = "share of clients that upload again"
    again = (played.found["again"] + len(late)) / PARTIES
    return Finding(quantity, again, 0.0, played.noticed())


def crashed(size: Size) -> Finding:
    """R clients are down for a moment between the two sums."""
    return embedding_of(Crashed, size, outages=_DOWN)


def two_batches(size: Size, **options: Any) -> Finding:
    """Elements of psi_1 - psi_2 that the server has, of which an honest one has none."""
    played: Played = play(size, TwoBatches, **options)
    return Finding(
        *("share of psi_1 - psi_2 that is read", played.found.get("read"), 0.0),
        played.noticed(),
    )


def round_twice(size: Size) -> Finding:
    """Clients that upload in a round again."""
    played = play(size, RoundTwice)
    quantity = "share of clients that upload again"
    return Finding(quantity, played.found["again"], 0.0, played.noticed())


def one_row(size: Size) -> Finding:
    """Elements of psi that are read where all places of the batch have one row."""
    played = play(size, OneRow)
    return Finding("share of psi that is read", played.found["read"], 0.0, played.noticed())


def lie(name: str, does: str, limit: str, expected: Outcome,
        measure: Callable[[Size], Finding], options: str = "") -> Lie:  # fmt: skip
    """A lie of the server of FedVS."""
    return Lie(f"fedvs: {name}", f"fedvs{options}", "server", does, limit, expected, measure)


def second(server: type[LyingServer], **options: Any) -> Callable[[Size], Finding]:
    """Measure of a second sum."""
    return functools.partial(embedding_of, server, **options)


MEMORY = "each client remembers what it uploaded to"
HALVES = "only that 2R must be at most N"
WHOLE = "clients check that S is whole cohorts"
LIES = (
    lie("second sum", "sums the same rows over S and over S less one client", MEMORY, "refused",
        second(SecondSum)),
    lie("stepped", "the same, and says that it stepped in between", MEMORY, "refused",
        second(SaysStepped)),
    lie("harmless", "the same, and calls the first round harmless", MEMORY, "refused",
        second(SaysHarmless)),
    lie("zero gradient", "the same, after a gradient of zeros",
        "a client forgets only when its own model has moved", "refused", second(ZeroGradient)),
    lie("tiny gradient", "the same, after a gradient that moves models by 2^-22", "nothing",
        "gains", second(TinyGradient)),
    lie("stepped, crashed", "says `stepped` to R clients that crashed in between",
        "only that R clients must crash", "gains", crashed),
    lie("stepped, outside", "a gradient of 1e-30, with R clients outside S",
        "only that N must be at least R+T+3", "gains", second(Outside)),
    lie("second sum, test rows", "sums test rows over S and over S less one client", MEMORY,
        "refused", second(OfTestRows, secure=True), " --secure"),
    lie("a round twice", "announces a round again with other rows", "a client answers a round once",
        "nothing", round_twice),
    lie("negative rows", "names the rows of the second sum by other numbers",
        "clients take row numbers in one form only", "refused", second(NegativeRows)),
    lie("two sets of sharers", "names other sharers to half of the clients", HALVES, "gains",
        second(TwoSharers)),
    lie("two sets of sharers, helped", "the same, with the shares and keys of one client (N = 9)",
        "only that 2R must be at most N + T", "gains", second(HelpedTwoSharers, parties=9)),
    lie("two sets of sharers, cohorts", "the same, where cohorts are the default", WHOLE,
        "refused", second(HelpedTwoSharers, parties=9, cohorts=None)),
    lie("tiny gradient, cohorts", "a tiny gradient and S less one client, where cohorts are the "
        "default", WHOLE, "refused", second(TinyGradient, cohorts=None)),
    lie("two batches", "names other rows to half of the clients",
        "masks follow from all that was announced", "nothing", two_batches),
    lie("a label twice", "asks clients that all crashed for the same round again",
        "a client answers a round once, and no label twice", "refused", label_again),
    lie("one row", "names one row at all places of a batch", "each place has masks of its own",
        "nothing", one_row),
    lie("second sum, plain", "sums the same rows over S and over S less one client",
        "nothing: plain claims nothing", "gains", second(SecondSum, masked=False),
        " --no-masked"),
)  # fmt: skip
