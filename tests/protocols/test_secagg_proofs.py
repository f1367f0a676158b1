"""Secure aggregation is proved, who drops out included, and mistakes in it are not."""

import dataclasses

import pytest

from securevfl.engine.network import SERVER
from securevfl.field import LagrangeCode
from securevfl.protocols.secagg_split import algorithm
from securevfl.protocols.secagg_split.algorithm import Client
from securevfl.protocols.secagg_split.parameters import Opening
from securevfl.protocols.secagg_split.protocol import SecAggSplit
from securevfl.verified import concatenate
from securevfl.verified.traced.proofs import Traced, prove_protocol
from tests.protocols.faulty import schedules_of_each_kind
from tests.protocols.joint import slow

ONE = {"rounds": 1}


def verdicts(parties=4, dropped=(), fresh=False, **options):
    traced = Traced("secagg_split", ONE | options, parties)
    conditions = slow(*dropped, of=parties, seconds=5.0)
    proof = prove_protocol(traced, conditions=conditions, fresh=fresh)
    return {v.claim: v.verdict for v in proof.verdicts}


def test_the_default_is_proved():
    with schedules_of_each_kind("secagg_split") as number:
        proof = prove_protocol(Traced("secagg_split", {}, 4))
    assert sum(number.values()) == 30
    assert sum(number[name] for name in proof.traces) == 22  # in the others too few are left
    assert len(proof.verdicts) == 9
    assert {v.verdict for v in proof.verdicts} == {"PROVED"}
    server = next(v for v in proof.verdicts if v.claim == "server")
    assert server.scope == (
        f"PROVED for these batches, shapes and schedules ({len(proof.traces)}), ideal PRF, "
        "given the outputs"
    )
    assert server.outputs[:6] == (
        *("sum 1", "loss 1", "gradient 1"),
        *("sum 2", "loss 2", "gradient 2"),
    )


@pytest.mark.parametrize(
    ("parties", "dropped", "options"),
    [
        (4, (), {"consistency": True}),
        (5, (), {"security": "covert", "rounds": 2}),
        (4, (), {"prime": 2**31 - 1, "bits": 12, "privacy": 2}),
        (4, (0,), {"cohorts": 0, "quorum": 3, "rounds": 2}),
        (6, (1,), {}),  # and its cohort
        (5, (2,), {"cohorts": 0, "quorum": 4, "consistency": True}),
    ],
)
def test_each_mode_is_proved_and_so_are_schedules_with_dropped_clients(parties, dropped, options):
    assert set(verdicts(parties, dropped, **options).values()) == {"PROVED"}


def test_a_clipped_model_is_told_to_everybody_and_nothing_beside_it():
    traced = Traced("secagg_split", ONE | {"weight_bound": 100.0}, 4)
    with schedules_of_each_kind("secagg_split"):
        found = prove_protocol(traced, fresh=False)
    assert {v.verdict for v in found.verdicts} == {"NOT PROTECTED"}
    named = {name for v in found.verdicts for name in v.clear}
    assert named >= {f"clipped {n} 1" for n in range(4)}
    assert all(name.startswith("clipped") for name in named)


def test_who_drops_out_is_in_no_sum_and_its_late_upload_is_in_the_view():
    world = Traced("secagg_split", {"cohorts": 0, "quorum": 3}, 4).run(slow(0, of=4, seconds=5.0))
    assert world.told("survivors") == {1: [1, 2, 3], 2: [1, 2, 3]}
    late = [m for m in world.messages if (m.kind, m.sender) == ("embedding", 0)]
    assert [m.to for m in late] == [SERVER] * 2


# -- mistakes -----------------------------------------------------------------------------------


def without_pair_masks(self, x, secret, seed, deals):
    return x + self.expand(seed, *x.shape)


def without_the_seed(self, x, secret, seed, deals):
    keys = {v: deal.key for v, deal in deals.items()}
    return x + algorithm.pair_masks(self, self.index, secret, keys, x.shape)


def both_opened(self, deals, survivors):
    return Opening(
        {v: deal.seed for v, deal in deals.items()}, {v: deal.secret for v, deal in deals.items()}
    )


def halves(party, own, secret, keys, shape, told):
    """Pair masks whose second half is the first one."""
    total = 0
    for v, key in keys.items():
        if v != own:
            agreed = party.agree(secret, key, use=("pair", party.round), ends=(own, v))
            half = party.expand(agreed, shape[0] // 2, shape[1])
            mask = concatenate([half, half])
            total = total + mask if v < own else total - mask
    return total


def test_without_pair_masks_the_server_sees_each_embedding(monkeypatch):
    monkeypatch.setattr(Client, "masked", without_pair_masks)
    found = verdicts()
    assert found["server"] != "PROVED"
    assert found["server + client 0"] != "PROVED"
    assert found["client 0"] == "PROVED"


def test_without_the_seed_a_late_upload_is_seen(monkeypatch):
    monkeypatch.setattr(Client, "masked", without_the_seed)
    assert verdicts()["server"] == "PROVED"  # nobody is late
    found = verdicts(4, (0,), cohorts=0, quorum=3)
    assert found["server"] != "PROVED"


def test_both_secrets_of_a_client_open_its_embedding(monkeypatch):
    monkeypatch.setattr(Client, "open", both_opened)
    found = verdicts()
    assert found["server"] != "PROVED"
    assert found["client 1"] == "PROVED"


def test_halves_under_one_mask_are_seen(monkeypatch):
    monkeypatch.setattr(algorithm, "pair_masks", halves)
    assert verdicts()["server"] != "PROVED"


def test_a_threshold_of_t_shares_is_too_low(monkeypatch):
    init = SecAggSplit.__init__

    def low(self, *given, **named):
        init(self, *given, **named)
        code = LagrangeCode(self.field, parties=4, segments=1, privacy=1, degree=1)
        self.public = dataclasses.replace(self.public, shamir=code)

    monkeypatch.setattr(SecAggSplit, "__init__", low)
    found = verdicts(privacy=2)
    assert found["server + client 0"] == "PROVED"
    assert found["server + clients 0, 1"] != "PROVED"


def test_a_key_sent_in_the_clear_is_seen(monkeypatch):
    public_key = Client.public_key

    def told(self, key):
        self.send(SERVER, "secret", key)
        return public_key(self, key)

    monkeypatch.setattr(Client, "public_key", told)
    messages = SecAggSplit.messages.fget
    both = lambda self: (  # noqa: E731
        *messages(self),
        *(dataclasses.replace(m, receiver="server") for m in messages(self) if m.kind == "secret"),
    )
    monkeypatch.setattr(SecAggSplit, "messages", property(both))
    assert verdicts()["server"] != "PROVED"
