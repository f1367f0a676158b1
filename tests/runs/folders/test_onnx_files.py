"""ONNX files compute what the exported models do."""

import importlib.util

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

import securevfl as svfl
from securevfl.data import load_dataset
from securevfl.errors import ConfigurationError
from securevfl.runs.from_folder import export_folder

SMALL = {"rounds": 2, "width": 3, "batch": 32, "conditions": "none", "seed": 0}
HERE = all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    data = load_dataset("breast-cancer", trees=2).subset(64, 20)
    place = tmp_path_factory.mktemp("onnx") / "run"
    svfl.run("split", data, degree=2, out=place, **SMALL)
    return place


@pytest.mark.parametrize("options", [{"degree": 2}, {"client": "mlp"}])
def test_outputs_are_those_of_the_models(options, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    X, y = load_diabetes(return_X_y=True)
    data = svfl.VerticalDataset.from_numpy([X[:, :6], X[:, 6:]], y).subset(64, 20)
    run = svfl.run("split", data, **options, **SMALL)
    run.export(tmp_path)
    joint = svfl.load_models(tmp_path)
    server, *clients = joint.save_onnx(tmp_path)
    assert [path.stat().st_mode & 0o777 for path in (server, *clients)] == [0o600] * 3

    def computed(path, given):
        session = runtime.InferenceSession(path)
        assert session.get_inputs()[0].shape[1] == given.shape[1]
        return session.run(None, {session.get_inputs()[0].name: given})[0]

    joined = []
    for path, rows in zip(clients, data.test, strict=True):
        joined.append(computed(path, rows))
        assert computed(path, rows[:1]).shape == (1, 3)
    scores = computed(server, np.mean(joined, axis=0))
    parties = run.parties
    np.testing.assert_allclose(scores, run.protocol.scores(parties, data.test), rtol=1e-3)


def test_a_folder_is_exported_with_onnx_files_or_refused(folder, tmp_path):
    if HERE:
        files = [path.name for path in export_folder(folder, tmp_path, onnx=True)]
        assert files[3:] == ["server.onnx", "party-0.onnx", "party-1.onnx"]
    else:
        with pytest.raises(ConfigurationError, match=r"pip install 'securevfl\[onnx\]'"):
            export_folder(folder, tmp_path, onnx=True)


def test_models_that_are_arrays_alone_have_no_onnx_files(tmp_path):
    data = load_dataset("breast-cancer").subset(64, 20)
    svfl.run("local", data, **SMALL).export(tmp_path)
    with pytest.raises(ConfigurationError, match="exported as arrays only"):
        svfl.load_models(tmp_path).server.save_onnx(tmp_path / "server.onnx")
