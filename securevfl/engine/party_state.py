"""A party's state at a safe point, and running it from there to where a checkpoint cut it.

A moment at which nothing is under way does not exist: stragglers' messages always are. So a party's
kept attributes are copied at its own safe point, what its waits return from there to the cut is
logged, and a resumed party runs the same code over that log with its sends suppressed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from securevfl.engine import wire
from securevfl.engine.network import Message, RoundOverError
from securevfl.errors import CheckpointError

if TYPE_CHECKING:
    from securevfl.engine.party import Party
    from securevfl.engine.simulation.simulator import Home


def snapshot(party: Party, *, waits: int, time: int) -> dict[str, Any]:
    """Copy of what the party keeps; what nobody changes in place is passed by reference.

    Parameters
    ----------
    waits : int
        How many waits the party has begun.
    time : int
        Nanoseconds on its clock when it came to the safe point.
    """
    kept = {name: _state_of(getattr(party, name)) for name in party.kept}
    for name, default in party.kept_optional.items():
        value = getattr(party, name)
        if value != default:
            kept[name] = value
    return {
        "kept": wire.encode(kept),
        "once": {name: getattr(party, name) for name in party.kept_once},
        "frozen": {name: getattr(party, name) for name in party.kept_frozen},
        "round": party.round,
        "epoch": party.epoch,
        "waits": waits,
        "time": time,
    }


def ahead(party: Party) -> bytes:
    """What the party writes ahead of its next safe point; `restore` takes it as ``"ahead"``."""
    return wire.encode({name: _state_of(getattr(party, name)) for name in party.kept_ahead})


def restore(party: Party, saved: Mapping[str, Any]) -> None:
    """Inverse of `snapshot`, on a newly made party of the same protocol."""
    kept = wire.decode(saved["kept"])
    if "ahead" in saved:
        kept |= wire.decode(saved["ahead"])
    for name, default in party.kept_optional.items():
        setattr(party, name, _writable(kept.pop(name, default)))
    found = [sorted(each) for each in (kept, saved["once"], saved["frozen"])]
    if found != [sorted(each) for each in (party.kept, party.kept_once, party.kept_frozen)]:
        raise CheckpointError(
            f"checkpoint: party {party.index} keeps {sorted(party.kept)}, the checkpoint holds "
            f"{sorted(kept)}; it was written by another version of this protocol"
        )
    for name, value in kept.items():
        _give_back(party, name, value)
    for name, value in (saved["once"] | saved["frozen"]).items():
        setattr(party, name, value)
    party.round = saved["round"]
    party.epoch = party.saved_epoch = saved["epoch"]


def _state_of(value: Any) -> Any:
    return value.state_dict() if hasattr(value, "load_state_dict") else value


def _give_back(party: Party, name: str, value: Any) -> None:
    current: Any = getattr(party, name, None)
    if hasattr(current, "load_state_dict"):
        current.load_state_dict(value)
    else:
        setattr(party, name, _writable(value))


def _writable(value: Any) -> Any:
    """Copy of decoded arrays, which are read-only views of the checkpoint's bytes."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, (list, tuple)):
        return type(value)(_writable(item) for item in value)
    if isinstance(value, dict):
        return {key: _writable(item) for key, item in value.items()}
    return value


class Replay:
    """The log of one party, on its way back to the cut.

    Parameters
    ----------
    party : Party
        Newly made; its kept attributes are set here.
    saved : mapping
        What `snapshot` returned.
    log : sequence
        (time, over, messages) of each wait, with `over` None for a handler's message.

    Attributes
    ----------
    waits : int
        How many waits the party had begun at its safe point.
    now : int
        Nanoseconds on the clock at the moment that is being replayed.
    """

    def __init__(self, party: Party, saved: Mapping[str, Any], log: Sequence[Any]) -> None:
        restore(party, saved)
        self.waits: int = saved["waits"]
        self.now: int = saved["time"]
        self._log = list(log)

    def next(self, home: Home) -> tuple[list[Message] | None, BaseException | None] | None:
        """Outcome of the party's next wait; None when the log is at its end."""
        while self._log:
            time, over, fields = self._log.pop(0)
            messages = [Message(*each) for each in fields]
            before, self.now = self.now, time
            if over is None:
                home.party.handlers[messages[0].kind](messages[0])
                self.now = before
                continue
            home.waits += 1
            return (None, RoundOverError()) if over else (messages, None)
        return None
