"""Verdicts on protocols of an outsider: none of the mistakes is proved, all sound ones are."""

from __future__ import annotations

import pytest

from securevfl.verified import decide
from tests.outsider.programs import LEAKING, SOUND
from tests.verified.leaks import agrees

OPENED = {  # the message by which the key of an upload was opened
    "seed_in_the_log": "event log",
    "threshold_off_by_one": "share",
    "late_message_of_a_dropped_client": "share of the key",
}


def test_there_are_thirty_mistakes_and_twelve_sound_protocols() -> None:
    assert (len(LEAKING), len(SOUND)) == (30, 12)


@pytest.mark.parametrize("name", LEAKING)
def test_a_mistake_is_not_proved(name: str) -> None:
    found = decide(*LEAKING[name].run())
    assert found.verdict in ("NOT PROVED", "VIOLATED"), LEAKING[name].leaks
    agrees("outsider", name, found.verdict, found.text)


@pytest.mark.parametrize("name", sorted(set(LEAKING) - set(OPENED)))
def test_the_text_names_the_message_that_leaks(name: str) -> None:
    text = decide(*LEAKING[name].run()).text
    assert any(kind in text for kind in LEAKING[name].shown), text


@pytest.mark.parametrize("name", OPENED)
def test_the_text_names_the_message_that_opens_a_key(name: str) -> None:
    text = decide(*LEAKING[name].run()).text
    assert OPENED[name] in text, text


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_protocol_is_proved(name: str) -> None:
    found = decide(*SOUND[name].run())
    assert found.sure, found.text
