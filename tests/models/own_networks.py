"""Networks and losses that a user could bring: good ones, and one of each fault."""

import torch
from torch import nn
from torch.nn import functional


class Tower(nn.Sequential):
    """A client's network."""

    def __init__(self, inputs, outputs):
        super().__init__(nn.Linear(inputs, 9), nn.Tanh(), nn.Linear(9, outputs))


def centre(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 7), nn.ReLU(), nn.Linear(7, outputs))


def normalising(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs))


def smoothed(scores, labels):
    return functional.cross_entropy(scores, labels, label_smoothing=0.1)


def plain(scores, labels):
    return functional.cross_entropy(scores, labels)


def too_wide(inputs, outputs):
    return nn.Linear(inputs, outputs + 1)


def of_other_rows(inputs, outputs):
    return nn.Linear(inputs + 1, outputs)


def no_module(inputs, outputs):
    return lambda rows: rows


def no_weights(inputs, outputs):
    return nn.Identity()


def takes_nothing():
    return nn.Linear(1, 1)


def dropping(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, outputs), nn.Dropout(0.5))


def dropping_seldom(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, outputs), nn.Dropout(1e-6))


def counting(inputs, outputs):
    class Counting(nn.Linear):
        def forward(self, rows):
            return super().forward(rows).argmax(dim=1)

    return Counting(inputs, outputs)


def row_losses(scores, labels):
    return functional.cross_entropy(scores, labels, reduction="none")


def detached(scores, labels):
    return torch.tensor(1.0)


def failing(scores, labels):
    raise KeyError("ours")


NUMBER = 3
