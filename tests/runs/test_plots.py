"""The curves of a run, which are written as text."""

from __future__ import annotations

import itertools
import math
from xml.etree import ElementTree

import pytest

from securevfl.runs.plots import draw_curves

SVG = "{http://www.w3.org/2000/svg}"
HARD = [0, 1, 5e-324, -1e99, 1e300, math.inf, -math.inf, math.nan, 1 + 2e-16, 10**18, 3]


def drawn(path, rows, name="split"):
    draw_curves(name, rows, path)
    return ElementTree.parse(path)


def test_curves_have_a_point_a_round_and_a_tick_for_each_round_value(tmp_path):
    rows = [{"step": n, "time": 2.5 * n, "loss": 10.0**-n, "accuracy": n / 8} for n in range(9)]
    found = drawn(tmp_path / "curves.svg", rows, "a<b>")
    texts = [text.text for text in found.iter(f"{SVG}text")]
    assert texts[:3] == ["a<b>", "virtual time (s)", "test accuracy"]
    assert texts[3:14] == ["0", "5", "10", "15", "20", "0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert texts[14:] == [
        *("round", "training loss", "0", "2", "4", "6", "8"),
        *("1e-08", "1e-06", "0.0001", "0.01", "1"),
    ]
    upper, lower = (line.get("points").split() for line in found.iter(f"{SVG}polyline"))
    assert upper[:9] == [f"{80 + 42.5 * n:.1f},{300 - 31.25 * n:.1f}" for n in range(9)]
    assert lower[:9] == [f"{80 + 42.5 * n:.1f},{50 + 31.25 * n:.1f}" for n in range(9)]


@pytest.mark.parametrize("length", [0, 1, 2])
def test_whatever_a_history_has_can_be_drawn(length, tmp_path):
    for values in itertools.product(HARD, repeat=length):
        rows = [{"step": n, "time": -y, "loss": y, "rmse": y} for n, y in enumerate(values)]
        found = drawn(tmp_path / "curves.svg", rows)
        text = ElementTree.tostring(found.getroot(), "unicode")
        assert not {"nan", "inf"} & set(text.replace(",", " ").replace('"', " ").split())
