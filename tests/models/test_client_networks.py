import numpy as np
import pytest
import torch

from securevfl.engine import wire
from securevfl.engine.streams import keyed_stream
from securevfl.errors import ConfigurationError
from securevfl.models.client_networks import CHANNELS, make_client_network
from securevfl.models.networks import make_centre, training_bytes
from securevfl.models.split import Centre

SHAPE = (1, 2, 3)
SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.9}
KINDS = ("pn", "mlp", "cnn")
DEPTHS = (1, 2, 3)


def network(kind, depth=2, seed=0, optimizer=SGD, bound=None, shape=SHAPE):
    stream = keyed_stream(seed, 1, "init")
    options = {"image_shape": shape, "stream": stream, "optimizer": optimizer, "bound": bound}
    return make_client_network(kind, 6, 4, depth, **options)


def rows(count=5, seed=0):
    features = np.random.default_rng(seed).random((count, 6)).astype(np.float32)
    features.flags.writeable = False  # as those of a data set
    return features


def plain_forward(made, kind, features):
    """The same function of the same weights, written down in torch's functional form."""
    from torch.nn import functional

    state = {k: v.clone().requires_grad_() for k, v in made.state_dict()["module"].items()}
    hidden = torch.from_numpy(features.copy())
    if kind == "cnn":
        hidden = hidden.reshape(-1, *SHAPE)
    names = sorted({key.split(".")[0] for key in state}, key=int)
    for place, name in enumerate(names):
        weight, bias = state[f"{name}.weight"], state[f"{name}.bias"]
        last = place == len(names) - 1
        if kind == "cnn" and not last:
            hidden = functional.conv2d(hidden, weight, bias, padding=1).relu()
        else:
            hidden = functional.linear(hidden.flatten(1), weight, bias)
            hidden = hidden if last else hidden.relu()
    return hidden, state


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_forward_and_update_are_those_of_plain_torch(kind, depth):
    made, features = network(kind, depth), rows()
    gradient = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    hidden, state = plain_forward(made, kind, features)
    np.testing.assert_allclose(made.forward(features), hidden.detach().numpy(), atol=1e-6)
    hidden.backward(torch.from_numpy(gradient))
    assert made.update(features, gradient) == 0
    for name, after in made.state_dict()["module"].items():
        wanted = state[name].detach() - 0.1 * state[name].grad  # momentum starts with the gradient
        np.testing.assert_allclose(after.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_each_row_is_computed_for_itself(kind):
    made, features = network(kind), rows()
    one_by_one = np.concatenate([made.forward(features[i : i + 1]) for i in range(5)])
    together = made.forward(features)
    assert together.shape == (5, 4)
    assert together.dtype == np.float32
    np.testing.assert_allclose(together, one_by_one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "depth", "operations"),
    [
        ("pn", 3, (6 * 3 + 1) * 4),
        ("mlp", 1, 6 * 4),
        ("mlp", 3, 6 * 4 + 2 * 4 * 4),
        ("cnn", 1, 6 * 9 * CHANNELS + 6 * CHANNELS * 4),
        ("cnn", 2, 6 * 9 * CHANNELS * (1 + CHANNELS) + 6 * CHANNELS * 4),
    ],
)
def test_operations_are_the_multiply_adds_of_a_row(kind, depth, operations):
    assert network(kind, depth).operations == operations


@pytest.mark.parametrize("kind", KINDS)
def test_weights_stay_within_their_bound_and_clips_are_counted(kind):
    made, gradient = network(kind, bound=0.2), np.full((5, 4), 10, np.float32)
    assert made.update(rows(), gradient) > 0
    state = made.state_dict()
    weights = [state["weight"]] if kind == "pn" else state["module"].values()
    assert max(float(w.abs().max()) for w in weights) <= np.float32(0.2)


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_goes_on_where_it_was(kind):
    adam = {"name": "adam", "lr": 0.01}
    one, two = network(kind, optimizer=adam), network(kind, seed=1, optimizer=adam)
    gradient = np.random.default_rng(2).normal(size=(5, 4)).astype(np.float32)
    one.update(rows(), gradient)
    two.load_state_dict(wire.decode(wire.encode(one.state_dict())))  # as a checkpoint does
    for _ in range(2):
        one.update(rows(), gradient)
        two.update(rows(), gradient)
    assert (one.forward(rows()) == two.forward(rows())).all()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_follow_the_stream_and_leave_torchs_global_state(kind):
    before = torch.get_rng_state()
    one, two, other = network(kind), network(kind), network(kind, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert (one.forward(rows()) == two.forward(rows())).all()
    assert (one.forward(rows()) != other.forward(rows())).any()


def test_a_convolution_needs_an_image_and_takes_strips_of_one_pixel():
    with pytest.raises(ConfigurationError, match="use 'mlp' or 'pn'"):
        network("cnn", shape=None)
    assert network("cnn", shape=(1, 1, 6)).forward(rows()).shape == (5, 4)
    assert network("cnn", shape=(3, 2, 1)).forward(rows()).shape == (5, 4)


@pytest.mark.parametrize(("width", "pools"), [(1, 0), (6, 1), (49, 2), (1024, 5)])
def test_vgg13_takes_embeddings_of_any_width(width, pools):
    made = make_centre("vgg13", width, 0, 7, seed=0)
    kinds = [type(layer).__name__ for layer in made]
    assert kinds.count("Conv2d") == 10
    assert kinds.count("MaxPool2d") == pools
    made.eval()
    with torch.no_grad():
        assert made(torch.ones(2, width)).shape == (2, 7)


def test_vgg13_pads_with_zeros_behind_the_embedding():
    image = make_centre("vgg13", 5, 0, 2, seed=0)[:2](torch.arange(1.0, 6.0)[None])
    assert image.tolist() == [[[[1, 2, 3], [4, 5, 0], [0, 0, 0]]]]


def test_a_step_of_vgg13_is_plain_torchs_and_leaves_padded_rows_alone():
    options = {"network": "vgg13", "hidden": 0, "optimizer": dict(SGD), "seed": 3}
    ours = Centre("multiclass", 3, 9, **options)
    plain = make_centre("vgg13", 9, 0, 3, seed=3)
    H = np.random.default_rng(0).normal(size=(6, 9)).astype(np.float32)
    labels, samples = np.array([0, 1, 2, 1]), np.array([3, 1, -1, 0, 2, -1])
    loss, gradient = ours.step(H, samples, labels)
    inputs = torch.from_numpy(H[samples >= 0]).requires_grad_()
    wanted = torch.nn.functional.cross_entropy(
        plain(inputs), torch.from_numpy(labels[samples[samples >= 0]])
    )
    wanted.backward()
    assert loss == pytest.approx(wanted.item(), rel=1e-5)
    np.testing.assert_allclose(gradient[samples >= 0], inputs.grad.numpy(), rtol=1e-3, atol=1e-6)
    assert not gradient[samples < 0].any()


def test_many_rows_are_scored_in_parts():
    centre = Centre("multiclass", 3, 4, network="mlp", hidden=8, optimizer=dict(SGD), seed=3)
    H = np.random.default_rng(0).normal(size=(2500, 4)).astype(np.float32)
    whole = centre.scores(H)
    assert whole.shape == (2500, 3)
    np.testing.assert_allclose(whole[1000:1100], centre.scores(H[1000:1100]), rtol=1e-5, atol=1e-6)
    assert centre.scores(H[:0]).shape == (0, 3)


def test_the_memory_of_a_step_of_vgg13_is_predicted():
    assert training_bytes("mlp", 784, 256) == 0
    sides = {64: 28, 128: 14, 256: 7}
    values = sum(c * s * s for c, s in sides.items()) + 512 * (3 * 3 + 1)
    per_row = 4 * 6 * values  # two convolutions, each with its normalisation and ReLU
    assert training_bytes("vgg13", 784, 9) - training_bytes("vgg13", 784, 8) == per_row
    weights = sum(w.numel() for w in make_centre("vgg13", 784, 0, 10, seed=0).parameters())
    assert weights == pytest.approx(9.4e6, rel=0.01)


def test_hidden_layers_have_the_widths_that_are_asked_for():
    network = make_client_network(
        "mlp", 7, 3, 2, image_shape=None, stream=keyed_stream(0, 0, "init"),
        optimizer={"name": "sgd", "lr": 0.1}, layers=(5, 4),
    )  # fmt: skip
    shapes = [tuple(w.shape) for w in network.module.parameters() if w.ndim == 2]
    assert shapes == [(5, 7), (4, 5), (3, 4)]
    assert network.operations == 7 * 5 + 5 * 4 + 4 * 3


def test_only_a_perceptron_has_hidden_layers():
    with pytest.raises(ConfigurationError, match="'pn' has no hidden layers"):
        make_client_network(
            "pn", 7, 3, 2, image_shape=None, stream=keyed_stream(0, 0, "init"),
            optimizer={"name": "sgd", "lr": 0.1}, layers=(5,),
        )  # fmt: skip


@pytest.mark.parametrize(("kind", "last"), [("encoder", "ReLU"), ("leaky_encoder", "LeakyReLU")])
def test_encoders_are_those_of_dvfl_s_guests(kind, last):
    made = network(kind)
    features = rows()
    state = {name: value.numpy() for name, value in made.state_dict()["module"].items()}
    inner = features @ state["0.weight"].T + state["0.bias"]
    assert inner.shape == (5, 5)  # half-way between 6 columns and h = 4
    outer = np.where(inner > 0, inner, 0.01 * inner) @ state["2.weight"].T + state["2.bias"]
    wanted = np.where(outer > 0, outer, 0 if last == "ReLU" else 0.01 * outer)
    np.testing.assert_allclose(made.forward(features), wanted, atol=1e-6)
    assert made.operations == 5 * (6 + 4)


def test_an_encoder_has_two_layers():
    with pytest.raises(ConfigurationError, match="has two layers, as in DVFL, and degree = 3"):
        network("encoder", depth=3)


def test_a_server_model_is_dvfl_s_host_and_owner():
    made = make_centre("host_mlp", 20, 8, 3, seed=1)
    shapes = [tuple(weight.shape) for weight in made.parameters() if weight.ndim == 2]
    assert shapes == [(14, 20), (8, 14), (8, 8), (8, 8), (3, 8)]
    owner = make_centre("leaky_mlp", 20, 8, 3, seed=1)
    names = [type(layer).__name__ for layer in owner]
    assert names == ["Linear", "LeakyReLU", "Linear", "LeakyReLU", "Linear"]
