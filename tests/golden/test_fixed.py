"""Bytes of messages, forecasts and help pages are those that were recorded."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from securevfl.engine import wire
from securevfl.protocols.protocol import find_protocols

from . import fixed

RECORDED: dict[str, Any] = json.loads(fixed.FIXED.read_text())
DRAWN = json.loads((fixed.HELP / "versions.json").read_text())
pytestmark = pytest.mark.quick


@pytest.mark.parametrize("name", sorted(fixed.OBJECTS))
def test_an_object_has_the_bytes_that_it_had(name):
    assert fixed.sent(name) == fixed.written(name)
    assert hashlib.sha256(fixed.sent(name)).hexdigest() == RECORDED["wire"][name]


def test_every_class_that_is_sent_is_recorded():
    find_protocols()
    ours = {n for n, c in wire._registered.items() if c.__module__.startswith("securevfl.")}
    assert ours == set(fixed.OBJECTS) == set(RECORDED["wire"])


def same(old: Any, new: Any) -> bool:
    """Equality, but for the last digits of floats, which depend on the processor."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(same(old[key], new[key]) for key in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(same, old, new))
    if isinstance(old, float) and isinstance(new, float):
        return new == pytest.approx(old, rel=1e-9)
    return type(old) is type(new) and bool(old == new)


@pytest.mark.parametrize("name", sorted(fixed.FORECASTS))
def test_a_forecast_says_what_it_said(name):
    now = fixed.forecast(name)
    assert same(RECORDED["forecasts"][name], now), now


def test_every_command_has_a_recorded_page_and_every_page_a_command():
    pages = {fixed.page_of(path).name for path in fixed.commands()}
    assert pages == {path.name for path in fixed.HELP.glob("*.txt")}
    assert len(pages) > 50


@pytest.mark.skipif(fixed.drawn_by() != DRAWN, reason=f"the pages were drawn by {DRAWN}")
@pytest.mark.parametrize("path", fixed.commands(), ids=" ".join)
def test_a_help_page_is_as_it_was(path):
    """If it should differ: python -m tests.golden.record --write-fixed."""
    assert fixed.help_of(path) == fixed.page_of(path).read_text()
