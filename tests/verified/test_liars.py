"""Arrays from a party that lies: what is no value of a declared kind ends the run by name."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from securevfl.engine.party import Party
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import ProtocolError
from securevfl.field import PrimeField
from securevfl.verified import Element, FlowError, Key, Participant, bare_of

FIELD = PrimeField(2**31 - 1)
GOOD = np.arange(4, dtype=FIELD.dtype).reshape(2, 2)


class Receiver(Participant):
    """A party that adds what comes to a value of its own."""

    protected: ClassVar = {"up": "field", "rows": "field", "keyed": "public key, field"}
    heard: Any = None

    def __init__(self, way: str, kind: str) -> None:
        super().__init__(0, (0, 1), FIELD)
        self.way, self.kind = way, kind

    async def run(self) -> None:
        if self.way == "receive":
            self.heard = await self.receive(self.kind)
        elif self.way == "collect":
            self.heard = (await self.collect(self.kind, senders=(1,)))[1]
        else:
            self.on(self.kind, lambda message: setattr(self, "heard", message.payload))
            await self.sleep(1.0)


class Judging(Receiver):
    """A party that looks at what is no value itself."""

    judged = ("up",)


class Liar(Party):
    """A party without protected values, which sends anything."""

    def __init__(self, kind: str, payload: Any) -> None:
        super().__init__(1, (0, 1))
        self.kind, self.payload = kind, payload

    async def run(self) -> None:
        self.send(0, self.kind, self.payload)


def heard(payload: Any, *, kind: str = "up", way: str = "collect", of: Any = Receiver) -> Any:
    """What the receiver has of a payload."""
    receiver = of(way, kind)
    Simulation({0: receiver, 1: Liar(kind, payload)}, seed=0).run()
    return receiver.heard


BAD = {
    "p itself": np.array([[FIELD.modulus, 0]], FIELD.dtype),
    "beyond p": np.full((2, 2), 2**32 - 1, np.uint32),
    "another dtype": GOOD.astype(np.int64),
    "floats": GOOD.astype(np.float32),
    "bytes": GOOD.tobytes(),
    "a number": 5,
}


@pytest.mark.parametrize("way", ["receive", "collect", "on"])
@pytest.mark.parametrize("name", BAD)
def test_what_is_no_element_ends_the_run_and_names_its_sender(name: str, way: str) -> None:
    with pytest.raises(ProtocolError, match="'up' from party 1 to party 0 must hold 'field'"):
        heard(BAD[name], way=way)


@pytest.mark.parametrize("way", ["receive", "collect", "on"])
def test_elements_come_as_such(way: str) -> None:
    found = heard(GOOD, way=way)
    assert isinstance(found, Element)
    assert np.array_equal(bare_of(found), GOOD)


def test_another_shape_is_no_summand() -> None:
    """It is never stretched, as numpy would a row."""
    mine = Receiver("receive", "up").own("x", GOOD)
    found = heard(GOOD[:1])
    with pytest.raises(FlowError, match="the shapes must be equal"):
        _ = found + heard(GOOD)
    assert mine.shape == (2, 2)


def test_elements_within_a_payload_are_looked_at_too() -> None:
    fine = {"n": 3, "share": GOOD}
    assert heard(fine)["n"] == 3
    for value in (BAD["p itself"], BAD["floats"], BAD["bytes"]):
        with pytest.raises(ProtocolError, match="party 1"):
            heard({"n": 3, "share": value})


def test_a_payload_of_keys_and_elements_has_elements_below_p() -> None:
    """They were taken as they came."""
    key, share = heard([b"0" * 32, GOOD], kind="keyed")
    assert not isinstance(key, bytes)
    assert isinstance(share, Element)
    with pytest.raises(ProtocolError, match="public key, field"):
        heard([b"0" * 32, BAD["p itself"]], kind="keyed")


def test_a_party_may_look_itself() -> None:
    assert heard(BAD["p itself"], of=Judging) is not None
    assert isinstance(heard(BAD["floats"], of=Judging), np.ndarray)
    assert not isinstance(heard(GOOD, of=Judging), np.ndarray | Key)
