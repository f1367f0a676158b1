"""Arrays become tensors here, at addresses on which no product depends.

The kernels of a matrix library may take the values before an aligned address one by one, and then
add up a row's products in an order that follows from where the operand stands in memory. Two
copies of one array can so give products that differ in their last digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

if TYPE_CHECKING:
    import torch

ALIGNMENT = 64  # Bytes: a cache line, and the widest vector of the processors of today.


def tensor(values: ArrayLike, dtype: DTypeLike | None = None) -> torch.Tensor:
    """A torch tensor with a copy of an array, in rows, from an address divisible by 64.

    Parameters
    ----------
    values : ndarray
        Of any strides and at any address; it may be read-only.
    dtype : numpy dtype, optional
        That of `values` if not given.
    """
    import torch

    array = np.asarray(values)
    kind = array.dtype if dtype is None else np.dtype(dtype)
    size = array.size * kind.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.__array_interface__["data"][0] % ALIGNMENT
    aligned = memory[start : start + size].view(kind).reshape(array.shape)
    aligned[...] = array
    return torch.from_numpy(aligned)
