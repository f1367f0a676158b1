"""The history of a run: one row a server step, with measures on test rows, and all other events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np

from securevfl.engine.network import SERVER, Event
from securevfl.engine.party import Party
from securevfl.engine.transcript import Transcript
from securevfl.errors import NotEnoughResultsError
from securevfl.models.quality import MEASURES, QUALITY
from securevfl.models.split import mean_loss, measure, r_squared
from securevfl.privacy.released_equations import Odometer
from securevfl.protocols.base.protocol import Protocol
from securevfl.runs.folders.models import model_arrays

if TYPE_CHECKING:
    import pandas as pd

    from securevfl.data.dataset import VerticalDataset

_LOG = logging.getLogger(__name__)
_DIVERGING = "diverging"
_GROWN = 1000.0  # times the first loss: steps that overshoot come back from less
_TROUBLE = frozenset({"down", "lost", "given_up", "corrected", "skipped"})


#: Row of a history or another event: values in JSON types by name.
Row = dict[str, Any]
#: Rows or events as they are read.
Rows = Sequence[Mapping[str, Any]]


class History(list[dict[str, Any]]):
    """List of mappings: one for each server step, or one for each other event of a run.

    Examples
    --------
    >>> History([{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.4, "accuracy": 0.9}]).to_pandas()
       step  loss  accuracy
    0     1   0.5       NaN
    1     2   0.4       0.9
    """

    @overload
    def __getitem__(self, place: SupportsIndex) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> History: ...
    def __getitem__(self, place: SupportsIndex | slice) -> Row | History:
        """The entry at a place; of a slice a history."""
        if isinstance(place, slice):
            return History(super().__getitem__(place))
        return super().__getitem__(place)

    def to_pandas(self) -> pd.DataFrame:
        """Data frame with one row per entry and one column per key; NaN where a key is absent."""
        import pandas as pd

        return pd.DataFrame(list(self))


def row_of(event: Event) -> Row:
    """An event as a row of the history, its time in seconds."""
    known = {"event": event.name, "party": event.party, "round": event.round}
    return {**known, "time": event.time / 1e9, **event.fields}


@dataclass(frozen=True)
class Progress:
    """Progress of a run, reported after each server step.

    Attributes
    ----------
    round, rounds : int
        Server steps done, and in the whole run.
    loss, accuracy : float or None
        Newest training loss, and accuracy on test rows (a fraction; None for a regression).
    virtual_seconds : float
        Time on the clock of the run.
    used, late : int
        Number of results used in the newest step; number of late messages so far.
    released : Odometer or None
        Number of equations that decoded sums gave about a row so far, and of its unknowns; None if
        the protocol decodes no sums.
    r2 : float or None
        Newest R squared on test rows; for a regression.
    """

    round: int
    rounds: int
    loss: float | None
    accuracy: float | None
    virtual_seconds: float
    used: int
    late: int
    released: Odometer | None = None
    r2: float | None = None


def measures(protocol: Protocol, parties: Mapping[int, Party]) -> dict[str, float]:
    """Measures and ``test_loss`` of the parties' models on the test rows."""
    return measures_of(protocol, protocol.scores(parties, protocol.data.test))


def measures_of(protocol: Protocol, scores: np.ndarray) -> dict[str, float]:
    """Measures and ``test_loss`` of raw scores of the test rows; the loss is that of training."""
    task, labels = protocol.data.task, protocol.data.test_labels
    unit = 1.0 if protocol.target is None else protocol.target[1]
    return measure(task, scores, labels) | {"test_loss": mean_loss(task, scores, labels, unit)}


def measures_in(measures: Row, data: VerticalDataset) -> dict[str, float]:
    """Measures under their names in a summary, such as ``test_rmse``."""
    found = {f"test_{name}": measures[name] for name in MEASURES if name in measures}
    found |= {name: measures[name] for name in QUALITY if name in measures}
    if "rmse" in measures:  # which coded inference tells alone
        found |= {f"test_{k}": v for k, v in r_squared(measures["rmse"], data.test_labels).items()}
    return found


class HistoryRecorder:
    """The observer of a run: adds rows to its history, and evaluates models on test rows.

    Each server step gives a row, with the time at which the server had its inputs, and the bytes
    that all parties have sent by then. Every `eval_every`-th row and the last, or the first row
    after each multiple of `eval_seconds`, is evaluated when all clients have finished that round,
    so that their models belong to one step. If some have not finished when the next step is
    recorded, the current models are evaluated. The evaluation costs no message and no virtual time.

    `progress` is called once per step, after the evaluation if there is one; `track` with each
    complete row. A party restarted after a crash is a new object, which the simulation puts into
    `parties`.

    Attributes
    ----------
    measured : callable
        Function that returns the measures of the present models; empty if these are unavailable.
        Replaced if the models are in other processes.
    keep_models : bool
        Whether to copy the models at each evaluation; they must be in this process.
    good : (int, dict) or None
        Step and copied arrays of the newest evaluation before the training loss diverged.
    """

    def __init__(
        self,
        protocol: Protocol,
        parties: MutableMapping[int, Party],
        *,
        eval_every: int,
        eval_seconds: float | None = None,
        progress: Callable[[Progress], None] | None,
        track: Callable[[Row], None] | None = None,
    ) -> None:
        self.track = track
        self.protocol = protocol
        self.parties = parties
        self.eval_every = eval_every
        self.eval_seconds = eval_seconds
        self.progress = progress
        self.transcript: Transcript | None = None
        self.rows = History()
        self.events = History()
        self._pending = self._untold = False
        self._finished: set[int] = set()
        self._newest: dict[str, float] = {}  # measures that progress shows
        self.keep_models = False
        self.good: tuple[int, dict[str, np.ndarray]] | None = None
        self.measured: Callable[[], dict[str, float]] = self._measured

    def record(self, event: Event) -> None:
        """Add a row for a step of the server (its event "round"), else an entry of `events`."""
        entry = row_of(event)
        if event.name == "again" and event.party == SERVER:
            self._add_again(entry)
        elif event.name == "round" and event.party == SERVER:
            self._evaluate()
            if self.transcript is not None:
                entry["bytes"] = self.transcript.bytes
            _LOG.debug("%s", entry)
            self._add(entry)
        else:
            self.events.append(entry)
            _LOG.log(logging.INFO if event.name in _TROUBLE else logging.DEBUG, "%s", entry)

    def _add_again(self, entry: Row) -> None:
        """Add the row of a step that a restarted server reports again, unless it is there."""
        if not self.rows or entry["step"] > self.rows[-1]["step"]:
            self._evaluate()
            if self.transcript is not None:
                entry["bytes"] = self.transcript.bytes
            self._add({**entry, "event": "round"})

    def round_over(self, party: int, round: int, time: int, left: bool) -> None:
        """Evaluate once all finished the newest row's round; record who left; `time` is in ns."""
        if left:
            self.events.append(
                {"event": "left", "party": party, "round": round, "time": time / 1e9}
            )
        elif self._pending and round == self.rows[-1]["round"]:
            self._finished.add(party)
            if len(self._finished) == len(self.protocol.peers()):
                self._evaluate()

    def finish(self) -> None:
        """Evaluate the last row unless it has been, and pass it to `progress` and `track`."""
        if self.rows and "accuracy" not in self.rows[-1] and "rmse" not in self.rows[-1]:
            self._pending = True
        self._evaluate()
        self._tell()
        self._settled()

    def _settled(self) -> None:
        """Pass the newest row, now complete, to the tracker."""
        if self.track is not None and self.rows:
            self.track(self.rows[-1])

    def _add(self, row: Row) -> None:
        self._settled()
        self._tell()
        self._pending, self._untold = self._due(row), True
        self.rows.append(row)
        self._watch_loss(row)
        self._finished = set()
        if self.protocol.card.absence in ("skips", "fills"):
            self._evaluate()  # not all clients will finish this round: the models as they stand
        if not self._pending and row["step"] < self.protocol.config.rounds:
            self._tell()

    def _tell(self) -> None:
        """Report the newest step once to the `progress` callback."""
        if self.progress is None or not self._untold:
            return
        self._untold, row = False, self.rows[-1]
        self.progress(
            Progress(
                round=row["step"],
                rounds=self.protocol.config.rounds,
                loss=row.get("loss"),
                accuracy=self._newest.get("accuracy"),
                virtual_seconds=row["time"],
                used=row.get("used", 0),
                late=0 if self.transcript is None else self.transcript.late,
                released=self.protocol.released(row["round"]),
                r2=self._newest.get("r2"),
            )
        )

    def _watch_loss(self, row: Row) -> None:
        """Warn, once, if the loss is NaN or above 1,000 times its first value (at least 1)."""
        first, loss = self.rows[0].get("loss"), row.get("loss")
        if first is None or loss is None or self._diverging:
            return
        if not loss <= _GROWN * max(abs(first), 1.0):  # NaN counts, too
            entry = {name: row[name] for name in ("party", "round", "time")}
            self.events.append({"event": _DIVERGING, **entry, "loss": loss, "first": first})
            _LOG.warning(
                "the training loss grew from %.3g to %.3g in round %s: the model diverges. Lower "
                "lr, client_lr or momentum", first, loss, row["round"],
            )  # fmt: skip

    @property
    def _diverging(self) -> bool:
        return any(event["event"] == _DIVERGING for event in self.events)

    def _due(self, row: Row) -> bool:
        """Whether a new row is due for evaluation; `rows` holds the rows before it."""
        if self.eval_seconds is None:
            return bool(row["step"] % self.eval_every == 0)
        before = self.rows[-1]["time"] if self.rows else 0.0
        return int(row["time"] // self.eval_seconds) > int(before // self.eval_seconds)

    def _evaluate(self) -> None:
        if not self._pending:
            return
        self._pending = False
        try:
            found = self.measured()
        except NotEnoughResultsError as error:  # the run may go on all the same
            found = {}
            entry = {name: self.rows[-1][name] for name in ("party", "round", "time")}
            self.events.append({"event": "unmeasured", **entry, "why": str(error)})
            _LOG.warning("step %s is not evaluated: %s", self.rows[-1]["step"], error)
        self.rows[-1].update(found)
        self._newest |= _told(found)
        if self.keep_models and found and not self._diverging:
            arrays = {name: array.copy() for name, array in model_arrays(self.parties).items()}
            self.good = self.rows[-1]["step"], arrays
        _LOG.info("step %s: %s", self.rows[-1]["step"], found)
        self._tell()

    def _measured(self) -> dict[str, float]:
        return measures(self.protocol, self.parties)

    @property
    def newest(self) -> int:
        """Virtual time, in nanoseconds, of the newest row or event; 0 before the first."""
        seconds = max((entry["time"] for entry in (*self.rows, *self.events)), default=0.0)
        return round(seconds * 1e9)

    def state(self) -> dict[str, Any]:
        """State of the recorder for a checkpoint."""
        return {
            "rows": list(self.rows),
            "events": list(self.events),
            "pending": self._pending,
            "finished": sorted(self._finished),
            "newest": self._newest,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the recorder from `state`."""
        self.rows = History(state["rows"])
        self.events = History(state["events"])
        self._pending = state["pending"]
        self._finished = set(state["finished"])
        self._newest = dict(state["newest"])

    def go_back(self, round: int) -> None:
        """Delete rows and events after a round, which the run repeats."""
        events = [event for event in self.events if event["round"] <= round]
        rows = [row for row in self.rows if row["round"] <= round]
        if len(rows) < len(self.rows):  # then those that are left have been evaluated
            self._pending = self._untold = False
            self._finished = set()
            self._newest = next(filter(None, map(_told, reversed(rows))), {})
        self.events, self.rows = History(events), History(rows)


def _told(row: Row) -> dict[str, float]:
    """Measures of a row for progress displays."""
    return {name: row[name] for name in ("accuracy", "r2") if name in row}
