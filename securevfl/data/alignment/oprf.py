"""Oblivious pseudo-random function of many identifiers, secure against malicious parties.

R (the receiver) ends with F(y) for each of its identifiers y and for no others; S (the sender) can
compute F of any identifier. From Pinkas, Rosulek, Trieu, Yanai, "PSI from PaXoS" (Eurocrypt 2020),
whose encoding of a set is here the random band of Bienstock, Patel, Seo, Yeo ("Near-optimal
oblivious key-value stores", USENIX Security 2023), over the transfers of Orru, Orsini, Scholl
("Actively secure 1-out-of-N OT extension", CT-RSA 2017; below OOS). With the code C of
`securevfl.field.binary`, [512, 76, 172], and a random oracle that gives each identifier x a value
H(x) of 76 bits, and a band v(x) of 128 bits from a random place on:

1. R solves <v(y), P> = H(y) for all its y: m rows P_j of 76 bits. 64 random rows follow them.
2. S has 512 secret bits s, and by base transfers one of two seeds for each; R has both. With the
   streams t0_i, t1_i of the seeds as columns R sends u_i = t0_i + t1_i + c_i, where row j of the
   c_i is C(P_j) (OOS, figure 3). S adds s_i u_i to its stream and has q_j = t_j + C(P_j) * s.
3. Check (OOS, figure 3, step 4): S sends random masks x_j of 64 bits, R answers, for each bit l,
   with the sums of t_j and of P_j over the rows that have it, plus random row l; S compares
   q^(l) + t^(l) = C(P^(l)) * s.
4. F(x) = hash(x, <v(x), q> + C(H(x)) * s), which for y in R's set is hash(y, <v(y), t>).

Bounds, for n_R and n_S identifiers:

- *There is no solution of 1*, and R must begin anew: at most 2^-52 for n_R <= 2^24 with
  m >= 1.25 n_R + 128 (`tests/data/alignment/test_oprf.py` computes the bound).
- *An x outside R's set has the value of R*: 2^-76 each, so 2^-52 for n_S <= 2^24. F has
  40 + 2 log2(n) bits, n the larger set, so that two values of different identifiers, of one set or
  of both, meet with probability 2^-40. It has 80 bits at least: S finds two identifiers of one
  value with 2^40 hashes, however small the sets are.
- *S learns of R's set*: nothing but n_R. u hides c by the stream whose seed S lacks; the sums of 3
  are hidden by random rows.
- *R learns F elsewhere*: unless <v(x), P> = H(x), F(x) hides 172 bits of s. An R that sends rows
  which are no words of C passes 3 only if it guesses the bits of s that these touch, 2^-c for c
  bits, and 172 - c stay (OOS, theorem 1). 64 sums let other errors through with 2^-64.
- *R of a larger set*: m rows can satisfy more than n_R equations if R searches for identifiers
  whose values fit. After 2^q evaluations of H it fits k identifiers with probability at most
  2^(76 m) (2^q e / k)^k 2^(-76 k). For n_R = 10^6 that is k <= 1.7 n_R for a list of 2^40
  identifiers, and 3.1 n_R for 2^64; for n_R = 10, 341 and 730. Without a search nearly m fit,
  1.25 n_R + 192 at most.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from securevfl.data.alignment.base_ot import both_seeds, choose, offer
from securevfl.data.preparation.cells import id_of
from securevfl.errors import RunError
from securevfl.field.binary import (
    BAND,
    CODE_BITS,
    CODE_LENGTH,
    add_selected,
    combine_rows,
    encode,
    solve_bands,
    transpose_bits,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

MOST = 1 << 24  # identifiers of a set: the bounds above hold up to here
SESSION = 32  # bytes
CHALLENGE = 16  # bytes: a key of AES-128
PROOF = 16  # bytes of a value beyond those that are compared
CHUNK = 1 << 18  # rows of a message: 16 MiB
OPENING = (64, CODE_LENGTH // 64 + 2)
_SLICE = 1 << 15  # identifiers whose values are computed at a time
_WORDS = CODE_LENGTH // 64
_TOP = np.uint64((1 << CODE_BITS - 64) - 1)  # of the second word of a value of H

Progress = Callable[[int], None]


def unknowns(size: int) -> int:
    """Number m of rows that encode a set of n: at least 1.25 n + 128, a multiple of 64."""
    return -(-(size + -(-size // 4) + BAND) // 64) * 64


def rows_sent(size: int) -> int:
    """Rows of the matrix sent for a set: its encoding, and 64 random rows that mask the check."""
    return unknowns(size) + 64


def value_bytes(receiver: int, sender: int) -> int:
    """Bytes of a compared value: 40 + 2 log2(max(set sizes)) bits, at least 80."""
    return max(10, (40 + 2 * max(receiver, sender).bit_length() + 7) // 8)


def work(receiver: int, sender: int) -> int:
    """Units of progress for so many identifiers a side: two for each, and for each matrix row."""
    return 2 * (receiver + rows_sent(receiver) + sender)


def work_of_receiver(size: int) -> int:
    """Units of progress of a receiver of `size` identifiers: two for each, and one for each row."""
    return 2 * size + rows_sent(size)


class Receiver:
    """Receiver of the oblivious PRF, with distinct identifiers; `whose` names the sender in errors.

    `context` names the purpose and both ends; the sender must use the same. Otherwise a party could
    relay messages between two links, and answer for a set that it does not have. `progress` is
    called with the units of work (`work_of_receiver`) done since its last call.
    """

    def __init__(
        self,
        identifiers: Sequence[str],
        whose: str,
        progress: Progress | None = None,
        context: bytes = b"",
    ):
        self._ids, self._whose, self._progress = identifiers, whose, progress or ignore
        self._told = os.urandom(SESSION)
        self._session = _bound(self._told, context)
        self._keys, self._offered = offer(CODE_LENGTH)
        self._t = np.empty((rows_sent(len(identifiers)), _WORDS), np.uint64)

    def hello(self) -> tuple[int, bytes, np.ndarray]:
        """The first message: number of identifiers, random session bytes, public keys (512, 65)."""
        return len(self._ids), self._told, self._offered

    def matrix(self, choices: np.ndarray) -> Iterator[np.ndarray]:
        """Masked columns u, uint64 (512, rows / 64) a chunk, in answer to the choices (512, 130).

        RunError if the choices are no points of the curve, or the equations have no solution.
        """
        seeds = both_seeds(self._session, self._keys, self._offered, choices, self._whose)
        self._hashed = hash_ids(self._ids, self._session, self._progress)
        self._p = self._encoding()
        zeros, ones = (_streams(half) for half in seeds)
        for at in range(0, len(self._t), CHUNK):
            part = self._p[at : at + CHUNK]
            t = _next_columns(zeros, len(part) // 64)
            self._t[at : at + CHUNK] = transpose_bits(t)
            yield t ^ _next_columns(ones, len(part) // 64) ^ transpose_bits(encode(part))
            self._progress(len(part))

    def opening(self, challenge: bytes) -> np.ndarray:
        """Answer to the sender's challenge: sums of t (words 0 to 7), P (8, 9), uint64 (64, 10)."""
        return np.concatenate([_summed(challenge, rows) for rows in (self._t, self._p)], axis=1)

    def values(self, size: int) -> np.ndarray:
        """PRF values of the own identifiers, uint8 (number of identifiers, size)."""
        starts = _starts(self._hashed, unknowns(len(self._ids)))
        parts = [
            _hash_rows(self._hashed[at], _combined(self._hashed[at], starts[at], self._t), size)
            for at in _slices(len(self._ids), self._progress)
        ]
        return _joined(parts, size)

    def _encoding(self) -> np.ndarray:
        """Encoding P, then 64 random rows, uint64 (m + 64, 2); RunError if there is no solution."""
        h, m = self._hashed, unknowns(len(self._ids))
        solved = solve_bands(_starts(h, m), h[:, 3:5], _oracle(h), m)
        if solved is None:
            raise RunError(
                "psi: the set has no encoding, which happens once in 2^52 sets; begin again"
            )
        hiding = np.frombuffer(os.urandom(16 * 64), np.uint64).reshape(64, 2)
        return np.concatenate([solved, hiding & np.array([~np.uint64(0), _TOP])])


class Sender:
    """Sender of the oblivious PRF; the arguments are those of `Receiver`, `whose` its name."""

    def __init__(
        self,
        identifiers: Sequence[str],
        whose: str,
        progress: Progress | None = None,
        context: bytes = b"",
    ):
        self._ids, self._whose, self._progress = identifiers, whose, progress or ignore
        self._context = context

    def choices(self, size: int, told: bytes, offered: np.ndarray) -> np.ndarray:
        """Answer, uint8 (512, 130), to `Receiver.hello`; RunError for a key that is no point."""
        self._m, self._session = unknowns(size), _bound(told, self._context)
        secret = np.frombuffer(os.urandom(CODE_LENGTH // 8), np.uint64)
        bits = np.unpackbits(secret.view(np.uint8), bitorder="little")
        seeds, message = choose(self._session, offered, bits, self._whose)
        self._s, self._chosen = secret, np.where(bits, ~np.uint64(0), np.uint64(0))
        self._streams = _streams(seeds)
        self._q = np.empty((rows_sent(size), _WORDS), np.uint64)
        return message

    def part_shapes(self) -> list[tuple[int, int]]:
        """Shapes, (512, rows / 64), of the chunks of the receiver's matrix in order."""
        rows = len(self._q)
        return [(CODE_LENGTH, min(CHUNK, rows - at) // 64) for at in range(0, rows, CHUNK)]

    def take(self, number: int, u: np.ndarray) -> None:
        """Store chunk `number` (from 0, in order) of the receiver's matrix, uint64 (512, words)."""
        q = _next_columns(self._streams, u.shape[1]) ^ (u & self._chosen[:, None])
        self._q[number * CHUNK :][: 64 * u.shape[1]] = transpose_bits(q)
        self._progress(64 * u.shape[1])

    def challenge(self) -> bytes:
        """Fresh random seed of the check, sent after the receiver's whole matrix has arrived."""
        self._challenge = os.urandom(CHALLENGE)
        return self._challenge

    def check(self, opening: np.ndarray) -> None:
        """Raise RunError unless the rows of the receiver's matrix encode a set."""
        t, p = opening[:, :_WORDS], opening[:, _WORDS:]
        if not np.array_equal(_summed(self._challenge, self._q) ^ t, encode(p) & self._s):
            raise RunError(
                f"psi: {self._whose} sent a matrix that encodes no set, or it was changed on its "
                "way; do not go on with it"
            )

    def values(self, size: int) -> np.ndarray:
        """PRF values of the own identifiers, uint8 (number of identifiers, size)."""
        parts = []
        hashed = hash_ids(self._ids, self._session, self._progress)
        starts = _starts(hashed, self._m)
        for at in _slices(len(self._ids), self._progress):
            words = encode(_oracle(hashed[at])) & self._s
            rows = _combined(hashed[at], starts[at], self._q) ^ words
            parts.append(_hash_rows(hashed[at], rows, size))
        return _joined(parts, size)


def _bound(told: bytes, context: bytes) -> bytes:
    """Session key of fixed length from the receiver's random bytes and the caller's context."""
    return hashlib.sha256(b"securevfl psi 2 session" + told + context).digest()


def hash_ids(identifiers: Sequence[str], session: bytes, progress: Progress) -> np.ndarray:
    """Hashes of identifiers under a session's key, uint64 (n, 8).

    Texts that differ only in Unicode normalisation (NFC) are one identifier. Words 0 and 1 give
    H(x), word 2 gives the first unknown of its equation, words 3 and 4 its coefficients (a band of
    128 bits); all eight are hashed into its value. `session` is a key of at most 64 bytes.
    `progress` is called with the number of identifiers hashed since its last call.
    """
    found = np.empty((len(identifiers), 8), np.uint64)
    for at in _slices(len(identifiers), progress):
        digests = [
            hashlib.blake2b(id_of(one).encode(), key=session, person=b"securevfl psi id").digest()
            for one in identifiers[at]
        ]
        found[at] = np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 8)
    return found


def _oracle(hashed: np.ndarray) -> np.ndarray:
    """Hash H(x) of each identifier, 76 bits in two words, from its longer hash."""
    found: np.ndarray = hashed[:, :2] & np.array([~np.uint64(0), _TOP])
    return found


def _starts(hashed: np.ndarray, m: int) -> np.ndarray:
    """First unknown of each identifier's band, 0 to m - 128; within m / 2^64 of uniform."""
    return (hashed[:, 2] % np.uint64(m - BAND + 1)).astype(np.int64)


def _combined(hashed: np.ndarray, starts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return combine_rows(starts, hashed[:, 3:5], rows)


def _hash_rows(hashed: np.ndarray, rows: np.ndarray, size: int) -> bytes:
    """Values of n identifiers, `size` bytes each: hashes of `hashed` and `rows`, uint64 (n, _)."""
    width = 8 * (hashed.shape[1] + rows.shape[1])
    data = np.concatenate([hashed, rows], axis=1).tobytes()
    return b"".join(
        hashlib.blake2b(data[at : at + width], digest_size=size, person=b"psi value").digest()
        for at in range(0, len(data), width)
    )


def _joined(parts: list[bytes], size: int) -> np.ndarray:
    return np.frombuffer(b"".join(parts), np.uint8).reshape(-1, size)


def _slices(count: int, progress: Progress) -> Iterator[slice]:
    for at in range(0, count, _SLICE):
        yield slice(at, at + _SLICE)
        progress(min(_SLICE, count - at))


def _streams(seeds: np.ndarray) -> list[CipherContext]:
    """AES-128 key streams in counter mode, one a seed; each continues where its last use ended.

    They begin at different counters, so that a key search cannot attack all streams at once.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    nonces = (modes.CTR(struct.pack(">QQ", i, 0)) for i in range(len(seeds)))
    return [
        Cipher(algorithms.AES(seed.tobytes()), nonce).encryptor()
        for seed, nonce in zip(seeds, nonces, strict=True)
    ]


def _next_columns(streams: list[CipherContext], words: int) -> np.ndarray:
    """The next words of each stream, uint64 (streams, words)."""
    zeros = bytes(8 * words)
    told = b"".join(stream.update(zeros) for stream in streams)
    return np.frombuffer(told, np.uint64).reshape(len(streams), words)


def _summed(challenge: bytes, rows: np.ndarray) -> np.ndarray:
    """The 64 check sums: rows chosen by a challenge's masks, plus one further row each."""
    (stream,) = _streams(np.frombuffer(challenge, np.uint8)[None])
    masks = _next_columns([stream], len(rows) - 64)[0]
    summed: np.ndarray = add_selected(masks, rows[:-64]) ^ rows[-64:]
    return summed


def ignore(*steps: int) -> None:
    """Progress callback that does nothing."""
