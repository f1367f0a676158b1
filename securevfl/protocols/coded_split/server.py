"""The server of coded split learning: lines 6 to 9 of the algorithm.

Letters and lines as in `securevfl.protocols.coded_split.algorithm`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from securevfl.engine.party import SERVER, Message, Party
from securevfl.errors import NotEnoughResultsError, RangeError
from securevfl.field.prss import KEY
from securevfl.models.split import Centre, measure
from securevfl.protocols.base.decoding import rows_in_order
from securevfl.protocols.base.mask_keys import as_array, fresh_bytes
from securevfl.protocols.base.schedule import HELPERS_COUNT
from securevfl.protocols.base.sum_budget import agree_on_unknowns, budget_spent
from securevfl.protocols.coded_split.bounds import RangeBound
from securevfl.protocols.coded_split.dealing import Dealing
from securevfl.protocols.coded_split.decoding import decode_sums
from securevfl.protocols.coded_split.messages import Request, inference_step, piece_of, pieces_of
from securevfl.protocols.coded_split.parameters import Parameters
from securevfl.protocols.coded_split.quantisation import mean_of_sums, wanted_step

_RECENT = 256  # steps; a history is asked for many times a second


class Server(Party):
    """Server: decodes the sums, steps its network, rounds and deals its steps.

    Attributes
    ----------
    log : tuple of ndarray, (K, |B|, h)
        Gbar of every step that not all holders have stored: what late ones are dealt again is
        made from it.
    stored : dict of int to int
        The step up to which each holder said that it has stored its shares.
    forgotten : int
        How many steps all of them have stored; the log begins after these.
    recent : tuple of (int, float, float)
        The newest steps, with their losses and times: if the server is killed, whoever writes the
        history may not have heard of them, and they are not made again.
    secret : bytes
        The seeds of all masks follow from it.
    residual : ndarray, (K, length, h)
        e of line 7.
    """

    kept: ClassVar[tuple[str, ...]] = (
        *("centre", "steps", "residual", "bound_state", "answers", "test_scores"),
    )
    kept_once: ClassVar[tuple[str, ...]] = ("secret",)
    kept_frozen: ClassVar[tuple[str, ...]] = ("log",)
    kept_optional: ClassVar[Mapping[str, Any]] = {"stored": {}, "forgotten": 0, "recent": ()} | {
        "unknowns": 0
    }

    def __init__(
        self,
        peers: Sequence[int],
        public: Parameters,
        centre: Centre,
        labels: Mapping[str, np.ndarray],
    ) -> None:
        super().__init__(SERVER, peers)
        self.public = public
        self.centre = centre
        self.labels = labels
        self.dealing = Dealing(public.code)
        self.secret = b""
        self.steps = 0
        self.log: tuple[np.ndarray, ...] = ()
        self.stored: dict[int, int] = {}
        self.forgotten = 0
        self.recent: tuple[tuple[int, float, float], ...] = ()
        self.answers = np.zeros(len(self.peers), np.int64)  # how often each was among the first
        self.test_scores: dict[int, np.ndarray] = {}
        self.asking: Request | None = None  # what it asks for after the last step
        self.unknowns = 0  # independent columns of all owners, with a budget of sums
        if public.trains:
            self.bound = RangeBound.of(public)
            shape = (public.code.segments, public.batches["train"].length, public.config.width)
            self.residual = np.zeros(shape)

    async def setup(self) -> None:
        """Draw the secret of all masks; hear of the unknowns."""
        self.secret = self.secret_bytes(KEY)
        if self.public.trains and self.public.config.budget:
            columns, config = dict(enumerate(self.public.widths)), self.public.config
            self.unknowns = await agree_on_unknowns(self, "coded_split", None, columns, config)

    def secret_bytes(self, count: int) -> bytes:
        """Bytes from the operating system."""
        return fresh_bytes(count)

    async def run(self) -> None:
        """Lines 6 to 9 for every step, then the test rows from their shares if that is wanted."""
        self.on("lacks", self.deal_again)
        self.on("stored", self.forget)
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
            self.train(rows, await self.sums(len(rows), self.bound.promised(rows)))
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
        """Enter a round: uploads of earlier ones are late."""
        self.round = round
        self.engine.enter_round(self, round)

    async def sums(self, rows: int, largest: np.ndarray | int) -> np.ndarray:
        """U_1 to U_K from the first R uploads (line 6), (K, |B|, h) signed.

        Parameters
        ----------
        rows : int
            |B|.
        largest : ndarray, (K, |B|, h), or int
            What sums of honest parties cannot exceed.
        """
        public = self.public
        timeout = public.config.result_timeout if self.round > 1 else None  # set-up is in round 1
        uploads = await self.collect("embedding", count=public.results_needed, timeout=timeout)
        if len(uploads) < public.results_needed:
            missing = sorted(set(self.peers) - set(uploads))
            raise NotEnoughResultsError(
                f"coded_split: round {self.round}: R + 2A = {public.results_needed} uploads are "
                f"needed and {len(uploads)} came within result_timeout = {timeout} s; missing: "
                f"{', '.join(f'party {n}' for n in missing)}. Wait longer, or use more helpers. "
                f"{HELPERS_COUNT}"
            )
        sums, wrong = decode_sums(public, uploads, rows)
        if wrong:
            self.record("corrected", clients=wrong, why=f"uploads of {wrong} disagree")
        self.check_range(sums, largest, uploads)
        self.answers[list(uploads)] += 1
        return sums

    def check_range(
        self, sums: np.ndarray, largest: np.ndarray | int, uploads: Iterable[int]
    ) -> None:
        """Refuse sums that the owners' bounds and the steps so far do not allow.

        Raises
        ------
        RangeError
        """
        beyond = np.abs(sums) > largest
        if beyond.any():
            raise RangeError(
                f"coded_split: round {self.round}: {beyond.sum()} of {beyond.size} decoded sums "
                f"are beyond the range that the steps so far can bring them to, such as "
                f"{int(np.abs(sums[beyond]).max()):.4g}. An upload is wrong, or holders have other "
                "steps than the rest, or an owner shared longer rows or weights than options allow "
                f"(the uploads of parties {', '.join(map(str, uploads))} were used). "
                "tolerate_corrupt = A corrects A wrong uploads"
            )

    def train(self, rows: np.ndarray, sums: np.ndarray) -> None:
        """Step the network (lines 6 and 7), round, bound and log what is dealt (line 8)."""
        public = self.public
        self.bound.decoded(rows, sums)
        H = mean_of_sums(public, sums, self.trained).reshape(-1, public.config.width)
        samples = public.batches["train"].samples(rows)
        loss, G, own = self.centre.gradients(H, samples, self.labels["train"])
        self.record("round", step=self.round, loss=loss, used=public.results_needed)
        self.recent = (*self.recent, (self.round, loss, self.now))[-_RECENT:]
        self.centre.apply(own)
        wanted = wanted_step(public, self.round, G, self.residual[:, rows])
        rounded = self.rounded(wanted, rows)
        dealt, bits = self.bound.admit(rounded)
        if bits:
            self.record(
                "shrunk",
                why=f"a sum could leave +-(p-1)/2: use {bits} bits fewer of data_bits and "
                "gradient_bits in all, a larger prime, or a smaller client_lr",
                bits=bits,
            )
        self.log = (*self.log, dealt.astype(np.min_scalar_type(-int(np.abs(dealt).max()) - 1)))
        self.steps += 1

    def rounded(self, wanted: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Gbar = round(want), and e (line 7)."""
        if self.public.config.rounding == "stochastic":
            stream = self.secret_stream("rounding", self.round)
            drawn: np.ndarray = np.floor(wanted + stream.random(wanted.shape))
            return drawn
        nearest: np.ndarray = np.rint(wanted)
        self.residual[:, rows] = wanted - nearest
        return nearest

    def deal(self) -> None:
        """Deal the last step (line 9), to who answered most often first."""
        if not self.steps:
            return
        step = self.dealt(self.steps)
        seeds = self.dealing.seeds(self.secret, self.steps, step)
        shares = self.dealing.shares(self.secret, self.steps, step)
        digest = self.dealing.digest(self.secret, self.steps, step)
        for j in np.argsort(-self.answers, kind="stable").tolist():
            if j < len(seeds):
                self.send(j, "seed", (digest, as_array([seeds[j]])[0]), round=self.steps)
            else:
                self.send(j, "deal", (digest, shares[j]), round=self.steps)

    def deal_again(self, message: Message) -> None:
        """Deal a late or restarted holder the same shares of the steps that it lacks.

        Who lacks none is sent the present request again: it may have been lost. A question that
        names no number of steps is an event, and not answered; so is one from which the server
        learns that it has gone back.
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
        missed = [(t, self.dealt(t)) for t in range(first, self.steps + 1)]
        payload = self.dealing.again(self.secret, missed, message.sender)
        self.send(message.sender, "missed", payload, round=self.round)

    def forget(self, message: Message) -> None:
        """Forget steps that every holder has stored: nobody can ask for them again."""
        stored = message.payload
        if type(stored) is not int or not 0 < stored <= self.steps:
            why = "it said that it has stored steps without the number of one that was dealt"
            self.record("refused", party=message.sender, why=why)
            return
        self.stored[message.sender] = max(stored, self.stored.get(message.sender, 0))
        least = min(self.stored.get(j, 0) for j in self.peers)
        self.log = self.log[least - self.forgotten :]
        self.forgotten = least

    def dealt(self, step: int) -> np.ndarray:
        """Gbar of a step that is not forgotten."""
        return self.log[step - self.forgotten - 1]

    async def infer(self, last: int) -> None:
        """Coded inference: lines 5 and 6 on shared rows, a few of them at a time."""
        batches = self.public.batches["test"]
        size = inference_step(batches.coded, batches.segments)
        while len(self.test_scores) < pieces_of(batches):
            self.safe_point()
            piece = len(self.test_scores)
            self.begin(last + 1 + piece)
            rows = piece_of(batches, piece)
            self.asking = Request("test", piece, rows)
            self.broadcast("request", self.asking)
            sums = await self.sums(len(rows), self.lasting)
            H = mean_of_sums(self.public, sums, self.trained)
            self.score(piece, H.reshape(-1, self.public.config.width))
        self.asking = None
        self.report_inference(size)

    def score(self, piece: int, embedding: np.ndarray) -> None:
        """Score a piece of the test rows."""
        self.test_scores[piece] = self.centre.scores(embedding)

    def report_inference(self, size: int) -> None:
        """Record the measures of the coded scores."""
        labels = self.labels["test"]
        scores = rows_in_order(self.public.batches["test"], self.test_scores, size)
        self.record("inference", rows=len(labels), **measure(self.centre.task, scores, labels))

    @property
    def trained(self) -> int:
        """Steps in the models."""
        return self.steps

    @property
    def lasting(self) -> int:
        """Bound on the sums of rows that were never decoded."""
        return self.bound.lasting

    @property
    def bound_state(self) -> tuple[np.ndarray, ...]:
        """C and the bases of section 7, as checkpoints have them."""
        if "train" not in self.public.batches:
            return ()
        return (self.bound.spent, self.bound.base, self.bound.since)

    @bound_state.setter
    def bound_state(self, state: tuple[np.ndarray, ...]) -> None:
        if state:
            self.bound.spent, self.bound.base, self.bound.since = state

    def operations(self, kind: str) -> int:
        """Multiply-adds to decode, K R |B| h, and to make a holder's share, (K + T) |B| h."""
        public = self.public
        if kind not in ("deal", "seed") or "train" not in public.batches:
            return 0
        entries = public.batches["train"].coded * public.config.width
        decoding = public.code.segments * public.threshold / len(self.peers)
        return int(entries * (public.code.size * (kind == "deal") + decoding))
