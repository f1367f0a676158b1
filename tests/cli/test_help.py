"""What the command line says of itself: help pages, protocols, data sets."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest
import typer

from securevfl.cli import run as start
from securevfl.cli.app import TABLE, Commands
from securevfl.cli.options import described
from securevfl.protocols.base.defaults import ADVANCED
from securevfl.protocols.base.registry import find_protocols
from tests.cli.calls import call
from tests.golden.fixed import commands, page_of


def test_the_line_of_a_command_is_what_its_own_page_begins_with():
    for name, command in Commands().items():
        assert TABLE[name][1] == " ".join(command.help.split("\n\n")[0].split()), name


def test_every_command_stands_in_the_table():
    for module in {module for module, _ in TABLE.values()}:
        own = import_module(f"securevfl.cli.{module}")
        part = typer.Typer()
        own.register(part)
        made = {*typer.main.get_group(part).commands, *getattr(own, "COMMANDS", ())}
        assert made == {name for name, (place, _) in TABLE.items() if place == module}


@pytest.mark.parametrize("name", list(find_protocols()))
def test_help_lists_every_option_with_its_description(name):
    text = " ".join(call("run", name, "--help-all").stdout.replace("│", " ").split())
    for field, info in find_protocols()[name].Config.model_fields.items():
        assert f"--{field.replace('_', '-')}" in text
        assert " ".join(described(info).replace("\\[", "[").split()) in text


@pytest.mark.parametrize("command", ["run", "plan", "verify", "compare"])
def test_help_folds_advanced_options_away(command):
    name = [] if command == "compare" else ["fedvs"]
    short, whole = (call(command, *name, flag).stdout for flag in ("--help", "--help-all"))
    assert "--momentum" not in short
    assert "--max-attempts" not in short
    assert "--segments" in short
    assert "--help-all" in short
    assert "--momentum" in whole
    assert "Advanced: options of" in whole
    assert "--secret-seed" not in short


#: Lines of the longest first pages: a screen, and for two methods with many options a bit more.
SCREEN, LONGEST = 61, 68


def test_a_first_page_is_about_one_screen():
    sizes = {path: len(page_of(path).read_text().splitlines()) for path in commands()}
    assert max(sizes.values()) <= LONGEST
    assert sum(size > SCREEN for size in sizes.values()) <= 4


def test_a_first_page_has_the_first_clause_of_each_text():
    text = call("run", "fedvs", "--help").stdout
    for line in ("--width INTEGER             Width h of an embedding. [0]", "--secure/no-secure"):
        assert line in text
    assert "Delays and bandwidth.\n none|paper|FILE.toml" in text.replace("  ", "")
    assert "are stragglers" not in text


def test_every_advanced_option_is_one_of_some_protocol():
    known = {key for cls in find_protocols().values() for key in cls.Config.model_fields}
    assert known >= ADVANCED


@pytest.mark.parametrize("name", list(find_protocols()))
def test_every_option_is_understood_as_a_flag(name, monkeypatch):
    started: dict[str, Any] = {}
    monkeypatch.setattr(start, "start", lambda *arguments: started.update(arguments[2]))
    fields = find_protocols()[name].Config.model_fields
    words = []
    for field, info in fields.items():
        words += [f"--{field.replace('_', '-')}", *([] if info.annotation is bool else ["7"])]
    result = call("run", name, *words)
    assert result.exit_code == 0, result.output
    assert {field: started[field] in ("7", 7, True) for field in fields} == dict.fromkeys(
        fields, True
    )


def test_help_names_all_protocols():
    text = call("run", "--help").stdout
    assert all(name in text for name in find_protocols())


def test_help_of_the_whole():
    for arguments in ([], ["--help"]):
        result = call(*arguments)
        assert result.exit_code == 0
        for command in ("run", "resume", "datasets", "protocols", "bench"):
            assert command in result.stdout


def test_version():
    from securevfl import __version__

    text = call("--version").stdout
    assert text.startswith(f"securevfl {__version__} (Python 3.")
    assert text.count("\n") == 1
    assert "kernels " in text


def test_protocols_as_json():
    found = json.loads(call("protocols", "--json").stdout)["protocols"]
    assert [entry["name"] for entry in found] == list(find_protocols())
    fedvs = next(entry for entry in found if entry["name"] == "fedvs")
    assert fedvs["options"]["privacy"]["default"] == 1
    assert "server" in fedvs["sees"]


def test_a_card_shows_what_each_role_sees():
    text = call("protocols", "fedvs").stdout
    for part in ("What each sees", "server + 1 client", "Departures from the paper"):
        assert part in text


def test_datasets():
    text = call("datasets").stdout
    assert "digits" in text
    assert "1,797" in text
    found = {
        entry["name"]: entry for entry in json.loads(call("datasets", "--json").stdout)["datasets"]
    }
    assert found["digits"]["available"] is True
    assert json.loads(call("datasets", "digits", "--json").stdout) == found["digits"]
    assert "licence" in call("datasets", "digits").stdout
