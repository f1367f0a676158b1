"""Announcements of FedVS's server: the batch of a round, and the clients in its sum."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from securevfl.engine import wire


@wire.message("fedvs_parameters.Batch")
@dataclass(frozen=True)
class Batch:
    """Batch of a round, announced when the round is opened.

    Attributes
    ----------
    part : {"train", "test"}
        Shares to which `rows` refers: of training or of test rows.
    rows : ndarray, (|B|,), uint32
        B, row numbers within a segment, in [0, ceil(M/K)).
    """

    part: str
    rows: np.ndarray

    def meets(self, other: Batch) -> bool:
        """Whether the two batches share a row."""
        return self.part == other.part and not self._numbers.isdisjoint(other._numbers)

    @functools.cached_property
    def _numbers(self) -> frozenset[int]:
        """The rows as a set, for repeated comparison with other batches."""
        return frozenset(self.rows.ravel().tolist())


@wire.message("fedvs.Attempt")
@dataclass(frozen=True)
class Attempt:
    """Attempt at a round's sum: its sharers, announced once; each attempt has its own round.

    Masks depend on the keys and on all announcements (`told`), so different announcements give
    masks on different polynomials. The label of an attempt is the server's incarnation and the
    round; a client answers no label twice.

    Attributes
    ----------
    sharers : tuple of int
        S, the clients whose model of this round is in the sum (footnote 2).
    life : int
        `Party.life` of the server; a restarted server, or that of a resumed run, has another
        number.
    harmless : tuple of int
        Rounds since the last step in which fewer than K + T clients uploaded, which reveals
        nothing. Only clients that crashed since then use this field and `stepped`.
    stepped : int
        Round of the last step.
    """

    sharers: tuple[int, ...]
    life: int = 0
    harmless: tuple[int, ...] = ()
    stepped: int = 0

    def same_sum(self, other: Attempt) -> bool:
        """Whether two attempts have the same sharers, so sum the same models if none changed."""
        return set(self.sharers) == set(other.sharers)

    def sum_of(self, round: int, batch: Batch) -> bytes:
        """Bytes that identify the sum itself: its round, rows and sharers."""
        return wire.encode(("fedvs", round, batch, tuple(sorted(self.sharers))))

    def told(self, round: int, batch: Batch) -> bytes:
        """Bytes of everything announced on the sum, which determine its mask."""
        # Clients of a simulation are told the same objects.
        known = self.__dict__.get("_told")
        if known is None or known[0] != round or known[1] is not batch:
            known = round, batch, wire.encode(("fedvs", round, batch, self))
            self.__dict__["_told"] = known
        told: bytes = known[2]
        return told
