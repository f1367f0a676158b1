"""Coded split learning, our method: data and models always stay in Lagrange shares.

Line numbers are those of the algorithm in docs/coded-split.md, and so are the letters: n_o owners
with columns and helpers without, together N holders numbered from 0; K segments, T colluders, R
uploads needed, h embedding width, |B| coded rows. Owner n's rows X_n and its model W_n are the
values at the data points beta_k; holder j has the shares F_n(alpha_j) and W_n(alpha_j) of all
owners. The server deals shares Gamma(alpha_j) of its step Gbar = -eta dL/dH, holders add F^T Gamma
to their shares of the models, and upload masked shares of the sum of embeddings. This module has
the holders; `securevfl.protocols.coded_split.server` has the server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from securevfl.active.dealt import BEFORE, checked, compared, no_chain
from securevfl.active.signing import Signing, exchange_keys, signing_of
from securevfl.engine.party import SERVER, Message, kept_as
from securevfl.errors import PrivacyError
from securevfl.field import PrimeField
from securevfl.privacy.released_equations import independent_columns
from securevfl.protocols.base.levels.proved_shares import echo
from securevfl.protocols.base.levels.signed_uploads import compare_keys, signed_upload
from securevfl.protocols.base.mask_keys import KeyParticipant
from securevfl.protocols.base.received import check_element, refusal
from securevfl.protocols.base.sum_budget import agree_on_unknowns
from securevfl.protocols.coded_split import covert
from securevfl.protocols.coded_split.messages import (
    STORED_EVERY,
    Label,
    Request,
    digest_words,
    piece_of,
)
from securevfl.protocols.coded_split.parameters import MODEL, Parameters
from securevfl.protocols.coded_split.quantisation import first_model, segments_of
from securevfl.protocols.coded_split.terms import (
    check_mask,
    check_request,
    steps_in,
)
from securevfl.verified import Element, Key, Secret, concatenate
from securevfl.verified.batched import (
    dealt_masks,
    decoded,
    encoded,
    encoded_constant,
    masked,
    with_masks,
)
from securevfl.verified.values import public_element

Model = tuple[Element, int, tuple[int, ...], Element]
PROTECTED: Mapping[str, str | tuple[str, ...]] = {
    **dict.fromkeys(("train-data", "test-data", "model", "embedding", "release"), "field"),
    "own-keys": "key",
    "key": "keys",
    "mask": ("bytes", "field"),
    "deal": ("bytes", "field"),
    "seed": ("bytes", "seed"),
    "missed": ("bytes", "field"),
}
_HASH = 16  # words of `hashed`
_REMEMBERED = 1024  # labels: a run goes back by no more steps than lie between checkpoints
_LAST = 30.0  # seconds that a holder waits for what others were dealt in the last step
_EVENLY, _DOUBLED = 20, 10  # questions without a word: at equal times, then ever more rarely


class Holder(KeyParticipant):
    """Holder j: has shares of all data and models, uploads masked sums, applies dealt steps.

    This class is a helper, which has no data of its own; `Owner` derives from it.

    Attributes
    ----------
    model : tuple
        Share W(alpha_j) of all owners' models, (d, h); number t if the steps 1 to t are applied;
        later steps that are applied; digest of all applied steps. The tuple is replaced as a
        whole: an upload from a share that lacks a step, or has it twice, would reveal to the server
        the Gram matrix of the holder's data shares.
    data_shares : dict
        F(alpha_j) of all owners by part, (rows, d).
    keys : dict
        k_A of every block A that does not contain it; with dealt masks, k_ij of dealer i and holder
        j, if it is one of both.
    dealt : dict
        Newest dealt mask of each dealer: round, digest of the steps, value.
    unknowns : int
        Number of independent columns of all owners; needed for a budget of sums.
    named : tuple
        With a budget of sums, or above level semi-honest: the newest answered labels, and for each
        the digest of the model's steps joined to a hash of the holder's model share. The budget
        counts each batch once, so no label is answered with a second model.
    """

    protected: ClassVar[Mapping[str, str | tuple[str, ...]]] = PROTECTED
    judged: ClassVar[tuple[str, ...]] = tuple(PROTECTED)
    kept: ClassVar[tuple[str, ...]] = (
        *kept_as("once", "data_shares", "keys"),
        *kept_as("frozen", "model", shares=True),
        "unknowns",  # they say which step is the last one
        *kept_as("passing", "uploaded", "asked", "released", "told", "dealt", "dealt_round"),
        *kept_as("passing", "named", ahead=True),
    )
    round_ends: ClassVar[tuple[str, ...]] = ("deal", "seed")  # the step of a round ends it

    def __init__(self, index: int, peers: Sequence[int], public: Parameters) -> None:
        super().__init__(index, peers, public.field)
        self.public = public
        self.model: Model = (self.zeros(0, public.config.width), 0, (), self.no_steps)
        self.data_shares: dict[str, Element] = {}
        self.keys: dict[int, Key] = {}
        self.uploaded = 0  # the newest training label that it has answered
        self.asked: Request | None = None  # what the server asked for last
        self.dealt: dict[int, tuple[int, Element, Element]] = {}  # newest masks, by dealer
        self.dealt_round = 0  # the round of which it has dealt masks last
        self.told = 0  # the step up to which it said that it has stored its shares
        self.released: tuple[Secret, ...] = ()  # an owner's own models, if they are released
        self.unknowns = 0
        self.named: tuple[Any, ...] = ()
        self.blind: Element | None = None  # of a prediction: its share of what hides the sums
        self.sworn: tuple[Any, ...] = ()  # at the covert level: signing key, verifying keys
        self.dealings: tuple[Any, ...] = ()  # of the set-up, while it lasts
        self.roots: tuple[Any, ...] = ()  # of these
        self.told_stories: tuple[Any, ...] = ()  # `covert.History`, at that level
        if public.covert:
            covert.keep(self, PROTECTED, public.active, "told_stories")
        self.begins_once = self.budgeted  # the labels that it answered hold for all lives

    def zeros(self, *shape: int) -> Element:
        """Zeros as a public element."""
        return public_element(np.zeros(shape, self.field.dtype), self.field, self.world)

    @property
    def no_steps(self) -> Element:
        """Digest of a model without steps."""
        return self.zeros(digest_words(self.field))

    async def setup(self) -> None:
        """Share data and models, agree on keys (lines 1 to 3), and store the others' shares."""
        if self.public.covert:
            self.sworn = await exchange_keys(self, server=self.public.active)
        self.share_own()
        await self.agree_on_keys(self.public.prss)
        for part in self.public.batches:
            self.data_shares[part] = await self.collect_data(part)
        if self.public.trains:
            owners = range(self.public.owners)
            models = await self.collect("model", senders=owners)
            if self.public.covert:
                models = covert.check_shared(self, self.public, "model", models)
            for n in owners:
                shape = self.public.sizes[n], self.public.config.width
                check_element("coded_split: 'model'", n, models[n], shape, self.field)
            self.model = (concatenate([models[n] for n in owners]), 0, (), self.no_steps)
        if self.public.active:
            await compare_keys(self, self.public.code, self.public.prss, self.no_steps)
        if self.public.covert:
            root = await echo(self, "coded_split")
            named = covert.name_of_setup(self)
            after = covert.after(root, self.model[3])
            self.history = covert.History(after, no_chain(self), name=named)
            self.dealings, self.roots = (), ()
            self.model = (*self.model[:3], self.history.label(self.public))
        if self.budgeted:
            columns, config = dict(enumerate(self.public.widths)), self.public.config
            own = self.own_unknowns()
            self.unknowns = await agree_on_unknowns(self, "coded_split", own, columns, config)

    @property
    def budgeted(self) -> bool:
        """Whether the number of sums of a training row is limited."""
        return self.public.trains and self.public.config.budget > 0

    @property
    def last_step(self) -> int:
        """Last step of the run: that of the last round, or the last that the budget allows."""
        return self.public.steps_allowed(self.unknowns)

    def own_unknowns(self) -> int | None:
        """Number of own independent columns; None for a helper, which has no columns."""
        return None

    async def collect_data(self, part: str) -> Element:
        """Shares F(alpha_j) of all owners' data, side by side; frees the received messages."""
        owners = range(self.public.owners)
        shares = await self.collect(f"{part}-data", senders=owners)
        if self.public.covert:
            shares = covert.check_shared(self, self.public, f"{part}-data", shares)
        for n in owners:
            shape = self.public.batches[part].length, self.public.sizes[n]
            check_element(f"coded_split: '{part}-data'", n, shares[n], shape, self.field)
        return concatenate([shares[n] for n in owners], axis=1)

    def share_own(self) -> None:
        """Share this party's data and model with all holders; a helper has none."""

    async def run(self) -> None:
        """Apply dealt steps; answer labels that are due (line 5)."""
        self.check_keys(self.public.prss)
        self.on("mask", self.take_mask)
        self.on("unmasked", self.deal_masks_again)
        if self.public.covert and self.public.trains:
            self.on("story", self.take_story)
            self.on("untold", self.tell_again)
        if self.returned:
            self.uploaded = 0  # the upload may be lost; the same label gets the same bytes
            self.ask()
        silent, piece = 0, -1
        while True:
            # What has come tells which work is decided already: it is taken before an upload is.
            due = self.due
            stored = self.model[1]  # by the safe point of the next line
            try:
                payload = await self.receive(
                    *("deal", "seed", "missed", "request", "stop"),
                    sender=SERVER,
                    timeout=0.0 if due else patience(self.public.config.ask_timeout, silent),
                    safe=True,
                )
            except TimeoutError:
                if due:
                    self.answer()
                    continue
                silent += 1
                self.uploaded = 0
                self.ask()
                continue
            assert self.envelope is not None
            kind, step = self.envelope.kind, self.envelope.round
            if kind == "stop":
                self.release_once()
                self.dealt, self.dealt_round = {}, 0
                if self.public.covert and self.public.trains:
                    await self.compare_last()
                break
            self.report(stored)
            self.take(kind, step, payload)
            if kind != "request" or payload.piece != piece:  # else it asked, and nothing is new
                silent = 0
            piece = payload.piece if kind == "request" else piece
        await self.receive_release()

    def report(self, stored: int) -> None:
        """Report the stored steps to the server from time to time, so that it can forget them."""
        if stored - self.told >= STORED_EVERY and stored < self.public.last_step - 1:
            self.told = stored
            self.send(SERVER, "stored", stored, round=stored + 2)

    def take(self, kind: str, step: int, payload: Any) -> None:
        """Apply steps dealt by the server (line 10), or store its request for test rows."""
        if kind == "request":
            check_request(self.public, payload)
            self.asked = payload
        elif self.public.covert:
            for number, share, parts in covert.steps_in(self, self.public, kind, step, payload):
                self.check_step(number, share, parts)
        else:
            for number, share, digest in steps_in(self, self.public, kind, step, payload):
                self.apply(number, share, digest)
        if self.model[1] < self.last_step and (self.model[2] or kind == "request"):
            self.ask()

    @property
    def signs(self) -> Signing:
        """Signing keys of this party, made for the run or from its manifest."""
        return signing_of(self, self.sworn)

    @property
    def history(self) -> covert.History:
        """Record of dealt steps and of others' statements, above the semi-honest level."""
        return covert.History(*self.told_stories)

    @history.setter
    def history(self, history: covert.History) -> None:
        self.told_stories = history.kept()

    def check_step(self, number: int, share: Element, parts: covert.Parts) -> None:
        """Check and apply step `number`; show its statement to others if `covert.is_compared`."""
        if number <= self.model[1] or number in self.model[2]:
            return
        own = covert.dealing_of(self.public, SERVER, "step", number)
        told = checked(self, own, self.index, self.signs, share, parts)
        before = parts[BEFORE]
        self.history = self.history.with_step(self, number, told, before)
        self.apply(number, share, self.no_steps)
        self.model = (*self.model[:3], self.history.label(self.public))
        if number in self.history.own:
            others = [n for n in self.peers if n != self.index]
            self.broadcast("story", (number, *told[1]), others)
            early, self.history = self.history.early, replace(self.history, early=())
            for sender, step, story in early:
                self.compare(sender, step, story)

    def take_story(self, message: Message) -> None:
        """Compare another's statement on a step with own; ProtocolError for one of another form."""
        payload = message.payload
        if not isinstance(payload, tuple) or len(payload) != 3 or type(payload[0]) is not int:
            raise refusal("coded_split: 'story'", message.sender, "of another form", "a step's")
        self.compare(message.sender, payload[0], payload[1:])
        self.answer()

    def tell_again(self, message: Message) -> None:
        """Send this holder's statement on a step to a holder that lacks it."""
        step, own = message.payload, self.history.own
        if type(step) is int and step in own:
            self.send(message.sender, "story", (step, *own[step]))

    def ask_stories(self) -> None:
        """Ask other holders for the statements that must be compared before the next upload."""
        known, last = self.history, self.last_step
        due = known.due(last)
        if due in known.own and not known.is_confirmed(self.public, last):
            for n in {*self.peers} - {self.index, *known.agreed.get(due, ())}:
                self.send(n, "untold", due)

    async def compare_last(self) -> None:
        """Wait until a quorum has sent its newest statements; else record "unconfirmed"."""
        del self.handlers["story"]
        while self.history.step and not self.is_confirmed:
            try:
                await self.receive("story", timeout=_LAST)
            except TimeoutError:
                why = "too few holders have shown what they were dealt in the last step"
                self.record("unconfirmed", step=self.history.step, why=why)
                break
            assert self.envelope is not None
            self.take_story(self.envelope)

    @property
    def is_confirmed(self) -> bool:
        """Whether a quorum has sent the statements required before the next upload."""
        return not self.public.covert or self.history.is_confirmed(self.public, self.last_step)

    def compare(self, sender: int, step: int, story: Any) -> None:
        """Compare another's statement with the own one, or store it until the own step comes."""
        known = self.history
        if step in known.own:
            own, both = covert.dealing_of(self.public, SERVER, "step", step), (self.index, sender)
            compared(own, both, self.signs, (known.own[step], story))
            agreed = {*known.agreed.get(step, ()), sender}
            recent = {n: one for n, one in known.agreed.items() if n > step - 3 * covert.STORY}
            self.history = replace(known, agreed={**recent, step: tuple(sorted(agreed))})
        elif known.step < step <= self.last_step and covert.is_compared(step, self.last_step):
            early = [one for one in known.early if one[:2] != (sender, step)]
            self.history = replace(known, early=(*early, (sender, step, story)))

    def apply(self, step: int, share: Element, digest: Element) -> None:
        """Add a dealt step to the share of the models; drop a step applied before."""
        self.model = self.with_step(self.model, step, share, digest)
        done = self.model[1]
        if done > self.round:
            self.round = done
            self.engine.round_over(self, done, False)

    def with_step(self, model: Model, step: int, share: Element, digest: Element) -> Model:
        """Share of the models after a step: W(alpha_j) + F^(B)(alpha_j)^T Gamma(alpha_j)."""
        W, done, ahead, known = model
        if step <= done or step in ahead:
            return model
        F = self.data_shares["train"].rows(self.public.batches["train"].draw(step))
        applied = {*ahead, step}
        while done + 1 in applied:
            done += 1
        left = tuple(sorted(n for n in applied if n > done))
        return W + F.T @ share, done, left, known + digest

    def ask(self) -> None:
        """Ask the server for missing steps, and dealers for missing masks (section 6)."""
        self.send(SERVER, "lacks", self.model[1])
        if self.public.covert and self.public.trains:
            self.ask_stories()
        due = self.model[1] + 1
        if self.asked is not None:
            due = self.public.last_step + 1 + self.asked.piece
        if self.index in self.public.prss.receivers and not self.has_masks(due):
            for i in self.public.prss.dealers:
                self.send(i, "unmasked", due)

    @property
    def due(self) -> bool:
        """Whether the holder can send what the server waits for."""
        return self.uploads or self.answers or self.releases

    @property
    def uploads(self) -> bool:
        """Whether the holder can upload the batch of the next step."""
        _, done, ahead, _ = self.model
        wanted = not ahead and self.uploaded <= done < self.last_step
        return wanted and self.is_confirmed and self.has_masks(done + 1)

    @property
    def answers(self) -> bool:
        """Whether the holder can upload the piece of test rows that the server requested."""
        _, done, ahead, _ = self.model
        if ahead or self.asked is None or done < self.last_step or not self.is_confirmed:
            return False
        return self.has_masks(self.public.last_step + 1 + self.asked.piece)

    @property
    def releases(self) -> bool:
        """Whether models must be released now: all steps are here and none was released yet."""
        _, done, ahead, _ = self.model
        wanted = self.public.config.release and self.public.trains and not ahead
        due = wanted and self.uploaded <= self.public.last_step and done == self.last_step
        return due and self.is_confirmed

    def answer(self) -> None:
        """Upload what is due, from a model with exactly the label's steps (line 5)."""
        done, last = self.model[1], self.public.last_step
        if self.uploads:
            self.name_steps(done + 1)
            self.uploaded = done + 1
            rows = self.public.batches["train"].draw(done + 1)
            self.upload(Label("train", done + 1), rows, done + 1)
        if self.answers:
            assert self.asked is not None
            request, self.asked = self.asked, None
            label, number = Label("test", last, request.piece), last + 1 + request.piece
            if self.public.covert:
                self.name_steps(number)
            self.upload(label, request.rows, number)
        self.release_once()

    def name_steps(self, label: int) -> None:
        """Store which steps the model has that answers a label, so that no other model answers it.

        The server may send one digest for two steps, so the model share is compared, too. The note
        is needed even without a budget, because parties may lie: a holder that a crash took back to
        its last checkpoint could otherwise receive a second version of a step, and count in both.
        PrivacyError if the label was answered with other steps, or is older than the stored ones.
        """
        if not (self.budgeted or self.public.covert):
            return
        W, _, _, told = self.model
        digest = concatenate([told, W.map(hashed, shape=(_HASH,))])
        words = digest_words(self.field) + _HASH
        labels, digests = self.named or ((), None)
        if label in labels:
            self.refuse_other_steps(label, digest)
            return
        if label < min(labels, default=0):
            raise answered_already(self.index, label)
        every = [digest] if digests is None else [digests, digest]
        self.named = (*labels, label)[-_REMEMBERED:], concatenate(every)[-_REMEMBERED * words :]
        self.write_ahead()

    @property
    def answered(self) -> tuple[int, ...]:
        """Answered labels, as far as their steps are remembered."""
        return self.named[0] if self.named else ()

    def refuse_other_steps(self, label: int, digest: Element) -> None:
        """Raise PrivacyError if a label was answered before with other steps."""
        labels, digests = self.named
        start = (digest_words(self.field) + _HASH) * labels.index(label)
        known = digests[start : start + digest.shape[0]]
        known.map(refuse_other_steps, digest, self.index, label, shape=(0,), real=True)

    def release_once(self) -> None:
        """Release the models once, when due."""
        if self.releases:
            self.uploaded = self.public.last_step + 1
            self.release()

    def upload(self, label: Label, rows: np.ndarray, round: int) -> None:
        """Upload Y_j = sum_n F_n^(B)(alpha_j) W_n(alpha_j) + P(alpha_j) rho(alpha_j) (line 5)."""
        W, _, _, digest = self.model
        told, prss = label.told(rows), self.public.prss
        if not (self.public.active or prss.by_dealers):

            def made() -> Element:
                own = self.product(label, rows, W)
                return masked(self, prss, self.keys, own, told, [digest], self.public.degree)

            self.send_later(SERVER, "embedding", made, (len(rows), W.shape[1]), round=round)
            return
        psi = self.product(label, rows, W)
        if self.index in prss.dealers:  # others wait for it
            self.deal_masks(round, told, psi.shape, prss.receivers)
            self.dealt_round = round
        if self.index in prss.receivers:
            Y = with_masks(self, prss, psi, [one[2] for one in self.dealt.values()])
            self.dealt = {}  # a dealer deals them again where this upload is lost
        else:
            Y = masked(self, prss, self.keys, psi, told, [digest], self.public.degree)
        found: Any = Y
        if self.public.active:
            known = self.history.name, self.history.chain
            found = signed_upload(self, self.public.code, told, known, Y)
        self.send(SERVER, "embedding", found, round=round)

    def product(self, label: Label, rows: np.ndarray, W: Element) -> Element:
        """Share of the sums of these rows' embeddings, sum_n F_n^(B)(alpha_j) W_n(alpha_j)."""
        psi = self.data_shares[label.part].rows(rows) @ W
        return psi if self.blind is None else psi + self.blind.rows(rows)

    def deal_masks(
        self, round: int, told: bytes, shape: tuple[int, ...], to: Collection[int]
    ) -> None:
        """Send shares rho_i(alpha_j), of `shape`, of the mask for a label (`told`: public part).

        The digest of the steps in this holder's model goes with them.
        """
        prss, digest = self.public.prss, self.model[3]
        values = dealt_masks(self, prss, self.keys, told, [digest], shape)
        for j in to:
            self.send(j, "mask", (digest, values[j - prss.receivers[0]]), round=round)

    def deal_masks_again(self, message: Message) -> None:
        """Send a holder the masks of the last answered label again, if it lacks them."""
        round, last = message.payload, self.public.last_step
        if type(round) is not int:
            why = "it asked for masks without the number of a round"
            self.record("refused", party=message.sender, why=why)
            return
        wanted = self.dealt_round, min(self.dealt_round - 1, last), ()
        if (round, *self.model[1:3]) != wanted or message.sender not in self.public.prss.receivers:
            return
        label, rows = Label("train", round), self.public.batches["train"].draw(round)
        if round > last:
            label = Label("test", last, round - last - 1)
            rows = piece_of(self.public.batches["test"], label.piece)
        told = label.told(rows)
        self.deal_masks(round, told, (len(rows), self.public.config.width), [message.sender])

    def take_mask(self, message: Message) -> None:
        """Store a dealer's newest mask; upload once all dealers' masks are here."""
        value = check_mask(self.public, self.index, message.sender, message.round, message.payload)
        if self.dealt.get(message.sender, (0,))[0] <= message.round:
            self.dealt = {**self.dealt, message.sender: (message.round, *value)}
            self.answer()

    def has_masks(self, round: int) -> bool:
        """Whether the holder can mask a round's upload, by keys or by masks from dealers."""
        prss = self.public.prss
        wanted = prss.dealers if self.index in prss.receivers else ()
        found = [self.dealt.get(i, (0,)) for i in wanted]
        return all(one[0] == round for one in found) and all(self.has_steps(*one) for one in found)

    def has_steps(self, round: int, digest: Element, *value: Element) -> bool:
        """Whether the digest with a dealer's mask equals that of this holder's steps."""
        same = digest.map(are_equal, self.model[3], shape=(), real=True, dtype=np.bool_)
        return bool(self.opened(same, f"whether masks of round {round} are of the same steps"))

    def release(self) -> None:
        """Send each owner a masked share of its models (line 13)."""
        public, start = self.public, 0
        W, _, _, digest = self.model
        for n, size in enumerate(public.sizes):
            told = Label("release", public.config.rounds, n).told(np.empty(0, np.uint32))
            own, start = W[start : start + size], start + size
            Y = masked(self, public.prss, self.keys, own, told, [digest], MODEL)
            self.send(n, "release", Y, round=public.config.rounds)

    async def receive_release(self) -> None:
        """Receive the own models, if they are released; a helper has none."""

    def operations(self, kind: str) -> int:
        """Multiply-adds before an upload: 2 |B| d h, and |B| h a mask stream or mask dealt."""
        public = self.public
        if kind not in ("embedding", "mask") or "train" not in public.batches:
            return 0
        entries = public.batches["train"].coded * public.config.width
        if kind == "mask":
            return entries * public.prss.seeded
        return int(entries * (2 * sum(public.sizes) + public.streams))


def patience(seconds: float | None, silent: int) -> float | None:
    """Seconds until a holder asks the server again; None if it asks no more.

    A link may be down for long, so a holder asks 20 times at equal intervals, then 10 times at
    doubling intervals: about 2,000 times `seconds` in all.

    Parameters
    ----------
    seconds : float or None
        Option `ask_timeout`; None for no questions after silence.
    silent : int
        Number of questions since the server's last message.
    """
    if seconds is None or silent >= _EVENLY + _DOUBLED:
        return None
    return float(seconds * 2 ** max(0, silent + 1 - _EVENLY))


def hashed(share: np.ndarray) -> np.ndarray:
    """SHA-256 of a share, as 16 numbers of 16 bits: each is an element of every field used here."""
    content = np.ascontiguousarray(share, "<u8")
    return np.frombuffer(hashlib.sha256(content.data).digest(), "<u2").astype(share.dtype)


def are_equal(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Truth value, a NumPy array: True if two digests are equal."""
    return np.array(np.array_equal(one, other))


def refuse_other_steps(
    before: np.ndarray, digest: np.ndarray, holder: int, label: int
) -> np.ndarray:
    """Raise PrivacyError for two different digests of one label; else return an empty array."""
    if not np.array_equal(before, digest):
        raise answered_already(holder, label)
    return np.empty(0)


def answered_already(holder: int, label: int) -> PrivacyError:
    """Error for a label that was answered with other steps, or too long ago to compare."""
    return PrivacyError(
        f"coded_split: party {holder} answered the batch of step {label} already, with "
        "other steps in the model or too long ago to compare, and a second sum of these "
        "rows is not given. Nothing was sent. The server went back to an older state and went on "
        "otherwise; start the run again, or use sum_budget = 0 with security = semi-honest"
    )


def grown_models(shares: np.ndarray, field: PrimeField, bits: int, scale: float) -> np.ndarray:
    """Released models as real numbers, (K, d_n, h) float64: signed, times 2^-bits and `scale`."""
    return np.ldexp(field.signed(shares).astype(np.float64), -bits) * scale


class Owner(Holder):
    """Owner n: a holder with columns of its own, which it shares once.

    Parameters
    ----------
    index, peers, public : int, sequence of int, Parameters
        Number n, the numbers of all holders, and the public parameters.
    features : mapping
        The owner's prepared columns by part.
    weights : ndarray, (d_n, h), float32
        Initial model W_n^0, from its own entropy.
    """

    def __init__(
        self,
        index: int,
        peers: Sequence[int],
        public: Parameters,
        features: Mapping[str, np.ndarray],
        weights: np.ndarray,
    ) -> None:
        super().__init__(index, peers, public)
        self.features = {part: self.own(f"{part} columns", X) for part, X in features.items()}
        self.weights = self.own("weights", weights)

    def own_unknowns(self) -> int | None:
        """Number of own independent columns, which is sent to all parties."""
        unit = 2.0**-self.public.config.data_bits
        X = self.features["train"]
        return int(self.opened(X.map(independent_columns, unit, shape=(), dtype=int), "unknowns"))

    def share_own(self) -> None:
        """Send shares F_n(alpha_j) of data, G_n(alpha_j) of models to each holder j (lines 1-2)."""
        public = self.public
        for part, features in self.features.items():
            X = segments_of(public, self.index, features, part)
            if public.covert:
                covert.share_with_proof(self, public, f"{part}-data", X)
            else:
                self.share(f"{part}-data", encoded(self, public.code, X, apart=True))
        if public.trains:
            W = self.weights.map(first_model, public.model_point, field=public.field)
            if public.covert:
                covert.share_with_proof(self, public, "model", W)
            else:
                self.share("model", encoded_constant(self, public.code, W))

    async def receive_release(self) -> None:
        """Decode the own models W_{n,1} to W_{n,K}, if they are released (line 13)."""
        public = self.public
        if not (public.config.release and public.trains):
            return
        shares = await self.collect(
            "release", count=public.models_needed, round=public.config.rounds
        )
        for j, share in shares.items():
            shape = public.sizes[self.index], public.config.width
            check_element("coded_split: 'release'", j, share, shape, self.field)
        W = decoded(public.code, shares, MODEL)
        numbers = public.field, public.model_point.bits, public.scale(self.last_step)
        self.released = (W.map(grown_models, *numbers, real=True),)
        self.record("released", replicas=public.code.segments)
