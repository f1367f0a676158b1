"""Planted faults of sealed links are caught by the checks that cover them."""

import pytest

from securevfl.engine.security.sealing import Sealer
from tests.oracles.powers import open_links
from tests.testing.leaky_sealers import OpenSealer, UnauthenticatedSealer, UnencryptedSealer


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
