"""Downlinks: what the server sends queues on its receiver's, and nothing else does."""

import pytest

import securevfl as svfl
from securevfl.engine import wire
from securevfl.engine.conditions import Conditions
from securevfl.engine.conditions_file import load_conditions
from securevfl.engine.network import SERVER
from securevfl.engine.party import Party
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import ConfigurationError

UP, DOWN = 8000.0, 800.0  # bits a second: 1000 and 100 bytes


class Server(Party):
    async def run(self):
        for _ in range(2):
            self.broadcast("ask", bytes(80))
        await self.collect("answer")


class Client(Party):
    async def run(self):
        for _ in range(2):
            await self.receive("ask")
        self.send(1 - self.index, "word", bytes(80))
        await self.receive("word")
        self.send(SERVER, "answer", None)


def arrivals(**links):
    parties = {SERVER: Server(SERVER, [0, 1]), 0: Client(0, [0, 1]), 1: Client(1, [0, 1])}
    simulation = Simulation(parties, conditions=Conditions(bandwidth=UP, **links))
    simulation.run()
    columns = simulation.transcript.columns()
    rows = zip(*(columns[name].tolist() for name in ("kind", "receiver", "arrived")), strict=True)
    return [(kind, to, time / 1e9) for kind, to, time in rows]


def test_messages_of_the_server_pass_its_uplink_and_then_the_receivers_downlink_in_turn():
    size = wire.envelope("ask") + wire.size(bytes(80))
    up, down = 8 * size / UP, 8 * size / DOWN
    asks = [row for row in arrivals(downlinks=(DOWN, None)) if row[0] == "ask"]
    # Sent in turn: to 0, to 1, to 0, to 1. Client 0's second one waits for the first.
    first = up + down
    assert [time for *_, time in asks] == pytest.approx([first, 2 * up, first + down, 4 * up])


def test_messages_of_clients_pass_no_downlink():
    free, limited = (
        {row[:2]: row[2] for row in rows if row[0] in ("word", "answer")}
        for rows in (arrivals(), arrivals(downlinks=(1e9, 1e9)))
    )
    assert free == pytest.approx(limited, abs=1e-5)


def test_downlinks_are_read_written_and_shown():
    source = {"downlinks": [1e6, 0, 2e6], "share_factor": 0}
    made = load_conditions(source, parties=3, batch_rows=8)
    assert made.downlinks == (1e6, None, 2e6)
    again = {key: value for key, value in made.describe().items() if key != "name"}
    assert load_conditions(again, parties=3, batch_rows=8).downlinks == made.downlinks
    assert load_conditions({"downlinks": 5e5}, parties=2, batch_rows=8).downlinks == (5e5, 5e5)
    data = svfl.load_dataset("digits", parties=3).subset(64, 20)
    run = svfl.run("split", data, rounds=2, batch=32, width=4, hidden=4, conditions=made)
    assert run.summary()["downlinks"] == [1e6, 0.0, 2e6]
    free = svfl.run("split", data, rounds=2, batch=32, width=4, hidden=4, conditions="none")
    assert free.summary()["downlinks"] is None
    assert free.virtual_seconds < run.virtual_seconds


@pytest.mark.parametrize("rate", [-1.0, float("inf"), "fast"])
def test_a_rate_must_be_a_positive_number(rate):
    with pytest.raises(ConfigurationError, match=r"bandwidth of|numbers only"):
        load_conditions({"downlinks": [rate, 1e6]}, parties=2, batch_rows=8)
