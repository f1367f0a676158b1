"""Trained models of a run as arrays by name, as in ``model.npz``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from securevfl.engine.network import SERVER
from securevfl.engine.party import Party
from securevfl.engine.party_state import how
from securevfl.models.imputation import Imputation
from securevfl.models.stale import LastEmbeddings
from securevfl.verified import bare_of

NO_MODELS = (LastEmbeddings, Imputation)  # kept by parties, and too large to save as a model


def model_arrays(parties: Mapping[int, Party]) -> dict[str, np.ndarray]:
    """Arrays of all parties' models by name, such as ``client-0/network/weight``."""
    arrays: dict[str, np.ndarray] = {}
    for index, party in parties.items():
        owner = "server" if index == SERVER else f"client-{index}"
        for name in (name for name in party.kept if how(name).way == "copied"):
            value = getattr(party, name)
            if hasattr(value, "state_dict") and not _no_model(bare_of(value)):
                arrays |= _flatten(f"{owner}/{name}", value.state_dict())
    return arrays


def _no_model(value: object) -> bool:
    """Whether a value that a party stores is not a network but state of its steps."""
    return isinstance(value, NO_MODELS) or getattr(value, "no_model", False)


def _flatten(prefix: str, value: Any) -> dict[str, np.ndarray]:
    if isinstance(value, Mapping):
        flat: dict[str, np.ndarray] = {}
        for key, item in value.items():
            if key != "optimizer":  # of a copy within; its lists would have to be pickled
                flat |= _flatten(f"{prefix}/{key}", item)
        return flat
    array = value.numpy(force=True) if hasattr(value, "detach") else np.asarray(value)
    return {prefix: array}
