"""Raw table cells as numbers or texts, with every doubtful cell named by its row and column."""

from __future__ import annotations

import datetime
import math
import re
import unicodedata
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from securevfl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

#: Attribute of a frame whose cells are the texts of a file, which has no types.
TEXT_CELLS = "securevfl: cells are the texts of a file"
#: Texts that stand for an absent value in a file.
MISSING_TEXTS: tuple[str, ...] = (
    "", "?", "NA", "N/A", "n/a", "#N/A", "NULL", "null", "None", "<NA>",
)  # fmt: skip

# A computed NaN is not an absent value: it is refused unless the user lists it as missing.
_NAN_TEXTS = frozenset({"nan", "NaN", "NAN", "-nan", "-NaN"})
_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_DECIMAL_COMMA = r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+"
_GROUPED = r"[+-]?\d{1,3}(,\d{3})+"
# What spreadsheets show around and in numbers: currencies, percent, brackets and signs of negative
# ones, quotation marks, marks between thousands, decimal commas.
_SHOWN = re.compile(
    r"([=(\"'+\-\u2212\s]|[^\W\d_]{0,2}[$\u00a2-\u00a5\u20a0-\u20cf]|[A-Z]{3}\s)*"
    r"(\d{1,3}([,.'\u2019\s]\d{3})+|\d+)([.,]\d+)?([eEdD][+-]?\d+)?"
    r"([)\"'\-\u2212%\u2030\s]|[$\u00a2-\u00a5\u20a0-\u20cf]|\s[A-Z]{3})*"
)
_NO_CELLS = (bytes, tuple, datetime.date, datetime.time, datetime.timedelta)
_BOOLEANS = {"true": 1.0, "false": 0.0}


def row_name(series: pd.Series, position: int) -> str:
    """Name of a row as the user can find it, such as ``"bank.csv, line 17"`` or ``"row 15"``."""
    return f"{series.index.name or 'row'} {series.index[position]}"


def text_of(cell: object) -> str:
    """A cell as text without surrounding blanks; 1.0 is written as 1, the same category."""
    if isinstance(cell, (float, np.floating)) and float(cell).is_integer():
        return str(int(cell))
    return str(cell).strip()


def id_of(text: str) -> str:
    """An identifier in the form in which all joins compare it (NFC): the same letters are one."""
    return unicodedata.normalize("NFC", text)


def look_of(text: str) -> str:
    """A text as it looks: kinds of spaces become one, and invisible characters go."""
    kinds = ((one, unicodedata.category(one)) for one in unicodedata.normalize("NFC", text))
    return "".join(" " if kind == "Zs" else one for one, kind in kinds if kind != "Cf")


def read_texts(
    series: pd.Series, missing: tuple[str, ...] = MISSING_TEXTS, *, names: bool = False
) -> tuple[NDArray[np.intp], list[str | None]]:
    """A column as codes and its distinct texts; None stands for a missing value.

    Returns each row's index into the distinct texts, intp (rows,), and these texts, the last of
    which is None for a missing value. `missing` has the texts that stand for one. DataError for
    dates, bytes, lists, and a cell "NaN". With `names`, where texts are only compared, objects that
    are dates, times or tuples count by their text.
    """
    import pandas as pd

    if series.dtype.kind in "mM" or isinstance(series.dtype, pd.PeriodDtype):
        raise DataError(
            f"column {series.name!r} holds dates or durations; turn it into numbers, or drop it."
        )
    try:
        codes, distinct = pd.factorize(series)
    except TypeError as error:
        raise DataError(
            f"column {series.name!r} holds lists or other compound cells; give one value per cell."
        ) from error
    texts: list[str | None] = []
    refused = bytes if names else _NO_CELLS
    raw = next((cell for cell in distinct if isinstance(cell, refused)), None)
    if isinstance(raw, bytes):
        raise DataError(
            f"column {series.name!r} holds objects of bytes, such as {raw[:20]!r}; decode them "
            "into texts or numbers."
        )
    if raw is not None:
        raise DataError(
            f"column {series.name!r} holds objects of {type(raw).__name__}, such as {raw!r}; turn "
            "them into numbers or texts, or drop the column."
        )
    for code, cell in enumerate(distinct):
        text = text_of(cell)
        if text in missing:
            texts.append(None)
        elif text in _NAN_TEXTS:
            at = row_name(series, int(np.argmax(codes == code)))
            raise DataError(
                f"column {series.name!r}, {at}: the value is {text}, not a number; "
                f"correct it, or leave the cell empty if the value is unknown."
            )
        else:
            texts.append(text)
    texts.append(None)
    return np.where(codes < 0, len(texts) - 1, codes), texts


def odd_cell(series: pd.Series, missing: tuple[str, ...] = MISSING_TEXTS) -> str:
    """Sentence on a text column at least half of whose cells look like numbers; else "".

    For example ``" All but 2 of 1875 are numbers; 'n/a?' in bank.csv, line 5 is none."``
    """
    texts = series.dropna().map(text_of)
    texts = texts[~texts.isin(missing)]
    commas = texts[texts.str.fullmatch(_DECIMAL_COMMA)]
    shown = texts[_shown(texts)]
    grouped = bool(commas.str.fullmatch(_GROUPED).all())
    if len(shown) and 2 * len(shown) > len(texts) and (grouped or 2 * len(commas) <= len(texts)):
        return (
            f" {len(shown)} of {len(texts)} look like numbers as a spreadsheet shows them, such as "
            f"{shown.iloc[0]!r} in {row_name(shown, 0)}: write plain ones, with a decimal point "
            "and nothing else, such as 1234.5."
        )
    if 2 * len(commas) > len(texts):
        return (
            f" {len(commas)} of {len(texts)} look like numbers with a decimal comma, such as "
            f"{commas.iloc[0]!r} in {row_name(commas, 0)}: write a decimal point."
        )
    odd = texts[~texts.str.fullmatch(_NUMBER)]
    if not len(odd) or 2 * len(odd) > len(texts):
        return ""
    return (
        f" All but {len(odd)} of {len(texts)} are numbers; {odd.iloc[0]!r} in "
        f"{row_name(odd, 0)} is none."
    )


def _shown(texts: pd.Series) -> pd.Series:
    """Mask of texts that are numbers in spreadsheet style (such as 1,000 or 5 %) but not plain."""
    return texts.str.fullmatch(_SHOWN) & ~texts.str.fullmatch(_NUMBER)


def refuse_odd_cells(series: pd.Series, missing: tuple[str, ...] = MISSING_TEXTS) -> None:
    """Raise DataError for texts nearly all of which are numbers: one typo would make categories.

    That is if at least 90 % of the non-missing rows, or of their distinct texts, are numbers; or
    numbers with a decimal comma; or plain numbers and formatted ones such as "1,234.50", "$5" and
    "12 %".
    """
    said = series.dropna().map(text_of)
    said = said[~said.isin(missing)]
    for texts in (said, said.drop_duplicates()):
        odd = ~texts.str.fullmatch(_NUMBER)
        no_comma = ~texts.str.fullmatch(_DECIMAL_COMMA)
        neither = odd & ~_shown(texts)
        if odd.any() and 10 * min(odd.sum(), no_comma.sum(), neither.sum()) <= len(odd):
            raise DataError(
                f"column {series.name!r} would be one of categories.{odd_cell(series, missing)} "
                f"Correct such cells; or, if they stand for an unknown value, name them in "
                f"missing_values; or, if the numbers are names of categories, write them as texts, "
                f"such as 'c1'."
            )


def read_numbers(
    series: pd.Series, missing: tuple[str, ...] = MISSING_TEXTS
) -> NDArray[np.float64] | None:
    """Read a column as numbers, float64 (rows,), NaN where a value is missing.

    None if a cell is neither a number, a boolean nor missing. DataError for infinite and complex
    cells, and for those without a text (`read_texts`).
    """
    if series.dtype.kind == "c":
        raise DataError(f"column {series.name!r} holds complex numbers; give real ones.")
    if series.dtype.kind in "biuf":
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        plain = _parse_plain(series)
        if plain is not None:
            return plain
        codes, texts = read_texts(series, missing)
        table = _parse(texts)
        if table is None:
            return None
        values = table[codes]
    infinite = np.isinf(values)
    if infinite.any():
        at = row_name(series, int(np.argmax(infinite)))
        raise DataError(
            f"column {series.name!r}, {at}: the value is infinite; "
            f"correct it, or leave the cell empty if the value is unknown."
        )
    return values


def first_non_number(series: pd.Series, missing: tuple[str, ...] = MISSING_TEXTS) -> str:
    """Place and text of the first cell that is no number: "bank.csv, line 17 holds 'abc'"."""
    codes, texts = read_texts(series, missing)
    bad = [text is not None and _parse([text]) is None for text in texts]
    position = int(np.argmax(np.array(bad)[codes]))
    return f"{row_name(series, position)} holds {texts[codes[position]]!r}"


def _parse_plain(series: pd.Series) -> NDArray[np.float64] | None:
    """Read a column of nothing but finite numbers in text form; a shortcut for most columns."""
    import pandas as pd

    if pd.api.types.infer_dtype(series, skipna=False) != "string":
        return None
    cells = series.to_numpy(dtype=object)
    try:
        values = cells.astype(np.float64)
    except ValueError:
        return None
    plain = bool(np.isfinite(values).all()) and not any("_" in cell for cell in cells)
    return values if plain else None


def _parse(texts: list[str | None]) -> NDArray[np.float64] | None:
    """Turn distinct texts into numbers, or None if one of them is no number."""
    present = [text for text in texts if text is not None]
    if present and all(text.lower() in _BOOLEANS for text in present):
        numbers = [_BOOLEANS[text.lower()] for text in present]
    else:
        try:
            # float() would read 1_000 as a number, which no table means.
            numbers = [math.nan if "_" in text else float(text) for text in present]
        except ValueError:
            return None
        if any(map(math.isnan, numbers)):
            return None
    parsed = iter(numbers)
    return np.array([math.nan if text is None else next(parsed) for text in texts])
