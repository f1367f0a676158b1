"""The actor of a party on a node of a cluster, and the assignment that it carries out.

An actor makes its party on the node that has the party's data and keys, from the party's own
checkpoint if it was restarted. It runs the party by a `securevfl.engine.realtime.host.PartyHost`,
receives its frames and transmits them. `securevfl.engine.cluster.supervisor` supervises the actors
of a run. Nothing here imports Ray, so an actor can be tried without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any

from securevfl.engine.conditions import NONE, Conditions
from securevfl.engine.message_rules import MessageRules
from securevfl.engine.network import SERVER, Event, name_of
from securevfl.engine.party import Party
from securevfl.engine.party_state import restore
from securevfl.engine.realtime.checkpoint_store import CheckpointStore
from securevfl.engine.realtime.frames import Hello, Links
from securevfl.engine.realtime.host import PartyHost, PartyStatus
from securevfl.engine.security.identity import Identity, Manifest
from securevfl.engine.security.sealing import Sealer
from securevfl.engine.security.used_sessions import use_session
from securevfl.engine.streams import OwnEntropy, Secrets
from securevfl.errors import ConfigurationError, RunError


@dataclass(frozen=True)
class PartyAssignment:
    """The assignment of a run's actors; plain values only, but for `make`.

    Attributes
    ----------
    make : callable
        Makes the party of a number with its own data and its own secrets, on the party's node.
    protocol, run_id : str
        Bound into every sealed message.
    parties : tuple of int
    seed : int
        Seed of the run's public choices.
    conditions : Conditions
        Delays to inject.
    sealed : bool
    folder : str or None
        Where checkpoints lie, on the machine of each party; None for none.
    every : int
        Rounds between checkpoints.
    manifest : Manifest or None
        The signed list of parties. Without one the driver introduces keys, and is trusted with it.
    keys : str or None
        Folder of key files, ``server.key`` and ``party-0.key``, on each party's own machine.
    points : mapping
        Where each party's shares are evaluated, for comparison with the manifest.
    rules : MessageRules or None
        What the protocol declares; None where it declares nothing.
    start : str
        Token of this start of the run; a run without a folder has no other.
    """

    make: Callable[[int, Secrets], Party]
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
    rules: MessageRules | None = None
    start: str = field(default_factory=lambda: token_hex(16))

    def identity(self, index: int) -> Identity | None:
        """A party's long-lived key, read on its node.

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

    def use_session(self, index: int, store: CheckpointStore | None) -> None:
        """Note on a party's node that it uses the manifest's session; refuse one used before.

        Raises
        ------
        ConfigurationError
        """
        assert self.keys is not None
        run = self.start if store is None else store.run_token()
        use_session(Path(self.keys) / f"{_key_name(index)}.sessions", self.run_id, run)

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
        if manifest.protocol != self.protocol or sorted(manifest.entries) != sorted(self.parties):
            raise ConfigurationError(
                f"cluster: the manifest is of {manifest.protocol} with {len(manifest.entries) - 1} "
                f"parties, and this run is of {self.protocol} with {len(self.parties) - 1}"
            )
        for index, entry in manifest.entries.items():
            point = self.points.get(index)
            if entry.point is not None and entry.point != point:
                raise ConfigurationError(
                    f"cluster: {name_of(index)} has the point {entry.point} in the manifest, and "
                    f"{point} in this run"
                )

    def checkpoint_store(self, index: int) -> CheckpointStore | None:
        """The store of a party's own checkpoints; None for none."""
        if self.folder is None:
            return None
        return CheckpointStore(own_folder(self.folder, index), every=self.every)


@dataclass(frozen=True)
class Report:
    """The answer of an actor to a poll: the party's status, and what is new since the last poll."""

    status: PartyStatus
    events: list[Event]
    rounds_over: list[tuple[int, bool, int]]
    messages: int
    bytes: int
    process: int


class PartyActor:
    """The actor of one party. All its methods run on one event loop."""

    def __init__(self, index: int, assignment: PartyAssignment) -> None:
        self.index = index
        self.assignment = assignment
        self.host: PartyHost | None = None
        self.store: CheckpointStore | None = None
        self._actors: dict[int, Any] = {}
        self._reported = self._over = 0

    async def claim(self) -> list[int]:
        """Lock the party's checkpoints for this process; the rounds from which it can go on."""
        store = self._claimed()
        if store is None or store.entropy() is None:  # without it the party would be another one
            return []
        return store.whole()

    def _claimed(self) -> CheckpointStore | None:
        if self.store is None:
            self.store = self.assignment.checkpoint_store(self.index)
            if self.store is not None:
                self.store.claim()
        return self.store

    async def begin(self, epoch: int, *, restored: bool, at: int | None, floor: int) -> Hello:
        """Make the party, from its own checkpoint if asked to; its introduction to the others."""
        _limit_threads()
        assignment = self.assignment
        store, saved = self._claimed(), None
        if restored:
            saved = None if store is None else store.read(at)
            if saved is None:
                of = "" if at is None else f" of round {at}"
                raise RunError(f"{name_of(self.index)} has no checkpoint{of} to come back from")
        secrets = self._secrets(store, restored=restored)
        party = assignment.make(self.index, secrets)
        _limit_threads()  # those of libraries that its data brought
        if saved is not None:
            restore(party, saved)
        if store is not None:
            epoch = max(epoch, store.begin_incarnation())
            store.forget(-1 if saved is None else saved["round"])
        party.epoch = epoch
        if self.index == SERVER:
            party.round = max(party.round, floor)
        sealer = (
            Sealer(assignment.protocol, assignment.run_id, self.index)
            if assignment.sealed
            else None
        )
        identity, verify = assignment.identity(self.index), None
        if assignment.manifest is not None:
            assignment.manifest.check()
            assignment.use_session(self.index, store)
            verify = assignment.manifest.verify
        links = Links(assignment.run_id, self.index, epoch, assignment.parties, sealer, verify)
        self.host = PartyHost(
            party,
            links,
            self._transmit,
            seed=assignment.seed,
            secrets=secrets,
            conditions=assignment.conditions,
            keep=store,
            keep_ahead=None if store is None else store.write_ahead,
            setup_done=saved is not None,
            rules=assignment.rules,
        )
        if identity is None or assignment.manifest is None:
            return links.hello
        return identity.introduce(assignment.manifest.digest, self.index, links.hello)

    def _secrets(self, store: CheckpointStore | None, *, restored: bool) -> OwnEntropy:
        """The party's own secrets: of its run so far where it comes back, else newly drawn.

        A run that begins anew draws anew even where an earlier attempt left entropy behind. With
        the old one its first models would be those of that attempt, and two sums of the same
        models over different clients tell their difference.
        """
        if not restored:
            secrets = OwnEntropy.draw(self.index)
            if store is not None:
                store.new_entropy(secrets.entropy)
            return secrets
        entropy = None if store is None else store.entropy()
        if entropy is None:
            raise RunError(
                f"{name_of(self.index)} has checkpoints, but no whole file entropy.svfl beside "
                "them, from which its secret choices follow. Put the file back, or start another "
                "run"
            )
        return OwnEntropy(self.index, entropy)

    async def connect(self, actors: Mapping[int, Any], hellos: Mapping[int, Hello]) -> None:
        """Learn the actors of the other parties, and their incarnations."""
        self._actors = dict(actors)
        await self.add_peers(hellos)

    async def add_peers(self, hellos: Mapping[int, Hello]) -> None:
        """Learn of new incarnations of other parties."""
        if self.host is not None:
            self.host.add_peers(dict(hellos))

    async def go(self, origin: int) -> None:
        """Start the party; its clock counts from `origin`."""
        assert self.host is not None
        self.host.start(origin)

    async def take(self, data: bytes) -> None:
        """Receive a frame."""
        if self.host is not None:
            self.host.take(data)

    async def poll(self) -> Report | None:
        """The party's report; None if the process was restarted and has no party yet."""
        host = self.host
        if host is None:
            return None
        events, over = host.events[self._reported :], host.rounds_over[self._over :]
        self._reported, self._over = len(host.events), len(host.rounds_over)
        sent = host.transcript
        return Report(host.status, events, over, sent.messages, sent.bytes, os.getpid())

    async def models(self) -> dict[str, Any]:
        """Snapshot of the party as it stands, without what never changes."""
        assert self.host is not None
        saved = self.host.snapshot()
        return saved | {"once": dict.fromkeys(saved["once"])}

    async def ask(self, question: Callable[[Party], Any]) -> Any:
        """Result of a function of the party as it stands."""
        assert self.host is not None
        return question(self.host.party)

    async def transcript(self) -> dict[str, Any]:
        """State of the transcript of this incarnation: the messages that it has sent."""
        assert self.host is not None
        return self.host.transcript.state()

    def _transmit(self, receiver: int, data: bytes) -> None:
        self._actors[receiver].take.remote(data)


def _limit_threads() -> None:
    """Let this process compute on one thread, as `securevfl.runs.threads.one_thread` does.

    Ray could set it by an environment of the party's own, but starts Python twice for that.
    """
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    threadpool_limits(1, user_api="blas")


def own_folder(folder: str, index: int) -> Path:
    """Folder of a party's own files, within a run's folder on its machine."""
    return Path(folder) / "parties" / ("server" if index == SERVER else str(index))


def _key_name(index: int) -> str:
    return "server" if index == SERVER else f"party-{index}"
