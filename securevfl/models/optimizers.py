"""Optimisers of all networks, with a learning rate that may fall over the run.

They are torch's, without its compiler: the methods of torch's optimisers are wrapped so that
`torch.compile` leaves them alone, and the wrappers import the compiler, which costs each process a
second and 100 MB. Nothing here is compiled, so what the wrappers wrap is called itself, but where
an optimiser has hooks, which a wrapper calls.
"""

from __future__ import annotations

import inspect
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

    _leave_the_compiler()
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
    if _is_hooked(optimizer):
        optimizer.step()
        return
    import torch

    with torch.no_grad():
        inspect.unwrap(type(optimizer).step)(optimizer)


def _is_hooked(optimizer: torch.optim.Optimizer) -> bool:
    """Whether somebody is to be called before or after a step; the wrapper of `step` does that."""
    from torch.optim import optimizer as module

    own = (optimizer, "_optimizer_step_pre_hooks"), (optimizer, "_optimizer_step_post_hooks")
    all_ = (module, "_global_optimizer_pre_hooks"), (module, "_global_optimizer_post_hooks")
    return any(bool(getattr(where, name, True)) for where, name in (*own, *all_))


def _leave_the_compiler() -> None:
    """Mark what torch wraps as wrapped already, where it would import its compiler for that.

    Its wrapper keeps what it has made of a method in this attribute. Where a version of torch has
    no such wrapper, nothing is changed.
    """
    import torch

    for name in ("add_param_group", "load_state_dict", "state_dict", "zero_grad"):
        wrapped = getattr(getattr(torch.optim.Optimizer, name), "__wrapped__", None)
        if wrapped is not None and not hasattr(wrapped, "__dynamo_disable"):
            setattr(wrapped, "__dynamo_disable", wrapped)
