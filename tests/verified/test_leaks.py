"""The table of planted leaks, and its numbers in the page of proofs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.verified.leaks import leaks, of, on, read, released, sent_as_it_is

PAGE = Path(__file__).parents[2] / "docs" / "proof.md"
WORDS = {
    "rank": "algebra of the view",
    "rule": "rules on the module",
    "type": "types, while it is traced",
    "outputs": "look at outputs",
    "run again": "functions run again",
    "schedule": "another schedule",
    "not claimed": "nothing: not claimed",
}


def test_the_table_names_every_leak_once():
    assert [row[:2] for row in read()] == [(who, name) for who, name, _ in leaks()]


def test_the_page_has_its_numbers_and_a_line_of_each_kind():
    text = PAGE.read_text()
    rows = re.findall(
        r"^\| ([^|]+) \| (\d+) \| (.+) \|$", text.partition("## What catches")[2], re.M
    )
    by = Counter(row[2] for row in read())
    assert {what: int(number) for what, number, _ in rows} == {
        WORDS[kind]: number for kind, number in by.items()
    }
    assert f"has {len(read())} planted leaks" in text
    kinds = {what: kind for kind, what in WORDS.items()}
    for what, _, example in rows:
        said = [row[3] for row in read() if row[2] == kinds[what]]
        parts = [part.strip() for part in re.split(r"\.\.\.", example) if part.strip()]
        assert any(all(part in line for part in parts) for line in said), example


def test_what_is_not_claimed_is_said():
    rows = {row[1]: row[2:] for row in read() if row[0] == "declared"}
    for program in (sent_as_it_is, released):
        assert of(on(program)) == rows[program.__name__]
