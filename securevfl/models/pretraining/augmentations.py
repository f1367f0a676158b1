"""Random views of rows for contrastive objectives; their choice is ours, from no paper."""

from __future__ import annotations

import numpy as np

ImageShape = tuple[int, int, int]

NOISE = 0.1  # standard deviation, where values lie in [0, 1] or have variance 1
MASKED = 0.2  # part of the columns of a table that a view takes from another row
SHIFT = 2  # pixels by which a view of an image is moved at most, each way,
PART = 4  # and at most so great a part of its side: strips may be a pixel high


def two_views(
    rows: np.ndarray, stream: np.random.Generator, image_shape: ImageShape | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Two random views of each row.

    Parameters
    ----------
    rows : ndarray, (rows, d)
        Columns of the rows.
    stream : numpy Generator
        Source of random choices.
    image_shape : (channels, height, width) or None
        Shape of the image whose pixels are the columns: views are shifted by at most `SHIFT` pixels
        and a `PART`-th of each side, with zeros at the border. None for a table: each value is
        replaced, with probability `MASKED`, by that of another row of the batch. Both get normal
        noise of standard deviation `NOISE`.

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
    """Each image shifted at random: cut from itself with a margin of zeros."""
    count, _, height, width = images.shape
    most = [min(SHIFT, side // PART) for side in (height, width)]
    padded = np.pad(images, [(0, 0), (0, 0), *((far, far) for far in most)])
    down, across = (stream.integers(2 * far + 1, size=count) for far in most)
    y = down[:, None] + np.arange(height)
    x = across[:, None] + np.arange(width)
    moved: np.ndarray = padded[np.arange(count)[:, None, None], :, y[:, :, None], x[:, None, :]]
    return moved.transpose(0, 3, 1, 2)
