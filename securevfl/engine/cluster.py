"""Parties as Ray actors: the same party files, over processes and machines.

Every party has a seat, an actor of its own, in which `securevfl.engine.live` runs it; seats send
each other frames (`securevfl.engine.links`), sealed end to end, and the driver only supervises: it
introduces the parties to each other, looks at how they are doing, restarts those that died from
their own checkpoints, and ends the run when the server has ended or nothing can go on.

A Ray cluster is no trust boundary: whoever is in it can run code on all of its machines. Sealing
protects payloads from the network and from mistakes, not from the cluster's operator.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from securevfl.engine.conditions import NONE, Conditions
from securevfl.engine.identity import Identity, Manifest
from securevfl.engine.keeping import Keeper
from securevfl.engine.links import Hello, Links
from securevfl.engine.live import LiveHome, Standing
from securevfl.engine.network import SERVER, Event, name_of
from securevfl.engine.party import Party
from securevfl.engine.replay import restore, snapshot
from securevfl.engine.sealing import Sealer
from securevfl.errors import ConfigurationError, RunError, StalledError

_TICK = 0.05  # seconds between looks at the parties
_GRACE = 5.0  # seconds without progress, after a party was lost for good, that end a run


@dataclass(frozen=True)
class Job:
    """What a seat has to know; plain values only, but for `make`.

    Attributes
    ----------
    make : callable
        Party of a number, newly made, with its own data. It is called where the party lives.
    protocol, run_id : str
        Bound into every sealed message.
    parties : tuple of int
    seed : int
    conditions : Conditions
        Delays to inject.
    sealed : bool
    folder : str or None
        Where checkpoints lie, on the machine of each party; None for none.
    every : int
        Rounds between checkpoints.
    manifest : Manifest or None
        Who takes part; without one, keys are introduced by the driver, who is then trusted.
    keys : str or None
        Folder of key files, ``server.key`` and ``party-0.key``, on each party's own machine.
    points : mapping
        Where each party's shares are evaluated, for comparison with the manifest.
    """

    make: Callable[[int], Party]
    protocol: str
    run_id: str
    parties: tuple[int, ...]
    seed: int
    conditions: Conditions = NONE
    sealed: bool = True
    folder: str | None = None
    every: int = 1
    manifest: Manifest | None = None
    keys: str | None = None
    points: Mapping[int, int] = field(default_factory=dict)

    def identity(self, index: int) -> Identity | None:
        """A party's long-lived key, read where it lives.

        Raises
        ------
        ConfigurationError
            When the manifest knows another key of it.
        """
        if self.manifest is None:
            return None
        assert self.keys is not None
        found = Identity.read(Path(self.keys) / f"{_key_name(index)}.key")
        self.manifest.signed(index, found)
        return found

    def check(self) -> None:
        """Refuse a manifest that is not signed by all, or is of another session than this one.

        Raises
        ------
        SealError, ConfigurationError
        """
        manifest = self.manifest
        if manifest is None:
            return
        if self.keys is None or not self.sealed:
            raise ConfigurationError(
                "cluster: a manifest needs keys, the folder of the parties' key files, and sealed "
                "links"
            )
        manifest.check()
        if manifest.protocol != self.protocol or sorted(manifest.seats) != sorted(self.parties):
            raise ConfigurationError(
                f"cluster: the manifest is of {manifest.protocol} with {len(manifest.seats) - 1} "
                f"parties, and this run is of {self.protocol} with {len(self.parties) - 1}"
            )
        for index, seat in manifest.seats.items():
            point = self.points.get(index)
            if seat.point is not None and seat.point != point:
                raise ConfigurationError(
                    f"cluster: {name_of(index)} has the point {seat.point} in the manifest, and "
                    f"{point} in this run"
                )

    def keeper(self, index: int) -> Keeper | None:
        """Who writes a party's checkpoints."""
        if self.folder is None:
            return None
        return Keeper(own_folder(self.folder, index), every=self.every)


@dataclass(frozen=True)
class Report:
    """What a seat tells when it is looked at; None where its process has been restarted."""

    standing: Standing
    events: list[Event]
    rounds_over: list[tuple[int, bool, int]]
    messages: int
    bytes: int
    process: int


class Seat:
    """One party's actor. All its methods run on one event loop."""

    def __init__(self, index: int, job: Job) -> None:
        self.index = index
        self.job = job
        self.home: LiveHome | None = None
        self._seats: dict[int, Any] = {}
        self._told = self._over = 0

    async def begin(self, epoch: int, *, restored: bool, at: int | None, floor: int) -> Hello:
        """Make the party, from its own checkpoint where asked to; what the others need to know."""
        import torch

        torch.set_num_threads(1)
        job = self.job
        party = job.make(self.index)
        keeper = job.keeper(self.index)
        saved = None
        if keeper is not None:
            epoch = max(epoch, keeper.begin_life())
            if restored:
                saved = keeper.read(at)
            keeper.forget(-1 if saved is None else saved["round"])
        if restored:
            if saved is None:
                raise RunError(f"{name_of(self.index)} has no checkpoint to come back from")
            restore(party, saved)
        party.epoch = epoch
        if self.index == SERVER:
            party.round = max(party.round, floor)
        sealer = Sealer(job.protocol, job.run_id, self.index) if job.sealed else None
        identity, verify = job.identity(self.index), None
        if job.manifest is not None:
            job.manifest.check()
            verify = job.manifest.verify
        links = Links(job.run_id, self.index, epoch, job.parties, sealer, verify)
        self.home = LiveHome(
            party,
            links,
            self._post,
            seed=job.seed,
            conditions=job.conditions,
            keep=keeper,
            settled=saved is not None,
        )
        if identity is None or job.manifest is None:
            return links.hello
        return identity.introduce(job.manifest.digest, self.index, links.hello)

    async def connect(self, seats: Mapping[int, Any], hellos: Mapping[int, Hello]) -> None:
        """Learn where the others are, and of their lives."""
        self._seats = dict(seats)
        await self.meet(hellos)

    async def meet(self, hellos: Mapping[int, Hello]) -> None:
        """Learn of new lives."""
        if self.home is not None:
            self.home.meet(dict(hellos))

    async def go(self, origin: int) -> None:
        """Let the party live; its clock counts from `origin`."""
        assert self.home is not None
        self.home.start(origin)

    async def take(self, data: bytes) -> None:
        """A frame has come."""
        if self.home is not None:
            self.home.take(data)

    async def look(self) -> Report | None:
        """How the party is doing, and what has happened since the last look."""
        home = self.home
        if home is None:
            return None
        events, over = home.events[self._told :], home.rounds_over[self._over :]
        self._told, self._over = len(home.events), len(home.rounds_over)
        sent = home.transcript
        return Report(home.standing, events, over, sent.messages, sent.bytes, os.getpid())

    async def models(self) -> dict[str, Any]:
        """Snapshot of the party as it stands, without what never changes."""
        assert self.home is not None
        saved = self.home.snapshot()
        return saved | {"once": dict.fromkeys(saved["once"])}

    async def ask(self, question: Callable[[Party], Any]) -> Any:
        """What a function makes of the party as it stands."""
        assert self.home is not None
        return question(self.home.party)

    async def transcript(self) -> dict[str, Any]:
        """The messages that this life of the party has sent."""
        assert self.home is not None
        return self.home.transcript.state()

    def _post(self, receiver: int, data: bytes) -> None:
        self._seats[receiver].take.remote(data)


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
        self._seat_all(restored, at)
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

    def _seat_all(self, restored: bool, at: int | None) -> None:
        actor = self._ray.remote(Seat)
        for index in self.job.parties:
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
        begun = {
            n: place.seat.begin.remote(0, restored=restored, at=at, floor=self._floor)
            for n, place in self._places.items()
        }
        hellos: dict[int, Hello] = {n: self._ray.get(told) for n, told in begun.items()}
        for n, hello in hellos.items():
            self._places[n].hello, self._places[n].epoch = hello, hello.epoch
        seats = {n: place.seat for n, place in self._places.items()}
        self._ray.get([place.seat.connect.remote(seats, hellos) for place in self._places.values()])
        self._origin = self._origin or time.time_ns()
        self._ray.get([place.seat.go.remote(self._origin) for place in self._places.values()])

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


def connect(address: str | None, *, seconds: float = 3.0) -> Any:
    """The Ray module, connected; a cluster of this machine is started where no address is given.

    Raises
    ------
    ConfigurationError
        When Ray is not installed, or nobody listens at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise ConfigurationError(
            "engine: 'ray' needs the extra of that name; pip install 'securevfl[ray]'"
        ) from None
    if ray.is_initialized():
        return ray
    options: dict[str, Any] = {
        "log_to_driver": False,
        "include_dashboard": False,
        "logging_level": "ERROR",
        "configure_logging": False,
    }
    if address is None:
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")
        ray.init(address="local", num_cpus=os.cpu_count(), **options)  # never one that is about
        return ray
    _preflight(address, seconds)
    options.pop("include_dashboard")
    try:
        ray.init(address=address, **options)
    except (ConnectionError, RuntimeError) as error:
        raise ConfigurationError(
            f"engine: the Ray cluster at {address!r} did not let this process in "
            f"({str(error).splitlines()[0]}); RAY_AUTH_MODE and RAY_AUTH_TOKEN must be those of "
            "the cluster"
        ) from None
    return ray


# A client's first words to a gRPC server: the preface of HTTP/2, and no settings of its own.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS = 4  # type of the frame that a server answers with


def _preflight(address: str, seconds: float) -> None:
    """Say at once that nobody is there, or speaks otherwise; Ray itself tries for a minute."""
    import socket

    host, _, port = address.rpartition(":")
    try:
        with (
            socket.create_connection((host, int(port)), timeout=seconds) as plain,
            _wrapped(plain) as link,
        ):
            link.sendall(_PREFACE)
            answer = link.recv(9)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"engine: no Ray cluster answers at {address!r} within {seconds:g} s ({error}); start "
            "one with `ray start --head`, give HOST:PORT, and the cluster's own RAY_USE_TLS and "
            "certificates"
        ) from None
    if len(answer) < 4 or answer[3] != _SETTINGS:
        raise ConfigurationError(
            f"engine: what listens at {address!r} is no Ray cluster, or one that speaks TLS; set "
            "RAY_USE_TLS=1 and RAY_TLS_SERVER_CERT, RAY_TLS_SERVER_KEY and RAY_TLS_CA_CERT as its "
            "nodes do"
        )


def _wrapped(plain: Any) -> Any:
    """The connection, within TLS where Ray is told to use it."""
    import ssl

    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return plain
    context = ssl.create_default_context(cafile=os.environ.get("RAY_TLS_CA_CERT"))
    context.check_hostname = False  # as gRPC within a cluster; the authority is what counts
    certificate = os.environ.get("RAY_TLS_SERVER_CERT")
    if certificate:
        context.load_cert_chain(certificate, os.environ.get("RAY_TLS_SERVER_KEY"))
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(plain)


def common_round(job: Job, parties: Sequence[int], newest: int) -> int | None:
    """Newest round up to `newest` of which every party has a checkpoint, if there is one."""
    rounds: set[int] | None = None
    for index in parties:
        keeper = job.keeper(index)
        found = set(keeper.rounds()) if keeper is not None else set()
        rounds = found if rounds is None else rounds & found
    return max((r for r in rounds or () if r <= newest), default=None)


def mirrored(party: Party, state: Mapping[str, Any]) -> Party:
    """A party object of the driver, with the state that an actor has told."""
    own = snapshot(party, waits=0, time=0)
    restore(party, {**state, "once": own["once"]})
    return party


def _key_name(index: int) -> str:
    return "server" if index == SERVER else f"party-{index}"


def own_folder(folder: str, index: int) -> Path:
    """Where a party keeps what is its own, in a run's folder on its machine."""
    return Path(folder) / "parties" / ("server" if index == SERVER else str(index))
