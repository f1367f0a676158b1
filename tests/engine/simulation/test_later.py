"""Payloads that are computed when they are taken: the run is the same, and computes less."""

import numpy as np
import pytest

from securevfl.engine import wire
from securevfl.engine.conditions import NONE, Conditions, Delay
from securevfl.engine.faults import faults_from
from securevfl.engine.network import SERVER, Later
from securevfl.engine.party import Party
from securevfl.engine.security.sealing import Sealing
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import Transcript
from tests.engine.toys import Recorder

N, R, ROUNDS = 6, 2, 5
DELAYED = Conditions(uploads=(Delay(0.05, 0.1),) * N, bandwidth=2e4)
LATE = Conditions(uploads=(*(Delay(0.0),) * R, *(Delay(50.0),) * (N - R)), bandwidth=2e4)


class Sender(Party):
    """Sends numbers of its round, and counts how often they were computed."""

    computed = 0

    async def run(self):
        async for round_ in self.rounds():
            with round_:
                self.send(SERVER, "embedding", self.numbers(self.round))

    def numbers(self, round):
        def make():
            self.computed += 1
            return np.full(3, 10 * round + self.index, np.uint32)

        return Later(make, np.broadcast_to(np.uint32(0), 3)) if self.engine.defers else make()


class Taker(Party):
    """Takes the first few of each round."""

    kept = ("taken", "round")

    def __init__(self, index, peers):
        super().__init__(index, peers)
        self.taken = []

    async def run(self):
        while self.round < ROUNDS:
            self.safe_point()
            self.announce(self.round + 1)
            found = await self.collect("embedding", count=R)
            self.taken.append([int(one.sum()) for one in found.values()])
            self.record("round", taken=self.taken[-1])
        self.conclude()


def parties():
    return {SERVER: Taker(SERVER, range(N)), **{n: Sender(n, range(N)) for n in range(N)}}


def begun(lazy, conditions):
    made, recorder = parties(), Recorder()
    return Simulation(made, conditions=conditions, observer=recorder, lazy=lazy), made, recorder


def outcome(simulation, recorder):
    columns = simulation.transcript.columns()
    return recorder.events, {name: one.tolist() for name, one in columns.items()}, simulation.clock


@pytest.mark.parametrize("conditions", [NONE, DELAYED])
def test_a_lazy_run_is_the_same_and_computes_only_what_is_taken(conditions):
    (lazy, few, some), (eager, many, all_) = begun(True, conditions), begun(False, conditions)
    lazy.run()
    eager.run()
    assert outcome(lazy, some) == outcome(eager, all_)
    assert sum(many[n].computed for n in range(N)) == N * ROUNDS
    assert sum(few[n].computed for n in range(N)) == R * ROUNDS


def test_what_is_long_under_way_is_computed_so_that_its_parts_are_freed():
    simulation, made, _ = begun(True, LATE)
    simulation.run()
    late = (N - R) * ROUNDS
    held = 2 * (N + 1)  # the newest messages, of which the last round's first ones were taken
    assert sum(made[n].computed for n in range(N)) == R * ROUNDS + late - (held - 4)


def test_a_checkpoint_holds_the_numbers_of_what_is_under_way():
    whole, _, recorder = begun(True, DELAYED)
    states = []
    rests = iter(range(10**6))

    def pause():
        if next(rests) == 12:
            whole.request_state(lambda state: states.append(wire.encode(state)))
        return False

    whole.run(pause)
    (saved,) = states
    again = Recorder()
    state = wire.decode(saved)
    resumed = Simulation.from_state(parties(), state, conditions=DELAYED, observer=again, lazy=True)
    resumed.run()
    assert again.events == recorder.events[-len(again.events) :]
    assert resumed.clock == whole.clock


EVERYBODY = dict.fromkeys((SERVER, *range(N)))
ROLES = {"server": (SERVER,), "client": range(N)}


@pytest.mark.parametrize(
    "options",
    [
        {"copying": True},
        {"transcript": Transcript(payloads=True)},
        {"conditions": Conditions(compute="measured")},
        {"sealing": Sealing("toy", "run", EVERYBODY)},
        {"faults": faults_from({}).bind(ROLES, 0), "make_party": parties().get},
        {"lazy": False},
    ],
    ids=lambda options: next(iter(options)),
)
def test_nothing_is_deferred_where_others_see_it_or_its_time(options):
    assert not Simulation(parties(), **{"lazy": True, **options}).defers
    assert Simulation(parties(), lazy=True).defers
