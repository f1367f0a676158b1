"""Identities of parties (long-lived keys) and manifests (signed lists of a session's parties).

A party's identity is an Ed25519 key pair whose secret half never leaves its file. A manifest names
the session, its protocol, and for each party number the public key and, where the protocol has
them, the point at which its shares are evaluated; every party signs the same statement. Each
incarnation of a party then has fresh keys for its links, which the identity signs in the handshake
(`securevfl.engine.carriers.handshake`). So no key outside the manifest can speak for a party, and
no key is trusted at first sight.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securevfl.engine import wire
from securevfl.engine.network import SERVER, Signing, name_of
from securevfl.errors import ConfigurationError, SealError
from securevfl.reading import NOT_PARSED
from securevfl.writing import write_durably

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_KEY = 32  # bytes of an Ed25519 public key
_STATEMENT = "securevfl manifest 1"
_STATEMENT_WITH_RELAY = "securevfl manifest 2"
_RELAY = b"securevfl relay key 1"
_WITH_TERMS = "securevfl manifest with terms 1"


def fingerprint(public: bytes) -> str:
    """Short form of a public key for people to compare: SHA-256 in base 64, as in SSH.

    Parameters
    ----------
    public : bytes
        32 bytes.
    """
    digest = hashlib.sha256(public).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


class Identity:
    """A party's long-lived key pair."""

    def __init__(self, secret: Ed25519PrivateKey) -> None:
        self._secret = secret

    @classmethod
    def temporary(cls) -> Identity:
        """A new key pair that no file holds."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def create(cls, path: Path) -> Identity:
        """Write a new key file (mode 0600) and ``<path>.pub``; both or neither.

        ConfigurationError if a file exists, because a key is never overwritten, or cannot be
        written.
        """
        from cryptography.hazmat.primitives import serialization

        made = cls.temporary()
        content = made._secret.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        _write_new(path, content, mode=0o600)
        try:
            _write_new(public_file(path), made._public_text)
        except ConfigurationError:
            path.unlink()
            raise
        return made

    @classmethod
    def read(cls, path: Path) -> Identity:
        """Key pair of a file.

        ConfigurationError if the file cannot be read, is no such key, or is readable by other
        users.
        """
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            mode, content = path.stat().st_mode, path.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"keys: {path} cannot be read: {error.strerror}") from None
        if mode & 0o077:
            raise ConfigurationError(
                f"keys: {path} has mode {mode & 0o777:04o}, so others may read it; chmod 600 it, "
                "or make a new key if they may have"
            )
        try:
            secret = load_pem_private_key(content, password=None)
        except (ValueError, TypeError):
            secret = None
        if not isinstance(secret, Ed25519PrivateKey):
            raise ConfigurationError(
                f"keys: {path} holds no Ed25519 key; `securevfl keys new` does"
            )
        return cls(secret)

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._secret.public_key().public_bytes_raw()

    @property
    def relay(self) -> Ed25519PrivateKey:
        """Key for access to a relay, derived from the identity by HKDF.

        A relay chooses the signed text (a nonce), so this is a separate key: a hostile relay cannot
        obtain signatures of the identity.
        """
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        derived = HKDF(SHA256(), length=32, salt=None, info=_RELAY)
        seed = derived.derive(self._secret.private_bytes_raw())
        return Ed25519PrivateKey.from_private_bytes(seed)

    @property
    def relay_public(self) -> bytes:
        """Public half of the key for relays (`relay`), 32 bytes."""
        return self.relay.public_key().public_bytes_raw()

    def write_public(self, path: Path) -> None:
        """Write the public keys: of the identity, and of the relay key on a second line.

        ConfigurationError if the file has another public key, or cannot be written.
        """
        try:
            there = path.read_text(errors="replace").strip() if path.exists() else ""
            if there and not there.startswith(self.public.hex()):
                raise ConfigurationError(
                    f"keys: {path} is there already, holds another key, and is not overwritten; "
                    "move it away"
                )
            write_durably(path, self._public_text)
        except OSError as error:
            raise _unwritten(path, error) from None

    @property
    def _public_text(self) -> str:
        return f"{self.public.hex()}\n{self.relay_public.hex()}\n"

    def sign(self, statement: bytes) -> bytes:
        """Signature of a statement by the identity, 64 bytes."""
        return self._secret.sign(statement)

    def signing(self, manifest: Manifest) -> Signing:
        """Own secret key, with the public keys of all parties in the manifest."""
        keys = {n: entry.public for n, entry in manifest.entries.items()}
        return Signing(self._secret.private_bytes_raw(), keys, manifest.digest)


def _write_new(path: Path, content: bytes | str, mode: int = 0o666) -> None:
    """Write a new key file; ConfigurationError if it exists or cannot be written."""
    try:
        write_durably(path, content, mode=mode, new=True)
    except FileExistsError:
        raise ConfigurationError(
            f"keys: {path} is there already and is not overwritten; name another file"
        ) from None
    except OSError as error:
        raise _unwritten(path, error) from None


def _unwritten(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"keys: {path} cannot be written: {error.strerror or error}")


def public_file(path: Path) -> Path:
    """Path of the public half of a key file."""
    return path.with_name(path.name + ".pub")


def read_public(path: Path) -> bytes:
    """Public key of a ``.pub`` file.

    ConfigurationError when the file cannot be read, or is no such key.
    """
    return read_public_keys(path)[0]


def read_public_keys(path: Path) -> tuple[bytes, bytes | None]:
    """Public keys of a ``.pub`` file: of the identity, and of the relay key if present.

    ConfigurationError if the file cannot be read, or has other content.
    """
    try:
        found = [bytes.fromhex(line) for line in path.read_text().split()]
    except (OSError, ValueError, UnicodeDecodeError):
        found = []
    if len(found) not in (1, 2) or any(len(key) != _KEY for key in found):
        raise ConfigurationError(
            f"keys: {path} is no public key; it should hold {2 * _KEY} hexadecimal digits, and on "
            "a second line as many of the key for relays. `securevfl keys public` writes it"
        )
    return found[0], found[1] if len(found) > 1 else None


@dataclass(frozen=True)
class ManifestEntry:
    """The entry of one party in a manifest.

    Attributes
    ----------
    public : bytes
        The party's identity.
    point : int or None
        Evaluation point of its shares (alpha), if the protocol has such points.
    relay : bytes or None
        Public key by which a relay admits the party (`Identity.relay`); without it the party can
        take part on a cluster only.
    """

    public: bytes
    point: int | None = None
    relay: bytes | None = None


@dataclass(frozen=True)
class Manifest:
    """List of a session's parties, valid once all of them have signed it.

    ConfigurationError without server or client, for a gap in the numbers, and for equal keys or
    points.

    Attributes
    ----------
    session : str
        A name that each party uses in one run (`securevfl.engine.security.used_sessions`).
    protocol : str
        Name of the protocol.
    entries : mapping of int to ManifestEntry
        Entries by party number; the server is -1.
    signatures : mapping of int to bytes
        Signatures by party number, as far as there are any; `check` verifies them.
    terms : mapping
        Further terms, as tables of a TOML file; their hash is signed. Empty if a driver starts the
        run.
    """

    session: str
    protocol: str
    entries: Mapping[int, ManifestEntry]
    signatures: Mapping[int, bytes] = field(default_factory=dict)
    terms: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        keys = [entry.public for entry in self.entries.values()]
        keys += [entry.relay for entry in self.entries.values() if entry.relay is not None]
        points = [entry.point for entry in self.entries.values() if entry.point is not None]
        if SERVER not in self.entries or len(self.entries) < 2:
            raise ConfigurationError("manifest: it needs a server and at least one party")
        if sorted(self.entries) != list(range(SERVER, len(self.entries) - 1)):
            raise ConfigurationError(
                f"manifest: parties must be numbered 0 to {len(self.entries) - 2}, they are "
                f"{sorted(set(self.entries) - {SERVER})}"
            )
        if len(set(keys)) < len(keys) or len(set(points)) < len(points):
            raise ConfigurationError(
                "manifest: two parties have the same key or the same point; each needs its own"
            )

    @cached_property  # each beacon that comes is held against it; nobody changes a manifest
    def statement(self) -> bytes:
        """Bytes that every party signs: the participants, and hashes of the terms."""
        hashes = [(name, _digest_of(value)) for name, value in sorted(self.terms.items())]
        return wire.encode((_WITH_TERMS, self._who, hashes)) if self.terms else self._who

    @property
    def _who(self) -> bytes:
        """Signed bytes on the participants; without relay keys, in the older format."""
        entries = sorted(self.entries.items())
        if all(entry.relay is None for _, entry in entries):
            rows = [(n, entry.public, entry.point) for n, entry in entries]
            return wire.encode((_STATEMENT, self.session, self.protocol, rows))
        full = [(n, entry.public, entry.point, entry.relay) for n, entry in entries]
        return wire.encode((_STATEMENT_WITH_RELAY, self.session, self.protocol, full))

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the statement; the session's handshakes and beacons are bound to it."""
        return hashlib.sha256(self.statement).digest()

    @property
    def token(self) -> str:
        """Name of the session on a relay: part of the digest, so the real name stays hidden."""
        return self.digest.hex()[:32]

    def signed(self, index: int, identity: Identity) -> Manifest:
        """The manifest with one more signature.

        ConfigurationError if the manifest has another identity or relay key for that party.
        """
        entry = self.entries.get(index)
        if entry is None or entry.public != identity.public:
            named = "nobody" if entry is None else fingerprint(entry.public)
            raise ConfigurationError(
                f"manifest: {name_of(index)} is {named} there, and this key is "
                f"{fingerprint(identity.public)}"
            )
        if entry.relay not in (None, identity.relay_public):
            raise ConfigurationError(
                f"manifest: the relay key of {name_of(index)} is not the one that follows from its "
                "key file; write the manifest from the .pub file that `securevfl keys public` makes"
            )
        return replace(self, signatures={**self.signatures, index: identity.sign(self.statement)})

    def with_signature(self, index: int, signature: bytes) -> Manifest:
        """The manifest with a signature made elsewhere; only `unsigned` checks it."""
        return replace(self, signatures={**self.signatures, index: signature})

    @property
    def unsigned(self) -> list[int]:
        """Parties whose signature is missing or wrong."""
        return [
            n
            for n, entry in sorted(self.entries.items())
            if not verifies(entry.public, self.signatures.get(n, b""), self.statement)
        ]

    def check(self) -> None:
        """Refuse a manifest without valid signatures of all parties.

        SealError names the parties that have not signed.
        """
        missing = self.unsigned
        if missing:
            raise SealError(
                f"manifest {self.session!r}: no valid signature of "
                f"{', '.join(map(name_of, missing))}; each signs with `securevfl keys sign`"
            )

    def has_signed(self, index: int, signature: bytes, statement: bytes) -> bool:
        """Whether a signature of a statement is that of a party's identity."""
        entry = self.entries.get(index)
        return entry is not None and verifies(entry.public, signature, statement)

    def write(self, path: Path) -> None:
        """Write the manifest as TOML.

        ConfigurationError when the file cannot be written.
        """
        try:
            write_durably(path, self.to_toml())
        except OSError as error:
            raise _unwritten(path, error) from None

    def to_toml(self) -> str:
        """Text of the manifest as a TOML file."""
        import tomli_w

        content: dict[str, object] = {
            "session": self.session,
            "protocol": self.protocol,
            "parties": [self._row(n) for n in sorted(self.entries)],
        }
        return tomli_w.dumps(content | ({"terms": dict(self.terms)} if self.terms else {}))

    def _row(self, index: int) -> dict[str, object]:
        entry = self.entries[index]
        row: dict[str, object] = {"party": "server" if index == SERVER else index}
        row |= {"key": entry.public.hex()}
        if entry.point is not None:
            row["point"] = str(entry.point)  # TOML's integers end at 2^63
        if entry.relay is not None:
            row["relay"] = entry.relay.hex()
        if index in self.signatures:
            row["signature"] = self.signatures[index].hex()
        return row

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Manifest from a file (inverse of `write`); `check` verifies the signatures.

        ConfigurationError when the file is no manifest.
        """
        try:
            text = path.read_text()
        except FileNotFoundError:
            raise ConfigurationError(
                f"manifest: there is no file {path}; check the path, or write one by "
                "`securevfl keys manifest`"
            ) from None
        except (OSError, ValueError) as error:
            why = (isinstance(error, OSError) and error.strerror) or error
            raise ConfigurationError(f"manifest: {path} cannot be read: {why}") from None
        return cls.from_toml(text, str(path))

    @classmethod
    def from_toml(cls, text: str, path: str) -> Manifest:
        """Manifest from TOML text (inverse of `to_toml`); `path` names the source in errors.

        ConfigurationError when the text is no manifest.
        """
        import tomllib

        try:
            content = tomllib.loads(text)
            rows = {
                SERVER if row["party"] == "server" else int(row["party"]): row
                for row in content["parties"]
            }
            if len(rows) < len(content["parties"]):
                raise ValueError("a party occurs twice")
            return cls(
                session=str(content["session"]),
                protocol=str(content["protocol"]),
                entries={
                    n: ManifestEntry(
                        bytes.fromhex(row["key"]),
                        int(row["point"]) if "point" in row else None,
                        bytes.fromhex(row["relay"]) if "relay" in row else None,
                    )
                    for n, row in rows.items()
                },
                signatures={
                    n: bytes.fromhex(row["signature"])
                    for n, row in rows.items()
                    if "signature" in row
                },
                terms=dict(content.get("terms", {})),
            )
        except (KeyError, TypeError, AttributeError, OverflowError, *NOT_PARSED) as error:
            if isinstance(error, ConfigurationError):
                raise
            why = f"it has no {error}" if isinstance(error, KeyError) else error
            raise ConfigurationError(
                f"manifest: {path} is no manifest: {why}; `securevfl keys manifest` writes one"
            ) from None


def _digest_of(value: object) -> bytes:
    """SHA-256 of a value from a TOML file, independent of the order of keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).digest()


def verifies(public: bytes, signature: bytes, statement: bytes) -> bool:
    """Whether a signature of a statement is by the owner of an Ed25519 public key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True
