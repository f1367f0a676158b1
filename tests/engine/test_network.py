"""What a party sends crosses the engine as one value."""

import inspect

import numpy as np
import pytest

from securevfl.audit.recording import Recorder
from securevfl.engine.network import SERVER, Network, Sending
from securevfl.engine.party import Party
from securevfl.engine.realtime.host import PartyHost
from securevfl.engine.simulation.simulator import Simulation


@pytest.mark.parametrize("engine", [Network, Simulation, PartyHost, Recorder])
def test_every_engine_takes_a_sending(engine):
    assert list(inspect.signature(engine.send).parameters) == ["self", "sending"]


class Engine:
    """Takes down what a party sends."""

    def __init__(self):
        self.sent = []

    def send(self, sending):
        self.sent.append(sending)


@pytest.fixture
def party():
    made = Party(1, range(3))
    made.engine, made.round = Engine(), 4
    return made


def test_a_payload_to_one_party(party):
    party.send(SERVER, "embedding", 7, round=2, after=1.5)
    party.send(2, "note", 8)
    first, second = party.engine.sent
    assert first == Sending(party, (SERVER,), "embedding", [7], 2, 1.5)
    assert second == Sending(party, (2,), "note", [8], 4, 0.0)


def test_a_share_for_every_client(party):
    shares = np.arange(6).reshape(3, 2)
    party.share("shared", shares)
    (sent,) = party.engine.sent
    assert (sent.to, sent.round, sent.after) == ((0, 1, 2), 4, 0.0)
    assert sent.payloads is shares


def test_one_object_goes_to_all_others(party):
    payload = np.zeros(2)
    party.broadcast("news", payload)
    (sent,) = party.engine.sent
    assert sent.to == (0, 2)
    assert all(one is payload for one in sent.payloads)
