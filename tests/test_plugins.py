"""Objects by name, from this package and from entry points."""

import importlib.metadata
from abc import ABC, abstractmethod
from types import SimpleNamespace

import pytest

from securevfl.errors import ConfigurationError, SecureVFLWarning, UnknownNameError
from securevfl.plugins import Registry


class Entry:
    def __init__(self, name, thing):
        self.name, self.value, self.thing = name, f"elsewhere:{name}", thing

    def load(self):
        if isinstance(self.thing, Exception):
            raise self.thing
        return self.thing


class Half(ABC):
    @abstractmethod
    def middle(self): ...

    @abstractmethod
    def last(self): ...


@pytest.fixture
def registry(monkeypatch):
    entries = []
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: entries if group == "some.group" else []
    )
    made = Registry("some.group", "number", lambda: {"one": 1}, lambda x: isinstance(x, int))
    return made, entries


def test_entries_stand_beside_the_library_s_own(registry):
    numbers, entries = registry
    entries.append(Entry("two", 2))
    assert dict(numbers.all()) == {"one": 1, "two": 2}
    assert numbers.get("two") == 2


def test_an_unknown_name_has_its_nearest_suggested(registry):
    with pytest.raises(UnknownNameError, match="unknown number 'oen': did you mean one"):
        registry[0].get("oen")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (Entry("bad", ImportError("no module x")), "'bad'.*cannot be loaded: ImportError: no mod"),
        (Entry("text", "2"), "is no number$"),
        (Entry("half", Half), "is no number: it does not define last, middle$"),
        (Entry("gone", AttributeError("no x")), "AttributeError: no x. Define that name, or unin"),
        (Entry("one", 3), "a number of that name already"),
    ],
)
def test_a_broken_entry_is_named(registry, entry, message):
    numbers, entries = registry
    entries.append(entry)
    with pytest.raises(ConfigurationError, match=message):
        numbers.all()
    with pytest.raises(ConfigurationError, match=message):
        numbers.get(entry.name)
    entries.clear()
    numbers.forget()
    assert numbers.get("one") == 1


def test_a_broken_entry_is_left_out_with_a_warning_where_the_others_do_without(registry):
    entries = registry[1]
    numbers = Registry("some.group", "number", lambda: {"one": 1}, lambda x: isinstance(x, int),
                       all_needed=False)  # fmt: skip
    entries += [Entry("bad", ImportError("no module x")), Entry("two", 2), Entry("one", 3)]
    entries[0].dist = SimpleNamespace(name="their-package")
    with pytest.warns(SecureVFLWarning) as told:
        assert dict(numbers.all()) == {"one": 1, "two": 2}
    assert len(told) == 2
    assert "left out: entry point 'bad' of group some.group of the package their-package" in str(
        told[0].message
    )
    assert numbers.get("two") == 2
    for name, why in (("bad", "no module x"), ("one", "of that name already")):
        with pytest.raises(ConfigurationError, match=why):
            numbers.get(name)
    with pytest.raises(UnknownNameError, match="did you mean bad"):
        numbers.get("bda")


def test_what_is_installed_later_is_found_when_asked_to_look_again(registry):
    numbers, entries = registry
    numbers.all()
    entries.append(Entry("two", 2))
    assert "two" not in numbers.all()
    numbers.forget()
    assert numbers.get("two") == 2
