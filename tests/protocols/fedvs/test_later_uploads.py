"""Uploads that a simulation computes when the server takes them."""

import pytest

from securevfl.engine.conditions import NONE
from securevfl.engine.party import SERVER
from securevfl.engine.simulation.simulator import Simulation
from securevfl.protocols.fedvs.algorithm import Client
from securevfl.runs.assembly import rules_of
from securevfl.testing.runs import make, paper_conditions
from securevfl.verified import bare_of
from tests.engine.toys import Recorder
from tests.protocols.fedvs.test_algorithm import SMALL, data_of

N, ROUNDS = 9, 4
OPTIONS = {**SMALL, "rounds": ROUNDS, "segments": 2, "privacy": 1, "degree": 1}


def run(lazy, conditions, monkeypatch, **options):
    """Events, columns of messages, models, and how many uploads were computed."""
    made, recorder, computed = make("fedvs", data_of([3] * N), **OPTIONS, **options), Recorder(), []
    evaluate = Client.evaluate

    def counted(self, *given):
        computed.append(self.index)
        return evaluate(self, *given)

    monkeypatch.setattr(Client, "evaluate", counted)
    parties = made.parties()
    given = paper_conditions(made) if conditions is None else conditions
    simulation = Simulation(
        parties, conditions=given, observer=recorder, rules=rules_of(made), lazy=lazy
    )
    simulation.run()
    monkeypatch.undo()
    columns = {name: one.tolist() for name, one in simulation.transcript.columns().items()}
    models = [bare_of(parties[n].network).values.tolist() for n in range(N)]
    return recorder.events, columns, models, len(computed), parties[SERVER].public


@pytest.mark.parametrize("conditions", [NONE, None])
def test_uploads_that_come_too_late_are_not_computed(conditions, monkeypatch):
    *lazy, few, public = run(True, conditions, monkeypatch)
    *eager, many, _ = run(False, conditions, monkeypatch)
    assert lazy == eager
    assert many == N * ROUNDS
    assert few == public.results_needed * ROUNDS < many


def test_at_the_covert_level_every_upload_is_computed_at_once(monkeypatch):
    *lazy, few, _ = run(True, NONE, monkeypatch, security="covert")
    assert few == N * ROUNDS
    assert len(lazy[2]) == N
