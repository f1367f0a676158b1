"""FedHSSL's parts: pairs of encoders, cross-party steps, and which layers are averaged."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from securevfl.engine import wire
from securevfl.engine.streams import keyed_stream
from securevfl.models.client_networks import make_client_network
from securevfl.models.pretraining.contrast import nt_xent
from securevfl.models.pretraining.cross_party import (
    Cross,
    Pair,
    load_shared,
    shared_weights,
    upper_names,
    weighted_mean,
)
from securevfl.models.pretraining.pretext import Sizes, make_objective
from securevfl.models.weights import weights_of
from securevfl.runs.threads import one_thread

SGD = {"name": "sgd", "lr": 0.1}
SIZES = Sizes(projection=5, predictor=3, temperature=0.5)


@pytest.fixture(autouse=True)
def single():
    """Small steps are slower on two threads, and their sums would depend on the number."""
    with one_thread():
        yield


def network(features=4, drawn="init", cardinalities=(), layers=(6,)):
    return make_client_network(
        "mlp", features, 3, 2, image_shape=None, stream=keyed_stream(0, features, drawn),
        optimizer=SGD, layers=layers, cardinalities=cardinalities, embedding=2,
    )  # fmt: skip


def rows(count=7, features=4, number=0):
    return np.random.default_rng(number).normal(size=(count, features)).astype(np.float32)


# -- pairs -----------------------------------------------------------------------------------------


def test_a_pair_is_its_two_networks_side_by_side():
    pair = Pair(network(), network(drawn="other"))
    X, gradient = rows(), rows(features=6)
    halves = [network(), network(drawn="other")]
    wanted = np.concatenate([half.forward(X) for half in halves], axis=1)
    assert (pair.forward(X) == wanted).all()
    assert pair.operations == sum(half.operations for half in halves)
    pair.update(X, gradient)
    for half, part in zip(halves, (gradient[:, :3], gradient[:, 3:]), strict=True):
        half.update(X, part)
    assert (pair.forward(X) == np.concatenate([h.forward(X) for h in halves], axis=1)).all()


def test_a_pair_is_restored_and_adopts_weights():
    one, two = (Pair(network(), network(drawn=name)) for name in ("b", "c"))
    assert (one.forward(rows()) != two.forward(rows())).any()
    two.adopt(one)
    assert (one.forward(rows()) == two.forward(rows())).all()
    three = Pair(network(drawn="d"), network(drawn="e"))
    three.load_state_dict(wire.decode(wire.encode(one.state_dict())))
    assert (one.forward(rows()) == three.forward(rows())).all()


# -- cross-party steps -----------------------------------------------------------------------------


def cross(method):
    return Cross(method, 3, SIZES, stream=keyed_stream(0, 0, "cross"), optimizer=SGD)


@pytest.mark.parametrize("method", ["simsiam", "byol", "moco"])
def test_the_loss_is_the_mean_over_senders(method):
    X, received = rows(), [rows(features=5, number=n) for n in (1, 2)]
    made, net = cross(method), network()
    z = made.heads["projector"](torch.from_numpy(net.forward(X)))
    assert torch.equal(z, made.project(net, X))
    terms = []
    for other in map(torch.from_numpy, received):
        if method == "moco":
            terms.append(nt_xent(z, other, 0.5).item())
        else:
            p = made.heads["predictor"](z)
            terms.append(-functional.cosine_similarity(p, other).mean().item())
    before = weights_of(net)
    assert made.step(net, X, received) == pytest.approx(np.mean(terms), abs=1e-6)
    assert all((weights_of(net)[n] != before[n]).any() for n in ("0.weight", "2.weight"))
    losses = [made.step(net, X, received[:1]) for _ in range(40)]
    assert losses[-1] < losses[0]


# -- partial aggregation ---------------------------------------------------------------------------


def test_the_upper_layers_are_those_above_the_first_linear_one():
    assert upper_names(network().module) == ["2.weight", "2.bias"]
    deep = network(layers=(6, 5))
    assert upper_names(deep.module) == ["2.weight", "2.bias", "4.weight", "4.bias"]
    coded = network(features=3, cardinalities=(4, 0, 2))
    assert upper_names(coded.module) == ["1.2.weight", "1.2.bias"]
    assert upper_names(network(layers=()).module) == ["2.weight", "2.bias"]


def objective(features):
    return make_objective(
        "simsiam", 3, SIZES, make_target=lambda: network(features),
        stream=keyed_stream(0, features, "heads"), optimizer=SGD,
    )  # fmt: skip


def test_parties_with_and_without_tables_of_embeddings_share_layers():
    coded = network(features=3, cardinalities=(4, 0, 2)), objective(3)
    plain = network(features=9), objective(9)
    mean = weighted_mean([shared_weights(*party) for party in (coded, plain)], [1, 1])
    for party in (coded, plain):
        load_shared(*party, mean)
    one, two = weights_of(coded[0]), weights_of(plain[0])
    assert (one["1.2.weight"] == two["2.weight"]).all()
    assert one["1.0.weight"].shape != two["0.weight"].shape


def test_aggregation_touches_upper_layers_and_heads_and_nothing_else():
    parties = [(network(d), objective(d)) for d in (4, 9)]
    before = [(weights_of(net), weights_of(own.heads)) for net, own in parties]
    mean = weighted_mean([shared_weights(*party) for party in parties], [1, 3])
    for party in parties:
        load_shared(*party, mean)
    after = [(weights_of(net), weights_of(own.heads)) for net, own in parties]
    for old, new in zip(before, after, strict=True):
        for name in ("0.weight", "0.bias"):  # they read the party's own columns
            assert (old[0][name] == new[0][name]).all()
    for part, names in ((0, ("2.weight", "2.bias")), (1, tuple(before[0][1]))):
        for name in names:
            wanted = 0.25 * before[0][part][name] + 0.75 * before[1][part][name]
            for new in after:
                np.testing.assert_allclose(new[part][name], wanted, rtol=1e-6, atol=1e-7)
    assert len(mean) == 2 + len(before[0][1])
