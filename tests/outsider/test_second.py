"""Verdicts on the programs of a second outsider, and what was found with the code open."""

from __future__ import annotations

import sys
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.polynomial import Polynomial

from securevfl.errors import RangeError
from securevfl.verified import SERVER, FlowError, World, decide
from securevfl.verified.check import check
from securevfl.verified.prove import Step
from securevfl.verified.rules import problems
from securevfl.verified.schedules import UNDISTURBED
from securevfl.verified.traced import proofs
from securevfl.verified.traced.proofs import Traced, prove_protocol
from tests.outsider.second import CHANGES, KNOWN, LEAKS, SOUND, VARIANTS, Change, Program
from tests.verified.leaks import agrees

P = 2**31 - 1
TRACED = {"rounds": 1, "batch": 3, "width": 1}


def named(programs: Any) -> Any:
    return pytest.mark.parametrize("program", programs, ids=lambda one: one.name)


def verdict_of(change: Change, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> tuple[str, str]:
    """The verdict on a change of the example: its name, and its text.

    What is not proved where nobody is late or down is not proved under all schedules.
    """
    path = tmp_path / f"{change.name}.py"
    path.write_text(change.source())
    module = ModuleType(change.name)
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, change.name, module)
    exec(compile(change.source(), str(path), "exec"), module.__dict__)
    monkeypatch.setattr(proofs, "get_protocol", lambda _: module.ProvedSplit)
    try:
        parties = 4 if len(change.coalition) > 2 else 3
        rounds = {"rounds": 2 if change.name == "cached_tapes" else 1}
        for schedules in (lambda made: (UNDISTURBED,), module.ProvedSplit.schedules):
            monkeypatch.setattr(module.ProvedSplit, "schedules", schedules)
            traced = Traced("proved_split", TRACED | rounds, parties)
            (found,) = prove_protocol(traced, fresh=False).verdicts
            if not found.sure:
                break
    except FlowError as why:
        return "refused", str(why)
    return found.verdict, found.text


@pytest.fixture
def verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    """The verdict on a change of the example."""
    return partial(verdict_of, monkeypatch=monkeypatch, tmp_path=tmp_path)


@named(LEAKS)
def test_a_leak_is_not_proved_and_the_text_names_its_message(program: Program) -> None:
    found = decide(program.make(), program.coalition)
    assert found.verdict in ("NOT PROVED", "VIOLATED"), program.why
    assert any(name in found.text for name in program.names), found.text
    agrees("second outsider", program.name, found.verdict, found.text)


@named(CHANGES)
def test_a_change_that_leaks_is_not_proved_and_the_text_names_it(
    program: Change, verdict: Any
) -> None:
    found, text = verdict(program)
    assert found in ("NOT PROVED", "VIOLATED", "refused"), program.why
    assert any(name in text for name in program.names), text
    agrees("second outsider", program.name, "TYPE" if found == "refused" else found, text)


def test_a_scale_that_no_traced_input_changes_is_not_proved(verdict: Any) -> None:
    """Traces of other inputs do not show it: the rule on arrays of a data set does."""
    found, text = verdict(KNOWN)
    assert found == "NOT PROVED", KNOWN.why
    assert "arrays of the data set are read by the protocol's class" in text


@named(SOUND)
def test_a_sound_program_is_proved(program: Program) -> None:
    found = decide(program.make(), program.coalition)
    assert found.verdict == ("DP" if found.releases else "PROVED"), found.text


@named(VARIANTS)
def test_a_sound_change_is_proved(program: Change, verdict: Any) -> None:
    assert verdict(program)[0] == "PROVED"


# -- a function that reads what another one kept ----------------------------------------------
ACTIVATIONS = np.zeros((4, 2))
HELD: dict[str, Any] = {}


class Net:
    last: Any = None


def kept_in_an_array(x: Any) -> Any:
    ACTIVATIONS[:] = x
    return x


def of_the_array(gradient: Any) -> Any:
    return gradient * ACTIVATIONS


def hold(x: Any) -> Any:
    HELD["x"] = np.array(x)
    return x


def held() -> Any:
    return HELD["x"]


def kept_by_a_helper(x: Any) -> Any:
    return hold(x)


def of_the_helper(gradient: Any) -> Any:
    return gradient * held()


def kept_in_a_class(x: Any) -> Any:
    Net.last = np.array(x)
    return x


def of_the_class(gradient: Any) -> Any:
    return gradient * Net.last


@pytest.mark.parametrize(
    ("keep", "read"),
    [
        (kept_in_an_array, of_the_array),
        (kept_by_a_helper, of_the_helper),
        (kept_in_a_class, of_the_class),
    ],
)
def test_activations_that_a_function_keeps_are_no_function_of_the_gradient(
    keep: Any, read: Any
) -> None:
    """The answer to the server's own gradient holds party 0's columns: PROVED before."""
    world = World(P)
    alice, server = world.party(0), world.party(SERVER)
    x = world.secret(0, "x", (4, 2), real=True)
    gradient = world.secret(SERVER, "gradient", (4, 2), real=True)
    alice.send(1, "embedding", x.map(keep))
    got = server.send(0, "gradient", gradient)
    alice.send(SERVER, "answer", got.map(read))
    found = decide(world, {SERVER})
    assert found.verdict == "NOT PROVED"
    assert read.__name__ in found.text


# -- objects of numpy that are called ---------------------------------------------------------
def halved(x: Any) -> Any:
    return x * x / 2


@pytest.mark.parametrize(
    ("declared", "sent"),
    [
        (Polynomial([0, 1]), Polynomial([0, 0, 0.5])),
        (np.poly1d([1, 0]), np.poly1d([0.5, 0, 0])),
        (np.vectorize(lambda v: v), np.vectorize(lambda v: v * v / 2)),
    ],
)
def test_an_object_of_numpy_is_not_named_by_its_class(declared: Any, sent: Any) -> None:
    """Two polynomials that are equal at the traced number were one block: PROVED before."""
    world = World(P)
    alice, bob = world.party(0), world.party(1)
    x, y = (world.secret(n, "x", np.ones((2, 2)), real=True) for n in (0, 1))
    sums = x.map(np.add, bob.send(0, "y", y))
    with pytest.raises(FlowError, match="must be a function of a module"):
        world.output("sum", world.spec(x).map(np.add, world.spec(y)).map(declared))
    with pytest.raises(FlowError, match="must be a function of a module"):
        alice.send(SERVER, "up", sums.map(sent))


# -- a key with two uses ------------------------------------------------------------------------
@pytest.mark.parametrize("public", [True, False])
def test_a_key_of_an_agreement_is_no_key_of_a_prf(public: bool) -> None:
    """A public key, and what is agreed with it, depend on the key otherwise than by a PRF."""
    world = World(P)
    alice, bob = world.party(0), world.party(1)
    x, y = world.secret(0, "x", (2,)), world.secret(0, "y", (2,))
    key, other = alice.key(), bob.key()
    if public:
        alice.send(SERVER, "public key", alice.public_key(key))
    agreed = alice.agree(key, bob.send(0, "public key", bob.public_key(other)))
    alice.send(SERVER, "one", x + alice.prf(key, 1, 2))
    if not public:
        alice.send(SERVER, "two", y + alice.prf(agreed, 1, 2))
    assert decide(world, {SERVER}).verdict == "NOT PROVED"


def test_a_secret_key_is_not_given_after_what_was_agreed_with_it_was_hidden() -> None:
    world = World(P)
    alice, bob = world.party(0), world.party(1)
    x, key, other = world.secret(0, "x", (2,)), alice.key(), bob.key()
    agreed = alice.agree(key, bob.send(0, "public key", bob.public_key(other)))
    alice.send(SERVER, "up", x + alice.prf(agreed, 1, 2))
    found = decide(world, {SERVER})
    assert found.verdict == "PROVED"
    hidden = next(one for one in found.steps if one.what == "prf")
    root = next(node.number for node in world.nodes if node.op == "key")
    given = Step("give", root)
    assert check(world, {SERVER}, [], found.steps)[0] is None
    assert "was taken for hidden" in (check(world, {SERVER}, [], [hidden, given])[0] or "")
    assert "the coalition has" in (check(world, {SERVER}, [], [given, hidden])[0] or "")


# -- what stands before a clipping ----------------------------------------------------------------
def numbers(x: Any) -> Any:
    return x.astype(float)


def clip_rows(x: Any) -> Any:
    return x - x.mean(axis=0)


def test_sums_of_rows_before_the_clipping_are_for_the_reader_to_judge() -> None:
    world = World(P)
    alice, x = world.party(0), world.secret(0, "x", (4, 2))
    sums = x.sum(axis=0).reshape(1, 2).map(numbers, real=True)
    alice.send(SERVER, "release", alice.gaussian(sums.clip(1.0), 2.0))
    found = decide(world, {SERVER})
    assert found.verdict == "DP"
    assert any("sums" in line for line in found.judge)


def test_an_authors_clip_rows_is_not_the_library_s() -> None:
    world = World(P)
    alice, x = world.party(0), world.secret(0, "x", (4, 2), real=True)
    alice.send(SERVER, "release", alice.gaussian(x.map(clip_rows).clip(1.0), 2.0))
    found = decide(world, {SERVER})
    assert found.verdict == "NOT PROVED"  # it is of all rows
    assert "(clip_rows)" in found.text


# -- errors, scalars and inputs ------------------------------------------------------------------
def test_an_error_of_a_release_is_no_free_bit() -> None:
    """Whether a column has a gap decides what is sent: PROVED before."""
    world = World(P)
    alice, x = world.party(0), world.secret(0, "x", np.array([[np.nan, 1.0]]), real=True)
    try:
        alice.send(SERVER, "release", alice.gaussian(x.clip(1.0), 2.0))
    except RangeError:
        alice.send(SERVER, "gap", 1)
    found = decide(world, {SERVER})
    assert found.verdict == "NOT PROVED"
    assert "clip_finite_rows" in found.text


def counted(x: Any) -> Any:
    return np.asarray(int(np.sum(x > 5)))


def test_a_function_may_return_one_whole_number() -> None:
    """Its array without dimensions was refused, as a block with two values."""
    world = World(P)
    alice, x = world.party(0), world.secret(0, "x", (4, 2))
    alice.send(SERVER, "up", x.map(counted, shape=()) + alice.uniform())
    assert decide(world, {SERVER}).verdict == "PROVED"


@pytest.mark.parametrize(
    ("line", "fine"),
    [
        ("self.wide = bool(np.abs(features).max() > 1e6)", False),
        ("self.raw = features", False),
        ("self.width = features.shape[1] + len(features)", True),
    ],
)
def test_numbers_of_an_input_are_used_by_what_own_returned(line: str, fine: bool) -> None:
    """A branch on columns that no traced input takes is seen by nothing else."""
    text = f"""import numpy as np

class Client:
    def __init__(self, features):
        self.features = self.own("columns", features)
        {line}
"""
    found = problems(text, "author.py")
    assert fine is not any("author.py:6: features is an input" in one for one in found)
