"""Verifiable dealing: honest dealings pass, lies are caught at the rate that is stated."""

import dataclasses
import hashlib
import itertools
import math
import os
from typing import ClassVar

import numpy as np
import pytest

from securevfl.active.dealing import (
    Dealt,
    Form,
    Proof,
    bits_of_soundness,
    challenge,
    checks,
    coins_of,
    fault,
    hash_of,
    hash_of_path,
    is_signed,
    leaf_of,
    off_polynomial,
    repetitions,
)
from securevfl.active.dealt import Dealing, proofs
from securevfl.active.judge import BadDealing, TwoStories, judge, read_evidence, write_evidence
from securevfl.active.signing import Signing
from securevfl.active.statements import Statement, Subject
from securevfl.active.tree import depth_of, paths_of, root_of
from securevfl.errors import ConfigurationError
from securevfl.field import LagrangeCode, PrimeField
from securevfl.field.lagrange import interpolation_matrix
from securevfl.verified import Element, Participant, Secret, bare_of
from securevfl.verified.batched import encoded
from tests.active.signing import Signer

DEALER = 9


def code_of(p=2**50 - 2**14 + 1, N=8, K=1, T=1):
    return LagrangeCode(PrimeField(p), parties=N, segments=K, privacy=T)


def form_of(code, shape=(6, 3), m=None, constant=False):
    return Form(code, shape, repetitions(code) if m is None else m, constant)


class Dealer(Participant):
    """A dealer that is honest, but for what `lie` does to shares before they are committed to."""

    protected: ClassVar = {}

    def __init__(self, form):
        super().__init__(DEALER, range(form.code.parties), form.code.field)
        self.form, self.identity = form, self.key("identity")
        verifier = self.verifying_key(self.identity)
        self.signs = Signing(self.identity, {DEALER: verifier}, b"run")
        self.start = self.tag(self.key("start"), "start")
        self.keys = {DEALER: bare_of(verifier)}

    def deal(self, lie=None, step=1, data=None):
        """Bare shares, and the proof of each holder."""
        form, code = self.form, self.form.code
        shares = self.encoded(form.shape, data)
        if lie is not None:
            wrong = np.stack(bare_of(shares))
            lie(wrong)
            shares = [self.element(one) for one in wrong]
        blinds = self.encoded((form.repetitions,))
        nonces = [self.key(f"nonce {j}") for j in range(code.parties)]
        start, own = self.start, Dealing(form, DEALER, "step", step)
        before = self.element_of(bytes(32))
        made, _ = proofs(self, own, self.signs, start, shares, blinds, nonces, before)
        subject = Subject(b"run", 0, bare_of(start).tobytes(), DEALER, "step", step)
        bare = bare_of(shares)
        every = zip(bare, made, strict=True)
        return np.stack(bare), [
            self.proof(subject, j, share, *bare_of(list(parts)))
            for j, (share, parts) in enumerate(every)
        ]

    def encoded(self, shape, data=None):
        code = self.form.code
        if data is None:
            some = self.uniform(1 if self.form.constant else code.segments, *shape)
            data = np.repeat(bare_of(some), code.segments // some.shape[0], axis=0)
        return list(encoded(self, code, self.element(data), apart=True))

    def element(self, array):
        return Element(array, None, self.index, None, self.field)

    def element_of(self, text):
        return Secret(np.frombuffer(text, np.uint8), None, self.index, None)

    def proof(
        self, subject, j, share, blind, values, root, siblings, nonce, start, before, signature
    ):
        path = tuple(row.tobytes() for row in siblings)
        bare = Proof(blind, values, path, nonce, Statement(subject, b"", signature))
        leaf = leaf_of(self.form, subject, j, share, bare)
        rest = root.tobytes(), hash_of(values), before.tobytes()
        content = Dealt(j, leaf, hash_of_path(path), *rest).encoded()
        return dataclasses.replace(bare, statement=Statement(subject, content, signature))

    def faults(self, shares, found):
        subject = found[0].statement.subject
        every = list(enumerate(zip(shares, found, strict=True)))
        for j, (share, proof) in every:
            assert is_signed(self.form, self.keys, subject, j, share, proof)
        return [fault(self.form, subject, j, share, proof) for j, (share, proof) in every]


@pytest.mark.parametrize("p", [2**31 - 1, 2**50 - 2**14 + 1, 2**61 - 1])
@pytest.mark.parametrize(("N", "K", "T"), [(8, 1, 1), (8, 2, 1), (28, 4, 1), (7, 1, 2)])
def test_honest_dealings_pass(p, N, K, T):
    dealer = Dealer(form_of(code_of(p, N, K, T)))
    assert dealer.faults(*dealer.deal()) == [""] * N


@pytest.mark.parametrize("K", [1, 2, 4])
def test_honest_models_pass_and_another_at_one_point_does_not(K):
    dealer = Dealer(form_of(code_of(N=12, K=K), constant=True))
    assert dealer.faults(*dealer.deal()) == [""] * 12
    if K == 1:
        return
    data = np.repeat(bare_of(dealer.uniform(1, 6, 3)), K, axis=0)
    data[-1, 0, 0] ^= 1
    shares, found = dealer.deal(data=data)
    faults = set(dealer.faults(shares, found))
    assert faults == {"the data points hold different arrays"}
    evidence = BadDealing(dealer.form, 0, shares[0], found[0])
    assert judge(evidence, dealer.keys).why.endswith(*faults)


def changed(places, rest=0):
    def lie(shares):
        for j in places:
            shares[j, rest, 0] = (int(shares[j, rest, 0]) + 1 + j) % 31

    return lie


@pytest.mark.parametrize("places", [[7], [3, 5], [2, 3, 4, 5, 6, 7]])
def test_shares_off_the_polynomial_are_found(places):
    dealer = Dealer(form_of(code_of()))
    shares, found = dealer.deal(changed(places))
    faults = dealer.faults(shares, found)
    assert [j for j, one in enumerate(faults) if one] == places
    assert {one for one in faults if one} == {"the share is not on the polynomial of the others"}


@pytest.mark.parametrize("m", [1, 2])
def test_soundness_is_as_stated(m):
    """At p = 31 a lie to one holder passes with (2p - 1)/p^2 a check, within its interval."""
    p, trials = 31, 1000
    dealer, random = Dealer(form_of(code_of(p, N=3), shape=(2, 2), m=m)), np.random.default_rng(1)

    def lie(shares):
        shares[2] = (shares[2] + random.integers(1, p, (2, 2))) % p

    passed = 0
    for step in range(trials):
        shares, found = dealer.deal(lie, step=step)
        subject = found[0].statement.subject
        passed += not fault(dealer.form, subject, 2, shares[2], found[2])
    low, high = 1 / p**m, ((2 * p - 1) / p**2) ** m
    # A difference of rank 1 passes with the larger, one of rank 2 with about the smaller.
    spread = 5 * math.sqrt(high * (1 - high) / trials)
    assert low - spread <= passed / trials <= high + spread
    assert passed > 0 or m == 2


def test_rank_one_lies_pass_as_often_as_the_bound_says():
    p, trials = 31, 1000
    dealer = Dealer(form_of(code_of(p, N=3), shape=(2, 2), m=1))
    passed = 0
    for step in range(trials):
        shares, found = dealer.deal(changed([2]), step=step)
        passed += not fault(dealer.form, found[0].statement.subject, 2, shares[2], found[2])
    rate = (2 * p - 1) / p**2
    assert abs(passed / trials - rate) < 5 * math.sqrt(rate * (1 - rate) / trials)


def test_a_dealer_that_chooses_c_after_the_checks_has_a_chance_at_each_set_of_holders():
    """As where the others are late: so the bound has a binomial, here C(4, 3)."""
    p, trials, random = 31, 500, np.random.default_rng(1)
    form = form_of(code_of(p, N=4), shape=(2, 2), m=1)
    field, points = form.code.field, [int(one) for one in form.code.alphas]
    passed = 0
    for _ in range(trials):
        rows = challenge(form, random.bytes(32))
        shares = random.integers(0, p, (4, 2, 2)).astype(field.dtype)
        mine = [checks(form, rows, one) + random.integers(0, p, 1) for one in shares]
        mine = np.stack(mine).astype(np.int64) % p
        for some in itertools.combinations(range(4), 3):
            onto = interpolation_matrix(field, [points[j] for j in some[:2]], points[:2])
            values = field.matmul(onto, mine[list(some[:2])].astype(field.dtype))
            if not off_polynomial(form, some[2], mine[some[2]].astype(field.dtype), values):
                passed += 1
                break
    one = (2 * p - 1) / p**2
    assert one < passed / trials < math.comb(4, 3) * one


@pytest.mark.parametrize(
    ("p", "N", "K", "T", "m"),
    [
        (2**31 - 1, 8, 1, 1, 6),
        (2**50 - 2**14 + 1, 8, 1, 1, 4),
        (2**61 - 1, 8, 1, 1, 3),
        (2**31 - 1, 28, 4, 1, 7),
        (2**50 - 2**14 + 1, 28, 4, 1, 4),
        (2**61 - 1, 28, 4, 1, 4),
        (2**50 - 2**14 + 1, 1000, 1, 1, 4),
    ],
)
def test_checks_that_leave_128_bits_after_2_to_the_40_queries(p, N, K, T, m):
    code = code_of(p, N, K, T)
    assert repetitions(code) == m
    assert bits_of_soundness(Form(code, (1, 1), m)) >= 168
    assert bits_of_soundness(Form(code, (1, 1), m - 1)) < 168


def test_a_prime_that_is_too_small_is_refused():
    with pytest.raises(ConfigurationError, match="more than 64 checks at p = 7"):
        repetitions(code_of(7, N=3))


def test_what_t_holders_see_is_the_same_for_all_data():
    """At p = 7 every mask and blinding column is tried: c and a share tell nothing of the data.

    The root is left out (it is hidden by nonces, of an ideal hash), so is the challenge's
    dependence on it: the check's rows are fixed.
    """
    p, field = 7, PrimeField(7)
    code = LagrangeCode(field, parties=3, segments=1, privacy=1)
    onto = interpolation_matrix(field, list(code.betas), list(code.alphas))
    views = {}
    for x in (0, 1, 5):
        seen = []
        for z in range(p):
            for b0 in range(p):
                for b1 in range(p):
                    share = int(field.matmul(onto[:1], field.elements([[x], [z]]))[0, 0])
                    blind = int(field.matmul(onto[:1], field.elements([[b0], [b1]]))[0, 0])
                    r = 3
                    c = ((r * x + b0) % p, (r * z + b1) % p)
                    seen.append((share, blind, c))
        views[x] = sorted(seen)
    assert views[0] == views[1] == views[5]


def test_a_path_of_another_length_is_refused():
    leaves = [hashlib.sha256(bytes([j])).digest() for j in range(6)]
    root, paths = paths_of(leaves)
    assert depth_of(6) == 3
    for j, path in enumerate(paths):
        assert root_of(leaves[j], j, path, 6) == root
        assert root_of(leaves[j], j, path[:-1], 6) is None
        assert root_of(leaves[j], j, (*path, bytes(32)), 6) is None
        assert root_of(leaves[j], j ^ 1, path, 6) != root


def test_one_party_needs_no_path():
    assert paths_of([bytes(32)]) == (bytes(32), [()])


# -- blame -----------------------------------------------------------------------------------------


@pytest.fixture
def lied():
    dealer = Dealer(form_of(code_of()))
    shares, found = dealer.deal(changed([2]))
    return dealer, BadDealing(dealer.form, 2, shares[2], found[2])


def test_a_dealer_is_named_by_what_it_signed(lied, tmp_path):
    dealer, evidence = lied
    found = judge(evidence, dealer.keys)
    assert found.party == DEALER
    assert found.why == "'step' of step 1 to party 2: " + (
        "the share is not on the polynomial of the others"
    )
    write_evidence(tmp_path / "evidence.json", evidence)
    assert judge(read_evidence(tmp_path / "evidence.json"), dealer.keys) == found
    assert judge(evidence, {DEALER: Signer(os.urandom(32)).public}) is None


def test_nobody_is_named_by_evidence_that_was_changed():
    """A holder alters its share, the blind, c, the path, the nonce, its place, or the form."""
    dealer = Dealer(form_of(code_of()))
    shares, found = dealer.deal()
    share, proof, form = shares[2], found[2], dealer.form
    assert judge(BadDealing(form, 2, share, proof), dealer.keys) is None

    def other(array):
        made = array.copy()
        made.flat[0] ^= 1
        return made

    replace = dataclasses.replace
    framed = [
        BadDealing(form, 2, other(share), proof),
        BadDealing(form, 2, share, replace(proof, blind=other(proof.blind))),
        BadDealing(form, 2, share, replace(proof, values=other(proof.values))),
        BadDealing(form, 2, share, replace(proof, nonce=bytes(32))),
        BadDealing(form, 3, share, proof),
        BadDealing(form, 2, shares[3], found[3]),
        BadDealing(replace(form, repetitions=form.repetitions - 1), 2, share, proof),
        BadDealing(replace(form, constant=True), 2, share, proof),
        BadDealing(form, -1, share, proof),
        BadDealing(form, 2, share, replace(proof, statement=found[3].statement)),
    ]
    for evidence in framed:
        assert judge(evidence, dealer.keys) is None, evidence


def test_a_path_that_a_holder_alters_names_nobody():
    dealer = Dealer(form_of(code_of()))
    shares, found = dealer.deal()
    wrong = dataclasses.replace(found[2], path=(bytes(32), *found[2].path[1:]))
    assert judge(BadDealing(dealer.form, 2, shares[2], wrong), dealer.keys) is None


def test_two_holders_of_one_dealing_are_no_contradiction():
    dealer = Dealer(form_of(code_of()))
    _, proofs = dealer.deal()
    for one in proofs:
        for other in proofs:
            assert judge(TwoStories(one.statement, other.statement), dealer.keys) is None


def test_two_dealings_of_one_subject_name_the_dealer(tmp_path):
    dealer = Dealer(form_of(code_of()))
    (_, ones), (_, others) = dealer.deal(), dealer.deal()
    for j in (0, 3):
        evidence = TwoStories(ones[0].statement, others[j].statement)
        assert judge(evidence, dealer.keys).party == DEALER
        write_evidence(tmp_path / "evidence.json", evidence)
        assert read_evidence(tmp_path / "evidence.json") == evidence
    _, later = dealer.deal(step=3)
    assert judge(TwoStories(ones[0].statement, later[0].statement), dealer.keys) is None
    forged = dataclasses.replace(others[0].statement, signature=bytes(64))
    assert judge(TwoStories(ones[0].statement, forged), dealer.keys) is None


@pytest.mark.parametrize("text", ["", "[]", '{"version": 2}', '{"version": 1, "one": {}}'])
def test_a_file_that_holds_no_evidence_is_refused(tmp_path, text):
    path = tmp_path / "evidence.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="evidence: "):
        read_evidence(path)


def test_the_checks_depend_on_the_root_and_on_all_that_is_agreed():
    form = form_of(code_of())
    subject = Subject(b"run", 0, bytes(32), DEALER, "step", 1)
    first = challenge(form, coins_of(form, subject, bytes(32)))[0]
    assert (first == challenge(form, coins_of(form, subject, bytes(32)))[0]).all()
    assert int(first.max()) < form.code.field.modulus
    for other_form, other_subject, root in (
        (form, subject, bytes([1] * 32)),
        (form, dataclasses.replace(subject, step=2), bytes(32)),
        (form, dataclasses.replace(subject, signer=3), bytes(32)),
        (form, dataclasses.replace(subject, kind="model"), bytes(32)),
        (dataclasses.replace(form, constant=True), subject, bytes(32)),
    ):
        found = challenge(other_form, coins_of(other_form, other_subject, root))[0]
        assert (first != found).any()


def test_a_leaf_that_is_not_under_the_root_that_was_signed_names_the_dealer():
    dealer = Dealer(form_of(code_of()))
    shares, found = dealer.deal()
    wrong = Dealt.read(found[2].statement.content)
    content = dataclasses.replace(wrong, root=bytes(32)).encoded()
    signer = Signer(bare_of(dealer.identity))
    statement = signer.state(found[2].statement.subject, content)
    proof = dataclasses.replace(found[2], statement=statement)
    named = judge(BadDealing(dealer.form, 2, shares[2], proof), dealer.keys)
    assert named.why.endswith("the share is not under the root that was signed")
