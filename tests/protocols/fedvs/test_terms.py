"""Which rows and terms a client of FedVS lets a server name."""

import numpy as np
import pytest

from securevfl.errors import ProtocolError, RunError
from securevfl.protocols.fedvs.messages import Attempt, Batch
from securevfl.protocols.fedvs.terms import check_attempt, check_data, check_rows
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


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (Attempt((0, 1, 2), life="2"), "its incarnation '2', which must be an integer"),
        (Attempt((0, 1, 1)), "clients from 0 to 5, each once"),
        (Attempt((0, 1, 8)), "clients from 0 to 5, each once"),
        (Attempt((0, 1)), r"which are 2; masks with T = 1 need at least T\+2"),
    ],
)
def test_an_attempt_that_is_refused_hears_of_one_cause(attempt, words):
    with pytest.raises(ProtocolError, match=f"{words}.*Nothing was uploaded"):
        check_attempt(PUBLIC, attempt)


@pytest.mark.parametrize("share", [([1], [1, 2]), None, 3, np.array(3, PUBLIC.field.dtype)])
def test_what_is_no_share_of_data_is_refused(share):
    with pytest.raises(ProtocolError, match="'train-data'"):
        check_data(PUBLIC, "train", 1, share)
