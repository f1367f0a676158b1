"""Verdicts on claims by proofs of coalitions."""

from __future__ import annotations

from dataclasses import replace

import pytest

import securevfl
from securevfl.audit.proved import assets_in, coalitions_against, judged_by_proof, traced_options
from securevfl.privacy.adversary import Adversary
from securevfl.privacy.claims import COUNTS, SUMS, Claim
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.testing.runs import tiny_data
from securevfl.verified import SERVER, World
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
        ("embedding owners", [{0}, {1}, {2}, {3}]),
        ("outsider", []),
        ("malicious server", []),
        ("T uploads", []),
    ],
)
def test_an_adversary_stands_for_coalitions(phrase, expected):
    found = coalitions_against(Adversary.parse(phrase), THERE, ROLES, 2)
    assert found == [frozenset(some) for some in expected]


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


@pytest.mark.parametrize(("granted", "verdict"), [((COUNTS,), "PROVED"), ((), "NOT PROTECTED")])
def test_a_value_of_one_party_that_the_claim_grants_is_no_gap(granted, verdict):
    world, name = World(97), f"{COUNTS} of 0"
    world.output(name, world.spec(world.secret(0, "columns", (2, 2))), alone=True)
    one = Verdict("NOT PROTECTED", (SERVER,), (name,), clear=(name,))
    claim = Claim("server", "features", "perfect", "a theorem", given=granted)
    assert judged_by_proof(claim, [one], [([one], world)]).verdict == verdict


@pytest.mark.parametrize(
    ("strength", "granted", "found"),
    [
        ("perfect", (), ("ideal PRF", "declared outputs")),
        ("perfect", (COUNTS,), (COUNTS, "ideal PRF", "declared outputs")),
        ("perfect", (SUMS,), (SUMS, "ideal PRF")),
        ("computational", (), ("declared outputs",)),
    ],
)
def test_a_claim_is_shown_with_what_its_proof_grants(strength, granted, found):
    world = World(97)
    one = Verdict("PROVED", (SERVER,), ("sum 1",), assumptions=("ideal PRF (HKDF)",))
    claim = Claim("server", "features", strength, "a theorem", given=granted)
    assert judged_by_proof(claim, [one], [([one], world)]).claim.given == found
    bare = replace(one, outputs=(), assumptions=())
    assert judged_by_proof(claim, [bare], [([bare], world)]).claim.given == granted


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
