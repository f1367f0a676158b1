"""Cost of a link between organisations: handshake and datagrams, beside mutual TLS 1.3.

    python -m benchmarks.links

TLS runs over a pair of `ssl.MemoryBIO` with a self-signed Ed25519 certificate at each end, as it
would over frames that a carrier delivers in order. The cost of a message between parties of a
cluster over TCP is measured beside that of one sealed under a fixed key: CPU time of both ends,
which are in one process.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

import securevfl as svfl
from securevfl.engine import wire
from securevfl.engine.carriers.datagrams import Content, Head, open_sealed, seal
from securevfl.engine.carriers.direct import DirectCarrier
from securevfl.engine.carriers.handshake import Chains, Credentials, Handshake, Offer
from securevfl.engine.carriers.session import Session
from securevfl.engine.realtime.assignment import PartyAssignment
from securevfl.engine.realtime.peers import PeerLinks
from securevfl.engine.security.frames import Links

_TIMES = 60


def _keys(numbers: Sequence[int] = (-1, 0)) -> dict[int, object]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return {n: Ed25519PrivateKey.generate() for n in numbers}


def _credentials(keys: dict[int, object], n: int) -> Credentials:
    from cryptography.exceptions import InvalidSignature

    def has_signed(party: int, signature: bytes, statement: bytes) -> bool:
        try:
            keys[party].public_key().verify(signature, statement)  # type: ignore[attr-defined]
        except InvalidSignature:
            return False
        return True

    return Credentials(bytes(32), keys[n].sign, has_signed)  # type: ignore[attr-defined]


def handshake(keys: dict[int, object]) -> dict[int, Chains]:
    """Carry out a handshake in memory; return the chains of keys at each end."""
    made = {n: Handshake(_credentials(keys, n), n, -1 - n, 0, 0) for n in keys}
    offers: dict[int, Offer] = {n: one.offer for n, one in made.items()}
    for n, one in made.items():
        one.check(offers[-1 - n])
        one.hear(offers[-1 - n])
    agreed = {n: one.agree(made[-1 - n].answer) for n, one in made.items()}
    return {n: chains for n, chains in agreed.items() if chains is not None}


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Files of a new secret key and its self-signed certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, None)
    )
    paths = folder / f"{name}.key", folder / f"{name}.pem"
    paths[0].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    paths[1].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    return paths


class _TLS:
    """TLS 1.3 connection whose two ends exchange all bytes in memory."""

    def __init__(self, contexts: list[ssl.SSLContext]) -> None:
        self.bytes = 0
        self.pipes = [(ssl.MemoryBIO(), ssl.MemoryBIO()) for _ in contexts]
        self.ends = [
            context.wrap_bio(*pipe, server_side=server)
            for context, pipe, server in zip(contexts, self.pipes, (True, False), strict=True)
        ]

    def move(self) -> None:
        for one, other in ((0, 1), (1, 0)):
            data = self.pipes[one][1].read()
            self.bytes += len(data)
            self.pipes[other][0].write(data)

    def meet(self) -> None:
        done = [False, False]
        while not all(done):
            for at in (1, 0):
                try:
                    self.ends[at].do_handshake()
                    done[at] = True
                except ssl.SSLWantReadError:
                    pass
                self.move()

    def carry(self, data: bytes) -> None:
        self.ends[0].write(data)
        self.move()
        while data:
            data = data[len(self.ends[1].read(len(data))) :]


def _contexts(folder: Path) -> list[ssl.SSLContext]:
    files = [certificate(folder, name) for name in ("one", "two")]
    made = []
    for at, purpose in enumerate((ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)):
        context = ssl.SSLContext(purpose)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(files[at][1], files[at][0])
        context.load_verify_locations(files[1 - at][1])
        made.append(context)
    return made


def _milliseconds(*steps: Callable[[], object]) -> list[float]:
    """Median wall time of each step in milliseconds, measured in turns."""
    taken: list[list[float]] = [[] for _ in steps]
    for _ in range(_TIMES):
        for step, times in zip(steps, taken, strict=True):
            begun = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - begun))
    return [statistics.median(times) for times in taken]


class _Party:
    """Stand-in for a cluster party's host: it answers a complete round of messages by the next."""

    def __init__(self, index: int, parties: int) -> None:
        self.links = Links("run", index, 0, range(parties))
        self.parties, self.got, self.most = parties, 0, 0
        self.peers: PeerLinks
        self.body = b""

    def add_peers(self, epochs: dict[int, int]) -> None:
        self.links.add_peers(epochs)

    def reject(self, why: Exception) -> None:
        raise why

    def take(self, frame: bytes, sender: int) -> None:
        self.got += len(self.links.unpack(frame, sender))
        if self.got % (self.parties - 1) == 0 and self.got < self.most:
            self.send()

    def send(self) -> None:
        for to in range(self.parties):
            if to != self.links.index:
                self.peers.transmit(to, self.links.pack(to, "kind", 1, self.body))


async def _talk(hosts: list[_Party], size: int, rounds: int) -> float:
    """CPU seconds per message, all to all, with messages of `size` bytes."""
    most = rounds * (len(hosts) - 1)
    for host in hosts:
        host.got, host.most, host.body = 0, most, wire.encode(bytes(size))
    begun = time.process_time()
    for host in hosts:
        host.send()
    while any(host.got < most for host in hosts):
        await asyncio.sleep(0.001)
    return (time.process_time() - begun) / (most * len(hosts))


def _plain(ends: list[socket.socket], size: int, times: int) -> float:
    """CPU seconds per message that is sealed under a fixed key and sent over a socket."""
    cipher, payload = ChaCha20Poly1305(bytes(32)), bytes(size)
    begun = time.process_time()
    for number in range(times):
        nonce = number.to_bytes(12, "little")
        data = cipher.encrypt(nonce, payload, b"head")
        got, left = bytearray(), len(data)
        while len(got) < len(data):
            if left:
                left -= ends[0].send(data[len(data) - left :][: 1 << 16])
            got += ends[1].recv(1 << 20)
        cipher.decrypt(nonce, bytes(got), b"head")
    return (time.process_time() - begun) / times


async def messages(parties: int) -> None:
    """Print the CPU time of a message, all to all, for three sizes."""
    hosts = [_Party(n, parties) for n in range(parties)]
    job = PartyAssignment(None, "p", "run", tuple(range(parties)), 0)  # type: ignore[arg-type]
    introduced = {}
    for n, host in enumerate(hosts):
        host.peers = PeerLinks(host, job, None, DirectCarrier("127.0.0.1"))  # type: ignore[arg-type]
        introduced[n] = await host.peers.open()
    for host in hosts:
        host.peers.add(introduced)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ends = [socket.create_connection(listener.getsockname()), listener.accept()[0]]
    for size in (100, 9_000, 100_000):
        rounds = max(2, (400 if size < 50_000 else 60) // (parties - 1))
        taken: list[list[float]] = [[], []]
        await _talk(hosts, size, 5)
        for _ in range(9):
            taken[0].append(await _talk(hosts, size, rounds))
            taken[1].append(_plain(ends, size, rounds * (parties - 1)))
        ours, plain = (1e6 * statistics.median(times) for times in taken)
        print(f"{parties} parties, {size} bytes: {ours:.0f} us of CPU, plain {plain:.0f}")
    for host in hosts:
        await host.peers.close()


class _Lasting:
    """Replacement for a link's chains: fixed keys, each datagram encrypted `times` times."""

    def __init__(self, times: int) -> None:
        self.ciphers = [ChaCha20Poly1305(bytes(32))] * times

    def cipher(self, number: int) -> _Lasting:
        return self

    def used(self, number: int, expected: int) -> None:
        pass

    def encrypt(self, nonce: bytes, data: bytes, head: bytes) -> bytes:
        for cipher in self.ciphers:
            data = cipher.encrypt(nonce, data, head)
        return data if self.ciphers else data + bytes(16)

    def decrypt(self, nonce: bytes, data: bytes, head: bytes) -> bytes:
        for cipher in self.ciphers:
            data = cipher.decrypt(nonce, data, head)
        return data if self.ciphers else data[:-16]


class _Parties:
    """Sessions of all parties, whose datagrams are delivered at once.

    `times` replaces the chains by `_Lasting`; None keeps them.
    """

    def __init__(self, numbers: list[int], keys: dict[int, object], times: int | None) -> None:
        self.now = self.got = 0
        self.sessions = {
            n: Session(
                n,
                numbers,
                0,
                _credentials(keys, n),
                deliver=self.arrived,
                introduce=lambda *who: None,
            )
            for n in numbers
        }
        self.carry(lambda: all(len(one.present) == len(keys) - 1 for one in self.sessions.values()))
        for one in self.sessions.values():
            for link in one._links.values() if times is not None else ():
                link.chains = Chains(*[_Lasting(times)] * 4)  # type: ignore[list-item]

    def arrived(self, frame: bytes, sender: int) -> None:
        self.got += 1

    def carry(self, done: Callable[[], bool]) -> None:
        while not done():
            self.now += 1
            for one in self.sessions.values():
                for to, data in one.due(0.01 * self.now):
                    self.sessions[to].take(data, 0.01 * self.now)

    def round(self, messages: list[tuple[int, int, bytes]]) -> float:
        """CPU milliseconds of all parties together for these messages (sender, receiver, frame)."""
        self.got, begun = 0, time.process_time()
        for sender, receiver, frame in messages:
            self.sessions[sender].send(receiver, frame)
        self.carry(lambda: self.got == len(messages))
        return 1e3 * (time.process_time() - begun)


def rounds(parties: int) -> None:
    """Print the CPU time of sealing the messages of a round of FedVS, for all parties together."""
    data = svfl.load_dataset("digits", parties=parties)
    options = {"rounds": 30, "sum_budget": 0.0}
    svfl.run("fedvs", data, **options)  # compilation is no price of a round
    begun = time.process_time()
    run = svfl.run("fedvs", data, **options)
    whole = time.process_time() - begun
    sent = run.transcript.columns()
    of_round = np.flatnonzero(sent["round"] == 6)
    names = ("sender", "receiver", "bytes")
    found = zip(*(sent[name][of_round].tolist() for name in names), strict=True)
    messages = [(sender, to, os.urandom(size)) for sender, to, size in found]
    numbers = [-1, *range(parties)]
    keys = _keys(numbers)
    ways = [_Parties(numbers, keys, times) for times in (None, 2, 0)]
    taken = [[way.round(messages) for way in ways] for _ in range(_TIMES)]
    ours, twice, plain = (statistics.median(times) for times in zip(*taken, strict=True))
    size = sum(len(frame) for *_, frame in messages)
    print(
        f"a round of fedvs, {parties} clients, {len(messages)} messages, {size / 1e6:.2f} MB: "
        f"sealed {ours:.1f} ms of CPU, twice under lasting keys {twice:.1f}, plain {plain:.1f}; "
        f"the whole simulated run {1e3 * whole / 30:.0f} a round"
    )


def main() -> None:
    """Print the measurements of this machine."""
    keys = _keys()
    chains = handshake(keys)
    with tempfile.TemporaryDirectory() as folder:
        contexts = _contexts(Path(folder))
    tls = _TLS(contexts)
    tls.meet()
    print(ssl.OPENSSL_VERSION)
    ours, theirs = _milliseconds(lambda: handshake(keys), lambda: _TLS(contexts).meet())
    print(f"handshake, both ends: ours {ours:.2f} ms, TLS 1.3 {theirs:.2f} ms, {tls.bytes} bytes")
    number = 0
    for size in (100, 10_000, 400_000):
        piece = bytes(size)

        def carry(piece: bytes = piece) -> None:
            nonlocal number
            head = Head(1, -1, 0, 0, 0, number)
            sent, received = chains[-1].sent, chains[0].received
            data = seal(sent.cipher(number), head, Content(0, 0, 0, 3, piece), padded=False)
            sent.used(number, number)
            open_sealed(received.cipher(number), head, data)
            received.used(number, number)
            number += 1

        ours, theirs = _milliseconds(carry, lambda piece=piece: tls.carry(piece))  # type: ignore[misc]
        print(f"{size} bytes, sealed and opened: ours {1e3 * ours:.0f} us, TLS {1e3 * theirs:.0f}")
    for parties in (2, 8):
        asyncio.run(messages(parties))
    for parties in (3, 10):
        rounds(parties)


if __name__ == "__main__":
    main()
