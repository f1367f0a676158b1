"""Stand-ins for functions of other modules, for as long as parties are watched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def in_place_of(*parts: tuple[Any, str, Any]) -> Iterator[None]:
    """Put values in the place of attributes meanwhile: owner, name and value of each.

    It holds for the whole process, so not for several threads at once.
    """
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in parts]
    for owner, name, value in parts:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
