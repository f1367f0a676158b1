"""Noise as targets against autograd, and exchanges against all permutations."""

import itertools

import numpy as np
import pytest
import torch

from securevfl.errors import DivergedError
from securevfl.models.client_networks import make_client_network
from securevfl.models.pretraining.noise_targets import NoiseTargets, unit
from securevfl.runs.threads import one_thread

M, D, H = 12, 4, 3


def made(seed=0, lr=0.1):
    stream = np.random.default_rng(seed)
    network = make_client_network(
        "mlp", D, H, 2, image_shape=None, stream=stream, optimizer={"name": "sgd", "lr": lr}
    )
    rows = stream.random((M, D)).astype(np.float32)
    return NoiseTargets(network, M, H, stream=stream), rows


def test_targets_and_representations_lie_on_the_sphere():
    learner, rows = made()
    assert learner.targets.dtype == learner.encode(rows).dtype == np.float32
    for points in (learner.targets, learner.encode(rows)):
        np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, rtol=1e-5)
    assert unit(np.zeros((1, 2), np.float32))[0].tolist() == [[0, 0]]


def test_a_step_is_that_of_autograd():
    learner, rows = made()
    twin, _ = made()
    places = np.array([3, 0, 7, 8])
    with one_thread():
        loss, clipped = learner.train(rows[places], places, reassign=False)
        output = twin.network.module(torch.from_numpy(rows[places]))
        z = output / output.norm(dim=1, keepdim=True)
        wanted = (z - torch.from_numpy(twin.targets[places])).square().sum(dim=1).mean()
        wanted.backward()
        twin.network.optimizer.step()
    assert clipped == 0
    assert loss == pytest.approx(wanted.item(), rel=1e-5)
    pairs = zip(learner.network.module.parameters(), twin.network.module.parameters(), strict=True)
    for one, two in pairs:
        np.testing.assert_allclose(one.detach(), two.detach(), atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_an_exchange_is_the_best_of_all(seed):
    learner, rows = made(seed)
    places = np.array([1, 5, 2, 9, 11])
    before = learner.assigned.copy()
    z = learner.encode(rows[places])
    learner.reassign(z, places)
    found = (z * learner.targets[learner.assigned[places]]).sum()
    best = max(
        (z * learner.targets[before[list(order)]]).sum() for order in itertools.permutations(places)
    )
    assert found == pytest.approx(best, rel=1e-5)
    assert sorted(learner.assigned.tolist()) == list(range(M))  # nobody shares a target
    others = np.setdiff1d(np.arange(M), places)
    assert (learner.assigned[others] == before[others]).all()


def test_it_learns_to_meet_the_targets():
    learner, rows = made()
    places = np.arange(M)
    losses = [learner.train(rows, places, reassign=step % 3 == 0)[0] for step in range(60)]
    assert losses[-1] < 0.5 * losses[0]


def test_a_checkpoint_gives_all_back():
    (learner, rows), (copy, _) = made(), made(1)
    copy.targets = learner.targets  # of the stream of the run, so not part of the state
    places = np.arange(M)
    learner.train(rows, places, reassign=True)
    copy.load_state_dict(learner.state_dict())
    assert (copy.encode(rows) == learner.encode(rows)).all()
    one, two = (each.train(rows, places, reassign=False)[0] for each in (learner, copy))
    assert one == two


def test_a_loss_that_is_not_finite_is_an_error():
    learner, rows = made()
    with pytest.raises(DivergedError, match="lower the clients' lr"):
        learner.train(rows * np.float32(np.nan), np.arange(M), reassign=False)
