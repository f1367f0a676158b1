"""Which rows and terms a client of FedVS lets a server name."""

import numpy as np
import pytest

from securevfl.errors import RunError
from securevfl.protocols.fedvs.messages import Batch
from securevfl.protocols.fedvs.terms import check_rows
from securevfl.testing.runs import make

PUBLIC = make("fedvs").public
LENGTH = PUBLIC.batches["train"].length


@pytest.mark.parametrize("rows", [[], [0], [3, 1, 3], [LENGTH - 1]])
def test_row_numbers_from_0_are_taken(rows):
    check_rows(PUBLIC, Batch("train", np.array(rows, np.uint32)))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.array([1, 2]) - LENGTH, "as int64"),  # the same rows by other numbers
        (np.arange(LENGTH) < 3, "as bool"),
        (np.array([1.0]), "as float64"),
        (np.array([[1]], np.uint32), r"as uint32 \(1, 1\)"),
        ([1, 2], "as list"),
        (np.array([LENGTH], np.uint32), f"row {LENGTH}, .* 0 to {LENGTH - 1}"),
    ],
)
def test_rows_by_another_name_are_refused(rows, words):
    with pytest.raises(RunError, match=f"{words}.*Nothing was uploaded"):
        check_rows(PUBLIC, Batch("train", rows))


def test_rows_of_a_part_that_is_not_shared_are_refused():
    with pytest.raises(RunError, match=r"part 'test'.*Nothing was uploaded"):
        check_rows(PUBLIC, Batch("test", np.array([0], np.uint32)))
