"""Weights of a network: initialised, or as plain arrays to send, average and restore."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from securevfl.errors import ConfigurationError
from securevfl.models.tensors import tensor

if TYPE_CHECKING:
    import torch

Built = TypeVar("Built")
_BEFORE, _WORDS = 3, 624  # of 8 bytes: before the Mersenne twister's words, and these


def initialised(build: Callable[[], Built], seed: int | np.random.Generator) -> Built:
    """Torch modules made by `build`, with weights drawn from `seed`.

    torch initialises from its global generator only, which this function restores. A stream of a
    party's own entropy sets that generator's whole state, because 2^31 seeds could be tried. A
    stream of a seed gives a number of 31 bits.
    """
    import torch

    stream = None if isinstance(seed, int) else seed
    number = int(seed if stream is None else stream.integers(2**31))  # type: ignore[arg-type]
    with torch.random.fork_rng(devices=[]):
        # Only the processor's generator draws here. torch.manual_seed would seed those of all
        # devices, and note for each that there is none, with a traceback, for ever.
        torch.default_generator.manual_seed(number)
        own: Any = None if stream is None else stream.bit_generator
        if stream is not None and own.seed_seq is None:
            torch.default_generator.set_state(_drawn(torch.default_generator.get_state(), stream))
        return build()


def _drawn(state: torch.Tensor, stream: np.random.Generator) -> torch.Tensor:
    """Generator state whose Mersenne Twister words all come from `stream`.

    The state starts with the seed and two counters, in 24 bytes; then come 624 words in 8 bytes
    each, the first of which is the seed. The generator renews all words before its first number.
    RuntimeError where torch lays it out otherwise.
    """
    words = state.numpy().copy().view("<u8")
    if len(words) < _BEFORE + _WORDS or words[0] != words[_BEFORE]:
        raise RuntimeError("torch: the state of its generator is laid out otherwise than known")
    words[_BEFORE : _BEFORE + _WORDS] = stream.integers(2**32, size=_WORDS, dtype=np.uint64)
    return tensor(words.view(np.uint8))


def parameters_of(model: Any) -> dict[str, torch.Tensor]:
    """Trained tensors by name, of a server model, a bottom model or a torch module."""
    if _is_polynomial(model):
        return {"weight": model.weight}
    return dict(_module_of(model).named_parameters())


def tensors_of(model: Any) -> dict[str, torch.Tensor]:
    """Trained tensors and running statistics by name, of a network or server model."""
    if _is_polynomial(model):
        return parameters_of(model)
    return dict(_module_of(model).state_dict())


def _is_polynomial(model: Any) -> bool:
    return hasattr(model, "weight") and hasattr(model, "degree")


def _module_of(model: Any) -> torch.nn.Module:
    for name in ("network", "module"):
        model = getattr(model, name, model)
    module: torch.nn.Module = model
    return module


def weights_of(model: Any) -> dict[str, np.ndarray]:
    """Copies of the weights by name, float32."""
    return {name: p.numpy(force=True).copy() for name, p in parameters_of(model).items()}


def load_weights(model: Any, weights: Mapping[str, np.ndarray]) -> None:
    """Load weights from `weights_of` into a network of equal shape; its optimiser state stays.

    ConfigurationError when the names differ.
    """
    import torch

    own = parameters_of(model)
    if own.keys() != weights.keys():
        raise ConfigurationError(
            f"weights: the network has {sorted(own)}, and the weights are of {sorted(weights)}"
        )
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(tensor(weights[name]))


def penalty(model: Any) -> float:
    """Penalty ``r(theta) = |theta|^2 / 2``, whose gradient equals a weight decay of 1."""
    return 0.5 * sum(float((p.detach().double() ** 2).sum()) for p in parameters_of(model).values())


def refuse_running_statistics(name: str, centre: str, network: torch.nn.Module) -> None:
    """Raise ConfigurationError for a server model with state besides weights, as of batch means.

    Such state would not be sent with weights or gradients.
    """
    if next(iter(network.buffers()), None) is not None:
        raise ConfigurationError(
            f"{name}: centre = {centre!r} keeps running statistics, which are neither weights nor "
            f"gradients and would differ between the parties; use mlp, linear or conv"
        )
