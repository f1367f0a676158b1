"""A run that takes a few milliseconds a round, once its kernels are loaded."""

from typing import Any

import numpy as np

import securevfl as svfl

OPTIONS: dict[str, Any] = {"rounds": 4, "width": 2, "hidden": 3, "batch": 8, "conditions": "paper"}


def dataset() -> svfl.VerticalDataset:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 4))
    return svfl.VerticalDataset.from_numpy(rows, rows.sum(axis=1) > 0, parties=2)


def run(out: Any = None, protocol: str = "split", **options: Any) -> svfl.Run:
    return svfl.run(protocol, dataset(), out=out, **{**OPTIONS, **options})


def wide() -> svfl.VerticalDataset:
    """A data set of three parties."""
    rows = np.random.default_rng(0).normal(size=(40, 6))
    return svfl.VerticalDataset.from_numpy(rows, rows.sum(axis=1) > 0, parties=3)
