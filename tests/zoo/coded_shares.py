"""Leaks of coded_split: its keys, labels, shares of steps, and what surrounds them."""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.engine import wire
from securevfl.field.prss import Prss, derive
from securevfl.protocols.coded_split.dealing import Dealing
from securevfl.testing.runs import Outcome
from tests.zoo.fedvs_masks import UPLOADS
from tests.zoo.harmless_changes import nothing
from tests.zoo.planting import (
    Leak,
    messages,
    planted,
    replaced,
)

LABELS = (("T clients", "labels"),)


def _one_seed(seeds: Any) -> Any:
    """Seeds of a step that do not follow from its number or content."""

    def dealt(self: Any, secret: bytes, number: int, step: np.ndarray) -> list[bytes]:
        return [derive(secret, bytes([j])) for j in range(self.code.privacy)]

    return dealt


def _zero_rho(value: Any) -> Any:
    """Masks that are zero in two rounds."""

    def masked(self: Any, party: int, keys: Any, label: bytes, shape: Any, streams: int) -> Any:
        found = value(self, party, keys, label, shape, streams)
        part, step, *_ = wire.decode(label)
        return np.zeros_like(found) if (part, step) in (("train", 3), ("train", 4)) else found

    return masked


# -- seeing them -----------------------------------------------------------------------------------


def _seeds_repeat(outcome: Outcome) -> bool:
    sent = [one["payload"][1].tobytes() for one in messages(outcome, "seed")]
    return len(set(sent)) == 1


_DEALT, _UNMOVED = "shares of steps that tell the step", "a statistic that comparisons do not move"


def _leak(name: str, cause: str, says: str, plant: Any, breaks: Any, shows: Any,
          **more: Any) -> Leak:  # fmt: skip
    return planted("coded_split", name, cause, says, plant, breaks, shows, **more)


LEAKS = (
    _leak(
        "masks zero in rounds 3 and 4",
        "masks that are zero",
        "The masks of uploads are zero in two rounds.",
        nothing,
        UPLOADS,
        None,
        around=replaced(Prss, "value", _zero_rho),
    ),
    _leak(
        "one seed for all steps",
        _DEALT,
        "All steps are dealt with the same seeds, so shares tell their differences.",
        nothing,
        LABELS,
        _seeds_repeat,
        around=replaced(Dealing, "seeds", _one_seed),
    ),
)
