"""Differentially private release of rows: clip each row, add Gaussian noise, round.

Noise protects, so it comes from the operating system through a stream cipher unless a seeded
source is asked for by its name (`securevfl.field.sampling.SeededSource`), which protects nothing.
"""

from __future__ import annotations

import math

import numpy as np

from securevfl.errors import ConfigurationError
from securevfl.field.sampling import SYSTEM, Source

_GRID_BITS = 14


def clip_rows(rows: np.ndarray, bound: float) -> np.ndarray:
    """Rows scaled to an L2 norm of at most C: ``h min(1, C / |h|)``.

    Parameters
    ----------
    rows : ndarray, (rows, h), floating and finite
    bound : float
        C, positive.

    Returns
    -------
    ndarray, (rows, h), float64
    """
    values = rows.astype(np.float64)
    clipped: np.ndarray = values * _scale(values, bound)
    return clipped


def clip_gradient(rows: np.ndarray, gradient: np.ndarray, bound: float) -> np.ndarray:
    """Gradient with respect to the rows from that with respect to the clipped rows.

    ``g`` where |h| <= C, else ``(C / |h|) (g - h (h . g) / |h|^2)``: what would only lengthen a
    clipped row has no effect on it.

    Parameters
    ----------
    rows : ndarray, (rows, h), floating
        The rows before they were clipped.
    gradient : ndarray, (rows, h), float32
    bound : float
        C, positive.

    Returns
    -------
    ndarray, (rows, h), float32
    """
    h, g = rows.astype(np.float64), gradient.astype(np.float64)
    scale = _scale(h, bound)
    squares = np.maximum((h * h).sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    along = np.where(scale < 1, (h * g).sum(axis=1, keepdims=True) / squares, 0.0)
    own: np.ndarray = (scale * (g - along * h)).astype(np.float32)
    return own


def _scale(rows: np.ndarray, bound: float) -> np.ndarray:
    """min(1, C / |h|) of each row, as a column."""
    norms = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    scale: np.ndarray = bound / np.maximum(norms, bound)
    return scale


def gaussian(shape: tuple[int, ...], source: Source = SYSTEM) -> np.ndarray:
    """Independent standard normal values.

    Pairs of the Box-Muller transform of 53-bit uniforms; no value lies beyond 8.58, which a normal
    one does with probability 1e-17.

    Parameters
    ----------
    shape : tuple of int
    source : Source
        Where the randomness comes from.

    Returns
    -------
    ndarray, `shape`, float64
    """
    count = math.prod(shape)
    half = -(-count // 2)
    words = np.empty(2 * half, "<u8")
    source.keystream().fill(words.view(np.uint8))
    uniforms = ((words >> 11) + 1) * 2.0**-53  # in (0, 1]
    radius = np.sqrt(-2 * np.log(uniforms[:half]))
    angle = 2 * np.pi * uniforms[half:]
    values = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    return values[:count].reshape(shape)


def release_rows(
    rows: np.ndarray, *, bound: float, sigma: float, source: Source = SYSTEM
) -> np.ndarray:
    """Clipped rows with Gaussian noise, rounded: ``h min(1, C / |h|) + sigma N(0, I)``.

    The sum is rounded to multiples of the power of two just above sigma 2^-15. Rounding what is
    already private costs no privacy, and it keeps back the low bits of the float sum, from which
    noise added in floating point can be told apart (Mironov, CCS 2012).

    Parameters
    ----------
    rows : ndarray, (rows, h), floating and finite
    bound : float
        C, positive; two rows then differ by at most 2C.
    sigma : float
        Standard deviation of the noise of each entry, positive.
    source : Source
        Where the randomness comes from.

    Returns
    -------
    ndarray, (rows, h), float32

    Raises
    ------
    ConfigurationError
        When C or sigma is not positive and finite, or when C exceeds 200 sigma: float32 would not
        hold such a sum to that grid.
    """
    if not (0 < bound < math.inf and 0 < sigma < math.inf and bound <= 200 * sigma):
        raise ConfigurationError(
            f"release_rows: the bound {bound} and sigma {sigma} must be positive and finite, and "
            "the bound at most 200 sigma"
        )
    # |clipped + noise| < 200 sigma + 9 sigma < 2^8 sigma, on a grid of at least 2^-15 sigma: 23
    # bits, and float32 has 24.
    grid = 2.0 ** (math.floor(math.log2(sigma)) - _GRID_BITS)
    noisy = clip_rows(rows, bound) + sigma * gaussian(rows.shape, source)
    released: np.ndarray = (np.round(noisy / grid) * grid).astype(np.float32)
    return released
