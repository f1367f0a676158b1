import pytest
from hypothesis import given
from hypothesis import strategies as st

from securevfl.engine.mailbox import ANNOUNCE, Mailbox
from securevfl.engine.network import ANY_ROUND, Message, Wait


class Box:
    """A mailbox, the late messages, and short ways to say things."""

    def __init__(self):
        self.late = []
        self.mailbox = Mailbox(self.late.append)
        self.sent = 0

    def put(self, sender, kind="x", round=1):
        message = Message(sender, 9, kind, f"p{self.sent}", round, 0, self.sent)
        self.sent += 1
        return self.mailbox.put(message)

    def collect(self, count, senders=None, kind="x", round=1):
        wanted = None if senders is None else frozenset(senders)
        return self.mailbox.begin_wait(Wait((kind,), round, count, wanted, None, False, None))

    def receive(self, *kinds, round=ANY_ROUND):
        return self.mailbox.begin_wait(Wait(kinds, round, 0, None, None, False, None))

    def finish(self):
        return [(m.kind, m.round, m.sender) for m in self.mailbox.finish()]

    def late_rows(self):
        return [m.row for m in self.late]


@pytest.fixture
def box():
    return Box()


def test_a_collect_takes_the_first_in_order_of_arrival_and_closes(box):
    for sender in (3, 1):
        box.put(sender)
    assert not box.collect(3)
    assert box.put(2)
    assert box.finish() == [("x", 1, 3), ("x", 1, 1), ("x", 1, 2)]
    box.put(0)
    assert box.late_rows() == [3]


def test_what_is_held_beyond_the_count_is_late_when_the_collect_ends(box):
    for sender in (5, 4, 3, 2):
        box.put(sender)
    assert box.collect(2)
    assert box.finish() == [("x", 1, 5), ("x", 1, 4)]
    assert box.late_rows() == [2, 3]


def test_a_collect_of_whole_groups_goes_on_until_these_have_enough_members(box):
    groups = ((0, 1), (2, 3, 4))
    box.put(0)
    box.mailbox.begin_wait(Wait(("x",), 1, 2, None, None, False, None, groups))
    assert [box.put(sender) for sender in (2, 4, 1)] == [False, False, True]
    assert [sender for _, _, sender in box.finish()] == [0, 2, 4, 1]
    box.put(3)
    assert box.late_rows() == [4]


def test_messages_of_other_rounds_kinds_and_senders_are_left_alone(box):
    box.put(1, round=2)
    box.put(1, kind="y")
    box.put(7)
    assert box.collect(1, senders=[1]) is False
    assert box.put(1)
    assert box.finish() == [("x", 1, 1)]
    assert box.late_rows() == [2]  # sender 7: its kind and round are closed now
    assert box.collect(1, round=2)
    assert box.finish() == [("x", 2, 1)]
    assert box.receive("y")


def test_a_collect_that_ends_early_closes_too(box):
    box.collect(2)
    box.put(0)
    assert box.finish() == [("x", 1, 0)]
    box.put(1)
    assert box.late_rows() == [1]


def test_a_second_message_of_a_sender_is_late_whether_taken_or_held(box):
    box.put(0)
    box.put(0)
    box.collect(3)
    box.put(0)
    box.put(1)
    box.put(1)
    assert box.late_rows() == [1, 2, 4]
    assert box.put(2)


def test_a_receive_takes_the_earliest_of_its_kinds_and_closes_nothing(box):
    for kind in "cab":
        box.put(0, kind=kind)
    assert box.receive("b", "a")
    assert box.finish() == [("a", 1, 0)]
    box.put(0, kind="a")
    assert box.receive("b", "a")
    assert box.finish() == [("b", 1, 0)]
    assert box.receive("a")
    assert box.late == []


def test_of_several_announcements_the_newest_counts_and_older_ones_become_late(box):
    for number in (3, 5, 4):
        box.put(-1, kind=ANNOUNCE, round=number)
    assert box.mailbox.newer_announcement(4)
    assert not box.mailbox.newer_announcement(5)
    assert box.receive(ANNOUNCE)
    assert box.finish() == [(ANNOUNCE, 5, -1)]
    box.mailbox.enter(5)
    assert box.late_rows() == [0, 2]


def test_entering_a_round_makes_earlier_messages_late_for_good(box):
    box.put(0, round=1)
    box.put(0, round=2)
    box.mailbox.enter(2)
    box.put(1, round=1)
    assert box.late_rows() == [0, 2]
    box.mailbox.enter(1)  # the floor never sinks
    box.put(2, round=1)
    assert box.late_rows() == [0, 2, 3]
    assert box.collect(1, round=2)


def test_withdraw_and_close(box):
    box.put(1, kind="y", round=2)
    box.put(0, kind="y", round=1)
    box.put(3)
    assert [m.sender for m in box.mailbox.withdraw("y")] == [1, 0]
    assert box.mailbox.withdraw("y") == []
    box.mailbox.close()
    assert box.late_rows() == [2]


def test_what_a_busy_party_has_been_given_survives_beside_what_came_since(box):
    # It is satisfied and not yet free to go on; a like message comes and is held.
    box.receive("x")
    assert box.put(0)
    box.put(0)
    twin = Box()
    twin.mailbox.restore(box.mailbox.state())
    assert twin.receive("x")
    assert [m.row for m in twin.mailbox.finish()] == [0]
    assert twin.receive("x")
    assert [m.row for m in twin.mailbox.finish()] == [1]
    assert twin.late == []


events = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 3), st.sampled_from("xy"), st.integers(0, 3)),
        st.tuples(st.just("collect"), st.integers(1, 4), st.sampled_from("xy"), st.integers(0, 3)),
        st.tuples(st.just("receive"), st.just(0), st.sampled_from("xy"), st.integers(-1, 3)),
        st.tuples(st.just("enter"), st.just(0), st.just("x"), st.integers(0, 3)),
    ),
    max_size=40,
)


def play(box, event, taken):
    what, number, kind, round = event
    over = False
    if what == "put":
        over = box.put(number, kind, round)
    elif box.mailbox.wait is not None:
        return
    elif what == "collect":
        over = box.collect(number, range(4), kind, round)
    elif what == "receive":
        over = box.receive(kind, round=round)
    else:
        box.mailbox.enter(round)
    if over:
        taken.append(box.finish())


@given(events, st.integers(0, 40))
def test_nothing_is_lost_and_a_restored_mailbox_goes_on_alike(events, cut):
    box, taken = Box(), []
    for event in events[:cut]:
        play(box, event, taken)
    wait = box.mailbox.wait
    twin, twin_taken = Box(), list(taken)
    twin.mailbox.restore(box.mailbox.state())
    twin.sent, twin.late = box.sent, list(box.late)
    twin.mailbox._late = twin.late.append
    if wait is not None:
        again = Wait(wait.kinds, wait.round, wait.count, wait.senders, None, False, None)
        assert not twin.mailbox.begin_wait(again)
    for event in events[cut:]:
        play(box, event, taken)
        play(twin, event, twin_taken)
    assert twin_taken == taken
    assert twin.late == box.late
    waiting = box.mailbox.wait
    held = sum(map(len, box.mailbox._held.values())) + (len(waiting.taken) if waiting else 0)
    assert box.sent == sum(map(len, taken)) + len(box.late) + held
    assert len({m.row for m in box.late}) == len(box.late)
