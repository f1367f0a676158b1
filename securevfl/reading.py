"""Reading of untrusted files: parsed with bounds, and refused by this library's errors."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from securevfl.errors import SecureVFLError

#: What parsers of TOML and JSON raise for texts that are none, that are nested too deep, or that
#: hold a number of too many digits.
NOT_PARSED = (ValueError, RecursionError)


#: How pydantic checks the fields of a stored file: given types only, no infinities and NaN.
STORED = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Stored(BaseModel):
    """Fields of a stored file."""

    model_config = ConfigDict(**STORED, frozen=True)

    @classmethod
    def check(cls, content: Any) -> None:
        """Raise ValueError unless a file's content has the fields of this class and their types.

        The message names the first wrong field.
        """
        try:
            cls.model_validate(content)
        except ValidationError as error:
            raise ValueError(first_problem(error)) from None


def first_problem(error: ValidationError) -> str:
    """Place of the first wrong field of a file, and its fault."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    message = first["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message


_SHARE = 2  # an archive may fill one of so many parts of the free memory: readers copy it once
# An archive of more than so many bytes may not be packed better than so. Models, row numbers and
# keys are far from it; what is, is meant to fill the memory.
_SMALL, _RATIO = 2**26, 50
_CHUNK = 2**20
_HEADERS: dict[tuple[int, int], Callable[..., Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Arrays of an .npz file by name; declared sizes are checked before memory is used.

    Raises
    ------
    OSError
        When the file cannot be opened.
    ValueError
        For anything that is no archive of numbers or texts, or is too large.
    """
    with _opened(path) as archive:
        members = archive.infolist()
        _check_size(sum(member.file_size for member in members), path)
        return {member.filename.removesuffix(".npy"): _array(archive, member) for member in members}


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """An archive; whatever goes wrong in reading it is an OSError or a ValueError."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (SecureVFLError, ValueError, OSError):
        raise
    # Modules for zip, deflate, LZMA and array headers raise some twenty classes for bytes that are
    # damaged, and no list of them would stay complete.
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def read_pieces(
    path: Path, columns: Mapping[str, str], rows: int
) -> Iterator[dict[str, np.ndarray]]:
    """Columns of one length in an .npz file, `rows` rows at a time to bound memory.

    Parameters
    ----------
    path, rows : Path, int
        The file, and the number of rows of a piece.
    columns : mapping of str to str
        NumPy type codes by name of the column.

    Raises
    ------
    OSError, ValueError
        If the file cannot be opened, is no archive of numbers or texts, or has columns of other
        types or of different lengths.
    """
    with _opened(path) as archive, ExitStack() as opened:
        streams = _streams(archive, opened, columns)
        left = _declared_rows(archive, streams, columns)
        while left > 0:
            count = min(rows, left)
            yield {
                name: np.frombuffer(_exactly(streams[name], count * np.dtype(code).itemsize), code)
                for name, code in columns.items()
            }
            left -= count
        for name, stream in streams.items():
            if stream.read(1):  # at its end the stream checks its sum
                raise ValueError(f"{name}.npy has more rows than it declares")


def _streams(
    archive: zipfile.ZipFile, opened: ExitStack, columns: Mapping[str, str]
) -> dict[str, IO[bytes]]:
    """Open streams of the columns."""
    missing = [name for name in columns if f"{name}.npy" not in archive.namelist()]
    if missing:
        raise ValueError(f"it has other columns than this version: no {', '.join(missing)}")
    return {name: opened.enter_context(archive.open(f"{name}.npy")) for name in columns}


def _declared_rows(
    archive: zipfile.ZipFile, streams: Mapping[str, IO[bytes]], columns: Mapping[str, str]
) -> int:
    """Number of rows that all columns declare."""
    declared = set()
    for name, stream in streams.items():
        shape, _, dtype = _header(stream)
        size = archive.getinfo(f"{name}.npy").file_size
        if dtype != np.dtype(columns[name]) or len(shape) != 1:
            raise ValueError(f"{name}.npy holds {dtype} of {len(shape)} dimensions")
        if not 0 <= shape[0] * dtype.itemsize <= size:
            raise ValueError(f"{name}.npy declares {shape[0]} rows in {size} bytes")
        declared.add(shape[0])
    if len(declared) != 1:
        raise ValueError(f"its columns declare {sorted(declared)} rows")
    return int(declared.pop())


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise ValueError(f"a column ends {size - len(data)} bytes too early")
    return data


def read_small(path: Path, name: str, most: int) -> np.ndarray:
    """One array of an .npz file; OSError or ValueError if unreadable or above `most` bytes."""
    with _opened(path) as archive:
        member = archive.getinfo(f"{name}.npy")
        if member.file_size > most:
            raise ValueError(f"{name} has {member.file_size} bytes, and {most} are allowed")
        return _array(archive, member)


def count_rows(path: Path, columns: Mapping[str, str]) -> int:
    """Number of rows declared by the columns of an .npz file, whose data are not read."""
    with _opened(path) as archive, ExitStack() as opened:
        return _declared_rows(archive, _streams(archive, opened, columns), columns)


def most_unpacked(path: Path) -> int:
    """Largest permitted size of a file after decompression; a larger one looks like an attack."""
    return max(_SMALL, _RATIO * path.stat().st_size)


def _check_size(declared: int, path: Path) -> None:
    if declared > most_unpacked(path):
        raise ValueError(
            f"its arrays declare {declared} bytes, and a file of {path.stat().st_size} bytes may "
            f"hold {most_unpacked(path)}"
        )
    refuse_beyond_memory(declared)


def refuse_beyond_memory(declared: int) -> None:
    """Raise ValueError if `declared` bytes are more than half of the free memory.

    The message names both sizes.
    """
    import psutil

    free = int(psutil.virtual_memory().available) // _SHARE
    if declared > free:
        raise ValueError(f"its arrays declare {declared} bytes, and {free} may be used here")


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """Array of one archive member; its declared size must match the archive's."""
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
