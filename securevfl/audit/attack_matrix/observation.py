"""A run made for observation: messages and inputs kept for attackers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.audit.attack_matrix.observed_run import Inputs, ObservedRun
from securevfl.engine.conditions import Conditions
from securevfl.engine.mailbox import ANNOUNCE
from securevfl.engine.network import SERVER
from securevfl.engine.security.sealing import Sealing
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import Transcript
from securevfl.models.quality import MEASURES
from securevfl.protocols.base.protocol import Protocol
from securevfl.runs.assembly import rules_of
from securevfl.runs.history import HistoryRecorder
from securevfl.runs.threads import one_thread
from securevfl.verified import bare_of

_EPOCH = 64  # messages of a link that are kept where a protocol has no layout of its rows


class Recorder(Transcript):
    """A transcript that stores the first and last payloads of each attacked link.

    Parameters
    ----------
    first : callable
        Function of (kind, sender, receiver) that returns the number of first payloads to keep; 0
        for none.
    last : int
        Number of last payloads to keep of each such link.
    """

    def __init__(self, first: Callable[[str, int, int], int], last: int) -> None:
        super().__init__(payloads=True)
        self._first = first
        self._last = last
        self._seen: dict[tuple[str, int, int], int] = {}
        self._recent: dict[tuple[str, int, int], deque[int]] = {}

    def add(
        self, sender: int, receiver: int, kind: str, round: int, nbytes: int, sent: int, data: Any
    ) -> int:
        """Append a message (as `Transcript.add`); of payloads a link's first and last stay."""
        link = (kind, sender, receiver)
        first = self._first(*link)
        keep = kind == ANNOUNCE or first > 0
        row = super().add(sender, receiver, kind, round, nbytes, sent, data if keep else None)
        if kind == ANNOUNCE or not first:
            return row
        number = self._seen[link] = self._seen.get(link, 0) + 1
        if number > first:
            recent = self._recent.setdefault(link, deque())
            recent.append(row)
            if len(recent) > self._last:
                assert self.payloads is not None
                self.payloads[recent.popleft()] = None
        return row


def observe(
    protocol: Protocol,
    *,
    conditions: Conditions,
    client: int,
    until: float | None = None,
    sealed: bool = False,
    every: bool = False,
    interrupted: Callable[[], bool] | None = None,
) -> ObservedRun:
    """Run a protocol and store attackers' views: the last epoch, and the first epoch's gradients.

    Parameters
    ----------
    protocol : Protocol
        Configured protocol.
    conditions : Conditions
        Delays and bandwidth.
    client : int
        Client whose embeddings and gradients are kept.
    until : float, optional
        Virtual second at which the run ends.
    sealed : bool
        Whether links are encrypted, which changes bytes and times, but no role's view.
    every : bool
        Whether the joint embeddings of every round are kept, not only of one epoch.
    interrupted : callable, optional
        Called often; when it returns True, `Interrupted` is raised.

    Raises
    ------
    RunError
        If the run ends in an error.
    """
    from securevfl.runs.engines.run import Interrupted

    epoch = _epoch(protocol)
    carried = {e.kind: e.carries for e in protocol.exposures}

    def first(kind: str, sender: int, receiver: int) -> int:
        """Number of first messages of a link to store: 1, an epoch of gradients, 0 of no attack."""
        carries = carried.get(kind, "")
        mine = {"embedding": sender == client, "gradient": receiver == client, "upload": True}
        mine["gradient share"] = True  # so that coalitions can pool them
        count = epoch if carries.startswith("gradient") else 1
        return count if mine.get(carries) else 0

    parties = protocol.parties()
    centre = bare_of(getattr(parties.get(SERVER), "centre", None))
    inputs = None
    if hasattr(centre, "step"):
        inputs = Inputs(10**9 if every else epoch)
        inputs.watch(centre)
    rounds = getattr(protocol.config, "rounds", 1)
    historian = HistoryRecorder(protocol, parties, eval_every=max(1, rounds), progress=None)
    transcript = historian.transcript = Recorder(first, epoch)
    simulation = Simulation(
        parties,
        seed=protocol.seed,
        secrets=protocol.secrets,
        conditions=conditions,
        transcript=transcript,
        observer=historian,
        sealing=Sealing(protocol.name, "attacks", parties) if sealed else None,
        rules=rules_of(protocol),
    )
    with one_thread():
        simulation.run(interrupted, until=until)
        if until is None and not simulation.finished:
            raise Interrupted(None)
        historian.finish()
    return ObservedRun(
        protocol=protocol,
        parties=parties,
        client=client,
        observer=_observer(transcript, protocol, client),
        transcript=transcript,
        inputs=inputs,
        used=tuple(int(row.get("sharers", row.get("used", 0))) for row in historian.rows),
        figures=_figures(historian, transcript),
    )


def _epoch(protocol: Protocol) -> int:
    """Number of messages a link to keep: the rounds of an epoch and one more."""
    layout = getattr(protocol, "train_layout", None)
    return _EPOCH if layout is None else layout().per_epoch + 1


def _observer(transcript: Transcript, protocol: Protocol, client: int) -> int:
    """Party that received most of client's messages on its rows by transcript; else the server."""
    kinds = [e.kind for e in protocol.exposures if e.carries != "gradient"]
    columns = transcript.columns()
    mine = np.isin(columns["kind"], kinds) & (columns["sender"] == client)
    receivers, counts = np.unique(columns["receiver"][mine], return_counts=True)
    return int(receivers[counts.argmax()]) if len(receivers) else SERVER


def _figures(historian: HistoryRecorder, transcript: Transcript) -> dict[str, Any]:
    last = historian.rows[-1] if historian.rows else {}
    times = [e["time"] for e in historian.rows + historian.events if e["party"] == SERVER]
    return {
        **{f"test_{m}": last[m] for m in MEASURES if m in last},
        "steps": len(historian.rows),
        "virtual_seconds": float(max(times, default=0.0)),
        "bytes": transcript.bytes,
        "messages": transcript.messages,
    }
