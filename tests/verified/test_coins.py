"""Public bytes that a commitment decides: what a coalition sees of a check by random rows."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from securevfl.field import LagrangeCode, PrimeField
from securevfl.verified import FlowError, World, bare_of, decide
from securevfl.verified.coded import encode

P = 2**31 - 1
FIELD = PrimeField(P)


def root_of(*leaves):
    """A commitment to leaves."""
    return np.frombuffer(hashlib.sha256(b"".join(x.tobytes() for x in leaves)).digest(), np.uint8)


def row_of(coins, size):
    """Public elements that coins stand for."""
    drawn = np.random.default_rng(list(coins)).integers(1, P, size)
    return FIELD.reduce(drawn)


class Checked:
    """A dealer that proves that shares lie on one polynomial, by a random row r."""

    def __init__(self, N=4, T=1, blinds=1):
        self.world, self.N = World(P), N
        self.code = LagrangeCode(FIELD, parties=N, segments=1, privacy=T, degree=1)
        self.dealer = self.world.party(N)
        self.X = self.world.secret(N, "X", (3, 2))
        self.blinds = [
            self.encoded(self.dealer.uniform(1, 1, name=f"b{i}.")) for i in range(blinds)
        ]

    def encoded(self, value):
        return encode(self.dealer, self.code, [value])

    def deal(self, name, number=0, blind=True):
        """Deal X once more, under a name, with a blind that may have been used before."""
        dealer, shares, blinds = self.dealer, self.encoded(self.X), self.blinds[number]
        nonces = [dealer.key(f"{name} nonce {j}.") for j in range(self.N)]
        leaves = [
            dealer.tag(nonces[j], (name, j), of=[shares[j], blinds[j]]) for j in range(self.N)
        ]
        root = leaves[0].map(root_of, *leaves[1:], shape=(32,), dtype=np.uint8)
        coins = dealer.coins(name, root, leaves)
        a, one = row_of(coins, (1, 3)), row_of(coins[::-1], (2, 1))
        checks = [(a @ share) @ one for share in shares]
        values = [c + b if blind else c for c, b in zip(checks, blinds, strict=True)]
        for j in range(self.N):
            for kind, value in (("share", shares[j]), ("blind", blinds[j]), ("nonce", nonces[j])):
                dealer.send(j, f"{name} {kind}", value)
            dealer.send(j, f"{name} root", root)
            for i in range(self.code.size):
                dealer.send(j, f"{name} value {i}", values[i])
        return self

    def verdict(self, *who):
        return decide(self.world, set(who)).verdict


def test_t_holders_learn_nothing_from_a_dealing_that_is_checked():
    made = Checked().deal("one")
    assert {made.verdict(n) for n in range(4)} == {"PROVED"}
    assert made.verdict(0, 1) == "VIOLATED"  # more than T


def test_a_check_without_a_blind_is_found():
    assert Checked().deal("one", blind=False).verdict(0) == "VIOLATED"


def test_a_blind_that_is_used_for_two_checks_is_found():
    assert Checked(blinds=2).deal("one").deal("two", 1).verdict(0) == "PROVED"
    assert Checked().deal("one").deal("two").verdict(0) == "VIOLATED"


def test_two_commitments_under_one_name_are_refused():
    """In a trace both would have the same row, and what a blind hides twice would not show."""
    made = Checked().deal("one")
    with pytest.raises(FlowError, match="two commitments under the name 'one'; name each apart"):
        made.deal("one")
    assert made.verdict(0) == "NOT PROVED"  # who catches the error has not proved anything


def test_coins_are_a_hash_of_name_and_commitment_in_a_run():
    from tests.active.test_dealing import Dealer, code_of, form_of

    party = Dealer(form_of(code_of()))
    root, other = (party.tag(party.key(), "leaf") for _ in range(2))
    assert party.coins("one", root) == party.coins("one", root)
    assert len({party.coins("one", root), party.coins("two", root), party.coins("one", other)}) == 3
    text = len("one").to_bytes(8, "big") + b"one" + bare_of(root).tobytes()
    assert party.coins("one", root) == hashlib.sha256(text).digest()
    with pytest.raises(FlowError, match="the name must be a public text"):
        party.coins(root, root)


def test_a_commitment_that_tells_a_secret_is_no_public_number():
    world = World(P)
    party, x = world.party(0), world.secret(0, "x", (2,))
    party.coins("x", x.map(root_of, shape=(32,), real=True, dtype=np.uint8))
    assert decide(world, {1}).verdict != "PROVED"
