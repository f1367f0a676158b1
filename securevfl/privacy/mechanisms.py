"""Differentially private mechanisms: rows clipped, noised and rounded; labels by random response.

Noise protects, so it comes from the operating system through a stream cipher unless a seeded
source is asked for by its name (`securevfl.field.sampling.SeededSource`), which protects nothing.
"""

from __future__ import annotations

import math

import numpy as np

from securevfl.errors import ConfigurationError, RangeError
from securevfl.field.sampling import SYSTEM, Source

#: Largest clipping bound of rows that are noised, in standard deviations of the noise.
MOST_BOUND = 200
_GRID_BITS = 14


def clip_rows(rows: np.ndarray, bound: float) -> np.ndarray:
    """Rows scaled to an L2 norm of at most C: ``h min(1, C / |h|)``.

    Parameters
    ----------
    rows : ndarray, (rows, h), floating and finite
        Rows to be clipped.
    bound : float
        Clipping bound C, positive.

    Returns
    -------
    ndarray, (rows, h), float64

    Raises
    ------
    ConfigurationError, RangeError
        For another bound; for a row whose norm exceeds float64.
    """
    values = rows.astype(np.float64)
    clipped: np.ndarray = values * _scale(values, bound)
    return clipped


def clip_finite_rows(rows: np.ndarray, bound: float) -> np.ndarray:
    """Rows (rows, h) scaled to an L2 norm of at most `bound`, float64, before a release.

    RangeError if an entry is not finite, because noise would not hide it.
    """
    strange = int((~np.isfinite(rows)).any(axis=1).sum())
    if strange:
        raise RangeError(
            f"release_rows: {strange} of {len(rows)} rows to be released are not finite, and noise "
            "cannot hide that. Scale the columns (scaling = minmax), or lower lr"
        )
    return clip_rows(rows, bound)


def clip_gradient(rows: np.ndarray, gradient: np.ndarray, bound: float) -> np.ndarray:
    """Gradient for the original rows, from the gradient for the clipped rows.

    ``g`` where |h| <= C, else ``(C / |h|) (g - h (h . g) / |h|^2)``: what would only lengthen a
    clipped row has no effect on it.

    Parameters
    ----------
    rows : ndarray, (rows, h), floating
        The rows before they were clipped.
    gradient : ndarray, (rows, h), float32
        Gradient for the clipped rows.
    bound : float
        Clipping bound C, positive.

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
    """Scale factor min(1, C / |h|) of each row, (rows, 1); errors of `clip_rows`."""
    if not 0 < bound < math.inf:
        raise ConfigurationError(f"clip_rows: the bound {bound} must be positive and finite")
    with np.errstate(over="ignore"):  # what follows refuses it
        norms = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    if np.isinf(norms).any():
        raise RangeError("clip_rows: the norm of a row exceeds float64; scale the rows")
    scale: np.ndarray = bound / np.maximum(norms, bound)
    return scale


def gaussian(shape: tuple[int, ...], source: Source = SYSTEM) -> np.ndarray:
    """Independent standard normal values of a shape, float64.

    Pairs of the Box-Muller transform of 53-bit uniforms; no value lies beyond 8.58, which a normal
    one does with probability 1e-17.

    Parameters
    ----------
    shape : tuple of int
        Shape of the array.
    source : Source
        Source of the randomness.

    Returns
    -------
    ndarray, `shape`, float64
    """
    count = math.prod(shape)
    half = -(-count // 2)
    words = np.empty(2 * half, "<u8")
    source.keystream().fill(words.view(np.uint8))
    # No zero may come, as log(0) would: hence + 1. The least uniform is 2^-53, so that the radius
    # is at most sqrt(2 * 53 ln 2) = 8.58.
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
    rows : ndarray, (rows, h), floating
        Rows to be released.
    bound : float
        C, positive; two rows then differ by at most 2C.
    sigma : float
        Standard deviation of the noise of each entry, positive.
    source : Source
        Source of the randomness.

    Returns
    -------
    ndarray, (rows, h), float32

    Raises
    ------
    ConfigurationError
        When C or sigma is not positive and finite, or when C exceeds 200 sigma: float32 would not
        hold such a sum to that grid.
    RangeError
        If an entry is not finite, because noise would not hide it.
    """
    if not (0 < bound < math.inf and 0 < sigma < math.inf and bound <= MOST_BOUND * sigma):
        raise ConfigurationError(
            f"release_rows: the bound {bound} and sigma {sigma} must be positive and finite, and "
            "the bound at most 200 sigma"
        )
    return noised_rows(clip_finite_rows(rows, bound), sigma=sigma, source=source)


def noised_rows(clipped: np.ndarray, *, sigma: float, source: Source = SYSTEM) -> np.ndarray:
    """Rows, already clipped, with Gaussian noise added, rounded to the grid of `release_rows`.

    `clipped` is (rows, h), floating, of norms at most 200 `sigma`, which is not checked here.

    Returns
    -------
    ndarray, (rows, h), float32
    """
    # |clipped + noise| < 200 sigma + 9 sigma < 2^8 sigma, on a grid of at least 2^-15 sigma: 23
    # bits, and float32 has 24.
    grid = 2.0 ** (math.floor(math.log2(sigma)) - _GRID_BITS)
    noisy = clipped + sigma * gaussian(clipped.shape, source)
    released: np.ndarray = (np.round(noisy / grid) * grid).astype(np.float32)
    return released


def laplace_by_range(
    rows: np.ndarray, samples: np.ndarray, epsilon: float, source: Source
) -> np.ndarray:
    """Rows with Laplace noise on each entry, of scale (largest - smallest entry) / epsilon.

    Equation 5 of SplitFed (Thapa et al., AAAI 2022) as public re-implementations read it. The range
    is that of the batch: it is data, and no bound on what a row changes, so this is no mechanism of
    differential privacy that could be claimed.

    Parameters
    ----------
    rows : ndarray, (rows, h), floating
        Rows to be released.
    samples : ndarray, (rows,), integers
        Below 0 for padding, which has no part in the range.
    epsilon : float
        Epsilon, positive.
    source : Source
        Source of the randomness.

    Returns
    -------
    ndarray, (rows, h), float32
    """
    own = rows[samples >= 0]
    scale = float(own.max() - own.min()) / epsilon if own.size else 0.0
    words = np.empty(rows.size, "<u8")
    source.keystream().fill(words.view(np.uint8))
    # 53 bits for the size, and the lowest one for the sign.
    sizes = -np.log(((words >> 11) + 1) * 2.0**-53)
    noise = np.where(words & 1, sizes, -sizes).reshape(rows.shape)
    noised: np.ndarray = (rows + scale * noise).astype(np.float32)
    return noised


def keep_probability(epsilon: float, classes: int) -> float:
    """Probability that randomised response keeps the true label: ``e^eps / (e^eps + C - 1)``.

    Parameters
    ----------
    epsilon : float
        Positive and finite.
    classes : int
        Number C of classes, at least 2.

    Raises
    ------
    ConfigurationError
        When one is out of range.

    Examples
    --------
    >>> round(keep_probability(1.0, 10), 4)
    0.232
    """
    if not (0 < epsilon < math.inf and classes >= 2):
        raise ConfigurationError(
            f"randomised response: epsilon = {epsilon} must be positive and finite, and there must "
            f"be at least 2 classes, not {classes}"
        )
    return 1 / (1 + (classes - 1) * math.exp(-epsilon))


def randomised_response(
    labels: np.ndarray, classes: int, epsilon: float, source: Source = SYSTEM
) -> np.ndarray:
    """Labels, each kept with `keep_probability` and else replaced by a uniform other label.

    (epsilon, 0)-DP for each label on its own, whatever it is replaced by: every answer is at most
    e^epsilon times as likely under one label as under another (Warner, 1965; Kairouz et al., 2014).
    The probability of the truth is rounded down, so the bound holds for the words that are drawn.

    Parameters
    ----------
    labels : ndarray, (M,), integers in [0, C)
        True labels.
    classes : int
        Number C of classes, at least 2.
    epsilon : float
        Positive and finite.
    source : Source
        Source of the randomness.

    Returns
    -------
    ndarray, (M,), the dtype of `labels`

    Raises
    ------
    ConfigurationError
        When a parameter is out of range.
    RangeError
        If a label is no class, because an answer outside the classes would be the truth.
    """
    whole = (labels == np.floor(labels)).all()
    if labels.size and not (labels.min() >= 0 and labels.max() < classes and whole):
        raise RangeError(
            f"randomised response: labels from {labels.min()} to {labels.max()} are not all "
            f"classes, whole numbers from 0 to {classes - 1}"
        )
    truth = keep_probability(epsilon, classes)
    stream = source.keystream()
    words = np.empty(len(labels), "<u8")
    stream.fill(words.view(np.uint8))
    # The float's relative error is below 2^-50.
    true = words < np.uint64(min(int(truth * (1 - 2.0**-50) * 2**64), 2**64 - 1))
    others = np.empty(0, np.uint64)
    # A word modulo C - 1 is uniform only if words come from a whole number of runs of C - 1. Added
    # to the true label modulo C, an offset of 1 to C - 1 gives each other label alike.
    runs = np.uint64((2**64 - 1) // (classes - 1) * (classes - 1))
    while len(others) < len(labels):  # words beyond the whole runs of C - 1 are dropped
        stream.fill(words.view(np.uint8))
        whole = words[words < runs]
        others = np.concatenate([others, whole % np.uint64(classes - 1)])
    offsets = (others[: len(labels)] + np.uint64(1)).astype(np.int64)
    answers = np.where(true, labels, (labels.astype(np.int64) + offsets) % classes)
    return answers.astype(labels.dtype)


def own_gradients(gradient: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Gradient dl_i/dH_i of each real row, (b, h) float32, from that of the mean loss."""
    true = samples >= 0
    own: np.ndarray = gradient[true] * np.float32(true.sum())
    return own


def mean_gradient(own: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Mean gradient from the rows' own ones (inverse of `own_gradients`); zeros for padding."""
    true = samples >= 0
    gradient = np.zeros((len(samples), own.shape[1]), np.float32)
    gradient[true] = own / np.float32(true.sum())
    return gradient
