"""Verifiable dealing: each holder checks that its share and all others lie on one polynomial.

A dealer encodes data by a Lagrange code of degree K+T-1, and m random blinding columns b by the
same code. It commits to all shares by the root of a Merkle tree, and the root determines random
check matrices r (random oracle). The dealer sends all holders the polynomials c_i(z) = <r_i,
Gamma(z)> + b_i(z), as values at the points of the first K + T holders. Holder j checks <r_i,
Gamma_j> + b_ij = c_i(alpha_j) for all i.

Theorem 1 (docs/active.md): with q hash queries and d dealings, shares on no polynomial of degree
K+T-1 are accepted by some K+T+1 of the H honest holders with probability at most
q^2 2^-256 + (q + d) C(H, K+T+1) (2/p)^m. Shares of T holders, with c and the root, are simulated
without the data: beside them c is K m uniform elements (m where it is constant at the data points).
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from securevfl.active.statements import DIGEST, Statement, Subject, digest
from securevfl.active.tree import root_of
from securevfl.engine import wire
from securevfl.errors import ConfigurationError, WireError
from securevfl.field.lagrange import interpolation_matrix
from securevfl.field.lagrange_code import LagrangeCode
from securevfl.field.prime_field import PrimeField
from securevfl.field.prss import derive

Array = NDArray[Any]
BITS = 168  # of soundness before hash queries: 2^40 of them leave 128
DEALING = "dealing"
NOTHING = bytes(DIGEST)  # before the first dealing


@dataclass(frozen=True)
class Form:
    """Parameters of a dealing, known to all parties in advance.

    Attributes
    ----------
    code : LagrangeCode
        Code of the shares, with N holders, K and T.
    shape : tuple of int
        Rows and columns of a share.
    repetitions : int
        Number m of checks; an inconsistent dealing passes each with probability below 2/p.
    constant : bool
        Whether all K data points have the same array, as for a model; holders then check it.
    """

    code: LagrangeCode
    shape: tuple[int, int]
    repetitions: int
    constant: bool = False

    def encoded(self) -> bytes:
        """Bytes of all attributes; only equal forms give equal bytes."""
        return _encoded(self)

    @classmethod
    @functools.lru_cache(maxsize=64)
    def read(cls, encoded: bytes) -> Form:
        """Form from its bytes (inverse of `encoded`)."""
        numbers, points, shape, m, constant = wire.decode(encoded)
        (parties, segments, privacy, p), (alphas, betas) = numbers, points
        sizes = {"parties": parties, "segments": segments, "privacy": privacy}
        code = LagrangeCode(PrimeField(p), **sizes, alphas=alphas, betas=betas)
        return cls(code, tuple(shape), m, constant)


@functools.lru_cache(maxsize=256)
def _encoded(form: Form) -> bytes:
    code = form.code
    numbers = (code.parties, code.segments, code.privacy, code.field.modulus)
    points = (tuple(map(int, code.alphas)), tuple(map(int, code.betas)))
    return wire.encode((numbers, points, form.shape, form.repetitions, form.constant))


def label_of(form: Form, signer: int, kind: str, step: int, place: int) -> bytes:
    """Label of the Merkle leaf of holder `place`: public facts of the dealing except the run."""
    return wire.encode(("leaf", signer, kind, step, form.encoded(), place))


def name_of(form: Form, signer: int, kind: str, step: int) -> str:
    """Name under which a dealing's root determines its check vectors."""
    about = hashlib.sha256(form.encoded()).hexdigest()
    return f"dealing of {kind!r} by {signer} in step {step}, {about}"


@dataclass(frozen=True)
class Proof:
    """Payload parts that a holder receives beside its share.

    Attributes
    ----------
    blind : ndarray (m,)
        The holder's share of the blinding columns.
    values : ndarray (K + T, m)
        c at the points of the first K + T holders; equal for all holders.
    path : tuple of bytes
        Merkle path from the holder's leaf to the root.
    nonce : bytes
        32 random bytes, sent to this holder only; without a nonce, guesses of a share could be
        tested by the root.
    statement : Statement
        Statement signed by the dealer (`Dealt`). A dealing without a valid one is ignored.
    """

    blind: Array
    values: Array
    path: tuple[bytes, ...]
    nonce: bytes
    statement: Statement


def bits_of_soundness(form: Form) -> float:
    """Soundness in bits of theorem 1 for one hash query and H = N: -log2 C(N, K+T+1) (2/p)^m.

    Each doubling of hash queries and dealings takes one bit.
    """
    code = form.code
    sets = math.comb(code.parties, code.size + 1)
    if form.constant:
        sets = max(sets, math.comb(code.parties, code.size))
    return form.repetitions * (math.log2(code.field.modulus) - 1) - math.log2(max(1, sets))


def repetitions(code: LagrangeCode) -> int:
    """Smallest number m of checks that gives `BITS` bits of soundness (`bits_of_soundness`).

    Raises
    ------
    ConfigurationError
        If 64 repetitions are not enough, as for p below 31.
    """
    for m in range(1, 65):
        if bits_of_soundness(Form(code, (1, 1), m)) >= BITS:
            return m
    raise ConfigurationError(
        f"verifiable dealing: {BITS} bits of soundness need more than 64 checks at p = "
        f"{code.field.modulus}; take a larger prime"
    )


@dataclass(frozen=True)
class Dealt:
    """Content of a dealer's statement to a holder.

    Attributes
    ----------
    place : int
        Number j of the holder.
    leaf, path : bytes
        The holder's leaf, and the digest of its Merkle path. Without this digest a holder could
        alter the path and accuse the dealer.
    root, hashed : bytes
        Root and H(c), equal for all holders.
    before : bytes
        Hash chain of all earlier dealings of the dealer.
    """

    place: int
    leaf: bytes
    path: bytes
    root: bytes
    hashed: bytes
    before: bytes = NOTHING

    def encoded(self) -> bytes:
        """Bytes for the dealer's signature."""
        own = self.place, self.leaf, self.path, self.root, self.hashed, self.before
        return wire.encode((DEALING, *own))

    def is_beside(self, other: Dealt) -> bool:
        """Whether two statements go to two holders of one dealing: only leaves and paths differ."""
        return self.common == other.common and self.place != other.place

    @property
    def after(self) -> bytes:
        """Hash chain of all dealings up to this one, which the next dealing must name."""
        return digest("chain", self.before, digest("dealt", self.root, self.hashed))

    @property
    def common(self) -> tuple[bytes, bytes, bytes]:
        """Values that are equal in the dealer's statements to all holders: root, H(c) and chain."""
        return self.root, self.hashed, self.before

    @classmethod
    def read(cls, content: bytes) -> Dealt | None:
        """Statement from signed bytes; None for malformed bytes, which a dealer may sign."""
        try:
            found = wire.decode(content)
        except WireError:
            return None
        if not isinstance(found, tuple) or len(found) != 7 or found[0] != DEALING:
            return None
        place, *digests = found[1:]
        if type(place) is not int or not all(isinstance(one, bytes) for one in digests):
            return None
        return cls(place, *digests)


def is_signed(
    form: Form, keys: Mapping[int, bytes], subject: Subject, place: int, share: Array, proof: Proof
) -> bool:
    """Whether the dealer signed what holder `place` received; unsigned data do not count."""
    if proof.statement.subject != subject or not proof.statement.is_valid(keys):
        return False
    if not _is_formed(form, share, proof):
        return False
    dealt = Dealt.read(proof.statement.content)
    if dealt is None:
        return False
    leaf = leaf_of(form, subject, place, share, proof)
    hashed = hash_of(proof.values)
    own = Dealt(place, leaf, hash_of_path(proof.path), dealt.root, hashed, dealt.before)
    return dealt == own


def fault(form: Form, subject: Subject, place: int, share: Array, proof: Proof) -> str:
    """Sentence on a fault in a dealer's signed data for a holder; empty if there is none.

    Parameters
    ----------
    form, subject : Form, Subject
        Parameters of the dealing, and what the dealer's statement is about.
    place : int
        Number j of the holder.
    share : ndarray (rows, columns)
        The holder's share, field elements.
    proof : Proof
        Proof that `is_signed` accepts.
    """
    code, dealt = form.code, Dealt.read(proof.statement.content)
    leaf = leaf_of(form, subject, place, share, proof)
    root = root_of(leaf, place, proof.path, code.parties)
    if dealt is None or root != dealt.root:
        return "the share is not under the root that was signed"
    rows = challenge(form, coins_of(form, subject, root))
    return off_polynomial(
        form, place, code.field.add(checks(form, rows, share), proof.blind), proof.values
    )


def off_polynomial(form: Form, place: int, mine: Array, values: Array) -> str:
    """Sentence on a mismatch of a holder's <r_i, Gamma_j> + b_ij with c; empty if none.

    Parameters
    ----------
    form : Form
        Parameters of the dealing.
    place : int
        Number j of the holder.
    mine : ndarray (m,)
        <r_i, Gamma_j> + b_ij of the holder's share, i = 1 .. m, field elements.
    values : ndarray (K + T, m)
        c at the points of the first K + T holders, field elements.
    """
    code, field = form.code, form.code.field
    if (mine != field.matmul(_onto(code, (code.alphas[place],)), values)[0]).any():
        return "the share is not on the polynomial of the others"
    if form.constant:
        found = field.matmul(_onto(code, tuple(code.betas[: code.segments])), values)
        if (found != found[:1]).any():
            return "the data points hold different arrays"
    return ""


@functools.lru_cache(maxsize=1024)
def _onto(code: LagrangeCode, points: tuple[int, ...]) -> Array:
    """Matrix that maps c at the first K + T holders' points to its values at other points."""
    return interpolation_matrix(code.field, list(code.alphas[: code.size]), list(points))


def leaf_of(form: Form, subject: Subject, place: int, share: Array, proof: Proof) -> bytes:
    """Merkle leaf of a holder: HKDF-SHA256 of its nonce, with all other data as context."""
    label = label_of(form, subject.signer, subject.kind, subject.step, place)
    arrays = (np.ascontiguousarray(one).tobytes() for one in (share, proof.blind))
    return derive(proof.nonce, b"".join((len(label).to_bytes(8, "big"), label, *arrays)))


def coins_of(form: Form, subject: Subject, root: bytes) -> bytes:
    """32 challenge bytes determined by a root, equal to those of `Participant.coins`."""
    name = name_of(form, subject.signer, subject.kind, subject.step)
    return hashlib.sha256(len(name).to_bytes(8, "big") + name.encode() + root).digest()


def challenge(form: Form, coins: bytes) -> tuple[Array, Array]:
    """Random vectors a_i and b_i of the check matrices r_i = a_i (x) b_i.

    Returns
    -------
    ndarray (m, rows), ndarray (m, columns)
    """
    m, (rows, columns) = form.repetitions, form.shape
    drawn = _uniform(form.code.field, coins, m * (rows + columns))
    return drawn[: m * rows].reshape(m, rows), drawn[m * rows :].reshape(m, columns)


def _uniform(field: PrimeField, seed: bytes, count: int) -> Array:
    """Uniform field elements from SHAKE-256 of a seed, by rejection sampling."""
    p = field.modulus
    size = (p.bit_length() + 7) // 8
    mask, asked = (1 << p.bit_length()) - 1, count + 16
    while True:
        raw = np.frombuffer(hashlib.shake_256(seed).digest(size * asked), np.uint8)
        padded = np.zeros((asked, 8), np.uint8)
        padded[:, :size] = raw.reshape(asked, size)
        found = padded.view("<u8")[:, 0] & np.uint64(mask)
        found = found[found < p]
        if len(found) >= count:
            return found[:count].astype(field.dtype)
        asked *= 2


def checks(form: Form, rows: tuple[Array, Array], array: Any) -> Any:
    """Inner products <a_i (x) b_i, array> for all i, (m,), of an array or Element."""
    a, b = rows
    one = np.ones((b.shape[1], 1), form.code.field.dtype)
    if not isinstance(array, np.ndarray):
        return (((a @ array) * b) @ one)[:, 0]
    field = form.code.field
    return field.matmul(field.multiply(field.matmul(a, np.ascontiguousarray(array)), b), one)[:, 0]


def hash_of(values: Array) -> bytes:
    """Hash H(c) of the check values c."""
    return digest("values", np.ascontiguousarray(values).tobytes())


def hash_of_path(path: Sequence[bytes]) -> bytes:
    """Digest (32 bytes) of a Merkle path, its siblings in order."""
    return digest("path", *path)


def _is_formed(form: Form, share: Array, proof: Proof) -> bool:
    """Whether arrays hold elements of F_p in the shapes of the form."""
    field, code, m = form.code.field, form.code, form.repetitions
    shapes: Sequence[tuple[Array, tuple[int, ...]]] = (
        (share, form.shape),
        (proof.blind, (m,)),
        (proof.values, (code.size, m)),
    )
    return len(proof.nonce) == DIGEST and all(
        isinstance(one, np.ndarray)
        and one.shape == shape
        and one.dtype == field.dtype
        and int(one.max(initial=0)) < field.modulus
        for one, shape in shapes
    )
