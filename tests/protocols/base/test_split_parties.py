"""Client and server of split training as base classes."""

import pytest

from securevfl.engine.party import Party
from securevfl.protocols.base.open_embeddings import OpenClient, OpenServer
from securevfl.protocols.protocol import find_protocols


def parties_of(module):
    kinds = (OpenClient, OpenServer)
    return [k for k in vars(module).values() if isinstance(k, type) and issubclass(k, kinds)]


def derived():
    import importlib

    modules = {kind.__module__ for kind in find_protocols().values()}
    found = {k for m in sorted(modules) for k in parties_of(importlib.import_module(m))}
    return sorted(found, key=lambda k: (k.__module__, k.__name__))


@pytest.mark.parametrize("kind", derived(), ids=lambda k: f"{k.__module__}.{k.__name__}")
def test_a_party_is_itself_only_and_shows_nothing(kind):
    """No comparison by value (arrays would refuse), and no data or keys in a traceback."""
    assert kind.__eq__ is object.__eq__
    assert kind.__hash__ is object.__hash__
    assert kind.__repr__ is Party.__repr__
