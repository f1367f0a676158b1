"""Origin of masks: no transcript shows that a strong generator had a short seed.

One sampler makes every mask. `watch` logs its calls with source, bytes and a digest of the result;
`unexplained` finds draws on tapes that no secure call made, and `uneven` that somebody draws again
until the result pleases.
"""

from __future__ import annotations

import functools
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.audit.beside.known_answers import elements
from securevfl.audit.statistical import digest
from securevfl.audit.tapes import Tape

SEED_BYTES = 32
_WHOLE = 0.3  # of a coefficient from an integer; doubles are off by 0.22 at the largest values

_unwatched = False  # whether calls are none of a party's: `unwatched`


@dataclass(frozen=True)
class Call:
    """One call of the sampler.

    Attributes
    ----------
    source : str
        What the source says of itself.
    secure : bool
        Whether it is fit for masks.
    fresh : int
        Bytes that were drawn from the operating system during the call.
    nbytes : int
        Size of the result.
    digest : str
        SHA-256 of the result.
    decoding : bool
        Whether it is a weight with which decoding looks for wrong results, and no mask.
    prime : int
        The result is uniform on 0 to prime - 1.
    expanded : bool
        Whether the result is what those bytes give, computed by other code: one key, and elements
        of its keystream in full length.
    """

    source: str
    secure: bool
    fresh: int
    nbytes: int
    digest: str
    decoding: bool = False
    prime: int = 0
    expanded: bool = True


@dataclass
class Log:
    """All calls of the sampler while it was watched.

    Attributes
    ----------
    calls : list of Call
    keys : list of bytes
        What the operating system gave, in the order in which it was asked.
    sizes : Counter of int
        How often so many bytes were asked for by other means than `random.SystemRandom`, which asks
        again where a number is too large.
    encrypted : int
        Vectors that TenSEAL encrypted, each with chance of its own.
    rounded : int
        Those of them whose polynomials have no whole coefficients, so that encoding rounds them.
    """

    calls: list[Call] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list, repr=False)
    sizes: Counter[int] = field(default_factory=Counter)
    encrypted: int = 0
    rounded: int = 0

    @property
    def insecure(self) -> list[Call]:
        """Calls that drew no 32 fresh bytes from the operating system."""
        return [call for call in self.calls if not call.secure or call.fresh < SEED_BYTES]


@contextmanager
def watch(keep: Callable[[np.ndarray], object] | None = None) -> Iterator[Log]:
    """Log every call of the sampler of this process; not for several threads at once.

    `keep`, if given, is told a copy of each result.
    """
    from securevfl.field import error_correction, sampling

    sampler: Any = sampling
    decoder: Any = error_correction
    log, uniform, urandom = Log(), sampling.uniform, os.urandom
    project = decoder.project
    drawn, decoding = 0, False

    def counted(size: int) -> bytes:
        log.sizes[size] += not _unwatched
        return numbered(size)

    def numbered(size: int) -> bytes:
        nonlocal drawn
        if _unwatched:
            return urandom(size)
        drawn += size
        log.keys.append(urandom(size))
        return log.keys[-1]

    def logged(prime: int, dtype: Any, shape: Any, source: Any) -> np.ndarray:
        if _unwatched:
            made_again: np.ndarray = uniform(prime, dtype, shape, source)
            return made_again
        before, known = drawn, len(log.keys)
        result = uniform(prime, dtype, shape, source)
        used = sampling.SYSTEM if source is None else source
        made = digest([result])
        if keep is not None:
            keep(result.copy())
        fresh, nbytes = drawn - before, result.nbytes
        given = used.secure and _expands(log.keys[known:], prime, result)
        log.calls.append(Call(repr(used), used.secure, fresh, nbytes, made, decoding, prime, given))
        return result

    def projected(*arguments: Any) -> Any:
        nonlocal decoding
        decoding = True
        try:
            return project(*arguments)
        finally:
            decoding = False

    def encrypted(context: Any, vector: Any, scale: Any = None, *more: Any, **options: Any) -> Any:
        log.encrypted += not _unwatched
        log.rounded += not (_unwatched or whole_coefficients(vector, scale))
        return encrypt(context, vector, scale, *more, **options)

    numbers: Any = random  # of which SystemRandom makes its numbers
    theirs = numbers._urandom  # another one than `os.urandom`, where that has a stand-in already
    tenseal: Any = sys.modules.get("tenseal")  # of a protocol that was made
    encrypt: Any = getattr(tenseal, "ckks_vector", None)
    sampler.uniform, os.urandom, numbers._urandom = logged, counted, numbered
    decoder.project = projected
    if encrypt is not None:
        tenseal.ckks_vector = encrypted
    try:
        yield log
    finally:
        sampler.uniform, os.urandom, numbers._urandom = uniform, urandom, theirs
        decoder.project = project
        if encrypt is not None:
            tenseal.ckks_vector = encrypt


@functools.cache
def _places(n: int) -> list[int]:
    """Powers of 3 modulo 2n, as many as there are slots."""
    return [pow(3, j, 2 * n) for j in range(n // 2)]


def whole_coefficients(slots: Any, scale: float | None) -> bool:
    """Whether CKKS encodes slots at this scale without rounding, in all coefficients.

    Slot j of n / 2 is the value at zeta^(3^j) of a real polynomial of n coefficients, with zeta =
    exp(i pi / n); so coefficient k is the mean of 2 Re(slot_j zeta^(-k 3^j)) over n.
    """
    values = np.asarray(slots, np.float64).reshape(-1) * (scale or 1.0)
    n = 2 * values.size
    if n & (n - 1) or scale is None:
        return False  # another number of slots than the scheme has, or TenSEAL's own scale
    spectrum = np.zeros(2 * n)
    spectrum[_places(n)] = values
    coefficients = 2 * np.fft.fft(spectrum).real[:n] / n
    return bool(np.abs(coefficients - np.rint(coefficients)).max() < _WHOLE)


def _expands(keys: list[bytes], prime: int, result: np.ndarray) -> bool:
    """Whether a result is what one key gives, by the cipher of either kind of processor."""
    if len(keys) != 1:
        return False
    flat, key = result.reshape(-1), keys[0][:SEED_BYTES]
    return any(
        np.array_equal(elements(key, prime, flat.dtype, flat.size, aes=aes), flat)
        for aes in (True, False)
    )


@contextmanager
def unwatched() -> Iterator[None]:
    """Log no calls meanwhile: they repeat what a party did."""
    global _unwatched
    before, _unwatched = _unwatched, True
    try:
        yield
    finally:
        _unwatched = before


def unexplained(log: Log, tapes: Iterable[Tape], prime: int | None = None) -> Iterator[str]:
    """Draws of parties that are not the result of a secure call, each result used once.

    With a prime the result must be uniform below it, and not on less.
    """
    left: dict[str, int] = {}
    for call in log.calls:
        fresh = call.secure and call.fresh >= SEED_BYTES and call.expanded
        if fresh and prime in (None, call.prime):
            left[call.digest] = left.get(call.digest, 0) + 1
    for number, tape in enumerate(tapes):
        for place, name in enumerate(tape.every_digest()):
            if not left.get(name):
                yield f"draw {place} of tape {number}"
            else:
                left[name] -= 1


def unused(log: Log, tapes: Collection[Tape]) -> int:
    """Number of secure results that no party has on its tape, of the sizes that parties draw.

    Who draws again until a result pleases throws results away; the one that is left is fresh, and
    no longer uniform. Results of other sizes are not masks, and what decoding draws is none.
    """
    kept = {name for tape in tapes for name in tape.every_digest()}
    secure = [call for call in log.calls if call.secure and not call.decoding]
    sizes = {call.nbytes for call in secure if call.digest in kept}
    return sum(call.nbytes in sizes and call.digest not in kept for call in secure)


def uneven(first: Log, second: Log) -> str:
    """Two runs of equal parties that asked the operating system for different numbers of draws.

    Their draws differ, and what is asked for does not follow from them: unless somebody looks at a
    draw and takes another one. What is then left is fresh, but chosen, and can say something.
    """
    if first.sizes == second.sizes:
        return ""
    size = min(n for n in first.sizes | second.sizes if first.sizes[n] != second.sizes[n])
    return (
        f"two equal runs drew {size} bytes of the operating system {first.sizes[size]} and "
        f"{second.sizes[size]} times: what is drawn decides whether it is drawn again, so what is "
        "used may be chosen"
    )


def unexplained_keys(log: Log, drawn: Iterable[bytes]) -> Iterator[bytes]:
    """Keys that are not what 32 fresh bytes of the operating system give, each used once.

    A key is those bytes themselves, or the first ones of the keystream under them.
    """
    from securevfl.field.sampling import Keystream, has_aes_unit

    fresh: dict[bytes, int] = {}
    for key in log.keys:
        if len(key) >= SEED_BYTES:
            stream = np.empty(SEED_BYTES, np.uint8)
            Keystream(key[:SEED_BYTES], has_aes_unit()).fill(stream)
            for made in (key[:SEED_BYTES], stream.tobytes()):
                fresh[made] = fresh.get(made, 0) + 1
    for one in drawn:
        if not fresh.get(one):
            yield one
        else:
            fresh[one] -= 1
