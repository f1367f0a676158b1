"""Connection to a Ray cluster, which fails within seconds if it cannot be made."""

from __future__ import annotations

import os
import secrets
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from securevfl.errors import ConfigurationError, needs

_SECONDS = 3.0  # in which a cluster must answer


def connect(address: str | None) -> Any:
    """The Ray module, connected; without an address a cluster starts on this machine.

    Ray listens on all network interfaces, and anybody who may submit work to a cluster can run code
    as its user. So a cluster started by this function requires a token, random unless RAY_AUTH_MODE
    is set. The token is in RAY_AUTH_TOKEN of this process, which its workers inherit. If Ray is
    connected already, nothing is done. ConfigurationError if Ray is not installed, or no cluster
    answers at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    needs("engine: 'ray'", "ray", "ray")
    import ray

    if ray.is_initialized():
        return ray
    with _own_handler_of_sigterm():
        return _connected(ray, address)


def node_address() -> str:
    """Address of this machine within the cluster, in a process of Ray."""
    import ray

    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


@contextmanager
def _own_handler_of_sigterm() -> Iterator[None]:
    """Context that restores this process's handler of SIGTERM, which Ray replaces."""
    own = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        main = threading.current_thread() is threading.main_thread()
        if main and callable(own):
            signal.signal(signal.SIGTERM, own)


def _connected(ray: Any, address: str | None) -> Any:
    """The Ray module after connecting; ConfigurationError if no cluster lets it in or starts."""
    options: dict[str, Any] = {
        "log_to_driver": False,
        "include_dashboard": False,
        "logging_level": "ERROR",
        "configure_logging": False,
    }
    if address is None:
        _ask_for_a_token()
        try:
            ray.init(address="local", num_cpus=os.cpu_count(), **options)  # never one that is about
        except Exception as error:  # Ray raises that very class
            why = str(error).strip().partition("\n")[0]
            raise ConfigurationError(
                f"engine: Ray did not start a cluster on this machine ({why}). A busy machine "
                "may be too slow for it: try again, or give address= of a cluster that runs"
            ) from None
        return ray
    _preflight(address)
    options.pop("include_dashboard")
    try:
        _ask_once(address)
        ray.init(address=address, **options)
    except (ConnectionError, RuntimeError, ray.exceptions.AuthenticationError) as error:
        said = str(error).splitlines()[0].partition(". ")[0]
        raise ConfigurationError(
            f"engine: the Ray cluster at {address!r} did not let this process in ({said}); "
            "RAY_AUTH_MODE and RAY_AUTH_TOKEN must be those of the cluster"
        ) from None
    return ray


def _ask_once(address: str) -> None:
    """Send a request that fails at once without the cluster's token (Ray retries 20 seconds)."""
    from importlib import import_module

    from ray.exceptions import RpcError

    client = import_module("ray._raylet").GcsClient(address=address)
    with suppress(RpcError):  # whatever else is wrong Ray tells
        client.internal_kv_keys(b"", namespace=b"securevfl", timeout=_SECONDS)


def _ask_for_a_token() -> None:
    """Protect a cluster started by this process with a random token."""
    from importlib import import_module

    if "RAY_AUTH_MODE" in os.environ:
        return
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    # Ray read the mode when it was imported, which may be long ago.
    import_module("ray._raylet").Config.initialize("")


# A client's first words to a gRPC server: the preface of HTTP/2, and no settings of its own.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS = 4  # type of the frame that a server answers with


def _preflight(address: str) -> None:
    """Raise ConfigurationError if no Ray cluster answers; Ray itself would try for a minute."""
    import socket

    host, _, port = address.rpartition(":")
    try:
        with (
            socket.create_connection((host, int(port)), timeout=_SECONDS) as plain,
            _wrapped(plain) as link,
        ):
            link.sendall(_PREFACE)
            answer = link.recv(9)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"engine: no Ray cluster answers at {address!r} within {_SECONDS:g} s ({error}); start "
            "one with `ray start --head`, give HOST:PORT, and the cluster's own RAY_USE_TLS and "
            "certificates"
        ) from None
    if len(answer) < 4 or answer[3] != _SETTINGS:
        raise ConfigurationError(
            f"engine: what listens at {address!r} is no Ray cluster, or one that speaks TLS; set "
            "RAY_USE_TLS=1 and RAY_TLS_SERVER_CERT, RAY_TLS_SERVER_KEY and RAY_TLS_CA_CERT as its "
            "nodes do"
        )


def _wrapped(plain: Any) -> Any:
    """The connection, wrapped in TLS if Ray is configured for it."""
    import ssl

    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return plain
    context = ssl.create_default_context(cafile=os.environ.get("RAY_TLS_CA_CERT"))
    # As gRPC within a cluster: the authority is what counts, and needs no key usage or identifier,
    # which Python asks for from 3.13 on.
    context.check_hostname = False
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    certificate = os.environ.get("RAY_TLS_SERVER_CERT")
    if certificate:
        context.load_cert_chain(certificate, os.environ.get("RAY_TLS_SERVER_KEY"))
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(plain)
