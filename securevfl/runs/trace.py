"""Messages of a run: time, sender, receiver, kind, and whether each arrived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from securevfl.engine.network import SERVER
from securevfl.engine.transcript import NOT_ARRIVED, Transcript
from securevfl.errors import ConfigurationError, UnknownNameError

if TYPE_CHECKING:
    import pandas as pd

    from securevfl.runs.history import Rows

FATES = ("arrived", "late", "lost", "under way", "dropped")


def trace(
    transcript: Transcript,
    events: Rows,
    *,
    kind: str | None = None,
    round: int | None = None,
    sender: int | None = None,
    receiver: int | None = None,
    fate: str | None = None,
) -> pd.DataFrame:
    """Messages of a run, all or chosen ones, in the order of sending.

    Parameters
    ----------
    transcript : Transcript
        All messages of the run.
    events : sequence of mapping
        Events of the run, which name the lost messages.
    kind, round, sender, receiver, fate : optional
        Select messages with this value; the server is party -1.

    Returns
    -------
    DataFrame
        One row per message: ``number`` (its index among all messages of the run, from 0), ``sent``
        and ``arrived`` (virtual seconds; NaN if it did not arrive), ``sender``, ``receiver``,
        ``kind``, ``round``, ``bytes`` and ``fate``. The fate is "arrived"; "late", if nobody waited
        for it any more; "lost"; "under way", if the run ended before its arrival; or "dropped", if
        its sender learnt before sending that the round was over (`Conditions.delay_mode`).

    Raises
    ------
    UnknownNameError
        For a kind that was never sent, or an unknown fate.
    ConfigurationError
        For a party or round that does not exist in the run.
    """
    import pandas as pd

    columns = transcript.columns()
    _check_names(columns, kind, fate)
    _check_numbers(columns, round, (sender, receiver))
    arrived = columns["arrived"]
    frame = pd.DataFrame(
        {
            "number": np.arange(len(arrived)),
            "sent": columns["sent"] / 1e9,
            "arrived": np.where(arrived != NOT_ARRIVED, arrived / 1e9, np.nan),
            **{name: columns[name] for name in ("sender", "receiver", "kind", "round", "bytes")},
            "fate": np.array(FATES)[_fates(columns, events)],
        }
    )
    chosen = {"kind": kind, "round": round, "sender": sender, "receiver": receiver, "fate": fate}
    for name, value in chosen.items():
        if value is not None:
            frame = frame[frame[name] == value]
    return frame.reset_index(drop=True)


def _check_names(columns: Mapping[str, np.ndarray], kind: str | None, fate: str | None) -> None:
    kinds = set(columns["kind"].tolist())
    if kind is not None and kind not in kinds:
        raise UnknownNameError("kind of message", kind, kinds)
    if fate is not None and fate not in FATES:
        raise UnknownNameError("fate of a message", fate, FATES)


def _check_numbers(
    columns: Mapping[str, np.ndarray], round: int | None, parties: tuple[int | None, ...]
) -> None:
    for number in (round, *parties):
        if number is not None and not isinstance(number, int | np.integer):
            raise ConfigurationError(
                f"trace: rounds and parties are whole numbers, {SERVER} for the server; one is "
                f"{number!r}"
            )
    rounds = columns["round"]
    if round is not None and len(rounds) and not rounds.min() <= round <= rounds.max():
        raise ConfigurationError(
            f"trace: there is no message of round {round}; the messages are of the rounds "
            f"{rounds.min()} to {rounds.max()}"
        )
    known = {*columns["sender"].tolist(), *columns["receiver"].tolist()}
    for party in parties:
        if party is not None and party not in known:
            raise ConfigurationError(
                f"trace: there is no party {party}; the parties are {SERVER} (the server) to "
                f"{max(known, default=SERVER)}"
            )


def _fates(columns: Mapping[str, np.ndarray], events: Rows) -> np.ndarray:
    """Index into FATES of every message; events name those that were lost.

    A message that its sender dropped (`Conditions.delay_mode`) has 0 bytes; every other one has at
    least an envelope.
    """
    found = np.where(columns["late"] != 0, 1, np.where(columns["arrived"] < 0, 3, 0))
    found[(found == 3) & (columns["bytes"] == 0)] = 4
    lost = Counter(
        (e["party"], e["to"], e["kind"], e["of_round"]) for e in events if e["event"] == "lost"
    )
    if lost:
        for row in np.flatnonzero(found == 3).tolist():
            key = tuple(columns[n][row].item() for n in ("sender", "receiver", "kind", "round"))
            if lost[key] > 0:
                lost[key] -= 1
                found[row] = 2
    return found
