"""A resumed run equals the unbroken one, bit for bit, wherever it was cut."""

from dataclasses import replace

import numpy as np
import pytest

from securevfl.engine import wire
from securevfl.engine.conditions import Conditions, Delay, paper
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import CheckpointError
from tests.engine.toys import TOYS, FedVSServer, Recorder, fedvs_like

CONDITIONS = {
    "paper": paper(6, batch_rows=16),
    "slow uplinks": Conditions(
        uploads=tuple(Delay(0.05, 0.1 * (n % 3)) for n in range(6)),
        share_factor=0.7,
        bandwidth=20_000.0,
    ),
    "none": Conditions(),
    "modelled": Conditions(
        uploads=(Delay(0.1),) * 6,
        bandwidth=1e5,
        compute="modelled",
        seconds_per_multiply_add=5e-5,
    ),
    "occupies": replace(paper(6, batch_rows=16), delay_mode="occupies"),
    "abort": replace(paper(6, batch_rows=16), delay_mode="abort"),
    "downlinks": replace(paper(6, batch_rows=16), downlinks=(2e4,) * 6),
}
SEED = 11


def finish(simulation, recorder):
    simulation.run()
    parties = {index: slot.party for index, slot in simulation.slots.items()}
    kept = {
        index: wire.encode({str(name): getattr(party, name) for name in party.kept})
        for index, party in parties.items()
    }
    columns = wire.encode(simulation.transcript.columns() | {"kind": None})
    kinds = simulation.transcript.columns()["kind"].tolist()
    return recorder.events, kept, columns, kinds, simulation.clock


def start(make, conditions):
    recorder = Recorder()
    return Simulation(make(), seed=SEED, conditions=conditions, observer=recorder), recorder


def resume(make, conditions, saved):
    """Simulation of the state's bytes, with the history until then."""
    state = wire.decode(saved[0])
    recorder = Recorder()
    recorder.events = list(saved[1])
    options = {"conditions": conditions, "observer": recorder}
    return Simulation.from_state(make(), state, **options), recorder


def run_with_cuts(simulation, recorder, instants, *, leave=False):
    """Run and return the states asked for at these numbers of instants.

    The run goes on to its end, or if asked for until it has given a state.
    """
    states, counter = [], iter(range(10**9))
    wanted = set(instants)

    def pause():
        if next(counter) in wanted:
            simulation.request_state(
                lambda state: states.append((wire.encode(state), list(recorder.events)))
            )
        return leave and bool(states)

    simulation.run(pause)
    return states


def states_at(make, conditions, instants):
    """States asked for at these instants, by instant, of as few runs as can be."""
    found = {}
    while left := set(instants) - set(found):
        more = states_in_turn(*start(make, conditions), left)
        assert more
        found |= more
    return found


def states_in_turn(simulation, recorder, instants):
    """States of one run by instant; those at which another is waited for are left out."""
    found, asked, now = {}, None, -1

    def keep(state):
        nonlocal asked
        found[asked], asked = (wire.encode(state), list(recorder.events)), None

    def pause():
        nonlocal asked, now
        now += 1
        if asked is None and now in instants:
            asked = now
            simulation.request_state(keep)
        return asked is None and now >= max(instants)

    simulation.run(pause)
    return found


def whole_run(make, conditions):
    """What a run ends with, and its number of instants."""
    simulation, recorder = start(make, conditions)
    count = iter(range(10**9))
    simulation.run(lambda: next(count) < 0)
    return finish(simulation, recorder), next(count)


CUTS = {
    "paper": 20,
    "slow uplinks": 10,
    "none": 10,
    "modelled": 8,
    "occupies": 8,
    "abort": 8,
    "downlinks": 8,
}


@pytest.mark.parametrize("conditions", CONDITIONS)
@pytest.mark.parametrize("name", TOYS)
def test_resume_at_random_cuts(name, conditions):
    make, number, conditions = TOYS[name], CUTS[conditions], CONDITIONS[conditions]
    whole, total = whole_run(make, conditions)
    drawn = np.random.default_rng(1).choice(total, min(number, total), replace=False)
    in_flight = 0
    cuts = {0, 1, 2, *drawn.tolist()}  # the first ones lie in setup
    for cut, saved in states_at(make, conditions, cuts).items():
        in_flight += bool(wire.decode(saved[0])["queue"])
        assert finish(*resume(make, conditions, saved)) == whole, f"cut at instant {cut}"
    assert in_flight > number / 2


def test_some_parties_are_done_at_the_cut_while_others_go_on():
    make, conditions = TOYS["hasty"], CONDITIONS["none"]
    whole, total = whole_run(make, conditions)
    states = run_with_cuts(*start(make, conditions), range(0, total, 5))
    mixed = 0
    for saved in states:
        done = [p["done"] for p in wire.decode(saved[0])["parties"].values()]
        mixed += any(done) and not all(done)
        assert finish(*resume(make, conditions, saved)) == whole
    assert mixed >= 5


@pytest.mark.parametrize("name", TOYS)
def test_a_resumed_run_is_cut_and_resumed_again_and_again(name):
    make, conditions = TOYS[name], CONDITIONS["slow uplinks"]
    whole = finish(*start(make, conditions))
    rng = np.random.default_rng(3)
    for _ in range(6):
        simulation, recorder = start(make, conditions)
        cuts = 0
        while True:
            cut = [int(rng.integers(1, 12))]
            states = run_with_cuts(simulation, recorder, cut, leave=True)
            if not states:
                break
            cuts += 1
            simulation, recorder = resume(make, conditions, states[0])
        assert simulation.finished
        assert finish(simulation, recorder) == whole
        assert cuts > 5


def test_two_cuts_of_one_run_and_a_request_that_replaces_another():
    make, conditions = TOYS["vafl"], CONDITIONS["paper"]
    whole, total = whole_run(make, conditions)
    simulation, recorder = start(make, conditions)
    states = run_with_cuts(simulation, recorder, [10, 11, 12, total - 60, total - 5])
    assert 2 <= len(states) <= 3
    for saved in states:
        assert finish(*resume(make, conditions, saved)) == whole


def test_asking_for_states_changes_nothing():
    make, conditions = TOYS["dvfl"], CONDITIONS["paper"]
    whole = finish(*start(make, conditions))
    simulation, recorder = start(make, conditions)
    run_with_cuts(simulation, recorder, range(0, 1000, 3))
    assert recorder.events == whole[0]


def test_pausing_and_going_on_changes_nothing():
    make, conditions = TOYS["hasty"], CONDITIONS["paper"]
    whole = finish(*start(make, conditions))
    simulation, recorder = start(make, conditions)
    steps = iter(range(10**9))
    while not simulation.finished:
        simulation.run(lambda: next(steps) % 7 == 0)
    assert finish(simulation, recorder) == whole


def test_a_state_of_other_parties_or_another_protocol_is_refused():
    conditions = CONDITIONS["none"]
    simulation, recorder = start(fedvs_like, conditions)
    (saved,) = run_with_cuts(simulation, recorder, [5])

    def fewer():
        parties = fedvs_like()
        del parties[5]
        return parties

    class Other(FedVSServer):
        kept = ("state",)

    def other():
        return fedvs_like() | {-1: Other(range(6), 8)}

    with pytest.raises(CheckpointError, match="another run"):
        resume(fewer, conditions, saved)
    with pytest.raises(CheckpointError, match="another version of this protocol"):
        resume(other, conditions, saved)


def test_a_run_without_delays_is_one_instant_and_can_be_cut_all_the_same(monkeypatch):
    monkeypatch.setattr("securevfl.engine.simulation.simulator._LOOK", 7)
    for name in ("fedvs", "hasty"):
        make, conditions = TOYS[name], CONDITIONS["none"]
        whole, total = whole_run(make, conditions)
        for cut in range(1, total, 9):
            for saved in run_with_cuts(*start(make, conditions), [cut], leave=True):
                assert finish(*resume(make, conditions, saved)) == whole
