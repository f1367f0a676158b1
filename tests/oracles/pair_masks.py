"""Uploads that seeds hide, and shares of these seeds, computed by other code.

Formulas expand seeds by the protocol's own function, so a stream of few bits is in both. Here an
upload is computed from what clients drew: x_u, the stream of b_u, and those of s_{u,v}, by X25519
and HKDF-SHA256 as Bonawitz et al. (CCS 2017, Figure 4) are followed by the library. Masks of shares
are solved for, and looked for among all streams of the run's keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from securevfl.audit.proof.linear_algebra import coefficients
from securevfl.engine import wire
from securevfl.field import LagrangeCode
from securevfl.protocols.base.hidden_sums import PairMasked
from securevfl.protocols.base.messages import MessageKey, RunSecrets
from tests.oracles.known_answers import derived_key, elements

_PAIR = "securevfl secagg pair 1"
_STREAMS = 512  # of pairs of a round, which are kept for the other one
_NOT_FOUND = "{} of {} masks of shares of seeds are no stream of a fresh key of their own"


class PairMasks:
    """Uploads of a run, computed anew.

    Parameters
    ----------
    protocol : PairMasked
    """

    def __init__(self, protocol: PairMasked) -> None:
        self._protocol, self._field = protocol, protocol.sharing.field
        self._round, self._streams = -1, dict[tuple[int, ...], np.ndarray]()
        self._public: dict[bytes, bytes] = {}

    def fault(self, run: RunSecrets, key: MessageKey, upload: np.ndarray) -> str:
        """Fault of an upload, in words; empty if it is what other code computes."""
        p = np.uint64(self._field.modulus)
        if key.round != self._round:
            self._round = key.round
            self._streams.clear()
            self._public.clear()
        parts = self._protocol.upload_parts(run, key)
        total = (parts.value.astype(np.uint64) + self._stream(parts.seed, upload.shape)) % p
        for v in sorted(set(parts.secrets) - {key.sender}):
            u = key.sender
            mask = self._shared((min(u, v), max(u, v)), parts.secrets, upload.shape)
            total = (total + (mask if v < u else p - mask)) % p
        same = np.array_equal(total, upload.astype(np.uint64))
        return "" if same else "an upload is not its value and the streams of its seeds"

    def _shared(self, pair: tuple[int, int], secrets: Any, shape: tuple[int, ...]) -> np.ndarray:
        """PRG(s_{u,v})."""
        place = (*pair, *shape)
        if place not in self._streams:
            if len(self._streams) >= _STREAMS:
                del self._streams[next(iter(self._streams))]
            self._streams[place] = self._stream(self._agreed(pair, secrets), shape)
        return self._streams[place]

    def _agreed(self, pair: tuple[int, int], secrets: Any) -> bytes:
        """s_{u,v}, from both secrets."""
        from cryptography.hazmat.primitives.asymmetric import x25519

        u, v = pair
        keys = [(n, self._public_of(secrets[n])) for n in pair]
        own = x25519.X25519PrivateKey.from_private_bytes(secrets[u])
        shared = own.exchange(x25519.X25519PublicKey.from_public_bytes(dict(keys)[v]))
        return derived_key(shared, wire.encode((_PAIR, self._round, keys)))

    def _public_of(self, secret: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric import x25519

        if secret not in self._public:
            own = x25519.X25519PrivateKey.from_private_bytes(secret)
            self._public[secret] = own.public_key().public_bytes_raw()
        return self._public[secret]

    def _stream(self, seed: bytes, shape: tuple[int, ...]) -> np.ndarray:
        dtype, size = self._field.dtype, int(np.prod(shape))
        drawn = elements(seed, self._field.modulus, dtype, size, aes=True)
        return drawn.astype(np.uint64).reshape(shape)


def faults_of_shares(
    protocol: PairMasked, run: RunSecrets, rounds: Sequence[int], keys: Sequence[bytes]
) -> Iterator[str]:
    """Faults of the masks of all shares of seeds that clients dealt in a run.

    Parameters
    ----------
    protocol : PairMasked
    run : RunSecrets
    rounds : sequence of int
    keys : sequence of bytes
        What the operating system gave in the run.
    """
    code, number, strange = protocol.sharing, 0, 0
    fresh: set[bytes] = set()
    for round in rounds:
        for client in protocol.peers():
            dealt = protocol.dealt(run, client, round)
            if dealt is None:
                continue
            rows = masks_of(code, *dealt)
            if not number:
                fresh = set(_streams_of(code, keys, rows.shape[1]))
            for row in rows:
                number += 1
                strange += row.tobytes() not in fresh
                fresh.discard(row.tobytes())
    if strange or not number:
        yield _NOT_FOUND.format(strange, number)


def masks_of(code: LagrangeCode, values: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Masks of a polynomial with these values, from its first t - 1 shares: (t - 1, limbs)."""
    least, p = code.privacy, code.field.modulus
    points = (code.betas[0], *code.alphas[:least])
    known = [[int(one) for one in row] for row in (values, *shares[:least])]
    return np.array(
        [
            [
                sum(a * b for a, b in zip(weights, column, strict=True)) % p
                for column in zip(*known, strict=True)
            ]
            for weights in (coefficients(points, beta, p) for beta in code.betas[1 : code.size])
        ],
        code.field.dtype,
    ).reshape(least, -1)


def _streams_of(code: LagrangeCode, keys: Sequence[bytes], size: int) -> Iterator[bytes]:
    """First elements of the streams of keys, by the cipher of either kind of processor."""
    for key in keys:
        if len(key) >= 32:
            for aes in (True, False):
                dtype = code.field.dtype
                yield elements(key[:32], code.field.modulus, dtype, size, aes=aes).tobytes()
