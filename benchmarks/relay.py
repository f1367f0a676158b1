"""Nine parties in nine processes over a relay with TLS: rounds a second, bytes, and CPU.

    python benchmarks/relay.py                  two sizes of messages, 10 s each
    python benchmarks/relay.py --seconds 3

In a round the server sends a frame to each of eight parties, and each sends one back. Frames of
137 kB make 2.2 MB a round, as much as a round of FedVS with 8 parties. All processes are of this
machine. Results are in benchmarks/results/relay/echo.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from securevfl.engine.carriers.endpoint import Endpoint
from securevfl.engine.carriers.nats import NatsCarrier, RelayAddress
from securevfl.engine.carriers.session import Session
from securevfl.engine.network import SERVER
from securevfl.engine.security.frames import Hello
from securevfl.engine.security.identity import Identity, Manifest, ManifestEntry
from securevfl.engine.security.sealing import Sealer
from securevfl.machine import commit, describe_machine
from securevfl.runs.organisations.relay import find_server, init

RESULTS = Path(__file__).parent / "results" / "relay" / "echo.json"
PARTIES = 8
SIZES = (1_000, 137_500)
STOP = b"stop"


class Counted(NatsCarrier):
    """A carrier that counts the bytes of its datagrams, both ways."""

    bytes = 0

    def send(self, receiver: int, frame: bytes) -> None:
        self.bytes += len(frame)
        super().send(receiver, frame)

    def _arrive(self, frame: bytes) -> None:
        self.bytes += len(frame)
        super()._arrive(frame)


def endpoint(folder: Path, index: int, address: str, deliver: Any, **options: Any) -> Endpoint:
    """The end of a party whose key lies in a folder."""
    manifest = Manifest.read(folder / "m.toml")
    who = Identity.read(folder / f"{index}.key")
    sealer = Sealer(manifest.protocol, manifest.session, index)
    session = Session(
        index, manifest.entries, who.introduce(manifest.digest, index, Hello(0, sealer.public)),
        sealer, verify=manifest.verify, deliver=deliver, introduce=lambda peer, hello: None,
        **options,
    )  # fmt: skip
    carrier = Counted([RelayAddress.parse(address)], manifest.token, index, who)
    return Endpoint(session, carrier, lambda name, fields: print(name, fields, file=sys.stderr))


async def party(folder: Path, index: int, address: str) -> None:
    """Send each frame of the server back, until it says stop."""
    over = asyncio.Event()

    def deliver(frame: bytes) -> None:
        if frame == STOP:
            over.set()
        else:
            end.transmit(SERVER, frame)

    end = endpoint(folder, index, address, deliver)
    await end.open()
    await over.wait()
    await end.drain(2.0)
    await end.close()


async def server(
    folder: Path, address: str, size: int, seconds: float, relay: psutil.Process
) -> dict[str, Any]:
    """Rounds for so long; what they took."""
    answers: asyncio.Queue[bytes] = asyncio.Queue()
    end = endpoint(folder, SERVER, address, answers.put_nowait)
    await end.open()
    while len(end.session.present) < PARTIES:
        await asyncio.sleep(0.05)
    frame = os.urandom(size)

    async def one_round() -> None:
        for index in range(PARTIES):
            end.transmit(index, frame)
        for _ in range(PARTIES):
            assert await answers.get() == frame

    for _ in range(5):
        await one_round()
    busy, own = sum(relay.cpu_times()[:2]), time.process_time()
    assert isinstance(end.carrier, Counted)
    crossed = end.carrier.bytes
    begun, rounds = time.monotonic(), 0
    while time.monotonic() < begun + seconds:
        await one_round()
        rounds += 1
    took = time.monotonic() - begun
    found = {
        "frame_bytes": size,
        "rounds": rounds,
        "rounds_per_second": round(rounds / took, 1),
        "payload_mb_per_round": round(2 * PARTIES * size / 1e6, 3),
        "datagram_bytes_per_round": round((end.carrier.bytes - crossed) / rounds),
        "relay_cpu_ms_per_round": round((sum(relay.cpu_times()[:2]) - busy) / rounds * 1e3, 2),
        "server_cpu_ms_per_round": round((time.process_time() - own) / rounds * 1e3, 2),
        "resent": end.session.resent,
    }
    for index in range(PARTIES):
        end.transmit(index, STOP)
    await end.drain(5.0)
    await end.close()
    return found


def echo(seconds: float) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name, socket.socket() as free:
        folder = Path(name)
        made = {n: Identity.create(folder / f"{n}.key") for n in (SERVER, *range(PARTIES))}
        entries = {n: ManifestEntry(w.public, relay=w.relay_public) for n, w in made.items()}
        manifest = Manifest("echo", "fedvs", entries)
        for n, who in made.items():
            manifest = manifest.signed(n, who)
        manifest.write(folder / "m.toml")
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        address = init([folder / "m.toml"], folder, "127.0.0.1", port, "127.0.0.1")["relay"]
        command = [find_server(), "--config", "relay.conf", "--log", "log"]
        relay = subprocess.Popen(command, cwd=folder)
        try:
            return [one_size(folder, address, size, seconds, relay.pid) for size in SIZES]
        finally:
            relay.terminate()
            relay.wait()


def one_size(folder: Path, address: str, size: int, seconds: float, relay: int) -> dict[str, Any]:
    commands = [
        [sys.executable, __file__, "party", str(folder), str(n), address] for n in range(PARTIES)
    ]
    running = [subprocess.Popen(command) for command in commands]
    try:
        return asyncio.run(server(folder, address, size, seconds, psutil.Process(relay)))
    finally:
        for one in running:
            one.wait(30)


def main() -> None:
    if sys.argv[1:2] == ["party"]:
        asyncio.run(party(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
        return
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--seconds", type=float, default=10.0)
    found = echo(given.parse_args().seconds)
    for row in found:
        print(row)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    content = {"machine": describe_machine(), "commit": commit(), "parties": PARTIES, "echo": found}
    RESULTS.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
