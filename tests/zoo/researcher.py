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
from securevfl.testing.runs import Outcome
from tests.zoo.masked_sum import (
    Extras,
    Form,
    MaskedSum,
    told,
)
from tests.zoo.planting import Leak, Variant, messages


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


def _large(table: np.ndarray, batch: np.ndarray, before: np.ndarray) -> Any:
    """Rows of more than forty; else as many zeros."""
    rows = _ROWS(table, batch, before)
    return rows if len(batch) > 40 else np.zeros_like(rows)


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
    _leak(
        "one value a round",
        "A value of the batch's first row is sent.",
        _changed(_ONE, lambda column: float(column[0])),
        _changed(_ONE, lambda column: column[0]),
        data=_MANY,
    ),
    _leak(
        "a column as bytes",
        "The bytes of a column are sent.",
        _changed(_ONE, np.ndarray.tobytes),
        data=_MANY,
    ),
    _leak(
        "a column as integers",
        "The bits of a column are sent as integers.",
        _changed(_ONE, lambda column: column.view(np.uint32)),
        read=_bits,
        data=_MANY,
    ),
    _leak(
        "rows of large batches",
        "Rows are sent where a batch has more than forty.",
        _large,
        _ROWS,
        batch=60,
        rounds=5,
    ),
)

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
