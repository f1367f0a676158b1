"""Normal values of a key by lines of the audit's own, and noisy rows made of them.

Recorded runs are small, and noise of larger releases may be made otherwise. So known keys are
expanded here, and what the library makes of them is held against that at sizes up to 2^20.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.field.sampling import Keystream, has_aes_unit
from securevfl.privacy.mechanisms import gaussian, mean_gradient, own_gradients, release_rows
from tests.oracles.known_answers import expanded

#: Entries of releases that are compared: those at which a rule for large ones is likely to begin.
SIZES = tuple(sorted({2**k + d for k in range(1, 21) for d in (-1, 0, 1)}))
_WIDTHS = (1, 7, 64)
_BOUND, _SIGMA = 1.5, 0.75
Mechanism = Callable[..., Any]
_ERROR = 1e-9  # of the logarithm, sine and cosine of two libraries


class GivenKey:
    """A source that yields the keystream of one key, as the system's source does.

    Parameters
    ----------
    key : bytes
        32 bytes.
    """

    secure = False

    def __init__(self, key: bytes) -> None:
        self.key = key

    def keystream(self) -> Keystream:
        """The keystream under the key."""
        return Keystream(self.key, has_aes_unit())


def clipped_to(rows: np.ndarray, bound: float) -> np.ndarray:
    """Rows of a norm of at most C, in float64."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    clipped: np.ndarray = rows * np.minimum(1.0, bound / np.maximum(norms, bound))
    return clipped


def normals(key: bytes, size: int) -> np.ndarray:
    """Return standard normal values by Box and Muller: radii of the first half, angles of the rest.

    Parameters
    ----------
    key : bytes
    size : int
    """
    half = (size + 1) // 2
    words = np.frombuffer(expanded(key, 16 * half, aes=has_aes_unit()), "<u8")
    uniforms = ((words >> np.uint64(11)).astype(np.float64) + 1.0) / 2.0**53
    pairs = np.sqrt(-2.0 * np.log(uniforms[:half])) * np.exp(2j * math.pi * uniforms[half:])
    made: np.ndarray = np.concatenate([pairs.real, pairs.imag])[:size]
    return made


def release_gradient(gradient: np.ndarray, samples: np.ndarray, **options: Any) -> np.ndarray:
    """Mean gradient of which each row's own is clipped and noised, as `wait_dp` does in steps."""
    return mean_gradient(release_rows(own_gradients(gradient, samples), **options), samples)


def noise_fault() -> str:
    """Fault of the library's noise under known keys, in words; empty if there is none."""
    return _fault_of(gaussian, release_rows, release_gradient)


@functools.cache
def _fault_of(gaussian: Mechanism, rows_of: Mechanism, gradient_of: Mechanism) -> str:
    """Fault of these functions, which are compared once."""
    stream = np.random.Generator(np.random.PCG64())
    for place, size in enumerate(SIZES):
        key, width = os.urandom(32), _WIDTHS[place % len(_WIDTHS)]
        wanted = normals(key, size)
        if np.abs(gaussian((size,), GivenKey(key)) - wanted).max() > _ERROR:
            return f"{size} normal values are not those of their key, by other code"
        rows = stream.standard_normal((size // width, width)).astype(np.float32)
        if len(rows) and not _released(rows, key, rows_of, gradient_of):
            return f"noisy rows of {rows.size} entries are not those of their key, by other code"
    return ""


def _released(rows: np.ndarray, key: bytes, rows_of: Mechanism, gradient_of: Mechanism) -> bool:
    """Whether rows, and a gradient with padding, are released with the key's noise."""
    noisy = clipped_to(rows.astype(np.float64), _BOUND)
    noisy += _SIGMA * normals(key, rows.size).reshape(rows.shape)
    grid = 2.0 ** (math.floor(math.log2(_SIGMA)) - 14)
    found = rows_of(rows, bound=_BOUND, sigma=_SIGMA, source=GivenKey(key))
    # A value between two of the grid may go either way.
    if np.abs(found - noisy).max() > 0.51 * grid:
        return False
    count, padded = np.float32(len(rows)), np.concatenate([rows, rows[:1]])
    samples = np.append(np.arange(len(rows)), -1)
    whole = gradient_of(
        *(padded / count, samples), bound=_BOUND, sigma=_SIGMA, source=GivenKey(key)
    )
    return bool(np.abs(whole[:-1] * count - noisy).max() <= grid) and not whole[-1].any()
