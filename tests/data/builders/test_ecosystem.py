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


@pytest.mark.parametrize("kind", [np.float32, np.int64, bool])
def test_what_a_masked_array_hides_is_missing(kind):
    rows = (np.arange(160).reshape(40, 4) % 7).astype(kind)
    hidden = np.ma.masked_array(rows, mask=np.zeros(rows.shape, bool))
    labels = np.arange(40) % 2
    made = VerticalDataset.from_numpy(hidden, labels, parties=2)
    assert made.fingerprint() == VerticalDataset.from_numpy(rows, labels, parties=2).fingerprint()
    hidden[3, 1] = np.ma.masked
    with pytest.raises(DataError, match=r"'x1', .* is NaN"):
        VerticalDataset.from_numpy(hidden, labels, parties=2)
    with pytest.raises(DataError, match="'x1', row 3: the value is NaN"):
        made.transform.apply(hidden)
    for given in (labels, labels.astype(str)):
        some = np.ma.masked_array(given, mask=labels < 0)
        some[5] = np.ma.masked
        with pytest.raises(DataError, match="1 of 40 labels are missing, the first in row 5"):
            VerticalDataset.from_numpy(rows, some, parties=2)


def test_arrays_without_dense_values_are_refused():
    import scipy.sparse
    import torch

    labels = np.arange(40) % 2
    for given, why in (
        (scipy.sparse.csr_array(np.eye(40)), r"sparse matrix of shape \(40, 40\).*toarray"),
        (torch.empty(40, 2, device="meta"), "device meta, which has no values"),
    ):
        with pytest.raises(DataError, match=why):
            VerticalDataset.from_numpy(given, labels, parties=2)


@pytest.mark.parametrize("change", [
    lambda frame: frame.to_dict("list"), lambda frame: frame.to_dict("records"),
    lambda frame: frame.to_records(index=False), lambda frame: frame["visits"],
])  # fmt: skip
def test_what_is_no_data_frame_is_refused(change):
    bank, shop = frames()
    with pytest.raises(DataError, match=r"party 1: an object of the type \w+ is no table; give a"):
        VerticalDataset.from_pandas([bank, change(shop)], "y")


def test_columns_with_numbers_for_names_are_found_in_new_rows():
    stream = np.random.default_rng(0)
    frame = pd.DataFrame(stream.random((40, 4)))
    made = VerticalDataset.from_pandas(frame.assign(y=[0, 1] * 20), "y", parties=2)
    assert made.columns == (("0", "1"), ("2", "3"))
    new = made.transform.apply(frame)
    assert (made.transform.apply(frame.to_numpy())[1] == new[1]).all()


def test_frames_in_the_place_of_arrays_keep_their_names():
    stream = np.random.default_rng(0)
    parts = [pd.DataFrame(stream.random((40, 2)), columns=list(names)) for names in ("ab", "cd")]
    made = VerticalDataset.from_numpy(parts, [0, 1] * 20)
    assert made.columns == (("a", "b"), ("c", "d"))
    swapped = [part.iloc[:, ::-1] for part in parts]
    assert (made.transform.apply(swapped)[0] == made.transform.apply(parts)[0]).all()
