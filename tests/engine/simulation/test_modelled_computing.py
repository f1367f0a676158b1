"""Computing time by a cost model: who is busy for how long, and that it resumes and replays."""

import pytest

from securevfl.engine.conditions import Conditions, Delay
from securevfl.engine.network import SERVER
from securevfl.engine.party import Party
from securevfl.engine.simulation.simulator import Simulation
from tests.engine.simulation.test_snapshots import finish, resume, run_with_cuts
from tests.engine.toys import TOYS, Recorder

MODELLED = Conditions(
    uploads=tuple(Delay(0.05) for _ in range(6)),
    share_factor=0.5,
    compute="modelled",
    seconds_per_multiply_add=0.5,
)


class Worker(Party):
    async def run(self):
        self.send(SERVER, "light", None)
        self.send(SERVER, "heavy", None)
        self.send(SERVER, "light", None, round=1)
        await self.receive("go")
        self.record("went")

    def operations(self, kind):
        return {"heavy": 4}.get(kind, 0)


class Listener(Party):
    async def run(self):
        self.broadcast("go", None)
        for _ in range(3):
            await self.receive("light", "heavy")
            self.record("heard", kind=self.envelope.kind)


def heard(conditions):
    recorder = Recorder()
    parties = {SERVER: Listener(SERVER, [0]), 0: Worker(0, [0])}
    Simulation(parties, conditions=conditions, observer=recorder).run()
    return [(event[0] / 1e9, event[3]) for event in recorder.events]


def test_a_busy_party_sends_when_it_is_done_and_goes_on_only_then():
    times = heard(Conditions(compute="modelled", seconds_per_multiply_add=0.5))
    assert sorted(times) == [
        (0.0, "heard"),
        (2.0, "heard"),  # 4 operations of half a second
        (2.0, "heard"),  # what is sent later departs later
        (2.0, "went"),  # "go" came at 0 s
    ]


def test_operations_cost_nothing_where_computing_is_not_modelled():
    assert {time for time, _ in heard(Conditions())} == {0.0}


def working(name):
    """A toy whose clients work for what they send."""
    parties = TOYS[name]()
    for index, party in parties.items():
        if index != SERVER:
            party.operations = lambda kind, n=index: n if kind in ("model", "embedding") else 0
    return parties


@pytest.mark.parametrize("name", TOYS)
def test_a_modelled_run_replays_and_resumes_bit_for_bit(name):
    def make():
        return working(name)

    def start():
        recorder = Recorder()
        return Simulation(make(), seed=11, conditions=MODELLED, observer=recorder), recorder

    whole = finish(*start())
    assert finish(*start()) == whole
    simulation, recorder = start()
    cuts = range(0, 120, 11)
    states = run_with_cuts(simulation, recorder, cuts)
    assert states
    for saved in states:
        assert finish(*resume(make, MODELLED, saved)) == whole
