"""Intersections that are kept: taken again for the same sets alone, and never believed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from securevfl.runs import alignment
from securevfl.runs.alignment import Teller, match_privately
from securevfl.runs.folders import intersections as kept
from securevfl.runs.folders.intersections import keep_intersection, kept_intersection

SETS = [["a", "b", "c", "d"], ["d", "x", "b", "a"]]
ROWS = [np.array([3, 0, 1]), np.array([0, 3, 2])]


@pytest.fixture(autouse=True)
def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kept.VARIABLE, str(tmp_path))
    monkeypatch.setattr(kept, "_WORTH", 1)


def entry(folder: Path) -> Path:
    (path,) = folder.glob("intersections/*.npz")
    return path


def test_an_intersection_is_kept_for_its_owner_and_found_again(tmp_path):
    assert kept_intersection(SETS) is None
    keep_intersection(SETS, ROWS, "a note")
    rows, note = kept_intersection(SETS)
    assert [own.tolist() for own in rows] == [own.tolist() for own in ROWS]
    assert note == "a note"
    if os.name == "posix":
        assert stat.S_IMODE(entry(tmp_path).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "sets",
    [
        [["a", "b", "c", "e"], SETS[1]],
        [SETS[0], ["d", "x", "a", "b"]],
        [SETS[1], SETS[0]],
        [["ab", "c", "d"], SETS[1]],
    ],
)
def test_other_identifiers_or_another_order_have_no_entry(sets):
    keep_intersection(SETS, ROWS, "a note")
    assert kept_intersection(sets) is None


@pytest.mark.parametrize(
    "rows",
    [
        [np.array([3, 0]), np.array([0, 3])],  # a common row is left out
        [np.array([3, 0, 2]), np.array([0, 3, 2])],  # c is not common
        [np.array([3, 0, 1]), np.array([3, 0, 2])],  # rows of different people
        [np.array([3, 3, 1]), np.array([0, 0, 2])],  # one row twice
    ],
)
def test_a_wrong_entry_is_not_believed(rows):
    keep_intersection(SETS, rows, "a note")
    assert kept_intersection(SETS) is None


def test_a_damaged_entry_is_not_believed(tmp_path):
    keep_intersection(SETS, ROWS, "a note")
    entry(tmp_path).write_bytes(b"PK damaged")
    assert kept_intersection(SETS) is None


def test_small_sets_are_not_kept_and_nothing_is_where_that_is_asked(monkeypatch, tmp_path):
    monkeypatch.setattr(kept, "_WORTH", 100)
    keep_intersection(SETS, ROWS, "a note")
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(kept, "_WORTH", 1)
    monkeypatch.setenv(kept.VARIABLE, "none")
    keep_intersection(SETS, ROWS, "a note")
    assert kept_intersection(SETS) is None


def test_the_oldest_entries_are_removed(monkeypatch, tmp_path):
    monkeypatch.setattr(kept, "_MOST", 2)
    for n in range(4):
        keep_intersection([["a", str(n)], ["a"]], [np.array([0]), np.array([0])], "")
    assert len(list(tmp_path.glob("intersections/*"))) == 2


def test_the_second_run_makes_no_intersection(monkeypatch):
    first, (note,) = match_privately(SETS)

    def refuse(*_: object) -> None:
        raise AssertionError("the intersection was made again")

    monkeypatch.setattr(alignment, "intersection", refuse)
    second, (again,) = match_privately(SETS)
    assert [own.tolist() for own in first] == [own.tolist() for own in second]
    assert again == f"{note}, taken from an earlier run"


def test_progress_counts_every_step(monkeypatch):
    monkeypatch.setattr(alignment, "_EVERY", 0.0)
    told: list[str] = []
    match_privately(SETS, told.append)
    assert told[-1].startswith("private set intersection: 100 % of 528 steps")
    assert told[-1].endswith("about 0 s left")


def test_progress_is_told_every_other_second(monkeypatch):
    clock = iter([0.0, 1.0, 2.5, 3.0, 5.0])
    monkeypatch.setattr(alignment.time, "perf_counter", lambda: next(clock))
    told: list[str] = []
    count = Teller(100, told.append)
    for _ in range(4):
        count(10)
    assert [text.partition(":")[2].split(" %")[0].strip() for text in told] == ["20", "40"]
    assert "about 10 s left" in told[0]
