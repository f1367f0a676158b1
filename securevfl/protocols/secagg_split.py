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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from securevfl.engine import wire
from securevfl.engine.party import ANNOUNCE, SERVER, Party
from securevfl.engine.wire import message
from securevfl.errors import (
    ConfigurationError,
    NotEnoughResultsError,
    PrivacyError,
    RangeError,
    RunError,
)
from securevfl.field import FixedPoint, LagrangeCode, PrimeField
from securevfl.field.sampling import SYSTEM, Keystream, fill_uniform
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.messages import (
    SELF,
    Draw,
    Formula,
    Hypothesis,
    MessageKey,
    MessageSpec,
    RunSecrets,
    in_rounds,
    in_setup,
    with_formulas,
)
from securevfl.protocols.base.options import SegmentedConfig
from securevfl.protocols.base.split import EmbeddingProtocol
from securevfl.protocols.base.split_parties import SplitClient, SplitServer
from securevfl.protocols.base.split_step import JointEmbedding, SplitStep, summed

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

SEED = 32  # bytes of b_u, of s_u^SK and of an agreed s_{u,v}


class SecAggConfig(SegmentedConfig):
    """Options of secure aggregation."""

    aggregation: Literal["mean"] = Field("mean", description="only sums can be aggregated so")
    privacy: int = Field(1, ge=1, description="T, clients that may pool what they see")
    threshold: int | None = Field(
        None, ge=2, description="t, shares that rebuild a seed; T+1, with consistency more"
    )
    quorum: int | None = Field(
        None, ge=1, description="survivors that are summed; N - floor(N/2), but T+2 and t at least"
    )
    consistency: bool = Field(
        False, description="round 3: clients sign the survivors, so that a server names one set"
    )
    inference: Literal["responders", "all"] = Field(
        "responders",
        description="whose embeddings are evaluated: those of the clients that survived most "
        "often, as many as the quorum, or of all",
    )
    prime: int = Field(2**61 - 1, description="modulus p of the sum")
    bits: int = Field(24, ge=1, le=52, description="fractional bits of the quantised embeddings")
    share_timeout: float | None = Field(
        None, gt=0, description="seconds after which the round goes on with those that shared"
    )
    result_timeout: float | None = Field(
        None, gt=0, description="seconds after which a round with too few answers is given up"
    )
    max_attempts: int = Field(3, ge=1, description="rounds given up in a row before the run ends")


@message("secagg_split.Deal")
@dataclass(frozen=True)
class Deal:
    """What client u gives each client in rounds 0 and 1.

    Attributes
    ----------
    key : bytes
        s_u^PK.
    secret, seed : ndarray, (limbs,), field elements
        The receiver's shares of s_u^SK and of b_u.
    """

    key: bytes
    secret: np.ndarray
    seed: np.ndarray


@message("secagg_split.Opening")
@dataclass(frozen=True)
class Opening:
    """Shares that a client reveals in round 4.

    Attributes
    ----------
    seeds : dict of int to ndarray
        Of b_v for the survivors v.
    secrets : dict of int to ndarray
        Of s_v^SK for those that shared and did not survive.
    """

    seeds: dict[int, np.ndarray]
    secrets: dict[int, np.ndarray]


@dataclass(frozen=True)
class Parameters:
    """What all parties agree on; public.

    Attributes
    ----------
    shamir : LagrangeCode
        t-out-of-N sharing: one segment, t - 1 masks.
    point : FixedPoint
        Quantiser of embeddings.
    quorum : int
        |U3| that the server waits for.
    privacy : int
        T.
    consistency : bool
        Whether round 3 is run.
    width : int
        h.
    """

    shamir: LagrangeCode
    point: FixedPoint
    quorum: int
    privacy: int
    consistency: bool
    width: int

    @property
    def field(self) -> PrimeField:
        """F_p."""
        return self.shamir.field

    @property
    def threshold(self) -> int:
        """t."""
        return self.shamir.size

    @property
    def needed(self) -> int:
        """Survivors without whom nothing is uploaded or opened: t, and T + 2.

        With fewer than T + 2 a coalition of T could subtract its own inputs from the sum and be
        left with that of a single client.
        """
        return max(self.threshold, self.privacy + 2)

    @property
    def limb(self) -> int:
        """Bytes that surely fit in a field element."""
        return (self.field.modulus.bit_length() - 1) // 8

    def split(self, secret: bytes) -> list[int]:
        """32 bytes as field elements."""
        size = self.limb
        return [int.from_bytes(secret[i : i + size], "little") for i in range(0, SEED, size)]

    def join(self, limbs: np.ndarray) -> bytes:
        """Inverse of `split`.

        Raises
        ------
        RunError
            When a field element is larger than `split` makes them: some share was wrong.
        """
        sizes = [min(self.limb, SEED - i) for i in range(0, SEED, self.limb)]
        limbs_of = [(int(n), size) for n, size in zip(limbs.tolist(), sizes, strict=True)]
        if any(n >> 8 * size for n, size in limbs_of):
            raise RunError("secagg_split: shares of a seed decode to no seed; one of them is wrong")
        return b"".join(n.to_bytes(size, "little") for n, size in limbs_of)

    def rebuild(self, shares: Mapping[int, np.ndarray]) -> bytes:
        """Secret of which these clients held these shares, at least t."""
        return self.join(self.shamir.decode(np.stack(list(shares.values())), tuple(shares), 1)[0])

    def stream(self, seed: bytes, shape: tuple[int, ...]) -> np.ndarray:
        """PRG: uniform elements of AES-256-CTR under the seed, on every machine alike."""
        out = np.empty(shape, self.field.dtype)
        fill_uniform(self.field.modulus, out.reshape(-1), Keystream(seed, aes=True))
        return out


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
            sign = public.field.add if v < pairing.index else public.field.subtract
            total = sign(total, mask)
    return total


@dataclass(eq=False, repr=False)
class Client(SplitClient):
    """Client u: masks its embedding, and opens for each other either the seed or the key."""

    activities: ClassVar[Mapping[str, str]] = {**Party.activities, "deal": "share"}
    kept_once: ClassVar[tuple[str, ...]] = ("identity", "verifiers")

    public: Parameters
    identity: bytes = field(default=b"", init=False)  # signing key of round 3
    verifiers: dict[int, bytes] = field(default_factory=dict, init=False)

    async def setup(self) -> None:
        """Make the signing keys known, where round 3 is run."""
        if not self.public.consistency:
            return
        self.identity = self.random_bytes()
        own = _signer(self.identity).public_key().public_bytes_raw()
        self.share("identity", [own] * len(self.peers))
        self.verifiers = await self.collect("identity", senders=self.peers)

    async def train(self, batch: np.ndarray) -> None:
        """One step of split training; what a round drew is forgotten with it."""
        own = self.rows_of(batch)
        survivors = await self.aggregate(self.quantised(own))
        gradient: np.ndarray = await self.receive("gradient", sender=SERVER)
        self.update(own, gradient / np.float32(len(survivors)))

    async def aggregate(self, x: np.ndarray) -> tuple[int, ...]:
        """Rounds 0 to 4 for one input; the survivors. Those that are not one of them stay here."""
        # Through the own mailbox: a resumed round goes on with the secrets that it has dealt.
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
        """32 bytes from the operating system; all secrets of a client come through here."""
        drawn = np.empty(SEED, np.uint8)
        SYSTEM.keystream().fill(drawn)
        return drawn.tobytes()

    def quantised(self, own: np.ndarray) -> np.ndarray:
        """x_u, refused where the sum over all clients could wrap: |x| <= floor((p-1)/(2N)).

        That a client stopped here is one bit about its data, listed on the card.
        """
        public = self.public
        x: np.ndarray = public.point.quantize(self.embed(own))
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
        """y_u (round 2); nothing is uploaded among too few, or where two keys are the same."""
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
        """Refuse to open for a set that is too small, foreign, or without this client."""
        sound = self.index in survivors <= sharers
        if not sound or len(survivors) < self.public.needed:
            raise RunError(
                f"secagg_split: the server named the survivors {sorted(survivors)} of "
                f"{sorted(sharers)} to client {self.index}; they must be among those, include it "
                f"and be at least max(t, T+2) = {self.public.needed}. Nothing was opened"
            )

    async def agree(
        self, sharers: Sequence[int], survivors: Sequence[int], keys: Mapping[int, bytes]
    ) -> None:
        """Round 3: go on only if t clients signed the same U2 and U3, in this run and life."""
        said = functools.partial(_statement, self.verifiers, self.round, sharers, survivors)
        self.send(SERVER, "signature", _signer(self.identity).sign(said(keys[self.index])))
        signatures: dict[int, bytes] = await self.receive("signatures", sender=SERVER)
        statements = {v: said(keys[v]) for v in survivors}
        good = list(_signed(statements, signatures, self.verifiers))
        if len(good) < self.public.threshold:
            raise RunError(
                f"secagg_split: {len(good)} clients signed the survivors that the server named to "
                f"client {self.index}, and t = {self.public.threshold} must. Nothing was opened"
            )

    def open(self, deals: Mapping[int, Deal], survivors: Collection[int]) -> Opening:
        """For each client its share of the seed if it survived, else that of its key."""
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


def _signer(secret: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(secret)


def _public_of(secret: bytes) -> bytes:
    raw: bytes = _signer(secret).public_key().public_bytes_raw()
    return raw


def _statement(
    verifiers: Mapping[int, bytes],
    round: int,
    sharers: Sequence[int],
    survivors: Sequence[int],
    key: bytes,
) -> bytes:
    """What a client signs in round 3.

    The clients' verifying keys are drawn in setup and stand for the run. The signer's pairing key
    is drawn in each round, anew in each life of the signer, and stands for both. Others have it
    from the signer itself, so no statement of another run or of an earlier life is taken.
    """
    run = sorted(verifiers.items())
    return wire.encode(("securevfl secagg survivors 2", run, round, key, sharers, survivors))


def _signed(
    statements: Mapping[int, bytes],
    signatures: Mapping[int, bytes],
    verifiers: Mapping[int, bytes],
) -> Iterator[int]:
    """Clients whose signature of their own statement is good."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    for v, signature in signatures.items():
        try:
            Ed25519PublicKey.from_public_bytes(verifiers[v]).verify(signature, statements[v])
        except (InvalidSignature, KeyError):
            continue
        yield v


@dataclass(eq=False, repr=False)
class Server(SplitServer):
    """Names U2 and U3, removes the masks from the sum of U3, trains the centre."""

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps", "given_up", "answered")

    public: Parameters
    config: SecAggConfig
    given_up: int = field(default=0, init=False)
    answered: np.ndarray = field(init=False)  # rounds in which each client survived

    def __post_init__(self) -> None:
        super().__post_init__()
        self.answered = np.zeros(len(self.peers), np.int64)

    async def run(self) -> None:
        """One step a round, or none where the round was given up."""
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
        keys: dict[int, bytes] = await self.collect("shared", timeout=self.config.share_timeout)
        if len(keys) < public.quorum:
            self.give_up("shared", keys, public.quorum)
            return None
        self.broadcast("sharers", tuple(keys), to=tuple(keys))
        uploads: dict[int, np.ndarray] = await self.collect(
            "embedding", count=public.quorum, senders=keys, timeout=patience
        )
        if len(uploads) < public.quorum:
            self.give_up("uploaded", uploads, public.quorum)
            return None
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
        """Leave a round; the next one takes another batch and fresh keys."""
        missing = sorted(set(self.peers) - set(who))
        why = f"{len(who)} clients {did} in time and {needed} are needed"
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
        """Round 4: the sum of y_u, less the seeds of U3, less what U2 \\ U3 left in it."""
        public = self.public
        total = functools.reduce(public.field.add, uploads.values())
        for v in uploads:
            seed = public.rebuild({u: opening.seeds[v] for u, opening in openings.items()})
            total = public.field.subtract(total, public.stream(seed, total.shape))
        survivors = {v: keys[v] for v in uploads}
        for v in sorted(set(keys) - set(uploads)):
            secret = public.rebuild({u: opening.secrets[v] for u, opening in openings.items()})
            # v's own masks against the survivors are what is missing for theirs to cancel.
            gone = pair_masks(public, Pairing(v, self.round, secret), survivors, total.shape)
            total = public.field.add(total, gone)
        return total

    def join(
        self, uploads: tuple[np.ndarray, tuple[int, ...], int], samples: np.ndarray
    ) -> JointEmbedding:
        """Mean over the survivors, from their sum, their numbers and how many shared."""
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


class SecAggSplit(EmbeddingProtocol):
    """Split learning with secure aggregation on one data set."""

    name = "secagg_split"
    apart = True
    Config = SecAggConfig
    fault_options: ClassVar[dict[str, Any]] = {"share_timeout": 60.0, "result_timeout": 60.0}
    card = Card(
        title="Split learning with secure aggregation",
        paper="Bonawitz et al., Practical Secure Aggregation, CCS 2017, Figure 4",
        roles={
            "server": "holds the labels and the central model; learns sums over the survivors",
            "client": "holds some columns and a network; masks its embedding, holds shares of the "
            "others' seeds and keys",
        },
        sees={
            "server": "the exact sum of the survivors' quantised embeddings of every batch, and "
            "who shared, survived and opened; seeds of survivors, keys of the dropped, of that "
            "round only",
            "client": "shares of seeds and keys, of which fewer than t say nothing; who survived; "
            "dL/dH and the batches",
            "server + t clients": "every client's embedding",
            "outsider": "kinds, sizes and times; without sealed links the shares, and with them "
            "everything",
        },
        absence="tolerates",
        deviations=(
            "rounds 0 and 1 are one message over the clients' own sealed links, which stand for "
            "the keys c_u and the encryption of the shares; the server relays nothing of them",
            "keys and seeds are fresh in every round of training; nothing outlives a round",
            "the modulus is a prime, and seeds are shared in limbs over the same field",
            "round 3 signs U2 and U3 and asks for 2t > N + T; without it the server is trusted to "
            "name one set of survivors",
            "round 4 takes the first t openings; sharing is delayed as FedVS's sharing of models "
            "is, though it is far less work",
            "sums over changing survivors differ by few clients: said of batches and models that "
            "differ too, and claimed nothing about",
            "a client whose part could wrap stops the run: one bit about its data",
            "evaluation uses the clients that survived most often, as many as the quorum",
            "h, the optimiser, initialisation and batch order are ours, as in FedVS",
        ),
    )

    def __init__(self, config: SecAggConfig, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        N, T = data.parties, config.privacy
        least = (N + T) // 2 + 1 if config.consistency else T + 1
        t = config.threshold or least
        quorum = config.quorum or max(N - N // 2, t, T + 2)
        if t < least:
            what = "round 3 needs 2t > N + T" if config.consistency else "t must exceed T"
            raise PrivacyError(
                f"secagg_split: threshold = {t} with N = {N} and T = {T}: {what}. Use at least "
                f"{least}"
            )
        if quorum > N or quorum < max(t, T + 2):
            raise PrivacyError(
                f"secagg_split: {quorum} survivors of N = {N} clients with T = {T} and t = {t}: at "
                f"least max(t, T+2) = {max(t, T + 2)} must survive, and at most N. Lower privacy "
                "or threshold, set quorum, or add clients"
            )
        prime = PrimeField(config.prime)
        if config.prime < 2**16:
            raise ConfigurationError(
                f"secagg_split: prime = {config.prime} leaves no room for quantised sums; use at "
                "least 2^16, such as 2^31 - 1"
            )
        self.public = Parameters(
            shamir=LagrangeCode(prime, parties=N, segments=1, privacy=t - 1, degree=1),
            point=FixedPoint(prime, bits=config.bits),
            quorum=quorum,
            privacy=T,
            consistency=config.consistency,
            width=config.width,
        )

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Figure 4, round by round, between the announcement and the gradient."""
        batch, upload, gradient = self.step_messages("masked_result", self.public.field.dtype.name)
        identity = MessageSpec("identity", "client", "client", "key", public=True, count=in_setup)
        signed = (
            MessageSpec("signature", "client", "server", "control", count=in_rounds),
            MessageSpec("signatures", "server", "client", "control", count=in_rounds),
        )
        consistency = self.config.consistency
        declared = (
            *[identity] * consistency,
            batch,
            MessageSpec("secret", "client", SELF, "key", count=in_rounds, source="s_u^SK, b_u"),
            MessageSpec("deal", "client", "client", "key", count=in_rounds, source="rounds 0, 1"),
            MessageSpec(
                *("shared", "client", "server", "key"),
                public=True,
                count=in_rounds,
                source="round 0: s_u^PK",
            ),
            MessageSpec(
                *("sharers", "server", "client", "control"),
                public=True,
                count=in_rounds,
                source="round 1: U2",
            ),
            replace(upload, source="round 2: y_u"),
            MessageSpec(
                *("survivors", "server", "client", "control"),
                public=True,
                count=in_rounds,
                source="round 2: U3",
            ),
            *[replace(one, source="round 3") for one in signed] * consistency,
            MessageSpec("opening", "client", "server", "key", count=in_rounds, source="round 4"),
            gradient,
        )
        return with_formulas(declared, self.formulas())

    def formulas(self) -> dict[str, Formula]:
        """What each message must contain, from the keys, seeds and inputs of all clients."""
        return {
            ANNOUNCE: self.announced_at,
            "identity": lambda secrets, key: _public_of(secrets.state(key)["identity"]),
            "deal": self.deal_at,
            "shared": lambda secrets, key: self.pairing_at(secrets, key.sender, key.round).public,
            "sharers": lambda secrets, key: tuple(
                sorted(n for n, _ in secrets.sent("shared", key.round))
            ),
            "embedding": self.masked_at,
            "survivors": lambda secrets, key: tuple(
                sorted(n for _, n in secrets.sent("gradient", key.round))
            ),
            "signature": self.signature_at,
            "signatures": lambda secrets, key: {
                n: one for (n, _), one in sorted(secrets.sent("signature", key.round).items())
            },
            "opening": self.opening_at,
            "gradient": self.gradient_of_the_sum,
        }

    def hypotheses(self, secrets: RunSecrets) -> tuple[Hypothesis, ...]:
        """Keys and seeds of one use, thresholds, and that nobody opens both of one client."""
        public, T = self.public, self.config.privacy
        rounds = range(1, self.config.rounds + 1)
        drawn = [pair for r in rounds for pair in secrets.sent("secret", r).values()]
        values = [value for pair in drawn for value in pair]
        sizes = [len(one) for r in rounds for one in secrets.sent("survivors", r).values()]
        openings = [one for r in rounds for one in secrets.sent("opening", r).values()]
        return (
            Hypothesis(
                f"the {len(values)} keys and seeds of all clients and rounds are different",
                0 < len(set(values)) == len(values),
            ),
            Hypothesis(
                f"t = {public.threshold} shares rebuild a seed, more than T = {T}",
                public.threshold > T,
            ),
            Hypothesis(
                f"{min(sizes, default=0)} survivors or more are summed, and max(t, T+2) = "
                f"{public.needed} are needed",
                min(sizes, default=0) >= public.needed,
            ),
            Hypothesis(
                f"in {len(openings)} openings no client reveals shares of both secrets of another",
                not any(set(one.seeds) & set(one.secrets) for one in openings),
            ),
        )

    def pairing_at(self, secrets: RunSecrets, client: int, round: int) -> Pairing:
        """Key agreement of a client in a round, with the key that it drew."""
        return Pairing(client, round, secrets.sent("secret", round)[client, client][0])

    def deal_at(self, secrets: RunSecrets, key: MessageKey) -> Deal:
        """s_u^PK, and the receiver's shares of s_u^SK and b_u.

        Their polynomials have degree t - 1 and these constants, so t - 1 shares of other clients
        fix the share of this one.
        """
        shamir, sent = self.public.shamir, secrets.sent("deal", key.round)
        secret, seed = secrets.sent("secret", key.round)[key.sender, key.sender]
        limbs = [*self.public.split(secret), *self.public.split(seed)]
        constants = self.public.field.elements([limbs])
        others = [n for n in self.peers() if n != key.receiver][: shamir.privacy]
        deals = [sent[key.sender, n] for n in others]
        shares = np.stack([np.concatenate([one.secret, one.seed]) for one in deals])
        field = self.public.field
        known = field.matmul(shamir.data_matrix[others], constants)
        masks = field.matmul(field.inv(shamir.mask_matrix[others]), field.subtract(shares, known))
        row = shamir.encode(constants, masks=masks)[key.receiver]
        half = len(limbs) // 2
        own = self.pairing_at(secrets, key.sender, key.round).public
        return Deal(own, row[:half], row[half:])

    def masked_at(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """y_u = x_u + PRG(b_u) + sum over U2 of +-PRG(s_{u,v})."""
        x = self.upload(secrets, key.sender, key.round)
        sharers = secrets.sent("sharers", key.round)[SERVER, key.sender]
        deals = secrets.sent("deal", key.round)
        keys = {v: deals[v, key.sender].key for v in sharers}
        seed = secrets.sent("secret", key.round)[key.sender, key.sender][1]
        pairing = self.pairing_at(secrets, key.sender, key.round)
        own = self.public.field.add(x, self.public.stream(seed, x.shape))
        masked: np.ndarray = self.public.field.add(
            own, pair_masks(self.public, pairing, keys, x.shape)
        )
        return masked

    def signature_at(self, secrets: RunSecrets, key: MessageKey) -> bytes:
        """Ed25519 of U2 and U3, in this run and life."""
        sharers = secrets.sent("sharers", key.round)[SERVER, key.sender]
        survivors = secrets.sent("survivors", key.round)[SERVER, key.sender]
        state, own = secrets.state(key), (key.sender, key.sender)
        pairing = secrets.sent("deal", key.round)[own].key
        named = _statement(state["verifiers"], key.round, sharers, survivors, pairing)
        signature: bytes = _signer(state["identity"]).sign(named)
        return signature

    def opening_at(self, secrets: RunSecrets, key: MessageKey) -> Opening:
        """Shares of b_v for v in U3, of s_v^SK for v in U2 but not in U3."""
        survivors = secrets.sent("survivors", key.round)[SERVER, key.sender]
        deals = secrets.sent("deal", key.round)
        own = {v: deals[v, key.sender]
               for v in secrets.sent("sharers", key.round)[SERVER, key.sender]}  # fmt: skip
        return Opening(
            seeds={v: deal.seed for v, deal in own.items() if v in survivors},
            secrets={v: deal.secret for v, deal in own.items() if v not in survivors},
        )

    def gradient_of_the_sum(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """dL/dH of the mean over U3, whose sum the server must have found exactly."""
        survivors = secrets.sent("survivors", key.round)[SERVER, key.receiver]
        total = self.ideal_output(secrets, MessageKey("opening", *key[1:]))
        return self.gradient_at(secrets, key, self.public.point.dequantize(total) / len(survivors))

    @property
    def draws(self) -> tuple[Draw, ...]:
        """Signing key, s_u^SK, b_u, and the polynomials that share the last two.

        They are 32 bytes each, and field elements. s_{u,v} follows from s_u^SK and s_v^PK, and
        both kinds of pairwise mask from s_{u,v} and b_u: they are computed, not drawn.
        """
        later = ("deal", "embedding", "opening")
        limbs = 2 * len(self.public.split(bytes(SEED)))
        polynomials = (self.public.threshold - 1, limbs)
        identity = Draw("identity", "client", _in_setup(SEED), ("identity", "signature"), "uint8")
        return (
            *[identity] * self.config.consistency,
            Draw("s_u^SK", "client", _in_rounds(SEED), ("shared", *later), "uint8"),
            Draw("b_u", "client", _in_rounds(SEED), later, "uint8"),
            Draw("shares", "client", _in_rounds(*polynomials), ("deal", "opening")),
        )

    def ideal_output(self, secrets: RunSecrets, key: MessageKey) -> Any:
        """The sum of x_u over U3, which uploads and openings tell the server; else None."""
        if key.kind not in ("embedding", "opening"):
            return None
        named = secrets.sent("survivors", key.round)
        survivors = next(iter(named.values()), ())
        inputs = [self.upload(secrets, u, key.round) for u in survivors]
        return functools.reduce(self.public.field.add, inputs) if inputs else None

    def upload(self, secrets: RunSecrets, client: int, round: int) -> np.ndarray:
        """x_u of a round, from a client's rows and its network of then."""
        key = MessageKey("embedding", round, client, SERVER)
        return self.public.point.quantize(self.embedding_at(secrets, key))

    def parties(self) -> dict[int, Party]:
        """The server and N clients."""
        server = Server(
            self.peers(),
            self.layout,
            self.aggregation,
            self.joint_centre(),
            self.data.train_labels,
            self.public,
            self.config,
            max_steps=self.config.rounds,
        )
        return {SERVER: server} | {n: self.client(n) for n in self.peers()}

    def client(self, index: int) -> Client:
        """Client `index`, from 0."""
        network, features = self.client_network(index), self.data.train[index]
        return Client(index, self.peers(), self.layout, features, network, self.public)

    def evaluated(self, parties: Mapping[int, Party]) -> Collection[int]:
        """All clients, or those that survived most often, the lowest first among equals."""
        if self.config.inference == "all":
            return self.peers()
        return self.most_used(parties, self.public.quorum)

    def describe(self) -> dict[str, Any]:
        """N, T, t, the quorum, p and |B|."""
        return {
            "N": self.data.parties,
            "T": self.config.privacy,
            "t": self.public.threshold,
            "quorum": self.public.quorum,
            "p": self.public.field.modulus,
            "consistency": self.config.consistency,
            "batch_rows": self.batch_rows,
        }

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Bonawitz et al., Theorems 6.2 and 6.3: given the sums, if the primitives hold."""
        why = (
            "Bonawitz et al. 2017, Theorem {}, honest but curious, T < t: given the sums over the "
            "survivors, under X25519, HKDF-SHA256 and AES-256-CTR; not over dL/dH"
        )
        hidden = tuple(
            Claim(who, about, "computational", why.format(theorem))
            for who, theorem in (
                ("server", "6.3"),
                ("T clients", "6.2"),
                ("server + T clients", "6.3"),
            )
            for about in ("features", "model")
        )
        return (*hidden, Claim("client", "labels", "none", "dL/dH depends on them"))


def _in_setup(*shape: int) -> Callable[[int, int], tuple[int, ...] | None]:
    """Shape of a draw that is made once."""
    return lambda party, round: None if round else shape


def _in_rounds(*shape: int) -> Callable[[int, int], tuple[int, ...] | None]:
    """Shape of a draw that is made anew in each round."""
    return lambda party, round: shape if round else None
