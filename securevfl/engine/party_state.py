"""State of a party at a safe point: copying it, and restoring a party from the copy.

At a safe point the attributes listed in a party's `kept` are its whole state: its code, started
again on them, continues unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from securevfl.engine import wire
from securevfl.engine.party import Kept, Party
from securevfl.errors import CheckpointError


def snapshot(party: Party, *, waits: int, time: int) -> dict[str, Any]:
    """Copies of the attributes in `Party.kept`; those that never change in place are not copied.

    Parameters
    ----------
    party : Party
        Party at a safe point.
    waits : int
        Number of waits that the party has begun.
    time : int
        Nanoseconds on its clock at the safe point.
    """
    copied, once, frozen = (states(party, names) for names in _by_way(party))
    return {
        "kept": wire.encode(copied),
        "once": once,
        "frozen": frozen,
        "round": party.round,
        "epoch": party.epoch,
        "waits": waits,
        "time": time,
    }


def ahead(party: Party) -> bytes:
    """Bytes of the attributes declared with `ahead=True`; `restore` reads them as ``"ahead"``."""
    return wire.encode(states(party, (name for name in party.kept if how(name).ahead)))


def restore(party: Party, saved: Mapping[str, Any]) -> None:
    """Restore a `snapshot` into a new party; CheckpointError if it is of another protocol."""
    kept = wire.decode(saved["kept"])
    if "ahead" in saved:
        kept |= wire.decode(saved["ahead"])
    frozen = saved["frozen"]
    if [sorted(each) for each in (kept, saved["once"], frozen)] != [*map(sorted, _by_way(party))]:
        raise CheckpointError(
            f"checkpoint: party {party.index} keeps {sorted(party.kept)}, the checkpoint holds "
            f"{sorted((*kept, *saved['once'], *frozen))}; it was written by another version of "
            "this protocol, so start the run again"
        )
    for name, value in kept.items():
        _set(party, name, value)
    for name, value in (saved["once"] | frozen).items():
        setattr(party, name, party.from_checkpoint(value))
    party.round = saved["round"]
    party.epoch = party.saved_epoch = saved["epoch"]


def how(name: str) -> Kept:
    """The name as a `Kept`; a plain string means storage by a copy."""
    return name if isinstance(name, Kept) else Kept(name)


def shares_of(party: Party) -> set[str]:
    """Names of the attributes that hold the trained models as shares."""
    return {name for name in party.kept if how(name).shares}


def _by_way(party: Party) -> list[list[str]]:
    """Names of the attributes that are copied, those filled once, and those only replaced."""
    ways = ("copied", "passing"), ("once",), ("frozen",)
    return [[name for name in party.kept if how(name).way in way] for way in ways]


def states(party: Party, names: Iterable[str]) -> dict[str, object]:
    """Attributes of a party by name, in their form for checkpoints."""
    values = [(name, getattr(party, name)) for name in names]
    return {
        str(name): value.state_dict()
        if how(name).way == "copied" and hasattr(value, "load_state_dict")
        else party.to_checkpoint(value)
        for name, value in values
    }


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
