"""Proofs of coded split learning by its verified run, and honest mistakes that are not proved."""

import pytest

from securevfl.engine.faults import Faults, Outage
from securevfl.engine.party import SERVER
from securevfl.protocols.coded_split import CodedSplit
from securevfl.protocols.coded_split.algorithm import Holder, Owner
from securevfl.protocols.coded_split.parameters import UPLOAD
from securevfl.protocols.coded_split.server import Server
from securevfl.testing.runs import make
from securevfl.verified import Judge, bare_of
from securevfl.verified.batched import masked
from securevfl.verified.traced import proofs
from securevfl.verified.traced.proofs import Traced, prove_protocol
from tests.protocols.coded_split.twin import DIGITS
from tests.protocols.faulty import schedules_of_each_kind

SIZES = {"rounds": 2}
MODES = {
    "K = 2": (7, {"segments": 2}),
    "T = 2": (7, {"privacy": 2}),
    "dealt masks": (6, {"masks": "dealt"}),
    "test rows, helpers": (4, {"secure": True, "helpers": 1}),
    "corrected": (6, {"tolerate_corrupt": 1}),
    "other numbers": (4, {"rounding": "stochastic", "prepare": "scale", "degree": 2}),
    "decay": (4, {"client_weight_decay": 0.01}),
}
# Modes with values of single parties that are told as they are, and the first words of these.
TELLING = {
    "budget": (4, {"sum_budget": 0.9}, "number of independent columns of"),
    "released": (4, {"release": True}, "model of"),
}


def coalitions(N, T):
    """The first T holders, who are sent seeds, and the last ones, each with the server, too."""
    some = [frozenset(range(T)), frozenset(range(N - T, N))]
    return [*some, frozenset({SERVER}), *(one | {SERVER} for one in some)]


def judge(options, N=4, *, faults=None):
    """What decides on coalitions of one trace, with as few runs on other inputs as there may be."""
    world = Traced("coded_split", SIZES | options, parties=N, rows=6).run(faults=faults)
    return Judge(world, runs=2)


def verdicts(options, N=4, **more):
    """Verdicts by coalition; with T = 2 of one alone, for there are 21 keys."""
    found, T = judge(options, N, **more), options.get("privacy", 1)
    every = N + options.get("helpers", 0)
    some = coalitions(every, T)[: 5 if T == 1 else 3]
    return {one: found.decide(one) for one in some}


def test_the_default_is_proved_and_its_certificate_accepted():
    with schedules_of_each_kind("coded_split") as number:
        proof = prove_protocol(Traced("coded_split", SIZES))
    assert sum(number.values()) == 30
    assert sum(number[name] for name in proof.traces) == 25  # in the others too few are left
    assert {v.verdict for v in proof.verdicts} == {"PROVED"}
    assert len(proof.verdicts) == 9  # four holders, the server, and it with each of them
    (holder, server) = (proof.verdicts[0], proof.verdicts[4])
    assert not any(name.startswith("sums") for name in holder.outputs)
    assert "sums 2, segment 0" in server.outputs


@pytest.mark.parametrize("name", MODES)
def test_each_mode_is_proved(name):
    N, options = MODES[name]
    found = verdicts(options, N)
    assert {v.verdict for v in found.values()} == {"PROVED"}, [v.text for v in found.values()]


@pytest.mark.parametrize("name", TELLING)
def test_a_mode_that_tells_values_of_one_party_shows_nothing_beside(name):
    N, options, words = TELLING[name]
    for one, found in verdicts(options, N).items():
        told = name == "budget" or SERVER not in one
        assert found.verdict == ("NOT PROTECTED" if told else "PROVED"), found.text
        assert all(value.startswith(words) for value in found.clear)


def test_what_holders_sign_and_echo_is_proved():
    """At the highest level: all that the others add, and signed uploads beside it."""
    world = Traced("coded_split", {"rounds": 1, "security": "active"}, parties=5, rows=6).run()
    assert Judge(world, runs=2).decide({SERVER, 4}).verdict == "PROVED"


def test_a_holder_that_crashes_and_catches_up_is_proved():
    away = Faults(outages=(Outage(3, rounds=(2, 3)),))
    found = verdicts({"rounds": 4, "helpers": 1, "ask_timeout": 2.0}, faults=away)
    assert {v.verdict for v in found.values()} == {"PROVED"}, [v.text for v in found.values()]


class Unmasked(Owner):
    """Uploads its share of the sum as it is."""

    def upload(self, label, rows, round):
        psi = self.data_shares[label.part].rows(rows) @ self.model[0]
        self.send(SERVER, "embedding", psi, round=round)


class OneLabel(Owner):
    """Uses the masks of the first label in every round."""

    def upload(self, label, rows, round):
        psi = self.data_shares[label.part].rows(rows) @ self.model[0]
        told = label.told(rows)[:0]
        Y = masked(self, self.public.prss, self.keys, psi, told, [self.no_steps], UPLOAD)
        self.send(SERVER, "embedding", Y, round=round)


class Stale(Owner):
    """Uploads from a share that lacks the last step."""

    def upload(self, label, rows, round):
        now = self.model
        self.model = (getattr(self, "before", now)[0], *now[1:])
        super().upload(label, rows, round)
        self.model = now

    def apply(self, step, share, digest):
        self.before = self.model
        super().apply(step, share, digest)


class TellsItsShare(Owner):
    """Sends its share of the models, too, in the place of an upload."""

    def upload(self, label, rows, round):
        super().upload(label, rows, round)
        if round == 1:
            self.send(SERVER, "embedding", self.model[0][: len(rows)], round=0)


class GivesKeys(Owner):
    """Sends all of its keys to every holder."""

    async def agree_on_keys(self, prss):
        await super().agree_on_keys(prss)
        self.send(self.peers[-1], "own-keys", list(self.keys.values()))


class InTheClear(Server):
    """Tells the last holder its steps as they are, too."""

    def deal(self):
        super().deal()
        if self.steps:
            self.send(self.peers[-1], "model", self.log[-1][0], round=0)


class OneSeed(Server):
    """Derives the seeds of all steps by one label."""

    def dealt(self, step):
        return self.dealing.dealt(self, self.secret, 0, self.log[step - 1])


CLIENTS, BOTH = ("server", "both"), ("server", "both", "clients")
LEAKS = {
    "no mask": (Unmasked, ("server", "both")),
    "one label": (OneLabel, ("server", "both")),
    "a stale share": (Stale, ("server", "both")),
    "its share": (TellsItsShare, ("server", "both")),
    "keys for a member": (GivesKeys, ("both",)),
    "steps in the clear": (InTheClear, ("clients",)),
    "one seed for all steps": (OneSeed, ("clients",)),
}


@pytest.mark.parametrize("name", LEAKS)
def test_an_honest_mistake_is_not_proved(name, monkeypatch):
    party, broken = LEAKS[name]

    class Protocol(CodedSplit):
        """With parties of the class."""

        def parties(self):
            made = super().parties()
            for j in [SERVER] if issubclass(party, Server) else range(self.data.parties):
                made[j].__class__ = party
            return made

    monkeypatch.setattr(proofs, "get_protocol", lambda name: Protocol)
    monkeypatch.setattr(proofs, "rules_of", lambda made: None)
    found = judge({"rounds": 3})
    groups = {"clients": [3], "server": [SERVER], "both": [SERVER, 3]}
    for group in broken:
        assert found.decide(groups[group]).verdict in ("NOT PROVED", "VIOLATED"), group


def test_first_weights_come_from_the_owners_own_entropy():
    made = [make(CodedSplit, DIGITS, rounds=1).parties() for _ in range(2)]
    for n in range(8):
        one, other = (bare_of(parties[n].weights) for parties in made)
        assert (one == other).all()
        assert not any((one == bare_of(made[0][m].weights)).all() for m in range(8) if m != n)


def test_a_helper_is_a_holder_without_columns():
    parties = make(CodedSplit, DIGITS, rounds=1, helpers=2).parties()
    assert [type(parties[n]) for n in (7, 8, 9)] == [Owner, Holder, Holder]
