"""Record of a run for a report: stored rows, events and messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.engine.names import PartyNames
from securevfl.report.evaluations import Evaluation


@dataclass(frozen=True)
class Messages:
    """Every message of a run, in columns.

    Attributes
    ----------
    columns : mapping of str to ndarray
        Columns from `securevfl.engine.transcript.Transcript.columns`; at least one row.
    """

    columns: Mapping[str, np.ndarray]

    def parties(self) -> list[int]:
        """Numbers of all senders and receivers, ascending."""
        ends = np.concatenate([self.columns["sender"], self.columns["receiver"]])
        return [int(party) for party in np.unique(ends)]

    def starts(self) -> tuple[list[int], list[float]]:
        """Rounds, and the virtual second at which the first message of each was sent."""
        rounds, where = np.unique(self.columns["round"], return_inverse=True)
        first = np.full(len(rounds), np.iinfo(np.int64).max)
        np.minimum.at(first, where.reshape(-1), self.columns["sent"])
        return [int(number) for number in rounds], [float(time) / 1e9 for time in first]

    def late_times(self, sender: int) -> list[float]:
        """Virtual seconds at which late messages of a party arrived."""
        own = (self.columns["late"] != 0) & (self.columns["sender"] == sender)
        return [float(time) / 1e9 for time in self.columns["arrived"][own]]

    def links(self) -> dict[tuple[str, int, int], list[int]]:
        """Messages, bytes and late messages for each kind, sender and receiver."""
        kinds, kind = np.unique(self.columns["kind"], return_inverse=True)
        keys = np.stack([kind.reshape(-1), self.columns["sender"], self.columns["receiver"]])
        groups, where = np.unique(keys, axis=1, return_inverse=True)
        sums = np.zeros((groups.shape[1], 3), np.int64)
        sums[:, 0] = np.bincount(where.reshape(-1))
        for place, name in ((1, "bytes"), (2, "late")):
            np.add.at(sums[:, place], where.reshape(-1), self.columns[name])
        return {
            (str(kinds[kind]), sender, receiver): own
            for (kind, sender, receiver), own in zip(groups.T.tolist(), sums.tolist(), strict=True)
        }


@dataclass(frozen=True)
class Record:
    """Everything stored of one run.

    Attributes
    ----------
    label, group : str
        Name in the report; runs of one group share their colour and are toggled together.
    place : str
        Name of the folder, without its path.
    protocol : str
        Name of the protocol.
    config : mapping
        Content of ``config.toml``, or a study's settings in its form.
    rows : list of dict
        Server steps in the order of their times.
    events : list of dict
        All other events in the order of their times.
    messages : Messages or None
        Messages; None if a study or an older version stored none.
    summary : mapping
        Content of the run's summary.
    verification : mapping or None
        Content of ``verify.json``.
    attacked : str
        Sentence on results of attacks, or the command for them; "" if no sums are decoded.
    whole : bool
        Whether `rows` and `events` are complete; a study stores evaluated rows only.
    evaluation : Evaluation or None
        Sums over the test rows; None for a regression, or if they were not stored.
    """

    label: str
    group: str
    place: str
    protocol: str
    config: Mapping[str, Any]
    rows: list[dict[str, Any]]
    events: list[dict[str, Any]]
    messages: Messages | None
    summary: Mapping[str, Any]
    verification: Mapping[str, Any] | None = None
    attacked: str = ""
    whole: bool = True
    evaluation: Evaluation | None = None

    @property
    def names(self) -> PartyNames:
        """Names of the parties as shown to readers."""
        names = self.summary.get("party_names")
        there = isinstance(names, list) and all(isinstance(name, str) for name in names)
        return PartyNames(names if names and there else ())

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return int(self.config.get("seed", 0))
