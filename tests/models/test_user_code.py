"""Networks and losses of the user's own: found by name, seeded, checked, never run by a file."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import tomli_w
import torch

import securevfl as svfl
from securevfl.errors import CheckpointError, ConfigurationError
from securevfl.models import user_code
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.verified import bare_of
from tests.models import own_networks

SMALL = {"rounds": 4, "batch": 16, "width": 5, "hidden": 6, "seed": 2}
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def data():
    return svfl.load_dataset("digits", parties=4).subset(60, 20)


@pytest.fixture(autouse=True)
def _nothing_allowed(monkeypatch):
    monkeypatch.setattr(user_code, "_GIVEN", {})
    monkeypatch.setenv(user_code.ALLOWED, "")


def test_a_network_a_centre_and_a_loss_are_used(data):
    run = svfl.run(
        "split",
        data,
        own_client=own_networks.Tower,
        own_centre=own_networks.centre,
        own_loss="tests.models.own_networks:smoothed",
        **SMALL,
    )
    assert isinstance(bare_of(run.parties[0].network).module, own_networks.Tower)
    assert bare_of(run.parties[0].network).module[0].in_features == data.widths[0]
    assert bare_of(run.parties[-1].centre).network[0].out_features == 7
    assert run.spec.options["own_client"] == "tests.models.own_networks:Tower"
    assert run.spec.options["own_loss"] == "tests.models.own_networks:smoothed"


def test_an_own_twin_of_a_known_network_trains_the_same(data):
    """The client "mlp" of two layers is what this own one is, drawn by the same streams."""

    def twin(inputs, outputs):
        from torch import nn

        return nn.Sequential(nn.Linear(inputs, 5), nn.ReLU(), nn.Linear(5, outputs))

    def head(inputs, outputs):
        from securevfl.models.networks import mlp

        return mlp(inputs, 6, outputs)

    known = svfl.run("split", data, client="mlp", degree=2, **SMALL)
    ours = svfl.run(
        "split", data, own_client=twin, own_centre=head, own_loss=own_networks.plain, **SMALL
    )
    assert [row["loss"] for row in ours.history] == [row["loss"] for row in known.history]
    new = [x[:3] for x in data.test]
    assert (
        ours.protocol.scores(ours.parties, new) == known.protocol.scores(known.parties, new)
    ).all()


def test_another_loss_is_another_run(data):
    plain = svfl.run("fedvs", data, own_loss=own_networks.plain, **SMALL)
    smoothed = svfl.run("fedvs", data, own_loss=own_networks.smoothed, **SMALL)
    usual = svfl.run("fedvs", data, **SMALL)
    losses = [[row["loss"] for row in run.history] for run in (plain, smoothed, usual)]
    assert losses[0] == losses[2] != losses[1]


def test_torch_s_own_generator_is_left_alone(data):
    before = torch.random.get_rng_state()
    user_code.named(own_networks.dropping)
    user_code.own_network("tests.models.own_networks:dropping", "own_centre", 3, 2, seed=0)
    assert (torch.random.get_rng_state() == before).all()


def test_running_statistics_have_not_seen_the_check():
    user_code.named(own_networks.normalising)
    made = user_code.own_network(
        "tests.models.own_networks:normalising", "own_centre", 3, 2, seed=0
    )
    assert made[1].running_mean.tolist() == [0, 0]
    assert made[1].num_batches_tracked == 0


FAULTS = {
    "own_centre": {
        "too_wide": r"of shape \(3, 11\) for 3 rows of 5 numbers; float32 of shape \(3, 10\)",
        "of_other_rows": "failed on 3 rows of 5 numbers: RuntimeError",
        "no_module": "a torch.nn.Module is needed",
        "no_weights": "no weights that could be trained",
        "takes_nothing": "was called with the widths 5 and 10",
        "counting": r"int64 of shape \(3,\)",
        "NUMBER": "is 3, no class and no function",
    },
    "own_client": {
        "normalising": r"own_client = '[\w.]+own_networks:normalising' failed on a single row",
        "dropping": "leave out dropout",
        "dropping_seldom": "draws from torch's generator .* leave out dropout",
        "too_wide": r"\(3, 6\)",
    },
    "own_loss": {
        "row_losses": r"Tensor of shape \(16,\)",
        "detached": "gradients can be taken of",
        "failing": "failed on scores of shape .*KeyError",
    },
}


@pytest.mark.parametrize(
    ("option", "name", "message"),
    [(o, name, text) for o, names in FAULTS.items() for name, text in names.items()],
)
def test_faults_of_own_code_are_said_before_or_where_they_happen(data, option, name, message):
    with pytest.raises(ConfigurationError, match=message):
        svfl.run("split", data, **{option: f"tests.models.own_networks:{name}"}, **SMALL)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tests.models.own_networks", "not of the form module:name"),
        (":centre", "not of the form"),
        ("no_such_module_of_ours:centre", "No module named"),
        ("tests.models.own_networks:nothing", "no attribute 'nothing'"),
    ],
)
def test_a_name_that_leads_nowhere(data, name, message):
    with pytest.raises(ConfigurationError, match=message):
        svfl.run("split", data, own_centre=name, **SMALL)


def test_functions_of_one_name_are_told_apart():
    def made(number):
        return lambda inputs, outputs: number

    first, second = made(1), made(2)
    names = [user_code.named(first), user_code.named(second), user_code.named(first)]
    assert names[0] == names[2] != names[1]
    assert [user_code.found(name, "x")(0, 0) for name in names] == [1, 2, 1]


# -- files name no code ------------------------------------------------------------------------


def planted(tmp_path, monkeypatch):
    """A module that leaves a mark when it is imported."""
    mark = tmp_path / "imported"
    text = (HERE / "own_networks.py").read_text()
    (tmp_path / "planted_net.py").write_text(f"open({str(mark)!r}, 'w').close()\n{text}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "planted_net", raising=False)
    return mark


def test_a_run_folder_imports_nothing_that_the_user_did_not_name(tmp_path, monkeypatch, data):
    mark = planted(tmp_path, monkeypatch)
    run = svfl.run("split", data, out=tmp_path / "run", **SMALL)
    config = tomllib.loads((tmp_path / "run/config.toml").read_text())
    config["options"]["own_centre"] = "planted_net:centre"
    (tmp_path / "run/config.toml").write_text(tomli_w.dumps(config))
    with pytest.raises(CheckpointError, match=r"config\.toml in .* is damaged"):
        svfl.load_run(tmp_path / "run", data=run.protocol.data)
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    for name in ("files", "checksum"):  # whoever plants code takes the checksums away, too
        del summary[name]
    (tmp_path / "run/summary.json").write_text(json.dumps(summary))
    with pytest.raises(ConfigurationError, match="files must not name code"):
        svfl.load_run(tmp_path / "run", data=run.protocol.data)
    assert not mark.exists()


def test_named_again_a_run_is_read_back_and_its_models_too(tmp_path, monkeypatch, data):
    mark = planted(tmp_path, monkeypatch)
    name = "planted_net:centre"
    run = svfl.run("split", data, own_centre=name, out=tmp_path / "run", **SMALL)
    assert mark.exists()
    run.export(tmp_path / "models")
    new = np.random.default_rng(0).integers(0, 17, (3, 64))
    monkeypatch.setenv(user_code.ALLOWED, "")
    again = svfl.load_run(tmp_path / "run", data=data, code=[name])
    assert (again.scores(new) == run.scores(new)).all()
    monkeypatch.setenv(user_code.ALLOWED, "")
    parts = [new[:, list(p)] for p in data.transform.positions]
    with pytest.raises(ConfigurationError, match="files must not name code"):
        svfl.load_models(tmp_path / "models").scores(parts)
    models = svfl.load_models(tmp_path / "models", code=[name])
    np.testing.assert_allclose(models.scores(parts), run.scores(new), atol=1e-4)


def test_a_study_imports_nothing_that_the_user_did_not_name(tmp_path, monkeypatch):
    from securevfl.studies.run import run_study
    from securevfl.studies.study import read_study

    mark = planted(tmp_path, monkeypatch)
    (tmp_path / "study.toml").write_text(
        'title = "x"\ndataset = "digits"\nseeds = 1\n[options]\nrounds = 2\nwidth = 3\n'
        '[runs.a]\nprotocol = "split"\nown_centre = "planted_net:centre"\n'
    )
    study = read_study(tmp_path / "study.toml")
    with pytest.raises(ConfigurationError, match="files must not name code"):
        run_study(study, tmp_path / "out")
    assert not mark.exists()
    user_code.allow("planted_net:centre")
    assert run_study(study, tmp_path / "out")["runs"]["a"]["test_accuracy"]["values"]


def test_a_config_alone_allows_nothing():
    config = make_config(get_protocol("split"), {"own_centre": "os:system"})
    with pytest.raises(ConfigurationError, match="files must not name code"):
        user_code.found(config.own_centre, "own_centre")


def test_protocols_whose_claims_own_code_could_break_refuse_it(data):
    with pytest.raises(ConfigurationError, match="leave out own_centre"):
        svfl.run("wait_dp", data, noise_on="gradients", own_centre=own_networks.centre, **SMALL)
    with pytest.raises(ConfigurationError, match="running statistics"):
        svfl.run("multivfl", data, own_centre=own_networks.normalising, **SMALL)
    with pytest.raises(ConfigurationError, match="client = 'own'"):
        svfl.run("split", data, own_client=own_networks.Tower, quantized=True, **SMALL)


def test_a_copy_of_the_folder_leaves_no_module_behind(tmp_path):
    shutil.copy(HERE / "own_networks.py", tmp_path / "elsewhere_net.py")
    before = list(sys.path)
    user_code.allow("elsewhere_net:centre")
    with pytest.raises(ConfigurationError, match="No module named"):
        user_code.found("elsewhere_net:centre", "x")
    assert sys.path == before
