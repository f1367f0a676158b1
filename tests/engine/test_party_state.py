"""The copy of a party's state, and a new party restored from it."""

import numpy as np
import pytest

from securevfl.engine import wire
from securevfl.engine.party import Party, kept_as
from securevfl.engine.party_state import restore, snapshot
from securevfl.errors import CheckpointError


class Weights:
    """An object with a state of its own, as a torch module has."""

    def __init__(self):
        self.values = np.zeros(2)

    def state_dict(self):
        return {"values": self.values}

    def load_state_dict(self, state):
        self.values = state["values"].copy()


class Keeping(Party):
    kept = ("weights", "rows", *kept_as("once", "data"), *kept_as("frozen", "buffer"))

    def __init__(self):
        super().__init__(0, (0, 1))
        self.weights = Weights()
        self.rows = [np.zeros(2)]
        self.data = {}
        self.buffer = ()


def test_a_new_party_has_the_state_of_the_copy():
    party = Keeping()
    party.weights.values[:] = 3
    party.rows = [np.arange(3.0)]
    party.data, party.buffer = {"shares": np.arange(4)}, (np.ones(2),)
    party.round, party.epoch = 7, 2
    saved = snapshot(party, waits=5, time=11)
    party.weights.values[:] = 4  # a copy does not follow its party
    party.rows[0][:] = 4
    assert (saved["waits"], saved["time"]) == (5, 11)

    twin = Keeping()
    weights = twin.weights
    restore(twin, wire.decode(wire.encode(saved)))
    assert twin.weights is weights
    assert weights.values.tolist() == [3, 3]
    assert twin.rows[0].tolist() == [0, 1, 2]
    twin.rows[0][0] = 9  # decoded arrays are read-only; restored ones are not
    assert twin.data["shares"].tolist() == [0, 1, 2, 3]
    assert [each.tolist() for each in twin.buffer] == [[1, 1]]
    assert (twin.round, twin.epoch) == (7, 2)


def test_constants_and_frozen_attributes_are_not_copied():
    party = Keeping()
    party.data = {"shares": np.arange(4)}
    saved = snapshot(party, waits=0, time=0)
    assert saved["once"]["data"] is party.data
    assert saved["frozen"]["buffer"] is party.buffer


@pytest.mark.parametrize("name", ["weights", "data", "buffer"])
def test_a_copy_of_other_attributes_is_refused(name):
    class Other(Keeping):
        kept = tuple(one for one in Keeping.kept if one != name)

    saved = snapshot(Keeping(), waits=0, time=0)
    with pytest.raises(CheckpointError, match="another version of this protocol"):
        restore(Other(), saved)
