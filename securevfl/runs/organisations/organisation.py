"""One organisation in a session: its data, its party in each phase, and its final files.

The server party also does the work of a driver: it counts rounds and writes the history. No party
has another's model, so models are evaluated by messages; see `measuring`.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from securevfl.data.local_tables import PublicFacts, TableOwner
from securevfl.engine.conditions import NONE
from securevfl.engine.network import SERVER, Event
from securevfl.engine.organisations.phase import Phase
from securevfl.engine.party import Party
from securevfl.engine.realtime.assignment import PartyAssignment, own_folder
from securevfl.engine.realtime.host import PartyHost
from securevfl.engine.security.identity import Manifest
from securevfl.engine.streams import Secrets
from securevfl.engine.transcript import Transcript
from securevfl.errors import ConfigurationError
from securevfl.privacy.claims import given_sums, link_claims
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.runs.assembly import check_default_dtype, check_memory, rules_of, tolerates
from securevfl.runs.engines.own_tables import TableOwnerFactory
from securevfl.runs.evidence import keep_wrong_uploads
from securevfl.runs.export import export_own
from securevfl.runs.folders.checksums import Summary, replaced_together, write_summary
from securevfl.runs.folders.models import model_arrays
from securevfl.runs.history import History, HistoryRecorder, measures_in
from securevfl.runs.organisations.folder import EVENTS, EventLog, OwnFolder
from securevfl.runs.organisations.parties import (
    SENT_TO_MEASURE,
    SharingTableOwner,
    evaluation_maker,
    measures_of,
    measuring,
)
from securevfl.runs.organisations.terms import Terms
from securevfl.runs.result import sums_told
from securevfl.runs.spec import CONFIG, ORGANISATIONS, RunSpec
from securevfl.runs.storage import (
    HISTORY,
    MODELS,
    PARTIES,
    SUMMARY,
    TOTALS,
    read_parties,
    read_transcript,
    write_config,
    write_history,
    write_parties,
    write_transcript,
)

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

PROCESS, TABLES, TRAINING, EVALUATION = "process", "tables", "training", "evaluation"
TOLD = (PROCESS, EVALUATION, TRAINING)  # what the history has
PHASES = (TABLES, TRAINING, EVALUATION)  # a phase's number is its place here
_SAID = 2.0  # seconds at least between two sentences about rounds


class Organisation:
    """One party of a session with its data and folder; the manifest is signed by all.

    `file` is its own table; None for a data set by name. `index` is the party's number, and `say`
    is called with sentences for the user. `home` is the folder with the numbers of the common rows.
    """

    phases: ClassVar[tuple[str, ...]] = PHASES
    doing: ClassVar[Mapping[str, str]] = {
        TABLES: "finds the rows that all tables have",
        TRAINING: "trains",
        EVALUATION: "measures the test rows",
    }

    def __init__(
        self,
        manifest: Manifest,
        terms: Terms,
        index: int,
        folder: OwnFolder,
        file: Path | None,
        say: Callable[[str], None],
    ) -> None:
        self.manifest = manifest
        self.terms = terms
        self.index = index
        self.folder = self.home = folder
        self.parties = len(manifest.entries) - 1
        self.log = EventLog(folder.path / EVENTS)
        self._file = file
        self._say = say
        self._said = 0.0
        self._caught = 0  # wrong uploads that were found, as far as evidence is kept
        self._loss: float | None = None  # the newest one, which the server knows
        self._aligning: tuple[int, int] | None = None  # time and percent of the first report

    # -- data and protocol ---------------------------------------------------------------------

    @functools.cached_property
    def dataset(self) -> VerticalDataset:
        """The data set as this party sees it, after the tables were aligned."""
        if not self.terms.own_tables:
            return self.terms.source(self.parties).load()
        tables = self.terms.tables(self.index, self._file, self.parties)
        facts = PublicFacts.of(self.home.result(TABLES))
        return tables.seen_by(self.index, facts, own_folder(str(self.home.path), self.index))

    def make(self, *, waiting: bool = False) -> Protocol:
        """New configured protocol.

        If `waiting`, options that let it continue without an absent client are left out.
        """
        cls = get_protocol(self.manifest.protocol)
        left_out = set(cls.fault_options) if waiting else set()
        options = {k: v for k, v in self.terms.options.items() if k not in left_out}
        return cls(make_config(cls, options), self.dataset, seed=self.terms.seed)

    def training_party(self, index: int, secrets: Secrets) -> Party:
        """This organisation's party in the training."""
        made = self.make()
        made.secrets = secrets
        return made.party(index)

    def trained(self, party: Party) -> Party:
        """The new object `party`, given the stored state of the trained one."""
        path = self.folder.path / "phases" / TRAINING / "result.svfl"
        read_parties(path, {self.index: party})
        return party

    # -- phases --------------------------------------------------------------------------------

    def phase(self, name: str) -> Phase | None:
        """A phase for this party; None if the session has no such phase."""
        if name == TABLES:
            return self._tables() if self.terms.own_tables else None
        check_default_dtype()
        made = self.make()
        if name == TRAINING:
            check_memory(made)
            self._check_fits(made)
            self._say_sums(made)
            return self._phase(name, self.training_party, made, self._keep_model)
        # It waits for all clients: an evaluation that is begun again then has the same sums, and
        # no two sums of a test row over different clients tell their difference.
        make, made = functools.partial(self.make, waiting=True), self.make(waiting=True)
        maker = evaluation_maker(made, make, self.trained)
        if maker is None:
            return None
        return self._phase(name, maker, made, functools.partial(self._keep_measures, made))

    def _tables(self) -> Phase:
        tables = self.terms.tables(self.index, self._file, self.parties)
        kind = functools.partial(SharingTableOwner, helpers=self.terms.helpers)
        maker = TableOwnerFactory(tables, str(self.folder.path), kind)

        def keep(host: PartyHost) -> None:
            party = host.party
            assert isinstance(party, TableOwner)
            self.folder.write_result(TABLES, party.facts)
            self.folder.pin_data()
            facts = PublicFacts.of(party.facts)
            test = f"{facts.test_rows} of them for the test"
            self._say(f"{facts.rows + facts.test_rows} rows are common to all tables, {test}")

        return self._phase(TABLES, maker, None, keep)

    def _phase(
        self,
        name: str,
        make: Callable[[int, Secrets], Party],
        made: Protocol | None,
        finish: Callable[[PartyHost], None],
    ) -> Phase:
        rules = None
        if made is not None and name == TRAINING:
            rules = rules_of(made)
        elif made is not None and made.prediction_messages:
            rules = rules_of(made, made.prediction_messages)
        return Phase(
            number=self.phases.index(name),
            name=name,
            assignment=PartyAssignment(
                make=make,
                protocol=self.manifest.protocol,
                run_id=f"{self.manifest.session}, {name}",  # no frame is one of another phase
                parties=tuple(sorted(self.manifest.entries)),
                seed=self.terms.seed,
                conditions=NONE,
                manifest=self.manifest,
                rules=rules,
            ),
            store=self.folder.phase_store(name),
            tolerant=made is not None and tolerates(made),
            finished=functools.partial(self.folder.has_result, name),
            finish=finish,
            used=lambda: None,  # it was noted before the process spoke
            observe=functools.partial(self._observe, name),
            go_back=functools.partial(self._go_back, name),
            passed=functools.partial(self.passed, name),
            doing=self.doing[name],
            advance=functools.partial(self._advance, name),
        )

    def _say_sums(self, made: Protocol) -> None:
        """Report, before the first round, what all decoded sums will reveal of a row."""
        released = made.released()
        if released is not None:
            below = "" if released.state == "below" else f". To stay below: {released.ways_below()}"
            self._say(f"sums: {released.sentence()}{below}")

    def _check_fits(self, made: Protocol) -> None:
        """Raise ConfigurationError if a manifest's parties or points are not the protocol's."""
        needed = {n for numbers in made.roles().values() for n in numbers}
        if needed != set(self.manifest.entries):
            raise ConfigurationError(
                f"session: the manifest names {len(self.manifest.entries) - 1} parties besides the "
                f"server, and {made.name} with these terms has {len(needed - {SERVER})}. Write "
                "another manifest"
            )
        for index, entry in self.manifest.entries.items():
            if entry.point is not None and entry.point != made.points.get(index):
                raise ConfigurationError(
                    f"session: party {index} has the point {entry.point} in the manifest, and "
                    f"{made.points.get(index)} by its terms. Write another manifest"
                )

    def passed(self, phase: str) -> int:
        """Nanoseconds since a phase began, including pauses between this party's processes.

        Training, evaluation and process events share one start, so times in the history are
        comparable. The result is never below the newest event's, even if the clock was set back.
        """
        phases = TOLD if phase in TOLD else (phase,)
        newest = max((event.time for event in self.log.events(*phases)), default=0)
        return max(newest, time.time_ns() - self.folder.origin(phases[-1]))

    def note(self, name: str, fields: dict[str, object]) -> None:
        """Record an event of the process itself, with the present round of training."""
        newest = max((event.round for event in self.log.events(TRAINING)), default=0)
        self.log.add(PROCESS, Event(self.passed(PROCESS), self.index, newest, name, fields))

    def _observe(self, phase: str, event: Event) -> None:
        self.log.add(phase, event)
        if event.name == "round" and self.index == SERVER:
            self._loss = event.fields.get("loss")
        if event.name == "aligning":
            self._say_aligning(event)

    def _advance(self, phase: str, host: PartyHost) -> None:
        """Store evidence of wrong uploads once found; report the present round of training."""
        found = len(getattr(host.party, "caught", ()))
        if found > self._caught:
            self._caught = found
            where = " and ".join(map(str, keep_wrong_uploads(host.party, self.folder.path)))
            self._say(f"evidence of wrong uploads is in {where}")
        if phase == TRAINING:
            self._say_round(host)

    def _say_aligning(self, event: Event) -> None:
        """Say how much of the search for common rows is done, and from the second on time left."""
        percent, left = event.fields["percent"], ""
        began, before = self._aligning or (event.time, percent)
        if percent > before:
            seconds = (event.time - began) / 1e9 * (100 - percent) / (percent - before)
            left = f", about {seconds:.0f} s left"
        self._aligning = began, before
        self._say(f"{percent} % of this party's steps to find the common rows{left}")

    def _say_round(self, host: PartyHost) -> None:
        """Report the party's round from time to time."""
        now, round = time.monotonic(), host.party.round
        if now - self._said < _SAID or not 0 < round < self.terms.options.get("rounds", 0):
            return
        self._said = now
        shown = "" if self._loss is None else f", loss {self._loss:.4f}"
        self._say(f"round {round} of {self.terms.options['rounds']}{shown}")

    def _go_back(self, phase: str, at: int | None) -> None:
        self.folder.forget_result(phase)
        self.log.go_back(phase, at)

    def _keep_model(self, host: PartyHost) -> None:
        place = self.folder.path / "phases" / TRAINING
        write_transcript(place, host.transcript)
        write_parties(place / "result.svfl", {self.index: host.party})

    def _keep_measures(self, made: Protocol, host: PartyHost) -> None:
        found = measures_of(host.party, made) if self.index == SERVER else {}
        self.folder.write_result(EVALUATION, {name: float(value) for name, value in found.items()})

    # -- results -------------------------------------------------------------------------------

    def save(self) -> Summary:
        """Write this party's files of a trained session, and clear restart files; its summary."""
        made = self.make()
        parties = made.parties()
        self.trained(parties[self.index])
        rows, events = self._history(made)
        transcript = read_transcript(self.folder.path / "phases" / TRAINING)
        summary = self._summary(made, rows, events, transcript)
        with replaced_together(self.folder.path, last=SUMMARY, own=True) as beside:
            write_config(beside / CONFIG, self._config(made))
            write_history(beside / HISTORY, rows, events)
            transcript.write_csv(beside / TOTALS)
            write_transcript(beside, transcript)
            write_parties(beside / PARTIES, {self.index: parties[self.index]})
            arrays: Any = model_arrays({self.index: parties[self.index]})
            (beside / MODELS).touch(mode=0o600)
            np.savez(beside / MODELS, **arrays)
            export_own(made, parties, self.index, beside)
            write_summary(beside / SUMMARY, summary)
        self.folder.clear()
        return summary

    def _history(self, made: Protocol) -> tuple[History, History]:
        """The server's history rows (elsewhere none), and other events of this party."""
        recorder = HistoryRecorder(made, {}, eval_every=1 << 62, progress=None)
        recorder.measured = dict
        for event in self.log.events(*TOLD):
            recorder.record(event)
        if recorder.rows and self.folder.has_result(EVALUATION):
            recorder.rows[-1] |= self.folder.result(EVALUATION)
        return recorder.rows, recorder.events

    def _config(self, made: Protocol) -> str:
        import tomli_w

        spec = RunSpec(
            protocol=made.name,
            options=made.config.model_dump(),
            seed=self.terms.seed,
            conditions=NONE,
            eval_every=max(1, made.config.rounds),
            engine=ORGANISATIONS,
            run_id=self.manifest.session,
            fingerprint=made.data.fingerprint(),
        )
        session = {
            "session": self.manifest.session,
            "party": self.index,
            "digest": self.manifest.digest.hex(),
            "parties": self.parties,
            "data": dict(self.terms.data),
            **({"party_names": list(self.terms.names)} if self.terms.names else {}),
        }
        return spec.to_toml(made.describe()) + "\n" + tomli_w.dumps({"organisation": session})

    def _summary(
        self, made: Protocol, rows: History, events: History, transcript: Transcript
    ) -> Summary:
        data, last, way = made.data, (rows[-1] if rows else {}), measuring(made)
        measured = SENT_TO_MEASURE if way == "embeddings of test rows" else ()
        coded = [event for event in events if event["event"] == "inference"]
        last = last | (coded[-1] if coded else {})
        released = made.released(rows[-1]["round"] if rows else None)
        summary: Summary = {
            "protocol": made.name,
            "dataset": data.name,
            "session": self.manifest.session,
            "party": "server" if self.index == SERVER else self.index,
            "parties": self.parties,
            **({"party_names": list(self.terms.names)} if self.terms.names else {}),
            "rows": data.rows,
            "test_rows": data.test_rows,
            "rounds": len(rows) if self.index == SERVER else _rounds(transcript, made),
            "seed": self.terms.seed,
            "secret_choices": "each party's, from its own entropy",
            "evaluation": "coded inference" if coded else way,
        }
        summary |= measures_in(last, data)
        return summary | {
            "train_loss": last.get("loss"),
            "virtual_seconds": max((e["time"] for e in (*rows, *events)), default=0.0),
            "messages": transcript.messages,
            "bytes": transcript.bytes,
            "silent": sum(event["event"] == "silent" for event in events),
            "restarts": max(0, len({e["life"] for e in events if e["event"] == "era"}) - 1),
            "derived": made.describe(),
            "claims": [
                claim.to_dict()
                for claim in (*given_sums(made.claims, released), *measured, *link_claims(True))
            ],
            "released": None if released is None else released.to_dict(),
            "notices": sums_told(released, events, len(rows), made.config.rounds),
            "sealed": True,
            "engine": ORGANISATIONS,
            "bytes_by_kind": transcript.bytes_by_kind(),
            "run_folder": str(self.folder.path),
        }


def _rounds(transcript: Transcript, made: Protocol) -> int:
    """The last round of training in which this party sent anything; the server's may be later."""
    sent = transcript.columns()["round"]
    return int(max((n for n in sent if n <= made.config.rounds), default=0))
