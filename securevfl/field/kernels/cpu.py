"""Tiers of kernels that this processor can run, and the chosen one.

The fastest tier is the last one by name; nothing is timed. On a Zen 5 (2^31 - 1 and 2^61 - 1, as
multiples of a double-precision product by OpenBLAS's AVX2 kernels; 1024^3, and 768 x 1024 x 768 for
the last three) the order by name is that by speed:

    avx512    1.53  0.43
    avx2      0.75  0.22    compiled for that processor
    avx2      0.68  0.20    compiled for a Zen 3, which has no AVX-512
    portable  0.71  0.05    compiled for that processor, with its AVX-512
    portable  0.49  0.06    compiled for a Zen 3
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import lru_cache

from securevfl.errors import ConfigurationError

TIERS = ("portable", "avx2", "avx512", "ifma", "amx")
VARIABLE = "SECUREVFL_KERNELS"

_ARCH_PRCTL = 158  # The system call on x86-64 Linux.
_REQUEST_PERMISSION = 0x1023  # ARCH_REQ_XCOMP_PERM
_TILE_DATA = 18  # The state component that holds the tiles.


@lru_cache(maxsize=1)
def available() -> tuple[str, ...]:
    """Kernel tiers that this processor and system support, slowest first."""
    from llvmlite import binding

    features = binding.get_host_cpu_features()

    def has(*names: str) -> bool:
        return all(features.get(name, False) for name in names)

    tiers = ["portable"]
    if has("avx2", "fma"):
        tiers.append("avx2")
    if has("avx512f", "avx512dq", "avx512bw", "avx512vl"):
        tiers.append("avx512")
        if has("avx512ifma"):
            tiers.append("ifma")
        if has("amx-tile", "amx-int8") and _tiles_permitted():
            tiers.append("amx")
    return tuple(tiers)


def tier() -> str:
    """Kernel tier in use: the fastest, or the one that SECUREVFL_KERNELS names.

    ConfigurationError if the variable names a tier that does not exist or that this machine cannot
    run.
    """
    asked = os.environ.get(VARIABLE)
    if not asked:
        return available()[-1]
    if asked not in available():
        raise ConfigurationError(
            f"{VARIABLE}={asked} cannot run here: this machine has {', '.join(available())}. "
            f"Unset it to use the fastest."
        )
    return asked


def _tiles_permitted() -> bool:
    """Request permission for tile registers from Linux (kernel 5.16 and later); return success."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    try:
        answer = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA)
        return bool(answer == 0)
    except (OSError, AttributeError):
        return False
