import csv

import numpy as np
import pytest

from securevfl.engine.conditions import Conditions, Delay
from securevfl.engine.party import Party
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import NOT_ARRIVED, Transcript
from securevfl.engine.wire import ENVELOPE, encode
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
