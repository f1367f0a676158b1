"""Raw values in a declared message of a researcher's own protocol, and sound forms of it.

Five of the forms were once sent unnoticed, by somebody who wrote a protocol from the documentation
alone. The protocol is in `masked_sum`; its server may learn a sum, as that of secagg_split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.models.split import rows_of
from securevfl.testing.leaks.planting import Leak, Variant, messages
from securevfl.testing.leaks.third_party.masked_sum import (
    FIELD,
    POINT,
    Extras,
    Form,
    MaskedSum,
    told,
)
from securevfl.testing.runs import Outcome


def _places(table: np.ndarray) -> list[int]:
    """Columns from the one that varies most: others, as a corner of an image, tell nothing."""
    found: list[int] = np.argsort(-table.std(axis=0), kind="stable").tolist()
    return found


def _columns(choose: Callable[[list[int]], list[int]]) -> Form:
    """Columns of the batch's rows, chosen from those in the order of their spread."""

    def columns(table: np.ndarray, batch: np.ndarray, before: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(rows_of(table, batch)[:, choose(_places(table))])

    return columns


def _changed(form: Form, change: Callable[[np.ndarray], Any]) -> Form:
    return lambda *now: change(form(*now))


def _single(place: int) -> Form:
    """The column of a place in the order of their spread."""
    return _changed(_columns(lambda places: places[place : place + 1]), np.ravel)


_ONE, _SECOND, _ROWS = _single(0), _single(1), _columns(sorted)


def _earlier(table: np.ndarray, batch: np.ndarray, before: np.ndarray) -> Any:
    return _ONE(table, before, before)


def _large(table: np.ndarray, batch: np.ndarray, before: np.ndarray) -> Any:
    """Rows of more than forty; else as many zeros."""
    rows = _ROWS(table, batch, before)
    return rows if len(batch) > 40 else np.zeros_like(rows)


def _padded(column: np.ndarray) -> np.ndarray:
    """A value, a random number, a value and so on."""
    noise = (FIELD.random(column.shape) / FIELD.modulus).astype(column.dtype)
    return np.stack([column, noise], axis=1).reshape(-1)


def _in_words(column: np.ndarray) -> str:
    return " ".join(str(value) for value in column)


def _with_rows(table: np.ndarray, batch: np.ndarray, before: np.ndarray) -> Any:
    """Public: the numbers of the batch's rows, and the levels of a scale of sixteen."""
    return (batch, np.linspace(0, 1, 17, dtype=np.float32))


def _grid(table: np.ndarray, batch: np.ndarray, before: np.ndarray) -> Any:
    """Public: the numbers of the batch's rows, and constants, as some pixels have."""
    return (batch, np.tile(np.array([0, 1 / 16, 1], np.float32), len(batch))[: len(batch)])


def _ready(table: np.ndarray, batch: np.ndarray, before: np.ndarray) -> Any:
    """Public: always the same numbers."""
    return {"ready": 1, "version": "1.0", "grid": np.linspace(-1, 1, 31)}


# -- seeing them -----------------------------------------------------------------------------------


def _numbers(payload: Any) -> list[float]:
    """All numbers of a payload."""
    if isinstance(payload, (dict, tuple)):
        parts = payload.values() if isinstance(payload, dict) else payload
        return [number for part in parts for number in _numbers(part)]
    if isinstance(payload, bytes):
        return _numbers(np.frombuffer(payload, np.float32))
    if isinstance(payload, str):
        return [float(np.float32(word)) for word in payload.split() if "." in word]
    return [float(number) for number in np.ravel(payload)]


def _bits(payload: Any) -> list[float]:
    """Numbers of 32 bits whose bits are those of 32-bit integers."""
    same = isinstance(payload, np.ndarray) and payload.dtype == np.uint32
    return _numbers(payload.view(np.float32)) if same else []


def _elements(payload: Any) -> list[float]:
    """Numbers of 32 bits whose fixed-point numbers are the field elements of a payload."""
    same = isinstance(payload, np.ndarray) and payload.dtype == FIELD.dtype
    return _numbers(POINT.dequantize(payload)) if same else []


def _rounded(column: np.ndarray) -> Any:
    return POINT.dequantize(POINT.quantize(column))


def _shows(form: Form, read: Callable[[Any], list[float]]) -> Callable[[Outcome], bool]:
    """Test whether, in each round, all values of a form stand in one message to the server."""

    def found(outcome: Outcome, kind: str) -> bool:
        made: Any = outcome.protocol
        told_all = []
        for one in messages(outcome, kind):
            now = made.data.train[one["sender"]], made.batches(1), int(one["round"])
            wanted = Counter(_numbers(told(form, *now)))
            told_all.append(wanted <= Counter(read(one["payload"])))
        return bool(told_all) and all(told_all)

    return lambda outcome: any(
        found(outcome, one.kind) for one in outcome.protocol.messages if one.receiver == "server"
    )


# -- all of them -----------------------------------------------------------------------------------


def _made(extras: Extras) -> Callable[[], type[MaskedSum]]:
    """Maker of the protocol with something besides."""
    space = {"extras": extras, "__module__": __name__, "__doc__": MaskedSum.__doc__}
    return lambda: type("Extended", (MaskedSum,), space)


def _leak(name: str, says: str, sent: Form | Extras, shown: Form = _ONE, *, formula: bool = False,
          read: Any = _numbers, data: str = "digits", **options: int) -> Leak:  # fmt: skip
    """A leak of `sent`, which has the numbers of `shown`; a form goes into a message of its own."""
    extras = sent if isinstance(sent, Extras) else Extras({"progress": sent}, formulas=formula)
    return Leak(f"masked_sum: {name}", "masked_sum", "raw values in a message of one's own", says,
                _made(extras), (("server", "features"),), options, shows=_shows(shown, read),
                own=MaskedSum, data=data)  # fmt: skip


def _variant(name: str, says: str, extras: Extras, data: str = "digits") -> Variant:
    made = _made(extras)
    return Variant(f"masked_sum: {name}", "masked_sum", says, made, own=MaskedSum, data=data)


_MANY = "breast-cancer"

LEAKS = (
    _leak("a column", "One column of the batch's rows is sent.", _ONE),
    _leak("a column with a formula", "One column is sent, and its formula says so.",
          _ONE, formula=True),
    _leak("a column of many values", "One column of the batch's rows is sent.", _ONE, data=_MANY),
    _leak("two columns", "Two columns of the batch's rows are sent.",
          _columns(lambda places: sorted(places[:2]))),
    _leak("all columns but one", "All columns but one are sent, and a formula says so.",
          _columns(lambda places: sorted(places[:-1])), formula=True),
    _leak("rows transposed", "The batch's rows are sent as columns.", _changed(_ROWS, np.transpose),
          _ROWS),
    _leak("whole rows", "The batch's rows are sent, and a formula says so.", _ROWS, _ROWS,
          formula=True),
    _leak("columns in another order", "Columns are sent in the order of their spread.",
          _columns(list), _ROWS, formula=True),
    _leak("rows in another order", "The batch's rows are sent backwards.",
          _changed(_ROWS, lambda rows: rows[::-1].copy()), _ROWS),
    _leak("a column backwards", "One column of the rows is sent backwards.",
          _changed(_ONE, lambda column: column[::-1].copy())),
    _leak("a column sorted", "The values of one column are sent in order.",
          _changed(_ONE, np.sort)),
    _leak("a column of many values, sorted", "The values of one column are sent in order.",
          _changed(_ONE, np.sort), data=_MANY),
    _leak("a column in double precision", "One column is sent in 64 bits.",
          _changed(_ONE, np.float64)),
    _leak("two columns in two messages", "Two columns are sent, each in a kind of its own.",
          Extras({"progress": _ONE, "pace": _SECOND})),
    _leak("a column within an upload", "A column stands in a dictionary with the masked embedding.",
          Extras(within=_ONE)),
    _leak("a column in a tuple", "A column stands in a tuple with a constant.",
          _changed(_ONE, lambda column: ("ready", column))),
    _leak("rows of the batch before", "One column of the rows before is sent.", _earlier, _earlier),
    _leak("rows of the batch before, of many values", "One column of the rows before is sent.",
          _earlier, _earlier, data=_MANY),
    _leak("every other row", "A column of every other row is sent.",
          _changed(_ONE, lambda column: column[::2].copy()),
          _changed(_ONE, lambda column: column[::2])),
    _leak("one value a round", "A value of the batch's first row is sent.",
          _changed(_ONE, lambda column: float(column[0])), _changed(_ONE, lambda column: column[0]),
          data=_MANY),
    _leak("a column between random numbers", "Values of a column and random ones take turns.",
          _changed(_ONE, _padded), data=_MANY),
    _leak("a column as numbers of a tuple", "A column is sent as Python's numbers.",
          _changed(_ONE, lambda column: tuple(column.tolist())), data=_MANY),
    _leak("a column as bytes", "The bytes of a column are sent.",
          _changed(_ONE, np.ndarray.tobytes), data=_MANY),
    _leak("a column as integers", "The bits of a column are sent as integers.",
          _changed(_ONE, lambda column: column.view(np.uint32)), read=_bits, data=_MANY),
    _leak("a column as field elements", "A column is sent as uploads are, without masks.",
          _changed(_ONE, POINT.quantize), _changed(_ONE, _rounded), read=_elements, data=_MANY),
    _leak("rows of large batches", "Rows are sent where a batch has more than forty.",
          _large, _ROWS, batch=60, rounds=5),
    _leak("a column as a text", "A column is sent in words.", _changed(_ONE, _in_words),
          data=_MANY),
)  # fmt: skip

VARIANTS = (
    _variant("as it is", "Nothing but masks and masked embeddings is sent.", Extras()),
    _variant("uploads turned", "Uploads are transposed, after a constant word.",
             Extras({"progress": _ready}, turned=True)),
    _variant("a table of row numbers", "The batch's row numbers are sent, and a public scale.",
             Extras({"progress": _with_rows}, formulas=True)),
    _variant("row numbers within uploads", "The same stands beside masked embeddings.",
             Extras(within=_with_rows), _MANY),
    _variant("constants at named rows", "Row numbers are sent, and constants as pixels have.",
             Extras({"progress": _grid})),
)  # fmt: skip
