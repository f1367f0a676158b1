"""Names of products in long traces: nothing is proved that is not so, and forms stay short."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from securevfl.verified import SERVER, World, check, decide, forms, verdicts
from securevfl.verified.check import Entries
from securevfl.verified.forms import Algebra
from securevfl.verified.prove import search
from securevfl.verified.traced.proofs import Traced
from securevfl.verified.verdicts import Judge
from tests.outsider.fuzz import run

OWN = ({4}, {SERVER, 0}, {SERVER, 4})


@functools.cache
def traced(rounds):
    return Traced("coded_split", {"rounds": rounds}, parties=5).run()


@pytest.fixture
def named(monkeypatch):
    """Names from the first product on."""
    monkeypatch.setattr(check, "MANY", 0)
    monkeypatch.setattr(forms, "MANY", 0)


def longest(rounds):
    """Monomials and terms of the longest entry and form of a message or an output."""
    world = traced(rounds)
    entries, algebra = Entries(world), Algebra(world)
    nodes = [part.node for message in world.messages for part in message.parts]
    nodes += [output.node for output in world.outputs if not output.alone]
    polys = (poly for node in nodes for poly in entries.of(node))
    return max(map(len, polys)), max(len(algebra.form(node)) for node in nodes)


def test_no_verdict_is_wrong_with_names(named):
    counts, bad = run(seed=2027, cases=250)
    assert not bad
    assert counts["linear private PROVED"] > 20
    assert counts["other private PROVED"] > 40


def test_what_rounds_add_is_no_part_of_later_messages(named):
    assert longest(6) == longest(9)


@pytest.mark.parametrize("some", OWN, ids=str)
def test_a_proof_in_names_is_one_without(named, monkeypatch, some):
    world = traced(3)
    outputs = world.outputs_of(frozenset(some))
    found = search(Algebra(world), some, outputs)
    assert found.verdict == "PROVED"
    assert check.check(world, some, outputs, found.steps) == (None, 0)
    moves = [k for k, step in enumerate(found.steps) if step.what == "move"]
    less = [step for k, step in enumerate(found.steps) if k != moves[-1]]
    assert check.check(world, some, outputs, less)[0] is not None
    monkeypatch.setattr(check, "MANY", 10**9)
    assert check.check(world, some, outputs, found.steps) == (None, 0)


def test_outputs_are_looked_at_without_names(named):
    world = World(2**31 - 1)
    alice, bob, _ = (world.party(n) for n in (0, 1, SERVER))
    x, y = world.secret(0, "x", (2, 2)), world.secret(1, "y", (2, 2))
    mask = alice.uniform(2, 2)
    alice.send(SERVER, "up", x @ x + mask)
    bob.send(SERVER, "up", y @ y - alice.send(1, "mask", mask))
    bob.send(SERVER, "twice", (y @ y).times(2))
    one, two = world.spec(x), world.spec(y)
    both = one @ one + two @ two
    world.output("sum", both, to=[SERVER])
    assert decide(world, {SERVER}).verdict != "PROVED"
    world.output("another sum", both + two @ two, to=[SERVER])
    found = decide(world, {SERVER})
    assert found.verdict == "NOT PROVED"
    assert found.text == "outputs up to another sum tell of party 0 alone"


def test_a_tape_in_a_product_is_no_mask_of_the_product(named):
    world = World(2**31 - 1)
    alice, _ = world.party(0), world.party(SERVER)
    x, mask = world.secret(0, "x", (2, 2)), alice.uniform(2, 2)
    alice.send(SERVER, "up", mask @ mask + mask + x)
    assert decide(world, {SERVER}).verdict == "NOT PROVED"
    assert Judge(world).entries.shortened


def squared(values):
    return values * values % 7


def test_a_moved_tape_may_take_another_one_away():
    """The search ended in a KeyError: r + t is s - x, where t has its own place."""
    world = World(2**31 - 1)
    alice, _ = world.party(0), world.party(SERVER)
    x, y = (world.secret(0, name, (2,)) for name in "xy")
    r, t = alice.uniform(2), alice.uniform(2)
    for one in (r + t + x, t + y, (r + t).map(squared)):
        alice.send(SERVER, "up", one)
    world.output("x", world.spec(x), to=[SERVER], alone=True)
    assert decide(world, {SERVER}).verdict == "NOT PROTECTED"


def test_names_of_three_factors_go_by_their_order(monkeypatch):
    """Names cost a proof here, as the page says; without them there is one."""
    world = World(2**31 - 1)
    alice, _ = world.party(0), world.party(SERVER)
    x, y, z = (world.secret(0, name, (2, 2)) for name in "xyz")
    alice.send(SERVER, "up", x @ (y @ z))
    one, two, three = map(world.spec, (x, y, z))
    world.output("product", one @ two @ three, to=[SERVER], alone=True)
    assert decide(world, {SERVER}).verdict == "NOT PROTECTED"
    monkeypatch.setattr(check, "MANY", 0)
    found = decide(world, {SERVER})
    assert (found.verdict, found.clear) == ("NOT PROVED", ())
    assert "is no function of outputs" in found.text


def test_an_output_in_names_is_a_function_of_inputs(named):
    world = World(2**31 - 1)
    alice, _ = world.party(0), world.party(SERVER)
    x, mask = world.secret(0, "x", (1, 2)), alice.uniform(2, 1)
    alice.send(SERVER, "up", x @ mask)
    world.output("product", world.spec(x) @ world.spec(mask), to=[SERVER], alone=True)
    found = decide(world, {SERVER})
    assert found.verdict == "NOT PROVED"
    assert "it is no function of inputs" in found.text
    assert "no function of inputs" in check.check(world, {SERVER}, world.outputs, ())[0]


def sums(number):
    """A few random combinations of three parties' inputs, as outputs; some are of one alone."""
    rng, world = np.random.default_rng([11, number]), World(5)
    for n in range(3):
        world.party(n)
    x = [world.spec(world.secret(n, f"x{n}", (2,))) for n in range(3)]
    for k in range(rng.integers(1, 5)):
        by = rng.integers(0, 5, 3) * rng.integers(0, 2, 3)
        some = sum(one.times(int(c)) for one, c in zip(x, by, strict=True))
        world.output(f"sum {k}", some, to=[SERVER], alone=np.count_nonzero(by) == 1)
    return world


def test_who_is_never_alone_in_outputs_is_not_when_each_is_looked_at(monkeypatch):
    entries, spared = [Entries(sums(number)) for number in range(200)], []
    short = verdicts._never_alone

    def judged(one):
        return verdicts.judged(one, frozenset({SERVER}), one.world.outputs)[0]

    def noted(*args):
        spared.append(short(*args))
        return spared[-1]

    with monkeypatch.context() as patch:
        patch.setattr(verdicts, "_never_alone", noted)
        told = list(map(judged, entries))
    monkeypatch.setattr(verdicts, "_never_alone", lambda *_: set())
    assert list(map(judged, entries)) == told
    assert sum(map(bool, spared)) > 20
    assert 20 < sum(map(bool, told)) < 180
