"""Optimisers of all networks, with a learning rate that may fall over the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from inspect import unwrap
from typing import TYPE_CHECKING, Any

from securevfl.errors import ConfigurationError, UnknownNameError

if TYPE_CHECKING:
    import torch

OPTIMIZERS = ("sgd", "adam")
_LARGEST = 1e37  # Adam multiplies a rate by ten at its first step, and float32 ends at 3.4e38


def make_optimizer(
    parameters: Sequence[Any],
    *,
    name: str,
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    decay_steps: int = 0,
) -> torch.optim.Optimizer:
    """SGD with momentum, or Adam (which ignores `momentum`); step it with `take_step`.

    `parameters` are tensors that are trained, and `name` is "sgd" or "adam". With `decay_steps` > 0
    the learning rate decreases linearly from `lr` to 0 over this number of steps.

    Raises
    ------
    UnknownNameError
        When no optimiser has that name.
    ConfigurationError
        If the learning rate or weight decay is out of the range of float32.
    """
    import torch

    for option, value in (("lr", lr), ("weight_decay", weight_decay)):
        if not value <= _LARGEST:
            raise ConfigurationError(
                f"{option} = {value:g}: weights are float32, so {option} is at most {_LARGEST:g}"
            )
    # Extra keys of a group are part of torch's state_dict, so the schedule is checkpointed with it.
    group = {"params": parameters, "first_lr": lr, "decay_steps": decay_steps, "taken": 0}
    if name == "sgd":
        return _uncompiled(torch.optim.SGD)(
            [group], lr=lr, momentum=momentum, weight_decay=weight_decay
        )
    if name == "adam":
        return _uncompiled(torch.optim.Adam)([group], lr=lr, weight_decay=weight_decay)
    raise UnknownNameError("optimizer", name, OPTIMIZERS)


@lru_cache(maxsize=8)
def _uncompiled(kind: type[torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    """The same optimiser class without decorators for torch.compile, for speed.

    At their first call these decorators import torch's compiler, which takes more than a second and
    is not used. Their other effect, a step without gradients, is done here.
    """
    import torch

    names = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    methods = {name: unwrap(getattr(kind, name)) for name in names}
    methods["step"] = torch.no_grad()(unwrap(kind.step))
    if kind is torch.optim.Adam:
        methods["lean_step"] = _adam_step
    return type(kind.__name__, (kind,), methods)


def take_step(optimizer: torch.optim.Optimizer) -> None:
    """One step of an optimiser from `make_optimizer`, at the learning rate for this step."""
    for group in optimizer.param_groups:
        if group["decay_steps"]:
            left = max(0.0, 1 - group["taken"] / group["decay_steps"])
            group["lr"] = group["first_lr"] * left
            group["taken"] += 1
    lean = getattr(optimizer, "lean_step", None)
    if lean is None or not lean():
        optimizer.step()


def _adam_step(optimizer: torch.optim.Optimizer) -> bool:
    """Adam step by torch's operations in their order; False if torch itself must do it.

    For small tensors, two thirds of the time of torch's own step are overhead. Torch itself does
    the first step, which creates the state, steps on other devices, and steps with hooks.
    """
    import torch

    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        return False
    steps = []
    for group in optimizer.param_groups:
        if group["amsgrad"] or group["maximize"]:  # a state may have been loaded
            return False
        for weight in group["params"]:
            if weight.grad is not None:
                state = optimizer.state.get(weight)
                if not state or weight.device.type != "cpu" or weight.grad.is_sparse:
                    return False
                steps.append((group, weight, state))
    with torch.no_grad():
        for group, weight, state in steps:
            (first, second), gradient = group["betas"], weight.grad
            mean, square, count = state["exp_avg"], state["exp_avg_sq"], state["step"]
            count += 1
            if group["weight_decay"]:
                gradient = gradient.add(weight, alpha=group["weight_decay"])
            mean.lerp_(gradient, 1 - first)
            square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
            taken = count.item()
            spread = (square.sqrt() / (1 - second**taken) ** 0.5).add_(group["eps"])
            weight.addcdiv_(mean, spread, value=-(group["lr"] / (1 - first**taken)))
    return True
