"""Coded prediction: new rows are shared, evaluated and decoded like training batches."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.engine.conditions import Conditions, with_helpers
from securevfl.engine.conditions_file import load_conditions
from securevfl.engine.network import SERVER, Event
from securevfl.engine.security.sealing import Sealing
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import Transcript
from securevfl.errors import DataError
from securevfl.runs.assembly import rules_of
from securevfl.runs.history import History, row_of
from securevfl.runs.threads import one_thread
from securevfl.verified import bare_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securevfl.data.preparation.preprocess import RawRows
    from securevfl.engine.party import Party
    from securevfl.protocols.base.protocol import Protocol
    from securevfl.runs.spec import RunSpec


@dataclass(frozen=True, eq=False)
class Inference:
    """Result of a coded prediction, with its cost.

    Attributes
    ----------
    embedding : ndarray, (m, h), float64
        The joint embedding that the server decoded: the mean of the clients' quantised embeddings,
        exact until its conversion to floats.
    scores : ndarray, (m, outputs), float32
        Raw scores of the server model.
    virtual_seconds : float
        Virtual time at which the server had its inputs.
    events : History
        Recorded events, such as abandoned attempts.
    transcript : Transcript
        All messages.
    """

    embedding: np.ndarray
    scores: np.ndarray
    virtual_seconds: float
    events: History
    transcript: Transcript


class _Recorder:
    """Keeps the events of a prediction."""

    def __init__(self) -> None:
        self.events = History()

    def record(self, event: Event) -> None:
        """Store an event."""
        self.events.append(row_of(event))

    def round_over(self, party: int, round: int, time: int, left: bool) -> None:
        """Do nothing: the end of a round is not stored."""


def infer(
    protocol: Protocol,
    parties: Mapping[int, Party],
    spec: RunSpec,
    rows: RawRows,
    conditions: str | Path | Mapping[str, object] | Conditions | None = None,
) -> Inference:
    """Predict rows on secret shares, by the protocol itself.

    Parameters
    ----------
    protocol : Protocol
        The protocol of the training.
    parties : mapping of int to Party
        Parties with their trained models, which are not changed.
    spec : RunSpec
        Specification of the run.
    rows : data frame, array, or one of them per party
        Raw rows in the form of the training data, at least one.
    conditions : str, Path, mapping or Conditions, optional
        Delays and bandwidth; by default those of the run.

    Raises
    ------
    ConfigurationError
        If the protocol does not compute on shares, the rows' values could overflow, or rows are
        missing or unusable (DataError).
    RunError
        If too few clients answer.
    """
    features = protocol.data.transform.apply(rows)
    if not len(features[0]):
        raise DataError("predict: a coded prediction needs at least one row, there are 0")
    parties = protocol.predictors(parties, features)
    chosen = spec.conditions
    if conditions is not None:
        count, batch = protocol.data.parties, protocol.batch_rows
        loaded = load_conditions(conditions, parties=count, batch_rows=batch)
        chosen = with_helpers(loaded, len(protocol.peers()))
    recorder = _Recorder()
    name = secrets.token_hex(8)
    sealing = Sealing(spec.protocol, name, parties) if spec.sealed else None
    simulation = Simulation(
        parties,
        seed=spec.seed,
        secrets=protocol.secrets,
        conditions=chosen,
        observer=recorder,
        sealing=sealing,
        rules=rules_of(protocol, protocol.prediction_messages),
    )
    with one_thread():
        simulation.run()
    server: Any = parties[SERVER]
    embedding, scores = bare_of(server.predicted)
    (done,) = [e["time"] for e in recorder.events if e["event"] == "predicted"]
    return Inference(embedding, scores, done, recorder.events, simulation.transcript)
