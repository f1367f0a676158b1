"""Conformance checks: their type, and the error of one that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from securevfl.testing.runs import ProtocolLike, class_of

Check = Callable[..., None]


def require(met: Any, protocol: ProtocolLike, why: str) -> None:
    """Raise an AssertionError with the protocol's name and `why` unless `met` is true."""
    if not met:
        raise AssertionError(f"{class_of(protocol).name}: {why}")
