"""Origin of masks: no transcript shows that a strong generator had a short seed.

One sampler makes every mask. `watch` logs its calls with source, bytes and a digest of the result,
and `unexplained` finds draws on tapes that no secure call made.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.audit.statistical import digest
from securevfl.audit.tapes import Tape

SEED_BYTES = 32


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
    """

    source: str
    secure: bool
    fresh: int
    nbytes: int
    digest: str
    decoding: bool = False
    prime: int = 0


@dataclass
class Log:
    """All calls of the sampler while it was watched.

    Attributes
    ----------
    calls : list of Call
    keys : list of bytes
        What the operating system gave, in the order in which it was asked.
    """

    calls: list[Call] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list, repr=False)

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

    def numbered(size: int) -> bytes:
        nonlocal drawn
        drawn += size
        log.keys.append(urandom(size))
        return log.keys[-1]

    def logged(prime: int, dtype: Any, shape: Any, source: Any) -> np.ndarray:
        before = drawn
        result = uniform(prime, dtype, shape, source)
        used = sampling.SYSTEM if source is None else source
        made = digest([result])
        if keep is not None:
            keep(result.copy())
        fresh, nbytes = drawn - before, result.nbytes
        log.calls.append(Call(repr(used), used.secure, fresh, nbytes, made, decoding, prime))
        return result

    def projected(*arguments: Any) -> Any:
        nonlocal decoding
        decoding = True
        try:
            return project(*arguments)
        finally:
            decoding = False

    numbers: Any = random  # of which SystemRandom makes its numbers
    theirs = numbers._urandom  # another one than `os.urandom`, where that has a stand-in already
    sampler.uniform, os.urandom, numbers._urandom = logged, numbered, numbered
    decoder.project = projected
    try:
        yield log
    finally:
        sampler.uniform, os.urandom, numbers._urandom = uniform, urandom, theirs
        decoder.project = project


def unexplained(log: Log, tapes: Iterable[Tape], prime: int | None = None) -> Iterator[str]:
    """Draws of parties that are not the result of a secure call, each result used once.

    With a prime the result must be uniform below it, and not on less.
    """
    left: dict[str, int] = {}
    for call in log.calls:
        fresh = call.secure and call.fresh >= SEED_BYTES
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
