"""Pseudo-random secret sharing: mask polynomials from keys, without messages in rounds.

Every block A of a design has a key k_A, which exactly the parties outside A hold. For a label the
party at alpha computes, alone, its value of

    rho(z) = sum_A prod_{a in A} (z - alpha_a) sum_{e < m - |A|} PRF(k_A, label, e) z^e,

for the factor of a key that it lacks is zero at its point. rho has m = T + u coefficients. Whatever
T parties C collude, nobody among them has the keys of the blocks that contain C, and the streams of
these keys make rho uniform on all polynomials of degree below m that vanish at alpha_C: that is
what a design must do, and `securevfl.field.designs` says how it does. With one key for each set of
T parties it is the sharing of R. Cramer, I. Damgard, Y. Ishai, "Share conversion, pseudorandom
secret-sharing and applications to secure computation", TCC 2005. Times P(z) = prod_{k<=K} (z -
beta_k) it is a packed sharing of zero: it masks results, and no value at a data point changes.

Where there would be too many keys, masks are dealt (`Prss.by_dealers`). Each of the parties 0 to T
is a dealer, and draws a polynomial rho_i below degree m of its own for every label; rho is their
sum. The first m parties S have a key of each dealer. rho_i(alpha_j) of j in S is prod_{a in S, a !=
j} (alpha_j - alpha_a) PRF(k_ij, label), and these m values fix rho_i: in the terms above k_ij has
one stream and the block S without j, but nobody holds it except i and j. A party outside S is sent
rho_i(alpha) by each dealer. One of T + 1 dealers is honest. Its rho_i is uniform on all polynomials
below degree m, of which T parties know T values.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from securevfl.errors import ConfigurationError
from securevfl.field.designs import Blocks, blocks_of, stream_count
from securevfl.field.lagrange_code import LagrangeCode
from securevfl.field.sampling import Keystream, fill_uniform

if TYPE_CHECKING:
    from securevfl.field.dispatch import PreparedMatrix

Array = NDArray[Any]

KEY = 32  # bytes of a key
_AT_ONCE = 1 << 20  # elements of streams that are at hand at a time
_DOMAIN = b"securevfl prss 1"


def mask_streams(code: LagrangeCode, degree: int) -> int:
    """Number u of coefficients of a mask P(z) rho(z) that T parties must not know.

    P(z) = prod_k (z - beta_k) vanishes at the data. For results of this degree in the shares, u =
    degree (K+T-1) - K - T + 1. One fewer leaves one coefficient of the results unhidden from the
    receiver with T parties; one more raises the recovery threshold.
    """
    return degree * (code.size - 1) - code.size + 1


@dataclass(frozen=True)
class Prss:
    """Keys of N parties, their holders, and what each party computes from its keys.

    Parameters
    ----------
    code : LagrangeCode
        N, T and the points of the parties.
    degree : int
        Lowest degree, in the shares, of a masked result. Its u determines the blocks, which suffice
        for every greater u.
    by_dealers : bool
        Whether T + 1 dealers send mask values to all but the first m parties, for results of this
        degree only. Otherwise every party computes its own values.

    Raises
    ------
    ConfigurationError
        Where a party would compute too many streams, or there would be too many keys.

    Examples
    --------
    >>> from securevfl.field import PrimeField
    >>> code = LagrangeCode(PrimeField(97), parties=5, segments=1, privacy=1)
    >>> prss = Prss(code, degree=3)
    >>> prss.blocks, prss.dealt(0), prss.sent(0, 3)
    (((0, 1), (0, 4), (1, 2), (2, 3), (3, 4)), (2, 3, 4), (2,))
    """

    code: LagrangeCode
    degree: int
    by_dealers: bool = False
    _streams: _Streams = field(
        default_factory=lambda: _Streams(), init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        _ = self.blocks  # refuses too many

    @cached_property
    def blocks(self) -> Blocks:
        """Blocks A of all keys, in order; a key's number is its position here."""
        unknown, T = mask_streams(self.code, self.degree), self.code.privacy
        if self.by_dealers:
            every = range(self.seeded)
            own = tuple(tuple(a for a in every if a != j) for j in every)
            return own * len(self.dealers)
        return blocks_of(self.code.parties, T, unknown)

    @property
    def dealers(self) -> range:
        """Parties that deal masks: the first T + 1; none unless `by_dealers`."""
        return range(self.code.privacy + 1 if self.by_dealers else 0)

    @property
    def seeded(self) -> int:
        """Number of parties that compute masks from keys: m if there are dealers, else all."""
        N, unknown = self.code.parties, mask_streams(self.code, self.degree)
        return min(N, self.code.privacy + unknown) if self.by_dealers else N

    @property
    def receivers(self) -> range:
        """Parties to which dealers send mask values; none unless `by_dealers`."""
        return range(self.seeded, self.code.parties)

    @cached_property
    def holders(self) -> tuple[frozenset[int], ...]:
        """Parties that hold each key: those outside its block, or its dealer i and party j."""
        if self.by_dealers:
            return tuple(frozenset((i, j)) for i in self.dealers for j in range(self.seeded))
        every = frozenset(range(self.code.parties))
        return tuple(every.difference(A) for A in self.blocks)

    @cached_property
    def _dealt(self) -> Mapping[int, tuple[int, ...]]:
        found: dict[int, list[int]] = {}
        for key in range(len(self.blocks)):
            found.setdefault(self.dealer(key), []).append(key)
        return {party: tuple(keys) for party, keys in found.items()}

    @cached_property
    def _held(self) -> dict[int, tuple[int, ...]]:
        return {}

    @cached_property
    def _dealers(self) -> tuple[int, ...]:
        keys = range(len(self.blocks))
        if self.by_dealers:
            return tuple(key // self.seeded for key in keys)
        return tuple(map(min, self.holders))

    def dealer(self, key: int) -> int:
        """Party that draws a key: dealer i, or the lowest party outside the block."""
        return self._dealers[key]

    def dealt(self, party: int) -> tuple[int, ...]:
        """Numbers of the keys that a party draws."""
        return self._dealt.get(party, ())

    def sent(self, dealer: int, receiver: int) -> tuple[int, ...]:
        """Numbers of the keys that a dealer sends to another party, which is to hold them."""
        keys = self.dealt(dealer) if dealer != receiver else ()
        return tuple(key for key in keys if receiver in self.holders[key])

    def received(self, party: int) -> dict[int, list[int]]:
        """Numbers of the keys that others send to a party, by dealer in ascending order."""
        found: dict[int, list[int]] = {}
        for key in self.held(party):
            if self._dealers[key] != party:
                found.setdefault(self._dealers[key], []).append(key)
        return dict(sorted(found.items()))

    def held(self, party: int) -> tuple[int, ...]:
        """Numbers of the keys that a party holds, ascending."""
        if party not in self._held:
            held = tuple(key for key, own in enumerate(self.holders) if party in own)
            self._held[party] = held
        return self._held[party]

    def streams(self, key: int, unknown: int) -> int:
        """Number of streams of a key: m - |A| with m = T + u."""
        return max(0, self.code.privacy + unknown - len(self.blocks[key]))

    def most_streams(self, unknown: int) -> int:
        """Return the most streams that a party computes for a label."""
        if self.by_dealers:
            return self.seeded
        return stream_count(self.blocks, self.code.parties, self.code.privacy, unknown)

    def weights(self, party: int, unknown: int) -> tuple[Array, ...]:
        """Factors of a party's streams in its rho(alpha): one array, (streams,), for each key.

        For a key of block A: prod_{a in A} (alpha - alpha_a) alpha^e, e < m - |A|, m = T + u.
        """
        return self._weights(party, unknown, self.held(party))

    def _weights(self, party: int, unknown: int, keys: Sequence[int]) -> tuple[Array, ...]:
        field, alphas = self.code.field, self.code.alphas
        alpha, p = alphas[party], field.modulus
        powers = [pow(alpha, e, p) for e in range(unknown + 1)]
        rows = []
        for key in keys:
            first = math.prod(alpha - alphas[a] for a in self.blocks[key])
            count = self.streams(key, unknown)
            rows.append(field.elements([first * power % p for power in powers[:count]]))
        return tuple(rows)

    def value(
        self,
        party: int,
        keys: Mapping[int, bytes],
        label: bytes,
        shape: tuple[int, ...],
        unknown: int,
    ) -> Array:
        """Mask value rho(alpha) of a party for a label.

        Parameters
        ----------
        party : int
            Number of the party, from 0.
        keys : mapping of int to bytes
            The keys that it holds, by their places in `blocks`.
        label : bytes
            All announcements of this use, including the batch: different announcements give masks
            on different polynomials. No label may be used for two different results.
        shape : tuple of int
            Shape of the masked result.
        unknown : int
            Number u; see `mask_streams`.

        Returns
        -------
        ndarray, `shape`

        Raises
        ------
        ConfigurationError
            If u is smaller than that of the blocks, which then leave too little unknown; or, with
            dealers, another u, or a party that is dealt its values.
        """
        least = mask_streams(self.code, self.degree)
        if unknown < least or (self.by_dealers and unknown > least):
            raise ConfigurationError(
                f"prss: blocks of results of degree {self.degree} hide u = {least} coefficients or "
                f"more, and u = {unknown} are to be hidden; dealt masks hide no more. Give the "
                "lowest degree that is masked"
            )
        if self.by_dealers:
            if party in self.receivers:
                raise ConfigurationError(f"prss: party {party} computes no mask, it is dealt them")
            held = {key: keys[key] for key in self.held(party) if party not in self.blocks[key]}
            return self.part(party, held, label, shape, unknown)
        found = self._streams.value(self, party, keys, label, math.prod(shape), unknown)
        if found is not None:
            return found.reshape(shape)
        held = {key: keys[key] for key in self.held(party)}
        return self.part(party, held, label, shape, unknown)

    def part(
        self,
        party: int,
        keys: Mapping[int, bytes],
        label: bytes,
        shape: tuple[int, ...],
        unknown: int,
    ) -> Array:
        """Part of a party's mask value rho(alpha), of `shape`, from some of its keys by number."""
        field, size = self.code.field, math.prod(shape)
        total = np.zeros((1, size), field.dtype)
        # rho(alpha) = sum_A w_A sum_e alpha^e PRF(k_A, label, e) is one row times a matrix of
        # streams.
        every = self._streams.weights(self, party, unknown)
        for some, drawn in self._drawn(sorted(keys), keys, label, size, unknown):
            row = np.concatenate([every[key] for key in some])
            total = field.add(total, field.matmul(row[None], drawn, trusted=True))
        return total.reshape(shape)

    def values(
        self, dealer: int, keys: Mapping[int, bytes], label: bytes, shape: tuple[int, ...]
    ) -> Array:
        """Mask values that a dealer sends to each of `receivers` for one use of the masks, a label.

        Arguments have the meaning and limits that `value` states; `shape` is that of one value.

        Returns
        -------
        ndarray, (N - m, *shape)
        """
        field = self.code.field
        drawn = np.empty((self.seeded, math.prod(shape)), field.dtype)
        for row, key in zip(drawn, self.dealt(dealer), strict=True):
            fill_stream(field.modulus, row, keys[key], label)
        return field.matmul(self.onto, drawn, trusted=True).reshape(-1, *shape)

    @cached_property
    def onto(self) -> Array:
        """Weights of a dealer's m = `seeded` streams in each mask value, (N - m, m).

        Row i is of `receivers[i]`, column k of the k-th key of `dealt`, for any dealer. Only with
        `by_dealers`.
        """
        unknown = mask_streams(self.code, self.degree)
        rows = (self._weights(j, unknown, range(self.seeded)) for j in self.receivers)
        return np.stack([np.concatenate(row) for row in rows])

    def _drawn(
        self, some: Sequence[int], keys: Mapping[int, bytes], label: bytes, size: int, unknown: int
    ) -> Iterator[tuple[list[int], Array]]:
        """Streams of some keys, (streams, size), in parts to bound memory."""
        some = [key for key in some if self.streams(key, unknown)]
        part: list[int] = []
        rows = 0
        for key in some:
            part.append(key)
            rows += self.streams(key, unknown)
            if rows * size < _AT_ONCE and key != some[-1]:
                continue
            drawn, start = np.empty((rows, size), self.code.field.dtype), 0
            for one in part:
                end = start + self.streams(one, unknown)
                fill_stream(self.code.field.modulus, drawn[start:end].reshape(-1), keys[one], label)
                start = end
            yield part, drawn
            part, rows = [], 0

    def mask(
        self, party: int, keys: Mapping[int, bytes], label: bytes, result: Array, degree: int
    ) -> Array:
        """Result of `degree` (in the shares), masked: result + P(alpha) rho(alpha) for `label`."""
        rho = self.value(party, keys, label, result.shape, mask_streams(self.code, degree))
        return self.add(party, result, rho)

    def add(self, party: int, result: Array, rho: Array) -> Array:
        """Masked result of a party: result + P(alpha) rho, P(z) = prod_k (z - beta_k).

        `rho`, the party's mask value, has the shape of `result`. FieldError where a number is no
        element.
        """
        field = self.code.field
        rows = [np.ascontiguousarray(each, field.dtype).reshape(1, -1) for each in (result, rho)]
        out = np.empty(rows[0].shape, field.dtype)
        if not self._streams.row(self.code, party).multiply(rows, out):
            for each in rows:
                field.elements(each, "Prss.add")
        return out.reshape(result.shape)


_LABELS = 8  # whose sums are kept: late parties ask for labels of earlier rounds


class _Sum:
    """Coefficients of the mask rho under one label, from the keys known so far.

    Attributes
    ----------
    rho, added : ndarray (m, elements), set of int
        Sum of the terms of keys, and the numbers of the keys that are in it.
    values : dict
        Values of the next parties, once rho is whole.
    """

    def __init__(self, shape: tuple[int, int], dtype: Any) -> None:
        self.rho: Array = np.zeros(shape, dtype)
        self.added: set[int] = set()
        self.values: dict[int, Array] = {}


class _Streams:
    """Cache of the mask's coefficients, so that parties in one process compute them once.

    All parties of a simulation are in one process: every stream is wanted by most of them. What one
    more key adds to rho vanishes at the parties that lack it, so the value of a party is right when
    its own keys are in. A party that was sent other keys than the others is left out, and so is
    one that is alone in its process: its value takes one row, and rho m.
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[bytes, int, int], _Sum] = {}  # the one used last is the last
        self._keys: dict[int, bytes] = {}  # that parties were sent
        self._parties: set[int] = set()  # that have asked
        self._weights: dict[tuple[int, int], Mapping[int, Array]] = {}  # by party and u
        self._tables: dict[int, tuple[list[Array], Array]] = {}  # by u
        self._rows: dict[int, PreparedMatrix] = {}  # by party
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
        unknown: int,
    ) -> Array | None:
        """Mask value rho(alpha) of a party, flat; None if the party must compute it alone."""
        own = {key: keys[key] for key in prss.held(party)}
        with self._lock:
            self._parties.add(party)
            if len(self._parties) == 1:
                return None
            new = not own.items() <= self._keys.items()
            others = new and any(self._keys.get(key, one) != one for key, one in own.items())
            of = label, size, unknown
            known = self._sums.pop(of, None)
            if known is None:
                if others:  # another run
                    self._keys, self._sums, others = {}, {}, False
                known = _Sum((prss.code.privacy + unknown, size), prss.code.field.dtype)
                while len(self._sums) >= _LABELS:
                    del self._sums[next(iter(self._sums))]
            self._sums[of] = known
            if others:
                return None
            self._keys |= own
            if party not in known.values:
                self._add(known, prss, label, size, unknown)
                self._evaluate(known, prss, party, size, unknown)
            return known.values.pop(party)

    def _add(self, known: _Sum, prss: Prss, label: bytes, size: int, unknown: int) -> None:
        """Add known keys' contributions to `known.rho`: rho for a label, `size` elements."""
        field, columns = prss.code.field, self._table(prss, unknown)[0]
        new = sorted(set(self._keys) - known.added)
        for some, drawn in prss._drawn(new, self._keys, label, size, unknown):
            onto = np.concatenate([columns[key] for key in some], axis=1)
            known.rho = field.add(known.rho, field.matmul(onto, drawn, trusted=True))
        known.added |= set(new)

    def _evaluate(self, known: _Sum, prss: Prss, party: int, size: int, unknown: int) -> None:
        """Compute a party's mask value; if rho is complete, also those of the next parties."""
        whole = len(known.added) == len(prss.blocks)
        end = min(prss.code.parties, party + (max(1, _AT_ONCE // size) if whole else 1))
        powers = self._table(prss, unknown)[1][party:end]
        values = prss.code.field.matmul(powers, known.rho, trusted=True)
        known.values = dict(zip(range(party, end), values, strict=True))

    def row(self, code: LagrangeCode, party: int) -> PreparedMatrix:
        """Row (1, P(alpha)) of a party, P = prod_k (z - beta_k), as a prepared left operand."""
        if party not in self._rows:
            from securevfl.field import dispatch

            row = code.field.elements([[1, int(code.vanishing[party])]])
            self._rows[party] = dispatch.prepare(code.field.modulus, row)
        return self._rows[party]

    def weights(self, prss: Prss, party: int, unknown: int) -> Mapping[int, Array]:
        """Coefficients of `Prss.weights` by key, cached."""
        if (party, unknown) not in self._weights:
            rows = zip(prss.held(party), prss.weights(party, unknown), strict=True)
            self._weights[party, unknown] = dict(rows)
        return self._weights[party, unknown]

    def _table(self, prss: Prss, unknown: int) -> tuple[list[Array], Array]:
        """Polynomials of each key's streams, (m, m - |A|), and powers of all alphas, (N, m)."""
        if unknown not in self._tables:
            code = prss.code
            products = _products(prss)
            columns = [
                _shifted(product[: len(A) + 1], prss.streams(key, unknown))
                for key, (A, product) in enumerate(zip(prss.blocks, products, strict=True))
            ]
            alphas = code.field.elements(list(code.alphas))
            powers = code.field.power(alphas[:, None], np.arange(code.privacy + unknown))
            self._tables[unknown] = columns, powers
        return self._tables[unknown]


def _products(prss: Prss) -> Array:
    """Coefficients of prod_{a in A} (z - alpha_a), a row for each block, lowest first.

    All blocks take a factor at a time: N blocks of u parties would be N u^2 steps of Python.
    """
    field, most = prss.code.field, max(map(len, prss.blocks), default=0)
    alphas = field.elements(list(prss.code.alphas))
    rows: Array = np.zeros((len(prss.blocks), most + 1), field.dtype)
    rows[:, 0] = 1
    for place in range(most):
        some = [number for number, A in enumerate(prss.blocks) if place < len(A)]
        roots = alphas[[prss.blocks[number][place] for number in some], None]
        old = rows[some, : place + 1]
        new = np.zeros((len(some), place + 2), rows.dtype)
        new[:, 1:] = old
        new[:, :-1] = field.subtract(new[:, :-1], field.multiply(roots, old))
        rows[some, : place + 2] = new
    return rows


def _shifted(product: Array, count: int) -> Array:
    """A polynomial's coefficients times z^e, e < count, one polynomial a column."""
    columns = np.zeros((len(product) - 1 + count, count), product.dtype)
    for e in range(count):
        columns[e : e + len(product), e] = product
    return columns


def draw_keys(prss: Prss, party: int, draw: Callable[[int], bytes]) -> dict[int, bytes]:
    """New keys of all blocks that a party deals; `draw(n)` returns n secret bytes."""
    return {key: draw(KEY) for key in prss.dealt(party)}


def fill_stream(modulus: int, out: Array, key: bytes, label: bytes) -> None:
    """Overwrite a flat array with the uniform elements determined by a key and a label.

    They are read by rejection from AES-256 in counter mode under HKDF-SHA256(key, label), on every
    processor alike.
    """
    fill_uniform(modulus, out, Keystream(derive(key, label), aes=True))


def derive(key: bytes, label: bytes) -> bytes:
    """Return 32 bytes of HKDF-SHA256 (RFC 5869) of a key, with the hash of the label as context."""
    context = _DOMAIN + hashlib.sha256(label).digest()
    extracted = hmac.digest(bytes(32), key, "sha256")
    return hmac.digest(extracted, context + b"\x01", "sha256")
