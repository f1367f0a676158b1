"""Lost and late messages: no client loses a gradient that it got, and losses do not change by it.

A link brings messages in the order in which they were sent, each after a wait by chance, as one
does that sends again what was lost; or it loses one for good. A setting is a function of its seed.
``SECUREVFL_LATE=200 pytest -n 0 tests/protocols/test_late_messages.py`` tries 200 seeds.
"""

import os
from collections import Counter, defaultdict
from contextlib import suppress
from functools import cache

import numpy as np
import pytest

from securevfl.data import load_dataset
from securevfl.engine import wire
from securevfl.engine.conditions import NONE
from securevfl.engine.faults import Faults, Outage
from securevfl.engine.network import SERVER
from securevfl.engine.party import ANNOUNCE
from securevfl.engine.simulation.event_queue import ARRIVE
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import NotEnoughResultsError
from securevfl.protocols.base.summed_parties import SummedClient
from securevfl.protocols.fedvs.algorithm import Client
from securevfl.runs.threads import one_thread
from securevfl.testing.runs import TINY, History, make, paper_conditions, simulate
from securevfl.verified import bare_of

SEEDS = range(int(os.environ.get("SECUREVFL_LATE", "6")))
SMALL = TINY | {"rounds": 6}
PARTIES, RESULTS = 6, 3  # N, and R at K = T = 1
FEDVS = {"segments": 1}
WAITS = {
    "fedvs": FEDVS,
    "fedvs of the paper": FEDVS | {"masked": False},
    "fedvs with coded inference": FEDVS | {"secure": True},
    "secagg_split of all": {"quorum": PARTIES},  # else the first uploads are the sum
}


class ShakyLinks(Simulation):
    """A simulation whose links let messages wait by chance, and lose those that a rule names."""

    def __init__(self, parties, seed, loses=lambda message, chance: False, **more):
        super().__init__(parties, seed=seed, **more)
        self._chance = np.random.default_rng([2026, seed])
        self._loses = loses
        self._free = {}
        self.lost = 0
        self.came = defaultdict(set)  # (receiver, kind): rounds of the server's messages

    def _transmit(self, together):
        for message, _ in together:
            self._wait(message)

    def _wait(self, message):
        wait = 0 if self._chance.random() < 0.7 else int(self._chance.exponential(1e9))
        if message.round and self._loses(message, self._chance):  # set-up is not repeated
            self.lost += 1
            return
        link = message.sender, message.receiver
        self._free[link] = max(self._free.get(link, 0), self._queue.now + wait)
        self._queue.schedule(self._free[link], ARRIVE, message)

    def _arrive(self, message):
        if message.sender == SERVER:
            self.came[message.receiver, message.kind].add(message.round)
        super()._arrive(message)


def shaken(name, options, seed, **more):
    """A run over such links: its losses, its parties and its simulation."""
    made, history = make(name, seed=seed, defaults=SMALL, **options), History()
    simulation = ShakyLinks(made.parties(), seed, observer=history, secrets=made.secrets, **more)
    with one_thread():
        simulation.run()
    losses = [event.fields["loss"] for event in history.events if event.name == "round"]
    return losses, simulation.parties, simulation


def models_of(parties):
    """Clients' models and optimisers, as bytes."""
    return [wire.encode(parties[n].network.state_dict()) for n in range(PARTIES)]


@cache
def quiet(variant, seed):
    """Losses and clients' models of the run in which every message comes at once."""
    run = simulate(
        variant.partition(" ")[0], seed=seed, conditions=NONE, defaults=SMALL, **WAITS[variant]
    )
    return run.losses, models_of(run.parties)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("variant", WAITS)
def test_late_messages_change_no_loss_and_no_model(variant, seed):
    losses, parties, _ = shaken(variant.partition(" ")[0], WAITS[variant], seed)
    wanted, models = quiet(variant, seed)
    assert losses == wanted
    assert models_of(parties) == models


@pytest.mark.parametrize("seed", SEEDS)
def test_lost_shares_and_uploads_change_no_loss_where_enough_results_come(seed):
    """N - R clients may miss any shares of models, and their uploads may be lost."""
    victims = set(np.random.default_rng(seed).permutation(PARTIES)[RESULTS:].tolist())

    def loses(message, chance):
        missing = message.kind == "model" and message.receiver in victims
        unheard = message.kind == "embedding" and message.sender in victims
        return (missing or unheard) and chance.random() < 0.4

    losses, parties, simulation = shaken("fedvs", FEDVS, seed, loses=loses)
    wanted, models = quiet("fedvs", seed)
    assert simulation.lost > 0
    assert losses == wanted
    assert models_of(parties) == models


@pytest.mark.parametrize(("name", "parties"), [("fedvs", 6), ("secagg_split", 9)])
def test_who_never_heard_of_a_round_takes_its_step_before_the_next(name, parties):
    """An honest client was in dispute with an honest server: it did not know what it lacked."""
    options = {"share_timeout": 9.0, "result_timeout": 9.0, "security": "covert"}
    if name == "fedvs":
        options |= {"degree": 1, "sum_budget": 0.0}

    def loses(message, chance):
        return (message.kind, message.receiver, message.round) == (ANNOUNCE, 4, 3)

    data = load_dataset("digits", parties=parties).subset(40, 10)
    made, history = make(name, data, seed=1, defaults=SMALL, **options), History()
    simulation = ShakyLinks(made.parties(), 1, observer=history, secrets=made.secrets, loses=loses)
    with one_thread():
        simulation.run()
    assert simulation.lost == 1
    names = Counter(event.name for event in history.events)
    assert names["round"] == SMALL["rounds"]
    assert not names["refused"]
    assert not names["given_up"]
    stories = {bare_of(party.story[0]).tobytes() for party in simulation.parties.values()}
    assert len(stories) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_each_gradient_that_comes_is_used_once_and_in_order(seed, monkeypatch):
    """Any message may be lost; timeouts let the server go on without it."""
    used, update = defaultdict(list), Client.update

    def noting(client, batch, attempt, gradient):
        if client.index in attempt.sharers:
            used[client.index].append(client.round)
        return update(client, batch, attempt, gradient)

    monkeypatch.setattr(Client, "update", noting)
    summed = {}  # sharers by round
    options = FEDVS | {
        "share_timeout": 2.0,
        "result_timeout": 2.0,
        "max_attempts": 60,
        "cohorts": 0,
    }
    made = make("fedvs", seed=seed, defaults=SMALL, **options)

    def loses(message, chance):
        if message.kind == "attempt":
            summed[message.round] = message.payload.sharers
        stop = isinstance(message.payload, str)
        return not stop and chance.random() < 0.08

    simulation = ShakyLinks(made.parties(), seed, loses=loses)
    with one_thread(), suppress(NotEnoughResultsError):
        simulation.run()
    assert sum(map(len, used.values())) > PARTIES
    for n in range(PARTIES):
        heard = [simulation.came[n, kind] for kind in (ANNOUNCE, "attempt", "gradient")]
        wanted = sorted(round for round in set.intersection(*heard) if n in summed[round])
        assert used[n] == wanted


@pytest.mark.parametrize("seed", SEEDS)
def test_each_survivor_of_a_secure_aggregation_uses_its_gradient(seed, monkeypatch):
    """Whose uploads come first depends on time; each of these clients steps, and nobody else."""
    steps, update = Counter(), SummedClient.update

    def counting(client, *given):
        steps[client.index] += 1
        update(client, *given)

    monkeypatch.setattr(SummedClient, "update", counting)
    losses, parties, _ = shaken("secagg_split", {"quorum": 4, "cohorts": 0}, seed)
    assert len(losses) == SMALL["rounds"]
    assert [steps[n] for n in range(PARTIES)] == parties[SERVER].answered.tolist()
    assert sum(steps.values()) == 4 * SMALL["rounds"]


@pytest.mark.parametrize("timing", ["at once", "late"])
def test_links_between_clients_that_are_down_change_no_loss(timing):
    """Two clients get no share of a third for two rounds: both use the gradients all the same."""
    outages = tuple(Outage((2, n), rounds=(2, 4), one_way=True) for n in (0, 4))
    made = make("fedvs", defaults=SMALL, **FEDVS)
    conditions = NONE if timing == "at once" else paper_conditions(made)
    run = simulate(
        "fedvs", conditions=conditions, faults=Faults(outages=outages), defaults=SMALL, **FEDVS
    )
    wanted, models = quiet("fedvs", 0)
    assert sum(event.name == "lost" for event in run.events) == 4
    assert run.losses == wanted
    assert models_of(run.parties) == models
