"""What leaves the hosts of a cluster is what their parties asked for."""

from dataclasses import replace
from types import MethodType

import numpy as np
import pytest

from securevfl.engine.carriers.session import Session
from securevfl.engine.network import SERVER, Event
from securevfl.engine.realtime.actor import PartyActor
from securevfl.engine.realtime.host import PartyHost
from securevfl.errors import RunError
from securevfl.protocols.base.registry import find_protocols
from securevfl.protocols.split import Split
from securevfl.testing.runs import make
from securevfl.verified import bare_of
from tests.oracles import hosted_runs
from tests.oracles.hosted_runs import run_hosted, run_restarted
from tests.protocols.joint import three_hands

SMALL = {"rounds": 6, "batch": 15, "width": 4}


def small(name="split", **options):
    return make(name, three_hands(name), **SMALL | options)


@pytest.mark.parametrize("name", sorted(set(find_protocols()) - {"dvfl"}))  # it trains by the clock
def test_hosts_of_every_protocol_add_nothing(name):
    found = run_hosted(small(name))
    assert found.frames >= 4 or name == "local"
    assert found.events >= 6
    assert found.wrong_frames == found.wrong_events == []


def tell_weights(monkeypatch):
    """Let hosts add the weights of their parties to every event."""

    def record(self, party, name, fields):
        network = getattr(self.party, "network", None)
        more = {} if network is None else {"weights": network.state_dict()}
        self._progress += 1
        self.events.append(Event(self.time(party), party.index, party.round, name, fields | more))

    monkeypatch.setattr(PartyHost, "record", record)


def test_a_host_that_tells_more_with_an_event_is_found(monkeypatch):
    tell_weights(monkeypatch)
    found = run_hosted(small()).wrong_events
    assert len(found) == len(small().peers())
    assert "its host reports 'refused' with other fields (party, weights)" in found[0]


def test_an_actor_that_reports_what_nobody_told_is_found(monkeypatch):
    poll = PartyActor.poll

    async def polled(self):
        report = await poll(self)
        report.events.append(Event(0, self.index, 0, "late", {"kind": "x", "sender": 1.5}))
        return report

    monkeypatch.setattr(PartyActor, "poll", polled)
    assert "reports 'late' with other fields (kind, sender)" in run_hosted(small()).wrong_events[0]


class Telling(str):
    """A text that is equal to another one, and can hold more."""


def first_row(host):
    return bare_of(getattr(host.party, "features", np.zeros((1, 1))))[0]


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("wait", lambda host, status: {"waits": f"{status.waits} {first_row(host)}"}),
        ("round", lambda host, status: {"round": int(1e6 * first_row(host)[0]) + 7}),
        ("progress", lambda host, status: {"progress": status.progress + 1}),
        ("progress", lambda host, status: {"progress": status.progress - 1}),
        ("rejected", lambda host, status: {"rejected": 1}),
        ("fields", lambda host, status: {"setup_done": 2.5}),
        ("fields", lambda host, status: {"waits": Telling(status.waits)}),
        ("flags", lambda host, status: {"mistake": True}),
    ],
)
def test_a_status_that_does_not_follow_from_what_was_seen_is_found(what, changes, monkeypatch):
    status = PartyHost.status
    told = property(lambda host: replace(status.fget(host), **changes(host, status.fget(host))))
    monkeypatch.setattr(PartyHost, "status", told)
    found = run_hosted(small()).wrong_events
    assert f"its host reports another {what!r} than follows" in found[0]


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("bytes", lambda report: {"bytes": report.bytes + 1}),
        ("messages", lambda report: {"messages": report.messages + 1}),
        ("process", lambda report: {"process": 12345678}),
    ],
)
def test_a_report_that_does_not_follow_from_what_was_seen_is_found(what, changes, monkeypatch):
    poll = PartyActor.poll

    async def polled(self):
        report = await poll(self)
        return replace(report, **changes(report))

    monkeypatch.setattr(PartyActor, "poll", polled)
    found = run_hosted(small()).wrong_events
    assert f"its host reports another {what!r} than follows" in found[0]


def test_frames_that_no_party_sent_are_found(monkeypatch):
    depart = PartyHost._depart

    def doubled(self, receiver, kind, round, body):
        depart(self, receiver, kind, round, body)
        if kind == "embedding" and round == 3:
            depart(self, receiver, kind, round, body)

    monkeypatch.setattr(PartyHost, "_depart", doubled)
    found = run_hosted(small()).wrong_frames
    assert {one.what for one in found} == {"its party sent no such message"}
    assert len(found) == len(small().peers())


def test_frames_of_another_content_are_found(monkeypatch):
    depart = PartyHost._depart

    def changed(self, receiver, kind, round, body):
        own = body[:-1] + bytes([body[-1] ^ 1]) if kind == "gradient" and round == 2 else body
        depart(self, receiver, kind, round, own)

    monkeypatch.setattr(PartyHost, "_depart", changed)
    found = run_hosted(small()).wrong_frames
    assert {(one.key.kind, one.key.round) for one in found} == {("gradient", 2)}
    assert "is not what its party sent, as documented" in found[0].what


def test_open_frames_are_found(monkeypatch):
    monkeypatch.setattr(Session, "_seal", lambda self, peer, link, kind, number, rest: rest[2])
    monkeypatch.setattr(hosted_runs, "_MOST", 0.3)
    with pytest.raises(RunError):  # nobody takes them, so the run does not end
        run_hosted(small())


def test_a_party_that_fails_ends_the_run():
    def parties(self):
        made = Split.parties(self)
        made[SERVER].run = MethodType(fails, made[SERVER])
        return made

    async def fails(self):
        raise ValueError("broken")

    broken = type("Broken", (Split,), {"parties": parties, "__doc__": "Fails."})
    with pytest.raises(RunError, match="broken"):
        run_hosted(small(broken))


@pytest.mark.parametrize("restarts", [1, 3])
def test_a_restarted_run_makes_rounds_again(restarts):
    sent = run_restarted(small(), restarts).sent
    times = {key.round: number for key, number in sent.items() if key.kind == "embedding"}
    assert set(times) == set(range(1, 7))
    assert max(times.values()) == restarts + 1
    assert times[6] == 1


def test_data_owners_of_multivfl_go_on_where_they_were():
    """Their rounds stood still, so the whole run began anew."""
    sent = run_restarted(small("multivfl", label_owners=2)).sent
    announced = {key.round: n for key, n in sent.items() if key.kind == "round"}
    assert announced[1] == announced[6] == 1
    assert max(announced.values()) == 2


def test_a_party_that_forgets_is_refused_by_those_who_do_not():
    """A row may be released once; the server has lost its count, and each client has its own."""
    options = {"noise": "secure", "epsilon": 5.0, "epsilon_budget": 5.0, "rounds": 8, "batch": 8}
    sent = run_restarted(small("wait_dp", **options), 4, forgetful=[SERVER]).sent
    assert max(n for key, n in sent.items() if key.kind == "embedding") == 1
    assert max(key.round for key in sent if key.kind == "embedding") <= 4


def test_a_host_that_gives_its_party_another_method_is_found(monkeypatch):
    made = PartyHost.__init__

    def seeded(self, party, *given, **more):
        made(self, party, *given, **more)
        party.uniform = lambda shape: np.zeros(shape, np.uint64)

    monkeypatch.setattr(PartyHost, "__init__", seeded)
    found = run_hosted(small("split")).wrong_events
    assert "its host gave it 'uniform' of its own" in found[0]


def test_a_host_that_tells_what_was_in_a_late_message_is_found(monkeypatch):
    def late(self, message):
        what = {"kind": f"{message.kind} {message.payload}", "sender": 0, "of_round": 1}
        self.record(self.party, "late", what)

    monkeypatch.setattr(PartyHost, "_late", late)
    assert "reports 'late' with other fields" in run_hosted(small()).wrong_events[0]
