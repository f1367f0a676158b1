"""What a protocol holds is free when nobody holds the protocol."""

import gc
import weakref

import pytest

from securevfl.protocols.base.registry import find_protocols
from securevfl.testing.runs import make


@pytest.mark.parametrize("protocol", find_protocols())
def test_a_protocol_that_nobody_holds_is_freed(protocol):
    made = make(protocol)
    made.parties()
    known = weakref.ref(made)
    del made
    gc.collect()
    assert known() is None
