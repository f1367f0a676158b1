"""Supervisor of a run on a Ray cluster: starts, polls and restarts the parties' actors.

Every party is an actor of its own (`securevfl.engine.realtime.actor`). Actors send each other
frames over TCP, sealed end to end (`securevfl.engine.realtime.peers`); none passes through Ray. The
driver introduces the parties to each other, polls their status, restarts those that died from their
own checkpoints, alone or with all others, and ends the run when the server has ended or nothing can
go on. Each wait has a limit: a party that is silent for longer is ended and counts as dead.

A Ray cluster is no trust boundary: each of its members can run code on all of its machines. Sealing
protects payloads from the network and from mistakes, not from the cluster's operator.
"""

from __future__ import annotations

import contextlib
import operator
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from securevfl.engine.cluster import ANSWER
from securevfl.engine.cluster.ray_connection import connect, node_address
from securevfl.engine.network import SERVER, Event, name_of
from securevfl.engine.party import Party
from securevfl.engine.party_state import restore, snapshot
from securevfl.engine.realtime.actor import PartyActor, Report
from securevfl.engine.realtime.assignment import PartyAssignment
from securevfl.engine.realtime.host import PartyStatus
from securevfl.engine.realtime.peers import Introduction
from securevfl.errors import ConfigurationError, RunError, SecureVFLError, StalledError

_T = TypeVar("_T")

_TICK = 0.05  # seconds between looks at what was asked
_REST = 0.2  # seconds between two polls of a party, whose answers take a core from the training
_PATIENCE = 120.0  # seconds without progress of any party that end a run
_GRACE = 5.0  # seconds without progress, after a party was lost for good, that end a run
_SETUP = 10.0  # answers may take as many times longer before the first round: data are loaded
_SILENCES = 3  # as often may a party be silent and come back; then it would be so again
_AGAIN = 60.0  # seconds in which all are asked again to go back, if one dies meanwhile

# From the rounds of which each party has a whole checkpoint to the one from which all begin anew;
# None for the beginning.
GoBack = Callable[[Mapping[int, Sequence[int]]], int | None]


@dataclass
class _ActorRecord:
    """The driver's record of one party's actor."""

    actor: Any
    epoch: int = 0
    introduced: Introduction | None = None
    poll: object = None  # reference of the poll under way
    begin: object = None  # reference of the restart under way
    asked: float = 0.0  # when the poll or the restart under way was asked for
    ending: bool = False  # it was silent, and Ray was asked to end its process
    silences: int = 0
    status: PartyStatus | None = None
    came_back: bool = False  # its present life began from a checkpoint
    lost: bool = False
    messages: int = 0
    bytes: int = 0
    process: int = 0
    restarts: int = 0

    @property
    def setup_done(self) -> bool:
        """Whether the party can be restarted: it has finished its set-up."""
        return self.came_back or (self.status is not None and self.status.setup_done)


@dataclass
class Ended:
    """Result of a run: data that the parties' actors returned at its end.

    Attributes
    ----------
    states : dict
        Snapshots, by number, of the parties that were alive at the end.
    transcripts : dict
        States of their transcripts, by number.
    """

    states: dict[int, dict[str, Any]] = field(default_factory=dict)
    transcripts: dict[int, dict[str, Any]] = field(default_factory=dict)


class Cluster:
    """A run whose parties are actors of a Ray cluster.

    Parameters
    ----------
    assignment, address : PartyAssignment, and str, optional
        The run; address of a running cluster, by default one that is started on this machine.
    place : mapping of int to str
        Ray resource that a party's node must have, by party, such as ``{3: "node-b"}``.
    restarts : int
        Largest number of restarts of a party that died; -1 for no limit. Without
        `PartyAssignment.folder` none is restarted.
    answer : float
        Real seconds within which a party must answer the driver, including its longest computation;
        ten times as many before its first round. A party that does not answer is ended and
        restarted.
    spares : callable
        Function of permanently lost parties: whether the result is right without them. By default
        all parties are needed.
    go_back : callable, optional
        Required if one party's return would change the result. Function of the rounds, by party,
        of which it has a complete checkpoint. It returns the round from which all continue (None:
        the beginning), and deletes later results. Without it a party that died returns alone, from
        its newest checkpoint.
    """

    def __init__(
        self,
        assignment: PartyAssignment,
        *,
        address: str | None = None,
        place: Mapping[int, str] | None = None,
        restarts: int = -1,
        answer: float = ANSWER,
        spares: Callable[[Collection[int]], bool] = operator.not_,
        go_back: GoBack | None = None,
    ) -> None:
        assignment.check()
        self._spares = spares
        self._go_back = go_back
        self.assignment = assignment
        self.answer = answer
        self._most = restarts
        self._place = dict(place or {})
        self._ray = connect(address)
        self._check_places()
        self._records: dict[int, _ActorRecord] = {}
        self._later: object = None  # reference of an assignment that the actors were not made with
        self._reset()

    def _reset(self) -> None:
        self._before = 0  # nanoseconds of the run that earlier drivers saw
        self._zero: int | None = None  # monotonic time at which this one let the parties go
        self._floor = 0
        self._moved = time.monotonic()
        self._signature: object = None
        self._fallen: dict[int, Event] = {}  # parties with which all go back, and their falls
        self._on_event: Callable[[Event], None] = lambda event: None

    def assign(
        self,
        assignment: PartyAssignment,
        *,
        spares: Callable[[Collection[int]], bool],
        go_back: GoBack | None = None,
    ) -> None:
        """Assign another run of the same parties to the actors, whose run has ended.

        ConfigurationError for another set of parties; ConfigurationError or SealError for an
        invalid manifest (`PartyAssignment.check`). Then nothing has changed.

        Parameters
        ----------
        assignment : PartyAssignment
            The run to carry out.
        spares, go_back : callable
            Arguments of `Cluster`: which lost parties are not needed; return to an earlier round.
        """
        assignment.check()
        if set(assignment.parties) != set(self.assignment.parties):
            raise ConfigurationError(
                f"cluster: the actors are of {len(self.assignment.parties)} parties, and "
                f"{assignment.protocol} with these options has {len(assignment.parties)}. Start "
                "it on a cluster of its own"
            )
        self.assignment, self._spares, self._go_back = assignment, spares, go_back
        self._later = self._ray.put(assignment)
        self._records = {n: _ActorRecord(record.actor) for n, record in self._records.items()}
        self._reset()

    @property
    def _restarts(self) -> int:
        """Limit on restarts of a party: 0 without checkpoints, -1 for no limit."""
        return self._most if self.assignment.folder is not None else 0

    # -- running -------------------------------------------------------------------------------

    def run(
        self,
        on_event: Callable[[Event], None],
        *,
        at: int | None = None,
        restored: bool = False,
        passed: int = 0,
        pause: Callable[[], bool] | None = None,
    ) -> Ended | None:
        """Run to the end; return None if `pause` returned true before.

        DataError when a party's own table cannot be used. RunError when a party's code fails, what
        it waits for was lost for good, or a party does not answer before its first round or is
        missing at the end. StalledError when no party makes progress for two minutes.

        Parameters
        ----------
        on_event : callable
            Called with every event of the parties and of the cluster ("down", "up").
        at : int, optional
            Round from whose checkpoints an interrupted run continues; the newest by default.
        restored : bool
            Whether to continue from checkpoints.
        passed : int
            Nanoseconds of the run that have passed, at which all clocks start.
        """
        self._on_event, self._before = on_event, passed
        self._start_actors()
        self._begin_all(restored, at)
        while True:
            self._poll_all()
            if self._fallen and not self._anybody_is_away():
                self._all_go_back()
            server = self._records[SERVER].status
            if server is not None and server.done:
                self._last_polls()
                ended = self._collect()
                if ended is not None:
                    return ended
            if pause is not None and pause():
                return None
            self._check_silence()
            self._check_progress()
            time.sleep(_TICK)

    def states(self, parties: Iterable[int] | None = None) -> dict[int, dict[str, Any]]:
        """Present snapshots of parties (default: all) that are alive and answer in time."""
        return self._from_all("models", parties)

    def ask(self, index: int, question: Callable[[Party], _T]) -> _T:
        """Result of `question`, a function of the party, computed where the party is.

        RunError if the party is gone or does not answer in time, or the function fails. It must not
        be called after `close`.
        """
        from ray.exceptions import GetTimeoutError, RayError

        try:
            reference = self._records[index].actor.ask.remote(question)
            found: _T = self._ray.get(reference, timeout=self.answer)
            return found
        except GetTimeoutError:
            raise RunError(self._silence([index], self.answer)) from None
        except RayError as error:
            reason = str(error).strip().splitlines()[-1]
            raise RunError(f"cluster: {name_of(index)} does not answer: {reason}") from None

    @property
    def processes(self) -> dict[int, int]:
        """Process number of each party's actor on its machine, as last reported."""
        return {n: record.process for n, record in self._records.items()}

    def close(self) -> None:
        """End all actors."""
        for record in self._records.values():
            with contextlib.suppress(Exception):
                self._ray.kill(record.actor, no_restart=True)
        self._records = {}

    @property
    def bytes(self) -> int:
        """Bytes sent by all parties, as last reported."""
        return sum(record.bytes for record in self._records.values())

    # -- actors --------------------------------------------------------------------------------

    def _check_places(self) -> None:
        """Raise ConfigurationError for a resource that no node has; Ray would wait forever."""
        strange = sorted(set(self._place) - set(self.assignment.parties))
        if strange:
            raise ConfigurationError(f"cluster: there is no {name_of(strange[0])} to place")
        there = self._ray.cluster_resources()
        for index, resource in self._place.items():
            if there.get(resource, 0) <= 0:
                named = sorted(k for k in there if ":" not in k and not k.startswith("object_"))
                raise ConfigurationError(
                    f"cluster: no node has the resource {resource!r} that {name_of(index)} is to "
                    f"be placed by; there are {', '.join(named)}. Start the node with `ray start "
                    f"--resources '{{\"{resource}\": 1}}'`"
                )

    def rounds(self) -> dict[int, list[int]]:
        """Rounds, by party, of which it has a complete checkpoint on its machine.

        Processes of an earlier driver that was killed may still write there; it waits for their
        end. CheckpointError when such a process does not end.
        """
        self._start_actors()
        return self._answers({n: r.actor.claim.remote() for n, r in self._records.items()})

    def _start_actors(self) -> None:
        actor = self._ray.remote(PartyActor)
        for index in self.assignment.parties if not self._records else ():
            options: dict[str, Any] = {
                "num_cpus": 0,
                "max_restarts": self._most,
                "max_task_retries": 0,
                "max_concurrency": 1000,
            }
            if index in self._place:
                options["resources"] = {self._place[index]: 0.001}
            self._records[index] = _ActorRecord(
                actor.options(**options).remote(index, self.assignment, node_address)
            )

    def _begin_all(self, restored: bool, at: int | None) -> None:
        made = self._make_all(restored, at)
        for n, introduced in made.items():
            record = self._records[n]
            record.introduced, record.epoch = introduced, introduced.epoch
            record.came_back = restored
        actors = {n: record.actor for n, record in self._records.items()}
        self._answers({n: actor.add_peers.remote(made) for n, actor in actors.items()})
        if self._zero is None:
            self._zero = time.monotonic_ns()
        going = self._answers({n: actor.go.remote(self._passed) for n, actor in actors.items()})
        for n, goes in going.items():
            if not goes:  # Ray has started its process anew since it was made
                raise DiedError(n)

    @property
    def _passed(self) -> int:
        """Nanoseconds since the start of the run, from this process's monotonic clock."""
        return self._before + (0 if self._zero is None else time.monotonic_ns() - self._zero)

    def _anybody_is_away(self) -> bool:
        """Whether some party's new process is missing, temporarily or for good."""
        records = self._records.values()
        return any(r.begin is not None or r.ending or r.lost for r in records)

    def _all_go_back(self) -> None:
        """Restart all parties from one round after one of them died.

        RunError when parties die again and again meanwhile.
        """
        assert self._go_back is not None
        end = time.monotonic() + _AGAIN
        while True:
            try:
                at = self._go_back(self.rounds())
                self._floor = at or 0  # rounds after it are announced once more
                self._begin_all(at is not None, at)
                break
            except DiedError as error:
                if time.monotonic() > end:
                    raise
                if error.party not in self._fallen:
                    self._fell(error.party)
                time.sleep(_TICK)
        self._signature, fallen = None, self._fallen
        self._fallen = {}
        for record in self._records.values():
            record.poll = record.status = None  # what was asked before is of the lives before
        for index, event in fallen.items():
            if event.round > self._floor:  # else the history has it
                self._on_event(event._replace(round=self._floor))
            told = {"life": self._records[index].epoch, "all from round": self._floor}
            self._record(index, "up", told)

    def _make_all(self, restored: bool, at: int | None) -> dict[int, Introduction]:
        """Have the actors create their parties; return the parties' introductions.

        At most twice as many parties as cores are created at once, because loading data takes
        several times the memory of a party.
        """
        most = 2 * max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        pending: dict[int, Any] = {}
        made: dict[int, Introduction] = {}
        for n, record in self._records.items():
            if len(pending) == most:
                done, introduced = next(self._arriving(pending))
                made[done] = introduced
                del pending[done]
            pending[n] = self._asked_to_begin(record, 0, restored=restored, at=at)
        return made | self._answers(pending)

    def _asked_to_begin(
        self, record: _ActorRecord, epoch: int, *, restored: bool, at: int | None
    ) -> Any:
        """Reference to an actor's introduction; a new actor process first gets the assignment."""
        return record.actor.begin.remote(
            epoch, restored=restored, at=at, floor=self._floor, assignment=self._later
        )

    def _answers(self, references: Mapping[int, object]) -> dict[int, Any]:
        """Answers of all parties asked; before the start of a run all are required."""
        return dict(self._arriving(references))

    def _arriving(self, references: Mapping[int, object]) -> Iterator[tuple[int, Any]]:
        """Parties with their answers in the order of arrival, before the first round.

        RunError when a party does not answer in time.
        """
        from ray.exceptions import RayActorError, RayTaskError

        pending = {reference: n for n, reference in references.items()}
        seconds = _SETUP * self.answer
        end = time.monotonic() + seconds
        while pending:
            left = max(0.0, end - time.monotonic())
            ready, _ = self._ray.wait(list(pending), num_returns=1, timeout=left)
            if not ready:
                raise RunError(self._silence(pending.values(), seconds))
            n = pending.pop(ready[0])
            try:
                answer = self._ray.get(ready[0])
            except RayActorError:
                raise DiedError(n) from None
            except RayTaskError as error:
                raise _told(n, error) from None
            yield n, answer

    def _silence(self, parties: Iterable[int], seconds: float) -> str:
        named = ", ".join(map(name_of, sorted(parties)))
        return (
            f"cluster: {named} did not answer within {seconds:g} s. Look at its machine, or, if it "
            "computes that long, raise answer_timeout; then start or resume the run"
        )

    def _poll_all(self) -> None:
        """Ask each actor for its report (slow ones: read later); raise the error of a party."""
        for index, record in self._records.items():
            if record.lost:
                continue
            if record.begin is not None:
                self._try_return(index, record)
                continue
            if index in self._fallen and not record.ending:
                continue  # its new process has no party until all have gone back
            now = time.monotonic()
            if record.poll is None and now - record.asked >= _REST:
                record.poll, record.asked = record.actor.poll.remote(), now
        polls = {p.poll: n for n, p in self._records.items() if p.poll is not None}
        if not polls:
            return
        ready, _ = self._ray.wait(list(polls), num_returns=len(polls), timeout=_TICK)
        for reference in ready:
            self._take_report(polls[reference], self._records[polls[reference]])
        statuses = [one.status for one in self._records.values() if one.status is not None]
        if failed := [one for one in statuses if one.failed]:
            raise max(failed, key=lambda one: one.lie is not None).error("cluster")

    def _check_silence(self) -> None:
        """Count parties as down that have not answered in time."""
        now = time.monotonic()
        for index, record in self._records.items():
            trains = record.begin is None and record.setup_done
            limit = self.answer if trains or record.ending else _SETUP * self.answer
            asked = record.poll if record.begin is None else record.begin
            if asked is None or record.lost or now - record.asked <= limit:
                continue
            # An answer may lie here, if the driver itself was busy or stopped for so long.
            if not self._ray.wait([asked], num_returns=1, timeout=0)[0]:
                self._fell_silent(index, record, limit)

    def _fell_silent(self, index: int, record: _ActorRecord, seconds: float) -> None:
        """Record a party silent for `seconds` as down, and have Ray kill its process.

        RunError if its set-up was not done.
        """
        if not record.setup_done:
            raise RunError(self._silence([index], seconds))
        record.silences += 1
        record.lost = record.ending or record.silences > _SILENCES
        why = f"no answer for {seconds:g} s"
        self._fell(index, why=why)
        record.ending, record.asked = True, time.monotonic()
        if record.lost:
            record.poll = record.begin = None
        with contextlib.suppress(Exception):
            # What Ray was asked before fails when the process is gone, which is noticed as a death.
            self._ray.kill(record.actor, no_restart=record.lost)

    def _take_report(self, index: int, record: _ActorRecord) -> None:
        from ray.exceptions import RayActorError

        reference, record.poll = record.poll, None
        try:
            report: Report | None = self._ray.get(reference)
        except RayActorError:
            report = None
        if report is None:
            self._went_down(index, record)
            return
        record.status = report.status
        record.messages, record.bytes = report.messages, report.bytes
        record.process = report.process
        # A server that comes back must announce no round that anybody is in already.
        self._floor = max(self._floor, report.status.round)
        for event in report.events:
            self._floor = max(self._floor, event.round)
            self._on_event(event)

    def _went_down(self, index: int, record: _ActorRecord) -> None:
        if not record.setup_done:
            raise DiedError(index)
        record.restarts += 1
        record.lost = 0 <= self._restarts < record.restarts
        if record.lost or not record.ending:  # else it was told when it fell silent
            self._fell(index)
        if not record.lost:
            self._ask_back(record)
            return
        with contextlib.suppress(Exception):
            self._ray.kill(record.actor, no_restart=True)

    def _ask_back(self, record: _ActorRecord) -> None:
        record.ending, record.asked = False, time.monotonic()
        if self._go_back is None:
            record.begin = self._asked_to_begin(record, record.epoch + 1, restored=True, at=None)
        else:
            record.begin = record.actor.claim.remote()

    def _try_return(self, index: int, record: _ActorRecord) -> None:
        """Restart a party if its new process exists."""
        from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

        ready, _ = self._ray.wait([record.begin], timeout=0)
        if not ready:
            return
        try:
            answer = self._ray.get(record.begin)
        except RayTaskError as error:
            raise _told(index, error) from None
        except ActorUnavailableError:
            self._ask_back(record)
            return
        except RayActorError:
            record.begin, record.lost = None, True
            self._fell(index)
            return
        record.begin = None
        if self._go_back is None:
            self._introduce(index, record, answer)

    def _introduce(self, index: int, record: _ActorRecord, introduced: Introduction) -> None:
        """Let restarted party `index` continue, with keys and epoch `introduced` to the others."""
        record.introduced, record.epoch = introduced, introduced.epoch
        for n, other in self._records.items():
            if n != index and not other.lost and other.begin is None:
                other.actor.add_peers.remote({index: introduced})
        known = {n: one.introduced for n, one in self._records.items() if one.introduced}
        record.actor.go_on.remote(known, self._passed)
        self._record(index, "up", {"life": introduced.epoch})

    def _fell(self, index: int, **why: str) -> None:
        """Record that a party is down; with `go_back`, all parties restart together later."""
        record = self._records[index]
        fields = {"life": record.epoch, "for good": record.lost} | why
        event = self._record(index, "down", fields)
        if self._go_back is not None:
            self._fallen.setdefault(index, event)

    def _record(self, index: int, name: str, fields: dict[str, Any]) -> Event:
        """Event of the cluster itself about party `index`, recorded and told to the observer."""
        event = Event(self._passed, index, self._floor, name, fields)
        self._on_event(event)
        self._moved = time.monotonic()
        return event

    # -- the end -------------------------------------------------------------------------------

    def _check_progress(self) -> None:
        """Raise StalledError, or RunError after a permanent loss, if there is no progress."""
        statuses = {n: p.status for n, p in self._records.items()}
        signature = [None if s is None else s.progress for s in statuses.values()]
        busy = any(p.poll is not None or p.begin is not None for p in self._records.values()
                   if not p.lost)  # fmt: skip
        now = time.monotonic()
        if signature != self._signature or busy:
            self._signature = signature
            self._moved = now
            return
        lost = [n for n, record in self._records.items() if record.lost]
        if now - self._moved < (_GRACE if lost else _PATIENCE):
            return
        waiting = "; ".join(
            f"{name_of(n)} {s.waits}"
            for n, s in statuses.items()
            if s is not None and s.waits and n not in lost
        )
        if lost:
            raise RunError(
                f"cluster: {', '.join(map(name_of, lost))} died for good in round {self._floor}, "
                f"and the run cannot go on: {waiting}. Everything up to that round is kept; allow "
                "restarts, or choose parameters that tolerate as many losses"
            )
        raise StalledError(f"cluster: nothing moved for {_PATIENCE:g} s: {waiting}")

    def _last_polls(self) -> None:
        """Give the other parties a second to end, and read their last reports."""
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            self._poll_all()
            statuses = [p.status for p in self._records.values() if not p.lost and not p.begin]
            if all(s is not None and s.done for s in statuses):
                return
            time.sleep(_TICK)

    def _collect(self) -> Ended | None:
        """States and transcripts of all parties; waits for a party that is down to return.

        None if all parties go back with it, so that the run continues; RunError if it stays away.
        """
        states = self.states()
        end = time.monotonic() + _SETUP * self.answer
        while len(states) < len(self._records):
            missing = [n for n in self._records if n not in states]
            gone = [n for n in missing if self._records[n].lost]
            if gone == missing and self._spares(gone):
                break
            if (gone and not self._spares(gone)) or time.monotonic() > end:
                raise RunError(
                    f"cluster: the last round is over, but {', '.join(map(name_of, missing))} did "
                    "not come back, and without its model the result would be wrong. Resume the "
                    "run when its machine is there again"
                )
            if self._go_back is not None:
                return None
            self._poll_all()
            self._check_silence()
            time.sleep(_TICK)
            states |= self._from_all("models", missing)
        return Ended(states, self._from_all("transcript"))

    def _from_all(self, what: str, parties: Iterable[int] | None = None) -> dict[int, Any]:
        """Results of a method of all actors, or of some, that are alive and answer in time."""
        asked = {}
        for index in self._records if parties is None else parties:
            record = self._records[index]
            if not record.lost and not record.ending and record.begin is None:
                asked[getattr(record.actor, what).remote()] = index
        if not asked:
            return {}
        ready, silent = self._ray.wait(list(asked), num_returns=len(asked), timeout=self.answer)
        found = {}
        for reference in ready:
            with contextlib.suppress(Exception):  # one that dies now is missing from the answer
                found[asked[reference]] = self._ray.get(reference)
        for reference in silent:
            self._fell_silent(asked[reference], self._records[asked[reference]], self.answer)
        return dict(sorted(found.items()))


class DiedError(RunError):
    """A party's actor died before the party's set-up was done."""

    def __init__(self, party: int) -> None:
        self.party = party
        super().__init__(
            f"cluster: {name_of(party)} died before it had set up, and nobody could begin without "
            "it; look at its machine, and start or resume the run"
        )


def _told(index: int, error: Any) -> Exception:
    """Error of a party's code in its actor, without Ray's traceback lines."""
    cause: Exception = error.cause
    if isinstance(cause, SecureVFLError):
        return cause
    if isinstance(cause, OSError):
        return RunError(
            f"cluster: {name_of(index)} could not use its folder: {cause}. Make room on its "
            "machine, or mend the folder, and resume the run: what was whole is kept"
        )
    return RunError(f"cluster: {name_of(index)}: {type(cause).__name__}: {cause}")


def restored_copy(party: Party, state: Mapping[str, Any]) -> Party:
    """The driver's own object `party`, set to the state that the party's actor returned."""
    own = snapshot(party, waits=0, time=0)
    restore(party, {**state, "once": own["once"]})
    return party
