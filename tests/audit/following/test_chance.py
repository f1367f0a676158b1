"""What chance gave to a step, given once more."""

import os

import pytest

from securevfl.audit.following.chance import Chance
from securevfl.data.alignment import psi


@pytest.fixture
def chance():
    made = Chance()
    with made.watch():
        yield made


def step(chance, *sizes):
    chance.begin()
    drawn = [os.urandom(size) for size in sizes]
    chance.end()
    return drawn


def test_a_repetition_gets_the_same_in_the_same_order(chance):
    drawn = step(chance, 32, 16, 32)
    with chance.again():
        assert [os.urandom(size) for size in (32, 16, 32)] == drawn
    assert chance.unlike == {}


@pytest.mark.parametrize(("drawn", "asked", "times"), [((32, 32), (32,), 1), ((), (32,), 1),
                                                       ((32, 16), (16, 16), 2)])  # fmt: skip
def test_what_is_drawn_more_or_less_often_is_counted(chance, drawn, asked, times):
    step(chance, *drawn)
    with chance.again():
        assert [len(os.urandom(size)) for size in asked] == list(asked)
    assert chance.unlike == {"bytes of the operating system": times}


def test_bytes_of_another_size_do_not_move_the_others(chance):
    drawn = step(chance, 2, 32)
    with chance.again():
        assert os.urandom(32) == drawn[1]


def test_a_secret_that_other_code_draws_is_one_result(chance):
    chance.begin()
    scalar, order = psi.draw_blinding(20)
    chance.end()
    with chance.again():
        again = psi.draw_blinding(20)
    assert again[0] == scalar
    assert (again[1] == order).all()
    assert chance.unlike == {}


def test_outside_of_steps_nothing_is_kept_and_the_functions_come_back():
    before, chance = os.urandom, Chance()
    with chance.watch():
        os.urandom(8)
        with chance.again():
            pass
        assert chance.unlike == {}
        assert os.urandom is not before
    assert os.urandom is before
