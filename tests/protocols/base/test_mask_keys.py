"""Keys of masks that a checkpoint holds: of the blocks of today, or the run is refused."""

from itertools import combinations

import pytest

import securevfl as svfl
from securevfl.errors import CheckpointError
from securevfl.field import LagrangeCode, PrimeField
from securevfl.field.prss import Prss
from securevfl.protocols.base.mask_keys import KeyParticipant, key_posts


def prss_of(N, K, T):
    return Prss(LagrangeCode(PrimeField(2**31 - 1), parties=N, segments=K, privacy=T), 2)


def test_a_client_takes_the_keys_that_it_must_hold_and_no_others():
    prss, client = prss_of(7, 2, 1), KeyParticipant(3, range(7), PrimeField(2**31 - 1))
    client.keys = dict.fromkeys(prss.held(3), bytes(32))
    client.check_keys(prss)
    client.keys = {place: bytes(32) for place in range(7) if place != 3}  # of sets of one party
    with pytest.raises(CheckpointError, match=r"6 keys of masks, of other sets .* than the 5"):
        client.check_keys(prss)


@pytest.mark.parametrize("protocol", ["fedvs", "coded_split"])
def test_a_run_that_was_begun_with_keys_of_other_sets_is_not_resumed(
    protocol, tmp_path, monkeypatch
):
    data = svfl.load_dataset("digits", parties=8)
    options = {"rounds": 40, "segments": 2, "privacy": 1, "width": 2, "hidden": 2, "batch": 16}
    looks = iter(range(10**9))
    with monkeypatch.context() as patch:
        every = "securevfl.field.prss.blocks_of"
        patch.setattr(every, lambda N, T, u: tuple(combinations(range(N), T)))
        asked = {"out": tmp_path / "run", "interrupted": lambda: next(looks) > 1}
        with pytest.raises(svfl.Interrupted):
            svfl.run(protocol, data, conditions="none", **options, **asked)
    with pytest.raises(CheckpointError, match="keys of masks, of other sets of parties"):
        svfl.resume(tmp_path / "run", data=data)


@pytest.mark.parametrize(("N", "K", "T"), [(7, 2, 1), (8, 1, 2), (9, 2, 2)])
def test_planned_keys_are_those_that_each_dealer_sends_in_its_order(N, K, T):
    prss = prss_of(N, K, T)
    planned = {i: [] for i in range(N)}
    for post in key_posts(prss):
        for i in post.senders(0):
            planned[i] += [(j, len(post.payloads[i])) for j in post.receivers(i)]
    sent = {i: [(j, len(prss.sent(i, j))) for j in range(N) if prss.sent(i, j)] for i in range(N)}
    assert planned == sent
