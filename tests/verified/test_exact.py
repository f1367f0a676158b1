"""Exact counting of a `World`'s programs, against two evaluators of the tests' own."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from securevfl.verified import SERVER, FlowError, World, count, decide
from securevfl.verified.trace import OPENED
from tests.outsider import fuzz
from tests.verified.counting import Case


@pytest.mark.parametrize("number", range(20))
def test_it_agrees_with_expressions_that_are_written_twice(number):
    case = Case(("exact", number), tags=number % 3 == 0)
    try:
        case.write()
    except FlowError:
        return
    assert count(case.world, {SERVER}).leaks is (not case.private())


def test_it_agrees_with_the_outsiders_evaluator():
    found = set()
    for number in range(50):
        rng = np.random.default_rng([7, number])
        program = fuzz.Maker(rng).make()
        try:
            world, exact = fuzz.traced(program), fuzz.exact_of(program)
        except FlowError:
            continue
        told = [some for some in fuzz.COALITIONS if fuzz.receives(program, some)]
        for some in told[:2]:
            leaks = count(world, some).leaks
            if leaks is not None:
                found.add(leaks)
                assert leaks is (not exact.private(some)), (number, some)
    assert found == {True, False}


def bounded(x, most):
    return np.minimum(x, most)


def undefined(x):
    return x[np.nonzero(x)[0][:1]]


def start(p=3):
    world = World(p)
    alice, _ = world.party(0), world.party(SERVER)
    return world, alice, world.secret(0, "x", (2,))


def test_two_inputs_that_leak_are_named():
    world, alice, x = start()
    mask = alice.uniform(1)
    alice.send(SERVER, "up", x + mask[[0, 0]])
    found = count(world, {SERVER})
    assert found.leaks
    assert found.cases == 27
    assert "x = [0, 0] and x = [1, 0] have equal outputs, and one view comes in 1" in found.text


@pytest.mark.parametrize(("most", "leaks"), [(2, False), (1, True)])
def test_a_verdict_that_is_not_proved_says_what_was_counted(most, leaks):
    """A mask that a function passes on is a mask, but no algebra of unknown functions knows it."""
    world, alice, x = start()
    mask = alice.uniform(2).map(functools.partial(bounded, most=most))
    alice.send(SERVER, "up", x + mask)
    found = decide(world, {SERVER})
    assert found.verdict == "NOT PROVED"
    assert found.counted == count(world, {SERVER}).text
    assert ("it leaks" in found.counted) is leaks


def real(world, alice, x):
    h = world.secret(0, "h", (2,), real=True)
    alice.send(SERVER, "up", h.map(np.sign))


def many(world, alice, x):
    alice.uniform(10)  # eleven entries are too many for 65,536 cases


def opens(world, alice, x):
    alice.send(SERVER, "up", x)
    world.sent(0, None, f"{OPENED}total", 0, x.sum())


def key(world, alice, x):
    alice.send(SERVER, "share", alice.split_key(alice.key(), 1, [1])[1])


def errs(world, alice, x):
    world.secret(0, "one", np.array([1, 1])).map(undefined, shape=(1,))


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (real, "h of party 0 is of real numbers"),
        (many, "3^12 cases or more are too many"),
        (key, "a key is computed with"),
        (opens, "the run opens a value"),
        (errs, "undefined ends in FlowError for some inputs"),
    ],
)
def test_what_is_not_counted_says_why(program, why):
    world, alice, x = start()
    program(world, alice, x)
    found = count(world, {SERVER})
    assert found.leaks is None
    assert why in found.text
    assert "p = 2, 3 or 5" in found.text
