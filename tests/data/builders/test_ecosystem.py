"""Data sets from scikit-learn's bunches, pandas and torch: the same rows each way."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets
from sklearn.utils import Bunch

from securevfl.data import VerticalDataset
from securevfl.errors import DataError


def test_a_bunch_of_arrays_is_the_same_as_its_arrays():
    bunch = datasets.load_breast_cancer()
    ours = VerticalDataset.from_sklearn(bunch, parties=5, seed=3)
    theirs = VerticalDataset.from_numpy(bunch.data, bunch.target, parties=5, seed=3)
    for n in range(5):
        assert (ours.train[n] == theirs.train[n]).all()
    assert (ours.train_labels == theirs.train_labels).all()
    assert ours.classes == ("malignant", "benign")
    assert ours.class_values.tolist() == theirs.class_values.tolist() == [0, 1]
    assert ours.columns[0][0] == "mean radius"


def test_a_bunch_of_frames_keeps_names_and_kinds():
    bunch = datasets.load_wine(as_frame=True)
    ours = VerticalDataset.from_sklearn(bunch, owners={"lab": ["ash", "hue"], "bar": [
        c for c in bunch.feature_names if c not in ("ash", "hue")]})  # fmt: skip
    assert ours.party_names == ("lab", "bar")
    assert ours.columns[0] == ("ash", "hue")
    assert ours.classes == ("class_0", "class_1", "class_2")
    new = ours.transform.apply(bunch.data.iloc[:4])
    low, high = bunch.data["ash"].min(), bunch.data["ash"].max()
    by_hand = (bunch.data["ash"].iloc[:4] - low) / (high - low)
    np.testing.assert_allclose(new[0][:, 0], by_hand, atol=0.05)  # fitted on training rows only


def test_images_and_real_targets():
    digits = VerticalDataset.from_sklearn(datasets.load_digits(), parties=4, strips="rows")
    assert digits.party_image_shapes == ((1, 2, 8),) * 4
    assert VerticalDataset.from_sklearn(datasets.load_diabetes(), parties=4).task == "regression"


@pytest.mark.parametrize(
    ("bunch", "message"),
    [
        (Bunch(data=np.zeros((4, 2))), "has no 'target'"),
        (datasets.load_linnerud(), r"targets of shape \(20, 3\)"),
        (Bunch(data=pd.DataFrame({"target": [1.0, 2.0]}), target=np.arange(2)), "rename it"),
    ],
)
def test_bunches_that_cannot_be_used(bunch, message):
    with pytest.raises(DataError, match=message):
        VerticalDataset.from_sklearn(bunch)


def test_a_sparse_bunch_is_refused():
    from scipy.sparse import csr_matrix

    bunch = Bunch(data=csr_matrix(np.eye(3)), target=np.arange(3))
    with pytest.raises(DataError, match="sparse matrix"):
        VerticalDataset.from_sklearn(bunch)


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
