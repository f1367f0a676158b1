"""One holder alone: steps in any order, each once, and labels that are answered once."""

import itertools
from mmap import mmap

import numpy as np
import pytest

from securevfl.data import load_dataset
from securevfl.engine.party import SERVER, Message
from securevfl.errors import ProtocolError
from securevfl.protocols.coded_split import CodedSplit
from securevfl.protocols.coded_split.algorithm import Owner, patience
from securevfl.protocols.coded_split.messages import Label, Request
from securevfl.testing.runs import simulate
from securevfl.verified import bare_of, batched, concatenate, stack
from securevfl.verified.trace import received

DIGITS = load_dataset("digits", parties=8).subset(61, 31)
SMALL = {"rounds": 6, "batch": 16, "width": 5, "hidden": 6, "secure": True}


class Engine:
    """Takes down what a party sends and records."""

    defers = False

    def __init__(self):
        self.sent, self.events = [], []

    def send(self, sending):
        self.sent += [(sending.kind, sending.round, one) for one in sending.payloads]

    def record(self, party, name, fields):
        self.events.append((name, fields))

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
    for t in range(1, len(server.log) + 1):
        rows = public.batches["train"].draw(t)
        share = received(server.dealt(t).shares[index], index)
        values = values - holder.data_shares["train"].rows(rows).T @ share
    holder.model = (values, 0, (), holder.no_steps)
    return holder


def dealt_to(ended, index=3):
    """Digest and share of each step."""
    server = ended.parties[SERVER]
    every = {t: server.dealt(t) for t in range(1, len(server.log) + 1)}
    return {t: received((made.digest, made.shares[index]), index) for t, made in every.items()}


def test_steps_in_any_order_and_twice_over_end_in_the_same_shares(ended):
    holder, dealt = fresh(ended), dealt_to(ended)
    for t in (4, 1, 4, 6, 2, 1, 3, 6, 5, 5):
        holder.take("deal", t, dealt[t])
    assert holder.model[1:3] == ended.parties[3].model[1:3] == (6, ())
    digests = sum((bare_of(digest) for digest, _ in dealt.values()), np.zeros(4, object))
    assert (bare_of(holder.model[3]) == digests % holder.field.modulus).all()
    for place in (0, 3):
        ours, theirs = bare_of(holder.model[place]), bare_of(ended.parties[3].model[place])
        assert (ours == theirs).all()


def test_a_holder_with_a_hole_uploads_nothing_and_asks(ended):
    holder, dealt = fresh(ended), dealt_to(ended)
    holder.answer()
    assert [(kind, round) for kind, round, _ in holder.engine.sent] == [("embedding", 1)]
    holder.take("deal", 2, dealt[2])
    holder.answer()
    assert holder.model[1:3] == (0, (2,))
    assert [(kind, round) for kind, round, _ in holder.engine.sent][1:] == [("lacks", 0)]
    assert holder.engine.sent[1][2] == 0
    both = (1, concatenate([dealt[1][0], dealt[2][0]])), stack([dealt[1][1], dealt[2][1]])
    holder.take("missed", 2, both)
    holder.answer()
    holder.answer()
    assert holder.model[1:3] == (2, ())
    assert [(kind, round) for kind, round, _ in holder.engine.sent][2:] == [("embedding", 3)]


def test_a_label_is_answered_with_the_same_bytes_and_for_no_other_rows(ended):
    holder = ended.parties[3]
    holder.engine = engine = Engine()
    rows = np.arange(31, dtype=np.uint32)
    for asked in (rows, rows):
        holder.take("request", 7, Request("test", 0, asked))
        holder.answer()
    with pytest.raises(ProtocolError, match="one for other rows, and must be one for rows 0 to 30"):
        holder.take("request", 7, Request("test", 0, rows[::-1].copy()))
    holder.answer()
    uploads = [payload for kind, _, payload in engine.sent if kind == "embedding"]
    assert len(uploads) == 2
    assert (uploads[0] == uploads[1]).all()


def test_a_holder_asks_at_equal_times_and_then_ever_more_rarely():
    waits = [patience(1.5, silent) for silent in range(31)]
    assert waits[:20] == [1.5] * 20
    assert waits[20:30] == [1.5 * 2**n for n in range(1, 11)]
    assert waits[30] is None  # the server has gone
    assert patience(None, 0) is None


def test_labels_differ_by_part_step_piece_and_rows():
    rows = np.arange(4, dtype=np.uint32)
    told = {
        Label("train", 3).told(rows),
        Label("test", 3).told(rows),
        Label("release", 3).told(rows),
        Label("train", 4).told(rows),
        Label("train", 3, 1).told(rows),
        Label("train", 3).told(rows[:3]),
        Label("train", 3).told(rows[::-1]),
    }
    assert len(told) == 7


def test_a_holder_that_is_set_back_answers_each_label_with_the_same_bytes(ended):
    """Its state of an earlier time, from a backup, makes it repeat itself, and nothing else."""
    holder, dealt = fresh(ended), dealt_to(ended)
    backup = {}
    for t in (1, 2, 3, 4, 5):
        holder.answer()
        backup[t] = holder.model, holder.uploaded
        holder.take("deal", t, dealt[t])
    first = {round: sent for kind, round, sent in holder.engine.sent if kind == "embedding"}
    assert sorted(first) == [1, 2, 3, 4, 5]
    for t in (4, 1, 2):
        holder.engine = Engine()
        holder.model, holder.uploaded = backup[t][0], 0
        for later in (5, *range(t, 5)):  # what it lacks comes in any order
            holder.answer()
            holder.take("deal", later, dealt[later])
        again = [(round, sent) for kind, round, sent in holder.engine.sent if kind == "embedding"]
        assert again
        assert all((sent == first[round]).all() for round, sent in again)


def other_step(ended, number):
    """Digest and share of the step in which one entry was rounded otherwise."""
    server = ended.parties[SERVER]
    one = np.zeros(server.log[0].shape, np.int64)
    one[0, 0, 0] = 1
    made = server.dealing.dealt(server, server.secret, number, server.log[number - 1] + one)
    return received((made.digest, made.shares[3]), 3)


def test_a_holder_that_is_dealt_another_step_after_it_was_set_back_has_another_mask(ended):
    """As after a resume on a processor that rounds a float otherwise."""
    public, dealt, masks = ended.protocol.public, dealt_to(ended), []
    for second in (dealt[2], other_step(ended, 2)):
        holder = fresh(ended)
        holder.take("deal", 1, dealt[1])
        holder.take("deal", 2, second)
        holder.answer()
        ((_, round, upload),) = holder.engine.sent
        assert round == 3
        rows = public.batches["train"].draw(3)
        psi = bare_of(holder.data_shares["train"].rows(rows) @ holder.model[0])
        masks.append(public.field.subtract(upload, psi))
    assert (masks[0] != masks[1]).mean() > 0.9  # uniform in a field of 2^40: all but never equal


DIGEST = (b"d" + bytes(7)) * 4
SHARE = np.zeros((16, 5), np.uint64)


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (SHARE, "'missed' of round 2 from the server is a ndarray, .* a pair"),
        ((1, SHARE[None]), "without a step"),
        (((1, b"d" * 31), SHARE[None]), "with a digest of 32 bytes for each step"),
        (((1, DIGEST), SHARE), r"with a digest of 32 bytes for each step"),
        (((0, DIGEST), SHARE[None]), "is 0, and must be a whole number from 1 to 6"),
        (((6, 2 * DIGEST), np.stack([SHARE] * 2)), "is 6, and must be a whole number from 1 to 5"),
        (((1, DIGEST), SHARE[None, 1:]), r"shape \(1, 15, 5\), uint64, .* \(1, 16, 5\)"),
        (((1, DIGEST), SHARE[None].astype(np.int64)), "int64"),
        (((1, DIGEST), SHARE[None] - np.uint64(1)), "18446744073709551615 in it"),
    ],
)
def test_missed_steps_of_another_form_are_refused_and_nothing_is_applied(ended, payload, words):
    holder = fresh(ended)
    before = holder.model
    message = Message(SERVER, 3, "missed", payload, 2, 0, 0)
    with pytest.raises(ProtocolError, match=words):
        holder.take("missed", 2, holder._arrived(message.kind, payload))
    assert holder.model is before


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


@pytest.mark.parametrize("large", [True, False])
def test_what_one_holder_has_taken_can_be_freed_before_the_next_takes_its_own(monkeypatch, large):
    """With views, a simulation of 28 parties would need all shares twice: 17 GB, not 9."""
    sent = {}

    def share(self, kind, shares):
        sent[kind, self.index] = list(bare_of(shares))
        super(Owner, self).share(kind, shares)

    monkeypatch.setattr(Owner, "share", share, raising=False)
    monkeypatch.setattr(batched, "_LARGE", 1 if large else 2**20)
    outcome = simulate(CodedSplit, DIGITS, rounds=2, batch=8, width=4, hidden=4)
    pieces = sent["train-data", 0]
    assert not any(np.shares_memory(one, two) for one, two in itertools.combinations(pieces, 2))
    assert large == isinstance(_owner(pieces[0]), mmap)
    for holder, piece in enumerate(pieces):
        kept = bare_of(outcome.parties[holder].data_shares["train"])
        assert (kept[:, : piece.shape[1]] == piece).all()
        assert not np.shares_memory(kept, piece)


def _owner(array):
    while getattr(array, "base", None) is not None:
        array = array.base
    return array if not isinstance(array, memoryview) else array.obj
