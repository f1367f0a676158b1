"""Keys of masks that a checkpoint holds: of the blocks of today, or the run is refused."""

from itertools import combinations

import pytest

import securevfl as svfl
from securevfl.bench.rounds import Rounds, RoundSize, uniform
from securevfl.engine.simulation.simulator import Simulation
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


def test_keys_are_agreed_on_with_a_look_at_a_dealers_pairs_and_one_sending_for_equal_keys(
    monkeypatch,
):
    N, looks, sendings = 40, [], []
    real_sent, real_send = Prss.sent, Simulation.send

    def send(self, sending):
        if sending.kind == "key":
            sendings.append((sending.party.index, len(sending.to)))
        return real_send(self, sending)

    monkeypatch.setattr(
        Prss, "sent", lambda self, i, j: looks.append((i, j)) or real_sent(self, i, j)
    )
    monkeypatch.setattr(Simulation, "send", send)
    data = uniform(RoundSize(parties=N, features=N, rows=64))
    run = Rounds("fedvs", data, {"rounds": 2, "segments": 5, "batch": 5, "width": 2, "degree": 1})
    looks.clear()
    run.advance(1)
    prss = run._simulation.parties[0].public.prss
    dealers = [i for i in range(N) if prss.dealt(i)]
    assert 1 < len(dealers) < N / 4
    assert len(looks) == N * len(dealers)
    single = [i for i in dealers if len(prss.dealt(i)) == 1]
    assert sum(n for i, n in sendings if i in single) == len(single) * (N - 1) - sum(
        len(prss.blocks[prss.dealt(i)[0]]) for i in single
    )
    assert all([i for i, _ in sendings].count(i) <= 3 for i in single)


@pytest.mark.parametrize("by_dealers", [False, True])
@pytest.mark.parametrize(("N", "K", "T"), [(7, 2, 1), (8, 1, 2), (9, 2, 2)])
def test_what_a_client_receives_is_what_all_dealers_send_it(N, K, T, by_dealers):
    prss = Prss(prss_of(N, K, T).code, 2, by_dealers=by_dealers)
    for j in range(N):
        sent = {i: list(prss.sent(i, j)) for i in range(N) if prss.sent(i, j)}
        assert list(prss.received(j).items()) == list(sent.items())
