"""The connection to Ray: what it leaves of this process's own settings, and how it fails."""

import signal
import socket
import ssl
import threading
from types import SimpleNamespace

import pytest

from securevfl.engine.cluster.ray_connection import (
    _connected,
    _own_handler_of_sigterm,
    _preflight,
)
from securevfl.errors import ConfigurationError
from tests.engine.cluster.certificates import authority


def test_ray_does_not_take_sigterm_from_a_run_that_heeds_it():
    """Ray's handler exits at once, without a checkpoint."""

    def own(number, frame):
        raise AssertionError("nobody sends it here")

    before = signal.signal(signal.SIGTERM, own)
    try:
        with _own_handler_of_sigterm():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as ray.init does with its own
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("text", ["The current node timed out during startup.\nMore.", ""])
def test_a_cluster_that_does_not_start_is_told_in_one_line(monkeypatch, text):
    """Ray raises a bare Exception after three minutes on a busy machine."""

    def init(**options):
        raise Exception(text)

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # so that no token is drawn
    with pytest.raises(ConfigurationError, match="did not start a cluster") as caught:
        _connected(SimpleNamespace(init=init), None)
    assert "\n" not in str(caught.value)
    assert text.partition("\n")[0] in str(caught.value)


def test_certificates_that_grpc_takes_are_taken(monkeypatch, tmp_path):
    """Python 3.13 on its own asks an authority for key usage and identifier."""
    authority("127.0.0.1", folder=tmp_path)
    files = {"CA_CERT": "ca.crt", "SERVER_CERT": "node.crt", "SERVER_KEY": "node.key"}
    monkeypatch.setenv("RAY_USE_TLS", "1")
    for name, file in files.items():
        monkeypatch.setenv(f"RAY_TLS_{name}", str(tmp_path / file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "node.crt", tmp_path / "node.key")
    context.set_alpn_protocols(["h2"])

    def answer():
        with listening.accept()[0] as plain, context.wrap_socket(plain, server_side=True) as link:
            link.recv(64)
            link.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))  # the settings of HTTP/2
            link.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=answer, daemon=True)
        server.start()
        try:
            _preflight(f"127.0.0.1:{listening.getsockname()[1]}")
        finally:
            server.join(10)
