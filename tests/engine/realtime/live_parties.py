"""Parties in real time in one process: `PeerLinks` over a carrier that mistreats datagrams."""

import asyncio
import random

from securevfl.engine.network import SERVER
from securevfl.engine.realtime.assignment import PartyAssignment
from securevfl.engine.realtime.host import PartyHost
from securevfl.engine.realtime.peers import PeerLinks
from securevfl.engine.security.frames import Links
from securevfl.engine.streams import SecretSeed


class End:
    """A party's end of a `Carrier`, as `securevfl.engine.carriers.direct` has one."""

    connected, place = True, ("memory", 0)

    def __init__(self, carrier):
        self.carrier, self.take = carrier, None

    async def open(self, take, changed=None):
        self.take = take

    def reach(self, peer, place):
        asyncio.get_running_loop().call_soon(self.reached, peer)

    def send(self, receiver, data):
        self.carrier.transmit(receiver, data)

    async def close(self):
        self.take = None


class Carrier:
    """Carries datagrams; may shuffle them, deliver them twice, and lets others add their own."""

    def __init__(self, parties, *, seed=0, jitter=0.0, twice=0.0, chance=0, **options):
        self.hosts, self.peers, self.ends, self.introduced = {}, {}, {}, {}
        self.options = {"seed": seed, "secrets": SecretSeed(seed), **options}
        self.jitter, self.twice = jitter, twice
        self.chance = random.Random(chance)
        self.parties, self.seed, self.carried = parties, seed, []
        self.run_of_all = PartyAssignment(None, "test", "run", tuple(parties), seed)
        self.dead = set()

    async def add(self, index, party, epoch=0, setup_done=False):
        if index in self.peers:
            await self.peers[index].close()
        party.epoch = epoch
        links = Links("run", index, epoch, list(self.parties))

        def transmit(to, frame):
            self.peers[index].transmit(to, frame)

        host = PartyHost(party, links, transmit, setup_done=setup_done, **self.options)
        self.hosts[index], self.ends[index] = host, End(self)
        self.peers[index] = PeerLinks(host, self.run_of_all, None, self.ends[index])
        self.introduced[index] = await self.peers[index].open()
        self.dead.discard(index)
        return host

    def introduce(self):
        for peers in self.peers.values():
            peers.add(self.introduced)

    def transmit(self, receiver, data):
        self.carried.append((receiver, data))
        for _ in range(2 if self.chance.random() < self.twice else 1):
            late = self.chance.random() * self.jitter
            asyncio.get_running_loop().call_later(late, self.deliver, receiver, data)

    def deliver(self, receiver, data):
        end = self.ends[receiver]
        if receiver not in self.dead and end.take is not None:
            end.take(data)

    async def run(self, until=30.0):
        for index, party in self.parties.items():
            await self.add(index, party)
        self.introduce()
        for host in list(self.hosts.values()):
            host.start()
        try:
            await self.ended(until)
        finally:
            for peers in self.peers.values():
                await peers.close()

    async def ended(self, until=30.0):
        """Wait for the server's end; others have a second to show that they wait for who failed."""
        clock = asyncio.get_running_loop().time
        end, failed = clock() + until, False
        while SERVER in self.dead or not self.hosts[SERVER].status.done:
            if not failed and any(host.status.failed for host in self.hosts.values()):
                end, failed = clock() + 1, True
            assert clock() < end, self.words()
            await asyncio.sleep(0.002)
        failures = [host.status.failed for host in self.hosts.values()]
        assert not any(failures), failures
        await asyncio.sleep(self.jitter)

    def words(self):
        return {index: host.status.waits for index, host in self.hosts.items()}

    def count(self, what):
        """Sum of an attribute of all sessions."""
        return sum(getattr(peers.session, what) for peers in self.peers.values())


def live(made, **options):
    """Run a protocol's parties to the end; the carrier."""
    carrier = Carrier(made.parties(), seed=made.seed, **options)
    asyncio.run(carrier.run())
    return carrier
