"""Files of strangers: parsed with bounds, and refused by an exception of this library."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from securevfl.errors import SecureVFLError

#: What parsers of TOML and JSON raise for texts that are none, that are nested too deep, or that
#: hold a number of too many digits.
NOT_PARSED = (ValueError, RecursionError)

_SHARE = 2  # an archive may fill one of so many parts of the free memory: readers copy it once
_CHUNK = 2**20
_HEADERS: dict[tuple[int, int], Callable[..., Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Arrays of an .npz file by name. What they declare is checked before memory is taken.

    Raises
    ------
    OSError
        When the file cannot be opened.
    ValueError
        For anything that is no archive of numbers or texts, or is too large.
    """
    with path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                _check_size(sum(member.file_size for member in members))
                return {
                    member.filename.removesuffix(".npy"): _array(archive, member)
                    for member in members
                }
        except (SecureVFLError, ValueError):
            raise
        # Modules for zip, deflate, LZMA and array headers raise some twenty classes for bytes that
        # are damaged, and no list of them would stay complete.
        except Exception as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None


def _check_size(declared: int) -> None:
    import psutil

    free = int(psutil.virtual_memory().available) // _SHARE
    if declared > free:
        raise ValueError(f"its arrays declare {declared} bytes, and {free} may be used here")


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """One member; its shape must declare as many bytes as the archive does."""
    with archive.open(member) as stream:
        shape, fortran, dtype = _header(stream)
        nbytes = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or nbytes > member.file_size:
            raise ValueError(f"{member.filename} declares {nbytes} bytes of {dtype}")
        raw = bytearray(nbytes)
        at = 0
        while part := stream.read(_CHUNK):
            if at + len(part) > nbytes:
                raise ValueError(f"{member.filename} has more bytes than it declares, {nbytes}")
            raw[at : at + len(part)] = part
            at += len(part)
    if at < nbytes:
        raise ValueError(f"{member.filename} has {at} bytes and declares {nbytes}")
    return np.frombuffer(raw, dtype).reshape(shape, order="F" if fortran else "C")


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"arrays of format {version} are not read")
    shape, fortran, dtype = _HEADERS[version](stream)
    return shape, fortran, dtype
