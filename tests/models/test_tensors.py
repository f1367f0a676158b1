"""Arrays become tensors whose products do not depend on where the arrays stood."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import securevfl
from securevfl.models.split import Centre
from securevfl.models.tensors import ALIGNMENT, tensor

LINE = 64  # Bytes of a cache line.


def standing_at(array, offset):
    """A copy of an array whose first value is `offset` bytes behind a cache line's begin."""
    memory = np.empty(array.nbytes + 2 * LINE, np.uint8)
    start = -memory.ctypes.data % LINE + offset
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (7, 5), (2, 3, 5)])
def test_a_tensor_is_an_aligned_copy_in_rows(shape, dtype):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    for values in (array, array.T, standing_at(array, 8), array[..., ::-1] if shape else array):
        found = tensor(values)
        assert found.data_ptr() % ALIGNMENT == 0 or not found.numel()
        assert found.is_contiguous()
        assert found.numpy().dtype == dtype
        assert np.array_equal(found.numpy(), values)


def test_it_is_of_the_dtype_that_is_asked_for_and_shares_nothing():
    array = np.ones((3, 2))
    array.flags.writeable = False
    found = tensor(array, np.float32)
    found += 1
    assert found.dtype == torch.float32
    assert (array == 1).all()


@pytest.mark.parametrize(("rows", "width", "outputs"), [(1, 5, 10), (1, 17, 10), (37, 64, 3)])
def test_products_do_not_depend_on_the_address_of_the_array(rows, width, outputs):
    rng = np.random.default_rng(rows)
    x, w = rng.normal(size=(rows, width)), rng.normal(size=(outputs, width))
    for dtype, step in ((np.float32, 4), (np.float64, 8)):
        results = {
            torch.nn.functional.linear(
                tensor(standing_at(x.astype(dtype), offset)),
                tensor(standing_at(w.astype(dtype), (5 * offset) % LINE)),
            )
            .numpy()
            .tobytes()
            for offset in range(0, LINE, step)
        }
        assert len(results) == 1


@pytest.mark.parametrize(("rows", "width", "outputs"), [(1, 5, 10), (1, 17, 10), (37, 64, 3)])
def test_the_alignment_is_enough_for_this_processor(rows, width, outputs):
    rng = np.random.default_rng(rows)
    places = range(0, LINE, ALIGNMENT)
    for dtype in (np.float32, np.float64):
        x, w = (rng.normal(size=(n, width)).astype(dtype) for n in (rows, outputs))
        lefts, rights = ([torch.from_numpy(standing_at(a, o)) for o in places] for a in (x, w))
        linear = torch.nn.functional.linear
        assert len({linear(a, b).numpy().tobytes() for a in lefts for b in rights}) == 1


def test_scores_do_not_depend_on_the_address_of_the_embedding():
    optimizer = {"name": "sgd", "lr": 0.1}
    centre = Centre("multiclass", 10, 5, network="linear", hidden=0, optimizer=optimizer, seed=0)
    embedding = np.random.default_rng(3).normal(size=(1, 5)).astype(np.float32)
    found = {centre.scores(standing_at(embedding, o)).tobytes() for o in range(0, LINE, 4)}
    assert len(found) == 1


def test_models_turn_arrays_into_tensors_in_one_place():
    root = Path(securevfl.__file__).parent
    files = [*(root / "models").rglob("*.py"), *(root / "protocols").rglob("*.py")]
    made = re.compile(r"torch\.(from_numpy|as_tensor|tensor)\(")
    users = {file.name for file in files if made.search(file.read_text())}
    assert users == {"tensors.py"}
