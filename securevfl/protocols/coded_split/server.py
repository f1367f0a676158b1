"""The server of coded split learning: lines 6 to 9 of the algorithm.

Letters and lines as in `securevfl.protocols.coded_split.algorithm`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from securevfl.active.dealt import chained, no_chain
from securevfl.active.signing import Signing, exchange_keys, new_start, signing_of, tell_again
from securevfl.engine.party import SERVER, Message, kept_as
from securevfl.errors import NotEnoughResultsError
from securevfl.models.split import Centre
from securevfl.protocols.base.levels.signed_uploads import decode_signed, undetected
from securevfl.protocols.base.schedule import HELPERS_COUNT
from securevfl.protocols.base.sum_budget import agree_on_unknowns, budget_spent
from securevfl.protocols.coded_split import covert
from securevfl.protocols.coded_split.algorithm import PROTECTED
from securevfl.protocols.coded_split.covert import told_of
from securevfl.protocols.coded_split.dealing import Dealing, Dealt
from securevfl.protocols.coded_split.decoding import decode_sums
from securevfl.protocols.coded_split.messages import Request, piece_of, pieces_of
from securevfl.protocols.coded_split.parameters import Parameters
from securevfl.protocols.coded_split.quantisation import joint, scales
from securevfl.protocols.coded_split.steps import (
    Steps,
    apply,
    check_sums,
    entry,
    forms_of,
    gradients,
    make_step,
    measures_named,
    measures_of,
    note_sums,
    scores_of,
)
from securevfl.protocols.coded_split.terms import shape_of
from securevfl.verified import Element, Key, Participant, Secret, concatenate, stack

_RECENT = 256  # steps; a history is asked for many times a second


class Server(Participant):
    """Server: decodes sums, trains its network, and rounds and deals each step.

    Attributes
    ----------
    centre, made : Model
        The server model, and the state of the steps (`securevfl.protocols.coded_split.steps`).
    log : tuple of Element, (K, |B|, h)
        Gbar of every step that not all holders have stored, from which late holders get their
        shares again.
    stored_by : dict of int to int
        Step up to which each holder has reported its shares as stored.
    forgotten : int
        Number of steps that all holders have stored; the log begins after them.
    recent : tuple of (int, Secret, float)
        Number, loss and time of the newest steps. If the server is killed, the history may lack
        them, and they are not made again.
    secret : Key
        Key from which each step's digest and seeds are derived.
    """

    protected: ClassVar[Mapping[str, str | tuple[str, ...]]] = PROTECTED
    judged: ClassVar[tuple[str, ...]] = tuple(PROTECTED)
    kept: ClassVar[tuple[str, ...]] = (
        *("centre", "made", "steps", "answers", "test_scores"),
        *kept_as("once", "secret"),
        *kept_as("frozen", "log"),
        *kept_as("passing", "stored_by", "forgotten", "recent", "unknowns", "caught"),
    )

    def __init__(
        self,
        peers: Sequence[int],
        public: Parameters,
        centre: Centre,
        labels: Mapping[str, np.ndarray],
        steps: Steps | None,
    ) -> None:
        super().__init__(SERVER, peers, public.field)
        self.public = public
        self.outputs, self.task = centre.outputs, centre.task
        self.forms = functools.partial(forms_of, centre)
        self.centre = self.own_model("centre", centre)
        self.made = None if steps is None else self.own_model("steps", steps)
        self.labels = {part: self.own(f"{part} labels", y) for part, y in labels.items()}
        self.dealing = Dealing(public.code)
        self.secret: Key | None = None
        self.steps = 0
        self.log: tuple[Element, ...] = ()
        self.stored_by: dict[int, int] = {}
        self.forgotten = 0
        self.recent: tuple[tuple[int, Secret, float], ...] = ()
        self.answers = np.zeros(len(self.peers), np.int64)  # how often each was among the first
        self.test_scores: dict[int, Secret] = {}
        self.asking: Request | None = None  # what it asks for after the last step
        self.unknowns = 0  # independent columns of all owners, with a budget of sums
        self.sworn: tuple[Any, ...] = ()  # at the covert level: its signing key
        self.start: Secret | None = None  # random bytes of this start
        self.stories: tuple[Any, ...] = ()  # of each logged step its start, and the chain before it
        self.chain: tuple[Secret, ...] = ()  # that of all steps
        self.apart: set[int] = set()  # holders whose uploads were not signed, or of another label
        self.caught: tuple[Any, ...] = ()  # at the level active: wrong uploads, with their label
        self.proved: tuple[Any, ...] = ()  # the newest step, and what is sent beside its shares
        if public.covert:
            covert.keep(self, PROTECTED, public.active, "stories", "chain")

    async def setup(self) -> None:
        """Draw the key of all steps' digests and seeds; with a budget, receive column counts."""
        self.secret = self.key("secret")
        own = self.public.code, self.public.results_needed, "helpers"
        if self.public.active and (text := undetected(*own)):
            self.record("notice", text=text)
        if self.public.covert:
            self.sworn = await exchange_keys(self, server=self.public.active)
            self.chain = (no_chain(self),)
        if self.public.trains and self.public.config.budget:
            columns, config = dict(enumerate(self.public.widths)), self.public.config
            self.unknowns = await agree_on_unknowns(self, "coded_split", None, columns, config)

    @property
    def signs(self) -> Signing:
        """Signing keys of the server, made for the run or from its manifest."""
        return signing_of(self, self.sworn)

    async def run(self) -> None:
        """Make every step (lines 6 to 9); then score test rows from shares, if wanted."""
        self.on("lacks", self.deal_again)
        self.on("stored", self.forget)
        if self.public.covert:
            self.start = new_start(self)
            tell_again(self)
        for step, loss, seconds in self.recent if self.returned else ():
            used = self.public.results_needed
            self.record("again", step=step, loss=loss, used=used, round=step, time=seconds)
        while True:
            self.safe_point()  # one record: Gbar, network, optimiser and e (line 8)
            self.deal()
            if self.steps == self.public.steps_allowed(self.unknowns):
                break
            self.begin(self.steps + 1)
            rows = self.public.batches["train"].draw(self.round)
            self.train(rows, await self.sums())
        self.report_budget()
        if self.public.config.secure:
            await self.infer(self.public.config.rounds)
        self.broadcast("stop", None)

    def report_budget(self) -> None:
        """Record that the budget of sums ended the training, if it did."""
        if self.steps < self.public.config.rounds:
            visits = self.steps // self.public.batches["train"].per_epoch
            self.record("sum_budget", **budget_spent(visits, self.unknowns, self.public.config))

    def begin(self, round: int) -> None:
        """Enter a round; uploads of earlier rounds are late from now on."""
        self.round = round
        self.engine.enter_round(self, round)

    async def sums(self) -> Element:
        """Sums U_1 to U_K from the first R uploads (line 6), (K, |B|, h).

        NotEnoughResultsError if fewer than R come within the result timeout.
        """
        public = self.public
        timeout = public.config.result_timeout if self.round > 1 else None  # set-up is in round 1
        uploads = await self.collect("embedding", count=public.results_needed, timeout=timeout)
        if len(uploads) < public.results_needed:
            missing = sorted(set(self.peers) - set(uploads))
            raise NotEnoughResultsError(
                f"coded_split: round {self.round}: {public.results_wanted} uploads are "
                f"needed and {len(uploads)} came within result_timeout = {timeout} s; missing: "
                f"{', '.join(f'party {n}' for n in missing)}. Wait longer, or use more helpers. "
                f"{HELPERS_COUNT}"
            )
        shape = shape_of(public, self.round)
        assert shape is not None
        self.answers[list(uploads)] += 1
        if public.active:
            told, (chain,) = told_of(public, self.round), self.chain
            return decode_signed(self, public.code, told, chain, uploads, shape)
        sums, wrong = decode_sums(self, public, uploads, shape)
        if wrong:
            self.record("corrected", clients=wrong, why=f"uploads of {wrong} disagree")
        return sums

    def train(self, rows: np.ndarray, sums: Element) -> None:
        """Train the network (lines 6, 7); round, bound and log the step to deal (line 8)."""
        public, labels = self.public, self.labels["train"]
        assert self.made is not None
        self.made.step(note_sums, sums, self.round, rows)
        H = self.mean(sums)
        samples = public.batches["train"].samples(rows)
        loss, G, *own = self.centre.call(gradients, H, samples, labels, **self.forms(H.shape))
        self.record("round", step=self.round, loss=loss, used=public.results_needed)
        self.recent = (*self.recent, (self.round, loss, self.now))[-_RECENT:]
        self.centre.step(apply, *own)
        Gbar, lacking = self.made.step(
            *(make_step, G, self.round, rows), shapes=[sums.shape, ()], of=[public.field, np.int64]
        )
        bits = int(self.opened(lacking, f"bits that step {self.round} lacks"))
        if bits:
            self.record(
                "shrunk",
                why=f"a sum could leave +-(p-1)/2: use {bits} bits fewer of data_bits and "
                "gradient_bits in all, a larger prime, or a smaller client_lr",
                bits=bits,
            )
        self.log = (*self.log, Gbar)
        self.steps += 1
        if public.covert:
            self.stories = (*self.stories, (self.start, *self.chain))
            shares = self.dealt(self.steps).shares
            parts, link = covert.step_proofs(self, public, self.steps, Gbar, shares)
            self.proved, self.chain = (self.steps, parts), (chained(*self.chain, link),)

    def mean(self, sums: Element) -> Secret:
        """Mean embedding H (line 6), (K|B|, h) float64."""
        K, rows, h = sums.shape
        numbers = self.public.field, *scales(self.public, self.trained)
        found: Secret = sums.map(joint, *numbers, shape=(K * rows, h), real=True)
        return found

    def deal(self) -> None:
        """Deal the newest step (line 9), first to the holders that answered most often."""
        if not self.steps:
            return
        dealt = self.dealt(self.steps)
        proved = self.proofs_of(self.steps) if self.public.covert else None
        for j in np.argsort(-self.answers, kind="stable").tolist():
            if proved is not None:
                own = (dealt.seeds[j],) if j < len(dealt.seeds) else (dealt.shares[j],)
                kind = "seed" if j < len(dealt.seeds) else "deal"
                self.send(j, kind, (*own, *proved[j]), round=self.steps)
            elif j < len(dealt.seeds):
                self.send(j, "seed", (dealt.digest, dealt.seeds[j]), round=self.steps)
            else:
                self.send(j, "deal", (dealt.digest, dealt.shares[j]), round=self.steps)

    def dealt(self, step: int) -> Dealt:
        """Shares of a step that is still in the log, the same at each dealing."""
        Gbar = self.log[step - self.forgotten - 1]
        assert self.secret is not None
        return self.dealing.dealt(self, self.secret, step, Gbar)

    def proofs_of(self, step: int) -> list[covert.Parts]:
        """Proofs sent with the shares of a step, the same at each dealing."""
        if self.proved and self.proved[0] == step:
            parts: list[covert.Parts] = self.proved[1]
            return parts
        Gbar, shares = self.log[step - self.forgotten - 1], self.dealt(step).shares
        return covert.step_proofs(self, self.public, step, Gbar, shares)[0]

    def deal_again(self, message: Message) -> None:
        """Send a late or restarted holder the same shares of the steps that it lacks.

        A holder that lacks none gets the current request again, which may have been lost. A
        malformed question is recorded as an event and not answered; so is one that shows that the
        server has gone back.
        """
        done = message.payload
        if type(done) is not int or not self.forgotten <= done <= self.public.config.rounds:
            why = "it asked for steps without the number of those that it has"
            if type(done) is int and 0 <= done < self.forgotten:
                why = f"it asked for step {done + 1}, which it said that it has stored"
            self.record("refused", party=message.sender, why=why)
            return
        first = done + 1
        if first > self.steps:
            if done > self.steps:
                why = (
                    f"it has step {done} and the server has {self.steps}: the server went back to "
                    "an older checkpoint, and no round can end. Resume the run, and all go back"
                )
                self.record("behind", party=message.sender, why=why)
            elif self.asking is not None:
                self.send(message.sender, "request", self.asking, round=self.round)
            return
        if self.public.covert:
            numbers = range(first, self.steps + 1)
            rows = [
                (self.dealt(t).shares[message.sender], *self.proofs_of(t)[message.sender])
                for t in numbers
            ]
            columns = [list(one) for one in zip(*rows, strict=True)]
            self.send(message.sender, "missed", (first, *columns), round=self.round)
            return
        every = [self.dealt(t) for t in range(first, self.steps + 1)]
        digests = concatenate([one.digest for one in every])
        shares = stack([one.shares[message.sender] for one in every])
        self.send(message.sender, "missed", ((first, digests), shares), round=self.round)

    def forget(self, message: Message) -> None:
        """Forget steps that every holder has stored, since nobody can request them again."""
        stored = message.payload
        if type(stored) is not int or not 0 < stored <= self.steps:
            why = "it said that it has stored steps without the number of one that was dealt"
            self.record("refused", party=message.sender, why=why)
            return
        self.stored_by[message.sender] = max(stored, self.stored_by.get(message.sender, 0))
        least = min(self.stored_by.get(j, 0) for j in self.peers)
        self.log = self.log[least - self.forgotten :]
        self.stories = self.stories[least - self.forgotten :]
        self.forgotten = least

    async def infer(self, last: int) -> None:
        """Coded inference: lines 5 and 6 on shared rows, in pieces."""
        batches = self.public.batches["test"]
        while len(self.test_scores) < pieces_of(batches):
            self.safe_point()
            piece = len(self.test_scores)
            self.begin(last + 1 + piece)
            self.asking = Request("test", piece, piece_of(batches, piece))
            self.broadcast("request", self.asking)
            sums = await self.sums()
            self.check(sums)
            self.score(piece, self.mean(sums))
        self.asking = None
        self.report_inference()

    def check(self, sums: Element) -> None:
        """Raise RangeError for sums of test rows beyond the bound for the present steps."""
        assert self.made is not None
        self.made.call(check_sums, sums, self.round, shape=(0,))

    def score(self, piece: int, embedding: Secret) -> None:
        """Keep the scores of a piece of the test rows, from its embedding (rows, h)."""
        shape = embedding.shape[0], self.outputs
        self.test_scores[piece] = self.centre.call(scores_of, embedding, shape=shape)

    def report_inference(self) -> None:
        """Record the measures of the coded scores."""
        labels = self.labels["test"]
        own, names = (labels, self.order, *self.test_scores.values()), measures_named(self.task)
        shape = (len(names),)
        found = self.centre.call(measures_of, *own, shape=shape, dtype=np.float64)
        told = {name: found.map(entry, i, shape=()) for i, name in enumerate(names)}
        self.record("inference", rows=labels.shape[0], **told)

    @property
    def order(self) -> np.ndarray:
        """Row numbers of all pieces of test rows in sequence; -1 for padding."""
        batches = self.public.batches["test"]
        pieces = (piece_of(batches, piece) for piece in range(pieces_of(batches)))
        return np.concatenate([batches.samples(rows) for rows in pieces])

    @property
    def trained(self) -> int:
        """Number of steps contained in the models."""
        return self.steps

    def operations(self, kind: str) -> int:
        """Multiply-adds to decode (K R |B| h) and to make a holder's share ((K + T) |B| h)."""
        public = self.public
        if kind not in ("deal", "seed") or "train" not in public.batches:
            return 0
        entries = public.batches["train"].coded * public.config.width
        decoding = public.code.segments * public.threshold / len(self.peers)
        return int(entries * (public.code.size * (kind == "deal") + decoding))
