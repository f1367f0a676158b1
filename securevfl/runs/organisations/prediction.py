"""Predictions between organisations: new rows by id, on shares, by the models of a session.

A prediction is a separate session among the same parties. Its manifest is that of the training
under a new name, which contains the prediction's name and the asking party; all sign it again.
Owners find their common new rows by private set intersection, with the server if the server asks.
The server then decodes the rows' sums and scores them. If another party asks, that party blinds the
sums first: the server decodes uniform numbers, and sends them with its network to the asking party.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from securevfl.data.alignment.join import own_ids
from securevfl.data.alignment.psi import id_order
from securevfl.data.local_tables import ROWS, TableOwner, Tables
from securevfl.engine.carriers.base import Carrier
from securevfl.engine.checkpoint import read_file, write_file
from securevfl.engine.network import SERVER, name_of
from securevfl.engine.organisations.phase import Phase
from securevfl.engine.party import Party
from securevfl.engine.realtime.assignment import own_folder
from securevfl.engine.realtime.host import PartyHost
from securevfl.engine.security.identity import Manifest
from securevfl.engine.streams import Secrets
from securevfl.errors import ConfigurationError, DataError, SecureVFLWarning
from securevfl.models.scores import decided, probabilities
from securevfl.protocols.base.blinding import Told
from securevfl.protocols.base.coded import OnShares
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.reading import read_arrays
from securevfl.runs.engines.own_tables import TableOwnerFactory
from securevfl.runs.folders.checksums import Summary, replaced_together, write_summary
from securevfl.runs.organisations.folder import OwnFolder
from securevfl.runs.organisations.invitation import Invitation
from securevfl.runs.organisations.join import Member, kept_manifest, take_part
from securevfl.runs.organisations.organisation import Organisation
from securevfl.runs.organisations.parties import PredictingMaker
from securevfl.runs.organisations.terms import Terms
from securevfl.runs.storage import PARTIES, SUMMARY, read_parties
from securevfl.verified import bare_of

ALIGNING, BLINDING, PREDICTING, TELLING = "new rows", "blinding", "prediction", "scores"
PREDICTIONS = "predictions.csv"
_DRAWN = "drawn.svfl"  # what blinds the sums, at who asks
_NO_DEADLINE = "9999-12-31T00:00:00+00:00"


class NewRowsOwner(TableOwner):
    """Party that finds the common new rows; `asker` tells `everybody` how many they are."""

    def __init__(
        self,
        index: int,
        peers: Sequence[int],
        tables: Tables,
        place: Path,
        *,
        everybody: Sequence[int],
        asker: int,
    ) -> None:
        super().__init__(index, peers, tables, place)
        self.everybody, self.asker = everybody, asker

    async def setup(self) -> None:
        """Find the rows that all members have, in the order of their ids' hashes."""
        members = [*self.peers] + [SERVER] * (self.asker == SERVER)
        if self.index not in members:
            return
        ids = new_ids(self.tables, self.index)
        rows = await self.intersection(ids, members, self.asker)
        rows = rows[id_order([ids[row] for row in rows])]
        self.keep(rows, rows[:0])
        self.facts = {"rows": len(rows)}

    async def run(self) -> None:
        """Send the number of rows, as the asker; receive it, as another party."""
        if self.index == self.asker:
            self.broadcast("facts", self.facts, to=[n for n in self.everybody if n != self.index])
        else:
            self.facts = dict(await self.receive("facts", sender=self.asker))
        self.forget_pairs()


class Handing(Party):
    """Party of a phase in which `sender` sends ``values[n]`` to each party n of `receivers`."""

    kept: ClassVar[tuple[str, ...]] = ("value",)

    def __init__(
        self,
        index: int,
        sender: int,
        receivers: Sequence[int],
        values: Mapping[int, np.ndarray | Told] | None,
    ) -> None:
        super().__init__(index, sorted({sender, *receivers} - {SERVER}))
        self.sender, self.receivers, self.values = sender, receivers, values or {}
        self.value = self.values.get(index)

    async def run(self) -> None:
        """Send the other receivers their values, or receive this party's value from the sender."""
        if self.index == self.sender:
            for n in self.receivers:
                if n != self.index:
                    self.send(n, "value", self.values[n])
        elif self.index in self.receivers:
            self.value = await self.receive("value", sender=self.sender)


def new_ids(tables: Tables, index: int) -> list[str]:
    """Ids of the new rows of party `index`, as texts; DataError for missing and repeated ones."""
    assert tables.id_column is not None
    return list(own_ids(tables.read(index), tables.id_column))


class PredictingOrganisation(Organisation):
    """Party in a prediction: `home` is its folder of the training, `new` its table of new rows.

    `asker` is the number of the party that asked for the prediction.

    DataError for rows that cannot be prepared, or were trained on under a `sum_budget`.
    """

    phases: ClassVar[tuple[str, ...]] = (ALIGNING, BLINDING, PREDICTING, TELLING)
    doing = {  # noqa: RUF012
        ALIGNING: "finds the new rows that all tables have",
        BLINDING: "shares what hides the scores from the server",
        PREDICTING: "predicts them on shares",
        TELLING: "gives who asked the hidden sums and the server's network",
    }

    def __init__(self, *given: Any, home: OwnFolder, new: Path | None, asker: int) -> None:
        super().__init__(*given)
        self.home, self.asker = home, asker
        self._tables_of_new = self.terms.tables(self.index, new, self.parties)
        self._has_rows = new is not None and self.index != SERVER

    @functools.cached_property
    def rows(self) -> np.ndarray | None:
        """All own new rows as network inputs, (m, d); None for server and helpers.

        DataError for rows that were trained on, where `sum_budget` forbids one more sum of them.
        """
        if not self._has_rows:
            return None
        tables = self.terms.tables(self.index, self._file, self.parties)
        table = self._tables_of_new.read(self.index)
        if getattr(self.make().config, "budget", 0):
            assert tables.id_column is not None
            place = own_folder(str(self.home.path), self.index) / ROWS
            known = np.array(new_ids(tables, self.index), dtype=object)
            trained = set(known[read_arrays(place)["train"]])
            again = [one for one in new_ids(self._tables_of_new, self.index) if one in trained]
            if again:
                raise DataError(
                    f"{table.name}: {len(again)} rows were trained on, such as {again[0]!r}, and a "
                    "prediction is one sum of a row more than the budget (sum_budget) counts. "
                    "Leave them out"
                )
        told: list[str] = []
        found: np.ndarray = self.dataset.transform.parties[self.index].apply(table.frame, told)
        for sentence in told:
            warnings.warn(f"{table.name}: {sentence}", SecureVFLWarning, stacklevel=1)
        return found

    def trained(self, party: Party) -> Party:
        """The new object `party`, given the stored state of the trained one."""
        read_parties(self.home.path / PARTIES, {self.index: party})
        return party

    def phase(self, name: str) -> Phase | None:
        """A phase for this party; None for `BLINDING` and `TELLING` if the server asks."""
        if name == ALIGNING:
            _ = self.rows  # what is wrong with them is said before anything is told of them
            everybody = sorted(self.manifest.entries)
            kind = functools.partial(NewRowsOwner, everybody=everybody, asker=self.asker)
            maker = TableOwnerFactory(self._tables_of_new, str(self.folder.path), kind)
            return self._phase(name, maker, None, self._keep_rows)
        if name == PREDICTING:
            made = self.make(waiting=True)
            make = functools.partial(self.make, waiting=True)
            blind = None if self.asker == SERVER else self._blind
            predicting = PredictingMaker(make, self.trained, self._rows(made), blind)
            return self._phase(name, predicting, made, self._keep_decoded)
        if self.asker == SERVER:
            return None
        if name == BLINDING:
            return self._phase(name, self._blinding, None, self._keep_share)
        return self._phase(name, self._telling, None, self._told)

    def _keep_rows(self, host: PartyHost) -> None:
        party: Any = host.party
        self.folder.write_result(ALIGNING, party.facts)
        self.folder.pin_data()
        self._say(f"{party.facts['rows']} new rows are common to all tables")

    def _kept_rows(self) -> np.ndarray:
        """Positions of the common rows in this party's table."""
        place = own_folder(str(self.folder.path), self.index)
        rows: np.ndarray = read_arrays(place / ROWS)["train"]
        return rows

    def _rows(self, made: Protocol) -> list[np.ndarray]:
        """The common rows of each party as network inputs; zeros for other parties."""
        every = [np.zeros((self._count, d), np.float32) for d in made.data.widths]
        if self.rows is not None:
            every[self.index] = self.rows[self._kept_rows()]
        return every

    @functools.cached_property
    def _on_shares(self) -> OnShares:
        made = self.make(waiting=True)
        assert isinstance(made, OnShares)
        return made

    @property
    def _count(self) -> int:
        return int(self.folder.result(ALIGNING)["rows"])

    def _go_back(self, phase: str, at: int | None) -> None:
        """Repeat a phase and all later ones, else masks would blind sums of two lists of rows."""
        for one in self.phases[self.phases.index(phase) :]:
            super()._go_back(one, at if one == phase else None)

    @property
    def _drawn(self) -> Path:
        return self.folder.path / "phases" / BLINDING / _DRAWN

    def _blinding(self, index: int, secrets: Secrets) -> Party:
        """The party that draws the masks of the sums and deals shares, or that receives one."""
        clients = [n for n in sorted(self.manifest.entries) if n != SERVER]
        if index != self.asker:
            return Handing(index, self.asker, clients, None)
        blind, shares = self._on_shares.draw_blind(self._count)
        write_file(self._drawn, blind)
        return Handing(index, self.asker, clients, dict(enumerate(shares)))

    def _keep_share(self, host: PartyHost) -> None:
        assert isinstance(host.party, Handing)
        self.folder.write_result(BLINDING, host.party.value)

    def _blind(self, party: Party) -> None:
        self._on_shares.blind(party, self._count, self.asker, self.folder.result(BLINDING))

    def _keep_decoded(self, host: PartyHost) -> None:
        party: Any = host.party
        found = None
        if self.index == SERVER:
            asks = self.asker == SERVER
            found = bare_of(party.predicted)[1] if asks else party.told()
        self.folder.write_result(PREDICTING, found)

    def _telling(self, index: int, secrets: Secrets) -> Party:
        decoded = self.folder.result(PREDICTING)
        values = {self.asker: decoded} if index == SERVER else None
        return Handing(index, SERVER, [self.asker], values)

    def _told(self, host: PartyHost) -> None:
        scores = None
        if self.index == self.asker:
            assert isinstance(host.party, Handing)
            blind = read_file(self._drawn)
            scores = self._on_shares.opened_scores(self._count, host.party.value, blind)
        self.folder.write_result(TELLING, scores)

    def save(self) -> Summary:
        """Write the predictions, if this party asked for them; return its summary."""
        summary: Summary = {
            "session": self.manifest.session,
            "protocol": self.manifest.protocol,
            "party": "server" if self.index == SERVER else self.index,
            "parties": self.parties,
            "predicted_rows": self._count,
            "asked_by": name_of(self.asker),
        }
        with replaced_together(self.folder.path, last=SUMMARY, own=True) as beside:
            if self.index == self.asker:
                summary["predictions"] = str(self.folder.path / PREDICTIONS)
                found = self.folder.result(PREDICTING if self.asker == SERVER else TELLING)
                self._write(beside / PREDICTIONS, found)
            write_summary(beside / SUMMARY, summary)
        self.folder.clear()
        return summary

    def _write(self, path: Path, scores: np.ndarray) -> None:
        """Write predictions, and class probabilities, by id to a file for the asker only."""
        import pandas as pd

        data, tables = self.dataset, self._tables_of_new
        ids = np.array(new_ids(tables, self.index), dtype=object)[self._kept_rows()]
        table = pd.DataFrame({tables.id_column: ids})
        if data.task == "regression":
            table["prediction"] = decided(data.task, np.empty(0), scores)
        else:
            table["prediction"] = decided(data.task, data.class_values, scores)
            for name, shares in zip(data.classes, probabilities(data.task, scores).T, strict=True):
                table[f"p({name})"] = shares
        path.touch(mode=0o600)
        table.to_csv(path, index=False)


def _check_asked(manifest: Manifest, index: int, new: Path | None, name: str, asker: int) -> None:
    """Raise ConfigurationError if party `asker` cannot ask party `index` for the prediction `name`.

    So also if the table `new` is missing or needless; DataError for its ids (`new_ids`).
    """
    terms, parties = Terms.of(manifest), len(manifest.entries) - 1
    owners, cls = parties - terms.helpers, get_protocol(manifest.protocol)
    if cls.predictors is Protocol.predictors or not (cls.apart and terms.own_tables):
        raise ConfigurationError(
            f"predict: {manifest.protocol} cannot predict on shares in this session: it takes a "
            "protocol that computes on shares, and tables of the parties' own. Elsewhere clients "
            "embed their rows"
        )
    if terms.tables(SERVER, None, parties).id_column is None:
        raise ConfigurationError(
            "predict: new rows are matched by id, and the session's terms name no id column"
        )
    if not SERVER <= asker < owners:
        raise ConfigurationError(
            f"predict: {name_of(asker)} cannot ask: the server can, or an owner of a table"
        )
    if asker != SERVER and issubclass(cls, OnShares):
        cls.check_blinded(make_config(cls, terms.options))
    if Path(name).name != name or not name.isprintable():
        raise ConfigurationError(f"predict: --name {name!r}: give a name that a folder can have")
    has = asker == SERVER if index == SERVER else index < owners
    if has and new is None:
        raise ConfigurationError("predict: name your table of new rows with --new FILE")
    if not has and new is not None:
        raise ConfigurationError("predict: leave --new out: the rows are those of the owners")
    if has:
        new_ids(terms.tables(index, new, parties), index)


def _refuse_unended(folder: Path) -> None:
    if not (folder / SUMMARY).exists():
        raise ConfigurationError(
            f"predict: the session of {folder} has not ended; give `party join` again first, or "
            "name its folder with --out"
        )


class PredictingMember(Member):
    """Party of an ended session that takes part in a prediction with its models.

    `folder` is its folder of the session, and `data` its training table. `new` is its table of new
    rows; helpers have none, and the server has one only if it asks. `name` names the prediction,
    and `asker` is the number of the party that asks.

    ConfigurationError for a session that has not ended or cannot predict on shares, and where
    `Member` raises it.
    """

    kind = PredictingOrganisation

    def __init__(
        self,
        manifest: Manifest,
        index: int,
        *,
        key: Path,
        folder: Path,
        data: Path | None,
        new: Path | None,
        name: str,
        asker: int,
    ) -> None:
        _check_asked(manifest, index, new, name, asker)
        _refuse_unended(folder)
        self.home = OwnFolder(folder, manifest, index)
        self.home.use_data(data)
        self.new, self.asker = new, asker
        self.called = f"prediction {name} for {name_of(asker)}"
        session = f"{manifest.session}, {self.called}"
        terms = {**manifest.terms, "begin_by": _NO_DEADLINE}
        asked = replace(manifest, session=session, signatures={}, terms=terms)
        super().__init__(asked, index, key=key, folder=folder / "predictions" / name, data=data)

    def agrees_to(self) -> dict[str, str]:
        """Terms in words: which prediction it is, and who learns what."""
        terms = super().agrees_to()
        told = f"{name_of(self.asker)} alone learns the scores"
        if self.asker != SERVER:
            told += (
                ", besides one sum of embeddings of each row, and the server's network, which the "
                "server sends it"
            )
        asked = f"{self.called}; all give the same --for and --name, or wait for each other"
        kept = {name: terms[name] for name in ("parties", "helpers", "version") if name in terms}
        own = {"asked": asked, "who sees what": told}
        return kept | {name: self.terms.called.in_text(text) for name, text in own.items()}

    def _use_data(self) -> None:
        self.folder.use_data(self.new)

    def _organise(self, manifest: Manifest, say: Callable[[str], None]) -> Organisation:
        given = manifest, self.terms, self.index, self.folder, self.data, say
        return self.kind(*given, home=self.home, new=self.new, asker=self.asker)


def predict(
    invitation: Invitation,
    *,
    key: Path,
    folder: Path,
    data: Path | None,
    new: Path | None,
    name: str,
    asker: str,
    say: Callable[[str], None],
    patience: float = 15.0,
) -> Summary:
    """Take part in a prediction by an ended session's models; return this party's summary.

    All parties give the same `name`, a new one for each prediction, and the same `asker`: "server",
    or the name or number of a party. ConfigurationError for another `asker`, or a session that
    cannot predict; RunError if the disk is full.
    """

    async def member(carrier: Carrier) -> Member:
        _refuse_unended(folder)
        found, index = kept_manifest(folder, invitation), invitation.index
        number = Terms.of(found).called.number(asker)
        if number is None:
            raise ConfigurationError(f"predict: nobody is called {asker!r}; name a party or server")
        return PredictingMember(
            found, index, key=key, folder=folder, data=data, new=new, name=name, asker=number
        )

    return take_part(member, invitation, key, folder, say, patience=patience)
