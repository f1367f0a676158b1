"""Breaks that a first reader found in the design of the levels: each gained by the old rule.

The first design's rule is put back into the real parts, where the attack succeeds; by the present
rule it fails. Other breaks have tests elsewhere:

- changing sharers tell of single clients: tests/protocols/fedvs/test_cohorts.py, test_honest_runs_*
- a wrong upload blames an honest sender: test_uploads.py, test_what_is_not_signed_under_the_label_*
- a path of another length in a run: test_coded_split.py, test_what_has_no_form_*
- a fork by two decodable stories: test_coded_split.py, test_two_stories_are_found_*
- models whose blinds are not constant: test_dealing.py, test_honest_models_pass_*
- bytes of a level are those that a run counts: tests/planning/test_coded_split.py
- sums that a resumed run repeats: tests/protocols/fedvs/test_sums.py, test_a_resumed_run_refuses_*
"""

import dataclasses
import hashlib
import itertools
from collections import Counter

import numpy as np
import pytest

import securevfl.active.dealing as dealing
import securevfl.active.dealt as dealt
import securevfl.active.tree as tree
import securevfl.active.uploads as uploads
import securevfl.protocols.coded_split.covert as covert
from securevfl.active.dealing import Dealt, Form, label_of
from securevfl.active.judge import BadDealing, TwoStories, judge
from securevfl.engine.network import SERVER
from securevfl.errors import RunError
from securevfl.field import LagrangeCode, PrimeField
from securevfl.field.lagrange import interpolation_matrix
from securevfl.protocols.coded_split.options import CodedSplitConfig
from securevfl.protocols.coded_split.parameters import upload_degree
from securevfl.protocols.fedvs.parameters import FedVSConfig, degree_of
from securevfl.verified import Secret, bare_of
from tests.active.relations import relations
from tests.active.test_coded_split import STORY, ForksLate, make_server, named, run
from tests.active.test_dealing import Dealer, code_of, form_of
from tests.active.test_fedvs import VICTIM, TwoGradients
from tests.active.test_fedvs import run as run_fedvs

P31 = 2**31 - 1


@pytest.fixture(autouse=True)
def _compared_often(monkeypatch):
    monkeypatch.setattr(covert, "STORY", STORY)


# -- labels ----------------------------------------------------------------------------------------


def test_digests_that_are_joined_by_xor_give_two_histories_one_label(monkeypatch):
    server = make_server()
    every = [Secret(np.full(32, n, np.uint8), None, SERVER, None) for n in (1, 2, 4, 7)]
    one, other = every[:2], every[2:]  # 1 ^ 2 = 4 ^ 7

    def chains():
        own = (dealt.chained(dealt.no_chain(server), *links) for links in (one, other))
        return {bare_of(chain).tobytes() for chain in own}

    assert len(chains()) == 2

    def joined(before, *links):
        return np.bitwise_xor.reduce([before, *links])

    monkeypatch.setattr(dealt, "_chained", joined)
    assert len(chains()) == 1


def test_a_fork_in_the_last_step_is_seen_by_nobody_where_last_steps_are_not_compared(monkeypatch):
    assert named(run(ForksLate)) == SERVER
    monkeypatch.setattr(covert, "is_compared", lambda step, last: step % STORY == 0)
    monkeypatch.setattr(covert.History, "due", lambda self, last: self.step // STORY * STORY)
    played = run(ForksLate)
    assert played.error is None
    assert len({bare_of(one.history.chain).tobytes() for one in holders(played)}) == 2


def test_the_label_of_a_prediction_binds_the_last_step():
    """Else masks of two stories fit: their difference is F_new F_train^T, times chosen numbers."""
    history, public = holders(run())[0].history, make_server().public
    other = dataclasses.replace(history, chain=history.root)
    assert (bare_of(history.label(public)) != bare_of(other.label(public))).any()


def holders(played):
    return [played.judge.parties[n] for n in played.server.peers]


class Hashes(TwoGradients):
    """The gradient to one client, and to the others its digest, as of a round that they missed."""

    lied_to = tuple(n for n in range(8) if n != VICTIM)

    def another(self, attempt, gradient):
        if gradient is not None:
            own = hashlib.sha256(bare_of(gradient).tobytes()).digest()
            gradient = Secret(np.frombuffer(own, np.uint8), None, SERVER, None)
        return attempt, gradient


def test_no_digest_is_taken_for_a_gradient():
    """Else all have one history, and a sum of the same rows tells X X^T of the one that moved."""
    played = run_fedvs(Hashes, cohorts=0)
    assert isinstance(played.error, RunError)
    assert played.judge.uploads == 2 * 8  # none of round 3


# -- how many stories decode -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("N", "K", "old", "new"),
    [
        (8, 1, 3, upload_degree(CodedSplitConfig(security="active"), 8)),
        (8, 2, 2, degree_of(FedVSConfig(security="covert", segments=2), 2, 8)),
    ],
)
def test_two_halves_show_a_relation_each_by_the_old_degree_and_not_by_the_new(N, K, old, new):
    """coded_split forks for ever; of fedvs it is 4 e_1 - 9 e_2 of one client's embeddings."""
    code = LagrangeCode(PrimeField(P31), parties=N, segments=K, privacy=1, degree=1)
    halves = (1, 2, 3), (4, 5, 6, 7)
    found = [[relations(code, degree, half) for half in halves] for degree in (old, new)]
    assert min(found[0]) > 0
    assert min(found[1]) == 0


# -- blame -----------------------------------------------------------------------------------------


def only_signed(form, keys, subject, place, share, proof):
    """The first design's rule: leaf and root are signed, and neither c nor the path."""
    said = Dealt.read(proof.statement.content)
    return proof.statement.is_valid(keys) and said.leaf == dealing.leaf_of(
        form, subject, place, share, proof
    )


@pytest.mark.parametrize("part", ["values", "path"])
def test_who_alters_c_or_its_path_convicts_an_honest_dealer_where_these_are_not_signed(
    monkeypatch, part
):
    dealer = Dealer(form_of(code_of(P31)))
    shares, (own, *_) = dealer.deal()
    changed = {"values": own.values ^ 1, "path": (bytes(32), *own.path[1:])}
    evidence = BadDealing(
        dealer.form, 0, shares[0], dataclasses.replace(own, **{part: changed[part]})
    )
    assert judge(evidence, dealer.keys) is None
    monkeypatch.setattr("securevfl.active.judge.is_signed", only_signed)
    assert judge(evidence, dealer.keys).party == dealer.index


def test_liars_outvote_an_honest_holder_where_fewer_are_corrected_than_may_lie(monkeypatch):
    """T = 2 agree with R - 1 honest ones on another polynomial: one honest upload is off it."""
    from benchmarks.liars import agreed, signed_uploads

    rng = np.random.default_rng(1)
    liars, verdict = signed_uploads(rng, 2, 9, agreed)  # n = R + 2A, A = 1
    assert [j for j in range(12) if verdict(j)] == []

    def by_distance(wrong, received, code):
        return 2 * wrong <= received - code.recovery_threshold(code.degree)

    monkeypatch.setattr(uploads, "are_named", by_distance)
    found = {j for j in range(12) if verdict(j)}
    assert found
    assert not found & {*liars}


# -- dealings --------------------------------------------------------------------------------------


def test_a_path_of_any_length_puts_two_leaves_of_one_holder_under_a_root():
    def any_length(leaf, place, path):
        for sibling in path:
            leaf = tree._node(sibling, leaf) if place & 1 else tree._node(leaf, sibling)
            place >>= 1
        return leaf

    leaf, second, rest = (bytes([n]) * 32 for n in (1, 2, 3))
    root, paths = tree.paths_of([tree._node(second, rest), leaf])
    longer = (rest, *paths[0])  # holder 0 is at the left of both
    assert any_length(second, 0, longer) == root
    assert tree.root_of(second, 0, longer, 2) is None
    assert tree.root_of(tree._node(second, rest), 0, paths[0], 2) == root


def test_blinds_of_a_model_that_are_not_constant_have_an_honest_dealer_refused():
    class Blinded(Dealer):
        def encoded(self, shape, data=None):
            if len(shape) > 1:
                return super().encoded(shape, data)
            self.form, own = dataclasses.replace(self.form, constant=False), self.form
            made = super().encoded(shape, data)
            self.form = own
            return made

    form = form_of(code_of(N=12, K=4), constant=True)
    honest, dealer = Dealer(form), Blinded(form)
    assert set(honest.faults(*honest.deal())) == {""}
    assert set(dealer.faults(*dealer.deal())) == {"the data points hold different arrays"}


def test_blinds_and_nonces_of_the_server_are_of_the_step_and_not_of_its_number():
    """A step that is made again with other numbers, as after a resume, has blinds of its own."""
    server = make_server()
    step, shares = server.log[0], server.dealt(1).shares
    other = step.times(2)
    one, again, changed = (
        covert.step_proofs(server, server.public, 1, of, shares)[0] for of in (step, step, other)
    )
    for j in range(8):
        for part in (0, 4):  # blind, nonce
            own, same, new = (bare_of(made[j][part]) for made in (one, again, changed))
            assert np.array_equal(own, same)
            assert not np.array_equal(own, new)


def test_one_blind_for_two_steps_tells_of_both():
    """At p = 5 every mask and blind is tried: what one holder sees, for several pairs of steps."""
    p, field = 5, PrimeField(5)
    points = {"betas": (0, 1), "alphas": (2, 3, 4)}
    code = LagrangeCode(field, parties=3, segments=1, privacy=1, **points)
    to = interpolation_matrix(field, list(code.betas), list(code.alphas[:1]))[0].tolist()

    def view(step, mask, blind, r):
        share, b = ((to[0] * x + to[1] * y) % p for x, y in ((step, mask), blind))
        return share, b, (r * step + blind[0]) % p, (r * mask + blind[1]) % p

    def views(steps, fresh):
        some, blinds = range(p), list(itertools.product(range(p), repeat=2))
        return Counter(
            (view(steps[0], z, b, 2), view(steps[1], y, d if fresh else b, 3))
            for z, y, b in itertools.product(some, some, blinds)
            for d in (blinds if fresh else [b])
        )

    pairs = [(0, 0), (1, 0), (3, 4)]
    assert len({frozenset(views(two, True).items()) for two in pairs}) == 1
    assert len({frozenset(views(two, False).items()) for two in pairs}) > 1


def test_a_leaf_is_of_all_that_is_agreed():
    code = code_of(P31)
    form = form_of(code)
    others = [
        (form, 1, "step", 2, 0),
        (form, 1, "step", 1, 1),
        (form, 2, "step", 1, 0),
        (form, 1, "model", 1, 0),
        *[(changed, 1, "step", 1, 0) for changed in (
            form_of(code, constant=True), form_of(code, shape=(6, 4)), form_of(code_of()),
            form_of(code_of(P31, K=2)), Form(code, (6, 3), form.repetitions + 1))],
    ]  # fmt: skip
    assert len({label_of(*one) for one in [(form, 1, "step", 1, 0), *others]}) == len(others) + 1


# -- crashes ---------------------------------------------------------------------------------------


def test_who_comes_back_convicts_itself_where_starts_are_not_told_apart():
    """A server that makes a step again rounds it otherwise; an owner that is killed deals anew."""
    dealer = Dealer(form_of(code_of(P31)))
    (_, (before, *_)) = dealer.deal()
    (_, (_, same_start, *_)) = dealer.deal()
    dealer.start = dealer.tag(dealer.key("start"), "start")
    (_, (_, own_start, *_)) = dealer.deal()
    found = [judge(TwoStories(before.statement, one.statement), dealer.keys)
             for one in (same_start, own_start)]  # fmt: skip
    assert found[0].party == dealer.index
    assert found[1] is None
