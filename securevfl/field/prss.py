"""Pseudo-random secret sharing: polynomials that masks come from without a message a round.

Every set A of T parties has a key k_A, which exactly the parties outside A hold. For a label the
party at alpha computes, alone, its value of

    rho(z) = sum_A prod_{a in A} (z - alpha_a) sum_{e < u} PRF(k_A, label, e) z^e,

for the factor of a key that it lacks is zero at its point. Whatever T parties C collude, nobody
among them has k_C, and the streams of that key make rho uniform on all polynomials of degree below
T + u that vanish at alpha_C (R. Cramer, I. Damgard, Y. Ishai, "Share conversion, pseudorandom
secret-sharing and applications to secure computation", TCC 2005). Times P(z) = prod_{k<=K} (z -
beta_k) it is a packed sharing of zero: it masks results, and no value at a data point changes.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from securevfl.errors import ConfigurationError
from securevfl.field.lagrange_code import LagrangeCode
from securevfl.field.sampling import Keystream, fill_uniform

Array = NDArray[Any]

KEY = 32  # bytes of a key
MOST_KEYS = 512
_AT_ONCE = 1 << 20  # elements of streams that are at hand at a time
_DOMAIN = b"securevfl prss 1"


def mask_streams(code: LagrangeCode, degree: int) -> int:
    """Return u for masks P rho of results of a degree in the shares: degree (K+T-1) - K - T + 1.

    One stream fewer leaves one coefficient of the results unhidden from the receiver with T
    parties; one more raises the recovery threshold.
    """
    return degree * (code.size - 1) - code.size + 1


def opening_streams(code: LagrangeCode, degree: int) -> int:
    """Return u for masks Q, which do not vanish at data points: degree (K+T-1) - T + 1."""
    return degree * (code.size - 1) - code.privacy + 1


@dataclass(frozen=True)
class Prss:
    """The keys of N parties, who holds which, and what a party computes from its own.

    Parameters
    ----------
    code : LagrangeCode
        N, T and the points of the parties.

    Raises
    ------
    ConfigurationError
        Where C(N, T) exceeds 512 keys.

    Examples
    --------
    >>> from securevfl.field import PrimeField
    >>> prss = Prss(LagrangeCode(PrimeField(97), parties=4, segments=1, privacy=1))
    >>> prss.subsets, prss.dealt(0), prss.sent(0, 2)
    (((0,), (1,), (2,), (3,)), (1, 2, 3), (1, 3))
    """

    code: LagrangeCode
    _streams: _Streams = field(
        default_factory=lambda: _Streams(), init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        N, T = self.code.parties, self.code.privacy
        keys, own = math.comb(N, T), math.comb(N - 1, T)
        if keys > MOST_KEYS:
            raise ConfigurationError(
                f"prss: N = {N} parties and T = {T} need C(N,T) = {keys} keys, and at most "
                f"{MOST_KEYS} are allowed: for every label each party would compute C(N-1,T) u = "
                f"{own} u streams as large as what it masks. Lower privacy or the number of "
                "parties"
            )

    @cached_property
    def subsets(self) -> tuple[tuple[int, ...], ...]:
        """All sets A of T parties, in order; a key goes by its place here."""
        return tuple(combinations(range(self.code.parties), self.code.privacy))

    def dealer(self, key: int) -> int:
        """Return the party that draws a key: the lowest outside A."""
        return next(n for n in range(self.code.parties) if n not in self.subsets[key])

    def dealt(self, party: int) -> tuple[int, ...]:
        """Return the keys that a party draws."""
        return tuple(key for key in range(len(self.subsets)) if self.dealer(key) == party)

    def sent(self, dealer: int, receiver: int) -> tuple[int, ...]:
        """Return the keys that a dealer sends to another party; none of a set with that party."""
        keys = self.dealt(dealer) if dealer != receiver else ()
        return tuple(key for key in keys if receiver not in self.subsets[key])

    def held(self, party: int) -> tuple[int, ...]:
        """Return the keys that a party holds: those of sets without it."""
        return tuple(key for key, A in enumerate(self.subsets) if party not in A)

    def weights(self, party: int, streams: int) -> Array:
        """Return the coefficients of a party's streams in rho(alpha), (keys held, u).

        Row i, column e is prod_{a in A} (alpha - alpha_a) alpha^e, with A the i-th key of `held`.
        """
        field = self.code.field
        alpha = self.code.alphas[party]
        factors = [
            math.prod(alpha - self.code.alphas[a] for a in self.subsets[key])
            for key in self.held(party)
        ]
        powers = field.power(field.elements([alpha]), np.arange(streams))
        return field.multiply(field.reduce(np.array(factors, object))[:, None], powers)

    def value(
        self,
        party: int,
        keys: Mapping[int, bytes],
        label: bytes,
        shape: tuple[int, ...],
        streams: int,
    ) -> Array:
        """Return rho(alpha) of a party for a label.

        Parameters
        ----------
        party : int
        keys : mapping of int to bytes
            The keys that it holds, by their places in `subsets`.
        label : bytes
            All that the parties were told of this use, the batch among it: parties that were told
            different things compute masks that do not fit together. No label may be used for two
            different results.
        shape : tuple of int
        streams : int
            u; see `mask_streams` and `opening_streams`.

        Returns
        -------
        ndarray, `shape`
        """
        field, size = self.code.field, math.prod(shape)
        if len(self.subsets) * streams * size <= _AT_ONCE:
            found = self._streams.value(self, party, keys, label, size, streams)
            if found is not None:
                return found.reshape(shape)
        weights, held = self.weights(party, streams), self.held(party)
        total = np.zeros((1, size), field.dtype)
        step = max(1, _AT_ONCE // max(1, streams * size))
        # rho(alpha) = sum_A w_A sum_e alpha^e PRF(k_A, label, e) is one row times a matrix of
        # streams; keys are taken in parts, so that memory does not grow with C(N-1, T).
        for start in range(0, len(held), step):
            some = held[start : start + step]
            drawn = np.empty((len(some), streams * size), field.dtype)
            for row, key in zip(drawn, some, strict=True):
                fill_stream(field.modulus, row, keys[key], label)
            row = weights[start : start + step].reshape(1, -1)
            part = field.matmul(row, drawn.reshape(-1, size), trusted=True)
            total = field.add(total, part)
        return total.reshape(shape)

    def mask(
        self, party: int, keys: Mapping[int, bytes], label: bytes, result: Array, degree: int
    ) -> Array:
        """Return result + P(alpha) rho(alpha), for a result of a degree in the shares."""
        streams = mask_streams(self.code, degree)
        rho = self.value(party, keys, label, result.shape, streams)
        return self.code.field.add(
            result, self.code.field.multiply(self.code.vanishing[party], rho)
        )


class _Streams:
    """Streams of all keys under the newest label, which parties in one process compute once.

    All parties of a simulation are in one process: every stream is wanted by N - T of them, and one
    product gives the values of all. A party that was sent other keys than the others is left out.
    """

    def __init__(self) -> None:
        self._of: tuple[bytes, int, int] | None = None
        self._rows: Array = np.empty((0, 0))
        self._keys: dict[int, bytes] = {}  # of the rows that are filled
        self._values: Array | None = None  # of all parties, once all rows are filled
        self._weights: dict[int, Array] = {}  # of all parties, by u
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[_Streams], tuple[()]]:
        return _Streams, ()  # a copy, or one in another process, begins empty

    def value(
        self,
        prss: Prss,
        party: int,
        keys: Mapping[int, bytes],
        label: bytes,
        size: int,
        streams: int,
    ) -> Array | None:
        """Return rho(alpha) of a party, flat; None where its keys are others than those here."""
        field, held = prss.code.field, prss.held(party)
        with self._lock:
            if self._of != (label, size, streams):
                self._of, self._keys, self._values = (label, size, streams), {}, None
                self._rows = np.zeros((len(prss.subsets), streams * size), field.dtype)
            if any(self._keys.get(key, keys[key]) != keys[key] for key in held):
                return None
            for key in set(held) - set(self._keys):
                fill_stream(field.modulus, self._rows[key], keys[key], label)
                self._keys[key] = keys[key]
            weights, rows = self._all_weights(prss, streams), self._rows.reshape(-1, size)
            if len(self._keys) < len(prss.subsets):
                return field.matmul(weights[party][None], rows, trusted=True)
            if self._values is None:
                self._values = field.matmul(weights, rows, trusted=True)
            value: Array = self._values[party].copy()
            return value

    def _all_weights(self, prss: Prss, streams: int) -> Array:
        """Weights of the streams of all keys, (N, keys u); 0 where a party lacks the key."""
        if streams not in self._weights:
            N = prss.code.parties
            every = np.zeros((N, len(prss.subsets), streams), prss.code.field.dtype)
            for party in range(N):
                every[party, list(prss.held(party))] = prss.weights(party, streams)
            self._weights[streams] = every.reshape(N, -1)
        return self._weights[streams]


def draw_keys(prss: Prss, party: int, draw: Callable[[int], bytes]) -> dict[int, bytes]:
    """Return new keys of all sets whose dealer a party is; `draw(n)` gives n secret bytes."""
    return {key: draw(KEY) for key in prss.dealt(party)}


def fill_stream(modulus: int, out: Array, key: bytes, label: bytes) -> None:
    """Overwrite a flat array with the uniform elements that a key and a label stand for.

    They are read by rejection from AES-256 in counter mode under HKDF-SHA256(key, label), on every
    processor alike.
    """
    fill_uniform(modulus, out, Keystream(derive(key, label), aes=True))


def derive(key: bytes, label: bytes) -> bytes:
    """Return 32 bytes of HKDF-SHA256 (RFC 5869) of a key, with the hash of the label as context."""
    context = _DOMAIN + hashlib.sha256(label).digest()
    extracted = hmac.digest(bytes(32), key, "sha256")
    return hmac.digest(extracted, context + b"\x01", "sha256")
