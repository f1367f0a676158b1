"""Endpoints over a carrier in this process: introductions, frames, events, a cut connection."""

import asyncio

from securevfl.engine.carriers.endpoint import Endpoint
from securevfl.engine.carriers.session import Session
from tests.engine.carriers.memory import Hostility, MemoryRelay
from tests.engine.carriers.world import credentials_of, drained, identity, manifest_of


class Parties:
    """Endpoints of some parties over carriers of one kind."""

    def __init__(self, parties, make, **options):
        self.identities = {n: identity() for n in range(-1, parties - 1)}
        self.manifest = manifest_of(self.identities)
        self.make, self.options = make, options
        self.ends, self.got, self.events = {}, {}, {n: [] for n in self.identities}
        for n in self.identities:
            self.got[n] = []
            self.ends[n] = self.endpoint(n)

    def endpoint(self, n):
        made = Session(
            n, self.identities, 0, credentials_of(self.identities[n], self.manifest),
            deliver=lambda frame, sender: self.got[n].append(frame),
            introduce=lambda peer, epoch: None, **self.options,
        )  # fmt: skip
        carrier = self.make(self, n)
        return Endpoint(made, carrier, lambda name, fields: self.events[n].append((name, fields)))

    async def meet(self):
        for end in self.ends.values():
            await end.open()
        others = len(self.ends) - 1
        await self.until(lambda: all(len(e.session.present) == others for e in self.ends.values()))

    async def until(self, done, seconds=30.0):
        end = asyncio.get_running_loop().time() + seconds
        while not done():
            assert asyncio.get_running_loop().time() < end, self.events
            await asyncio.sleep(0.005)

    async def close(self):
        for end in self.ends.values():
            await end.close()

    def names(self, n):
        return [name for name, _ in self.events[n]]


def in_memory(relay):
    return lambda parties, n: relay.carrier(n)


def test_frames_arrive_over_a_hostile_relay_that_is_stopped_and_started():
    relay = MemoryRelay(Hostility.of(0.1), 4)
    sent = [b"%d" % n for n in range(150)]

    async def main():
        parties = Parties(3, in_memory(relay))
        await parties.meet()
        for n, frame in enumerate(sent):
            parties.ends[-1].transmit(0, frame)
            if n in (50, 100):
                relay.stop()
                await asyncio.sleep(0.02)
                relay.start()
        assert await drained(parties.ends[-1], 30.0)
        await parties.close()
        return parties

    parties = asyncio.run(main())
    assert parties.got == {-1: [], 0: sent, 1: []}
    assert parties.names(1) == ["relay lost", "relay back"] * 2


def test_a_peer_that_takes_nothing_is_given_up_by_an_event_and_the_others_go_on():
    async def main():
        parties = Parties(3, in_memory(MemoryRelay()), most_stored=5000)
        await parties.meet()
        await parties.ends[0].close()
        for _ in range(10):
            parties.ends[-1].transmit(0, bytes(1000))
            parties.ends[-1].transmit(1, b"x")
        await parties.until(lambda: len(parties.got[1]) == 10)
        await parties.close()
        return parties

    parties = asyncio.run(main())
    assert parties.names(-1) == ["gave up"]
    fields = dict(parties.events[-1])["gave up"]
    assert fields["peer"] == "party 0"
    assert "party 0 takes no messages" in fields["why"]


def test_a_silent_peer_is_named_and_heard_again():
    async def main():
        parties = Parties(2, in_memory(MemoryRelay()))
        await parties.meet()
        end = parties.ends[-1]
        end.patience = 0.3
        await parties.until(lambda: "silent" in parties.names(-1))
        parties.ends[0].transmit(-1, b"x")
        await parties.until(lambda: "heard" in parties.names(-1))
        await parties.close()
        return parties

    parties = asyncio.run(main())
    assert dict(parties.events[-1])["silent"] == {"peer": "party 0", "seconds": 0.3}
