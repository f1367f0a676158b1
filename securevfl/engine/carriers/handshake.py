"""Handshake of a link: two parties agree on keys, which both have signed.

It is a signed Diffie-Hellman exchange (SIGMA, Krawczyk 2003, without hidden identities), made
hybrid with ML-KEM-768, so that a later quantum computer cannot decrypt a recorded run. Both parties
do the same::

    A -> B   o_A = (A, B, epoch, attempt, X_A, E_A),  sign_A("offer", o_A)
    A -> B   c_AB,  sign_A("answer", H(o_A), H(o_B), c_AB)       c_AB = Encaps(E_B)

    keys = HKDF(X25519(x_A, X_B), k_AB, k_BA; H(o_A), H(o_B), H(c_AB), H(c_BA))

and every signed statement begins with the session's context. The key pairs (x, X) and (e, E) are
new for each link, and each answer signs both offers. So a secret leaked from an earlier link does
not open this one. The secrets are deleted once the peer has proved that it has the keys.

The keys are starts of hash chains. Each datagram advances a chain, and its earlier state is
deleted, so leaked keys do not decrypt datagrams received before.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from securevfl.engine import wire
from securevfl.engine.network import name_of
from securevfl.errors import SealError, WireError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

_FARTHEST = 4096  # keys of a chain that are passed over at most; each costs a microsecond
_OFFER, _ANSWER, _KEYS = "securevfl offer 1", "securevfl answer 1", "securevfl link 2"


class Offer(NamedTuple):
    """The offer of a party to one peer for one link.

    Attributes
    ----------
    epoch, attempt : int
        Incarnation of the party, and the number of this offer among its offers to the peer.
    public : bytes
        X25519 public key, 32 bytes.
    encapsulation : bytes
        ML-KEM-768 public key, 1,184 bytes; empty if the party's library does not support it.
    signature : bytes
        Signature by its identity, over all these, both parties and the session.
    """

    epoch: int
    attempt: int
    public: bytes
    encapsulation: bytes
    signature: bytes = b""


class Answer(NamedTuple):
    """A party's answer to a peer's offer, which shows that it has received it.

    Attributes
    ----------
    heard : bytes
        SHA-256 of the received offer, 32 bytes; empty if none was received.
    ciphertext : bytes
        ML-KEM-768 ciphertext under the peer's key, 1,088 bytes; empty if there is no such key.
    signature : bytes
        Signature by its identity, over both offers and the ciphertext.
    """

    heard: bytes = b""
    ciphertext: bytes = b""
    signature: bytes = b""


class Chains(NamedTuple):
    """The four key chains of a link: data and acknowledgements, in both directions."""

    sent: Chain
    sent_acks: Chain
    received: Chain
    received_acks: Chain


class Credentials(NamedTuple):
    """Means by which a party proves its identity and checks the others'.

    Attributes
    ----------
    context : bytes
        Name of the session and other facts on which both ends must agree.
    sign : callable
        Function that signs a statement by the party's identity.
    has_signed : callable
        Function of (party, signature, statement): whether the party's identity made the signature,
        `securevfl.engine.security.identity.Manifest.has_signed`.
    """

    context: bytes
    sign: Callable[[bytes], bytes]
    has_signed: Callable[[int, bytes, bytes], bool]


class Handshake:
    """One party's side of the handshake for one link.

    Parameters
    ----------
    credentials, index, peer : Credentials, int, int
        Proof of the party's identity; the party and its peer.
    epoch, attempt : int
        Incarnation of the party, and number of its next offer to the peer.
    """

    def __init__(
        self, credentials: Credentials, index: int, peer: int, epoch: int, attempt: int
    ) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self.index, self.peer = index, peer
        self.theirs: Offer | None = None
        self.answer = Answer()
        self._credentials = credentials
        self._secret: X25519PrivateKey | None = X25519PrivateKey.generate()
        self._decapsulation: MLKEM768PrivateKey | None = _new_mlkem()
        self._shared = b""  # what the peer will find in our ciphertext
        encapsulation = b""
        if self._decapsulation is not None:
            encapsulation = self._decapsulation.public_key().public_bytes_raw()
        offer = Offer(epoch, attempt, self._secret.public_key().public_bytes_raw(), encapsulation)
        self.offer = offer._replace(signature=credentials.sign(self._stated(index, peer, offer)))

    def check(self, theirs: Offer) -> None:
        """Raise SealError unless the peer's identity has signed its offer."""
        statement = self._stated(self.peer, self.index, theirs)
        if not self._credentials.has_signed(self.peer, theirs.signature, statement):
            raise SealError(f"link: an offer of {name_of(self.peer)} is not signed by it")

    def hear(self, theirs: Offer) -> None:
        """Answer the peer's offer `theirs`, already checked; its earlier offer is dropped.

        SealError for malformed keys.
        """
        ciphertext, shared = b"", b""
        if theirs.encapsulation and self._decapsulation is not None:
            shared, ciphertext = _encapsulate(theirs.encapsulation, self.peer)
        heard = _hash(self._stated(self.peer, self.index, theirs))
        said = self._answered(self.index, self._own_hash, heard, ciphertext)
        self.theirs, self._shared = theirs, shared
        self.answer = Answer(heard, ciphertext, self._credentials.sign(said))

    def agree(self, answer: Answer, shift: int = 0) -> Chains | None:
        """Key chains of the link from the peer's answer; None if it answers another offer.

        SealError for an answer with malformed or missing keys, or without the signature of the
        peer's identity; ValueError before `hear`.

        Parameters
        ----------
        shift : int
            `Chain` parameter for data; equal at both parties.
        """
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        if self.theirs is None or self._secret is None:
            raise ValueError("handshake: there is no offer to agree on")
        if not hmac.compare_digest(answer.heard, self._own_hash):
            return None
        theirs = self.answer.heard
        said = self._answered(self.peer, theirs, self._own_hash, answer.ciphertext)
        if not self._credentials.has_signed(self.peer, answer.signature, said):
            raise SealError(f"link: an answer of {name_of(self.peer)} is not signed by it")
        if bool(answer.ciphertext) != bool(self.answer.ciphertext):
            raise SealError(f"link: {name_of(self.peer)} has left out its half of ML-KEM")
        try:
            exchanged = self._secret.exchange(X25519PublicKey.from_public_bytes(self.theirs.public))
            both = self._decapsulation if answer.ciphertext else None
            told = b"" if both is None else both.decapsulate(answer.ciphertext)
        except ValueError:  # of another length or of small order; only its owner can have signed it
            raise SealError(f"link: {name_of(self.peer)} has a key that is none") from None
        ours = (self._own_hash, _hash(self.answer.ciphertext), self._shared)
        his = (theirs, _hash(answer.ciphertext), told)
        first = self.index < self.peer  # both put the same party first
        one, two = (ours, his) if first else (his, ours)
        info = wire.encode((_KEYS, self._credentials.context, *one[:2], *two[:2]))
        hkdf = HKDF(SHA256(), length=4 * 32, salt=None, info=info)
        made = hkdf.derive(exchanged + one[2] + two[2])
        keys = [made[at : at + 32] for at in range(0, 128, 32)]
        if not first:
            keys = keys[2:] + keys[:2]
        sent, sent_acks, received, received_acks = keys
        # Acknowledgements hold two counters and nothing of the party, and are often lost for good.
        return Chains(
            *(Chain(sent, shift), Chain(sent_acks, 8)),
            *(Chain(received, shift), Chain(received_acks, 8)),
        )

    def forget(self) -> None:
        """Delete all secrets, now that the peer has the keys."""
        self._secret = self._decapsulation = None
        self._shared = b""

    @functools.cached_property
    def _own_hash(self) -> bytes:
        return _hash(self._stated(self.index, self.peer, self.offer))

    def _stated(self, sender: int, receiver: int, offer: Offer) -> bytes:
        """Bytes that `sender` signs for its offer."""
        return wire.encode((_OFFER, self._credentials.context, sender, receiver, *offer[:-1]))

    def _answered(self, sender: int, own: bytes, heard: bytes, ciphertext: bytes) -> bytes:
        """Bytes that `sender` signs for its answer; `own`, `heard`: hashes of the two offers."""
        return wire.encode((_ANSWER, self._credentials.context, sender, own, heard, ciphertext))


class Chain:
    """Keys of one direction, each derived from the previous one, which is then deleted.

    Parameters
    ----------
    start : bytes
        First key of the chain, 32 bytes.
    shift : int
        2^shift consecutive numbers have one key.
    """

    def __init__(self, start: bytes, shift: int = 0) -> None:
        self._chain, self._at, self._shift = start, 0, shift
        self._kept: dict[int, bytes] = {}
        self._newest: tuple[int, ChaCha20Poly1305] | None = None  # of a key for several numbers

    def __getstate__(self) -> dict[str, object]:
        """The keys without the cipher, which can be made from them."""
        return vars(self) | {"_newest": None}

    def cipher(self, number: int) -> ChaCha20Poly1305:
        """Cipher for a datagram number; no key is deleted yet, as the number may be forged.

        WireError for a number whose key is deleted, or that is too far ahead.
        """
        at = number >> self._shift
        if self._newest is not None and self._newest[0] == at:
            return self._newest[1]
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        key = self._kept.get(at)
        if key is None:
            if not 0 <= at - self._at < _FARTHEST:
                raise WireError(f"datagram: there is no key for number {number}")
            chain = self._chain
            for _ in range(at - self._at):
                chain = _derived(chain, b"chain")
            key = _derived(chain, b"key")
        return ChaCha20Poly1305(key)

    def used(self, number: int, lowest: int) -> None:
        """Delete keys that are no longer needed after a datagram number was used.

        Parameters
        ----------
        lowest : int
            Smallest number that may still be used.
        """
        at = number >> self._shift
        while self._at <= at:
            self._kept[self._at] = _derived(self._chain, b"key")
            self._chain = _derived(self._chain, b"chain")
            self._at += 1
        if self._shift:
            if self._newest is None or self._newest[0] < at:
                self._newest = at, self.cipher(number)
        else:
            self._kept.pop(at, None)
        if self._kept:
            for old in [kept for kept in self._kept if kept < lowest >> self._shift]:
                del self._kept[old]


def _derived(chain: bytes, purpose: bytes) -> bytes:
    return _hash(purpose + chain)  # of a fixed length; HMAC takes four times as long


def _hash(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _new_mlkem() -> MLKEM768PrivateKey | None:
    """A new ML-KEM-768 key (FIPS 203); None if the installed library lacks it."""
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey

        return MLKEM768PrivateKey.generate()
    except (ImportError, UnsupportedAlgorithm):
        return None


def _encapsulate(public: bytes, peer: int) -> tuple[bytes, bytes]:
    """Shared secret and ciphertext for a peer's ML-KEM-768 key; SealError if it is none."""
    from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PublicKey

    try:
        return MLKEM768PublicKey.from_public_bytes(public).encapsulate()
    except ValueError:
        raise SealError(f"link: {name_of(peer)} has a key that is none") from None
