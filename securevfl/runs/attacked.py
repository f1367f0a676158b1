"""Results of built-in attacks on a run, as a sentence beside that on its decoded sums."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TypedDict

from securevfl.errors import DataError
from securevfl.reading import NOT_PARSED

ATTACKS = "attacks.json"  # in the folder of a run, by ``securevfl compare RUN --attacks``
#: Attacks of a server that has its view and nothing else.
ALONE = ("squares", "binary columns of sums", "equality solving of sums, secret seed unknown")
_SEED = "equality solving of sums"  # whose secret seed is known: no attack on a real run


class Cell(TypedDict):
    """Fields of an attack's result that the sentence uses."""

    role: str
    about: str
    attack: str
    success: float | None
    chance: float
    metric: str


def attacked(folder: Path | str | None, protocol: str, *, own_data: bool = False) -> str:
    """Sentence on what attacks recovered of the columns, or on the command that runs them.

    Parameters
    ----------
    folder : Path, str or None
        Folder of the run, with the results of attacks if any were made; None for an unsaved run.
    protocol : str
        Name of the protocol.
    own_data : bool
        Whether the caller passed a data set object, which the run's folder does not name.

    Raises
    ------
    DataError
        If the file contains no results of attacks.
    """
    path = None if folder is None else Path(folder) / ATTACKS
    if path is not None and path.is_file():
        return f"Built-in attacks on this configuration got {got(_cells(path))}"
    what = f"{protocol} --data DATA" if own_data or folder is None else shlex.quote(str(folder))
    return f"No attack was run on it: `securevfl compare {what} --attacks`"


def got(cells: Sequence[Cell]) -> str:
    """Part of a sentence on the server's best attack on features, without and with known rows.

    Parameters
    ----------
    cells : sequence of mapping
        Attack results of one protocol (`securevfl.audit.attack_matrix`).
    """
    own = [c for c in cells if (c["role"], c["about"]) == ("server", "features")]
    known = [c["attack"] for c in own if c["attack"] not in (*ALONE, _SEED)]
    return (
        f"with nothing known {_strongest(own, ALONE)}, and with some rows known "
        f"{_strongest(own, known)}"
    )


def _strongest(cells: Sequence[Cell], names: Collection[str]) -> str:
    seen = [c for c in cells if c["attack"] in names and c["success"] is not None]
    if not seen:
        return "nothing: no attack had a view that it could use"
    best = max(seen, key=lambda c: float((c["success"] or 0.0) - c["chance"]))
    figure = f"{best['success']:.2f} by {best['attack']}".replace("-0.00", "0.00")
    return f"{figure} ({best['metric']}; chance {best['chance']:.2f})"


def _cells(path: Path) -> list[Cell]:
    """Cells of a stored attack matrix; DataError if they are malformed."""
    try:
        found: list[Cell] = json.loads(path.read_text())["cells"]
        got(found)  # whatever is missing is missed here
    except (*NOT_PARSED, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is no result of `compare RUN --attacks`: {error!r}") from None
    return found
