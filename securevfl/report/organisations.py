"""Folders of one session of organisations, joined to the record of one run.

Each party has stored its own part: the server its steps, every party its events and sent messages.
Clocks are those of the parties' machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import merge
from operator import itemgetter
from typing import Any

import numpy as np

from securevfl.engine.network import SERVER, name_of
from securevfl.errors import ConfigurationError
from securevfl.report.records import Messages, Record


def party_of(config: Mapping[str, Any]) -> tuple[str, int] | None:
    """Session and party of an organisation's folder; None for a whole run's folder."""
    own = config.get("organisation")
    if not isinstance(own, Mapping):
        return None
    digest, party = own.get("digest"), own.get("party")
    return (digest, party) if isinstance(digest, str) and isinstance(party, int) else None


def join_organisations(records: Sequence[Record]) -> list[Record]:
    """Records with those of one session joined, at the place of the first.

    ConfigurationError when the server's folder of a session is missing, or a party's is given
    twice.
    """
    sessions: dict[str, dict[int, Record]] = {}
    joined: list[Record | str] = []
    for record in records:
        own = party_of(record.config)
        if own is None:
            joined.append(record)
            continue
        digest, party = own
        if digest not in sessions:
            joined.append(digest)
        if party in sessions.setdefault(digest, {}):
            raise ConfigurationError(
                f"report: the folder of {name_of(party)} of one session is given twice; leave "
                f"{record.place} out"
            )
        sessions[digest][party] = record
    return [one if isinstance(one, Record) else _joined(sessions[one]) for one in joined]


def _joined(parties: Mapping[int, Record]) -> Record:
    """Record of all parties, with the server's steps; ConfigurationError without the server."""
    if SERVER not in parties:
        raise ConfigurationError(
            f"report: {parties[min(parties)].place} is the folder of one party of a session, and "
            "the steps are in the server's. Name that one, too"
        )
    server = parties[SERVER]
    events = [record.events for record in parties.values()]
    found = [r.messages.columns for r in parties.values() if r.messages is not None]
    sums = {
        name: sum(int(record.summary.get(name, 0)) for record in parties.values())
        for name in ("messages", "bytes")
    }
    return replace(
        server,
        events=list(merge(*events, key=itemgetter("round"))),  # whose clocks are several
        messages=_all(found) if found else None,
        summary={**server.summary, **sums, "folders": len(parties)},
    )


def _all(parts: Sequence[Mapping[str, np.ndarray]]) -> Messages:
    return Messages({name: np.concatenate([own[name] for own in parts]) for name in parts[0]})
