"""Image files as arrays of bytes, all of one size and colour."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from securevfl.errors import DataError, SecureVFLError

if TYPE_CHECKING:
    from PIL import Image

Size = tuple[int, int]

#: Kinds that are tried; others, such as PostScript, would start other programs.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_MODES = {"grey": "L", "rgb": "RGB"}
_MOST_PIXELS = 2**26  # of one file; decoding takes four bytes each
_SHARE = 2  # images may fill one of so many parts of the free memory
_BYTES = 6  # of memory for a pixel: as read, as divided into two parts, and scaled (float32)


@dataclass(frozen=True)
class Pictures:
    """Form in which images are read: their size in pixels, and "grey" or "rgb".

    Images of another size are scaled to this one, bilinearly; or refused where there is a
    `refusal`, the end of a sentence that says why and what to change.
    """

    height: int
    width: int
    color: str
    refusal: str = ""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return (3 if self.color == "rgb" else 1, self.height, self.width)

    def check_memory(self, count: int, folder: Path) -> None:
        """Refuse more images than half of the free memory holds."""
        import psutil

        needed = _BYTES * count * int(np.prod(self.shape))
        free = int(psutil.virtual_memory().available) // _SHARE
        if needed > free:
            raise DataError(
                f"{folder}: {count} images of {' x '.join(map(str, self.shape))} values need about "
                f"{needed / 1e9:.2f} GB, and {free / 1e9:.2f} GB may be used (half of what is "
                f"free); give a smaller size=HEIGHTxWIDTH, or fewer images."
            )

    def read(self, paths: Sequence[Path]) -> tuple[NDArray[np.uint8], int]:
        """Read images as stored (no orientation of a camera is applied): uint8, a row for each.

        Also the number of images with transparency, which is left out. DataError for a file that
        cannot be read, has several frames, more than 8 bits a channel, too many pixels, or another
        size.
        """
        pixels = np.empty((len(paths), int(np.prod(self.shape))), dtype=np.uint8)
        transparent = 0
        for row, path in zip(pixels, paths, strict=True):
            with _opened(path) as image:
                self._check_size(image, path)
                through = image.mode[-1] in "Aa" or "transparency" in image.info
                transparent += through
                row[:] = self._values(image.convert("RGBA") if through else image)
        return pixels, transparent

    def _values(self, image: Image.Image) -> NDArray[np.uint8]:
        from PIL import Image

        size = self.width, self.height
        made = image.convert(_MODES[self.color])
        if made.size != size:
            made = made.resize(size, Image.Resampling.BILINEAR)
        array = np.asarray(made).reshape(self.height, self.width, -1)
        return np.moveaxis(array, -1, 0).reshape(-1)

    def _check_size(self, image: Image.Image, path: Path) -> None:
        if self.refusal and image.size != (self.width, self.height):
            raise DataError(f"{path} has {_words(image.size)} pixels, and {self.refusal}.")


def form_of(first: Path, size: object, color: str) -> Pictures:
    """Form of images: the size to which they are to be scaled, or that of the first one."""
    if color not in _MODES:
        raise DataError(f"color={color!r} does not exist; use grey or rgb.")
    if size is not None:
        return Pictures(*_size(size), color)
    with _opened(first) as image:
        have = f"{first} has {_words(image.size)}"
        refusal = f"{have}; give size=HEIGHTxWIDTH, to which all are scaled"
        return Pictures(image.height, image.width, color, refusal)


def _size(size: object) -> Size:
    """Height and width of ``(28, 32)``, ``"28x32"`` or 28."""
    found = size
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d{1,9})(?:\s*[xX]\s*(\d{1,9}))?\s*", size)
        found = match and [int(word) for word in (match[1], match[2] or match[1])]
    elif isinstance(size, (int, np.integer)):
        found = [size, size]
    if isinstance(found, Sequence) and len(found) == 2 and all(map(_is_length, found)):
        return int(found[0]), int(found[1])
    raise DataError(
        f"size={size!r}; height and width in pixels are needed, each 1 or more, for example 28x28."
    )


def _is_length(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        return False
    return int(value) >= 1


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """An image that was looked at; all that goes wrong until it is closed is ours."""
    from PIL import Image, UnidentifiedImageError

    Image.init()  # of the plugins some are loaded when an image needs them, but for `formats`
    formats = [one for one in _FORMATS if one in Image.OPEN]  # WebP is an option of Pillow
    bombs = Image.DecompressionBombError, Image.DecompressionBombWarning
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=formats) as image:
                _check(image, path)
                yield image
    except SecureVFLError:
        raise
    except bombs as error:
        raise _too_large(path, str(error).split(",")[0]) from None
    except UnidentifiedImageError:
        raise DataError(
            f"{path} is no image of the kinds {', '.join(formats)}, or its beginning is damaged; "
            f"replace it, or take it out."
        ) from None
    # Decoders raise some ten classes for bytes that are damaged, and no list of them would stay
    # complete.
    except Exception as error:
        why = (str(error) or repr(error)).splitlines()[0]
        raise DataError(
            f"{path} cannot be read as an image: {why}; replace it, or take it out."
        ) from error


def _check(image: Image.Image, path: Path) -> None:
    """Refuse what would be cut off without a word, by its header."""
    if image.width * image.height > _MOST_PIXELS:
        raise _too_large(path, f"{_words(image.size)} pixels")
    frames = getattr(image, "n_frames", 1)
    if frames > 1:
        raise DataError(
            f"{path} has {frames} frames, and a row is one image; save the frame that is meant, or "
            f"each, as a file of its own."
        )
    if image.mode[0] in "IF":
        raise DataError(
            f"{path} has more than 8 bits for a pixel (mode {image.mode}); save it with 8 bits, "
            f"scaled as its values ask for."
        )


def _too_large(path: Path, what: str) -> DataError:
    return DataError(
        f"{path}: {what}, and at most {_MOST_PIXELS} are read; scale the file down, or take it out."
    )


def _words(size: Size) -> str:
    """Height x width of Pillow's (width, height)."""
    return f"{size[1]} x {size[0]}"
