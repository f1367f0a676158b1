"""Seats of parties on a cluster: what each has to know, and the actor that lives there.

A seat makes its party where the party's data and keys are, from its own checkpoint where it comes
back, runs it by `securevfl.engine.realtime.host`, and takes and posts frames.
`securevfl.engine.cluster.supervisor` supervises the seats of a run; nothing here imports Ray, so
that a seat can be tried without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from securevfl.engine.conditions import NONE, Conditions
from securevfl.engine.message_rules import MessageRules
from securevfl.engine.network import SERVER, Event, name_of
from securevfl.engine.party import Party
from securevfl.engine.party_state import restore
from securevfl.engine.realtime.checkpoint_store import Keeper
from securevfl.engine.realtime.frames import Hello, Links
from securevfl.engine.realtime.host import LiveHome, Standing
from securevfl.engine.security.identity import Identity, Manifest
from securevfl.engine.security.sealing import Sealer
from securevfl.engine.streams import OwnEntropy, Secrets
from securevfl.errors import ConfigurationError, RunError


@dataclass(frozen=True)
class Job:
    """What a seat has to know; plain values only, but for `make`.

    Attributes
    ----------
    make : callable
        Party of a number, newly made, with its own data, by its own secrets. It is called where
        the party lives.
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
        Who takes part; without one, keys are introduced by the driver, who is then trusted.
    keys : str or None
        Folder of key files, ``server.key`` and ``party-0.key``, on each party's own machine.
    points : mapping
        Where each party's shares are evaluated, for comparison with the manifest.
    rules : MessageRules or None
        What the protocol declares; None where it declares nothing.
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


class SeatActor:
    """One party's actor. All its methods run on one event loop."""

    def __init__(self, index: int, job: Job) -> None:
        self.index = index
        self.job = job
        self.home: LiveHome | None = None
        self.keeper: Keeper | None = None
        self._seats: dict[int, Any] = {}
        self._told = self._over = 0

    async def claim(self) -> list[int]:
        """Make the party's checkpoints this process's own; the rounds that can be gone back to."""
        keeper = self._claimed()
        if keeper is None or keeper.entropy() is None:  # without it the party would be another one
            return []
        return keeper.whole()

    def _claimed(self) -> Keeper | None:
        if self.keeper is None:
            self.keeper = self.job.keeper(self.index)
            if self.keeper is not None:
                self.keeper.claim()
        return self.keeper

    async def begin(self, epoch: int, *, restored: bool, at: int | None, floor: int) -> Hello:
        """Make the party, from its own checkpoint where asked to; what the others need to know."""
        import torch

        torch.set_num_threads(1)
        job = self.job
        keeper, saved = self._claimed(), None
        if restored:
            saved = None if keeper is None else keeper.read(at)
            if saved is None:
                of = "" if at is None else f" of round {at}"
                raise RunError(f"{name_of(self.index)} has no checkpoint{of} to come back from")
        secrets = self._secrets(keeper, restored=restored)
        party = job.make(self.index, secrets)
        if saved is not None:
            restore(party, saved)
        if keeper is not None:
            epoch = max(epoch, keeper.begin_life())
            keeper.forget(-1 if saved is None else saved["round"])
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
            secrets=secrets,
            conditions=job.conditions,
            keep=keeper,
            settled=saved is not None,
            rules=job.rules,
        )
        if identity is None or job.manifest is None:
            return links.hello
        return identity.introduce(job.manifest.digest, self.index, links.hello)

    def _secrets(self, keeper: Keeper | None, *, restored: bool) -> OwnEntropy:
        """The party's own secrets: of its run so far where it comes back, else newly drawn.

        A run that begins anew draws anew even where an earlier attempt left entropy behind. With
        the old one its first models would be those of that attempt, and two sums of the same
        models over different clients tell their difference.
        """
        if not restored:
            secrets = OwnEntropy.draw(self.index)
            if keeper is not None:
                keeper.new_entropy(secrets.entropy)
            return secrets
        entropy = None if keeper is None else keeper.entropy()
        if entropy is None:
            raise RunError(
                f"{name_of(self.index)} has checkpoints, but no whole file entropy.svfl beside "
                "them, from which its secret choices follow. Put the file back, or start another "
                "run"
            )
        return OwnEntropy(self.index, entropy)

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


def own_folder(folder: str, index: int) -> Path:
    """Where a party keeps what is its own, in a run's folder on its machine."""
    return Path(folder) / "parties" / ("server" if index == SERVER else str(index))


def _key_name(index: int) -> str:
    return "server" if index == SERVER else f"party-{index}"
