"""The state of a party at a safe point: taking a copy of it, and restoring a party from the copy.

At a safe point the attributes that a party names in `kept`, `kept_once` and `kept_frozen` are its
whole state: its code, started anew on them, goes on as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from securevfl.engine import wire
from securevfl.engine.party import Party
from securevfl.errors import CheckpointError


def snapshot(party: Party, *, waits: int, time: int) -> dict[str, Any]:
    """Copy of the kept attributes; those that nobody changes in place are passed by reference.

    Parameters
    ----------
    waits : int
        Number of waits that the party has begun.
    time : int
        Nanoseconds on its clock at the safe point.
    """
    kept = {name: _state_of(party, getattr(party, name)) for name in party.kept}
    for name, default in party.kept_optional.items():
        value = getattr(party, name)
        if value != default:
            kept[name] = party.to_checkpoint(value)
    return {
        "kept": wire.encode(kept),
        "once": {name: party.to_checkpoint(getattr(party, name)) for name in party.kept_once},
        "frozen": {name: party.to_checkpoint(getattr(party, name)) for name in party.kept_frozen},
        "round": party.round,
        "epoch": party.epoch,
        "waits": waits,
        "time": time,
    }


def ahead(party: Party) -> bytes:
    """State written ahead of the party's next safe point; `restore` takes it as ``"ahead"``."""
    return wire.encode({name: _state_of(party, getattr(party, name)) for name in party.kept_ahead})


def restore(party: Party, saved: Mapping[str, Any]) -> None:
    """Inverse of `snapshot`, on a newly made party of the same protocol."""
    kept = wire.decode(saved["kept"])
    if "ahead" in saved:
        kept |= wire.decode(saved["ahead"])
    frozen = saved["frozen"]
    for name, default in party.kept_optional.items():
        setattr(party, name, party.from_checkpoint(_writable(kept.pop(name, default))))
    found = [sorted(each) for each in (kept, saved["once"], frozen)]
    if found != [sorted(each) for each in (party.kept, party.kept_once, party.kept_frozen)]:
        raise CheckpointError(
            f"checkpoint: party {party.index} keeps "
            f"{sorted((*party.kept, *party.kept_once, *party.kept_frozen))}, the checkpoint holds "
            f"{sorted((*kept, *saved['once'], *frozen))}; it was written by another version of "
            "this protocol, so start the run again"
        )
    for name, value in kept.items():
        _set(party, name, value)
    for name, value in (saved["once"] | frozen).items():
        setattr(party, name, party.from_checkpoint(value))
    party.round = saved["round"]
    party.epoch = party.saved_epoch = saved["epoch"]


def _state_of(party: Party, value: Any) -> object:
    return value.state_dict() if hasattr(value, "load_state_dict") else party.to_checkpoint(value)


def _set(party: Party, name: str, value: object) -> None:
    current: Any = getattr(party, name, None)
    if hasattr(current, "load_state_dict"):
        current.load_state_dict(value)
    else:
        setattr(party, name, party.from_checkpoint(_writable(value)))


def _writable(value: object) -> object:
    """Copy of decoded arrays, which are read-only views of the checkpoint's bytes."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, (list, tuple)):
        return type(value)(_writable(item) for item in value)
    if isinstance(value, dict):
        return {key: _writable(item) for key, item in value.items()}
    return value
