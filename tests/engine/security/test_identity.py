"""Identities, manifests, and incarnations that only their identities can introduce."""

import errno
import os
import stat
from dataclasses import replace

import pytest

from securevfl.engine.network import SERVER
from securevfl.engine.security.identity import (
    Identity,
    Manifest,
    fingerprint,
    public_file,
    read_public,
    read_public_keys,
)
from securevfl.engine.security.identity import (
    ManifestEntry as Entry,
)
from securevfl.errors import ConfigurationError, SealError


@pytest.fixture(scope="module")
def identities(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    return {n: Identity.create(folder / f"{n}.key") for n in (SERVER, 0, 1)}


@pytest.fixture(scope="module")
def manifest(identities):
    entries = {
        n: Entry(who.public, None if n == SERVER else n + 3) for n, who in identities.items()
    }
    made = Manifest("session", "fedvs", entries)
    for n, who in identities.items():
        made = made.signed(n, who)
    return made


def test_a_key_file_is_its_owner_s_alone(tmp_path):
    path = tmp_path / "a.key"
    made = Identity.create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Identity.read(path).public == made.public == read_public(public_file(path))
    with pytest.raises(ConfigurationError, match="not overwritten"):
        Identity.create(path)
    os.chmod(path, 0o640)
    with pytest.raises(ConfigurationError, match="mode 0640, so others may read it"):
        Identity.read(path)


def test_a_full_disk_leaves_no_half_key(tmp_path, monkeypatch):
    """An empty file stood there, and blocked its name."""
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigurationError, match=r"a\.key cannot be written: No space left"):
        Identity.create(tmp_path / "a.key")
    monkeypatch.undo()
    assert not list(tmp_path.iterdir())
    made = Identity.create(tmp_path / "a.key")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigurationError, match=r"a\.key\.pub cannot be written: No space left"):
        made.write_public(public_file(tmp_path / "a.key"))
    assert read_public(public_file(tmp_path / "a.key")) == made.public


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_another_s_public_key_is_not_overwritten(tmp_path, identities):
    theirs = public_file(tmp_path / "bank.key")
    identities[0].write_public(theirs)
    before = theirs.read_text()
    with pytest.raises(ConfigurationError, match=r"bank\.key\.pub is there already and is not"):
        Identity.create(tmp_path / "bank.key")
    with pytest.raises(ConfigurationError, match="holds another key"):
        identities[1].write_public(theirs)
    assert theirs.read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["bank.key.pub"]
    identities[0].write_public(theirs)  # its own may be written again


def test_what_is_no_key_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Identity.read(tmp_path / "none.key")
    path = tmp_path / "b.key"
    path.write_text("nonsense")
    os.chmod(path, 0o600)
    with pytest.raises(ConfigurationError, match="holds no Ed25519 key"):
        Identity.read(path)
    with pytest.raises(ConfigurationError, match="is no public key"):
        read_public(path)


def test_fingerprints_are_those_of_the_bytes():
    # `printf '\\0%.0s' {1..32} | openssl dgst -sha256 -binary | base64`
    assert fingerprint(bytes(32)) == "SHA256:Zmh6rfhivXdsj8GLjp+OIAiXFIVu4jOzkCpZHQ1fKSU"


def test_a_manifest_counts_when_all_have_signed_it_as_it_stands(manifest, identities, tmp_path):
    manifest.check()
    path = tmp_path / "session.toml"
    manifest.write(path)
    assert Manifest.read(path) == manifest
    entries = dict(manifest.entries)
    for changed in (
        replace(manifest, session="another"),
        replace(manifest, protocol="split"),
        replace(manifest, entries={**entries, 0: Entry(entries[0].public, 9)}),
        replace(
            manifest,
            entries={
                **entries,
                0: Entry(entries[1].public, 9),
                1: Entry(entries[0].public),
            },
        ),
    ):
        with pytest.raises(SealError, match="no valid signature of the server, party 0, party 1"):
            changed.check()
    partly = replace(manifest, signatures={n: manifest.signatures[n] for n in (SERVER, 1)})
    with pytest.raises(SealError, match="no valid signature of party 0; each signs"):
        partly.check()
    with pytest.raises(ConfigurationError, match="party 1 is SHA256:"):
        manifest.signed(1, identities[0])


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({0: Entry(b"a" * 32)}, "needs a server"),
        ({SERVER: Entry(b"s" * 32), 1: Entry(b"a" * 32)}, "numbered 0 to 0"),
        ({SERVER: Entry(b"a" * 32), 0: Entry(b"a" * 32)}, "same key"),
        (
            {
                SERVER: Entry(b"s" * 32),
                0: Entry(b"a" * 32, 4),
                1: Entry(b"b" * 32, 4),
            },
            "same point",
        ),
    ],
)
def test_manifests_that_cannot_be_are_refused(entries, said):
    with pytest.raises(ConfigurationError, match=said):
        Manifest("s", "fedvs", entries)


@pytest.mark.parametrize("text", ["", "session = 1", "parties = 3", "[", "session='s'\nparties=[]"])
def test_files_that_are_no_manifest_are_refused(tmp_path, text):
    path = tmp_path / "m.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"m\.toml is no manifest: .*keys manifest"):
        Manifest.read(path)


def test_a_manifest_that_is_not_there_is_named_in_words(tmp_path):
    with pytest.raises(ConfigurationError, match=r"there is no file .*m\.toml; check") as caught:
        Manifest.read(tmp_path / "m.toml")
    assert "Errno" not in str(caught.value)
    with pytest.raises(ConfigurationError, match=r"cannot be read: Is a directory"):
        Manifest.read(tmp_path)


def with_relay(identities):
    entries = {n: Entry(who.public, relay=who.relay_public) for n, who in identities.items()}
    return Manifest("session", "fedvs", entries)


def test_the_relay_key_follows_from_the_identity_and_is_another(identities, tmp_path):
    who = identities[0]
    assert who.relay_public == who.relay_public != who.public
    assert who.relay_public != identities[1].relay_public
    nonce = b"a nonce that a relay chose"
    assert who.relay.sign(nonce) != who.sign(nonce)
    who.write_public(tmp_path / "0.pub")
    assert read_public_keys(tmp_path / "0.pub") == (who.public, who.relay_public)
    (tmp_path / "old.pub").write_text(who.public.hex() + "\n")
    assert read_public_keys(tmp_path / "old.pub") == (who.public, None)


def test_relay_keys_are_signed_and_survive_the_file(identities, tmp_path):
    made = with_relay(identities)
    for n, who in identities.items():
        made = made.signed(n, who)
    made.write(tmp_path / "m.toml")
    read = Manifest.read(tmp_path / "m.toml")
    assert read == made
    read.check()
    changed = replace(read.entries[0], relay=bytes(32))
    with pytest.raises(SealError, match="no valid signature"):
        replace(read, entries={**read.entries, 0: changed}).check()


def test_the_statement_of_a_manifest_without_relay_keys_is_that_of_old_versions(manifest):
    assert b"securevfl manifest 1" in manifest.statement
    assert manifest.statement != replace(manifest, session="other").statement


def test_a_relay_key_that_does_not_follow_from_the_identity_is_not_signed(identities):
    made = with_relay(identities)
    foreign = replace(made.entries[0], relay=bytes(32))
    with pytest.raises(ConfigurationError, match="relay key of party 0 is not the one"):
        replace(made, entries={**made.entries, 0: foreign}).signed(0, identities[0])


def test_a_relay_key_that_is_also_an_identity_is_refused(identities):
    entries = dict(with_relay(identities).entries)
    entries[0] = replace(entries[0], relay=entries[1].public)
    with pytest.raises(ConfigurationError, match="same key"):
        Manifest("session", "fedvs", entries)
