"""The published suite, over every protocol found; and what it must catch."""

import functools
import itertools
from dataclasses import replace

import numpy as np
import pytest

from securevfl.engine import wire
from securevfl.engine.faults import Faults, Outage
from securevfl.engine.party import SERVER, Party
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import ConfigurationError, StalledError, UndeclaredMessageError
from securevfl.models.split import Batches
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.messages import SELF, MessageSpec, in_setup
from securevfl.protocols.base.registry import find_protocols
from securevfl.protocols.split import Client, Server, Split
from securevfl.runs.assembly import rules_of
from securevfl.testing import (
    conformance,
    declaration_checks,
    disturbance_checks,
    endurance_checks,
    run_checks,
)
from securevfl.testing.conformance import (
    CHECKS,
    check_endurance,
    check_protocol,
    check_resume,
)
from securevfl.testing.declarations import never_sent
from securevfl.testing.inspection import forbidden_in, held_arrays
from securevfl.testing.runs import (
    History,
    learning_data,
    make,
    paper_conditions,
    resume_from,
    simulate,
    state_at,
    tiny_data,
)
from securevfl.verified import Chance, bare_of
from tests.protocols.joint import LEARN_ALONE, three_hands, tiny_in

EPOCHS, LARGE = {"guest_epochs": 2, "host_epochs": 2}, {"pretrain_batch": 64}
VARIANTS = {name: (name, {}) for name in find_protocols()} | {
    "dvfl": ("dvfl", EPOCHS),
    "fedhssl": ("fedhssl", LARGE),
    "ssl_local": ("ssl_local", LARGE),
    "multivfl": ("multivfl", {"label_owners": 3}),
    "fedvs, coded inference": ("fedvs", {"segments": 2, "secure": True}),
    "fedvs, active": ("fedvs", {"security": "active"}),
    "fedvs, plain": ("fedvs", {"masked": False}),
    "coded_split, all": (
        "coded_split",
        {"helpers": 2, "segments": 2, "secure": True, "release": True, "prepare": "scale"},
    ),
    "coded_split, covert": ("coded_split", {"security": "covert", "secure": True}),
    "split, rounded": ("split", {"quantized": True, "weight_bound": 16.0, "segments": 2}),
    "split, ignore": ("split", {"stragglers": "ignore", "aggregation": "concat"}),
    "split, skip": ("split", {"stragglers": "skip", "timeout": 9.0}),
    "split, zeros": ("split", {"stragglers": "zeros", "timeout": 2.0}),
    "split, buffer": ("split", {"stragglers": "buffer", "timeout": 2.0, "aggregation": "concat"}),
    "split, message": ("split", {"stragglers": "message", "timeout": 2.0, "aggregation": "concat"}),
    "split, mean": ("split", {"stragglers": "mean", "timeout": 2.0, "aggregation": "max"}),
    "fedonce, zeros": (
        "fedonce",
        {"objective": "autoencoder", "absent": "zeros", "timeout": 2.0, "segments": 2},
    ),
    "vafl, max": ("vafl", {"aggregation": "max", "timeout": 2.0}),
    "vfb2, timed": ("vfb2", {"timeout": 2.0, "threads": 3, "segments": 2}),
    "wait_dp, all at once": ("wait_dp", {"noise_on": "both", "label_epsilon": 8.0}),
    "wait_dp, labels": ("wait_dp", {"noise_on": "none", "label_epsilon": 8.0}),
    "cvfl, sync": ("cvfl", {"mode": "sync", "active": 3, "rounds": 20}),
    "cvfl, passive": ("cvfl", {"active": 3}),
    "cvfl, stale": (
        "cvfl",
        {"active": 4, "patience": 1.5, "staleness": 9, "timeout": 9.0, "q": "auto", "rounds": 20},
    ),
    "multivfl, noisy": (
        "multivfl",
        {"label_owners": 2, "epsilon": 1000.0, "noise": "seeded", "server_optimizer": "fedyogi"},
    ),
    "secagg_split, signed": ("secagg_split", {"consistency": True, "client": "mlp"}),
    "dvfl, simclr": (
        "dvfl",
        {"objective": "simclr", "comm_period": 2, "buffer": 5, "hosts": 3, "stop_after": 20}
        | EPOCHS,
    ),
    "vflhlp, no pre-training": ("vflhlp", {"variant": "none"}),
    "ssl_local, moco": ("ssl_local", {"method": "moco", "memory": 64} | LARGE),
    "fedhssl, moco": ("fedhssl", {"method": "moco", "memory": 64, "layers": "9,8"} | LARGE),
}


NEEDS = {"he_split": "tenseal"}  # of an extra; without it the protocol is listed and refuses

CUTS = {  # fewer than six: encryption, signatures, or many rounds at each replay
    "he_split": 3,
    "secagg_split": 5,
    "cvfl": 5,
    "multivfl": 5,
    "dvfl": 4,
    "fedhssl": 4,
    "ssl_local": 5,
}

# Variants with another pretext network than their protocol and nothing else, and checks that are
# about messages and absence alone.
NETWORKS = ("fedhssl, moco", "ssl_local, moco")
OF_PAIRS = ("he_split", "secagg_split")  # keys and ciphertexts, which are what their runs cost
SIGNED = {  # each signs for each; the checks for which one of six must be able to be missing
    "coded_split, covert": ("endurance",),
    "fedvs, active": ("endurance", "absence", "faults"),
}
OF_MESSAGES = ("senders", "absence", "faults", "endurance", "end", "accounting")

# What training needs where other checks have less, and half of its forty rounds for the costly.
HALF = "he_split", *SIGNED, "secagg_split", "secagg_split, signed", "multivfl", "multivfl, noisy"
TRAINED = {name: {"rounds": 20} for name in HALF}
TRAINED |= {"cvfl, sync": {"rounds": 60}, "cvfl, stale": {"rounds": 60}}
TRAINED |= {name: {"guest_epochs": 4, "host_epochs": 4} for name in ("dvfl", "dvfl, simclr")}
TRAINED |= {name: {"pretrain_batch": 32} for name in ("fedhssl", "ssl_local", *NETWORKS)}

ORDER = ["global state", *(check for check in CHECKS if check != "global state")]
CASES = [
    (variant, check)
    for variant in VARIANTS
    for check in ORDER
    if variant not in NETWORKS or check not in OF_MESSAGES
]

# Settings in which a variant has too few results in time, however often it asks.
ENDS = {
    "coded_split, all": (
        *("clients late", "attempts given up", "results late"),
        *("clients crash", "clients crash again and again"),
    ),
    "fedvs, coded inference": ("results late",),
    "fedvs, active": ("results late",),  # 5 of 6 are waited for, of which each is late more often
}


def data_of(variant, check=""):
    """The checks' usual data; in other hands where a protocol needs that or is costly."""
    protocol, _ = VARIANTS[variant]
    if check == "training":
        costly = protocol in (*LEARN_ALONE, *OF_PAIRS) or variant == "coded_split, covert"
        hands = 4 if costly else 5
        hands = {"local": 2, "coded_split": 8}.get(variant, hands)  # half of the pixels; as usual
        return learning_data().with_parties(hands)
    if variant in SIGNED and check not in SIGNED[variant]:
        return tiny_in(5)
    return three_hands(protocol)


def chosen(variant):
    """Protocol and options, where their packages are installed."""
    protocol, options = VARIANTS[variant]
    if protocol in NEEDS:
        pytest.importorskip(NEEDS[protocol])
    return protocol, options


@functools.lru_cache(maxsize=1)
def plain_run(variant):
    """The run of a variant with seed 0 and the paper's delays, from which many checks start."""
    protocol, options = VARIANTS[variant]
    run = simulate(protocol, data_of(variant), payloads=True, **options)
    LINKS[variant] = links_in(run), never_sent([run])
    return run


def links_in(run):
    """Kind, sender and receiver of all that a run's protocol declares."""
    return {(m.kind, m.sender, m.receiver) for m in run.protocol.messages if m.receiver != SELF}


LINKS = {}  # what the plain run of a variant declares, and what of it is not sent


def links_of(variant):
    if variant not in LINKS:
        plain_run(variant)
    return LINKS[variant]


SECOND = {}  # the run of a variant in which global state was watched: the plain one, made again


@pytest.fixture
def one_plain_run(variant, check, monkeypatch):
    """Let the checks of a variant, which change no finished run, share the plain one.

    Global state is watched in a run of its own, which is then the second one of determinism.
    """
    protocol, options = VARIANTS[variant]
    usual = data_of(variant)

    def shared(asked, data=None, *, payloads=False, **others):
        if others.get("conditions", 0) is None:  # the usual ones
            del others["conditions"]
        if check == "global state":
            SECOND.clear()
            SECOND[variant] = simulate(asked, data, payloads=payloads, **others)
            return SECOND[variant]
        if asked == protocol and data is usual:
            if others == options:
                return plain_run(variant)
            if check == "determinism" and others == {"seed": 0, **options} and variant in SECOND:
                return SECOND.pop(variant)
        return simulate(asked, data, payloads=payloads, **others)

    monkeypatch.setattr(run_checks, "simulate", shared)
    monkeypatch.setattr(disturbance_checks, "simulate", shared)
    monkeypatch.setattr(endurance_checks, "simulate", shared)


@pytest.mark.usefixtures("one_plain_run")
@pytest.mark.parametrize(("variant", "check"), CASES)
def test_every_protocol_conforms(variant, check):
    """The run is cut at up to six instants with stragglers in flight, a variant at three."""
    protocol, options = chosen(variant)
    usual = 6 if variant == protocol else 3  # a variant keeps what its protocol keeps
    asked = {"cuts": CUTS.get(variant, usual)} if CHECKS[check] is check_resume else {}
    asked |= {"leave_out": ENDS.get(variant, ())} if CHECKS[check] is check_endurance else {}
    asked |= TRAINED.get(variant, {}) if check == "training" else {}
    CHECKS[check](protocol, data_of(variant, check), **{**options, **asked})


def test_fedvs_goes_on_where_one_result_is_left_over():
    """Eight clients, of which five must answer: attempts are given up several times in a row."""
    data = learning_data().subset(101, 41)
    check_endurance("fedvs", data, segments=2, rounds=6)


def test_messages_are_in_flight_at_every_cut_even_in_setup():
    data = tiny_data()
    for cut in range(20):
        saved, _ = state_at("fedvs", data, cut)
        assert wire.decode(saved)["queue"]


@pytest.mark.parametrize("protocol", ["fedvs", "split"])
def test_a_resumed_run_is_cut_and_resumed_again(protocol):
    data = tiny_data()
    whole = simulate(protocol, data)
    saved, events = state_at(protocol, data, 4)
    for instants in (3, 5, 8):
        made = make(protocol, data)
        history, states = History(), []
        history.events = list(events)
        simulation = Simulation.from_state(
            made.parties(), wire.decode(saved), conditions=paper_conditions(made),
            observer=history, rules=rules_of(made),
        )  # fmt: skip
        count = iter(range(10**9))

        def pause(simulation=simulation, states=states, count=count, instants=instants):
            if next(count) == instants:
                simulation.request_state(lambda state: states.append(wire.encode(state)))
            return bool(states)

        simulation.run(pause)
        saved, events = states[0], history.events
    assert resume_from(protocol, data, saved, events).fingerprint() == whole.fingerprint()


# -- the suite catches what it is for ----------------------------------------------------------


def variant(**changes):
    """Split learning with some attributes replaced."""
    return type("Planted", (Split,), {"__doc__": "Planted fault.", "name": "planted"} | changes)


class SharedArray(Client):
    """Goes on changing an array after it was sent."""

    def send(self, to, kind, payload, **options):
        array = np.array(bare_of(payload))
        Party.send(self, to, kind, array, **options)
        array *= 2


def noted(self):
    return (*self.step_messages(), MessageSpec("note", "client", "server", "control"))


class Growing(Client):
    """Sends a list to which it goes on adding."""

    def embed(self, own):
        note = [self.round]
        Party.send(self, SERVER, "note", note)
        note.append(self.round)
        return super().embed(own)


class Unseeded(Client):
    def embed(self, own):
        return super().embed(own).map(np.add, np.random.default_rng().normal())


class GlobalNumpy(Client):
    def embed(self, own):
        noise = np.float32(np.random.rand() * 1e-9)  # noqa: NPY002
        return super().embed(own).map(np.add, noise)


class Forgetful(Server):
    kept = ("centre",)


class Deaf(Server):
    async def run(self):
        await self.collect("never")


class Impatient(Server):
    async def run(self):
        while self.steps < self.max_steps:
            self.safe_point()
            batch = self.batches.draw(self.round + 1)
            self.announce(self.round + 1, batch)
            self.train(batch, await self.collect("embedding", timeout=5.0))
        self.conclude()


class Lazy(Server):
    def train(self, batch, embeddings):
        self.broadcast("gradient", np.zeros(embeddings[0].shape, np.float32))
        self.steps += 1
        self.record("round", step=self.steps, loss=1.0 / self.steps)


def with_client(kind, **changes):
    def client(self, index):
        network, chance = self.network(index), Chance(self.secrets, index)
        more = {"width": self.config.width, "quantisers": None, "chance": chance}
        given = (index, self.peers(), self.layout, self.data.train[index], network)
        return kind(*given, **more)

    return variant(client=client, **changes)


def with_server(kind):
    def parties(self):
        made = Split.parties(self)
        made[SERVER].__class__ = kind
        return made

    return variant(parties=parties)


def curious(self):
    made = Split.parties(self)
    made[2].spied = [{"deep": lambda: self.data.train[0]}]
    return made


def leaked_labels(self):
    made = Split.parties(self)
    made[2].notes = (self.data.train_labels.copy(),)
    return made


def claim(*arguments):
    return property(lambda self: (Claim(*arguments),))


def secret_batches(self):
    """Every party draws the batches from what is the server's secret."""
    made = Split.parties(self)
    stream = functools.partial(self.secrets.stream, SERVER)
    for party in made.values():
        party.batches = Batches(self.data.rows, 1, self.config.batch, stream)
    return made


def public_weights(self, index, **options):
    return Split.client_network(make("split", self.data, seed=self.seed), index, **options)


def public_centre(self, stream=None):
    return Split.joint_centre(self, stream or self.stream("centre"))


def never_in_a_round(self):
    batch, embedding, gradient = self.step_messages()
    return (batch, replace(embedding, count=in_setup), gradient)


FAULTS = {
    "own entropy": [
        variant(parties=secret_batches),
        variant(client_network=public_weights, joint_centre=public_centre),
    ],
    "copying": [with_client(SharedArray)],
    "payloads": [with_client(Growing, messages=property(noted))],
    "messages": [
        variant(messages=property(lambda self: self.step_messages(width=self.config.width + 1))),
        variant(messages=property(lambda self: self.step_messages(dtype="float64"))),
        variant(messages=property(never_in_a_round)),
    ],
    "determinism": [with_client(Unseeded)],
    "global state": [with_client(GlobalNumpy)],
    "resume": [with_server(Forgetful)],
    "absence": [with_server(Impatient)],
    "training": [with_server(Lazy)],
    "ownership": [variant(parties=curious), variant(parties=leaked_labels)],
    "card": [
        variant(claims=property(lambda self: ())),
        variant(claims=claim("server", "model", "none", " ")),
        variant(name="Not A Name"),
        variant(__doc__=""),
    ],
    "memory": [variant(memory=lambda self: -1), variant(advice=lambda self, available: "")],
}


@pytest.mark.parametrize(
    ("check", "number"),
    [(name, n) for name, planted in FAULTS.items() for n in range(len(planted))],
)
def test_a_planted_fault_is_found(check, number):
    def tried():
        for _ in range(3 if check == "own entropy" else 1):
            CHECKS[check](FAULTS[check][number])

    # Secret batches differ in the rows that fill them up, and of 80 entropies one gives the same:
    # that none of three tries shows the fault happens once in 500,000 runs.
    with pytest.raises(AssertionError):
        tried()


DECLARED = {  # options in which every message of the declaration is sent, beyond VARIANTS
    "fedvs": [{"pretrain": "full", "pretrain_epochs": 1}],
    "cvfl": [{"slow": "0"}],
    "multivfl": [{"intersection": "psi", "label_owners": 2}, {"intersection": "plain"}],
}


FAULTY = {  # faults that call for messages of their own
    "fedvs": [
        (
            {"security": "covert", "share_timeout": 3.0, "result_timeout": 3.0, "segments": 1},
            Faults(outages=(Outage(2, rounds=(2, 4)),)),
        )
    ],
    "coded_split": [
        ({}, Faults(outages=(Outage(5, rounds=(2, 4)),))),
        (  # stories of step 16 are lost
            {"security": "covert", "rounds": 40, "ask_timeout": 1.5, "sum_budget": 0.0},
            Faults(
                outages=tuple(
                    Outage(two, rounds=(16, 18), one_way=True)
                    for two in itertools.permutations(range(6), 2)
                )
            ),
        ),
    ],
}


# Messages that a lie alone calls for; tests/active has each.
FOR_LIES = {
    ("undealt", "server", "client"),
    *((kind, "client", "client") for kind in ("echoed", "doubted", "history", "dealt")),
}


@pytest.mark.parametrize("protocol", find_protocols())
def test_no_declaration_is_dead(protocol):
    chosen(protocol)
    listed = [links_of(variant) for variant, (name, _) in VARIANTS.items() if name == protocol]
    data = data_of(protocol)
    runs = [
        simulate(protocol, data, payloads=True, **options) for options in DECLARED.get(protocol, ())
    ]
    runs += [
        simulate(protocol, data, payloads=True, faults=faults, **options)
        for options, faults in FAULTY.get(protocol, ())
    ]
    found = listed + [(links_in(run), never_sent([run])) for run in runs]
    assert all(declared for declared, _ in found)
    sent = set().union(*(declared - never for declared, never in found))
    assert set().union(*(declared for declared, _ in found)) - sent <= FOR_LIES


def test_a_dead_declaration_is_found():
    dead = simulate(variant(messages=property(noted)), payloads=True)
    assert never_sent([dead]) == {("note", "client", "server")}


def test_an_undeclared_message_is_refused_by_the_own_engine():
    with pytest.raises(UndeclaredMessageError, match=r"party 0 sends 'note' to the server") as told:
        simulate(with_client(Growing))
    assert "the declared kinds are embedding, gradient, round" in str(told.value)


def test_a_role_that_does_not_exist_is_refused_before_the_run():
    strange = variant(messages=property(lambda self: self.step_messages(client="boss")))
    with pytest.raises(ConfigurationError, match="the roles are server, client"):
        simulate(strange)


def test_without_rules_a_client_can_speak_for_the_server(monkeypatch):
    """That is what `check_senders` looks for, so it must see it."""
    monkeypatch.setattr("securevfl.testing.runs.rules_of", lambda protocol: None)
    with pytest.raises(AssertionError, match="a forged message ends the run"):
        CHECKS["senders"]("split")


def test_a_protocol_without_a_declaration_runs_as_before():
    open_ = with_client(Growing, messages=())
    assert len(simulate(open_).losses) == len(simulate("split").losses)
    CHECKS["messages"](open_)
    CHECKS["senders"](open_)


def test_a_run_that_hangs_is_found():
    hanging = with_server(Deaf)
    with pytest.raises(AssertionError, match="under conditions 'none'"):
        CHECKS["end"](hanging)
    with pytest.raises(StalledError):
        simulate(hanging)


def test_all_failures_are_listed_at_once(monkeypatch):
    chosen = {name: CHECKS[name] for name in ("card", "memory", "accounting")}
    monkeypatch.setattr(conformance, "CHECKS", chosen)
    both = variant(memory=lambda self: -1, claims=property(lambda self: ()))
    with pytest.raises(AssertionError) as caught:
        check_protocol(both)
    lines = str(caught.value).splitlines()
    assert [line.split("]")[0] for line in lines] == ["[card", "[memory"]
    check_protocol("split")


def test_every_check_is_in_the_list():
    functions = {
        thing
        for module in (declaration_checks, run_checks, disturbance_checks, endurance_checks)
        for name, thing in vars(module).items()
        if name.startswith("check_")
    }
    assert functions == set(CHECKS.values())


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import time", ["time"]),
        ("import asyncio.events", ["asyncio.events"]),
        ("from time import monotonic", ["time"]),
        ("from random import random", ["random"]),
        (
            "from securevfl.engine.simulation.simulator import Simulation",
            ["securevfl.engine.simulation.simulator"],
        ),
        ("from securevfl.engine import mailbox", ["securevfl.engine.mailbox"]),
        ("from ..engine import simulation", ["securevfl.engine.simulation"]),
        (
            "from securevfl.protocols.fedvs.algorithm import Client",
            ["securevfl.protocols.fedvs.algorithm"],
        ),
        ("from .fedvs import Client", ["securevfl.protocols.fedvs"]),
        ("from . import fedvs", ["securevfl.protocols.fedvs"]),
        ("import securevfl.runs.engines.run", ["securevfl.runs.engines.run"]),
        ("from securevfl.engine import party, wire", []),
        ("from securevfl import ConfigurationError", []),
        ("x = np.random.rand(3)", ["np.random.rand"]),
        ("x = np.random.default_rng()", ["np.random.default_rng"]),
        ("torch.manual_seed(0)", ["torch.manual_seed"]),
        (
            "torch.default_generator.manual_seed(0)",
            ["torch.default_generator.manual_seed"],
        ),
        ("from .protocol import Card\nfrom securevfl.engine.party import SERVER, Party", []),
        ("from securevfl.engine.wire import message\nimport numpy as np", []),
        ("def f(stream: np.random.Generator): return stream.random()", []),
    ],
)
def test_forbidden_code_is_found(code, found):
    import ast

    assert list(forbidden_in(ast.parse(code), "securevfl.protocols.mine")) == found


def test_arrays_are_found_wherever_a_party_hides_them():
    class Slotted:
        __slots__ = ("inside",)

    class Holder(Party):
        def method(self):
            return None

    arrays = [np.full(3, n) for n in range(9)]
    slotted = Slotted()
    slotted.inside = arrays[0]
    other = Holder(1, range(2))
    other.data = arrays[7]
    party = Holder(0, range(2))
    party.a = slotted
    party.b = {"x": [(arrays[1],)], 3: {4: arrays[2]}}
    party.c = lambda x=arrays[3]: (x, arrays[4])
    party.d = __import__("functools").partial(print, arrays[5], end=arrays[6])
    party.e = other.method
    party.f = np.array([arrays[8]], object)
    party.g = party
    found = {id(array) for array in held_arrays(party)}
    assert {id(array) for array in arrays[:8]} <= found
    assert any((array == arrays[8]).all() for array in held_arrays(party))
    party.engine = {"everything": np.zeros(1)}
    assert id(party.engine["everything"]) not in {id(array) for array in held_arrays(party)}


def test_learning_data_is_digits_and_tiny_data_is_uneven():
    assert tiny_data().rows % 2 == 1
    assert len(set(tiny_data().widths)) > 1
    assert (learning_data().rows, learning_data().parties) == (400, 8)
