"""Leaks of FedVS in the parts of its class: its draws, code, quantiser, field and networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.engine.streams import SecretSeed
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.runs import Outcome
from tests.zoo.harmless_changes import nothing
from tests.zoo.planting import (
    Leak,
    changed,
)

SERVER_ALL = (("server", "features"), ("server", "model"))


def _public_init(self: Any, index: int, name: str, *keys: int) -> np.random.Generator:
    """Secret streams of which the one that draws initial weights is public."""
    base: Any = get_protocol("fedvs")
    if name == "init":
        found: np.random.Generator = self.stream("init", index, *keys)
        return found
    secret: np.random.Generator = base.secret_stream(self, index, name, *keys)
    return secret


# -- seeing them ---------------------------------------------------------------------------------


def _weights_are_public(outcome: Outcome) -> bool:
    """Whether a run with other secrets begins with the same weights."""
    made: Any = outcome.protocol
    other = type(made)(made.config, made.data, seed=made.seed)
    other.secrets = SecretSeed(99)
    return np.array_equal(other.network(1).values, made.network(1).values)


_PUBLIC = "secret choices that are public"


def _leak(name: str, cause: str, says: str, plant: Any, breaks: Any, shows: Any,
          options: Any = None, **attributes: Any) -> Leak:  # fmt: skip
    made = changed("fedvs", plant, **attributes)
    return Leak(f"fedvs: {name}", "fedvs", cause, says, made, breaks, options or {}, shows=shows)


LEAKS = (
    _leak(
        "initial weights from the public seed",
        _PUBLIC,
        "Initial weights follow from the seed that all know, so sums are equations in rows.",
        nothing,
        SERVER_ALL,
        _weights_are_public,
        secret_stream=_public_init,
    ),
)
