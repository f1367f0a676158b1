"""The committed counts of lies in many runs: none gained, and the page is of them."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
COUNTS = json.loads((ROOT / "benchmarks/results/privacy/liars.json").read_text())
PAGE = " ".join((ROOT / "docs/active.md").read_text().split())
HONEST = {**COUNTS["honest before"]}, COUNTS["honest"]


def test_no_lie_gained_and_no_honest_party_was_named():
    for group in ("after", "honest", "honest before"):
        outcomes = {one for each in COUNTS[group].values() for one in each}
        assert not {one for one in outcomes if "gains" in one or "honest one" in one}
    gained = {one for each in COUNTS["before"].values() for one in each}
    assert all("gains: " in one or "honest one" in one for one in gained)


def test_the_page_has_the_numbers_of_trials_and_their_bounds():
    numbers = {
        sum(each.values()) for each in [*COUNTS["after"].values(), *COUNTS["before"].values()]
    }
    (n,) = numbers
    lies = len(COUNTS["after"])
    assert f"{n:,} of each of {lies} lies, in {n * lies:,} r" in PAGE
    assert f"{300 / (n * lies):.2g} % (all r), {300 / n:.2g} % (of one lie; 1,000 p)" in PAGE
    assert f"{n:,} r each were told at that level" in PAGE
    total = sum(sum(each.values()) for group in HONEST for each in group.values())
    assert f"**In {total:,} honest runs" in PAGE
    assert f"was named** ({300 / total:.2g} %)" in PAGE
    steps = sum(
        each.get("nobody is named: all steps", 0) for group in HONEST for each in group.values()
    )
    assert f"; {steps:,} made all steps" in PAGE
