"""Verdicts on the programs of a fourth referee."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from securevfl.audit.proved import judged_by_proof
from securevfl.errors import ConfigurationError, SecureVFLError
from securevfl.privacy.claims import SUMS, Claim, Guarantee
from securevfl.verified import SERVER, FlowError, World, decide
from securevfl.verified.participants import Provable
from securevfl.verified.schedules import UNDISTURBED, down
from securevfl.verified.traced import proofs
from securevfl.verified.traced.proofs import Traced, prove_protocol
from securevfl.verified.values import Key
from securevfl.verified.verdicts import Judge, Verdict
from tests.outsider.fourth import AUTHORED, LEAKS, SOUND, Authored
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


@pytest.fixture
def verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Authored], Any]:
    """The verdict on a protocol in a module of its own, or the error that refuses it."""

    def found(program: Authored) -> tuple[str, str]:
        path = tmp_path / f"{program.name}.py"
        path.write_text(program.source())
        module = ModuleType(program.name)
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, program.name, module)
        exec(compile(program.source(), str(path), "exec"), module.__dict__)
        monkeypatch.setattr(proofs, "get_protocol", lambda _: module.SharedSum)
        some = (UNDISTURBED, down("the server is down", {SERVER: (1.75, 1.9)}))
        monkeypatch.setattr(module.SharedSum, "schedules", lambda _: some)
        monkeypatch.setattr(module.SharedSum, "coalitions", lambda _: (frozenset({SERVER, 0}),))
        traced = Traced("shared_sum", {"batch": 4, "width": 1}, 3)
        try:
            (one,) = prove_protocol(traced, fresh=False).verdicts
        except SecureVFLError as error:
            return "refused", str(error)
        return one.verdict, one.text

    return found


@pytest.mark.parametrize("program", AUTHORED, ids=lambda one: one.name)
def test_a_changed_protocol_of_the_page(
    program: Authored, verdict: Callable[[Authored], Any]
) -> None:
    word, text = verdict(program)
    assert word == program.verdict, text
    assert program.word in text


@pytest.mark.parametrize(
    ("asset", "strength"), [("data", "perfect"), ("columns", "none"), ("labels", "Perfect")]
)
def test_a_claim_of_no_known_asset_or_strength_is_refused(asset: Any, strength: Any) -> None:
    """With "data" nothing was compared, so what was sent as it is was PROVED."""
    with pytest.raises(ConfigurationError, match="is none of"):
        Claim("server", asset, strength, "a theorem")


def noised(rounds: int, own: str = "columns") -> World:
    """Rows of a party's input released with noise in each round, at an epsilon of 1.555."""
    world = World(2**31 - 1)
    value = world.input(0, own, np.ones((2, 2), np.float32), "real")
    party = world.party(0)
    for r in range(rounds):
        party.send(SERVER, "up", party.gaussian(value.clip(1.0), 5.0, name=f"release {r}"))
    return world


def differential(asset: Any, *promised: Guarantee) -> Claim:
    return Claim("server", asset, "differential", "noise", guarantees=promised)


@pytest.mark.parametrize(
    ("promised", "word", "said"),
    [
        ((Guarantee(1.6, 1e-5, 1.6),), "NOT PROVED", "The releases of party 0 cost (4"),
        ((Guarantee(0.01, 1e-5, 9.0),), "NOT PROVED", "A release of party 0 costs (1.555, 1e-05)"),
        ((Guarantee(1.6, 1e-5, 9.0), Guarantee(0.1, 0.0, 0.1)), "DP", ""),
    ],
)
def test_what_releases_cost_is_compared_for_one_and_after_more_rounds(
    promised: Any, word: str, said: str
) -> None:
    """In the traced rounds no row is released twice, so both wrong claims were DP."""
    world, longer = noised(1), Judge(noised(6), checks=False)
    one = decide(world, {SERVER})
    claim = differential("features", *promised)
    traces = [([one], world)]
    found = judged_by_proof(claim, [one], traces, promised=promised, later=(longer, promised))
    assert found.verdict == word, found.words
    assert said in found.words


def test_a_cost_of_labels_is_not_compared_with_what_is_promised_of_rows() -> None:
    world = World(2**31 - 1)
    labels = world.secret(SERVER, "labels", np.arange(8) % 2, real=True)
    server = world.party(SERVER)
    server.send(0, "labels", server.randomised(labels, 2, 5.0))
    one = decide(world, {0})
    both = Guarantee(5.0, 1e-5, 50.0), Guarantee(0.5, 0.0, 0.5)
    claim = Claim("client", "labels", "differential", "noise", guarantees=both)
    found = judged_by_proof(claim, [one], [([one], world)], promised=both)
    assert found.verdict == "NOT PROVED"
    assert "A release" in found.words or "The releases of the server cost (5, 0)" in found.words


@pytest.mark.parametrize(("own", "word"), [("network weights", "NOT PROVED"), ("columns", "DP")])
def test_noise_on_rows_hides_no_model(own: str, word: str) -> None:
    world = noised(1, own)
    one = decide(world, {SERVER})
    found = judged_by_proof(differential("model"), [one], [([one], world)])
    assert found.verdict == word, found.words
    assert (word == "DP") is ("it has no guarantees" in found.words)


@pytest.mark.parametrize(("name", "named"), [("sum of columns 1", True), ("sum 1", False)])
def test_decoded_sums_grant_no_other_sum(name: str, named: bool) -> None:
    world = World(97)
    both = [world.spec(world.secret(n, "columns", (2,))) for n in (0, 1)]
    world.output(name, both[0] + both[1], to=[SERVER])
    one = Verdict("PROVED", (SERVER,), (name,))
    claim = Claim("server", "features", "perfect", "a theorem", given=(SUMS,))
    given = judged_by_proof(claim, [one], [([one], world)]).claim.given
    assert given == (SUMS, *["declared outputs (sum of columns)"] * named)


@pytest.mark.parametrize(
    ("schedule", "error", "word"),
    [
        (UNDISTURBED, FlowError("one key and label in two forms"), "NOT PROVED"),
        (UNDISTURBED, ConfigurationError("too many rounds"), "PROVED"),
        (down("the server is down", {SERVER: (1.75, 1.9)}), FlowError("two releases"), "PROVED"),
    ],
)
def test_a_wrong_use_of_values_in_more_rounds_is_no_proof(
    schedule: Any, error: Exception, word: str
) -> None:
    """As of a label that comes again for a shorter batch: the error was dropped, unsaid."""

    class Longer:
        def run(self, *_: Any, **__: Any) -> World:
            raise error

    own = [Verdict("PROVED", (SERVER,), ()) for _ in range(2)]
    some: Any = SimpleNamespace(verdicts=own[:1], found={"trace": own[1:]})
    proofs._look_further(Longer(), schedule, "in 9 rounds", some)  # type: ignore[arg-type]
    assert [one.verdict for one in own] == [word] * 2
    assert own[0].text == ("" if word == "PROVED" else f"in 9 rounds: {error}")


def test_a_trace_of_no_coalition_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Provable, "coalitions", lambda _: ())
    with pytest.raises(ConfigurationError, match=r"coalitions\(\) names none"):
        Traced("split", {}, 2).run()


def test_a_key_of_bytes_is_an_error_that_says_so() -> None:
    world = World(97)
    with pytest.raises(FlowError, match="made of bytes"):
        world.party(0).prf(Key(bytes(32), None, 0, None), "mask", 2)


@pytest.mark.parametrize(("absence", "late"), [("waits", False), ("tolerates", True)])
def test_a_protocol_that_waits_for_nobody_is_traced_with_late_clients(
    absence: str, late: bool
) -> None:
    """Its author need not say so once more: without it only outages were traced."""

    class Own(Provable):
        card = SimpleNamespace(absence=absence)

        def peers(self) -> range:
            return range(3)

    assert late is any("late in every" in one.name for one in Own().schedules())
