"""The messages of a run, to step through: when, from whom, to whom, what kind, and what became.

A transcript keeps sizes and times. The shapes of payloads are found by running the run again: it is
a function of its specification, and what it sends has the same shapes, though masks are drawn anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, overload

import numpy as np

from securevfl.engine.names import PartyNames as PartyNames
from securevfl.engine.network import SERVER, name_of
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import NOT_ARRIVED, Transcript
from securevfl.errors import ConfigurationError, RunError, UnknownNameError
from securevfl.runs.threads import one_thread

if TYPE_CHECKING:
    import pandas as pd

    from securevfl.protocols.base.protocol import Protocol
    from securevfl.runs.history import Rows
from securevfl.runs.spec import RunSpec

Fate = Literal["arrived", "late", "lost", "under way", "dropped"]
FATES = ("arrived", "late", "lost", "under way", "dropped")
_LONGEST = 4  # items of a tuple or mapping that are described


class Chosen(TypedDict, total=False):
    """Properties that chosen messages have in common."""

    kind: str | None
    round: int | None
    sender: int | None
    receiver: int | None
    fate: str | None


@dataclass(frozen=True)
class Entry:
    """One message.

    Attributes
    ----------
    number : int
        Its place among all messages of the run, from 0.
    sent, arrived : float
        Virtual seconds; `arrived` is None for one that did not arrive.
    sender, receiver : int
        Party numbers; -1 is the server.
    fate : {"arrived", "late", "lost", "under way", "dropped"}
        "late": nobody waited for it any more. "under way": the run ended before. "dropped": its
        sender heard that the round is over before it was sent (`Conditions.delay_mode`).
    payload : str or None
        Types and shapes, where they were asked for.
    """

    number: int
    sent: float
    arrived: float | None
    sender: int
    receiver: int
    kind: str
    round: int
    bytes: int
    fate: Fate
    payload: str | None = None

    def __str__(self) -> str:
        there = "" if self.arrived is None else f" -> {self.arrived:.6f} s"
        shape = "" if self.payload is None else f"  {self.payload}"
        return (
            f"{self.number:>7}  {self.sent:.6f} s{there}  {name_of(self.sender)} to "
            f"{name_of(self.receiver)}: {self.kind!r} of round {self.round}, {self.bytes:,} bytes, "
            f"{self.fate}{shape}"
        )


class Trace(Sequence[Entry]):
    """Chosen messages of a run, in the order in which they were sent.

    `Run.trace` makes one, of a run that just ended or that `securevfl.load_run` read from a folder;
    a slice of it is another.

    Parameters
    ----------
    columns : mapping of str to ndarray
        As `Transcript.columns` gives them, with ``fate``.
    rows : ndarray of int
        Which of them.
    payloads : sequence of str, optional
        Descriptions of all payloads up to the last of them.

    Attributes
    ----------
    names : PartyNames
        What people call the parties; numbers unless it is set.
    """

    def __init__(
        self,
        columns: Mapping[str, np.ndarray],
        rows: np.ndarray,
        payloads: Sequence[str] | None = None,
    ) -> None:
        self.columns = columns
        self.rows = rows
        self.payloads = payloads
        self.names = PartyNames()

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> Entry: ...

    @overload
    def __getitem__(self, place: slice) -> Trace: ...

    def __getitem__(self, place: int | slice) -> Entry | Trace:
        if isinstance(place, slice):
            part = Trace(self.columns, self.rows[place], self.payloads)
            part.names = self.names
            return part
        row = int(self.rows[place])
        column = {name: values[row].item() for name, values in self.columns.items()}
        arrived = column["arrived"]
        return Entry(
            number=row,
            sent=column["sent"] / 1e9,
            arrived=None if arrived == NOT_ARRIVED else arrived / 1e9,
            sender=column["sender"],
            receiver=column["receiver"],
            kind=column["kind"],
            round=column["round"],
            bytes=column["bytes"],
            fate=FATES[column["fate"]],  # type: ignore[arg-type]
            payload=None if self.payloads is None else self.payloads[row],
        )

    def to_pandas(self) -> pd.DataFrame:
        """One row a message; times in virtual seconds, NaN where it did not arrive."""
        import pandas as pd

        chosen = {name: values[self.rows] for name, values in self.columns.items()}
        there = chosen["arrived"] != NOT_ARRIVED
        frame = pd.DataFrame(
            {
                "number": self.rows,
                "sent": chosen["sent"] / 1e9,
                "arrived": np.where(there, chosen["arrived"] / 1e9, np.nan),
                **{k: chosen[k] for k in ("sender", "receiver", "kind", "round", "bytes")},
                "fate": np.array(FATES)[chosen["fate"]],
            }
        )
        if self.payloads is not None:
            frame["payload"] = [self.payloads[row] for row in self.rows]
        return frame


def trace(
    protocol: Protocol,
    spec: RunSpec,
    transcript: Transcript,
    events: Rows,
    *,
    first: int | None = None,
    payloads: bool = False,
    **chosen: Unpack[Chosen],
) -> Trace:
    """Choose messages of a run.

    Parameters
    ----------
    events : sequence of mapping
        What the run recorded besides its history.
    first : int, optional
        No more than so many.
    payloads : bool
        Find the types and shapes of their payloads, by running the run again up to the last.
    **chosen
        ``kind``, ``round``, ``sender``, ``receiver``, ``fate``: only those; the server is party -1.

    Raises
    ------
    UnknownNameError
        For a kind that was never sent, and for an unknown fate.
    ConfigurationError
        For a party or round that the run has not, and when payloads are asked for of a run in real
        time, or of one whose computing was measured.
    """
    found = pick(transcript, events, **chosen)[:first]
    if not (payloads and len(found)):
        return found
    return Trace(
        found.columns, found.rows, _again(protocol, spec, found.columns, int(found.rows[-1]))
    )


def pick(transcript: Transcript, events: Rows, **chosen: Unpack[Chosen]) -> Trace:
    """Messages of a transcript, as `trace` chooses them; `events` say which were lost."""
    columns = transcript.columns()
    columns["fate"] = _fates(columns, events)
    _check(columns, chosen)
    keep = np.ones(len(columns["round"]), bool)
    for name, value in chosen.items():
        if value is not None:
            keep &= columns[name] == (FATES.index(str(value)) if name == "fate" else value)
    return Trace(columns, np.flatnonzero(keep))


def _check(columns: Mapping[str, np.ndarray], chosen: Chosen) -> None:
    kind, fate, round = chosen.get("kind"), chosen.get("fate"), chosen.get("round")
    kinds = set(columns["kind"].tolist())
    if kind is not None and kind not in kinds:
        raise UnknownNameError("kind of message", kind, kinds)
    if fate is not None and fate not in FATES:
        raise UnknownNameError("fate of a message", fate, FATES)
    rounds = columns["round"]
    if round is not None and len(rounds) and not rounds.min() <= round <= rounds.max():
        raise ConfigurationError(
            f"trace: there is no message of round {round}; the messages are of the rounds "
            f"{rounds.min()} to {rounds.max()}"
        )
    known = {*columns["sender"].tolist(), *columns["receiver"].tolist()}
    for party in (chosen.get("sender"), chosen.get("receiver")):
        if party is not None and party not in known:
            raise ConfigurationError(
                f"trace: there is no party {party}; the parties are {SERVER} (the server) to "
                f"{max(known, default=SERVER)}"
            )


def _fates(columns: Mapping[str, np.ndarray], events: Rows) -> np.ndarray:
    """Index into FATES of every message; those that were lost are named by events.

    Work that its sender dropped (`Conditions.delay_mode`) has no bytes; all else has an envelope.
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


class _Shapes(list[str]):
    """A list that keeps what payloads look like in the place of the payloads."""

    def append(self, payload: object) -> None:
        super().append(describe(payload))


def describe(payload: object) -> str:
    """Types and shapes of a payload.

    Examples
    --------
    >>> describe({"rows": np.zeros((5, 2), np.uint32), "part": "train"})
    "{'rows': uint32 (5, 2), 'part': str}"
    """
    if isinstance(payload, np.ndarray):
        return f"{payload.dtype} {payload.shape}"
    if payload is None:
        return "nothing"
    if is_dataclass(payload):
        inner = ", ".join(f"{f.name}={describe(getattr(payload, f.name))}" for f in fields(payload))
        return f"{type(payload).__name__}({inner})"
    if isinstance(payload, Mapping):
        inside = [f"{key!r}: {describe(value)}" for key, value in payload.items()]
        return "{" + _some(inside) + "}"
    if isinstance(payload, (list, tuple)):
        return "(" + _some([describe(item) for item in payload]) + ")"
    return type(payload).__name__


def _some(parts: Sequence[str]) -> str:
    more = f", ... ({len(parts)} in all)" if len(parts) > _LONGEST else ""
    return ", ".join(parts[:_LONGEST]) + more


def _again(
    protocol: Protocol, spec: RunSpec, columns: Mapping[str, np.ndarray], last: int
) -> list[str]:
    """Descriptions of the payloads of all messages up to `last`."""
    from securevfl.runs.assembly import rules_of, schedule_of, sealing_of

    if spec.engine != "simulation" or spec.conditions.compute == "measured":
        raise ConfigurationError(
            "trace: payloads are found by running again, and a run in real time, or with measured "
            "computing, does not send the same again; leave out payloads"
        )
    parties = protocol.parties()
    transcript = Transcript()
    transcript.payloads = _Shapes()
    simulation = Simulation(
        parties,
        seed=spec.seed,
        secrets=protocol.secrets,
        conditions=spec.conditions,
        transcript=transcript,
        sealing=sealing_of(spec, parties),
        faults=schedule_of(protocol, spec),
        make_party=protocol.party,
        rules=rules_of(protocol),
    )
    with one_thread():
        simulation.run(lambda: len(transcript) > last, until=spec.until)
    again = transcript.columns()
    for name in ("sender", "receiver", "kind", "round", "bytes", "sent"):
        if not np.array_equal(again[name][: last + 1], columns[name][: last + 1]):
            raise RunError(
                f"trace: running again sent other messages ({name} differs); this version differs "
                "from the one that made the run"
            )
    return transcript.payloads
