"""Choices for the user: protocols with their cards, data sets, and conditions."""

from __future__ import annotations

import inspect
from dataclasses import asdict
from pathlib import Path
from typing import Any

from securevfl.data import CatalogueEntry, dataset_catalogue, load_dataset
from securevfl.engine.conditions import CONDITIONS
from securevfl.engine.conditions_file import load_conditions
from securevfl.engine.delays import Trace
from securevfl.engine.traces import MEASURED
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
    "describe_conditions",
    "describe_protocol",
    "get_protocol",
    "is_own_data",
    "protocols",
    "unknown_option",
    "why_refused",
]


def protocols() -> dict[str, type[Protocol]]:
    """All protocols by name, including those of installed packages."""
    return find_protocols()


def is_own_data(name: str) -> bool:
    """Whether a text is the path of a file, or of a folder and no name of a known data set."""
    from securevfl.data.catalogue.registry import loaders

    path = Path(name)
    return path.is_file() or (path.is_dir() and name not in loaders())


def conditions() -> tuple[str, ...]:
    """Names of all conditions, including those of installed packages."""
    return tuple(CONDITIONS.all())


_OWN = {"none": "no delays", "paper": "the pattern of FedVS, section 6.2: the last half is slow"}


def describe_conditions(
    name: str | None = None, *, parties: int = 8, batch_rows: int = 64
) -> dict[str, object]:
    """All conditions by name, or one of them, or a TOML file's, in JSON types.

    Without a name the result has ``conditions``, a list of ``name``, ``what`` and ``source``. With
    a name it has these three; ``parties``, each client's ``law``, ``mean`` and (for a trace)
    ``slowest`` delay; and ``values``, the keys of a TOML file. `parties` and `batch_rows`, coded
    rows of a batch, are the sizes for which conditions are made. ConfigurationError for an unknown
    name or a malformed file.
    """
    if name is None:
        return {"conditions": [_named(own) for own in CONDITIONS.all()]}
    made = load_conditions(name, parties=parties, batch_rows=batch_rows)
    rows = [
        {
            "law": f"{len(delay.recorded)} rounds" if isinstance(delay, Trace) else delay.law,
            "mean": delay.expectation,
            "slowest": max(delay.recorded) if isinstance(delay, Trace) else None,
        }
        for delay in made.uploads
    ]
    return {**_named(name), "parties": rows, "values": made.describe()}


def _named(name: str) -> dict[str, str]:
    """Name, description and source of conditions; other packages' description is a docstring."""
    if name in MEASURED:
        return {"name": name, "what": MEASURED[name].what, "source": MEASURED[name].source}
    make = CONDITIONS.all().get(name)
    said = inspect.getdoc(make) if make else None
    what = _OWN.get(name) or (said or "").partition("\n")[0]
    return {"name": name, "what": what, "source": ""}


def describe_protocol(protocol: type[Protocol]) -> dict[str, Any]:
    """Card and options of a protocol, in JSON types.

    The keys are ``name``, the fields of `securevfl.protocols.base.card.Card`, and ``options``, with
    name, type, default and description of each option.
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


#: Set whose figures stand in the claims of a card.
CLAIMED_ON = "digits"


def default_claims(protocol: type[Protocol]) -> list[dict[str, str]]:
    """Claims with default options on `CLAIMED_ON`, and of the links; empty if that set is unfit."""
    try:
        made = protocol(make_config(protocol, {}), load_dataset(CLAIMED_ON), seed=0)
    except ConfigurationError:
        return []
    return [claim.to_dict() for claim in (*made.claims, *link_claims(True))]


def _name(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind).removeprefix("typing.")
