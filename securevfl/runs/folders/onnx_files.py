"""Trained networks as ONNX files (opset of torch's exporter), by the packages of an extra."""

from __future__ import annotations

import copy
import importlib.util
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from securevfl.errors import ConfigurationError
from securevfl.models.tensors import tensor
from securevfl.writing import write_durably

if TYPE_CHECKING:
    import torch
    from torch import nn

_PACKAGES = ("onnx", "onnxscript")


def polynomial(weight: np.ndarray, degree: int) -> nn.Module:
    """A polynomial network with weights (d D + 1, h), D its degree, as a torch module."""
    import torch
    from torch import nn

    class Polynomial(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(tensor(weight, np.float32))

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            powers = [rows]
            for _ in range(degree - 1):
                powers.append(powers[-1] * rows)
            return torch.cat(powers, dim=1) @ self.weight[:-1] + self.weight[-1]

    return Polynomial()


def write_onnx(module: nn.Module, width: int, path: Path, names: Sequence[str]) -> Path:
    """Write a network that reads (m, width) float32, for the owner's eyes only (mode 0600).

    `names` are the names of its input and output. Returns `path`. ConfigurationError if a package
    is missing.
    """
    import torch

    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"onnx: {path.name} needs the package {missing[0]}; pip install 'securevfl[onnx]'"
        )
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)  # it tells of packages that nothing here needs
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                copy.deepcopy(module).float().eval(),
                (torch.zeros(2, width),),
                input_names=names[:1],
                output_names=names[1:],
                dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
                dynamo=True,
                verbose=False,
            )
    finally:
        log.setLevel(level)
    assert program is not None
    write_durably(path, program.model_proto.SerializeToString(), mode=0o600)
    return path
