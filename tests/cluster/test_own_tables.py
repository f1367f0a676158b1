"""Parties on a cluster that read their own tables: the numbers of one process that has all."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from typer.testing import CliRunner

import securevfl as svfl
from securevfl.cli.app import app
from securevfl.engine.cluster import connect
from securevfl.errors import ConfigurationError, DataError
from securevfl.study.plan import DataSource

ray = pytest.importorskip("ray")

OPTIONS = {"rounds": 6, "width": 6, "hidden": 8, "batch": 32}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    connect(None)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    digits, draw = load_digits(), np.random.default_rng(0)
    for n, columns in enumerate(np.array_split(np.arange(64), 4)):
        rows = draw.permutation(300)[:280]
        table = pd.DataFrame(digits.data[rows][:, columns], columns=[f"x{c}" for c in columns])
        table.insert(0, "id", rows)
        table.to_csv(folder / f"{n}.csv", index=False)
    rows = draw.permutation(300)
    labels = pd.DataFrame({"id": rows, "digit": digits.target[rows]})
    labels.to_csv(folder / "labels.csv", index=False)
    return folder


def source(folder):
    return DataSource(
        "mine",
        {
            "party_files": [str(folder / f"{n}.csv") for n in range(4)],
            "label_file": str(folder / "labels.csv"),
            "label": "digit",
            "id_column": "id",
            "seed": 0,
        },
    )


def test_the_driver_needs_no_table(tables, tmp_path, monkeypatch):
    """The driver's own loader is taken away; FedVS has the simulation's numbers all the same."""
    wanted = svfl.run("fedvs", source(tables), conditions="none", **OPTIONS)

    def never(*_):
        raise AssertionError("the driver has read a table")

    monkeypatch.setattr(DataSource, "load", never)
    monkeypatch.setattr("securevfl.data.apart.read_csv", never)
    found = svfl.run("fedvs", source(tables), engine="ray", out=tmp_path / "run", **OPTIONS)
    assert [r["loss"] for r in found.history] == [r["loss"] for r in wanted.history]
    assert found.summary()["test_accuracy"] == wanted.summary()["test_accuracy"]
    assert found.history[-1]["test_loss"] == pytest.approx(wanted.history[-1]["test_loss"])
    assert not any(part.any() for part in found.protocol.data.train)
    with pytest.raises(DataError, match="encoded where its table is"):
        found.predict(np.zeros((1, 64)))
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert "summary.json" in left
    assert not {"parties", "facts.json", "driver.svfl"} & left


def test_by_one_command(tables, tmp_path):
    files = [word for n in range(4) for word in ("--party", str(tables / f"{n}.csv"))]
    arguments = ["run", "split", *files, "--id", "id", "--label", "digit", "--label-file",
                 str(tables / "labels.csv"), "--engine", "ray", "--rounds", "4", "--json",
                 "--out", str(tmp_path / "run")]  # fmt: skip
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout.strip().splitlines()[-1])
    assert said["engine"] == "ray"
    assert said["rounds"] == 4
    assert 0 <= said["test_accuracy"] <= 1


def test_what_is_wrong_with_a_table_is_told_with_its_party(tables, tmp_path):
    folder = tmp_path / "tables"
    shutil.copytree(tables, folder)
    table = pd.read_csv(folder / "2.csv")
    table.loc[5, "id"] = table.loc[6, "id"]
    table.to_csv(folder / "2.csv", index=False)
    with pytest.raises(DataError, match=r"party 2: 2\.csv: the id '\d+' occurs more than once"):
        svfl.run("fedvs", source(folder), engine="ray", out=tmp_path / "run", **OPTIONS)


def test_what_cannot_stay_apart_is_refused_before_anything_starts(tables, tmp_path):
    with pytest.raises(ConfigurationError, match="cvfl on a cluster with tables of the parties'"):
        svfl.run("cvfl", source(tables), engine="ray", out=tmp_path / "run", rounds=2)
    with pytest.raises(ConfigurationError, match="give out="):
        svfl.run("fedvs", source(tables), engine="ray", **OPTIONS)
