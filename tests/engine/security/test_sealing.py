"""Sealed links: what they refuse, and that a run through them is the same run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from securevfl.engine import wire
from securevfl.engine.conditions import Conditions
from securevfl.engine.party import SERVER, Party
from securevfl.engine.security.sealing import OVERHEAD, Sealer, Sealing
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import SealError


def pair(run="run", protocol="p"):
    sealers = [Sealer(protocol, run, n) for n in range(3)]
    for sealer in sealers:
        sealer.add_peers({other.index: other.public for other in sealers})
    return sealers


def test_a_payload_comes_back_and_costs_the_overhead():
    a, b, _ = pair()
    sealed = a.seal(1, "model", 3, 0, b"payload")
    assert len(sealed) == len(b"payload") + OVERHEAD
    assert b.open(0, "model", 3, 0, sealed) == b"payload"


@pytest.mark.parametrize(
    ("kind", "round", "epoch"), [("gradient", 3, 0), ("model", 4, 0), ("model", 3, 1)]
)
def test_a_message_of_another_kind_round_or_epoch_is_rejected(kind, round, epoch):
    a, b, _ = pair()
    sealed = a.seal(1, "model", 3, 0, b"payload")
    with pytest.raises(SealError, match=f"'{kind}' of round {round} .*from party 0"):
        b.open(0, kind, round, epoch, sealed)


def test_a_wrong_sender_or_receiver_is_rejected():
    a, b, c = pair()
    sealed = a.seal(1, "model", 3, 0, b"payload")
    with pytest.raises(SealError, match="from party 2"):
        b.open(2, "model", 3, 0, sealed)
    with pytest.raises(SealError, match="another sender, receiver"):
        c.open(0, "model", 3, 0, sealed)


def test_another_run_or_protocol_with_the_same_keys_is_rejected():
    a, b, _ = pair()
    sealed = a.seal(1, "model", 3, 0, b"payload")
    for protocol, run in (("p", "other"), ("q", "run")):
        twin = Sealer(protocol, run, 1)
        twin._secret = b._secret
        twin.add_peers({0: a.public})
        with pytest.raises(SealError):
            twin.open(0, "model", 3, 0, sealed)


def test_a_replay_is_rejected_by_that_name_also_long_after():
    a, b, _ = pair()
    messages = [a.seal(1, "model", 3, 0, bytes([n])) for n in range(9)]
    for n in (4, 0, 1, 8, 2, 3):  # delayed messages overtake each other
        assert b.open(0, "model", 3, 0, messages[n]) == bytes([n])
    for n in (0, 4, 8):
        with pytest.raises(SealError, match="received before"):
            b.open(0, "model", 3, 0, messages[n])
    for n in (5, 6, 7):
        assert b.open(0, "model", 3, 0, messages[n]) == bytes([n])


@given(st.binary(max_size=64), st.data())
def test_every_flipped_bit_and_every_truncation_is_rejected(payload, data):
    a, b, _ = pair()
    sealed = a.seal(1, "k", 1, 0, payload)
    bit = data.draw(st.integers(0, 8 * len(sealed) - 1))
    flipped = bytearray(sealed)
    flipped[bit // 8] ^= 1 << bit % 8
    with pytest.raises(SealError):
        b.open(0, "k", 1, 0, bytes(flipped))
    with pytest.raises(SealError):
        b.open(0, "k", 1, 0, sealed[: data.draw(st.integers(0, len(sealed) - 1))])
    assert b.open(0, "k", 1, 0, sealed) == payload  # a forgery does not use up the true one


def test_keys_differ_by_direction_pair_and_run():
    a, b, c = pair()
    zero = bytes(32)
    sealed = {
        a.seal(1, "k", 1, 0, zero),
        b.seal(0, "k", 1, 0, zero),
        a.seal(2, "k", 1, 0, zero),
        c.seal(0, "k", 1, 0, zero),
        *(x.seal(1, "k", 1, 0, zero) for x in (pair()[0], pair(run="r")[0])),
    }
    assert len({text[8:40] for text in sealed}) == 6


def test_an_unknown_party_has_no_link():
    a, _, _ = pair()
    with pytest.raises(SealError, match="no public key of party 7"):
        a.seal(7, "k", 1, 0, b"")


class Talker(Party):
    kept = ("heard",)

    def __init__(self, index, peers):
        super().__init__(index, peers)
        self.heard = []

    async def run(self):
        while len(self.heard) < 3:
            self.round = len(self.heard) + 1
            self.safe_point()
            await self.sleep(1 + self.index / 4)
            self.broadcast("word", (self.index, np.full(5, self.round)))
            got = await self.collect("word", senders=[n for n in self.peers if n != self.index])
            self.heard.append([int(array.sum()) + sender for sender, array in got.values()])


def talk(sealing):
    parties = {n: Talker(n, range(4)) for n in range(4)}
    simulation = Simulation(parties, sealing=sealing(parties))
    simulation.run()
    return parties, simulation.transcript


def test_a_sealed_run_is_the_same_run_with_the_overhead_of_each_message():
    plain, clear = talk(lambda parties: None)
    sealed, closed = talk(lambda parties: Sealing("talk", "run", parties))
    assert [p.heard for p in sealed.values()] == [p.heard for p in plain.values()]
    assert closed.messages == clear.messages
    assert closed.bytes == clear.bytes + OVERHEAD * clear.messages


class Late(Talker):
    """Waits for two of three words in each round: the third one comes late."""

    async def run(self):
        while len(self.heard) < 6:
            self.round = len(self.heard) + 1
            self.safe_point()
            await self.sleep(1 + self.index / 4)
            self.broadcast("word", (self.index, np.full(5, self.round)))
            got = await self.collect("word", count=2)
            self.heard.append(sorted(got))


def test_what_comes_late_leaves_no_gap_in_the_counters():
    parties = {n: Late(n, range(4)) for n in range(4)}
    sealing = Sealing("talk", "run", parties)
    simulation = Simulation(parties, sealing=sealing)
    simulation.run()
    assert simulation.transcript.late > 0
    for sealer in sealing._sealers.values():
        assert not any(direction.ahead for direction in sealer._inward.values())


def test_messages_that_wait_are_opened_for_a_checkpoint():
    """Its keys open what is under way, and what has arrived is in it as it was sent."""
    parties = {n: Talker(n, range(4)) for n in range(4)}
    one_by_one = Conditions(bandwidth=1e4)
    sealing = Sealing("talk", "run", parties)
    simulation = Simulation(parties, conditions=one_by_one, sealing=sealing)
    slot = simulation.slots[3]
    simulation.run(lambda: bool(slot.take_arrived() or slot.sealed))
    mailbox = slot.state()["mailbox"]
    waiting = [*mailbox["taken"], *mailbox["held"]]
    assert waiting
    assert all(isinstance(fields[3], tuple) for fields in waiting)
    assert not slot.sealed
    simulation.run()
    assert len(parties[3].heard) == 3


def test_what_travels_does_not_hold_the_payload(monkeypatch):
    parties = {n: Talker(n, range(2)) for n in range(2)}
    simulation = Simulation(parties, sealing=Sealing("talk", "run", parties))
    wires = []
    transmit = simulation._transmit

    def transmitted(together):
        wires.extend(message.payload for message, _ in together)
        transmit(together)

    monkeypatch.setattr(simulation, "_transmit", transmitted)
    simulation.run()
    secret = np.full(5, 2).tobytes()
    assert wires
    assert all(type(w) is bytes and secret not in w for w in wires)
    assert any(secret in wire.encode((n, np.full(5, 2))) for n in range(2))


def test_the_server_has_links_too():
    sealing = Sealing("p", "run", {SERVER: None, 0: None})
    sealed = sealing.seal(SERVER, 0, "gradient", 1, 0, b"x")
    assert sealing.open(SERVER, 0, "gradient", 1, 0, sealed) == b"x"


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.text(max_size=9),
    st.integers(-1, 2**40),
    st.text(max_size=9),
)
def test_associated_data_are_the_encoded_tuple(round, kind, number, run):
    sealer = Sealer("fedvs", run, 0)
    bound = sealer._bound(number, SERVER, kind, round, number)
    assert bound == wire.encode(("fedvs", run, round, kind, number, SERVER, number))


def test_one_agreement_serves_both_directions_and_is_not_kept():
    a, b, _ = pair()
    a.open(1, "k", 1, 0, b.seal(0, "k", 1, 0, b"x"))
    assert [*a._agreed] == [b.public]
    assert [*b._agreed] == [a.public]
    b.open(0, "k", 1, 0, a.seal(1, "k", 1, 0, b"y"))
    assert a._agreed == b._agreed == {}
    c = Sealer("p", "run", 1)
    a.open(1, "k", 2, 0, b.seal(0, "k", 2, 0, b"z"))
    a.add_peers({1: c.public})  # what was agreed with the key before is not used again
    assert a._agreed == {}


# -- no nonce is used twice ----------------------------------------------------------------------


def xor(one, two):
    return bytes(p ^ q for p, q in zip(one, two, strict=True))


def test_a_restored_simulation_seals_nothing_under_a_nonce_of_the_broken_run():
    broken = Sealing("p", "run", {0: None, 1: None})
    way = [broken.seal(0, 1, "k", 1, 0, b"under way")]
    saved = wire.decode(wire.encode(broken.state()))
    lost = broken.seal(0, 1, "k", 2, 0, b"said before")
    texts = [(lost, b"said before")]
    for life in range(3):  # each restores the same state, or that of the life before
        resumed = Sealing("p", "run", {0: None, 1: None})
        resumed.restore(saved)
        for sealed in way:
            assert resumed.open(0, 1, "k", 1, 0, sealed) == b"under way"
            with pytest.raises(SealError):
                resumed.open(0, 1, "k", 1, 0, sealed)
        with pytest.raises(SealError, match="only open messages"):
            resumed._earlier[-1][0].seal(1, "k", 2, 0, b"")
        own = b"said now, %02d" % life
        first = resumed.seal(0, 1, "k", 2, 0, own[:11])
        second = resumed.seal(0, 1, "k", 2, 0, own[-11:])
        assert resumed.open(0, 1, "k", 2, 0, first) == own[:11]
        for sealed, payload in ((first, own[:11]), (second, own[-11:])):
            for other, said in texts:
                assert xor(other[8:-16], sealed[8:-16]) != xor(said, payload)
            texts.append((sealed, payload))
        if life == 1:
            way.append(resumed.seal(0, 1, "k", 1, 0, b"under way"))
            saved = wire.decode(wire.encode(with_nothing_opened(resumed)))


def with_nothing_opened(sealing):
    """Its state, as if all that was sealed were still under way."""
    state = sealing.state()
    for life in state["lives"]:
        for one in life.values():
            one["floor"], one["seen"] = {}, {}
    return state


def test_a_sealed_run_that_is_restored_at_any_instant_ends_as_one_that_was_not():
    whole, sent = talk(lambda parties: Sealing("talk", "run", parties))
    resumed_runs = 0
    for instant in range(1, 12, 3):
        parties = {n: Talker(n, range(4)) for n in range(4)}
        simulation = Simulation(parties, sealing=Sealing("talk", "run", parties))
        states, passed = [], []

        def pause(simulation=simulation, states=states, passed=passed, instant=instant):
            passed.append(0)
            if len(passed) == instant:
                simulation.request_state(lambda state: states.append(wire.encode(state)))
            return bool(states)

        simulation.run(pause)
        if not states:  # it ended before
            continue
        resumed_runs += 1
        again = {n: Talker(n, range(4)) for n in range(4)}
        resumed = Simulation.from_state(
            again, wire.decode(states[0]), sealing=Sealing("talk", "run", again)
        )
        resumed.run()
        assert [p.heard for p in again.values()] == [p.heard for p in whole.values()]
        assert resumed.transcript.bytes == sent.bytes
    assert resumed_runs >= 1


def test_counters_are_left_out_and_never_come_again():
    a, b, _ = pair()
    a.seal(1, "k", 1, 0, b"x")
    a._direction(0, 1).next = 1 << 40
    sealed = a.seal(1, "k", 1, 0, b"y")
    assert sealed[:8] == (1 << 40).to_bytes(8, "little")
    assert b.open(0, "k", 1, 0, sealed) == b"y"
