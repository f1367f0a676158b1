"""Split learning on securely aggregated embeddings: pairwise masks, dropout recovery.

K. Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS
2017, Figure 4, in its letters: clients u and v agree on s_{u,v}; client u uploads

    y_u = x_u + PRG(b_u) + sum_{v < u} PRG(s_{u,v}) - sum_{v > u} PRG(s_{u,v})   (mod p)

for its quantised embedding x_u, and the server learns the sum of x_u over the survivors U3. A round
of training is one run of the protocol with fresh keys and seeds:

- rounds 0 and 1, advertise and share keys: s_u^SK and b_u, t-out-of-n Shamir shares of both (U2);
- round 2, masked input: the first `quorum` uploads are U3;
- round 3, consistency check (optional): clients sign U3, and go on only if t of them signed one;
- round 4, unmasking: shares of b_u for u in U3, of s_u^SK for u in U2 but not in U3, never both.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from securevfl.engine import wire
from securevfl.engine.party import SERVER, Party
from securevfl.errors import (
    NotEnoughResultsError,
    RangeError,
    RunError,
)
from securevfl.field.cohorts import TOLD_APART
from securevfl.protocols.base.mask_keys import fresh_bytes
from securevfl.protocols.base.split_parties import SplitClient, SplitServer
from securevfl.protocols.base.split_step import JointEmbedding, SplitStep, summed
from securevfl.protocols.secagg_split.parameters import (
    SEED,
    Deal,
    Opening,
    Parameters,
    SecAggConfig,
)
from securevfl.protocols.secagg_split.signatures import (
    signing_key,
    survivors_statement,
    valid_signers,
    verifying_key,
)


@dataclass(frozen=True)
class Pairing:
    """Key agreement of client u in one round (KA.agree of the paper).

    Attributes
    ----------
    index, round : int
        u, and the round that the seeds are for.
    secret : bytes
        s_u^SK, an X25519 key.
    """

    index: int
    round: int
    secret: bytes = field(repr=False)

    @functools.cached_property
    def _private(self) -> Any:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        return X25519PrivateKey.from_private_bytes(self.secret)

    @property
    def public(self) -> bytes:
        """s_u^PK."""
        key: bytes = self._private.public_key().public_bytes_raw()
        return key

    def agree(self, other: int, key: bytes) -> bytes:
        """s_{u,v}: X25519, then HKDF-SHA256 bound to the round, both numbers and both keys."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        shared = self._private.exchange(X25519PublicKey.from_public_bytes(key))
        ends = sorted([(self.index, self.public), (other, key)])
        context = wire.encode(("securevfl secagg pair 1", self.round, ends))
        return HKDF(SHA256(), length=SEED, salt=None, info=context).derive(shared)


def pair_masks(
    public: Parameters, pairing: Pairing, keys: Mapping[int, bytes], shape: tuple[int, ...]
) -> np.ndarray:
    """Sum over v of +-PRG(s_{u,v}), plus for v below u; those of u and v cancel.

    Parameters
    ----------
    keys : mapping of int to bytes
        s_v^PK of the others; u itself is left out.
    shape : tuple of int

    Returns
    -------
    ndarray, `shape`, field elements
    """
    total = np.zeros(shape, public.field.dtype)
    for v, key in keys.items():
        if v != pairing.index:
            mask = public.stream(pairing.agree(v, key), shape)
            # u adds what v subtracts: s_{u,v} is the same for both, so each pair's masks sum to
            # zero.
            sign = public.field.add if v < pairing.index else public.field.subtract
            total = sign(total, mask)
    return total


@dataclass(eq=False, repr=False)
class Client(SplitClient):
    """Client u: masks its embedding, and opens the seed or the key of each other client."""

    activities: ClassVar[Mapping[str, str]] = {**Party.activities, "deal": "share"}
    kept_once: ClassVar[tuple[str, ...]] = ("identity", "verifiers")
    # With other survivors the second time, both secrets of a client would be opened.
    resumes_measured: ClassVar[bool] = False

    public: Parameters
    identity: bytes = field(default=b"", init=False)  # signing key of round 3
    verifiers: dict[int, bytes] = field(default_factory=dict, init=False)

    async def setup(self) -> None:
        """Publish the verifying keys, where round 3 is run."""
        if not self.public.consistency:
            return
        self.identity = self.random_bytes()
        own = verifying_key(self.identity)
        self.share("identity", [own] * len(self.peers))
        self.verifiers = await self.collect("identity", senders=self.peers)

    async def train(self, batch: np.ndarray) -> None:
        """One step of split training; the secrets of a round are forgotten with it."""
        own = self.rows_of(batch)
        survivors = await self.aggregate(self.quantised(own))
        gradient: np.ndarray = await self.receive("gradient", sender=SERVER)
        self.update(own, gradient / np.float32(len(survivors)))

    async def aggregate(self, x: np.ndarray) -> tuple[int, ...]:
        """Rounds 0 to 4 for one input; returns U3. A client that is not in U3 waits in here."""
        # Through the own mailbox: a resumed round goes on with the secrets of the shares it sent.
        self.send(self.index, "secret", (self.random_bytes(), self.random_bytes()))
        secret, seed = await self.receive("secret", sender=self.index)
        pairing = Pairing(self.index, self.round, secret)
        self.share("deal", self.deal(pairing, seed))
        self.send(SERVER, "shared", pairing.public)
        sharers = await self.receive("sharers", sender=SERVER)  # U2
        deals: dict[int, Deal] = await self.collect("deal", senders=sharers)
        self.send(SERVER, "embedding", self.masked(x, pairing, seed, deals))
        survivors = await self.receive("survivors", sender=SERVER)  # U3
        self.check(set(survivors), set(sharers))
        if self.public.consistency:
            await self.agree(sharers, survivors, {v: deal.key for v, deal in deals.items()})
        self.send(SERVER, "opening", self.open(deals, set(survivors)))
        return tuple(survivors)

    def random_bytes(self) -> bytes:
        """32 bytes from the operating system; all secrets of a client are drawn here."""
        return fresh_bytes(SEED)

    def quantised(self, own: np.ndarray) -> np.ndarray:
        """x_u, refused where the sum over all clients could wrap: |x| <= floor((p-1)/(2N)).

        The error reveals one bit about the client's data, which the card lists.
        """
        public = self.public
        x: np.ndarray = public.point.quantize(self.embed(own))
        # N terms of at most (p-1)/(2N) sum to at most (p-1)/2 in magnitude, which the signed range
        # holds.
        limit = (public.field.modulus - 1) // (2 * len(self.peers))
        largest = int(np.abs(public.field.signed(x)).max(initial=0))
        if largest > limit:
            raise RangeError(
                f"secagg_split: in round {self.round} client {self.index} has a quantised "
                f"embedding of {largest}, and floor((p-1)/(2N)) = {limit}. Lower bits "
                f"({public.point.bits}) or bound the weights, or use a larger prime"
            )
        return x

    def deal(self, pairing: Pairing, seed: bytes) -> list[Deal]:
        """Shares of s_u^SK and b_u for every client (round 1)."""
        limbs = [*self.public.split(pairing.secret), *self.public.split(seed)]
        shares = self.public.shamir.encode(self.public.field.elements([limbs]))
        half = len(limbs) // 2
        return [Deal(pairing.public, row[:half], row[half:]) for row in shares]

    def masked(
        self, x: np.ndarray, pairing: Pairing, seed: bytes, deals: Mapping[int, Deal]
    ) -> np.ndarray:
        """y_u (round 2); refused with too few sharers, or if two of their keys are equal."""
        public, keys = self.public, {v: deal.key for v, deal in deals.items()}
        if len(keys) < public.needed or len(set(keys.values())) < len(keys):
            raise RunError(
                f"secagg_split: the server named {len(keys)} sharers with "
                f"{len(set(keys.values()))} keys; t and T+2 ask for {public.needed} different "
                "ones. Nothing was uploaded"
            )
        own = public.field.add(x, public.stream(seed, x.shape))
        return public.field.add(own, pair_masks(public, pairing, keys, x.shape))

    def check(self, survivors: set[int], sharers: set[int]) -> None:
        """Refuse to open for survivors that are too few, no sharers, or without this client."""
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

    async def agree(
        self, sharers: Sequence[int], survivors: Sequence[int], keys: Mapping[int, bytes]
    ) -> None:
        """Round 3: go on only if t clients signed the same U2 and U3, now and in this run."""
        statement = functools.partial(
            survivors_statement, self.verifiers, self.round, sharers, survivors
        )
        self.send(SERVER, "signature", signing_key(self.identity).sign(statement(keys[self.index])))
        signatures: dict[int, bytes] = await self.receive("signatures", sender=SERVER)
        statements = {v: statement(keys[v]) for v in survivors}
        valid = list(valid_signers(statements, signatures, self.verifiers))
        if len(valid) < self.public.threshold:
            raise RunError(
                f"secagg_split: {len(valid)} clients signed the survivors that the server named to "
                f"client {self.index}, and t = {self.public.threshold} must. Nothing was opened"
            )

    def open(self, deals: Mapping[int, Deal], survivors: Collection[int]) -> Opening:
        """For each client its share of the seed if it survived, else that of its key."""
        # Of no client both: b_u and s_u^SK together would unmask y_u alone, and the server would
        # see x_u.
        return Opening(
            seeds={v: deal.seed for v, deal in deals.items() if v in survivors},
            secrets={v: deal.secret for v, deal in deals.items() if v not in survivors},
        )

    def operations(self, kind: str) -> int:
        """Multiply-adds of embedding a batch, and one addition an element and mask."""
        if kind != "embedding":
            return 0
        samples = self.batches.coded * self.batches.segments
        return samples * (self.network.operations + self.public.width * len(self.peers))


@dataclass(eq=False, repr=False)
class Server(SplitServer):
    """Server: names U2 and U3, removes the masks from the sum of U3, trains the server model."""

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps", "given_up", "answered")

    public: Parameters
    config: SecAggConfig
    given_up: int = field(default=0, init=False)
    answered: np.ndarray = field(init=False)  # rounds in which each client survived

    def __post_init__(self) -> None:
        super().__post_init__()
        self.answered = np.zeros(len(self.peers), np.int64)

    async def run(self) -> None:
        """Do one step a round, or none where the round was given up."""
        while self.steps < self.max_steps:
            self.safe_point()
            batch = self.batches.draw(self.round + 1)
            self.announce(self.round + 1, batch)
            outcome = await self.aggregate()
            if outcome is not None:
                self.train(batch, outcome)
        self.conclude()

    async def aggregate(self) -> tuple[np.ndarray, tuple[int, ...], int] | None:
        """Sum of x_u over U3, U3, and |U2|; None if the round is given up."""
        public, patience = self.public, self.config.result_timeout
        shared: dict[int, bytes] = await self.collect("shared", timeout=self.config.share_timeout)
        keys = {n: shared[n] for n in public.cohorts.whole(shared)}
        if len(keys) < public.quorum:
            self.give_up("shared", shared, public.quorum)
            return None
        self.broadcast("sharers", tuple(keys), to=tuple(keys))
        came: dict[int, np.ndarray] = await self.collect(
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
        self.broadcast("survivors", survivors, to=survivors)
        if public.consistency:
            signatures = await self.collect("signature", senders=survivors, timeout=patience)
            self.broadcast("signatures", signatures, to=survivors)
        openings: dict[int, Opening] = await self.collect(
            "opening", count=public.threshold, senders=survivors, timeout=patience
        )
        if len(openings) < public.threshold:
            self.give_up("opened", openings, public.threshold)
            return None
        self.given_up = 0
        return self.unmask(keys, uploads, openings), survivors, len(keys)

    def give_up(self, did: str, who: Mapping[int, Any], needed: int) -> None:
        """End a round without a step; the next one takes another batch and fresh keys."""
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
        keys: Mapping[int, bytes],
        uploads: Mapping[int, np.ndarray],
        openings: Mapping[int, Opening],
    ) -> np.ndarray:
        """Round 4: the sum of y_u, without the masks of U3's seeds and of U2 \\ U3's keys."""
        public = self.public
        total = functools.reduce(public.field.add, uploads.values())
        for v in uploads:
            seed = public.rebuild({u: opening.seeds[v] for u, opening in openings.items()})
            total = public.field.subtract(total, public.stream(seed, total.shape))
        survivors = {v: keys[v] for v in uploads}
        # sum_{u in U3} y_u = sum x_u + sum PRG(b_u) + sum_{u in U3, v in U2 \ U3} +-PRG(s_{u,v}):
        # masks among survivors have cancelled, those with clients that dropped out have not.
        for v in sorted(set(keys) - set(uploads)):
            secret = public.rebuild({u: opening.secrets[v] for u, opening in openings.items()})
            # v's pair masks with the survivors cancel the survivors' pair masks with v.
            gone = pair_masks(public, Pairing(v, self.round, secret), survivors, total.shape)
            total = public.field.add(total, gone)
        return total

    def join(
        self, uploads: tuple[np.ndarray, tuple[int, ...], int], samples: np.ndarray
    ) -> JointEmbedding:
        """Mean over the survivors, from their sum, their numbers and the number of sharers."""
        total, survivors, sharers = uploads
        mean = self.public.point.dequantize(total) / len(survivors)
        return summed(mean, survivors, dropped=sharers - len(survivors))

    def answer(self, batch: np.ndarray, step: SplitStep) -> None:
        """Send all survivors dL/dH, which each of them divides by their number, and count them."""
        self.answered[list(step.clients)] += 1
        self.broadcast("gradient", next(iter(step.gradients.values())), to=step.clients)

    def operations(self, kind: str) -> int:
        """One addition an element and mask to remove, at most; when the gradient is sent."""
        if kind != "gradient":
            return 0
        Q, N = self.public.quorum, len(self.peers)
        samples = self.batches.coded * self.batches.segments
        return samples * self.public.width * Q * (2 + N - Q)
