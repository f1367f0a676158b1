"""Sessions: each frame once and in order, whatever a carrier does; bounds; incarnations."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securevfl.engine.carriers.base import LARGEST_DATAGRAM
from securevfl.engine.carriers.datagrams import ACK, DATA, HELLO, encode_hello, read_head
from securevfl.engine.carriers.handshake import Handshake
from securevfl.engine.carriers.link import (
    BYTES_TO_ALL,
    BYTES_UNDER_WAY,
    LONGEST_WAIT,
    WINDOW,
    Outgoing,
)
from securevfl.engine.carriers.session import KEEPALIVE
from securevfl.errors import CarrierError
from tests.engine.carriers.memory import Hostility
from tests.engine.carriers.world import World, credentials_of, hello_of, identity


def frames(count, seed=0, largest=400):
    chosen = random.Random(seed)
    return [b"%d:" % n + chosen.randbytes(chosen.randrange(largest)) for n in range(count)]


def send(world, sender, receiver, sent):
    for frame in sent:
        world.sessions[sender].send(receiver, frame)


def all_idle(world):
    return all(session.idle for session in world.sessions.values())


@settings(max_examples=12)
@given(
    seed=st.integers(0, 2**32),
    shares=st.tuples(*[st.sampled_from([0.0, 0.1, 0.3])] * 5),
    padded=st.booleans(),
)
def test_each_frame_comes_once_and_in_order_over_a_hostile_carrier(seed, shares, padded):
    world = World(3, Hostility(*shares), seed, padded=padded)
    world.meet()
    there, back = frames(120, seed), frames(60, seed + 1)
    send(world, -1, 0, there)
    send(world, 0, -1, back)
    send(world, 1, 0, [])
    world.run(lambda: all_idle(world))
    assert world.got == {-1: back, 0: there, 1: []}
    assert all(not session.gone for session in world.sessions.values())


def test_of_all_changed_datagrams_none_is_accepted():
    """10 % of each mistreatment, and every forgery is counted."""
    world = World(2, Hostility.of(0.1), 3)
    world.meet()
    sent = frames(600, 5)
    send(world, -1, 0, sent)
    world.run(lambda: all_idle(world))
    assert world.got[0] == sent
    assert world.relay.forged > 50
    # A changed head may make a datagram one of another incarnation or an old number, which is
    # dropped without being opened; nothing else comes of it.
    dropped = sum(s.rejected + s.repeated for s in world.sessions.values())
    assert dropped > world.relay.forged / 2


def test_who_gets_a_frame_may_send_at_once_while_later_ones_wait():
    """Frames that a gap held back come together; each is answered before the next is delivered."""
    world = World()
    world.meet()
    one, two = world.sessions[-1], world.sessions[0]
    answered = []

    def answer(frame, sender):
        two.send(-1, b"re:" + frame)
        answered.extend(two.due(world.now))

    two._deliver = answer
    send(world, -1, 0, [b"a", b"b", b"c"])
    data = [data for _, data in one.due(world.now) if read_head(data).type == DATA]
    for each in reversed(data):
        two.take(each, world.now)
    for _, each in answered:
        one.take(each, world.now)
    assert world.got[-1] == [b"re:a", b"re:b", b"re:c"]
    assert one.idle


def test_memory_is_bounded_while_a_gap_stays_open():
    """Where one number never arrives, no more than a window is kept at either end."""
    world = World()
    world.meet()
    sender, receiver = world.sessions[-1], world.sessions[0]
    send(world, -1, 0, frames(500))
    for _ in range(200):
        for _, data in sender.due(world.now):
            head = read_head(data)
            if head.type == DATA and head.number > 0:
                receiver.take(data, world.now)
        for _, data in receiver.due(world.now):
            sender.take(data, world.now)
        world.now += 0.05
    link = receiver._links[-1]
    assert link.incoming.expected == 0
    assert len(link.incoming._early) == WINDOW - 1
    assert world.got[0] == []


def test_a_frame_of_three_parts_is_put_together():
    world = World(padded=True)
    world.meet()
    large = random.Random(1).randbytes(3 * LARGEST_DATAGRAM - 5000)
    send(world, -1, 0, [b"before", large, b"after", b""])
    world.run(lambda: all_idle(world))
    assert world.got[0] == [b"before", large, b"after", b""]
    assert max(world.sizes) == LARGEST_DATAGRAM


def test_a_frame_above_the_bound_is_not_put_together():
    world = World(largest=LARGEST_DATAGRAM)
    world.start(0, 1, largest=2 * LARGEST_DATAGRAM)
    world.meet()
    send(world, 0, -1, [bytes(LARGEST_DATAGRAM + 1)])
    world.run(lambda: 0 in world.sessions[-1].gone)
    assert "largest message that is planned has 524288" in world.sessions[-1].gone[0]
    assert world.got[-1] == []
    assert not world.sessions[-1]._links[0].incoming._parts  # nothing of it was kept
    world.run(lambda: -1 in world.sessions[0].gone)  # and its sender is told
    assert "Restart this party" in world.sessions[0].gone[-1]


def test_what_waits_for_a_peer_is_bounded_and_the_error_names_it():
    world = World(most_stored=10_000)
    world.meet()
    world.stopped.add(0)
    session = world.sessions[-1]
    for _ in range(8):
        session.send(0, bytes(1000))
        world.flush()
    with pytest.raises(CarrierError, match=r"party 0 takes no messages: \d+ bytes wait for it"):
        session.send(0, bytes(2000))
    assert 8_000 <= session.stored(0) <= 10_000 + 100 * WINDOW
    session.give_up(0, "slow")
    assert session.stored(0) == 0
    session.send(0, bytes(1000))  # is lost: the link has a gap
    assert session.stored(0) == 0
    world.stopped.discard(0)
    world.run(lambda: -1 in world.sessions[0].gone)
    world.start(0, 1)  # a new incarnation begins a new link
    world.meet()
    assert session.gone == {}
    send(world, -1, 0, [b"again"])
    world.run(lambda: all_idle(world))
    assert world.got[0][-1] == b"again"


def test_no_more_is_under_way_than_a_relay_keeps_for_a_slow_receiver():
    world = World()
    world.meet()
    world.stopped.add(0)
    send(world, -1, 0, [bytes(LARGEST_DATAGRAM)] * 40)
    before = world.bytes
    world.flush()
    assert world.bytes - before <= BYTES_UNDER_WAY + LARGEST_DATAGRAM


def test_many_senders_share_what_a_relay_keeps_for_one_receiver():
    peers = 100
    sender = Outgoing(peers)
    for _ in range(4):
        sender.push(bytes(LARGEST_DATAGRAM // 4))
    sent = sum(len(data) for data in sender.due(0.0, lambda number, piece: piece.data))
    assert BYTES_TO_ALL / 2 / peers < sent < BYTES_TO_ALL * 2 / peers


def test_what_is_not_acknowledged_is_sent_again_on_a_timer_that_doubles():
    world = World()
    world.meet()
    world.for_seconds(1)
    world.stopped.add(0)
    session = world.sessions[-1]
    session.send(0, b"x")
    times = []
    while len(times) < 9:
        if any(read_head(data).type == DATA for _, data in session.due(world.now)):
            times.append(world.now)
        world.now = max(world.now + 1e-4, session.next_due(world.now))
    waits = [round(b - a, 2) for a, b in pairwise(times)]
    assert waits[0] < 1.1
    assert waits[1:4] == [pytest.approx(2 * wait, abs=0.02) for wait in waits[:3]]
    assert waits[-1] == LONGEST_WAIT


def test_a_new_connection_of_an_idle_link_makes_nothing_due():
    """A party asked itself a thousand times a second what to send, until there was something."""
    world = World()
    world.meet()
    world.for_seconds(1)
    session = world.sessions[-1]
    session.reconnected()
    assert [read_head(data).type for _, data in session.due(world.now)] == [ACK]
    assert session.next_due(world.now) > world.now + 1


@pytest.mark.parametrize(("size", "at_once"), [(1000, []), (LARGEST_DATAGRAM // 2, []),
                                               (LARGEST_DATAGRAM, [ACK])])  # fmt: skip
def test_an_acknowledgement_waits_for_data_unless_the_sender_waits_for_it(size, at_once):
    """Where many parties share what is under way, two large datagrams fill a window."""
    world = World()
    world.meet()
    world.for_seconds(1)
    world.flush()
    sender, receiver, now = world.sessions[-1], world.sessions[0], world.now
    sender.send(0, bytes(size))
    for _, data in sender.due(now):
        receiver.take(data, now)
    assert [read_head(data).type for _, data in receiver.due(now)] == at_once
    receiver.send(-1, b"answer")
    assert [read_head(data).type for _, data in receiver.due(now)] == [DATA]
    assert receiver.next_due(now) > now + 0.15  # the answer told what had come


def test_a_reported_gap_is_filled_at_once():
    world = World()
    world.meet()
    send(world, -1, 0, frames(30))
    sender, lost = world.sessions[-1], 0
    for receiver, data in sender.due(world.now):
        head = read_head(data)
        if head.type == DATA and head.number == 3:
            lost += 1
        else:
            world.bring(receiver, data)
    begun = world.now
    world.run(lambda: len(world.got[0]) == 30)
    assert lost == 1
    assert sender.resent == 1
    assert world.now - begun < 6 * world.trip


def test_what_was_under_way_is_sent_again_when_the_carrier_is_back():
    world = World()
    world.meet()
    sent = frames(50)
    send(world, -1, 0, sent)
    world.flush()
    world.down, world.under_way = True, []
    world.for_seconds(3)
    world.down = False
    begun = world.now
    for session in world.sessions.values():
        session.reconnected()
    world.run(lambda: len(world.got[0]) == 50)
    assert world.got[0] == sent
    assert world.now - begun < 4 * world.trip


def test_a_hello_is_repeated_until_it_is_answered_by_its_key():
    world = World()
    world.stopped.add(0)
    world.for_seconds(30)
    hellos = len(world.sizes)
    assert 8 <= hellos <= 14  # after 0.2, 0.4, ... and then each 5 s
    assert world.sessions[-1].present == frozenset()
    world.stopped.discard(0)
    begun = world.now
    world.meet()
    assert world.now - begun <= 5.5
    assert world.met == {-1: [(0, 0)], 0: [(-1, 0)]}


def test_an_old_hello_that_is_replayed_makes_nobody_present():
    world = World()
    world.meet()
    old = hello_of(world.sessions[0], -1)
    world.start(0, 1)
    world.start(-1, 1)  # it has forgotten what it knew
    world.stopped.add(0)
    world.bring(-1, old)
    world.for_seconds(2)
    assert world.sessions[-1].present == frozenset()
    world.stopped.discard(0)
    world.meet()
    assert world.met[-1] == [(0, 0), (0, 1)]
    world.bring(-1, old)
    world.for_seconds(1)
    assert world.sessions[-1].present == {0}


def test_frames_between_other_incarnations_are_lost_and_a_restart_goes_on():
    world = World(2, Hostility.of(0.1), 8)
    world.meet()
    send(world, -1, 0, frames(20))
    world.flush()
    world.got[0].clear()
    world.start(0, 1)
    world.meet()
    later = frames(40, 7)
    send(world, -1, 0, later)
    send(world, 0, -1, later)
    world.run(lambda: all_idle(world))
    assert world.got[0][-40:] == world.got[-1][-40:] == later
    assert len(world.got[0]) == 40


def test_a_hello_that_is_not_signed_by_the_manifest_s_key_is_rejected():
    world = World()
    stranger = Handshake(credentials_of(identity(), world.manifest), 0, -1, 7, 0)
    offer, answer = stranger.offer, stranger.answer
    world.sessions[-1].take(encode_hello(0, -1, offer, answer), 0.0)
    world.sessions[-1].take(encode_hello(0, -1, offer._replace(public=b""), answer), 0.0)
    world.sessions[-1].take(encode_hello(5, -1, offer, answer), 0.0)
    world.sessions[-1].take(encode_hello(0, 1, offer, answer), 0.0)
    assert world.sessions[-1].rejected == 4
    assert world.sessions[-1].due(0.0)[0][1][1] == HELLO
    assert len(world.sessions[-1].due(0.0)) == 0


@pytest.mark.parametrize("data", [b"", b"x", bytes(36), bytes(LARGEST_DATAGRAM + 1), b"\1" * 300])
def test_what_is_no_datagram_is_counted(data):
    world = World()
    world.sessions[-1].take(data, 0.0)
    assert world.sessions[-1].rejected == 1


def test_a_party_that_is_stopped_is_named_and_heard_again():
    world = World(3)
    world.meet()
    world.for_seconds(3 * KEEPALIVE)
    session = world.sessions[-1]
    assert session.silent(world.now, KEEPALIVE + 1) == []
    world.stopped.add(1)
    # What it sent before is brought again, and counts as no sign of it.
    replayed = [data for _, data in world.sessions[1].due(world.now + KEEPALIVE)][:1]
    session.take(replayed[0], world.now)
    for _ in range(8):
        world.for_seconds(2.0)
        for data in replayed:
            session.take(data, world.now)
    assert session.silent(world.now, 15.0) == [1]
    world.stopped.discard(1)
    world.for_seconds(1.0)
    assert session.silent(world.now, 15.0) == []


@pytest.mark.parametrize("size", [0, 1, 100, 1000, 5000, 70_000])
def test_padded_datagrams_are_powers_of_two(size):
    world = World(padded=True)
    world.meet()
    send(world, -1, 0, [bytes(size)])
    world.run(lambda: all_idle(world))
    assert world.got[0] == [bytes(size)]
    assert all(length & (length - 1) == 0 for length in world.sizes)


def test_a_relay_sees_nothing_of_a_frame():
    world = World()
    world.meet()
    sent = []
    world.sessions[-1].send(0, b"kind and round and payload")
    sent = [data for _, data in world.sessions[-1].due(world.now)]
    assert sent
    assert not any(b"kind" in data for data in sent)
