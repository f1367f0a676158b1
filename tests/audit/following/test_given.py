"""Whether a protocol has the data, options and seed that it was given."""

from copy import copy

import numpy as np
import pytest

from securevfl.audit.following.given import Given
from securevfl.audit.subject import Subject
from securevfl.audit.verifiers.specification import own_words
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.testing.leaks import all_leaks
from securevfl.testing.runs import TINY, make, tiny_data

BASE = get_protocol("fedvs")
LEAKS = {one.name: one for one in all_leaks()}


def given(cls, **options):
    data = copy(tiny_data())  # changed below; that one is shared by all tests
    config = make_config(cls, TINY | options)
    before = Given.of(config, data, 0)
    return cls(config, data, seed=0), before


def in_place(self, config, data, *, seed):
    own = np.zeros_like(data.train[0])
    object.__setattr__(data, "train", (own, *data.train[1:]))
    BASE.__init__(self, config, data, seed=seed)


def other_options(self, config, data, *, seed):
    BASE.__init__(self, config, data, seed=seed)
    object.__setattr__(self.config, "rounds", 5)


def other_seed(self, config, data, *, seed):
    BASE.__init__(self, config, data, seed=seed + 1)


def test_the_library_computes_with_what_it_is_given():
    made, before = given(BASE)
    made.parties()
    assert list(before.changed(made)) == []


@pytest.mark.parametrize(
    ("init", "name"), [(in_place, "data"), (other_options, "options"), (other_seed, "seed")]
)
def test_a_constructor_that_changes_it_is_found(init, name):
    made, before = given(type("Changed", (BASE,), {"__init__": init}))
    assert list(before.changed(made)) == [name]


def test_what_parties_change_is_found_in_each_instance():
    def parties(self):
        own = tuple(0 * one for one in self.data.train)
        object.__setattr__(self.data, "train", own)
        return BASE.parties(self)

    subject = Subject(make(type("Changed", (BASE,), {"parties": parties, "__doc__": "Zeros."})))
    assert subject.changed() == []
    subject.instance().parties()
    assert subject.changed() == ["data"]


@pytest.mark.parametrize(
    "name",
    [
        "fedvs: each row is one client's",
        "fedvs: T=2: the constructor asks for one colluder",
        "fedvs: a party's own entropy is not taken",
    ],
)
def test_special_methods_of_a_class_are_its_own_words(name):
    leak = LEAKS[name]
    words = own_words(Subject(make(leak.make(), **leak.options)))
    assert "ChangedFedVS.__" in words
