"""Uploads of coded_split that a simulation computes when the server takes them."""

import pytest

from securevfl.engine.conditions import NONE
from securevfl.engine.party import SERVER
from securevfl.engine.simulation.simulator import Simulation
from securevfl.protocols.coded_split.algorithm import Holder
from securevfl.runs.assembly import rules_of
from securevfl.testing.runs import make, paper_conditions
from securevfl.verified import bare_of
from tests.engine.toys import Recorder
from tests.protocols.fedvs.test_algorithm import data_of

OPTIONS = {"rounds": 4, "batch": 12, "width": 4, "hidden": 5, "segments": 2, "privacy": 1}


def run(lazy, conditions, monkeypatch):
    """Events, columns of messages, shares of models but masks, and how many were computed."""
    made, recorder, computed = make("coded_split", data_of([3] * 9), **OPTIONS), Recorder(), []
    product = Holder.product

    def counted(self, *given):
        computed.append(self.index)
        return product(self, *given)

    monkeypatch.setattr(Holder, "product", counted)
    parties = made.parties()
    given = paper_conditions(made) if conditions is None else conditions
    simulation = Simulation(
        parties, conditions=given, observer=recorder, rules=rules_of(made), lazy=lazy
    )
    simulation.run()
    monkeypatch.undo()
    columns = {name: one.tolist() for name, one in simulation.transcript.columns().items()}
    server = bare_of(parties[SERVER].centre).network.state_dict()
    centre = {name: weight.tolist() for name, weight in server.items()}
    return recorder.events, columns, centre, len(computed), made.public


@pytest.mark.parametrize("conditions", [NONE, None])
def test_uploads_that_come_too_late_are_not_computed(conditions, monkeypatch):
    *lazy, few, public = run(True, conditions, monkeypatch)
    *eager, many, _ = run(False, conditions, monkeypatch)
    assert lazy == eager
    assert public.results_needed * OPTIONS["rounds"] <= few < many
