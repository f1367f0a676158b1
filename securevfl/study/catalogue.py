"""What a user can choose from: protocols with their cards, and data sets."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from securevfl.data import CatalogueEntry, dataset_catalogue
from securevfl.protocols.protocol import Protocol, find_protocols

__all__ = ["CatalogueEntry", "dataset_catalogue", "describe_protocol", "protocols"]


def protocols() -> dict[str, type[Protocol]]:
    """All protocols by name, those of installed packages included."""
    return find_protocols()


def describe_protocol(protocol: type[Protocol]) -> dict[str, Any]:
    """Card and options of a protocol, in JSON types.

    Returns
    -------
    dict
        ``name``, the fields of `securevfl.protocols.protocol.Card`, and ``options``: name, type,
        default and description of each.
    """
    options = {
        name: {
            "type": _name(field.annotation),
            "default": field.default,
            "description": field.description or "",
        }
        for name, field in protocol.Config.model_fields.items()
    }
    return {"name": protocol.name, **asdict(protocol.card), "options": options}


def _name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind).removeprefix("typing.")
