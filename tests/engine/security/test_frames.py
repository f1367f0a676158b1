"""Frames of unknown origin: they are parsed before anything authenticates them."""

import struct
import sys

import pytest

from securevfl.engine import wire
from securevfl.engine.security.frames import Frame
from securevfl.errors import WireError

FIELDS = ("run", 1, -1, "share", 3, 0, 0, 7, b"body")


def test_a_frame_comes_back():
    assert tuple(Frame.decode(Frame(*FIELDS).encode())) == FIELDS


@pytest.mark.parametrize("place", range(9))
@pytest.mark.parametrize("value", [{}, [], (), None, 1.5, True])
def test_a_field_of_another_kind_is_refused(place, value):
    fields = (*FIELDS[:place], value, *FIELDS[place + 1 :])
    with pytest.raises(WireError, match=f"no frame: wire: value {place} is no"):
        Frame.decode(wire.encode(fields))


def test_what_a_frame_may_not_hold_is_not_even_decoded():
    """A dictionary of a million entries in the place of a number cost its decoding."""
    heavy = b"l" + struct.pack("<q", 1_000_000) + b"N" * 1_000_000
    data = b"t" + struct.pack("<q", 9) + wire.encode("run") + heavy
    steps = 0

    def count(*_):
        nonlocal steps
        steps += 1

    sys.setprofile(count)
    try:
        with pytest.raises(WireError, match="value 1 is no int"):
            Frame.decode(data)
    finally:
        sys.setprofile(None)
    assert steps < 1000  # some million were it decoded


@pytest.mark.parametrize("data", [b"", b"t", wire.encode(FIELDS)[:-1], wire.encode(FIELDS) + b"N"])
def test_cut_and_overlong_frames_are_refused(data):
    with pytest.raises(WireError, match="no frame"):
        Frame.decode(data)
