import csv

import numpy as np
import pytest

from securevfl.engine.checkpoint import write_file
from securevfl.engine.conditions import Conditions, Delay
from securevfl.engine.party import Party
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import NOT_ARRIVED, Transcript
from securevfl.engine.transcript_rows import COLUMNS
from securevfl.engine.wire import ENVELOPE, decode, encode
from securevfl.errors import CheckpointError

PAYLOADS = [np.zeros((3, 5), np.uint32), {"a": (1, 2)}, "text", None, np.float64(1)]


class Sender(Party):
    async def run(self):
        for number, payload in enumerate(PAYLOADS):
            self.round = number // 2
            self.send(1, f"kind-{number % 2}", payload, after=float(number))
            self.broadcast("all", payload)
            self.send(0, "own", payload)


class Taker(Party):
    async def run(self):
        for _ in range(3):
            await self.receive("kind-0", "kind-1")


def record(**options):
    peers = range(3)
    parties = {0: Sender(0, peers), 1: Taker(1, peers), 2: Taker(2, peers)}
    parties[2].run = lambda: _nothing()
    simulation = Simulation(parties, transcript=Transcript(**options))
    simulation.run()
    return simulation.transcript


async def _nothing():
    pass


def test_bytes_are_those_of_the_encoded_messages():
    transcript = record(payloads=True)
    columns = transcript.columns()
    assert len(transcript) == transcript.messages == 3 * len(PAYLOADS)  # none to oneself
    for row, payload in enumerate(transcript.payloads):
        kind = columns["kind"][row]
        assert columns["bytes"][row] == ENVELOPE + len(kind.encode()) + len(encode(payload))
    assert transcript.bytes == columns["bytes"].sum()


def test_totals_are_sums_of_the_rows_by_round_kind_and_pair():
    transcript = record()
    columns, totals = transcript.columns(), transcript.totals()
    found = {}
    for row in range(len(transcript)):
        key = tuple(columns[name][row] for name in ("round", "kind", "sender", "receiver"))
        entry = found.setdefault(key, [0, 0, 0])
        entry[0] += 1
        entry[1] += columns["bytes"][row]
        entry[2] += columns["late"][row]
    shown = {
        key: [int(m), int(b), int(late)]
        for *key_parts, m, b, late in zip(
            *(totals[n] for n in ("round", "kind", "sender", "receiver")),
            *(totals[n] for n in ("messages", "bytes", "late")),
            strict=True,
        )
        for key in [tuple(key_parts)]
    }
    assert shown == found


def test_times_and_lateness():
    transcript = record()
    columns = transcript.columns()
    direct = np.char.startswith(columns["kind"], "kind")
    assert columns["sent"].tolist() == [0] * len(transcript)
    assert columns["arrived"][direct].tolist() == [n * 10**9 for n in range(len(PAYLOADS))]
    assert columns["late"][direct].tolist() == [0, 0, 0, 1, 1]  # the taker took three and ended
    assert columns["late"][~direct].all()
    assert transcript.late == columns["late"].sum()


def test_a_message_is_late_once():
    transcript = Transcript()
    row = transcript.add(0, 1, "x", 0, 10, 0, None)
    assert transcript.columns()["arrived"][row] == NOT_ARRIVED
    transcript.mark_late(row)
    transcript.mark_late(row)
    assert transcript.late == 1


def test_csv_and_state_hold_the_same(tmp_path):
    transcript = record()
    transcript.write_csv(tmp_path / "messages.csv")
    with open(tmp_path / "messages.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert sum(int(line["bytes"]) for line in lines) == transcript.bytes
    assert sum(int(line["messages"]) for line in lines) == transcript.messages
    again = Transcript.from_state(transcript.state())
    assert (again.bytes, again.late) == (transcript.bytes, transcript.late)
    for name, column in transcript.columns().items():
        assert (again.columns()[name] == column).all()
    again.add(5, 6, "kind-0", 1, 9, 0, None)
    assert again.columns()["kind"][-1] == "kind-0"


def test_an_empty_transcript_has_totals(tmp_path):
    transcript = Transcript()
    assert len(transcript.totals()["bytes"]) == transcript.bytes == transcript.late == 0
    transcript.write_csv(tmp_path / "messages.csv")


def test_a_state_with_other_columns_is_refused():
    state = Transcript().state()
    del state["columns"]["late"]
    with pytest.raises(CheckpointError, match="other columns"):
        Transcript.from_state(state)


def test_delays_show_in_arrivals():
    conditions = Conditions(uploads=(Delay(shift=2.0),), bandwidth=8.0)  # one byte a second
    peers = range(2)
    uploader = Sender(0, peers)

    async def upload():
        uploader.send(1, "embedding", None)
        uploader.send(1, "y", None)

    uploader.run = upload
    taker = Taker(1, peers)
    taker.run = _nothing
    simulation = Simulation({0: uploader, 1: taker}, conditions=conditions)
    simulation.run()
    size_y, size_embedding = ENVELOPE + 1 + 1, ENVELOPE + 9 + 1
    arrived = simulation.transcript.columns()["arrived"] / 1e9
    # "y" leaves at once and keeps the uplink busy; the embedding joins the queue at 2 s.
    assert arrived.tolist() == [size_y + size_embedding, size_y]


# -- older rows leave memory -----------------------------------------------------------------------


@pytest.fixture
def small_chunks(monkeypatch):
    for module in ("transcript", "transcript_rows"):
        monkeypatch.setattr(f"securevfl.engine.{module}.CHUNK", 8)


def feed(transcript, count=100, *, first=0):
    """Messages of which some arrive, are late or are withdrawn when their row is long gone."""
    for n in range(first, first + count):
        row = transcript.add(n % 3, n % 4 + 3, f"kind-{n % 5 // 2}", n // 7, n % 11 + 1, n, None)
        assert row == n == len(transcript) - 1
        if n % 2:
            transcript.arrive(row, 10 * n)
        if n % 3 == 0:
            transcript.arrive(n // 2, 5 * n)
        if n % 5 == 0:
            transcript.mark_late(n // 3)
            transcript.mark_late(n // 3)
        if n % 13 == 0:
            transcript.withdraw(n // 4)


def same(one, other):
    assert (len(one), one.bytes, one.late) == (len(other), other.bytes, other.late)
    assert one.bytes_by_kind() == other.bytes_by_kind()
    for name, column in one.columns().items():
        assert column.tolist() == other.columns()[name].tolist(), name
    for name, column in one.totals().items():
        assert column.tolist() == other.totals()[name].tolist(), name


@pytest.fixture
def plain():
    """All rows in memory, as one chunk."""
    transcript = Transcript()
    feed(transcript)
    return transcript


def test_rows_in_a_folder_and_in_memory_are_the_same(plain, small_chunks, tmp_path):
    spilled, held = Transcript(folder=tmp_path), Transcript()
    for one in (spilled, held):
        feed(one)
        same(one, plain)
    assert len(list(tmp_path.glob("messages-rows-*.svfl"))) == 11
    assert list(tmp_path.glob("messages-changes-*.svfl"))
    assert spilled.spilled
    assert not held.spilled
    assert held.held == 43 * 100


def test_a_checkpoint_names_files_and_goes_on_from_them(plain, small_chunks, tmp_path):
    broken = Transcript(folder=tmp_path)
    feed(broken, 60)
    saved = encode(broken.state())
    feed(broken, 30, first=60)  # it goes on, and is killed: its files of later rows are left over
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    resumed = Transcript.from_state(decode(saved), tmp_path)
    assert resumed.columns()["sender"].tolist() == plain.columns()["sender"].tolist()[:60]
    feed(resumed, 40, first=60)
    same(resumed, plain)
    for path, content in files.items():  # nothing that a checkpoint names was written again
        assert path.read_bytes() == content


def test_a_checkpoint_does_not_grow_with_the_rows(small_chunks, tmp_path):
    transcript = Transcript(folder=tmp_path)
    sizes = []
    for part in range(6):
        feed(transcript, 200, first=200 * part)
        # What changes long after its sending is kept until it fills a file.
        sizes.append(len(transcript.state()["columns"]["sender"]))
        assert len(transcript.state()["older"]["changes"]["row"]) < 16
    assert max(sizes) < 16


def test_a_folder_that_cannot_be_written_leaves_rows_in_memory(
    plain, small_chunks, tmp_path, monkeypatch, caplog
):
    def full(*_):
        raise OSError(28, "No space left on device")

    transcript = Transcript(folder=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("securevfl.engine.transcript_rows.write_file", full)
        feed(transcript, 50)
    assert "stay in it" in caplog.text
    assert not list(tmp_path.iterdir())
    feed(transcript, 50, first=50)
    same(transcript, plain)
    assert list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["gone", "other", "short"])
def test_a_damaged_chunk_is_refused_by_name(small_chunks, tmp_path, damage):
    transcript = Transcript(folder=tmp_path)
    feed(transcript)
    path = tmp_path / "messages-rows-000003.svfl"
    if damage == "gone":
        path.unlink()
    else:
        columns = {name: column[: 8 - (damage == "short")] for name, column in _chunk().items()}
        write_file(path, columns if damage == "short" else {**columns, "more": columns["late"]})
    with pytest.raises(CheckpointError, match="messages-rows-000003"):
        transcript.columns()


def _chunk():
    return {name: np.zeros(8, code) for name, code in COLUMNS.items()}


def test_rounds_are_summed_up_a_few_at_a_time(plain, tmp_path, monkeypatch):
    whole = plain.totals()
    plain.write_csv(tmp_path / "whole.csv")
    monkeypatch.setattr("securevfl.engine.transcript._TOGETHER", 10)
    assert {name: column.tolist() for name, column in plain.totals().items()} == {
        name: column.tolist() for name, column in whole.items()
    }
    plain.write_csv(tmp_path / "parts.csv")
    assert (tmp_path / "parts.csv").read_text() == (tmp_path / "whole.csv").read_text()
    assert len(list(plain._totals())) == 14  # the last round has two messages


def test_numbers_that_fit_no_common_key_are_grouped_all_the_same():
    transcript = Transcript()
    for round in (2**62, 0, 2**62):
        transcript.add(0, 1, "x", round, 5, 0, None)
    found = transcript.totals()
    assert found["round"].tolist() == [0, 2**62]
    assert found["bytes"].tolist() == [5, 10]


def test_messages_that_are_added_at_once_are_those_added_one_by_one(monkeypatch):
    monkeypatch.setattr("securevfl.engine.transcript.CHUNK", 8)  # so that some leave
    single, several = Transcript(), Transcript()
    for round in range(6):
        for kind in ("model", "shared"):
            rows = [single.add(2, n, kind, round, 40 + round, 7 * round, None) for n in (0, 1, 3)]
            assert several.add_each(2, (0, 1, 3), kind, round, 40 + round, 7 * round) == rows[0]
    assert several.kinds == single.kinds
    assert (several.bytes, several.bytes_by_kind()) == (single.bytes, single.bytes_by_kind())
    for name, column in single.columns().items():
        assert np.array_equal(several.columns()[name], column), name
