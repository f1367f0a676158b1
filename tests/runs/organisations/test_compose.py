"""The example of containers: what it says is read, as there is no docker where tests run."""

import importlib.util
import re
from pathlib import Path

import pytest
from typer.main import get_command

from securevfl.cli.app import app
from securevfl.engine.network import SERVER
from securevfl.engine.security.identity import Identity, Manifest
from securevfl.runs.organisations.invitation import Invitation
from securevfl.runs.organisations.join import Member

yaml = pytest.importorskip("yaml")
EXAMPLE = Path(__file__).parents[3] / "examples" / "organisations"
ORGANISATIONS = {"labels": SERVER, "bank": 0, "shop": 1}


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((EXAMPLE / "compose.yml").read_text())


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    spec = importlib.util.spec_from_file_location("prepare", EXAMPLE / "prepare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path_factory.mktemp("example")
    return folder / "prepared", module.prepare(folder / "prepared")


def test_four_containers_have_no_route_but_to_the_relay(compose):
    services, networks = compose["services"], compose["networks"]
    assert set(services) == {"relay", *ORGANISATIONS}
    assert all(network == {"internal": True} for network in networks.values())  # no way out
    for name in ORGANISATIONS:
        service = services[name]
        [own] = service["networks"]
        assert [n for n, s in services.items() if own in s["networks"]] == ["relay", name]
        assert not {"ports", "network_mode", "links", "extra_hosts", "privileged"} & set(service)
        assert service["cap_drop"] == ["ALL"]
    assert set(services["relay"]["networks"]) == set(networks)
    assert "ports" not in services["relay"]


def test_each_container_has_its_own_folder_only(compose):
    volumes = [service["volumes"] for service in compose["services"].values()]
    assert sorted(volumes) == sorted(
        [[f"./prepared/{name}:/own"] for name in ORGANISATIONS] + [["./prepared/relay:/relay"]]
    )


def test_the_commands_are_ones_that_this_version_has(compose, prepared):
    folder, lines = prepared
    for name, service in compose["services"].items():
        program, *words = service["command"]
        assert program == "securevfl"
        words = [re.sub(r"\$\{(\w+)\}", lambda m: lines[m[1]], word) for word in words]
        command, context = get_command(app), None
        while hasattr(command, "commands") and words and words[0] in command.commands:
            context = command.make_context(command.name, words[:1], parent=context,
                                           resilient_parsing=True)  # fmt: skip
            command, words = command.get_command(context, words[0]), words[1:]
        made = command.make_context(command.name, words, parent=context)
        if name in ORGANISATIONS:
            assert Invitation.parse(made.params["invitation"]).index == ORGANISATIONS[name]
            for option in ("key", "data", "manifest"):
                given = made.params[option]
                assert given is None or (folder / name / given).is_file()


def test_what_is_prepared_lets_each_take_part(prepared):
    folder, lines = prepared
    manifest = Manifest.read(folder / "labels" / "session.toml")
    for name, n in ORGANISATIONS.items():
        key = folder / name / "own.key"
        invitation = Invitation.parse(lines[f"INVITATION_{'SERVER' if n == SERVER else n}"])
        assert invitation.check(manifest).entries[n].relay == Identity.read(key).relay_public
        assert invitation.relays[0].place == "relay:4222"
        given = {"key": key, "folder": folder / name / "session", "data": folder / name / "own.csv"}
        Member(manifest, n, **given).folder.store._lock.release()
    assert not (folder / "bank" / "session.toml").exists()  # the server sends it
