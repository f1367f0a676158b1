"""A server of coded split learning that deals, or asks for, what it may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from securevfl.data import load_dataset
from securevfl.field.lagrange import interpolation_matrix
from securevfl.protocols.coded_split.messages import Request
from securevfl.protocols.coded_split.parameters import UPLOAD
from securevfl.verified import bare_of
from securevfl.verified.values import public_element
from tests.audit.attacks.off_polynomial import rows_from_products
from tests.lies.coded_split_stage import VICTIM, LyingServer, play
from tests.lies.lie import Finding, Lie, Outcome, Size
from tests.lies.running import Played

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

MOVED = (5, VICTIM)  # holders whose shares lie off the polynomial
HELPS = 2  # the holder that colludes
SMALL_DATA = 120  # rows of 30 columns, where all are solved for


def units(shape: tuple[int, ...], first: int, dtype: Any) -> np.ndarray:
    """A step with one entry a column: 1 in row `first` + c of column c."""
    made = np.zeros(shape, dtype)
    places = np.arange(min(shape[1], shape[0] - first))
    made[first + places, places] = 1
    return made


class OffPolynomial(LyingServer):
    """Adds unit steps to what it deals to two holders, and reads their uploads for it.

    In round r + 1 a holder's upload is off by F(alpha_j) F_B(alpha_j)^T times all that was added.
    """

    to: ClassVar[tuple[int, ...]] = MOVED

    async def run(self) -> None:
        """Batches have all rows, so that a few rounds give all inner products."""
        field, h = self.public.field, self.public.config.width
        order = self.public.batches["train"].draw(1)
        M = len(order)
        self.found["moved"] = self.to
        products = {j: np.zeros((M, M), field.dtype) for j in self.to}
        added = np.zeros((M, h), np.int64)
        for number in range(-(-M // h) + 1):
            rows = self.public.batches["train"].draw(number + 1)
            uploads = await self.uploads(number + 1)
            if number:
                for j in self.to:
                    self.read(products[j], uploads, rows, j, (number - 1) * h)
            self.train_on({j: y for j, y in uploads.items() if j not in self.to})
            self.deal()
            back = np.argsort(self.public.batches["train"].draw(number + 1))
            unit = units((M, h), number * h, np.int64)  # by row number
            shares = self.shares()
            own = (unit - added)[np.argsort(back)]  # what was added before is taken back
            for j in self.to:
                moved = field.add(shares[j], field.reduce(own))
                self.send(j, "deal", (self.digest_of(self.steps), moved), round=self.steps)
            added = unit
        self.found["products"] = products
        self.broadcast("stop", None)

    def deal(self) -> None:
        """To all but those two, as it should be."""
        shares = self.shares()
        seed = self.dealt(self.steps).seeds[0]
        self.send(0, "seed", (self.digest_of(self.steps), seed), round=self.steps)
        self.hand_out({j: s for j, s in enumerate(shares) if j not in self.to}, self.steps)

    def read(
        self, into: np.ndarray, uploads: dict[int, np.ndarray], rows: np.ndarray, j: int, at: int
    ) -> None:
        """Inner products of all rows with those that the last units named."""
        off = self.public.field.subtract(uploads[j], self.expected(uploads, j))
        width = min(off.shape[1], into.shape[1] - at)
        into[rows, at : at + width] = off[:, :width]


def products_read(
    data: VerticalDataset, size: Size, server: type[OffPolynomial], **options: Any
) -> tuple[float, Played]:
    """Share of the inner products of the last such holder's shares, of all rows, that is read."""
    rows = data.rows
    given = {"batch": rows, "degree": 1, "rounds": -(-rows // size.width) + 2, **options}
    played = play(size, server, data=data, parties=data.parties, **given)
    field, products = played.server.public.field, played.found["products"]
    F = played.judge.shares(server.to[-1])
    truth = field.matmul(F, np.ascontiguousarray(F.T))
    return float((products[server.to[-1]] == truth).mean()), played


def off_polynomial(size: Size, *, helped: bool) -> Finding:
    """Inner products of a holder's shares that are read, or with a colluder everybody's rows."""
    data = load_dataset("breast-cancer", parties=10).subset(SMALL_DATA, 20)
    read, played = products_read(data, size, OffPolynomial)
    field, judge, products = played.server.public.field, played.judge, played.found["products"]
    if not helped:
        quantity = "share of inner products of one holder's data shares that is read"
        return Finding(quantity, read, 0.0, played.noticed())
    code = played.server.public.code
    ends = np.cumsum(played.server.public.sizes) - 1  # each owner's last column has ones
    one = np.full(SMALL_DATA, 1 << played.server.public.data_point.bits, field.dtype)
    known = dict.fromkeys(ends.tolist(), one)
    found = rows_from_products(code, HELPS, judge.shares(HELPS), products, known)
    every = [0, 1]  # K + T shares
    at = interpolation_matrix(field, [code.alphas[j] for j in every], [code.betas[0]])
    stack = np.stack([judge.shares(j) for j in every])
    truth = field.matmul(at, stack.reshape(len(every), -1)).reshape(stack[0].shape)
    read = 0.0 if found is None else float((found == truth).mean())
    return Finding("share of all owners' data that is read", read, 0.0, played.noticed())


class ChosenStep(LyingServer):
    """Deals a consistent step with one entry a column, and has the same rows summed again."""

    honest = False

    async def run(self) -> None:
        """Two rounds of all rows."""
        layout, width = self.public.batches["train"], self.public.config.width
        sums = []
        for number in (1, 2):
            rows = layout.draw(number)
            self.begin(number)
            found = await self.sums()
            decoded = self.field.signed(bare_of(found))[0]
            sums.append(decoded[np.argsort(rows)].astype(np.float64))
            bare_of(self.made).bound.promised = lambda rows: np.array(2**62)
            self.train(rows, found)
            if not self.honest:
                step = units((len(rows), width), 0, np.int64)[rows]
                own = public_element(self.field.reduce(step[None]), self.field, None)
                self.log = (*self.log[:-1], own)
            self.deal()
        first = self.field.signed(bare_of(self.log[0]))[0]
        step = first[np.argsort(layout.draw(1))].astype(np.float64)
        columns = np.linalg.pinv(step, rcond=1e-9)[:, :width]
        self.found["products"] = (sums[1] - sums[0]) @ columns
        self.broadcast("stop", None)


class OwnStep(ChosenStep):
    """Deals its own step, as an honest server does."""

    honest = True


def chosen_step(size: Size) -> Finding:
    """Columns of X X^T of all owners."""
    errors = []
    for server in (ChosenStep, OwnStep):
        played = play(size, server, batch=size.rows, rounds=2)
        code, judge = played.server.public.code, played.judge
        at = interpolation_matrix(code.field, [code.alphas[0], code.alphas[1]], [code.betas[0]])
        stack = np.stack([judge.shares(0), judge.shares(1)])
        X = code.field.signed(code.field.matmul(at, stack.reshape(2, -1))).astype(np.float64)
        X = X.reshape(stack[0].shape)
        truth = X @ X[: size.width].T
        guess = played.found["products"]
        errors.append(float(np.linalg.norm(guess - truth) / np.linalg.norm(truth)))
    quantity = "relative error of X X^T of all (h columns) after one step"
    return Finding(quantity, errors[0], errors[1], played.noticed(), sign=-1)


class Withholds(LyingServer):
    """Leaves a step out for one holder, deals it the next one, and does not answer questions."""

    async def run(self) -> None:
        """Two steps."""
        for number in (1, 2):
            self.train_on(await self.uploads(number))
            if number == 2:
                self.deal()
                break
            first = self.digest_of(1), self.dealt(1).seeds[0]
            self.send(0, "seed", first, round=1)
            self.hand_out({j: s for j, s in enumerate(self.shares()) if j != VICTIM}, 1)
        found = await self.uploads(3)
        self.found["answers"] = float(VICTIM in found)
        self.broadcast("stop", None)


class DealsAgain(LyingServer):
    """Deals a step a second time, with other elements, and goes back to the step before."""

    async def run(self) -> None:
        """Two steps, then others in their place."""
        for number in (1, 2):
            self.train_on(await self.uploads(number))
            self.deal()
        await self.uploads(3)
        before = {j: bare_of(self.judge.parties[j].model[0]).copy() for j in self.peers}
        for step in (2, 1):
            shape = self.log[-1].shape[1:]
            self.hand_out({j: self.public.field.random(shape) for j in self.peers}, step)
        again = await self.uploads(3)
        changed = [(bare_of(self.judge.parties[j].model[0]) != before[j]).any() for j in self.peers]
        self.found["answers"] = (len(again) + sum(changed)) / len(self.peers)
        self.broadcast("stop", None)


class DealsAnew(LyingServer):
    """Deals a holder another first step when its operator has put back an older state of it.

    Under one mask the two uploads for the next batch differ by products of the holder's shares.
    """

    truthful = False

    async def run(self) -> None:
        """The step moved by one entry a column, under the old digest or under its own."""
        layout, victim = self.public.batches["train"], self.judge.parties[VICTIM]
        self.train_on(await self.uploads(1))
        older = victim.model
        self.deal()
        self.begin(2)
        first = bare_of(await self.receive("embedding", sender=VICTIM, round=2))
        victim.model, victim.uploaded = older, 0
        added = units(self.log[0].shape[1:], 0, np.int64)
        share = self.public.field.add(self.shares()[VICTIM], self.public.field.reduce(added))
        made = self.dealing.dealt(self, self.secret, 1, self.log[0] + added[None])
        other = bytes(bare_of(made.digest).tobytes())
        told = other if self.truthful else self.digest_of(1)
        self.send(VICTIM, "deal", (told, share), round=1)
        again = bare_of(await self.receive("embedding", sender=VICTIM, round=2))
        off = self.public.field.subtract(again, first)
        F, h = self.judge.shares(VICTIM), self.public.config.width
        others = np.ascontiguousarray(F[layout.draw(1)[:h]].T)
        truth = self.public.field.matmul(F[layout.draw(2)], others)
        self.found["answers"] = float((off[:, : truth.shape[1]] == truth).mean())
        self.broadcast("stop", None)


class DealsAnewTruly(DealsAnew):
    """Does so under the digest of the other step, as an honest server that went back."""

    truthful = True


class OtherDigests(LyingServer):
    """Tells half of the holders another digest of the first step."""

    async def run(self) -> None:
        """Each half decodes to the same sums, for what masks them is zero there."""
        self.train_on(await self.uploads(1))
        half, told = len(self.peers) // 2, self.digest_of(1)
        other = np.frombuffer(told, self.field.dtype)[::-1].tobytes()  # elements, too
        seed = self.dealt(1).seeds[0]
        for j, share in enumerate(self.shares()):
            digest = told if j < half else other
            if j:
                self.send(j, "deal", (digest, share), round=1)
            else:
                self.send(j, "seed", (digest, seed), round=1)
        found = await self.uploads(2)
        sums = []
        for chosen in (range(half), range(half, 2 * half)):
            some = list(chosen)[: self.public.threshold]
            stack = np.stack([found[j] for j in some])
            sums.append(self.public.code.decode(stack, some, degree=UPLOAD))
        self.found["answers"] = float((sums[0] != sums[1]).mean())
        self.broadcast("stop", None)


class Asks(LyingServer):
    """Trains honestly, then asks for test rows as it likes."""

    async def run(self) -> None:
        """All steps, then `ask`."""
        rounds = self.public.config.rounds
        for number in range(1, rounds + 1):
            self.train_on(await self.uploads(number))
            self.deal()
        await self.ask(rounds + 1)
        self.broadcast("stop", None)

    async def ask(self, round: int) -> None:
        """Questions that the lying server asks; a subclass says which."""

    def request(self, j: int, rows: Any, piece: int = 0) -> None:
        """Ask one holder for some rows."""
        self.send(j, "request", Request("test", piece, np.asarray(rows, np.uint32)))


class SameLabel(Asks):
    """Asks for other rows under a label that was answered."""

    async def ask(self, round: int) -> None:
        """The same piece twice."""
        for rows in ([0, 1, 2, 3], [4, 5, 6, 7]):
            for j in self.peers:
                self.request(j, rows)
            found = await self.uploads(round)
        self.found["answers"] = len(found) / len(self.peers)


class OtherRows(Asks):
    """Names other rows to half of the holders under one label."""

    async def ask(self, round: int) -> None:
        """The first half's polynomial less the second's, at a holder's point: are masks in it?"""
        code, half = self.public.code, len(self.peers) // 2
        for j in self.peers:
            self.request(j, [0, 1, 2, 3] if j < half else [4, 5, 6, 7])
        found = await self.uploads(round)
        point = [code.alphas[0]]
        read = []
        for values in (found, {j: self.judge.plain[j, round] for j in found}):
            parts = []
            for chosen in (range(half), range(half, 2 * half)):
                some = list(chosen)[: self.public.threshold]
                onto = interpolation_matrix(code.field, [code.alphas[j] for j in some], point)
                stack = np.stack([values[j] for j in some])
                parts.append(code.field.matmul(onto, stack.reshape(len(some), -1)))
            read.append(code.field.subtract(*parts))
        self.found["answers"] = float((read[0] == read[1]).mean())


class OneRow(Asks):
    """Names one row at all places of a piece: masks of equal rows would cancel."""

    async def ask(self, round: int) -> None:
        """Differences of places of one upload, all of them 0 without masks."""
        for j in self.peers:
            self.request(j, [3, 3, 3, 3])
        found = await self.uploads(round)
        upload = found[VICTIM]
        self.found["answers"] = float((upload[1:] == upload[0]).mean())


class NoSuchRow(Asks):
    """Asks for a row that does not exist."""

    async def ask(self, round: int) -> None:
        """Far beyond the last one."""
        for j in self.peers:
            self.request(j, [10**6])
        await self.uploads(round)


class OtherShape(LyingServer):
    """Deals one holder a share with one column less."""

    async def run(self) -> None:
        """One step."""
        self.train_on(await self.uploads(1))
        self.hand_out({VICTIM: np.ascontiguousarray(self.shares()[VICTIM][:, :-1])}, 1)
        await self.uploads(2)
        self.broadcast("stop", None)


def answers(server: type[LyingServer], quantity: str, **options: Any) -> Callable[[Size], Finding]:
    """Measure of the share that a lying server found; None where the run ended before."""

    def measure(size: Size) -> Finding:
        played = play(size, server, **options)
        return Finding(quantity, played.found.get("answers"), 0.0, played.noticed())

    return measure


def lie(name: str, does: str, limit: str, expected: Outcome,
        measure: Callable[[Size], Finding], options: str = "") -> Lie:  # fmt: skip
    """A lie of the server of coded split learning."""
    named = f"coded_split{options}"
    return Lie(f"coded_split: {name}", named, "server", does, limit, expected, measure)


SECURE = " --secure"
NO_DEAL = "a holder takes each step once"
LIES = (
    lie("off the polynomial", "adds to the shares of a step that it deals to a holder",
        "nothing: no holder can tell", "gains", lambda size: off_polynomial(size, helped=False)),
    lie("off the polynomial, helped",
        "does so to two holders, and one holder shows it its shares",
        "nothing", "gains",
        lambda size: off_polynomial(size, helped=True)),
    lie("chosen step", "deals a step with one entry a column, and sums the rows again",
        "nothing; its own steps tell the same later", "gains", chosen_step),
    lie("withheld step", "leaves out a step for one holder, and deals it the next one",
        "a holder with a gap does not upload", "nothing",
        answers(Withholds, "share of such holders that upload")),
    lie("steps dealt again", "deals steps again with other elements, back to the first",
        NO_DEAL, "nothing", answers(DealsAgain, "share of holders that answer or change")),
    lie("other digests for half", "tells half of the holders another digest of a step",
        "two masks, both zero at the data points", "nothing",
        answers(OtherDigests, "share of sums that differ")),
    lie("another step after a restore",
        "deals another step, with its digest, to a holder that was put back to an older state",
        "the digest is in the masks' key", "nothing",
        answers(DealsAnewTruly, "share of inner products of its data shares that is read")),
    lie("another step, same digest",
        "does so with the digest of the first step",
        "nothing; it needs the holder's restore", "gains",
        answers(DealsAnew, "share of inner products of its data shares that is read")),
    lie("label used again", "asks for other test rows under an answered label",
        "the rows of a piece are public", "refused",
        answers(SameLabel, "share of holders that upload again", secure=True), SECURE),
    lie("other rows for half", "names other rows to half of the holders under one label",
        "the rows of a piece are public", "refused",
        answers(OtherRows, "share of psi_1 - psi_2 that is read", secure=True), SECURE),
    lie("one row", "names one row at all places of a piece", "the rows of a piece are public",
        "refused", answers(OneRow, "share of places whose masks cancel", secure=True), SECURE),
    lie("no such row", "asks for a row that does not exist",
        "the rows of a piece are public", "refused",
        answers(NoSuchRow, "share of holders that upload", secure=True), SECURE),
    lie("share of another shape", "deals one holder a share with one column less",
        "its form is checked", "refused",
        answers(OtherShape, "share of holders that upload")),
)  # fmt: skip
