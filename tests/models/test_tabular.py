"""Columns of category codes: looked up by networks that can, refused by those that cannot."""

import numpy as np
import pandas as pd
import pytest
import torch

import securevfl
from securevfl.data.dataset import VerticalDataset
from securevfl.errors import ConfigurationError
from securevfl.models.tabular import tabular_front
from tests.data.small_sets import synthetic_clicks


def test_rows_are_numbers_then_embeddings():
    torch.manual_seed(0)
    front, width = tabular_front((0, 3, 0, 2), 4)
    assert width == 2 + 2 * 4
    rows = torch.tensor([[0.5, 2.0, -1.0, 1.0], [0.25, 0.0, 3.0, 0.0]])
    out = front(rows)
    assert torch.equal(out[:, :2], rows[:, [0, 2]])
    assert torch.equal(out[:, 2:6], front.tables[0].weight[[2, 0]])
    assert torch.equal(out[:, 6:], front.tables[1].weight[[1, 0]])


@pytest.fixture(scope="module")
def table():
    """Labels that are a function of two parties' texts and of no order among them."""
    draw = np.random.default_rng(0)
    left, right = draw.integers(0, 12, 1200), draw.integers(0, 12, 1200)
    frame = pd.DataFrame({"l": left, "a": draw.normal(size=1200), "r": right})
    frame["y"] = (left * 7 % 12 + right * 5 % 12) % 24 > 11
    frame = frame.astype({"l": "category", "r": "category", "y": int})
    return VerticalDataset.from_pandas(frame, "y", parties=2, coding="codes", seed=1)


def test_a_split_run_learns_from_codes(table):
    run = securevfl.run(
        "split", table, rounds=300, client="mlp", conditions="none", sealed=False, batch=64
    )
    assert run.summary()["test_accuracy"] > 0.9


@pytest.mark.parametrize("protocol", ["fedvs", "split"])
def test_networks_that_take_numbers_for_sizes_are_refused(protocol):
    data = synthetic_clicks().AVAZU_TWIN.load(rows=500)
    options = {"segments": 1} if protocol == "fedvs" else {}
    with pytest.raises(ConfigurationError, match="category codes; load"):
        securevfl.run(protocol, data.with_parties(6), rounds=2, **options)


def test_data_owners_of_multivfl_embed_their_codes():
    data = synthetic_clicks().AVAZU_TWIN.load(rows=500)
    small = {"rounds": 1, "conditions": "none", "label_owners": 2}
    with pytest.raises(ConfigurationError, match="category codes; load"):
        securevfl.run("multivfl", data, client="pn", **small)
    run = securevfl.run("multivfl", data, client="mlp", embedding=5, **small)
    tables = [array for name, array in run.models().items() if "table" in name or "embed" in name]
    assert tables
