"""Split training of polynomial networks in a plain loop, for benchmarks/frontier.py.

Networks, batches, initial weights and optimisers are those of ``securevfl run split`` with the same
options and seed; there are no parties, messages or time. All clients' weights are in one matrix.
Results are the same up to the order of additions, and with many clients it is ten times as fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.data.dataset import VerticalDataset
from securevfl.models.optimizers import make_optimizer, take_step
from securevfl.models.polynomial_network import expand
from securevfl.models.split import Centre, mean_loss, measure
from securevfl.models.tensors import tensor
from securevfl.protocols.base.registry import get_protocol, make_config


@dataclass(frozen=True)
class Epoch:
    """Accuracy and mean loss on the test rows after an epoch."""

    accuracy: float
    loss: float


def split(data: VerticalDataset, seed: int, options: Mapping[str, Any]) -> Any:
    """Configured protocol split."""
    cls: Any = get_protocol("split")
    return cls(make_config(cls, dict(options)), data, seed=seed)


def expanded(parts: tuple[np.ndarray, ...], degree: int) -> np.ndarray:
    """Expanded columns of all clients side by side, ``[x_1 | x_1^2 | 1 | x_2 | ...]``."""
    return np.concatenate([expand(part, degree) for part in parts], axis=1)


def together(
    data: VerticalDataset, epochs: int, *, seed: int, client: Mapping[str, Any], **options: Any
) -> Iterator[tuple[Epoch, np.ndarray]]:
    """Measures on test rows, and all clients' weights one below the other, after each epoch.

    Parameters
    ----------
    data : VerticalDataset
        Data set with training and test rows.
    epochs : int
        Number of epochs.
    seed : int
        Seed of weights and batches.
    client : mapping
        Options of the clients' optimiser that differ from the server's (`make_optimizer`).
    **options
        Options of ``run split``.
    """
    made = split(data, seed, options)
    networks = [made.client_network(n) for n in made.peers()]
    weight = tensor(np.concatenate([one.values for one in networks]), np.float32)
    optimizer = make_optimizer([weight], **(made.config.client_optimizer() | dict(client)))
    centre, layout, clients = made.joint_centre(), made.layout, np.float32(data.parties)
    train = expanded(data.train, made.config.degree)
    test = expanded(data.test, made.config.degree)
    labels = data.train_labels
    values = weight.numpy()
    for number in range(1, epochs * layout.per_epoch + 1):
        rows = layout.samples(layout.draw(number))
        powers = train[rows]
        _, gradient = centre.step(powers @ values / clients, rows, labels)
        weight.grad = tensor(powers.T @ (gradient / clients))
        take_step(optimizer)
        if number % layout.per_epoch == 0:
            yield measured(centre, test @ values / clients, data.test_labels), values.copy()


def measured(centre: Centre, embedding: np.ndarray, labels: np.ndarray) -> Epoch:
    """Accuracy and mean loss of joint embeddings, (rows, h)."""
    scores = centre.scores(embedding)
    accuracy = measure(centre.task, scores, labels)["accuracy"]
    return Epoch(accuracy, mean_loss(centre.task, scores, labels))


@dataclass(frozen=True)
class Rates:
    """Learning rates of a training: Adam at the server; "adam" or "sgd" at the clients."""

    lr: float
    client: str
    client_lr: float


def many(
    sets: Sequence[VerticalDataset],
    epochs: int,
    *,
    seeds: Sequence[int],
    rates: Sequence[Rates],
    **options: Any,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Accuracy and loss on test rows after each epoch, both (seeds, rates), of parallel trainings.

    `sets` has a data set for each seed, all of equal sizes. All `rates` have one kind of client
    optimiser.

    A step of all S x L trainings takes little more time than one of a single training, because at
    these sizes calls cost more than arithmetic. Results are those of `together` up to the order of
    additions.
    """
    import torch
    from torch.nn import functional

    made = [split(data, seed, options) for data, seed in zip(sets, seeds, strict=True)]
    S, L, h, N = len(seeds), len(rates), made[0].config.width, sets[0].parties
    kinds = {one.client for one in rates}
    assert len(kinds) == 1, kinds
    centres = [one.joint_centre() for one in made]
    layouts = [one.layout for one in made]
    first = [np.concatenate([one.client_network(n).values for n in one.peers()]) for one in made]
    # W: (S, P, L h); the server's weights: (S L, in, out).
    W = torch.from_numpy(np.tile(np.stack(first), (1, 1, L)))
    layers = [one.network.state_dict() for one in centres]
    theta = [
        torch.stack([layer[name].T if layer[name].ndim == 2 else layer[name][None]
                     for layer in layers for _ in range(L)]).contiguous()
        for name in layers[0]
    ]  # fmt: skip
    degree, task = made[0].config.degree, centres[0].task
    train = [torch.from_numpy(expanded(one.train, degree)) for one in sets]
    test = torch.from_numpy(np.stack([expanded(one.test, degree) for one in sets]))
    labels = [torch.from_numpy(one.train_labels.copy()) for one in sets]
    wanted = torch.from_numpy(np.stack([one.test_labels for one in sets]))[:, None]
    wanted = wanted.expand(S, L, -1).reshape(S * L, -1)
    own = torch.tensor([one.client_lr for one in rates], dtype=torch.float32)
    kind: Any = Adam if kinds == {"adam"} else Sgd
    steps = [kind(W, own.repeat_interleave(h))]
    server = torch.tensor([one.lr for one in rates], dtype=torch.float32).repeat(S)[:, None, None]
    steps += [Adam(one, server) for one in theta]

    def forward(H: Any) -> list[Any]:
        """Inputs of each layer of the server models, and the scores."""
        values = [H]
        for weights, bias in zip(theta[::2], theta[1::2], strict=True):
            if len(values) > 1:
                values[-1].relu_()
            values.append(torch.baddbmm(bias, values[-1], weights))
        return values

    for number in range(1, epochs * layouts[0].per_epoch + 1):
        rows = [torch.from_numpy(one.samples(one.draw(number))) for one in layouts]
        powers = torch.stack([part[chosen] for part, chosen in zip(train, rows, strict=True)])
        B = powers.shape[1]
        H = torch.bmm(powers, W).view(S, B, L, h).transpose(1, 2).reshape(S * L, B, h) / N
        *inputs, scores = forward(H)
        true = torch.stack([part[chosen] for part, chosen in zip(labels, rows, strict=True)])
        true = true[:, None].expand(S, L, B).reshape(S * L, B)
        if task == "binary":
            slope = (torch.sigmoid(scores) - true[:, :, None]) / B
        else:
            slope = torch.softmax(scores, 2)
            slope -= functional.one_hot(true, scores.shape[2])
            slope /= B
        grads: list[Any] = []
        for entered, weights in zip(inputs[::-1], theta[-2::-2], strict=True):
            grads[:0] = [torch.bmm(entered.transpose(1, 2), slope), slope.sum(1, keepdim=True)]
            slope = torch.bmm(slope, weights.transpose(1, 2))
            if entered is not H:
                slope *= entered > 0
        stacked = (slope / N).view(S, L, B, h).transpose(1, 2).reshape(S, B, L * h)
        grads.insert(0, torch.bmm(powers.transpose(1, 2), stacked))
        for step, gradient in zip(steps, grads, strict=True):
            step.take(gradient)
        if number % layouts[0].per_epoch == 0:
            H = torch.bmm(test, W).view(S, -1, L, h).transpose(1, 2).reshape(S * L, -1, h) / N
            yield scored(forward(H)[-1], wanted, task, (S, L))


def scored(
    scores: Any, labels: Any, task: str, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Accuracy and mean loss of each training; 0 and infinity if it diverged."""
    import torch
    from torch.nn import functional

    if task == "binary":
        flat = scores[..., 0]
        right = (flat > 0) == (labels > 0)
        loss = functional.softplus(flat) - flat * labels
    else:
        right = scores.argmax(2) == labels
        loss = -torch.log_softmax(scores, 2).gather(2, labels[:, :, None])[..., 0]
    finite = torch.isfinite(scores).all(2).all(1)
    accuracy = torch.where(finite, right.float().mean(1), 0.0)
    mean = torch.where(finite, loss.mean(1), torch.inf)
    return accuracy.view(shape).numpy(), mean.view(shape).numpy()


class Adam:
    """torch's Adam on one tensor that contains many trainings, each with its rate."""

    def __init__(self, value: Any, rate: Any) -> None:
        import torch

        self.value, self.rate, self.taken = value, rate, 0
        self.mean, self.square = torch.zeros_like(value), torch.zeros_like(value)

    def take(self, gradient: Any) -> None:
        """Take one step."""
        self.taken += 1
        self.mean.lerp_(gradient, 0.1)
        self.square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        below = (self.square / (1 - 0.999**self.taken)).sqrt_().add_(1e-8)
        self.value.sub_((self.mean / below).mul_(self.rate * (1 / (1 - 0.9**self.taken))))


class Sgd:
    """Plain gradient descent on one tensor that contains many trainings, each with its rate."""

    def __init__(self, value: Any, rate: Any) -> None:
        self.value, self.rate = value, rate

    def take(self, gradient: Any) -> None:
        """Take one step; `gradient` is overwritten."""
        self.value.sub_(gradient.mul_(self.rate))
