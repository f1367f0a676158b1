"""Homomorphic aggregation against plain integers; without its packages, the error that says so."""

import sys

import numpy as np
import pytest

from securevfl.engine.conditions import NONE
from securevfl.engine.network import SERVER
from securevfl.errors import ConfigurationError, PrivacyError, RangeError, RunError
from securevfl.models import homomorphic
from securevfl.protocols import he_split, split
from securevfl.protocols.base.registry import find_protocols
from securevfl.testing.conformance import CHECKS
from securevfl.testing.runs import make, simulate
from securevfl.verified import bare_of
from tests.protocols.joint import data, slow

SMALL = {"rounds": 4, "batch": 20, "width": 5, "hidden": 7}
SCHEMES = ("ckks", "paillier")
PACKAGES = {"ckks": "tenseal", "paillier": "phe"}


def scheme(name, parties=4):
    pytest.importorskip(PACKAGES[name])
    return he_split.Ckks(parties) if name == "ckks" else he_split.Paillier(parties, 2048)


@pytest.fixture(scope="module", params=SCHEMES)
def keyed(request):
    """A scheme for 28 parties with its keys."""
    made = scheme(request.param, 28)
    return made, *made.generate()


def values_of(made, count, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.integers(-made.limit, made.limit, count, endpoint=True)
    values[:2] = made.limit, -made.limit
    return values


# -- the schemes -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [3, 57, 130])
def test_sums_are_exact_up_to_the_limit(keyed, size):
    made, public, secret = keyed
    summands = [values_of(made, size, seed) for seed in range(28)]
    total = made.add(public, [made.encrypt(public, x) for x in summands])
    found = made.decrypt(secret, total, size, 28)
    assert found.dtype == np.int64
    assert (found == sum(summands)).all()
    assert sum(map(len, total)) == made.nbytes(size)


def test_ckks_takes_more_values_than_slots():
    made = scheme("ckks", 2)
    public, secret = made.generate()
    x = values_of(made, 4096 + 5)
    ciphertexts = made.encrypt(public, x)
    assert len(ciphertexts) == 2
    assert (made.decrypt(secret, made.add(public, [ciphertexts] * 2), x.size, 2) == 2 * x).all()


def test_the_noise_of_ckks_stays_far_below_one_half():
    """What is rounded away: at 28 summands of the largest size more than 50 sigma to 1/2."""
    made = scheme("ckks", 28)
    public, secret = made.generate()
    context = made.key(secret)
    total = made.add(public, [made.encrypt(public, values_of(made, 4096, s)) for s in range(28)])
    exact = sum(values_of(made, 4096, s) for s in range(28))
    raw = made.tenseal.ckks_vector_from(context, homomorphic._unpadded(total[0])).decrypt()
    noise = made._values(np.array(raw))[:4096] - exact
    assert noise.any()
    assert noise.std() * 50 < 0.5
    assert np.abs(noise).max() < 1 / 8


def test_what_the_key_holder_returns_does_not_depend_on_the_noise(keyed):
    """Fresh ciphertexts of the same values, other noise, the same answer (Li and Micciancio)."""
    made, public, secret = keyed
    x = values_of(made, 60)
    one, two = (made.add(public, [made.encrypt(public, x)]) for _ in range(2))
    assert one != two
    assert (made.decrypt(secret, one, 60, 1) == made.decrypt(secret, two, 60, 1)).all()


def test_a_residue_that_no_sum_of_integers_has_is_refused():
    made = scheme("ckks")
    public, secret = made.generate()
    half = made.encrypt(public, np.full(10, 0.5))
    with pytest.raises(RunError, match="from an integer, and 1/8 is allowed"):
        made.decrypt(secret, half, 10, 1)


def test_ciphertexts_are_fresh_and_of_one_size(keyed):
    made, public, _ = keyed
    for x in (np.zeros(60, np.int64), np.full(60, made.limit), values_of(made, 60)):
        one, two = made.encrypt(public, x), made.encrypt(public, x)
        assert one != two
        assert sum(map(len, one)) == sum(map(len, two)) == made.nbytes(60)


def test_the_public_key_does_not_decrypt(keyed):
    made, public, secret = keyed
    assert public != secret
    ciphertexts = made.encrypt(public, np.ones(4, np.int64))
    with pytest.raises((ValueError, AttributeError)):
        made.decrypt(public, ciphertexts, 4, 1)


def test_the_size_that_another_format_has_is_refused():
    with pytest.raises(RunError, match="another format"):
        homomorphic._padded(bytes(100), 80)


def test_sums_of_paillier_are_randomised_again():
    made = scheme("paillier")
    public, secret = made.generate()
    ciphertexts = [made.encrypt(public, np.arange(3)) for _ in range(2)]
    one, two = (made.add(public, ciphertexts) for _ in range(2))
    assert one != two
    assert (made.decrypt(secret, one, 3, 2) == made.decrypt(secret, two, 3, 2)).all()


# -- the protocol ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCHEMES)
def test_the_history_is_that_of_split_learning_on_those_in_time(name, monkeypatch):
    """Ignore with embeddings rounded to the same grid, number for number, under the same delays."""
    pytest.importorskip(PACKAGES[name])
    forward = split.Client.embed

    def on_the_grid(embedding):
        return np.floor(embedding.astype(np.float64) * 2.0**20 + 0.5) * 2.0**-20

    def rounded(self, samples):
        return forward(self, samples).map(on_the_grid, dtype=np.float64)

    options = SMALL | {"inference": "all"}
    secure = simulate("he_split", data(6), scheme=name, **options)
    monkeypatch.setattr(split.Client, "embed", rounded)
    plain = simulate("split", data(6), stragglers="ignore", **options)
    assert secure.losses == plain.losses
    answered = [outcome.parties[SERVER].answered.tolist() for outcome in (secure, plain)]
    assert answered[0] == answered[1]
    for n in range(6):
        weights = [bare_of(run.parties[n].network).values for run in (secure, plain)]
        assert (weights[0] == weights[1]).all()


@pytest.mark.parametrize("holder", [0, 3])
def test_stragglers_are_skipped_and_the_key_holder_may_be_one(holder):
    pytest.importorskip("tenseal")
    outcome = simulate("he_split", data(4), conditions=slow(0), holder=holder, quorum=3, **SMALL)
    assert len(outcome.losses) == SMALL["rounds"]
    assert outcome.parties[SERVER].answered.tolist() == [0, 4, 4, 4]
    assert max(e.time for e in outcome.events if e.name == "round") < 1e9


def test_only_the_key_holder_has_the_secret_key_and_the_wire_has_ciphertexts():
    pytest.importorskip("tenseal")
    outcome = simulate("he_split", data(4), conditions=NONE, payloads=True, holder=2, **SMALL)
    secrets = {n: bare_of(party.secret_key) for n, party in outcome.parties.items() if n != SERVER}
    assert [n for n, secret in secrets.items() if secret] == [2]
    for n, party in outcome.parties.items():
        assert (secrets[2] in party.public.scheme._keys) == (n == 2)  # what it has read, too
    transcript = outcome.simulation.transcript
    columns = transcript.columns()
    for kind, wanted in (("embedding", {SERVER}), ("sum", {2}), ("opened", {SERVER})):
        rows = np.flatnonzero(columns["kind"] == kind)
        assert set(columns["receiver"][rows].tolist()) == wanted
        for row in rows:
            is_array = isinstance(transcript.payloads[row], np.ndarray)
            assert is_array == (kind == "opened")
    embeddings = columns["bytes"][columns["kind"] == "embedding"]
    assert (embeddings > outcome.protocol.public.scheme.nbytes(100)).all()
    sums = [p for p in transcript.payloads if isinstance(p, bytes)]
    assert all(secrets[2] not in payload for payload in sums)


@pytest.mark.parametrize("check", ["determinism", "copying", "payloads", "absence"])
def test_paillier_conforms(check):
    pytest.importorskip("phe")
    CHECKS[check]("he_split", scheme="paillier", rounds=2, batch=8)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"holder": 4}, ConfigurationError, "the 4 clients are 0 to 3"),
        ({"quorum": 2}, PrivacyError, r"max\(T, 1\) \+ 2 = 3"),
        ({"quorum": 2, "privacy": 0}, PrivacyError, r"= 3, else T clients, or the key holder"),
        ({"quorum": 3, "privacy": 2}, PrivacyError, r"max\(T, 1\) \+ 2 = 4"),
        ({"quorum": 5}, PrivacyError, "at most N"),
        ({"privacy": 3}, PrivacyError, r"max\(T, 1\) \+ 2 = 5"),
        ({"aggregation": "max"}, ConfigurationError, "aggregation"),
        ({"key_bits": 1024}, ConfigurationError, "key_bits"),
    ],
)
def test_what_would_void_the_guarantee_is_refused_before_the_run(options, error, words):
    pytest.importorskip("tenseal")
    with pytest.raises(error, match=words):
        make("he_split", data(4), **options)


def test_an_embedding_out_of_range_stops_the_run():
    pytest.importorskip("tenseal")
    with pytest.raises(RangeError, match=r"floor\(2\^34 / N\)"):
        simulate("he_split", data(16), bits=32, **SMALL)


def test_the_card_says_who_holds_the_key():
    pytest.importorskip("tenseal")
    made = make("he_split", data(6))
    assert (made.card.absence, made.describe()["quorum"]) == ("skips", 3)
    assert make("he_split", data(6), quorum=6).card.absence == "waits"
    notions = {(claim.who, claim.about): claim.notion for claim in made.claims}
    assert notions["server", "model"] == "computational"
    assert notions["server + key holder", "model"] == "none"
    # It knows the sum, so the loss and dL/dH are of the server's labels and model alone.
    assert notions["key holder", "features"] == "computational"
    assert {notions["key holder", about] for about in ("labels", "model")} == {"none"}
    assert "server + key holder" in made.card.sees


@pytest.mark.parametrize("name", SCHEMES)
def test_without_its_package_the_error_names_the_extra(name, monkeypatch):
    monkeypatch.setitem(sys.modules, PACKAGES[name], None)
    assert "he_split" in find_protocols()
    with pytest.raises(ConfigurationError, match=r"pip install 'securevfl\[he\]'"):
        make("he_split", data(4), scheme=name)
