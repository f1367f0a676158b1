"""FedVS: straggler-resilient, secret-shared split vertical learning.

S. Li, D. Yao, J. Liu, "FedVS: Straggler-Resilient and Privacy-Preserving Vertical Federated
Learning for Split Models", ICML 2023. Line numbers are those of its Algorithm 1, letters those of
its text: N clients, K segments, T colluders, R results needed, D layers, |B| coded rows, h
embedding width.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from securevfl.active import history as one_story
from securevfl.active.signing import (
    Signing,
    Sworn,
    exchange_keys,
    new_start,
    signing_of,
    tell_again,
)
from securevfl.engine.party import SERVER, RoundOverError, kept_as
from securevfl.errors import CorruptResultsError, NotEnoughResultsError
from securevfl.models.polynomial_network import PolynomialNetwork
from securevfl.models.pretraining.trainer import Pretraining
from securevfl.models.split import Centre
from securevfl.privacy.release_counts import refuse_exceeding
from securevfl.privacy.released_equations import independent_columns, visits_allowed
from securevfl.protocols.base.decoding import decode_results, inference_step, is_any, rows_in_order
from securevfl.protocols.base.levels import proved_shares
from securevfl.protocols.base.levels.signed_uploads import (
    compare_keys,
    decode_signed,
    signed_upload,
    undetected,
)
from securevfl.protocols.base.mask_keys import KeyParticipant
from securevfl.protocols.base.pretraining import Beginning, all_labels, take_over
from securevfl.protocols.base.sum_budget import (
    affords,
    agree_on_unknowns,
    allowance,
    budget_spent,
    counted,
    most_visits,
)
from securevfl.protocols.fedvs import history
from securevfl.protocols.fedvs.messages import Attempt, Batch
from securevfl.protocols.fedvs.parameters import Parameters, upload_streams
from securevfl.protocols.fedvs.quantisation import (
    entry_limit,
    mean_of_sums,
    quantised_weights,
    refuse_wrap,
    row_sum_of,
    segments_of,
)
from securevfl.protocols.fedvs.schedule import coding_operations
from securevfl.protocols.fedvs.steps import (
    both_classes,
    measured,
    scores_of,
    take_head,
    train,
    update,
)
from securevfl.protocols.fedvs.sums import Sum, SumLedger, of_ledger
from securevfl.protocols.fedvs.terms import (
    check_attempt,
    check_data,
    check_gradient,
    check_models,
    check_rows,
    why_not_announced,
)
from securevfl.verified import Element, Key, Participant, Secret, concatenate
from securevfl.verified.batched import Beside, encoded, encoded_constant, masked

PROTECTED: Mapping[str, str] = {
    **dict.fromkeys(("train-data", "test-data", "model", "embedding"), "field"),
    "own-keys": "key",
    "key": "keys",
    **dict.fromkeys(("gradient", "labels", "head"), "real"),
}
COLUMNS: Mapping[str, str] = {"train": "columns", "test": "test columns"}  # names of inputs
MEASURES: Mapping[str, tuple[str, ...]] = {
    "binary": ("accuracy", "f1"), "multiclass": ("accuracy",), "regression": ("rmse",),
}  # fmt: skip
LABELS: Mapping[str, str] = {"train": "labels", "test": "test labels"}


class Client(KeyParticipant):
    """Client n (`index`): shares its data once and its model every round; evaluates and updates.

    `features` has its columns, (rows, d_n), by part of the data; `network` is its bottom model.

    Attributes
    ----------
    answered : dict
        For each incarnation of the server: the newest round with an upload, and a hash of all
        announcements of that sum. Masks of these labels must not be used again.
    unknowns : int
        Number of independent columns of all clients; needed for a budget of sums.
    released : dict of str to bytes
        With a budget of sums: for each part, the number of times that the client shared a model for
        a sum of each coded row.
    """

    protected: ClassVar[Mapping[str, str]] = PROTECTED
    judged: ClassVar[tuple[str, ...]] = tuple(PROTECTED)
    kept: ClassVar[tuple[str, ...]] = (
        "network",
        *kept_as("copied", "uploaded", ahead=True),
        *kept_as("once", "data_shares", "row_sums", "keys"),
        *kept_as("passing", "unsure", "heard", "unknowns"),
        *kept_as("passing", "answered", "noted", "released", ahead=True),
    )
    noted = of_ledger("stored_notes")
    uploaded = of_ledger("stored_uploads")  # names of the ledger's state in checkpoints
    unsure = of_ledger("unsure")
    heard = of_ledger("last_step")

    def __init__(
        self,
        index: int,
        peers: Sequence[int],
        public: Parameters,
        features: Mapping[str, np.ndarray],
        network: PolynomialNetwork,
        pretraining: Pretraining | None = None,
    ) -> None:
        super().__init__(index, peers, public.field)
        self.public = public
        self.features = {part: self.own(COLUMNS[part], X) for part, X in features.items()}
        self.sworn: Sworn = ()  # at the covert level: keys of the run, and what was told
        self.story: tuple[Any, ...] = ()
        self.label: tuple[Any, ...] = ()  # the protected part of that of the present attempt
        self.start: Secret | None = None  # at the covert level: random bytes of this start
        self.network = self.own_model("network", network)
        self.weights = network.values.shape[0]  # d_n D + 1
        self.pretraining = None if pretraining is None else Beginning(self, pretraining)
        self.data_shares: dict[str, dict[int, Element]] = {}
        self._widths: dict[str, dict[int, int]] = {}
        self._held = {part: Beside() for part in features}
        self.row_sums: dict[str, Secret] = {}
        self.keys: dict[int, Key] = {}
        self.answered: dict[int, tuple[int, bytes]] = {}
        # Of its own uploads.
        self.ledger = SumLedger(parties=len(peers), threshold=1, notes=public.sharers_change)
        self.rows = 0  # |B| of the present round
        self.unknowns = 0
        self.released: dict[str, bytes] = {}
        self.begins_once = public.config.budget > 0  # its counts hold for all lives
        if public.covert:
            history.keep(self, PROTECTED, public.active)

    async def run(self) -> None:
        """Take part in every round (lines 12-36)."""
        if self.public.config.masked:
            self.check_keys(self.public.prss)
        if self.public.covert:
            self.on("doubted", functools.partial(one_story.tell, self))
            self.on("history", functools.partial(one_story.compare, self))
            self.start = new_start(self)
            one_story.come_back(self)
        if self.public.active:
            self.on("undealt", functools.partial(history.tell_dealt, self))
            self.on("dealt", functools.partial(history.compare_dealt, self))
        if self.returned:
            self.ledger.come_back(self.round)
        lacking = self.returned  # it may have missed a gradient
        async for round_ in self.rounds():
            self.ledger.enter(self.round)
            with round_:
                batch: Batch = round_.payload
                check_rows(self.public, batch)
                if self.public.covert and (lacking or one_story.may_lack(self)):
                    await self.catch_up()
                lacking = batch.part == "train"
                self.rows = len(batch.rows)
                self.count_release(batch)
                model = self.quantised_model()  # line 15
                self.check_range(batch, model)
                if self.public.covert:
                    history.show(self, model)
                else:
                    self.share("model", encoded_constant(self, self.public.code, model))  # 16-17
                before = self.ledger.possible_uploads() if batch.part == "train" else ()
                self.send(SERVER, "shared", before or None)
                attempt = self.checked(await self.receive("attempt", sender=SERVER))
                if self.public.covert:
                    one_story.note_sum(self, attempt.sum_of(self.round, batch))
                    self.write_ahead()  # the others' uploads are enough for this sum
                try:
                    await self.upload(batch, attempt)
                except RoundOverError:  # the server needed no upload of this client
                    if batch.part != "train":
                        raise
                if batch.part == "train":
                    # It comes before the next announcement, so it is here where that one is.
                    gradient = await self.receive("gradient", sender=SERVER)
                    if self.public.covert:
                        about = self.round, batch, attempt
                        gradient = one_story.hear(self, *about, payload=gradient)
                    self.step(self.round, batch, attempt, gradient)
                    lacking = False
            self.round_before = self.round
        self.ledger.noted = ()  # nothing is made again

    def step(self, round: int, batch: Batch, attempt: Attempt, gradient: Secret) -> None:
        """Step with the gradient of a round; the ledger notes the step unless dL/dH is zero."""
        check_gradient(self.public, round, len(batch.rows), gradient)
        moved = self.update(batch, attempt, gradient)
        if moves(self, gradient):  # else all sums still are of these models
            self.ledger.hear_of_step(round, moved=moved)

    async def catch_up(self) -> None:
        """Request and make the steps of missed rounds, before this client shares its model again.

        RunError if the server reports a round otherwise than it announced it to this client: the
        server could else make a single client step by another sum.
        """
        for round, batch, attempt, gradient in await one_story.catch_up(self):
            check_rows(self.public, batch)
            one_story.told_of_sum(self, round, self.checked(attempt).sum_of(round, batch))
            self.step(round, batch, attempt, gradient)

    async def upload(self, batch: Batch, attempt: Attempt) -> None:
        """Wait for the shares of the models in the sum, and send the server the upload H-tilde.

        Shares may be lost or late. The wait then ends with the round, without an upload; messages
        of the server that arrived meanwhile are still processed.
        """
        shares: dict[int, Any] | None
        shares = await self.collect("model", senders=attempt.sharers)  # line 19
        if self.public.covert:
            shares = history.agreed(self, shares)
        if shares is None:
            return
        check_models(self.public, self.round, shares, self.widths(batch.part))
        told = attempt.told(self.round, batch)
        if self.consistent(batch, attempt) and self.is_new(attempt.life, told):
            made = functools.partial(self.result, batch, attempt, shares, told)
            # At the covert level its label is of the present round.
            signed: Any = made() if self.public.covert else None
            self.ledger.announce(self.round, Sum(batch, attempt))
            self.write_ahead()  # a crash must not undo that it uploaded
            if self.public.active:
                signed = signed_upload(self, self.public.code, told, self.label, signed)
            if self.public.covert:
                self.send(SERVER, "embedding", signed)
            else:
                shape = len(batch.rows), self.public.config.width
                self.send_later(SERVER, "embedding", made, shape)

    def result(
        self, batch: Batch, attempt: Attempt, shares: Mapping[int, Element], told: bytes
    ) -> Element:
        """Upload H-tilde, masked if wanted."""
        upload = self.evaluate(batch, attempt, shares)  # line 23
        return self.masked(upload, told) if self.public.config.masked else upload

    @property
    def signs(self) -> Signing:
        """Signing keys of this party, made for the run or from its manifest."""
        return signing_of(self, self.sworn)

    def count_release(self, batch: Batch) -> None:
        """Count a sum of these rows, before the client shares its model for it.

        The others' uploads may suffice for the sum, so the client counts before it shares.
        PrivacyError if the sums of a row, times the width h, would reach the budget.
        """
        if not self.public.config.budget:
            return
        config = self.public.config
        limit = visits_allowed(self.unknowns, config.width, config.budget)
        counts, who = self.released.get(batch.part, b""), f"fedvs: client {self.index}"
        allows = allowance(self.unknowns, config)
        refuse_exceeding(counts, batch.rows, limit, who, allows)
        held = self.public.batches[batch.part].length
        self.released = counted(self.released, batch.part, batch.rows, held)
        self.write_ahead()

    async def setup(self) -> None:
        """Pre-train if wanted, share the data (lines 2-10), and agree on keys."""
        field = self.public.field
        if self.public.covert:
            self.sworn = await exchange_keys(self, server=self.public.active)
        if self.pretraining is not None:
            await self.pretraining.make(self.features["train"])
            self.network.step(take_over, self.pretraining.own)
        for part, X in self.features.items():
            how = self.public.config.degree, self.public.data_point, self.public.order(part)
            shape = *how[2].shape, self.weights
            segments = X.map(segments_of, *how, shape=shape, field=field)  # lines 3-5
            self.row_sums[part] = segments.map(
                row_sum_of, field, shape=(), real=True, dtype=np.int64
            )
            if self.public.covert:
                history.share_data(self, part, segments)
            else:
                self.share(f"{part}-data", encoded(self, self.public.code, segments))  # 6-8
            del segments
            shares = await self.collect(f"{part}-data", senders=self.peers)
            if self.public.covert:
                shares = history.checked_data(self, part, shares)
            self.data_shares[part] = shares
            for n, share in shares.items():
                check_data(self.public, part, n, share)
        if self.public.config.budget:
            config = self.public.config
            columns = {n: (w - 1) // config.degree for n, w in self.widths("train").items()}
            own = self.features["train"].map(
                independent_columns, 2.0**-config.data_bits, shape=(), dtype=np.int64
            )
            told = int(self.opened(own, "independent columns"))
            self.unknowns = await agree_on_unknowns(self, "fedvs", told, columns, config)
        if self.public.config.masked:
            await self.agree_on_keys(self.public.prss)
        if self.public.active:
            await compare_keys(self, self.public.code, self.public.prss, self.story[0])
        if self.public.covert:
            await proved_shares.echo(self, "fedvs")

    def widths(self, part: str) -> dict[int, int]:
        """Columns of each client's data shares, d_n D + 1: powers and ones included."""
        held = self.data_shares[part]
        if len(self._widths.get(part, ())) != len(held):
            self._widths[part] = {n: share.shape[1] for n, share in held.items()}
        return self._widths[part]

    def quantised_model(self) -> Element:
        """Weights as field elements: W-bar (equation 3)."""
        how = self.streams, self.round, self.public.model_point
        shape = self.weights, self.public.config.width
        made: Element = self.network.call(quantised_weights, *how, shape=shape, field=self.field)
        return made

    def evaluate(self, batch: Batch, attempt: Attempt, shares: Mapping[int, Element]) -> Element:
        """Upload before masks, of W-tilde `shares`: sum over S of X-tilde^(B) W-tilde (eq. 5)."""
        held = self.data_shares[batch.part]
        data = self._held[batch.part].rows([held[n] for n in attempt.sharers], batch.rows)
        return data @ concatenate([shares[n] for n in attempt.sharers])

    def update(self, batch: Batch, attempt: Attempt, gradient: Secret) -> bool:
        """Step with dL/dH_n = (1/|S|) dL/dH on this client's real rows (lines 33-35).

        With a bound on weights, an event "clipped" is recorded if some were cut.

        Parameters
        ----------
        batch, attempt
            Rows and sharers S of the sum.
        gradient : Secret
            dL/dH of the batch, (K |B|, h) float32, as the server sent it: divided by |S| here.

        Returns
        -------
        bool
            Whether the models changed, so that older uploads may be forgotten. A client in S checks
            that its own model moved by more than the rounding of an entry; if all sums are over the
            same clients, it returns True. A client outside S does not step, and trusts the server
            that the others did: if it remembered its uploads, crashes of others would soon leave
            too few clients that upload.
        """
        if self.index not in attempt.sharers:
            return True
        samples = self.public.batches["train"].samples(batch.rows)
        rounding = 2.0 ** -max(24, self.public.config.model_bits)
        moved, cut = self.network.step(
            *(update, self.features["train"], gradient, samples, len(attempt.sharers), rounding),
            shapes=[(), ()],
            of=[np.bool_, np.int64],
        )
        if self.public.tells_cut:
            some = cut.map(is_any, shape=(), dtype=np.bool_)
            if self.opened(some, "whether weights were cut"):
                self.record("clipped", weights=cut, bound=self.public.config.weight_bound)
        return self.public.one_sum or bool(self.opened(moved, "whether its model moved"))

    def is_new(self, life: int, told: bytes) -> bool:
        """Whether the label (life, round) of an upload is unused; if so it is marked as used.

        `life` is the server's incarnation, `told` encodes the sum's announcements. Equal masks on
        two polynomials would reveal their difference. The shares of an earlier upload are deleted,
        so it cannot be repeated even for the same announcement. Always True without masks.
        """
        newest, _ = self.answered.get(life, (0, b""))
        if not self.public.config.masked:
            return True
        if self.round <= newest:
            self.record("refused", life=life, newest=newest, why="the label was used before")
            return False
        self.answered = self.answered | {life: (self.round, hashlib.sha256(told).digest())}
        return True

    def masked(self, upload: Element, told: bytes) -> Element:
        """Masked upload Y = H-tilde + P(alpha) rho(alpha), with P(z) = prod_{k<=K} (z - beta_k)."""
        own = self, self.public.prss, self.keys, upload
        return masked(*own, told, self.label, self.public.degree)

    def check_range(self, batch: Batch, model: Element) -> None:
        """Raise RangeError if an |X-bar^(B) W-bar| > floor((p-1)/(2N)), since sums could wrap.

        The server cannot see a wrap. The error reveals one bit about the client's data, as the
        method's card states.
        """
        public, part = self.public, batch.part
        samples = public.batches[part].samples(batch.rows)
        what = samples, public.data_point, public.config.degree, entry_limit(public)
        who = self.index, self.round, public.lower
        own = model, self.row_sums[part]
        self.features[part].map(refuse_wrap, *own, *what, *who, shape=(0,))

    def checked(self, attempt: Attempt) -> Attempt:
        """The attempt if its sharers keep the guarantee; else ProtocolError, before any upload."""
        check_attempt(self.public, attempt)
        return attempt

    def consistent(self, batch: Batch, attempt: Attempt) -> bool:
        """Whether no row of the batch was uploaded for another sum of the same models.

        The difference of two such sums may be one client's value. An honest server avoids them;
        because it may lie, a client forgets its uploads only when its own model has moved. For
        uploads before its last crash it trusts the server that a round is over or below the
        threshold, unless it receives all that it missed. Without masks always True.
        """
        self.ledger.hear_of_attempt(attempt, believed=not self.public.covert)
        before = self.ledger.conflict(Sum(batch, attempt))
        if before is None or not self.public.config.masked:
            return True
        sharers = list(before.attempt.sharers)
        self.record("refused", sharers=list(attempt.sharers), before=sharers)
        return False

    def operations(self, kind: str) -> int:
        """Multiply-adds (section 5.3): d_n h D_n N log^2 N to share, |B| h sum_n d_n D_n to embed.

        A mask (our addition) costs a multiply-add for each element of its streams.
        """
        public, h, N = self.public, self.public.config.width, len(self.peers)
        own = self.weights
        if kind == "model":
            return coding_operations(own * h, N)
        if kind == "embedding":
            held = next(iter(self.data_shares.values()))
            widths = sum(share.shape[1] for share in held.values())
            code = public.code
            masked = public.config.masked
            sizes = code.segments, code.privacy, public.degree
            masking = upload_streams(N, *sizes) if masked else 0
            return int(self.rows * h * (widths + masking))
        part = kind.removesuffix("-data")
        return coding_operations(public.batches[part].length * own, N) if kind != part else 0


def moves(party: Participant, gradient: Secret) -> bool:
    """Whether a gradient moves models, as it is not all zero; the answer is public."""
    some = gradient.map(is_any, shape=(), dtype=np.bool_)
    return bool(party.opened(some, "whether dL/dH moves a model"))


class Server(Participant):
    """Server: names batch and sharers, decodes the sum from the first R results, trains W_0."""

    protected: ClassVar[Mapping[str, str]] = PROTECTED
    judged: ClassVar[tuple[str, ...]] = tuple(PROTECTED)
    kept: ClassVar[tuple[str, ...]] = (
        *("centre", "steps", "given_up", "test_scores"),
        *kept_as("copied", "summed", ahead=True),
        *("harmless", "stepped"),
        *kept_as("passing", "received", "partly", "unknowns"),
        *kept_as("passing", "noted", "released", ahead=True),
    )
    noted = of_ledger("stored_notes")
    received, partly = of_ledger("received"), of_ledger("partly")
    summed = of_ledger("stored_sums")  # names of the ledger's state in checkpoints
    harmless = of_ledger("below_threshold")
    stepped = of_ledger("last_step")

    def __init__(
        self,
        peers: Sequence[int],
        public: Parameters,
        centre: Centre,
        labels: Mapping[str, np.ndarray],
        alone_labels: np.ndarray | None = None,
    ) -> None:
        super().__init__(SERVER, peers, public.field)
        self.public = public
        self.centre = self.own_model("centre", centre)
        self.task, self.outputs = centre.task, centre.outputs
        self.labels = {part: self.own(LABELS[part], found) for part, found in labels.items()}
        self.alone_labels = (
            None if alone_labels is None else self.own("labels of rows alone", alone_labels)
        )
        self.steps = 0
        self.given_up = 0
        self.batch = Batch("train", np.empty(0, np.uint32))  # of the present attempt
        self.shared: tuple[int, ...] = ()  # who shared in time for it
        self.test_scores: dict[int, Secret] = {}
        self.ledger = SumLedger(
            parties=len(peers), threshold=public.telling_uploads, notes=public.sharers_change
        )
        self.unknowns = 0
        self.released: dict[str, bytes] = {}  # as a client's; the clients refuse by their own
        self.begins_once = public.config.budget > 0
        self.sworn: Sworn = ()
        self.story: tuple[Any, ...] = ()
        self.apart: set[int] = set()  # clients whose uploads were not signed, or of another label
        self.caught: tuple[Any, ...] = ()  # at the level active: wrong uploads, with their label
        self.log: tuple[Any, ...] = ()  # at the covert level: the newest rounds, as they were told
        self.start: Secret | None = None  # at the covert level: random bytes of this start
        if public.covert:
            history.keep(self, PROTECTED, public.active)

    @property
    def signs(self) -> Signing:
        """Signing keys of the server, made for the run or from its manifest."""
        return signing_of(self, self.sworn)

    async def run(self) -> None:
        """Train (lines 25-31), then score the test set from its shares if wanted."""
        if self.returned:
            self.ledger.go_back(self.round)
        if self.public.covert:
            self.on("lacks", functools.partial(one_story.tell_missed, self))
            self.start = new_start(self)
            tell_again(self)
        while self.steps < self.public.config.rounds:
            self.safe_point()
            batch = self.next_batch()
            if not self.affordable(batch):
                break
            attempt = await self.attempt(batch)
            embedding = await self.decode(attempt)
            if embedding is not None:
                self.train(batch, attempt, embedding)
        if self.public.config.secure:
            await self.infer()
        self.ledger.noted = ()  # nothing is made again
        self.conclude()

    async def attempt(self, batch: Batch) -> Attempt:
        """Announce the batch B, then S, the clients that shared their model in time (footnote 2).

        A cohort with an absent client is left out as a whole. An S that would break the masked
        guarantee is not announced, and `decode` abandons the attempt. A second attempt on announced
        rows must have the same models: two sums of the same rows over different models reveal their
        difference.
        """
        self.batch = batch
        self.count_release(batch)
        self.announce(self.round + 1, replace(batch))  # what it has found out about it stays here
        timeout = self.public.config.share_timeout
        shared = await self.collect("shared", timeout=timeout)
        self.shared = tuple(shared)
        before, sharers = self.ledger.same_rows(batch), self.public.cohorts.whole(shared)
        if before is not None:
            again = before.attempt
            sharers = again.sharers if set(again.sharers) <= set(sharers) else ()
        if batch.part == "train":
            for n, uploaded in shared.items():
                self.ledger.report(n, uploaded or ())
            self.ledger.settle()
        attempt = Attempt(sharers, self.life, self.harmless, self.stepped)
        if self.public.enough(attempt.sharers):
            self.ledger.announce(self.round, Sum(batch, attempt))
            self.write_ahead()
            self.broadcast("attempt", attempt)
        return attempt

    def affordable(self, batch: Batch) -> bool:
        """Whether the budget permits one more sum of these rows; a refusal is recorded."""
        config = self.public.config
        limit = visits_allowed(self.unknowns, config.width, config.budget)
        if not config.budget or affords(self.released, batch.part, batch.rows, limit):
            return True
        self.record("sum_budget", **budget_spent(most_visits(self.released), self.unknowns, config))
        return False

    def count_release(self, batch: Batch) -> None:
        """Count a sum of these rows before requesting it, if there is a budget of sums."""
        if self.public.config.budget:
            held = self.public.batches[batch.part].length
            self.released = counted(self.released, batch.part, batch.rows, held)
            self.write_ahead()

    async def decode(self, attempt: Attempt) -> Secret | None:
        """Joint embedding H from the first R results (equation 7); None gives up the attempt."""
        public = self.public
        before = self.ledger.same_rows(self.batch)
        why = why_not_announced(public, before, attempt, self.shared)
        if why is not None:
            self.give_up(why, self.shared)
            return None
        uploads = await self.collect(
            "embedding", count=public.results_needed, timeout=public.config.result_timeout
        )
        self.ledger.receive(self.round, uploads)
        if len(uploads) < public.results_needed:
            self.give_up(
                f"{public.requirement} results are needed and {len(uploads)} came within "
                f"result_timeout = {public.config.result_timeout} s",
                tuple(uploads),
            )
            return None
        try:
            sums = self.interpolate(attempt, uploads)
        except (CorruptResultsError, NotEnoughResultsError) as error:
            self.give_up(str(error), tuple(uploads))
            return None
        self.given_up = 0
        return self.mean(sums, len(attempt.sharers))

    def mean(self, sums: Element, sharers: int) -> Secret:
        """Joint embedding H, (K |B|, h) float64, from the sums over so many clients."""
        shape = sums.shape[0] * sums.shape[1], sums.shape[2]
        how = mean_of_sums, self.public.model_point, self.public.sum_bits, sharers
        found: Secret = sums.map(*how, shape=shape, real=True)
        return found

    def train(self, batch: Batch, attempt: Attempt, embedding: Secret) -> None:
        """Update W_0 and broadcast dL/dH (line 31); padding has no loss and no gradient."""
        samples = self.public.batches["train"].samples(batch.rows)
        loss, gradient = self.centre.step(
            *(train, embedding, self.labels["train"], samples),
            shapes=[(), embedding.shape],
            of=[np.float64, np.float32],
        )
        self.steps += 1
        if moves(self, gradient):
            self.ledger.step(self.round)
        else:
            self.ledger.stand_still()
        if self.public.covert:
            one_story.sign(self, batch, attempt, gradient=gradient)
        else:
            self.broadcast("gradient", gradient)
        self.record(
            "round",
            step=self.steps,
            loss=loss,
            used=self.public.results_needed,
            sharers=len(attempt.sharers),
        )

    def interpolate(self, attempt: Attempt, uploads: Mapping[int, Any]) -> Element:
        """Values psi(beta_1..beta_K), (K, |B|, h), from uploads by client; corrects up to A.

        CorruptResultsError if more are wrong, NotEnoughResultsError if fewer than R have the shape.
        """
        shape = len(self.batch.rows), self.public.config.width
        if self.public.active:
            told = attempt.told(self.round, self.batch)
            apart = len(self.apart)
            try:
                return decode_signed(self, self.public.code, told, self.story[0], uploads, shape)
            finally:
                if apart < len(self.apart):  # whoever dealt two models is named by that
                    self.broadcast("undealt", self.round)
        corrected = self.public.config.tolerate_corrupt > 0
        sums, disagreeing = decode_results(
            *(self, self.public.code, uploads, shape),
            degree=self.public.degree,
            corrected=corrected,
        )
        if disagreeing:
            why = f"uploads of {disagreeing} disagree with the rest"
            self.record("corrected", clients=disagreeing, why=why)
        return sums

    def next_batch(self) -> Batch:
        """The batch of the next round, without rows of attempts given up since the last step.

        If no row is left, it is the batch of one of these attempts. A resumed run that repeats a
        round uses the round's first batch.
        """
        before = self.ledger.made_before(self.round + 1)
        if before is not None:
            return before
        rows = self.ledger.free(self.public.batches["train"].draw(self.round + 1))
        if rows.size:
            return Batch("train", rows)
        return self.ledger.again(self.public.results_needed)

    def give_up(self, why: str, parties: tuple[int, ...]) -> None:
        """End an attempt without a step; NotEnoughResultsError after `max_attempts` in a row."""
        missing = sorted(set(self.peers) - set(parties))
        self.record("given_up", why=why, missing=missing)
        self.given_up += 1
        if self.given_up >= self.public.config.max_attempts:
            raise NotEnoughResultsError(
                f"fedvs: round {self.round}: {why}, and {self.given_up} attempts in a row were "
                f"given up; missing: clients {missing}. Lower segments or privacy, or wait longer"
            )

    async def setup(self) -> None:
        """Receive numbers of independent columns; have client 0 pre-train and receive its head."""
        if self.public.covert:
            self.sworn = await exchange_keys(self, server=self.public.active)
        own = self.public.code, self.public.results_needed, "clients"
        if self.public.active and (text := undetected(*own)):
            self.record("notice", text=text)
        if self.public.config.budget:
            columns, config = dict.fromkeys(self.peers), self.public.config
            self.unknowns = await agree_on_unknowns(self, "fedvs", None, columns, config)
        if self.public.config.pretrain == "full":
            self.send(0, "labels", all_labels(self.labels["train"], self.alone_labels))
            head = await self.receive("head")
            weight, *others = head.values()
            self.centre.step(take_head, weight, list(head), len(self.peers), *others)

    async def infer(self) -> None:
        """Score the test set: decode sums of its rows as in training, in pieces."""
        batches = self.public.batches["test"]
        step = inference_step(batches.coded, batches.segments)
        done = len(self.test_scores) * step
        while done < batches.length:
            self.safe_point()
            rows = np.arange(done, min(done + step, batches.length), dtype=np.uint32)
            attempt = await self.attempt(Batch("test", rows))
            embedding = await self.decode(attempt)
            if embedding is not None:
                self.score(done // step, embedding)
                done += step
                self.ledger.forget(tuple(self.ledger.sums))
                self.ledger.recall(self.ledger.last_step)
        self.report_inference(step)

    def score(self, number: int, embedding: Secret) -> None:
        """Keep the scores of part `number` of the test rows, from their joint embedding."""
        self.test_scores[number] = self.scores(embedding)

    def scores(self, embedding: Secret) -> Secret:
        """Raw scores that the server model gives to rows."""
        shape = embedding.shape[0], self.outputs
        found: Secret = self.centre.call(scores_of, embedding, shape=shape)
        return found

    def report_inference(self, step: int) -> None:
        """Record the measures of the coded scores."""
        labels, names = self.labels["test"], MEASURES[self.task]
        if self.task == "binary":
            both = labels.map(both_classes, shape=(), dtype=np.bool_)
            if self.opened(both, "whether test rows are of both classes"):
                names = (*names[:1], "auc", *names[1:])
        scores = rows_in_order(self.public.batches["test"], self.test_scores, step)
        found = {
            name: scores.map(measured, labels, self.task, name, shape=(), dtype=np.float64)
            for name in names
        }
        self.record("inference", rows=labels.shape[0], **found)

    def operations(self, kind: str) -> int:
        """Multiply-adds of decoding (section 5.3): |B| h R log^2 R."""
        if kind != "gradient":
            return 0
        elements = len(self.batch.rows) * self.public.config.width
        return coding_operations(elements, self.public.threshold)
