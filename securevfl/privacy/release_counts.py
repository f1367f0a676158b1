"""Counts of releases, one for each row of a party, kept by the party itself.

The party that sends releases promises their total cost. So it counts them where no other party can
change the count, refuses releases beyond the promise, and writes the count before it sends
(`securevfl.engine.party.Party.write_ahead`), so that a crash or a resume loses no count. A count is
kept as bytes, one little-endian uint32 a row, and is empty before the first release.
"""

from __future__ import annotations

import numpy as np

from securevfl.errors import PrivacyError

_COUNT = np.dtype("<u4")


def most_releases(counts: bytes) -> int:
    """Largest number of releases of one row."""
    return int(np.frombuffer(counts, _COUNT).max(initial=0))


def after_release(counts: bytes, rows: np.ndarray, held: int) -> bytes:
    """Release counts after each row in `rows` is released once more, in the form of `counts`.

    Parameters
    ----------
    counts : bytes
        Counts of all rows before the release, uint32 each; empty if there was none.
    rows : ndarray of int, (any,)
        Distinct row numbers.
    held : int
        Number of rows of the party.
    """
    found = np.frombuffer(counts, _COUNT) if counts else np.zeros(held, _COUNT)
    new = found.copy()
    new[rows] += np.uint32(1)
    return new.tobytes()


def refuse_repeated(rows: np.ndarray, who: str) -> None:
    """Raise PrivacyError for a row named twice: averaging its releases would remove noise.

    The message names the row, its number of occurrences, and `who` answers the request.
    """
    named, often = np.unique(rows, return_counts=True)
    if len(often) and often.max() > 1:
        row = int(named[np.argmax(often)])
        raise PrivacyError(
            f"{who} was asked for row {row} {int(often.max())} times in one request, and noise "
            "protects a row only if each request names it once. Nothing was sent; whoever made the "
            "request does not follow the protocol"
        )


def refuse_exceeding(
    counts: bytes, rows: np.ndarray, limit: int, who: str, allows: str = "its epsilon allows"
) -> None:
    """Raise PrivacyError if a requested row was released `limit` times, by `counts`.

    `who` and `allows`, the source of the limit, are named in the message.
    """
    if not counts:
        return
    found = np.frombuffer(counts, _COUNT)[rows]
    if len(found) and int(found.max()) >= limit:
        row = int(rows[np.argmax(found)])
        raise PrivacyError(
            f"{who} was asked for row {row} again, which it has released {int(found.max())} times, "
            f"and {allows} {limit}. Nothing was sent. Releases before a crash or a "
            "resume count too; the run can go no further, and its last checkpoint holds what was "
            "trained"
        )
