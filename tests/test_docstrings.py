"""Docstrings: each says what a thing is before what it does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("securevfl", "benchmarks", "examples")

# A clause instead of a noun. "Whether" is the noun phrase of a truth value, so a function that
# returns one, or several, may begin with it.
CLAUSE = re.compile(r'"""(?:What|Who|Whose|How|Where|When|Which|Why)\b.*')
# A pronoun whose noun is elsewhere, or words that only point to another docstring.
POINTER = re.compile(r'"""(?:It|Its|They|Their|Them|Those|These|As|See|Nothing|Refused|Same)\b.*')
WHETHER = re.compile(r'(.*)\n +"""(Whether\b.*)')


def clauses(text: str) -> list[str]:
    """Docstrings of a module that begin with a clause, a pronoun or a pointer."""
    wrong = CLAUSE.findall(text) + POINTER.findall(text)
    for before, first in WHETHER.findall("\n" + text):
        if not re.search(r"-> [^:]*\bbool\b[^:]*:$", before):
            wrong.append(first)
    return wrong + re.findall(r'\A"""Whether\b.*', text)


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_begin_with_a_noun(folder):
    paths = sorted(ROOT.joinpath(folder).rglob("*.py"))
    assert paths
    found = {str(path): wrong for path in paths if (wrong := clauses(path.read_text()))}
    assert not found


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('"""What a party has."""', 1),
        ('def f() -> int:\n    """How many there are."""', 1),
        ('"""As `run`, with figures."""', 1),
        ('"""Those that a party has."""', 1),
        ('"""Whether a run ends."""', 1),
        ('def f() -> int:\n    """Whether it ends."""', 1),
        ('def f() -> bool:\n    """Whether it ends."""', 0),
        ('def f() -> list[bool | None]:\n    """Whether each ends."""', 0),
        ('"""Rows that a party has."""', 0),
    ],
)
def test_a_clause_is_found(text, count):
    assert len(clauses(text)) == count
