"""Split learning on homomorphically encrypted embeddings: CKKS by TenSEAL, or Paillier by phe.

Every client encrypts its quantised embedding under the public key of one client, the key holder;
the server adds the ciphertexts of the first `quorum` clients, the key holder decrypts the sum and
returns it, and the server trains on the mean. There is no protection against the key holder: the
server together with the key holder reads every embedding.

CKKS is approximate: decryptions with their noise reveal the key to a party that has the ciphertexts
(Li and Micciancio, EUROCRYPT 2021). Here integers are encrypted, at a scale at which
the noise stays far below one half, and the key holder returns the nearest integers: exact sums,
which reveal nothing of the noise. A residue above 1/8 stops the run instead. The key holder itself
sees the noise of a sum. It does not depend on the values, for these are whole coefficients of the
plaintext: values in slots are rounded, and the sum of the roundings tells more than the sum.

Both packages are optional: ``pip install 'securevfl[he]'``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from securevfl.engine.party import ANNOUNCE, SERVER, Party
from securevfl.errors import ConfigurationError, PrivacyError, RangeError
from securevfl.field import FixedPoint, PrimeField
from securevfl.models.homomorphic import Ckks, Paillier, Scheme
from securevfl.privacy.claims import SUMS, Claim, given_sums
from securevfl.privacy.released_equations import LAW
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.embedding import EmbeddingProtocol
from securevfl.protocols.base.hidden_sums import Encrypted
from securevfl.protocols.base.messages import (
    Formula,
    Hypothesis,
    MessageKey,
    MessageSpec,
    RunSecrets,
    fixed,
    in_rounds,
    in_setup,
    with_formulas,
)
from securevfl.protocols.base.options import SegmentedConfig
from securevfl.protocols.base.split_parties import SplitClient, SplitServer
from securevfl.protocols.base.split_step import JointEmbedding, SplitStep, summed

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


class HEConfig(SegmentedConfig):
    """Options of homomorphic aggregation."""

    aggregation: Literal["mean"] = Field(
        "mean",
        description="How embeddings are joined. Only sums are possible here, so it is their mean.",
    )
    scheme: Literal["ckks", "paillier"] = Field(
        "ckks",
        description=(
            "Homomorphic encryption scheme: ckks (package tenseal) or paillier (package "
            "phe), both in the extra he."
        ),
    )
    holder: int = Field(0, ge=0, description="Number of the client that holds the secret key.")
    privacy: int = Field(
        1,
        ge=0,
        description=(
            "Privacy threshold T: number of clients other than the key holder that may pool"
            " what they see with the server and still learn no single embedding."
        ),
    )
    quorum: int | None = Field(
        None,
        ge=1,
        description=(
            "Number of embeddings that are summed. Default: N - floor(N/2), and at least T+2."
        ),
    )
    inference: Literal["responders", "all"] = Field(
        "responders",
        description=(
            "Whose embeddings the evaluation uses: those of the clients that were summed "
            "most often (as many as the quorum), or all."
        ),
    )
    bits: int = Field(
        20,
        ge=1,
        le=32,
        description=(
            "Number of fractional bits of an embedding's values, which are rounded to integers."
        ),
    )
    key_bits: int = Field(2048, ge=2048, le=4096, description="Bits of a Paillier modulus.")


@dataclass(frozen=True)
class Parameters:
    """Public parameters of a run.

    Attributes
    ----------
    scheme : Scheme
    point : FixedPoint
        Quantiser of embeddings.
    holder, quorum : int
        Number of the client with the secret key, and of embeddings in a sum.
    """

    scheme: Scheme
    point: FixedPoint
    holder: int
    quorum: int


@dataclass(eq=False, repr=False)
class Client(SplitClient):
    """Client n: encrypts its embedding; the key holder also decrypts the sums."""

    kept_once: ClassVar[tuple[str, ...]] = ("public_key", "secret_key")

    public: Parameters
    public_key: bytes = field(default=b"", init=False)
    secret_key: bytes = field(default=b"", init=False)  # of the key holder only

    async def setup(self) -> None:
        """Make the keys and send the public one, as key holder; else receive it."""
        if self.index != self.public.holder:
            self.public_key = await self.receive("key", sender=self.public.holder)
            return
        self.public_key, self.secret_key = self.public.scheme.generate()
        others = [n for n in self.peers if n != self.index]
        self.broadcast("key", self.public_key, to=(SERVER, *others))

    async def train(self, batch: np.ndarray) -> None:
        """One step of split training on an encrypted embedding."""
        own = self.rows_of(batch)
        x = self.quantised(own)
        ciphertexts = self.public.scheme.encrypt(self.public_key, x.reshape(-1))
        self.send(SERVER, "embedding", ciphertexts)
        if self.index == self.public.holder:
            self.send(
                SERVER, "opened", self.decrypt(await self.receive("sum", sender=SERVER), x.shape)
            )
        self.update(own, await self.receive("gradient", sender=SERVER))

    def quantised(self, own: np.ndarray) -> np.ndarray:
        """x_u as int64, refused where a sum could leave the scheme's range.

        The error reveals one bit about the client's data, which the card lists.
        """
        x: np.ndarray = self.public.point.round(self.embed(own))
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


@dataclass(eq=False, repr=False)
class Server(SplitServer):
    """Server: adds ciphertexts, has the sum decrypted, trains the server model."""

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps", "answered")
    kept_once: ClassVar[tuple[str, ...]] = ("public_key",)

    public: Parameters
    public_key: bytes = field(default=b"", init=False)
    answered: np.ndarray = field(init=False)  # rounds in which each client was summed

    def __post_init__(self) -> None:
        super().__post_init__()
        self.answered = np.zeros(len(self.peers), np.int64)

    async def setup(self) -> None:
        """Learn the public key, without which ciphertexts cannot be added."""
        self.public_key = await self.receive("key", sender=self.public.holder)

    async def run(self) -> None:
        """One step a round, on the first `quorum` embeddings; later ones are late."""
        while self.steps < self.max_steps:
            self.safe_point()
            batch = self.batches.draw(self.round + 1)
            self.announce(self.round + 1, batch)
            uploads = await self.collect("embedding", count=self.public.quorum)
            total = self.public.scheme.add(self.public_key, list(uploads.values()))
            self.send(self.public.holder, "sum", total)
            holder = self.public.holder
            opened = await self.receive("opened", sender=holder, round=self.round)
            self.train(batch, (opened, tuple(uploads)))
        self.conclude()

    def join(
        self, uploads: tuple[np.ndarray, tuple[int, ...]], samples: np.ndarray
    ) -> JointEmbedding:
        """Mean of the summed clients, from the decrypted sum and their numbers."""
        total, clients = uploads
        # The sum is of integers round(2^l H_n), |sum| <= 2^34, exact as a double.
        mean = total * 2.0**-self.public.point.bits / len(clients)
        return summed(mean, clients, lambda gradient: gradient / np.float32(len(clients)))

    def answer(self, batch: np.ndarray, step: SplitStep) -> None:
        """Send all clients in the sum the same gradient, and count them."""
        self.answered[list(step.clients)] += 1
        self.broadcast("gradient", next(iter(step.gradients.values())), to=step.clients)


def quorum_of(config: HEConfig, parties: int) -> int:
    """Embeddings that are summed, at least.

    Raises
    ------
    PrivacyError
        When T clients, or the key holder, with the sum could be left with one embedding, or there
        are too few clients.
    """
    N, T = parties, config.privacy
    needed = max(T, 1) + 2  # the key holder is a client, too, and sees the sum without colluding
    quorum = config.quorum or max(N - N // 2, needed)
    if not needed <= quorum <= N:
        raise PrivacyError(
            f"he_split: {quorum} summed embeddings of N = {N} clients with T = {T}: at least "
            f"max(T, 1) + 2 = {needed}, else T clients, or the key holder alone, could subtract "
            "theirs and be left with one, and at most N. Lower privacy, set quorum, or add clients"
        )
    return quorum


class HESplit(EmbeddingProtocol, Encrypted):
    """Split learning with homomorphic encryption on one data set."""

    name = "he_split"
    tells_sums = True
    apart = True
    Config = HEConfig
    card = Card(
        title="Split learning with homomorphic encryption",
        paper="CKKS (Cheon et al., 2017) or Paillier (1999); the aggregation is ours",
        roles={
            "server": "holds the labels and the server model; adds ciphertexts, learns the sums",
            "client": "holds some columns and a network; encrypts its embedding",
            "key holder": "one of the clients; holds the secret key and decrypts the sums",
        },
        sees={
            "server": "ciphertexts, the exact sum of the quantised embeddings of those that were "
            "in time, and who they were. "
            f"{LAW}. Whoever knows the secret seed of a simulation needs fewer. With SGD and "
            "networks that are linear in their weights the sums of the same clients and its own "
            "gradients give X X^T of columns and powers, as in FedVS. Two sums of the same rows "
            "and models, as where a round is made again after a restart with others in time, "
            "differ by embeddings of those that are in one of them",
            "client": "the public key, dL/dH and the batches",
            "key holder": "what a client sees, and the sums with the noise of CKKS, which does not "
            "depend on values",
            "server + key holder": "every client's embedding of every batch, exactly",
            "outsider": "kinds, sizes and times; without sealed links ciphertexts and sums",
        },
        absence="skips",
        deviations=(
            "a single key holder, as TenSEAL has no threshold keys: T = 0 against a coalition with "
            "it, and a run stops when it stops",
            "CKKS encrypts integers and returns the nearest ones, so that its noise is never "
            "handed out (Li and Micciancio, 2021); they are whole coefficients of the plaintext, "
            "not slots, whose rounding the key holder would see; ciphertexts are padded to one "
            "size",
            "the key holder trusts the server to send sums over the quorum, not single embeddings",
            "encryption draws its randomness in SEAL or phe, which key their generators from the "
            "operating system; the project's sampler does not see it",
            "Paillier: 36-bit slots, integers without exponents, sums randomised again",
            "a client whose value could leave the range stops the run, which reveals one bit, to a "
            "cluster's driver the value, about "
            "its data",
            "evaluation uses the clients that were summed most often, as many as the quorum",
            "h, the optimiser, initialisation and batch order are ours, as in FedVS",
        ),
    )

    def __init__(self, config: HEConfig, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        self.quorum = quorum_of(config, data.parties)
        self.public = self.parameters()
        if self.quorum == data.parties:
            self.card = replace(type(self).card, absence="waits")

    @classmethod
    def check_parties(cls, config: HEConfig, parties: int) -> None:
        """Refuse a key holder that is no client, and too few clients for the quorum."""
        super().check_parties(config, parties)
        if config.holder >= parties:
            raise ConfigurationError(
                f"he_split: holder = {config.holder}, and the {parties} clients are 0 to "
                f"{parties - 1}"
            )
        quorum_of(config, parties)

    def roles(self) -> dict[str, tuple[int, ...]]:
        """Numbers of the parties by role; one client is the key holder."""
        return super().roles() | {"key_holder": (self.config.holder,)}

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """The public key, ciphertexts, and sums to the key holder and back."""
        opening, embedding, gradient = self.step_messages("ciphertext", dtype="")
        rows = self.layout.coded * self.layout.segments
        declared = (
            MessageSpec("key", "key_holder", "server", "key", public=True, count=in_setup),
            MessageSpec("key", "key_holder", "client", "key", public=True, count=in_setup),
            opening,
            replace(embedding, opened_by="key_holder"),
            MessageSpec(
                *("sum", "server", "key_holder", "ciphertext"),
                count=in_rounds,
                opened_by="key_holder",
            ),
            MessageSpec(
                *("opened", "key_holder", "server", "result"),
                shape=fixed(rows, self.config.width),
                dtype="int64",
                count=in_rounds,
            ),
            gradient,
        )
        formulas: dict[str, Formula] = {
            ANNOUNCE: self.announced_at,
            "key": lambda secrets, key: self.public.scheme.public_of(
                self.holder_state(secrets)["secret_key"]
            ),
            "embedding": self.checked_ciphertexts,
            "sum": self.checked_ciphertexts,
            "opened": self.ideal_output,
            "gradient": self.gradient_of_the_sum,
        }
        return with_formulas(declared, formulas)

    def hypotheses(self, secrets: RunSecrets) -> tuple[Hypothesis, ...]:
        """Randomised encryption, and a secret key that is never sent.

        Numbers of terms, keys and ciphertexts are looked at by the verifier (`Encrypted`).
        """
        state = self.holder_state(secrets)
        key, values = state["public_key"], np.arange(4, dtype=np.int64)
        twice = [self.public.scheme.encrypt(key, values) for _ in range(2)]
        sent = [
            payload
            for kind in ("key", "embedding", "sum")
            for round in range(self.config.rounds + 1)
            for payload in secrets.sent(kind, round).values()
        ]
        parts = [one for payload in sent
                 for one in ((payload,) if isinstance(payload, bytes) else payload)]  # fmt: skip
        kept = not any(state["secret_key"] in one for one in parts)
        return (
            Hypothesis("two encryptions of one plaintext differ", twice[0] != twice[1]),
            Hypothesis("the secret key is in no message", kept),
        )

    @property
    def scheme(self) -> Scheme:
        """CKKS or Paillier."""
        return self.public.scheme

    def secret_key(self, secrets: RunSecrets) -> bytes:
        """The key holder's."""
        key: bytes = self.holder_state(secrets)["secret_key"]
        return key

    def checked_ciphertexts(self, secrets: RunSecrets, key: MessageKey) -> Any:
        """The ciphertexts themselves, if they hold what they must and nothing else; None otherwise.

        A client's hold its quantised embedding, the server's the sum; all other slots are zero.
        Encryption is randomised, so nobody can compute them anew.
        """
        ciphertexts = secrets.sent(key.kind, key.round)[key.sender, key.receiver]
        single = key.kind == "embedding"
        wanted = (
            [self.upload(secrets, key.sender, key.round)] if single else self.sums(secrets, key)
        )
        secret = self.holder_state(secrets)["secret_key"]
        summands = 1 if single else self.quorum
        fault = self.public.scheme.fault
        sound = any(not fault(secret, ciphertexts, one.reshape(-1), summands) for one in wanted)
        return ciphertexts if sound else None

    def holder_state(self, secrets: RunSecrets) -> Mapping[str, Any]:
        """State of the key holder when it sent the public key."""
        return secrets.state(MessageKey("key", 0, self.public.holder, SERVER))

    def gradient_of_the_sum(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """dL/dH of the mean of the summed clients, divided by their number."""
        summed = len({n for _, n in secrets.sent("gradient", key.round)})
        total = self.ideal_output(secrets, MessageKey("opened", *key[1:]))
        mean = total * 2.0**-self.public.point.bits / summed
        gradient: np.ndarray = self.gradient_at(secrets, key, mean) / np.float32(summed)
        return gradient

    def ideal_output(self, secrets: RunSecrets, key: MessageKey) -> Any:
        """Sum that the key holder decrypts and sends to the server, as integers.

        Of the clients that got a gradient; None for other messages. `draws` is empty here: keys
        and the randomness of ciphertexts are drawn in SEAL or phe, and never are arrays of ours.
        """
        if key.kind not in ("sum", "opened"):
            return None
        sums = list(self.sums(secrets, key))
        opened = secrets.sent("opened", key.round).get((self.public.holder, SERVER))
        same = (one for one in sums if opened is not None and np.array_equal(one, opened))
        return next(same, sums[0])

    def sums(self, secrets: RunSecrets, key: MessageKey) -> Iterator[np.ndarray]:
        """The sum of a round; where no gradient followed it, those of any quorum that uploaded."""
        told = sorted(n for _, n in secrets.sent("gradient", key.round))
        sent = sorted(n for n, _ in secrets.sent("embedding", key.round))
        for clients in [told] if told else itertools.combinations(sent, self.quorum):
            yield np.sum([self.upload(secrets, n, key.round) for n in clients], axis=0)

    def upload(self, secrets: RunSecrets, client: int, round: int) -> np.ndarray:
        """x_u: quantised embedding of a client in a round, from its rows and its network."""
        key = MessageKey("embedding", round, client, SERVER)
        embedding = self.embedding_at(secrets, key)
        rounded: np.ndarray = self.public.point.round(embedding)
        return rounded

    def parameters(self) -> Parameters:
        """New public parameters, for one party."""
        N, config = self.data.parties, self.config
        paillier = config.scheme == "paillier"
        return Parameters(
            scheme=Paillier(N, config.key_bits) if paillier else Ckks(N),
            point=FixedPoint(PrimeField(2**61 - 1), bits=config.bits),
            holder=config.holder,
            quorum=self.quorum,
        )

    def server(self) -> Server:
        """The server."""
        return self.make_server(Server, self.parameters())

    def client(self, index: int) -> Client:
        """Client `index`, from 0."""
        network, features = self.client_network(index), self.data.train[index]
        return Client(index, self.peers(), self.layout, features, network, self.parameters())

    def evaluated(self, parties: Mapping[int, Party]) -> Collection[int]:
        """All clients, or those that were summed most often, the lowest first among equals."""
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
        """Bytes of the embeddings, and of the ciphertexts of a round."""
        size = self.layout.coded * self.layout.segments * int(self.config.width)
        return super().memory() + 2 * self.data.parties * self.public.scheme.nbytes(size)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Given the sums, against coalitions without the key holder, and against it alone."""
        rests, opened = {
            "ckks": (
                "ring learning with errors (8192 coefficients, 120 bits)",
                "whose noise comes from SEAL's generator and not from what is summed",
            ),
            "paillier": ("decisional composite residuosity", "that the server randomised again"),
        }[self.config.scheme]
        given = "given the sums over the quorum, honest but curious"
        under = f"{given}, under {rests}; not over dL/dH"
        reasons = {
            "server": under,
            "server + T clients without the key holder": under,
            "key holder": f"{given}: it decrypts sums {opened}; not over dL/dH",
        }
        hidden = tuple(
            Claim(who, about, "computational", why, given=(SUMS,))
            for who, why in reasons.items()
            for about in ("features", "model")
        )
        open_ = tuple(
            Claim("server + key holder", about, "none", "it decrypts every embedding")
            for about in ("features", "model")
        )
        told = Claim("client", "labels", "none", "dL/dH depends on them")
        return given_sums((*hidden, *open_, told), self.released())
