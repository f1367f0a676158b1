"""Models of a run's folder without the data on which they were trained."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import securevfl as svfl
from securevfl.data.source import DataSource
from securevfl.engine.network import SERVER
from securevfl.errors import CheckpointError, ConfigurationError, SecureVFLWarning
from securevfl.runs.alignment import data_source
from securevfl.runs.claim import MARK, MARKER, refuse_used
from securevfl.runs.folders.descriptions import file_of, read_descriptions
from securevfl.runs.from_folder import export_folder, predict_files

TINY = {"rounds": 3, "width": 4, "hidden": 4, "batch": 16, "conditions": "none"}
NAMES = ("bank", "shop", "lab")


def write_tables(folder: Path, *, people: int = 60) -> list[Path]:
    """Three parties' files, with a text column, missing cells, and ids that differ in part."""
    stream = np.random.default_rng(3)
    files = []
    for place, name in enumerate(NAMES):
        kept = stream.permutation(people)[: people - 4 * place]
        frame = pd.DataFrame({"who": kept, f"{name}1": stream.random(len(kept)).round(3)})
        frame[f"{name}2"] = [("red", "green", "")[k % 3] for k in kept]
        if place == 0:
            frame["bad"] = ["yes" if k % 3 else "no" for k in kept]
        files.append(folder / f"{name}.csv")
        frame.to_csv(files[-1], index=False)
    return files


def source(files: list[Path]) -> DataSource:
    options = {"party_files": list(map(str, files)), "id_column": "who", "label": "bad"}
    return data_source("people", options | {"align": "psi"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose training files were removed after they had been copied for predictions."""
    here = tmp_path_factory.mktemp("descriptions")
    files = write_tables(here)
    svfl.run("fedvs", source(files), out=here / "run", **TINY)
    run = svfl.load_run(here / "run")
    run.export(here / "whole")
    (here / "new").mkdir()
    write_tables(here / "new", people=20)
    frames = [pd.read_csv(here / "new" / f"{name}.csv", dtype=str) for name in NAMES]
    tables = svfl.data.join_rows([frame.fillna("") for frame in frames], "who")
    np.save(here / "expected.npy", run.predict_proba(tables))
    for file in files:
        file.unlink()
    return here


def test_predictions_need_no_training_file(folder):
    found = predict_files(folder / "run", [folder / "new" / f"{name}.csv" for name in NAMES])
    np.testing.assert_allclose(found["probabilities"], np.load(folder / "expected.npy"), rtol=1e-4)
    assert found["classes"] == ["no", "yes"]
    assert found["id_column"] == "who"
    with pytest.raises(ConfigurationError, match=r"needs the training data .*no such file"):
        svfl.load_run(folder / "run")
    with pytest.raises(ConfigurationError, match="needs the training data of the run in"):
        predict_files(folder / "run", [folder / "new" / "bank.csv"] * 3, coded=True)


def test_exports_need_no_training_file_and_are_those_of_the_whole_run(folder):
    paths = export_folder(folder / "run", folder / "kept")
    assert sorted(path.name for path in paths) == sorted(p.name for p in folder.glob("whole/*"))
    for path in paths:
        kept, whole = (svfl.load_model(folder / name / path.name) for name in ("kept", "whole"))
        assert kept.about == whole.about
        assert sorted(kept.arrays) == sorted(whole.arrays)
        assert all((kept.arrays[name] == whole.arrays[name]).all() for name in kept.arrays)


def test_an_export_overwrites_no_other_model(folder, tmp_path):
    kept = export_folder(folder / "run", tmp_path)
    assert export_folder(folder / "run", tmp_path) == kept  # the same files again
    other = tmp_path / "party-1.npz"
    (tmp_path / "party-0.npz").unlink()
    other.write_bytes(b"of another run")
    with pytest.raises(ConfigurationError, match=r"party-1\.npz is there, and is not the model of"):
        export_folder(folder / "run", tmp_path)
    assert other.read_bytes() == b"of another run"
    assert not (tmp_path / "party-0.npz").exists()


def test_texts_that_the_training_rows_lack_are_told(folder, tmp_path):
    write_tables(tmp_path, people=20)
    files = [tmp_path / f"{name}.csv" for name in NAMES]
    predict_files(folder / "run", files)
    text = files[1].read_text()
    files[1].write_text(text.replace("red", "crimson"))
    shared = set.intersection(*(set(pd.read_csv(file)["who"]) for file in files))
    shop = pd.read_csv(files[1])
    unseen = int(((shop["shop2"] == "crimson") & shop["who"].isin(shared)).sum())
    assert unseen > 1
    told = rf"'shop2': {unseen} of \d+ rows .* first 'crimson' in shop\.csv, line \d+; each counts"
    with pytest.warns(SecureVFLWarning, match=told):
        predict_files(folder / "run", files)


def test_models_are_read_from_the_folder_of_a_run(folder):
    joint = svfl.load_models(folder / "run")
    assert [client.about["name"] for client in joint.clients] == list(NAMES)
    assert joint.classes == ("no", "yes")
    assert joint.task == "binary"


def test_each_party_has_a_file_of_its_own_with_nothing_of_the_others(folder):
    for n, name in enumerate(NAMES):
        path = folder / "run" / file_of(n)
        text = path.read_text()
        assert f"{name}1" in text
        assert not any(f"{other}1" in text for other in NAMES if other != name)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    server = json.loads((folder / "run" / file_of(SERVER)).read_text())
    assert server["classes"] == ["no", "yes"]
    assert not any(f"{name}1" in json.dumps(server) for name in NAMES)


def test_files_in_another_order_or_without_a_column_are_named(folder, tmp_path):
    bank, shop, lab = (folder / "new" / f"{name}.csv" for name in NAMES)
    wanted = (
        r"shop.csv has no column 'bank1' of bank \(2 of 2 .* those of shop; .* bank, shop, lab$"
    )
    with pytest.raises(ConfigurationError, match=wanted):
        predict_files(folder / "run", [shop, bank, lab])
    pd.read_csv(shop).drop(columns="shop2").to_csv(tmp_path / "less.csv", index=False)
    with pytest.raises(
        ConfigurationError, match=r"less.csv has no column 'shop2' of shop \(1 of 2"
    ):
        predict_files(folder / "run", [bank, tmp_path / "less.csv", lab])
    with pytest.raises(ConfigurationError, match=r"bank.csv has no column 'shop1' \(4 of 6"):
        predict_files(folder / "run", [bank])


def test_a_wrong_number_of_files_is_refused_before_anything_is_read(folder):
    with pytest.raises(ConfigurationError, match=r"2 files for 3 parties.*\(bank, shop, lab\)"):
        predict_files(folder / "run", [Path("gone.csv"), Path("gone too.csv")])


def test_a_folder_of_an_earlier_version_has_none(tmp_path):
    data = svfl.load_dataset("breast-cancer", parties=3)
    svfl.run("split", data, out=tmp_path / "run", **TINY)
    for path in (tmp_path / "run").glob("*.json"):
        if path.name != "summary.json":
            path.unlink()
    assert read_descriptions(tmp_path / "run") == {}
    with pytest.raises(ConfigurationError, match="pass it as data="):
        export_folder(tmp_path / "run", tmp_path / "models")


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 99}'])
def test_a_damaged_description_is_told(tmp_path, text):
    (tmp_path / file_of(SERVER)).write_text(text)
    with pytest.raises(CheckpointError, match=r"server\.json is damaged"):
        read_descriptions(tmp_path)


def test_descriptions_of_a_result_that_was_not_finished_are_removed(tmp_path):
    (tmp_path / file_of(SERVER)).write_text("{}")
    (tmp_path / file_of(12)).write_text("{}")
    (tmp_path / MARKER).write_text(MARK)
    refuse_used(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [MARKER]
    (tmp_path / "party.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="no folder of a run"):
        refuse_used(tmp_path)
