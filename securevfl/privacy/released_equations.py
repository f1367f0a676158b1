"""Equations that sums of embeddings reveal about a row, and the number of its unknowns.

A sum of polynomial embeddings is linear in the powers of a row: each time a row is in a batch, the
decoder of the sums learns h numbers about it, h the width of an embedding. After E uses these are E
h equations. The unknowns of a row are its linearly independent columns; powers of a column are
functions of it, and not counted. While E h is below their number, many tables give the same sums;
docs/sums.md has the theorem, and the results of attacks beyond it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from securevfl.errors import ConfigurationError

State = Literal["below", "beyond", "spanned"]  # of equations: unknowns, rank

PAGE = "docs/sums.md"
BOUNDED = f"{PAGE}, Theorem 1"
#: For cards, which know no data: the general law.
LAW = (
    f"Each sum is h equations about each of its rows ({PAGE}). From as many as columns on nothing "
    "is promised; at degree 2, with about twice as many, a server that knows nothing else computes "
    "most raw columns"
)
_NARROW = 4  # width of an example
OTHER_ROWS = (
    "Who has other rows, labels or weights besides, or columns as clients that help the server "
    "have, learns more"
)
SPANNED = (
    "with degree 2 or more a server that knows nothing else computes most raw columns, with "
    "degree 1 it has the rows up to one linear map"
)


def independent_columns(rows: np.ndarray, unit: float) -> int:
    """Number of linearly independent columns besides a constant: rank of [X | 1] less 1.

    Directions in which the rows differ by less than a unit, in the root mean square, do not count,
    because fixed-point numbers of that unit cannot represent them.

    Parameters
    ----------
    rows : ndarray, (M, d)
        Finite numbers.
    unit : float
        2^-lx, lx the fractional bits of the data.

    Returns
    -------
    int
        Rank, from 0, if all rows are equal, to min(d, M - 1).
    """
    centred = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    # Singular values by the smaller Gram matrix; its eigenvalues are their squares.
    M, d = centred.shape
    gram = centred.T @ centred if d <= M else centred @ centred.T
    squares = np.linalg.eigvalsh(gram)
    exact = np.finfo(np.float64).eps * max(M, d) * float(squares.max(initial=0.0))
    return int((squares > max(M * unit**2, exact)).sum())


def visits_allowed(unknowns: int, width: int, share: float = 1.0) -> int:
    """Largest number E of sums with one row such that E h stays below a share of its unknowns.

    Parameters
    ----------
    unknowns, width : int
        Number u of unknowns of a row, and width h of an embedding.
    share : float
        Fraction, in (0, 1].
    """
    return max(_limit(unknowns, share) - 1, 0) // width


def _limit(unknowns: int, share: float) -> int:
    """Least whole number of equations that is not below a share of the unknowns."""
    # The share as it is written: as floats 0.07 * 100 is above 7, and one equation more would do.
    return math.ceil(Fraction(str(float(share))) * unknowns)


@dataclass(frozen=True)
class Odometer:
    """Count of equations revealed about the most used row, against its unknowns.

    Attributes
    ----------
    width : int
        Width h of an embedding.
    unknowns : int
        Number of independent columns of all parties together.
    rank : int or None
        Rank r of the expanded rows [X | ... | X^D | 1]. From E h = r on, linear algebra gives the
        space that all columns and powers span. None if embeddings are not polynomial.
    visits : int
        E, the largest number of decoded sums that contained one row.
    visits_planned : int
        E at the end of the configured run, without a budget.
    per_epoch : int
        Rounds of an epoch.
    budget : float
        Ratio of equations to unknowns that the parties stay below; 0 for no limit.
    at_most : bool
        Whether unknowns and rank are only upper bounds, from the numbers of columns.
    """

    width: int
    unknowns: int
    rank: int | None
    visits: int
    visits_planned: int
    per_epoch: int
    budget: float
    at_most: bool = False

    @property
    def equations(self) -> int:
        """Equations about the most used row: E h, uses times width."""
        return self.visits * self.width

    @property
    def share(self) -> float:
        """Equations for each unknown; from 1 on the columns may be determined."""
        return self.equations / max(self.unknowns, 1)

    @property
    def full_after(self) -> int:
        """Last round in which a row's equations stay below budget (or 1) times its unknowns."""
        return visits_allowed(self.unknowns, self.width, self.budget or 1.0) * self.per_epoch

    @property
    def spanned_from(self) -> int | None:
        """First round in which a row's equations reach the rank; None if the rank is unknown."""
        if self.rank is None:
            return None
        return (math.ceil(self.rank / self.width) - 1) * self.per_epoch + 1

    @property
    def state(self) -> State:
        """State of the equations: "below" the unknowns, "beyond" them, or "spanned" (the rank)."""
        if self.equations < self.unknowns:
            return "below"
        return "spanned" if self.rank is not None and self.equations >= self.rank else "beyond"

    @property
    def words(self) -> str:
        """Equations and unknowns in words, with the rounds in which they reach the limits."""
        most = "at most " * self.at_most
        spanned = self.spanned_from
        return (
            f"{self.equations} equations about {most}{self.unknowns} unknowns of a row "
            f"(h = {self.width}, {self.visits} visits); as many from round {self.full_after + 1} on"
            + ("" if spanned is None else f", the space of all columns from round {spanned} on")
        )

    def ways_below(self, *, shorter: bool = True) -> str:
        """Sentence on changes of options, each of which keeps the run's E h below the unknowns.

        Parameters
        ----------
        shorter : bool
            Whether fewer rounds may be proposed.
        """
        visits = self.visits_planned
        width = max(self.unknowns - 1, 0) // max(visits, 1)
        ways = [f"width <= {width}"] if width else []
        ways += [f"rounds <= {self.full_after}"] if shorter and self.full_after else []
        if not ways and shorter and self.unknowns > 1:
            narrow = min(_NARROW, self.unknowns - 1)
            rounds = visits_allowed(self.unknowns, narrow) * self.per_epoch
            ways = [f"width = {narrow} with rounds <= {rounds}"]
        wider = f"at least {visits * self.width + 1} independent columns of all parties together"
        return ", or ".join([*ways, wider])

    def ended(self, rounds: int, asked: int, spent: Mapping[str, Any]) -> str:
        """Sentence about a run that ended because its budget of equations was used up.

        Parameters
        ----------
        rounds, asked : int
            Number of rounds done, and requested.
        spent : mapping
            Visits, equations and unknowns as counted by the parties, in the form of the event
            ``sum_budget``.
        """
        unknowns = spent["unknowns"]
        most = max(_limit(unknowns, self.budget or 1.0) - 1, 0)  # equations
        width, narrower = most // max(self.visits_planned, 1), most * self.per_epoch
        if width:
            smaller = f"width = {width}, with which all {asked} rounds can be made"
        elif self.width > 1:
            smaller = f"width = 1, with which {narrower} rounds can be made"
        else:
            smaller = "parties with more columns"
        return (
            f"the budget of sums ended the run after {rounds} of {asked} rounds: "
            f"{spent['visits']} decoded sums of a row gave {spent['equations']} equations about "
            f"its {unknowns} unknowns, and one more would be too much. Everything is saved. To go "
            f"further use {smaller}, or sum_budget = 0, with which nothing is promised of the "
            "columns against who decodes the sums"
        )

    def sentence(self) -> str:
        """Sentence, for a verdict, on what the decoded sums revealed, with numbers."""
        most = "at most " * self.at_most
        told = (
            f"each row is in at most {self.visits} decoded sums, which are {self.equations} "
            f"equations (h = {self.width} each) about its {most}{self.unknowns} unknowns"
        )
        later = "" if self.rank is None else f"{self._spanning()}. "
        if self.equations < self.unknowns and self.at_most:
            return (
                f"{told}, fewer if columns depend on each other, which nobody sees here. While "
                f"the equations are fewer, rows stay undetermined for a server that has nothing "
                f"else ({BOUNDED}). {later}{OTHER_ROWS}"
            )
        if self.equations < self.unknowns:
            free = self.unknowns - self.equations
            return (
                f"{told}; {free} stay free in the mean for a server that has nothing else "
                f"({BOUNDED}). {later}{OTHER_ROWS}"
            )
        if self.rank is None or self.equations < self.rank:
            return f"{told}. {later}These may be determined: nothing is promised of the columns"
        return (
            f"{told}. {self._spanning()}: {SPANNED}. Read it as no protection of the columns from "
            "who decodes the sums"
        )

    def _spanning(self) -> str:
        """Phrase on the rank, and the round from which sums determine the space."""
        most = "at most " * self.at_most
        return (
            f"From r = {most}{self.rank} equations a row on, at this width from round "
            f"{self.spanned_from} on, sums determine the space of all columns"
        )

    def to_dict(self) -> dict[str, Any]:
        """Numbers and sentences for summaries."""
        return {
            "equations": self.equations,
            "unknowns": self.unknowns,
            "share": self.share,
            "width": self.width,
            "rank": self.rank,
            "visits": self.visits,
            "planned_equations": self.visits_planned * self.width,
            "full_after_round": self.full_after,
            "spanned_from_round": self.spanned_from,
            "budget": self.budget,
            "at_most": self.at_most,
            "state": self.state,
            "words": self.words,
            "sentence": self.sentence(),
            "ways_below": self.ways_below(),
        }


def refuse_width(who: str, unknowns: int, width: int, share: float) -> None:
    """Raise ConfigurationError unless a sum is below the budget, `share` times `unknowns`.

    It gives `width` equations. The message names both numbers and the remedies.
    """
    if visits_allowed(unknowns, width, share):
        return
    below = _limit(unknowns, share)
    raise ConfigurationError(
        f"{who}: a sum of embeddings is width = {width} equations about a row, all parties "
        f"together have {unknowns} independent columns, and with sum_budget = {share:g} the "
        f"equations must stay below {below}. Use width < {below}, or sum_budget = 0, with which "
        "nothing is promised of the columns"
    )
