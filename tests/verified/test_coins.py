"""Public bytes that a commitment decides: what a coalition sees of a check by random rows."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from securevfl.field import LagrangeCode, PrimeField
from securevfl.verified import FlowError, World, bare_of, decide, prove, stack
from tests.verified.coded import encode

P = 2**31 - 1
FIELD = PrimeField(P)


def root_of(*leaves):
    """A commitment to leaves."""
    return np.frombuffer(hashlib.sha256(b"".join(x.tobytes() for x in leaves)).digest(), np.uint8)


def told(*values):
    """A statement of these values, to be signed."""
    return b"".join(x.tobytes() for x in values)


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
        self.tapes = [self.dealer.uniform(1, 1, name=f"b{i}.") for i in range(blinds)]
        self.blinds = [self.encoded(tape) for tape in self.tapes]
        self.identity = self.dealer.key("identity")

    def encoded(self, value):
        return encode(self.dealer, self.code, [value])

    def deal(self, name, number=0, mistake=""):
        """Deal X once more, under a name, with a blind that may have been used before."""
        dealer, shares, blinds = self.dealer, self.encoded(self.X), self.blinds[number]
        nonces = [dealer.key(f"{name} nonce {j}.") for j in range(self.N)]
        if mistake == "one nonce":
            nonces = nonces[:1] * self.N
        leaves = [
            dealer.tag(nonces[j], (name, j), of=[shares[j], blinds[j]]) for j in range(self.N)
        ]
        if mistake in ("hash of the share", "hash of share and blind"):
            of = [[] if mistake == "hash of the share" else [one] for one in blinds]
            leaves = [
                share.map(root_of, *more, shape=(32,), dtype=np.uint8)
                for share, more in zip(shares, of, strict=True)
            ]
        root = leaves[0].map(root_of, *leaves[1:], shape=(32,), dtype=np.uint8)
        coins = dealer.coins(name, root, leaves)
        if mistake == "no blind":
            blinds = [b - b for b in blinds]
        values = self.checked(shares, blinds, coins)
        for j in range(self.N):
            said = [leaves[j], root, values]
            if mistake == "signs all shares":
                said += shares
            signature = dealer.sign(self.identity, told, *said)
            dealer.send(j, f"{name} signature", signature)
            dealer.record(f"{name} echo", (signature, leaves[j]))
            parts = ("share", shares[j]), ("blind", blinds[j]), ("nonce", nonces[j]), ("root", root)
            for kind, value in (*parts, ("values", values)):
                dealer.send(j, f"{name} {kind}", value)
        if mistake == "one blind for two rows":
            dealer.send(0, "more", self.checked(shares, blinds, coins[::-1]))
        if mistake == "the blind masks":
            dealer.send(0, "masked", self.X[:1, :1] + self.tapes[number])
        if mistake == "a nonce later":
            dealer.send(0, "nonce", nonces[1])
        if mistake == "a nonce in public":
            dealer.record("nonce", nonces[1])
        if mistake == "a leaf opened":
            dealer.send(0, "opened", shares[1])
        return self

    def checked(self, shares, blinds, coins):
        """The polynomial c, by its first values."""
        a, one = row_of(coins, (1, 3)), row_of(coins[::-1], (2, 1))
        rows = zip(shares[: self.code.size], blinds, strict=False)
        return stack([(a @ share) @ one + b for share, b in rows])

    def verdict(self, *who):
        return decide(self.world, set(who)).verdict


@pytest.mark.parametrize("most", [4000, 50])
def test_t_holders_learn_nothing_from_a_dealing_that_is_checked_and_signed(most, monkeypatch):
    monkeypatch.setattr(prove, "_MOST_ENTRIES", most)  # a row of c moves in part
    made = Checked().deal("one")
    assert {made.verdict(n) for n in range(4)} == {"PROVED"}
    assert made.verdict(0, 1) == "VIOLATED"  # more than T


MISTAKES = (
    "no blind",
    "one blind for two rows",
    "the blind masks",
    "one nonce",
    "a nonce later",
    "a nonce in public",
    "hash of the share",
    "hash of share and blind",
    "a leaf opened",
    "signs all shares",
)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_dealing_is_found(mistake):
    assert Checked().deal("one", mistake=mistake).verdict(0) in ("VIOLATED", "NOT PROVED")


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
