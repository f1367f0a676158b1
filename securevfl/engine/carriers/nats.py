"""Carrier over a NATS relay: outbound connections, TLS, one key for each party.

The carrier uses only INFO, CONNECT, SUB, PUB, MSG, PING and PONG of the NATS protocol. The relay is
not trusted: TLS starts before its first word, its certificate is identified by the hash of its
public key, and its lines are bounded in length before they are read. Addresses of other servers
that it names are ignored.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import json
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from securevfl.engine.carriers.base import LARGEST_FRAME, Changed, Take
from securevfl.engine.network import SERVER
from securevfl.engine.security.identity import Identity
from securevfl.errors import CarrierError, ConfigurationError

_USER = 20 << 3  # the byte with which NATS begins the public keys of users
_MOST_WAITING = 1 << 26  # bytes that wait for a slow connection before frames are dropped
_LIMIT = 1 << 20  # of a line from the relay, and of bytes that are read ahead
_CONNECT_SECONDS = 3.0
_PING_SECONDS, _DEAD_SECONDS = 5.0, 15.0  # a relay that says nothing for so long is lost
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 3.0  # seconds between attempts to connect


@dataclass(frozen=True)
class RelayAddress:
    """Address of a relay, and the fingerprint of its certificate's public key.

    Attributes
    ----------
    host, port : str, int
        Name or address of the relay's machine, and its port.
    fingerprint : str
        SHA-256 of the public key (DER) of the relay's TLS certificate, as 64 hexadecimal digits.
        Nothing else is trusted: no certificate authority, no name.
    """

    host: str
    port: int
    fingerprint: str

    @classmethod
    def parse(cls, text: str) -> RelayAddress:
        """Relay address from its text ``host:port#fingerprint`` (inverse of `str`).

        ConfigurationError for a text of another form.
        """
        place, _, fingerprint = text.partition("#")
        host, _, port = place.rpartition(":")
        whole = len(fingerprint) == 64 and set(fingerprint) <= set("0123456789abcdef")
        if not (host and port.isdigit() and 0 < int(port) < 65536 and whole):
            raise ConfigurationError(
                f"relay: {text!r} is no address; write HOST:PORT#FINGERPRINT, as `securevfl relay "
                "init` prints it"
            )
        return cls(host, int(port), fingerprint)

    @property
    def place(self) -> str:
        """Host and port, as ``host:port``."""
        return f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.place}#{self.fingerprint}"


def certificate_fingerprint(certificate: bytes) -> str:
    """SHA-256 of the public key of a certificate (DER), as hexadecimal digits."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = x509.load_der_x509_certificate(certificate).public_key()
    content = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(content).hexdigest()


def user_key(public: bytes) -> str:
    """Text of an Ed25519 public key in the NATS format for users."""
    content = bytes([_USER]) + public
    check = binascii.crc_hqx(content, 0).to_bytes(2, "little")
    return base64.b32encode(content + check).decode().rstrip("=")


def subject(token: str, sender: int | None, receiver: int | None) -> str:
    """NATS subject of frames from one party to another; None for any sender or receiver."""

    def name(index: int | None) -> str:
        if index is None:
            return "*"
        return "server" if index == SERVER else str(index)

    return f"svfl.{token}.{name(sender)}.{name(receiver)}"


class _RefusedError(CarrierError):
    """Permanent failure at a relay: it refuses this party, or is not the expected relay."""


_FAILURES = (CarrierError, OSError, EOFError, ValueError)  # of an attempt to connect


class NatsCarrier:
    """A party's connection to a relay; it reconnects without limit, by all addresses in turn.

    Parties at different relays cannot reach each other. So a party at a later relay tries every
    five seconds to return to an earlier one: all parties meet at the first working relay.

    Parameters
    ----------
    addresses : sequence of RelayAddress
        Relays in the order of trial.
    token, index : str, int
        Name of the session in subjects, `Manifest.token`; number of the party.
    identity : Identity
        The party's identity. It logs in with a key derived from it (`Identity.relay`), so a relay
        obtains no signature of the identity itself.
    """

    def __init__(
        self, addresses: Sequence[RelayAddress], token: str, index: int, identity: Identity
    ) -> None:
        if not addresses:
            raise ConfigurationError("relay: there is no address; name at least one")
        self._addresses = tuple(addresses)
        self._token, self._index, self._key = token, index, identity.relay
        self._take: Take = lambda frame: None
        self._changed: Changed = lambda connected, why: None
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None
        self._heard = 0.0
        self._place = 0  # of the present relay in the addresses
        self._told_lost = False
        self._heads: dict[int, bytes] = {}

    @property
    def connected(self) -> bool:
        """Whether frames can leave at present."""
        return self._writer is not None

    async def open(self, take: Take, changed: Changed | None = None) -> None:
        """Connect out; see `Carrier.open`."""
        self._take = take
        if changed is not None:
            self._changed = changed
        connection = await self._connect_somewhere(give_up=True)
        self._task = asyncio.create_task(self._serve(*connection))

    def send(self, receiver: int, frame: bytes) -> None:
        """Hand over a frame for a party; see `Carrier.send`."""
        writer = self._writer
        if writer is None or writer.transport.get_write_buffer_size() > _MOST_WAITING:
            return
        head = self._heads.get(receiver)
        if head is None:
            head = f"PUB {subject(self._token, self._index, receiver)} ".encode()
            self._heads[receiver] = head
        writer.write(b"%b%d\r\n%b\r\n" % (head, len(frame), frame))

    async def close(self) -> None:
        """Disconnect."""
        task, self._task, self._writer = self._task, None, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read until the connection is lost, then reconnect, without limit."""
        while True:
            watch = asyncio.create_task(self._watch(writer))
            try:
                why = await self._read(reader, writer)
            finally:
                watch.cancel()
                self._writer = None
                await _end(writer)
            self._tell_lost(why)
            reader, writer = await self._connect_somewhere()

    async def _connect_somewhere(
        self, *, give_up: bool = False
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connection to the first relay that accepts this party; retries without limit.

        With `give_up`: CarrierError once all relays refuse permanently.
        """
        wait = _FIRST_WAIT
        while True:
            errors = []
            for place, address in enumerate(self._addresses):
                try:
                    connection = await self._try(address)
                except _FAILURES as error:
                    errors.append(_told(address, error))
                    continue
                self._place, self._writer = place, connection[1]
                self._heard = asyncio.get_running_loop().time()
                if self._told_lost:
                    self._told_lost = False
                    self._changed(True, f"relay {address.place}: connected")
                return connection
            if give_up and all(isinstance(error, _RefusedError) for error in errors):
                raise CarrierError("; ".join(map(str, errors)))
            self._tell_lost("; ".join(map(str, errors)))
            await asyncio.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)

    def _tell_lost(self, why: str) -> None:
        if not self._told_lost:
            self._told_lost = True
            self._changed(False, why)

    async def _try(
        self, address: RelayAddress
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to one relay and log in.

        Raises CarrierError, OSError, EOFError, ValueError.
        """
        async with asyncio.timeout(_CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=_context(), limit=_LIMIT
            )
            try:
                _check_certificate(address, writer)
                await self._log_in(reader, writer)
            except BaseException:
                writer.transport.abort()
                raise
        return reader, writer

    async def _log_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await _line(reader)
        try:
            info = json.loads(first.removeprefix(b"INFO ")) if first.startswith(b"INFO ") else None
        except RecursionError:
            raise ValueError("its first line is nested too deeply") from None
        if not isinstance(info, dict) or not isinstance(info.get("nonce"), str):
            raise _RefusedError("it asks for no key; run it by `securevfl relay`")
        signature = self._key.sign(info["nonce"].encode())
        content = {
            "verbose": False, "pedantic": False, "tls_required": True, "echo": False, "protocol": 1,
            "lang": "securevfl", "version": "1",
            "nkey": user_key(self._key.public_key().public_bytes_raw()),
            "sig": base64.b64encode(signature).decode(),
        }  # fmt: skip
        mine = subject(self._token, None, self._index)
        writer.write(f"CONNECT {json.dumps(content)}\r\nSUB {mine} 1\r\nPING\r\n".encode())
        while (answer := await _line(reader)) != b"PONG":
            if answer.startswith(b"-ERR"):
                said = answer[5:80].decode(errors="replace").strip("' ")
                if b"Permissions" in answer:  # of NATS's sentence an end would be missing
                    said = "it knows the key, but not for this session and party"
                raise _RefusedError(
                    f"it does not let this party in ({said}); it was set up from another manifest, "
                    "or this is another key"
                )

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Receive frames until the connection ends; return the reason."""
        place = ":".join(map(str, (writer.get_extra_info("peername") or ("it",))[:2]))
        loop = asyncio.get_running_loop()
        try:
            while True:
                line = await _line(reader)
                self._heard = loop.time()
                if line.startswith(b"MSG "):
                    frame = await reader.readexactly(_length(line) + 2)
                    loop.call_soon(self._arrive, frame[:-2])  # its errors do not end the reading
                elif line == b"PING":
                    if writer.transport.get_write_buffer_size() > _MOST_WAITING:
                        return f"relay {place}: it asks, and takes no answers"
                    writer.write(b"PONG\r\n")
                elif line.startswith(b"-ERR") and b"Permissions Violation" not in line:
                    return f"relay {place}: {line[5:80].decode(errors='replace')}"
        except (OSError, EOFError, ValueError) as error:
            return f"relay {place}: the connection was lost ({type(error).__name__})"

    def _arrive(self, frame: bytes) -> None:
        if self._task is not None:
            self._take(frame)

    async def _watch(self, writer: asyncio.StreamWriter) -> None:
        """Close a connection to a dead relay, or when a preferred relay is back."""
        loop = asyncio.get_running_loop()
        while loop.time() - self._heard < _DEAD_SECONDS:
            writer.write(b"PING\r\n")
            await asyncio.sleep(_PING_SECONDS)
            if await self._earlier_is_back():
                break
        writer.transport.abort()

    async def _earlier_is_back(self) -> bool:
        """Whether a relay earlier in the list than the present one accepts this party."""
        for address in self._addresses[: self._place]:
            with suppress(*_FAILURES):
                _, writer = await self._try(address)
                writer.transport.abort()
                return True
        return False


def _context() -> ssl.SSLContext:
    """TLS 1.3 context without certificate check, which `_check_certificate` makes."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    return made


def _check_certificate(address: RelayAddress, writer: asyncio.StreamWriter) -> None:
    """Refuse a relay with another key, before anything is sent to it.

    Raises _RefusedError, a CarrierError.
    """
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    found = certificate_fingerprint(shown) if shown else ""
    if not hmac.compare_digest(found, address.fingerprint):
        raise _RefusedError(
            f"its certificate has the key {found}, and {address.fingerprint} is expected; it is "
            "another relay, its certificate was made anew, or the invitation was changed on its "
            "way: ask for the invitation again, and compare"
        )


async def _line(reader: asyncio.StreamReader) -> bytes:
    """Next line from the relay, without its line end.

    Raises EOFError, OSError, ValueError.
    """
    try:
        return (await reader.readuntil(b"\r\n"))[:-2]
    except asyncio.LimitOverrunError:
        raise ValueError("a line is too long") from None


def _length(line: bytes) -> int:
    """Frame length stated in a line.

    ValueError for one above the bound: nothing of it is read.
    """
    length = int(line.rpartition(b" ")[2])
    if not 0 <= length <= LARGEST_FRAME:
        raise ValueError(f"a frame of {length} bytes")
    return length


def _told(address: RelayAddress, error: Exception) -> CarrierError:
    """Error that names the relay: `_RefusedError` if retrying is useless, else CarrierError."""
    if isinstance(error, _RefusedError):
        return _RefusedError(f"relay {address.place}: {error}")
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return _RefusedError(f"relay {address.place}: it does not begin with TLS")
    what = str(error) or type(error).__name__
    return CarrierError(f"relay {address.place}: it cannot be reached ({what})")


async def _end(writer: asyncio.StreamWriter) -> None:
    """Close a connection in any state."""
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(1.0):
            await writer.wait_closed()
