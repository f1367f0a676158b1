"""Runs whose parties are Ray actors: made where they live, watched from here, and resumed."""

from __future__ import annotations

import functools
import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from securevfl.data.source import DataSource
from securevfl.engine.checkpoint import read_file, write_file
from securevfl.engine.cluster.supervisor import Cluster, Ended, mirrored
from securevfl.engine.network import Event, name_of
from securevfl.engine.party import Party
from securevfl.engine.realtime.actor import Job
from securevfl.engine.security.identity import Manifest
from securevfl.engine.streams import Secrets
from securevfl.engine.transcript import Transcript
from securevfl.errors import CheckpointError
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.runs.assembly import rules_of
from securevfl.runs.engines.own_tables import FACTS, ApartMaker, measured
from securevfl.runs.history import Historian, measures
from securevfl.runs.spec import Plan

if TYPE_CHECKING:
    from securevfl.data.alignment.local_tables import PublicFacts, Tables
    from securevfl.data.dataset import VerticalDataset

HISTORY = "driver.svfl"
_LOG = logging.getLogger(__name__)
_WRITE = 0.1  # seconds at least between writes of the driver's history
_SHARE = 20  # and as many times what the last write took
_UNTOLD = 2  # rounds that may be over before the driver has written of any


@dataclass(frozen=True)
class Maker:
    """Makes a party where it lives, by its own secrets; data are loaded there.

    Attributes
    ----------
    protocol : str
    options : mapping
    seed : int
        Of public choices.
    data : DataSource or VerticalDataset
    """

    protocol: str
    options: Mapping[str, Any]
    seed: int
    data: DataSource | VerticalDataset

    def __call__(self, index: int, secrets: Secrets) -> Party:
        """The party."""
        data = self.data.load() if isinstance(self.data, DataSource) else self.data
        cls = get_protocol(self.protocol)
        made = cls(make_config(cls, self.options), data, seed=self.seed)
        made.secrets = secrets
        return made.party(index)


class Driver:
    """One run on a cluster, as the driver sees it.

    Parameters
    ----------
    protocol : Protocol
    plan : Plan
    historian : Historian
        It evaluates copies of the parties' models, as they stand when it is due: some may be a
        round further than others, but at the end.
    folder : Path, optional
        Of the run; without it parties that die do not come back.
    address, place : optional
        As for `Cluster`.
    manifest, keys : optional
        As for `Job`; the session's name then stands for the run's.
    apart : (Tables, PublicFacts), optional
        Where the parties read their own tables; needs a folder.

    Attributes
    ----------
    restarts : int
        How often a party that died is started again, as for `Cluster`.
    """

    restarts: ClassVar[int] = -1

    def __init__(
        self,
        protocol: Protocol,
        plan: Plan,
        historian: Historian,
        folder: Path | None,
        *,
        address: str | None = None,
        place: Mapping[int, str] | None = None,
        manifest: Manifest | None = None,
        keys: str | None = None,
        apart: tuple[Tables, PublicFacts] | None = None,
    ) -> None:
        self.protocol = protocol
        self.plan = plan
        self.historian = historian
        self.folder = folder
        self.transcript = Transcript()
        historian.transcript = self.transcript
        common = (plan.protocol, plan.options, plan.seed)
        make: Maker | ApartMaker = Maker(*common, plan.source or protocol.data)
        if apart is not None:
            assert folder is not None
            make = ApartMaker(*common, *apart, str(folder.resolve()))
        self.job = Job(
            make=make,
            protocol=plan.protocol,
            run_id=plan.run_id if manifest is None else manifest.session,
            parties=tuple(sorted(protocol.parties())),
            seed=plan.seed,
            conditions=plan.conditions,
            sealed=plan.sealed,
            folder=None if folder is None else str(folder.resolve()),
            manifest=manifest,
            keys=keys,
            points=protocol.points,
            rules=rules_of(protocol),
        )
        self.cluster = Cluster(self.job, address=address, place=place, restarts=self.restarts)
        self._mirrors: dict[int, Party] = {}
        historian.measured = self._measured
        if isinstance(make, ApartMaker):
            historian.measured = functools.partial(measured, self.cluster, make)
        self._due = 0.0

    def run(self, pause: Callable[[], bool] | None = None, *, resumed: bool = False) -> bool:
        """Run to the end; False when `pause` said so before."""
        try:
            at = self._take_up() if resumed else None
            ended = self.cluster.run(self._told, at=at, restored=at is not None, pause=pause)
            if ended is None:
                self._write()
                return False
            self._finish(ended)
        finally:
            self.cluster.close()
        return True

    def _told(self, event: Event) -> None:
        self.transcript.bytes = self.cluster.bytes
        self.historian.record(event)
        if time.monotonic() > self._due:
            self._write()

    def _write(self) -> None:
        began = time.monotonic()
        if self.folder is not None:
            write_file(self.folder / HISTORY, self.historian.state())
        now = time.monotonic()
        self._due = now + max(_WRITE, _SHARE * (now - began))

    def _take_up(self) -> int | None:
        """History up to the newest round of which everybody has a checkpoint; that round.

        None where the run had not begun. What cannot be taken up is refused, and left as it is.
        """
        assert self.folder is not None
        path = self.folder / HISTORY
        state = read_file(path) if path.exists() else None
        newest = max((row["round"] for row in state["rows"]), default=0) if state else 0
        kept = self.cluster.rounds()
        common = set.intersection(*map(set, kept.values()))
        at = max((round for round in common if round <= newest), default=None)
        if at is None or state is None:
            self._refuse_loss(kept, newest)
            return None
        _LOG.info("the run goes on from round %s; its history was at %s", at, newest)
        self.historian.restore(state)
        self.historian.go_back(at)
        return at

    def _refuse_loss(self, kept: Mapping[int, Sequence[int]], newest: int) -> None:
        """Refuse to begin anew where there is work that this would delete."""
        most = max((max(rounds, default=0) for rounds in kept.values()), default=0)
        if max(most, newest) <= _UNTOLD:
            return
        poor = [n for n, rounds in kept.items() if not any(r <= newest for r in rounds)]
        lack = (
            f"{', '.join(map(name_of, poor))} has none up to it" if poor else "no round is of all"
        )
        raise CheckpointError(
            f"resume: the history in {self.folder} is at round {newest}, and there is no round of "
            f"which every party has a whole checkpoint: {lack}; the newest of any is {most}. Put "
            "back the parties' folders, or place the parties where these are; to begin anew, "
            "start another run. Nothing was changed"
        )

    def _finish(self, ended: Ended) -> None:
        """Copy the parties' models, put their transcripts together, and evaluate."""
        self.historian.parties = self._mirror(ended.states)
        self.transcript = Transcript.joined(ended.transcripts.values())
        self.historian.transcript = self.transcript
        late = [e for e in self.historian.events if e["event"] == "late"]
        self.transcript.late = len(late)
        self.historian.finish()

    def _mirror(self, states: Mapping[int, dict[str, Any]]) -> dict[int, Party]:
        """The parties as they are where they live, without what never changes."""
        self._mirrors = self._mirrors or self.protocol.parties()
        for index, state in states.items():
            mirrored(self._mirrors[index], state)
        return self._mirrors

    def _measured(self) -> dict[str, float]:
        """Measures of the models as they stand; none while a party is down."""
        states = self.cluster.states()
        if len(states) < len(self.job.parties):
            return {}
        return measures(self.protocol, self._mirror(states))

    def clear(self) -> None:
        """Remove checkpoints and the driver's own history; a finished run keeps no shares."""
        assert self.folder is not None
        for name in (HISTORY, FACTS):
            (self.folder / name).unlink(missing_ok=True)
        shutil.rmtree(self.folder / "parties", ignore_errors=True)
