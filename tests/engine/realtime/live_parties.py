"""Parties in real time in one process: an unreliable carrier between `PartyHost`s."""

import asyncio
import random

from securevfl.engine.network import SERVER
from securevfl.engine.realtime.host import PartyHost
from securevfl.engine.security.frames import Links
from securevfl.engine.security.sealing import Sealer
from securevfl.engine.streams import SecretSeed


class Carrier:
    """Carries frames; may shuffle them, deliver them twice, and lets others add their own."""

    def __init__(self, parties, *, seed=0, sealed=True, jitter=0.0, twice=0.0, chance=0, **options):
        self.hosts = {}
        self.options = {"seed": seed, "secrets": SecretSeed(seed), **options}
        self.sealed, self.jitter, self.twice = sealed, jitter, twice
        self.chance = random.Random(chance)
        self.parties, self.seed, self.carried = parties, seed, []
        self.dead = set()

    def add(self, index, party, epoch=0, setup_done=False):
        sealer = Sealer("test", "run", index) if self.sealed else None
        party.epoch = epoch
        links = Links("run", index, epoch, list(self.parties), sealer)
        host = PartyHost(party, links, self.transmit, setup_done=setup_done, **self.options)
        self.hosts[index] = host
        self.dead.discard(index)
        return host

    def introduce(self):
        hellos = {index: host.links.hello for index, host in self.hosts.items()}
        for host in self.hosts.values():
            host.add_peers(hellos)

    def transmit(self, receiver, data):
        self.carried.append((receiver, data))
        for _ in range(2 if self.chance.random() < self.twice else 1):
            late = self.chance.random() * self.jitter
            asyncio.get_running_loop().call_later(late, self.deliver, receiver, data)

    def deliver(self, receiver, data):
        if receiver not in self.dead:
            self.hosts[receiver].take(data)

    async def run(self, until=30.0):
        for index, party in self.parties.items():
            self.add(index, party)
        self.introduce()
        for host in list(self.hosts.values()):
            host.start()
        await self.ended(until)

    async def ended(self, until=30.0):
        end = asyncio.get_running_loop().time() + until
        while SERVER in self.dead or not self.hosts[SERVER].status.done:
            assert asyncio.get_running_loop().time() < end, self.words()
            await asyncio.sleep(0.002)
        failures = [host.status.failed for host in self.hosts.values()]
        assert not any(failures), failures
        await asyncio.sleep(self.jitter)

    def words(self):
        return {index: host.status.waits for index, host in self.hosts.items()}


def live(made, **options):
    """Run a protocol's parties to the end; the carrier."""
    carrier = Carrier(made.parties(), seed=made.seed, **options)
    asyncio.run(carrier.run())
    return carrier
