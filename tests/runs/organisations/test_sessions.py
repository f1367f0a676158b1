"""Parties without a driver: the simulation's numbers, restarts, silence, and refusals."""

import asyncio
import contextlib
import functools
import hashlib
import itertools
import json
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

import securevfl as svfl
from securevfl.data.alignment.psi import id_order
from securevfl.data.source import DataSource
from securevfl.engine.carriers.nats import RelayAddress
from securevfl.engine.network import SERVER, name_of
from securevfl.engine.organisations.manifests import obtain_manifest
from securevfl.engine.organisations.process import Process
from securevfl.engine.security.identity import Identity, Manifest, ManifestEntry
from securevfl.errors import CarrierError, ConfigurationError, DataError, RunError
from securevfl.models.scores import probabilities
from securevfl.protocols.split import Client
from securevfl.protocols.wait_dp.algorithm import Client as WaitClient
from securevfl.report.loading import read_records
from securevfl.report.reproduce import how_to_reproduce
from securevfl.runs.alignment import data_source
from securevfl.runs.organisations import join as joins
from securevfl.runs.organisations.folder import OwnFolder
from securevfl.runs.organisations.invitation import Invitation, invite
from securevfl.runs.organisations.join import Member
from securevfl.runs.organisations.organisation import Organisation
from securevfl.runs.organisations.prediction import PredictingMember
from securevfl.runs.organisations.terms import Terms
from securevfl.runs.storage import read_history
from securevfl.runs.threads import one_thread
from securevfl.testing.entropies import simulated_with
from tests.engine.carriers.memory import Hostility, MemoryCarrier, MemoryRelay
from tests.runs.organisations.sessions import Meeting, name

OPTIONS = {"rounds": 5, "width": 6, "hidden": 8, "batch": 32}
DIGITS = {"name": "digits", "options": {"parties": 3}}


def losses(meeting):
    return [row["loss"] for row in read_history(meeting.folder / "server")[0]]


def simulated(meeting, protocol, source, **options):
    with simulated_with(meeting.entropies):
        return svfl.run(protocol, source, conditions="none", **options)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Tables of three clients with shuffled rows of whom some are common, and the labels."""
    folder = tmp_path_factory.mktemp("tables")
    digits, draw = load_digits(), np.random.default_rng(0)
    for n, columns in enumerate(np.array_split(np.arange(64), 3)):
        rows = draw.permutation(200)[:190]
        table = pd.DataFrame(digits.data[rows][:, columns], columns=[f"x{c}" for c in columns])
        table.insert(0, "id", rows)
        table.to_csv(folder / f"{n}.csv", index=False)
    rows = draw.permutation(200)
    rows = rows[id_order([str(row) for row in rows])]  # then a simulation has the same order
    pd.DataFrame({"id": rows, "digit": digits.target[rows]}).to_csv(
        folder / "labels.csv", index=False
    )
    return {n: folder / f"{n}.csv" for n in range(3)} | {SERVER: folder / "labels.csv"}


@pytest.fixture(scope="module")
def coded(tables, tmp_path_factory):
    """A session of FedVS on tables of the parties' own."""
    made = Meeting(
        tmp_path_factory.mktemp("coded"), "fedvs", 3, tables=tables, options=OPTIONS,
        data={"tables": {"label": "digit", "id_column": "id"}},
    )  # fmt: skip
    return made, made.hold()


@pytest.fixture(scope="module")
def in_one_process(tables):
    """Simulations of sessions on these tables, with the parties' secrets."""
    files = [str(tables[n]) for n in range(3)]
    given = {"party_files": files, "label_file": str(tables[SERVER]), "label": "digit"}
    source = data_source("own", given | {"id_column": "id", "seed": 0})

    @functools.cache
    def simulation(meeting, protocol, **options):
        return simulated(meeting, protocol, source, **options)

    return simulation


def test_fedvs_on_own_tables_decodes_what_the_simulation_decodes(coded, in_one_process):
    meeting, summaries = coded
    wanted = in_one_process(meeting, "fedvs", **OPTIONS)
    assert losses(meeting) == [row["loss"] for row in wanted.history]
    text = (meeting.folder / "server" / "history.jsonl").read_text()
    times = [json.loads(line)["time"] for line in text.splitlines()]
    assert times == sorted(times)  # also of what the process and the evaluation told
    both = [f"{summaries[0][part]}" for part in ("rows", "test_rows")]
    common = f"{sum(map(int, both))} rows are common to all tables, {both[1]} of them for the test"
    for n in meeting.parties:
        assert "finds the rows that all tables have" in meeting.said[n]
        assert common in meeting.said[n]
        (sums,) = (text for text in meeting.said[n] if text.startswith("sums: "))
        assert meeting.said[n].index(common) < meeting.said[n].index(sums)
        assert meeting.said[n].index(sums) < meeting.said[n].index("trains")
        assert sums.startswith("sums: " + summaries[n]["released"]["sentence"])  # all rounds
        beyond = summaries[n]["released"]["state"] != "below"
        assert beyond == ("To stay below" in sums) == bool(summaries[n]["notices"])
    assert summaries[SERVER]["evaluation"] == "coded inference"
    # A coded inference rounds weights to the nearest; in the clear they are floats.
    in_the_clear = wanted.summary()["test_accuracy"]
    assert summaries[SERVER]["test_accuracy"] == pytest.approx(in_the_clear, abs=0.1)


SHARED = {"rounds": 4, "width": 2, "hidden": 4, "batch": 32, "helpers": 1, "secure": True}
SHARED |= {"security": "covert"}


@pytest.fixture(scope="module")
def shared(tables, tmp_path_factory):
    """A session of coded split learning: three owners of tables, a helper without, the server."""
    made = Meeting(
        tmp_path_factory.mktemp("shared"), "coded_split", 4, tables=tables, options=SHARED,
        data={"tables": {"label": "digit", "id_column": "id"}},
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("securevfl.data.local_tables._LONG", 1)  # its progress is told
        return made, made.hold()


def test_the_progress_of_an_intersection_is_said(shared):
    meeting, _ = shared
    for n in (SERVER, 0, 1, 2):
        said = [text for text in meeting.said[n] if "% of this party's steps" in text]
        assert said[-1].startswith("100 % of this party's steps to find the common rows")
        assert re.search(r"rows, about \d+ s left$", said[-1])
    assert not any("steps" in text for text in meeting.said[3])  # a helper has no table


def test_coded_split_on_own_tables_has_the_losses_of_the_simulation(
    shared, in_one_process, monkeypatch
):
    meeting, summaries = shared
    wanted = in_one_process(meeting, "coded_split", **SHARED)
    assert losses(meeting) == [row["loss"] for row in wanted.history]
    assert summaries[SERVER]["test_accuracy"] == wanted.summary()["test_accuracy"]
    # Who lacks the last step says nothing in a prediction: the label binds all steps.
    own, rows = wanted.parties[2], wanted.protocol.data.test
    assert wanted.protocol.predictor(2, own, rows).model[1:3] == (0, ())
    monkeypatch.setattr(own, "model", (own.model[0], 3, (), own.model[3]))
    assert wanted.protocol.predictor(2, own, rows).model[1:3] == (0, (1,))
    said = meeting.member(3).terms.lines("coded_split")["helpers"]
    assert said.startswith("the last 1 of the parties: no table, and shares of all tables")
    with pytest.raises(ConfigurationError, match="this party is a helper, which has shares alone"):
        Member(meeting.manifest, 3, key=meeting.key(3), folder=meeting.folder / "x", data="a.csv")


def test_restarts_of_owner_helper_and_server_change_no_loss_of_coded_split(
    tables, in_one_process, tmp_path
):
    options = SHARED | {"rounds": 12, "security": "semi-honest", "sum_budget": 1.0}
    meeting = Meeting(
        tmp_path, "coded_split", 4, tables=tables, options=options,
        data={"tables": {"label": "digit", "id_column": "id"}},
    )  # fmt: skip
    with one_thread(), meeting.kept_entropies():
        asyncio.run(held_with_restarts(meeting, [(3, 1), (5, 3), (7, SERVER)]))
    wanted = in_one_process(meeting, "coded_split", **options)
    assert losses(meeting) == [row["loss"] for row in wanted.history]
    member = predicting(meeting, 0, tables[0])  # rows that the budget counts
    own = member._organise(member.manifest, print)
    with pytest.raises(DataError, match="rows were trained on, such as"):
        own.phase("new rows")
    own.log.close()


def test_all_say_how_many_rounds_a_budget_of_sums_allowed(tables, tmp_path):
    options = SHARED | {"rounds": 40, "sum_budget": 0.3, "security": "semi-honest"}
    meeting = Meeting(
        tmp_path, "coded_split", 4, tables=tables, options=options,
        data={"tables": {"label": "digit", "id_column": "id"}},
    )  # fmt: skip
    rounds = {n: summary["rounds"] for n, summary in meeting.hold().items()}
    assert len(set(rounds.values())) == 1
    assert 0 < rounds[SERVER] < 40


def predicting(meeting, n, new, asker=SERVER, called=None):
    return PredictingMember(
        meeting.manifest, n, key=meeting.key(n), folder=meeting.folder / name(n),
        data=meeting.tables.get(n), new=new, name=called or f"for {asker}", asker=asker,
    )  # fmt: skip


async def predicted(meeting, asker, new, killed=None, when="predicts them on shares"):
    """Carry a prediction out; `killed` is cut off in the phase `when`, and comes back."""
    said = {n: [] for n in meeting.parties}

    async def one(n):
        member = predicting(meeting, n, new.get(n), asker)
        try:
            return await member.take_part(meeting.relay.carrier(n), said[n].append)
        finally:
            member.folder.store._lock.release()
            member.home.store._lock.release()

    tasks = {n: asyncio.ensure_future(one(n)) for n in meeting.parties}
    if killed is not None:
        while when not in said[killed]:
            await asyncio.sleep(0.01)
        tasks[killed].cancel()
        await asyncio.wait({tasks[killed]})
        tasks[killed] = asyncio.ensure_future(one(killed))
    await asyncio.gather(*tasks.values())


@pytest.fixture(scope="module")
def new_rows(tmp_path_factory):
    """Rows that nobody trained on, of whom the owners and the server have some."""
    folder, digits = tmp_path_factory.mktemp("new"), load_digits()
    for n, rows in {0: range(200, 230), 1: range(229, 199, -1), 2: range(205, 232)}.items():
        columns = np.array_split(np.arange(64), 3)[n]
        table = pd.DataFrame(
            digits.data[list(rows)][:, columns], columns=[f"x{c}" for c in columns]
        )
        table.insert(0, "id", list(rows))
        table.to_csv(folder / f"{n}.csv", index=False)
    pd.DataFrame({"id": range(210, 240)}).to_csv(folder / "ids.csv", index=False)
    return {n: folder / f"{n}.csv" for n in range(3)} | {SERVER: folder / "ids.csv"}


BLINDS = "shares what hides the scores from the server"


@pytest.mark.parametrize(("asker", "killed"), [(0, 0), (2, 1)])
def test_who_is_cut_off_while_the_blind_is_shared_changes_no_score(
    shared, asker, killed, in_one_process, new_rows
):
    meeting, new = shared[0], {n: file for n, file in new_rows.items() if n != SERVER}
    with one_thread():
        asyncio.run(predicted(meeting, asker, new, killed, BLINDS))
    [found] = meeting.folder.glob(f"*/predictions/for {asker}/predictions.csv")
    told = pd.read_csv(found, index_col="id")
    run = in_one_process(meeting, meeting.manifest.protocol, **SHARED)
    tables = [pd.read_csv(new_rows[n], index_col="id").loc[told.index] for n in range(3)]
    wanted = probabilities("multiclass", run.infer(tables).scores)
    assert (told.filter(like="p(").to_numpy() == wanted).all()


@pytest.mark.parametrize(
    ("session", "asker", "killed", "rows"),
    [
        ("shared", SERVER, 0, range(210, 230)),
        ("shared", 1, 3, range(205, 230)),
        ("coded", 1, 1, range(205, 230)),
    ],
)
def test_new_rows_are_predicted_on_shares_for_who_asks_alone(
    session, asker, killed, rows, in_one_process, new_rows, request, monkeypatch
):
    meeting, _ = request.getfixturevalue(session)
    write, kept = OwnFolder.write_result, []

    def writing(own, phase, result):
        if own.index == SERVER:
            kept.append(result)
        write(own, phase, result)

    monkeypatch.setattr(OwnFolder, "write_result", writing)
    new = {n: file for n, file in new_rows.items() if n != SERVER or asker == SERVER}
    terms = predicting(meeting, 2, new_rows[2], asker, f"for {asker}").agrees_to()
    asked = f"prediction for {asker} for {name_of(asker)}; all give the same"
    assert terms["asked"].startswith(asked)
    told = f"{name_of(asker)} alone learns the scores"
    assert terms["who sees what"].startswith(told)
    assert ("the server's network" in terms["who sees what"]) == (asker != SERVER)
    with one_thread():
        asyncio.run(predicted(meeting, asker, new, killed))
    [found] = meeting.folder.glob(f"*/predictions/for {asker}/predictions.csv")
    assert found.parents[2].name == name(asker)
    told = pd.read_csv(found, index_col="id")
    assert sorted(told.index) == list(rows)
    options = {"shared": SHARED, "coded": OPTIONS}[session]
    run = in_one_process(meeting, meeting.manifest.protocol, **options)
    tables = [pd.read_csv(new_rows[n], index_col="id").loc[told.index] for n in range(3)]
    wanted = probabilities("multiclass", run.infer(tables).scores)
    assert (told.filter(like="p(").to_numpy() == wanted).all()
    assert any(isinstance(one, np.ndarray) for one in kept) == (asker == SERVER)  # scores
    assert any(isinstance(one, tuple) for one in kept) == (asker != SERVER)


@pytest.mark.parametrize(
    ("n", "new", "asker", "called", "said"),
    [
        (0, False, SERVER, "a", "name your table of new rows with --new FILE"),
        (3, True, SERVER, "a", "leave --new out: the rows are those of the owners"),
        (SERVER, True, 0, "a", "leave --new out: the rows are those of the owners"),
        (0, True, 3, "a", "party 3 cannot ask: the server can, or an owner"),
        (0, True, SERVER, "../a", "give a name that a folder can have"),
    ],
)
def test_a_prediction_says_what_it_needs(shared, new_rows, n, new, asker, called, said):
    with pytest.raises(ConfigurationError, match=said):
        predicting(shared[0], n, new_rows[0] if new else None, asker, called)


def test_a_session_without_shares_or_without_an_end_predicts_nothing(own, new_rows):
    with pytest.raises(ConfigurationError, match="split cannot predict on shares in this session"):
        predicting(own, 0, new_rows[0])
    manifest = replace(own.manifest, protocol="fedvs")
    with pytest.raises(ConfigurationError, match="has not ended; give `party join` again first"):
        PredictingMember(
            manifest, 0, key=own.key(0), folder=own.folder / "x", data=own.tables[0],
            new=new_rows[0], name="a", asker=SERVER,
        )  # fmt: skip


def test_each_party_has_its_own_model_and_nobody_elses(coded):
    meeting, summaries = coded
    for n in meeting.parties:
        folder = meeting.folder / name(n)
        with np.load(folder / "model.npz") as arrays:
            assert {key.split("/")[0] for key in arrays} == {
                "server" if n == SERVER else f"client-{n}"
            }
        left = {path.name for path in folder.iterdir()}
        assert {"summary.json", "history.jsonl", "session.toml", "messages.npz"} <= left
        assert "events.jsonl" not in left
        kept = {str(path.relative_to(folder)) for path in folder.glob("phases/**/*.*")}
        assert kept == {"phases/tables/result.svfl"}  # no shares stay on disk
        assert ("server.npz" if n == SERVER else f"party-{n}.npz") in left
        assert summaries[n]["rounds"] == OPTIONS["rounds"]
        with pytest.raises(ConfigurationError, match="folder of one party of a session"):
            svfl.load_run(folder)
    rows = pd.read_csv(meeting.tables[0]).head(4)
    embedding = svfl.load_model(meeting.folder / "party-0" / "party-0.npz").embed(rows)
    assert embedding.shape == (4, OPTIONS["width"])


def test_the_report_joins_the_folders_that_it_is_given(coded):
    meeting, summaries = coded
    folders = [meeting.folder / name(n) for n in meeting.parties]
    [record] = read_records(folders)
    assert len(record.rows) == OPTIONS["rounds"]
    assert record.messages.parties() == [SERVER, 0, 1, 2]
    assert record.summary["messages"] == sum(summaries[n]["messages"] for n in meeting.parties)
    assert "--label digit --id id" in how_to_reproduce(record.config).command
    [partly] = read_records(folders[:2])
    assert set(partly.messages.columns["sender"].tolist()) == {SERVER, 0}
    with pytest.raises(ConfigurationError, match="the steps are in the server's"):
        read_records(folders[1:])
    with pytest.raises(ConfigurationError, match="given twice"):
        read_records([folders[0], folders[0]])


@pytest.fixture
def impatient(monkeypatch):
    """Nobody is there to be waited for, and the waits are real seconds."""
    monkeypatch.setattr("securevfl.engine.organisations.process._LINGER", 0.2)
    monkeypatch.setattr("securevfl.runs.organisations.folder._CLAIM", 0.1)


def test_a_session_that_has_ended_says_so_again_to_who_missed_it(coded, impatient):
    meeting, summaries = coded

    left = meeting.folder / "party-1" / "phases" / "training" / "rounds.svfl"
    left.parent.mkdir()  # as when it was killed after its summary was written
    left.write_bytes(b"shares")

    async def again():
        return await asyncio.wait_for(meeting.take_part(1), 20)

    summary = asyncio.run(again())
    assert not left.exists()
    assert summary["bytes"] == summaries[1]["bytes"]


async def held_with_restarts(meeting, killed):
    """Carry a session out; each of `killed` is cut off in its turn, as a killed process is."""
    tasks = {n: asyncio.ensure_future(meeting.take_part(n)) for n in meeting.parties}
    for round, n in killed:
        log = meeting.folder / "server" / "events.jsonl"
        while not log.exists() or log.read_text().count('"round"') < 2 * round:
            await asyncio.sleep(0.01)
        tasks[n].cancel()
        await asyncio.wait({tasks[n]})
        assert tasks[n].cancelled()
        tasks[n] = asyncio.ensure_future(meeting.take_part(n))
    return dict(zip(tasks, await asyncio.gather(*tasks.values()), strict=True))


def test_restarts_of_parties_and_server_change_no_number(tmp_path, monkeypatch):
    """A hostile carrier drops, doubles, delays, forges and replays meanwhile.

    Wherever a machine's clock is read, it was set back by an hour once more.
    """
    hours = itertools.count(1)
    clock = SimpleNamespace(
        monotonic=time.monotonic, time_ns=lambda: time.time_ns() - next(hours) * 3600 * 10**9
    )
    monkeypatch.setattr("securevfl.runs.organisations.organisation.time", clock)
    options = OPTIONS | {"rounds": 24}
    meeting = Meeting(
        tmp_path, "split", 3, data=DIGITS, options=options, hostility=Hostility.of(0.05)
    )
    with one_thread(), meeting.kept_entropies():
        summaries = asyncio.run(held_with_restarts(meeting, [(3, 1), (8, SERVER)]))
    wanted = simulated(meeting, "split", DataSource("digits", {"parties": 3, "seed": 0}), **options)
    assert losses(meeting) == [row["loss"] for row in wanted.history]
    assert summaries[SERVER]["test_accuracy"] == wanted.summary()["test_accuracy"]
    times = [row["time"] for row in read_history(tmp_path / "server")[0]]
    assert times == sorted(times)
    assert times[0] >= 0
    eras = [e for e in read_history(tmp_path / "party-0")[1] if e["event"] == "era"]
    assert any(era["from_round"] > 0 for era in eras)
    assert meeting.relay.forged > 0
    # Each says what it does; who stayed names who was started again.
    assert [summaries[n]["restarts"] for n in meeting.parties] == [1, 0, 1, 0]
    said = meeting.said[2]
    assert [text for text in said if "started again" in text] == [
        "party 1 was started again", "the server was started again"
    ]  # fmt: skip
    assert said.count("trains") == 1
    assert any(text.startswith("trains, from round") for text in said)
    assert said[-1] == "measures the test rows"


async def held_with_an_old_folder(meeting, n, steps):
    """Carry a session out; in its rounds a party is cut off, and its folder copied or put back."""
    old, folder = meeting.folder / "old", meeting.folder / name(n)
    tasks = {one: asyncio.ensure_future(meeting.take_part(one)) for one in meeting.parties}
    server, read, lives = meeting.folder / "server" / "events.jsonl", "", 0
    for eras, (round, step) in enumerate(steps, 1):
        # The last life must be known: an old copy that takes that very number is not told apart.
        while read.count('"round",') < round or read.count('"era"') < eras - lives:
            assert not tasks[SERVER].done()
            await asyncio.sleep(0.01)
            read = server.read_text() if server.exists() else ""
        if step == "copy while it runs":
            shutil.copytree(folder, old)
            lives = 1
            continue
        tasks[n].cancel()
        await asyncio.wait({tasks[n]})
        if step == "copy":
            shutil.copytree(folder, old)
        elif step == "put back":
            shutil.rmtree(folder)
            shutil.copytree(old, folder)
        tasks[n] = asyncio.ensure_future(meeting.take_part(n))
    return await asyncio.gather(*tasks.values(), return_exceptions=True)


@pytest.mark.parametrize("n", [1, SERVER])
def test_a_copy_of_the_present_life_that_comes_back_is_a_later_one(n, tmp_path, monkeypatch):
    """A snapshot of a running party: its folder knows the very life that the others know."""
    monkeypatch.setattr("securevfl.runs.organisations.join._APART", 1)
    meeting = Meeting(tmp_path, "split", 3, data=DIGITS, options=OPTIONS | {"rounds": 12})
    steps = [(3, "copy while it runs"), (6, "put back")]
    with one_thread(), meeting.kept_entropies():
        ended = asyncio.run(held_with_an_old_folder(meeting, n, steps))
    assert not [error for error in ended if isinstance(error, Exception)]
    options = OPTIONS | {"rounds": 12}
    wanted = simulated(meeting, "split", DataSource("digits", {"parties": 3, "seed": 0}), **options)
    assert losses(meeting) == [row["loss"] for row in wanted.history]
    assert {e["life"] for e in read_history(tmp_path / name(n))[1] if e["event"] == "era"} == {0, 1}
    assert not any("put back from an old copy" in text for text in meeting.said[n])


@pytest.mark.parametrize("n", [1, SERVER])
def test_an_old_copy_of_a_folder_that_comes_back_changes_no_number(n, tmp_path, monkeypatch):
    """The others have heard of lives that it does not know: they took it for silent, for ever."""
    monkeypatch.setattr("securevfl.runs.organisations.join._APART", 1)  # it takes a known life
    meeting = Meeting(tmp_path, "split", 3, data=DIGITS, options=OPTIONS | {"rounds": 24})
    steps = [(3, "copy"), (5, "start"), (6, "start"), (7, "put back")]
    with one_thread(), meeting.kept_entropies():
        ended = asyncio.run(held_with_an_old_folder(meeting, n, steps))
    assert not [error for error in ended if isinstance(error, Exception)]
    options = OPTIONS | {"rounds": 24}
    wanted = simulated(meeting, "split", DataSource("digits", {"parties": 3, "seed": 0}), **options)
    assert losses(meeting) == [row["loss"] for row in wanted.history]
    assert any("put back from an old copy" in text for text in meeting.said[n])


class TwoOfOne(MemoryRelay):
    """A relay at which several processes of one party are connected, and all hear its frames."""

    def __init__(self):
        super().__init__()
        self.all = []

    def carrier(self, index):
        self.all.append(super().carrier(index))
        return self.all[-1]

    def _arrive(self, receiver, frame):
        for carrier in self.all:
            if carrier.index == receiver:
                carrier.arrive(frame)


@pytest.mark.parametrize("n", [1, SERVER])
def test_of_two_live_copies_of_a_folder_the_earlier_ends_in_one_line(n, tmp_path):
    """Each took a life after the other's, for ever, and all others began anew with it."""
    options = OPTIONS | {"rounds": 12}
    meeting = Meeting(tmp_path, "split", 3, data=DIGITS, options=options)
    meeting.relay, copy = TwoOfOne(), tmp_path / "copy"

    async def scenario():
        tasks = {one: asyncio.ensure_future(meeting.take_part(one)) for one in meeting.parties}
        server = tmp_path / "server" / "events.jsonl"
        while not server.exists() or server.read_text().count('"round",') < 3:
            assert not tasks[n].done()
            await asyncio.sleep(0.01)
        shutil.copytree(tmp_path / name(n), copy / name(n))
        shutil.copy(meeting.key(n), copy / meeting.key(n).name)
        second = Member(
            meeting.manifest, n, key=copy / meeting.key(n).name, folder=copy / name(n), data=None
        )
        late = second.take_part(meeting.relay.carrier(n), [].append)
        ended = await asyncio.gather(*tasks.values(), late, return_exceptions=True)
        second.folder.store._lock.release()
        return dict(zip([*tasks, "copy"], ended, strict=True))

    with one_thread(), meeting.kept_entropies():
        ended = asyncio.run(asyncio.wait_for(scenario(), 60))
    first = ended.pop(n)
    assert isinstance(first, RunError)
    assert f"another process takes part as {name_of(n)}, with a copy" in str(first)
    assert not [error for error in ended.values() if isinstance(error, Exception)]
    place = copy / "server" if n == SERVER else tmp_path / "server"
    wanted = simulated(meeting, "split", DataSource("digits", {"parties": 3, "seed": 0}), **options)
    assert [row["loss"] for row in read_history(place)[0]] == [
        row["loss"] for row in wanted.history
    ]


async def held_with_a_loss(meeting, lost, said):
    """Cut a party off once it has said a text, and start it again without its folder."""
    tasks = {n: asyncio.ensure_future(meeting.take_part(n)) for n in meeting.parties}
    while not any(text.startswith(said) for text in meeting.said[SERVER]):
        await asyncio.sleep(0.01)
    tasks[lost].cancel()
    await asyncio.wait({tasks[lost]})
    shutil.rmtree(meeting.folder / name(lost) / "phases" / "training")
    tasks[lost] = asyncio.ensure_future(meeting.take_part(lost))
    await asyncio.wait(tasks.values())
    return {n: task.exception() for n, task in tasks.items()}


@pytest.mark.parametrize(
    ("more", "refuse"),
    [
        ({"epsilon": 2.0}, {0, SERVER}),
        ({"noise_on": "none", "label_epsilon": 1.0}, {SERVER}),
    ],
)
def test_what_was_released_is_not_released_again_where_a_party_lost_its_folder(
    tmp_path, monkeypatch, more, refuse
):
    """Begun anew, all counted from 0, and labels were randomised once more."""
    train = WaitClient.train

    async def silent(self, batch):  # client 1 takes part in the first round only
        await (train(self, batch) if self.index == 0 or self.round == 1 else self.sleep(1e6))

    monkeypatch.setattr(WaitClient, "train", silent)
    options = OPTIONS | {"rounds": 11} | more
    meeting = Meeting(
        tmp_path, "wait_dp", 2, data={"name": "digits", "options": {"parties": 2}}, options=options
    )
    with one_thread():
        ended = asyncio.run(held_with_a_loss(meeting, 1, "round 2"))
    assert all(ended.values())
    found = {n for n, error in ended.items() if "what its guarantee counts" in str(error)}
    assert found
    assert found <= refuse  # who hears of another's error first ends with that


def test_who_is_cut_off_is_named_in_time(tmp_path):
    """Party 1 is stopped: the others name it, and go on when it is there again."""
    meeting = Meeting(tmp_path, "split", 3, data=DIGITS, options=OPTIONS | {"rounds": 12})

    async def scenario():
        tasks = {
            n: asyncio.ensure_future(meeting.take_part(n, patience=0.5)) for n in meeting.parties
        }
        while not any("round" in text for text in meeting.said[SERVER]):
            await asyncio.sleep(0.01)
        tasks[1].cancel()
        await asyncio.wait({tasks[1]})
        while not any("party 1 was not heard for 0.5 s" in text for text in meeting.said[0]):
            await asyncio.sleep(0.01)
        tasks[1] = asyncio.ensure_future(meeting.take_part(1, patience=0.5))
        await asyncio.gather(*tasks.values())

    with one_thread():
        asyncio.run(asyncio.wait_for(scenario(), 60))
    events = read_history(tmp_path / "party-0")[1]
    assert ("silent", "party 1") in [(e["event"], e.get("peer")) for e in events]
    assert len(losses(meeting)) == 12


def test_an_evaluation_waits_for_all_so_that_no_row_stands_in_two_sums(tmp_path):
    options = OPTIONS | {"share_timeout": 1.0, "result_timeout": 1.0}
    meeting = Meeting(tmp_path, "fedvs", 3, data=DIGITS, options=options)
    member = meeting.member(0)
    own = Organisation(member.manifest, member.terms, 0, member.folder, None, print)
    training, evaluation = own.phase("training"), own.phase("evaluation")
    own.log.close()
    member.folder.store._lock.release()
    assert training.tolerant
    assert not evaluation.tolerant
    config = evaluation.assignment.make.make().config
    assert (config.share_timeout, config.result_timeout) == (None, None)
    assert own.make().config.share_timeout == 1.0


def test_a_relay_sees_no_sizes_but_powers_of_two_where_the_terms_say_so(tmp_path):
    """Beacons are left out: they are open, and say nothing of data."""
    options = OPTIONS | {"rounds": 2}
    meeting = Meeting(tmp_path, "split", 2, data={"name": "digits"}, options=options, padded=True)
    beacons = hashlib.sha256(b"channel beacons").digest()[:8]
    sizes, outcome = set(), meeting.relay.outcome

    def seen(receiver, frame):
        if not frame.startswith(beacons):
            sizes.add(len(frame) - 8)  # without the name of the channel
        return outcome(receiver, frame)

    meeting.relay.outcome = seen
    meeting.hold()
    assert all(size & (size - 1) == 0 for size in sizes)
    assert max(sizes) > 4096  # embeddings in parts of their real size


def test_a_relay_that_is_lost_in_the_last_moment_ends_nobody_in_an_error(small, monkeypatch):
    leave = Process.leave

    async def leaving(process, ended):
        small.relay.stop()
        small.relay.start()
        await leave(process, ended)

    monkeypatch.setattr(Process, "leave", leaving)
    assert small.hold()[0]["rounds"] == OPTIONS["rounds"]


def test_an_error_of_one_party_ends_all_and_is_told_by_its_name(tmp_path, monkeypatch):
    meeting = Meeting(tmp_path, "split", 3, data=DIGITS, options=OPTIONS)
    run = Client.run

    async def failing(party):
        if party.index == 2:
            raise ValueError("a secret of party 2")
        await run(party)

    monkeypatch.setattr(Client, "run", failing)

    async def all_of_them():
        tasks = [meeting.take_part(n) for n in meeting.parties]
        return await asyncio.gather(*tasks, return_exceptions=True)

    with one_thread():
        server, *others = asyncio.run(all_of_them())
    assert "party 2 ended with an error" in str(server)
    assert "secret" not in str(server) + str(others[0])
    assert isinstance(others[2], RunError)
    assert "a secret of party 2" in str(others[2])


@pytest.fixture
def small(tmp_path):
    return Meeting(tmp_path, "split", 2, data={"name": "digits"}, options=OPTIONS)


def refused(meeting, n=0, **more):
    given = {"key": meeting.key(n), "folder": meeting.folder / "new", "data": None} | more
    Member(given.pop("manifest", meeting.manifest), n, **given)


def test_a_wrong_signature_in_the_file_is_replaced_by_the_party_s_own(tmp_path):
    """Whoever forwards a manifest could put one in, and the session never began."""
    options = {"rounds": 2, "width": 2}
    meeting = Meeting(
        tmp_path, "split", 2, data={"name": "digits", "options": {"parties": 2}}, options=options
    )
    meeting.manifest = meeting.manifest.with_signature(1, bytes(64))

    async def in_time():
        return await asyncio.wait_for(
            asyncio.gather(*(meeting.take_part(n) for n in meeting.parties)), 60
        )

    with one_thread():
        assert [summary["rounds"] for summary in asyncio.run(in_time())] == [2, 2, 2]


def test_a_wrong_key_is_refused(small):
    with pytest.raises(ConfigurationError, match=r"party 0 is SHA256:.* and this key is SHA256:"):
        refused(small, key=small.key(1))
    assert not (small.folder / "new").exists()


def test_another_version_is_refused(small):
    other = replace(small.manifest, terms={**small.manifest.terms, "version": "0.0.9"})
    with pytest.raises(ConfigurationError, match=r"of version 0\.0\.9 .*this is"):
        refused(small, manifest=other)


def test_a_session_past_its_time_is_refused(small):
    old = replace(
        small.manifest, terms={**small.manifest.terms, "begin_by": "2020-01-01T00:00:00Z"}
    )
    with pytest.raises(ConfigurationError, match="had to begin by 2020"):
        refused(small, manifest=old)


async def let_in(meeting, n, folder):
    """A party whom the relay lets in, and who is then stopped."""
    member = Member(meeting.manifest, n, key=meeting.key(n), folder=folder, data=None)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(member.take_part(meeting.relay.carrier(n), print), 0.2)


def test_a_session_that_was_used_is_refused_in_another_folder(small):
    asyncio.run(let_in(small, 0, small.folder / "new"))
    with pytest.raises(
        ConfigurationError, match=r"was used in another run, in the folder .*new\. A"
    ):
        refused(small, folder=small.folder / "other")
    Member(small.manifest, 1, key=small.key(1), folder=small.folder / "one", data=None)


def test_a_session_is_not_used_before_a_relay_lets_the_party_in(small):
    """A mistyped fingerprint of the relay used the session up, before a word was said."""

    class Refusing(MemoryCarrier):
        async def open(self, take, changed=None):
            raise CarrierError("relay: it has another key")

    member = Member(small.manifest, 0, key=small.key(0), folder=small.folder / "first", data=None)
    with pytest.raises(CarrierError):
        asyncio.run(member.take_part(Refusing(small.relay, 0), print))
    refused(small, folder=small.folder / "other")


def test_keys_that_differ_after_their_last_dot_use_sessions_apart(small):
    for n in (0, 1):
        for suffix in ("", ".pub"):
            place = small.key(n).with_name(f"{small.key(n).name}{suffix}")
            place.rename(small.folder / f"acme.{n}{suffix}")
    for n in (0, 1):
        key = small.folder / f"acme.{n}"
        member = Member(small.manifest, n, key=key, folder=small.folder / f"f{n}", data=None)
        member._use()
    assert {path.name for path in small.folder.glob("*.sessions")} == {
        "acme.0.sessions", "acme.1.sessions"
    }  # fmt: skip


def test_a_folder_of_another_session_or_of_something_else_is_refused(small, tmp_path, impatient):
    (small.folder / "else").mkdir()
    (small.folder / "else" / "thesis.txt").write_text("x")
    with pytest.raises(ConfigurationError, match="no session was begun in it"):
        refused(small, folder=small.folder / "else")
    given = {"key": small.key(0), "folder": small.folder / "new", "data": None}
    first = Member(small.manifest, 0, **given)
    with pytest.raises(RunError, match="another process"):
        refused(small)
    first.folder.store._lock.release()
    other = replace(small.manifest, session="t")
    with pytest.raises(ConfigurationError, match="is of another session, or of another party"):
        refused(small, manifest=other)


@pytest.mark.parametrize(
    ("protocol", "options", "said"),
    [
        ("fedvs", {"width": 8, "batch": 64, "rounds": 200}, "200 rounds give 112 with 1,000"),
        ("fedvs", {}, "reach the unknowns"),
        ("coded_split", {"sum_budget": 0.5, "width": 4, "rounds": 9}, "in 9 rounds at most 36. "),
        ("secagg_split", {"width": 8, "batch": 64, "rounds": 200}, " and 16 with 10,000. "),
        ("he_split", {}, "No budget ends the run"),
        ("split", {}, ""),
    ],
)
def test_what_sums_will_tell_is_said_before_anybody_signs(protocol, options, said, tmp_path):
    tables = {"tables": {"label": "y", "id_column": "id"}}
    made = {n: Identity.create(tmp_path / f"{n}.key") for n in (SERVER, *range(5))}
    terms = Terms.make(protocol, 5, options=options, data=tables)
    entries = {n: ManifestEntry(one.public, None, one.relay_public) for n, one in made.items()}
    Manifest("s", protocol, entries, terms=terms.plain()).write(tmp_path / "s.toml")
    told = invite(tmp_path / "s.toml", ["h:1#" + "a" * 64])
    # What `party join` and `keys check` print, and what `invite` does.
    assert terms.lines(protocol).get("sums", "") == told.get("sums", "")
    assert said in told.get("sums", "")
    assert bool(said) == ("sums" in told)
    assert ("0.5 times" in told.get("sums", "")) == ("sum_budget" in options)


def test_terms_say_which_data_each_needs(small, tables):
    with pytest.raises(ConfigurationError, match="leave --data out"):
        refused(small, data=tables[0])
    with pytest.raises(ConfigurationError, match="cvfl with tables of the parties' own"):
        Terms.make("cvfl", 3, options={}, data={"tables": {"label": "digit", "id_column": "id"}})


@pytest.fixture
def own(tables, tmp_path):
    """A session on tables of the parties' own, of which party 0's is a copy."""
    mine = Path(shutil.copy(tables[0], tmp_path / "mine.csv"))
    return Meeting(
        tmp_path, "split", 3, tables=tables | {0: mine}, options=OPTIONS,
        data={"tables": {"label": "digit", "id_column": "id"}},
    )  # fmt: skip


def test_another_table_than_the_one_that_was_joined_is_refused(own):
    mine = own.tables[0]
    whole = mine.read_text()
    mine.write_text(whole.replace("0.0", "1.0"))
    own.member(0).folder.store._lock.release()
    mine.write_text(whole)
    member = own.member(0)  # nothing was joined yet
    member.folder.pin_data()
    member.folder.store._lock.release()
    mine.write_text(whole.replace("0.0", "1.0"))
    with pytest.raises(ConfigurationError, match="not the table with which this session was begun"):
        own.member(0)


def test_a_table_that_is_wrong_is_mended_and_all_join_again(own):
    mine = own.tables[0]
    whole = mine.read_text()
    lines = whole.splitlines()
    mine.write_text("\n".join([*lines[:7], lines[7].rsplit(",", 1)[0] + ",1O2", *lines[8:]]))

    async def all_of_them():
        tasks = [own.take_part(n) for n in own.parties]
        return await asyncio.gather(*tasks, return_exceptions=True)

    with one_thread():
        _, bank, *others = asyncio.run(all_of_them())
    assert "1O2" in str(bank)
    assert "\n" not in str(bank)
    assert isinstance(bank, DataError)
    assert all("party 0 ended with an error" in str(other) for other in others)
    mine.write_text(whole)
    assert own.hold()[SERVER]["rounds"] == OPTIONS["rounds"]
    state = json.loads((own.folder / "party-0" / "state.json").read_text())
    assert state["data"] == hashlib.sha256(whole.encode()).hexdigest()


@pytest.mark.parametrize(
    ("n", "changed", "said"),
    [
        (0, {"x0": "digit"}, "digit"),
        (0, {"id": "no"}, "'id'"),
        (SERVER, {"digit": "target"}, "has no column 'digit' for the label"),
    ],
)
def test_a_table_is_looked_at_before_anything_is_said(own, tmp_path, n, changed, said):
    frame = pd.read_csv(own.tables[n]).rename(columns=changed)
    frame.to_csv(tmp_path / "wrong.csv", index=False)
    own.tables[n] = tmp_path / "wrong.csv"
    with pytest.raises(DataError, match=said):
        own.member(n)
    assert not (own.folder / name(n)).exists()


@pytest.fixture
def joining(small, monkeypatch):
    """`join` as the command does, over a relay in memory, with what it says."""

    def invited(n, **more):
        relays = (RelayAddress("h", 1, "a" * 64),)
        invitation = Invitation(n, small.manifest.session, small.manifest.digest, relays)
        monkeypatch.setattr(
            joins, "NatsCarrier", lambda relays, token, index, identity: small.relay.carrier(index)
        )
        given = {"key": small.key(n), "folder": small.folder / name(n), "data": None}
        given |= {"manifest": None, "say": small.said[n].append} | more
        return joins.join(invitation, **given)

    return invited


def test_a_client_whose_session_is_over_is_told_so_and_gets_its_result(small, joining, request):
    ended = small.hold()[0]
    request.getfixturevalue("impatient")
    small.said[0].clear()
    assert joining(0) == ended
    said = " ".join(small.said[0])
    assert "signed the session 's': split with 2 parties options: rounds = 5, " in said
    assert "the set 'digits', which each party loads by its name" in said
    assert said.index("options: ") < said.index("Compare this fingerprint")
    assert "this session is over" in said
    with pytest.raises(ConfigurationError, match="was used in another run"):
        joining(0, folder=small.folder / "elsewhere")
    assert not (small.folder / "elsewhere").exists()
    small.manifest = replace(small.manifest, session="t")
    with pytest.raises(ConfigurationError, match="is of the session 's', and the invitation"):
        joining(0)


def test_a_result_is_given_without_a_relay_too(small, joining, monkeypatch):
    async def without_end(carrier, take, changed=None):
        await asyncio.sleep(3600)

    ended = small.hold()[0]
    monkeypatch.setattr(MemoryCarrier, "open", without_end)
    monkeypatch.setattr(joins, "_AGAIN", 0.1)
    assert joining(0) == ended


def test_who_waits_for_the_manifest_says_for_whom(small, monkeypatch):
    said = []
    monkeypatch.setattr("securevfl.engine.organisations.manifests._MOMENT", 0.1)

    async def waiting():
        asked = obtain_manifest(small.relay.carrier(0), 0, b"", said.append, patience=0.2)
        await asyncio.wait_for(asked, 1)

    with pytest.raises(TimeoutError):
        asyncio.run(waiting())
    assert said[0] == "waits for the server, which has the manifest"
    assert "the server was not heard for 0.2 s" in said[1]
    assert len(said) == 2
