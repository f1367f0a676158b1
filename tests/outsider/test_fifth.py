"""Programs of a fifth referee: leaks are not endorsed and named, sound ones get their verdict."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from securevfl.errors import SecureVFLError
from securevfl.verified import SERVER, decide
from securevfl.verified.schedules import UNDISTURBED, down
from securevfl.verified.traced import proofs
from securevfl.verified.traced.proofs import Traced, prove_protocol
from tests.outsider.fifth import CHANGED, LEAKS, SOUND, Changed, Leak, Sound

#: Leaks by functions that outputs declare: the text names the pair of outputs for a reader.
JUDGED = {
    "difference_of_declared_functions": "party 2, on which one depends: sum and pair mean",
    "difference_by_a_square": "party 2, on which one depends: sum and square",
}


def largest(price: str) -> float:
    """Largest epsilon of a price; 0 if it has none."""
    return max((float(one) for one in re.findall(r"\(([\d.]+), ", price)), default=0.0)


@pytest.mark.parametrize("leak", LEAKS, ids=lambda one: one.name)
def test_a_leak_is_not_endorsed(leak: Leak) -> None:
    found = decide(leak.make(), leak.coalition)
    if leak.name in JUDGED:
        assert any(JUDGED[leak.name] in line for line in found.judge)
    elif found.verdict == "DP":
        assert largest(found.price) >= leak.epsilon
    elif found.verdict == "NOT PROTECTED":
        assert any(leak.where in one for one in found.clear)
    else:
        assert found.verdict in ("NOT PROVED", "VIOLATED")


@pytest.mark.parametrize(
    "leak", [one for one in LEAKS if one.name not in JUDGED], ids=lambda one: one.name
)
def test_the_text_of_a_leak_names_its_message(leak: Leak) -> None:
    found = decide(leak.make(), leak.coalition)
    if found.verdict != "DP":  # its price is the true one, as the test before this one requires
        assert leak.where in found.text + " ".join(found.clear)


@pytest.mark.parametrize("program", SOUND, ids=lambda one: one.name)
def test_a_sound_program_gets_its_verdict(program: Sound) -> None:
    world = program.make()
    found = {who: decide(world, who).verdict for who in program.verdicts}
    assert found == program.verdicts


@pytest.mark.parametrize("program", CHANGED, ids=lambda one: one.name)
def test_a_changed_protocol_of_the_page(
    program: Changed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / f"{program.name}.py"
    path.write_text(program.source())
    module = ModuleType(program.name)
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, program.name, module)
    exec(compile(program.source(), str(path), "exec"), module.__dict__)
    monkeypatch.setattr(proofs, "get_protocol", lambda _: module.SharedSum)
    some = (UNDISTURBED, down("client 1 is down", {1: (1.75, 1.9)}))
    monkeypatch.setattr(module.SharedSum, "schedules", lambda _: some)
    monkeypatch.setattr(module.SharedSum, "coalitions", lambda _: (frozenset({SERVER, 0}),))
    try:
        (one,) = prove_protocol(
            Traced("shared_sum", {"batch": 4, "width": 1}, 3), fresh=False
        ).verdicts
    except SecureVFLError as error:
        pytest.fail(str(error))
    assert one.verdict == program.verdict, one.text
    assert program.where in one.text
