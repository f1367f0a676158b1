"""Parties as Ray actors: the same party files, over processes and machines.

Every party has a seat (`securevfl.engine.realtime.actor`), an actor of its own; seats send each
other frames (`securevfl.engine.realtime.frames`), sealed end to end, and the driver only
supervises: it introduces the parties to each other, looks at how they are doing, restarts those
that died from their own checkpoints, and ends the run when the server has ended or nothing can go
on.

A Ray cluster is no trust boundary: whoever is in it can run code on all of its machines. Sealing
protects payloads from the network and from mistakes, not from the cluster's operator.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from securevfl.engine.cluster.ray_connection import connect
from securevfl.engine.network import SERVER, Event, name_of
from securevfl.engine.party import Party
from securevfl.engine.party_state import restore, snapshot
from securevfl.engine.realtime.actor import Job, Report, SeatActor
from securevfl.engine.realtime.frames import Hello
from securevfl.engine.realtime.host import Standing
from securevfl.errors import ConfigurationError, RunError, StalledError

_TICK = 0.05  # seconds between looks at the parties
_GRACE = 5.0  # seconds without progress, after a party was lost for good, that end a run


@dataclass
class _Place:
    """What the driver knows of a seat."""

    seat: Any
    epoch: int = 0
    hello: Hello | None = None
    look: Any = None  # reference of the look under way
    begin: Any = None  # reference of the restart under way
    standing: Standing | None = None
    lost: bool = False
    messages: int = 0
    bytes: int = 0
    process: int = 0
    restarts: int = 0


@dataclass
class Ended:
    """What is left of a run.

    Attributes
    ----------
    states : dict
        Snapshots of the parties' lives that were there at the end, by number.
    transcripts : dict
        States of their transcripts.
    """

    states: dict[int, dict[str, Any]] = field(default_factory=dict)
    transcripts: dict[int, dict[str, Any]] = field(default_factory=dict)


class Cluster:
    """Runs parties as actors of a Ray cluster.

    Parameters
    ----------
    job : Job
    address : str, optional
        Of a running cluster; one is started on this machine unless given.
    place : mapping of int to str
        Ray resource that a party's node must have, such as ``{3: "node-b"}``.
    restarts : int
        How often a party that died is started again; -1 without end. Needs `Job.folder`.
    patience : float
        Real seconds without any progress after which the run counts as stalled.
    """

    def __init__(
        self,
        job: Job,
        *,
        address: str | None = None,
        place: Mapping[int, str] | None = None,
        restarts: int = -1,
        patience: float = 120.0,
    ) -> None:
        job.check()
        self.job = job
        self.patience = patience
        self._restarts = restarts if job.folder is not None else 0
        self._place = dict(place or {})
        self._ray = connect(address)
        self._check_places()
        self._places: dict[int, _Place] = {}
        self._origin = 0
        self._floor = 0
        self._moved = time.monotonic()
        self._signature: Any = None

    # -- running -------------------------------------------------------------------------------

    def run(
        self,
        told: Callable[[Event], None],
        *,
        at: int | None = None,
        restored: bool = False,
        pause: Callable[[], bool] | None = None,
    ) -> Ended | None:
        """Run to the end; None if `pause` said so before.

        Parameters
        ----------
        told : callable
            Given every event of the parties, and those of the cluster ("down", "up").
        at : int, optional
            Round from whose checkpoints a run that was broken goes on; the newest if not given.
        restored : bool
            Go on from checkpoints.

        Raises
        ------
        RunError
            When a party's code fails, or what it waits for was lost for good.
        StalledError
            When nothing moves for `patience` seconds.
        """
        self._seat_all()
        self._begin_all(restored, at)
        while True:
            self._look_around(told)
            server = self._places[SERVER].standing
            if server is not None and server.done:
                self._last_looks(told)
                return self._collect()
            if pause is not None and pause():
                return None
            self._check_progress()
            time.sleep(_TICK)

    def states(self) -> dict[int, dict[str, Any]]:
        """Snapshots of those parties that are there, as they stand."""
        return self._from_all("models")

    def ask(self, index: int, question: Callable[[Party], Any]) -> Any:
        """What a function makes of a party, where the party is; before `close`.

        Raises
        ------
        RunError
            When the party is gone, or the function fails.
        """
        from ray.exceptions import RayError

        try:
            return self._ray.get(self._places[index].seat.ask.remote(question))
        except RayError as error:
            said = str(error).strip().splitlines()[-1]
            raise RunError(f"cluster: {name_of(index)} does not answer: {said}") from None

    @property
    def processes(self) -> dict[int, int]:
        """Process number of each party's actor on its machine, as it was told last."""
        return {n: place.process for n, place in self._places.items()}

    def close(self) -> None:
        """End all seats."""
        for place in self._places.values():
            with contextlib.suppress(Exception):
                self._ray.kill(place.seat, no_restart=True)
        self._places = {}

    @property
    def bytes(self) -> int:
        """Bytes that all parties had sent when they were looked at last."""
        return sum(place.bytes for place in self._places.values())

    # -- seats ---------------------------------------------------------------------------------

    def _check_places(self) -> None:
        """Refuse what Ray would wait for without end: a node that nobody has."""
        strange = sorted(set(self._place) - set(self.job.parties))
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
        """Rounds of which each party has a whole checkpoint, where it lives.

        Processes of the run that are still there, because its driver was killed and they have not
        heard of it, are waited for.

        Raises
        ------
        CheckpointError
            When such a process does not end.
        """
        self._seat_all()
        claims = [place.seat.claim.remote() for place in self._places.values()]
        return dict(zip(self._places, self._ray.get(claims), strict=True))

    def _seat_all(self) -> None:
        actor = self._ray.remote(SeatActor)
        for index in self.job.parties if not self._places else ():
            options: dict[str, Any] = {
                "num_cpus": 0,
                "max_restarts": self._restarts,
                "max_task_retries": 0,
                "max_concurrency": 1000,
                "runtime_env": {"env_vars": _ONE_THREAD},
            }
            if index in self._place:
                options["resources"] = {self._place[index]: 0.001}
            self._places[index] = _Place(actor.options(**options).remote(index, self.job))

    def _begin_all(self, restored: bool, at: int | None) -> None:
        hellos = self._make_all(restored, at)
        for n, hello in hellos.items():
            self._places[n].hello, self._places[n].epoch = hello, hello.epoch
        seats = {n: place.seat for n, place in self._places.items()}
        self._ray.get([place.seat.connect.remote(seats, hellos) for place in self._places.values()])
        self._origin = self._origin or time.time_ns()
        self._ray.get([place.seat.go.remote(self._origin) for place in self._places.values()])

    def _make_all(self, restored: bool, at: int | None) -> dict[int, Hello]:
        """Let the parties be made, so many at once as there are cores twice over.

        To load data takes several times the memory that a party needs afterwards.
        """
        most = 2 * max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        told: dict[Any, int] = {}
        hellos: dict[int, Hello] = {}
        for n, place in self._places.items():
            if len(told) == most:
                ready, _ = self._ray.wait(list(told), num_returns=1)
                hellos[told.pop(ready[0])] = self._ray.get(ready[0])
            told[place.seat.begin.remote(0, restored=restored, at=at, floor=self._floor)] = n
        hellos |= {n: self._ray.get(reference) for reference, n in told.items()}
        return hellos

    def _look_around(self, told: Callable[[Event], None]) -> None:
        """Ask each seat how it is doing; answers that take long are waited for in later rounds."""
        for index, place in self._places.items():
            if place.lost:
                continue
            if place.begin is not None:
                self._try_return(index, place, told)
                continue
            if place.look is None:
                place.look = place.seat.look.remote()
        looks = {p.look: n for n, p in self._places.items() if p.look is not None}
        if not looks:
            return
        ready, _ = self._ray.wait(list(looks), num_returns=len(looks), timeout=_TICK)
        for reference in ready:
            self._take_look(looks[reference], self._places[looks[reference]], told)

    def _take_look(self, index: int, place: _Place, told: Callable[[Event], None]) -> None:
        from ray.exceptions import RayActorError

        reference, place.look = place.look, None
        try:
            report: Report | None = self._ray.get(reference)
        except RayActorError:
            report = None
        if report is None:
            self._went_down(index, place, told)
            return
        place.standing = report.standing
        place.messages, place.bytes = report.messages, report.bytes
        place.process = report.process
        # A server that comes back must announce no round that anybody is in already.
        self._floor = max(self._floor, report.standing.round)
        for event in report.events:
            self._floor = max(self._floor, event.round)
            told(event)
        if report.standing.failed:
            raise RunError(f"cluster: {report.standing.failed}")

    def _went_down(self, index: int, place: _Place, told: Callable[[Event], None]) -> None:
        standing = place.standing
        if standing is None or not standing.settled:
            raise RunError(
                f"cluster: {name_of(index)} died before it had set up, and nobody could begin "
                "without it; look at its machine and start the run again"
            )
        place.restarts += 1
        place.lost = 0 <= self._restarts < place.restarts
        self._tell(told, index, "down", {"life": place.epoch, "for good": place.lost})
        if not place.lost:
            self._ask_back(place)

    def _ask_back(self, place: _Place) -> None:
        place.begin = place.seat.begin.remote(
            place.epoch + 1, restored=True, at=None, floor=self._floor
        )

    def _try_return(self, index: int, place: _Place, told: Callable[[Event], None]) -> None:
        """Bring a party back if its new process is there."""
        from ray.exceptions import ActorUnavailableError, RayActorError

        ready, _ = self._ray.wait([place.begin], timeout=0)
        if not ready:
            return
        try:
            hello: Hello = self._ray.get(place.begin)
        except ActorUnavailableError:
            self._ask_back(place)
            return
        except RayActorError:
            place.begin, place.lost = None, True
            self._tell(told, index, "down", {"life": place.epoch, "for good": True})
            return
        place.begin, place.hello, place.epoch = None, hello, hello.epoch
        for n, other in self._places.items():
            if n != index and not other.lost and other.begin is None:
                other.seat.meet.remote({index: hello})
        seats = {n: other.seat for n, other in self._places.items()}
        hellos = {n: other.hello for n, other in self._places.items()}
        place.seat.connect.remote(seats, hellos)
        place.seat.go.remote(self._origin)
        self._tell(told, index, "up", {"life": hello.epoch})

    def _tell(
        self, told: Callable[[Event], None], index: int, name: str, fields: dict[str, Any]
    ) -> None:
        told(Event(time.time_ns() - self._origin, index, self._floor, name, fields))
        self._moved = time.monotonic()

    # -- the end -------------------------------------------------------------------------------

    def _check_progress(self) -> None:
        """Refuse to wait for ever."""
        standings = {n: p.standing for n, p in self._places.items()}
        signature = [None if s is None else s.progress for s in standings.values()]
        busy = any(p.look is not None or p.begin is not None for p in self._places.values()
                   if not p.lost)  # fmt: skip
        now = time.monotonic()
        if signature != self._signature or busy:
            self._signature = signature
            self._moved = now
            return
        lost = [n for n, place in self._places.items() if place.lost]
        if now - self._moved < (_GRACE if lost else self.patience):
            return
        waiting = "; ".join(
            f"{name_of(n)} {s.waits}"
            for n, s in standings.items()
            if s is not None and s.waits and n not in lost
        )
        if lost:
            raise RunError(
                f"cluster: {', '.join(map(name_of, lost))} died for good in round {self._floor}, "
                f"and the run cannot go on: {waiting}. Everything up to that round is kept; allow "
                "restarts, or choose parameters that tolerate as many losses"
            )
        raise StalledError(f"cluster: nothing moved for {self.patience:g} s: {waiting}")

    def _last_looks(self, told: Callable[[Event], None]) -> None:
        """Give the others a moment to hear of the end, and take in what they have to tell."""
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            self._look_around(told)
            standings = [p.standing for p in self._places.values() if not p.lost and not p.begin]
            if all(s is not None and s.done for s in standings):
                return
            time.sleep(_TICK)

    def _collect(self) -> Ended:
        return Ended(self.states(), self._from_all("transcript"))

    def _from_all(self, what: str) -> dict[int, Any]:
        """What those seats tell that are there."""
        asked = {
            index: getattr(place.seat, what).remote()
            for index, place in self._places.items()
            if not place.lost and place.begin is None
        }
        found = {}
        for index, reference in asked.items():
            with contextlib.suppress(Exception):  # one that dies now is missing from the answer
                found[index] = self._ray.get(reference)
        return found


_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def restored_copy(party: Party, state: Mapping[str, Any]) -> Party:
    """A party object of the driver, with the state that an actor has told."""
    own = snapshot(party, waits=0, time=0)
    restore(party, {**state, "once": own["once"]})
    return party
