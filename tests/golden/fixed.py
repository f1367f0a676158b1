"""What a move of modules must not change, and does not depend on the processor.

Bytes of messages that are objects, forecasts of the planner, and the help pages.
``python -m tests.golden.record --write-fixed`` writes them into ``fixed.json`` and ``help/``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import typer
from typer.testing import CliRunner

import securevfl as svfl
from securevfl.cli.app import app
from securevfl.engine import wire
from securevfl.protocols.protocol import find_protocols

FIXED = Path(__file__).with_name("fixed.json")
HELP = Path(__file__).with_name("help")

# -- bytes on the wire ---------------------------------------------------------------------------

_LIMBS = np.arange(5, dtype=np.uint64)
# Fields of one object of each class that is sent, by the name under which it is sent.
OBJECTS: dict[str, tuple[Any, ...]] = {
    "fedvs_parameters.Batch": ("train", np.arange(7, dtype=np.uint32)),
    "fedvs.Attempt": ((0, 1, 3), 2, (3, 5), 6),
    "coded_split.Request": ("test", 2, np.arange(7, dtype=np.uint32)),
    "secagg_split.Deal": (bytes(range(32)), _LIMBS, _LIMBS + np.uint64(9)),
    "secagg_split.Opening": ({0: _LIMBS, 3: _LIMBS + np.uint64(1)}, {2: _LIMBS}),
    "secagg_split.Summed": ((0, 1, 2), (0, 1), 3),
}


def written(name: str) -> bytes:
    """Bytes of an object as they were before any move: its tag, its name, its fields."""
    raw = name.encode()
    return b"m" + len(raw).to_bytes(8, "little") + raw + wire.encode(OBJECTS[name])


def sent(name: str) -> bytes:
    """Bytes that the library writes of the same object."""
    find_protocols()  # their modules declare what is sent
    return wire.encode(wire.decode(written(name)))


def hashes() -> dict[str, str]:
    """SHA-256 of the bytes of one object of each class."""
    return {name: hashlib.sha256(sent(name)).hexdigest() for name in sorted(OBJECTS)}


# -- forecasts -----------------------------------------------------------------------------------

FORECASTS: dict[str, dict[str, Any]] = {
    "defaults": {"parties": 8, "rows": 1000, "features": 64},
    "secure": {"parties": 8, "rows": 1000, "features": 64, "test_rows": 100, "secure": True},
    "plain, no delays": {"parties": 8, "rows": 1000, "features": 64, "masked": False}
    | {"conditions": "none"},
    "two colluders": {"parties": 12, "rows": 500, "features": 30, "privacy": 2, "rounds": 50},
    "slow uplinks": {"parties": 6, "rows": 500, "features": 30, "segments": 1}
    | {"conditions": {"upload_mean": 0.1, "upload_shift": 0.0, "bandwidth": 1e6}},
    "unsealed": {"parties": 8, "rows": 1000, "features": 64, "sealed": False},
}


def forecast(name: str) -> dict[str, Any]:
    """What the planner says, as JSON knows it."""
    made = dataclasses.asdict(svfl.plan(**FORECASTS[name]))
    return dict(json.loads(json.dumps(made, default=str)))


def fixed() -> dict[str, Any]:
    """Content of ``fixed.json``."""
    return {"wire": hashes(), "forecasts": {name: forecast(name) for name in FORECASTS}}


# -- help pages ----------------------------------------------------------------------------------


def commands() -> list[tuple[str, ...]]:
    """Every command and group; protocols of other installed packages are left out."""
    found = find_protocols()
    foreign = {n for n, cls in found.items() if not cls.__module__.startswith("securevfl.")}
    return sorted(path for path in _walk(typer.main.get_command(app), ()) if not {*path} & foreign)


def _walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield path
    if hasattr(command, "list_commands"):
        context = command.context_class(command)
        for name in command.list_commands(context):
            yield from _walk(command.get_command(context, name), (*path, name))


def page_of(path: tuple[str, ...]) -> Path:
    """File of a help page."""
    return HELP / ("-".join(("securevfl", *path)) + ".txt")


def help_of(path: tuple[str, ...]) -> str:
    """A help page, 80 columns wide and without colour; spaces at the ends of lines are cut."""
    plain = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "FORCE_COLOR": None}
    unset = {name: value for name, value in plain.items() if value is None}
    with mock.patch.dict(os.environ, {k: v for k, v in plain.items() if v is not None}):
        for name in unset:
            os.environ.pop(name, None)
        said = CliRunner().invoke(app, [*path, "--help"], prog_name="securevfl", color=False)
    if said.exit_code:
        raise AssertionError(f"{' '.join(path)} --help ended with {said.exit_code}: {said.output}")
    return "\n".join(line.rstrip() for line in said.output.strip().splitlines()) + "\n"


def drawn_by() -> dict[str, str]:
    """Versions of what draws help pages; others may draw the same words in another way."""
    return {name: metadata.version(name) for name in ("typer", "rich")}


def write_fixed() -> int:
    """Write everything anew; say how many files."""
    FIXED.write_text(json.dumps(fixed(), indent=1, sort_keys=True) + "\n")
    HELP.mkdir(exist_ok=True)
    for old in HELP.glob("*.txt"):
        old.unlink()
    for path in commands():
        page_of(path).write_text(help_of(path))
    (HELP / "versions.json").write_text(json.dumps(drawn_by(), indent=1) + "\n")
    return len(commands()) + 2
