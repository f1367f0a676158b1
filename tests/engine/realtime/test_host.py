"""Parties in real time: the same results as in simulation, whatever the carrier does."""

import asyncio
import errno
import random

import numpy as np
import pytest

from securevfl.engine import wire
from securevfl.engine.carriers.datagrams import read_head
from securevfl.engine.conditions import NONE
from securevfl.engine.network import SERVER
from securevfl.engine.party import ANNOUNCE, Party
from securevfl.engine.party_state import restore
from securevfl.engine.realtime.host import PartyHost
from securevfl.engine.security.frames import Frame, Links
from securevfl.errors import SealError, WireError
from securevfl.protocols import split
from securevfl.runs.assembly import rules_of
from securevfl.runs.threads import one_thread
from securevfl.testing.runs import make, simulate
from tests.engine.realtime.live_parties import Carrier, live

NOTHING = wire.encode(None)

# Protocols whose result does not depend on who comes first.
STEADY = {
    "fedvs": {},
    "split": {},
    "multivfl": {"label_owners": 2},
    "cvfl": {"mode": "sync"},
    "secagg_split": {},
}


def losses(carrier):
    events = carrier.hosts[SERVER].events
    return [event.fields["loss"] for event in events if event.name == "round"]


@pytest.mark.parametrize("name", STEADY)
def test_real_time_and_simulation_give_the_same_numbers(name):
    options = STEADY[name]
    wanted = simulate(name, conditions=NONE, **options)
    with one_thread():
        carrier = live(make(name, **options))
    assert losses(carrier) == wanted.losses
    made = wanted.protocol
    ours = made.scores({i: host.party for i, host in carrier.hosts.items()}, made.data.test)
    assert (ours == made.scores(wanted.parties, made.data.test)).all()


def test_a_carrier_that_shuffles_and_repeats_changes_nothing():
    wanted = simulate("fedvs", conditions=NONE)
    with one_thread():
        carrier = live(make("fedvs"), jitter=0.003, twice=0.3)
    assert losses(carrier) == wanted.losses
    assert carrier.count("repeated") > 10
    assert carrier.count("rejected") == 0


def test_bytes_of_strangers_harm_nothing():
    """Flipped, cut, forged and replayed datagrams, sixty for each true one, during a run."""
    wanted = simulate("split", conditions=NONE, rounds=6)
    chance = random.Random(1)

    class Attacked(Carrier):
        def deliver(self, receiver, data):
            self.tried = getattr(self, "tried", 0) + 60
            for _ in range(60 if self.tried <= 6000 else 0):  # each replay may be answered
                super().deliver(receiver, self.forged(receiver, data))
            super().deliver(receiver, data)

        def forged(self, receiver, data):
            kind = chance.randrange(5)
            if kind == 0:  # flipped
                broken = bytearray(data)
                broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
                return bytes(broken)
            if kind == 1:
                return data[: chance.randrange(len(data))]
            if kind == 2:
                return chance.randbytes(chance.randrange(200))
            if kind == 3:  # replayed, to this party or another one
                known = [one for to, one in self.carried[:-1] if to == receiver]
                return chance.choice(known)[:] if known else b""
            head = read_head(data)
            forged = head._replace(sender=chance.randrange(-1, 6)).encode()
            return forged + data[len(forged) :]

    with one_thread():
        carrier = Attacked(make("split", rounds=6).parties())
        asyncio.run(carrier.run())
    assert losses(carrier) == wanted.losses
    assert sum(host.status.rejected for host in carrier.hosts.values()) > 1200
    assert carrier.count("rejected") + carrier.count("repeated") > 2500


def test_a_party_that_was_killed_comes_back_from_its_own_checkpoint():
    made = make("fedvs", rounds=12, share_timeout=0.3, result_timeout=0.3)
    saved = {}

    def keep(party, state):
        saved[party.index] = state()

    async def scenario():
        carrier = Carrier(made.parties(), keep=keep)
        task = asyncio.ensure_future(carrier.run())
        while carrier.hosts.get(SERVER) is None or carrier.hosts[SERVER].party.round < 3:
            await asyncio.sleep(0.001)
        carrier.dead.add(2)
        carrier.hosts[2].stop()
        while carrier.hosts[SERVER].party.round < 7:
            await asyncio.sleep(0.001)
        party = made.party(2)
        restore(party, saved[2])
        host = await carrier.add(2, party, epoch=1, setup_done=True)
        carrier.introduce()
        host.start()
        await task
        return carrier

    with one_thread():
        carrier = asyncio.run(scenario())
    assert len(losses(carrier)) == 12
    assert carrier.hosts[2].party.round > 7
    assert np.isfinite(losses(carrier)).all()


def test_an_error_in_a_party_is_told_with_its_lines():
    made = make("split")
    parties = made.parties()
    parties[SERVER].centre = None
    with (
        one_thread(),
        pytest.raises(AssertionError, match=r"the server: AttributeError[^$]*split\.py"),
    ):
        asyncio.run(Carrier(parties).run())


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError("it is gone"), "party 1: OSError: it is gone"),
        (OSError(errno.ENOSPC, "No space left on device"), "party 1: its disk is full. What was"),
    ],
)
def test_a_checkpoint_that_cannot_be_written_ends_its_party(error, told):
    def keep(party, state):
        if party.index == 1 and party.round == 2:
            raise error

    carrier = Carrier(make("split", rounds=3).parties(), keep=keep)
    with one_thread(), pytest.raises(AssertionError, match="missing: party 1"):
        asyncio.run(carrier.run())
    status = carrier.hosts[1].status
    assert status.done
    assert status.failed.startswith(told)
    assert ("\n" in status.failed) == (told != "party 1: its disk is full. What was")


class Written(Carrier):
    """Parties whose writes are noted, and are on disk after a sync."""

    def __init__(self, parties):
        super().__init__(parties)
        self.unsynced, self.left, self.syncs = dict.fromkeys(parties, 0), [], 0

    async def add(self, index, party, epoch=0, setup_done=False):
        def write(*_):
            self.unsynced[index] += 1

        def sync():
            self.syncs += self.unsynced[index] > 0
            self.unsynced[index] = 0

        self.options |= {"keep": write, "keep_ahead": write, "sync": sync}
        host = await super().add(index, party, epoch, setup_done)
        transmit = host._transmit

        def leaves(receiver, frame):
            self.left.append(self.unsynced[index])
            transmit(receiver, frame)

        host._transmit = leaves
        return host


def test_nothing_leaves_a_party_before_what_it_wrote_is_on_disk():
    """Between two messages one sync is enough, however much was written."""
    made = make("fedvs", rounds=4)
    carrier = Written(made.parties())
    with one_thread():
        asyncio.run(carrier.run())
    assert set(carrier.left) == {0}
    assert not any(carrier.unsynced.values())  # at its end, too
    clients = len(carrier.parties) - 1
    assert carrier.syncs <= 2 * (4 + 2) * (clients + 1)


def test_a_checkpoint_of_which_nothing_follows_is_soon_on_disk():
    class Waiting(Party):
        async def run(self):
            self.safe_point()
            await self.receive("never")

    async def scenario():
        carrier = Written({SERVER: Waiting(SERVER, []), 0: Waiting(0, [])})
        running = asyncio.ensure_future(carrier.run())
        while carrier.syncs < 2:
            await asyncio.sleep(0.001)
        running.cancel()
        return carrier

    assert asyncio.run(scenario()).left == []


def test_a_disk_that_cannot_sync_ends_its_party():
    def sync():
        raise OSError("it is gone")

    carrier = Carrier(make("split", rounds=3).parties(), keep=lambda *_: None, sync=sync)
    with one_thread(), pytest.raises(AssertionError):
        asyncio.run(carrier.run())
    assert carrier.hosts[SERVER].status.failed.startswith("the server: OSError: it is gone")


def test_a_cautious_party_leaves_a_round_that_is_over(monkeypatch):
    """Its `except Exception` around a wait does not keep it in the round."""

    class Hurried(Party):
        async def run(self):
            self.announce(1)
            await self.sleep(0.01)
            self.announce(2)
            self.heard = await self.collect("end")
            self.conclude()

    class Cautious(Party):
        async def run(self):
            async for round_ in self.rounds():
                with round_:
                    try:
                        await self.receive("never", timeout=0.05)
                    except Exception as error:
                        self.send(SERVER, "end", [round_.number, type(error).__name__])

    over = []
    monkeypatch.setattr(PartyHost, "round_over", lambda _, party, *of: over.append(of))
    parties = {SERVER: Hurried(SERVER, (0,)), 0: Cautious(0, (0,))}
    carrier = Carrier(parties)
    asyncio.run(carrier.run(5.0))
    assert parties[SERVER].heard == {0: [2, "TimeoutError"]}
    assert over == [(1, True), (2, False)]


def pair():
    both = [Links("r", index, 0, (0, 1)) for index in (0, 1)]
    for links in both:
        links.add_peers({0: 0, 1: 0})
    return both


def test_frames_come_out_in_the_order_in_which_they_left():
    one, two = pair()
    frames = [one.pack(1, "kind", n, NOTHING) for n in range(5)]
    found = [message.round for n in (1, 0, 4, 3, 2) for message in two.unpack(frames[n])]
    assert found == [0, 1, 2, 3, 4]
    with pytest.raises(SealError, match="received before"):
        two.unpack(frames[2])


def test_a_new_incarnation_has_links_of_its_own():
    one, two = pair()
    old = one.pack(1, "kind", 0, NOTHING)
    again = Links("r", 1, 1, (0, 1))
    again.add_peers({0: 0})
    early = again.pack(0, "kind", 7, NOTHING)
    with pytest.raises(WireError, match="incarnation 1 of party 1 came, and 0 is the newest"):
        one.unpack(early)
    one.add_peers({1: 1})
    assert [message.round for message in one.unpack(early)] == [7]
    assert again.unpack(old) == []  # meant for the incarnation before
    assert [m.round for m in again.unpack(one.pack(1, "kind", 8, NOTHING))] == [8]
    assert one.unpack(two.pack(0, "kind", 0, NOTHING)) == []  # the old incarnation still talks


def test_strangers_are_named():
    one, two = pair()
    frame = Frame.decode(one.pack(1, "kind", 0, NOTHING))
    for changed, said in (
        ({"run": "other"}, "of run 'other'"),
        ({"receiver": 0}, "came to party 1"),
        ({"sender": 9}, "party 9 is no party"),
    ):
        with pytest.raises(WireError, match=said):
            two.unpack(frame._replace(**changed).encode())
    with pytest.raises(WireError, match="no frame"):
        two.unpack(NOTHING)
    with pytest.raises(WireError, match="not int"):
        two.unpack(5)
    with pytest.raises(ValueError, match="party 9 does not exist"):
        one.pack(9, "kind", 0, NOTHING)


class Deviating(split.Client):
    """Speaks as the server to client 0, once a round, by an engine that lets it."""

    def embed(self, own):
        self.send(0, ANNOUNCE, "stop", round=10**6)
        self.send(0, "gradient", np.full((15, 6), 1e3, np.float32))
        return super().embed(own)


class OneDeviates(Carrier):
    """Party 3 runs an engine of its own making, without rules."""

    async def add(self, index, party, **options):
        home = await super().add(index, party, **options)
        if index == 3:
            home._rules = None
        return home


def test_a_client_that_speaks_as_the_server_is_not_heard():
    made = make("split")
    wanted = simulate("split", conditions=NONE)
    parties = made.parties()
    parties[3].__class__ = Deviating
    with one_thread():
        carrier = OneDeviates(parties, rules=rules_of(made))
        asyncio.run(carrier.run())
    assert losses(carrier) == wanted.losses
    refused = [e.fields for e in carrier.hosts[0].events if e.name == "refused"]
    assert [(f["kind"], f["sender"]) for f in refused] == [(ANNOUNCE, 3), ("gradient", 3)] * 4
    assert carrier.hosts[0].status.rejected == 8


def test_without_rules_a_client_that_speaks_as_the_server_is_heard():
    """What the test above would miss if nothing were refused."""
    parties = make("split").parties()
    parties[3].__class__ = Deviating
    with one_thread(), pytest.raises(AssertionError):
        asyncio.run(Carrier(parties).run(until=1.0))


def test_the_own_engine_of_an_honest_party_refuses_to_send_it():
    made = make("split")
    parties = made.parties()
    parties[3].__class__ = Deviating
    carrier = Carrier(parties, rules=rules_of(made))
    with one_thread(), pytest.raises(AssertionError, match="missing: party 3"):
        asyncio.run(carrier.run())
    said = carrier.hosts[3].status.failed
    assert said.startswith("party 3: split: party 3 sends 'round' to party 0")
