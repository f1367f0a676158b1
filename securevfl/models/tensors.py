"""Conversion of arrays to tensors, at addresses that do not affect results.

A matrix library may process the values before an aligned address one by one, so that the order of a
row's products depends on the operand's address. Two copies of one array can then give products that
differ in their last digits. MKL does this on some processors if an address is not divisible by 16.

Networks are computed on the processor, or on a device by its name.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from securevfl.errors import ConfigurationError

if TYPE_CHECKING:
    import torch
    from torch import nn

ALIGNMENT = 16  # Bytes: what memory for any type is aligned to, on 64-bit x86 and arm.


def tensor(values: ArrayLike, dtype: DTypeLike | None = None) -> torch.Tensor:
    """Torch tensor with a copy of an array, row-major, at an address divisible by `ALIGNMENT`.

    The copy is needed for the alignment, which views, memory maps and buffers of messages may lack.
    Besides, data sets are read-only, and torch could write to them.

    Parameters
    ----------
    values : ndarray
        Array with any strides, at any address; it may be read-only.
    dtype : numpy dtype, optional
        By default that of `values`.
    """
    import torch

    return torch.from_numpy(np.array(values, dtype, order="C"))


def place(network: nn.Module, device: str) -> None:
    """Move a network to a device, for callers whose tensors stay on the CPU.

    Inputs are copied to the device and the output is copied back, so gradients reach inputs on the
    CPU. Names and values of weights do not change. Kernels of an accelerator round differently from
    the CPU's, and some of them from run to run.

    Parameters
    ----------
    network : nn.Module
        Module with positional tensors as inputs, and one tensor as output.
    device : str
        "cpu" leaves the network as it is; else a name of torch's, such as "cuda", "cuda:1", "mps".

    Raises
    ------
    ConfigurationError
        When torch knows no such device, or cannot use it here.
    """
    if device == "cpu":
        return
    import torch

    try:
        place_of = torch.device(device)
        torch.zeros(1, device=place_of).cpu()  # one that only has shapes, meta, fails
        network.to(place_of)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigurationError(
            f"device = {device!r} cannot be used: {textwrap.shorten(str(error), 150)}; devices of "
            f"torch {torch.__version__} here: {', '.join(_devices())}"
        ) from None

    def bring(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(each.to(place_of) for each in given)

    def bring_back(_: nn.Module, __: Any, scores: torch.Tensor) -> torch.Tensor:
        return scores.cpu()

    network.register_forward_pre_hook(bring)
    network.register_forward_hook(bring_back)


def _devices() -> list[str]:
    """Names of the devices that torch can use on this machine."""
    import torch

    cuda = [f"cuda:{n}" for n in range(torch.cuda.device_count())]
    return ["cpu", *cuda, *(["mps"] if torch.backends.mps.is_available() else [])]
