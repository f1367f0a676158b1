"""Checks of what a party is sent: many arrays in one pass."""

import numpy as np
import pytest

from securevfl.errors import ProtocolError
from securevfl.protocols.base.received import check_arrays

SHAPES = {0: (2, 3), 1: (1, 3), 2: (2, 3)}


def arrays():
    return {n: np.full(shape, n, np.uint32) for n, shape in SHAPES.items()}


def test_arrays_of_the_field_pass():
    check_arrays("fedvs: 'model'", arrays(), SHAPES, np.uint32, 97)
    check_arrays("fedvs: 'model'", {}, SHAPES, np.uint32, 97)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (np.full((1, 3), 97, np.uint32), "an array with 97 in it"),
        (np.zeros((1, 3), np.uint64), r"an array of shape \(1, 3\), uint64"),
        (np.zeros((3, 1), np.uint32), r"an array of shape \(3, 1\)"),
        ([[0, 0, 0]], "a list"),
    ],
)
def test_the_sender_of_the_wrong_one_is_named(wrong, why):
    sent = arrays() | {1: wrong}
    with pytest.raises(ProtocolError, match=f"fedvs: 'model' from party 1 is {why}"):
        check_arrays("fedvs: 'model'", sent, SHAPES, np.uint32, 97)
