"""Sessions of organisations in one process, over a carrier in memory."""

import asyncio

from securevfl.engine.network import SERVER
from securevfl.engine.security.identity import Identity, Manifest, ManifestEntry
from securevfl.engine.streams import Composed, OwnEntropy
from securevfl.runs.organisations.join import Member
from securevfl.runs.organisations.terms import Terms
from securevfl.runs.threads import one_thread
from tests.engine.carriers.memory import MemoryRelay


class Meeting:
    """Parties of a session with their keys and folders below one folder."""

    def __init__(self, folder, protocol, parties, *, data, options, tables=None, hostility=None,
                 **more):  # fmt: skip
        self.folder, self.tables = folder, tables or {}
        self.parties = (SERVER, *range(parties))
        self.relay = MemoryRelay(hostility)
        self.said = {n: [] for n in self.parties}
        self.entropies = {}
        keys = {n: self.key(n) for n in self.parties}
        folder.mkdir(exist_ok=True)
        found = {n: key.exists() and Identity.read(key) for n, key in keys.items()}
        made = {n: found[n] or Identity.create(key) for n, key in keys.items()}
        terms = Terms.make(protocol, parties, options=options, data=data, **more)
        entries = {n: ManifestEntry(identity.public) for n, identity in made.items()}
        self.manifest = Manifest("s", protocol, entries, terms=terms.plain())

    def key(self, n):
        return self.folder / f"{name(n)}.key"

    def member(self, n):
        return Member(
            self.manifest, n, key=self.key(n), folder=self.folder / name(n), data=self.tables.get(n)
        )

    async def take_part(self, n, **options):
        member = self.member(n)
        try:
            return await member.take_part(self.relay.carrier(n), self.said[n].append, **options)
        finally:
            member.folder.store._lock.release()

    def hold(self, **options):
        """Carry the session out; summaries by party."""

        async def all_of_them():
            tasks = [self.take_part(n, **options) for n in self.parties]
            return dict(zip(self.parties, await asyncio.gather(*tasks), strict=True))

        with one_thread(), self.kept_entropies():
            return asyncio.run(all_of_them())

    def kept_entropies(self):
        """Keep each party's entropy of the training, to simulate with it."""
        from unittest import mock

        from securevfl.runs.organisations.folder import OwnFolder

        clear = OwnFolder.clear

        def reading(own):
            n = own.index
            self.entropies[n] = OwnEntropy(n, own.phase_store("training").entropy())
            clear(own)

        return mock.patch.object(OwnFolder, "clear", reading)

    @property
    def secrets(self):
        return Composed(self.entropies)


def name(n):
    return "server" if n == SERVER else f"party-{n}"
