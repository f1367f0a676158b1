"""Client and server of split training as base classes."""

from dataclasses import dataclass, fields

import numpy as np
import pytest

from securevfl.engine.party import Party
from securevfl.protocols.base.open_embeddings import OpenClient, OpenServer
from securevfl.protocols.base.split_parties import SplitClient, SplitServer
from securevfl.protocols.protocol import find_protocols


def parties_of(module):
    kinds = (SplitClient, SplitServer, OpenClient, OpenServer)
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


def test_a_subclass_declares_more_fields():
    @dataclass(eq=False, repr=False)
    class Client(SplitClient):
        """A client with an option of its own."""

        times: int

    client = Client(1, range(3), None, np.zeros((2, 2)), None, times=4)
    assert (client.index, client.peers, client.times) == (1, (0, 1, 2), 4)
    assert [f.name for f in fields(Client)][-1] == "times"
