"""Figures and tables that a report writes as files: whole, true to the run, and the same again."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

import securevfl as svfl
from securevfl.cli.app import app
from securevfl.data import VerticalDataset
from securevfl.data.source import DataSource
from securevfl.errors import ConfigurationError, DataError
from securevfl.report import figures, pictures, write_report
from securevfl.runs.result import Run

SMALL = {"width": 4, "hidden": 4, "batch": 16, "rounds": 4}
CONDITIONS = {"upload_mean": [0.1, 0.1, 2.0, 3.0], "bandwidth": 0}
KINDS = ("parties", "links", "confusion", "calibration", "precision-recall")
SAVE = Figure.savefig
#: One figure of each kind is drawn; the others are made, and their files left empty.
DRAWN = {"accuracy-time", "parties-fedvs", "links-split", "confusion-fedvs", "calibration-split",
         "precision-recall-fedvs"}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Run]:
    data = DataSource("breast-cancer", {"parties": 4, "seed": 0})
    return {
        name: svfl.run(name, data, conditions=CONDITIONS, out=folder / name, **SMALL)
        for name in ("fedvs", "split")
    }


def drawn_or_empty(figure: Figure, path: Path, **more: Any) -> None:
    """Save a figure where it is of those drawn: each takes a fifth of a second."""
    if isinstance(path, Path) and path.stem not in DRAWN:
        path.touch()
    else:
        SAVE(figure, path, **more)


@pytest.fixture(scope="module")
def files(runs: dict[str, Run], folder: Path) -> Path:
    """Figures of one measure: those of others are drawn alike."""
    paths = [run.folder for run in runs.values()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "measures_of", lambda _: ["accuracy"])
        patch.setattr(Figure, "savefig", drawn_or_empty)
        write_report(paths, out=folder / "both.html", figures=folder / "figures")
    return folder / "figures"


def table(files: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(files / f"{name}.csv")


def test_each_figure_is_a_picture_in_both_forms(files):
    made = {path.stem for path in files.glob("*.svg")}
    assert made == {path.stem for path in files.glob("*.pdf")} > DRAWN
    assert {f"{kind}-{run}" for kind in KINDS for run in ("fedvs", "split")} <= made
    assert {f"accuracy-{axis}" for axis in ("step", "time", "bytes")} <= made
    for name in DRAWN:
        assert ElementTree.parse(files / f"{name}.svg").getroot().tag.endswith("svg")
        assert (files / f"{name}.pdf").read_bytes().startswith(b"%PDF")


def test_words_of_a_figure_are_text(files):
    text = (files / "accuracy-time.svg").read_text()
    assert all(f">{word}<" in text for word in ("fedvs", "split", "virtual time (s)"))


def test_tables_hold_the_digits_of_the_run(files, runs):
    run, rows = runs["split"], table(files, "evaluations-split")
    for name in ("accuracy", "auc", "test_loss", "loss", "time", "bytes"):
        assert rows[name].iloc[-1] == run.history[-1][name]
    summary = table(files, "summary").set_index("figure")["fedvs"]
    assert summary["test accuracy"] == runs["fedvs"].history[-1]["accuracy"]
    assert summary["sent (bytes)"] == runs["fedvs"].transcript.bytes


def test_confusion_adds_up_to_the_accuracy(files, runs):
    cells = table(files, "confusion-split").set_index("true")
    rows = runs["split"].protocol.data.test_rows
    assert cells.to_numpy().sum() == rows
    assert cells.to_numpy().trace() / rows == runs["split"].history[-1]["accuracy"]


def test_latex_is_of_booktabs_and_escaped(files):
    for path in files.glob("*.tex"):
        text = path.read_text()
        assert re.match(r"\\begin\{(tabular|longtable)\}", text), path
        assert "\\toprule" in text
    assert "test\\_loss" in (files / "evaluations-split.tex").read_text()
    assert "\\begin{longtable}" in (files / "precision-recall-split.tex").read_text()


def test_the_command_makes_the_same_files_of_the_same_runs_and_names_them(
    files, runs, folder, monkeypatch
):
    again, every = folder / "again", pictures._all
    monkeypatch.setattr(
        pictures, "_all", lambda *given: (one for one in every(*given) if one[0] in DRAWN)
    )
    monkeypatch.setattr(Figure, "savefig", drawn_or_empty)
    words = ["report", *(str(run.folder) for run in runs.values()), "--figures", str(again)]
    done = CliRunner().invoke(app, [*words, "--out", str(folder / "x.html"), "--json"])
    assert {Path(path) for path in json.loads(done.stdout)["files"]} == {*again.iterdir()}
    assert {path.stem for path in again.iterdir()} > DRAWN
    for path in again.iterdir():
        assert (files / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_page_holds_the_figures_of_the_test_rows(runs, folder):
    text = write_report([runs["fedvs"].folder], out=folder / "one.html").path.read_text()
    pictures = re.findall(r'<img src="data:image/svg\+xml;base64,[^"]+" alt="([^"]+)"', text)
    assert pictures == [
        f"{n} of fedvs" for n in ("Confusion", "Calibration", "Precision and recall")
    ]


def test_a_folder_that_cannot_be_written_is_refused(runs, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="name another folder"):
        write_report([runs["split"].folder], out=tmp_path, figures=tmp_path / "file" / "in")


@pytest.mark.parametrize(
    "change",
    [
        {"confusion": [[1, 2]]},
        {"confusion": [["<script>", 1], [1, 1]]},
        {"calibration": {"rows": [1], "confidence": [0.5, 0.6], "accuracy": [0.5]}},
        {"calibration": {"rows": [1], "confidence": [float("nan")], "accuracy": [0.5]}},
        {"precision_recall": 3},
    ],
)
def test_sums_that_were_changed_are_refused(change, runs, tmp_path):
    place = shutil.copytree(runs["split"].folder, tmp_path / "run")
    summary = json.loads((place / "summary.json").read_text())
    summary["evaluation_data"] |= change
    plain = {name: summary[name] for name in summary if name not in ("files", "checksum")}
    (place / "summary.json").write_text(json.dumps(plain))
    with pytest.raises(DataError, match="evaluation_data"):
        write_report([place], out=tmp_path / "page.html")


def test_a_regression_has_no_such_figures(folder, monkeypatch):
    monkeypatch.setattr(Figure, "savefig", lambda _, path, **_more: Path(path).touch())
    rows, target = np.random.default_rng(0).random((60, 3)), np.linspace(0.5, 1.5, 60)
    data = VerticalDataset.from_numpy(np.split(rows, 3, axis=1), target, task="regression")
    run = svfl.run("split", data, out=folder / "real", **SMALL)
    write_report([run.folder], figures=folder / "real-figures")
    stems = {path.stem for path in (folder / "real-figures").iterdir()}
    assert "rmse-step" in stems
    assert not any(stem.startswith(("confusion", "calibration")) for stem in stems)
