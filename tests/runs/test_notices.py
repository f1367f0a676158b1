"""Notices of a run, and the measures that it shows beside its accuracy."""

import numpy as np
import pytest

import securevfl as svfl
from securevfl.data import VerticalDataset, load_dataset
from securevfl.models.quality import QUALITY
from securevfl.report import write_report
from securevfl.report.in_words import beside_baseline
from securevfl.runs.export import load_models
from securevfl.runs.result import (
    TOLD,
    differ_in_case,
    few_test_rows,
    many_classes,
    no_slack,
    notices,
    one_test_class,
)

SUMMARY = {"until": None, "virtual_seconds": 9.5, "rounds": 7, "rounds_asked": 7}


def test_a_run_without_slack_says_so():
    assert no_slack({"R": 3, "N": 5, "A": 0}) == ""
    assert no_slack({"R": 3, "N": 5, "A": 1}).startswith("no straggler")
    assert "R + 2A = 5" in no_slack({"R": 3, "N": 5, "A": 1})
    assert no_slack({"N": 5, "quorum": 5}) == ""
    assert "K = 1, T = 2, A = 0, more parties or helpers" in no_slack(
        {"R": 9, "N": 11, "A": 1, "K": 2, "T": 3}
    )
    assert ". More parties or helpers would" in no_slack({"R": 3, "N": 3, "A": 0, "K": 1, "T": 1})


@pytest.mark.parametrize(
    ("protocol", "width", "told"),
    [("fedvs", 30, True), ("fedvs", 29, False), ("coded_split", 30, True),
     ("secagg_split", 30, True), ("split", 30, False)],
)  # fmt: skip
def test_a_run_says_where_its_sums_tell_the_rows(data, protocol, width, told):
    run = svfl.run(protocol, data, rounds=1, width=width, hidden=4)
    found = [text for text in run.summary()["notices"] if text.startswith(TOLD)]
    assert bool(found) is told
    assert not told or "are 30 equations (h = 30 each) about its 30 unknowns" in found[0]
    assert not told or found[0].endswith("at least 31 independent columns of all parties together")


@pytest.mark.parametrize("protocol", ["fedvs", "coded_split"])
def test_a_run_that_its_budget_ended_says_so_in_one_line(data, protocol, tmp_path):
    options = {"width": 8, "hidden": 4, "batch": 427, "segments": 1, "conditions": "none"}
    run = svfl.run(protocol, data, rounds=7, sum_budget=True, out=tmp_path / "run", **options)
    summary = run.summary()
    assert summary["rounds"] == 3  # 24 of 30
    assert summary["released"]["equations"] == run.released.equations == 24
    told = [text for text in summary["notices"] if "budget of sums" in text]
    assert len(told) == 1
    assert "after 3 of 7 rounds: 3 decoded sums of a row gave 24 equations about its 30" in told[0]
    assert "width = 4, with which all 7 rounds can be made" in told[0]
    assert not any(text.startswith(TOLD) for text in summary["notices"])
    longer = svfl.run(protocol, data, rounds=7, sum_budget=True, **options | {"width": 4})
    assert len(longer.history) == 7  # the advice is right
    page = write_report([tmp_path / "run"], out=tmp_path / "r.html").path.read_text()
    assert page.count("budget of sums ended the run after 3 of 7 rounds") == 1
    assert "24 equations (h = 8 each)" in page


def test_a_run_that_ends_before_its_time_says_so():
    assert notices(SUMMARY) == []
    early = notices(SUMMARY | {"until": 60.0})
    assert len(early) == 1
    assert "after 7 rounds at 9.5 s of 60 s" in early[0]
    assert notices(SUMMARY | {"until": 9.5}) == []
    assert notices(SUMMARY | {"until": 60.0, "rounds": 6}) == []


def test_steps_that_are_too_long_are_told_from_a_run_that_is_too_short():
    poor = SUMMARY | {"test_accuracy": 0.3, "majority_accuracy": 0.6}
    assert "Train longer" in notices(poor | {"train_loss": 0.7}, 2)[0]
    assert "Train longer" in notices(poor | {"train_loss": 386.0})[0]  # a loss of another kind
    [told] = notices(poor | {"train_loss": 386.0}, 2)
    assert "loss of 386 is far above the 0.693 of a guess" in told
    assert told.endswith("Lower lr, client_lr or momentum")


def test_a_hundred_classes_of_few_rows_are_noticed():
    assert many_classes(10, 100) == many_classes(100, 60_000) == []
    assert "100 classes, with 24 training rows each" in many_classes(100, 2400)[0]


@pytest.fixture(scope="module")
def data():
    return load_dataset("breast-cancer", parties=5)


def test_a_run_at_the_majority_class_says_so(data):
    run = svfl.run("fedvs", data, rounds=1, segments=2, width=8, hidden=4)
    summary = run.summary()
    assert summary["test_accuracy"] <= summary["majority_accuracy"]
    assert [text[:20] for text in summary["notices"]] == [
        "no straggler is tole",
        "a test accuracy of 6",
    ]


def test_a_trained_run_has_every_measure(data):
    run = svfl.run("split", data, rounds=60)
    summary = run.summary()
    shown = repr(run)
    assert shown.startswith("<Run of split on 'breast-cancer': 5 parties, seed 0, 60 rounds, acc")
    assert f"accuracy {summary['test_accuracy']:.4f}, auc {summary['test_auc']:.4f}" in shown
    assert shown.endswith("MB, not saved>")
    assert summary["notices"] == []
    assert all(0 <= summary[name] <= 1 for name in QUALITY if name != "mean_rmse")
    assert summary["test_balanced_accuracy"] > 0.8 > summary["majority_accuracy"]


def test_a_regression_scales_its_target_and_stands_beside_the_mean(tmp_path):
    stream = np.random.default_rng(0)
    columns = [stream.random((80, 2)) for _ in range(3)]
    targets = 5000 + 300 * columns[0][:, 0] + 30 * stream.random(80)
    data = VerticalDataset.from_numpy(columns, targets)
    seen = []
    run = svfl.run("split", data, rounds=60, progress=seen.append)
    summary = run.summary()
    assert summary["test_rmse"] < 0.7 * summary["mean_rmse"]
    assert summary["test_r2"] == pytest.approx(
        1 - summary["test_rmse"] ** 2 / data.test_labels.var(dtype=np.float64)
    )
    assert seen[-1].r2 == summary["test_r2"]
    assert summary["train_loss"] < 1
    assert beside_baseline(summary)[0][1].endswith(
        f"(RMSE of the mean: {summary['mean_rmse']:.4f})"
    )
    run.save(tmp_path)
    whole = load_models(tmp_path)  # the scale is in the server's file
    rows = [part[:5] for part in columns]
    assert whole.predict(rows) == pytest.approx(run.predict(rows), rel=1e-3)
    assert abs(run.predict(rows).mean() - 5150) < 200


def test_a_regression_that_is_no_better_than_the_mean_says_so():
    assert notices(SUMMARY | {"test_rmse": 1.0, "mean_rmse": 2.0}) == []
    [text] = notices(SUMMARY | {"test_rmse": 20_000.0, "mean_rmse": 2.0})
    assert "RMSE of 20000 is no better than always naming the mean" in text


def test_test_rows_of_one_class_are_told():
    assert one_test_class(np.array([0, 1]), ("a", "b")) == one_test_class(np.ones(2), ()) == []
    assert "all test rows are of the class b" in one_test_class(np.array([1, 1]), ("a", "b"))[0]


def test_a_run_says_that_its_test_rows_are_few():
    assert few_test_rows(30) == few_test_rows(0) == []
    assert "2 test rows, so each moves the accuracy by 50 points" in few_test_rows(2)[0]


@pytest.mark.parametrize(
    ("outage", "told"),
    [
        ({"party": 1, "rounds": [7, 9]}, "party 1 from round 7 on never came"),
        ({"party": 1, "seconds": [1e3, 2e3]}, "party 1 from 1000 s on never came"),
        ({"link": [0, "server"], "rounds": [9, 10]}, "the link from party 0 to the server from"),
        ({"party": 1, "rounds": [2, 3]}, ""),
    ],
)
def test_a_run_says_that_an_outage_never_came(data, outage, told):
    options = {"rounds": 5, "width": 4, "hidden": 4, "stragglers": "zeros", "timeout": 5.0}
    run = svfl.run("split", data, faults={"outage": [outage]}, **options)
    found = [text for text in run.summary()["notices"] if "never came" in text]
    assert len(found) == bool(told)
    assert told in "".join(found)


def test_classes_that_differ_in_capital_letters_alone_are_named():
    assert differ_in_case(("No", "yes")) == differ_in_case(()) == []
    assert "alone: NO, no; Yes, yes. " in differ_in_case(("NO", "Yes", "maybe", "no", "yes"))[0]
