"""A run in which each party has a host of its own, as on a cluster, in one process.

A simulation shows what parties ask their network for. On a cluster a `PartyActor` makes the party,
and its `PartyHost` turns what it asks for into frames and reports. Here each request is noted
before the host has it, and what leaves the actor is held against that: frames by the audit's own
lines, and so are the reports that the driver polls.
"""

from __future__ import annotations

import asyncio
import math
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from securevfl.engine import wire
from securevfl.engine.network import ANY_ROUND, SERVER, Message, PartyState, Sending, name_of
from securevfl.engine.party import Party
from securevfl.engine.realtime.actor import PartyActor, Report
from securevfl.engine.realtime.assignment import PartyAssignment, own_folder
from securevfl.engine.realtime.host import PartyHost, PartyStatus, Transmit
from securevfl.engine.realtime.peers import Introduction
from securevfl.engine.security.frames import Frame
from securevfl.engine.streams import Secrets
from securevfl.errors import RunError
from securevfl.protocols.base.messages import MessageKey
from securevfl.protocols.base.protocol import Protocol
from securevfl.runs.assembly import rules_of
from securevfl.runs.threads import one_thread
from tests.engine.realtime.damage import forget_ahead
from tests.oracles.frames import fresh_secrets, written
from tests.oracles.traffic import Deviation, text_of

_RUN = "hosted"
_ENDED_IN = 4  # round in which the hosts of a run are ended that is restarted
_MOST = 120.0  # seconds after which a run is broken off
_OFTEN = 0.02  # seconds between two polls
# Fields of a report and of a status: a value of another class could carry more than it says.
_REPORT = {"status": PartyStatus, "events": list, "messages": int, "bytes": int,
           "process": int}  # fmt: skip
_STATUS = {"done": bool, "failed": str, "mistake": bool, "waits": str, "round": int,
           "setup_done": bool, "progress": int, "rejected": int,
           "lie": type(None)}  # fmt: skip
# Fields of the event of a host of its own, which names a message that came late.
_LATE = {"kind": str, "sender": int, "of_round": int}


@dataclass
class HostedRun:
    """Findings about what left the hosts of a run.

    Attributes
    ----------
    frames, events : int
    wrong_frames : list of Deviation
        Frames that are not of what a party sent, sealed as documented.
    wrong_events : list of str
        Events that are not what a party told its host, and reports that say more than how a party
        stands, in words.
    """

    frames: int = 0
    events: int = 0
    wrong_frames: list[Deviation] = field(default_factory=list)
    wrong_events: list[str] = field(default_factory=list)


def run_hosted(protocol: Protocol) -> HostedRun:
    """Run a protocol with a host for each party, each made by its own entropy.

    Raises
    ------
    RunError
        Where a party fails, or the run does not end.
    """
    one = _Hosts(protocol)
    _loop(one.run())
    return one.found


def weak_keys(protocol: Protocol) -> list[str]:
    """Parties whose hosts begin with a private key that others could compute, in words.

    Such a key is not of 32 fresh bytes of the operating system. Nothing is run.
    """
    one = _Hosts(protocol)
    with fresh_secrets() as given:
        keys = _loop(one.begin_and_leave())
    return [
        f"the private key of {name_of(n)} on a cluster is not of 32 fresh bytes of the operating "
        "system"
        for n, secrets in keys.items()
        if not given.issuperset(secrets)
    ]


@dataclass(frozen=True)
class RestartedRun:
    """Messages that left the hosts of a run in all its lives.

    Attributes
    ----------
    sent : Counter of MessageKey
        How often each message did.
    contents : list of dict of MessageKey to bytes
        By life what its parties sent, as it was encoded; of several messages the first.
    """

    sent: Counter[MessageKey]
    contents: list[dict[MessageKey, bytes]]


def run_restarted(
    protocol: Protocol,
    restarts: int = 1,
    forgetful: Collection[int] = (),
    *,
    counted: bool = False,
) -> RestartedRun:
    """Run a protocol until all hosts are ended at once, and on from checkpoints a round older.

    A party that refuses to repeat something ends the run.

    Parameters
    ----------
    protocol : Protocol
    restarts : int
        How often it is ended so, each time in the same round.
    forgetful : collection of int
        Parties that lose what they wrote ahead of their checkpoints.
    counted : bool
        Whether parties know how often they came back (`Party.life`), as where one comes back alone.
        The last life is then ended in that round, too.

    Returns
    -------
    RestartedRun

    Raises
    ------
    RunError
        Where a party fails before the first restart, or a life does not end.
    """
    sent = Counter[MessageKey]()
    with tempfile.TemporaryDirectory() as folder:
        lives = [_Hosts(protocol, folder)]
        _loop(lives[0].run(until=_ENDED_IN))
        with suppress(_PartyFailedError):
            for number in range(restarts):
                for n in forgetful:
                    forget_ahead(own_folder(folder, n))
                lives.append(_Hosts(protocol, folder, number + 1 if counted else 0))
                last = number == restarts - 1 and not counted
                until = math.inf if last else _ENDED_IN
                _loop(lives[-1].run(restored=True, until=until))
    sent = sum((life.carried for life in lives), Counter[MessageKey]())
    return RestartedRun(sent, [life.contents() for life in lives])


def _loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run it in a thread of its own: a notebook has a loop in its own."""
    with one_thread(), ThreadPoolExecutor(1) as alone:
        return alone.submit(asyncio.run, coroutine).result()


class _PartyFailedError(RunError):
    """A party ended in an error."""


class _Noted:
    """The network of a party: notes what it sends and tells, and lets the host do it."""

    def __init__(self, host: Any, modulus: Any) -> None:
        self._host, self._modulus = host, modulus
        self.sent: dict[tuple[int, str, int], list[bytes]] = {}
        self.first: dict[tuple[int, str, int], bytes] = {}
        self.told: list[tuple[str, str]] = []
        self.to_itself = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    def send(self, sending: Sending) -> None:
        """Note the payloads that go to others."""
        for receiver, payload in zip(sending.to, sending.payloads, strict=True):
            if receiver != sending.party.index:
                place = receiver, sending.kind, sending.round
                content = wire.encode(payload, self._modulus(sending.kind))
                self.sent.setdefault(place, []).append(content)
                self.first.setdefault(place, content)
            else:
                self.to_itself += 1
        self._host.send(sending)

    def record(self, party: PartyState, name: str, fields: dict[str, Any]) -> None:
        """Note the event."""
        self.told.append((name, text_of(fields)))
        self._host.record(party, name, fields)


class _Hosts:
    """The actors of a run, or of a life of it, and what left them."""

    def __init__(self, protocol: Protocol, folder: str | None = None, life: int = 0) -> None:
        self.protocol, self.found, self.life = protocol, HostedRun(), life
        self.carried = Counter[MessageKey]()
        self._until, self._ended = math.inf, False
        rules = rules_of(protocol)
        parties = tuple(sorted(n for numbers in protocol.roles().values() for n in numbers))
        self._modulus = (lambda kind: None) if rules is None else rules.modulus
        self._assignment = PartyAssignment(
            make=self._make,
            protocol=protocol.name,
            run_id=_RUN,
            parties=tuple(dict.fromkeys(parties)),
            seed=protocol.seed,
            rules=rules,
            folder=folder,
        )
        self._actors = {n: PartyActor(n, self._assignment) for n in self._assignment.parties}
        self._made: dict[int, frozenset[str]] = {}  # attributes of parties before hosts had them
        self._noted: dict[int, _Noted] = {}
        self._numbers: Counter[tuple[int, int]] = Counter()
        self._events: dict[int, list[Any]] = {n: [] for n in self._actors}
        self._sent: dict[int, list[int]] = {n: [] for n in self._actors}  # bytes of each frame
        self._arrived: Counter[int] = Counter()

    def contents(self) -> dict[MessageKey, bytes]:
        """Payloads that parties sent in this life; of several with one key the first."""
        return {
            MessageKey(kind, round, sender, receiver): content
            for sender, noted in self._noted.items()
            for (receiver, kind, round), content in noted.first.items()
        }

    def _make(self, index: int, secrets: Secrets) -> Party:
        """A party as its own machine makes it."""
        made = type(self.protocol)(
            self.protocol.config, self.protocol.data, seed=self.protocol.seed
        )
        made.secrets = secrets
        party = made.party(index)
        self._made[index] = frozenset(vars(party))
        return party

    async def run(self, *, restored: bool = False, until: float = math.inf) -> None:
        """Begin all, introduce them, and wait for the server's end, or that of a round.

        Parameters
        ----------
        restored : bool
            From the newest checkpoints but one that all have.
        until : float
            Round of the server in which all hosts are ended.
        """
        try:
            await self._run(restored=restored, until=until)
        finally:
            for actor in self._actors.values():
                await actor.leave()
                if actor.store is not None:
                    actor.store.release()

    async def begin(self, *, restored: bool = False) -> dict[int, Introduction]:
        """Make the parties in their hosts; returns how these introduce themselves."""
        rounds = [set(await actor.claim()) for actor in self._actors.values()]
        at = sorted(set.intersection(*rounds))[-2:][0] if restored else None
        return {
            n: await actor.begin(self.life, restored=restored, at=at, floor=0)
            for n, actor in self._actors.items()
        }

    async def begin_and_leave(self) -> dict[int, list[bytes]]:
        """Keys of each party's incarnation: who has them takes part in its handshakes."""
        await self.begin()
        found = {}
        for n, actor in self._actors.items():
            assert actor.peers is not None
            handshakes = [link.handshake for link in actor.peers.session._links.values()]
            secrets = [one._secret for one in handshakes] + [actor.peers._identity._secret]
            found[n] = [one.private_bytes_raw() for one in secrets if one is not None]
            await actor.leave()
        return found

    async def _run(self, *, restored: bool, until: float) -> None:
        introduced = await self.begin(restored=restored)
        for n, actor in self._actors.items():
            assert actor.host is not None
            self._compare_party(n, actor.host.party)
            self._noted[n] = _Noted(actor.host, self._modulus)
            actor.host.party.engine = self._noted[n]
            await actor.add_peers(introduced)
            assert actor.peers is not None
            transmit = actor.peers.transmit
            actor.host._transmit = partial(self.carry, n, transmit)
            actor.host.take = partial(self._arrived_at, n, actor.host.take)  # type: ignore[method-assign]
            actor.peers.session._deliver = actor.host.take
        self._until = until
        for actor in self._actors.values():
            await actor.go(0)
        loop = asyncio.get_running_loop()
        end = loop.time() + _MOST
        while not await self._poll():
            if self._ended:
                return
            if loop.time() > end:
                raise RunError(f"hosted run: it did not end within {_MOST:g} s")
            await asyncio.sleep(_OFTEN)
        for n, actor in self._actors.items():
            assert actor.host is not None
            for name in ("refused", "clipped", "pretrained"):  # which few runs have
                self._noted[n].record(actor.host.party, name, {"party": n})
            for kind in sorted({spec.kind for spec in self.protocol.messages})[:1]:
                late = Message(SERVER, n, kind, [np.arange(3.0)], 1, 0, 0)
                actor.host._late(late)  # few runs on one machine have a late one
        self._stop()
        await self._poll()
        self._compare_events()

    async def _poll(self) -> bool:
        """Take the actors' reports, as the driver does; returns whether the server is done."""
        done = False
        for n, actor in self._actors.items():
            report = await actor.poll()
            assert report is not None
            if report.status.failed:
                raise _PartyFailedError(f"hosted run: {report.status.failed}")
            self._events[n] += report.events
            self._compare_report(n, report)
            done |= n == SERVER and report.status.done
        return done

    def carry(self, sender: int, transmit: Transmit, receiver: int, data: bytes) -> None:
        """Hold a frame against what the party sent, and transmit it."""
        self.found.frames += 1
        frame = Frame.decode(data)
        key = MessageKey(frame.kind, frame.round, sender, receiver)
        self.carried[key] += 1
        self._sent[sender].append(len(data))
        waiting = self._noted[sender].sent.get((receiver, frame.kind, frame.round), [])
        number = self._numbers[sender, receiver]
        self._numbers[sender, receiver] += 1
        if not waiting:
            self.found.wrong_frames.append(Deviation(key, "its party sent no such message"))
        elif data != self._frame(sender, receiver, number, frame, waiting.pop(0)):
            what = "its frame is not what its party sent, as documented"
            self.found.wrong_frames.append(Deviation(key, what))
        loop = asyncio.get_running_loop()
        if sender == SERVER and frame.round >= self._until and not self._ended:
            self._ended = True
            loop.call_soon(self._stop)  # the server's step is not over
        transmit(receiver, data)

    def _arrived_at(self, n: int, take: Callable[..., None], *given: Any) -> None:
        self._arrived[n] += 1
        take(*given)

    def _stop(self) -> None:
        for actor in self._actors.values():
            assert actor.host is not None
            actor.host.stop()

    def _frame(self, sender: int, receiver: int, number: int, frame: Frame, sent: bytes) -> bytes:
        hosts: list[Any] = [self._actors[n].host for n in (sender, receiver)]
        epoch, to_epoch = (host.links.epoch for host in hosts)
        ends = (sender, receiver, frame.kind, frame.round, epoch, to_epoch)
        return written((_RUN, *ends, number, sent))

    def _compare_party(self, n: int, party: Party) -> None:
        """Hold what a host did to its party against what it may: be its engine, and restore it."""
        allowed = {"engine", *(party.kept if self.life else ())}
        given = sorted(set(vars(party)) - self._made.get(n, frozenset(vars(party))) - allowed)
        if given:
            self.found.wrong_events.append(
                f"{name_of(n)}: its host gave it {', '.join(map(repr, given))} of its own"
            )

    def _compare_report(self, n: int, report: Report) -> None:
        """Hold all that a report says besides events against what was seen of its host."""
        host, noted, status = self._actors[n].host, self._noted[n], report.status
        assert host is not None
        reached = len(host.events) + self._arrived[n]  # besides what it sent to itself
        right = {
            "fields": _types(report) == _REPORT and _types(status) == _STATUS,
            "process": report.process == os.getpid(),
            "messages": report.messages == len(self._sent[n]),
            "bytes": report.bytes == sum(self._sent[n]),
            "round": status.round == host.party.round,
            "wait": status.waits == _waits(host),
            "progress": 0 <= status.progress - reached <= noted.to_itself,
            "rejected": status.rejected == 0,
            "flags": not status.mistake,
        }
        for what in (name for name, held in right.items() if not held):
            self.found.wrong_events.append(
                f"{name_of(n)}, round {host.party.round}: its host reports another {what!r} than "
                "follows from what was seen of it"
            )

    def _compare_events(self) -> None:
        """Each event of a report must be the next that the party told, or name a late message."""
        kinds = {spec.kind for spec in self.protocol.messages}
        for n, reported in self._events.items():
            self.found.events += len(reported)
            told = iter(self._noted[n].told)
            for event in reported:
                types = {name: type(value) for name, value in event.fields.items()}
                if event.name == "late" and types == _LATE and event.fields["kind"] in kinds:
                    continue
                if next(told, None) != (event.name, text_of(event.fields)):
                    self.found.wrong_events.append(
                        f"{name_of(n)}, round {event.round}: its host reports {event.name!r} with "
                        f"other fields ({', '.join(types)}) than the party told, or unasked"
                    )
                    break


def _types(one: Any) -> dict[str, type]:
    return {name: type(value) for name, value in vars(one).items()}


def _waits(host: PartyHost) -> str:
    """The words on what a party waits for, from its wait and by other code than the engine's."""
    wait = host._runner.mailbox.wait
    if wait is None or host._runner.done:
        return ""
    if not wait.kinds:
        return "waits for the clock"
    what = " or ".join(map(repr, wait.kinds))
    if wait.round != ANY_ROUND:
        what += f" of round {wait.round}"
    if wait.count == 0:
        return f"waits for {what}"
    here = {message.sender for message in wait.taken}
    missing = [name_of(n) for n in sorted((wait.senders or frozenset()) - here)]
    told = f"has {len(here)} of {wait.count} {what}"
    return f"{told}; missing: {', '.join(missing)}" if missing else told
