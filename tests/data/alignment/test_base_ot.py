"""Base transfers: the curve by hand, who ends with which seeds, and foreign bytes."""

from __future__ import annotations

import numpy as np
import pytest

from securevfl.data.alignment.base_ot import (
    Point,
    both_seeds,
    choose,
    hash_to_curve,
    offer,
)
from securevfl.errors import RunError

P = 2**256 - 2**224 + 2**192 + 2**96 - 1
B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
SESSION = bytes(32)


def on_curve(point: Point) -> bool:
    return (point.y**2 - point.x**3 + 3 * point.x - B) % P == 0


def times(k: int, point: Point) -> Point | None:
    total = None
    for bit in f"{k:b}":
        total = total.plus(total) if total else None
        if bit == "1":
            total = total.plus(point) if total else point
    return total


def test_points_add_as_those_of_openssl():
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, derive_private_key

    def public(k):
        numbers = derive_private_key(k, SECP256R1()).public_key().public_numbers()
        return Point(numbers.x, numbers.y)

    k = 0xC0FFEE1234567890ABCDEF
    assert times(k, public(1)) == public(k)
    assert public(5).plus(public(3).negative()) == public(2)
    with pytest.raises(ZeroDivisionError):
        public(5).plus(public(5).negative())


def test_hashes_are_points_that_depend_on_the_text_alone():
    found = [hash_to_curve(b"%d" % n) for n in range(20)]
    assert all(map(on_curve, found))
    assert len({point.x for point in found}) == 20
    assert {point.y % 2 for point in found} == {0, 1}
    assert hash_to_curve(b"7") == found[7]


def test_the_receiver_gets_the_seeds_of_its_choices_alone():
    choices = np.array([0, 1, 1, 0, 1], np.uint8)
    keys, offered = offer(5)
    seeds, answers = choose(SESSION, offered, choices, "S")
    both = both_seeds(SESSION, keys, offered, answers, "R")
    assert np.array_equal(both[choices, np.arange(5)], seeds)
    assert len(np.unique(both.reshape(10, 16), axis=0)) == 10
    other = both_seeds(bytes(31) + b"1", keys, offered, answers, "R")  # another session
    assert not (other == both).all(axis=2).any()


def test_points_of_the_receiver_are_alike_for_both_choices():
    """Both are on the curve, and no point comes again; neither half is the own key."""
    _, offered = offer(8)
    halves = []
    for bit in (0, 1):
        _, answers = choose(SESSION, offered, np.full(8, bit), "S")
        halves += [row[at : at + 65].tobytes() for row in answers for at in (0, 65)]
    assert len(set(halves)) == 32
    assert all(
        on_curve(Point(int.from_bytes(h[1:33], "big"), int.from_bytes(h[33:], "big")))
        for h in halves
    )


def test_foreign_bytes_are_refused():
    keys, offered = offer(1)
    _, answers = choose(SESSION, offered, np.array([1]), "S")
    for changed in (answers * 0, answers ^ np.eye(1, 130, 129, np.uint8)):
        with pytest.raises(RunError, match="R sent bytes that are no point"):
            both_seeds(SESSION, keys, offered, changed, "R")
    with pytest.raises(RunError, match="S sent bytes that are no point"):
        choose(SESSION, offered * 0, np.array([1]), "S")
    r_1 = hash_to_curve(b"anything")
    r_0 = hash_to_curve(SESSION, bytes(5), r_1.encoded()).negative()  # y_0 is zero
    zero = np.frombuffer(r_0.encoded() + r_1.encoded(), np.uint8)[None]
    with pytest.raises(RunError, match="no point"):
        both_seeds(SESSION, keys, offered, zero, "R")
