"""What a delay is: latency of a message, or work that keeps its sender busy and may be dropped."""

import pytest

from securevfl.engine.conditions import Conditions, Delay
from securevfl.engine.network import SERVER
from securevfl.engine.party import Party
from securevfl.engine.simulation.simulator import Simulation
from tests.engine.toys import Recorder


class Client(Party):
    """Sends an embedding whenever it is asked, then notes that it goes on."""

    async def run(self):
        for _ in range(3):
            await self.receive("ask")
            self.round = self.envelope.round
            self.send(SERVER, "embedding", None)
            self.send(SERVER, "note", None)
            self.record("asked")
        await self.receive("end")


class Server(Party):
    """Asks in rounds 1 to 3 at 0, 1 and 2 s, and hears what comes; a round needs no answer."""

    async def run(self):
        for round in (1, 2, 3):
            self.round = round
            self.broadcast("ask", None)
            await self.sleep(1.0)
        await self.sleep(20.0)
        self.broadcast("end", None)


def events(mode, seconds=4.0, **more):
    recorder = Recorder()
    parties = {SERVER: Server(SERVER, [0]), 0: Client(0, [0])}
    conditions = Conditions(uploads=(Delay(0.0, seconds),), delay_mode=mode, **more)
    simulation = Simulation(parties, conditions=conditions, observer=recorder)
    simulation.run()
    columns = simulation.transcript.columns()
    arrived = {
        kind: [int(t) / 1e9 for t in columns["arrived"][columns["kind"] == kind]]
        for kind in ("embedding", "note")
    }
    asked = [event[0] / 1e9 for event in recorder.events if event[3] == "asked"]
    return asked, arrived, simulation.transcript


def test_latency_holds_up_the_message_and_nobody_else():
    asked, arrived, _ = events("latency")
    assert asked == [0, 1, 2]
    assert arrived == {"embedding": [4, 5, 6], "note": [0, 1, 2]}


def test_work_holds_up_its_sender_and_all_that_it_sends():
    asked, arrived, _ = events("occupies")
    assert asked == [0, 4, 8]
    assert arrived == {"embedding": [4, 8, 12], "note": [4, 8, 12]}


def test_work_of_a_round_that_is_over_is_dropped():
    asked, arrived, transcript = events("abort")
    assert asked == [0, 1, 2]
    assert arrived["embedding"] == [-0.000000001, -0.000000001, 6]
    sizes = transcript.columns()["bytes"][transcript.columns()["kind"] == "embedding"]
    assert sizes[0] == sizes[1] == 0 < sizes[2]
    assert transcript.bytes == int(transcript.columns()["bytes"].sum())


def test_work_that_is_through_in_time_is_not_dropped():
    asked, arrived, _ = events("abort", 0.9)
    assert (asked, arrived["embedding"]) == ([0, 1, 2], [0.9, 1.9, 2.9])


class Closing(Client):
    round_ends = ("ask",)


@pytest.mark.parametrize(("mode", "sent"), [("occupies", 3), ("abort", 0)])
def test_a_party_names_the_messages_that_end_their_own_round(mode, sent):
    """An ask of round r says that round r is over: all of its work comes too late."""
    parties = {SERVER: Server(SERVER, [0]), 0: Closing(0, [0])}
    conditions = Conditions(uploads=(Delay(0.0, 0.5),), delay_mode=mode)
    simulation = Simulation(parties, conditions=conditions)
    simulation.run()
    columns = simulation.transcript.columns()
    assert (columns["arrived"][columns["kind"] == "embedding"] >= 0).sum() == sent


def test_several_messages_of_one_activity_are_one_piece_of_work():
    class Sharer(Client):
        async def run(self):
            self.send(SERVER, "model", None)
            self.send(SERVER, "shared", None)
            await self.receive("end")

    parties = {SERVER: Server(SERVER, [0]), 0: Sharer(0, [0])}
    conditions = Conditions(uploads=(Delay(0.0, 4.0),), share_factor=0.5, delay_mode="occupies")
    simulation = Simulation(parties, conditions=conditions)
    simulation.run()
    columns = simulation.transcript.columns()
    both = (columns["kind"] == "model") | (columns["kind"] == "shared")
    assert columns["arrived"][both].tolist() == [2_000_000_000] * 2
