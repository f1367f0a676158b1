"""The verifier of declared messages: planted deviations are found in methods of every kind."""

import numpy as np
import pytest
from securevfl.audit.verifiers.primitives import Hypotheses

from securevfl.audit.deviations import compare
from securevfl.audit.recording.recorder import record
from securevfl.audit.settings import settings_of
from securevfl.audit.subject import Subject
from securevfl.audit.verifiers.declaration import AS_DECLARED, DeclaredMessages
from securevfl.audit.verifiers.registry import VERIFIERS
from securevfl.audit.verify import judge
from securevfl.engine.network import RoundOverError
from securevfl.engine.party import SERVER
from securevfl.errors import NotEnoughResultsError
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.runs import make, tiny_data
from tests.audit.few_settings import few
from tests.zoo.declared_contents import LEAKS

METHODS = (
    *("split", "cvfl", "dvfl", "fedvs", "vafl", "vfb2"),
    *("ssl_local", "local", "vflhlp", "fedhssl"),
)
FEW = {"fedvs": {"prime": 2**31 - 1, "data_bits": 6, "model_bits": 6, "weight_bound": 2.0},
       "dvfl": {"guest_epochs": 3, "host_epochs": 3}}  # fmt: skip


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
    elif kind == "embedding":  # ciphertexts
        other = np.ones(90, np.int64)
        payload = client.public.scheme.encrypt(client.public_key, other)
    send(to, kind, payload, **more)


HELD = (DeclaredMessages(), Hypotheses())  # these two alone would say that hypotheses hold
PLANTS = (raw_columns_as_gradient, foreign_sender, doubled, changed)
PLANTED = [(name, plant) for name in ("split",) for plant in PLANTS]


@pytest.mark.parametrize(("name", "plant"), PLANTED)
def test_a_planted_deviation_is_violated(name, plant):
    subject = Subject(make(planted(name, plant), tiny_data().with_parties(4)), settings=few)
    found = judge(AS_DECLARED, subject, every())
    assert found.verdict == "VIOLATED"
    assert found.failure_probability == 0
    hiding = [c for c in subject.protocol.claims if c.strength == "computational"]
    if plant is not foreign_sender:  # the server sees the others
        about_server = [c for c in hiding if c.who == "server"]
        assert {judge(c, subject, HELD).verdict for c in about_server} <= {"VIOLATED"}
    else:
        assert not {judge(c, subject, HELD).verdict for c in hiding} & {"HYPOTHESES HOLD"}


@pytest.mark.parametrize("name", METHODS)
def test_every_message_of_a_sound_run_equals_its_formula(name):
    found = compare(record(make(name, **FEW.get(name, {}))))
    assert found.deviations == ()
    assert found.without_formula == ()
    assert found.computed == found.messages > 0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("split", {"stragglers": "ignore"}),
        ("split", {"quantized": True}),
        ("split", {"aggregation": "max"}),
        ("cvfl", {"mode": "sync", "active": 2}),
        ("cvfl", {"q": 3.0, "slow": "0,1"}),
        ("vafl", {"aggregation": "concat", "timeout": 9.0}),
        ("vfb2", {"threads": 3, "timeout": 3.0}),
        ("local", {"rows": "aligned"}),
        ("vflhlp", {"variant": "p", "aggregation": "max"}),
        ("fedvs", {"masked": False, **FEW["fedvs"]}),
        ("fedvs", {"secure": True, **FEW["fedvs"]}),
        ("fedvs", {"tolerate_corrupt": 1, **FEW["fedvs"]}),
    ],
)
def test_formulas_hold_with_other_options(name, options):
    found = compare(record(make(name, **options)))
    assert found.deviations == ()
    assert found.computed == found.messages > 0


@pytest.mark.parametrize("leak", LEAKS, ids=[one.name for one in LEAKS])
def test_what_a_declared_message_holds_is_computed(leak):
    """Each leak keeps to kinds, roles, numbers and shapes: only the formula tells."""
    found = compare(record(make(leak.make(), **leak.options)))
    assert found.deviations
    assert {one.what for one in found.deviations} == {"its payload is not what its formula gives"}


def test_a_protocol_that_declares_nothing_is_not_proved():
    class Undeclared(get_protocol("fedvs")):
        """FedVS without a declaration."""

        @property
        def messages(self):
            return ()

    subject = Subject(make(Undeclared, **FEW["fedvs"]))
    verifier = VERIFIERS.get("declared messages")
    claim = subject.protocol.claims[0]
    [gap] = verifier.examine(claim, subject, seed=0, level=1e-7)
    assert (gap.bearing, gap.effect) == ("gap", "silent")


def test_options_of_late_parties_are_exercised():
    def late(protocol):
        names = ("clients late", "attempts given up")
        return [one for one in settings_of(protocol) if one.name in names]

    times = {"share_timeout": 1.0, "result_timeout": 9.0}
    subject = Subject(make("fedvs", **times, **FEW["fedvs"]), settings=late)
    verifier = VERIFIERS.get("declared messages")
    found = list(verifier.examine(subject.protocol.claims[0], subject, seed=0, level=1e-7))
    assert [one.effect for one in found] == ["supports"]
    assert "attempts given up" in found[0].text
    late = [one for one in subject.ran if one.startswith("setting 'clients late'")]
    assert len(late) == 1
    assert "result_timeout = 9.0" in late[0]
    assert "share_timeout = 1.0" in late[0]


def test_a_configuration_that_does_not_come_to_its_end_is_not_endorsed():
    """A run that ends in an error has rounds that were not run."""

    class Ending(get_protocol("fedvs")):
        """FedVS whose server gives up in round 3."""

        def parties(self):
            made = super().parties()
            step = made[SERVER].centre.step

            def stopping(*arguments):
                if made[SERVER].round == 3:
                    raise NotEnoughResultsError("fedvs: round 3: given up")
                return step(*arguments)

            made[SERVER].centre.step = stopping
            return made

    subject = Subject(make(Ending, **FEW["fedvs"]), whole=True, settings=few)
    verifier = VERIFIERS.get("declared messages")
    with pytest.raises(NotEnoughResultsError):  # the small run ends so, too
        list(verifier.examine(subject.protocol.claims[0], subject, seed=0, level=1e-7))
    found = judge(subject.protocol.claims[0], subject, every())
    assert found.verdict == "COULD NOT BE CHECKED"


def test_a_run_that_is_broken_off_is_a_gap(monkeypatch):
    monkeypatch.setattr("securevfl.audit.followed_runs.MOST", 100_000)
    subject = Subject(make("fedvs", rounds=12, **FEW["fedvs"]), whole=True)
    verifier = VERIFIERS.get("declared messages")
    found = list(verifier.examine(subject.protocol.claims[0], subject, seed=0, level=1e-7))
    [gap] = [one for one in found if one.bearing == "gap"]
    assert "the configuration itself ended in round" in gap.text
    assert "broken off" in gap.text


def test_what_small_runs_show_is_said_though_a_setting_fails():
    class Failing(Subject):
        """A subject whose settings cannot be run."""

        @property
        def settings(self):
            raise ValueError("no setting today")

    found = judge(AS_DECLARED, Failing(make(planted("split", changed))), every()[:1])
    assert found.verdict == "VIOLATED"
    assert "a small run: round 1" in found.words
    assert "ended in ValueError: no setting today" in found.words


@pytest.mark.parametrize("error", [ValueError("no second life"), SystemExit(0), RoundOverError()])
def test_a_setting_that_fails_is_tried_once(error):
    """Each verifier is told of the same error, and no run is made again for it."""
    made = []

    class Failing(get_protocol("fedvs")):
        """FedVS that cannot make its parties a second time."""

        def parties(self):
            made.append(1)
            if len(made) > 1:
                raise error
            return super().parties()

    subject = Subject(make(Failing, **FEW["fedvs"]))
    for _ in range(3):
        with pytest.raises(type(error)) as raised:
            assert subject.settings
        assert raised.value is error
    assert len(made) <= 2
