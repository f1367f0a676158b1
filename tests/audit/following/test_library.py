"""What counts as the library's own, whatever a class or a function says of itself."""

import functools
import gc
from types import FunctionType

import hypothesis
import hypothesis.strategies
import numpy as np
import pytest
from numpy._core import fromnumeric

from securevfl.audit.following.library import foreign, library_base, unread
from securevfl.audit.following.sources import altered, is_defined
from securevfl.protocols.base.registry import get_protocol
from securevfl.protocols.fedvs import formulas
from securevfl.testing.leaks import all_leaks, disguises
from securevfl.testing.runs import make, tiny_data

UNREAD = [one for one in disguises.LEAKS if "another" not in one.name]
# The verifier's own tables: docs/verification.md says that what changes them must be read.
TABLES = ("secagg_split: a second interpreter that was asked already",)
BENEATH = (  # no class: `altered` finds it
    *("secagg_split: another numpy.empty", "fedvs: another numpy.random.Philox"),
    *("secagg_split: a collector that calls back", "he_split: another numpy.abs"),
    "secagg_split: the same code with other globals",
    "secagg_split: a module that says it is os",
    "secagg_split: another code among those of a file",
)


@pytest.mark.parametrize(
    "leak", [one for one in UNREAD if one.name not in BENEATH + TABLES], ids=lambda one: one.name
)
def test_a_class_that_passes_for_the_librarys_is_unread(leak):
    if leak.protocol == "he_split":
        pytest.importorskip("tenseal")
    with leak.around():
        made = make(leak.make(), tiny_data().with_parties(4), **leak.options)
        assert [*unread(made), *foreign(made)]
        assert library_base(made) is get_protocol(leak.protocol)


ALIKE = ("a function that says it is another", "a class that says it is another",
         "the same code with other globals", "a module that says it is os",
         "another code among those of a file")  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
def test_what_passes_for_another_in_the_library_is_found(name):
    (leak,) = (one for one in all_leaks() if one.name == f"secagg_split: {name}")
    with leak.around():
        found = altered("securevfl.protocols.secagg_split") + altered("securevfl.field.sampling")
    assert found
    assert altered("securevfl.protocols.secagg_split") == []


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("secagg_split: another numpy.empty", "numpy.empty"),
        ("fedvs: another numpy.random.Philox", "numpy.random.Philox"),
        ("he_split: another numpy.abs", "numpy.abs"),
    ],
)
def test_what_stands_for_another_in_numpy_is_found(name, found):
    """What numpy loads when it is used is no difference, nor is what other libraries make of it."""
    (leak,) = (one for one in all_leaks() if one.name == name)
    with leak.around():
        assert found in altered("numpy")
    for used in dir(np):
        getattr(np, used)
    assert altered("numpy") == []


def test_what_stands_for_another_beneath_numpys_names_is_found(monkeypatch):
    """`numpy.sum` and others call it by its module's name."""
    wrap = fromnumeric._wrapfunc
    monkeypatch.setattr(fromnumeric, "_wrapfunc", lambda *given, **named: wrap(*given, **named))
    assert altered("numpy") == ["numpy._core.fromnumeric._wrapfunc"]


def test_what_passes_for_a_class_of_numpy_is_found(monkeypatch):
    """In words it is the same: a class of that module, of that name."""
    philox = np.random.Philox
    alike = type("Philox", (philox,), {"__module__": philox.__module__})
    monkeypatch.setattr(np.random, "Philox", alike)
    assert altered("numpy") == ["numpy.random.Philox"]


def test_what_is_called_at_each_collection_is_found():
    """Hypothesis, which measures its time, is known by the code of its file."""
    hypothesis.given(hypothesis.strategies.integers())(lambda number: None)()
    assert gc.callbacks
    assert altered() == []
    (leak,) = (one for one in all_leaks() if "a collector" in one.name)
    with leak.around():
        (found,) = altered()
    assert found.startswith("gc.callbacks: securevfl.testing.leaks.disguises._collector")


def test_a_function_is_defined_by_its_code_and_its_globals():
    known = formulas.announced
    assert is_defined(known)
    assert not is_defined(FunctionType(known.__code__, {**known.__globals__}))
    assert not is_defined(functools.partial(known))

    def announced(protocol, secrets, key):
        return "stop"

    announced.__module__, announced.__qualname__ = known.__module__, known.__qualname__
    assert not is_defined(announced)


class Equal(type):
    """A metaclass whose classes equal all others, and say that they are no classes of Python."""

    __flags__ = 0

    def __eq__(cls, other):
        return True

    __hash__ = type.__hash__


def test_a_class_that_equals_a_plain_one_is_unread():
    base = get_protocol("fedvs")
    maker = Equal(
        "Maker", (), {"__get__": lambda self, made, owner: lambda n: base.client(made, n)}
    )
    made = make(type("Changed", (base,), {"client": maker(), "__doc__": base.__doc__}))
    assert unread(made) == ["Changed.client"]


def test_a_part_that_equals_a_plain_one_is_foreign():
    made = make("fedvs")
    assert [*foreign(made)] == []
    made.other = Equal("Part", (), {})()
    assert [*foreign(made)] == ["other is a Part"]
