import numpy as np
import pytest
import torch

from securevfl.engine.streams import OwnEntropy, SecretSeed, keyed_stream
from securevfl.errors import ConfigurationError
from securevfl.models import weights
from securevfl.models.client_networks import make_client_network
from securevfl.models.split import Centre
from securevfl.models.weights import (
    initialised,
    load_weights,
    penalty,
    refuse_running_statistics,
    weights_of,
)

SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.9}


def network(kind, seed=0):
    stream = keyed_stream(seed, 1, "init")
    return make_client_network(kind, 12, 4, 2, image_shape=(1, 3, 4), stream=stream, optimizer=SGD)


def centre(name="mlp", seed=0):
    return Centre("multiclass", 3, 4, network=name, hidden=5, optimizer=SGD, seed=seed)


MODELS = {
    **{kind: lambda seed, kind=kind: network(kind, seed) for kind in ("pn", "mlp", "strided_cnn")},
    "centre": lambda seed: centre(seed=seed),
    "conv": lambda seed: centre("conv", seed),
}


@pytest.mark.parametrize("name", MODELS)
def test_loaded_weights_are_the_others(name):
    one, two = MODELS[name](0), MODELS[name](1)
    before = weights_of(one)
    assert any((before[k] != w).any() for k, w in weights_of(two).items())
    load_weights(two, before)
    after = weights_of(two)
    assert before.keys() == after.keys()
    assert all((before[k] == after[k]).all() for k in before)
    before[next(iter(before))] += 1  # a copy: the network does not follow
    assert all((after[k] == weights_of(two)[k]).all() for k in after)


@pytest.mark.parametrize("name", ["pn", "mlp", "strided_cnn"])
def test_the_gradient_of_the_penalty_is_a_weight_decay_of_1(name):
    one = MODELS[name](0)
    weights = weights_of(one)
    assert penalty(one) == pytest.approx(
        sum((w.astype(float) ** 2).sum() / 2 for w in weights.values())
    )
    decayed = make_client_network(
        name, 12, 4, 2, image_shape=(1, 3, 4), stream=keyed_stream(0, 1, "init"),
        optimizer={"name": "sgd", "lr": 0.1, "weight_decay": 1.0},
    )  # fmt: skip
    rows = np.zeros((2, 12), np.float32)
    decayed.update(rows, np.zeros((2, 4), np.float32))
    for name_, value in weights_of(decayed).items():
        np.testing.assert_allclose(value, weights[name_] * 0.9, rtol=1e-5, atol=1e-7)


def test_weights_of_another_shape_are_refused():
    with pytest.raises(ConfigurationError, match="the network has"):
        load_weights(network("pn"), weights_of(network("mlp")))


def test_running_statistics_are_refused():
    refuse_running_statistics("cvfl", "conv", centre("conv").network)
    with pytest.raises(ConfigurationError, match="keeps running statistics"):
        refuse_running_statistics("cvfl", "batch_norm_mlp", centre("batch_norm_mlp").network)


def test_gradients_and_apply_are_a_step():
    rng = np.random.default_rng(0)
    H = rng.normal(size=(6, 4)).astype(np.float32)
    samples, labels = np.arange(6), np.arange(6) % 3
    stepped, split, applied = centre(), centre(), centre()
    for _ in range(3):
        loss, dH = stepped.step(H, samples, labels)
        again, same, own = split.gradients(H, samples, labels)
        applied.apply(own)
        load_weights(split, weights_of(applied))
        assert (loss, dH.tolist()) == (again, same.tolist())
    ours, theirs = weights_of(applied), weights_of(stepped)
    assert all((ours[k] == theirs[k]).all() for k in ours)
    assert torch.equal(
        applied.optimizer.state_dict()["state"][0]["momentum_buffer"],
        stepped.optimizer.state_dict()["state"][0]["momentum_buffer"],
    )


# -- first weights -------------------------------------------------------------------------------


def words():
    """Words of torch's generator, as a network is built."""
    return torch.default_generator.get_state().numpy().copy().view("<u8")[3:627]


def test_a_stream_of_ones_own_entropy_fills_the_whole_generator():
    own = OwnEntropy(0, bytes(range(32)))
    made = initialised(words, own.stream(0, "init"))
    drawn = own.stream(0, "init")
    number = drawn.integers(2**31)
    assert np.array_equal(made, drawn.integers(2**32, size=624, dtype=np.uint64))
    seeded = initialised(words, int(number))
    assert (seeded != made).sum() > 600
    assert np.array_equal(made, initialised(words, own.stream(0, "init")))


def test_a_stream_of_a_seed_gives_a_number():
    """The histories of simulations stay what they were."""
    stream = SecretSeed(3).stream(0, "init")
    number = int(SecretSeed(3).stream(0, "init").integers(2**31))
    assert np.array_equal(initialised(words, stream), initialised(words, number))


@pytest.mark.parametrize("kind", ["mlp", "strided_cnn", "centre"])
def test_networks_of_ones_own_entropy_are_not_those_of_any_number(kind):
    own = OwnEntropy(1, bytes(range(32)))

    def made(seed):
        if kind == "centre":
            return weights_of(
                Centre("multiclass", 3, 4, network="mlp", hidden=5, optimizer=SGD, seed=seed)
            )
        options = {"image_shape": (1, 3, 4), "stream": seed, "optimizer": SGD}
        return weights_of(make_client_network(kind, 12, 4, 2, **options))

    whole = made(own.stream(1, "init"))
    assert all((whole[name] == one).all() for name, one in made(own.stream(1, "init")).items())
    short = made(int(own.stream(1, "init").integers(2**31))) if kind == "centre" else None
    assert short is None or any((whole[name] != one).any() for name, one in short.items())
    before = torch.default_generator.get_state()
    made(own.stream(1, "init"))
    assert (torch.default_generator.get_state() == before).all()


def test_a_generator_that_is_laid_out_otherwise_is_refused():
    laid = torch.zeros(5056, dtype=torch.uint8)
    laid[0] = 7
    with pytest.raises(RuntimeError, match="laid out otherwise than known"):
        weights._drawn(laid, OwnEntropy(0, bytes(32)).stream(0, "init"))
