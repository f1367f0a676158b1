"""Protocols by name: one module is imported for one name, unless other packages add protocols."""

import importlib.metadata
from types import SimpleNamespace

import pytest

from securevfl.errors import ConfigurationError, SecureVFLWarning, UnknownNameError
from securevfl.protocols.base import registry
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import find_protocols, get_protocol


@pytest.fixture
def imported(monkeypatch):
    """Names of the modules that the registry imports from now on; it knows nothing yet."""
    found, before = [], importlib.import_module

    def noted(name):
        found.append(name)
        return before(name)

    find_protocols.cache_clear()
    registry._alone.cache_clear()
    monkeypatch.setattr(registry.importlib, "import_module", noted)
    yield found
    find_protocols.cache_clear()
    registry._alone.cache_clear()


def test_a_name_imports_its_module_alone(imported):
    assert get_protocol("fedvs").name == "fedvs"
    methods = {name for name in imported if name.startswith("securevfl.protocols.")}
    assert methods == {"securevfl.protocols.fedvs"}


def test_one_name_and_all_give_the_same_classes(imported):
    alone = {name: get_protocol(name) for name in find_protocols()}
    registry._alone.cache_clear()
    assert alone == {name: get_protocol(name) for name in alone} == find_protocols()
    assert len(alone) >= 16


@pytest.mark.parametrize("name", ["base", "fedvz", "fedvs.protocol", ""])
def test_what_is_no_protocol_s_name_is_unknown(name, imported):
    with pytest.raises(UnknownNameError):
        get_protocol(name)


def test_a_name_that_another_package_takes_is_refused_although_its_module_is_here(
    imported, monkeypatch
):
    other = SimpleNamespace(name="fedvs", value="elsewhere:Other", load=lambda: Protocol)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [other])
    with (
        pytest.warns(SecureVFLWarning, match="left out: .* elsewhere:Other is no protocol"),
        pytest.raises(ConfigurationError, match="elsewhere:Other"),
    ):
        get_protocol("fedvs")


def test_a_class_is_refused_with_the_way_to_name_it():
    with pytest.raises(ConfigurationError, match=r"by its name, not by <class.*entry-points"):
        get_protocol(Protocol)
