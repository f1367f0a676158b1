"""Work of the search: a form is examined anew only when something in it has changed."""

from __future__ import annotations

import collections
import subprocess
import sys

import numpy as np
import pytest

from securevfl.verified import SERVER, World, check, forms, prove
from securevfl.verified.check import Entries
from securevfl.verified.forms import Algebra, entries
from securevfl.verified.prove import Prover
from securevfl.verified.traced.proofs import Traced
from tests.verified.test_names import traced


@pytest.fixture
def named(monkeypatch):
    """Names from the first product on."""
    monkeypatch.setattr(check, "MANY", 0)
    monkeypatch.setattr(forms, "MANY", 0)


def prover_of(world, some):
    return Prover(Algebra(world), some, world.outputs_of(frozenset(some)))


@pytest.mark.parametrize("some", [{SERVER, 0}, {SERVER, 4}], ids=str)
def test_entries_of_a_form_are_computed_twice_at_most(named, monkeypatch, some):
    """They were computed up to 12 times in 3 rounds, and 18 times in 6."""
    seen, forms_seen = collections.Counter(), []

    def counted(algebra, form):
        seen[id(form)] += 1
        forms_seen.append(form)  # so that no other form gets its id
        return entries(algebra, form)

    prover = prover_of(traced(3), some)
    monkeypatch.setattr(prove, "entries", counted)
    assert prover.run().verdict == "PROVED"
    assert len(seen) > 100
    assert max(seen.values()) == 2


def spanned(prover, other):
    """Whether all that one search is told is known to another one."""
    rows = [row for _, _, row in prover._basis.values()]
    return all(
        not any(map(other._hidden, other._reduced(row))) for row in other._without_known(rows)
    )


def test_what_was_told_little_by_little_is_what_is_told_at_once(named):
    prover = prover_of(traced(3), {SERVER, 4})
    assert prover.run().verdict == "PROVED"
    prover._computes_more()
    once = prover_of(traced(3), {SERVER, 4})
    for name in ("algebra", "subst", "given", "ideal", "shown"):
        setattr(once, name, getattr(prover, name))
    once._untold = dict(enumerate(prover.algebra.shortened))
    once._output_entries = [entries(prover.algebra, form) for form in prover.outputs]
    while once._computes_more():
        pass
    assert once._had == prover._had
    assert len(prover._basis) > 20
    assert spanned(once, prover)
    assert spanned(prover, once)


def test_a_pivot_that_becomes_known_leaves_what_stood_beside_it():
    """The sum x + y is told. Once x is known it tells y."""
    world = World(2**31 - 1)
    x, y = (world.secret(n, name, (2,)) for n, name in enumerate("xy"))
    world.output("sum", world.spec(x) + world.spec(y), to=[SERVER])
    prover = prover_of(world, {SERVER})
    prover._computes_more()
    pivots = list(prover._basis)
    assert not any(map(prover.known, prover._declared))
    prover.given.add(pivots[0][0][0])
    prover._computes_more()
    prover._computes_more()
    assert set(pivots).isdisjoint(prover._basis)
    assert all(map(prover.known, prover._declared))


def test_a_trace_without_values_tells_the_same():
    world = Traced("split", {}, 2).run()
    digest, told = world.digest(), [one.name for one in world.outputs_of({SERVER})]
    assert any(isinstance(node.value, np.ndarray) for node in world.nodes)
    world.forget()
    assert {node.value for node in world.nodes} == {None}
    assert not world._ran
    assert not world._copies
    assert (world.digest(), [one.name for one in world.outputs_of({SERVER})]) == (digest, told)


ARRAYS = """
import sys
from securevfl.verified.traced.proofs import small_data
small_data(2, 4)
print("pandas" in sys.modules)
"""


def test_data_of_a_trace_need_no_pandas():
    """It was imported to see that arrays are no frames, in each of two processes."""
    done = subprocess.run(
        [sys.executable, "-c", ARRAYS], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_outputs_without_names_keep_nothing_that_they_are_made_of():
    """At N = 28 and 100 rounds they took 1.5 GB."""
    world = traced(3)
    told = Entries(world, [one.node for one in world.outputs])
    assert told._of.keys() == {one.node.number for one in world.outputs}
    for one in world.outputs:
        found = [evaluated(told, poly) for poly in told.of(one.node)]
        assert one.node.kind != "field" or found == np.asarray(one.value).reshape(-1).tolist()


def evaluated(of, poly):
    """Value of a polynomial, where all symbols are field elements."""
    total = 0
    for monomial, c in poly.items():
        for symbol in monomial:
            atom = of.atom(symbol)
            if atom.node.kind == "field":
                c *= int(np.asarray(atom.node.value).reshape(-1)[symbol - atom.base])
        total += c
    return total % of.p


def test_an_output_that_another_one_is_made_of_is_kept():
    world = World(2**31 - 1)
    x, y = (world.spec(world.secret(n, name, (2,))) for n, name in enumerate("xy"))
    both = x + y
    world.output("sum", both, to=[SERVER])
    world.output("twice", both.times(2), to=[SERVER])
    one, other = (output.node for output in world.outputs)
    told = Entries(world, [one, other])
    assert [told.times(q, {(): 2}) for q in told.of(one)] == told.of(other)
