"""The carrier over a real relay, and over ones that are not what they should be."""

import asyncio
import base64
import os
import shutil
import signal
import socket
import subprocess
import time

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from securevfl.engine.carriers.base import LARGEST_FRAME
from securevfl.engine.carriers.nats import NatsCarrier, RelayAddress, _length, subject, user_key
from securevfl.errors import CarrierError, ConfigurationError
from securevfl.runs.organisations.relay import find_server, init
from tests.engine.carriers.test_endpoint import Parties
from tests.engine.carriers.world import drained, identity, manifest_of


def have_server():
    try:
        find_server()
    except ConfigurationError:
        return False
    return True


real = pytest.mark.skipif(not have_server(), reason="nats-server is not installed")
A = "a" * 64


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Relay:
    """A nats-server of a folder, on loopback."""

    def __init__(self, folder, manifests):
        self.folder, self.port = folder, free_port()
        paths = []
        for n, manifest in enumerate(manifests):
            paths.append(folder / f"{n}.toml")
            manifest.write(paths[-1])
        told = init(paths, folder, "127.0.0.1", self.port, "127.0.0.1")
        self.address = RelayAddress.parse(told["relay"])
        self.process = None

    def start(self):
        command = [find_server(), "--config", "relay.conf"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        end = time.monotonic() + 20
        while time.monotonic() < end:
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.01)
        raise AssertionError((self.folder / "log").read_text())

    def kill(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture
def relay_of(tmp_path):
    """Makes and starts relays, and kills them at the end."""
    started = []

    def make(*manifests):
        started.append(Relay(tmp_path, manifests))
        return started[-1].start()

    yield make
    for one in started:
        one.kill()


@real
@pytest.mark.timeout(120)
def test_nothing_is_lost_when_the_relay_is_killed_and_started_again(relay_of):
    sent = [os.urandom(20_000) + b"%d" % n for n in range(150)]
    large = os.urandom(3 * LARGEST_FRAME)

    async def main():
        parties = Parties(3, lambda parties, n: None)
        relay, token = relay_of(parties.manifest), parties.manifest.token
        for n, end in parties.ends.items():
            end.carrier = NatsCarrier([relay.address], token, n, parties.identities[n])
        await parties.meet()
        for n, frame in enumerate(sent):
            parties.ends[-1].transmit(0, frame)
            if n == 60:
                relay.kill()
            await asyncio.sleep(0)
        parties.ends[1].transmit(-1, large)
        relay.start()
        assert await drained(parties.ends[-1], 60.0)
        assert await drained(parties.ends[1], 60.0)
        await parties.close()
        return parties

    parties = asyncio.run(main())
    assert parties.got == {-1: [large], 0: sent, 1: []}
    assert parties.names(0) == ["relay lost", "relay back"]
    assert sum(end.session.rejected for end in parties.ends.values()) == 0


class Wire:
    """A party's connection on which anything can be said."""

    def __init__(self, address, token, index, who):
        self.carrier = NatsCarrier([address], token, index, who)
        self.got = []

    async def until(self, done):
        for _ in range(2000):
            if done():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(self.got)


@real
@pytest.mark.timeout(120)
def test_the_relay_lets_each_party_speak_and_hear_as_itself_only(relay_of):
    """A party that publishes as another, or listens to another's frames, is refused."""
    who = {n: identity() for n in (-1, 0, 1)}
    manifest = manifest_of(who)
    elsewhere = manifest_of(who, session="other")
    relay = relay_of(manifest)

    async def main():
        wires = {n: Wire(relay.address, manifest.token, n, who[n]) for n in who}
        for wire in wires.values():
            await wire.carrier.open(wire.got.append)
        token = manifest.token
        evil = wires[0]
        for line in (
            f"SUB {subject(token, None, 1)} 7\r\n",
            f"SUB {subject(token, -1, 1)} 8\r\n",
            "SUB > 9\r\n",
            f"SUB {subject(elsewhere.token, None, 0)} 10\r\n",
            f"PUB {subject(token, -1, 1)} 6\r\nforged\r\n",
            f"PUB {subject(elsewhere.token, 0, 1)} 6\r\nforged\r\n",
        ):
            evil.carrier._writer.write(line.encode())
        log = relay.folder / "log"
        await evil.until(lambda: log.read_text().count(" Violation") == 6)
        wires[-1].carrier.send(1, b"secret")
        await wires[1].until(lambda: len(wires[1].got) == 1)
        wires[0].carrier.send(1, b"own")
        await wires[1].until(lambda: len(wires[1].got) == 2)
        for wire in wires.values():
            await wire.carrier.close()
        return {n: wire.got for n, wire in wires.items()}

    got = asyncio.run(main())
    assert got == {-1: [], 0: [], 1: [b"secret", b"own"]}
    said = (relay.folder / "log").read_text()
    assert said.count("Publish Violation") == 2
    assert said.count("Subscription Violation") == 4


@real
@pytest.mark.timeout(120)
def test_a_wrong_key_manifest_or_certificate_is_refused_at_once(relay_of):
    who = {n: identity() for n in (-1, 0)}
    manifest = manifest_of(who)
    relay = relay_of(manifest)
    other = RelayAddress("127.0.0.1", relay.port, A)

    async def refused(address, token, key):
        with pytest.raises(CarrierError) as caught:
            await NatsCarrier([address], token, 0, key).open(lambda frame: None)
        return str(caught.value)

    async def main():
        return (
            await refused(relay.address, manifest.token, identity()),
            await refused(other, manifest.token, who[0]),
            await refused(relay.address, manifest_of(who, "old").token, who[0]),
        )

    key, certificate, session = asyncio.run(main())
    assert "it does not let this party in (Authorization Violation)" in key
    assert "its certificate has the key" in certificate
    assert "it knows the key, but not for this session and party" in session
    assert "another manifest" in session
    for error in (key, certificate, session):
        assert "\n" not in error
        assert f"relay 127.0.0.1:{relay.port}" in error


@real
@pytest.mark.timeout(120)
def test_addresses_are_tried_in_order_and_one_that_is_down_is_passed_over(relay_of):
    who = {n: identity() for n in (-1, 0)}
    manifest = manifest_of(who)
    relay = relay_of(manifest)
    down = RelayAddress("127.0.0.1", free_port(), A)

    async def main():
        one, two = (NatsCarrier([down, relay.address], manifest.token, n, who[n]) for n in (-1, 0))
        got = []
        await one.open(got.append)
        await two.open(got.append)
        one.send(0, b"x" * LARGEST_FRAME)
        for _ in range(1000):
            if got:
                break
            await asyncio.sleep(0.01)
        await one.close()
        await two.close()
        assert not one.connected
        return got

    assert asyncio.run(main()) == [b"x" * LARGEST_FRAME]


@real
@pytest.mark.timeout(120)
def test_parties_that_went_to_a_later_relay_come_back_to_an_earlier_one(tmp_path, monkeypatch):
    """One that joins when the first relay is back is there alone otherwise, for ever."""
    monkeypatch.setattr("securevfl.engine.carriers.nats._PING_SECONDS", 0.1)
    who = {n: identity() for n in (-1, 0)}
    manifest = manifest_of(who)
    relays = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        relays.append(Relay(tmp_path / name, [manifest]))
    addresses = [relay.address for relay in relays]

    async def main():
        early, late = Wire(relays[0].address, manifest.token, -1, who[-1]), []
        early.carrier = NatsCarrier(addresses, manifest.token, -1, who[-1])
        events = []
        await early.carrier.open(early.got.append, lambda *event: events.append(event))
        relays[0].start()
        other = NatsCarrier(addresses, manifest.token, 0, who[0])
        await other.open(late.append)
        for _ in range(1000):
            other.send(-1, b"met")
            await asyncio.sleep(0.01)
            if early.got:
                break
        await early.carrier.close()
        await other.close()
        return early.got, [connected for connected, _ in events]

    relays[1].start()
    try:
        got, events = asyncio.run(main())
    finally:
        for relay in relays:
            relay.kill()
    assert b"met" in got
    assert events == [False, True]


def test_a_relay_without_tls_is_refused_before_it_gets_a_word():
    said = []

    async def plain(reader, writer):
        writer.write(b'INFO {"nonce":"x"}\r\n')
        said.append(await reader.read(3))
        writer.close()

    async def main():
        server = await asyncio.start_server(plain, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        carrier = NatsCarrier([RelayAddress("127.0.0.1", port, A)], "t", 0, identity())
        with pytest.raises(CarrierError, match="does not begin with TLS"):
            await carrier.open(lambda frame: None)
        server.close()

    asyncio.run(main())
    assert said == [b"\x16\x03\x01"]  # a handshake of TLS, and nothing else


def test_a_hostile_relay_cannot_make_a_party_read_without_bound():
    assert _length(b"MSG svfl.t.0.1 1 %d" % LARGEST_FRAME) == LARGEST_FRAME
    for line in (b"MSG svfl.t.0.1 1 99999999999", b"MSG a 1 -1", b"MSG a 1 x"):
        with pytest.raises(ValueError, match=r"frame of|invalid literal"):
            _length(line)


@pytest.mark.parametrize(
    "text", ["", "host", "host:1", "host:1#aa", f":1#{A}", f"host:0#{A}", f"host:70000#{A}"]
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ConfigurationError, match="HOST:PORT#FINGERPRINT"):
        RelayAddress.parse(text)


def test_an_address_is_read_as_it_is_written():
    made = RelayAddress("fe80::1", 4222, A)
    assert RelayAddress.parse(str(made)) == made


def test_keys_are_written_as_nats_writes_them():
    """The sample of the documentation of nkeys: a seed, and the user key that follows."""
    seed = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
    secret = base64.b32decode(seed + "=" * (-len(seed) % 8))[2:34]
    public = Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    assert user_key(public) == "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


def test_a_server_that_is_missing_or_too_old_is_said_to_be(tmp_path, monkeypatch):
    old = tmp_path / "nats-server"
    old.write_text("#!/bin/sh\necho nats-server: v2.9.10\n")
    old.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name, path=None: str(old))
    with pytest.raises(ConfigurationError, match=r"v2\.9\.10, and 2\.10 or newer is needed"):
        find_server()
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    with pytest.raises(ConfigurationError, match="three ways"):
        find_server()
