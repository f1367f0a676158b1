"""Parties in real time in one process: an unreliable carrier between `LiveHome`s."""

import asyncio
import random

from securevfl.engine.network import SERVER
from securevfl.engine.realtime.frames import Links
from securevfl.engine.realtime.host import LiveHome
from securevfl.engine.security.sealing import Sealer
from securevfl.engine.streams import SecretSeed


class Carrier:
    """Carries frames; may shuffle them, deliver them twice, and lets others add their own."""

    def __init__(self, parties, *, seed=0, sealed=True, jitter=0.0, twice=0.0, chance=0, **options):
        self.homes = {}
        self.options = {"seed": seed, "secrets": SecretSeed(seed), **options}
        self.sealed, self.jitter, self.twice = sealed, jitter, twice
        self.chance = random.Random(chance)
        self.parties, self.seed, self.carried = parties, seed, []
        self.dead = set()

    def seat(self, index, party, epoch=0, settled=False):
        sealer = Sealer("test", "run", index) if self.sealed else None
        party.epoch = epoch
        links = Links("run", index, epoch, list(self.parties), sealer)
        home = LiveHome(party, links, self.post, settled=settled, **self.options)
        self.homes[index] = home
        self.dead.discard(index)
        return home

    def introduce(self):
        hellos = {index: home.links.hello for index, home in self.homes.items()}
        for home in self.homes.values():
            home.meet(hellos)

    def post(self, receiver, data):
        self.carried.append((receiver, data))
        for _ in range(2 if self.chance.random() < self.twice else 1):
            late = self.chance.random() * self.jitter
            asyncio.get_running_loop().call_later(late, self.deliver, receiver, data)

    def deliver(self, receiver, data):
        if receiver not in self.dead:
            self.homes[receiver].take(data)

    async def run(self, until=30.0):
        for index, party in self.parties.items():
            self.seat(index, party)
        self.introduce()
        for home in list(self.homes.values()):
            home.start()
        await self.ended(until)

    async def ended(self, until=30.0):
        end = asyncio.get_running_loop().time() + until
        while SERVER in self.dead or not self.homes[SERVER].standing.done:
            assert asyncio.get_running_loop().time() < end, self.words()
            await asyncio.sleep(0.002)
        failures = [home.standing.failed for home in self.homes.values()]
        assert not any(failures), failures
        await asyncio.sleep(self.jitter)

    def words(self):
        return {index: home.standing.waits for index, home in self.homes.items()}


def live(made, **options):
    """Run a protocol's parties to the end; the carrier."""
    carrier = Carrier(made.parties(), seed=made.seed, **options)
    asyncio.run(carrier.run())
    return carrier
