"""Facts of this computer on which figures depend: processors, versions, and BLAS's kernels."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any


def describe_machine() -> dict[str, Any]:
    """Processor, cores, GPUs, system, versions, and BLAS if threadpoolctl is installed."""
    result: dict[str, Any] = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        **versions(),
    }
    if found_gpus := gpus():
        result["gpus"] = found_gpus
    found = blas()
    return result if found is None else result | {"blas": found or "none found"}


def gpus() -> list[str]:
    """Names of the CUDA devices that torch can use; empty if torch is not imported."""
    torch = sys.modules.get("torch")
    if torch is None:
        return []
    return [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]


def usable_cores() -> int:
    """Cores that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1


def blas() -> str | None:
    """BLAS libraries that are loaded, with version and kernels; None without threadpoolctl."""
    try:
        from threadpoolctl import threadpool_info
    except ModuleNotFoundError:
        return None
    pools = {
        f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')}".strip()
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    }
    return "; ".join(sorted(pools))


_version = functools.cache(metadata.version)  # which reads a file


def versions() -> dict[str, str]:
    """Versions of Python, NumPy, numba and torch."""
    packages = ("numpy", "numba", "torch")
    return {"python": platform.python_version()} | {name: _version(name) for name in packages}


def processor() -> str:
    """Name of this machine's processor."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def commit() -> str:
    """Commit of the source tree ("+" appended if modified); "unknown" if there is none."""
    here = Path(__file__).resolve().parent

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(here), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", str(here))
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
