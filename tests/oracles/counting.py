"""Counts of releases held against counting by hand, near all powers of two and every limit."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from securevfl.errors import PrivacyError
from securevfl.privacy.release_counts import after_release, most_releases, refuse_exceeding

_COUNTS = sorted({2**k + d for k in range(1, 31) for d in (-1, 0, 1)})  # runs here have few
_HELD, _ROWS = 7, np.array([1, 4, 6])


def counting_fault() -> str:
    """A count that is not the number of releases, or a limit that is not kept, in words."""
    return next(_faults(), "")


def _faults() -> Iterator[str]:
    kept = b""
    for times in range(1, 40):
        kept = after_release(kept, _ROWS, _HELD)
        if kept != _written(times):
            yield f"after {times} releases of some rows their counts are others"
            return
    for count in _COUNTS:
        if after_release(_written(count), _ROWS, _HELD) != _written(count + 1):
            yield f"the count that follows {count} releases is another than {count + 1}"
        if most_releases(_written(count)) != count:
            yield f"the largest of counts is another than {count}"
        for limit in (count, count + 1):
            if _refused(_written(count), limit) != (count >= limit):
                yield f"a row that was released {count} times, of {limit}, is wrongly dealt with"


def _written(count: int) -> bytes:
    """Counts as `release_counts` keeps them, of rows that were released so often."""
    return struct.pack(f"<{_HELD}I", *(count * (n in _ROWS) for n in range(_HELD)))


def _refused(counts: bytes, limit: int) -> bool:
    try:
        refuse_exceeding(counts, _ROWS[:1], limit, "a party")
    except PrivacyError:
        return True
    return False
