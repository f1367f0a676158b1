"""Uploads that a simulation computes when the server takes them."""

import pytest

from securevfl.engine.conditions import NONE
from securevfl.engine.party import SERVER
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import ProtocolError
from securevfl.protocols.fedvs.algorithm import Client
from securevfl.runs.assembly import rules_of
from securevfl.testing.runs import make, paper_conditions
from securevfl.verified import bare_of
from securevfl.verified.functions import FlowError
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


class Careless(Client):
    """Computes an upload of fewer columns than it announced."""

    def evaluate(self, *given):
        return super().evaluate(*given)[:, :1]


@pytest.mark.parametrize("lazy", [True, False])
def test_an_upload_of_another_shape_than_its_bytes_were_counted_by_is_refused(lazy):
    made = make("fedvs", data_of([3] * N), **OPTIONS)
    parties = made.parties()
    parties[0].__class__ = Careless
    with pytest.raises(ProtocolError, match=r"'embedding' has the shape .*, 1\), not "):
        Simulation(parties, conditions=NONE, rules=rules_of(made), lazy=lazy).run()


class Undeclared(Client):
    """Shares its model in messages of a kind that declares no field elements."""

    def share(self, kind, shares):
        super().share("other" if kind == "model" else kind, shares)


def test_shares_of_an_undeclared_kind_are_refused_as_protected():
    made = make("fedvs", data_of([3] * N), **OPTIONS)
    parties = made.parties()
    parties[0].__class__ = Undeclared
    with pytest.raises(FlowError, match="it is protected"):
        Simulation(parties, conditions=NONE).run()


class Liar(Client):
    """Shares its model by numbers of which one is no element."""

    def share(self, kind, shares):
        if kind == "model":
            shares = shares._value.copy()
            shares[(1, 0, 0)] = self.field.modulus
        super().share(kind, shares)


def test_a_share_that_is_no_element_is_refused_among_rows_of_shares():
    made = make("fedvs", data_of([3] * N), **OPTIONS)
    parties = made.parties()
    parties[3].__class__ = Liar
    with pytest.raises(ProtocolError, match="'model'"):
        Simulation(parties, conditions=NONE, rules=rules_of(made)).run()
