"""Leaks of encrypted methods: primitives of their own, keys used again, formulas that agree."""

from __future__ import annotations

from typing import Any

from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.runs import Outcome
from tests.zoo.encrypted import (
    HE,
)
from tests.zoo.harmless_changes import nothing
from tests.zoo.planting import planted

# -- secure aggregation ----------------------------------------------------------------------------


# -- homomorphic encryption: its key and its sums ------------------------------------------------


_PAIR: list[tuple[bytes, bytes]] = []


def _one_pair(self: Any) -> Any:
    """Parameters whose scheme makes the same keys in every run."""
    base: Any = get_protocol("he_split")
    made = base.parameters(self)
    generate = made.scheme.generate

    def pair() -> tuple[bytes, bytes]:
        if not _PAIR:
            _PAIR.append(generate())
        return _PAIR[0]

    made.scheme.generate = pair
    return made


# -- seeing them ---------------------------------------------------------------------------------


def _key_of_all(outcome: Outcome) -> bool:
    made: Any = outcome.protocol
    holder: Any = outcome.parties[0]
    return bool(made.parameters().scheme.generate()[1] == holder.secret_key)


_PRIMITIVE, _LIVES = "a primitive of its own", "secrets of another life or run"


LEAKS = (
    planted(
        "he_split",
        "the same keys in every run",
        _LIVES,
        "Every run has the same keys, so that who has ever seen them reads all.",
        nothing,
        HE,
        _key_of_all,
        parameters=_one_pair,
    ),
)
