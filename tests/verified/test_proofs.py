"""Protocols of the engine with protected values: trained, traced, proved, checked and broken."""

from __future__ import annotations

import collections
import contextlib
import importlib
import json
import re
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from securevfl.engine import wire
from securevfl.engine.party import kept_as
from securevfl.engine.party_state import restore, snapshot
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import ConfigurationError, SecureVFLError
from securevfl.field import PrimeField
from securevfl.testing.runs import simulate
from securevfl.verified import (
    SERVER,
    FlowError,
    Participant,
    Secret,
    World,
    bare_of,
    combination,
    decide,
    picked,
)
from securevfl.verified.check import Entries, Refused, faithful
from securevfl.verified.forms import Algebra, unfaithful
from securevfl.verified.prove import Prover, listed
from securevfl.verified.schedules import UNDISTURBED, usual
from securevfl.verified.trace import Call, Message
from securevfl.verified.traced import proofs
from securevfl.verified.traced.proofs import Traced, check_certificate, lines, prove_protocol
from securevfl.verified.values import describe, tracing
from tests.protocols.faulty import unasked

SOURCE = Path(__file__).parents[2] / "examples" / "proved_protocol" / "proved_split.py"
NONZERO = """def nonzero(x: np.ndarray) -> np.ndarray:
    return x.any().astype(np.uint64)"""
P31 = PrimeField(2**31 - 1)
QUICK = {"rounds": 1, "batch": 3, "width": 1}


@pytest.fixture
def proved(install):
    return install("proved_protocol")


@pytest.fixture
def variant(install, monkeypatch):
    """The example with lines replaced, in its place, under one schedule: nobody is late or down."""

    def put(*changes):
        name = install("proved_protocol")
        module = importlib.import_module(name)
        text = SOURCE.read_text()
        for old, new in changes:
            assert text.count(old) >= 1, old
            text = text.replace(old, new)
        path = Path(module.__file__)
        path.write_text(text)
        importlib.invalidate_caches()
        path.with_suffix(".pyc").unlink(missing_ok=True)
        exec(compile(text, str(path), "exec"), module.__dict__)
        monkeypatch.setattr(module.ProvedSplit, "schedules", lambda made: (UNDISTURBED,))
        monkeypatch.setattr(proofs, "get_protocol", lambda _: module.ProvedSplit)
        return "proved_split"

    return put


def verdicts(proof):
    return {v.claim: v.verdict for v in proof.verdicts}


def test_the_example_is_proved_in_a_process_of_its_own_and_its_certificate_is_read(
    proved, tmp_path
):
    proof = prove_protocol(Traced(proved, QUICK, parties=3))
    assert set(verdicts(proof).values()) == {"PROVED"}
    assert set(verdicts(proof)) >= {"server", "server + client 0", "client 2"}
    text = "\n".join(lines(proof))
    assert "PROVED for these batches, shapes and schedules (" in text
    assert "server: PROVED\n" not in text
    assert "does not bound what these outputs tell" in text
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(proof.certificate(), indent=1))
    assert set(check_certificate(path).values()) == {None}


def test_a_damaged_certificate_is_refused(proved, tmp_path, monkeypatch):
    two = usual(3, waits=True)[:2]
    monkeypatch.setattr(proofs.get_protocol(proved), "schedules", lambda made: two)
    proof = prove_protocol(Traced(proved, QUICK, parties=3), fresh=False)
    whole = json.dumps(proof.certificate())
    path = tmp_path / "certificate.json"

    def whole_claims(read):
        return [claim for claims in read["proofs"].values() for claim in claims]

    def refused(change):
        read = json.loads(whole)
        change(read)
        path.write_text(json.dumps(read))
        return all(check_certificate(path).values())

    def without_a_step(read):
        for claim in whole_claims(read):
            claim["steps"].pop()

    def another_place(read):
        for claim in whole_claims(read):
            claim["steps"][0]["places"].reverse()

    def another_trace(read):
        read["schedules"] = dict.fromkeys(read["schedules"], "0" * 64)

    def other_outputs(read):
        for claim in whole_claims(read):
            claim["outputs"] = claim["outputs"][:-1]

    def other_sizes(read):
        read["rows"] += 1

    for change in (without_a_step, another_trace, other_outputs, other_sizes):
        assert refused(change), change.__name__
    path.write_text(whole.replace('"version": 3', '"version": 2'))
    with pytest.raises(ConfigurationError, match="version"):
        check_certificate(path)


def test_a_protocol_without_protected_values_is_refused(install):
    with pytest.raises(ConfigurationError, match="Participant"):
        Traced(install("own_protocol"), {}).run()


def place_of(chance, items):
    return int(abs(chance[0]) * 10) % items


def test_one_of_several_values_depends_on_all_of_them():
    world = World(2**31 - 1)
    one, two = (world.secret(0, name, (3,), real=True) for name in "ab")
    chance = world.secret(0, "chance", (1,), real=True)
    found = picked(place_of, (chance, 2), (one, two))
    assert {node.name for node in found._node.args} == {"a", "b", "chance"}
    plain = [Secret(bare_of(value), None, 0, None) for value in (one, two, chance)]
    same = picked(place_of, (plain[2], 2), plain[:2])
    assert np.array_equal(bare_of(same), bare_of(found))
    other = Secret(np.zeros(3), None, 1, None)
    with pytest.raises(FlowError):
        picked(place_of, (plain[2], 2), (other, other))


def test_the_same_file_trains(proved):
    done = simulate(proved)
    assert len(done.losses) == 4
    assert np.isfinite(done.losses).all()


def test_it_trains_as_the_same_protocol_without_protected_values_does(proved, install):
    plain = install("own_protocol")
    assert simulate(proved).losses == simulate(plain).losses


LEAKS = {
    "masks below 2^24": (
        "self.uniform(secret.shape) for j",
        "self.uniform(secret.shape).map(small) for j",
        "def step(\n",
        "def small(x: np.ndarray) -> np.ndarray:\n    return x % 2**24\n\n\ndef step(\n",
    ),
    "one mask for all": (
        "        shares = {j: self.uniform(secret.shape) for j in self.peers if j != self.index}\n",
        "        mask = self.uniform(secret.shape)\n"
        "        shares = {j: mask for j in self.peers if j != self.index}\n",
    ),
    "the embedding, too": (
        '                self.share("share", self.cut(H))\n',
        '                self.share("share", self.cut(H))\n'
        '                self.send(SERVER, "embedding", H)\n',
    ),
    "no loss declared": ('            world.output(f"loss {r}", loss)\n', ""),
    "an output of one": (
        'world.output(f"sum {r}", total, to=[SERVER])',
        'world.output(f"sum {r}", total, to=[SERVER]); world.output("one", networks[0].call('
        "embedding, columns[0], samples, self.point, shape=shape, field=FIELD))",
    ),
    "a number of the columns is public": (
        '                self.share("share", self.cut(H))\n',
        '                self.share("share", self.cut(H))\n'
        "                self.send(SERVER, ANNOUNCE, int(self.raw[0, 0] > 0))\n",
        'self.features = self.own("columns", features)',
        'self.features = self.own("columns", features)\n        self.raw = features',
    ),
    "another's columns": (
        "features, network = self.data.train[index]",
        "features, network = self.data.train[0]",
    ),
    "a branch": (
        '                self.share("share", self.cut(H))\n',
        '                if H:\n                    self.share("share", self.cut(H))\n',
    ),
    "the shares of a dictionary that all share": (
        "    def cut(self",
        "    seen: dict[int, Any] = {}\n\n    def cut(self",
    ),
}


@pytest.mark.parametrize("name", [name for name in LEAKS if name != "one mask for all"])
def test_a_leak_in_the_example_is_not_proved(variant, name, monkeypatch):
    changes = LEAKS[name]
    made = variant(*zip(changes[::2], changes[1::2], strict=True))
    against = {"no loss declared": {1}, "an output of one": {SERVER}}.get(name, {SERVER, 0})
    asked = [frozenset(against)]
    if name == "the embedding, too":
        asked.append(frozenset({SERVER}))
    else:
        monkeypatch.setattr(Prover, "_violated", unasked)
    monkeypatch.setattr(proofs.get_protocol(made), "coalitions", lambda made: asked)
    try:
        proof = prove_protocol(Traced(made, QUICK, parties=3), fresh=False)
    except (SecureVFLError, NameError):
        return
    assert proof.verdicts[0].coalition == tuple(sorted(against))
    assert proof.verdicts[0].verdict != "PROVED", name
    if name == "the embedding, too":
        assert verdicts(proof)["server"] == "VIOLATED"


def test_the_server_alone_against_one_mask_for_all(variant):
    changes = LEAKS["one mask for all"]
    made = variant(*zip(changes[::2], changes[1::2], strict=True))
    found = verdicts(prove_protocol(Traced(made, QUICK, parties=3), fresh=False))
    assert found["server"] == "PROVED"  # three uploads of which the masks cancel
    assert found["server + client 0"] == "VIOLATED"


def test_a_party_that_sends_around_the_wrapper_is_found(variant):
    made = variant(
        (
            'self.send(SERVER, "embedding", sum(shares.values()))',
            'Party.send(self, SERVER, "embedding", sum(shares.values())._value)',
        )
    )
    try:
        proof = prove_protocol(Traced(made, QUICK, parties=3), fresh=False)
    except FlowError:
        return
    assert "PROVED" not in verdicts(proof).values()


def test_the_server_is_minus_one():
    assert SERVER == -1


def test_protected_state_is_stored_bare_and_comes_back_at_home():
    one, other = (Participant(0, (0, 1), P31) for _ in range(2))
    state = {
        "shares": {1: one.uniform(2, 2)},
        "columns": (one.own("columns", np.ones((2, 2))), 5),
        "key": one.key(),
        "none": None,
    }
    held = wire.decode(wire.encode(one.to_checkpoint(state)))
    back = other.from_checkpoint(held)
    assert np.array_equal(bare_of(back["shares"])[1], bare_of(state["shares"])[1])
    assert bare_of(back["key"]) == bare_of(state["key"])
    assert np.array_equal(bare_of(back["columns"])[0], np.ones((2, 2)))
    assert back["columns"][1] == 5
    assert back["none"] is None
    assert "of party 0" in describe(back["shares"][1])


def opened(variant, line, value, first):
    """The example with a value opened before or after a line of a party."""
    look = f'self.opened({value}.map(nonzero, shape=()), "moves")'
    changed = f"{look}; {line}" if first else f"{line}; {look}"
    name = variant(("def step(", f"{NONZERO}\n\n\ndef step("), (line, changed))
    return prove_protocol(Traced(name, QUICK, parties=3), fresh=False)


def test_a_declared_value_may_be_opened_and_the_verdict_says_that_it_is_of_one_path(variant):
    proof = opened(variant, 'self.broadcast("gradient", gradient)', "gradient", False)
    assert set(verdicts(proof).values()) == {"PROVED"}
    assert all(", this path," in v.scope for v in proof.verdicts)


def test_an_opened_value_is_in_everybodys_view(variant, monkeypatch):
    monkeypatch.setattr(Prover, "_violated", unasked)
    proof = opened(variant, 'self.share("share", self.cut(H))', "H", True)
    assert "PROVED" not in verdicts(proof).values()
    assert any("opened moves" in v.text for v in proof.verdicts)


class Keeps(Participant):
    """A client with a model, a constant and a mask in its state."""

    kept = ("network", "mask", *kept_as("once", "columns"))

    def __init__(self, index):
        super().__init__(index, (0, 1), P31)
        self.columns = self.own("columns", np.arange(4.0))
        self.network = self.own_model("network", LinearModel())
        self.mask = None


class LinearModel:
    """A model of one number."""

    def __init__(self):
        self.weight = np.zeros(1)

    def state_dict(self):
        return {"weight": self.weight}

    def load_state_dict(self, state):
        self.weight = np.asarray(state["weight"])


def advance(model, columns):
    model.weight = model.weight + columns.sum()


def weight(model):
    return model.weight


def advance_two(model, other, columns):
    advance(model, columns)
    other.weight = other.weight + model.weight


class HasTwo(Keeps):
    """A client whose step changes two models, or is told to change the first one only."""

    def __init__(self, index, changes=2):
        super().__init__(index)
        self.other = self.own_model("other", LinearModel())
        self.network.step(advance_two, self.other, self.columns, changes=changes)


def test_a_step_changes_as_many_models_as_it_says():
    plain = HasTwo(0)
    assert bare_of(plain.network).weight == bare_of(plain.other).weight == 6
    with tracing(World(P31.modulus)) as world:
        traced = HasTwo(0)
        assert bare_of(traced.network).weight == bare_of(traced.other).weight == 6
        assert traced.other._node.args == traced.network._node.args
        assert world.the(0, "other")._value.weight == 0  # as it was in the beginning
    with tracing(World(P31.modulus)), pytest.raises(FlowError, match="changes the model that it"):
        HasTwo(0, changes=1)
    with tracing(World(P31.modulus)), pytest.raises(FlowError, match="3 models are to be changed"):
        HasTwo(0, changes=3)
    with pytest.raises(FlowError, match="2 models are to be changed"):
        plain.other.step(advance_two, plain.other, plain.columns, changes=2)


def test_what_a_step_does_to_another_model_must_be_declared():
    for declared, verdict in ((advance_two, "PROVED"), (advance_both, "NOT PROVED")):
        world = World(P31.modulus)
        alice = world.party(0)
        x, y = (world.secret(n, "x", (2, 2), real=True) for n in (0, 1))
        one, two = (world.input(0, name, LinearModel(), "model") for name in ("one", "two"))
        one.step(advance_two, two, x, changes=2)
        sent = world.party(1).send(0, "y", y)
        alice.send(SERVER, "up", sent.map(times_weight, two))
        network, other = world.the(0, "one"), world.the(0, "two")
        network.step(declared, other, world.spec(x), changes=2)
        world.output("sum", world.spec(y).map(times_weight, other), to=[SERVER])
        assert decide(world, {SERVER}).verdict == verdict


def advance_both(model, other, columns):
    advance(model, columns)
    advance(other, columns)


def times_weight(values, model):
    return values * model.weight


def test_declared_outputs_take_results_that_parties_had(monkeypatch):
    """Each training is run once in a trace, though parties and outputs have it both."""
    ran, run = collections.Counter(), Call.run

    def counted(self, values, **named):
        ran[self.function.__name__] += 1
        return run(self, values, **named)

    monkeypatch.setattr(Call, "run", counted)
    world = Traced("wait_dp", {}).run()
    calls = {id(node.data[0]): node.data[0] for node in world.nodes if node.op == "map"}
    called = collections.Counter(call.function.__name__ for call in calls.values())
    assert called["_advanced"] == 2 * ran["_advanced"] > 0
    assert ran.total() < 0.6 * called.total()


class Signed(LinearModel):
    """A model whose state does not tell its sign."""

    def __init__(self, sign):
        super().__init__()
        self.sign = sign


def sign(model):
    return np.full(1, model.sign)


def kind(values):
    return np.array([ord(values.dtype.kind), *values.shape])


def test_results_are_taken_for_equal_values_only():
    with tracing(World(P31.modulus)) as world:
        models = [world.input(0, f"m{k}", Signed(k), "model") for k in (1, -1)]
        assert [bare_of(m.call(sign, shape=(1,)))[0] for m in models] == [1, -1]
        arrays = [world.input(0, f"x{k}", np.zeros(2, k), "real") for k in ("i8", "f8")]
        assert [chr(int(bare_of(x.map(kind, shape=(2,)))[0])) for x in arrays] == ["i", "f"]


STEPS = np.zeros(1)


def drifting(x):
    STEPS[0] += 1
    return x + STEPS[0]


def sly(model):
    model.weight = model.weight + 1
    return np.ones(1)


@pytest.mark.parametrize(
    ("function", "said"),
    [(drifting, "two values|another result"), (sly, "changes the model")],
)
def test_a_trace_that_runs_functions_once_is_compared_with_another_run(function, said):
    with tracing(World(P31.modulus)) as world:
        world.repeats = False
        given, what = (np.zeros(1), "real") if function is drifting else (LinearModel(), "model")
        found = [
            one.map(function) if what == "real" else one.call(function, shape=(1,), dtype=float)
            for one in (world.input(0, "x", given, what), world.the(0, "x"))
        ]
        world.party(0).send(SERVER, "up", found[0])
        world.output("x", found[1], alone=True)
    assert re.search(said, unfaithful(Algebra(world)))
    with pytest.raises((Refused, FlowError), match=said):
        faithful(Entries(world))


SCALE = 1


def scaled(model, values):
    return (values + model.weight) * SCALE * model.sign


@pytest.mark.parametrize("what", ["weight", "sign", "SCALE", None])
def test_what_changes_unseen_between_two_calls_of_a_party_is_found(monkeypatch, what):
    """The second result was taken from the first call, so that nothing differed."""
    with tracing(World(P31.modulus)) as world:
        own = Signed(1)
        model, x = world.input(0, "m", own, "model"), world.input(0, "x", np.ones(1), "real")
        for number in (2, 1, 3):
            model.call(scaled, x, shape=(1,), dtype=float)
            if what == "SCALE":
                monkeypatch.setattr(f"{__name__}.SCALE", number)
            elif what is not None:
                setattr(own, what, number)
        monkeypatch.setattr(f"{__name__}.SCALE", 1)
    found = unfaithful(Algebra(world))
    assert found is None if what is None else "two values" in found
    with pytest.raises(Refused) if what else contextlib.nullcontext():
        faithful(Entries(world))


def test_a_party_that_crashes_has_its_traced_values_again():
    with tracing(World(P31.modulus)) as world:
        party = Keeps(0)
        party.network.step(advance, party.columns)
        party.mask = party.uniform(3)
        saved = snapshot(party, waits=0, time=0)
        party.network.step(advance, party.columns)  # lost by the crash
        again = Keeps(0)
        restore(again, saved)
        assert bare_of(again.network).weight == 6
        assert again.mask._node is party.mask._node
        assert again.columns._node is party.columns._node
        found = again.network.call(weight, shape=(1,))
        assert found._node.args[0] is again.network._node
    assert not world.faults
    with tracing(World(P31.modulus)), pytest.raises(FlowError, match="given twice"):
        Keeps(0).own("columns", np.ones(4))


def two_parties():
    world = World(2**31 - 1)
    alice, bob = (world.party(n) for n in (0, 1))
    x, y = (world.secret(n, name, (2, 2)) for n, name in ((0, "x"), (1, "y")))
    return world, (alice, bob), (x, y)


def test_what_is_sent_as_it_is_makes_no_claim_proved():
    world, (alice, bob), (x, y) = two_parties()
    alice.send(SERVER, "up", x)
    bob.send(0, "mask", mask := bob.uniform(2, 2))
    bob.send(SERVER, "masked", y + mask)
    world.output("x of party 0", world.spec(x), to=[SERVER], alone=True)
    server = decide(world, {SERVER})
    assert (server.verdict, server.clear) == ("NOT PROTECTED", ("x of party 0",))
    assert server.scope == (
        "NOT PROTECTED: x of party 0 is sent as it is; nothing beside it (proved, for these "
        "batches, shapes and this run, given the outputs)"
    )
    assert server.steps
    assert decide(world, {1}).verdict == "PROVED"
    pair = decide(world, {SERVER, 1})  # the other one's is the coalition's own
    assert (pair.verdict, pair.clear) == ("NOT PROTECTED", ("x of party 0",))
    assert decide(world, {SERVER, 0}).verdict == "VIOLATED"


def test_what_a_coalition_has_anyway_is_not_told():
    world, (alice, _), (x, _) = two_parties()
    alice.send(SERVER, "up", x)
    world.output("x", world.spec(x), to=[SERVER], alone=True)
    assert decide(world, {SERVER, 0}).verdict == "PROVED"


def test_an_input_is_not_sent_as_public_numbers():
    world, (alice, _), _ = two_parties()
    world.party(SERVER)
    world.secret(0, "labels", np.array([0, 1, 1]), real=True)
    world.secret(1, "ones", np.ones(3, int), real=True)
    alice.send(SERVER, "held", np.full(3, True))  # as the ones are, by chance
    with pytest.raises(FlowError, match="is the input labels of party 0"):
        alice.send(SERVER, "labels", np.array([0, 1, 1]))


def doubled(x):
    """An array of field elements, times two."""
    return (x * 2 % (2**31 - 1)).astype(x.dtype)


@pytest.mark.parametrize("masked", [True, False])
def test_a_model_of_a_thousand_steps_is_looked_at(masked):
    world, (alice, bob), (x, _) = two_parties()
    value = alice.send(1, "x", x)
    for _ in range(1000):
        value = value.map(doubled)
    bob.send(SERVER, "up", value + bob.uniform(2, 2) if masked else value)
    found = decide(world, {SERVER})
    assert found.verdict == ("PROVED" if masked else "VIOLATED"), found.text
    assert decide(world, {SERVER, 0}).verdict == "PROVED"


def test_a_value_of_one_party_and_a_sum_tell_of_the_other():
    world, (alice, bob), (x, y) = two_parties()
    alice.send(SERVER, "up", x)
    bob.send(SERVER, "up", y)
    world.output("x", world.spec(x), to=[SERVER], alone=True)
    world.output("sum", world.spec(x) + world.spec(y), to=[SERVER])
    found = decide(world, {SERVER})
    assert (found.verdict, found.clear) == ("NOT PROVED", ())
    assert "sum tell of party 1 alone" in found.text
    world.output("y", world.spec(y), to=[SERVER], alone=True)
    assert decide(world, {SERVER}).clear == ("x", "y")


def rounded(x, number):
    """An array whose entries are rounded up or down by a number that is public."""
    return x + (np.arange(x.size, dtype=x.dtype).reshape(x.shape) + x.dtype.type(number)) % 2


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("other", [(0, 1), (1, 2)])
def test_two_sums_of_values_rounded_anew_are_one_output(anew, other):
    world = World()
    x = [world.spec(world.secret(n, "x", (4, 2))) for n in range(3)]
    world.party(SERVER)
    for number, some in enumerate([(0, 1, 2), other, (0, 1)]):
        total = sum(x[n].map(rounded, number * anew) for n in some)
        world.output(f"sum {number}", total, to=[SERVER])
    found = decide(world, {SERVER})
    assert found.verdict == "NOT PROVED"
    assert found.text.endswith(" alone, but for rounding" if anew else " alone")


def test_what_is_sent_beside_what_is_declared_is_found():
    world, (alice, _), (x, _) = two_parties()
    alice.send(SERVER, "up", x)
    world.output("a row", world.spec(x).rows([0]), to=[SERVER], alone=True)
    assert decide(world, {SERVER}).verdict == "NOT PROVED"


CLEAR = (
    'world.output(f"sum {r}", total, to=[SERVER])',
    'world.output(f"sum {r}", total, to=[SERVER], alone=True)',
)


def test_a_certificate_says_what_is_sent_as_it_is(variant, tmp_path):
    made = variant(CLEAR)
    proof = prove_protocol(Traced(made, QUICK, parties=3), fresh=False)
    found = verdicts(proof)
    assert (found["server"], found["client 2"]) == ("NOT PROTECTED", "PROVED")
    said = "\n".join(lines(proof))
    assert "server: NOT PROTECTED: sum 1 is sent as it is; nothing beside it" in said
    path = tmp_path / "certificate.json"
    text = json.dumps(proof.certificate())
    path.write_text(text)
    assert set(check_certificate(path).values()) == {None}
    path.write_text(text.replace("NOT PROTECTED", "PROVED"))
    assert "its verdict is another one: NOT PROTECTED" in check_certificate(path)[-1,]
    path.write_text(text.replace("sum 1 is sent", "little is sent"))
    assert "its verdict is another one" in check_certificate(path)[-1,]


class Mixed(Participant):
    """A party whose message has a public part, a protected one and a number."""

    protected: ClassVar = {"up": ("public", "real", "number")}

    def __init__(self, index, tell):
        super().__init__(index, (0, 1), P31)
        self.tell = tell
        self.columns = self.own("columns", np.full((2, 2), index + 1.5))

    async def run(self):
        rows = np.array([1, 0])
        total = self.columns.map(np.sum, shape=(), dtype=np.float64)
        self.send(1 - self.index, "up", (rows, self.columns, total))
        rows, columns, total = await self.receive("up")
        self.tell[self.index] = (rows, describe(columns), total.map(np.negative))


@pytest.mark.parametrize("traced", [False, True])
def test_a_payload_may_have_public_and_protected_parts_and_numbers(traced):
    told = {}
    world = World(P31.modulus)
    with tracing(world) if traced else contextlib.nullcontext():
        simulation = Simulation({n: Mixed(n, told) for n in (0, 1)}, seed=0)
        simulation.run()
    rows, columns, total = told[0]
    assert rows.tolist() == [1, 0]
    assert "(2, 2) of party 0" in columns
    assert bare_of(total) == -10.0
    if traced:
        assert [len(m.parts) for m in world.messages] == [2, 2]


def test_a_part_that_was_declared_public_holds_nothing_protected():
    party = Mixed(0, {})
    with pytest.raises(FlowError, match="declared public"):
        party.send(1, "up", (party.columns, party.columns, 1.0))
    with pytest.raises(FlowError, match="no number of float64"):
        party.send(1, "up", (np.zeros(2), party.columns, party.columns))


def test_a_combination_takes_whole_factors_alone_and_is_the_sum_of_its_products():
    """A half was nearly cut to zero where the terms are one step of a trace."""
    world = World(P31.modulus)
    x, y = world.secret(0, "x", (3,)), world.secret(0, "y", (3,))
    whole = combination([(3, x), (-2, y)])
    assert np.array_equal(bare_of(whole), bare_of(x.times(3) - y.times(2)))
    for bad in (0.5, True, np.float64(2)):
        with pytest.raises(FlowError, match="a whole number is needed"):
            combination([(bad, x), (1, y)])


def test_a_combination_names_the_rounds_of_all_its_messages():
    some = [Message(n, -1, "sum", n // 2, (), "") for n in range(8)]
    assert listed(some[:1]) == "sum of round 0 from party 0 to the server"
    assert listed(some).endswith("round 1 from party 3 to the server and 4 more of rounds 2, 3")
    assert listed(some[:5]).endswith(" and 1 more of round 2")
