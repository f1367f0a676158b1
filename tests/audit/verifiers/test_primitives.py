"""Hypotheses of reductions: edits that protocol and hypothesis have in common withhold verdicts."""

import os
from types import SimpleNamespace

import numpy as np
import pytest

from securevfl.audit.subject import Subject
from securevfl.audit.verifiers.declaration import DeclaredMessages
from securevfl.audit.verifiers.primitives import Hypotheses, _of_shares
from securevfl.audit.verify import judge
from securevfl.engine.party import SERVER
from securevfl.field import LagrangeCode, encoding
from securevfl.models.homomorphic import Paillier
from securevfl.protocols.base.registry import get_protocol
from securevfl.protocols.secagg_split import algorithm, parameters
from securevfl.testing.runs import make
from tests.audit.keyed.test_encryption import hand_over_backwards

STREAM = parameters.Parameters.stream
WHO = ("server + T clients", "features")


def verdict(made, who=WHO, verifier=Hypotheses):
    subject = Subject(made)
    subject.shared("settings", tuple)  # no runs besides the recorded one
    claims = {(one.who, one.asset): one for one in made.claims}
    return judge(claims[who], subject, [verifier()])


@pytest.mark.parametrize("options", [{}, {"privacy": 2}, {"consistency": True}])
def test_the_hypotheses_of_masked_sums_hold(options):
    found = verdict(make("secagg_split", **options))
    assert found.verdict == "HYPOTHESES HOLD"
    assert "each mask of a share of a seed is the stream of a fresh key of its own" in found.words


@pytest.mark.parametrize("options", [{}, {"scheme": "paillier", "rounds": 2, "width": 2}])
@pytest.mark.parametrize("who", ["server", "server + T clients without the key holder",
                                 "key holder"])  # fmt: skip
def test_the_hypotheses_of_encrypted_sums_hold(options, who):
    pytest.importorskip("tenseal")
    pytest.importorskip("phe")
    found = verdict(make("he_split", **options), (who, "features"))
    assert found.verdict == "HYPOTHESES HOLD"
    assert "keys and ciphertexts that were sent are what encryption makes" in found.words


def test_sums_of_one_survivor_more_than_collude_are_seen(monkeypatch):
    """The edit of a review: the check of the constructor, the clients' and the hypothesis's."""
    needed = property(lambda self: max(self.threshold, self.privacy + 1))
    monkeypatch.setattr(parameters.Parameters, "needed", needed)
    monkeypatch.setattr(parameters, "max", lambda t, *least: t, raising=False)
    options = {"quorum": 3, "privacy": 2, "threshold": 3}
    found = verdict(make("secagg_split", **options))
    assert found.verdict == "NO VIOLATION FOUND"
    assert "4 sums have 3 terms or more, and 4 are needed that two are left" in found.words
    assert verdict(make("secagg_split", **options), ("server", "features")).verdict == (
        "HYPOTHESES HOLD"
    )


def test_a_sum_of_few_in_a_setting_is_seen():
    """As where clients crashed, and the server sent the gradient of a sum of two."""
    made = make("secagg_split")
    envelopes = tuple(("gradient", 3, SERVER, n, 100, 0, 0) for n in range(2))
    setting = SimpleNamespace(traffic=SimpleNamespace(envelopes=envelopes), keys=0, strange_keys=0)
    subject = Subject(made)
    subject.shared("settings", lambda: (setting,))
    claims = {(one.who, one.asset): one for one in made.claims}
    found = judge(claims[WHO], subject, [Hypotheses()])
    assert found.verdict == "NO VIOLATION FOUND"
    assert "sums have 2 terms or more, and 3 are needed that two are left" in found.words


def test_fewer_masks_of_shares_than_clients_collude_are_seen(monkeypatch):
    made = make("secagg_split", privacy=2)
    field, N = made.sharing.field, made.sharing.parties
    short = LagrangeCode(field, parties=N, segments=1, privacy=1, degree=1)
    monkeypatch.setattr(type(made), "sharing", short)
    found = verdict(made, ("T clients", "features"))
    assert found.verdict == "NO VIOLATION FOUND"
    assert "it does not hold: polynomials that share seeds have 1 masks" in found.words


def test_streams_of_two_bytes_of_a_seed_violate_the_claim(monkeypatch):
    monkeypatch.setattr(
        parameters.Parameters,
        "stream",
        lambda self, seed, shape: STREAM(self, seed[:2] * 16, shape),
    )
    found = verdict(make("secagg_split"), ("server", "features"), DeclaredMessages)
    assert found.verdict == "VIOLATED"
    assert "an upload is not its value and the streams of its seeds" in found.words


def test_shares_with_equal_masks_are_seen(monkeypatch):
    apply = encoding.apply

    def encode(field, left, data, masks, source, T, out, threads):
        if masks is None:
            masks = np.repeat(field.random((1, data.shape[1])), T, axis=0)
        return apply(left, [data, masks], out, threads)

    monkeypatch.setattr(encoding, "encode", encode)
    found = verdict(make("secagg_split", privacy=2), ("T clients", "features"))
    assert found.verdict == "NO VIOLATION FOUND"
    assert "masks of shares of seeds are no stream of a fresh key" in found.words


def test_short_randomness_of_ciphertexts_is_seen(monkeypatch):
    pytest.importorskip("phe")

    def encrypt(self, key, values):
        shifted, public = (values + self.limit).tolist(), self.key(key)
        rows = [shifted[i : i + self.slots] for i in range(0, len(shifted), self.slots)]
        made = [public.raw_encrypt(self._pack(row), 2 + os.urandom(1)[0]) for row in rows]
        return (b"".join(map(self._bytes, made)),)

    monkeypatch.setattr(Paillier, "encrypt", encrypt)
    options = {"scheme": "paillier", "rounds": 2, "width": 2, "batch": 4}
    found = verdict(make("he_split", **options), ("server", "features"))
    assert found.verdict == "NO VIOLATION FOUND"
    assert "randomness far shorter than the modulus" in found.words


def test_a_secret_key_in_the_public_one_is_seen_in_whatever_form(monkeypatch):
    pytest.importorskip("tenseal")
    hand_over_backwards(monkeypatch)
    found = verdict(make("he_split", rounds=2, batch=4), ("server", "features"))
    assert found.verdict == "NO VIOLATION FOUND"
    assert "the public key is no context of TenSEAL's" in found.words


@pytest.mark.parametrize("whole", [False, True])
def test_shares_of_late_rounds_are_looked_at_where_all_rounds_run(monkeypatch, whole):
    """Masks of the shares of seeds that everybody knows, after more rounds than a small run has."""
    base = get_protocol("secagg_split")
    deal = algorithm.Client.deal

    def known(self, pairing, seed):
        if self.round <= 8:
            return deal(self, pairing, seed)
        with monkeypatch.context() as patched:
            shamir = self.public.shamir
            zeros = lambda shape: np.zeros(shape, shamir.field.dtype)  # noqa: E731
            encode = LagrangeCode.encode

            def plain(code, values, masks=None):
                shape = (code.privacy, *values.shape[1:])
                return encode(code, values, masks=zeros(shape) if masks is None else masks)

            patched.setattr(LagrangeCode, "encode", plain)
            return deal(self, pairing, seed)

    monkeypatch.setattr(algorithm.Client, "deal", known)
    made = make(base, rounds=10, batch=15, width=4, hidden=16)
    subject = Subject(made, whole=whole)
    subject.shared("settings", tuple)
    subject.shared(
        "runs with crashes", tuple
    )  # in which attempts count as rounds, so there are more
    claims = {(one.who, one.asset): one for one in made.claims}
    found = judge(claims[WHO], subject, [Hypotheses()])
    assert found.verdict == ("NO VIOLATION FOUND" if whole else "HYPOTHESES HOLD")
    assert ("masks of shares of seeds are no stream of a fresh key" in found.words) == whole


def test_shares_of_who_comes_back_are_looked_at(monkeypatch):
    """Masks that everybody knows, in lives after a crash alone."""
    deal = algorithm.Client.deal

    def known(self, pairing, seed):
        if not self.returned:
            return deal(self, pairing, seed)
        with monkeypatch.context() as patched:
            encode = LagrangeCode.encode

            def plain(code, values, masks=None):
                none = np.zeros((code.privacy, *values.shape[1:]), code.field.dtype)
                return encode(code, values, masks=none if masks is None else masks)

            patched.setattr(LagrangeCode, "encode", plain)
            return deal(self, pairing, seed)

    made = make("secagg_split", rounds=8, batch=15, width=4)
    assert _of_shares(Subject(made), made) == []
    monkeypatch.setattr(algorithm.Client, "deal", known)
    made = make("secagg_split", rounds=8, batch=15, width=4)
    assert "no stream of a fresh key of their own" in "".join(_of_shares(Subject(made), made))
