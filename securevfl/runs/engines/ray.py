"""Runs whose parties are Ray actors: created on their nodes, watched by the driver, resumed."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from securevfl.data.source import DataSource
from securevfl.engine.checkpoint import read_file, write_file
from securevfl.engine.cluster.supervisor import Cluster, restored_copy
from securevfl.engine.cluster.supervisor import Ended as EndedCluster
from securevfl.engine.network import SERVER, Event, name_of
from securevfl.engine.party import Party
from securevfl.engine.realtime.assignment import PartyAssignment
from securevfl.engine.streams import Secrets
from securevfl.engine.transcript import Transcript
from securevfl.errors import CheckpointError, RunError
from securevfl.protocols.base.protocol import Protocol
from securevfl.runs.assembly import Assembled, make_protocol, rules_of, tolerates
from securevfl.runs.engines.cluster_options import ClusterOptions
from securevfl.runs.engines.own_tables import LocalTableFactory, measured
from securevfl.runs.history import HistoryRecorder, measures
from securevfl.runs.threads import few_collections

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

HISTORY = "driver.svfl"
_LOG = logging.getLogger(__name__)
_WRITE = 0.1  # seconds at least between writes of the driver's history
_SHARE = 20  # and as many times what the last write took
_UNTOLD = 2  # rounds that may be over before the driver has written of any


@dataclass(frozen=True)
class PartyFactory:
    """Factory of a party on its own node, with its own secrets; it loads the data there."""

    protocol: str
    options: Mapping[str, object]
    seed: int
    data: DataSource | VerticalDataset

    def __call__(self, index: int, secrets: Secrets) -> Party:
        """Create party `index`."""
        with few_collections():  # torch is imported here
            data = self.data.load() if isinstance(self.data, DataSource) else self.data
            made, _ = make_protocol(self.protocol, self.options, data, self.seed)
        made.secrets = secrets
        return made.party(index)


class Driver:
    """The driver's side of one run on a cluster.

    A party that dies is restarted at most `restarts` times, as by `Cluster`; without a folder it is
    not. The recorder evaluates copies of the parties' current models: before the end some may be
    one round ahead of others. With a manifest, the name of the session replaces that of the run.
    """

    restarts: ClassVar[int] = -1

    def __init__(
        self, assembled: Assembled, recorder: HistoryRecorder, options: ClusterOptions
    ) -> None:
        spec, protocol, folder = assembled.spec, assembled.protocol, assembled.folder
        self.protocol = protocol
        self.recorder = recorder
        self.folder = folder
        self.transcript = Transcript()
        recorder.transcript = self.transcript
        manifest = options.signed_manifest()
        common = (spec.protocol, spec.options, spec.seed)
        make: PartyFactory | LocalTableFactory
        make = PartyFactory(*common, spec.source or protocol.data)
        if assembled.tables is not None:
            assert folder is not None
            local = assembled.tables
            make = LocalTableFactory(*common, local.tables, local.facts, str(folder.resolve()))
        self.job = PartyAssignment(
            make=make,
            protocol=spec.protocol,
            run_id=spec.run_id if manifest is None else manifest.session,
            parties=tuple(sorted(protocol.parties())),
            seed=spec.seed,
            conditions=spec.conditions,
            folder=None if folder is None else str(folder.resolve()),
            manifest=manifest,
            keys=options.key_folder(),
            points=protocol.points,
            rules=rules_of(protocol),
        )
        self.cluster = self._cluster(assembled, options)
        self._mirrors: dict[int, Party] = {}
        recorder.measured = self._measured
        if isinstance(make, LocalTableFactory):
            recorder.measured = functools.partial(measured, self.cluster, make)
        self._due = 0.0
        self._began = time.monotonic()

    def _cluster(self, assembled: Assembled, options: ClusterOptions) -> Cluster:
        """The cluster whose actors aligned the tables, or a new one."""
        spares = self.protocol.can_spare
        go_back = None if comes_back_alone(self.protocol) else self._go_back
        if assembled.tables is not None and assembled.tables.cluster is not None:
            assembled.tables.cluster.assign(self.job, spares=spares, go_back=go_back)
            return assembled.tables.cluster
        return Cluster(
            self.job,
            address=options.address,
            place=options.place,
            restarts=self.restarts,
            answer=options.answer(),
            spares=spares,
            go_back=go_back,
        )

    def run(self, pause: Callable[[], bool] | None = None, *, resumed: bool = False) -> bool:
        """Run to the end; return False if `pause` stopped the run before."""
        try:
            at = self._take_up() if resumed else None
            ended = self.cluster.run(
                self._on_event,
                at=at,
                restored=at is not None,
                passed=self.recorder.newest,
                pause=pause,
            )
            if ended is None:
                self._write(needed=True)
                return False
            self._finish(ended)
        except RunError:
            with contextlib.suppress(RunError):  # it may have found wrong uploads before
                self.recorder.parties = self._mirror(self.cluster.states([SERVER]))
            raise
        finally:
            self.cluster.close()
        return True

    @property
    def spent(self) -> float:
        """Real seconds of the run, including those of earlier drivers."""
        return time.monotonic() - self._began

    def _on_event(self, event: Event) -> None:
        self.transcript.bytes = self.cluster.bytes
        self.recorder.record(event)
        if time.monotonic() > self._due:
            self._write()

    def _write(self, *, needed: bool = False) -> None:
        began = time.monotonic()
        if self.folder is not None:
            try:
                content = {**self.recorder.state(), "wall_seconds": self.spent}
                write_file(self.folder / HISTORY, content)
            except OSError as error:
                if needed:
                    raise
                # The one before is still whole, and the run is worth more.
                _LOG.warning("no history could be written in %s: %s", self.folder, error)
        now = time.monotonic()
        self._due = now + max(_WRITE, _SHARE * (now - began))

    def _take_up(self) -> int | None:
        """The round from which all parties continue; None if the run had not begun.

        A state that cannot be continued is refused, and left unchanged.
        """
        assert self.folder is not None
        path = self.folder / HISTORY
        known = path.exists()
        if known:
            found = read_file(path)
            self.recorder.restore(found)
            self._began -= found.get("wall_seconds", 0.0)
        at = self._go_back(self.cluster.rounds(), known=known)
        _LOG.info("the run goes on from round %s", at or 0)
        return at

    def _go_back(self, kept: Mapping[int, Sequence[int]], *, known: bool = True) -> int | None:
        """Truncate the history to the newest round of which all parties have a checkpoint.

        `kept` has the rounds of each party's checkpoints; `known` is whether a history exists. None
        means a restart from the beginning, if that loses almost no work. CheckpointError if a
        restart from the beginning would delete work; then nothing has changed.
        """
        newest = max((row["round"] for row in self.recorder.rows), default=0)
        common = set.intersection(*map(set, kept.values()))
        at = max((round for round in common if round <= newest), default=None)
        if at is None or not known:
            self._refuse_loss(kept, newest)
            at = None
        self.recorder.go_back(-1 if at is None else at)
        return at

    def _refuse_loss(self, kept: Mapping[int, Sequence[int]], newest: int) -> None:
        """Refuse to start from the beginning if that would delete work (CheckpointError)."""
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

    def _finish(self, ended: EndedCluster) -> None:
        """Copy the parties' models, join their transcripts, and evaluate."""
        self.recorder.parties = self._mirror(ended.states)
        self.transcript = Transcript.joined(ended.transcripts.values())
        self.recorder.transcript = self.transcript
        late = [e for e in self.recorder.events if e["event"] == "late"]
        self.transcript.late = len(late)
        self.recorder.finish()

    def _mirror(self, states: Mapping[int, Mapping[str, object]]) -> dict[int, Party]:
        """Copies, at the driver, of the parties with their present states from the cluster."""
        self._mirrors = self._mirrors or self.protocol.parties()
        for index, state in states.items():
            restored_copy(self._mirrors[index], state)
        return self._mirrors

    def _measured(self) -> dict[str, float]:
        """Measures of the present models; empty while a party that they need is down."""
        states = self.cluster.states()
        if not self.protocol.can_spare(set(self.job.parties) - set(states)):
            return {}
        return measures(self.protocol, self._mirror(states))


def comes_back_alone(protocol: Protocol) -> bool:
    """Whether a client that died restarts alone while the others go on.

    True if timeouts allow it, or no party waits for messages of all others, or the result needs no
    single client's model. Otherwise a client that died between its upload and the answer would miss
    a step, and all later numbers would change.
    """
    one = protocol.data.parties - 1
    goes_on = protocol.card.absence in ("skips", "fills")
    return goes_on or tolerates(protocol) or protocol.can_spare([one])
