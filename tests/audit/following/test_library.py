"""What counts as the library's own, whatever a class or a function says of itself."""

import functools
from types import FunctionType

import pytest

from securevfl.audit.following.library import foreign, library_base, unread
from securevfl.audit.following.sources import altered, is_defined
from securevfl.protocols.base.registry import get_protocol
from securevfl.protocols.fedvs import formulas
from securevfl.testing.leaks import all_leaks, disguises
from securevfl.testing.runs import make, tiny_data

UNREAD = [one for one in disguises.LEAKS if "another" not in one.name]
# Python, numpy, and the verifier's own tables: docs/verification.md says that they must be read.
BENEATH = (
    *("secagg_split: another numpy.empty", "fedvs: another numpy.random.Philox"),
    *("secagg_split: a collector that calls back", "he_split: another numpy.abs"),
    "secagg_split: a second interpreter that was asked already",
    "secagg_split: the same code with other globals",  # of a module: `altered` finds it
    "secagg_split: a module that says it is os",
    "secagg_split: another code among those of a file",
)


@pytest.mark.parametrize(
    "leak", [one for one in UNREAD if one.name not in BENEATH], ids=lambda one: one.name
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
