"""Secret random choices of a party other than masks, as input of the functions that use them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np


class _Secrets(Protocol):
    """Source of secret streams: see `securevfl.engine.streams.Secrets`."""

    def stream(self, index: int, name: str, *keys: int) -> np.random.Generator:
        """Generator of party `index` for a purpose."""


class Chance:
    """Random streams from a party's own entropy, such as for rounding or views of rows.

    `securevfl.verified.Participant.own_model` takes it, and functions receive it: for a proof,
    draws are functions of the party's inputs. Nothing is claimed about their distribution.

    Parameters
    ----------
    secrets : securevfl.engine.streams.Secrets
        Source of secret streams.
    index : int
        Number of the party.
    """

    def __init__(self, secrets: _Secrets, index: int) -> None:
        self._secrets, self._index = secrets, index

    def __deepcopy__(self, made: Any) -> Chance:
        return self  # it never changes

    def stream(self, name: str, *keys: int) -> np.random.Generator:
        """Secret generator of purpose `name` and keys, as `engine.party.Party.secret_stream`."""
        return self._secrets.stream(self._index, name, *keys)

    def state_dict(self) -> dict[str, Any]:
        """State that never changes: the first numbers of a stream, which identify it."""
        return self._state

    @functools.cached_property
    def _state(self) -> dict[str, Any]:
        return {"chance": self.stream("chance").bytes(16)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing: the streams have no state."""
