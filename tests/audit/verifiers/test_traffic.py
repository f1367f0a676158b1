"""Traffic: sizes, order, times and control messages that depend on secrets are found."""

from functools import cache

import numpy as np
import pytest

from securevfl.audit.subject import Subject
from securevfl.audit.traffic import pairs
from securevfl.audit.traffic.seen import Traffic
from securevfl.audit.verifiers.traffic import TrafficComparison
from securevfl.engine.party import SERVER
from securevfl.protocols.base.messages import MessageKey
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.runs import make, tiny_data
from securevfl.verified import bare_of
from tests.audit.few_settings import few

SMALL = {"rounds": 6, "batch": 20}


def leaking(change, name="fedvs"):
    """A method whose client 1 sends through ``change(client, send, to, kind, payload, more)``."""
    base = get_protocol(name)

    def parties(self):
        made = base.parties(self)
        client, send, share = made[1], made[1].send, made[1].share

        def sending(to, kind, payload, **more):
            change(client, send, to, kind, payload, more)

        client.send = sending
        client.share = lambda kind, shares: sharing(client, share, kind, shares)
        return made

    def sharing(client, share, kind, shares):
        if change is order and kind == "model" and bit(client):
            for n in reversed(range(shares.shape[0])):
                client.send(n, kind, shares[n])
        else:
            share(kind, shares)

    return type("Leaking", (base,), {"parties": parties, "__doc__": "Planted leak."})


def bit(client):
    features = bare_of(client.features)
    own = features["train"] if isinstance(features, dict) else features
    return bool(own[3, 1] > 0.5 * (own[:, 1].min() + own[:, 1].max()))


def late(client, send, to, kind, payload, more):
    send(
        to, kind, payload, **more | ({"after": 1e-6} if kind == "embedding" and bit(client) else {})
    )


def late_in_the_end(client, send, to, kind, payload, more):
    slow = kind == "embedding" and client.round == 6 and bit(client)
    send(to, kind, payload, **more | ({"after": 1e-9} if slow else {}))


def order(client, send, to, kind, payload, more):
    send(to, kind, payload, **more)


def late_once_resumed(client, send, to, kind, payload, more):
    slow = (
        kind == "embedding"
        and client.resumptions
        and float(bare_of(client.features)["train"][3].sum())
    )
    send(to, kind, payload, **more | ({"after": 1e-6 * slow} if slow else {}))


def longer(client, send, to, kind, payload, more):
    if kind == "shared" and bit(client):
        payload = (1,)
    send(to, kind, payload, **more)


def of_the_network(client, send, to, kind, payload, more):
    slow = kind == "embedding" and bare_of(client.network).values[0, 0] > 0
    send(to, kind, payload, **more | ({"after": 1e-6} if slow else {}))


def of_constant_columns(client, send, to, kind, payload, more):
    slow = kind == "shared" and np.ptp(bare_of(client.features)["train"], axis=0).argmin()
    send(to, kind, payload, **more | ({"after": 1e-6 * int(slow)} if slow else {}))


def of_test_rows(client, send, to, kind, payload, more):
    slow = kind == "embedding" and float(bare_of(client.features)["test"][:3].sum())
    send(to, kind, payload, **more | ({"after": 1e-6 * slow} if slow else {}))


def subject_of(name, settings=few, **options):
    made = make(name, tiny_data().with_parties(4), **SMALL | options)
    return Subject(made, whole=settings is not none, settings=settings)


def none(protocol):
    """No setting, for what shows in small runs with other columns."""
    return ()


@cache
def of_leak(leak):
    """The subject of all tests of a leak that shows in small runs."""
    return subject_of(leaking(leak), none)


def examined(name, who="server", settings=few, **options):
    return found_on(subject_of(name, settings, **options), who)


def found_on(subject, who="server", about="features"):
    claims = subject.protocol.claims
    claim = next(c for c in claims if (c.who, c.asset) == (who, about))
    verifier = TrafficComparison()
    assert verifier.applies(claim, subject.protocol)
    [found] = verifier.examine(claim, subject, seed=0, level=1e-7)
    return found


@pytest.mark.parametrize("leak", [late, late_in_the_end, longer, of_the_network])
def test_what_the_server_sees_of_a_secret_is_found(leak):
    found = found_on(of_leak(leak))
    assert found.effect == "accuses"
    assert "other traffic" in found.text


def test_constant_columns_are_secrets_as_well():
    own = tiny_data().with_parties(4).train[1]
    assert (np.ptp(own, axis=0) == 0).any()
    found = found_on(of_leak(of_constant_columns))
    assert (found.effect, "random columns of other ranges" in found.text) == ("accuses", True)


def test_test_rows_are_secrets_as_well():
    found = found_on(subject_of(leaking(of_test_rows), none, secure=True))
    assert found.effect == "accuses"


def test_what_the_server_sees_in_a_setting_alone_is_found():
    assert found_on(of_leak(late_once_resumed)).effect == "supports"
    found = examined(leaking(late_once_resumed))
    assert found.effect == "accuses"
    assert "other traffic (resumed)" in found.text


def test_the_order_of_shares_is_seen_by_clients():
    assert found_on(of_leak(order), who="T clients").effect == "accuses"
    unseen = found_on(of_leak(order), who="server")
    assert (unseen.effect, unseen.bearing) == ("silent", "gap")


def telling(client, send, to, kind, payload, more):
    if kind == "embedding":
        client.record("moved", by=float(bare_of(client.network).values[0, 0]))
    send(to, kind, payload, **more)


def at_times(client, send, to, kind, payload, more):
    if kind == "embedding" and bit(client):
        client.record("busy")
    send(to, kind, payload, **more)


@pytest.mark.parametrize("leak", [telling, at_times])
@pytest.mark.parametrize("who", ["server", "T clients"])
def test_what_a_client_tells_the_history_is_a_gap(leak, who):
    found = found_on(of_leak(leak), who)
    assert (found.effect, found.bearing) == ("silent", "gap")
    assert "what parties tell the history depends on columns" in found.text


def test_what_the_method_says_that_its_history_tells_is_named():
    found = examined("fedvs", weight_bound=0.05)
    assert found.effect == "supports"
    assert "no claim speaks: 'clipped' tells how many weights" in found.text


@pytest.mark.parametrize(
    "options", [{}, {"secure": True}, {"share_timeout": 1.0, "result_timeout": 2.0}]
)
def test_sound_methods_are_not_blamed(options):
    """All settings of the first are in what tests/audit/test_verify.py has proved."""
    found = examined("fedvs", **options)
    assert found.effect == "supports"
    assert "have the same traffic" in found.text
    assert np.array([word in found.text for word in ("sizes", "order", "times")]).all()


def with_traffic(monkeypatch, subject, one, again):
    monkeypatch.setattr(pairs, "small_traffic", lambda _: one)
    monkeypatch.setattr(pairs, "small_traffic_again", lambda _: again)
    return subject


@pytest.mark.parametrize(("kind", "found"), [("shared", ["shared"]), ("key", [])])
def test_control_messages_that_differ_by_chance_are_keys_or_a_gap(monkeypatch, kind, found):
    """What differs between equal runs cannot be compared, so it could hold anything."""
    key = MessageKey(kind, 1 if kind == "shared" else 0, 0, SERVER if kind == "shared" else 1)
    one, again = (Traffic((), ((key, digest),), ()) for digest in "ab")
    subject = with_traffic(monkeypatch, Subject(make("fedvs")), one, again)
    assert pairs.random_controls(subject) == found


def test_an_event_that_tells_more_than_a_few_numbers_is_a_gap(monkeypatch):
    subject = Subject(make("fedvs"), settings=lambda _: ())
    key = MessageKey("event clipped", 1, 0, SERVER)
    long = "[" + "0.1234, " * 60 + "]"
    for text, found in (('{"weights": 7, "bound": 4.0}', []), (long, [key.kind])):
        traffic = Traffic((), (), ((key, text),))
        with_traffic(monkeypatch, subject, traffic, traffic)
        assert pairs.long_events(subject) == found
