"""What a party writes ahead of its next safe point, and the lives of a party."""

from typing import Any, ClassVar

import pytest

from securevfl.engine import wire
from securevfl.engine.party import Party, kept_as
from securevfl.engine.party_state import ahead, restore, snapshot
from securevfl.errors import CheckpointError


class Counting(Party):
    kept: ClassVar[tuple[str, ...]] = ("counted", *kept_as("copied", "sent", ahead=True))

    def __init__(self) -> None:
        super().__init__(0, range(2))
        self.counted = 0
        self.sent: tuple[int, ...] = ()


def back(saved: dict[str, Any]) -> Counting:
    made = Counting()
    restore(made, saved)
    return made


def test_what_was_written_ahead_is_newer_than_the_rest():
    party = Counting()
    saved = snapshot(party, waits=0, time=0)
    party.counted, party.sent = 7, (7,)
    found = back(saved | {"ahead": ahead(party)})
    assert (found.counted, found.sent) == (0, (7,))


def test_other_names_are_refused():
    saved = snapshot(Counting(), waits=0, time=0)
    saved["kept"] = wire.encode({**wire.decode(saved["kept"]), "more": 1})
    with pytest.raises(CheckpointError, match="another version"):
        back(saved)


def test_a_life_that_began_from_another_one_s_checkpoint_knows_it():
    saved = snapshot(Counting(), waits=0, time=0)
    party = back(saved)
    assert not party.returned  # as after a resume
    party.epoch = 1
    assert party.returned
    assert not back(snapshot(party, waits=0, time=0)).returned


def test_no_two_starts_of_a_party_are_the_same_life():
    lives = set()
    for resumptions in range(3):
        for epoch in (0, 1, 2**32 - 1):
            party = Counting()
            party.resumptions, party.epoch = resumptions, epoch
            lives.add(party.life)
    assert len(lives) == 9
    assert max(lives) < 2**63  # as the wire writes integers
