"""One holder alone: steps in any order, each once, and labels that are answered once."""

import numpy as np
import pytest

from securevfl.data import load_dataset
from securevfl.engine.party import SERVER, Message
from securevfl.protocols.coded_split import CodedSplit
from securevfl.protocols.coded_split.messages import Label, Request
from securevfl.testing.runs import simulate

DIGITS = load_dataset("digits", parties=8).subset(61, 31)
SMALL = {"rounds": 6, "batch": 16, "width": 5, "hidden": 6, "secure": True}


class Engine:
    """Takes down what a party sends and records."""

    def __init__(self):
        self.sent, self.events, self.ahead = [], [], []

    def send(self, sending):
        self.sent += [(sending.kind, sending.round, one) for one in sending.payloads]

    def record(self, party, name, fields):
        self.events.append((name, fields))

    def write_ahead(self, party):
        self.ahead.append(dict(party.answered))

    def round_over(self, party, round, left):
        """Nothing to do."""


@pytest.fixture
def ended():
    return simulate(CodedSplit, DIGITS, **SMALL)


def fresh(ended, index=3):
    """Holder as it was after set-up, with the shares that it ended with subtracted again."""
    holder, server = ended.protocol.parties()[index], ended.parties[SERVER]
    old, public = ended.parties[index], ended.protocol.public
    holder.data_shares, holder.keys, holder.engine = old.data_shares, old.keys, Engine()
    values = old.model[0]
    for t, step in enumerate(server.log, 1):
        rows = public.batches["train"].draw(t)
        share = server.dealing.shares(server.secret, t, step)[index]
        moved = public.field.matmul(holder.data_shares["train"][rows].T, share)
        values = public.field.subtract(values, moved)
    holder.model = (values, 0, ())
    return holder


def shares_of(ended, index=3):
    server = ended.parties[SERVER]
    dealt = enumerate(server.log, 1)
    return {t: server.dealing.shares(server.secret, t, step)[index] for t, step in dealt}


def test_steps_in_any_order_and_twice_over_end_in_the_same_shares(ended):
    holder, shares = fresh(ended), shares_of(ended)
    for t in (4, 1, 4, 6, 2, 1, 3, 6, 5, 5):
        holder.apply(t, shares[t])
    assert holder.model[1:] == (6, ())
    assert (holder.model[0] == ended.parties[3].model[0]).all()


def test_a_holder_with_a_hole_uploads_nothing_and_asks(ended):
    holder, shares = fresh(ended), shares_of(ended)
    holder.answer()
    assert [(kind, round) for kind, round, _ in holder.engine.sent] == [("embedding", 1)]
    holder.take("deal", 2, shares[2])
    holder.answer()
    assert holder.model[1:] == (0, (2,))
    assert [(kind, round) for kind, round, _ in holder.engine.sent][1:] == [("lacks", 0)]
    assert holder.engine.sent[1][2] == 0
    holder.take("missed", 2, (1, np.stack([shares[1], shares[2]])))
    holder.answer()
    holder.answer()
    assert holder.model[1:] == (2, ())
    assert [(kind, round) for kind, round, _ in holder.engine.sent][2:] == [("embedding", 3)]


def test_a_label_is_answered_with_the_same_bytes_and_for_no_other_rows(ended):
    holder = ended.parties[3]
    holder.engine = engine = Engine()
    rows = np.arange(31, dtype=np.uint32)
    for asked in (rows, rows[::-1].copy(), rows):
        holder.asked = Request("test", 0, asked)
        holder.answer()
    uploads = [payload for kind, _, payload in engine.sent if kind == "embedding"]
    assert len(uploads) == 2
    assert (uploads[0] == uploads[1]).all()
    assert [name for name, _ in engine.events] == ["refused"]
    assert engine.ahead  # written before it left


def test_labels_differ_by_part_step_piece_life_and_rows():
    rows = np.arange(4, dtype=np.uint32)
    told = {
        Label("train", 3).told(rows),
        Label("test", 3).told(rows),
        Label("release", 3).told(rows),
        Label("train", 4).told(rows),
        Label("train", 3, 1).told(rows),
        Label("train", 3, 0, 1).told(rows),
        Label("train", 3).told(rows[:3]),
        Label("train", 3).told(rows[::-1]),
    }
    assert len(told) == 8


def asked(payload):
    return Message(3, SERVER, "lacks", payload, 0, 0, -1)


@pytest.mark.parametrize("payload", [None, "3", 2.0, True, -1, 7, [1], 10**30])
def test_a_question_that_names_no_step_is_an_event_and_not_answered(ended, payload):
    server = ended.parties[SERVER]
    server.engine = Engine()
    server.deal_again(asked(payload))
    assert server.engine.sent == []
    assert [name for name, _ in server.engine.events] == ["refused"]


def test_a_server_that_went_back_says_so(ended):
    server = ended.protocol.new_server()
    server.engine, server.steps, server.log = Engine(), 4, ended.parties[SERVER].log[:4]
    server.deal_again(asked(6))
    ((name, fields),) = server.engine.events
    assert (name, fields["party"], server.engine.sent) == ("behind", 3, [])
    assert "it has step 6 and the server has 4" in fields["why"]


def test_a_holder_that_has_all_steps_is_not_answered_and_not_refused(ended):
    server = ended.parties[SERVER]
    server.engine = Engine()
    server.deal_again(asked(6))
    assert (server.engine.sent, server.engine.events) == ([], [])
