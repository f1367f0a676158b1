"""Organisations as processes of their own, from keys to models, over a real relay."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from securevfl.cli.app import app
from securevfl.engine.carriers.nats import RelayAddress
from securevfl.engine.security.identity import Manifest
from securevfl.engine.security.used_sessions import list_beside
from securevfl.errors import ConfigurationError
from securevfl.runs.organisations.invitation import Invitation
from securevfl.runs.organisations.terms import Terms
from tests.engine.carriers.test_nats import Relay, real

NAMES = ("server", "0", "1")
ROUNDS = 30


def call(*words):
    return CliRunner().invoke(app, [*map(str, words)])


@pytest.fixture(scope="module")
def organisations(tmp_path_factory):
    """Keys, tables and the manifest of two organisations and a server."""
    folder = tmp_path_factory.mktemp("organisations")
    for name in NAMES:
        assert call("keys", "new", folder / f"{name}.key").exit_code == 0
    digits = load_digits()
    for n in range(2):
        table = pd.DataFrame(digits.data[:120, n * 32 : (n + 1) * 32]).add_prefix("x")
        table.insert(0, "id", np.arange(120))
        table.sample(frac=1, random_state=n).to_csv(folder / f"{n}.csv", index=False)
    labels = pd.DataFrame({"id": np.arange(120), "digit": digits.target[:120]})
    labels.to_csv(folder / "server.csv", index=False)
    write_manifest(folder, "session.toml")
    return folder


CALLED = ("bank", "book shop")


def write_manifest(folder, name, *more, called=CALLED):
    made = call(
        "keys", "manifest", folder / name, "--protocol", "split", "--server",
        folder / "server.key.pub",
        *(f"--party={called[n]}={folder / f'{n}.key.pub'}" for n in range(2)),
        "--label", "digit", "--id", "id", "--set", f"rounds={ROUNDS}", "--set", "width=4",
        "--set", "data.test_fraction=0.2", *more,
    )  # fmt: skip
    assert made.exit_code == 0, made.output


@pytest.fixture
def relay(organisations, tmp_path):
    made = Relay(tmp_path, [Manifest.read(organisations / "session.toml")]).start()
    yield made
    made.kill()


def invitations(folder, address, name="session.toml"):
    told = call("invite", folder / name, "--relay", address, "--json")
    assert told.exit_code == 0, told.output
    return json.loads(told.stdout)


def command(folder, name, invitation, out):
    """Words of one organisation's only command."""
    manifest = ["--manifest", str(folder / "session.toml")] if name == "server" else []
    return [
        sys.executable, "-m", "securevfl", "party", "join", invitation, "--role", name,
        "--key", str(folder / f"{name}.key"), "--data", str(folder / f"{name}.csv"),
        "--out", str(out / name), "--json", *manifest,
    ]  # fmt: skip


@real
@pytest.mark.timeout(300)
def test_three_processes_train_and_one_is_killed_meanwhile(organisations, relay, tmp_path):
    lines = invitations(organisations, relay.address)
    lines = {name: lines[name if name == "server" else f"party {name}"] for name in NAMES}
    started = {}

    def start(name):
        words = command(organisations, name, lines[name], tmp_path)
        told = tmp_path / f"{name}.json"
        with told.open("wb") as out, (tmp_path / f"{name}.log").open("ab") as log:
            started[name] = subprocess.Popen(words, stdout=out, stderr=log)

    for name in NAMES:
        start(name)
    events = tmp_path / "server" / "events.jsonl"
    try:
        while not events.exists() or events.read_text().count('"name": "round"') < 3:
            assert started["server"].poll() is None, (tmp_path / "server.log").read_text()
            time.sleep(0.02)
        started["1"].send_signal(signal.SIGKILL)
        started["1"].wait()
        start("1")
        assert [one.wait() for one in started.values()] == [0, 0, 0]
    finally:
        for one in started.values():
            one.kill()
            one.wait()
    told = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in NAMES}
    assert told["server"]["rounds"] == ROUNDS
    assert told["server"]["train_loss"] < 2.3
    assert told["server"]["evaluation"] == "embeddings of test rows"
    open_ = [one for one in told["server"]["claims"] if "test rows" in one["source"]]
    assert [one["notion"] for one in open_] == ["none", "none"]
    assert told["1"]["party"] == 1
    assert "Compare this fingerprint" in (tmp_path / "0.log").read_text()
    assert (tmp_path / "1" / "party-1.npz").exists()
    out = tmp_path / "report.html"
    assert call("report", *(tmp_path / name for name in NAMES), "--out", out).exit_code == 0
    assert out.stat().st_size > 10_000
    assert "book shop" in out.read_text()
    said = "".join((tmp_path / f"{name}.log").read_text() for name in NAMES)
    assert "parties: bank, book shop" in said
    assert "party 1" not in said.replace("book shop (party 1)", "")


def refused(words):
    """The one line by which a command is refused."""
    done = call(*words)
    assert done.exit_code != 0
    [line] = [line for line in done.output.splitlines() if line.startswith("securevfl: ")]
    return line


def join_words(folder, invitation, out, *, name="0", **changed):
    words = command(folder, name, invitation, out)[3:]
    for flag, value in changed.items():
        words[words.index(f"--{flag}") + 1] = str(value)
    return words


@real
def test_another_relay_and_another_key_are_refused_within_three_seconds(
    organisations, relay, tmp_path
):
    for used in organisations.glob("*.sessions"):  # of another test's session
        used.unlink()
    line = invitations(organisations, relay.address)["party 0"]
    key = relay.address.fingerprint
    mistyped = key[:-1] + ("1" if key[-1] == "0" else "0")
    for digits in ("a" * 64, mistyped):
        wrong = str(relay.address).replace(key, digits)
        told = refused(join_words(organisations, line.replace(str(relay.address), wrong), tmp_path))
        assert "another relay" in told
        assert digits in told
    stranger = tmp_path / "stranger.key"
    call("keys", "new", stranger)
    assert "does not let this party in" in refused(
        join_words(organisations, line, tmp_path, key=stranger)
    )
    other = organisations / "1.key"
    assert "(it knows the key, but not for this session and party)" in refused(
        join_words(organisations, line, tmp_path, key=other)
    )


@real
def test_an_invitation_to_another_manifest_is_refused_within_three_seconds(
    organisations, relay, tmp_path
):
    """The relay knows nothing of it, and a manifest that is given is compared."""
    write_manifest(tmp_path_of(organisations), "other.toml", "--set", "lr=0.5")
    line = invitations(organisations, relay.address, "other.toml")["party 0"]
    assert "set up from another manifest" in refused(join_words(organisations, line, tmp_path))
    given = [*join_words(organisations, line, tmp_path), "--manifest",
             organisations / "session.toml"]  # fmt: skip
    assert "this one of session" in refused(given)


def tmp_path_of(folder):
    (folder / "other.toml").unlink(missing_ok=True)
    return folder


def test_a_table_that_is_not_there_is_refused_before_anybody_is_waited_for(organisations, tmp_path):
    line = invitations(organisations, "127.0.0.1:1#" + "a" * 64)["party 0"]
    words = join_words(organisations, f"bank (party 0): {line}", tmp_path, data=tmp_path / "no.csv")
    assert "no.csv is no file; name your table with --data" in refused(words)


def test_an_old_session_and_another_version_are_refused_at_once(
    organisations, tmp_path, monkeypatch
):
    address = "127.0.0.1:1#" + "a" * 64
    line = invitations(organisations, address)["party 0"]
    words = [*join_words(organisations, line, tmp_path), "--manifest",
             organisations / "session.toml"]  # fmt: skip
    sessions = organisations / "0.key.sessions"
    before = sessions.read_text() if sessions.exists() else None
    from securevfl.engine.security.used_sessions import use_session

    session = Manifest.read(organisations / "session.toml").session
    if before is None:
        use_session(sessions, session, "an earlier run")
    assert "was used in another run" in refused(words)
    if before is None:
        sessions.unlink()
    monkeypatch.setattr("securevfl.runs.organisations.terms.__version__", "9.9.9")
    assert "of version" in refused(words)


def test_a_full_disk_is_said_and_what_to_do(organisations, tmp_path, monkeypatch):
    line = invitations(organisations, "127.0.0.1:1#" + "a" * 64)["party 0"]

    async def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("securevfl.runs.organisations.join.obtain_manifest", full)
    found = call(*join_words(organisations, line, tmp_path))
    assert found.exit_code == 1
    wanted = "0 could not be written: No space left on device. What was whole is kept"
    assert wanted in " ".join(found.output.split())


def test_invitations_are_read_back_and_hold_no_secret(organisations):
    address = "relay.example.org:4222#" + "a" * 64
    found = invitations(organisations, address)
    assert set(found) == {"server", "party 0", "party 1", "fingerprint"}
    invitation = Invitation.parse(found["party 1"])
    assert str(invitation) == found["party 1"]
    assert invitation.relays == (RelayAddress.parse(address),)
    assert invitation.fingerprint == found["fingerprint"]
    manifest = Manifest.read(organisations / "session.toml")
    assert invitation.check(manifest) == manifest
    assert invitation.token == manifest.token
    for name in NAMES:
        secret = (organisations / f"{name}.key").read_text().splitlines()[1]
        assert secret not in str(found)


@pytest.mark.parametrize("text", ["", "svfl1/0", "svfl2/0/" + "a" * 64 + "/s/h:1#" + "a" * 64,
                                  "svfl1/x/" + "a" * 64 + "/s/h:1#" + "a" * 64])  # fmt: skip
def test_what_is_no_invitation_is_refused(text):
    with pytest.raises(ConfigurationError, match=r"invitation|relay"):
        Invitation.parse(text)


@pytest.mark.parametrize("text", ["", " ", "session.toml", "svfl9/0/a/b/c"])
def test_what_is_no_invitation_is_said_to_be_none_in_words(text):
    with pytest.raises(ConfigurationError, match=r"is none; give the whole line .* with svfl1/$"):
        Invitation.parse(text)


def test_padding_is_a_term_that_all_sign(organisations, tmp_path):
    files = (organisations / "session.toml", tmp_path / "padded.toml")
    write_manifest(organisations, files[1], "--padded")
    assert [Terms.of(Manifest.read(file)).padded for file in files] == [False, True]
    words = [
        "keys", "manifest", tmp_path / "x.toml", "--padded", "--server",
        organisations / "server.key.pub", "--party", f"0={organisations / '0.key.pub'}",
    ]  # fmt: skip
    assert "--padded need --label or --data" in refused(words)


def test_roles_and_terms_are_checked(organisations, tmp_path):
    line = invitations(organisations, "h:1#" + "a" * 64)["party 0"]
    assert "--role is 1" in refused(join_words(organisations, line, tmp_path, role="1"))
    plain = tmp_path / "plain.toml"
    made = call("keys", "manifest", plain, "--server", organisations / "server.key.pub",
                "--party", f"0={organisations / '0.key.pub'}")  # fmt: skip
    assert made.exit_code == 0
    assert "no terms" in refused(["invite", plain, "--relay", "h:1#" + "a" * 64])
    assert "need --label or --data" in refused(
        ["keys", "manifest", tmp_path / "x.toml", "--set", "rounds=3", "--server",
         organisations / "server.key.pub", "--party", f"0={organisations / '0.key.pub'}"]
    )  # fmt: skip
    assert os.path.exists(plain)


def test_parties_have_the_names_of_the_manifest(organisations):
    address = "relay.example.org:4222#" + "a" * 64
    told = call("invite", organisations / "session.toml", "--relay", address).stdout
    assert [line.partition(": ")[0] for line in told.splitlines()] == [
        *("server", "bank (party 0)", "book shop (party 1)", "fingerprint")
    ]
    checked = call("keys", "check", organisations / "session.toml").stdout
    assert "book shop (party 1): SHA256:" in checked
    assert "parties: bank, book shop" in checked
    manifest = Manifest.read(organisations / "session.toml")
    others = replace(manifest, terms=manifest.terms | {"names": ["bank", "thief"]})
    assert others.digest != manifest.digest


@pytest.mark.parametrize(
    ("called", "said"),
    [
        (("bank", "bank"), "2 parties have 1 different names"),
        (("bank", "1"), "write N=FILE.key.pub, or N=FILE.key.pub@POINT; or NAME=FILE"),
        (("bank", "server"), "cannot be called 'server'"),
        (("bank", "party 0"), "cannot be called 'party 0'"),
        (("bank", "\x1b[2J"), "cannot be called"),
        (("bank", "x" * 41), "a name has 1 to 40 characters"),
    ],
)
def test_names_that_mislead_are_refused_when_the_manifest_is_written(organisations, called, said):
    words = (f"--party={called[n]}={organisations / f'{n}.key.pub'}" for n in range(2))
    told = call("keys", "manifest", organisations / "no.toml", "--protocol", "split", "--server",
                organisations / "server.key.pub", *words, "--label", "digit")  # fmt: skip
    assert told.exit_code == 2
    assert said in told.stderr
    assert not (organisations / "no.toml").exists()


def test_hostile_names_are_refused_by_who_reads_them(organisations, tmp_path):
    manifest = Manifest.read(organisations / "session.toml")
    hostile = replace(manifest, terms=manifest.terms | {"names": ["bank", "\x1b[2J"]})
    with pytest.raises(ConfigurationError, match="cannot be called"):
        Terms.of(hostile)
    hostile.write(tmp_path / "hostile.toml")
    told = call("keys", "check", tmp_path / "hostile.toml")
    assert told.exit_code == 2
    assert "\x1b[2J" not in told.output


def test_a_party_is_shown_the_terms_and_what_sums_tell_before_it_signs(
    organisations, tmp_path, monkeypatch
):
    assert call("keys", "new", organisations / "2.key").exit_code == 0
    made = call(
        *("keys", "manifest", organisations / "asked.toml", "--protocol", "secagg_split"),
        *("--server", organisations / "server.key.pub", "--label", "digit", "--id", "id"),
        *(f"--party={n}={organisations / f'{n}.key.pub'}" for n in range(3)),
        *("--set", "width=4", "--set", "batch=24"),
    )
    assert made.exit_code == 0, made.output
    address = "relay.example.org:4222#" + "0" * 64
    line = invitations(organisations, address, "asked.toml")["server"]
    words = [
        *("party", "join", line, "--key", organisations / "server.key"),
        *("--data", organisations / "server.csv", "--out", tmp_path / "own"),
        *("--manifest", organisations / "asked.toml"),
    ]
    monkeypatch.setattr("securevfl.cli.party._agrees", lambda: False)
    done = call(*words)
    assert done.exit_code == 2
    terms, _, last = done.stderr.partition("Compare this fingerprint")
    assert "sums: each decoded sum gives h = 4 equations" in terms
    assert "securevfl: party: nothing was signed." in last
    assert not list_beside(organisations / "server.key").exists()
    asked = []
    monkeypatch.setattr(
        "securevfl.runs.organisations.join.join",
        lambda *_, agree, **__: asked.append(agree()) or {"session": "s"},
    )
    assert [call(*words, *more, "--json").exit_code for more in ((), ("--yes",))] == [0, 0]
    assert asked == [False, True]
