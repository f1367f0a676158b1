"""Pre-training loops, and the pull towards what they found."""

import numpy as np
import pytest

from securevfl.engine.streams import keyed_stream
from securevfl.errors import ConfigurationError
from securevfl.models.client_networks import make_client_network
from securevfl.models.early_stopping import EarlyStopping
from securevfl.models.pretraining.pretext import Sizes, make_objective
from securevfl.models.pretraining.trainer import (
    HeldOut,
    PretrainingOptions,
    ProximalTerm,
    batches_of,
    check_rows,
    own_rows,
    self_supervise,
    supervise,
)
from securevfl.models.split import Centre, mean_loss, measure
from securevfl.models.weights import weights_of
from securevfl.runs.threads import one_thread

SGD = {"name": "sgd", "lr": 0.1}


@pytest.fixture(autouse=True)
def single():
    """Small steps are slower on two threads, and their sums would depend on the number."""
    with one_thread():
        yield


def stream(name, *keys):
    return keyed_stream(0, 0, name, *keys)


def network(kind="mlp", optimizer=SGD, width=3):
    return make_client_network(
        kind, 4, width, 2, image_shape=None, stream=stream("init"), optimizer=optimizer
    )


def head(width=3, network="linear", optimizer=SGD):
    return Centre(
        "binary", 1, width, network=network, hidden=5, optimizer=optimizer, seed=int(width)
    )


def clicks(rows=200):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 4)).astype(np.float32)
    return X, (X[:, 0] * X[:, 1] > 0).astype(np.int64)


def test_supervised_pretraining_learns():
    X, y = clicks()
    adam = {"name": "adam", "lr": 0.01}
    net, own = network(optimizer=adam, width=16), head(16, optimizer=adam)
    batches = batches_of(len(y), PretrainingOptions(pretrain_batch=32), stream)
    before = supervise(net, own, X, y, batches, 1)
    after = supervise(net, own, X, y, batches, 60)
    assert after < 0.6 * before
    assert measure("binary", own.scores(net.forward(X)), y)["auc"] > 0.95


def test_early_stopping_ends_training_and_leaves_the_best_weights():
    X, y = clicks(60)
    other, wrong = clicks(90)[0][60:], np.random.default_rng(5).integers(2, size=30)  # no pattern
    adam = {"name": "adam", "lr": 0.05}
    net, own = network(optimizer=adam, width=16), head(16, optimizer=adam)
    batches = batches_of(len(y), PretrainingOptions(pretrain_batch=20), stream)
    stopping = EarlyStopping([net, own], patience=4)
    supervise(net, own, X, y, batches, 200, HeldOut(other, wrong, stopping))
    assert stopping.since == 4
    assert stopping.epochs < 200
    loss = mean_loss("binary", own.scores(net.forward(other)), wrong)
    assert loss == pytest.approx(stopping.lowest)
    # As many epochs as the best one had, without early stopping, leave the same weights.
    again, beside = network(optimizer=adam, width=16), head(16, optimizer=adam)
    supervise(again, beside, X, y, batches, stopping.epochs - 4)
    for name, weight in weights_of(again).items():
        np.testing.assert_array_equal(weight, weights_of(net)[name])


def test_self_supervised_pretraining_separates_rows_from_others():
    X, _ = clicks()
    sizes = Sizes(projection=8, temperature=0.5)
    scarf = make_objective(
        "scarf", 3, sizes, make_target=network, stream=stream("heads"), optimizer=SGD
    )
    net, batches = network(), batches_of(200, PretrainingOptions(pretrain_batch=50), stream)
    losses = [
        self_supervise(net, scarf, X, batches, range(e, e + 1), corruption=0.25, stream=stream)
        for e in range(20)
    ]
    assert losses[-1] < losses[0] - 0.1


def test_no_epochs_change_nothing():
    X, y = clicks()
    net, batches = network(), batches_of(200, PretrainingOptions(), stream)
    before = weights_of(net)
    supervise(net, head(), X, y, batches, 0)
    assert all((weights_of(net)[name] == before[name]).all() for name in before)


def test_rows_of_a_party_are_the_aligned_ones_first():
    aligned, alone = np.zeros((2, 1)), np.ones((3, 1))
    assert own_rows(aligned, alone).ravel().tolist() == [0, 0, 1, 1, 1]
    assert own_rows(aligned, None) is aligned
    with pytest.raises(ConfigurationError, match="client 1 has 1 rows"):
        check_rows("vflhlp", "client 1", 1)


# -- the pull --------------------------------------------------------------------------------------


def pulled(model, target, beta, clip=None):
    return ProximalTerm(tuple(target), beta, clip).pulling(model, list(target.values()))


@pytest.mark.parametrize("kind", ["mlp", "pn"])
def test_the_pull_is_the_gradient_of_the_penalty(kind):
    net, plain = network(kind), network(kind)
    target = {name: w + 0.5 for name, w in weights_of(net).items()}
    X, gradient = clicks(9)[0], np.random.default_rng(1).normal(size=(9, 3)).astype(np.float32)
    with pulled(net, target, 0.3):
        net.update(X, gradient)
    plain.update(X, gradient)
    for name, weight in weights_of(net).items():
        # theta - Theta = -0.5, so the step differs by -lr beta (-0.5).
        np.testing.assert_allclose(weight, weights_of(plain)[name] + 0.1 * 0.3 * 0.5, atol=1e-6)


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_a_head_is_pulled_where_it_reads_the_first_party(kind):
    own, plain = head(6, kind), head(6, kind)
    target = {name: w + 1 for name, w in weights_of(head(3, kind)).items()}
    X, y = np.random.default_rng(1).normal(size=(8, 6)).astype(np.float32), np.arange(8) % 2
    start = weights_of(own)
    with pulled(own, target, 0.2):
        own.step(X, np.arange(8), y)
    plain.step(X, np.arange(8), y)
    for name, weight in weights_of(own).items():
        wanted = weights_of(plain)[name]
        part = tuple(slice(n) for n in target[name].shape)
        wanted[part] -= 0.1 * 0.2 * (start[name][part] - target[name])
        np.testing.assert_allclose(weight, wanted, atol=1e-6)
    first = next(name for name, w in start.items() if w.shape[-1:] == (6,))
    assert (weights_of(own)[first][:, 3:] == weights_of(plain)[first][:, 3:]).all()


def test_a_clipped_gradient_has_the_largest_norm():
    net = network()
    target = {name: w + 50 for name, w in weights_of(net).items()}
    before = weights_of(net)
    with pulled(net, target, 2.0, clip=0.3):
        net.update(clicks(9)[0], np.ones((9, 3), np.float32))
    moved = [weights_of(net)[name] - weight for name, weight in before.items()]
    norm = np.sqrt(sum((step**2).sum() for step in moved))
    assert norm == pytest.approx(0.1 * 0.3, rel=1e-4)  # lr times the clip


def test_a_step_outside_of_the_pull_is_as_if_there_were_none():
    own, plain = head(), head()
    frozen = {name: w + 1 for name, w in weights_of(own).items()}
    for array in frozen.values():
        array.setflags(write=False)  # as a function of protected values is given it
    with pulled(own, frozen, 1.0):
        pass
    X, y = np.ones((4, 3), np.float32), np.array([0, 1, 1, 1])
    own.step(X, np.arange(4), y)
    plain.step(X, np.arange(4), y)
    assert all((weights_of(own)[n] == w).all() for n, w in weights_of(plain).items())
