"""Predictions are labels as the user gave them, by every way out of a run."""

from __future__ import annotations

import csv
import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import securevfl as svfl
from securevfl.cli.app import app
from securevfl.data.source import DataSource
from securevfl.errors import DataError
from securevfl.runs.from_folder import predict_files

TINY = {"rounds": 40, "width": 4, "hidden": 4, "batch": 32, "lr": 0.1, "conditions": "none"}
STREAM = np.random.default_rng(0)
IDS = [f"p{k:02}" for k in range(60)]
X = STREAM.normal(size=(60, 4))
Y = (X[:, 0] + X[:, 2] > 0).astype(int)


def tables(labels) -> list[pd.DataFrame]:
    return [
        pd.DataFrame({"id": IDS, "a": X[:, 0], "b": X[:, 1], "y": labels}),
        pd.DataFrame({"id": IDS, "c": X[:, 2], "d": X[:, 3]}),
    ]


def called(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), prog_name="securevfl")
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [
        (Y + 1, "int64"),
        (Y.astype(bool), "bool"),
        (Y + 0.5 * Y, "float64"),
        (np.where(Y, "10", "9"), "object"),
        (pd.Categorical(Y + 3), "int64"),
        (pd.array(Y, dtype="Int64"), "int64"),
    ],
    ids=["integers", "truth values", "floats", "texts of numbers", "categories", "nullable"],
)
def test_every_way_out_of_a_run_gives_the_labels_of_the_user(labels, dtype, tmp_path):
    own = tables(labels)
    task = {"task": "binary"} if dtype == "float64" else {}
    data = svfl.VerticalDataset.from_pandas(own, "y", id_column="id", **task)
    run = svfl.run("split", data, out=tmp_path / "run", **TINY)
    predicted = run.predict(own)
    assert predicted.dtype == np.dtype(dtype)
    assert (predicted == own[0]["y"]).mean() > 0.8  # 0.0 if they were texts

    run.export(tmp_path / "models")
    embeddings = {
        n: svfl.load_model(tmp_path / "models" / f"party-{n}.npz").embed(table)
        for n, table in enumerate(own)
    }
    server = svfl.load_model(tmp_path / "models" / "server.npz")
    by_id = server.predict(embeddings)
    shares = server.predict_proba(embeddings)
    for n, table in enumerate(own):
        table.drop(columns="y", errors="ignore").to_csv(tmp_path / f"{n}.csv", index=False)
    files = [tmp_path / f"{n}.csv" for n in range(2)]
    found = predict_files(tmp_path / "run", files)
    for again in (
        svfl.load_run(tmp_path / "run", data=data).predict(own),
        svfl.load_models(tmp_path / "run").predict(own),
        svfl.load_models(tmp_path / "models").predict(own),
        by_id.to_numpy(),
        shares.idxmax(axis=1).to_numpy(),
        np.array(found["predictions"], dtype=dtype),
    ):
        assert again.tolist() == predicted.tolist()
        assert [*map(type, again.tolist())] == [*map(type, predicted.tolist())]
    assert by_id.index.tolist() == IDS
    told = json.loads(called("predict", str(tmp_path / "run"), *map(str, files), "--json"))
    assert told["predictions"] == predicted.tolist()
    assert [*map(type, told["predictions"])] == [*map(type, predicted.tolist())]


def test_a_coded_prediction_gives_the_labels_of_the_user():
    data = svfl.VerticalDataset.from_numpy(X, Y.astype(bool), parties=4)
    run = svfl.run("fedvs", data, rounds=3, width=4, conditions="none")
    assert run.predict(X[:3], coded=True).dtype == np.dtype(bool)


def test_a_resumed_run_gives_the_labels_of_the_user(tmp_path):
    frame = pd.concat([tables(Y + 1)[0], tables(Y)[1].drop(columns="id")], axis=1)
    frame.drop(columns="id").to_csv(tmp_path / "t.csv", index=False)
    source = DataSource(str(tmp_path / "t.csv"), {"label": "y", "parties": 2})
    asked = []

    def interrupted():
        asked.append(1)
        return len(asked) == 2

    with pytest.raises(svfl.Interrupted):
        svfl.run("split", source, out=tmp_path / "run", interrupted=interrupted, **TINY)
    run = svfl.resume(tmp_path / "run")
    assert len(run.history) == TINY["rounds"]
    for again in (run, svfl.load_run(tmp_path / "run")):
        predicted = again.predict(frame)
        assert predicted.dtype == np.dtype("int64")
        assert (predicted == frame["y"]).mean() > 0.8


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (("0", "1"), [0, 1]),
        (("01", "02"), [1, 2]),
        (("-1", "+1"), [-1, 1]),
        (("FALSE", "TRUE"), [False, True]),
        (("1.50", "2.50"), [1.5, 2.5]),
        (("no", "yes"), ["no", "yes"]),
    ],
)
def test_the_command_line_writes_what_the_file_has(cells, values, tmp_path):
    rows = pd.DataFrame(X, columns=list("abcd")).assign(y=[cells[k] for k in Y])
    path, folder = tmp_path / "t.csv", tmp_path / "run"
    rows.to_csv(path, index=False)
    called(
        *("run", "split", "--data", str(path), "--label", "y", "--parties", "2", "--rounds", "40"),
        *("--width", "4", "--hidden", "4", "--batch", "32", "--lr", "0.1"),
        *("--set", "data.task=binary", "--conditions", "none", "--out", str(folder)),
    )
    table = list(csv.reader(called("predict", str(folder), str(path)).splitlines()))
    assert table[0] == ["prediction", *(f"p({name})" for name in cells)]
    written = [row[0] for row in table[1:]]
    assert set(written) == set(cells)
    assert (np.array(written) == rows["y"].to_numpy()).mean() > 0.8
    predicted = svfl.load_models(folder).predict(pd.read_csv(path))
    assert set(predicted.tolist()) == set(values)
    assert (predicted == pd.read_csv(path)["y"]).mean() > 0.8
    assert json.loads((folder / "server.json").read_text())["class_values"]["values"] == values
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["evaluation_data"]["classes"] == list(cells)


def test_changed_values_in_a_folder_are_refused(tmp_path):
    data = svfl.VerticalDataset.from_numpy(X, Y, parties=2)
    svfl.run("split", data, **TINY).export(tmp_path)
    model = svfl.load_model(tmp_path / "server.npz")
    for values in ([0, 1, 2], ["0", "1"], [0, 0]):
        about = {**model.about, "class_values": {"type": "int64", "values": values}}
        changed = tmp_path / "changed.npz"
        type(model)(about, model.arrays).save(Path(changed))
        with pytest.raises(DataError, match="damaged, or of another version"):
            svfl.load_model(changed)


@pytest.mark.parametrize(
    "y",
    [
        Y + 1,
        Y.astype(bool),
        Y.astype(np.int8),
        Y.astype(np.float32),
        np.where(Y, "yes", "no"),
        np.where(Y, "yes", "no").astype(object),
        pd.Series(Y, dtype="category"),
        pd.Series(Y, dtype="Int64"),
        pd.Series(np.where(Y, "yes", "no"), dtype="string"),
    ],
)
def test_estimators_give_the_labels_of_the_user_after_pickling_too(y):
    made = svfl.VFLClassifier("split", parties=2, rounds=40, lr=0.1, random_state=0).fit(X, y)
    again = pickle.loads(pickle.dumps(made))  # noqa: S301 (our own bytes)
    assert again.classes_.dtype == made.classes_.dtype
    assert again.predict(X).dtype == made.predict(X).dtype
    assert (again.predict(X) == made.predict(X)).all()
    assert (made.predict(X) == np.asarray(y)).mean() > 0.8
