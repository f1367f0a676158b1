"""Sealed links: what they refuse, and that a run through them is the same run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from securevfl.engine import wire
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
        twin = Sealer(protocol, run, 1, b._secret)
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
        for self.round in range(1, 4):
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


def test_what_travels_does_not_hold_the_payload(monkeypatch):
    parties = {n: Talker(n, range(2)) for n in range(2)}
    simulation = Simulation(parties, sealing=Sealing("talk", "run", parties))
    wires = []
    transmit = simulation._transmit
    monkeypatch.setattr(
        simulation, "_transmit", lambda m, nbytes: (wires.append(m.payload), transmit(m, nbytes))
    )
    simulation.run()
    secret = np.full(5, 2).tobytes()
    assert wires
    assert all(type(w) is bytes and secret not in w for w in wires)
    assert any(secret in wire.encode((n, np.full(5, 2))) for n in range(2))


def test_the_server_has_links_too():
    sealing = Sealing("p", "run", {SERVER: None, 0: None})
    sealed = sealing.seal(SERVER, 0, "gradient", 1, 0, b"x")
    assert sealing.open(SERVER, 0, "gradient", 1, 0, sealed) == b"x"
