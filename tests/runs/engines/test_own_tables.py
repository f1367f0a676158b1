"""Parties on a cluster that read their own tables: the numbers of one process that has all."""

import json
import os
import shutil
import signal
import sys
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from typer.testing import CliRunner

import securevfl as svfl
from securevfl.cli.app import app
from securevfl.data.alignment.psi import id_order
from securevfl.data.source import DataSource
from securevfl.engine.cluster.supervisor import Cluster
from securevfl.engine.network import SERVER
from securevfl.engine.security.identity import Identity, Manifest, ManifestEntry
from securevfl.errors import ConfigurationError, DataError
from securevfl.runs.alignment import data_source
from securevfl.testing.entropies import kept_entropies, simulated_with

pytest.importorskip("ray")
pytestmark = pytest.mark.usefixtures("cluster")

OPTIONS = {"rounds": 6, "width": 6, "hidden": 8, "batch": 32}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    digits, draw = load_digits(), np.random.default_rng(0)
    for n, columns in enumerate(np.array_split(np.arange(64), 3)):
        rows = draw.permutation(300)[:280]
        table = pd.DataFrame(digits.data[rows][:, columns], columns=[f"x{c}" for c in columns])
        table.insert(0, "id", rows)
        table.to_csv(folder / f"{n}.csv", index=False)
    rows = draw.permutation(300)
    rows = rows[id_order([str(row) for row in rows])]  # then a simulation has the same order
    labels = pd.DataFrame({"id": rows, "digit": digits.target[rows]})
    labels.to_csv(folder / "labels.csv", index=False)
    return folder


def source(folder, parties=3):
    return data_source(
        "mine",
        {
            "party_files": [str(folder / f"{n}.csv") for n in range(parties)],
            "label_file": str(folder / "labels.csv"),
            "label": "digit",
            "id_column": "id",
            "seed": 0,
        },
    )


def identified(folder, protocol, parties, points):
    """The folder, with key files of all parties, and the manifest that all have signed."""
    folder.mkdir()
    names = {SERVER: "server"} | {n: f"party-{n}" for n in range(parties)}
    made = {n: Identity.create(folder / f"{name}.key") for n, name in names.items()}
    entries = {n: ManifestEntry(each.public, points.get(n)) for n, each in made.items()}
    manifest = Manifest("session", protocol, entries)
    for n, each in made.items():
        manifest = manifest.signed(n, each)
    manifest.write(folder / "session.toml")
    return folder


def test_the_driver_needs_no_table(tables, tmp_path, monkeypatch):
    """The driver's own loader is taken away; FedVS has the simulation's numbers all the same."""
    points = {n: n + 3 for n in range(3)}  # beta = 1, 2 and alpha = 3 to 5 for K = T = 1
    identities = identified(tmp_path / "keys", "fedvs", 3, points)

    def never(*_):
        raise AssertionError("the driver has read a table")

    aligning, training = {}, {}

    def assign(cluster, *arguments, **options):
        aligning.update(cluster.processes)
        training["of"] = cluster
        assert not cluster.ask(0, lambda party: "torch" in sys.modules)  # 2 s of a processor
        given(cluster, *arguments, **options)

    given = Cluster.assign
    with monkeypatch.context() as patch, kept_entropies() as entropies:
        patch.setattr(Cluster, "assign", assign)
        patch.setattr(DataSource, "load", never)
        patch.setattr("securevfl.data.local_tables.read_table", never)
        found = svfl.run(
            "fedvs",
            source(tables),
            engine="ray",
            out=tmp_path / "run",
            manifest=identities / "session.toml",
            keys=identities,
            progress=lambda now: training.update(training["of"].processes),
            **OPTIONS,
        )
    assert training.pop("of").processes == {}  # all actors were ended
    assert len(set(aligning.values())) == 4
    assert training == aligning  # the actors that aligned the tables have trained
    with simulated_with(entropies):
        wanted = svfl.run("fedvs", source(tables), conditions="none", **OPTIONS)
    assert [r["loss"] for r in found.history] == [r["loss"] for r in wanted.history]
    assert found.summary()["test_accuracy"] == wanted.summary()["test_accuracy"]
    # The driver's rows are zeros, of which nothing is told.
    assert (found.quality, found.evaluation) == ({}, {})
    assert not any("test rows are of the class" in one for one in found.summary()["notices"])
    assert found.summary()["messages"] == wanted.summary()["messages"]
    assert found.summary()["engine"] == "ray"
    assert found.summary()["secret_choices"] == "each party's, from its own entropy"
    assert found.history[-1]["test_loss"] == pytest.approx(wanted.history[-1]["test_loss"])
    assert not any(part.any() for part in found.protocol.data.train)
    with pytest.raises(DataError, match="encoded where its table is"):
        found.predict(np.zeros((1, 64)))
    with pytest.raises(ConfigurationError, match="read tables of their own"):
        svfl.load_run(tmp_path / "run")
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert "summary.json" in left
    assert not {"parties", "facts.json", "driver.svfl"} & left


def test_by_one_command_and_a_party_that_dies_once_the_tables_are_aligned(
    tables, tmp_path, monkeypatch
):
    """Its new process knows nothing of what the one before was to do: it trains all the same."""
    given, came_back = Cluster.assign, []

    def assign(cluster, *arguments, **options):
        import ray

        actor, before = cluster._records[1].actor, cluster.processes[1]
        os.kill(before, signal.SIGKILL)
        while not came_back:
            with suppress(ray.exceptions.RayActorError):
                came_back.append(ray.get(actor.poll.remote()))
        given(cluster, *arguments, **options)

    monkeypatch.setattr(Cluster, "assign", assign)
    files = [word for n in range(2) for word in ("--party", str(tables / f"{n}.csv"))]
    arguments = ["run", "split", *files, "--id", "id", "--label", "digit", "--label-file",
                 str(tables / "labels.csv"), "--engine", "ray", "--rounds", "4", "--json",
                 "--out", str(tmp_path / "run")]  # fmt: skip
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout.strip().splitlines()[-1])
    assert said["engine"] == "ray"
    assert said["rounds"] == 4
    assert came_back == [None]  # a process without a party
    assert 0 <= said["test_accuracy"] <= 1


def test_what_is_wrong_with_a_table_is_told_with_its_party(tables, tmp_path):
    folder = tmp_path / "tables"
    shutil.copytree(tables, folder)
    table = pd.read_csv(folder / "1.csv")
    table.loc[5, "id"] = table.loc[6, "id"]
    table.to_csv(folder / "1.csv", index=False)
    with pytest.raises(DataError, match=r"party 1: 1\.csv: the id '\d+' occurs more than once"):
        svfl.run("split", source(folder, 2), engine="ray", out=tmp_path / "run", **OPTIONS)


def test_the_tables_are_aligned_among_the_identities_of_the_manifest_only(
    tables, tmp_path, monkeypatch
):
    """Party 1 has another key: the server is never asked what the alignment has found."""

    def never(*_):
        raise AssertionError("the tables were aligned")

    monkeypatch.setattr(Cluster, "ask", never)
    keys = identified(tmp_path / "keys", "split", 2, {})
    for old in ("party-1.key", "party-1.key.pub"):
        (keys / old).unlink()
    Identity.create(keys / "party-1.key")
    with pytest.raises(ConfigurationError, match="party 1"):
        svfl.run(
            "split", source(tables, 2), engine="ray", out=tmp_path / "run", keys=keys,
            manifest=keys / "session.toml", **OPTIONS,
        )  # fmt: skip


def test_what_cannot_stay_apart_is_refused_before_anything_starts(tables, tmp_path):
    with pytest.raises(ConfigurationError, match="cvfl on a cluster with tables of the parties'"):
        svfl.run("cvfl", source(tables), engine="ray", out=tmp_path / "run", rounds=2)
    with pytest.raises(ConfigurationError, match="Set out="):
        svfl.run("fedvs", source(tables), engine="ray", **OPTIONS)
    with pytest.raises(ConfigurationError, match="until needs virtual time"):
        svfl.run("fedvs", source(tables), engine="ray", out=tmp_path / "run", until=9.0)
    assert not (tmp_path / "run").exists()
