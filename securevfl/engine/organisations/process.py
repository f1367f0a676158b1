"""Process of one party: finds the others by beacons, and runs the phases of a session.

There is no driver: all parties follow one rule, based on all beacons. An era is the list of all
parties' incarnation numbers (starts of their processes), and a phase runs in one era. When a
process restarts, its number changes, so the era ends: all parties stop, report the rounds of their
complete checkpoints, and continue from the newest common one as new incarnations with new keys. If
the protocol tolerates an absent client, the others continue, and the client returns alone.

A phase ends for all together: a party leaves it when all have reported their end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from securevfl.engine import wire
from securevfl.engine.carriers.base import Carrier
from securevfl.engine.carriers.endpoint import Endpoint
from securevfl.engine.carriers.handshake import Credentials
from securevfl.engine.carriers.session import Session
from securevfl.engine.network import SERVER, name_of
from securevfl.engine.organisations.beacon import Beacon
from securevfl.engine.organisations.channels import Channels
from securevfl.engine.organisations.manifests import TRIES, ManifestSource
from securevfl.engine.organisations.phase import Phase
from securevfl.engine.organisations.roster import Roster, server_runs
from securevfl.engine.realtime.assignment import begin_incarnation
from securevfl.engine.realtime.host import PartyHost
from securevfl.engine.security.identity import Identity, Manifest
from securevfl.errors import ConfigurationError, RunError, SealError, WireError

_TICK = 0.05  # seconds at most between two looks at the state of things
_OFTEN, _SELDOM = 0.25, 2.0  # seconds between beacons, before and while a phase runs
_MOMENT = 1.0  # seconds that it waits for parties before it says so
_LINGER = 5.0  # seconds at most that a process stays at the end, so that all others hear of it
_FAILING = 1.0  # seconds in which a party tells of its error
_AFTER_SERVER = 2.0  # seconds in which a client must end after the server has, if it tolerates


class OthersFailedError(RunError):
    """Another party of a session ended with an error, so this one cannot continue."""


class Process:
    """One party's process in a session.

    Parameters
    ----------
    index, identity, carrier : int, Identity, Carrier
        The party, its long-term key, and its connection.
    manifest : Manifest
        Manifest; `gather` completes missing signatures.
    life : int
        Number of this incarnation (start of the process), higher than all earlier ones.
    renew : callable
        Function that returns an incarnation number above its argument, and stores it. Called if
        the others know a later incarnation of this party than `life`, as after an old copy of its
        folder was restored.
    used : callable
        Records that the session is used; called before the party sends any signature for it.
    record : callable
        Called with the name of an event of the process, and its fields: "relay lost" and "relay
        back" (`why`), "silent" (`peer`, `seconds`), "heard" (`peer`), "gave up" (`peer`, `why`),
        "era" (`phase`, `from_round`, `life`).
    say : callable
        Called with sentences for the user, such as the parties that it waits for.
    patience : float
        Seconds without a beacon of a party after which it is named.
    padded : bool
        Whether datagrams are padded to powers of two; equal for all parties of a session.
    """

    def __init__(
        self,
        index: int,
        manifest: Manifest,
        identity: Identity,
        carrier: Carrier,
        *,
        life: int,
        renew: Callable[[int], int],
        used: Callable[[], None],
        record: Callable[[str, dict[str, object]], None],
        say: Callable[[str], None],
        patience: float = 15.0,
        padded: bool = False,
    ) -> None:
        self.index = index
        self.manifest = manifest.signed(index, identity)
        self.roster = Roster(sorted(manifest.entries), index, life)
        self.patience = patience
        self._padded = padded
        self._identity = identity
        self._renew = renew
        self._used = used
        self._record = record
        self._say = say
        self._channels = Channels(carrier, self._relay)
        self._beacons = self._channels.channel("beacons")
        self._awake = asyncio.Event()
        self._count = 0
        self._told: tuple[object, ...] = ()
        self._told_at = -_SELDOM
        self._silent: set[int] = set()
        self._lives: tuple[int, ...] = ()  # of which the user has heard
        self._gave_up: dict[str, str] = {}
        self._waited: tuple[int, ...] = ()
        self._waited_told: tuple[int, ...] = ()
        self._waited_since = 0.0
        self._failed = False
        self._number = 0
        self._phase: Phase | None = None
        self._host: PartyHost | None = None
        self._endpoint: Endpoint | None = None
        self._session: Session | None = None
        self._era: tuple[int, ...] = ()
        self._rounds: tuple[int, ...] = ()
        self._origin: tuple[int, ...] = ()
        self._begun = self._result = self._back = False
        self._known = False  # whether others have heard of the present life
        self._from: int | None = None  # the round of the checkpoint that the host began from
        self._server_done_at: float | None = None

    # -- the session ---------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, and record that the session is used: signed messages leave from here on.

        CarrierError if no relay admits the party; the session is then not used. ConfigurationError
        if the session was used in another run meanwhile.
        """
        await self._channels.open()
        try:
            self._used()
        except ConfigurationError:
            await self.close()
            raise
        await self._beacons.open(self._take)
        if self.index == SERVER:
            await ManifestSource(self._channels, self.manifest).open()

    async def gather(self, left: Callable[[], float]) -> Manifest:
        """The manifest signed by all; waits until every party has signed.

        RunError at the deadline; it names the missing parties.

        Parameters
        ----------
        left : callable
            Function that returns the seconds until the deadline.
        """
        while self.manifest.unsigned:
            missing = self.manifest.unsigned
            self._wait_for(missing)
            if left() <= 0:
                raise RunError(
                    f"session {self.manifest.session!r}: the deadline has passed, and "
                    f"{', '.join(map(name_of, missing))} did not come. Agree on another deadline: "
                    "write another manifest"
                )
            self._tell()
            await self._pause()
        return self.manifest

    async def carry_out(self, phase: Phase) -> None:
        """Run a phase to its end; then its result is on disk.

        DataError if this party's table cannot be used. RunError if the code of any party raised an
        error.
        """
        self._number, self._phase = phase.number, phase
        self._result, self._back = phase.finished(), False
        self._server_done_at = None
        self._rounds, self._origin = phase.rounds(), phase.store.origin()
        try:
            while not self._over(phase):
                await self._step(phase)
                await self._pause()
        finally:
            await self._stop()
            self._phase = None

    async def leave(self, ended: int | None) -> None:
        """Report this party's end to the others for a while, then disconnect.

        Parameters
        ----------
        ended : int or None
            Number of phases if all are over; None after an error of this party's code.
        """
        self._failed = ended is None
        self._number = self._number if ended is None else ended
        loop = asyncio.get_running_loop()
        end = loop.time() + (_LINGER if ended is not None else _FAILING)
        while loop.time() < end:
            self._tell()
            beacons = self.roster.newest.values()
            if len(beacons) == len(self.roster.peers) and all(b.phase == ended for b in beacons):
                break
            await self._pause()
        self._told_at = -_SELDOM
        self._tell()
        await self.close()

    async def close(self) -> None:
        """Disconnect at once; the others wait for this party to return."""
        await asyncio.sleep(_TICK)  # what was said leaves
        await self._channels.close()

    # -- one phase -----------------------------------------------------------------------------

    async def _step(self, phase: Phase) -> None:
        """Examine the received beacons and act on them."""
        known = self.roster.known_life()
        if known > self.roster.life:
            self._refuse_another()
            await self._catch_up(phase)
        self._known = self._known or known == self.roster.life
        failed = self.roster.failed()
        if failed:
            raise OthersFailedError(
                f"session {self.manifest.session!r}: {', '.join(map(name_of, failed))} ended with "
                "an error, which stands in its own log. When its cause is mended, all join again"
            )
        self._check_links(phase)
        if self._host is not None and self._must_go_back(phase):
            await self._stop()
            self._back, self._rounds = self._result, phase.rounds()
            self._origin = phase.store.origin()
        if self._host is None and self._result and not self._back:
            self._back = self._is_asked_back(phase)
        if self._host is None and (self._back or not self._result):
            if phase.tolerant and self.roster.passed(phase.number):
                self._settle(phase)
            else:
                await self._try_begin(phase)
        if self._host is not None:
            self._look_at(phase, self._host)
        self._tell()
        self._name_silent()
        self._name_restarted()

    def _refuse_another(self) -> None:
        """Raise RunError if a second process runs as this party, from a copy of its folder.

        The others knew this incarnation and then heard of a later one. Incarnations of one folder
        never run at the same time.
        """
        if self._known:
            raise RunError(
                f"session {self.manifest.session!r}: another process takes part as "
                f"{name_of(self.index)}, with a copy of its key and folder. It began later, and "
                "the session goes on with it; this one has ended. Keep one of the two folders"
            )

    async def _catch_up(self, phase: Phase) -> None:
        """Take an incarnation number above all that the others know of this party."""
        await self._stop()
        self.roster.life = self._renew(self.roster.known_life())
        self._rounds, self._origin = phase.rounds(), phase.store.origin()
        self._say(
            "the others have heard of later processes of this party than its folder knows: it was "
            "put back from an old copy. All go on from the newest round that is common, if any is"
        )

    def _check_links(self, phase: Phase) -> None:
        """Raise OthersFailedError if a link was given up, unless the protocol tolerates it."""
        cut_off = self.index != SERVER and name_of(SERVER) in self._gave_up
        if not self._gave_up or (phase.tolerant and not cut_off):
            return
        peer, why = next(iter(self._gave_up.items()))
        raise OthersFailedError(
            f"session {self.manifest.session!r}: the link to {peer} was given up: {why}. Give the "
            "same command again: the session goes on from the newest common round"
        )

    def _must_go_back(self, phase: Phase) -> bool:
        """Whether the running host's era is over, so that it must restart."""
        lives = self.roster.lives
        if lives == self._era or (self._result and not self.roster.undone(phase.number)):
            return False
        if not phase.tolerant or self.roster.of(lives, SERVER) != self.roster.of(self._era, SERVER):
            return True
        if self.index == SERVER:
            return not self._begun
        server = self.roster.newest[SERVER]
        return not server.begun and server.era != self._era

    def _is_asked_back(self, phase: Phase) -> bool:
        """Whether a party that has not ended wants to restart with all present incarnations."""
        lives = self.roster.lives
        return any(
            beacon.phase == phase.number and not beacon.done and beacon.era == lives
            for beacon in self.roster.newest.values()
        )

    async def _try_begin(self, phase: Phase) -> None:
        """Create the party's next incarnation once all others are ready for it.

        A client of a tolerant protocol returns alone if the server runs.
        """
        self._wait_for(self.roster.absent(phase.number))
        alone = phase.tolerant and self._rounds and self.index != SERVER
        if alone and server_runs(self.roster, phase.number, self._origin):
            await self._begin(phase, self.roster.newest[SERVER].era, max(self._rounds))
            return
        self._era = self.roster.lives
        if -1 in self._era or not self.roster.agreed(phase.number, self._era):
            return
        await self._begin(phase, self._era, self.roster.common_round(self._rounds, self._origin))

    def _settle(self, phase: Phase) -> None:
        """Use the newest checkpoint as result (others ended without it); RunError without one."""
        if not self._rounds:
            raise RunError(
                f"session {self.manifest.session!r}: the others have ended the phase "
                f"{phase.name!r}, and this party has no checkpoint of it. Put its folder back"
            )
        host = self._incarnation(phase, max(self._rounds))
        phase.finish(host)
        self._result, self._back = True, False

    def _incarnation(self, phase: Phase, at: int | None) -> PartyHost:
        """New incarnation in a phase from the checkpoint of round `at`, or the beginning (None)."""
        phase.go_back(at)
        host = begin_incarnation(
            phase.assignment,
            self.index,
            phase.store,
            self._transmit,
            identity=self._identity,
            epoch=self.roster.life,  # an old folder would count from an old number
            restored=at is not None,
            at=at,
            floor=0,
            used=phase.used,
            observe=phase.observe,
        )
        if at is None:  # after the rounds of the last beginning are gone
            phase.store.begin_anew(self._era)
            self._origin = self._era
        return host

    async def _begin(self, phase: Phase, era: tuple[int, ...], at: int | None) -> None:
        """Create and connect a new incarnation from the checkpoint of a round."""
        self._era, self._result, self._back = era, False, False
        self._tell()  # making the party may take long: others must know that it does
        host = self._incarnation(phase, at)
        self._from = at
        self._host = host
        await self._connect(phase, host)
        told = {"phase": phase.name, "from_round": at or 0, "life": self.roster.life}
        self._record("era", told)

    async def _connect(self, phase: Phase, host: PartyHost) -> None:
        """Open the channel of an incarnation, with new links."""
        key = self.roster.of(self._era, SERVER) if phase.tolerant else self._era
        # Who has another view of the lives of all agrees on no keys.
        context = wire.encode((self.manifest.digest, phase.number, key))
        self._session = Session(
            self.index,
            self.roster.peers,
            host.links.epoch,
            Credentials(context, self._identity.sign, self.manifest.has_signed),
            deliver=host.take,
            introduce=lambda peer, epoch: host.add_peers({peer: epoch}),
            padded=self._padded,
        )
        channel = self._channels.channel(f"{phase.number} {key}")
        self._endpoint = Endpoint(self._session, channel, self._of_endpoint, patience=self.patience)
        await self._endpoint.open()

    def _look_at(self, phase: Phase, host: PartyHost) -> None:
        """Start the party once all others are connected; raise its error, or store its result."""
        assert self._session is not None
        if not self._begun:
            missing = sorted(set(self.roster.peers) - self._session.present)
            self._wait_for(missing)
            if not missing:
                self._begun = True
                since = "" if self._from is None else f", from round {self._from} on"
                self._say(f"{phase.doing}{since}")
                host.start(phase.passed())
            return
        phase.advance(host)
        if host.status.failed:
            raise host.status.error("session")
        if phase.tolerant and self._is_left(phase) and not host.status.done:
            host.stop()
        if host.status.done and not self._result:
            phase.finish(host)
            self._result = True

    def _is_left(self, phase: Phase) -> bool:
        """Whether the server ended some time ago and so will send this client nothing more."""
        server = self.roster.newest.get(SERVER)
        if (
            self.index == SERVER
            or server is None
            or not (server.done or server.phase > phase.number)
        ):
            self._server_done_at = None
            return False
        now = asyncio.get_running_loop().time()
        self._server_done_at = self._server_done_at or now
        return now - self._server_done_at > _AFTER_SERVER

    def _over(self, phase: Phase) -> bool:
        """Whether all parties, but for silent clients of a tolerant protocol, ended this phase.

        RunError if the others are in a later phase and this party cannot have a result.
        """
        if self.roster.passed(phase.number):
            if self._result or phase.finished():
                return True
            if not phase.tolerant:
                raise RunError(
                    f"session {self.manifest.session!r}: the others have ended the phase "
                    f"{phase.name!r}, and this folder has no result of it. Put it back"
                )
        undone = self.roster.undone(phase.number)
        if not self._result or self._back:
            return False
        if phase.tolerant and SERVER not in undone:
            now = asyncio.get_running_loop().time()
            undone = sorted(set(undone) - set(self.roster.silent(now, self.patience)))
        stale = [] if self._host is None else self._of_other_eras(phase)
        return not undone and not stale

    def _of_other_eras(self, phase: Phase) -> list[int]:
        """Parties that ended this phase in another era, from which they may have gone back."""
        if phase.tolerant or self.roster.lives != self._era:
            return []
        return [
            n
            for n, beacon in self.roster.newest.items()
            if beacon.phase == phase.number and beacon.era != self._era
        ]

    async def _stop(self) -> None:
        """Stop the running incarnation."""
        if self._endpoint is not None:
            await self._endpoint.close()
        if self._host is not None:
            self._host.stop()
        self._host = self._endpoint = self._session = None
        self._begun = False

    # -- what is told and heard ----------------------------------------------------------------

    def _beacon(self) -> Beacon:
        nothing = (-1,) * len(self.roster.parties)
        running = self._host is not None
        waits = self._phase is not None and (self._back or not self._result)
        era = self._era if running or waits else nothing
        done = self._result and not self._back
        return Beacon(
            sender=self.index,
            life=self.roster.life,
            number=self._count,
            phase=self._number,
            era=era or nothing,
            rounds=self._rounds,
            origin=self._origin,
            begun=self._begun,
            done=done and self._phase is not None,
            failed=self._failed,
            consent=self.manifest.signatures[self.index],
        )

    def _tell(self) -> None:
        """Send a beacon to all others after a change, or if the last one is old."""
        now = asyncio.get_running_loop().time()
        beacon = self._beacon()
        state = beacon._replace(number=0)
        every = _SELDOM if self._begun and not self._result else _OFTEN
        if state == self._told and now - self._told_at < every:
            return
        self._count, self._told, self._told_at = self._count + 1, state, now
        data = beacon._replace(number=self._count).encode(self.manifest.digest, self._identity)
        if self._beacons.connected:
            for peer in self.roster.peers:
                self._beacons.send(peer, data)

    def _take(self, data: bytes) -> None:
        """Receive a beacon; ignore invalid data."""
        try:
            beacon = Beacon.decode(data, self.manifest)
        except (WireError, SealError):
            return
        if not self.roster.hear(beacon, asyncio.get_running_loop().time()):
            return
        held = self.manifest.signatures.get(beacon.sender)
        # A wrong signature, which the file came with, is replaced; equal ones need no check.
        if held != beacon.consent and beacon.sender in self.manifest.unsigned:
            self.manifest = self.manifest.with_signature(beacon.sender, beacon.consent)
        self._awake.set()

    async def _pause(self) -> None:
        """Wait for the next beacon, or a moment."""
        self._awake.clear()
        timer = asyncio.get_running_loop().call_later(_TICK, self._awake.set)
        try:
            await self._awake.wait()
        finally:
            timer.cancel()

    def _transmit(self, receiver: int, data: bytes) -> None:
        if self._endpoint is not None:
            self._endpoint.transmit(receiver, data)

    def _of_endpoint(self, event: str, fields: dict[str, object]) -> None:
        """Record an endpoint's event "gave up"; this process records the others itself."""
        if event == "gave up":
            self._record(event, fields)
            self._gave_up.setdefault(str(fields["peer"]), str(fields["why"]))

    def _relay(self, connected: bool, why: str) -> None:
        self._record("relay back" if connected else "relay lost", {"why": why})
        self._say(f"{'connected' if connected else TRIES}: {why}")

    def _wait_for(self, parties: list[int] | tuple[int, ...]) -> None:
        """Report, after a moment, the parties that this party waits for."""
        now = asyncio.get_running_loop().time()
        if tuple(parties) != self._waited:
            self._waited, self._waited_since = tuple(parties), now
        if self._waited == self._waited_told or (parties and now - self._waited_since < _MOMENT):
            return
        if parties:
            self._say(f"waits for {', '.join(map(name_of, parties))}")
        elif self._waited_told:
            self._say("all parties are here")
        self._waited_told = self._waited

    def _name_restarted(self) -> None:
        """Tell the user which parties' processes restarted since the last call."""
        before, self._lives = self._lives, self.roster.lives
        for n, old, new in zip(self.roster.parties, before, self._lives, strict=False):
            if n != self.index and -1 < old < new:
                self._say(f"{name_of(n)} was started again")

    def _name_silent(self) -> None:
        """Record, and tell the user, the parties not heard for `patience` s or heard again."""
        silent = set(self.roster.silent(asyncio.get_running_loop().time(), self.patience))
        for n in sorted(silent - self._silent):
            self._record("silent", {"peer": name_of(n), "seconds": self.patience})
            self._say(f"{name_of(n)} was not heard for {self.patience:g} s; it may be computing")
        for n in sorted(self._silent - silent):
            self._record("heard", {"peer": name_of(n)})
            self._say(f"{name_of(n)} is heard again")
        self._silent = silent
