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

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from securevfl.engine.party import SERVER, Party, kept_as
from securevfl.errors import ConfigurationError, PrivacyError
from securevfl.field import FixedPoint
from securevfl.models.homomorphic import Ckks, Paillier, Scheme
from securevfl.privacy.claims import SUMS, Claim, given_sums
from securevfl.privacy.released_equations import LAW
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.messages import MessageSpec, fixed, in_rounds, in_setup
from securevfl.protocols.base.summed_parties import (
    SummedClient,
    SummedConfig,
    SummedEmbeddings,
    SummedServer,
    usual_of,
)
from securevfl.verified import Element, Schedule, World


class HEConfig(SummedConfig):
    """Options of homomorphic aggregation."""

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
        Scheme of encryption.
    holder, quorum : int
        Number of the client with the secret key; number of embeddings in a sum.
    """

    scheme: Scheme
    holder: int
    quorum: int


def integers(total: np.ndarray, point: FixedPoint) -> np.ndarray:
    """A sum of quantised embeddings as int64."""
    return point.field.signed(total)


class Client(SummedClient):
    """Client n: encrypts its embedding; the key holder also decrypts the sums."""

    kept: ClassVar[tuple[str, ...]] = (
        *SummedClient.kept,
        *kept_as("once", "public_key", "secret_key"),
    )
    protected: ClassVar[Mapping[str, str]] = {
        "key": "sealing key", "embedding": "sealed", "sum": "sealed", "opened": "real",
        "gradient": "real",
    }  # fmt: skip

    def __init__(self, *given: Any) -> None:
        *common, public = given
        super().__init__(*common)
        self.public: Parameters = public
        self.public_key: Any = b""
        self.secret_key: Any = b""  # of the key holder only

    async def setup(self) -> None:
        """Create keys and send the public one, as the key holder; else receive it."""
        if self.index != self.public.holder:
            self.public_key = await self.receive("key", sender=self.public.holder)
            return
        self.public_key, self.secret_key = self.sealing_keys(self.public.scheme)
        others = [n for n in self.peers if n != self.index]
        self.broadcast("key", self.public_key, to=(SERVER, *others))

    async def train(self, samples: np.ndarray) -> None:
        """One step of split training with an encrypted embedding."""
        scheme, x = self.public.scheme, self.quantised(samples)
        self.send(SERVER, "embedding", self.seal(scheme, self.public_key, x))
        if self.index == self.public.holder:
            total = self.decrypted(await self.receive("sum", sender=SERVER), x.shape)
            self.send(SERVER, "opened", total)
        self.update(samples, await self.receive("gradient", sender=SERVER))

    def decrypted(self, sums: Any, shape: tuple[int, ...]) -> Any:
        """Sum of the embeddings of a quorum, decrypted to integers."""
        public = self.public
        total = self.open_sealed(public.scheme, self.secret_key, sums, shape, public.quorum)
        return total.map(integers, self.point, real=True, dtype=np.int64)


class Server(SummedServer):
    """Server: adds ciphertexts, has the sum decrypted, trains the server model."""

    kept: ClassVar[tuple[str, ...]] = (*SummedServer.kept, *kept_as("once", "public_key"))
    protected = Client.protected

    def __init__(self, *given: Any) -> None:
        *common, public = given
        super().__init__(*common)
        self.public: Parameters = public
        self.public_key: Any = b""

    async def setup(self) -> None:
        """Receive the public key, which is needed to add ciphertexts."""
        self.public_key = await self.receive("key", sender=self.public.holder)

    async def aggregate(self) -> tuple[Any, Sequence[int]]:
        """Sum of the first `quorum` embeddings, opened by the key holder; later ones are late."""
        public = self.public
        uploads = await self.collect("embedding", count=public.quorum)
        total = self.add_sealed(public.scheme, self.public_key, list(uploads.values()))
        self.send(public.holder, "sum", total)
        opened = await self.receive("opened", sender=public.holder, round=self.round)
        return opened, tuple(uploads)


def quorum_of(config: HEConfig, parties: int) -> int:
    """Number of embeddings in a sum: the option `quorum`, or its default.

    PrivacyError when T clients, or the key holder, could subtract their own embeddings from a sum
    and be left with one, or there are too few clients.
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


class HESplit(SummedEmbeddings):
    """Split learning with homomorphic encryption on one data set."""

    name = "he_split"
    Config = HEConfig
    client_kind, server_kind = Client, Server
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
            "depend on values. The loss and dL/dH are then functions of the server's labels and "
            "model, of which they tell it",
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

    def schedules(self) -> tuple[Schedule, ...]:
        """The usual schedules of late and lost parties for a proof."""
        return usual_of(self)

    def __init__(self, config: HEConfig, data: Any, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        self.quorum = quorum_of(config, data.parties)
        self.public = self.parameters()
        self.limit = self.public.scheme.limit  # sums of integers stay below 2^34, far from p
        self.told_to = (SERVER, config.holder)
        self.refusal = (
            "he_split: in round {round} client {client} has a quantised embedding of LARGEST, and "
            f"floor(2^34 / N) = {self.limit}. Lower bits ({config.bits}) or bound the weights"
        )
        if self.quorum == data.parties:
            self.card = replace(type(self).card, absence="waits")

    @classmethod
    def check_parties(cls, config: HEConfig, parties: int) -> None:
        """Raise ConfigurationError if the key holder is no client, or the quorum out of range."""
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
        """Declared messages: the public key, ciphertexts, and sums to the key holder and back."""
        opening, embedding, gradient = self.step_messages("ciphertext", dtype="")
        rows = self.layout.coded * self.layout.segments
        return (
            MessageSpec("key", "key_holder", "server", "key", public=True, count=in_setup),
            MessageSpec("key", "key_holder", "client", "key", public=True, count=in_setup),
            opening,
            embedding,
            MessageSpec("sum", "server", "key_holder", "ciphertext", count=in_rounds),
            MessageSpec(
                *("opened", "key_holder", "server", "result"),
                shape=fixed(rows, self.config.width),
                dtype="int64",
                count=in_rounds,
            ),
            gradient,
        )

    def summed(self, world: World) -> Mapping[int, Sequence[int]]:
        """Clients in the sum sent to the key holder, by round."""
        came = world.took("embedding")
        return {r: [n for _, n in came[r]] for r in world.rounds("sum")}

    def told_sum(self, total: Element) -> Any:
        """A sum in the form in which the key holder returns it: integers."""
        return total.map(integers, self.point, real=True, dtype=np.int64)

    def open_values(self, world: World, embeddings: Mapping[int, Element], round: int) -> None:
        """Declare that server and key holder together may see every embedding."""
        for n, x in embeddings.items():
            world.output(f"embedding {n} {round}", x, self.told_to, alone=True, together=True)

    def coalitions(self) -> tuple[frozenset[int], ...]:
        """Coalitions: up to T clients with or without the server; the key holder, also with it."""
        holder = self.config.holder
        rest = tuple(some for some in super().coalitions() if holder not in some)
        return (*rest, frozenset((holder,)), frozenset((SERVER, holder)))

    def parameters(self) -> Parameters:
        """New public parameters for one party."""
        N, config = self.data.parties, self.config
        paillier = config.scheme == "paillier"
        return Parameters(
            scheme=Paillier(N, config.key_bits) if paillier else Ckks(N),
            holder=config.holder,
            quorum=self.quorum,
        )

    def server(self) -> Server:
        """Create the server."""
        made: Server = self.made_server(self.parameters())
        return made

    def client(self, index: int) -> Client:
        """Create client `index`, counted from 0."""
        made: Client = self.made_client(index, self.parameters())
        return made

    def evaluated(self, parties: Mapping[int, Party]) -> Collection[int]:
        """Clients for evaluation: the quorum most often summed, or all."""
        return self.most_used(parties, self.public.quorum)

    def describe(self) -> dict[str, Any]:
        """Values for summaries: N, the quorum, the scheme, the key holder and |B|."""
        return {
            "N": self.data.parties,
            "quorum": self.public.quorum,
            "scheme": self.config.scheme,
            "holder": self.public.holder,
            "batch_rows": self.batch_rows,
        }

    def memory(self) -> int:
        """Bytes of the base class, and of a round's ciphertexts, twice."""
        size = self.layout.coded * self.layout.segments * int(self.config.width)
        return super().memory() + 2 * self.data.parties * self.public.scheme.nbytes(size)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Claims, given the sums, against coalitions without the key holder, and against it."""
        rests, opened = {
            "ckks": (
                "ring learning with errors (8192 coefficients, 120 bits)",
                "whose noise comes from SEAL's generator and not from what is summed",
            ),
            "paillier": ("decisional composite residuosity", "that the server randomised again"),
        }[self.config.scheme]
        given = "given the sums over the quorum, honest but curious"
        under = f"{given}, under {rests}; not over dL/dH"
        decrypts = f"{given}: it decrypts sums {opened}; not over dL/dH"
        hidden = (
            *(
                Claim(who, about, "computational", under, given=(SUMS,))
                for who in ("server", "server + T clients without the key holder")
                for about in ("features", "model")
            ),
            Claim("key holder", "features", "computational", decrypts, given=(SUMS,)),
        )
        why = "it knows the sums, so the loss and dL/dH tell it of the server's labels and model"
        seen = (
            Claim("key holder", "model", "none", why),
            Claim("key holder", "labels", "none", why),
        )
        open_ = tuple(
            Claim("server + key holder", about, "none", "it decrypts every embedding")
            for about in ("features", "model")
        )
        told = Claim("client", "labels", "none", "dL/dH depends on them")
        return given_sums((*hidden, *seen, *open_, told), self.released())
