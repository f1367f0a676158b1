"""Rows of several matrices side by side, for products over all parties' columns."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from securevfl.errors import FieldError

Array = NDArray[Any]


class SideBySide:
    """Matrices of equal height whose rows are gathered into rows of one matrix.

    Parameters
    ----------
    matrices : sequence of ndarray, (rows, d_n), uint32 or uint64
        At least one matrix, all of one dtype. They are referenced, not copied.

    Raises
    ------
    FieldError
        If numbers of rows or dtypes differ, or a matrix has not two axes.

    Examples
    --------
    >>> both = SideBySide([np.array([[1], [2]], np.uint32), np.array([[3, 4], [5, 6]], np.uint32)])
    >>> both.rows(np.array([1, 0])).tolist()
    [[2, 5, 6], [1, 3, 4]]
    """

    def __init__(self, matrices: Sequence[Array]) -> None:
        # A row must be one run of bytes; rows themselves may stand apart.
        self.matrices = tuple(matrices)
        first = self.matrices[0]
        for matrix in self.matrices:
            alike = matrix.dtype == first.dtype and matrix.dtype in (np.uint32, np.uint64)
            if not alike or matrix.ndim != 2 or len(matrix) != len(first):
                raise FieldError(
                    f"SideBySide: the matrices must have as many rows each and one dtype, uint32 "
                    f"or uint64; one has shape {first.shape} and {first.dtype}, another "
                    f"{matrix.shape} and {matrix.dtype}."
                )
        self._held = [np.ascontiguousarray(matrix) for matrix in self.matrices]
        self._length, self._dtype = len(first), first.dtype
        self._columns = sum(matrix.shape[1] for matrix in self._held)
        places = [(m.ctypes.data, m.strides[0], m.shape[1] * m.itemsize) for m in self._held]
        self._places = np.array(places, np.int64)

    def are(self, matrices: Sequence[Array]) -> bool:
        """Whether these are the same objects, in the same order, as here."""
        same = len(matrices) == len(self.matrices)
        return same and all(map(operator.is_, self.matrices, matrices))

    def rows(self, numbers: Array) -> Array:
        """Return the rows with some numbers, (len(numbers), sum of d_n).

        Parameters
        ----------
        numbers : ndarray, (m,), integers
            From 0; a number may occur more than once.

        Raises
        ------
        FieldError
            If a number is no row number, or no integer.
        """
        from securevfl.field.kernels.streaming.gather import gather

        out = np.empty((len(numbers), self._columns), self._dtype)
        if numbers.dtype.kind not in "iu":
            raise FieldError(
                f"SideBySide.rows: row numbers must be integers, they are {numbers.dtype}."
            )
        asked = np.ascontiguousarray(numbers, np.int64)
        if not gather(self._places, self._length, asked, out.view(np.uint8)):
            raise FieldError(
                f"SideBySide.rows: rows are numbered from 0 to {self._length - 1}, and asked for "
                f"are {int(asked.min())} to {int(asked.max())}."
            )
        return out
