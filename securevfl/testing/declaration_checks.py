"""Checks of a protocol's declarations: card, claims, options, source, memory."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, get_args

from securevfl.errors import ConfigurationError
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.card import Absence
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import make_config
from securevfl.testing.basics import require
from securevfl.testing.inspection import forbidden_code
from securevfl.testing.runs import (
    ProtocolLike,
    class_of,
    make,
)

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


def check_card(protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any) -> None:
    """Check that the card is complete and every claim is well-formed."""
    cls = class_of(protocol)
    card = cls.card
    require(bool(re.fullmatch("[a-z][a-z0-9_]*", cls.name)), cls, "name: use a-z, 0-9 and _")
    require(bool(cls.__doc__ and cls.__doc__.strip()), cls, "the class has no docstring")
    for field in ("title", "paper", "roles", "sees"):
        require(bool(getattr(card, field)), cls, f"card: {field} is empty")
    for role, words in {**card.roles, **card.sees}.items():
        require(bool(role.strip() and words.strip()), cls, f"card: nothing is said of {role!r}")
    require(set(card.roles) <= set(card.sees), cls, "card: what some role sees is not said")
    require(card.absence in get_args(Absence), cls, f"card: absence {card.absence!r}")
    claims = make(cls, data, **options).claims
    for claim in claims:
        _check_claim(cls, claim)
    require(bool(claims), cls, 'no claims: state "none" where nothing is claimed')
    pairs = [(claim.who, claim.about) for claim in claims]
    require(len(set(pairs)) == len(pairs), cls, "two claims are about the same")


def _check_claim(cls: type[Protocol], claim: Claim) -> None:
    require(isinstance(claim, Claim), cls, f"{claim!r} is no Claim")
    require(bool(claim.who.strip() and claim.source.strip()), cls, f"{claim}: who or source")


def check_config(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Check that default options work and that invalid ones raise ConfigurationError."""
    cls = class_of(protocol)
    make(cls, data, defaults={}, **options).parties()
    require("rounds" in cls.Config.model_fields, cls, "options: rounds is missing")
    _refuses(cls, {"rounds": 0})
    _refuses(cls, {"rounds": -1})
    _refuses(cls, {"no_such_option": 1})
    for name, field in cls.Config.model_fields.items():
        require(bool(field.description), cls, f"option {name} has no description")
        kinds = {field.annotation, *get_args(field.annotation)}
        if kinds & {int, float}:
            for nonsense in ("nonsense", math.nan, math.inf, -math.inf, [1]):
                _refuses(cls, {name: nonsense})
        elif str not in kinds and bool not in kinds:
            _refuses(cls, {name: "nonsense"})


def _refuses(cls: type[Protocol], options: dict[str, Any]) -> None:
    try:
        make_config(cls, options)
    except ConfigurationError:
        return
    require(False, cls, f"the options {options} are accepted")


def check_source(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Check that the module uses no clock, event loop, global randomness, engine, or sibling."""
    cls = class_of(protocol)
    found = forbidden_code(cls)
    require(not found, cls, f"the module uses {found}; a party file may use none of them")


def check_memory(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Check that the prediction of memory is a whole number, with advice for less memory."""
    made = make(protocol, data, **options)
    needed = made.memory()
    require(isinstance(needed, int) and needed >= 0, protocol, f"memory() is {needed!r}")
    require(bool(made.advice(needed // 2).strip()), protocol, "advice() says nothing")
