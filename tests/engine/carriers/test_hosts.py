"""Parties of real protocols over a hostile relay: the numbers of the simulation."""

import asyncio

import pytest

from securevfl.engine.carriers.endpoint import Endpoint
from securevfl.engine.carriers.session import Session
from securevfl.engine.conditions import NONE
from securevfl.engine.network import SERVER
from securevfl.engine.realtime.host import PartyHost
from securevfl.engine.security.frames import Links
from securevfl.engine.streams import SecretSeed
from securevfl.runs.assembly import rules_of
from securevfl.runs.threads import one_thread
from securevfl.testing.runs import make, simulate
from tests.engine.carriers.memory import Hostility, MemoryRelay
from tests.engine.carriers.world import credentials_of, drained, identity, manifest_of


class Run:
    """The parties of a protocol, each with a host, links, a session and an endpoint."""

    def __init__(self, made, relay, **options):
        self.made, self.relay, self.options = made, relay, options
        parties = made.parties()
        self.identities = {n: identity() for n in parties}
        self.manifest = manifest_of(self.identities)
        self.hosts, self.ends, self.events = {}, {}, []
        for n, party in parties.items():
            self.add(n, party)

    def add(self, n, party):
        links = Links(self.manifest.session, n, 0, self.identities)
        host = PartyHost(
            party, links, lambda to, frame: self.ends[n].transmit(to, frame), seed=self.made.seed,
            secrets=SecretSeed(self.made.seed), rules=rules_of(self.made),
        )  # fmt: skip
        session = Session(
            n, self.identities, 0, credentials_of(self.identities[n], self.manifest),
            deliver=host.take,
            introduce=lambda peer, epoch: host.add_peers({peer: epoch}), **self.options,
        )  # fmt: skip
        self.hosts[n] = host
        self.ends[n] = Endpoint(session, self.relay.carrier(n), self.record)

    def record(self, name, fields):
        self.events.append(name)

    async def run(self, seconds=60.0):
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        for one in self.ends.values():
            await one.open()
        others = len(self.ends) - 1
        while any(len(one.session.present) < others for one in self.ends.values()):
            await asyncio.sleep(0.005)
            assert loop.time() < end
        for host in self.hosts.values():
            host.start()
        while not self.hosts[SERVER].status.done:
            failed = [host.status.failed for host in self.hosts.values() if host.status.failed]
            assert not failed, failed
            assert loop.time() < end, [host.status.waits for host in self.hosts.values()]
            await asyncio.sleep(0.005)
        assert await drained(self.ends[SERVER], seconds)
        for one in self.ends.values():
            await one.close()

    @property
    def losses(self):
        events = self.hosts[SERVER].events
        return [event.fields["loss"] for event in events if event.name == "round"]


# Without timeouts. In all but FedVS the server waits for every client in each step; of FedVS's
# clients half may be overtaken by the next round, and use its gradient all the same.
@pytest.mark.parametrize(
    ("name", "padded", "options"),
    [
        ("split", False, {}),
        ("cvfl", True, {"mode": "sync"}),
        ("fedvs", False, {"rounds": 6}),
        ("secagg_split", False, {"quorum": 6}),
    ],
)
def test_a_hostile_relay_changes_no_number_and_forges_no_frame(name, padded, options):
    options = {"rounds": 2} | options
    wanted = simulate(name, conditions=NONE, **options)
    relay = MemoryRelay(Hostility.of(0.05), 6)
    with one_thread():
        run = Run(make(name, **options), relay, padded=padded)
        asyncio.run(run.run())
    assert run.losses == wanted.losses
    assert relay.forged > 5
    assert run.events == []
    assert sum(host.status.rejected for host in run.hosts.values()) == 0
    assert sum(end.session.rejected for end in run.ends.values()) > 0
