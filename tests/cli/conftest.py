"""Every test of the command line runs in an empty folder, on a wide terminal."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SECUREVFL_TRACEBACK", raising=False)
    monkeypatch.delenv("SECUREVFL_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
