"""Options, data and seed of a protocol, kept so that a constructor which changes them is seen."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.data.dataset import VerticalDataset
from securevfl.protocols.base.protocol import Protocol


@dataclass(frozen=True)
class Given:
    """Options, seed and data that a protocol is given.

    Attributes
    ----------
    options : mapping
    seed : int
    data : str
        Digest of all its arrays.
    """

    options: Mapping[str, Any]
    seed: int
    data: str

    @classmethod
    def of(cls, config: Any, data: VerticalDataset, seed: int) -> Given:
        """These, as they are now."""
        return cls(config.model_dump(), seed, _digest(data))

    def changed(self, made: Protocol) -> Iterator[str]:
        """Names of what a protocol has otherwise than it was given."""
        found = Given.of(made.config, made.data, made.seed)
        for name in vars(self):
            if getattr(found, name) != getattr(self, name):
                yield name


def _digest(data: VerticalDataset) -> str:
    made = hashlib.blake2b(digest_size=16)
    labels = (data.train_labels, data.test_labels, data.alone_labels)
    for part in (*data.train, *data.test, *data.alone, *labels):
        array = np.empty(0) if part is None else np.ascontiguousarray(part)
        made.update(f"{array.dtype} {array.shape} ".encode())
        made.update(array.data.cast("B") if array.size else b"")
    return made.hexdigest()
