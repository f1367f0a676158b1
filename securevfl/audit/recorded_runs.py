"""Real runs of a coded protocol on chosen secrets, for games and attacks.

A `RunFactory` runs a `CodedProtocol` on data that somebody made. Nothing of the protocol's code is
replaced but the models, where they are given.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.audit import views
from securevfl.audit.tapes import Tape, record_draws
from securevfl.audit.views import View
from securevfl.data.dataset import VerticalDataset
from securevfl.engine.conditions import NONE, Conditions
from securevfl.engine.mailbox import ANNOUNCE
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import Transcript
from securevfl.errors import ConfigurationError
from securevfl.field import LagrangeCode
from securevfl.privacy.coalition import Coalition
from securevfl.protocols.base.coded import CodedProtocol
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import make_config
from securevfl.runs.assembly import rules_of
from securevfl.runs.threads import one_thread
from securevfl.verified import bare_of
from securevfl.verified.values import wrapped

Models = Mapping[int, Mapping[int, np.ndarray]]

# What no secret depends on is small, so that thousands of runs take minutes.
QUICK = {
    "hidden": 2,
    "centre": "linear",
    "degree": 1,
    "data_bits": 6,
    "model_bits": 6,
    "sum_budget": 0.0,
}


def codes_shares(protocol: Protocol) -> bool:
    """Whether a protocol shares its data by a Lagrange code."""
    return isinstance(protocol, CodedProtocol)


def dataset(features: Sequence[np.ndarray]) -> VerticalDataset:
    """Data set of two classes with the given training columns, unscaled; tests use no test row."""
    rows = len(features[0])
    labels = np.arange(rows) % 2
    return VerticalDataset.from_numpy(
        list(features),
        labels,
        test_features=[x[:2] for x in features],
        test_labels=labels[:2],
        scaling="none",
    )


@dataclass(frozen=True)
class Secrets:
    """Secrets and share masks of one client.

    Attributes
    ----------
    data : ndarray, (K, rows, columns)
        Quantised data X-bar.
    models : mapping of int to ndarray, (columns, h)
        W-bar by round.
    data_masks : ndarray, (T, rows, columns)
        Masks Z of the data.
    model_masks : mapping of int to ndarray, (T, columns, h)
        Masks V of the models, by round.
    """

    data: np.ndarray
    models: Mapping[int, np.ndarray]
    data_masks: np.ndarray
    model_masks: Mapping[int, np.ndarray]


@dataclass(frozen=True)
class CodedRun:
    """A recorded run of a coded protocol.

    Attributes
    ----------
    protocol : CodedProtocol
        Configured protocol.
    transcript : Transcript
        Transcript with payloads.
    tapes : mapping of int to Tape
        Secret randomness by party.
    models : mapping
        Quantised model W-bar by client and round.
    data : mapping
        Quantised rows X-bar by client, (K, rows, columns).
    keys : mapping of int to mapping of int to bytes
        Keys of masks that each client knows at the end, by their place in `prss.blocks`.
    """

    protocol: CodedProtocol
    transcript: Transcript
    tapes: Mapping[int, Tape]
    models: Models
    data: Mapping[int, np.ndarray]
    keys: Mapping[int, Mapping[int, bytes]]

    @property
    def code(self) -> LagrangeCode:
        """Lagrange code of the shares, which is public."""
        return self.protocol.code

    @functools.cached_property
    def kinds(self) -> dict[str, str]:
        """Names of this protocol's message kinds in a view, by kind (`kinds_of`)."""
        return kinds_of(self.protocol)

    def view(self, coalition: Coalition) -> View:
        """View of a coalition at the end; inputs are each member's data, models and keys."""
        inputs = {n: (self.data[n], self.models[n], self.keys[n]) for n in self.data}
        return views.cut(
            self.transcript, coalition, tapes=self.tapes, inputs=inputs, kinds=self.kinds
        )

    @functools.cached_property
    def whole(self) -> View:
        """View of an outsider that sees every message of the run, unencrypted."""
        return views.cut(self.transcript, Coalition(outsider=True), kinds=self.kinds)

    @functools.cached_property
    def attempts(self) -> dict[int, tuple[np.ndarray, Any]]:
        """By round: (row numbers B, announced attempt, which names the clients S that share)."""
        opened = {r: batch for (r, _, _), batch in self.whole.payloads("round").items()
                  if hasattr(batch, "rows")}  # fmt: skip
        named = {r: attempt for (r, _, _), attempt in self.whole.payloads("attempt").items()}
        return {r: (opened[r].rows, named[r]) for r in named}

    def secrets(self, client: int) -> Secrets:
        """Secrets and share masks of a client, read from its tape in the order of draws."""
        tape = self.tapes[client]
        V = {round: tape.at(round)[0] for round in self.models[client]}
        return Secrets(self.data[client], self.models[client], tape.at(0)[0], V)


class RunFactory:
    """A protocol on chosen secrets, to be run any number of times.

    Parameters
    ----------
    protocol : CodedProtocol
        Made without coded inference.
    models : mapping, optional
        W-bar by client and round, any field elements; where given, clients do not train.
    conditions : Conditions
        Delays of the run.
    """

    def __init__(
        self,
        protocol: Protocol,
        models: Models | None = None,
        conditions: Conditions = NONE,
    ) -> None:
        if not isinstance(protocol, CodedProtocol):
            raise ConfigurationError(
                f"coded runs: {protocol.name} does not share its data by a LagrangeCode"
            )
        self.protocol = protocol
        self.models = models
        self.conditions = conditions

    @functools.cached_property
    def data(self) -> dict[int, np.ndarray]:
        """X-bar by client: floor(2^lx x + 1/2) of the powers, in segments, as field elements."""
        return self.protocol.quantised_columns()

    def run(self) -> CodedRun:
        """Run the protocol once with fresh randomness."""
        parties: dict[int, Any] = self.protocol.parties()
        used: dict[int, Tape] = {}
        models: dict[int, dict[int, np.ndarray]] = {}
        for n in self.protocol.peers():
            used[n] = record_draws(parties[n])
            models[n] = _watch_models(parties[n], None if self.models is None else self.models[n])
        transcript = Transcript(payloads=True)
        with one_thread():
            Simulation(
                parties,
                seed=self.protocol.seed,
                secrets=self.protocol.secrets,
                conditions=self.conditions,
                transcript=transcript,
                rules=rules_of(self.protocol),
            ).run()
        keys = {n: dict(bare_of(parties[n].keys)) for n in self.protocol.peers()}
        return CodedRun(self.protocol, transcript, used, models, self.data, keys)


_KINDS = {
    ("client", "client", "data_share"): "train-data",
    ("client", "client", "model_share"): "model",
    ("client", "client", "key"): "key",
    ("client", "server", "masked_result"): "embedding",
    ("client", "server", "result_share"): "embedding",
    ("client", "server", "control"): "shared",
    ("server", "client", "control"): "attempt",
    ("server", "client", "gradient"): "gradient",
}


def kinds_of(protocol: Protocol) -> dict[str, str]:
    """Names by content, such as "model" and "embedding", of a protocol's message kinds, by kind.

    Kinds without such a name, or already called by it, are left out.
    """
    declared = {
        spec.kind: _KINDS[spec.sender, spec.receiver, spec.carries]
        for spec in protocol.messages
        if (spec.sender, spec.receiver, spec.carries) in _KINDS and spec.kind != ANNOUNCE
    }
    return {kind: name for kind, name in declared.items() if kind != name}


def _watch_models(client: Any, given: Mapping[int, np.ndarray] | None) -> dict[int, np.ndarray]:
    """Record the models that a client shares; `given` models, if any, replace its own."""
    kept: dict[int, np.ndarray] = {}
    own = client.quantised_model

    def quantised_model() -> Any:
        kind = ("field", client.field)
        made = (
            own() if given is None else wrapped(given[client.round], kind, None, client.index, None)
        )
        kept[client.round] = np.array(bare_of(made))
        return made

    client.quantised_model = quantised_model
    if given is not None:
        client.check_range = lambda batch, model: None
    return kept


def run_factory(
    protocol: type[Protocol],
    features: Sequence[np.ndarray],
    models: Models | None = None,
    *,
    seed: int = 0,
    conditions: Conditions = NONE,
    **options: Any,
) -> RunFactory:
    """Factory of runs of a protocol's class on the given columns; every round takes all rows.

    Parameters
    ----------
    protocol : type of Protocol
        Class of the protocol.
    features : sequence of ndarray, (M, d_n)
        Columns of each client.
    models, conditions, seed : mapping, Conditions, int
        Models W-bar by client and round instead of training; delays; seed of public choices.
    **options
        Options of the protocol; `QUICK` has the defaults.
    """
    known = {k: v for k, v in QUICK.items() if k in protocol.Config.model_fields}
    config = make_config(protocol, known | {"batch": len(features[0])} | options)
    return RunFactory(protocol(config, dataset(features), seed=seed), models, conditions)
