"""Names of parties on the command line: in tables, messages, errors and reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import securevfl as svfl
from securevfl.report.loading import read_records
from securevfl.report.page import render
from securevfl.report.reproduce import how_to_reproduce
from securevfl.report.timeline import timeline
from tests.cli.calls import call, table, write

TINY = ("--rounds", "3", "--width", "4", "--hidden", "4", "--batch", "16")


def three_files(*named: str) -> tuple[str, ...]:
    """Options for three parties' files, of which some have another name than their file's."""
    write("bank.csv", table())
    for name in ("shop", "telecom"):
        rows = "".join(f"{k},{k % 5},{k % 3}\n" for k in range(40))
        write(f"{name}.csv", f"id,{name}1,{name}2\n{rows}")
    files = [(next((f"{n}=" for n in named if n[:2] == name[:2]), "") + f"{name}.csv")
             for name in ("bank", "shop", "telecom")]  # fmt: skip
    return (*(word for file in files for word in ("--party", file)), "--id", "id", "--label", "y")


def run(protocol: str, *arguments: str, files: tuple[str, ...]) -> str:
    result = call("run", protocol, *files, *TINY, "--conditions", "none", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_files_name_their_parties():
    shown = run("split", "--out", "mine", "--verbose", files=three_files())
    assert "3: bank, shop, telecom" in " ".join(shown.split())
    summary = json.loads(Path("mine/summary.json").read_text())
    assert summary["party_names"] == ["bank", "shop", "telecom"]
    assert summary["dataset"] == "bank+shop+telecom"
    traced = call("trace", "mine", "--from", "shop", "--to", "server", "--first", "1").stdout
    assert "shop" in traced
    assert "party-" not in traced


def test_a_party_can_have_another_name_than_its_file():
    run("split", "--out", "mine", files=three_files("telco"))
    config = svfl.load_run("mine")
    assert config.protocol.data.party_names == ("bank", "shop", "telco")
    (record,) = read_records([Path("mine")])
    words = how_to_reproduce(record.config).words
    assert [word.partition("=")[0] for word in words if "telecom" in word] == ["telco"]
    page = render([record])
    assert "3 parties (bank, shop, telco)" in page
    assert "0, 1, ... are the parties" not in page
    lanes = (timeline(record) or {})["lanes"]
    assert [lane["name"] for lane in lanes] == ["server", "bank", "shop", "telco"]


def test_names_change_no_result():
    """Names are seen by people only: histories and messages are those of other names."""
    run("split", "--out", "one", files=three_files())
    run("split", "--out", "other", files=three_files("telco", "shopping"))
    for name in ("history.jsonl", "messages.csv"):
        assert Path("one", name).read_bytes() == Path("other", name).read_bytes()


def test_parties_without_names_are_numbered():
    result = call("run", "split", *TINY, "--parties", "3", "--out", "mine", "--conditions", "none")
    assert result.exit_code == 0
    assert "party_names" not in json.loads(Path("mine/summary.json").read_text())
    assert "party-1" in call("trace", "mine", "--from", "1").stdout
    assert "write party-0 to party-2, or server" in call("trace", "mine", "--from", "bank").stderr


def test_errors_of_a_run_name_parties():
    few = ("--stragglers", "skip", "--timeout", "0.0001", "--conditions", "paper")
    result = call("run", "split", *three_files("telco"), *TINY, *few)
    assert result.exit_code == 1
    assert "bank (party 0), shop (party 1), telco (party 2)" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--party", "a=x.csv", "--party", "a=y.csv"], "two --party options are called 'a'"),
        (["--party", "x.csv", "--party", "x=y.csv"], "two --party options are called 'x'"),
        (["--party", "=x.csv"], "write NAME=FILE.csv"),
        (["--party", "bank="], "write NAME=FILE.csv"),
    ],
)
def test_names_that_cannot_be(arguments, part):
    result = call("run", "split", *arguments, "--label", "y", "--id", "k")
    assert result.exit_code == 2
    assert part in result.stderr


def test_a_file_whose_name_has_an_equals_sign_is_a_file():
    files = three_files()
    Path("telecom.csv").rename("a=b.csv")
    shown = run("split", "--verbose", files=(*files[:5], "a=b.csv", *files[6:]))
    assert "3: bank, shop, a=b" in " ".join(shown.split())
