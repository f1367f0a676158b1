"""The server's log: steps that every holder has stored are forgotten, and no other ones."""

import numpy as np
import pytest

from securevfl.data import load_dataset
from securevfl.engine import wire
from securevfl.engine.faults import Chain, Faults
from securevfl.engine.party import SERVER, Message
from securevfl.protocols.coded_split import CodedSplit, algorithm, declaration, schedule
from securevfl.testing.runs import make, resume_from, simulate, state_at, states_at
from securevfl.verified import bare_of
from securevfl.verified.values import public_element
from tests.protocols.coded_split.twin import watched

DIGITS = load_dataset("digits", parties=8).subset(61, 21)
EVERY = 16  # steps after which a holder says what it has stored, for 64
LONG = {"rounds": 2 * EVERY + 8, "batch": 16, "width": 2, "hidden": 2}
FAULTS = Faults({"client": Chain(0.05, 0.6), "link": Chain(0.02, 0.7)}, first=2, tick=0.5)


@pytest.fixture(scope="module", autouse=True)
def _reports_come_sooner():
    with pytest.MonkeyPatch.context() as patch:
        for module in (algorithm, declaration, schedule):
            patch.setattr(module, "STORED_EVERY", EVERY)
        yield


@pytest.fixture(scope="module")
def ended():
    return simulate(CodedSplit, DIGITS, **LONG)


def test_a_long_run_forgets_what_all_have_stored_and_nothing_else_changes(ended):
    server = ended.parties[SERVER]
    assert server.forgotten == 2 * EVERY
    assert len(server.log) == LONG["rounds"] - server.forgotten
    kinds = ended.simulation.transcript.columns()["kind"]
    assert (kinds == "stored").sum() == 2 * 8
    whole = simulate(watched(CodedSplit), DIGITS, **LONG)
    assert len(whole.parties[SERVER].log) == LONG["rounds"]
    assert whole.losses == ended.losses
    models = [one.protocol.models(one.parties) for one in (ended, whole)]
    assert (models[0] == models[1]).all()


def test_crashed_holders_are_dealt_all_that_they_lack_although_steps_are_forgotten(ended):
    """A holder says what its checkpoint has, not what it has applied: a crash undoes the rest."""
    outcome = simulate(CodedSplit, DIGITS, faults=FAULTS, ask_timeout=2.0, **LONG)
    names = [event.name for event in outcome.events]
    assert names.count("down") > 5
    assert "refused" not in names
    assert outcome.parties[SERVER].forgotten >= EVERY
    assert outcome.losses == ended.losses


def test_a_resumed_run_forgets_the_same_steps(ended):
    instants = len(np.unique(ended.simulation.transcript.columns()["arrived"]))
    saved, events = state_at(CodedSplit, DIGITS, instants // 2, **LONG)
    again = resume_from(CodedSplit, DIGITS, saved, events, **LONG)
    assert again.fingerprint() == ended.fingerprint()
    assert again.parties[SERVER].forgotten == ended.parties[SERVER].forgotten


class Kept(CodedSplit):
    """What holder 3 uploads is kept, by round."""

    uploads: dict[int, list[bytes]] = {}  # noqa: RUF012

    def parties(self):
        made = super().parties()
        send, kept = made[3].send, self.uploads

        def sending(to, kind, payload, **how):
            if kind == "embedding":
                kept.setdefault(how["round"], []).append(bare_of(payload).tobytes())
            send(to, kind, payload, **how)

        made[3].send = sending
        return made


def test_a_holder_that_is_put_back_in_a_run_catches_up_and_uploads_the_same():
    """Its state is of instant 20 and all others' of 250."""
    options = {"rounds": 12, "batch": 16, "width": 2, "hidden": 2, "ask_timeout": 2.0}
    states = states_at(CodedSplit, DIGITS, [20, 250], **options)  # both of one run, and its keys
    early, late = (wire.decode(states[instant][0]) for instant in (20, 250))
    late["parties"][3] = early["parties"][3]
    seen, ends = [], []
    for content, events in ((states[20][0], states[20][1]), (wire.encode(late), states[250][1])):
        kept = type("Kept", (Kept,), {"uploads": {}})
        ends.append(resume_from(kept, DIGITS, content, events, **options))
        seen.append(kept.uploads)
    assert ends[0].losses == ends[1].losses
    assert seen[1]
    assert all(set(seen[0][round]) == set(again) for round, again in seen[1].items())
    kinds = ends[1].simulation.transcript.columns()["kind"]
    assert "missed" in kinds


class Engine:
    """Takes down what a party sends and records."""

    def __init__(self):
        self.sent, self.why = [], []

    def send(self, sending):
        ((first, digests), shares) = sending.payloads[0]
        assert len(digests) == 32 * len(shares)
        self.sent += [(sending.to, first, len(shares))]

    def record(self, party, name, fields):
        self.why.append((name, fields["why"]))


def test_the_least_that_anybody_stored_counts():
    server = make(CodedSplit, DIGITS, **LONG | {"rounds": 100}).new_server()
    server.engine = Engine()
    zero = public_element(np.zeros((1, 16, 2), server.field.dtype), server.field, None)
    server.log, server.steps, server.secret = (zero,) * 100, 100, server.key()
    for holder, stored in enumerate((64, 70, 90, 64, 99, 64, 64, 65)):
        assert server.forgotten == 0
        server.forget(Message(holder, SERVER, "stored", stored, 0, 0, -1))
    assert (server.forgotten, len(server.log)) == (64, 36)
    server.forget(Message(0, SERVER, "stored", 3, 0, 0, -1))  # an old message counts for nothing
    assert server.forgotten == 64
    server.deal_again(Message(1, SERVER, "lacks", 64, 0, 0, -1))
    assert server.engine.sent == [((1,), 65, 36)]
    server.deal_again(Message(1, SERVER, "lacks", 63, 0, 0, -1))
    assert server.engine.why == [
        ("refused", "it asked for step 64, which it said that it has stored")
    ]


@pytest.mark.parametrize("payload", [None, "3", 2.0, True, 0, -1, 151, [1]])
def test_a_report_that_names_no_dealt_step_is_an_event_and_forgets_nothing(ended, payload):
    server = ended.protocol.new_server()
    server.engine, server.steps = Engine(), 150
    server.forget(Message(3, SERVER, "stored", payload, 0, 0, -1))
    assert server.stored_by == {}
    assert [name for name, _ in server.engine.why] == ["refused"]
