"""A relay that speaks NATS and means harm: it drops, doubles, reorders, forges and replays frames.

It has the certificate of the relay that it stands for, and lets everybody in.
"""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
from collections import Counter
from pathlib import Path

from tests.engine.carriers.memory import Hostility, MemoryRelay

_INFO = {"server_id": "H", "version": "2.11.0", "nonce": "hostile nonce", "max_payload": 1 << 20,
         "headers": False, "tls_required": True, "auth_required": True}  # fmt: skip


class HostileRelay:
    """A relay of one folder that `securevfl relay init` wrote."""

    def __init__(self, folder: Path, share: float, seed: int = 0) -> None:
        self.folder = folder
        self.frames = 0
        self.sizes: Counter[int] = Counter()
        self._outcome = MemoryRelay(Hostility.of(share), seed)
        self._listeners: dict[str, asyncio.StreamWriter] = {}

    async def run(self, host: str, port: int) -> None:
        """Serve until SIGTERM; then write what was done."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "relay.pem", self.folder / "relay.key")
        over = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
        await asyncio.start_server(self._serve, host, port, ssl=context, limit=1 << 21)
        await over.wait()
        told = {"frames": self.frames, "forged": self._outcome.forged,
                "sizes": len(self.sizes), "largest": max(self.sizes, default=0)}  # fmt: skip
        (self.folder / "hostile.json").write_text(json.dumps(told))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO " + json.dumps(_INFO).encode() + b"\r\n")
        try:
            while True:
                await self._obey(await reader.readuntil(b"\r\n"), reader, writer)
        except (OSError, EOFError):
            writer.close()

    async def _obey(
        self, line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        words = line.split()
        if words[0] == b"PING":
            writer.write(b"PONG\r\n")
        elif words[0] == b"SUB":
            self._listeners[words[1].decode().rpartition(".")[2]] = writer
        elif words[0] == b"PUB":
            frame = (await reader.readexactly(int(words[2]) + 2))[:-2]
            self._bring(words[1].decode(), frame)

    def _bring(self, subject: str, frame: bytes) -> None:
        self.frames += 1
        self.sizes[len(frame)] += 1
        name = subject.rpartition(".")[2]
        listener = self._listeners.get(name)
        if listener is None or listener.is_closing():
            return
        index = -1 if name == "server" else int(name)
        for arriving in self._outcome.outcome(index, frame):
            head = f"MSG {subject} 1 {len(arriving)}\r\n".encode()
            listener.write(head + arriving + b"\r\n")
