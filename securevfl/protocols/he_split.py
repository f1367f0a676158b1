"""Split learning on homomorphically encrypted embeddings: CKKS by TenSEAL, or Paillier by phe.

Every client encrypts its quantised embedding under the public key of one client, the key holder;
the server adds the ciphertexts of the first `quorum` clients, the key holder decrypts the sum and
returns it, and the server trains on the mean. Whoever holds the secret key is not protected
against: the server together with the key holder reads every embedding.

CKKS is approximate, and decryptions with their noise, handed to who holds the ciphertexts, give
the key away (Li and Micciancio, EUROCRYPT 2021). Here integers are encrypted, at a scale at which
the noise stays far below one half, and the key holder returns the nearest integers: exact sums,
which say nothing of the noise. A residue above 1/8 stops the run instead.

Both packages are optional: ``pip install 'securevfl[he]'``.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from securevfl.engine.party import SERVER, Party
from securevfl.errors import ConfigurationError, PrivacyError, RangeError, RunError
from securevfl.field import FixedPoint, PrimeField
from securevfl.models.client_networks import ClientNetwork
from securevfl.models.split import Batches, Centre, rows_of
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.options import SegmentedConfig
from securevfl.protocols.base.split import EmbeddingProtocol

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

LARGEST = 1 << 34  # bound on the sum's integers, in both schemes


class HEConfig(SegmentedConfig):
    """Options of homomorphic aggregation."""

    aggregation: Literal["mean"] = Field("mean", description="only sums can be aggregated so")
    scheme: Literal["ckks", "paillier"] = Field(
        "ckks", description="CKKS (extra he: tenseal) or Paillier (extra he: phe)"
    )
    holder: int = Field(0, ge=0, description="client that holds the secret key")
    privacy: int = Field(1, ge=0, description="T, other clients that may pool with the server")
    quorum: int | None = Field(
        None, ge=1, description="embeddings that are summed; N - floor(N/2), but T+2 at least"
    )
    inference: Literal["responders", "all"] = Field(
        "responders",
        description="whose embeddings are evaluated: those of the clients summed most often, as "
        "many as the quorum, or of all",
    )
    bits: int = Field(20, ge=1, le=32, description="fractional bits of the quantised embeddings")
    key_bits: int = Field(2048, ge=2048, le=4096, description="of a Paillier modulus")


def require(package: str, scheme: str) -> Any:
    """Optional package, or an error that names the extra.

    Raises
    ------
    ConfigurationError
        When it is not installed.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError:
        raise ConfigurationError(
            f"he_split: scheme = {scheme!r} needs the package {package!r}, which is not "
            "installed. Install the extra: pip install 'securevfl[he]'"
        ) from None


class Scheme(ABC):
    """Additively homomorphic encryption of vectors of integers, to bytes of a fixed size.

    Every party has an object of its own, since it remembers the keys that it has read.

    Parameters
    ----------
    parties : int
        N, summands at most; each |value| is at most `limit` = floor(2^34 / N).
    """

    def __init__(self, parties: int) -> None:
        self.limit = LARGEST // parties
        self._keys: dict[bytes, Any] = {}

    @abstractmethod
    def generate(self) -> tuple[bytes, bytes]:
        """Public and secret key."""

    @abstractmethod
    def encrypt(self, key: bytes, values: np.ndarray) -> tuple[bytes, ...]:
        """Ciphertexts of int64 values, flat, under a public key."""

    @abstractmethod
    def add(self, key: bytes, ciphertexts: Sequence[tuple[bytes, ...]]) -> tuple[bytes, ...]:
        """Ciphertexts of the sums."""

    @abstractmethod
    def decrypt(
        self, secret: bytes, ciphertexts: tuple[bytes, ...], size: int, summands: int
    ) -> np.ndarray:
        """Exact sums of so many summands, (size,) int64."""

    @abstractmethod
    def nbytes(self, size: int) -> int:
        """Bytes of the ciphertexts of so many values."""

    @abstractmethod
    def load(self, key: bytes) -> Any:
        """Key of its bytes."""

    def key(self, key: bytes) -> Any:
        """Key of its bytes, read once."""
        if key not in self._keys:
            self._keys[key] = self.load(key)
        return self._keys[key]


class Ckks(Scheme):
    """CKKS with 8192 coefficients, one data prime of 60 bits and one key prime; 128-bit security.

    The homomorphic encryption standard allows 218 bits at this degree; 120 are used. Values are
    scaled by 2^24, so that sums up to 2^34 fit in the data prime; the noise of a fresh ciphertext
    was measured to be 2^-13.6 (standard deviation), that of a sum over N clients sqrt(N) times it.
    """

    DEGREE: ClassVar[int] = 8192
    SLOTS: ClassVar[int] = DEGREE // 2
    SCALE: ClassVar[float] = 2.0**24
    # Two polynomials of one 60-bit prime in words, and TenSEAL's framing. Padded, so that neither
    # chance nor content shows in a size.
    NBYTES: ClassVar[int] = 2 * DEGREE * 8 + 512
    KEY_NBYTES: ClassVar[int] = 4 * DEGREE * 8 + 1024

    def __init__(self, parties: int) -> None:
        super().__init__(parties)
        self.tenseal = require("tenseal", "ckks")

    def generate(self) -> tuple[bytes, bytes]:
        """Context with the public key alone, and with both keys."""
        made = self.tenseal.context(
            self.tenseal.SCHEME_TYPE.CKKS,
            poly_modulus_degree=self.DEGREE,
            coeff_mod_bit_sizes=[60, 60],
            n_threads=1,
        )
        keys = {"save_galois_keys": False, "save_relin_keys": False, "save_public_key": True}
        secret: bytes = made.serialize(save_secret_key=True, **keys)
        return _padded(made.serialize(save_secret_key=False, **keys), self.KEY_NBYTES), secret

    def encrypt(self, key: bytes, values: np.ndarray) -> tuple[bytes, ...]:
        """One ciphertext for each 4096 values; the rest of the last one is zero."""
        padded = np.zeros((self._count(values.size), self.SLOTS))
        padded.reshape(-1)[: values.size] = values  # below 2^53, so exact
        public = self.key(key)
        vectors = [self.tenseal.ckks_vector(public, row, scale=self.SCALE) for row in padded]
        return tuple(_padded(vector.serialize(), self.NBYTES) for vector in vectors)

    def add(self, key: bytes, ciphertexts: Sequence[tuple[bytes, ...]]) -> tuple[bytes, ...]:
        """Sum ciphertext by ciphertext."""
        public, sums = self.key(key), []
        for column in zip(*ciphertexts, strict=True):
            vectors = [self.tenseal.ckks_vector_from(public, _unpadded(c)) for c in column]
            total = functools.reduce(lambda a, b: a.add_(b), vectors)
            sums.append(_padded(total.serialize(), self.NBYTES))
        return tuple(sums)

    def decrypt(
        self, secret: bytes, ciphertexts: tuple[bytes, ...], size: int, summands: int
    ) -> np.ndarray:
        """Nearest integers; a residue above 1/8 is refused."""
        private = self.key(secret)
        vectors = [self.tenseal.ckks_vector_from(private, _unpadded(c)) for c in ciphertexts]
        values = np.concatenate([np.array(vector.decrypt()) for vector in vectors])[:size]
        sums: np.ndarray = np.rint(values)
        residue = float(np.abs(values - sums).max(initial=0.0))
        if not residue <= 1 / 8:
            raise RunError(
                f"he_split: a decrypted sum of {summands} embeddings is {residue:.3f} from an "
                "integer, and 1/8 is allowed; its ciphertexts are not those of this run's scheme"
            )
        exact: np.ndarray = sums.astype(np.int64)
        return exact

    def nbytes(self, size: int) -> int:
        """131,584 bytes for each 4096 values."""
        return self._count(size) * self.NBYTES

    def load(self, key: bytes) -> Any:
        """TenSEAL's context."""
        packed = len(key) == self.KEY_NBYTES
        return self.tenseal.context_from(_unpadded(key) if packed else key, n_threads=1)

    def _count(self, size: int) -> int:
        return max(1, -(-size // self.SLOTS))


def _padded(raw: bytes, size: int) -> bytes:
    """Length, content, zeros."""
    framed = len(raw).to_bytes(4, "little") + raw
    if len(framed) > size:
        raise RunError(
            f"he_split: {len(raw)} bytes were serialised and {size - 4} were expected; this "
            "version of tenseal has another format"
        )
    return framed.ljust(size, b"\0")


def _unpadded(framed: bytes) -> bytes:
    return framed[4 : 4 + int.from_bytes(framed[:4], "little")]


class Paillier(Scheme):
    """Paillier with packing: as many sums as fit side by side in one plaintext.

    A value v is encrypted as v + `limit`, in slots of 36 bits, so that sums of up to N stay in
    their slots. Plaintexts are integers, without phe's exponents, which travel in the clear.
    """

    SLOT: ClassVar[int] = 36  # N * 2 limit <= 2^35

    def __init__(self, parties: int, key_bits: int) -> None:
        super().__init__(parties)
        self.phe = require("phe", "paillier")
        self.key_bits = key_bits
        self.slots = (key_bits - 1) // self.SLOT

    def generate(self) -> tuple[bytes, bytes]:
        """Modulus n; its factors."""
        public, private = self.phe.generate_paillier_keypair(n_length=self.key_bits)
        size = self.key_bits // 8
        factors = [int(f).to_bytes(size, "little") for f in (private.p, private.q)]
        return int(public.n).to_bytes(size, "little"), b"".join(factors)

    def encrypt(self, key: bytes, values: np.ndarray) -> tuple[bytes, ...]:
        """One ciphertext for each `slots` values, in one string."""
        public = self.key(key)
        shifted = (values + self.limit).tolist()
        packed = [shifted[i : i + self.slots] for i in range(0, len(shifted), self.slots)]
        return (b"".join(self._bytes(public.raw_encrypt(self._pack(row))) for row in packed),)

    def add(self, key: bytes, ciphertexts: Sequence[tuple[bytes, ...]]) -> tuple[bytes, ...]:
        """Product of ciphertexts, randomised again."""
        public, number = self.key(key), self.phe.EncryptedNumber
        rows = [[number(public, c) for c in self._numbers(joined[0], 2)] for joined in ciphertexts]
        sums = [functools.reduce(lambda a, b: a + b, column) for column in zip(*rows, strict=True)]
        return (b"".join(self._bytes(total.ciphertext(be_secure=True)) for total in sums),)

    def decrypt(
        self, secret: bytes, ciphertexts: tuple[bytes, ...], size: int, summands: int
    ) -> np.ndarray:
        """Slots of the decrypted integers, less the shifts."""
        private = self.key(secret)
        values: list[int] = []
        for ciphertext in self._numbers(ciphertexts[0], 2):
            values += self._unpack(int(private.raw_decrypt(ciphertext)))
        return np.array(values[:size], np.int64) - summands * self.limit

    def nbytes(self, size: int) -> int:
        """2 `key_bits` for each `slots` values."""
        return -(-size // self.slots) * self.key_bits // 4

    def load(self, key: bytes) -> Any:
        """Public key, or private key of the factors."""
        numbers = self._numbers(key, 1)
        if len(numbers) == 1:
            return self.phe.PaillierPublicKey(numbers[0])
        public = self.phe.PaillierPublicKey(math.prod(numbers))
        return self.phe.PaillierPrivateKey(public, *numbers)

    def _pack(self, values: Sequence[int]) -> int:
        return sum(value << (self.SLOT * i) for i, value in enumerate(values))

    def _unpack(self, number: int) -> list[int]:
        mask = (1 << self.SLOT) - 1
        return [number >> (self.SLOT * i) & mask for i in range(self.slots)]

    def _bytes(self, ciphertext: int) -> bytes:
        return int(ciphertext).to_bytes(self.key_bits // 4, "little")

    def _numbers(self, joined: bytes, words: int) -> list[int]:
        """Integers of `words` times the modulus's bytes each."""
        size = words * self.key_bits // 8
        return [int.from_bytes(joined[i : i + size], "little") for i in range(0, len(joined), size)]


@dataclass(frozen=True)
class Parameters:
    """What all parties agree on; public.

    Attributes
    ----------
    scheme : Scheme
    point : FixedPoint
        Quantiser of embeddings.
    holder, quorum : int
        The client with the secret key, and how many embeddings are summed.
    """

    scheme: Scheme
    point: FixedPoint
    holder: int
    quorum: int


class Client(Party):
    """Encrypts its embedding; the key holder among the clients decrypts the sums too."""

    kept: ClassVar[tuple[str, ...]] = ("network",)
    kept_once: ClassVar[tuple[str, ...]] = ("public_key", "secret_key")

    def __init__(
        self,
        index: int,
        peers: Sequence[int],
        public: Parameters,
        batches: Batches,
        features: np.ndarray,
        network: ClientNetwork,
    ) -> None:
        super().__init__(index, peers)
        self.public = public
        self.batches = batches
        self.features = features
        self.network = network
        self.public_key = b""
        self.secret_key = b""  # the key holder's alone

    async def setup(self) -> None:
        """The key holder makes the keys, and the public one known."""
        if self.index != self.public.holder:
            self.public_key = await self.receive("key")
            return
        self.public_key, self.secret_key = self.public.scheme.generate()
        others = [n for n in self.peers if n != self.index]
        self.broadcast("key", self.public_key, to=(SERVER, *others))

    async def run(self) -> None:
        """Take part in every round; one that is over before the gradient comes is left."""
        async for round_ in self.rounds():
            with round_:
                own = rows_of(self.features, self.batches.samples(round_.payload))
                x = self.quantised(own)
                ciphertexts = self.public.scheme.encrypt(self.public_key, x.reshape(-1))
                self.send(SERVER, "embedding", ciphertexts)
                if self.index == self.public.holder:
                    self.send(SERVER, "opened", self.decrypt(await self.receive("sum"), x.shape))
                clipped = self.network.update(own, await self.receive("gradient"))
                if clipped:
                    self.record("clipped", weights=clipped, bound=self.network.bound)

    def quantised(self, own: np.ndarray) -> np.ndarray:
        """x_u as int64, refused where a sum could leave the scheme's range.

        That a client stopped here is one bit about its data, listed on the card.
        """
        x: np.ndarray = self.public.point.round(self.network.forward(own))
        limit, largest = self.public.scheme.limit, int(np.abs(x).max(initial=0))
        if largest > limit:
            raise RangeError(
                f"he_split: in round {self.round} client {self.index} has a quantised embedding "
                f"of {largest}, and floor(2^34 / N) = {limit}. Lower bits "
                f"({self.public.point.bits}) or bound the weights"
            )
        return x

    def decrypt(self, sums: tuple[bytes, ...], shape: tuple[int, ...]) -> np.ndarray:
        """Sum of as many embeddings as the quorum, as integers."""
        public = self.public
        values = public.scheme.decrypt(self.secret_key, sums, math.prod(shape), public.quorum)
        return values.reshape(shape)

    def operations(self, kind: str) -> int:
        """Multiply-adds of embedding a batch; encryption is not counted."""
        samples = self.batches.coded * self.batches.segments
        return samples * self.network.operations if kind == "embedding" else 0


class Server(Party):
    """Adds ciphertexts, has the sum decrypted, trains the centre."""

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps", "answered")
    kept_once: ClassVar[tuple[str, ...]] = ("public_key",)

    def __init__(
        self,
        peers: Sequence[int],
        public: Parameters,
        batches: Batches,
        centre: Centre,
        labels: np.ndarray,
        *,
        rounds: int,
    ) -> None:
        super().__init__(SERVER, peers)
        self.public = public
        self.batches = batches
        self.centre = centre
        self.labels = labels
        self.wanted = rounds
        self.steps = 0
        self.public_key = b""
        self.answered = np.zeros(len(self.peers), np.int64)  # rounds in which each was summed

    async def setup(self) -> None:
        """Learn the public key, without which ciphertexts cannot be added."""
        self.public_key = await self.receive("key")

    async def run(self) -> None:
        """One step a round, on the first `quorum` embeddings; later ones are late."""
        while self.steps < self.wanted:
            self.safe_point()
            batch = self.batches.draw(self.round + 1)
            self.announce(self.round + 1, batch)
            uploads = await self.collect("embedding", count=self.public.quorum)
            total = self.public.scheme.add(self.public_key, list(uploads.values()))
            self.send(self.public.holder, "sum", total)
            self.train(batch, tuple(uploads), await self.receive("opened", round=self.round))
        self.conclude()

    def train(self, batch: np.ndarray, summed: tuple[int, ...], total: np.ndarray) -> None:
        """Step on the mean of those summed; padded rows have no loss and no gradient."""
        samples = self.batches.samples(batch)
        mean = total * 2.0**-self.public.point.bits / len(summed)
        loss, gradient = self.centre.step(mean, samples, self.labels)
        self.steps += 1
        self.answered[list(summed)] += 1
        self.broadcast("gradient", gradient / np.float32(len(summed)), to=summed)
        self.record("round", step=self.steps, loss=loss, used=len(summed))


class HESplit(EmbeddingProtocol):
    """Split learning with homomorphic encryption on one data set."""

    name = "he_split"
    apart = True
    Config = HEConfig
    card = Card(
        title="Split learning with homomorphic encryption",
        paper="none of its own: additive aggregation under CKKS (Cheon et al., 2017) or Paillier "
        "(1999)",
        roles={
            "server": "holds the labels and the central model; adds ciphertexts, learns the sums",
            "client": "holds some columns and a network; encrypts its embedding",
            "key holder": "one of the clients; holds the secret key and decrypts the sums",
        },
        sees={
            "server": "ciphertexts, the exact sum of the quantised embeddings of those that were "
            "in time, and who they were",
            "client": "the public key, dL/dH and the batches",
            "key holder": "what a client sees, and the sums",
            "server + key holder": "every client's embedding of every batch, exactly",
            "outsider": "kinds, sizes and times; without sealed links ciphertexts and sums",
        },
        absence="skips",
        deviations=(
            "a single key holder, as TenSEAL has no threshold keys: T = 0 against whoever pools "
            "with it, and a run stops where it does",
            "CKKS encrypts integers and returns the nearest ones, so that its noise is never "
            "handed out (Li and Micciancio, 2021); ciphertexts are padded to one size",
            "the key holder trusts the server to send sums over the quorum, not single embeddings",
            "encryption draws its randomness in SEAL or phe, which key their generators from the "
            "operating system; the project's sampler does not see it",
            "Paillier: 36-bit slots, integers without exponents, sums randomised again",
            "a client whose part could leave the range stops the run: one bit about its data",
            "evaluation uses the clients that were summed most often, as many as the quorum",
            "h, the optimiser, initialisation and batch order are ours, as in FedVS",
        ),
    )

    def __init__(self, config: HEConfig, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        N, T = data.parties, config.privacy
        if config.holder >= N:
            raise ConfigurationError(
                f"he_split: holder = {config.holder}, and the {N} clients are 0 to {N - 1}"
            )
        quorum = config.quorum or max(N - N // 2, T + 2)
        if not T + 2 <= quorum <= N:
            raise PrivacyError(
                f"he_split: {quorum} summed embeddings of N = {N} clients with T = {T}: at least "
                f"T+2 = {T + 2}, else T clients could subtract theirs and be left with one, and at "
                "most N. Lower privacy, set quorum, or add clients"
            )
        self.quorum = quorum
        self.public = self.parameters()
        if quorum == N:
            self.card = replace(type(self).card, absence="waits")

    def parameters(self) -> Parameters:
        """What all parties agree on, for one of them."""
        N, config = self.data.parties, self.config
        paillier = config.scheme == "paillier"
        return Parameters(
            scheme=Paillier(N, config.key_bits) if paillier else Ckks(N),
            point=FixedPoint(PrimeField(2**61 - 1), bits=config.bits),
            holder=config.holder,
            quorum=self.quorum,
        )

    def parties(self) -> dict[int, Party]:
        """The server and N clients."""
        server = Server(
            self.peers(),
            self.parameters(),
            self.layout,
            self.joint_centre(),
            self.data.train_labels,
            rounds=self.config.rounds,
        )
        return {SERVER: server} | {n: self.client(n) for n in self.peers()}

    def client(self, index: int) -> Client:
        """Client `index`, from 0."""
        network, features = self.client_network(index), self.data.train[index]
        return Client(index, self.peers(), self.parameters(), self.layout, features, network)

    def evaluated(self, parties: Mapping[int, Party]) -> Collection[int]:
        """All clients, or those that were summed most often, the lowest first among equals."""
        if self.config.inference == "all":
            return self.peers()
        return self.most_used(parties, self.public.quorum)

    def describe(self) -> dict[str, Any]:
        """N, the quorum, the key holder and |B|."""
        return {
            "N": self.data.parties,
            "quorum": self.public.quorum,
            "scheme": self.config.scheme,
            "holder": self.public.holder,
            "batch_rows": self.batch_rows,
        }

    def memory(self) -> int:
        """The embeddings, and the ciphertexts of a round."""
        size = self.layout.coded * self.layout.segments * int(self.config.width)
        return super().memory() + 2 * self.data.parties * self.public.scheme.nbytes(size)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Given the sums, against whoever does not pool with the key holder."""
        rests = {
            "ckks": "ring learning with errors (8192 coefficients, 120 bits)",
            "paillier": "decisional composite residuosity",
        }[self.config.scheme]
        why = f"given the sums over the quorum, honest but curious, under {rests}; not over dL/dH"
        hidden = tuple(
            Claim(who, about, "computational", why)
            for who in ("server", "server + T clients without the key holder", "key holder")
            for about in ("features", "model")
        )
        open_ = tuple(
            Claim("server + key holder", about, "none", "it decrypts every embedding")
            for about in ("features", "model")
        )
        return (*hidden, *open_, Claim("client", "labels", "none", "dL/dH depends on them"))
