"""Declared draws and ideal outputs, held against runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from securevfl.engine import wire
from securevfl.engine.conditions import NONE
from securevfl.engine.party import SERVER
from securevfl.engine.party_state import snapshot
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import Transcript
from securevfl.protocols.base.card import Exposure
from securevfl.protocols.base.messages import MessageKey, MessageSpec, array_of, exposures_of
from securevfl.runs.assembly import rules_of
from securevfl.runs.threads import one_thread
from securevfl.testing.runs import make


class Recorded(Transcript):
    """A run with everything that an observer of all secrets knows of it."""

    def __init__(self, protocol: Any, conditions: Any = NONE) -> None:
        super().__init__(payloads=True)  # each message is told with its payload, then
        self.protocol, self.parties = protocol, protocol.parties()
        self.states: dict[MessageKey, Any] = {}
        self.all: dict[tuple[str, int], dict[tuple[int, int], Any]] = {}
        simulation = Simulation(
            self.parties, conditions=conditions, transcript=self, rules=rules_of(protocol)
        )
        with one_thread():
            simulation.run()

    def add(
        self, sender: int, receiver: int, kind: str, round: int, nbytes: int, sent: int, data: Any
    ) -> int:
        self.note(sender, receiver, kind, round, data)
        return super().add(sender, receiver, kind, round, nbytes, sent, data)

    def note(self, sender: int, receiver: int, kind: str, round: int, data: Any) -> None:
        self.all.setdefault((kind, round), {})[sender, receiver] = data
        if kind == "embedding":
            kept = snapshot(self.parties[sender], waits=0, time=0)["kept"]
            self.states[MessageKey(kind, round, sender, receiver)] = wire.decode(kept)

    def data(self, party: int) -> Any:
        data = self.protocol.data
        return {"train": data.train[party], "test": data.test[party]}

    def state(self, key: MessageKey) -> Any:
        return self.states[key]

    def draw(self, party: int, name: str, round: int) -> np.ndarray:
        raise NotImplementedError

    def sent(self, kind: str, round: int) -> Any:
        return self.all.get((kind, round), {})


@pytest.mark.parametrize("options", [{}, {"masked": False}, {"secure": True, "segments": 2}])
def test_the_ideal_output_of_fedvs_is_what_the_server_decodes(options, monkeypatch):
    from securevfl.protocols.fedvs.algorithm import Client, Server

    decoded = {}
    interpolate, share = Server.interpolate, Client.share

    def interpolated(self, results):
        decoded[self.round] = interpolate(self, results)
        return decoded[self.round]

    own = []

    def shared(self, kind, shares):
        own.append((self.index, self.round, kind, shares[self.index]))
        share(self, kind, shares)

    monkeypatch.setattr(Server, "interpolate", interpolated)
    monkeypatch.setattr(Client, "share", shared)
    made = make("fedvs", **options)
    run = Recorded(made)
    for n, round, kind, mine in own:
        run.note(n, n, kind, round, mine)
    assert len(decoded) == 4 + options.get("secure", False)
    for round, sums in decoded.items():
        ideal = made.ideal_output(run, MessageKey("embedding", round, 2, SERVER))
        np.testing.assert_array_equal(ideal, sums)
    assert made.ideal_output(run, MessageKey("gradient", 1, SERVER, 2)) is None


def declared_shapes(made: Any, party: int, round: int) -> list[tuple[int, ...]]:
    shapes = [one.shape(party, round) for one in made.draws]
    return [shape for shape in shapes if shape is not None]


@pytest.mark.parametrize(
    "options", [{}, {"masked": False}, {"secure": True, "segments": 2}, {"privacy": 2}]
)
def test_the_draws_of_fedvs_are_those_that_clients_make(options, monkeypatch):
    from securevfl.protocols.fedvs.algorithm import Client

    drawn: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    uniform = Client.uniform

    def recorded(self, shape):
        drawn.setdefault((self.index, self.round), []).append(tuple(shape))
        return uniform(self, shape)

    monkeypatch.setattr(Client, "uniform", recorded)
    made = make("fedvs", **options)
    Recorded(made)
    assert drawn
    for (party, round), shapes in drawn.items():
        assert shapes == declared_shapes(made, party, round)


def test_exposures_are_those_messages_that_name_rows():
    shown = exposures_of(
        [
            MessageSpec("a", "client", "server", "embedding", row_by_row=True),
            MessageSpec("b", "client", "server", "embedding"),
            MessageSpec("c", "client", "server", "ciphertext", row_by_row=True),
            MessageSpec("d", "server", "client", "gradient", row_by_row=True),
            MessageSpec("d", "server", "other", "gradient", row_by_row=True),
        ]
    )
    assert shown == (
        Exposure("a", "embedding"),
        Exposure("c", "upload"),
        Exposure("d", "gradient"),
    )


def test_the_array_of_a_payload_is_itself_or_the_last_of_a_pair():
    array = np.zeros(3)
    assert array_of(array) is array
    assert array_of((np.arange(3), array)) is array
    for other in (None, 1.0, (1, 2), (1, 2, array), {"a": array}):
        assert array_of(other) is None
