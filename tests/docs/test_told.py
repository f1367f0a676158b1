"""No stored attack got more than the card of its configuration says that is told."""

import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

from securevfl.privacy.claims import budget_claims
from securevfl.privacy.released_equations import Odometer

ROOT = Path(__file__).parents[2]
CELLS = json.loads((ROOT / "benchmarks/results/privacy/told.json").read_text())["cells"]
SUMS = json.loads((ROOT / "benchmarks/results/privacy/sums.json").read_text())


@pytest.fixture
def page(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("told_page")


def test_every_method_stands_on_every_set_that_was_run(page):
    methods = {c["method"] for c in CELLS}
    assert {"split", "fedvs", "fedvs --paper", "coded_split", "secagg_split", "he_split"} <= methods
    for name in ("wine", "breast-cancer", "digits", "handwritten"):
        assert {c["method"] for c in CELLS if c["data"] == name} == methods


@pytest.mark.parametrize("cell", CELLS, ids=lambda c: f"{c['data']}-{c['method']}-{c['seed']}")
def test_no_attack_got_more_than_the_card_says(page, cell):
    if not page.undetermined(cell):
        # The card protects nothing, or says that columns follow, or bounds noise by an epsilon.
        words = page.card(cell)
        assert words.startswith(("nothing protected", "differential")) or "follows" in words
        return
    assert cell["equations"] < cell["unknowns"]
    assert cell["state"] == "below"
    two_valued = cell["data"] == "credit-card"  # of one column, of which the card warns
    assert bool(cell["binary columns of sums"]["success"]) == two_valued
    assert not cell["squares"]["success"]
    assert page.exact(cell) == two_valued
    [claim] = budget_claims(Odometer(4, 13, 27, 2, 2, 10, budget=1.0))
    assert "columns of two values may come out exactly" in claim.source
    above = (page.strongest(cell, page.ALONE) or ("", 0, 0))[1] > 0
    assert above == ((cell["data"], cell["method"]) in page.FINDINGS)


def test_nothing_is_exact_under_the_budget():
    """Columns that depend on each other are guessed, and no column is found."""
    cells = [r for part in ("defaults", "directions", "standing") for r in SUMS.get(part, [])]
    assert len(cells) > 20
    for cell in cells:
        assert not cell.get("above_999"), cell
    assert all(cell["success"] is None for cell in SUMS["defaults"])


def test_what_is_said_of_digits_under_the_budget_is_what_was_stored():
    text = " ".join((ROOT / "docs" / "sums.md").read_text().split())
    assert (
        "On digits none of 58 was above 0.95 in either method (one seed, K = 1), on handwritten "
        "none of 649"
    ) in text
    for name, columns in (("digits", 58), ("handwritten", 649)):
        own = [c for c in CELLS if c["data"] == name and c["method"] in ("fedvs", "coded_split")]
        assert len(own) == 2
        for cell in own:
            note = cell["directions of whole batches"]["note"]
            assert note.startswith(
                f"of {columns} columns 0 above 0.999, 0 above 0.99, 0 above 0.95"
            )


def test_what_is_said_of_known_rows_under_the_budget_is_what_was_stored():
    text = " ".join((ROOT / "docs" / "sums.md").read_text().split())
    chances = []
    for name, got, chance in (
        ("credit-card", (81, 92), (52, 54)),
        ("handwritten", (13, 61), (16, 17)),
    ):
        assert f"of {name} {got[0]} to {got[1]} % (chance {chance[0]} to {chance[1]} %)" in text
        own = [c for c in CELLS if c["data"] == name and c["method"] in ("fedvs", "coded_split")]
        found = [c["completion of sums"] for c in own]
        assert sorted(round(100 * one["success"]) for one in found) == list(got)
        assert sorted(round(100 * one["chance"]) for one in found) == list(chance)
    for name, words in (
        ("wine", "10 to 11 % of the non-zero entries of the other rows of wine"),
        ("breast-cancer", "65 to 74 % of breast-cancer's"),
        ("digits", "95 to 96 % of digits'"),
    ):
        own = [c for c in CELLS if c["data"] == name and c["method"] in ("fedvs", "coded_split")]
        found = [c["completion of sums"] for c in own]
        got = sorted(round(100 * one["success"]) for one in found)
        assert words.startswith(f"{got[0]} to {got[-1]} %")
        assert words in text
        chances += [round(100 * one["chance"]) for one in found]
    assert f"where chance gives {min(chances)} to {max(chances)} %" in text


def test_what_is_said_of_other_rows_under_the_budget_is_what_was_stored():
    text = " ".join((ROOT / "docs" / "sums.md").read_text().split())
    assert "gets less than the guess, on wine, digits and credit-card (K = 1)" in text
    found = SUMS["others_defaults"]
    assert {r["data"] for r in found} == {"wine", "digits", "credit-card"}
    for row in found:
        if row["method"] == "coded_split":
            assert row["success"] is None
        else:
            assert row["success"] < row["chance"]


def test_the_table_of_smaller_budgets_is_what_was_stored():
    cells = json.loads((ROOT / "benchmarks/results/privacy/budgets.json").read_text())["cells"]
    rows = []
    for budget in dict.fromkeys(cell["budget"] for cell in cells):
        own = [cell for cell in cells if cell["budget"] == budget]
        near = ", ".join(re.search(r"(\d+) above 0\.95", cell["note"])[1] for cell in own)
        mean = sum(cell["accuracy"] for cell in own) / len(own)
        rows.append(f"| {budget:g} | {own[0]['equations']} | {near} | {mean:.1f} |")
    assert "\n".join(rows) in (ROOT / "docs" / "sums.md").read_text()


def test_the_table_of_columns_without_a_budget_is_what_was_stored():
    """Columns above 0.95 that `squares` found, by sets and methods; a cell of one seed says so."""
    stored = SUMS["squares"]
    text = (ROOT / "docs" / "sums.md").read_text()
    for name in ("wine", "breast-cancer", "digits", "credit-card", "handwritten"):
        cells = []
        for method in ("fedvs", "coded_split"):
            for K in (1, 2):
                key = (name, method, K)
                own = [r for r in stored if (r["data"], r["method"], r["K"]) == key]
                cells.append(columns_found(own))
        assert f"| {name} | {' | '.join(cells)} |" in text


def columns_found(rows):
    if not rows:
        return "not run"
    if any(row["success"] is None for row in rows):
        assert "do not determine the space" in rows[0]["note"]
        return "space not determined"
    counts = [row["above_95"] for row in rows]
    some = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else str(counts[0])
    return f"{some} of {rows[0]['columns']}" + " (one seed)" * (len(rows) == 1)


def test_what_is_said_of_completion_over_epochs_is_what_was_stored():
    text = (ROOT / "docs" / "sums.md").read_text()
    told = (("wine", 12, "97 to 98 %"), ("breast-cancer", 12, "85 %"), ("digits", 3, "11 %"))
    for name, epochs, said in told:
        rows = [r for r in SUMS["epochs"] if (r["data"], r["epochs"]) == (name, epochs)]
        found = [round(100 * (1 - row["outside"])) for row in rows]
        words = f"{min(found)} to {max(found)} %" if min(found) < max(found) else f"{found[0]} %"
        assert words == said
        assert f"explains {words}" in text
        assert re.search(rf"random one\b[^.]*?{round(100 * (1 - rows[0]['chance']))} %", text)
        assert {row["above_95"] for row in rows} == {0}


def test_what_is_said_of_a_rotation_is_what_was_stored(page):
    frontier = importlib.import_module("frontier_page")
    text = " ".join((ROOT / "docs" / "sums.md").read_text().split())
    folder = ROOT / "benchmarks" / "results" / "sums"
    for name, one in json.loads((folder / "rule.json").read_text())["sets"].items():
        runs = {(r["degree"], r["rotation"]): np.array(r["test"]) for r in one["runs"]}
        if (1, True) in runs:
            less = frontier.signed(*frontier.interval(runs[1, True] - runs[1, False]), 2).replace(
                "*", ""
            )
            assert f"{less} on {name}" in text
        else:
            assert name == "fashion-mnist"
    within, beyond = {}, {False: [], True: []}
    for name in ("digits", "breast-cancer", "credit-card", "handwritten", "fashion-mnist"):
        content = json.loads((folder / f"frontier-{name}.json").read_text())
        for line in content["lines"]:
            assert set(line["attack"]) == set(line["test"])  # each point was attacked
            for epochs, got in line["attack"].items():
                above = got.get("above 0.95", 0)
                if frontier.released(line, epochs, content) > 1:
                    if (name, line["degree"]) == ("breast-cancer", 2):
                        beyond[line["rotation"]].append(above)
                elif above:
                    within[name, line["width"], line["rotation"], int(epochs)] = above
    assert within == {
        ("digits", 2, False, 30): 4,
        ("digits", 4, False, 15): 4,
        ("digits", 4, True, 15): 4,
        ("credit-card", 1, False, 23): 1,
        ("credit-card", 1, True, 23): 1,
    }
    assert "columns at five points of five sets, with or without it" in text
    assert max(beyond[False]) == 6
    assert max(beyond[True]) == 0
    assert "up to 6 of breast-cancer's columns without it, and none with it" in text
