"""The committed figures of coalitions say what the docs say of them."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOUND = json.loads((ROOT / "benchmarks/results/privacy/coalitions.json").read_text())


def test_inner_products_come_out_in_the_epoch_of_the_count_and_not_one_before():
    for row in FOUND["gram"]:
        spare = row["equations"] - row["M"]
        # As many equations as unknowns may be dependent for a row, which comes an epoch later.
        least = {True: row["tried"] if spare else 0.9 * row["tried"], False: 0}[spare >= 0]
        assert least <= row["exact"] == row["solved"] <= (row["tried"] if spare >= 0 else 0)
    assert {row["epochs"] for row in FOUND["gram"] if row["exact"]} == {7, 8}
    for row in [*FOUND["rank"], *FOUND["independent"]]:
        assert row["exact"]
        assert (row["epochs"] - 1) * row["h"] > row["rank"] >= (row["epochs"] - 2) * row["h"]


def test_the_threshold_of_holders_is_sharp():
    for row in FOUND["holders"]:
        beyond = row["holders"] - row["T"]
        assert row["combinations"] == beyond
        assert row["first_models"] == (beyond > 0)
        assert row["data"] == row["steps"] == (beyond == row["K"])


@pytest.mark.parametrize("attack", ["gradient norm", "gradient clusters", "gradient directions"])
def test_label_inference_over_many_seeds_is_at_chance_but_for_fedvs(attack):
    cells = [c for c in FOUND["labels"] if c["attack"] == attack and c["success"] is not None]
    for cell in cells:
        if not cell["protocol"].startswith("fedvs"):
            assert abs(cell["excess"]) < 0.03
        elif attack != "gradient norm" or cell["data"] == "credit-card":  # it needs a rare class
            assert cell["low"] > 0
    assert len(cells) == (6 if attack == "gradient norm" else 9)
