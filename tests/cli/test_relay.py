"""The command that sets up a relay, and the one that runs it."""

import json
import os
import re
import signal
import stat
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from securevfl.cli.app import app
from securevfl.engine.carriers.nats import RelayAddress, certificate_fingerprint
from securevfl.engine.security.identity import Manifest
from tests.engine.carriers.test_nats import free_port, real


def call(*words):
    return CliRunner().invoke(app, [*map(str, words)])


@pytest.fixture
def session(tmp_path):
    """Keys and a manifest, made by the commands."""
    for name in ("server", "0"):
        assert call("keys", "new", tmp_path / f"{name}.key").exit_code == 0
    made = call(
        "keys", "manifest", tmp_path / "m.toml", "--server", tmp_path / "server.key.pub",
        "--party", f"0={tmp_path / '0.key.pub'}",
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    return tmp_path


def init(folder, *more):
    return call(
        "relay", "init", folder / "m.toml", "--host", "relay.example.org", "--folder",
        folder / "relay", *more,
    )  # fmt: skip


def test_the_configuration_lets_each_key_speak_for_itself_only(session):
    manifest = Manifest.read(session / "m.toml")
    told = init(session, "--json")
    assert told.exit_code == 0, told.output
    summary = json.loads(told.stdout)
    address = RelayAddress.parse(summary["relay"])
    assert (address.host, address.port, summary["keys"]) == ("relay.example.org", 4222, "2")
    text = (session / "relay" / "relay.conf").read_text()
    allowed = re.findall(r"publish: {allow: \[(.*?)\]}, subscribe: {allow: \[(.*?)\]}", text)
    assert allowed == [
        (f'"svfl.{manifest.token}.{n}.*"', f'"svfl.{manifest.token}.*.{n}"') for n in ("server", 0)
    ]
    assert "jetstream" not in text
    assert "handshake_first: true" in text
    assert stat.S_IMODE((session / "relay" / "relay.key").stat().st_mode) == 0o600


def test_the_relay_s_key_stays_when_it_is_set_up_again(session):
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    first = init(session, "--json").stdout
    assert init(session, "--json").stdout == first
    other = json.loads(init(session, "--json", "--port", "4333").stdout)
    assert "once it is started again" in other["again"]
    assert "again" not in json.loads(init(session, "--json", "--port", "4333").stdout)
    made = x509.load_pem_x509_certificate((session / "relay" / "relay.pem").read_bytes())
    shown = certificate_fingerprint(made.public_bytes(Encoding.DER))
    assert RelayAddress.parse(json.loads(first)["relay"]).fingerprint == shown
    (session / "relay" / "relay.pem").write_text("nonsense")
    wrong = init(session)
    assert wrong.exit_code == 2
    assert "holds no certificate" in wrong.output


def test_public_files_of_old_versions_are_written_again(session):
    public = session / "0.key.pub"
    new = public.read_text()
    public.write_text(new.splitlines()[0] + "\n")
    (session / "m.toml").unlink()
    made = call(
        "keys", "manifest", session / "m.toml", "--server", session / "server.key.pub",
        "--party", f"0={public}",
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    told = init(session)
    assert told.exit_code == 2
    assert "no relay key of party 0" in told.output
    assert "securevfl keys public" in told.output
    assert call("keys", "public", session / "0.key").exit_code == 0
    assert public.read_text() == new


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--port", "0"), "1 to 65535"),
        (("--listen", '0.0.0.0"\nx: "'), "is no host"),
    ],
)
def test_what_cannot_be_is_refused(session, more, why):
    told = init(session, *more)
    assert told.exit_code == 2
    assert why in told.output
    assert not (session / "relay").exists()


def test_a_folder_without_a_relay_is_named(tmp_path):
    told = call("relay", "--folder", tmp_path)
    assert told.exit_code == 2
    assert "securevfl relay init" in told.output


@real
@pytest.mark.timeout(120)
def test_the_relay_runs_until_it_is_stopped(session):
    port = free_port()
    assert init(session, "--port", port, "--listen", "127.0.0.1").exit_code == 0
    command = [sys.executable, "-m", "securevfl", "relay", "--folder", str(session / "relay")]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        lines = []
        for line in running.stderr:
            lines.append(line)
            if "Server is ready" in line:
                break
        assert any(f"127.0.0.1:{port}" in line for line in lines), lines
    finally:
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=60)
    assert running.returncode in (0, 1, -signal.SIGTERM)
