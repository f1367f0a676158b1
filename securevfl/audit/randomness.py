"""Origin of masks: whether a strong generator had a short seed, which no transcript shows.

One sampler makes every mask. `watch` logs its calls with source, bytes and a digest of the result,
and `unexplained` finds draws on tapes that no secure call made.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.audit.statistical import digest
from securevfl.audit.tapes import Tape

SEED_BYTES = 32


@dataclass(frozen=True)
class Call:
    """One call of the random sampler.

    Attributes
    ----------
    source : str
        Description by the source itself.
    secure : bool
        Whether the source is fit for masks.
    fresh : int
        Bytes that were drawn from the operating system during the call.
    nbytes : int
        Size of the result.
    digest : str
        SHA-256 of the result.
    prime : int
        Size of the result's range: it is uniform on 0 to prime - 1.
    """

    source: str
    secure: bool
    fresh: int
    nbytes: int
    digest: str
    prime: int = 0


@dataclass
class Log:
    """All calls of the random sampler while it was watched.

    Attributes
    ----------
    calls : list of Call
        Calls in their order.
    keys : list of bytes
        Bytes from the operating system, in the order of the calls.
    """

    calls: list[Call] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list, repr=False)


@contextmanager
def watch(keep: Callable[[np.ndarray], object] | None = None) -> Iterator[Log]:
    """Context manager: log every sampler call of this process, which must have one thread.

    `keep`, if given, is called with a copy of each result.
    """
    from securevfl.field import sampling

    sampler: Any = sampling
    log, uniform, urandom = Log(), sampling.uniform, os.urandom
    drawn = 0

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
        log.calls.append(Call(repr(used), used.secure, fresh, nbytes, made, prime))
        return result

    numbers: Any = random  # of which SystemRandom makes its numbers
    theirs = numbers._urandom  # another one than `os.urandom`, where that has a stand-in already
    sampler.uniform, os.urandom, numbers._urandom = logged, numbered, numbered
    try:
        yield log
    finally:
        sampler.uniform, os.urandom, numbers._urandom = uniform, urandom, theirs


def unexplained(log: Log, tapes: Iterable[Tape], prime: int | None = None) -> Iterator[str]:
    """Texts on draws in `tapes` that no logged call of a secure sampler returned.

    Each call explains one draw. With `prime` its result must also be uniform on 0 to prime - 1.
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
