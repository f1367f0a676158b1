"""Every planted leak is caught by the verifiers that cover it, and by no blind one."""

from functools import cache, lru_cache

import numpy as np
import pytest

from securevfl.audit.games import on_runs
from securevfl.audit.games.on_runs import TESTS, DistinguishingGame, Size
from securevfl.audit.proof.certificate import certificate
from securevfl.audit.proof_deviations import deviations
from securevfl.audit.randomness import unexplained, watch
from securevfl.audit.recorded_runs import run_factory
from securevfl.engine.security.sealing import Sealer
from securevfl.errors import UnknownNameError
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.leaky import LEAKS, leaky
from tests.oracles.powers import open_links
from tests.testing.leaky_sealers import OpenSealer, UnauthenticatedSealer, UnencryptedSealer

# Failure probability of this file: at most 1e-7 for each test that must stay silent.
EXPECTED = [
    (leak, test, rejected)
    for leak, how in LEAKS.items()
    for tests, rejected in ((how.caught_by, True), (how.blind, False))
    for test in tests
    if test in TESTS
]


@lru_cache(maxsize=2)
def runs_of(*game):
    """Runs with secret 0 and with secret 1, which all tests that play this game look at."""
    return [], []


class SharedRuns(DistinguishingGame):
    """A game that sees each run of its secrets once, as other tests have seen it before."""

    def __init__(self, protocol, size, about, **shape):
        super().__init__(protocol, size, about, **shape)
        self.runs = runs_of(protocol, repr(size), about, repr(shape))
        self.seen = [0, 0]

    def run(self, bit):
        if self.seen[bit] == len(self.runs[bit]):
            self.runs[bit].append(super().run(bit))
        self.seen[bit] += 1
        return self.runs[bit][self.seen[bit] - 1]


@pytest.fixture(autouse=True)
def shared_runs(monkeypatch):
    monkeypatch.setattr(on_runs, "DistinguishingGame", SharedRuns)


planted = cache(leaky)


def outcome(leak, test):
    how = LEAKS[leak]
    return TESTS[test](planted(leak), Size(1, how.privacy, rounds=24), how.about)


@pytest.mark.parametrize(("leak", "test", "rejected"), EXPECTED)
def test_a_leak_is_caught_and_a_blind_test_stays_silent(leak, test, rejected):
    assert outcome(leak, test).rejected is rejected


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize(
    ("K", "T", "prime"), [(1, 1, 2**31 - 1), (2, 1, 2**61 - 1), (1, 2, 2**61 - 1)]
)
def test_the_real_protocol_is_not_accused(test, K, T, prime):
    assert not TESTS[test](get_protocol("fedvs"), Size(K, T, prime, rounds=24)).rejected


@pytest.mark.parametrize("test", ["span, server", "ranks, server", "ranks, server + clients"])
@pytest.mark.parametrize(
    ("K", "T", "about"), [(1, 1, "features"), (2, 1, "model"), (1, 2, "features")]
)
def test_plain_evaluation_is_caught(test, K, T, about):
    size = Size(K, T, options={"masked": False}, rounds=24)
    assert TESTS[test](get_protocol("fedvs"), size, about).rejected


@pytest.mark.parametrize("test", ["equality", "span, clients"])
def test_plain_evaluation_is_not_accused_of_what_it_keeps(test):
    assert not TESTS[test](get_protocol("fedvs"), Size(options={"masked": False})).rejected


# What is wrong with these is what is drawn or who shares it, and that is on the tapes as it is.
DRAWN = {"T-1 masks", "Z shared by clients", "Z_1 = Z_2", "alpha on a data point", "small masks"}


@pytest.mark.parametrize("leak", [n for n in LEAKS if "seed" not in n and n not in DRAWN])
def test_a_leak_in_the_use_of_masks_departs_from_the_proof(leak):
    how = LEAKS[leak]
    size = Size(1, how.privacy)
    features = [np.full((3, 2), n / 8) for n in range(size.parties)]
    options = {"segments": 1, "privacy": how.privacy}
    recorded = run_factory(leaky(leak), features, rounds=4, width=3, **options).run()
    assert list(deviations(recorded))


@pytest.mark.parametrize("leak", sorted(DRAWN - {"alpha on a data point"}))
def test_a_leak_in_what_is_drawn_has_no_provenance(leak):
    size = Size(1, LEAKS[leak].privacy)
    features = [np.full((3, 2), n / 8) for n in range(size.parties)]
    with watch() as log:
        made = run_factory(
            leaky(leak), features, rounds=4, width=3, privacy=size.privacy, segments=1
        )
        recorded = made.run()
    assert list(unexplained(log, recorded.tapes.values()))


def test_a_point_on_the_data_has_no_certificate():
    made = run_factory(
        leaky("alpha on a data point"), [np.zeros((3, 2))] * 3, privacy=1, segments=1
    )
    assert not all(check.holds for check in certificate(made.protocol.public.code))


def test_sealing_off_is_caught():
    assert open_links(Sealer) == []
    faults = open_links(OpenSealer)
    assert "the payload is in the wire bytes" in faults
    assert sum("flipped bit" in fault for fault in faults) == 3


def test_links_that_only_encrypt_or_only_authenticate_are_caught():
    """Each of the two checks finds its own fault, and is silent about the other's."""
    faults = open_links(UnauthenticatedSealer)
    assert len(faults) == 3
    assert all("flipped bit" in fault for fault in faults)
    assert open_links(UnencryptedSealer) == ["the payload is in the wire bytes"]


@pytest.mark.parametrize("sealer", [OpenSealer, UnauthenticatedSealer, UnencryptedSealer])
def test_planted_links_carry_messages_like_real_ones(sealer):
    one, two = (sealer("fedvs", "run", index) for index in (0, 1))
    for one_end in (one, two):
        one_end.add_peers({0: one.public, 1: two.public})
    for payload in (b"", b"x", bytes(range(200))):
        assert two.open(0, "model", 1, 0, one.seal(1, "model", 1, 0, payload)) == payload


def test_unknown_leaks_are_refused():
    with pytest.raises(UnknownNameError, match="unknown leak 'rho'"):
        leaky("rho")
