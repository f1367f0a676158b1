"""Secure aggregation against plain integers, and against what must not be learnt."""

import os
from collections.abc import Mapping
from itertools import combinations
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from securevfl.engine import wire
from securevfl.engine.conditions import NONE, Conditions, Delay
from securevfl.engine.network import SERVER
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import (
    CheckpointError,
    ConfigurationError,
    NotEnoughResultsError,
    PrivacyError,
    RangeError,
    RunError,
)
from securevfl.protocols import split
from securevfl.protocols.secagg_split import algorithm
from securevfl.protocols.secagg_split.algorithm import Client, Server
from securevfl.protocols.secagg_split.parameters import Deal
from securevfl.protocols.secagg_split.protocol import SecAggSplit
from securevfl.testing.runs import make, simulate
from securevfl.verified import bare_of
from securevfl.verified.values import Bytes, Element, Key, PublicKey
from tests.protocols.joint import data, slow
from tests.protocols.masks import agreed, pair_masks, rebuild, stream

P31, P61 = 2**31 - 1, 2**61 - 1
# Any clients may survive: what is tried here holds beside cohorts.
SMALL = {"rounds": 6, "batch": 20, "width": 5, "hidden": 7, "cohorts": 0}
SEED = 32


def sent(outcome, kind):
    """(sender, receiver, round) to payload, in the order in which they were sent."""
    transcript = outcome.simulation.transcript
    columns = transcript.columns()
    keys = ("sender", "receiver", "round")
    return {
        tuple(int(columns[key][row]) for key in keys): transcript.payloads[row]
        for row in np.flatnonzero(columns["kind"] == kind)
    }


def planted(**changes):
    """Secure aggregation whose parties are changed after they were made."""

    def parties(self):
        made = SecAggSplit.parties(self)
        for index, party in made.items():
            for name, make_value in changes.items():
                if hasattr(party, name):
                    setattr(party, name, make_value(party, index))
        return made

    return type("Planted", (SecAggSplit,), {"parties": parties, "__doc__": "Planted."})


def spied(log):
    """Secure aggregation that notes every x_u, secret and seed, and every unmasked sum."""

    def masked(client, index):
        inner = type(client).masked

        def noted(x, secret, seed, deals):
            log.setdefault("x", {})[index, client.round] = bare_of(x)
            log.setdefault("keys", {})[index, client.round] = bare_of((secret, seed))
            return inner(client, x, secret, seed, deals)

        return noted

    def unmask(server, _index):
        inner = type(server).unmask

        def noted(keys, uploads, openings):
            total = inner(server, keys, uploads, openings)
            log.setdefault("sums", {})[server.round] = (tuple(uploads), tuple(keys), bare_of(total))
            return total

        return noted

    return planted(masked=masked, unmask=unmask)


# -- exactness ---------------------------------------------------------------------------------


@pytest.mark.parametrize("prime", [P31, P61])
@pytest.mark.parametrize("consistency", [False, True])
@pytest.mark.parametrize("dropped", [(), (0,), (1, 4)])
def test_the_sum_is_that_of_the_survivors_as_integers(prime, consistency, dropped):
    log = {}
    options = {"prime": prime, "bits": 16, "consistency": consistency, "quorum": 5}
    conditions = slow(*dropped, of=7)
    simulate(spied(log), data(7), conditions=conditions, **SMALL | options)
    assert len(log["sums"]) == SMALL["rounds"]
    for round, (survivors, sharers, total) in log["sums"].items():
        assert sharers == tuple(range(7))
        assert len(survivors) == 5
        assert not set(survivors) & set(dropped)
        exact = sum(log["x"][u, round].astype(object) for u in survivors) % prime
        assert (total.astype(object) == exact).all()


def on_the_grid(embedding):
    return np.floor(embedding.astype(np.float64) * 2.0**24 + 0.5) * 2.0**-24


def test_the_history_is_that_of_split_learning_on_the_survivors(monkeypatch):
    """Ignore with embeddings rounded to the same grid, number for number, under the same delays."""
    forward = split.Client.embed

    def rounded(self, own):
        return forward(self, own).map(on_the_grid, dtype=np.float64)

    options = SMALL | {"rounds": 12, "inference": "all"}
    secure = simulate("secagg_split", data(6), **options)
    monkeypatch.setattr(split.Client, "embed", rounded)
    del options["cohorts"]
    plain = simulate("split", data(6), stragglers="ignore", **options)
    assert secure.losses == plain.losses
    answered = [outcome.parties[SERVER].answered.tolist() for outcome in (secure, plain)]
    assert answered[0] == answered[1]
    for n in range(6):
        weights = [bare_of(run.parties[n].network).values for run in (secure, plain)]
        assert (weights[0] == weights[1]).all()
    assert [e.fields["dropped"] for e in secure.events if e.name == "round"] == [3] * 12


def test_masks_of_all_clients_cancel_and_those_of_a_part_do_not():
    made, shape = make("secagg_split", data(5), **SMALL), (4, 3)
    parties = made.parties()
    secrets = {u: parties[u].key() for u in range(5)}
    keys = {u: bare_of(parties[u].public_key(one)) for u, one in secrets.items()}
    public = {u: PublicKey(key, None, None, None) for u, key in keys.items()}
    masks = {
        u: bare_of(algorithm.pair_masks(parties[u], u, one, public, shape))
        for u, one in secrets.items()
    }
    for u, secret in secrets.items():
        by_other_code = pair_masks(made, u, bare_of(secret), keys, shape, round=0)
        assert (masks[u] == by_other_code).all()
    for size in range(1, 6):
        for part in combinations(range(5), size):
            total = sum(masks[u].astype(object) for u in part) % made.field.modulus
            assert (total == 0).all() == (size == 5)


@pytest.mark.parametrize("prime", [P31, P61])
def test_an_upload_is_computed_alike_by_other_code(prime):
    """x_u, the stream of b_u, and those of s_{u,v} by X25519 and HKDF-SHA256."""
    log, options = {}, SMALL | {"rounds": 2, "prime": prime, "bits": 12}
    outcome = simulate(spied(log), data(4), payloads=True, **options)
    made, uploads = outcome.protocol, sent(outcome, "embedding")
    assert len(uploads) == 8
    for (u, _, round), upload in uploads.items():
        secret, seed = log["keys"][u, round]
        keys = {v: key for (v, _, r), key in sent(outcome, "shared").items() if r == round}
        masks = pair_masks(made, u, secret, keys, upload.shape, round)
        total = made.field.add(masks, stream(made, seed, upload.shape))
        assert (upload == made.field.add(total, log["x"][u, round])).all()


def test_agreed_seeds_are_symmetric_and_bound_to_the_round():
    one, two = os.urandom(SEED), os.urandom(SEED)
    parties = make("secagg_split", data(4)).parties()
    public = [PublicKey(bare_of(parties[n].public_key(Key(key, None, n, None))), None, None, None)
              for n, key in enumerate((one, two))]  # fmt: skip
    own, use = Key(one, None, 0, None), ("securevfl secagg pair 1", 3)
    seed = bare_of(parties[0].agree(own, public[1], use, (0, 1)))
    assert seed == bare_of(parties[1].agree(Key(two, None, 1, None), public[0], use, (1, 0)))
    assert seed == agreed(0, one, 1, bare_of(public[1]), 3)
    assert bare_of(parties[0].agree(own, public[1], (use[0], 4), (0, 1))) != seed


@settings(max_examples=25, deadline=None)
@given(
    secret=st.binary(min_size=SEED, max_size=SEED),
    t=st.integers(2, 5),
    prime=st.sampled_from([P31, P61, 65537]),
    chosen=st.permutations(range(6)),
)
def test_any_t_shares_rebuild_a_secret_and_fewer_do_not(secret, t, prime, chosen):
    options = {"threshold": t, "prime": prime, "bits": 8, "quorum": 5}
    made = make("secagg_split", data(6), **SMALL | options)
    client, code = made.parties()[0], made.public.shamir
    shares = [row[0] for row in client.share_keys(code, Key(secret, None, 0, None))]
    assert bare_of(client.join_key({u: shares[u] for u in chosen[:t]}, code)) == secret
    assert rebuild(made, {u: bare_of(shares[u]) for u in chosen[:t]}) == secret
    try:
        found = bare_of(client.join_key({u: shares[u] for u in chosen[: t - 1]}, code))
    except RunError:
        return
    assert found != secret


# -- what is and is not learnt -----------------------------------------------------------------


def test_each_share_that_is_opened_is_of_the_seed_or_of_the_key_never_of_both():
    outcome = simulate("secagg_split", data(6), payloads=True, **SMALL)
    openings = sent(outcome, "opening")
    assert len(openings) == 3 * SMALL["rounds"]
    for opening in openings.values():
        assert len(opening.seeds) == 3
        assert len(opening.secrets) == 3
        assert not set(opening.seeds) & set(opening.secrets)
    by_round = {}
    for (_, _, round), opening in openings.items():
        by_round.setdefault(round, set()).add((*opening.seeds, -1, *opening.secrets))
    assert all(len(sets) == 1 for sets in by_round.values())


def late_upload(masked=None):
    """A run in which client 0 is too late: its upload less what the server can remove, and x."""
    log = {}
    options = SMALL | {"rounds": 1, "quorum": 3}
    outcome = simulate(
        spied(log), data(4), conditions=slow(0, seconds=5.0), payloads=True, **options
    )
    made, shared = outcome.protocol, sent(outcome, "shared")
    openings = {u: o for (u, _, r), o in sent(outcome, "opening").items() if r == 1}
    keys = {u: key for (u, _, _), key in shared.items()}
    secret = rebuild(made, {u: o.secrets[0] for u, o in list(openings.items())[:2]})
    assert secret == log["keys"][0, 1][0]
    upload = sent(outcome, "embedding")[0, SERVER, 1]
    stripped = made.field.subtract(upload, pair_masks(made, 0, secret, keys, upload.shape))
    return made, stripped, log["x"][0, 1]


def test_a_late_upload_of_a_client_taken_for_dropped_stays_masked():
    made, stripped, x = late_upload()
    own = made.field.subtract(stripped, x)  # b_0's mask, which nobody opened
    assert (own != 0).all()
    assert len(np.unique(own)) == own.size


def test_without_the_second_mask_a_late_upload_opens(monkeypatch):
    """Why there are two masks: the test above would find it."""
    monkeypatch.setattr(Client, "masked", without_the_seed)
    _, stripped, x = late_upload()
    assert (stripped == x).all()


def without_the_seed(self, x, secret, seed, deals):
    """y_u without PRG(b_u)."""
    keys = {v: deal.key for v, deal in deals.items()}
    return x + algorithm.pair_masks(self, self.index, secret, keys, x.shape)


def nothing(client, samples):
    """An embedding of zeros."""
    return Element(np.zeros((len(samples), 5), np.uint32), None, client.index, None, client.field)


def test_uploads_are_uniform_whatever_the_embedding():
    """Chi-square of the high bits; a true uniform sample fails with probability 1e-6."""
    zero = planted(quantised=lambda client, _: lambda samples: nothing(client, samples))
    outcome = simulate(zero, data(4), payloads=True, **SMALL | {"rounds": 25, "prime": P31})
    uploads = np.concatenate([u.ravel() for u in sent(outcome, "embedding").values()])
    assert uploads.size >= 25 * 4 * 20 * 5 * 0.9
    counts = np.bincount(uploads >> 26, minlength=32)
    assert stats.chisquare(counts).pvalue > 1e-6
    assert len(np.unique(uploads)) > 0.999 * uploads.size
    assert len(outcome.losses) == 25


def test_keys_and_seeds_are_fresh_in_every_round_and_run():
    keys = set()
    for _ in range(2):
        outcome = simulate("secagg_split", data(4), payloads=True, conditions=NONE, **SMALL)
        keys |= set(sent(outcome, "shared").values())
    assert len(keys) == 2 * 4 * SMALL["rounds"]


def test_every_secret_takes_32_fresh_bytes_of_the_operating_system(monkeypatch):
    client = make("secagg_split", data(4)).parties()[0]
    asked = []
    monkeypatch.setattr(os, "urandom", lambda n: asked.append(n) or bytes(n))
    one, two = bare_of(client.key()), bare_of(client.key())
    assert one == two == bytes(SEED)  # nothing but those bytes enters
    assert asked == [SEED, SEED]


# -- a server that lies ------------------------------------------------------------------------


class Splitting(Server):
    """Names client 0 a survivor to the even clients, and dropped to the odd ones."""

    def broadcast(self, kind, payload, to=None):
        if kind != "survivors":
            super().broadcast(kind, payload, to)
            return
        for n in to:
            named = payload if n % 2 == 0 else tuple(u for u in payload if u)
            self.send(n, kind, named)

    def unmask(self, keys, uploads, openings):
        return next(iter(uploads.values())).times(0)


def liar(log):
    """Secure aggregation with that server, and a log of what its clients open."""

    def opened(client, index):
        inner = type(client).open

        def noted(deals, survivors):
            log[index] = inner(client, deals, survivors)
            return log[index]

        return noted

    base = planted(open=opened)

    def parties(self):
        made = base.parties(self)
        made[SERVER].__class__ = Splitting
        return made

    return type("Liar", (base,), {"parties": parties, "__doc__": "Lies."})


def test_two_sets_of_survivors_open_a_client_unless_they_are_signed():
    log, options = {}, SMALL | {"rounds": 1, "quorum": 6}
    outcome = simulate(liar(log), data(6), conditions=NONE, payloads=True, **options)
    made = outcome.protocol
    seeds = {u: bare_of(opening.seeds[0]) for u, opening in log.items() if 0 in opening.seeds}
    secrets = {u: bare_of(one.secrets[0]) for u, one in log.items() if 0 in one.secrets}
    assert min(len(seeds), len(secrets)) >= made.public.threshold
    # What the server learns so is what t clients would show it: the embedding of client 0.
    upload = sent(outcome, "embedding")[0, SERVER, 1]
    keys = {u: key for (u, _, _), key in sent(outcome, "shared").items()}
    masks = made.field.add(
        stream(made, rebuild(made, seeds), upload.shape),
        pair_masks(made, 0, rebuild(made, secrets), keys, upload.shape),
    )
    fresh, layout = made.parties()[0], made.layout
    x = bare_of(fresh.quantised(layout.samples(layout.draw(1))))
    assert (made.field.subtract(upload, masks) == x).all()
    log = {}
    with pytest.raises(RunError, match="signed the survivors"):
        simulate(liar(log), data(6), conditions=NONE, consistency=True, **options)
    assert log == {}


def test_what_no_honest_server_names_is_refused():
    client = make("secagg_split", data(6), cohorts=0).parties()[2]
    client.check({1, 2, 3}, {0, 1, 2, 3})
    for survivors, sharers in (
        ({0, 1, 3}, {0, 1, 2, 3}),  # without this client
        ({1, 2, 5}, {0, 1, 2, 3}),  # one that did not share
        ({1, 2}, {0, 1, 2, 3}),  # T + 1
    ):
        with pytest.raises(RunError, match="Nothing was opened"):
            client.check(survivors, sharers)


def test_survivors_are_whole_cohorts_and_clients_open_no_other_sum():
    options = SMALL | {"rounds": 3, "cohorts": None}
    outcome = simulate("secagg_split", data(8), conditions=slow(1, of=8), payloads=True, **options)
    survivors = {tuple(named) for named in sent(outcome, "survivors").values()}
    assert survivors == {(4, 5, 6, 7)}
    assert outcome.protocol.public.cohorts.groups == ((0, 1, 2, 3), (4, 5, 6, 7))
    client = outcome.parties[4]
    client.check({4, 5, 6, 7}, set(range(8)))
    with pytest.raises(RunError, match=r"cut the cohort \[0, 1, 2, 3\].*Nothing was opened"):
        client.check({0, 1, 2, 4, 5, 6, 7}, set(range(8)))


def test_without_cohorts_claims_say_that_single_clients_follow():
    for cohorts, single in ((0, True), (2, False)):
        protocol = make("secagg_split", data(8), cohorts=cohorts)
        assert all(
            ("single clients' embeddings follow" in claim.reason) is single
            for claim in protocol.claims
            if claim.asset == "features"
        )
    assert make("secagg_split", data(8), cohorts=0, quorum=8).told_apart == ""


def test_nothing_is_uploaded_among_too_few_or_under_one_key_twice():
    client = make("secagg_split", data(6)).parties()[2]
    secret, x = client.key(), nothing(client, range(2))
    deals = {u: Deal(client.public_key(secret), None, None) for u in range(6)}
    with pytest.raises(RunError, match=r"6 sharers with 1 keys.*Nothing was uploaded"):
        client.masked(x, secret, secret, deals)
    with pytest.raises(RunError, match=r"1 sharers.*Nothing was uploaded"):
        client.masked(x, secret, secret, {2: deals[2]})


# -- who comes too late ------------------------------------------------------------------------


def shares_late(*parties, of, seconds=50.0):
    shifts = [seconds if n in parties else 0.0 for n in range(of)]
    uploads = tuple(Delay(shift=s) for s in shifts)
    return Conditions(name="late shares", uploads=uploads, share_factor=1.0)


def test_who_shares_too_late_is_left_out_and_need_not_be_recovered():
    log = {}
    simulate(
        spied(log), data(6), conditions=shares_late(2, of=6), share_timeout=5.0, quorum=4, **SMALL
    )
    assert len(log["sums"]) == SMALL["rounds"]
    for survivors, sharers, _ in log["sums"].values():
        assert sharers == (0, 1, 3, 4, 5)
        assert 2 not in survivors


def test_rounds_with_too_few_are_given_up_and_then_the_run():
    conditions = shares_late(0, 1, 2, of=6)
    with pytest.raises(NotEnoughResultsError, match=r"missing: clients \[0, 1, 2\]"):
        simulate("secagg_split", data(6), conditions=conditions, share_timeout=5.0, quorum=4)


def test_a_round_whose_uploads_do_not_come_is_given_up():
    with pytest.raises(NotEnoughResultsError, match="uploaded in time and 4 are needed"):
        simulate("secagg_split", data(5), conditions=slow(0, 1, of=5), result_timeout=5.0, quorum=4)


# -- the door ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"privacy": 3, "threshold": 3}, PrivacyError, "t must exceed T"),
        ({"quorum": 2}, PrivacyError, r"max\(t, T\+2\) = 3"),
        ({"quorum": 7}, PrivacyError, "at most N"),
        ({"threshold": 5, "quorum": 4}, PrivacyError, r"max\(t, T\+2\) = 5"),
        ({"privacy": 5}, PrivacyError, r"max\(t, T\+2\) = 7"),
        ({"consistency": True, "threshold": 3}, PrivacyError, "2t > N"),
        ({"prime": 251}, ConfigurationError, "no room"),
        ({"aggregation": "concat"}, ConfigurationError, "aggregation"),
    ],
)
def test_what_would_void_the_guarantee_is_refused_before_the_run(options, error, words):
    with pytest.raises(error, match=words):
        make("secagg_split", data(6), **options)


@pytest.mark.parametrize(("N", "T", "t", "quorum"), [(6, 1, 2, 3), (9, 2, 3, 5), (5, 3, 4, 5)])
def test_defaults_exceed_t_and_keep_two_honest_survivors(N, T, t, quorum):
    told = make("secagg_split", data(N), privacy=T).describe()
    assert (told["t"], told["quorum"]) == (t, quorum)
    signed = make("secagg_split", data(N), privacy=T, consistency=True, quorum=N).describe()
    assert 2 * signed["t"] > N + T


def test_an_embedding_that_could_wrap_stops_the_run():
    with pytest.raises(RangeError, match=r"floor\(\(p-1\)/\(2N\)\)"):
        simulate("secagg_split", data(4), prime=P31, bits=29, **SMALL)


def test_the_card_claims_given_the_sums_and_no_labels():
    claims = make("secagg_split", data(4)).claims
    assert {c.notion for c in claims if c.about in ("features", "model")} == {"computational"}
    assert {c.notion for c in claims if c.about == "labels"} == {"none"}
    assert all("given the sums" in c.source for c in claims if c.notion == "computational")


# -- round 3 is of one run and one life ----------------------------------------------------------


class Listening(Client):
    """A client that hears the signatures it is given, and keeps what it says."""

    said: bytes = b""
    heard: Mapping[int, bytes] = MappingProxyType({})

    def send(self, to, kind, payload, **more):
        self.said = bare_of(payload)

    async def receive(self, *kinds, **more):
        return {n: Bytes(one, None, self.index, None) for n, one in self.heard.items()}


def signers(seeds):
    """Six clients of a run, after setup."""
    made = make("secagg_split", data(6), consistency=True, quorum=5).parties()
    clients = [made[n] for n in range(6)]
    for client, seed in zip(clients, seeds, strict=True):
        client.__class__ = Listening
        client.identity, client.round = Key(seed, None, client.index, None), 4
    known = {n: bare_of(client.verifying_key(client.identity)) for n, client in enumerate(clients)}
    for client in clients:
        client.verifiers = {n: Bytes(one, None, client.index, None) for n, one in known.items()}
    return clients


def told(client, keys):
    """Round 3 of a client that was told these pairing keys."""
    own = {n: PublicKey(key, None, client.index, None) for n, key in keys.items()}
    return client.agreed(everybody, everybody, own)


everybody = tuple(range(6))


def signed(clients, keys):
    """What each says about the same two sets, when it has heard nothing."""
    found = {}
    for n, client in enumerate(clients):
        client.heard = {}
        with pytest.raises(RunError, match="0 clients signed"):
            finish(told(client, keys))
        found[n] = client.said
    return found


def finish(coroutine):
    with pytest.raises(StopIteration):
        coroutine.send(None)


def test_a_signature_of_another_run_life_or_round_does_not_count():
    own = [bytes([n]) * 32 for n in range(6)]
    keys = {n: bytes([n]) * 32 for n in range(6)}
    clients = signers(own)
    client, now = clients[0], signed(clients, keys)
    client.heard = now
    finish(told(client, keys))  # all of this life
    life = signed(clients, {n: bytes([n + 6]) * 32 for n in range(6)})
    run = signed(signers([*own[:5], b"x" * 32]), keys)  # five with the same identities
    for one in clients:
        one.round = 3
    round = signed(clients, keys)
    for one in clients:
        one.round = 4
    for old in (life, run, round):
        client.heard = {0: now[0], **{n: old[n] for n in range(1, 6)}}
        with pytest.raises(RunError, match="1 clients signed the survivors"):
            finish(told(client, keys))


@pytest.mark.parametrize("compute", ["measured", "modelled", "none"])
def test_a_round_in_flight_is_not_resumed_where_others_may_survive_it(compute):
    """The secrets in the checkpoint would be opened again: of one client both, once each."""
    saved = []
    price = 1e-9 if compute == "modelled" else 0.0
    conditions = Conditions(name=compute, compute=compute, seconds_per_multiply_add=price)
    simulation = Simulation(make("secagg_split", data(5), **SMALL).parties(), conditions=conditions)
    simulation.request_state(lambda state: saved.append(wire.encode(state)))
    simulation.run(lambda: bool(saved))
    again = make("secagg_split", data(5), **SMALL).parties()
    state = wire.decode(saved[0])
    if compute == "measured":
        with pytest.raises(CheckpointError, match=r"secagg_split .* embeddings of single clients"):
            Simulation.from_state(again, state, resumption=1, conditions=conditions)
        return
    Simulation.from_state(again, state, resumption=1, conditions=conditions).run()
    assert again[SERVER].steps == SMALL["rounds"]
