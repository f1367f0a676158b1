"""Growth of runs with their sizes: what a point measures, exponents, and the drawing."""

import pytest

from securevfl.bench.scale import Point, bench_scale, draw_scale, exponents, measure
from securevfl.errors import ConfigurationError, UnknownNameError

SMALL = {"rows": 64, "features": 8, "rounds": 3}


def test_bytes_of_a_round_are_those_of_the_planner():
    found = [measure(Point("fedvs", parties=N, **SMALL)) for N in (4, 8)]
    for point in found:
        assert point["bytes"] == pytest.approx(point["predicted_bytes"], rel=0.02)
        assert point["predicted_memory"] >= 43 * point["messages"]
        assert 0 < point["seconds"] < point["whole_seconds"]
        assert point["whole_bytes"] > 2 * point["bytes"]
    slopes = exponents([{"axis": "parties", **point, "memory": 1} for point in found])
    assert 1 < slopes["fedvs"]["parties"]["bytes"] < 2  # shares to peers, and messages of servers


def test_a_run_that_is_not_planned_has_no_prediction_of_bytes():
    assert measure(Point("split", parties=2, **SMALL))["predicted_bytes"] is None


def point(protocol, axis, value, **more):
    base = {"parties": 8, "rows": 512, "features": 64, "rounds": 6, axis: value}
    return {
        "protocol": protocol, "axis": axis, **base, "setup": 1.0, "seconds": 2e-3 * value,
        "memory": 10 * value**2, "bytes": 100.0, "whole_bytes": 7 * value, "whole_seconds": 3.0,
        "predicted_memory": None, "predicted_bytes": 90.0, **more,
    }  # fmt: skip


def test_exponents_of_rounds_are_those_of_whole_runs():
    found = exponents([point("split", axis, n) for axis in ("rows", "rounds") for n in (2, 4, 8)])
    assert found["split"]["rows"] == {"seconds": 1.0, "memory": 2.0, "bytes": 0.0}
    assert found["split"]["rounds"] == {"seconds": 0.0, "memory": 2.0, "bytes": 1.0}


def test_the_drawing_has_a_panel_for_each_measure_and_axis(tmp_path):
    points = [
        point(name, axis, n)
        for name in ("fedvs", "split")
        for axis in ("parties", "rounds")
        for n in (2, 4)
    ]
    draw_scale({"points": points}, tmp_path / "scale.png")
    assert (tmp_path / "scale.png").stat().st_size > 20_000


def test_sizes_and_names_are_checked_before_anything_runs():
    with pytest.raises(ConfigurationError, match="parties of 1; each must be at least 2"):
        bench_scale(["split"], {"parties": [4, 1]})
    with pytest.raises(UnknownNameError, match="splt"):
        bench_scale(["splt"], {"parties": [4]})
