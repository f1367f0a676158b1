"""A protocol variant on one seed for attackers: its runs, and their further knowledge."""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.audit.attack_matrix.observation import observe
from securevfl.audit.attack_matrix.observed_run import ObservedRun, Table
from securevfl.audit.attacks.outcome import NoView
from securevfl.audit.attacks.sum_equations import Step
from securevfl.audit.recorded_runs import CodedRun, RunFactory, codes_shares
from securevfl.engine.conditions import NONE, Conditions, with_helpers
from securevfl.engine.conditions_file import load_conditions
from securevfl.engine.streams import SecretSeed
from securevfl.errors import ConfigurationError
from securevfl.models.polynomial_network import PolynomialNetwork
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.protocols.base.schedule import Shape
from securevfl.runs.alignment import data_source
from securevfl.verified import bare_of

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset
    from securevfl.studies.jobs import Job

RUN_OPTIONS = frozenset({"conditions", "until", "sealed", "secret_seed"})  # that `AttackCase` heeds
_SHARED_ROWS = 60  # whose shares are pooled


@dataclass(frozen=True)
class AttackSettings:
    """Attackers' knowledge beyond their views, and their effort.

    Attributes
    ----------
    labels : int
        Number of training labels per class that a client knows.
    auxiliary : int
        Number of training rows of the attacked client that the server knows.
    client : int or None
        The attacking client, or the client that the server attacks. By default the last of the
        first half, which is no straggler under the conditions "paper".
    rows : int or None
        Number of training rows to use, the first of each split; all if None.
    sum_rows : int
        Number of rows on which sums are collected, in full batches; increased if the clients have
        more columns together.
    games : int
        Number of guesses of the rank distinguisher.
    replayed : int
        Number of client steps to repeat from recovered rows, at most an epoch.
    starts : int
        Largest number of starting points for the equations of a row.
    watched : int
        Number of first rounds whose sums are searched for columns.
    """

    labels: int = 10
    auxiliary: int = 200
    client: int | None = None
    rows: int | None = None
    sum_rows: int = 400
    games: int = 40
    replayed: int = 3
    starts: int = 60
    watched: int = 12


class AttackCase:
    """One protocol variant on one seed, for attackers; runs are made on demand.

    Parameters
    ----------
    job : Job
        Protocol variant, data and seed.
    settings : AttackSettings
        Knowledge and effort of the attackers; ConfigurationError for a client that does not exist.
    interrupted : callable, optional
        Called during the runs; True stops them.
    """

    def __init__(
        self, job: Job, settings: AttackSettings, interrupted: Callable[[], bool] | None = None
    ) -> None:
        self.job = job
        self.settings = settings
        self._interrupted = interrupted
        self._attack = ""
        if self.settings.client is not None and not 0 <= self.client < self.data.parties:
            raise ConfigurationError(
                f"attacks: there is no client {self.client}; the {self.data.parties} clients of "
                f"{self.data.name!r} have the numbers 0 to {self.data.parties - 1}"
            )

    def begin(self, attack: str) -> None:
        """Set the name of the next attack, which with the seed determines its random choices."""
        self._attack = attack

    @property
    def stream(self) -> np.random.Generator:
        """The attacker's random stream; equal for every protocol, so that results can be paired."""
        name = zlib.crc32(self._attack.encode())
        return np.random.Generator(np.random.Philox(key=[self.job.seed, name]))

    @functools.cached_property
    def data(self) -> VerticalDataset:
        """The data set, cut to the rows that are used."""
        data = data_source(self.job.dataset, self.job.data).load()
        rows = self.settings.rows
        return data if rows is None or rows >= data.rows else data.subset(rows)

    @property
    def client(self) -> int:
        """Number of the client that attacks or is attacked."""
        chosen = self.settings.client
        return max(0, self.data.parties // 2 - 1) if chosen is None else chosen

    @functools.cached_property
    def observed(self) -> ObservedRun:
        """The observed run of this variant, under the job's conditions."""
        protocol = self.protocol()
        return observe(
            protocol,
            conditions=self._conditions(protocol),
            client=self.client,
            until=self.job.until,
            sealed=bool(self.job.sealed),
            interrupted=self._interrupted,
        )

    def protocol(self, data: VerticalDataset | None = None, **options: Any) -> Protocol:
        """The protocol with the variant's options, and those of `options` that it has."""
        cls = get_protocol(self.job.protocol)
        known = {k: v for k, v in options.items() if k in cls.Config.model_fields}
        # Sizes that follow from rows and rounds are those of the variant itself.
        shape = Shape(self.data.widths, self.data.rows, self.data.test_rows)
        config = cls.settled(make_config(cls, self.job.options), shape).model_copy(update=known)
        made = cls(config, data or self.data, seed=self.job.seed)
        if self.job.secret_seed is not None:
            made.secrets = SecretSeed(self.job.secret_seed)
        return made

    def _conditions(self, protocol: Protocol) -> Conditions:
        loaded = load_conditions(
            self.job.conditions, parties=self.data.parties, batch_rows=protocol.batch_rows
        )
        return with_helpers(loaded, len(protocol.peers()))

    # -- the labels and columns behind a table ---------------------------------------------------

    def labels(self, table: Table) -> np.ndarray:
        """Class numbers of the rows of a table; ConfigurationError for a regression."""
        if self.data.task == "regression":
            raise ConfigurationError("labels of a regression are not inferred; use classes")
        found: np.ndarray = self.data.train_labels[table.rows]
        return found

    def columns(self, table: Table) -> np.ndarray:
        """The attacked client's true columns of the rows of a table."""
        found: np.ndarray = self.data.train[self.client][table.rows]
        return found

    @functools.cached_property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest value of all training columns, assumed public."""
        return (
            float(min(x.min() for x in self.data.train)),
            float(max(x.max() for x in self.data.train)),
        )

    def auxiliary(self, rows: int) -> np.ndarray:
        """Row numbers below `rows` that the server knows: `settings.auxiliary`, at most half."""
        return self.stream.permutation(rows)[: min(self.settings.auxiliary, rows // 2)]

    def network(self, client: Any, protocol: Any) -> PolynomialNetwork | None:
        """A client's network if it is polynomial, so its embedding is linear in powers; else None.

        If models are in shares, it is the client's initial network.
        """
        found = bare_of(getattr(client, "network", None))
        if found is None and hasattr(protocol, "first_weights"):
            rate = {"name": "sgd", "lr": protocol.config.client_lr}
            found = protocol.network(client.index, optimizer=rate)
        return found if isinstance(found, PolynomialNetwork) else None

    def embedded(self, rows: np.ndarray, *, trained: bool = True) -> Any:
        """Embeddings, (rows, h), by the client's network, clipped as in the protocol; or None.

        None if it has no network. `trained` is False for the network before its first step.
        """
        protocol = self.observed.protocol
        parties = self.observed.parties if trained else protocol.parties()
        return protocol.embed(parties[self.client], rows)

    # -- runs made for an attack -----------------------------------------------------------------

    @functools.cached_property
    def sums(self) -> tuple[np.ndarray, np.ndarray] | NoView:
        """Joint embeddings of M rows, (M, rounds h), and the rows' columns of all parties, (M, d).

        Polynomial clients are linear here (D = 1). Batches have all rows, so that every round adds
        h sums per row, and there are more rounds than needed.
        """
        width = sum(self.data.widths) + self.data.parties
        segments = self.protocol().config.segments if self.observed.holders else 1
        rows = min(self.data.rows, segments * max(self.settings.sum_rows, int(1.3 * width)))
        data = self.data.subset(rows)
        h = int(getattr(self.protocol().config, "width", 64))
        rounds = self.data.parties * (math.ceil(width / h) + 2)
        options = {"batch": rows, "rounds": rounds}
        seen = self.observed
        if self.network(seen.parties[self.client], seen.protocol) is not None:
            options["degree"] = 1
        evidence = observe(
            self.protocol(data, **options),
            conditions=NONE,
            client=self.client,
            every=True,
            interrupted=self._interrupted,
        )
        if evidence.inputs is None or not evidence.inputs.recent:
            return NoView("the server trains on no joint embedding")
        parts = [_in_order(samples, H) for samples, H in evidence.inputs.recent]
        whole = [H for rows_, H in parts if len(rows_) == rows]
        if not whole:
            return NoView("no joint embedding has all rows of a batch that is the whole set")
        one = evidence.first_segment if evidence.holders else np.arange(rows)  # of one model
        return np.concatenate(whole, axis=1)[one], np.concatenate(data.train, axis=1)[one]

    @functools.cached_property
    def watched(self) -> ObservedRun:
        """Another run of a few rounds that stores all joint embeddings; no client is late."""
        return observe(
            self.protocol(rounds=self.settings.watched),
            conditions=NONE,
            client=self.client,
            every=True,
            interrupted=self._interrupted,
        )

    @functools.cached_property
    def whole(self) -> ObservedRun:
        """Another run, with full batches and more sums of a row than all expanded columns."""
        degree = int(getattr(self.protocol().config, "degree", 1))
        width = sum(self.data.widths) * degree
        rows = min(self.data.rows, max(self.settings.sum_rows, int(1.3 * width)))
        h = int(getattr(self.protocol().config, "width", 64))
        # At the usual rate most steps of so large batches are rounded to 0 where they are dealt.
        rate = {"client_lr": 64.0} if self.observed.holders else {}
        options = {"batch": rows, "rounds": math.ceil(width / h) + 3, **rate}
        return observe(
            self.protocol(self.data.subset(rows), **options),
            conditions=NONE,
            client=self.client,
            every=True,
            interrupted=self._interrupted,
        )

    @functools.cached_property
    def opening(self) -> tuple[Protocol, tuple[Step, ...]] | NoView:
        """Protocol and first steps (at most an epoch) of another run in which no client is late."""
        made = self.protocol()
        layout = getattr(made, "train_layout", None)
        epoch = 1 if layout is None else layout().per_epoch
        made = self.protocol(rounds=min(self.settings.replayed, epoch))
        evidence = observe(
            made, conditions=NONE, client=self.client, every=True, interrupted=self._interrupted
        )
        steps = evidence.steps()
        if isinstance(steps, NoView):
            return steps
        replicas = evidence.holders and (getattr(made.config, "segments", None) or 1) > 1
        return made, steps[:1] if replicas else steps  # from then on each segment has its models

    @functools.cached_property
    def shares(self) -> CodedRun | NoView:
        """A recorded run on few rows; `NoView` if the protocol shares no data by a code."""
        if not codes_shares(self.protocol()):
            return NoView("its clients hold no shares of each other's data")
        data = self.data.subset(min(_SHARED_ROWS, self.data.rows))
        return RunFactory(self.protocol(data, rounds=2, batch=len(data.train_labels))).run()


def _in_order(samples: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers without padding in ascending order, and their values."""
    order = np.argsort(samples, kind="stable")
    order = order[samples[order] >= 0]
    return samples[order], values[order]
