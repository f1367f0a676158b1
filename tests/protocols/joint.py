"""Split training written down once more, as one torch model: the oracle of the baselines."""

import functools

import numpy as np
import torch

from securevfl.data import load_dataset
from securevfl.engine.conditions import Conditions, Delay
from securevfl.testing.runs import tiny_data


def data(parties=4, rows=90):
    return load_dataset("digits", parties=parties).subset(rows, 30)


# Clients of these learn for themselves before or beside the others, which is what their runs cost.
LEARN_ALONE = ("dvfl", "fedhssl", "multivfl", "ssl_local", "vflhlp")


@functools.cache
def tiny_in(hands):
    """The checks' small rows, of other parties."""
    return tiny_data().with_parties(hands)


def three_hands(name):
    """The same of three parties for methods that are costly; None, as usual, for others."""
    return tiny_in(3) if name in LEARN_ALONE else None


def strips(parties=4, rows=40):
    """Images whose pixel rows belong to several parties."""
    from securevfl.data import VerticalDataset

    rng = np.random.default_rng(0)
    images, labels = rng.random((rows + 10, 8, 8)), np.arange(rows + 10) % 3
    return VerticalDataset.from_numpy(
        images[:rows],
        labels[:rows],
        test_features=images[rows:],
        test_labels=labels[rows:],
        parties=parties,
        strips="rows",
    )


def slow(*parties, of=4, seconds=1000.0):
    """Conditions in which the named clients' uploads take very long."""
    shifts = [seconds if n in parties else 0.0 for n in range(of)]
    return Conditions(name="fixed", uploads=tuple(Delay(shift=s) for s in shifts))


def aggregate(rule, embeddings, parties):
    """Joint embedding of some clients', {party: tensor}."""
    if rule == "concat":
        zeros = torch.zeros_like(next(iter(embeddings.values())))
        return torch.cat([embeddings.get(n, zeros) for n in range(parties)], dim=1)
    stack = torch.stack([embeddings[n] for n in sorted(embeddings)])
    return stack.mean(dim=0) if rule == "mean" else stack.max(dim=0).values


def powers(rows, degree):
    """``[X | X^2 | ... | 1]`` of a polynomial network."""
    rows = torch.from_numpy(np.array(rows))
    return torch.cat([*(rows**i for i in range(1, degree + 1)), torch.ones(len(rows), 1)], dim=1)


class Client:
    """A polynomial or other network of a client, trained by autograd and SGD."""

    def __init__(self, network, degree, lr):
        self.degree = degree
        self.module = getattr(network, "module", None)
        if self.module is None:
            self.weight = network.weight.detach().clone().requires_grad_()
        parameters = [self.weight] if self.module is None else list(self.module.parameters())
        self.optimizer = torch.optim.SGD(parameters, lr=lr)

    def embed(self, rows):
        if self.module is None:
            return powers(rows, self.degree) @ self.weight
        return self.module(torch.from_numpy(np.array(rows)))


def loss_of(centre, joint, labels):
    return torch.nn.functional.cross_entropy(centre(joint), torch.from_numpy(labels))
