"""Verdicts on the programs of a fourth referee."""

from __future__ import annotations

import pytest

from securevfl.errors import SecureVFLError
from securevfl.verified import decide
from tests.outsider.fourth import LEAKS, SOUND
from tests.outsider.second import Program


@pytest.mark.parametrize("program", LEAKS, ids=lambda one: one.name)
def test_a_leak_is_not_proved_and_the_text_names_its_message(program: Program) -> None:
    try:
        found = decide(program.make(), program.coalition)
        verdict, text = found.verdict, found.text
    except SecureVFLError as error:
        verdict, text = "refused", str(error)
    assert verdict in ("NOT PROVED", "VIOLATED", "refused"), program.why
    assert any(name in text for name in program.names), text


@pytest.mark.parametrize("program", SOUND, ids=lambda one: one.name)
def test_a_sound_program_is_proved(program: Program) -> None:
    found = decide(program.make(), program.coalition)
    assert found.verdict == (program.names[0] or "PROVED"), found.text
