"""Server optimisers against torch's Adam and against their definitions written down once more."""

import numpy as np
import pytest
import torch

from securevfl.errors import UnknownNameError
from securevfl.models.server_optimizers import (
    SERVER_OPTIMIZERS,
    average,
    make_server_optimizer,
)

STEPS = 50
TABLE_2 = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3}


def trained(weights, step, parties=3):
    """What parties may send back in a round: moves of very different sizes."""
    rng = np.random.default_rng(step)
    scale = 10.0 ** rng.integers(-4, 1)
    return [
        {k: (v + scale * rng.normal(size=v.shape)).astype(np.float32) for k, v in weights.items()}
        for _ in range(parties)
    ]


def first_weights():
    rng = np.random.default_rng(99)
    return {
        "a": rng.normal(size=(4, 3)).astype(np.float32),
        "b": rng.normal(size=5).astype(np.float32),
    }


def follow(name, reference, **options):
    """Largest difference from a reference step over 50 rounds, both on the same moves."""
    rule = make_server_optimizer(name, **(TABLE_2 | {"rounds": STEPS} | options))
    weights, far = first_weights(), 0.0
    for r in range(1, STEPS + 1):
        received = trained(weights, r)
        t = {
            k: np.mean([w[k].astype(np.float64) for w in received], axis=0).astype(np.float32)
            - weights[k].astype(np.float64)
            for k in weights
        }
        wanted = {k: reference(k, weights[k].astype(np.float64), t[k], r) for k in weights}
        weights = rule.aggregate(weights, received)
        far = max(far, *(float(np.abs(weights[k] - wanted[k]).max()) for k in weights))
    return far


def test_fedadam_is_torchs_adam_on_the_negative_mean_change():
    state = {}

    def reference(name, weight, t, r):
        if name not in state:
            parameter = torch.zeros(t.shape, dtype=torch.float64, requires_grad=True)
            state[name] = (
                parameter,
                torch.optim.Adam([parameter], lr=1e-3, betas=(0.9, 0.99), eps=1e-3),
            )
        parameter, optimizer = state[name]
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(weight))
        parameter.grad = torch.from_numpy(-t)
        optimizer.step()
        return parameter.detach().numpy().copy()

    assert follow("fedadam", reference) < 1e-6


def by_hand(second, *, demon=False, of_m=False):
    """The definitions, entry by entry, in Python's own floats."""
    state = {}

    def reference(name, weight, t, r):
        result = np.empty_like(weight)
        for place in np.ndindex(weight.shape):
            m, v = state.get((name, place), (0.0, 0.0))
            x = float(t[place])
            if demon:
                left = 1 - (r - 1) / STEPS
                beta = 0.9 * left / ((1 - 0.9) + 0.9 * left)
                m = beta * m + x
                step = m / (1 - beta**r)
            else:
                m = 0.9 * m + 0.1 * x
                step = m / (1 - 0.9**r)
            v = second(v, m if of_m else x)
            state[name, place] = m, v
            result[place] = weight[place] + 1e-3 * step / ((v / (1 - 0.99**r)) ** 0.5 + 1e-3)
        return result

    return reference


def adam(v, x):
    return 0.99 * v + 0.01 * x * x


def yogi(v, x):
    if v > x * x:
        return v - 0.01 * x * x
    return v + 0.01 * x * x if v < x * x else v


def test_fedyogi_is_its_definition():
    assert follow("fedyogi", by_hand(yogi)) < 1e-6
    assert follow("fedyogi", by_hand(adam)) > 1e-6  # the test can tell them apart


def test_feddemonadam_is_its_definition():
    assert follow("feddemonadam", by_hand(adam, demon=True, of_m=True)) < 1e-6
    assert follow("feddemonadam_t2", by_hand(adam, demon=True)) < 1e-6
    assert follow("feddemonadam", by_hand(adam, demon=True)) > 1e-6


def test_demon_begins_with_beta1_and_ends_near_0():
    rule = make_server_optimizer("feddemonadam", **TABLE_2, rounds=10)
    ones, zeros = np.ones(1), np.zeros(1)
    rule.taken = 1
    assert rule.first_moment(ones, zeros) == pytest.approx(0.9)
    rule.taken = 10
    assert rule.first_moment(ones, zeros) == pytest.approx(0.9 * 0.1 / (0.1 + 0.9 * 0.1))


def test_fedavg_is_the_mean_and_of_one_its_very_bits():
    weights = first_weights()
    received = trained(weights, 1)
    mean = make_server_optimizer("fedavg").aggregate(weights, received)
    for name in weights:
        np.testing.assert_allclose(
            mean[name], sum(w[name] for w in received) / 3, rtol=1e-6, atol=1e-6
        )
    alone = average(received[:1])
    assert all((alone[k] == received[0][k]).all() for k in weights)
    assert all(alone[k] is not received[0][k] for k in weights)


@pytest.mark.parametrize("name", SERVER_OPTIMIZERS)
def test_a_restored_optimiser_goes_on_as_the_first(name):
    options = TABLE_2 | {"rounds": 6}
    rule, weights = make_server_optimizer(name, **options), first_weights()
    for r in range(3):
        weights = rule.aggregate(weights, trained(weights, r))
    other = make_server_optimizer(name, **options)
    other.load_state_dict(rule.state_dict())
    for r in range(3, 6):
        received = trained(weights, r)
        again = other.aggregate(weights, received)
        weights = rule.aggregate(weights, received)
        assert all((again[k] == weights[k]).all() for k in weights)


@pytest.mark.parametrize("name", SERVER_OPTIMIZERS)
def test_nothing_that_was_given_is_changed(name):
    weights = first_weights()
    received = trained(weights, 1)
    before = [{k: v.copy() for k, v in each.items()} for each in (weights, *received)]
    make_server_optimizer(name, rounds=3).aggregate(weights, received)
    for each, kept in zip((weights, *received), before, strict=True):
        assert all((each[k] == kept[k]).all() for k in kept)


def test_an_unknown_optimiser_is_refused():
    with pytest.raises(UnknownNameError, match="fedadam"):
        make_server_optimizer("fedadm")
