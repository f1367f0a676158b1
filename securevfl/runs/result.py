"""Result of a run: history, models, and the files written."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.data.base.labels import MOST_NUMERIC_CLASSES
from securevfl.engine.faults import called
from securevfl.engine.names import PartyNames
from securevfl.engine.network import SERVER
from securevfl.engine.party import Party
from securevfl.engine.transcript import Transcript
from securevfl.models.evaluation import evaluation
from securevfl.models.quality import quality
from securevfl.models.scores import decided, probabilities
from securevfl.planning.sums import few_in_residues, steps_of_columns
from securevfl.privacy.claims import Claim, given_sums, link_claims
from securevfl.privacy.released_equations import Odometer
from securevfl.protocols.base.coded import CodedProtocol, SharedModels
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.schedule import HELPERS_COUNT
from securevfl.runs.attacked import attacked
from securevfl.runs.folders.checksums import Summary, replaced_together, write_summary
from securevfl.runs.folders.descriptions import write_descriptions
from securevfl.runs.folders.models import model_arrays
from securevfl.runs.history import History, measures_in, measures_of
from securevfl.runs.spec import CONFIG, RunSpec, reads_local_tables
from securevfl.runs.storage import (
    HISTORY,
    MODELS,
    PARTIES,
    TOTALS,
    write_config,
    write_history,
    write_parties,
    write_transcript,
)
from securevfl.runs.storage import SUMMARY as SUMMARY
from securevfl.runs.threads import one_thread

if TYPE_CHECKING:
    import pandas as pd

    from securevfl.data.preparation.preprocess import RawRows
    from securevfl.engine.conditions import Conditions
    from securevfl.runs.prediction import Inference


_ROWS_PER_CLASS = 50  # in the mean, below which more than twenty classes are noticed
_FEW_TEST_ROWS = 30  # below which a row moves the accuracy by more than three points
_QUICKLY_ROUNDED = 1 << 22  # numbers of training rows that a summary rounds anew
_OVERSHOT = 3.0  # times the loss of a guess: a run that is only too short is below
TOLD = "what the decoded sums tell"  # beginning of a notice
_SHOWN = ("accuracy", "auc", "rmse", "r2")  # measures that stand in the repr of a run


@dataclass
class Run:
    """A finished run.

    Attributes
    ----------
    protocol : Protocol
        With its configuration (``protocol.config``) and data (``protocol.data``).
    parties : mapping of int to Party
        Parties with their trained models.
    spec : RunSpec
        Everything that determines the run.
    history : History
        A list of dict, one a server step: ``step``, ``round``, ``time`` (virtual seconds),
        ``loss``, ``used``, ``bytes`` (sent by all parties so far), and in evaluated rows
        ``accuracy`` (a fraction) with ``auc`` and ``f1``, or ``rmse`` and ``r2``, and
        ``test_loss``; ``history.to_pandas()`` is a data frame.
    events : History
        All other recorded events, with party, round and time.
    transcript : Transcript
        All messages.
    wall_seconds : float
        Real seconds of the run.
    folder : Path or None
        Folder in which the run was saved; None if it was not.
    """

    protocol: Protocol
    parties: Mapping[int, Party]
    spec: RunSpec
    history: History
    events: History
    transcript: Transcript
    wall_seconds: float
    folder: Path | None = None

    def __repr__(self) -> str:
        data = self.protocol.data
        last = {k: v for row in self.history for k, v in row.items() if k in _SHOWN}
        last |= self._measures
        measures = [f"{name} {last[name]:.4f}" for name in _SHOWN if name in last]
        where = "not saved" if self.folder is None else f"in {self.folder}"
        return (
            f"<Run of {self.protocol.name} on {data.name!r}: {data.parties} parties, seed "
            f"{self.spec.seed}, {', '.join([f'{len(self.history)} rounds', *measures])}, "
            f"{self.virtual_seconds:.4g} s of virtual time, {self.transcript.bytes / 1e6:.4g} MB, "
            f"{where}>"
        )

    @property
    def task(self) -> str:
        """Task of the labels: "binary", "multiclass" or "regression"."""
        return self.protocol.data.task

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes in order; () for a regression."""
        return self.protocol.data.classes

    @property
    def class_values(self) -> np.ndarray:
        """Class values as the user gave them, (C,), in order of numbers; empty for a regression."""
        return self.protocol.data.class_values

    @property
    def names(self) -> PartyNames:
        """Names of the parties for people; numbers if the data set has no names."""
        return PartyNames(self.protocol.data.party_names)

    @property
    def virtual_seconds(self) -> float:
        """Virtual time, in seconds, at which the server had everything it needed."""
        own = [e["time"] for e in self.history + self.events if e["party"] == SERVER]
        return float(max(own, default=0.0))

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Claims of the protocol in this configuration, and of the links between parties."""
        stated = given_sums(self.protocol.claims, self.released)
        return stated + link_claims(self.spec.sealed)

    @functools.cached_property
    def released(self) -> Odometer | None:
        """Count of equations that decoded sums revealed about a row; None if none are decoded."""
        return self.protocol.released(self.history[-1]["round"] if self.history else 0)

    @functools.cached_property
    def quality(self) -> dict[str, float]:
        """Further measures of the plain (not coded) trained model on test rows, by name.

        `securevfl.models.quality.quality` has their definitions. Empty if the plain model is never
        evaluated, or its test rows are in other processes only.
        """
        data, scores = self.protocol.data, self._test_scores
        if scores is None:
            return {}
        return quality(data.task, scores, data.test_labels, data.train_labels)

    @property
    def evaluation(self) -> dict[str, Any]:
        """Confusion, calibration, precision and recall of the trained classifier on test rows.

        `securevfl.models.evaluation.evaluation` has the keys. Empty for a regression, and where
        `quality` is.
        """
        data, scores = self.protocol.data, self._test_scores
        if scores is None:
            return {}
        return evaluation(data.task, scores, data.test_labels, data.classes)

    @property
    def _has_rows(self) -> bool:
        """Whether this process has the rows; zeros stand for them if all parties read their own."""
        return not reads_local_tables(self.spec.source, self.spec.engine)

    @functools.cached_property
    def _test_scores(self) -> np.ndarray | None:
        """Raw scores of plain test rows; None for a model that is not evaluated so."""
        if (
            not self._has_rows
            or not self.history
            or not {"accuracy", "rmse"} & self.history[-1].keys()
        ):
            return None
        with one_thread():
            return self.protocol.scores(self.parties, self.protocol.data.test)

    @functools.cached_property
    def _measures(self) -> dict[str, float]:
        """Measures of the trained models; empty if they are not evaluated or have diverged.

        Where a round ends without all clients, its row of the history has those of the models as
        they stood, before the last gradients arrived.
        """
        scores = self._test_scores
        if scores is None or not np.isfinite(scores).all():
            return {}
        return measures_of(self.protocol, scores)

    @functools.cached_property
    def planned(self) -> dict[str, Any] | None:
        """Forecast beside measured values (`held_against`); None with faults or without one."""
        from securevfl.planning.comparison import held_against

        if self.spec.faults is not None:
            return None
        return held_against(
            self.protocol,
            self.spec.conditions,
            self.history,
            self.transcript.bytes,
            sealed=self.spec.sealed,
            seed=self.spec.seed,
        )

    def summary(self) -> Summary:
        """Figures of the run by name, as in its summary table and ``securevfl run --json``.

        Test measures are those of coded inference if it was run, else those of the plain models at
        the end of the run.
        """
        measures = dict(self.history[-1]) | self._measures if self.history else {}
        coded = [event for event in self.events if event["event"] == "inference"]
        if coded:
            measures |= coded[-1]
        data = self.protocol.data
        result: Summary = {
            "protocol": self.protocol.name,
            "dataset": data.name,
            "parties": data.parties,
            **({"party_names": list(data.party_names)} if self.names else {}),
            "rows": data.rows,
            "test_rows": data.test_rows,
            "notes": list(data.about.notes),
            "rounds": len(self.history),
            "rounds_asked": self.protocol.config.rounds,
            "seed": self.spec.seed,
            "secret_choices": self.spec.secret_choices,
            "conditions": self.spec.conditions.name,
            "compute": self.spec.conditions.compute,
            "delay_mode": self.spec.conditions.delay_mode if self.spec.conditions.uploads else None,
            "downlinks": [rate or 0.0 for rate in self.spec.conditions.downlinks] or None,
            "faults": None if self.spec.faults is None else self.spec.faults.name,
            "until": self.spec.until,
        }
        result |= measures_in(measures, data) | self.quality
        result |= {
            "evaluation": "coded inference" if coded else "in the clear, by the experimenter",
            "train_loss": measures.get("loss"),
            "virtual_seconds": self.virtual_seconds,
            "wall_seconds": self.wall_seconds,
            "messages": self.transcript.messages,
            "bytes": self.transcript.bytes,
            "late": self.transcript.late,
            "lost": sum(event["event"] == "lost" for event in self.events),
            "crashes": sum(event["event"] == "down" for event in self.events),
            "planned": self.planned,
            "skipped": sum(event["event"] == "skipped" for event in self.events),
            "filled": sum(row.get("filled", 0) for row in self.history),
            "given_up": sum(event["event"] == "given_up" for event in self.events),
            "clipped": sum(event["event"] == "clipped" for event in self.events),
            "derived": self.protocol.describe(),
            "claims": [claim.to_dict() for claim in self.claims],
            "released": None if self.released is None else self.released.to_dict() | self._attacked,
            "sealed": self.spec.sealed,
            "engine": self.spec.engine,
            "bytes_by_kind": self.transcript.bytes_by_kind(),
            "run_folder": None if self.folder is None else str(self.folder),
        }
        own = getattr(self.protocol.config, "own_loss", "")
        classes = 0 if own or data.task == "regression" else data.num_classes
        result["notices"] = [
            *sums_told(self.released, self.events, len(self.history), self.protocol.config.rounds),
            *differ_in_case(data.classes),
            *_alone_in_residues(self.protocol),
            *filter(None, [self.protocol.told_apart]),
            *many_classes(data.num_classes, data.rows),
            *few_test_rows(data.test_rows),
            *(one_test_class(data.test_labels, data.classes) if self._has_rows else []),
            *self._outages_that_never_came(),
            *notices(result, classes),
            *dict.fromkeys(event["text"] for event in self.events if event["event"] == "notice"),
        ]
        return result

    @property
    def _attacked(self) -> dict[str, str]:
        """Sentence on attacks, which follows that on what the sums reveal."""
        own_data = self.spec.source is None
        return {"attacks": attacked(self.folder, self.protocol.name, own_data=own_data)}

    def _outages_that_never_came(self) -> list[str]:
        """Sentences about scripted outages that begin after the run's end."""
        if self.spec.faults is None:
            return []
        came = {event["party"] for event in self.events if event["event"] == "down"}
        rounds = (int(part["round"].max(initial=0)) for part in self.transcript.parts())
        newest = max(len(self.history), *rounds)
        return [
            f"the outage of {called(outage.entity)} from {outage.when} on never came: the run "
            f"ended after round {newest} at {self.virtual_seconds:.4g} s"
            for outage in self.spec.faults.outages
            if outage.entity not in came and outage.begins_after(newest, self.virtual_seconds)
        ]

    def scores(self, rows: RawRows, *, coded: bool = False) -> np.ndarray:
        """Raw scores of new rows, (rows, outputs) float32.

        Parameters
        ----------
        rows : data frame, array, or one of them per party
            Raw rows in the form of the training data; what was fitted on the training rows (scale,
            encoding, filling) is applied to them. Tables of parties hold the same rows in the same
            order; `securevfl.data.join_rows` makes them so.
        coded : bool
            Whether to evaluate on secret shares, by the protocol and from the fastest R clients, as
            `infer` does. Otherwise scores are computed from the plain models.

        Raises
        ------
        DataError
            If rows are missing or unusable.
        ConfigurationError, RunError
            With `coded`: if the protocol does not compute on shares, or too few clients answer.
        """
        if coded:
            return self.infer(rows).scores
        features = self.protocol.data.transform.apply(rows)
        with one_thread():
            return self.protocol.scores(self.parties, features)

    def predict(self, rows: RawRows, *, coded: bool = False) -> np.ndarray:
        """Predicted labels of new rows as the user gave them, or real values of a regression.

        They have the type of the training labels: numbers, booleans or texts.

        Parameters and errors are those of `scores`.
        """
        return decided(self.task, self.class_values, self.scores(rows, coded=coded))

    def predict_proba(self, rows: RawRows, *, coded: bool = False) -> np.ndarray:
        """Probabilities of the classes, (rows, C), in the order of ``protocol.data.classes``.

        Parameters and errors are those of `scores`; ConfigurationError for a regression.
        """
        return probabilities(self.protocol.data.task, self.scores(rows, coded=coded))

    def infer(
        self,
        rows: RawRows,
        conditions: str | Path | Mapping[str, object] | Conditions | None = None,
    ) -> Inference:
        """Predict rows on secret shares, by the protocol itself, and report the cost.

        Parameters
        ----------
        rows : data frame, array, or one of them per party
            Raw rows in the form of the training data, at least one.
        conditions : optional
            Delays and bandwidth, as for `securevfl.run`; by default those of the run.

        Raises
        ------
        ConfigurationError
            If the protocol does not compute on shares, values could overflow, or rows are unusable.
        RunError
            If too few clients answer.
        """
        from securevfl.runs.prediction import infer

        with self.names.in_errors():
            return infer(self.protocol, self.parties, self.spec, rows, conditions)

    def export(self, folder: Path | str) -> list[Path]:
        """Write each party's model to a file of its own in `folder`; return the files.

        ConfigurationError if another model's file is there (`securevfl.runs.export.export_models`).
        """
        from securevfl.runs.export import export_models

        return export_models(self.protocol, self.parties, Path(folder))

    def trace(self, **chosen: Any) -> pd.DataFrame:
        """Messages of the run, one a row; `securevfl.runs.trace.trace` explains the filters."""
        from securevfl.runs.trace import trace

        return trace(self.transcript, self.events, **chosen)

    def save(self, folder: Path | str, *, own: bool = False) -> None:
        """Write configuration, history, messages, models, curves and summary into a folder.

        Either all files are written, or none is changed. The summary has the checksums of the
        others.

        Parameters
        ----------
        folder : Path
            Created if missing.
        own : bool
            Whether to replace any files of these names: the folder is reserved for this run.

        Raises
        ------
        ConfigurationError
            If a file of these names exists that belongs to no earlier result.
        """

        self.folder = Path(folder)
        self.protocol.settle(self.parties)
        with replaced_together(self.folder, last=SUMMARY, own=own) as beside:
            write_config(beside / CONFIG, self.spec.to_toml(self.protocol.describe()))
            write_history(beside / HISTORY, self.history, self.events)
            self.transcript.write_csv(beside / TOTALS)
            write_transcript(beside, self.transcript)
            write_parties(beside / PARTIES, self.parties)
            if self._has_rows:
                write_descriptions(beside, self.protocol, self.parties)
            arrays: Any = self.models()
            (beside / MODELS).touch(mode=0o600)  # it tells about the rows it was trained on
            np.savez(beside / MODELS, **arrays)
            write_summary(beside / SUMMARY, self.summary() | {"evaluation_data": self.evaluation})

    def models(self) -> dict[str, np.ndarray]:
        """Arrays of all parties' trained models by name, such as ``client-0/network/weight``."""
        return model_arrays(self.parties)


def _alone_in_residues(protocol: Protocol) -> list[str]:
    """Warning if few clients contribute to the sums modulo some number."""
    numbers = sum(own.size for own in protocol.data.train)
    if not isinstance(protocol, (CodedProtocol, SharedModels)) or numbers > _QUICKLY_ROUNDED:
        return []
    steps = {n: int(np.gcd.reduce(own)) for n, own in steps_of_columns(protocol).items()}
    found = few_in_residues(steps, protocol.code.privacy + 2)
    return [found] if found else []


def sums_told(released: Odometer | None, events: History, rounds: int, asked: int) -> list[str]:
    """Sentences on what decoded sums revealed, if it is much or their budget ended the run."""
    if released is None:
        return []
    ends = [event for event in events if event["event"] == "sum_budget"]
    if ends:
        return [released.ended(rounds, asked, ends[-1])]
    if released.state == "below":
        return []
    return [f"{TOLD}: {released.sentence()}. To stay below: {released.ways_below()}"]


def differ_in_case(classes: Sequence[str]) -> list[str]:
    """Sentence on class names that differ only in capital letters; empty if there are none."""
    same: dict[str, list[str]] = {}
    for name in classes:
        same.setdefault(name.casefold(), []).append(name)
    found = [", ".join(names) for names in same.values() if len(names) > 1]
    if not found:
        return []
    return [f"classes differ in capital letters alone: {'; '.join(found)}. Write alike what is one"]


def many_classes(classes: int, rows: int) -> list[str]:
    """Sentence if there are so many classes that the labels may be no classes; else empty."""
    if classes <= MOST_NUMERIC_CLASSES or rows > _ROWS_PER_CLASS * classes:
        return []
    return [
        f"the labels have {classes} classes, with {rows / classes:.0f} training rows each in the "
        "mean. Where they name something else, such as customers or days, choose another --label"
    ]


def few_test_rows(rows: int) -> list[str]:
    """Sentence if there are too few test rows for a meaningful measure; else empty."""
    if not 0 < rows < _FEW_TEST_ROWS:
        return []
    return [
        f"there are {rows} test rows, so each moves the accuracy by {100 / rows:.3g} points; more "
        "rows, or several seeds, would say more"
    ]


def one_test_class(labels: np.ndarray, classes: Sequence[str]) -> list[str]:
    """Sentence if all test rows are of one class; else empty."""
    if not classes or not len(labels) or (labels != labels[0]).any():
        return []
    return [
        f"all test rows are of the class {classes[labels[0]]}: AUC, F1 and balanced accuracy say "
        "nothing. Take more test rows (--set data.test_fraction=0.3), or another --seed"
    ]


def notices(summary: Mapping[str, Any], classes: int = 0) -> list[str]:
    """Sentences for the user about a finished run, with numbers and what to change.

    `summary` is a `Run.summary`; `classes` is the number of classes if the training loss is the
    cross-entropy, else 0.
    """
    found = [no_slack(summary.get("derived") or {})]
    until, time, rounds = (summary[name] for name in ("until", "virtual_seconds", "rounds"))
    if until and ended_by_rounds(summary) and time < until:
        found.append(
            f"the run ended after {rounds} rounds at {time:.4g} s of {until:g} s: its models did "
            "not learn from then on. Give more rounds to use all of the time"
        )
    accuracy, majority = summary.get("test_accuracy"), summary.get("majority_accuracy")
    if accuracy is not None and majority is not None and accuracy <= majority:
        loss, guess = summary.get("train_loss"), math.log(max(classes, 1))
        too_long = loss is not None and 0 < _OVERSHOT * guess < loss
        found.append(
            f"a test accuracy of {100 * accuracy:.2f} % is no better than always naming the most "
            f"frequent class of the training rows ({100 * majority:.2f} %). "
            + (
                f"The training loss of {loss:.4g} is far above the {guess:.3g} of a guess: steps "
                "are too long. Lower lr, client_lr or momentum"
                if too_long
                else "Train longer, or choose another rate"
            )
        )
    rmse, mean = summary.get("test_rmse"), summary.get("mean_rmse")
    if rmse is not None and mean is not None and rmse >= mean:
        found.append(
            f"a test RMSE of {rmse:.6g} is no better than always naming the mean of the "
            f"training rows ({mean:.6g}). Train longer, choose another rate, or scale the "
            "target where the method does not"
        )
    return [text for text in found if text]


def ended_by_rounds(summary: Mapping[str, Any]) -> bool:
    """Whether a run made all rounds asked for; False for summaries without their number."""
    asked = summary.get("rounds_asked")
    return asked is not None and summary["rounds"] >= asked


def no_slack(derived: Mapping[str, Any]) -> str:
    """Sentence if a coded protocol needs all of its parties in each round; else ""."""
    R, N, A = (derived.get(name, 0) for name in ("R", "N", "A"))
    if not R or R + 2 * A < N:
        return ""
    lower = [f"{k} = {derived[k] - 1}" for k in ("K", "T") if derived.get(k, 0) > 1]
    lower += [f"A = {A - 1}"] if A else []
    ways = ", ".join([*lower, "more parties or helpers"])
    return (
        f"no straggler is tolerated: each round waits for the uploads of all N = {N} parties, for "
        f"R{' + 2A' if A else ''} = {R + 2 * A}. {ways[0].upper()}{ways[1:]} "
        f"would leave room: `securevfl plan` says what each costs. {HELPERS_COUNT}"
    )
