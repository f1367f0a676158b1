"""Parts of self-supervised methods: corrupted views, losses, moving averages, key queues.

Sources: Bahri, Jiang, Tay, Metzler, "SCARF", 2022; Chen, He, "Exploring simple Siamese
representation learning", 2021; Grill et al., "Bootstrap your own latent", 2020; He, Fan, Wu, Xie,
Girshick, "Momentum contrast", 2020. `securevfl.models.pretraining.pretext` makes training steps of
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.models.tensors import tensor
from securevfl.models.weights import parameters_of

if TYPE_CHECKING:
    from torch import Tensor


def corrupt(
    rows: np.ndarray, pool: np.ndarray, rate: float, stream: np.random.Generator
) -> np.ndarray:
    """A view of rows in which some features have values of other rows (SCARF, Algorithm 1).

    In each row floor(c d) features, and at least one, are chosen at random, and each gets the value
    that it has in a row drawn from the pool: a draw from the feature's empirical marginal.

    Parameters
    ----------
    rows : ndarray, (B, d)
        Columns of the batch's rows.
    pool : ndarray, (M, d)
        Rows of the same party.
    rate : float
        Fraction c of corrupted features, in [0, 1].
    stream : numpy Generator
        Source of random choices.

    Returns
    -------
    ndarray, (B, d), the dtype of `rows`
    """
    count, features = rows.shape
    number = max(1, int(rate * features))
    # The first places of a random order are a uniform choice without repetition, in each row its
    # own; each chosen value comes from another row, so that columns keep their distribution.
    chosen = stream.random(rows.shape).argsort(axis=1)[:, :number]
    donors = stream.integers(len(pool), size=(count, number))
    view = np.array(rows)
    np.put_along_axis(view, chosen, pool[donors, chosen], axis=1)
    return view


# -- losses ------------------------------------------------------------------------------------


def negative_cosine(predicted: Tensor, target: Tensor) -> Tensor:
    """D(p, z) = -mean cos(p, stopgrad(z)) over rows (SimSiam, equations 1 and 3)."""
    from torch.nn import functional

    return -functional.cosine_similarity(predicted, target.detach(), dim=1).mean()


def normalised_distance(predicted: Tensor, target: Tensor) -> Tensor:
    """Mean of |p/|p| - z/|z||^2 = 2 - 2 cos(p, z), no gradient to z (BYOL, equation 2)."""
    return 2 + 2 * negative_cosine(predicted, target)


def momentum_contrast(query: Tensor, key: Tensor, memory: Tensor, temperature: float) -> Tensor:
    """Mean of -log softmax of q.k+ among q.k+ and q.k of the memory (MoCo, equation 1).

    Parameters
    ----------
    query, key : Tensor, (B, d)
        Row i of both belongs to one sample; this function normalises both; keys get no gradient.
    memory : Tensor, (size, d)
        Normalised keys of other samples.
    temperature : float
        Temperature tau > 0.
    """
    import torch
    from torch.nn import functional

    q, k = functional.normalize(query, dim=1), functional.normalize(key.detach(), dim=1)
    positive = (q * k).sum(dim=1, keepdim=True)
    logits = torch.cat([positive, q @ memory.T], dim=1) / temperature
    return functional.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))


def moving_average(slow: Any, fast: Any, momentum: float) -> None:
    """Replace the weights of `slow` by m times themselves plus 1 - m times those of `fast`."""
    import torch

    own, theirs = parameters_of(slow), parameters_of(fast)
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.mul_(momentum).add_(theirs[name], alpha=1 - momentum)


class KeyQueue:
    """Key queue of MoCo: the last `size` normalised keys, first in, first out.

    It begins with random keys, (size, width), from `stream`.
    """

    def __init__(self, size: int, width: int, stream: np.random.Generator) -> None:
        from torch.nn import functional

        drawn = tensor(stream.normal(size=(size, width)), np.float32)
        self.keys = functional.normalize(drawn, dim=1)
        self.next = 0

    def push(self, keys: Tensor) -> None:
        """Replace the oldest keys by new ones, (B, width), which this function normalises."""
        import torch
        from torch.nn import functional

        newest = functional.normalize(keys.detach(), dim=1)[-len(self.keys) :]
        # A ring: the oldest key stands at `next`, and is overwritten first.
        places = (self.next + torch.arange(len(newest))) % len(self.keys)
        self.keys[places] = newest
        self.next = (self.next + len(newest)) % len(self.keys)
