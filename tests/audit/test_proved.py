"""Verdicts on claims by proofs of coalitions."""

from __future__ import annotations

import collections
from dataclasses import replace

import numpy as np
import pytest

import securevfl
from securevfl.audit.proved import (
    assets_in,
    coalitions_against,
    judged_by_proof,
    traced_options,
    untraced,
)
from securevfl.privacy.adversary import Adversary
from securevfl.privacy.claims import COUNTS, SUMS, Claim, Guarantee
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.testing.runs import tiny_data
from securevfl.verified import SERVER, World, decide
from securevfl.verified.traced import proofs
from securevfl.verified.traced.proofs import Traced
from securevfl.verified.verdicts import Verdict

ROLES = {"server": (SERVER,), "client": (0, 1, 2, 3), "key_holder": (3,), "active party": (0, 1)}
ROLES |= {"passive": (2, 3), "embedding owner": (0, 1, 2, 3)}
SOME = ({0}, {1}, {2}, {3}, {0, 1}, {2, 3}, {0, 1, 2})
WITH_SERVER = ({SERVER}, {SERVER, 0}, {SERVER, 3}, {SERVER, 0, 1})
THERE = [frozenset(some) for some in SOME + WITH_SERVER]


@pytest.mark.parametrize(
    ("phrase", "expected"),
    [
        ("server", [{SERVER}]),
        ("client", [{0}, {1}, {2}, {3}]),
        ("T clients", [{0}, {1}, {2}, {3}, {0, 1}, {2, 3}]),
        ("server + T clients", [{SERVER, 0}, {SERVER, 3}, {SERVER, 0, 1}]),
        ("server + T clients without the key holder", [{SERVER, 0}, {SERVER, 0, 1}]),
        ("N - 1 clients", [{0, 1, 2}]),
        ("2 clients", [{0, 1}, {2, 3}]),
        ("key holder", [{3}]),
        ("server + key holder", [{SERVER, 3}]),
        ("active parties", [{0, 1}]),
        ("passive parties", [{2, 3}]),
        ("embedding owners", []),  # all clients together, of whom no proof is here
        ("K clients", []),  # T is the only number that a proof has a letter for
        ("outsider", []),
        ("malicious server", []),
        ("T uploads", []),
    ],
)
def test_an_adversary_stands_for_coalitions(phrase, expected):
    found = coalitions_against(Adversary.parse(phrase), THERE, ROLES, 2)
    assert found == [frozenset(some) for some in expected]


def test_where_nothing_is_claimed_of_all_clients_each_of_them_is_looked_at():
    against = Adversary.parse("embedding owners")
    found = coalitions_against(against, THERE, ROLES, 2, each=True)
    assert found == [{0}, {1}, {2}, {3}]


@pytest.mark.parametrize(
    ("phrase", "missing"),
    [
        ("server", None),
        ("client", None),
        ("T clients", {0, 2}),
        ("server + T clients", {SERVER, 1}),
        ("N - 1 clients", {0, 1, 3}),
        ("key holder", None),
        ("embedding owners", {0, 1, 2, 3}),
    ],
)
def test_a_coalition_that_was_not_decided_is_found(phrase, missing):
    assert untraced(Adversary.parse(phrase), THERE, ROLES, 2) == missing


def test_a_claim_of_coalitions_of_which_one_was_left_out_is_not_proved():
    one = Verdict("PROVED", (SERVER, 0), ())
    for strength, verdict in (("perfect", "NOT PROVED"), ("none", "NOT PROTECTED")):
        claim = Claim("server + T clients", "features", strength, "a theorem")
        missing = frozenset({SERVER, 1})
        found = judged_by_proof(claim, [one], [([one], World(97))], missing=missing)
        assert found.verdict == verdict
        assert ("server + client 1: not among" in found.words) == (strength == "perfect")


def test_an_output_depends_on_assets_of_the_honest():
    world = World(97)
    columns = world.secret(0, "columns", (2, 2))
    labels = world.secret(SERVER, "labels", (2, 2))
    other = world.secret(1, "diary", (2, 2))
    world.output("both", world.spec(columns) + world.spec(labels))
    world.output("one", world.spec(columns))
    world.output("any", world.spec(other))
    world.output("rows", world.spec(world.secret(2, "train columns", (2, 2))))
    both, one, anything, rows = world.outputs
    assert assets_in(world, [both], frozenset()) == {"features", "labels"}
    assert assets_in(world, [both], frozenset({SERVER})) == {"features"}
    assert assets_in(world, [one], frozenset({0})) == set()
    assert assets_in(world, [anything], frozenset()) == {"features", "labels", "model"}
    assert assets_in(world, [rows], frozenset()) == {"features"}
    held = {(2, "train columns"): {"labels"}}  # as another run with other labels shows
    assert assets_in(world, [rows], frozenset(), (), held) == {"features", "labels"}


def test_an_input_holds_what_another_run_of_other_labels_changes():
    """Labels by the name "label columns" were sent to all, and labels were PROVED."""
    found = Traced("split", {}, 2).assets()
    assert found[SERVER, "labels"] == {"labels"}
    assert {found[n, "columns"] == {"features"} for n in (0, 1)} == {True}
    assert {found[n, "network"] == {"model"} for n in (0, 1)} == {True}


@pytest.mark.usefixtures("nobody_late")
def test_the_claims_of_a_card_are_judged_by_proofs(install):
    name = install("proved_protocol")
    data = securevfl.load_dataset("breast-cancer", parties=3)
    report = securevfl.verify(name, data, rounds=1, batch=3, width=1)
    words = {(one.who, one.about): one.verdict for one in report.claims}
    assert words == {
        ("server", "features"): "PROVED",
        ("server", "model"): "PROVED",
        ("server + N - 1 clients", "features"): "NOT TESTED",
        ("client", "labels"): "NOT PROTECTED",
    }
    assert "given sum 1" in report.claims[0].words
    assert all(one.evidence for one in report.claims)


def test_a_schedule_is_traced_no_third_time(monkeypatch):
    """Outputs are read from the trace that was proved; it was traced once more."""
    ran, run, made = collections.Counter(), Traced.run, []

    def noted(self, *args, inputs=0, **named):
        ran[inputs] += 1
        return run(self, *args, inputs=inputs, **named)

    monkeypatch.setattr(Traced, "run", noted)
    monkeypatch.setattr(proofs, "_confirm", made.append)
    securevfl.verify("flexvfl", securevfl.load_dataset("breast-cancer", parties=2))
    (proof,) = made
    assert (ran[1], len(proof.ended)) == (len(proof.traces), 0)
    assert ran[0] == len(proof.traces) + 4  # four look for assets in inputs


@pytest.mark.parametrize(
    ("granted", "verdict"),
    [
        ((COUNTS,), "PROVED"),
        ((), "NOT PROTECTED"),
        ((SUMS,), "NOT PROTECTED"),  # another output
        ((COUNTS[:4],), "NOT PROTECTED"),  # no name of it
    ],
)
def test_a_value_of_one_party_that_the_claim_grants_is_no_gap(granted, verdict):
    world, name = World(97), f"{COUNTS} of 0"
    world.output(name, world.spec(world.secret(0, "columns", (2, 2))), alone=True)
    one = Verdict("NOT PROTECTED", (SERVER,), (name,), clear=(name,))
    claim = Claim("server", "features", "perfect", "a theorem", given=granted)
    assert judged_by_proof(claim, [one], [([one], world)]).verdict == verdict


def test_the_worst_coalition_and_the_worst_trace_decide():
    claim = Claim("T clients", "features", "perfect", "a theorem")
    good, bad = (Verdict(word, (n,), ()) for n, word in enumerate(("PROVED", "VIOLATED")))
    for some in ([good, bad], [bad, good]):
        assert judged_by_proof(claim, some, [(some, World(97))]).verdict == "VIOLATED"
    other = replace(bad, coalition=good.coalition)
    for words in ((good, other), (other, good)):
        traces = [([one], World(97)) for one in words]
        assert judged_by_proof(claim, [good], traces).verdict == "VIOLATED"


OUTPUTS = "declared outputs (gradient)"


@pytest.mark.parametrize(
    ("who", "strength", "granted", "found"),
    [
        (
            SERVER,
            "perfect",
            (),
            ("ideal PRF", "ideal encryption", "declared outputs (sum, gradient)"),
        ),
        (SERVER, "perfect", (SUMS,), (SUMS, "ideal PRF", "ideal encryption")),
        (SERVER, "statistical", (SUMS,), (SUMS, "ideal PRF", "ideal encryption")),
        (SERVER, "computational", (), ("declared outputs (sum, gradient)",)),
        (
            SERVER,
            "perfect",
            ("sum", "gradient"),
            ("sum", "gradient", "ideal PRF", "ideal encryption", "declared outputs"),
        ),
        (SERVER, "none", (), ()),
        (1, "computational", (), (OUTPUTS,)),
        (1, "computational", (SUMS,), (SUMS, OUTPUTS)),  # a gradient is no sum
        (1, "computational", (COUNTS,), (COUNTS, OUTPUTS)),
    ],
)
def test_a_claim_is_shown_with_what_its_proof_grants(who, strength, granted, found):
    """Sums are enough for the server, which computes loss and gradient of them; not for others."""
    world = World(97)
    columns, labels = world.secret(0, "columns", (2,)), world.secret(SERVER, "labels", (2,))
    total = world.spec(columns) + world.spec(world.secret(1, "columns", (2,)))
    world.output("sum 1", total, to=[SERVER])
    world.output("gradient 1 of 7", total + world.spec(labels))
    world.output("names", world.spec(labels), to=[1])
    said = ("ideal PRF (HKDF)", "ideal encryption; a sum", "outputs only")
    one = Verdict("PROVED", (who,), ("sum 1",), assumptions=said, judge=("what it tells",))
    claim = Claim("server", "features", strength, "a theorem", given=granted)
    shown = judged_by_proof(claim, [one], [([one], world)])
    assert shown.claim.given == found
    assert "a reader must judge: what it tells" in shown.words
    assert "assumed: outputs only" in shown.words
    bare = replace(one, outputs=(), assumptions=())
    assert judged_by_proof(claim, [bare], [([bare], World(97))]).claim.given == granted


def released_twice():
    """Rows released with noise by two mechanisms in a round, each at a multiplier of 2."""
    world = World(2**31 - 1)
    columns = world.input(0, "columns", np.ones((2, 2), np.float32), "real")
    party = world.party(0)
    for kind in ("embedding", "again"):
        party.send(SERVER, kind, party.gaussian(columns.clip(1.0), 4.0, name=kind))
    return world


@pytest.mark.parametrize(
    ("promised", "verdict"),
    [(2.0, "NOT PROVED"), (2.4, "NOT PROVED"), (4.0, "DP"), (None, "DP")],
)
def test_releases_that_cost_more_than_is_promised_are_not_proved(promised, verdict):
    """A claim that counts one of two releases was DP, with its own epsilon."""
    world = released_twice()
    one = decide(world, {SERVER})
    assert one.verdict == "DP"
    claim = Claim("server", "features", "differential", "one release is counted")
    most = () if promised is None else (Guarantee(promised, 1e-5, promised),)
    found = judged_by_proof(claim, [one], [([one], world)], promised=most)
    assert found.verdict == verdict, one.price
    assert ("the claim promises (2, 1e-05)" in found.words) == (promised == 2.0)
    world.output("mean", world.spec(world.input(0, "more columns", np.ones(2), "real")))
    for granted, expected in (((), "NOT PROVED"), (("mean",), verdict)):
        claim = replace(claim, given=granted)
        found = judged_by_proof(claim, [one], [([one], world)], promised=most)
        assert found.verdict == expected
        assert ("mean depends on features without noise" in found.words) == (not granted)
    labels = replace(claim, asset="labels")
    assert judged_by_proof(labels, [one], [([one], world)], promised=most).verdict == "DP"


@pytest.mark.usefixtures("nobody_late")
def test_a_claim_about_a_role_is_judged_by_coalitions_with_it():
    data = securevfl.load_dataset("breast-cancer", parties=4)
    report = securevfl.verify("he_split", data, rounds=1)
    words = {(one.who, one.about): one.verdict for one in report.claims}
    hidden = "server + T clients without the key holder"
    assert words[hidden, "features"] == words["server", "features"] == "PROVED"
    assert words["key holder", "features"] == "PROVED"
    assert words["server + key holder", "features"] == "NOT PROTECTED"
    assert "NOT TESTED" not in words.values()


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("fedvs", {"sum_budget": 0.5}, {"sum_budget": 0.5}),
        ("fedvs", {"sum_budget": 0.01}, {"sum_budget": 0.25}),  # less allows no round of a trace
        ("fedvs", {}, {"sum_budget": 1.0}),  # as is chosen where no width is given
        ("coded_split", {"width": 2, "rounds": 3}, {"sum_budget": 0.0}),
        ("multivfl", {"label_owners": 3, "batch": 8}, {"label_owners": 3}),
        ("dvfl", {"hosts": 3, "guest_lr": 0.1}, {"hosts": 3, "guest_lr": 0.1}),
    ],
)
def test_a_run_is_judged_by_its_own_options_but_for_sizes(name, given, kept):
    """Options of the trace were taken for sizes: the numbers that a budget sends went unseen."""
    cls = get_protocol(name)
    made = cls(make_config(cls, given), tiny_data().with_parties(4), seed=0)
    assert traced_options(made, given) == kept
