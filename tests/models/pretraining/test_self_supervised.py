"""Losses, views, memories of self-supervised methods against values worked out by hand."""

from math import exp, log, sqrt

import numpy as np
import pytest
import torch
from torch import nn

from securevfl.engine.streams import keyed_stream
from securevfl.models.pretraining.self_supervised import (
    KeyQueue,
    corrupt,
    momentum_contrast,
    moving_average,
    negative_cosine,
    normalised_distance,
)

P = torch.tensor([[2.0, 0.0], [1.0, 1.0]])
Z = torch.tensor([[3.0, 0.0], [5.0, 0.0]])  # cosines with P: 1 and 1/sqrt 2


def stream(name="views"):
    return keyed_stream(3, 0, name)


# -- SCARF's views ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "changed"), [(0.0, 1), (0.2, 1), (0.5, 2), (0.6, 3), (1.0, 5)])
def test_so_many_features_of_each_row_are_replaced(rate, changed):
    rows = np.zeros((40, 5), np.float32)
    pool = np.arange(1, 36, dtype=np.float32).reshape(7, 5)  # each value occurs once
    view = corrupt(rows, pool, rate, stream())
    assert ((view != 0).sum(axis=1) == changed).all()
    for feature in range(5):
        values = set(view[:, feature].tolist()) - {0.0}
        assert values <= set(pool[:, feature].tolist())
    assert (rows == 0).all()


def test_values_are_drawn_from_the_marginal_and_features_uniformly():
    pool = np.array([[1.0, 0.0]] * 3 + [[0.0, 0.0]], np.float32)
    view = corrupt(np.full((8000, 2), 9, np.float32), pool, 0.5, stream())
    first = view[:, 0][view[:, 0] != 9]
    # 8000 draws each: 5 standard deviations are 0.028 and 0.034, so one test in 10^6 fails.
    assert abs(len(first) / 8000 - 0.5) < 0.028
    assert abs((first == 1).mean() - 0.75) < 0.034


def test_features_are_drawn_independently_of_each_other():
    pool = np.array([[1.0, 1.0], [2.0, 2.0]], np.float32)
    view = corrupt(np.zeros((400, 2), np.float32), pool, 1.0, stream())
    assert (view[:, 0] != view[:, 1]).any()


# -- losses ----------------------------------------------------------------------------------------


def test_negative_cosine():
    assert negative_cosine(P, Z).item() == pytest.approx(-(1 + 1 / sqrt(2)) / 2, abs=1e-6)


def test_normalised_distance_is_the_square_of_the_difference_of_unit_vectors():
    # |(1, 0) - (1, 0)|^2 = 0 and |(1, 1)/sqrt 2 - (1, 0)|^2 = 2 - sqrt 2.
    assert normalised_distance(P, Z).item() == pytest.approx((2 - sqrt(2)) / 2, abs=1e-6)


@pytest.mark.parametrize("loss", [negative_cosine, normalised_distance])
def test_no_gradient_goes_to_the_target(loss):
    p, z = P.clone().requires_grad_(), Z.clone().requires_grad_()
    loss(p, z).backward()
    assert z.grad is None
    assert p.grad.abs().sum() > 0


def test_momentum_contrast():
    memory = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    c = 1 / sqrt(2)
    # tau = 1/2. First query (1, 0): 2 against 0 and -2. Second (c, c): 2c against 2c and -2c.
    wanted = -log(exp(2) / (exp(2) + 1 + exp(-2)))
    wanted -= log(exp(2 * c) / (2 * exp(2 * c) + exp(-2 * c)))
    found = momentum_contrast(P, Z, memory, 0.5)
    assert found.item() == pytest.approx(wanted / 2, abs=1e-6)


# -- memory and moving average ---------------------------------------------------------------------


def test_the_oldest_keys_leave_the_memory_first():
    memory = KeyQueue(3, 2, stream())
    assert torch.allclose(memory.keys.norm(dim=1), torch.ones(3))
    oldest = memory.keys[2].clone()
    memory.push(torch.tensor([[2.0, 0.0], [0.0, 3.0]]))
    assert torch.equal(memory.keys[:2], torch.eye(2))
    assert torch.equal(memory.keys[2], oldest)
    memory.push(torch.tensor([[-1.0, 0.0], [0.0, -1.0]]))
    assert memory.keys.tolist() == [[0.0, -1.0], [0.0, 1.0], [-1.0, 0.0]]


def test_a_batch_larger_than_the_memory_leaves_its_last_keys():
    memory = KeyQueue(2, 1, stream())
    memory.push(torch.tensor([[1.0], [-1.0], [-1.0]]))
    assert memory.keys.tolist() == [[-1.0], [-1.0]]


def test_follow_is_an_exponential_moving_average():
    slow, fast = nn.Linear(1, 1), nn.Linear(1, 1)
    with torch.no_grad():
        for layer, value in ((slow, 1.0), (fast, 2.0)):
            layer.weight.fill_(value)
            layer.bias.fill_(-value)
    moving_average(slow, fast, 0.9)
    assert slow.weight.item() == pytest.approx(1.1)
    assert slow.bias.item() == pytest.approx(-1.1)
    moving_average(slow, fast, 0.9)
    assert slow.weight.item() == pytest.approx(1.19)
    assert fast.weight.item() == 2.0
