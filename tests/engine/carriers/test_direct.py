"""TCP between parties: frames come whole, strangers are bounded, lost connections come back."""

import asyncio
import contextlib

import pytest

from securevfl.engine.carriers import direct
from securevfl.engine.carriers.base import LARGEST_FRAME
from securevfl.engine.carriers.direct import DirectCarrier
from securevfl.engine.realtime.assignment import PartyAssignment
from securevfl.engine.realtime.peers import Introduction, PeerLinks
from securevfl.engine.security.frames import Links
from securevfl.engine.security.identity import Identity, Manifest, ManifestEntry

PARTIES = (-1, 0)


class Host:
    """What `PeerLinks` needs of a `PartyHost`."""

    party = None

    def __init__(self, index, epoch=0):
        self.links = Links("run", index, epoch, PARTIES)
        self.got, self.rejected = [], []

    def add_peers(self, epochs):
        self.links.add_peers(epochs)

    def take(self, frame, sender=None):
        self.got.append(frame)

    def reject(self, why):
        self.rejected.append(str(why))


async def opened(index, epoch=0, **given):
    """A host, its links, and how it is introduced."""
    host = Host(index, epoch)
    identity = given.pop("identity", None)
    job = PartyAssignment(None, "p", "run", PARTIES, 0, start="start", **given)
    peers = PeerLinks(host, job, identity, DirectCarrier("127.0.0.1"))
    return host, peers, await peers.open()


@contextlib.asynccontextmanager
async def two(**given):
    """Two parties that know each other: hosts, and links."""
    made = {n: await opened(n, **given) for n in PARTIES}
    for _, peers, _ in made.values():
        peers.add({n: one[2] for n, one in made.items()})
    try:
        yield [made[n][0] for n in PARTIES], [made[n][1] for n in PARTIES]
    finally:
        for _, peers, _ in made.values():
            await peers.close()


async def until(condition, seconds=20.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


def test_frames_of_all_sizes_come_once_and_in_order():
    async def scenario():
        async with two() as (hosts, peers):
            sent = [bytes([n]) * size for n, size in enumerate((1, 100, 2**20 + 5, 0, 3 * 2**20))]
            for frame in sent:  # before the parties have met: they are stored
                peers[0].transmit(0, frame)
                peers[1].transmit(-1, frame[::-1])
            await until(lambda: all(len(host.got) == len(sent) for host in hosts))
            assert hosts[1].got == sent
            assert [frame[::-1] for frame in hosts[0].got] == sent
            assert [host.rejected for host in hosts] == [[], []]

    asyncio.run(scenario())


def test_what_was_under_way_comes_after_a_connection_was_lost():
    async def scenario():
        async with two() as (hosts, peers):
            for number in range(60):
                peers[0].transmit(0, b"%d" % number)
                if number % 20 == 10:
                    await until(lambda: peers[0]._carrier._outward)
                    peers[0]._carrier._outward[0].abort()
                await asyncio.sleep(0)
            await until(lambda: len(hosts[1].got) == 60)
            assert hosts[1].got == [b"%d" % number for number in range(60)]

    asyncio.run(scenario())


def test_a_new_incarnation_elsewhere_shakes_hands_anew_and_gets_what_is_sent_to_it():
    async def scenario():
        async with two() as (hosts, peers):
            peers[0].transmit(0, b"early")
            await until(lambda: hosts[1].got)
            await peers[1].close()
            peers[0].transmit(0, b"to nobody")
            host, again, introduced = await opened(0, epoch=1)
            peers[0].add({0: introduced})
            peers[0].transmit(0, b"to the new one")
            mine = Introduction(0, peers[0]._identity.public, *peers[0]._carrier.place)
            again.add({-1: mine})
            await until(lambda: host.got)
            assert host.got == [b"to the new one"]
            peers[0].add({0: introduced._replace(epoch=0, public=bytes(32), port=1)})
            again.transmit(-1, b"answer")  # an older introduction changes nothing
            await until(lambda: hosts[0].got)
            await again.close()

    asyncio.run(scenario())


def test_who_has_another_key_than_was_told_is_not_heard():
    async def scenario():
        async with two() as (hosts, peers):
            await until(lambda: all(one.session.present for one in peers))
            host, thief, introduced = await opened(0, epoch=1)
            wrong = introduced._replace(public=Identity.temporary().public)
            peers[0].add({0: wrong})
            thief.add({-1: Introduction(0, peers[0]._identity.public, *peers[0]._carrier.place)})
            thief.transmit(-1, b"I am party 0")
            peers[0].transmit(0, b"for party 0 alone")
            await until(lambda: hosts[0].rejected)
            await asyncio.sleep(0.05)
            assert "an offer of party 0 is not signed by it" in hosts[0].rejected[0]
            assert hosts[0].got == host.got == []
            assert not peers[0].session.present
            await thief.close()

    asyncio.run(scenario())


def test_with_a_manifest_its_keys_count_and_not_those_that_a_driver_tells():
    own = {n: Identity.temporary() for n in PARTIES}
    manifest = Manifest("run", "p", {n: ManifestEntry(one.public) for n, one in own.items()})
    for n, one in own.items():
        manifest = manifest.signed(n, one)

    async def scenario():
        server, at_server, known = await opened(-1, manifest=manifest, identity=own[-1])
        _, thief, told = await opened(0, manifest=manifest, identity=Identity.temporary())
        at_server.add({0: told})
        thief.add({-1: known})
        await until(lambda: server.rejected)
        assert not at_server.session.present
        host, honest, told = await opened(0, epoch=1, manifest=manifest, identity=own[0])
        at_server.add({0: told._replace(public=bytes(32))})
        honest.add({-1: known._replace(public=bytes(32))})
        at_server.transmit(0, b"frame")
        await until(lambda: host.got == [b"frame"])
        for one in (at_server, thief, honest):
            await one.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "said", [(LARGEST_FRAME + 1).to_bytes(4, "little"), bytes(4), b"GET / HTTP/1.1\r\n\r\n"]
)
def test_a_stranger_that_announces_no_datagram_is_cut_off(said):
    async def scenario():
        host, peers, introduced = await opened(0)
        reader, writer = await asyncio.open_connection(introduced.host, introduced.port)
        writer.write(said)
        assert await reader.read() == b""
        writer.close()
        assert not peers._carrier._inward
        assert host.got == []
        await peers.close()

    asyncio.run(scenario())


def test_strangers_are_bounded_in_bytes_and_number(monkeypatch):
    monkeypatch.setattr(direct, "_STRANGERS", 3)
    monkeypatch.setattr(direct, "_STRANGERS_BYTES", 5000)

    async def scenario():
        host, peers, introduced = await opened(0)
        place = introduced.host, introduced.port
        reader, writer = await asyncio.open_connection(*place)
        writer.write(((1000).to_bytes(4, "little") + bytes(1000)) * 6)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        assert 1 <= len(host.rejected) <= 6
        many = [await asyncio.open_connection(*place) for _ in range(8)]
        for reader, _ in many[:5]:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        assert len(peers._carrier._inward) == 3
        for _, writer in many:
            writer.close()
        await peers.close()

    asyncio.run(scenario())


def test_strangers_do_not_keep_parties_apart(monkeypatch):
    monkeypatch.setattr(direct, "_STRANGERS", 2)

    async def scenario():
        async with two() as (hosts, peers):
            place = peers[1]._carrier.place
            await until(lambda: all(one.session.present for one in peers))
            many = [await asyncio.open_connection(*place) for _ in range(9)]
            peers[0].transmit(0, b"frame")
            await until(lambda: hosts[1].got == [b"frame"])
            for _, writer in many:
                writer.close()

    asyncio.run(scenario())
