import numpy as np

from securevfl.engine import wire
from securevfl.engine.streams import keyed_stream
from securevfl.models.client_networks import make_client_network
from securevfl.models.early_stopping import EarlyStopping
from securevfl.models.split import Centre

SGD = {"name": "sgd", "lr": 0.1}


def centre():
    return Centre("binary", 1, 3, network="mlp", hidden=4, optimizer=SGD, seed=0)


def step(network):
    rows = np.ones((2, 3), np.float32)
    network.step(rows, np.arange(2), np.array([0, 1]))
    return network.scores(rows)


def test_it_keeps_the_best_and_stops_after_the_patience():
    network = centre()
    stopping = EarlyStopping([network], 2)
    stopping.take(3.0)
    best = step(network)
    stopping.take(1.0)
    assert not stopping.over
    for loss, over in ((1.0, False), (2.0, True)):
        step(network)
        stopping.take(loss)
        assert stopping.over is over
    assert stopping.lowest == 1.0
    assert (network.scores(np.ones((2, 3))) != best).any()
    stopping.restore_best()
    assert (network.scores(np.ones((2, 3))) == best).all()


def test_running_statistics_are_those_of_the_best_network_too():
    network = Centre("binary", 1, 3, network="batch_norm_mlp", hidden=4, optimizer=SGD, seed=0)
    polynomial = make_client_network(
        "pn", 3, 3, 2, image_shape=None, stream=keyed_stream(0, 0, "init"), optimizer=SGD
    )
    rows = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    labels = np.array([0, 1] * 4)
    stopping = EarlyStopping([network, polynomial], 3)
    network.step(rows, np.arange(8), labels)
    stopping.take(1.0)
    best = network.scores(rows), polynomial.forward(rows)
    network.step(5 * rows + 3, np.arange(8), labels)  # other means and variances
    polynomial.update(rows, np.ones((8, 3), np.float32))
    stopping.take(2.0)
    assert (network.scores(rows) != best[0]).any()
    stopping.restore_best()
    assert (network.scores(rows) == best[0]).all()
    assert (polynomial.forward(rows) == best[1]).all()


def test_a_lower_loss_begins_anew():
    stopping = EarlyStopping([centre()], 2)
    for loss in (3.0, 4.0, 2.0, 5.0):
        stopping.take(loss)
    assert (stopping.since, stopping.over) == (1, False)


def test_its_state_goes_through_bytes():
    network = centre()
    stopping = EarlyStopping([network], 2)
    best = step(network)
    stopping.take(1.0)
    stopping.take(1.5)
    other = centre()
    copy = EarlyStopping([other], 2)
    copy.load_state_dict(wire.decode(wire.encode(stopping.state_dict())))
    assert (copy.lowest, copy.since) == (1.0, 1)
    copy.restore_best()
    assert (other.scores(np.ones((2, 3))) == best).all()


def test_without_any_loss_there_is_nothing_to_restore():
    network = centre()
    before = network.scores(np.ones((2, 3)))
    EarlyStopping([network], 2).restore_best()
    assert (network.scores(np.ones((2, 3))) == before).all()
