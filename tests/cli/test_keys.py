"""The commands that make identities and manifests."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from securevfl.cli.app import app
from securevfl.engine.security.identity import Manifest
from securevfl.engine.security.words import WORDS, in_words


def call(*words):
    return CliRunner().invoke(app, ["keys", *map(str, words)])


@pytest.fixture
def names(tmp_path):
    for name in ("server", "party-0", "party-1"):
        assert call("new", tmp_path / f"{name}.key").exit_code == 0
    return tmp_path


def write(folder):
    return call(
        "manifest", folder / "m.toml", "--server", folder / "server.key.pub", "--party",
        f"0={folder / 'party-0.key.pub'}@4", "--party", f"1={folder / 'party-1.key.pub'}@5",
        "--session", "monday", "--protocol", "fedvs",
    )  # fmt: skip


def test_a_manifest_is_made_signed_and_checked(names):
    shown = write(names)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.count("not signed") == 3
    for who, key in (("server", "server"), ("0", "party-0"), ("1", "party-1")):
        before = call("check", names / "m.toml")
        assert before.exit_code != 0
        signed = call("sign", names / "m.toml", "--key", names / f"{key}.key", "--as", who)
        assert signed.exit_code == 0, signed.output
    last = call("check", names / "m.toml", "--json")
    assert last.exit_code == 0, last.output
    told = json.loads(last.stdout)
    public = call("show", names / "party-1.key.pub").stdout
    assert told["party 1"].split(",")[0] in public
    assert told["party 1"].endswith("point 5, signed")
    Manifest.read(names / "m.toml").check()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("new", "{0}/server.key"), "not overwritten"),
        (
            ("manifest", "{0}/m.toml", "--server", "{0}/server.key.pub", "--party", "x=y"),
            "write N=",
        ),
        (("manifest", "{0}/m.toml", "--server", "{0}/none.pub", "--party", "0=a.pub"), "no public"),
        (("sign", "{0}/m.toml", "--key", "{0}/server.key", "--as", "me"), "a party number"),
        (("sign", "{0}/none.toml", "--key", "{0}/server.key", "--as", "0"), "there is no file"),
        (("sign", "{0}/m2.toml", "--key", "{0}/server.key", "--as", "0"), "and this key is"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(names, words, said):
    write(names)
    (names / "m.toml").rename(names / "m2.toml")
    result = call(*(word.format(names) for word in words))
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert len(result.stderr.strip().splitlines()) == 1


def test_terms_are_shown_before_anybody_signs_them(names):
    made = call(
        "manifest", names / "t.toml", "--server", names / "server.key.pub", "--protocol", "split",
        *(f"--party={n}={names / f'party-{n}.key.pub'}" for n in range(2)), "--label", "bad",
        "--id", "customer", "--set", "rounds=7", "--set", "data.test_fraction=0.25", "--seed", "3",
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    shown = json.loads(call("check", names / "t.toml", "--json").stdout)
    assert shown["protocol"] == "split"
    assert shown["options"] == "rounds = 7, else the defaults of split"
    assert "label = bad, id_column = customer, test_fraction = 0.25" in shown["data"]
    assert "public seed 3" in shown["version"]
    assert "securevfl protocols split" in shown["who sees what"]
    # Parties sign when they join, and compare this before.
    assert call("check", names / "t.toml").exit_code == 0
    assert "nobody has to sign before" in shown["signatures"]
    assert shown["fingerprint"] == in_words(Manifest.read(names / "t.toml").digest)
    assert "UTC" in shown["begin by"]
    assert len(set(WORDS)) == 256
    assert shown["fingerprint"].count(" ") == 15


def test_what_others_wrote_steers_no_terminal(names, tmp_path):
    """A manifest made its own line of a fingerprint, and concealed the true one."""
    path = names / "t.toml"
    assert call("manifest", path, "--server", names / "server.key.pub", "--protocol", "split",
        *(f"--party={n}={names / f'party-{n}.key.pub'}" for n in range(2)), "--label", "bad",
        "--id", "customer").exit_code == 0  # fmt: skip
    manifest = Manifest.read(path)
    evil = "bad\x1b[8m\nfingerprint: SHA256:AAAA"
    terms = json.loads(json.dumps(manifest.terms).replace('"bad"', json.dumps(evil)))
    replace(manifest, terms=terms).write(tmp_path / "evil.toml")
    shown = call("check", tmp_path / "evil.toml").output
    assert "\x1b" not in shown
    assert [line for line in shown.splitlines() if line.startswith("fingerprint: ")] == [
        f"fingerprint: {in_words(Manifest.read(tmp_path / 'evil.toml').digest)}"
    ]


@pytest.mark.parametrize(
    ("protocol", "options", "said"),
    [
        ("fedvs", (), "2 parties are too few"),
        ("secagg_split", (), "at least max(t, T+2) = 3 must survive"),
        ("he_split", ("holder=2",), "the 2 clients are 0 to 1"),
        ("split", ("stragglers=ignore", "quorum=3"), "at most 2 clients"),
        ("fedonce", ("absent=zeros",), "needs a timeout"),
        ("wait_dp", ("noise_on=none",), "needs label_epsilon"),
        ("wait_dp", ("class_weights=balanced",), "more than the noise is made for"),
    ],
)
def test_terms_that_so_many_parties_cannot_meet_are_refused_when_they_are_written(
    names, protocol, options, said
):
    result = call(
        "manifest", names / "m.toml", "--server", names / "server.key.pub",
        *(f"--party={n}={names / f'party-{n}.key.pub'}" for n in range(2)), "--label", "y",
        "--id", "id", "--protocol", protocol, *(f"--set={option}" for option in options),
    )  # fmt: skip
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert not (names / "m.toml").exists()
