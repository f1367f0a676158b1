"""Kernels of the field, as formulas use them, held against other code at full size.

A formula computes a share by the code that made the share, so a fault of that code is in both. Each
result here is taken times a random vector r that the code does not know, exactly modulo p: shares
must have S r = L ([X; Z] r) with Lagrange coefficients in Python integers, masked results
(Y - psi) r = P(alpha) rho r with streams that are derived anew, and products s C r = (s A) (B r)
(Freivalds' check) with another random vector s. Their numbers are uniform below 2^32, so a wrong
number, wherever it is, escapes with probability at most ceil(2^32 / p) / 2^32, in a product twice
that. Quantised numbers are rounded again by numpy, all of them, and dL/dH is computed again by
torch, to the last bit: its low bits could hold anything.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from securevfl.audit.proof.linear_algebra import coefficients
from securevfl.field import FixedPoint, LagrangeCode, PrimeField
from securevfl.field.prss import Prss
from securevfl.models.split import Centre
from securevfl.verified import bare_of
from tests.oracles.known_answers import elements
from tests.oracles.pseudo_random import derived

_COLUMNS = 1 << 16  # below 2^32 times below 2^16, so many times, is below 2^64
_STREAMS = 256  # sums of streams that are kept
_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
_ALL = 32  # rounds of which every message is held against other code; then every second one


class OtherCode:
    """Comparison of results of the field's kernels with other code.

    Attributes
    ----------
    faults : list of str
        What was wrong since the list was emptied.
    watches : bool
        Whether the newest message was chosen to be held against other code.
    """

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.watches = False
        self._products: list[np.ndarray] = []  # while it watches
        self._masked_results: list[np.ndarray] = []  # of these
        self._chance = np.random.Generator(np.random.PCG64())  # of the operating system's entropy
        self._r = np.empty(0, np.uint32)
        self._streams: dict[tuple[bytes, bytes, int, int, int], list[int]] = {}
        self._inside = False

    @contextmanager
    def watching(self, round: int) -> Iterator[list[str]]:
        """Hold against other code what is computed meanwhile; gives the faults of that time.

        After some rounds it is done every second time, by chance: a run may have hundreds.
        It replaces methods of the library, so it is not for several threads.
        """
        self.faults, self._masked_results, self._products = [], [], []
        self.watches = round <= _ALL or not self._chance.integers(2)
        if not self.watches:
            yield self.faults
            return
        checks: tuple[tuple[Any, str, Callable[..., None]], ...] = (
            (LagrangeCode, "encode", self._encoded),
            (LagrangeCode, "encode_constant", self._encoded_constant),
            (LagrangeCode, "decode", self._decoded),
            (PrimeField, "matmul", self._product),
            (Prss, "mask", self._masked),
            (FixedPoint, "quantize", self._quantised),
        )
        steps = ("step", "gradients")
        made = [(owner, name, vars(owner)[name]) for owner, name, _ in checks]
        made += [(Centre, name, vars(Centre)[name]) for name in steps]
        for owner, name, check in checks:
            setattr(owner, name, self._checked(vars(owner)[name], check))
        for name in steps:
            setattr(Centre, name, self._step_checked(vars(Centre)[name]))
        try:
            yield self.faults
        finally:
            for owner, name, method in made:
                setattr(owner, name, method)

    def unmasked(self, sent: Any) -> str:
        """Fault of an upload that is no product with its mask, in words; empty for none.

        It is held against what was computed in the newest time of watching.
        """
        if any(np.array_equal(sent, one) for one in self._masked_results):
            return ""
        return "it is no product of shares to which its mask was added, by other code"

    def _checked(self, method: Callable[..., Any], check: Callable[..., None]) -> Any:
        """A method whose results are checked, but for those that it calls itself."""

        @functools.wraps(method)
        def checked(*args: Any, **options: Any) -> Any:
            if self._inside:
                return method(*args, **options)
            self._inside = True
            try:
                before = copy.deepcopy(options.get("rng"))  # as it is before it draws
                result = method(*args, **options)
                check(result, *args, **(options | ({"rng": before} if before else {})))
                return result
            finally:
                self._inside = False

        return checked

    def _step_checked(self, method: Callable[..., Any]) -> Any:
        """A step of the server's model whose dL/dH is compared with that of the loss."""

        @functools.wraps(method)
        def checked(centre: Centre, embedding: Any, samples: Any, labels: Any) -> Any:
            before = copy.copy(centre)
            before.network = copy.deepcopy(centre.network)
            wanted = gradient_of(before, embedding, samples, labels)
            result = method(centre, embedding, samples, labels)
            if wanted.tobytes() != np.ascontiguousarray(result[1]).tobytes():
                self.faults.append("dL/dH is not the gradient of the loss")
            return result

        return checked

    def _encoded(
        self, shares: np.ndarray, code: LagrangeCode, segments: Any, *, masks: Any = None, **_: Any
    ) -> None:
        self._shares(shares, code, np.asarray(segments), masks, lambda row: row)

    def _encoded_constant(
        self, shares: np.ndarray, code: LagrangeCode, value: Any, *, masks: Any = None, **_: Any
    ) -> None:
        K = code.segments
        self._shares(
            *(shares, code, np.asarray(value)[None], masks),
            lambda row: (sum(row[:K]), *row[K:]),
        )

    def _shares(
        self,
        shares: np.ndarray,
        code: LagrangeCode,
        data: np.ndarray,
        masks: Any,
        reduced: Callable[[tuple[int, ...]], Sequence[int]],
    ) -> None:
        if masks is None:  # what is drawn inside is computed again from its draws
            return
        rows = [self._sums(code, one) for one in (data, np.asarray(masks))]
        points = tuple(code.betas[: code.size])
        wanted = [
            _dot(reduced(coefficients(points, alpha, code.field.modulus)), [*rows[0], *rows[1]])
            for alpha in code.alphas
        ]
        self._ask(code, self._sums(code, shares), wanted, "shares are not the polynomial's values")

    def _decoded(
        self,
        values: np.ndarray,
        code: LagrangeCode,
        results: Any,
        parties: Sequence[int],
        degree: int | None = None,
        **_: Any,
    ) -> None:
        R = code.recovery_threshold(code.degree if degree is None else degree)
        points = tuple(code.alphas[n] for n in tuple(parties)[:R])
        rows, p = self._sums(code, np.asarray(results)[:R]), code.field.modulus
        wanted = [_dot(coefficients(points, b, p), rows) for b in code.betas[: code.segments]]
        self._ask(code, self._sums(code, values), wanted, "sums are not what the results decode to")

    def _sums(self, code: LagrangeCode, rows: np.ndarray) -> list[int]:
        flat = rows.reshape(len(rows), -1)
        return times(flat, self.vector(flat.shape[1]), code.field.modulus)

    def _product(self, c: Any, field: PrimeField, a: Any, b: Any, **_: Any) -> None:
        a, b, p = np.asarray(a), np.asarray(b), field.modulus
        if a.ndim != 2 or b.ndim != 2:
            return
        self._products.append(np.asarray(c))
        n = b.shape[1]
        r, s = self.vector(n), self.vector(n + len(a))[n:]  # independent
        found = _dot(s.tolist(), times(c, r, p))
        if (found - _dot(times(a.T, s, p), times(b, r, p))) % p:
            self.faults.append("a product is not what other code computes")

    def _masked(
        self,
        masked: np.ndarray,
        prss: Prss,
        party: int,
        keys: Mapping[int, bytes],
        label: bytes,
        result: np.ndarray,
        degree: int,
        **_: Any,
    ) -> None:
        if any(one is result for one in self._products):
            self._masked_results.append(masked)
        code, size = prss.code, masked.size
        p, alpha = code.field.modulus, code.alphas[party]
        unknown = degree * (code.size - 1) - code.size + 1
        rho = 0
        for place, A in enumerate(prss.blocks):
            if party in A:
                continue
            count = max(0, code.privacy + unknown - len(A))
            first = math.prod(alpha - code.alphas[a] for a in A)
            streams = self._stream(code.field, keys[place], label, count, size)
            rho += first * sum(one * pow(alpha, e, p) for e, one in enumerate(streams))
        P = math.prod(alpha - beta for beta in code.betas[: code.segments])
        added = masked.astype(np.uint64) + (np.uint64(p) - result.astype(np.uint64))
        found = self._sums(code, added.reshape(1, -1))
        self._ask(code, found, [P * rho], "a masked result is not the result and its mask")

    def _stream(
        self, field: PrimeField, key: bytes, label: bytes, count: int, size: int
    ) -> list[int]:
        """Streams of a key and a label times r, which are the same for all who hold the key."""
        place = bytes(key), label, count, size, field.modulus
        if place not in self._streams:
            seed = derived(bytes(key), label)
            drawn = elements(seed, field.modulus, field.dtype, count * size, aes=True)
            while len(self._streams) >= _STREAMS:
                del self._streams[next(iter(self._streams))]
            rows = drawn.reshape(count, size)
            self._streams[place] = times(rows, self.vector(size), field.modulus)
        return self._streams[place]

    def _quantised(
        self, found: np.ndarray, point: FixedPoint, x: Any, rng: Any = None, **_: Any
    ) -> None:
        if not np.array_equal(found, rounded(x, point.bits, point.field, rng)):
            self.faults.append("quantised numbers are not what other code rounds to")

    def _ask(
        self, code: LagrangeCode, found: Sequence[int], wanted: Sequence[int], words: str
    ) -> None:
        p = code.field.modulus
        if [one % p for one in found] != [one % p for one in wanted]:
            self.faults.append(f"{words}, by other code")

    def vector(self, size: int) -> np.ndarray:
        """First numbers of r; the same whenever they are asked for."""
        if size > self._r.size:
            more = self._chance.integers(0, 1 << 32, 2 * size - self._r.size, dtype=np.uint32)
            self._r = np.concatenate([self._r, more])
        return self._r[:size]


def times(matrix: np.ndarray, vector: np.ndarray, p: int) -> list[int]:
    """Return the product of a matrix and a vector of unsigned numbers, exactly modulo p.

    Words of 32 bits times words of 16 are summed in 64 bits, over columns of bounded number.

    Parameters
    ----------
    matrix : ndarray, (rows, columns), unsigned
    vector : ndarray, (columns,), unsigned
    p : int
    """
    short = p < 1 << 32  # then (p-1) + (p-1)^2 < 2^64
    number: Any = np.uint64 if short else int
    total = np.zeros(len(matrix), np.uint64 if short else object)
    for start in range(0, matrix.shape[1], _COLUMNS):
        part = slice(start, start + _COLUMNS)
        for high, half in enumerate(_words(matrix[:, part], 32)):
            for low, piece in enumerate(_words(vector[part], 16)):
                weight = number(pow(2, 32 * high + 16 * low, p))
                column = half @ piece
                total += ((column % number(p)) if short else column.astype(object)) * weight
                if short:  # whole numbers grow
                    total %= number(p)
    result: list[int] = (total % p).tolist()
    return result


def _words(array: np.ndarray, bits: int) -> list[np.ndarray]:
    """The numbers of an array in words of so many bits, the lowest first.

    Numbers of 32 or 64 bits, words of 16 or 32: large arrays are gone through no more than needed.
    """
    whole, own = array.astype(np.uint64, copy=False), 8 * array.dtype.itemsize
    if own <= bits:
        return [whole]
    mask, top = np.uint64((1 << bits) - 1), whole >> np.uint64(own - bits)
    middle = [(whole >> np.uint64(shift)) & mask for shift in range(bits, own - bits, bits)]
    return [whole & mask, *middle, top]


def _dot(row: Sequence[int], values: Sequence[int]) -> int:
    return sum(a * b for a, b in zip(row, values, strict=True))


def rounded(x: Any, bits: int, field: PrimeField, rng: np.random.Generator | None) -> np.ndarray:
    """Return phi(Round(2^bits x)): halves up, or up with the words of a generator."""
    scaled = np.asarray(x).astype(np.float64) * 2.0**bits  # exact, but for numbers near 2^1023
    whole = np.floor(scaled)
    rest = scaled - whole
    if rng is None:
        up = rest >= 0.5
    else:
        up = rng.integers(0, 1 << 32, rest.shape, dtype=np.uint32) < rest * 2.0**32
    signed = whole.astype(np.int64) + up
    result: np.ndarray = np.where(signed < 0, signed + field.modulus, signed).astype(field.dtype)
    return result


def own_layers(party: Any) -> str:
    """Layers of a server's network that are not torch's, in words; empty for none.

    What goes back through them is their own, and dL/dH is computed again through them.
    """
    for centre in (one for one in map(bare_of, vars(party).values()) if isinstance(one, Centre)):
        for name, layer in centre.network.named_modules():
            hooks = any(vars(layer).get(hook) for hook in _HOOKS)
            torchs = type(layer).__module__.startswith("torch.") and "forward" not in vars(layer)
            if hooks or not torchs:
                where = name or "itself"
                return (
                    f"the server's network has a layer of its own ({where}, "
                    f"{type(layer).__name__}), so dL/dH cannot be computed by other code"
                )
    return ""


def gradient_of(
    centre: Centre, embedding: np.ndarray, samples: np.ndarray, labels: np.ndarray
) -> np.ndarray:
    """dL/dH of a server model that is not stepped, (rows, h) float32, as torch computes it."""
    import torch
    from torch.nn import functional

    true = samples >= 0
    own = torch.from_numpy(np.ascontiguousarray(labels[samples[true]]))
    inputs = torch.from_numpy(np.ascontiguousarray(embedding[true], np.float32)).requires_grad_()
    with torch.random.fork_rng(devices=[]):  # a network may draw, and draws the same in the step
        scores = centre.network.train()(inputs)
    if centre.task == "multiclass" and centre.plain:
        loss = functional.cross_entropy(scores, own)
    else:
        loss = centre.weighted_loss(scores, own, labels)
    gradient = np.zeros(embedding.shape, np.float32)
    gradient[true] = torch.autograd.grad(loss, inputs)[0].numpy()
    return gradient
