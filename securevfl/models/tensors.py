"""Arrays become tensors here, at addresses on which no product depends.

The kernels of a matrix library may take the values before an aligned address one by one, and then
add up a row's products in an order that follows from where the operand stands in memory. Two
copies of one array can so give products that differ in their last digits. MKL does this on some
processors where an operand does not stand at an address divisible by 16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

if TYPE_CHECKING:
    import torch

ALIGNMENT = 16  # Bytes: what memory for any type is aligned to, on 64-bit x86 and arm.


def tensor(values: ArrayLike, dtype: DTypeLike | None = None) -> torch.Tensor:
    """A torch tensor with a copy of an array, in rows, from an address divisible by `ALIGNMENT`.

    The copy is what aligns: views, memory maps and buffers of messages stand anywhere, new memory
    does not. Data sets are read-only besides, and torch would write to them.

    Parameters
    ----------
    values : ndarray
        Of any strides and at any address; it may be read-only.
    dtype : numpy dtype, optional
        That of `values` if not given.
    """
    import torch

    return torch.from_numpy(np.array(values, dtype, order="C"))
