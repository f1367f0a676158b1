"""One line of docs/results.md: a claim, the paper's figures, ours, and what follows from both.

Words on sign and size are computed here, for all papers alike. A line holds no word of its own but
why a claim cannot be tested, which is a matter of the paper.
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
    """Size of a difference in a paper: a number twice, or the ends of a range."""

    low: float
    high: float


def printed(*numbers: float) -> tuple[Printed, ...]:
    """Sizes that are numbers."""
    return tuple(Printed(each, each) for each in numbers)


@dataclass(frozen=True)
class Line:
    """One claim of a table or figure under one reading.

    Attributes
    ----------
    place, claim : str
        Where it is printed, and that all of `differences` are above 0.
    differences : sequence of Difference
        Ours, in the claimed direction.
    studies : sequence of str
        Folders of stored results; the page of all differences has the row below the first.
    printed : tuple of Printed
        The paper's sizes, one a difference; empty where it prints none.
    shows : str
        What the paper has in place of sizes.
    depends : str
        The reading, or the setting of ours, of this line.
    unclear : str
        Why no sign can be told, whatever the data; "" where it can.
    levels : bool
        Whether `differences` and `printed` are levels, which have a size and no sign.
    digits : int
        After the point.
    note : str
        Settings and remarks, for the page of all differences.
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
        """Reason why no sign can be told; "" where there is none."""
        if self.unclear or not self.differences:
            return self.unclear or "not run"
        return "one seed" if all(each.pairs < 2 for each in self.differences) else ""

    @property
    def sure(self) -> list[int]:
        """Sign of each difference that its interval shows, and 0 for the others.

        All of them are above 0 where each interval says so. That one is below is said by intervals
        which Holm's rule corrects for their number.
        """
        found = differing([each.entry() for each in self.differences])
        return [
            1 if each.mean > each.half else -1 if differs and each.mean < 0 else 0
            for each, differs in zip(self.differences, found, strict=True)
        ]

    @property
    def sign(self) -> str:
        """One of `SAME`, `NONE`, `OTHER` and `OPEN`.

        A printed difference of 0 has the same sign where our interval holds 0.
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
        """Truths by printed size with an interval: the interval holds some of the size."""
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
        """Truths by printed size with an interval: our mean has the size's sign."""
        return [
            math.copysign(1, each.mean) == math.copysign(1, size.low) or size == (0, 0)
            for each, size in self._sizes
        ]

    @property
    def largest(self) -> float:
        """Size above which no difference is, where all intervals hold 0; else infinite."""
        if any(not abs(each.mean) <= each.half for each in self.differences):
            return math.inf
        return max((abs(each.mean) + each.half for each in self.differences), default=math.inf)

    def sign_cell(self) -> str:
        """The sign, and what there is to say of many differences or of none."""
        sign, many = self.sign, len(self.differences)
        if sign == OPEN:
            return "-"
        if sign == NONE and math.isfinite(self.largest):
            return f"none, < {self.largest:.{self.digits}f}"
        if many == 1 or sign == SAME:
            return sign
        return f"{sign} {self.sure.count(1 if sign == NONE else -1)}/{many}"

    def size_cell(self) -> str:
        """Word on the printed size and our interval."""
        found = self.inside
        if not found:
            return "-"
        if len(set(found)) == 1:
            return INSIDE if found[0] else OUTSIDE
        return f"{sum(found)}/{len(found)}"

    @property
    def one_by_one(self) -> bool:
        """Whether a row lists its few differences, beside as many printed numbers."""
        numbers = all(size.low == size.high for size in self.printed)
        return numbers and 1 < len(self.differences) <= FEW and bool(self.printed)

    def printed_cell(self) -> str:
        """The paper's sizes."""
        if not self.printed:
            return self.shows
        ends = [end for each in self.printed for end in each]
        digits = self.digits if self.levels else _digits(self.printed)
        if self.one_by_one:
            return _listed([size.low for size in self.printed], digits)
        text = _range(ends, digits)
        return "0" if text == "+0" else text.lstrip("+" * self.levels)

    def ours_cell(self) -> str:
        """Our difference with its interval; of many all or the range, and the widest interval."""
        if not self.differences:
            return "-"
        if len(self.differences) == 1:
            return self.differences[0].figure(self.digits).lstrip("+" * self.levels)
        halves = [each.half for each in self.differences if not math.isnan(each.half)]
        wide = f" (±{max(halves):.{self.digits}f})" if halves else ""
        means = [each.mean for each in self.differences]
        return (_listed if self.one_by_one else _range)(means, self.digits) + wide

    def seeds_cell(self) -> str:
        """Numbers of pairs."""
        counts = sorted({each.pairs for each in self.differences})
        return "-".join(map(str, dict.fromkeys(counts[:1] + counts[-1:]))) or "-"

    def depends_cell(self) -> str:
        """The reading, and why a sign is not told."""
        return "; ".join(filter(None, (self.why_open, self.depends))) or "-"


def _digits(sizes: Sequence[Printed]) -> int:
    """Digits after the point that a paper prints."""
    return max(len(f"{end:.6g}".partition(".")[2]) for size in sizes for end in size)


def _listed(numbers: Sequence[float], digits: int) -> str:
    """All numbers, in their order."""
    return ", ".join(f"{each:+.{digits}f}" for each in numbers)


def _range(numbers: Sequence[float], digits: int) -> str:
    """The least and the largest of some numbers, or the one that they are."""
    ends = [f"{pick(numbers):+.{digits}f}" for pick in (min, max)]
    return " to ".join(dict.fromkeys(ends))


def readings(line: Line, ways: Mapping[str, Sequence[Difference]]) -> list[Line]:
    """The line once for each reading, with that reading's differences."""
    return [replace(line, differences=found, depends=way) for way, found in ways.items()]


def named(run: str, found: Sequence[Difference]) -> list[Difference]:
    """Differences with the name of a run before their own."""
    return [Difference(f"{run} {d.name}", d.mean, d.half, d.pairs) for d in found]


def turned(found: Sequence[Difference]) -> list[Difference]:
    """Differences of the same runs the other way round."""
    return [Difference(d.name, -d.mean, d.half, d.pairs) for d in found]
