"""Training steps of SCARF, SimSiam, BYOL and MoCo against one torch graph of the whole."""

import copy

import numpy as np
import pytest
import torch
from torch.nn import functional

from securevfl.engine import wire
from securevfl.engine.streams import keyed_stream
from securevfl.errors import DivergedError, UnknownNameError
from securevfl.models.client_networks import make_client_network
from securevfl.models.pretraining.pretext import Sizes, make_objective
from securevfl.models.weights import parameters_of, weights_of
from securevfl.runs.threads import one_thread

SIZES = Sizes(projection=6, predictor=4, temperature=0.5, memory=5, momentum=0.9)
SGD = {"name": "sgd", "lr": 0.1}
METHODS = ("scarf", "simsiam", "byol", "moco")


@pytest.fixture(autouse=True)
def single():
    """Small steps are slower on two threads, and their sums would depend on the number."""
    with one_thread():
        yield


def network(kind="mlp"):
    return make_client_network(
        kind, 4, 3, 2, image_shape=None, stream=keyed_stream(0, 0, "init"), optimizer=SGD
    )


def objective(method, kind="mlp"):
    return make_objective(
        method,
        3,
        SIZES,
        make_target=lambda: network(kind),
        stream=keyed_stream(0, 0, "heads"),
        optimizer=SGD,
    )


def views(number=0):
    rng = np.random.default_rng(number)
    return tuple(rng.normal(size=(7, 4)).astype(np.float32) for _ in range(2))


def cosine(a, b):
    return (functional.normalize(a, dim=1) * functional.normalize(b, dim=1)).sum(1)


class Oracle:
    """Network, heads and slow copies in one graph, with plain SGD."""

    def __init__(self, method, kind="mlp"):
        self.method = method
        made = objective(method, kind)
        self.module = network(kind).module
        self.heads = made.heads
        self.slow = copy.deepcopy(self.module), copy.deepcopy(made.heads["projector"])
        self.memories = [memory.keys.clone() for memory in getattr(made, "memories", [])]

    def loss(self, one, two):
        z = [self.heads["projector"](self.module(view)) for view in (one, two)]
        if self.method == "scarf":
            similarities = torch.stack([cosine(z[0][i][None], z[1]) for i in range(len(one))])
            rows = torch.arange(len(one))
            return -functional.log_softmax(similarities / 0.5, dim=1)[rows, rows].mean()
        with torch.no_grad():
            slow = [self.slow[1](self.slow[0](view)) for view in (one, two)]
        if self.method == "moco":
            terms = []
            for q, k, memory in zip(z, slow[::-1], self.memories, strict=True):
                wrong = torch.stack([cosine(q, key[None]) for key in memory], dim=1)
                logits = torch.cat([cosine(q, k)[:, None], wrong], dim=1) / 0.5
                terms.append(-functional.log_softmax(logits, dim=1)[:, 0].mean())
            self.keys = slow[::-1]
            return sum(terms) / 2
        p = [self.heads["predictor"](part) for part in z]
        if self.method == "simsiam":
            return -(cosine(p[0], z[1].detach()) + cosine(p[1], z[0].detach())).mean() / 2
        return (2 - cosine(p[0], slow[1]) - cosine(p[1], slow[0])).mean()

    def step(self, one, two):
        loss = self.loss(*(torch.from_numpy(view) for view in (one, two)))
        weights = [*self.module.parameters(), *self.heads.parameters()]
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight -= 0.1 * gradient
            for slow, fast in zip(self.slow, (self.module, self.heads["projector"]), strict=True):
                for a, b in zip(slow.parameters(), fast.parameters(), strict=True):
                    a.copy_(0.9 * a + 0.1 * b)
            for n, memory in enumerate(self.memories):
                self.memories[n] = torch.cat([memory, functional.normalize(self.keys[n], dim=1)])
                self.memories[n] = self.memories[n][-5:]
        return loss.item()


@pytest.mark.parametrize("method", METHODS)
def test_three_steps_are_those_of_the_whole_graph(method):
    ours, net, oracle = objective(method), network(), Oracle(method)
    for number in range(3):
        pair = views(number)
        assert ours.step(net, *pair) == pytest.approx(oracle.step(*pair), abs=1e-5)
    for name, weight in oracle.module.named_parameters():
        np.testing.assert_allclose(weights_of(net)[name], weight.detach().numpy(), atol=1e-5)
    if method in ("byol", "moco"):
        for name, weight in oracle.slow[0].named_parameters():
            slow = weights_of(ours.target)[name]
            np.testing.assert_allclose(slow, weight.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_a_polynomial_network_learns_too(method):
    ours, net = objective(method, "pn"), network("pn")
    before = weights_of(net)["weight"]
    losses = [ours.step(net, *views()) for _ in range(30)]
    assert losses[-1] < losses[0]
    assert (weights_of(net)["weight"] != before).any()


@pytest.mark.parametrize("method", METHODS)
def test_a_restored_objective_goes_on_as_the_first(method):
    one, two = objective(method), objective(method)
    nets = network(), network()
    one.step(nets[0], *views())
    two.load_state_dict(wire.decode(wire.encode(one.state_dict())))
    nets[1].load_state_dict(wire.decode(wire.encode(nets[0].state_dict())))
    assert one.step(nets[0], *views(1)) == two.step(nets[1], *views(1))
    assert one.step(nets[0], *views(2)) == two.step(nets[1], *views(2))


def test_scarf_compares_rows_with_corrupted_ones_and_the_others_two_corrupted_views():
    rows, pool = np.zeros((3, 4), np.float32), np.ones((2, 4), np.float32)
    for method in METHODS:
        one, two = objective(method).views(rows, pool, 0.5, keyed_stream(0, 0, "views"))
        assert (one == 0).all() == (method == "scarf")
        assert (two != 0).sum() == 6


def test_guides_add_gamma_times_their_own_comparison():
    pair = views()
    plain, guided = objective("simsiam"), objective("simsiam")
    target = {view.tobytes(): torch.randn(7, 6) for view in pair}
    guided.guide, guided.guidance = (lambda view: target[view.tobytes()]), 0.25
    h = [torch.from_numpy(network().forward(view)) for view in pair]
    p = [plain.query(plain.heads["projector"](part)) for part in h]
    extra = -sum(cosine(q, target[v.tobytes()]).mean() for q, v in zip(p, pair, strict=True)) / 2
    wanted = plain.loss(*h, pair).item() + 0.25 * extra.item()
    assert guided.loss(*h, pair).item() == pytest.approx(wanted, abs=1e-6)


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()
    objective("moco").step(network(), *views())
    assert torch.equal(before, torch.get_rng_state())


def test_unknown_methods_and_losses_that_are_no_numbers_are_refused():
    with pytest.raises(UnknownNameError, match="simsam"):
        objective("simsam")
    one, two = views()
    net = network()
    with torch.no_grad():
        next(iter(parameters_of(net).values())).fill_(float("nan"))
    with pytest.raises(DivergedError, match="lower pretrain_lr"):
        objective("scarf").step(net, one, two)
