"""Runs on a cluster whose parties read their own tables, which the driver never holds.

First every party's actor reads its table and helps to find the common rows
(`securevfl.data.local_tables`); public facts are written to ``facts.json`` in the run's folder, and
each party's rows stay on its own disk. Then the same actors train, each on its own table. At the
end each party embeds its own test rows, and the server's process, which has the labels, measures
the model. This evaluation is the experimenter's, who sees models and embeddings of test rows, but
no columns.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from securevfl.data.dataset import VerticalDataset
from securevfl.data.local_tables import PublicFacts, TableOwner, Tables
from securevfl.data.source import DataSource
from securevfl.engine.cluster.supervisor import Cluster
from securevfl.engine.network import SERVER
from securevfl.engine.party import Party
from securevfl.engine.realtime.assignment import PartyAssignment, own_folder
from securevfl.engine.streams import Secrets
from securevfl.errors import ConfigurationError, RunError
from securevfl.protocols.base.coded import SharedModels
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol
from securevfl.runs.assembly import LocalTables, make_protocol
from securevfl.runs.engines.cluster_options import ClusterOptions
from securevfl.runs.history import measures
from securevfl.runs.storage import FACTS
from securevfl.writing import write_durably

FORMAT = 1
_MADE: dict[tuple[str, str, int], Protocol] = {}  # of this process, which is a party's own


@dataclass(frozen=True)
class TableOwnerFactory:
    """Factory of the party that prepares a table, on the table's machine.

    `folder` is the folder of the run on the party's own machine; `kind` is the party's class.
    """

    tables: Tables
    folder: str
    kind: Callable[[int, Sequence[int], Tables, Path], TableOwner] = TableOwner

    def __call__(self, index: int, secrets: Secrets) -> Party:
        """Create the party that prepares table `index`."""
        place = own_folder(self.folder, index)
        return self.kind(index, range(len(self.tables.party_files)), self.tables, place)


@dataclass(frozen=True)
class LocalTableFactory:
    """Factory of a protocol's party that reads its own table, on the table's machine."""

    protocol: str
    options: Mapping[str, object]
    seed: int
    tables: Tables
    facts: PublicFacts
    folder: str

    def __call__(self, index: int, secrets: Secrets) -> Party:
        """Create party `index` with its secrets."""
        made = self.made(index)
        made.secrets = secrets
        return made.party(index)

    def made(self, index: int) -> Protocol:
        """The protocol with this party's data; each table is read once in a process."""
        key = self.folder, self.protocol, index
        if key not in _MADE:
            data = self.tables.seen_by(index, self.facts, own_folder(self.folder, index))
            _MADE[key], _ = make_protocol(self.protocol, self.options, data, self.seed)
        return _MADE[key]


@dataclass(frozen=True)
class OwnEmbedding:
    """Request to a party for the embedding of its own test rows, (m, h)."""

    factory: LocalTableFactory

    def __call__(self, party: Party) -> np.ndarray:
        """Compute the embedding at the party."""
        made = self.factory.made(party.index)
        embedding: np.ndarray = made.embed(party, made.data.test[party.index])
        return embedding


@dataclass(frozen=True)
class Measures:
    """Request to the server for measures of the models, from all parties' test embeddings."""

    factory: LocalTableFactory
    embeddings: Mapping[int, np.ndarray]

    def __call__(self, party: Party) -> dict[str, float]:
        """Held-out measures and the loss."""
        parties = known_embeddings(self.embeddings)
        return measures(self.factory.made(party.index), parties | {SERVER: party})


def known_embeddings(embeddings: Mapping[int, np.ndarray]) -> dict[int, Any]:
    """Substitutes for clients whose embeddings of these rows are known."""
    return {n: _KnownEmbedding(embedding) for n, embedding in embeddings.items()}


class _KnownEmbedding:
    """Substitute for a client with a known embedding."""

    def __init__(self, embedding: np.ndarray) -> None:
        self.embedding = embedding
        self.network = self.learner = self

    def forward(self, rows: np.ndarray) -> np.ndarray:
        """The known embedding, whatever `rows` are."""
        return self.embedding

    encode = forward


def tables_of(source: DataSource, protocol: str) -> Tables:
    """Files of the parties, and options for reading them.

    ConfigurationError for a protocol whose parties need more than their own columns; DataError for
    options that need all columns in one process.
    """
    cls = get_protocol(protocol)
    if not cls.apart or issubclass(cls, SharedModels):
        raise ConfigurationError(
            f"run: {protocol} on a cluster with tables of the parties' own: a client of it needs "
            "labels, or its models cannot be measured by embeddings; use the simulation, or one "
            "data set for all"
        )
    options = dict(source.options)
    options.setdefault("name", source.name)
    return Tables.of(options)


@contextmanager
def aligned(
    source: DataSource,
    protocol: str,
    folder: Path | None,
    *,
    options: BaseModel,
    pause: Callable[[], bool] | None = None,
) -> Iterator[LocalTables | None]:
    """Context in which all parties have read, aligned, split and encoded their tables.

    Yields the tables, or None if interrupted, and writes ``facts.json`` into the run's `folder`, on
    which the caller has the lock. The parties' processes live until the context ends. With a
    manifest, links accept only its identities. `pause` is called often; when it returns True the
    preparation stops. ConfigurationError for no folder, or a protocol that cannot use such tables;
    DataError names a party and the fault in its table.
    """
    tables = tables_of(source, protocol)
    if folder is None:
        raise ConfigurationError(
            "run: parties with tables of their own need a folder, in which each keeps the numbers "
            "of its aligned rows. Set out=FOLDER."
        )
    assert isinstance(options, ClusterOptions)
    folder, manifest = folder.resolve(), options.signed_manifest()
    session = secrets.token_hex(8) if manifest is None else manifest.session
    entries = {} if manifest is None else manifest.entries
    job = PartyAssignment(
        make=TableOwnerFactory(tables, str(folder)),
        protocol=protocol,
        run_id=f"{session}, own tables",  # no frame of it is one of the training
        parties=(SERVER, *range(len(tables.party_files))),
        seed=tables.options.seed,
        manifest=manifest,
        keys=options.key_folder(),
        points={n: s.point for n, s in entries.items() if s.point is not None},  # compared later
    )
    cluster = Cluster(job, address=options.address, place=options.place, answer=options.answer())
    try:
        if cluster.run(lambda event: None, pause=pause) is None:
            yield None
            return
        values = cluster.ask(SERVER, _facts)
        _write_facts(folder, values)
        yield LocalTables(tables, PublicFacts.of(values), cluster)
    finally:
        cluster.close()


def _write_facts(folder: Path, values: Mapping[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_durably(folder / FACTS, json.dumps({"format": FORMAT, **values}))


def _facts(party: Party) -> dict[str, Any]:
    assert isinstance(party, TableOwner)
    return party.facts


def facts_of(folder: Path) -> PublicFacts:
    """Public facts that `aligned` found, from the run's folder.

    ConfigurationError if the file is missing or has another format.
    """
    try:
        values = json.loads((folder / FACTS).read_text())
        if values.pop("format") != FORMAT:
            raise ValueError("another format")
        return PublicFacts.of(values)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"resume: {folder / FACTS} cannot be used ({error}); start the run anew"
        ) from None


def driver_dataset(local: LocalTables) -> VerticalDataset:
    """The data set as the driver has it: right sizes, with zeros for all values."""
    return local.tables.seen_by(None, local.facts, None)


def measured(cluster: Cluster, factory: LocalTableFactory) -> dict[str, float]:
    """Measures of the current models, computed where the data are; empty while a party is down."""
    peers = range(len(factory.tables.party_files))
    try:
        embeddings = {n: cluster.ask(n, OwnEmbedding(factory)) for n in peers}
        found: dict[str, float] = cluster.ask(SERVER, Measures(factory, embeddings))
    except RunError:
        return {}
    return found
