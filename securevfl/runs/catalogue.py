"""Choices of the user: protocols with their cards, data sets, and conditions."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from securevfl.data import CatalogueEntry, dataset_catalogue, load_dataset
from securevfl.engine.conditions import CONDITIONS
from securevfl.errors import ConfigurationError
from securevfl.privacy.claims import link_claims
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import (
    find_protocols,
    get_protocol,
    make_config,
    unknown_option,
    why_refused,
)

__all__ = [
    "CatalogueEntry",
    "conditions",
    "dataset_catalogue",
    "default_claims",
    "describe_protocol",
    "get_protocol",
    "is_own_data",
    "protocols",
    "unknown_option",
    "why_refused",
]


def protocols() -> dict[str, type[Protocol]]:
    """All protocols by name, those of installed packages included."""
    return find_protocols()


def is_own_data(name: str) -> bool:
    """Whether a text names a file that is there, or a folder and no data set that is known."""
    from securevfl.data.catalogue.registry import loaders

    path = Path(name)
    return path.is_file() or (path.is_dir() and name not in loaders())


def conditions() -> tuple[str, ...]:
    """Names of conditions, those of installed packages included."""
    return tuple(CONDITIONS.all())


def describe_protocol(protocol: type[Protocol]) -> dict[str, Any]:
    """Card and options of a protocol, in JSON types.

    ``name``, the fields of `securevfl.protocols.base.card.Card`, and ``options``: name, type,
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


def default_claims(protocol: type[Protocol]) -> list[dict[str, str]]:
    """Claims with the default options on digits, and those of links; none where it needs more."""
    try:
        made = protocol(make_config(protocol, {}), load_dataset("digits"), seed=0)
    except ConfigurationError:
        return []
    return [claim.to_dict() for claim in (*made.claims, *link_claims(True))]


def _name(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind).removeprefix("typing.")
