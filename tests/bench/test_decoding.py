"""The threshold map: no cell on the wrong side, and a map that can tell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from securevfl.bench.decoding import Cell, draw_threshold, map_threshold, report, time_rounds
from securevfl.errors import ConfigurationError
from securevfl.field import LagrangeCode


@pytest.mark.parametrize("prime", [97, 2**31 - 1, 2**61 - 1])
def test_no_cell_is_on_the_wrong_side(prime):
    told = []
    cells = map_threshold(
        [6, 9, 16], largest_segments=8, privacies=[1, 2, 6], prime=prime, tries=2,
        progress=lambda *what: told.append(what),
    )  # fmt: skip
    summary = report(cells)
    assert summary["not_as_predicted"] == []
    assert len(cells) == (2 * 7 + 3 * 10 + 3 * 17) * 8  # T = 6 is no T of 6 parties
    assert summary["exact"] == sum(
        max(0, N - 2 * (K + T - 1))
        for N in (6, 9, 16)
        for T in (1, 2, 6)
        for K in range(1, 9)
        if T < N
    )
    assert told[-1] == (8 * 8, 8 * 8)


def test_a_code_that_decodes_wrongly_is_seen(monkeypatch):
    right = LagrangeCode.decode

    def wrong(self: LagrangeCode, results: np.ndarray, *given: object, **more: object) -> object:
        decoded = right(self, results, *given, **more)
        decoded[0, 0] = 1
        return decoded

    monkeypatch.setattr(LagrangeCode, "decode", wrong)
    cells = map_threshold([6], largest_segments=2, privacies=[1], tries=1)
    assert {cell.outcome for cell in cells if cell.stragglers <= cell.tolerated} == {"wrong"}
    assert report(cells)["not_as_predicted"]


def test_an_outcome_is_judged_by_the_theorem():
    assert Cell(6, 1, 1, 3, 3, "exact").as_predicted
    assert Cell(6, 1, 1, 4, 3, "refused").as_predicted
    assert not Cell(6, 1, 1, 4, 3, "exact").as_predicted
    assert not Cell(6, 1, 1, 3, 3, "refused").as_predicted
    assert not Cell(6, 1, 1, 3, 3, "wrong").as_predicted


def test_times_of_rounds_grow_with_segments_and_privacy(tmp_path):
    times = time_rounds(6, privacies=[1, 2], rounds=30)
    assert [(row["T"], row["K"], row["R"]) for row in times] == [(1, 1, 3), (1, 2, 5), (2, 1, 5)]
    first, wider, safer = (row["virtual_seconds"] for row in times)
    assert first < wider
    assert first < safer
    assert all(row["real_seconds"] > 0 for row in times)
    cells = map_threshold([4, 6], largest_segments=3, privacies=[1, 5], tries=1)
    for given in ([], times):
        draw_threshold(cells, tmp_path / "map.png", given)
        assert Path(tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_too_few_rounds_are_refused():
    with pytest.raises(ConfigurationError, match="1 rounds"):
        time_rounds(6, privacies=[1], rounds=1)
