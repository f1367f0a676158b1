"""Coded split learning: data and models stay in Lagrange shares for good. Ours.

Line numbers are those of the algorithm in docs/coded-split.md, and so are the letters: n_o owners
with columns and helpers without, together N holders numbered from 0; K segments, T colluders, R
uploads needed, h embedding width, |B| coded rows. Owner n's rows X_n stand at the data points
beta_k, and so does its model W_n; holder j has the shares F_n(alpha_j) and W_n(alpha_j) of all of
them. The server deals shares Gamma(alpha_j) of its step Gbar = -eta dL/dH, holders add
F^T Gamma to their shares of the models, and upload masked shares of the sum of embeddings. The
holders are here, the server in `securevfl.protocols.coded_split.server`.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from mmap import mmap
from typing import Any, ClassVar

import numpy as np

from securevfl.engine.party import SERVER, Message
from securevfl.errors import PrivacyError
from securevfl.privacy.released_equations import independent_columns
from securevfl.protocols.base.mask_keys import KeyHolder
from securevfl.protocols.base.sum_budget import agree_on_unknowns
from securevfl.protocols.coded_split.decoding import signed_models
from securevfl.protocols.coded_split.messages import (
    NO_STEPS,
    STORED_EVERY,
    Label,
    Request,
    joined,
    piece_of,
)
from securevfl.protocols.coded_split.parameters import MODEL, UPLOAD, Parameters
from securevfl.protocols.coded_split.quantisation import first_model, whole_rows
from securevfl.protocols.coded_split.terms import (
    check_elements,
    check_mask,
    check_request,
    steps_in,
)

Model = tuple[np.ndarray, int, tuple[int, ...], bytes]
_LARGE = 2**20  # bytes
_REMEMBERED = 1024  # labels: a run goes back by no more steps than lie between checkpoints
_EVENLY, _DOUBLED = 20, 10  # questions without a word: at equal times, then ever more rarely


class Holder(KeyHolder):
    """Holder j: has shares of all data and models, uploads masked sums, applies dealt steps.

    As it stands here it is a helper, which has no data of its own.

    Attributes
    ----------
    model : tuple
        W(alpha_j) of all owners, (d, h), which steps are in it: all up to a number, and some
        later ones, and the digest of these steps. It is one value and replaced as one: an upload
        from a share that lacks a step, or has it twice, would tell the server the Gram matrix of
        the holder's shares of the data.
    data_shares : dict
        F(alpha_j) of all owners by part, (rows, d).
    keys : dict
        k_A of every block A that it is not in; with dealt masks k_ij of a dealer i and j, one of
        whom it is.
    dealt : dict
        Of each dealer the newest mask that it dealt: round, digest of the steps, value.
    unknowns : int
        Independent columns of all owners, with a budget of sums.
    named : dict of int to bytes
        With a budget of sums, the digest of the steps in the model by training label, of the newest
        labels that it answered. The budget counts each batch once, so no label is answered with
        other steps.
    """

    kept_once: ClassVar[tuple[str, ...]] = ("data_shares", "keys")
    kept_frozen: ClassVar[tuple[str, ...]] = ("model",)
    kept_optional: ClassVar[Mapping[str, Any]] = {
        "uploaded": 0,
        "asked": None,
        "released": (),
        "told": 0,
        "dealt": {},
        "dealt_round": 0,
        "unknowns": 0,
        "named": {},
    }
    kept_ahead: ClassVar[tuple[str, ...]] = ("named",)
    kept_shares: ClassVar[tuple[str, ...]] = ("model",)
    round_ends: ClassVar[tuple[str, ...]] = ("deal", "seed")  # the step of a round ends it

    def __init__(self, index: int, peers: Sequence[int], public: Parameters) -> None:
        super().__init__(index, peers)
        self.public = public
        self.model: Model = (
            np.zeros((0, public.config.width), public.field.dtype),
            0,
            (),
            NO_STEPS,
        )
        self.data_shares: dict[str, np.ndarray] = {}
        self.keys: dict[int, bytes] = {}
        self.uploaded = 0  # the newest training label that it has answered
        self.asked: Request | None = None  # what the server asked for last
        self.dealt: dict[int, tuple[int, bytes, np.ndarray]] = {}  # newest masks, by dealer
        self.dealt_round = 0  # the round of which it has dealt masks last
        self.told = 0  # the step up to which it said that it has stored its shares
        self.released: tuple[np.ndarray, ...] = ()  # an owner's own models, if they are released
        self.unknowns = 0
        self.named: dict[int, bytes] = {}
        self.begins_once = self.budgeted  # the labels that it answered hold for all lives

    async def setup(self) -> None:
        """Lines 1 to 3: share data and models, agree on keys; keep what the others sent."""
        self.share_own()
        await self.agree_on_keys(self.public.prss)
        for part in self.public.batches:
            self.data_shares[part] = await self.collect_data(part)
        if self.public.trains:
            owners = range(self.public.owners)
            models = await self.collect("model", senders=owners)
            for n in owners:
                shape = self.public.sizes[n], self.public.config.width
                check_elements(self.public, "'model'", n, models[n], shape)
            self.model = (np.concatenate([models[n] for n in owners]), 0, (), NO_STEPS)
        if self.budgeted:
            columns, config = dict(enumerate(self.public.widths)), self.public.config
            own = self.own_unknowns()
            self.unknowns = await agree_on_unknowns(self, "coded_split", own, columns, config)

    @property
    def budgeted(self) -> bool:
        """Whether sums of training rows are limited."""
        return self.public.trains and self.public.config.budget > 0

    @property
    def last_step(self) -> int:
        """Last step of the run: that of the last round, or of the budget."""
        return self.public.steps_allowed(self.unknowns)

    def own_unknowns(self) -> int | None:
        """A helper has no columns."""
        return None

    async def collect_data(self, part: str) -> np.ndarray:
        """F(alpha_j) of all owners side by side; when it returns, their messages may be freed."""
        owners = range(self.public.owners)
        shares = await self.collect(f"{part}-data", senders=owners)
        for n in owners:
            shape = self.public.batches[part].length, self.public.sizes[n]
            check_elements(self.public, f"'{part}-data'", n, shares[n], shape)
        return np.concatenate([shares[n] for n in owners], axis=1)

    def share_own(self) -> None:
        """Share data and model; a helper has none."""

    async def run(self) -> None:
        """Apply every step that is dealt, answer every label that is due and undecided (line 5)."""
        self.check_keys(self.public.prss)
        self.on("mask", self.take_mask)
        self.on("unmasked", self.deal_masks_again)
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
                break
            self.report(stored)
            self.take(kind, step, payload)
            if kind != "request" or payload.piece != piece:  # else it asked, and nothing is new
                silent = 0
            piece = payload.piece if kind == "request" else piece
        await self.receive_release()

    def report(self, stored: int) -> None:
        """Tell the server now and then which steps are stored, so that it may forget them."""
        if stored - self.told >= STORED_EVERY and stored < self.public.last_step - 1:
            self.told = stored
            self.send(SERVER, "stored", stored, round=stored + 2)

    def take(self, kind: str, step: int, payload: Any) -> None:
        """Apply what the server dealt (line 10), or remember what it asks for."""
        if kind == "request":
            check_request(self.public, payload)
            self.asked = payload
        else:
            for number, share, digest in steps_in(self.public, kind, step, payload):
                self.apply(number, share, digest)
        if self.model[1] < self.last_step and (self.model[2] or kind == "request"):
            self.ask()

    def apply(self, step: int, share: np.ndarray, digest: bytes) -> None:
        """W(alpha_j) += F^(B)(alpha_j)^T Gamma(alpha_j) (line 10); a second deal is dropped."""
        values, done, ahead, known = self.model
        if step <= done or step in ahead:
            return
        rows = self.public.batches["train"].draw(step)
        moved = self.public.field.matmul(self.data_shares["train"][rows].T, share)
        applied = {*ahead, step}
        while done + 1 in applied:
            done += 1
        left = tuple(sorted(n for n in applied if n > done))
        self.model = (self.public.field.add(values, moved), done, left, joined((known, digest)))
        if done > self.round:
            self.round = done
            self.engine.round_over(self, done, False)

    def ask(self) -> None:
        """Ask the server for the steps that are missing, and dealers for masks (section 6)."""
        self.send(SERVER, "lacks", self.model[1])
        due = self.model[1] + 1
        if self.asked is not None:
            due = self.public.last_step + 1 + self.asked.piece
        if self.index in self.public.prss.receivers and not self.has_masks(due):
            for i in self.public.prss.dealers:
                self.send(i, "unmasked", due)

    @property
    def due(self) -> bool:
        """Whether the holder can do what the server waits for."""
        return self.uploads or self.answers or self.releases

    @property
    def uploads(self) -> bool:
        """Whether it can upload the batch of the next step."""
        _, done, ahead, _ = self.model
        wanted = not ahead and self.uploaded <= done < self.last_step
        return wanted and self.has_masks(done + 1)

    @property
    def answers(self) -> bool:
        """Whether it can upload the piece of test rows that the server asked for."""
        _, done, ahead, _ = self.model
        if ahead or self.asked is None or done < self.last_step:
            return False
        return self.has_masks(self.public.last_step + 1 + self.asked.piece)

    @property
    def releases(self) -> bool:
        """Whether it has all steps and is to release the models, and has not done so."""
        _, done, ahead, _ = self.model
        wanted = self.public.config.release and self.public.trains and not ahead
        return wanted and self.uploaded <= self.public.last_step and done == self.last_step

    def answer(self) -> None:
        """Upload what is due, from a model with exactly the steps that the label says (line 5)."""
        done, last = self.model[1], self.public.last_step
        if self.uploads:
            self.name_steps(done + 1)
            self.uploaded = done + 1
            rows = self.public.batches["train"].draw(done + 1)
            self.upload(Label("train", done + 1), rows, done + 1)
        if self.answers:
            assert self.asked is not None
            request, self.asked = self.asked, None
            label = Label("test", last, request.piece)
            self.upload(label, request.rows, last + 1 + request.piece)
        self.release_once()

    def name_steps(self, label: int) -> None:
        """Note which steps are in the model of a training label; refuse others for it.

        Raises
        ------
        PrivacyError
            Where the label was answered with other steps, or is older than what is remembered.
        """
        if not self.budgeted:
            return
        digest, oldest = self.model[3], min(self.named, default=0)
        if self.named.get(label, digest) != digest or label < oldest:
            raise PrivacyError(
                f"coded_split: party {self.index} answered the batch of step {label} already, with "
                "other steps in the model or too long ago to compare, and a second sum of these "
                "rows is not in the budget. Nothing was sent. The server went back to an older "
                "state and went on otherwise; start the run again, or use sum_budget = 0"
            )
        newest = dict(sorted((self.named | {label: digest}).items())[-_REMEMBERED:])
        if newest != self.named:
            self.named = newest
            self.write_ahead()

    def release_once(self) -> None:
        """Release the models, if that is due and has not been done."""
        if self.releases:
            self.uploaded = self.public.last_step + 1
            self.release()

    def upload(self, label: Label, rows: np.ndarray, round: int) -> None:
        """Y_j = sum_n F_n^(B)(alpha_j) W_n(alpha_j) + P(alpha_j) rho(alpha_j) (line 5)."""
        share = self.data_shares[label.part][rows]
        psi = self.public.field.matmul(share, self.model[0])
        told, prss = label.told(rows, self.model[3]), self.public.prss
        if self.index in prss.dealers:  # others wait for it
            self.deal_masks(round, told, psi.shape, prss.receivers)
            self.dealt_round = round
        if self.index in prss.receivers:
            rho = functools.reduce(self.public.field.add, (one[2] for one in self.dealt.values()))
            masked = prss.add(self.index, psi, rho)
            self.dealt = {}  # a dealer deals them again where this upload is lost
        else:
            masked = prss.mask(self.index, self.keys, told, psi, UPLOAD)
        self.send(SERVER, "embedding", masked, round=round)

    def deal_masks(
        self, round: int, told: bytes, shape: tuple[int, ...], to: Collection[int]
    ) -> None:
        """Deal rho_i(alpha_j) of a label, beside the digest of the steps that it tells."""
        prss = self.public.prss
        values = prss.values(self.index, self.keys, told, shape)
        for j in to:
            value = values[j - prss.receivers[0]]
            self.send(j, "mask", (self.model[3], value), round=round)

    def deal_masks_again(self, message: Message) -> None:
        """Deal a holder the masks of the label that was answered last, if it lacks those."""
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
        told = label.told(rows, self.model[3])
        self.deal_masks(round, told, (len(rows), self.public.config.width), [message.sender])

    def take_mask(self, message: Message) -> None:
        """Keep the newest mask of a dealer, and upload if it was the last that was waited for."""
        value = check_mask(self.public, self.index, message.sender, message.round, message.payload)
        if self.dealt.get(message.sender, (0,))[0] <= message.round:
            self.dealt = {**self.dealt, message.sender: (message.round, *value)}
            self.answer()

    def has_masks(self, round: int) -> bool:
        """Whether the holder can mask the upload of a round: it has keys, or what dealers dealt."""
        prss = self.public.prss
        wanted = prss.dealers if self.index in prss.receivers else ()
        return all(self.dealt.get(i, ())[:2] == (round, self.model[3]) for i in wanted)

    def release(self) -> None:
        """Send each owner a masked share of its models (line 13)."""
        public, start = self.public, 0
        for n, size in enumerate(public.sizes):
            share = self.model[0][start : start + size]
            start += size
            label = Label("release", public.config.rounds, n)
            told = label.told(np.empty(0, np.uint32), self.model[3])
            masked = public.prss.mask(self.index, self.keys, told, share, MODEL)
            self.send(n, "release", masked, round=public.config.rounds)

    async def receive_release(self) -> None:
        """A helper gets no models."""

    def uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """Fresh uniform field elements from the operating system's entropy: Z, then V.

        The privacy verifiers replace this method by a tape, a recorded sequence of draws.
        """
        return self.public.field.random(shape)

    def operations(self, kind: str) -> int:
        """Multiply-adds: 2 |B| d h of a round and |B| h for each stream, all before the upload."""
        public = self.public
        if kind not in ("embedding", "mask") or "train" not in public.batches:
            return 0
        entries = public.batches["train"].coded * public.config.width
        if kind == "mask":
            return entries * public.prss.seeded
        return int(entries * (2 * sum(public.sizes) + public.streams))


def patience(seconds: float | None, silent: int) -> float | None:
    """Seconds until the next question, after so many without a word; None to ask no more.

    A link may be cut for long, so a holder goes on to ask, ever more rarely. Who has heard nothing
    for some 2,000 times as long as the first question waited takes the server as gone.
    """
    if seconds is None or silent >= _EVENLY + _DOUBLED:
        return None
    return float(seconds * 2 ** max(0, silent + 1 - _EVENLY))


class Owner(Holder):
    """Owner n: a holder with columns of its own, which it shares once.

    Parameters
    ----------
    features : mapping
        Its prepared columns by part.
    weights : ndarray, (d_n, h), float32
        W_n^0, from its own entropy.
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
        self.features = features
        self.weights = weights

    def own_unknowns(self) -> int | None:
        """Number of independent columns."""
        return independent_columns(self.features["train"], 2.0**-self.public.config.data_bits)

    def share_own(self) -> None:
        """Lines 1 and 2: F_n(alpha_j) and G_n(alpha_j) to every holder j."""
        public, T = self.public, self.public.code.privacy
        for part, features in self.features.items():
            whole = whole_rows(public, self.index, features)
            X = public.batches[part].lay_out(public.field.reduce(whole))
            Z = self.uniform((T, *X.shape[1:]))
            self.share(f"{part}-data", [*map(_apart, public.code.encode(X, masks=Z))])
        if self.public.trains:
            W = first_model(public, self.weights)
            V = self.uniform((T, *W.shape))
            self.share("model", public.code.encode_constant(W, masks=V))

    async def receive_release(self) -> None:
        """Decode the own models W_{n,1} to W_{n,K}, if they are released (line 13)."""
        public = self.public
        if not (public.config.release and self.public.trains):
            return
        shares = await self.collect(
            "release", count=public.models_needed, round=public.config.rounds
        )
        for j, share in shares.items():
            shape = public.sizes[self.index], public.config.width
            check_elements(public, "'release'", j, share, shape)
        models = signed_models(public, shares)
        unit = -public.config.data_bits - public.config.gradient_bits
        grown = np.ldexp(models.astype(np.float64), unit)
        self.released = tuple(grown * public.scale(self.last_step))
        self.record("released", replicas=len(self.released))


def _apart(share: np.ndarray) -> np.ndarray:
    """A copy whose memory goes back to the system as soon as the holder has taken it.

    A view would keep the shares of all holders until the last one has taken its own, and freed
    pieces of a heap are too small for what holders join them to: a simulation would need the shares
    of all holders twice.
    """
    if share.nbytes < _LARGE:
        return share.copy()
    copy = np.frombuffer(mmap(-1, share.nbytes), share.dtype).reshape(share.shape)
    copy[...] = share
    return copy
