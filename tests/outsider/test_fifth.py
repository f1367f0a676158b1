"""Programs of a fifth referee: leaks are not endorsed and named, sound ones get their verdict."""

from __future__ import annotations

import re

import pytest

from securevfl.verified import decide
from tests.outsider.fifth import LEAKS, SOUND, Leak, Sound

#: Leaks that are endorsed today, and why that is wrong.
ENDORSED = {
    "difference_of_declared_functions": "sum - 2 mean is one party's: outputs are not joined",
    "difference_by_a_square": "sum and (a + b)^2 give c up to a sign: outputs are not joined",
    "standardised_before_the_clip": "a record moves every row; only the reader is told to look",
    "averages_before_the_clip": "a record is in three rows; only the reader is told to look",
    "augmented_before_the_clip": "a record is two rows with two numbers; each is charged once",
    "entries_clipped_one_by_one": "a record is two rows of norm C each, and one is charged",
    "rows_of_the_batch_before": "records 0 and 1 are released twice, and charged once",
    "charged_once_by_minus_one": "-1 on rows of records: three releases, and one is charged",
    "numbered_by_position": "one record under three numbers: three releases, and one is charged",
    "all_rows_unnumbered": "-1 on rows of records: DP without an epsilon",
    "labels_by_two_mechanisms": "a label pays for both mechanisms, which are not added up",
    "exact_accuracy_beside_noise": "an output tells of the row exactly, beside its epsilon",
}
#: Leaks whose text does not name the message.
UNNAMED: dict[str, str] = {
    "equal_rows_have_equal_tags": "no key, no message",
    "own_rows_have_equal_tags": "no key, no message",
}


def cases(reasons: dict[str, str], programs: list[Leak]) -> list[object]:
    """Programs, those in `reasons` as expected failures."""
    marks = {name: [pytest.mark.xfail(strict=True, reason=why)] for name, why in reasons.items()}
    return [pytest.param(one, id=one.name, marks=marks.get(one.name, [])) for one in programs]


def largest(price: str) -> float:
    """Largest epsilon of a price; 0 if it has none."""
    return max((float(one) for one in re.findall(r"\(([\d.]+), ", price)), default=0.0)


@pytest.mark.parametrize("leak", cases(ENDORSED, LEAKS))
def test_a_leak_is_not_endorsed(leak: Leak) -> None:
    found = decide(leak.make(), leak.coalition)
    if found.verdict == "DP":
        assert largest(found.price) >= leak.epsilon
    elif found.verdict == "NOT PROTECTED":
        assert any(leak.where in one for one in found.clear)
    else:
        assert found.verdict in ("NOT PROVED", "VIOLATED")


@pytest.mark.parametrize("leak", cases(UNNAMED, [one for one in LEAKS if one.name not in ENDORSED]))
def test_the_text_of_a_leak_names_its_message(leak: Leak) -> None:
    found = decide(leak.make(), leak.coalition)
    assert leak.where in found.text + " ".join(found.clear)


@pytest.mark.parametrize("program", SOUND, ids=lambda one: one.name)
def test_a_sound_program_gets_its_verdict(program: Sound) -> None:
    world = program.make()
    found = {who: decide(world, who).verdict for who in program.verdicts}
    assert found == program.verdicts
