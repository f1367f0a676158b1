"""Data sets from pandas and torch: the same rows each way."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from securevfl.data import VerticalDataset
from securevfl.errors import DataError


def frames():
    rng = np.random.default_rng(0)
    bank = pd.DataFrame({"income": rng.random(30), "job": rng.choice(["a", "b"], 30)})
    shop = pd.DataFrame({"visits": rng.integers(0, 9, 30), "y": rng.choice(["no", "yes"], 30)})
    return bank, shop


def test_named_frames_column_groups_and_party_names_say_the_same():
    bank, shop = frames()
    mapped = VerticalDataset.from_pandas({"bank": bank, "shop": shop}, "y", seed=1)
    listed = VerticalDataset.from_pandas([bank, shop], "y", party_names=["bank", "shop"], seed=1)
    whole = pd.concat([bank, shop], axis=1)
    groups = {"bank": ["income", "job"], "shop": ["visits"]}
    grouped = VerticalDataset.from_pandas(whole, "y", owners=groups, seed=1)
    assert mapped.fingerprint() == listed.fingerprint() == grouped.fingerprint()
    assert grouped.party_names == ("bank", "shop")
    with pytest.raises(DataError, match="leave one of them out"):
        VerticalDataset.from_pandas(whole, "y", owners=groups, party_names=["a", "b"])


def test_a_torch_data_set_is_the_same_as_its_arrays():
    import torch
    from torch.utils.data import TensorDataset

    rng = np.random.default_rng(0)
    X, y = rng.random((30, 4)).astype(np.float32), rng.integers(0, 2, 30)
    pairs = TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
    ours = VerticalDataset.from_torch(pairs, parties=2, name="x")
    theirs = VerticalDataset.from_numpy(X, y, parties=2, name="x")
    assert ours.fingerprint() == theirs.fingerprint()


def test_columns_of_arrow_are_those_of_numpy():
    stream = np.random.default_rng(0)
    frame = pd.DataFrame({"a": stream.random(40), "n": range(40), "t": ["u", "v"] * 20})
    frame.loc[3, "a"] = np.nan
    frame["y"] = [True, False] * 20
    found = VerticalDataset.from_pandas(frame, "y", parties=2)
    arrow = frame.convert_dtypes(dtype_backend="pyarrow")
    assert VerticalDataset.from_pandas(arrow, "y", parties=2).fingerprint() == found.fingerprint()


@pytest.mark.parametrize("kind", ["grad", "sparse", "bfloat16"])
def test_tensors_of_every_kind_are_arrays(kind):
    import torch

    rows = torch.arange(160.0).reshape(40, 4) % 7
    labels = torch.arange(40) % 2
    found = VerticalDataset.from_numpy(rows.numpy(), labels.numpy(), parties=2)
    other = {
        "grad": rows.clone().requires_grad_(),
        "sparse": rows.to_sparse(),
        "bfloat16": rows.bfloat16(),
    }[kind]
    made = VerticalDataset.from_numpy(other, labels, parties=2)
    assert made.fingerprint() == found.fingerprint()
    assert (made.transform.apply(other)[0] == found.transform.apply(rows.numpy())[0]).all()
