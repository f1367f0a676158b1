"""One line of docs/results.md: a claim, the paper's figures, ours, and words on both.

Words on sign and size are computed here in the same way for all papers. A line has no text of its
own except the reason why a claim cannot be tested, which depends on the paper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from stored import Difference

from securevfl.studies.intervals import differing

SAME, NONE, OTHER, OPEN = "same", "none", "other", "-"
INSIDE, OUTSIDE = "inside", "outside"
FEW = 4  # differences that stand in a row one by one
NAMES = {
    "mnist": "MNIST",
    "fashion-mnist": "Fashion",
    "cifar10": "CIFAR-10",
    "emnist": "EMNIST",
    "handwritten": "Handwritten",
    "credit-card": "Credit Card",
    "parkinson": "Parkinson",
    "caltech-7": "Caltech-7",
}


class Printed(NamedTuple):
    """Size of a difference as a paper prints it: a range, or twice the same number."""

    low: float
    high: float


def printed(*numbers: float) -> tuple[Printed, ...]:
    """Sizes from single numbers."""
    return tuple(Printed(each, each) for each in numbers)


@dataclass(frozen=True)
class Line:
    """A claim of a table or figure under one reading of the paper: its `differences` are above 0.

    Attributes
    ----------
    place, claim : str
        Table or figure, such as "F2 MNIST", and the claim in words.
    differences : sequence of Difference
        Our differences, positive if the claim holds.
    studies : sequence of str
        Folders of stored results; the page of all differences lists the line under the first.
    printed : tuple of Printed
        Sizes in the paper, one for each difference; empty if it prints none.
    shows : str
        Text on what the paper has instead of sizes, such as "curves".
    depends : str
        Reading of the paper, or setting of ours, on which the line depends.
    unclear : str
        Reason why no data can decide the sign; "" if they can.
    levels : bool
        Whether `differences` and `printed` are levels (accuracies), which have no sign.
    digits : int
        Digits after the decimal point.
    note : str
        Settings and remarks for the page of all differences.
    """

    place: str
    claim: str
    differences: Sequence[Difference]
    studies: Sequence[str]
    printed: tuple[Printed, ...] = ()
    shows: str = "order"
    depends: str = ""
    unclear: str = ""
    levels: bool = False
    digits: int = 1
    note: str = ""

    def __post_init__(self) -> None:
        if self.printed and self.differences and len(self.printed) != len(self.differences):
            raise ValueError(f"{self.place}: {self.claim}: not one printed size a difference")

    @property
    def why_open(self) -> str:
        """Reason why the sign is undecided: `unclear`, "not run" or "one seed"; "" if decided."""
        if self.unclear or not self.differences:
            return self.unclear or "not run"
        return "one seed" if all(each.pairs < 2 for each in self.differences) else ""

    @property
    def sure(self) -> list[int]:
        """Sign of each difference, 1 or -1, if its 95 % interval excludes 0; else 0.

        A negative sign needs an interval corrected by Holm's rule for the number of differences. A
        positive one does not, because the claim needs all of them.
        """
        found = differing([each.entry() for each in self.differences])
        return [
            1 if each.mean > each.half else -1 if differs and each.mean < 0 else 0
            for each, differs in zip(self.differences, found, strict=True)
        ]

    @property
    def sign(self) -> str:
        """Verdict on the claim: `SAME`, `OTHER`, `NONE` (no sign is shown) or `OPEN` (untested).

        If the paper prints a difference of 0, it is `SAME` if our interval contains 0.
        """
        if self.why_open or self.levels:
            return OPEN
        if self.printed and all(each == (0, 0) for each in self.printed):
            held = all(abs(each.mean) <= each.half for each in self.differences)
            return SAME if held else OTHER
        if -1 in self.sure:
            return OTHER
        return SAME if 0 not in self.sure else NONE

    @property
    def inside(self) -> list[bool]:
        """Whether our interval overlaps the printed size, for each size with an interval."""
        return [
            each.mean - each.half <= size.high and each.mean + each.half >= size.low
            for each, size in self._sizes
        ]

    @property
    def _sizes(self) -> list[tuple[Difference, Printed]]:
        both = zip(self.differences, self.printed, strict=False)
        return [(each, size) for each, size in both if each.pairs > 1]

    @property
    def alike(self) -> list[bool]:
        """Whether our mean has the sign of the printed size, for each size with an interval."""
        return [
            math.copysign(1, each.mean) == math.copysign(1, size.low) or size == (0, 0)
            for each, size in self._sizes
        ]

    @property
    def largest(self) -> float:
        """Bound on the size of all differences, if each interval contains 0; else infinity."""
        if any(not abs(each.mean) <= each.half for each in self.differences):
            return math.inf
        return max((abs(each.mean) + each.half for each in self.differences), default=math.inf)

    def sign_cell(self) -> str:
        """Table cell of the verdict: "same", "none, < 0.3", "other 2/5" (of differences) or "-"."""
        sign, many = self.sign, len(self.differences)
        if sign == OPEN:
            return "-"
        if sign == NONE and math.isfinite(self.largest):
            return f"none, < {self.largest:.{self.digits}f}"
        if many == 1 or sign == SAME:
            return sign
        return f"{sign} {self.sure.count(1 if sign == NONE else -1)}/{many}"

    def size_cell(self) -> str:
        """Table cell on printed sizes and our intervals: "inside", "outside", "2/5" or "-"."""
        found = self.inside
        if not found:
            return "-"
        if len(set(found)) == 1:
            return INSIDE if found[0] else OUTSIDE
        return f"{sum(found)}/{len(found)}"

    @property
    def one_by_one(self) -> bool:
        """Whether a row lists each difference: there are 2 to 4, beside as many printed numbers."""
        numbers = all(size.low == size.high for size in self.printed)
        return numbers and 1 < len(self.differences) <= FEW and bool(self.printed)

    def printed_cell(self) -> str:
        """Table cell of the paper's sizes: each, their range, or `shows` if there are none."""
        if not self.printed:
            return self.shows
        ends = [end for each in self.printed for end in each]
        digits = self.digits if self.levels else _digits(self.printed)
        if self.one_by_one:
            return _listed([size.low for size in self.printed], digits)
        text = _range(ends, digits)
        return "0" if text == "+0" else text.lstrip("+" * self.levels)

    def ours_cell(self) -> str:
        """Table cell of our differences, each or their range, with the widest half-width."""
        if not self.differences:
            return "-"
        if len(self.differences) == 1:
            return self.differences[0].figure(self.digits).lstrip("+" * self.levels)
        halves = [each.half for each in self.differences if not math.isnan(each.half)]
        wide = f" (±{max(halves):.{self.digits}f})" if halves else ""
        means = [each.mean for each in self.differences]
        return (_listed if self.one_by_one else _range)(means, self.digits) + wide

    def seeds_cell(self) -> str:
        """Table cell of the number of seeds (pairs), or its range."""
        counts = sorted({each.pairs for each in self.differences})
        return "-".join(map(str, dict.fromkeys(counts[:1] + counts[-1:]))) or "-"

    def depends_cell(self) -> str:
        """Table cell with `why_open` and `depends`; "-" if both are empty."""
        return "; ".join(filter(None, (self.why_open, self.depends))) or "-"


def _digits(sizes: Sequence[Printed]) -> int:
    """Largest number of digits after the decimal point among printed sizes."""
    return max(len(f"{end:.6g}".partition(".")[2]) for size in sizes for end in size)


def _listed(numbers: Sequence[float], digits: int) -> str:
    """Numbers with signs, separated by commas."""
    return ", ".join(f"{each:+.{digits}f}" for each in numbers)


def _range(numbers: Sequence[float], digits: int) -> str:
    """Smallest and largest number as "a to b"; the number if all are equal."""
    ends = [f"{pick(numbers):+.{digits}f}" for pick in (min, max)]
    return " to ".join(dict.fromkeys(ends))


def readings(line: Line, ways: Mapping[str, Sequence[Difference]]) -> list[Line]:
    """Copies of the line, one for each reading (key) with its differences."""
    return [replace(line, differences=found, depends=way) for way, found in ways.items()]


def named(run: str, found: Sequence[Difference]) -> list[Difference]:
    """Differences whose names begin with the name of a run."""
    return [Difference(f"{run} {d.name}", d.mean, d.half, d.pairs) for d in found]


def turned(found: Sequence[Difference]) -> list[Difference]:
    """Differences with reversed sign."""
    return [Difference(d.name, -d.mean, d.half, d.pairs) for d in found]
