"""Random views of rows, for contrastive objectives; which ones is our choice, no paper's."""

from __future__ import annotations

import numpy as np

ImageShape = tuple[int, int, int]

NOISE = 0.1  # standard deviation, where values lie in [0, 1] or have variance 1
MASKED = 0.2  # part of the columns of a table that a view takes from another row
SHIFT = 2  # pixels by which a view of an image is moved at most, each way


def two_views(
    rows: np.ndarray, stream: np.random.Generator, image_shape: ImageShape | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Two random views of each row.

    Parameters
    ----------
    rows : ndarray, (rows, d)
    stream : numpy Generator
    image_shape : (channels, height, width) or None
        Of an image whose pixels are the columns: its views are moved by up to `SHIFT` pixels, what
        comes in being 0. In views of a table each value is, with probability `MASKED`, that of
        another row of the batch. Both get normal noise of deviation `NOISE`.

    Returns
    -------
    tuple of ndarray, (rows, d), float32

    Examples
    --------
    >>> stream = np.random.Generator(np.random.Philox(1))
    >>> one, two = two_views(np.zeros((3, 4)), stream)
    >>> one.shape, bool((one != two).all())
    ((3, 4), True)
    """
    return _view(rows, stream, image_shape), _view(rows, stream, image_shape)


def _view(
    rows: np.ndarray, stream: np.random.Generator, image_shape: ImageShape | None
) -> np.ndarray:
    if image_shape is None:
        changed = _mixed(rows, stream)
    else:
        images = rows.reshape(-1, *image_shape)
        changed = _moved(images, stream).reshape(rows.shape)
    noise = stream.standard_normal(rows.shape, np.float32) * np.float32(NOISE)
    view: np.ndarray = changed.astype(np.float32) + noise
    return view


def _mixed(rows: np.ndarray, stream: np.random.Generator) -> np.ndarray:
    others = stream.integers(len(rows), size=rows.shape)
    masked = stream.random(rows.shape) < MASKED
    return np.where(masked, np.take_along_axis(rows, others, axis=0), rows)


def _moved(images: np.ndarray, stream: np.random.Generator) -> np.ndarray:
    """Each image cut out of itself with a margin of zeros, at a place of its own."""
    count, _, height, width = images.shape
    margin = [(0, 0), (0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT)]
    padded = np.pad(images, margin)
    down, across = stream.integers(2 * SHIFT + 1, size=(2, count))
    y = down[:, None] + np.arange(height)
    x = across[:, None] + np.arange(width)
    moved: np.ndarray = padded[np.arange(count)[:, None, None], :, y[:, :, None], x[:, None, :]]
    return moved.transpose(0, 3, 1, 2)
