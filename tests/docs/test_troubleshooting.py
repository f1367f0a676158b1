"""Errors in docs/troubleshooting.md are those of the program.

``python -m tests.docs.test_troubleshooting`` writes them anew.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
import textwrap
from pathlib import Path

import pytest
from typer.testing import CliRunner

import securevfl
from securevfl.cli.app import app

from .test_docs import tables

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
BLOCK = re.compile(r"```text\n\$ securevfl (.+?)\n(securevfl: .*?)\n```", re.DOTALL)
WIDTH = 84


def prepare(folder: Path) -> None:
    """Every file and folder that the commands name; it becomes the working folder."""
    import pandas as pd

    os.chdir(folder)
    tables(folder)
    odd = pd.read_csv("own.csv").astype(object)
    odd.iloc[7, 2] = "7.5x"
    odd.to_csv("odd.csv", index=False)
    shop = pd.read_csv("shop.csv")
    pd.concat([shop, shop.iloc[:1]]).to_csv("twice.csv", index=False)
    shop["customer"] = "q" + shop["customer"]
    shop.to_csv("other.csv", index=False)
    Path("outage.toml").write_text("[[outage]]\nparty = 1\nrounds = [2]\n")
    securevfl.run("fedvs", rounds=1, width=4, hidden=4, batch=32, out="runs/finished")


def said(command: str) -> str:
    """The error of a command, which is the last line that it writes."""
    words = shlex.split(command.replace("\\\n", " "))
    done = CliRunner().invoke(app, words, prog_name="securevfl")
    assert done.exit_code in (1, 2), f"{command} succeeds"
    return str(done.stderr.strip().splitlines()[-1])


def test_every_error_is_what_the_program_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path)
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) > 15
    for command, shown in blocks:
        assert " ".join(shown.split()) == said(command), "python -m tests.docs.test_troubleshooting"


def test_no_error_stands_in_the_page_by_hand():
    text = PAGE.read_text()
    assert text.count("```text") == len(BLOCK.findall(text))


def test_a_command_that_succeeds_is_no_error():
    with pytest.raises(AssertionError, match="--version succeeds"):
        said("--version")


def write() -> None:
    """Put the errors of today into the page."""
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))

        def block(found: re.Match[str]) -> str:
            shown = textwrap.fill(said(found[1]), WIDTH, break_on_hyphens=False)
            return f"```text\n$ securevfl {found[1]}\n{shown}\n```"

        PAGE.write_text(BLOCK.sub(block, PAGE.read_text()))


if __name__ == "__main__":
    write()
