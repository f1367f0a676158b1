"""CSV files read as texts, so that the type of a column can be found on training rows alone."""

from __future__ import annotations

import csv
import lzma
import re
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from securevfl.data.preparation.cells import MISSING_TEXTS, TEXT_CELLS
from securevfl.data.preparation.columns import refuse_repeated
from securevfl.data.preparation.other_files import refuse_other_kind
from securevfl.errors import DataError
from securevfl.reading import most_unpacked

if TYPE_CHECKING:
    import pandas as pd


_WIDEST = 1 << 20  # characters of a first line that are looked at
# Whole numbers, and such with a decimal comma; points stand between thousands before a comma.
_COMMA_NUMBER = r"[+-]?(\d+(,\d+)?([eE][+-]?\d+)?|\d{1,3}(\.\d{3})+,\d+)"


def read_csv(
    path: Path, separator: str | None = None, header: int | None = 0, comment: str | None = None
) -> pd.DataFrame:
    """Read a CSV file as texts, its rows named by their file and line.

    Empty cells are "". A first column without a name, of row names as R and pandas write them, is
    left out. The frame's index is called ``FILE, line``, so that a message about a cell names its
    file, and the attribute `TEXT_CELLS` says that the file has no types.

    Parameters
    ----------
    path : Path
        File in UTF-8, or UTF-16 with a byte order mark; .gz, .bz2 and .xz are unpacked, to at most
        64 MiB or 50 times their size.
    separator : str, optional
        By default a tab for .tsv files, else a comma, or the header's separator if another one (";"
        of some countries' spreadsheets, also named in a first line "sep=;"). Numbers of such a file
        may have decimal commas.
    header : int, optional
        Index of the row with the column names; rows before it are skipped. None names the columns
        "0", "1", ...
    comment : str, optional
        Prefix of lines to skip.

    Raises
    ------
    DataError
        If the file cannot be read or seems to have another separator; has no rows, or rows of
        different length; or has columns without a name, or repeated or unprintable names, or
        numbers for names that neither rise nor fall, as a first row of cells has them.
    """
    import pandas as pd

    if separator is None:
        separator = "\t" if {".tsv", ".tab"} & set(path.suffixes) else _separator(path, comment)
    names, lines, rows = _read(path, separator, header, comment)
    if not rows:
        raise DataError(f"{path.name} has no rows below its header; at least one is needed.")
    blank = " " in names[0] and all(" " in row[0] for row in rows)  # as R's write.table has it
    if len(names) == 1 and (blank or any(mark in names[0] for mark in ";\t|,")):
        raise DataError(
            f"{path.name} has one column, {names[0][:60]!r}; "
            f"name the separator, for example separator={' ' if blank else ';'!r}."
        )
    if names[0] == "" and len(names) > 1 and len({row[0] for row in rows}) == len(rows):
        names, rows = names[1:], [row[1:] for row in rows]
    if "" in names:
        raise DataError(
            f"{path.name}: column {names.index('') + 1} of {len(names)} has no name; give it one, "
            f"or leave the column out (row names are those of a first column, all different)."
        )
    strange = next((name for name in names if not name.isprintable()), None)
    if strange is not None:
        raise DataError(
            f"{path.name}: column {names.index(strange) + 1} is called {strange[:60]!r}, which has "
            "control characters; rename it."
        )
    refuse_repeated(names, where=f"{path.name}: ")
    if header is not None:
        _refuse_cells_for_names(names, path.name)
    index = pd.Index(lines, name=f"{path.name}, line")
    columns: list[Sequence[str]] = list(zip(*rows, strict=True))
    if separator != ",":
        columns = _decimal_points(names, columns, path.name)
    frame = pd.DataFrame(
        {
            name: pd.Series(cells, dtype=object, index=index)
            for name, cells in zip(names, columns, strict=True)
        }
    )
    frame.attrs[TEXT_CELLS] = True
    return frame


def _refuse_cells_for_names(names: Sequence[str], file: str) -> None:
    """DataError for column names that look like a row of data: unordered numbers, or fractions.

    Names such as years, places and wavelengths ascend or descend.
    """
    found = [name for name in names if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)", name)]
    steps = {float(a) < float(b) for a, b in pairwise(found)}
    if len(steps) > 1 or (len(found) < 3 and any("." in name for name in found)):
        raise DataError(
            f"{file}: the first line has {found[0]!r} where the name of a column is expected; "
            "write a line with names above it, or, if it is a name, call it otherwise."
        )


def _separator(path: Path, comment: str | None) -> str:
    """Separator that the first line shows (";", tab, "|" or "sep="); a comma if none does."""
    first = ""
    try:
        refuse_other_kind(path)
        with _open(path) as stream:
            while line := stream.readline(_WIDEST):
                first = line.strip()
                if first and not (comment is not None and first.startswith(comment)):
                    break
    except (OSError, EOFError, UnicodeDecodeError, zlib.error, lzma.LZMAError):
        return ","  # whoever reads all of it says what is wrong
    if len(first) == 5 and first.startswith("sep="):
        return first[-1]
    there = [mark for mark in ";\t|" if mark in first]
    return there[0] if len(there) == 1 and "," not in first else ","


def _decimal_points(
    names: Sequence[str], columns: list[Sequence[str]], file: str
) -> list[Sequence[str]]:
    """Columns with points for decimal commas; DataError if 1.234 elsewhere could be two numbers."""
    made = [_with_points(cells) for cells in columns]
    if all(new is old for new, old in zip(made, columns, strict=True)):
        return made
    for name, new, old in zip(names, made, columns, strict=True):
        points = [cell for cell in old if "." in cell] if new is old else []
        if points and all(re.fullmatch(r"[+-]?\d{1,3}(\.\d{3})+", cell.strip()) for cell in points):
            raise DataError(
                f"{file}: column {name!r} has numbers such as {points[0]!r}, and other columns "
                "have decimal commas: whether the points stand between thousands is not known. "
                "Write these numbers without them."
            )
    return made


def _with_points(cells: Sequence[str]) -> Sequence[str]:
    """The cells of a column of numbers with decimal commas with decimal points; others as read."""
    said = [cell.strip() for cell in cells]
    if not any("," in cell for cell in said) or not all(
        cell in MISSING_TEXTS or re.fullmatch(_COMMA_NUMBER, cell) for cell in said
    ):
        return cells
    return [cell.replace(".", "").replace(",", ".") for cell in said]


def _read(
    path: Path, separator: str, header: int | None, comment: str | None
) -> tuple[list[str], list[int], list[list[str]]]:
    """Column names (of row `header`, or numbers), line numbers and cells of the rows; DataError."""
    names: list[str] | None = None
    lines: list[int] = []
    rows: list[list[str]] = []
    try:
        refuse_other_kind(path)
        with _open(path) as stream:
            text = _bounded(stream, path) if path.suffix in _PACKED else stream
            for line, cells in islice(_rows(text, separator, comment), header or 0, None):
                if names is None and not lines and cells == ["sep=", ""]:
                    continue
                if names is None and header is not None:
                    names = [cell.strip() for cell in cells]
                    continue
                names = names or [str(k) for k in range(len(cells))]
                if len(cells) != len(names):
                    short = not lines and len(cells) == len(names) + 1
                    why = (
                        "correct the header: it lacks a name, as in files of R's write.table "
                        "(use write.csv), or a line above it is none"
                        if short
                        else "correct the line (is the file cut off?)"
                    )
                    raise DataError(
                        f"{path.name}, line {line}: {len(cells)} fields where {len(names)} are "
                        f"expected; {why}."
                    )
                lines.append(line)
                rows.append(cells)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; check the path.") from None
    except UnicodeDecodeError as error:
        raise DataError(
            f'{path.name} is not UTF-8 text: {error}; save it as UTF-8 (in a spreadsheet "CSV '
            'UTF-8")'
        ) from error
    except csv.Error as error:
        raise DataError(f"{path.name} is no regular CSV file: {error}; correct it.") from error
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path}: the file cannot be read: {error}.") from error
    if names is None:
        raise DataError(f"{path.name} is empty; a header and at least one row are needed.")
    return names, lines, rows


def _rows(
    stream: Iterable[str], separator: str, comment: str | None
) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number from 1, cells divided at `separator`), no blank lines or comments."""
    reader = csv.reader(stream, delimiter=separator, skipinitialspace=True)
    for cells in reader:
        blank = not cells or cells == [""]
        if not blank and not (comment is not None and cells[0].startswith(comment)):
            yield reader.line_num, cells


def _bounded(stream: IO[str], path: Path) -> Iterator[str]:
    """Lines of a compressed file; DataError if it expands to far more than its size."""
    left = most_unpacked(path)
    while line := stream.readline(left + 1):
        left -= len(line)
        if left < 0:
            raise DataError(
                f"{path.name} has {path.stat().st_size} bytes, and unpacks to more than "
                f"{most_unpacked(path)}, which would fill the memory; if it is right, unpack it "
                "first."
            )
        yield line


_PACKED = (".gz", ".bz2", ".xz")


def _open(path: Path) -> IO[str]:
    import bz2
    import gzip

    packed: dict[str, Callable[..., Any]] = {
        ".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open,
    }  # fmt: skip
    opener = packed.get(path.suffix, open)
    with opener(path, "rb") as stream:
        wide = stream.read(2) in (BOM_UTF16_LE, BOM_UTF16_BE)  # "Unicode text" of spreadsheets
    encoding = "utf-16" if wide else "utf-8-sig"
    return cast("IO[str]", opener(path, "rt", encoding=encoding, newline=""))
