"""One line of the page of verdicts, and how findings are told in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verdicts import Difference, Finding, judge


@dataclass(frozen=True)
class Line:
    """One claim of a table or figure with its verdict, and the figure that the paper prints."""

    place: str
    claim: str
    finding: Finding
    paper: str = "-"


def open_question(found: Finding, why: str) -> Finding:
    """A finding that a setting of ours could turn."""
    return Finding("undecided", f"{found.text}. But {why}", found.brief)


def also(found: Finding, text: str) -> Finding:
    """A finding with a remark."""
    return Finding(found.word, f"{found.text}. {text}", found.brief)


def named(run: str, found: Sequence[Difference]) -> list[Difference]:
    """Differences with the name of a run before their own."""
    return [Difference(f"{run} {d.name}", d.mean, d.half, d.pairs) for d in found]


def short(found: Sequence[Difference], digits: int = 1) -> Finding:
    """A judgement on many differences, told by their range."""
    whole = judge(found, digits)
    count = whole.text[whole.text.rindex("(") + 1 : -1]
    low, high = (pick(d.mean for d in found) for pick in (min, max))
    text = f"{low:+.{digits}f} to {high:+.{digits}f}, {count}"
    return Finding(whole.word, text, whole.brief)
