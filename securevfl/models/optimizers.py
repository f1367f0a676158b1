"""Optimisers of all networks, with a learning rate that may fall over the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from securevfl.errors import UnknownNameError

if TYPE_CHECKING:
    import torch

OPTIMIZERS = ("sgd", "adam")


def make_optimizer(
    parameters: Sequence[Any],
    *,
    name: str,
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    decay_steps: int = 0,
) -> torch.optim.Optimizer:
    """SGD with momentum, or Adam (which does not use `momentum`); step it with `take_step`.

    With `decay_steps` > 0 the learning rate falls linearly from `lr` to 0 over so many steps.

    Raises
    ------
    UnknownNameError
        When no optimiser has that name.
    """
    import torch

    # Extra keys of a group are part of torch's state_dict, so the schedule is checkpointed with it.
    group = {"params": parameters, "first_lr": lr, "decay_steps": decay_steps, "taken": 0}
    if name == "sgd":
        return torch.optim.SGD([group], lr=lr, momentum=momentum, weight_decay=weight_decay)
    if name == "adam":
        return torch.optim.Adam([group], lr=lr, weight_decay=weight_decay)
    raise UnknownNameError("optimizer", name, OPTIMIZERS)


def take_step(optimizer: torch.optim.Optimizer) -> None:
    """One step of an optimiser of `make_optimizer`, at the learning rate that is due."""
    for group in optimizer.param_groups:
        if group["decay_steps"]:
            left = max(0.0, 1 - group["taken"] / group["decay_steps"])
            group["lr"] = group["first_lr"] * left
            group["taken"] += 1
    optimizer.step()
