"""What tests of several folders need."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import settings

from securevfl.protocols.base.registry import find_protocols

# The first example of a property pays for imports and compilation, whatever it is.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

OWN = Path(__file__).parents[1] / "examples" / "own_protocol"


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """The example protocol as pip would install it: its file and its entry point on the path."""
    described = tomllib.loads((OWN / "pyproject.toml").read_text())
    project, (module,) = described["project"], described["tool"]["setuptools"]["py-modules"]
    site = tmp_path / "site"
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    entries = project["entry-points"]["securevfl.protocols"].items()
    lines = ["[securevfl.protocols]", *(f"{name} = {value}" for name, value in entries), ""]
    info.joinpath("entry_points.txt").write_text("\n".join(lines))
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\n")
    site.joinpath(f"{module}.py").write_bytes(OWN.joinpath(f"{module}.py").read_bytes())
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, module, raising=False)
    find_protocols.cache_clear()
    yield module
    sys.modules.pop(module, None)
    find_protocols.cache_clear()
