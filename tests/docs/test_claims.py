"""Words on claims follow from intervals: the sign of all differences, and the printed sizes."""

import csv
import importlib
import json
import math
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def stored(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("stored")


@pytest.fixture
def line(stored):
    """Makes a line of differences (mean, half, pairs) beside printed sizes."""
    module = importlib.import_module("claims.line")

    def make(*found, printed=(), **others):
        differences = [stored.Difference("", *each) for each in found]
        sizes = tuple(module.Printed(*each) for each in printed)
        claim = others.pop("claim", "one above two")
        return module.Line("T1", claim, differences, ["fedvs/rate"], sizes, **others)

    return make


@pytest.mark.parametrize(
    ("found", "sign", "cell"),
    [
        ([(2.0, 0.5, 5)], "same", "same"),
        ([(-2.0, 0.5, 5)], "other", "other"),
        ([(0.1, 0.5, 5)], "none", "none, < 0.6"),
        ([(2.0, 0.5, 5), (3.0, 0.5, 5)], "same", "same"),
        ([(2.0, 0.5, 5), (-3.0, 0.5, 5)], "other", "other 1/2"),
        ([(2.0, 0.5, 5), (0.1, 0.5, 5)], "none", "none 1/2"),
        ([(-0.6, 0.5, 5), (0.1, 0.5, 5)], "none", "none 0/2"),  # by Holm
        ([(9.0, math.nan, 1)], "-", "-"),
        ([(9.0, math.nan, 1), (9.0, 1.0, 5)], "none", "none 1/2"),
        ([], "-", "-"),
    ],
)
def test_a_sign_is_of_all_differences(line, found, sign, cell):
    made = line(*found)
    assert (made.sign, made.sign_cell()) == (sign, cell)


def test_both_signs_of_a_claim_are_found_alike(line):
    """Turned round, a difference has the other sign, and a remark of ours changes neither."""
    assert line((2.0, 0.5, 5), depends="small").sign == "same"
    assert line((-2.0, 0.5, 5), depends="small").sign == "other"
    assert line((-2.0, 0.5, 5), unclear="no bound").sign == "-"


@pytest.mark.parametrize(
    ("mean", "printed", "sign", "size"),
    [
        (1.0, (1.4, 1.4), "same", "inside"),
        (1.0, (1.6, 1.6), "same", "outside"),
        (1.0, (1.4, 3.0), "same", "inside"),
        (0.3, (0.0, 0.0), "same", "inside"),
        (0.6, (0.0, 0.0), "other", "outside"),
    ],
)
def test_a_size_is_inside_or_outside_our_interval(line, mean, printed, sign, size):
    made = line((mean, 0.5, 5), printed=[printed])
    assert (made.sign, made.size_cell()) == (sign, size)


def test_a_size_belongs_to_each_difference(line):
    made = line((1.0, 0.5, 5), (2.0, 0.5, 5), printed=[(1.2, 1.2), (9.0, 9.0)])
    assert made.size_cell() == "1/2"
    with pytest.raises(ValueError, match="not one printed size"):
        line((1.0, 0.5, 5), printed=[(1.0, 1.0)] * 2)


def test_few_differences_stand_in_the_order_of_the_printed_ones(line):
    """Many, those without a printed number, and those beside a range have their range."""
    few = [(2.0, 0.5, 5), (1.0, 0.8, 5), (3.0, 0.5, 5)]
    sizes = [(2.5, 2.5), (1.0, 1.0), (4.0, 4.0)]
    made = line(*few, printed=sizes)
    assert (made.printed_cell(), made.ours_cell()) == (
        "+2.5, +1.0, +4.0",
        "+2.0, +1.0, +3.0 (±0.8)",
    )
    ranges = [(2.0, 3.0)] * 3
    for others in (line(*few), line(*few, printed=ranges), line(*few * 2, printed=sizes * 2)):
        assert others.ours_cell() == "+1.0 to +3.0 (±0.8)"


def test_a_claim_has_the_words_of_all_its_readings(line, monkeypatch):
    monkeypatch.chdir(ROOT)
    page = importlib.import_module("results_page")
    up, flat, down = ((mean, 0.5, 5) for mean in (2.0, 0.1, -2.0))
    alike = [line(up, claim="a"), line(up, claim="a", depends="other rows")]
    both = [line(up, claim="b"), line(down, claim="b"), line(claim="b")]
    weaker = [line(up, claim="c"), line(flat, claim="c")]
    assert page.turned([*alike, *both, *weaker]) == [{"same", "other"}, {"same", "none"}]


def test_time_to_a_loss_is_compared_between_runs_of_the_same_settings(
    stored, tmp_path, monkeypatch
):
    monkeypatch.setattr(stored, "RESULTS", tmp_path)
    sgd, adam = {"optimizer": "sgd", "lr": 0.01}, {"optimizer": "adam", "lr": 0.001}
    settings = {"a": sgd, "b": adam | {"mode": "sync"}, "c": sgd | {"mode": "sync"}}
    content = {"settings": {label: {"options": own} for label, own in settings.items()}}
    study = "cvfl/figure-2-here"
    own = tmp_path / study
    own.mkdir(parents=True)
    (own / "results.json").write_text(json.dumps(content))
    best = (study, "async"), (study, "sync")
    in_step = ((study, "a"), (study, "c"))
    assert stored.ways("here") == {"sgd 0.01": in_step, "each its own best": best}
    beside = tmp_path / f"{study}-adam"
    beside.mkdir()
    (beside / "results.json").write_text(json.dumps({"settings": {"d": {"options": adam}}}))
    assert stored.ways("here")["adam 0.001"] == ((f"{study}-adam", "d"), (study, "b"))
    with (own / "curves.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["run", "seed", "step", "time", "test_loss"])
        for seed in (0, 1):
            out.writerows(("a", seed, 9 * time, time, 1 / time) for time in (1, 2, 3 + seed))
            out.writerows(("c", seed, 9 * time, 2 * time, 1 / time) for time in (1, 2, 3))
    saved = stored.time_saved(*in_step, 0.5, "")
    assert (saved.mean, saved.half, saved.pairs) == (50.0, 0.0, 2)
    assert stored.time_saved(*in_step, 0.3, "") is None
    again = stored.time_saved(*in_step, 0.5, "", pace=2.0)
    assert again.mean == pytest.approx(50.0)  # as many updates, at twice the pace
    even = stored.time_saved(*in_step, 0.5, "", pace=1.25)
    assert even.mean == pytest.approx(20.0)
