"""Arrivals without an event of their own change nothing, and cost less."""

from typing import ClassVar

import numpy as np
import pytest

from securevfl.engine.conditions import NONE, Conditions, Delay, paper
from securevfl.engine.party import Party
from securevfl.engine.simulation.simulator import Simulation
from tests.engine.simulation.test_snapshots import CONDITIONS
from tests.engine.toys import TOYS, Recorder

KINDS = ("x", "y", "z", "handled")


class Wanderer(Party):
    """Sends and waits by chance, and notes what it heard when."""

    activities: ClassVar = {"x": "upload", "y": "share"}

    def __init__(self, index, peers, seed):
        super().__init__(index, peers)
        self.chance = np.random.default_rng([seed, index])
        self.heard = []

    def hear(self, message):
        value = int(np.max(message.payload))
        self.heard.append((self.now, "handled", message.sender, value))
        if value % 3 == 0:
            self.send(message.sender, "z", value + 1)

    async def run(self):
        for step in range(25):
            self.round = int(self.chance.integers(step // 3 + 1))
            await getattr(self, str(self.chance.choice(("tell", "tell", "get", "all", "rest"))))()
            if step == self.index:
                self.on("handled", self.hear)
            if step % 10 == 9:
                self.engine.enter_round(self, step // 4)
                self.record("round", step=step)

    async def tell(self):
        kind, payload = str(self.chance.choice(KINDS)), int(self.chance.integers(1000))
        if self.chance.random() < 0.4:
            self.share(kind, np.full((len(self.peers), 3), payload))
        else:
            some = self.chance.permutation(self.peers)[: self.chance.integers(1, 5)].tolist()
            self.broadcast(kind, payload, to=some)

    async def get(self):
        kinds = self.chance.choice(KINDS[:3], 2, replace=False).tolist()
        try:
            self.heard.append((self.now, str(await self.receive(*kinds, timeout=0.5))))
        except TimeoutError:
            self.heard.append((self.now, "nothing"))

    async def all(self):
        count = int(self.chance.integers(1, len(self.peers)))
        groups = ((0, 1), (2, 3, 4)) if count < 3 and self.chance.random() < 0.3 else ()
        found = await self.collect(
            str(self.chance.choice(KINDS[:3])), count=count, timeout=0.7, groups=groups
        )
        self.heard.append((self.now, sorted(found), str(list(found.values()))))

    async def rest(self):
        await self.sleep(float(self.chance.exponential(0.3)))


class LateCounter(Recorder):
    """Notes with each event how many messages were late by then."""

    def record(self, event):
        super().record(event)
        self.events.append(self.transcript.late)


def ended(simulation, *, quiet, pauses=None):
    for slot in simulation.slots.values():
        slot._quiet = slot._quiet and quiet
    simulation.observer.transcript = simulation.transcript
    if pauses is None:
        simulation.run()
    else:
        simulation.run(lambda: pauses.append(simulation.clock))
    columns = {name: column.tolist() for name, column in simulation.transcript.columns().items()}
    return simulation.observer.events, columns, simulation.clock


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    "conditions",
    [
        NONE,
        Conditions(bandwidth=1e4),
        Conditions(uploads=(Delay(0.2),) * 5, bandwidth=3e3, downlinks=(2e3,) * 5),
        Conditions(uploads=(Delay(0.1),) * 5, delay_mode="occupies", share_factor=0.5),
    ],
    ids=["none", "bandwidth", "downlinks", "occupies"],
)
def test_parties_that_send_and_wait_by_chance_hear_the_same(conditions, seed):
    found = []
    for quiet in (True, False):
        made = {n: Wanderer(n, range(5), seed) for n in range(5)}
        simulation = Simulation(made, conditions=conditions, observer=LateCounter())
        found.append((ended(simulation, quiet=quiet), [party.heard for party in made.values()]))
    assert found[0] == found[1]
    assert sum(map(len, found[0][1])) > 30


@pytest.mark.parametrize("conditions", CONDITIONS)
@pytest.mark.parametrize("toy", TOYS)
def test_a_run_and_its_pauses_are_the_same(toy, conditions):
    found, pauses = [], ([], [])
    for quiet, own in zip((True, False), pauses, strict=True):
        options = {"conditions": CONDITIONS[conditions], "observer": LateCounter()}
        found.append(ended(Simulation(TOYS[toy](), seed=5, **options), quiet=quiet, pauses=own))
    assert found[0] == found[1]
    # After each instant; within one it is asked the more often, the more events there are.
    times = [list(dict.fromkeys(own)) for own in pauses]
    assert times[0] == times[1]


def test_a_collect_of_many_wakes_its_party_once():
    """Events grow with the parties, and messages with their square."""
    events = {}

    async def talk(party):
        for number in range(1, 6):
            party.round = number
            party.broadcast("model", number, to=party.peers)
            await party.collect("model")

    for N in (8, 32):
        made = {n: Party(n, range(N)) for n in range(N)}
        for party in made.values():
            party.run = lambda party=party: talk(party)
        simulation = Simulation(made, conditions=paper(N, batch_rows=16))
        pop, popped = simulation._queue.pop, []
        simulation._queue.pop = lambda pop=pop, popped=popped: popped.append(0) or pop()
        simulation.run()
        assert simulation.transcript.messages == 5 * N * (N - 1)
        events[N] = len(popped)
    assert events[32] < 5 * events[8]
