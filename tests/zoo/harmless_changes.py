"""Changes of a protocol that change nothing of what it tells: nobody may blame them."""

from __future__ import annotations

from typing import Any

from securevfl.protocols.base.protocol import Protocol
from tests.zoo.planting import Variant, changed


def nothing(protocol: Protocol, parties: dict[int, Any]) -> None:
    """No change."""


VARIANTS = (
    Variant("dvfl: as it is", "dvfl", "A subclass that changes nothing.", changed("dvfl", nothing),
            {}),
)  # fmt: skip
