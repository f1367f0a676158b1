"""Rows gathered from several matrices, against numpy."""

import numpy as np
import pytest

from securevfl.errors import FieldError
from securevfl.field.side_by_side import SideBySide


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_rows_are_those_of_all_matrices_next_to_each_other_at_every_width(dtype):
    rng = np.random.default_rng(0)
    widths = [*range(36), 100]  # below a line of 64 bytes, whole lines, and ends of lines
    wide = [rng.integers(0, 1 << 31, (50, width + 3)).astype(dtype) for width in widths]
    matrices = [each[:, 1 : 1 + width] for each, width in zip(wide, widths, strict=True)]
    numbers = rng.integers(0, 50, 17).astype(np.uint32)
    wanted = np.concatenate([matrix[numbers] for matrix in matrices], axis=1)
    found = SideBySide(matrices).rows(numbers)
    assert found.dtype == dtype
    assert np.array_equal(found, wanted)
    assert np.array_equal(SideBySide(matrices).rows(numbers[:0]), wanted[:0])
    assert np.array_equal(SideBySide(matrices[1:2]).rows(numbers), matrices[1][numbers])


@pytest.mark.parametrize("numbers", [[0, 5], [-1, 2], [2**40]])
def test_a_number_of_no_row_is_refused_before_anything_is_read(numbers):
    matrices = [np.ones((5, 3), np.uint64), np.ones((5, 2), np.uint64)]
    with pytest.raises(FieldError, match=r"from 0 to 4, and asked for are"):
        SideBySide(matrices).rows(np.array(numbers))
    for other in ([0.9], [True, False]):
        with pytest.raises(FieldError, match="integers"):
            SideBySide(matrices).rows(np.array(other))


@pytest.mark.parametrize(
    "other",
    [
        np.ones((4, 3), np.uint64),
        np.ones((5, 3), np.uint32),
        np.ones(5, np.uint64),
        np.ones((5, 1, 1), np.uint64),
    ],
)
def test_matrices_of_another_form_are_refused(other):
    with pytest.raises(FieldError, match="as many rows each and one dtype"):
        SideBySide([np.ones((5, 3), np.uint64), other])


def test_whether_matrices_are_the_same_is_a_question_of_identity():
    first, second = np.ones((2, 2), np.uint64), np.ones((2, 2), np.uint64)
    both = SideBySide([first, second])
    assert both.are([first, second])
    assert not both.are([second, first])
    assert not both.are([first])
    assert not both.are([first, second.copy()])
