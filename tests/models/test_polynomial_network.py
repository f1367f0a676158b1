import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from securevfl.engine.streams import keyed_stream
from securevfl.errors import ConfigurationError, UnknownNameError
from securevfl.field import FixedPoint, PrimeField
from securevfl.models.polynomial_network import PolynomialNetwork, expand, expanded_width

SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
ADAM = {"name": "adam", "lr": 0.05}


def network(features=5, width=3, degree=2, *, optimizer=SGD, bound=None, seed=0):
    stream = keyed_stream(seed, 0, "init")
    return PolynomialNetwork(
        features, width, degree, stream=stream, optimizer=dict(optimizer), bound=bound
    )


shapes = st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(1, 5))


@given(shapes, st.integers(0, 1000))
def test_expand_holds_all_powers_and_one_column_of_ones(shape, seed):
    rows, d, degree = shape
    X = np.random.default_rng(seed).uniform(-2, 2, (rows, d))
    powers = expand(X, degree)
    assert powers.shape == (rows, expanded_width(d, degree))
    np.testing.assert_allclose(powers[:, :-1], np.hstack([X**i for i in range(1, degree + 1)]))
    assert (powers[:, -1] == 1).all()
    assert expand(X.astype(np.float32), degree).dtype == np.float32


@given(shapes, st.integers(0, 1000))
def test_the_network_is_the_papers_sum_over_layers(shape, seed):
    rows, d, degree = shape
    model = network(d, 4, degree, seed=seed)
    X = np.random.default_rng(seed).uniform(-1, 1, (rows, d)).astype(np.float32)
    W = model.values
    wanted = sum(X ** (i + 1) @ W[i * d : (i + 1) * d] for i in range(degree)) + W[-1]
    np.testing.assert_allclose(model.forward(X), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimizer", [SGD, ADAM])
@pytest.mark.parametrize("degree", [1, 2, 4])
def test_the_closed_form_gradient_steps_as_autograd_does(degree, optimizer):
    model = network(degree=degree, optimizer=optimizer)
    weight = torch.from_numpy(model.values.copy()).requires_grad_()
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
    options = {k: v for k, v in optimizer.items() if k != "name"}
    other = kinds[optimizer["name"]]([weight], **options)
    rng = np.random.default_rng(degree)
    for _ in range(5):
        X = rng.uniform(-1, 1, (7, 5)).astype(np.float32)
        target = torch.from_numpy(rng.normal(size=(7, 3)).astype(np.float32))
        x = torch.from_numpy(X)
        embedding = torch.hstack([x**i for i in range(1, degree + 1)] + [torch.ones(7, 1)]) @ weight
        embedding.retain_grad()
        other.zero_grad()
        ((embedding - target) ** 2).mean().backward()
        model.update(X, embedding.grad.numpy())
        other.step()
        np.testing.assert_allclose(model.values, weight.detach().numpy(), rtol=2e-5, atol=1e-6)


def test_the_bound_is_enforced_and_counted():
    model = network(bound=0.5)
    X, gradient = np.ones((4, 5), np.float32), np.full((4, 3), -100, np.float32)
    assert model.update(X, gradient) == model.values.size
    assert (model.values == np.float32(0.5)).all()
    assert network(bound=None).update(X, gradient) == 0


@pytest.mark.parametrize(("p", "bits"), [(2**31 - 1, (8, 8)), (2**61 - 1, (20, 24))])
@pytest.mark.parametrize("degree", [1, 3])
def test_the_field_evaluates_the_same_definition_exactly(p, bits, degree):
    field = PrimeField(p)
    lx, lw = bits
    model = network(6, 4, degree)
    X = np.random.default_rng(1).uniform(-1, 1, (9, 6)).astype(np.float32)
    data, weights = FixedPoint(field, bits=lx), FixedPoint(field, bits=lw)
    coded = field.matmul(data.quantize(expand(X, degree)), weights.quantize(model.values))
    # Python integers: round half up, multiply, reduce.
    rounded = [[int(np.floor(v * 2**lx + 0.5)) for v in r] for r in expand(X, degree).tolist()]
    columns = [[int(np.floor(v * 2**lw + 0.5)) for v in c] for c in model.values.T.tolist()]
    exact = [[sum(a * b for a, b in zip(r, c, strict=True)) for c in columns] for r in rounded]
    assert coded.tolist() == [[value % p for value in row] for row in exact]
    assert abs(np.array(exact)).max() < p // 2
    real = weights.dequantize(coded, bits=lx + lw)
    np.testing.assert_allclose(real, model.forward(X), atol=8 * 6 * degree * 2.0 ** -min(bits))


def test_the_state_goes_on_where_it_was():
    rng = np.random.default_rng(0)
    batches = [(rng.normal(size=(4, 5)), rng.normal(size=(4, 3))) for _ in range(6)]
    batches = [(x.astype(np.float32), g.astype(np.float32)) for x, g in batches]
    for optimizer in (SGD, ADAM):
        whole = network(optimizer=optimizer)
        for batch in batches:
            whole.update(*batch)
        first, second = network(optimizer=optimizer), network(optimizer=optimizer, seed=9)
        for batch in batches[:3]:
            first.update(*batch)
        second.load_state_dict(first.state_dict())
        for batch in batches[3:]:
            second.update(*batch)
        assert (second.values == whole.values).all()


def test_initial_weights_follow_the_stream_and_torchs_scale():
    model = network(50, 40, 2)
    limit = 1 / np.sqrt(100)
    assert (model.values[-1] == 0).all()
    assert np.abs(model.values).max() <= limit
    assert abs(model.values[:-1].std() / (limit / np.sqrt(3)) - 1) < 0.05
    assert (model.values == network(50, 40, 2).values).all()
    assert (model.values != network(50, 40, 2, seed=1).values)[:-1].all()


def test_impossible_sizes_and_optimisers_are_refused():
    for sizes in [(0, 1, 1), (1, 0, 1), (1, 1, 0)]:
        with pytest.raises(ConfigurationError, match="at least 1"):
            network(*sizes)
    with pytest.raises(UnknownNameError, match="sgd"):
        network(optimizer={"name": "sgdd", "lr": 1.0})
