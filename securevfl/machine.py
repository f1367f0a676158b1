"""What a figure depends on: processor, versions, and the kernels that BLAS chose."""

from __future__ import annotations

import contextlib
import os
import platform
from importlib import metadata
from typing import Any

from securevfl.bench.field import processor


def describe_machine() -> dict[str, Any]:
    """Processor, cores, system, versions and BLAS architecture (where threadpoolctl is there)."""
    result: dict[str, Any] = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        **versions(),
    }
    with contextlib.suppress(ModuleNotFoundError):
        from threadpoolctl import threadpool_info

        pools = {
            f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')}".strip()
            for pool in threadpool_info()
            if pool["user_api"] == "blas"
        }
        result["blas"] = "; ".join(sorted(pools)) or "none found"
    return result


def versions() -> dict[str, str]:
    """Of Python and of what computes."""
    packages = ("numpy", "numba", "torch")
    return {"python": platform.python_version()} | {
        name: metadata.version(name) for name in packages
    }
