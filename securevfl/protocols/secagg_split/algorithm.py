"""Split learning on securely aggregated embeddings: pairwise masks, dropout recovery.

K. Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS
2017, Figure 4, in its letters: clients u and v agree on s_{u,v}; client u uploads

    y_u = x_u + PRG(b_u) + sum_{v < u} PRG(s_{u,v}) - sum_{v > u} PRG(s_{u,v})   (mod p)

for its quantised embedding x_u, and the server learns the sum of x_u over the survivors U3. A round
of training is one run of the protocol with fresh keys and seeds:

- rounds 0 and 1, advertise and share keys: s_u^SK and b_u, t-out-of-n Shamir shares of both (U2);
- round 2, masked input: the first `quorum` uploads are U3;
- round 3, consistency check (optional): clients sign U3, and continue only if t of them signed the
  same set;
- round 4, unmasking: shares of b_u for u in U3, of s_u^SK for u in U2 but not in U3, never both.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from securevfl.active import history
from securevfl.active.signing import (
    Signing,
    Sworn,
    exchange_keys,
    new_start,
    signing_of,
    tell_again,
)
from securevfl.engine.party import SERVER, Party, RoundOverError, kept_as
from securevfl.errors import NotEnoughResultsError, RunError
from securevfl.field.cohorts import TOLD_APART
from securevfl.protocols.base.summed_parties import SummedClient, SummedServer
from securevfl.protocols.secagg_split import covert
from securevfl.protocols.secagg_split.parameters import Deal, Opening, Parameters, SecAggConfig
from securevfl.protocols.secagg_split.signatures import enough_signed, survivors_statement
from securevfl.verified import Element, Key, Participant, Secret

_PAIR = "securevfl secagg pair 1"


def pair_masks(
    party: Participant,
    own: int,
    secret: Key,
    keys: Mapping[int, Any],
    shape: tuple[int, ...],
    told: bytes = b"",
) -> Element | int:
    """Sum over v of +-PRG(s_{u,v}), plus for v below u; masks of u and v cancel.

    Parameters
    ----------
    party : Participant
        Party that computes it: client u, or the server if u dropped out.
    own : int
        Number u of the client.
    secret : Key
        Secret key s_u^SK.
    keys : mapping of int to PublicKey
        s_v^PK of the others; u itself is left out.
    shape, told : tuple of int, bytes
        Shape of the masks; at level covert all earlier announcements, encoded: masks of different
        announcements do not cancel.
    """
    total: Element | int = 0
    use = (_PAIR, party.round, *([told] if told else []))
    for v, key in keys.items():
        if v != own:
            # KA.agree: X25519, then HKDF-SHA256 bound to the round, both numbers and both keys.
            agreed = party.agree(secret, key, use=use, ends=(own, v))
            mask = party.expand(agreed, *shape)
            # u adds what v subtracts: s_{u,v} is the same for both.
            total = total + mask if v < own else total - mask
    return total


class Client(SummedClient):
    """Client u: masks its embedding, and opens the seed or key of each other client."""

    activities: ClassVar[Mapping[str, str]] = {**Party.activities, "deal": "share"}
    kept: ClassVar[tuple[str, ...]] = (
        *SummedClient.kept,
        *kept_as("once", "identity", "verifiers"),
    )
    # With other survivors the second time, both secrets of a client would be opened.
    resumes_measured: ClassVar[bool] = False
    protected: ClassVar[Mapping[str, str]] = {
        "identity": "signature",
        "secret": "key",
        "deal": "public key, field",
        "shared": "public key",
        "embedding": "field",
        "signature": "signature",
        "signatures": "signature",
        "opening": "field",
        "gradient": "real",
    }

    def __init__(self, *given: Any) -> None:
        *common, public = given
        super().__init__(*common)
        self.public: Parameters = public
        self.identity: Key | bytes = b""  # signing key of round 3
        self.verifiers: dict[int, Any] = {}
        self.told = b""  # at the covert level, before it uploads
        self.sworn: Sworn = ()
        self.story: tuple[Any, ...] = ()
        self.sums: covert.Sums = ()  # that it signed since the last step
        if public.covert:
            covert.keep(self)

    @property
    def signs(self) -> Signing:
        """Signing keys at level covert, made for the run or from its manifest."""
        return signing_of(self, self.sworn)

    async def setup(self) -> None:
        """Publish verification keys, if round 3 (the consistency check) is used."""
        if self.public.covert:
            self.sworn = await exchange_keys(self)
        if self.public.covert or not self.public.consistency:
            return
        self.identity = self.key("identity")
        self.share("identity", [self.verifying_key(self.identity)] * len(self.peers))
        self.verifiers = await self.collect("identity", senders=self.peers)

    async def run(self) -> None:
        """Take part in every round; at level covert also follow sums of others."""
        if not self.public.covert:
            await super().run()
            return
        self.on("doubted", functools.partial(history.tell, self))
        self.on("history", functools.partial(history.compare, self))
        history.come_back(self)
        lacking = self.returned  # it may have missed a gradient
        async for round_ in self.rounds():
            with round_:
                if lacking or history.may_lack(self):
                    for one in await history.catch_up(self):
                        self.follow(*one)
                lacking, rows = True, round_.payload
                covert.check_rows(rows, self.batches.length)
                # It comes before the next announcement, so it is here where that one is.
                with contextlib.suppress(RoundOverError):  # the sum needed no more of this client
                    await self.aggregate(self.quantised(self.batches.samples(rows)), rows)
                about = self.round, rows, await self.receive("summed", sender=SERVER)
                payload = await self.receive("gradient", sender=SERVER)
                self.follow(*about, history.hear(self, *about, payload=payload))
                lacking = False
            self.round_before = self.round

    def follow(self, round: int, rows: np.ndarray, summed: Any, gradient: Any) -> None:
        """Step with a round's gradient, if this client is in the sum (`summed`).

        RunError if the sum is invalid, or differs from the one announced before: the server could
        else make a single client step by another sum.
        """
        survivors = {*summed.survivors}
        few = len(survivors) < self.public.needed or not survivors <= {*self.peers}
        if few or self.public.cohorts.cut(survivors):
            raise RunError(
                f"secagg_split: the server says that the sum of round {round} was over "
                f"{list(summed.survivors)}, which are no clients, too few, or cut a cohort. "
                f"Dispute of {SERVER} and {self.index}: one of both errs"
            )
        history.told_of_sum(self, round, covert.sum_of(summed.survivors))
        if self.index in summed.survivors:
            self.update(self.batches.samples(rows), gradient, len(summed.survivors))
        self.sums = covert.after(self, gradient)

    async def train(self, samples: np.ndarray) -> None:
        """One step of split training; afterwards the round's secrets are deleted."""
        survivors = await self.aggregate(self.quantised(samples))
        self.update(samples, await self.receive("gradient", sender=SERVER), len(survivors))

    async def aggregate(self, x: Element, rows: np.ndarray | None = None) -> tuple[int, ...]:
        """Take part in rounds 0 to 4 of secure aggregation with input x; return U3, the survivors.

        A client outside U3 waits for the end of the round.

        With `rows`, at level covert, it stops if others received different announcements.
        """
        # Through the own mailbox: a resumed round goes on with the secrets of the shares it sent.
        self.send(self.index, "secret", (self.key("s"), self.key("b")))
        secret, seed = await self.receive("secret", sender=self.index)  # s_u^SK, b_u
        key = self.public_key(secret)
        shares = self.share_keys(self.public.shamir, secret, seed)
        made: list[Any] = [Deal(key, *both) for both in shares]
        h = () if rows is None else history.shown(self)
        self.share("deal", [(one, *h) for one in made] if h else made)
        self.send(SERVER, "shared", key)
        sharers = await self.receive("sharers", sender=SERVER)  # U2
        deals: dict[int, Any] = await self.collect("deal", senders=sharers)
        if rows is not None:
            self.told = covert.before_upload(rows, sharers)
            if history.doubts(self, covert.histories(deals)):
                return ()
            deals = {n: one[0] for n, one in deals.items()}
        self.send(SERVER, "embedding", self.masked(x, secret, seed, deals))
        survivors = await self.receive("survivors", sender=SERVER)  # U3
        self.check(set(survivors), set(sharers))
        if rows is not None and not self.is_new(rows, survivors):
            return ()
        if self.public.consistency:
            await self.agreed(sharers, survivors, {v: deal.key for v, deal in deals.items()})
        self.send(SERVER, "opening", self.open(deals, set(survivors)))
        return tuple(survivors)

    def is_new(self, rows: np.ndarray, survivors: Sequence[int]) -> bool:
        """Whether this client has signed no other sum of these rows since the last step.

        Fewer than t clients sign a second one: at least t - T honest clients signed the first, and
        the others are N - (t - T) < t.
        """
        history.note_sum(self, covert.sum_of(survivors))
        before = covert.conflict(self.sums, rows, survivors)
        if not before:
            self.sums = covert.noted(self.sums, rows, survivors)
        self.write_ahead()  # a crash must not undo what it was told, or that it signed
        if before:
            self.record("refused", survivors=list(survivors), before=list(before))
        return not before

    def masked(self, x: Element, secret: Key, seed: Key, deals: Mapping[int, Deal]) -> Element:
        """Masked input y_u (round 2); RunError for too few sharers, or two equal keys."""
        keys = {v: deal.key for v, deal in deals.items()}
        if len(keys) < self.public.needed:
            raise RunError(
                f"secagg_split: the server named {len(keys)} sharers, and t and T+2 ask for "
                f"{self.public.needed}. Nothing was uploaded"
            )
        first, *rest = keys.values()
        first.map(different, *rest)
        own = x + self.expand(seed, *x.shape)
        return own + pair_masks(self, self.index, secret, keys, x.shape, self.told)

    def check(self, survivors: set[int], sharers: set[int]) -> None:
        """Refuse to open if survivors are too few, no sharers, or lack this client (RunError)."""
        sound = self.index in survivors <= sharers
        if not sound or len(survivors) < self.public.needed:
            raise RunError(
                f"secagg_split: the server named the survivors {sorted(survivors)} of "
                f"{sorted(sharers)} to client {self.index}; they must be among those, include it "
                f"and be at least max(t, T+2) = {self.public.needed}. Nothing was opened"
            )
        if cut := self.public.cohorts.cut(survivors):
            raise RunError(
                f"secagg_split: the server named the survivors {sorted(survivors)}, which cut the "
                f"cohort {list(cut[0])}; a sum is over whole cohorts, lest the difference of two "
                "tells of single clients. Nothing was opened"
            )

    async def agreed(
        self, sharers: Sequence[int], survivors: Sequence[int], keys: Mapping[int, Any]
    ) -> None:
        """Continue in round 3 only if t clients signed the same U2 and U3 in this round."""
        identity, public = self.identity, self.verifiers
        if self.public.covert:
            identity, every = self.signs.own, self.signs.verifiers
            public = {n: every[n] for n in self.peers}
        known = sorted(public)
        run = self.round, tuple(sharers), tuple(survivors), tuple(known)
        verifiers = [public[n] for n in known]
        own = self.sign(identity, survivors_statement, *run, keys[self.index], *verifiers)
        self.send(SERVER, "signature", own)
        signatures: dict[int, Any] = await self.receive("signatures", sender=SERVER)
        there = [v for v in signatures if v in survivors]
        parts = *(keys[v] for v in there), *(signatures[v] for v in there)
        own.map(enough_signed, self.index, self.public.threshold, there, *run, *verifiers, *parts)

    def open(self, deals: Mapping[int, Deal], survivors: Collection[int]) -> Opening:
        """Shares of each client's seed if it survived, else of its key; never both."""
        # Of no client both: b_u and s_u^SK together would unmask y_u alone, and the server would
        # see x_u.
        return Opening(
            seeds={v: deal.seed for v, deal in deals.items() if v in survivors},
            secrets={v: deal.secret for v, deal in deals.items() if v not in survivors},
        )

    def operations(self, kind: str) -> int:
        """Multiply-adds of embedding a batch, and one addition an element and mask."""
        samples = self.batches.coded * self.batches.segments
        masks = samples * self.width * len(self.peers) if kind == "embedding" else 0
        return super().operations(kind) + masks


class Server(SummedServer):
    """Server: names U2 and U3, unmasks the sum of U3, trains the server model."""

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps", "given_up", "answered")
    protected = Client.protected
    divides = False

    def __init__(self, *given: Any) -> None:
        *common, public, config = given
        super().__init__(*common)
        self.public: Parameters = public
        self.config: SecAggConfig = config
        self.given_up, self.dropped = 0, 0
        self.rows = np.empty(0, np.uint32)  # of the present round
        self.named_sum: covert.Summed | None = None  # in the present round, at the covert level
        self.told = b""
        self.sworn: Sworn = ()
        self.story: tuple[Any, ...] = ()
        self.sums: covert.Sums = ()  # that it named since the last step
        self.start: Any = None  # random bytes of this start
        if public.covert:
            covert.keep(self)

    @property
    def signs(self) -> Signing:
        """Signing keys at level covert, made for the run or from its manifest."""
        return signing_of(self, self.sworn)

    async def setup(self) -> None:
        """Publish the verification key at level covert."""
        if self.public.covert:
            self.sworn = await exchange_keys(self)

    async def run(self) -> None:
        """Do one step a round; at level covert send clients what they missed."""
        if self.public.covert:
            self.on("lacks", functools.partial(history.tell_missed, self))
            self.start = new_start(self)
            tell_again(self)
        await super().run()

    def next_batch(self) -> np.ndarray:
        """Rows of the next round, without rows of sums that led to no step."""
        self.rows = covert.free(self.sums, super().next_batch())
        return self.rows

    def answer(self, gradient: Secret, summed: Sequence[int]) -> None:
        """Send dL/dH; at level covert signed, to all, with the sum that it belongs to."""
        if self.named_sum is None:
            super().answer(gradient, summed)
            return
        self.broadcast("summed", self.named_sum)
        history.sign(self, self.rows, self.named_sum, gradient=gradient)
        self.sums = covert.after(self, gradient)

    async def aggregate(self) -> tuple[Element, tuple[int, ...]] | None:
        """Sum of the survivors' x_u, and the survivors U3; None if the round is given up."""
        public, patience = self.public, self.config.result_timeout
        shared: dict[int, Any] = await self.collect("shared", timeout=self.config.share_timeout)
        keys = {n: shared[n] for n in public.cohorts.whole(shared)}
        if len(keys) < public.quorum:
            self.give_up("shared", shared, public.quorum)
            return None
        if public.covert:
            self.told = covert.before_upload(self.rows, tuple(keys))
        self.broadcast("sharers", tuple(keys), to=tuple(keys))
        came: dict[int, Element] = await self.collect(
            "embedding",
            count=public.quorum,
            senders=keys,
            timeout=patience,
            groups=public.cohorts.groups,
        )
        uploads = {n: came[n] for n in public.cohorts.whole(came)}
        if len(uploads) < public.quorum:
            self.give_up("uploaded", came, public.quorum)
            return None
        # U3 is fixed here: a client opens either the seed of v's own mask (v in U3) or the key of
        # v's pairwise masks (v not in U3). Both of one client would uncover its input.
        survivors = tuple(uploads)
        if public.covert:
            if before := covert.conflict(self.sums, self.rows, survivors):
                self.give_up(f"shared and are not the {list(before)} of an earlier sum", came, 0)
                return None
            self.named_sum = covert.Summed(tuple(keys), survivors, self.life)
            self.sums = covert.noted(self.sums, self.rows, survivors)
            self.write_ahead()
        self.broadcast("survivors", survivors, to=survivors)
        if public.consistency:
            signatures = await self.collect("signature", senders=survivors, timeout=patience)
            if len(signatures) < public.threshold:  # who is told so few ends the run
                self.give_up("signed", signatures, public.threshold)
                return None
            self.broadcast("signatures", signatures, to=survivors)
        openings: dict[int, Opening] = await self.collect(
            "opening", count=public.threshold, senders=survivors, timeout=patience
        )
        if len(openings) < public.threshold:
            self.give_up("opened", openings, public.threshold)
            return None
        self.given_up, self.dropped = 0, len(keys) - len(survivors)
        return self.unmask(keys, uploads, openings), survivors

    def details(self) -> dict[str, Any]:
        """Number of clients that shared but did not survive, |U2| - |U3|, for the history."""
        return {"dropped": self.dropped}

    def give_up(self, did: str, who: Mapping[int, Any], needed: int) -> None:
        """End a round without a step, as only `who` of `needed` clients `did` what was awaited.

        The next round has another batch and fresh keys. NotEnoughResultsError after `max_attempts`
        such rounds in a row.
        """
        missing = sorted(set(self.peers) - set(who))
        why = f"{len(who)} clients {did} in time and {needed} are needed"
        if any(len(group) > 1 for group in self.public.cohorts.groups):
            why += f", in whole cohorts (cohorts = 0 takes any, and {TOLD_APART})"
        self.record("given_up", why=why, missing=missing)
        self.given_up += 1
        if self.given_up >= self.config.max_attempts:
            raise NotEnoughResultsError(
                f"secagg_split: round {self.round}: {why}, and {self.given_up} rounds in a row "
                f"were given up; missing: clients {missing}. Lower quorum, or wait longer"
            )

    def unmask(
        self,
        keys: Mapping[int, Any],
        uploads: Mapping[int, Element],
        openings: Mapping[int, Opening],
    ) -> Element:
        """Sum of x_u over U3 (round 4): y_u less masks of b_u, and of U2's clients not in U3."""
        code = self.public.shamir
        total: Any = sum(uploads.values())
        for v in uploads:
            seed = self.join_key({u: one.of(v) for u, one in openings.items()}, code)
            total = total - self.expand(seed, *total.shape)
        survivors = {v: keys[v] for v in uploads}
        # sum_{u in U3} y_u = sum x_u + sum PRG(b_u) + sum_{u in U3, v in U2 \ U3} +-PRG(s_{u,v}):
        # masks among survivors have cancelled, those with clients that dropped out have not.
        for v in sorted(set(keys) - set(uploads)):
            secret = self.join_key({u: one.of(v) for u, one in openings.items()}, code)
            # v's pair masks with the survivors cancel the survivors' pair masks with v.
            total = total + pair_masks(self, v, secret, survivors, total.shape, self.told)
        unmasked: Element = total
        return unmasked

    def operations(self, kind: str) -> int:
        """Additions that remove all masks, charged with the gradient; 0 for other messages."""
        if kind != "gradient":
            return 0
        Q, N = self.public.quorum, len(self.peers)
        samples = self.batches.coded * self.batches.segments
        return samples * self.width * Q * (2 + N - Q)


def different(*keys: bytes) -> np.ndarray:
    """Refuse an upload if two sharers' keys are equal; return their number (RunError)."""
    if len(set(keys)) < len(keys):
        raise RunError(
            f"secagg_split: the server named {len(keys)} sharers with {len(set(keys))} keys, which "
            "must be different ones. Nothing was uploaded"
        )
    return np.array(len(keys))
