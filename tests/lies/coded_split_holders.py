"""Owners and holders of coded split learning that deviate: shares, keys, steps, uploads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from securevfl.engine.network import SERVER
from securevfl.field.lagrange import interpolation_matrix
from securevfl.field.prss import KEY
from securevfl.protocols.coded_split.algorithm import Owner
from securevfl.protocols.coded_split.messages import Label, digest_words
from securevfl.protocols.coded_split.parameters import UPLOAD
from securevfl.verified import Key, bare_of
from securevfl.verified.parties import asked
from tests.lies.coded_split_stage import VICTIM, LyingServer, play
from tests.lies.dealing import (
    Inconsistent,
    KeepsKeys,
    OfAnotherShape,
    WrongKeys,
)
from tests.lies.lie import Finding, Lie, Outcome, Size
from tests.lies.running import Played

MOVED = "error of H"
LIAR = 0  # it is among the first R, and draws most keys


class WrongUpload(Owner):
    """Uploads random elements."""

    def send(self, to: int, kind: str, payload: Any, **how: Any) -> None:
        """Nothing that was computed."""
        if kind == "embedding":
            payload = self.public.field.random(payload.shape)
        super().send(to, kind, payload, **how)


class ShortUpload(Owner):
    """Uploads an array of another shape."""

    def send(self, to: int, kind: str, payload: Any, **how: Any) -> None:
        """One column is missing."""
        if kind == "embedding":
            payload = np.ascontiguousarray(bare_of(payload)[:, :-1])
        super().send(to, kind, payload, **how)


class Leaves(Owner):
    """Takes part in set-up, and never uploads."""

    def upload(self, label: Label, rows: np.ndarray, round: int) -> None:
        """Nothing."""


class Skips(Owner):
    """Says that it has the first step, and does not apply it."""

    left_out: ClassVar[int] = 1

    def apply(self, step: int, share: np.ndarray, digest: bytes) -> None:
        """The first step changes nothing."""
        super().apply(step, share.times(0) if step == self.left_out else share, digest)


class Twice(Owner):
    """Applies the first step twice."""

    def apply(self, step: int, share: np.ndarray, digest: bytes) -> None:
        """Twice the share is what two times the step would be."""
        super().apply(step, share + share if step == 1 else share, digest)


class OfKeys(WrongKeys, Owner):
    """Sends one holder other keys than it sends the rest."""


class KnownKeys(Owner):
    """Draws keys that the server knows."""

    def key(self, name: str = "k") -> Key:
        """Zeros."""
        return Key(bytes(KEY), None, self.index, None)


class NoKeys(KeepsKeys, Owner):
    """Sends no keys."""


class OfData(Inconsistent, Owner):
    """Shares inconsistent data."""

    kind = "train-data"


class OfModel(Inconsistent, Owner):
    """Shares an inconsistent first model."""

    kind = "model"


class OtherShape(OfAnotherShape, Owner):
    """Shares data of another shape with one holder."""

    kind = "train-data"


class Unbounded(Owner):
    """Shares consistent rows beyond their bound rho_n."""

    factor: ClassVar[int] = 2

    def share(self, kind: str, shares: Sequence[Any] | np.ndarray) -> None:
        """All of the rows, a whole number of times: shares are linear."""
        field = self.public.field
        if kind == "train-data":
            times = field.elements([self.factor])
            shares = [field.multiply(times, np.ascontiguousarray(bare_of(one))) for one in shares]
        super().share(kind, shares)


class FarBeyond(Unbounded):
    """Shares rows so long that sums wrap."""

    factor: ClassVar[int] = 1 << 16


class LargeModel(Owner):
    """Shares weights of 10 as its first model: poison."""

    def share_own(self) -> None:
        """Ten in each entry."""
        self.weights = self.own("weights", np.full_like(bare_of(self.weights), 10.0))
        super().share_own()


class AsksAgain(Owner):
    """Asks for all steps again, and keeps what comes."""

    again: tuple[np.ndarray, ...] = ()

    def take(self, kind: str, step: int, payload: Any) -> None:
        """As it should; and once it has a step, asks from the beginning."""
        if kind == "missed":
            self.again = (*self.again, bare_of(payload[1])[0])
        if step == 1 and kind != "missed":
            self.first = bare_of(payload[1])
            self.send(SERVER, "lacks", 0)
        super().take(kind, step, payload)


class AsksNonsense(Owner):
    """Asks for steps by a word."""

    def take(self, kind: str, step: int, payload: Any) -> None:
        """No number."""
        self.send(SERVER, "lacks", "all")
        super().take(kind, step, payload)


class Colluder(Owner):
    """Adds a polynomial to its upload that vanishes at R-1 honest holders.

    Together with those, A+1 colluders are as many as the decoder believes.
    """

    believed: tuple[int, ...] = ()

    def send(self, to: int, kind: str, payload: Any, **how: Any) -> None:
        """E(alpha) is added, for E of degree R-1 with a large value at the data point."""
        if kind == "embedding":
            code, field = self.public.code, self.public.field
            nodes = [code.alphas[n] for n in self.believed] + [code.betas[0]]
            weights = interpolation_matrix(field, nodes, [code.alphas[self.index]])
            shift = field.elements([5 << self.public.sum_bits])
            payload = field.add(bare_of(payload), field.multiply(shift, weights[0, -1]))
        super().send(to, kind, payload, **how)


class Listens(LyingServer):
    """A server that knows the keys that are zeros, and takes their masks off one upload."""

    async def run(self) -> None:
        """One round: the share of an upload that is read."""
        uploads = await self.uploads(1)
        prss, rows = self.public.prss, self.public.batches["train"].draw(1)
        victim = next(n for n in range(VICTIM, len(uploads)) if n not in self.dealers)
        known = {key: bytes(KEY) for key in prss.held(victim) if prss.dealer(key) in self.dealers}
        unknown = {key: bytes(range(KEY)) for key in prss.held(victim) if key not in known}
        words = np.zeros(digest_words(self.field), self.field.dtype)
        label = asked(Label("train", 1).told(rows), [words])
        zeros = np.zeros_like(uploads[victim])
        mask = prss.mask(victim, known | unknown, label, zeros, UPLOAD)
        guess = self.public.field.subtract(uploads[victim], mask)
        self.found["read"] = float((guess == self.judge.plain[victim, 1]).mean())
        self.broadcast("stop", None)

    dealers: ClassVar[tuple[int, ...]] = ()


class ReadsStale(LyingServer):
    """A server that reads the upload of a holder that skipped a step, beside R good ones."""

    async def run(self) -> None:
        """Two rounds; what was dealt to the holder in the first is known."""
        field, layout = self.public.field, self.public.batches["train"]
        self.train_on(await self.uploads(1))
        self.deal()
        uploads = await self.uploads(2)
        off = field.subtract(self.expected(uploads, VICTIM), uploads[VICTIM])
        dealt = self.shares()[VICTIM]
        h = min(dealt.shape)
        solved = field.solve(np.ascontiguousarray(dealt[:h].T[:h]),
                             np.ascontiguousarray(off.T[:h])).T  # fmt: skip
        F = self.judge.shares(VICTIM)
        truth = field.matmul(F[layout.draw(2)], np.ascontiguousarray(F[layout.draw(1)[:h]].T))
        self.found["read"] = float((solved == truth).mean())
        self.broadcast("stop", None)


def moved(liars: Mapping[int, type[Owner]], size: Size, **options: Any) -> Finding:
    """Largest distance of a decoded mean from that of an honest run, over all rounds."""
    lied, honest = play(size, liars=liars, **options), play(size, **options)
    pairs = list(zip(lied.judge.means, honest.judge.means, strict=False))
    value = max((float(np.abs(a - b).max()) for a, b in pairs), default=None)
    right = value == 0.0 and lied.count("corrected") > 0
    return Finding(MOVED, value, 0.0, lied.noticed(), corrected=right)


def colluders(size: Size) -> Finding:
    """A+1 = 2 of 6 holders, where the server has R + 2A = 6 uploads, A = 1."""
    believed = (2, 3, 4)  # R - 1; holder 5 is honest too, and is named
    liar = type("Pair", (Colluder,), {"believed": believed})
    return moved({0: liar, 1: liar}, size, parties=6, tolerate_corrupt=1)


def lost(size: Size) -> Finding:
    """Share of the steps that one holder brings to nothing."""
    played = play(size, liars={VICTIM: Leaves})
    rounds = played.server.public.config.rounds
    value = 1 - played.count("round") / rounds
    return Finding("share of steps lost", value, 0.0, played.noticed())


def ended(liars: Mapping[int, type[Owner]], size: Size, **options: Any) -> Finding:
    """Share of runs that a lie ends: 0 or 1."""
    played: Played = play(size, liars=liars, **options)
    return Finding("share of runs that end", float(played.error is not None), 0.0, played.noticed())


def keys(dealers: Sequence[int], size: Size) -> Finding:
    """Elements of psi that the server reads where some holders draw keys of zeros."""
    server = type("Knows", (Listens,), {"dealers": tuple(dealers)})
    played = play(size, server, liars=dict.fromkeys(dealers, KnownKeys))
    return Finding("share of psi that is read", played.found["read"], 0.0, played.noticed())


def stale(size: Size) -> Finding:
    """Inner products of the holder's own shares of the data that it shows the server.

    Batches are as large as embeddings are wide, so that one upload is enough.
    """
    played = play(size, ReadsStale, liars={VICTIM: Skips}, batch=size.width)
    quantity = "share of inner products of its data shares that the server reads"
    return Finding(quantity, played.found["read"], 0.0, played.noticed())


def again(size: Size) -> Finding:
    """Shares that are others than those that it had."""
    played = play(size, liars={VICTIM: AsksAgain})
    party = played.judge.parties[VICTIM]
    other = [not np.array_equal(one, party.first) for one in party.again]
    value = float(np.mean(other)) if other else None
    return Finding("share of shares that differ", value, 0.0, played.noticed())


def lie(name: str, who: str, does: str, limit: str, expected: Outcome,
        measure: Callable[[Size], Finding], options: str = "") -> Lie:  # fmt: skip
    """A lie of holders of coded split learning."""
    named = f"coded_split{options}"
    return Lie(f"coded_split: {name}", named, who, does, limit, expected, measure)


def of(liar: type[Owner], at: int = LIAR, **options: Any) -> Callable[[Size], Finding]:
    """Measure of the change that one holder makes."""
    return functools.partial(moved, {at: liar}, **options)


A1 = {"tolerate_corrupt": 1}
WITH = " --tolerate-corrupt 1"
ONE, OWNER = "1 holder", "1 owner"
FRAMES = "corrected; honest holder 1 is named"
SAME = "does the same"
RANGE = "the server checks the range of sums"
LIES = (
    lie("wrong upload", ONE, "uploads random elements", RANGE, "refused", of(WrongUpload)),
    lie("wrong upload, A = 1", ONE, SAME, "Reed-Solomon decoding", "corrected",
        of(WrongUpload, **A1), WITH),
    lie("A+1 wrong uploads", "2 holders", "add a polynomial that vanishes at R-1 others",
        "nothing; an honest holder is named", "gains", colluders, WITH),
    lie("skipped step", ONE, "uploads from a share that lacks a step", RANGE, "refused",
        of(Skips)),
    lie("skipped step, A = 1", ONE, SAME, "Reed-Solomon decoding", "corrected",
        of(Skips, **A1), WITH),
    lie("skipped step, heard", ONE, "does the same (the server listens)",
        "nothing: it harms itself", "gains", stale),
    lie("step twice", ONE, "applies a step twice", RANGE, "refused", of(Twice)),
    lie("step twice, A = 1", ONE, SAME, "Reed-Solomon decoding", "corrected",
        of(Twice, **A1), WITH),
    lie("wrong keys", ONE, "sends holder 1 other keys", RANGE, "refused", of(OfKeys)),
    lie("wrong keys, A = 1", ONE, SAME, FRAMES, "corrected", of(OfKeys, **A1), WITH),
    lie("known keys", ONE, "draws keys of zeros (the server listens)",
        "no holder draws all keys", "nothing", functools.partial(keys, (0,))),
    lie("known keys of all", "the 3 holders that draw keys", "do the same",
        "T bounds the colluders", "gains", functools.partial(keys, (0, 1, 2))),
    lie("no keys", ONE, "sends no keys", "nothing", "gains",
        functools.partial(ended, {LIAR: NoKeys})),
    lie("upload of another shape", ONE, "uploads one column less",
        "nothing without --tolerate-corrupt", "gains",
        functools.partial(ended, {LIAR: ShortUpload})),
    lie("upload of another shape, A = 1", ONE, SAME, "left out", "corrected",
        of(ShortUpload, **A1), WITH),
    lie("never uploads", ONE, "takes part in set-up, and never uploads",
        "R of N uploads are enough", "nothing", lost),
    lie("asks again", ONE, "asks again for a step that it has", "the same bytes again", "nothing",
        again),
    lie("asks for nonsense", ONE, "asks for steps without a number", "not answered", "refused",
        of(AsksNonsense)),
    lie("inconsistent data", OWNER, "deals holder 1 a wrong data share", RANGE, "refused",
        of(OfData, VICTIM)),
    lie("inconsistent data, A = 1", OWNER, SAME, FRAMES, "corrected",
        of(OfData, VICTIM, **A1), WITH),
    lie("inconsistent model", OWNER, "deals holder 1 a wrong share of its model", RANGE,
        "refused", of(OfModel, VICTIM)),
    lie("inconsistent model, A = 1", OWNER, SAME, FRAMES, "corrected",
        of(OfModel, VICTIM, **A1), WITH),
    lie("data of another shape", OWNER, "deals holder 1 a share with one column less", "nothing",
        "gains", functools.partial(ended, {VICTIM: OtherShape})),
    lie("rows beyond their bound", OWNER, "shares rows twice as long as rho_n allows",
        "nothing: poisoning; the server's bound is void", "gains", of(Unbounded)),
    lie("rows far beyond it", OWNER, "shares rows 65536 times as long", RANGE,
        "refused", of(FarBeyond)),
    lie("large weights", OWNER, "shares first weights of 10", RANGE, "refused",
        of(LargeModel)),
)  # fmt: skip
