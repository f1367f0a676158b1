"""Verdicts on the programs of a third referee."""

from __future__ import annotations

import pytest

from securevfl.verified import decide
from tests.outsider.second import Program
from tests.outsider.third import LEAKS, SOUND


@pytest.mark.parametrize("program", LEAKS, ids=lambda one: one.name)
def test_a_leak_is_not_proved_and_the_text_names_its_message(program: Program) -> None:
    found = decide(program.make(), program.coalition)
    assert found.verdict in ("NOT PROVED", "VIOLATED"), program.why
    assert any(name in found.text for name in program.names), found.text


@pytest.mark.parametrize("program", SOUND, ids=lambda one: one.name)
def test_a_sound_program_is_proved(program: Program) -> None:
    found = decide(program.make(), program.coalition)
    assert found.verdict == ("DP" if program.name == "dp_sound" else "PROVED"), found.text
