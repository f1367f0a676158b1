"""Exported models and estimators whose files were changed: refused by errors of ours, or used."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest

import securevfl as svfl
from securevfl.data.dataset import VerticalDataset
from securevfl.errors import CheckpointError, DataError, SecureVFLError, SecureVFLWarning
from securevfl.reading import read_arrays
from securevfl.runs.export import kept_models
from securevfl.runs.folders.descriptions import file_of
from tests.runs.changed_files import changed

OPTIONS = {"rounds": 2, "width": 5, "hidden": 7, "batch": 16, "conditions": "none"}
PARTIES = 3
KINDS = {
    "polynomial": ("fedvs", {}),
    "perceptron": ("split", {"client": "mlp", "aggregation": "concat"}),
}


def tables(rows: int) -> list[pd.DataFrame]:
    """Three parties' tables: numbers, of which one is missing, texts, and three classes."""
    rng = np.random.default_rng(5)
    first = pd.DataFrame({"age": rng.normal(size=rows), "town": rng.choice([*"xyz"], rows)})
    first["class"] = rng.choice(["p", "q", "r"], rows)
    first.loc[3, "age"] = np.nan
    second = pd.DataFrame({"pay": rng.normal(size=rows), "job": rng.choice([*"uv"], rows)})
    return [first, second, pd.DataFrame({"debt": rng.normal(size=rows)})]


@pytest.fixture(scope="module", params=KINDS)
def models(request, tmp_path_factory):
    """Folder of exported models, rows of each party, and the embeddings of these rows."""
    protocol, options = KINDS[request.param]
    frames = tables(80)
    data = VerticalDataset.from_pandas(frames, "class")
    folder = tmp_path_factory.mktemp("models")
    svfl.run(protocol, data, out=folder / "run", **OPTIONS, **options).export(folder)
    rows = {n: frame.head(4) for n, frame in enumerate(frames)}
    embeddings = {n: svfl.load_model(folder / f"party-{n}.npz").embed(rows[n]) for n in rows}
    return folder, {"server": embeddings, "party-0": rows}


def used(path, rows):
    """What the changed model of a party, or of the server, says of rows."""
    model = svfl.load_model(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecureVFLWarning)  # another category: a text that is new
        return model.predict_proba(rows) if path.stem == "server" else model.embed(rows[0])


def refused(path, rows, arrays, why):
    """Whether a file of these arrays is refused; other errors than ours, and NaN, fail."""
    with path.open("wb") as file:
        np.savez(file, **arrays)
    try:
        found = np.asarray(used(path, rows))
    except SecureVFLError:
        return True
    except Exception as error:
        raise AssertionError(f"{why}: {type(error).__name__}: {error}") from error
    assert np.isfinite(found).all(), why
    return False


@pytest.mark.parametrize("name", ["server", "party-0"])
def test_changed_descriptions_are_refused_or_of_no_effect_on_the_form(models, tmp_path, name):
    folder, rows = models
    arrays = read_arrays(folder / f"{name}.npz")
    about = json.loads(arrays["about"].tobytes())
    path, counts = tmp_path / f"{name}.npz", [0, 0]
    for why, new in changed(about):
        text = np.frombuffer(json.dumps(new).encode(), np.uint8)
        counts[refused(path, rows[name], arrays | {"about": text}, why)] += 1
    assert counts[1] > 8 * counts[0] > 0  # names, offsets and fillings may have other values


@pytest.mark.parametrize("name", ["server", "party-0"])
def test_changed_weights_are_refused(models, tmp_path, name):
    folder, rows = models
    arrays = read_arrays(folder / f"{name}.npz")
    path = tmp_path / f"{name}.npz"
    for key in set(arrays) - {"about"}:
        own = arrays[key]
        others = [np.full_like(own, np.nan), own[:-1], own.astype(str), own.astype(complex)]
        for new in (*others, np.zeros(()), np.zeros(0)):
            assert refused(path, rows[name], arrays | {key: new}, f"{key}: {new.dtype} {new.shape}")
        assert refused(path, rows[name], {k: v for k, v in arrays.items() if k != key}, f"no {key}")
        assert not refused(path, rows[name], arrays | {key: own.astype(np.float64)}, key)


def test_a_network_larger_than_its_weights_is_not_made(models):
    """Its layers would be drawn before anybody saw that the weights are others."""
    folder, _ = models
    arrays = read_arrays(folder / "server.npz")
    about = json.loads(arrays["about"].tobytes())
    about["network"]["hidden"] = 10**6
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(folder / "large.npz", **arrays)
    embeddings = {n: np.zeros((2, 5)) for n in range(PARTIES)}
    with pytest.raises(DataError, match=r"0\.bias is \(7,\), and the network has \(1000000,\)"):
        svfl.load_model(folder / "large.npz").scores(embeddings)


def test_embeddings_of_another_width_are_refused(models):
    server = svfl.load_model(models[0] / "server.npz")
    with pytest.raises(DataError, match=r"numbers a row, and the server model takes (5|15);"):
        server.scores({n: np.zeros((2, 4)) for n in range(PARTIES)})


def test_changed_descriptions_of_a_run_are_refused(models):
    path = models[0] / "run" / file_of(0)
    whole = path.read_text()
    about = json.loads(whole)
    about["preprocessing"]["offset"].pop()
    try:
        path.write_text(json.dumps(about))
        with pytest.raises(CheckpointError, match=r"damaged: preprocessing: \d offsets and"):
            kept_models(models[0] / "run")
    finally:
        path.write_text(whole)
