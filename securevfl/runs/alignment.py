"""Common rows of several parties' tables by private set intersection, run in the engine.

Each table is a party of its own, links are sealed and every message is metered. In one process this
shows what the intersection costs and what is sent; between organisations each party awaits
`securevfl.data.alignment.psi.intersect` itself.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.data.alignment.psi import intersect
from securevfl.data.source import DataSource
from securevfl.engine.party import Party
from securevfl.engine.security.sealing import Sealing
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import Transcript

PROTOCOL = "psi"


class Member(Party):
    """Holds identifiers, finds its rows of the common ones, and ends."""

    def __init__(self, index: int, members: Sequence[int], identifiers: Sequence[str]) -> None:
        super().__init__(index, members)
        self.identifiers = identifiers
        self.rows = np.empty(0, np.intp)

    async def setup(self) -> None:
        """Take part; the last table, that of the labels where they have one, compares."""
        members = self.peers
        self.rows = await intersect(self, self.identifiers, members, collector=members[-1])

    async def run(self) -> None:
        """Nothing is left to do."""


def intersection(sets: Sequence[Sequence[str]]) -> tuple[list[np.ndarray], Transcript]:
    """Rows of the common identifiers in each set, in one order, and what was sent.

    Parameters
    ----------
    sets : sequence of sequence of str
        Identifiers of two members or more, each once.

    Raises
    ------
    DataError
        When an identifier occurs twice, or none is common.
    """
    members = range(len(sets))
    parties: dict[int, Party] = {n: Member(n, members, ids) for n, ids in enumerate(sets)}
    sealing = Sealing(PROTOCOL, secrets.token_hex(8), parties)
    simulation = Simulation(parties, sealing=sealing)
    simulation.run()
    found: list[Any] = [parties[n] for n in members]
    return [member.rows.astype(np.intp) for member in found], simulation.transcript


def match_privately(ids: Sequence[Sequence[str]]) -> tuple[list[np.ndarray], list[str]]:
    """`intersection` as the joiner of party files wants it, with a note of what it cost.

    The rows are then put into the order of the table with the labels, so that a seed splits them
    alike in every run: its owner shows the others the order of the common rows in its table.
    """
    started = time.perf_counter()
    rows, sent = intersection(ids)
    note = (
        f"aligned by private set intersection (P-256): {len(rows[0])} common rows, "
        f"{sent.messages} messages, {sent.bytes / 1e6:.1f} MB, "
        f"{time.perf_counter() - started:.1f} s of computing"
    )
    return rows, [note]


def data_source(name: str, options: Mapping[str, Any]) -> DataSource:
    """Source of a data set, with private set intersection where its options ask for it."""
    return DataSource(name, options, match_privately)
