"""The verifier of declared messages: planted deviations are found in methods of every kind."""

import numpy as np
import pytest

from securevfl.audit.deviations import compare
from securevfl.audit.recording.recorder import record
from securevfl.audit.subject import Subject
from securevfl.audit.verifiers.declaration import AS_DECLARED
from securevfl.audit.verifiers.registry import VERIFIERS
from securevfl.audit.verify import judge
from securevfl.engine.network import RoundOverError
from securevfl.engine.party import SERVER
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.runs import make, tiny_data
from tests.audit.few_settings import few

METHODS = ("cvfl", "dvfl")
FEW = {"dvfl": {"guest_epochs": 3, "host_epochs": 3}}


def every():
    return tuple(VERIFIERS.all().values())


def planted(name, plant):
    """A method whose client 0 sends through ``plant(client, send, to, kind, payload, more)``."""
    base = get_protocol(name)

    def parties(self):
        made = base.parties(self)
        client, send = made[0], made[0].send

        def sending(to, kind, payload, **more):
            plant(client, send, to, kind, payload, more)

        client.send = sending
        return made

    return type("Planted", (base,), {"parties": parties, "__doc__": "Planted deviation."})


def raw_columns_as_gradient(client, send, to, kind, payload, more):
    send(to, kind, payload, **more)
    if kind == "embedding":
        send(SERVER, "gradient", client.features)


def foreign_sender(client, send, to, kind, payload, more):
    """A gradient is declared from the server alone."""
    send(to, kind, payload, **more)
    if kind == "embedding":
        send(2, "gradient", np.zeros((15, 6), np.float32))


def doubled(client, send, to, kind, payload, more):
    send(to, kind, payload, **more)
    if kind == "embedding":
        send(to, kind, payload, **more)


def changed(client, send, to, kind, payload, more):
    if kind == "embedding" and isinstance(payload, np.ndarray):
        payload = payload.copy()
        payload[0, 0] += 1
    send(to, kind, payload, **more)


PLANTS = (raw_columns_as_gradient, foreign_sender, doubled, changed)
PLANTED = [(name, plant) for name in ("cvfl",) for plant in PLANTS]


@pytest.mark.parametrize(("name", "plant"), PLANTED)
def test_a_planted_deviation_is_violated(name, plant):
    subject = Subject(make(planted(name, plant), tiny_data().with_parties(4)), settings=few)
    found = judge(AS_DECLARED, subject, every())
    assert found.verdict == "VIOLATED"
    assert found.failure_probability == 0


@pytest.mark.parametrize("name", METHODS)
def test_every_message_of_a_sound_run_equals_its_formula(name):
    found = compare(record(make(name, **FEW.get(name, {}))))
    assert found.deviations == ()
    assert found.without_formula == ()
    assert found.computed == found.messages > 0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cvfl", {"mode": "sync", "active": 2}),
        ("cvfl", {"q": 3.0, "slow": "0,1"}),
    ],
)
def test_formulas_hold_with_other_options(name, options):
    found = compare(record(make(name, **options)))
    assert found.deviations == ()
    assert found.computed == found.messages > 0


def test_what_small_runs_show_is_said_though_a_setting_fails():
    class Failing(Subject):
        """A subject whose settings cannot be run."""

        @property
        def settings(self):
            raise ValueError("no setting today")

    found = judge(AS_DECLARED, Failing(make(planted("cvfl", changed))), every()[:1])
    assert found.verdict == "VIOLATED"
    assert "a small run: round 1" in found.words
    assert "ended in ValueError: no setting today" in found.words


@pytest.mark.parametrize("error", [ValueError("no second life"), SystemExit(0), RoundOverError()])
def test_a_setting_that_fails_is_tried_once(error):
    """Each verifier is told of the same error, and no run is made again for it."""
    made = []

    class Failing(get_protocol("cvfl")):
        """CVFL that cannot make its parties a second time."""

        def parties(self):
            made.append(1)
            if len(made) > 1:
                raise error
            return super().parties()

    subject = Subject(make(Failing))
    for _ in range(3):
        with pytest.raises(type(error)) as raised:
            assert subject.settings
        assert raised.value is error
    assert len(made) <= 2
