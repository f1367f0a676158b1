"""One way to run a configuration: who is late, crashes, is wrong, or goes on from a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from securevfl.engine.conditions import NONE, Conditions
from securevfl.engine.faults import Faults, Schedule
from securevfl.protocols.base.protocol import Protocol


@dataclass(frozen=True)
class Setting:
    """One way to run a configuration.

    Attributes
    ----------
    name : str
    options : mapping
        That differ from the configuration's.
    conditions : Conditions
    faults : Faults or None
    resumed_in : int
        Round from whose checkpoint the run is resumed, two rounds later; 0 for none. What was sent
        meanwhile is sent again then, in another life.
    wrong_uploads : int
        Clients, from the first, whose uploads are replaced by random elements. Without delays the
        first ones' uploads are among those that are decoded.
    predicts : int
        Rows of the coded prediction that is run in this setting, after a training in none; 0 for a
        training.
    multiple : int
        Number of which the training rows are a multiple; those beyond are left out.
    loses_notes : bool
        Whether what parties write ahead is lost (`Party.write_ahead`): one that crashes comes back
        from its last safe point alone.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    conditions: Conditions = NONE
    faults: Faults | None = None
    resumed_in: int = 0
    wrong_uploads: int = 0
    predicts: int = 0
    multiple: int = 1
    loses_notes: bool = False

    @property
    def disturbed(self) -> bool:
        """Whether somebody is late, absent or wrong."""
        return bool(self.conditions != NONE or self.faults or self.wrong_uploads)


ITSELF = Setting("as configured")


def schedule_of(protocol: Protocol, setting: Setting) -> Schedule | None:
    """Crashes of a run of a protocol in a setting; None for none."""
    if setting.faults is None:
        return None
    return setting.faults.bind(protocol.roles(), protocol.seed, last=protocol.last_fault)
