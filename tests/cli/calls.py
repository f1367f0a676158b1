"""Calls of the command line, and the files that they read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from securevfl.cli.app import app

SMALL = ("--rounds", "4", "--width", "4", "--hidden", "4", "--batch", "16", "--parties", "4")


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), prog_name="securevfl")


def run_json(*arguments: str) -> dict[str, Any]:
    result = call("run", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


def write(name: str, text: str) -> str:
    Path(name).write_text(text)
    return name


def table(rows: int = 40, *, label: str = "y") -> str:
    lines = [f"{k},{k % 7},{(3 * k) % 11},{'yes' if k % 3 else 'no'}" for k in range(rows)]
    return "\n".join([f"id,a,b,{label}", *lines]) + "\n"
