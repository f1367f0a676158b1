"""Common rows of several parties' tables by private set intersection, run in the engine.

Each table belongs to one party; links are encrypted, and every message is counted. In one process
this measures the cost and the messages of an intersection; between organisations each party awaits
`securevfl.data.alignment.psi.intersect` itself.
"""

from __future__ import annotations

import functools
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.data.source import DataSource
from securevfl.engine.party import Party
from securevfl.engine.security.sealing import Sealing
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import Transcript

PROTOCOL = "psi"
_EVERY = 2.0  # seconds from one text about progress to the next


class Member(Party):
    """Party that has identifiers, and finds its `rows` whose identifiers all members have."""

    def __init__(
        self,
        index: int,
        members: Sequence[int],
        identifiers: Sequence[str],
        progress: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(index, members)
        self.identifiers = identifiers
        self.progress = progress
        self.rows = np.empty(0, np.intp)

    async def setup(self) -> None:
        """Take part in the intersection; the last member compares."""
        from securevfl.data.alignment.psi import intersect

        members = self.peers
        self.rows = await intersect(
            self,
            self.identifiers,
            members,
            collector=members[-1],
            progress=self._count,
        )

    async def run(self) -> None:
        """Do nothing: the work is in `setup`."""

    def _count(self, steps: int, total: int) -> None:
        if self.progress is not None:
            self.progress(steps)


def intersection(
    sets: Sequence[Sequence[str]], progress: Callable[[int], None] | None = None
) -> tuple[list[np.ndarray], Transcript]:
    """Rows of the common identifiers in each set, in one order, and the messages sent.

    Parameters
    ----------
    sets : sequence of sequence of str
        Identifiers of each of at least two parties, without repetition.
    progress : callable, optional
        Called with the number of steps since the last call; `securevfl.data.alignment.psi.work`
        gives their total.

    Raises
    ------
    DataError
        When there are fewer than two sets, one is too large, an identifier occurs twice, or none is
        common.
    """
    members = range(len(sets))
    parties: dict[int, Party] = {n: Member(n, members, ids, progress) for n, ids in enumerate(sets)}
    sealing = Sealing(PROTOCOL, secrets.token_hex(8), parties)
    simulation = Simulation(parties, sealing=sealing)
    simulation.run()
    found: list[Any] = [parties[n] for n in members]
    return [member.rows.astype(np.intp) for member in found], simulation.transcript


def match_privately(
    ids: Sequence[Sequence[str]], tell: Callable[[str], None] | None = None
) -> tuple[list[np.ndarray], list[str]]:
    """Rows of the common identifiers in each table, in one order, and notes on the cost.

    Private set intersection finds them; an earlier result for the same identifiers is reused. The
    join then puts the rows into the order of the table with the labels, so that a seed splits them
    equally in every run. DataError for repeated identifiers, or if none is common.

    Parameters
    ----------
    ids : sequence of sequence of str
        Identifiers of each table.
    tell : callable, optional
        Called every two seconds with a text on the progress.
    """
    from securevfl.data.alignment.psi import work
    from securevfl.runs.folders.intersections import keep_intersection, kept_intersection

    kept = kept_intersection(ids)
    if kept is not None:
        return kept[0], [f"{kept[1]}, taken from an earlier run"]
    started = time.perf_counter()
    total = work([len(own) for own in ids], len(ids) - 1)
    rows, sent = intersection(ids, None if tell is None else Teller(total, tell))
    note = (
        f"aligned by private set intersection: {len(rows[0])} common rows, "
        f"{sent.messages} messages, {sent.bytes / 1e6:.1f} MB, "
        f"{time.perf_counter() - started:.1f} s of computing"
    )
    keep_intersection(ids, rows, note)
    return rows, [note]


class Teller:
    """Counter of steps that reports their number every other second."""

    def __init__(self, total: int, tell: Callable[[str], None]) -> None:
        self._total, self._tell, self._done = total, tell, 0
        self._started = self._told = time.perf_counter()

    def __call__(self, steps: int) -> None:
        """Add `steps` to the count; report it if the last report is two seconds old."""
        self._done += steps
        now = time.perf_counter()
        if now - self._told < _EVERY or not self._done:
            return
        self._told = now
        left = (now - self._started) * (self._total / self._done - 1)
        self._tell(
            f"private set intersection: {100 * self._done // self._total} % of {self._total:,} "
            f"steps, about {left:.0f} s left"
        )


def data_source(
    name: str, options: Mapping[str, object], tell: Callable[[str], None] | None = None
) -> DataSource:
    """Source of a data set, with private set intersection where its options ask for it.

    `name` and `options` are those of `DataSource`; `tell` is called with texts on the progress of
    the intersection.
    """
    match = match_privately if tell is None else functools.partial(match_privately, tell=tell)
    return DataSource(name, options, match)
