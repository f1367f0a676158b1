"""Networks on a device: the same run as on the processor, and clear words where there is none.

What needs an accelerator is skipped without one. "cpu:0" is placed like any other device, so the
way there and back is tested everywhere.
"""

import numpy as np
import pytest
import torch

import securevfl as svfl
from securevfl.errors import ConfigurationError
from securevfl.models.tensors import place
from securevfl.protocols.base.registry import find_protocols, get_protocol

# torch's first backward pass on a GPU says so of its own thread; it goes on all the same.
pytestmark = pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")
DEVICES = [
    "cpu:0",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    ),
]
OPTIONS = {"rounds": 6, "centre": "conv", "width": 16, "hidden": 8, "seed": 3, "eval_every": 3}
METHODS = [
    ("split", {"client": "cnn"}),
    ("vafl", {"client": "mlp"}),
    ("cvfl", {"client": "mlp", "mode": "sync"}),
    ("multivfl", {"client": "cnn", "label_owners": 2, "server_optimizer": "fedadam"}),
    ("fedvs", {}),
    ("coded_split", {}),
    ("local", {"client": "mlp"}),
    ("fedonce", {}),
    ("secagg_split", {"client": "mlp"}),
    ("wait_dp", {"client": "mlp", "noise": "seeded"}),
    ("wait_dp", {"client": "mlp", "noise": "seeded", "noise_on": "gradients", "centre": "mlp"}),
    ("vflhlp", {"client": "mlp", "pretrain_epochs": 2, "beta": 0.1, "centre": "mlp"}),
    ("fedhssl", {"client": "mlp", "method": "moco", "memory": 64, "pretrain_epochs": 2}),
    ("ssl_local", {"client": "mlp", "method": "byol", "pretrain_epochs": 2}),
]


def there_is_the_processor_only(network, device):
    if device != "cpu":
        raise ConfigurationError(f"there is no {device}")


@pytest.fixture(scope="module")
def digits():
    return svfl.load_dataset("digits", parties=4).subset(400)  # and all test rows


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("protocol", "options"), METHODS)
def test_a_run_on_a_device_has_the_scores_of_the_processor(protocol, options, device, digits):
    runs = [
        svfl.run(protocol, digits, **(OPTIONS | options), device=name) for name in ("cpu", device)
    ]
    here, there = ([row["accuracy"] for row in run.history if "accuracy" in row] for run in runs)
    if device == "cpu:0":
        assert here == there
    else:  # it rounds otherwise
        assert np.allclose(here, there, atol=0.02)


@pytest.mark.parametrize("device", DEVICES)
def test_a_run_from_a_device_is_resumed_and_exported(device, digits, tmp_path):
    whole = svfl.run("split", digits, **OPTIONS, client="cnn", device=device)
    folder, asked = tmp_path / "run", iter([False] * 3)
    with pytest.raises(svfl.Interrupted):
        svfl.run(
            "split",
            digits,
            **OPTIONS,
            client="cnn",
            device=device,
            out=folder,
            interrupted=lambda: next(asked, True),
        )
    resumed = svfl.resume(folder, data=digits)
    close = {"rtol": 0, "atol": 0 if device == "cpu:0" else 1e-3}
    assert len(resumed.history) == len(whole.history) == 6
    assert np.allclose(resumed.history[-1]["loss"], whole.history[-1]["loss"], **close)
    read = svfl.load_run(folder, data=digits)
    assert np.allclose(read.scores(digits.test), resumed.scores(digits.test), **close)


def test_a_finished_run_is_read_where_its_device_is_not(digits, tmp_path, monkeypatch):
    options = {**OPTIONS, "client": "cnn", "device": "cpu:0"}
    done = svfl.run("split", digits, **options, out=tmp_path / "run")
    for module in ("split", "client_networks"):
        monkeypatch.setattr(f"securevfl.models.{module}.place", there_is_the_processor_only)
    with pytest.raises(ConfigurationError, match="cpu:0"):
        svfl.run("split", digits, **options)
    read = svfl.load_run(tmp_path / "run", data=digits)
    assert np.array_equal(read.scores(digits.test), done.scores(digits.test))


def test_weights_and_their_names_do_not_tell_of_the_device():
    plain, placed = (torch.nn.Sequential(torch.nn.Linear(3, 2)) for _ in range(2))
    placed.load_state_dict(plain.state_dict())
    place(placed, "cpu:0")
    assert placed.state_dict().keys() == plain.state_dict().keys()
    rows = torch.linspace(0, 1, 12).reshape(4, 3).requires_grad_()
    assert torch.equal(placed(rows), plain(rows))
    placed(rows).sum().backward()
    assert rows.grad is not None


@pytest.mark.parametrize("device", ["meta", "toaster", "cuda:99", ""])
def test_a_device_that_is_not_there_is_refused_with_those_that_are(device, digits):
    with pytest.raises(ConfigurationError, match=r"cannot be used: .*here: cpu"):
        svfl.run("split", digits, **OPTIONS, device=device)


@pytest.mark.parametrize(
    "protocol",
    [name for name in find_protocols() if "device" in get_protocol(name).Config.model_fields],
)
def test_no_protocol_ignores_the_device(protocol, digits):
    if protocol == "he_split":
        pytest.importorskip("tenseal")
    with pytest.raises(ConfigurationError, match="device = 'toaster' cannot be used"):
        svfl.run(protocol, digits, rounds=1, device="toaster")


def test_options_of_other_names_lead_to_ours(digits):
    with pytest.raises(ConfigurationError, match="device = cuda"):
        svfl.run("split", digits, rounds=1, gpu=True)
