"""FedVS against plain integers and against its baseline, split learning on rounded values."""

import hashlib
import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import securevfl as svfl
from securevfl.data import VerticalDataset
from securevfl.engine.conditions import NONE, Conditions, Delay
from securevfl.engine.faults import faults_from
from securevfl.engine.party import SERVER
from securevfl.engine.party_state import ahead, how, restore, snapshot
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import (
    ConfigurationError,
    FieldError,
    NotEnoughResultsError,
    PrivacyError,
    RangeError,
    RunError,
    WouldOverflowError,
)
from securevfl.models.polynomial_network import expand
from securevfl.protocols.fedvs.messages import Attempt, Batch
from securevfl.testing.runs import class_of, make, paper_conditions, simulate
from securevfl.verified import bare_of
from securevfl.verified.traced.proofs import Traced

P31, P50, P61 = 2**31 - 1, 2**50 - 2**14 + 1, 2**61 - 1
SMALL = {"rounds": 5, "batch": 15, "width": 5, "hidden": 6}
FREE = {"degree": 2, "sum_budget": 0.0}


def data_of(widths, *, rows=53, test_rows=17, seed=0):
    """Three classes from features in [0, 1]; one array for each party."""
    rng = np.random.default_rng(seed)
    total = rows + test_rows
    features = [rng.random((total, d)) for d in widths]
    scores = sum(x.mean(1) for x in features) + 0.1 * rng.normal(size=total)
    labels = np.digitize(scores, np.quantile(scores, [1 / 3, 2 / 3]))
    return VerticalDataset.from_numpy(
        [x[:rows] for x in features],
        labels[:rows],
        test_features=[x[rows:] for x in features],
        test_labels=labels[rows:],
        scaling="none",
    )


class Spy:
    """A server's code that keeps what was decoded, and what integers say it should be."""

    def __init__(self, parties):
        self.homes, self.server = parties, parties[SERVER]
        self.code, self.public = self.server.public.code, self.server.public
        self.server.public = replace(self.public, code=self)
        self._attempt = self.server.attempt
        self.server.attempt = self.attempt
        self.attempts, self.decoded, self.wanted, self.used = [], [], [], []
        self.models = {}  # W-bar by client and round

    def __getattr__(self, name):
        return getattr(self.code, name)

    async def attempt(self, batch):
        attempt = await self._attempt(batch)
        self.attempts.append((batch, attempt))
        for n in attempt.sharers:
            self.models[n, self.server.round] = bare_of(self.homes[n].quantised_model())
        return attempt

    def decode(self, results, parties, degree):
        sums = self.code.decode(results, parties, degree=degree)
        self.decoded.append(sums)
        self.wanted.append(self.integer_sums(*self.attempts[-1], self.server.round))
        self.used.append(parties)
        return sums

    def integer_sums(self, batch, attempt, round):
        """sum over S of X-bar^(B) W-bar, on Python integers, modulo p."""
        p, layout = self.public.field.modulus, self.public.batches[batch.part]
        config, total = self.public.config, 0
        for n in attempt.sharers:
            client = self.homes[n]
            powers = expand(bare_of(client.features[batch.part]), config.degree)
            rounded = np.floor(powers.astype(np.float64) * 2**config.data_bits + 0.5)
            data = layout.lay_out(rounded.astype(np.int64))[:, batch.rows].astype(object)
            model = self.models[n, round].astype(object)
            model = np.where(model > p // 2, model - p, model)
            total = total + data @ model
        assert abs(total).max() <= p // 2
        return total % p


def network_of(client):
    """The client's network, bare."""
    return bare_of(client.network)


def run_with_spy(protocol, *, conditions=NONE, seed=0, outages=()):
    parties = protocol.parties()
    spy, events = Spy(parties), []
    faults = faults_from({"outage": list(outages)}) if outages else None

    class Recorder:
        def record(self, event):
            events.append(event)

        def round_over(self, *arguments):
            pass

    simulation = Simulation(
        parties,
        seed=seed,
        conditions=conditions,
        observer=Recorder(),
        faults=faults and faults.bind(protocol.roles(), seed, last=protocol.last_fault),
        make_party=protocol.party,
    )
    simulation.run()
    return spy, events, simulation


CASES = {
    # parties' widths, K, T, prime, lx, lw, weight bound
    "uneven": ((1, 5, 2, 3, 1, 4), 1, 1, P61, 20, 24, 16.0),
    "small prime": ((1, 5, 2, 3, 1, 4), 2, 1, P31, 9, 10, 2.0),
    "one view a party": ((8, 3, 1), 1, 1, P61, 16, 20, 8.0),
    "two colluders": ((2,) * 9, 2, 2, P61, 14, 14, 8.0),
    "sixteen": ((2,) * 16, 5, 2, P61, 20, 20, 8.0),
    "default field": ((2,) * 8, 2, 1, P50, 16, 17, 16.0),
    "sixteen, small prime": ((2,) * 16, 6, 1, P31, 8, 9, 2.0),
    "K divides the rows": ((2, 2, 2, 3, 2), 2, 1, P61, 20, 24, 16.0),
}


def case(name, **more):
    widths, K, T, p, lx, lw, bound = CASES[name]
    own = {"segments": K, "privacy": T, "prime": p}
    shared = {"data_bits": lx, "model_bits": lw, "weight_bound": bound}
    rows = 54 if name.startswith("K divides") else 53
    return data_of(widths, rows=rows), SMALL | own | shared | more


@pytest.mark.parametrize("name", CASES)
def test_the_history_is_that_of_split_learning_number_for_number(name):
    data, options = case(name, degree=2)
    secret = simulate("fedvs", data, seed=3, **options)
    for option in ("privacy", "prime"):
        del options[option]
    plain = simulate("split", data, seed=3, quantized=True, **options)
    assert len(secret.losses) == SMALL["rounds"]
    assert secret.losses == plain.losses
    scores = [run.protocol.scores(run.parties, data.test) for run in (secret, plain)]
    assert (scores[0] == scores[1]).all()


@pytest.mark.parametrize("name", CASES)
def test_decoded_sums_are_the_integer_sums_in_training_and_inference(name):
    data, options = case(name, secure=True)
    protocol = make("fedvs", data, seed=1, **options)
    spy, _, _ = run_with_spy(protocol, conditions=paper_conditions(protocol), seed=1)
    assert {batch.part for batch, _ in spy.attempts} == {"train", "test"}
    assert len(spy.decoded) >= SMALL["rounds"] + 1
    for decoded, wanted in zip(spy.decoded, spy.wanted, strict=True):
        assert decoded.tolist() == wanted.tolist()
    K, T = options["segments"], options["privacy"]
    assert {len(parties) for parties in spy.used} == {2 * (K + T - 1) + 1}


def test_different_results_are_used_as_stragglers_change_and_none_is_waited_for():
    data, options = case("uneven", rounds=30)
    protocol = make("fedvs", data, **options)
    spy, events, simulation = run_with_spy(protocol, conditions=paper_conditions(protocol))
    assert len(set(spy.used)) > 1
    last = max(event.time for event in events) / 1e9
    assert simulation.clock / 1e9 > last  # stragglers' uploads were still under way
    columns = simulation.transcript.columns()
    uploads = columns["kind"] == "embedding"
    assert columns["late"][uploads].sum() == (6 - 3) * 30


# -- footnote 2 --------------------------------------------------------------------------------


def slow_sharers(*slow, parties=6, seconds=10.0):
    delays = tuple(Delay(shift=seconds if n in slow else 0.01) for n in range(parties))
    return Conditions(uploads=delays, share_factor=1.0)


@pytest.mark.parametrize("masks", [{"masked": False}, {"masked": True}])
def test_footnote_2_sums_and_averages_over_those_that_shared(masks):
    data, options = case("uneven", cohorts=0, share_timeout=1.0, rounds=3, **masks)
    protocol = make("fedvs", data, **options)
    embeddings = []
    parties = protocol.parties()
    spy = Spy(parties)
    server, train = parties[SERVER], parties[SERVER].train

    def capture(batch, attempt, embedding):
        samples = spy.public.batches["train"].samples(batch.rows)
        mean = np.mean(
            [network_of(parties[n]).forward(data.train[n][samples]) for n in attempt.sharers],
            axis=0,
        )
        true = samples >= 0
        embeddings.append(np.abs(bare_of(embedding) - mean)[true].max())
        train(batch, attempt, embedding)

    server.train = capture
    Simulation(parties, conditions=slow_sharers(1, 4)).run()
    assert [attempt.sharers for _, attempt in spy.attempts] == [(0, 2, 3, 5)] * 3
    for decoded, wanted in zip(spy.decoded, spy.wanted, strict=True):
        assert decoded.tolist() == wanted.tolist()
    assert max(embeddings) < 1e-5
    initial = protocol.parties()
    for n in range(6):
        moved = (network_of(parties[n]).values != network_of(initial[n]).values).any()
        assert moved == (n not in (1, 4))


def test_the_gradient_of_a_client_is_divided_by_those_that_shared():
    data, options = case(
        "uneven", cohorts=0, share_timeout=1.0, rounds=1, optimizer="sgd", momentum=0.0
    )
    protocol = make("fedvs", data, **options)
    gradients = []
    parties = protocol.parties()
    broadcast = parties[SERVER].broadcast

    def spy(kind, payload, to=None):
        if kind == "gradient":
            gradients.append(bare_of(payload))
        broadcast(kind, payload, to)

    parties[SERVER].broadcast = spy
    initial = network_of(parties[0]).values.copy()
    Simulation(parties, conditions=slow_sharers(1, 4)).run()
    layout = protocol.public.batches["train"]
    samples = layout.samples(layout.draw(1))
    rows = expand(data.train[0], protocol.config.degree)[samples] * (samples >= 0)[:, None]
    step = protocol.config.lr * rows.T @ gradients[0] / 4
    np.testing.assert_allclose(network_of(parties[0]).values, initial - step, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("masked", [True, False])
def test_an_attempt_without_any_sharer_is_given_up_by_name(masked):
    data, options = case("uneven", cohorts=0, share_timeout=1.0, max_attempts=2, masked=masked)
    with pytest.raises(NotEnoughResultsError, match=r"0 clients shared.* 2 attempts in a row"):
        simulate("fedvs", data, conditions=slow_sharers(*range(6)), **options)


class FewAtFirst(Conditions):
    """In round 1 only clients 0 and 1 share in time."""

    def delay(self, seed, party, round, activity):
        return 3 * 10**9 if (activity, round) == ("share", 1) and party > 1 else 0


def test_an_attempt_of_too_few_sharers_is_given_up_and_never_runs_unmasked():
    data, options = case("uneven", cohorts=0, share_timeout=1.0, rounds=3)
    outcome = simulate("fedvs", data, conditions=FewAtFirst(), **options)
    given_up = [event for event in outcome.events if event.name == "given_up"]
    assert [event.round for event in given_up] == [1]
    assert (
        "2 clients shared within share_timeout = 1.0 s, and a sum needs 3"
        in (given_up[0].fields["why"])
    )
    columns = outcome.simulation.transcript.columns()
    uploads = columns["round"][columns["kind"] == "embedding"]
    assert sorted(set(uploads.tolist())) == [2, 3, 4]


def test_clients_refuse_an_attempt_whose_masks_would_not_protect_them():
    data, options = case("uneven")
    parties = make("fedvs", data, **options).parties()
    server = parties[SERVER]
    honest = server.broadcast

    def fewer(kind, payload, to=None):
        bad = replace(payload, sharers=payload.sharers[:2]) if kind == "attempt" else payload
        honest(kind, bad, to)

    server.broadcast = fewer
    simulation = Simulation(parties)
    with pytest.raises(RunError, match="Nothing was uploaded"):
        simulation.run()
    assert "embedding" not in simulation.transcript.columns()["kind"]


@pytest.mark.parametrize(
    ("sharers", "life"),
    [
        ((0, 1), 0),
        ((0,) * 9, 0),  # nine times one client's embedding is no sum
        ((0, 1, 2, 0), 0),
        ((0, 1, 2, 99), 0),
        ((0, 1, 2), "0"),
        ((0, 1, 2), 0.0),
        ((0, 1, 2), True),
        ((0, 1, 2), (0,)),
    ],
)
def test_clients_count_each_sharer_once_and_compare_lives(sharers, life):
    data, options = case("uneven", cohorts=0)
    client = make("fedvs", data, **options).parties()[0]
    assert client.checked(Attempt((0, 1, 2)))
    with pytest.raises(RunError, match="Nothing was uploaded"):
        client.checked(Attempt(sharers, life))


@pytest.mark.parametrize(("segments", "privacy"), [(1, 2), (2, 1)])
def test_a_sum_has_two_clients_more_than_collude_whatever_the_segments(segments, privacy):
    data, options = case("uneven", cohorts=0, segments=segments, privacy=privacy)
    client = make("fedvs", data, **options).parties()[0]
    least = tuple(range(privacy + 2))
    assert client.checked(Attempt(least)).sharers == least
    with pytest.raises(RunError, match=f"T = {privacy} need at least T\\+2"):
        client.checked(Attempt(least[:-1]))


# -- no row meets two sums of the same models --------------------------------------------------

# Any clients may be in a sum: what is tried here holds beside cohorts.
PATIENT = {"share_timeout": 1.0, "result_timeout": 1.0, "cohorts": 0}
TRAIN = Batch("train", np.arange(3, dtype=np.uint32))


def test_a_client_uses_no_label_twice_whatever_is_announced_under_it():
    data, options = case("uneven")
    client, told = make("fedvs", data, **options).parties()[0], []
    client.record = lambda event, **fields: told.append((event, fields["why"]))
    one, other = Attempt((0, 1, 2)), Attempt((0, 1, 2), life=1)
    client.round = 3
    assert client.is_new(one.life, one.told(3, TRAIN))
    assert client.answered == {0: (3, hashlib.sha256(one.told(3, TRAIN)).digest())}
    assert not client.is_new(one.life, one.told(3, TRAIN))  # its V is another one now
    client.round = 2
    assert not client.is_new(one.life, one.told(2, TRAIN))
    assert client.is_new(other.life, other.told(2, TRAIN))
    client.round = 4
    assert client.is_new(one.life, one.told(4, TRAIN))
    assert told == [("refused", "the label was used before")] * 2


def test_what_is_told_differs_where_anything_that_was_announced_does():
    base = Attempt((0, 1, 2), 1, (2,), 1)
    changes = [{"sharers": (0, 1, 3)}, {"life": 2}, {"harmless": ()}, {"stepped": 0}]
    told = {base.told(3, TRAIN), base.told(4, TRAIN), base.told(3, Batch("test", TRAIN.rows))}
    told |= {base.told(3, Batch("train", TRAIN.rows[::-1]))}
    told |= {replace(base, **one).told(3, TRAIN) for one in changes}
    assert len(told) == 8


def test_a_client_that_comes_back_has_its_keys_and_has_used_its_labels(tmp_path):
    data, options = case("uneven", rounds=2)
    protocol = make("fedvs", data, **options)
    parties = protocol.parties()
    Simulation(parties).run()
    client = parties[0]
    back = protocol.party(0)
    restore(back, snapshot(client, waits=0, time=0) | {"ahead": ahead(client)})
    assert bare_of(back.keys) == bare_of(client.keys)
    assert len(back.keys) == 5
    assert back.answered == client.answered
    assert back.answered[0][0] == 2


def test_a_resumed_run_repeats_no_label(tmp_path):
    data, options = case("uneven", rounds=8, **FREE)
    looks = iter(range(10**9))

    def later():
        return next(looks) % 40 == 39

    def killed():
        if later():
            raise KeyboardInterrupt
        return False

    with pytest.raises(svfl.Interrupted):
        svfl.run("fedvs", data, seed=1, out=tmp_path / "run", interrupted=later, **options)
    with pytest.raises(KeyboardInterrupt):  # what it did is in no checkpoint
        svfl.resume(tmp_path / "run", data=data, interrupted=killed)
    run = svfl.resume(tmp_path / "run", data=data)
    for n in (0, 1):
        first, last = sorted(run.parties[n].answered)
        assert (first, last) == (0, 2 << 32)
        assert run.parties[n].answered[first][0] < run.parties[n].answered[last][0] == 8


def test_what_is_written_ahead_binds_a_client_whose_run_goes_back_over_steps():
    data, options = case("uneven", rounds=4, **PATIENT)
    protocol = make("fedvs", data, **options)
    parties = protocol.parties()
    client, written = parties[0], []
    client.write_ahead = lambda: written.append(ahead(client))
    saved, spy = snapshot(client, waits=0, time=0), Spy(parties)
    Simulation(parties, conditions=slow_sharers(1)).run()
    assert client.noted == ()  # the run is over
    back = protocol.party(0)
    once = {name: getattr(client, name) for name in client.kept if how(name).way == "once"}
    restore(back, saved | {"ahead": written[-1], "once": once})
    back.record = lambda *_, **__: None
    back.ledger.come_back(0)
    back.ledger.enter(1)
    batch, attempt = spy.attempts[0]
    assert back.consistent(batch, replace(attempt, life=1))
    assert not back.consistent(batch, replace(attempt, life=1, sharers=tuple(range(6))))


def test_a_gradient_of_zeros_lets_nobody_forget_what_was_summed():
    """Nobody moves, as with dead units; clients 1 and 4 share too late and stand in no sum."""
    data, options = case("uneven", rounds=2, **PATIENT)
    parties = make("fedvs", data, **options).parties()
    centre = bare_of(parties[SERVER].centre)
    step = centre.step

    def dead(*arguments):
        loss, gradient = step(*arguments)
        return loss, np.zeros_like(gradient)

    centre.step = dead
    spy = Spy(parties)
    Simulation(parties, conditions=slow_sharers(1, 4)).run()
    (first, _), (second, attempt) = spy.attempts[:2]
    assert attempt.sharers == (0, 2, 3, 5)
    assert not first.meets(second)  # the server did not forget that row
    other = replace(attempt, sharers=tuple(range(6)), stepped=1)
    for n in range(6):
        assert not parties[n].consistent(first, other)  # nor does a client, in S or not


def test_masks_do_not_change_what_is_decoded_and_hide_each_upload():
    data, options = case("uneven", rounds=1)
    masked, plain = (
        simulate("fedvs", data, seed=3, payloads=True, masked=masked, **options)
        for masked in (True, False)
    )
    assert masked.losses == plain.losses
    uploads = [
        [p for p, kind in zip(run.simulation.transcript.payloads,
                              run.simulation.transcript.columns()["kind"], strict=True)
         if kind == "embedding"]
        for run in (masked, plain)
    ]  # fmt: skip
    assert not any((a == b).any() for a, b in zip(*uploads, strict=True))


def test_too_many_keys_are_refused_in_one_line():
    data = data_of((1,) * 24)
    with pytest.raises(ConfigurationError, match=r"42504 sets.*Lower privacy") as caught:
        make("fedvs", data, **SMALL, privacy=5, segments=1)
    assert "\n" not in str(caught.value)
    make("fedvs", data, **SMALL, privacy=5, segments=1, masked=False)


@pytest.mark.parametrize("privacy", [3, 4])
def test_sixteen_clients_mask_against_three_and_four(privacy):
    made = make("fedvs", data_of((1,) * 16), **SMALL, privacy=privacy, segments=1)
    assert len(made.prss.blocks) < 350


class LateOnce(Conditions):
    """In round 2 client 1 shares late, and most uploads come too late."""

    def delay(self, seed, party, round, activity):
        if round != 2 or party == 0:
            return 0
        shares_late = activity == "share" and party == 1
        return 3 * 10**9 if shares_late else 2 * 10**9 if activity == "upload" else 0


def test_rows_that_are_all_there_are_get_the_same_sum_again():
    data, options = case("uneven", **PATIENT | {"batch": 10**6, "rounds": 3})
    spy, events, _ = run_with_spy(make("fedvs", data, **options), conditions=LateOnce())
    assert [e.round for e in events if e.name == "given_up"] == [2]
    (_, given_up), (_, again), (_, later) = spy.attempts[1:]
    assert given_up.sharers == again.sharers == (0, 2, 3, 4, 5)
    assert later.sharers == (0, 1, 2, 3, 4, 5)
    for decoded, wanted in zip(spy.decoded, spy.wanted, strict=True):
        assert decoded.tolist() == wanted.tolist()


class LateUploads(Conditions):
    """In round 1 client 1 shares late, and all uploads come too late; in round 2, client 0."""

    def delay(self, seed, party, round, activity):
        shares_late = activity == "share" and (round, party) in ((1, 1), (2, 0))
        late = shares_late or (round, activity) == (1, "upload")
        return 15 * 10**8 if late else 0


def test_late_uploads_bind_the_clients_of_the_next_sum_of_their_rows():
    """Three clients upload too late. Three were down and could upload to a sum over all six."""
    data, options = case("uneven", **PATIENT | {"batch": 10**6, "rounds": 1})
    down = [{"party": n, "seconds": [0.5, 1.5]} for n in (3, 4, 5)]
    protocol = make("fedvs", data, **options)
    spy, _, simulation = run_with_spy(protocol, conditions=LateUploads(), outages=down)
    columns = simulation.transcript.columns()
    first = (columns["kind"] == "embedding") & (columns["round"] == 1)
    assert set(columns["sender"][first].tolist()) == {0, 1, 2}  # K + T = 2 would be enough to tell
    asked = [attempt.sharers for _, attempt in spy.attempts]
    assert asked == [(0, 2, 3, 4, 5), (), (0, 2, 3, 4, 5)]


class LateTwice(Conditions):
    """In rounds 1 and 2 all uploads come too late; in round 2 client 1 shares late."""

    def delay(self, seed, party, round, activity):
        late = activity == "upload" and round < 3
        return 15 * 10**8 if late or (activity, round, party) == ("share", 2, 1) else 0


def test_a_client_that_was_down_names_the_round_of_which_it_is_unsure():
    """Its note of an upload may be lost, so it names each round since its checkpoint."""
    data, options = case("uneven", **PATIENT | {"rounds": 1})
    down = [{"party": 3, "seconds": [1.5, 2.5]}]  # after its share in round 2
    parties = make("fedvs", data, **options).parties()
    told, ledger = [], parties[SERVER].ledger
    report = ledger.report
    ledger.report = lambda client, rounds: (told.append((client, rounds)), report(client, rounds))
    faults = faults_from({"outage": down})
    protocol = make("fedvs", data, **options)
    Simulation(
        parties,
        conditions=LateTwice(),
        faults=faults.bind(protocol.roles(), 0, last=protocol.last_fault),
        make_party=protocol.party,
    ).run()
    assert [rounds for client, rounds in told if client == 3] == [(), (1,), (1, 2)]


def test_the_next_epoch_leaves_out_rows_of_an_attempt_that_was_given_up():
    data, options = case("uneven", result_timeout=1.0, rounds=4)  # three batches an epoch
    protocol = make("fedvs", data, **options)
    spy, _, _ = run_with_spy(protocol, conditions=weather(3))
    given_up, after = (set(batch.rows.tolist()) for batch, _ in spy.attempts[2:4])
    drawn = set(protocol.public.batches["train"].draw(4).tolist())
    assert given_up & drawn  # else this says nothing
    assert after == drawn - given_up


def test_clients_do_not_upload_rows_to_a_second_sum():
    data, options = case("uneven")
    client, told = make("fedvs", data, **options).parties()[0], []
    client.record = lambda event, **fields: told.append((event, fields))
    one, same = Attempt((0, 1, 2), 2), Attempt((2, 1, 0), 3)
    other = Attempt((0, 1, 2, 3), 2)
    apart = Batch("train", np.arange(3, 6, dtype=np.uint32))
    assert client.consistent(TRAIN, other)  # announced, and not uploaded
    client.uploaded = {4: (TRAIN, one)}
    assert client.consistent(TRAIN, same)
    assert client.consistent(apart, other)
    assert not client.consistent(TRAIN, other)
    assert told == [("refused", {"sharers": [0, 1, 2, 3], "before": [0, 1, 2]})]
    # What the server says of harmless rounds and of steps does not make a client forget.
    for words in ({"harmless": (3,), "stepped": 3}, {"harmless": (4,)}, {"stepped": 4}):
        assert not client.consistent(TRAIN, replace(other, **words))


def test_an_attempt_to_which_too_few_uploaded_is_forgotten():
    data, options = case("uneven")  # K = T = 1: one upload is uniform for the server and a client
    server = make("fedvs", data, **options).parties()[SERVER]
    one = Attempt((0, 1, 2))
    ledger = server.ledger
    server.summed = {4: (TRAIN, one, (0, 1, 2, 3, 4, 5))}

    def report(told):
        for n, uploaded in told.items():
            ledger.report(n, uploaded)
        ledger.settle()

    report({0: (4,), 1: (), 2: (3,)})
    assert server.summed == {4: (TRAIN, one, (0, 3, 4, 5))}
    report({3: ()})
    assert server.summed[4][2] == (0, 4, 5)
    report({0: (4,), 5: ()})
    assert server.summed[4][2] == (0, 4)  # client 4 is silent: it may have uploaded
    report({4: ()})
    assert server.summed == {}
    assert server.harmless == (4,)


def test_lost_links_do_not_leave_a_run_without_rows():
    data, options = case("uneven", **PATIENT | FREE | {"rounds": 8, "max_attempts": 200})
    faults = {"link": {"fault": 0.2, "rejoin": 0.5}}
    run = svfl.run("fedvs", data, faults=faults, conditions="none", **options)
    assert run.summary()["given_up"] > 6  # twice as many as an epoch has batches
    assert len(run.history) == 8


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_clients_that_refuse_their_uploaded_rows_do_not_stop_a_run(seed):
    """Where every row has been uploaded once, random rows would meet what all clients refuse."""
    data, options = case("uneven", **PATIENT | FREE | {"rounds": 16, "max_attempts": 150})
    faults = {"first": 2, "link": {"fault": 0.3, "rejoin": 1.0}}
    run = svfl.run("fedvs", data, faults=faults, conditions="none", seed=seed, **options)
    assert len(run.history) == 16
    assert run.summary()["given_up"] > 12  # four times as many as an epoch has batches


class Weather(Conditions):
    """Clients 2 to 5 upload late in the given rounds."""

    bad: tuple = ()

    def delay(self, seed, party, round, activity):
        late = activity == "upload" and party > 1 and round in self.bad
        return 10**12 if late else 0


def weather(*bad):
    made = Weather(name="weather")
    object.__setattr__(made, "bad", bad)
    return made


def test_an_attempt_with_too_few_results_is_given_up_and_the_next_batch_goes_on():
    data, options = case("uneven", result_timeout=1.0)
    protocol = make("fedvs", data, **options)
    spy, events, _ = run_with_spy(protocol, conditions=weather(1, 2, 4, 5))
    given_up = [event for event in events if event.name == "given_up"]
    assert [event.round for event in given_up] == [1, 2, 4, 5]  # never three in a row
    assert given_up[0].fields["missing"] == [2, 3, 4, 5]
    assert "R = 2(K+T-1)+1 = 3 results are needed and 2 came" in given_up[0].fields["why"]
    assert [event.round for event in events if event.name == "round"] == [3, 6, 7, 8, 9]
    drawn = [batch.rows.tolist() for batch, _ in spy.attempts]
    assert drawn == [protocol.public.batches["train"].draw(r).tolist() for r in range(1, 10)]


def test_a_client_that_crashes_after_its_upload_does_not_forget_it():
    """Two uploads came, K + T = 2: the sum stays announced though one sender has crashed since."""
    data, options = case("uneven", cohorts=0, result_timeout=1.0, share_timeout=1.0, rounds=2)
    protocol = make("fedvs", data, **options)
    crash = {"party": 1, "seconds": [0.5, 0.7]}
    spy, events, _ = run_with_spy(protocol, conditions=weather(1), outages=[crash])
    assert [e.name for e in events if e.party == 1 and e.name in ("down", "up")] == ["down", "up"]
    assert [e.round for e in events if e.name == "given_up"] == [1]
    (batch, _), (after, attempt) = spy.attempts[:2]
    assert attempt.harmless == ()
    assert not set(batch.rows) & set(after.rows)


def test_a_client_writes_that_it_uploads_before_the_upload_leaves():
    data, options = case("uneven", rounds=1)
    parties = make("fedvs", data, **options).parties()
    client, order = parties[0], []
    send, client.send = (
        client.send,
        lambda *what, **how: (order.append(what[1]), send(*what, **how)),
    )
    client.write_ahead = lambda: order.append(tuple(client.uploaded))
    Simulation(parties).run()
    assert [one for one in order if one not in ("key", "own-keys")] == [
        "shared",
        (1,),
        "embedding",
    ]


@pytest.mark.parametrize("size", [0.0, 1.0])
def test_a_gradient_of_zeros_does_not_make_a_client_forget(size):
    data, options = case("uneven", rounds=1, optimizer="sgd", momentum=0.0)
    parties = make("fedvs", data, **options).parties()
    server, client = parties[SERVER], parties[0]
    broadcast = server.broadcast

    def scaled(kind, payload, to=None):
        broadcast(kind, bare_of(payload) * np.float32(size) if kind == "gradient" else payload, to)

    server.broadcast = scaled
    Simulation(parties).run()
    assert (tuple(client.uploaded) == (1,)) is (size == 0)


def test_the_run_ends_by_name_after_max_attempts_in_a_row():
    data, options = case("uneven", result_timeout=1.0, max_attempts=2)
    with pytest.raises(NotEnoughResultsError) as caught:
        simulate("fedvs", data, conditions=weather(2, 3), **options)
    message = str(caught.value)
    assert "round 3: R = 2(K+T-1)+1 = 3 results are needed and 2 came" in message
    assert "2 attempts in a row" in message
    assert "missing: clients [2, 3, 4, 5]" in message


# -- coded inference ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["uneven", "small prime"])
def test_coded_inference_is_the_plain_evaluation_of_rounded_values(name):
    data, options = case(name, secure=True)
    outcome = simulate("fedvs", data, **options)
    (inference,) = [event.fields for event in outcome.events if event.name == "inference"]
    plain = outcome.protocol.scores(outcome.parties, data.test)
    coded = bare_of(outcome.parties[SERVER].test_scores)
    layout = outcome.protocol.public.batches["test"]
    rows = np.arange(layout.length)
    samples = layout.samples(rows)
    assert len(coded) == 1  # one attempt suffices for 17 rows
    assert sorted(samples[samples >= 0].tolist()) == list(range(data.test_rows))
    bits = min(options["data_bits"], options["model_bits"])
    difference = np.abs(coded[0][samples >= 0] - plain[samples[samples >= 0]]).max()
    assert difference < 200 * 2.0**-bits
    accuracy = np.mean(plain.argmax(1) == data.test_labels)
    assert inference["rows"] == data.test_rows
    assert abs(inference["accuracy"] - accuracy) <= (0 if bits > 16 else 1.5 / data.test_rows)


def test_a_test_set_of_many_attempts_is_scored_row_by_row():
    # 4096 / K coded rows an attempt: 2501 of them, the last one half padding, take two.
    data = data_of((1, 2, 1, 1, 1), test_rows=5001)
    outcome = simulate("fedvs", data, **SMALL | {"secure": True, "segments": 2})
    coded = bare_of(outcome.parties[SERVER].test_scores)
    assert [len(part) for part in coded.values()] == [4096, 2 * (2501 - 2048)]
    (inference,) = [event.fields for event in outcome.events if event.name == "inference"]
    plain = outcome.protocol.scores(outcome.parties, data.test)
    assert inference["rows"] == 5001
    assert inference["accuracy"] == pytest.approx(
        np.mean(plain.argmax(1) == data.test_labels), abs=2 / 5001
    )


# -- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"prime": P31, "data_bits": 14, "model_bits": 14}, WouldOverflowError, "Lower data_bits"),
        ({"data_bits": 30, "model_bits": 30}, WouldOverflowError, "p = 1125899906826241"),
        ({"weight_bound": 1e12}, WouldOverflowError, "weight_bound"),
        ({"privacy": 6}, PrivacyError, "6"),
        ({"privacy": 3}, ConfigurationError, "R = |= 7 results"),
        ({"segments": 4}, ConfigurationError, "= 9 results"),
        ({"prime": 15}, FieldError, "15"),
        ({"prime": 7, "segments": 1}, FieldError, "larger prime"),
    ],
)
def test_configurations_that_cannot_work_are_refused_before_the_run(options, error, words):
    with pytest.raises(error, match=words):
        make("fedvs", data_of((1, 5, 2, 3, 1, 4)), **options)


def test_the_bound_of_the_overflow_check_is_tight():
    # Ones everywhere: the sum is at most N (d D + 1) 2^(lx + lw) w, exactly reached.
    ones = [np.ones((8, 3)), np.ones((8, 3)), np.ones((8, 3))]
    labels = np.arange(8) % 2
    data = VerticalDataset.from_numpy(
        ones, labels, test_features=ones, test_labels=labels, scaling="none"
    )
    options = {"prime": P31, "degree": 1, "segments": 1, "data_bits": 10, "weight_bound": 1.0}
    largest = (P31 - 1) // 2 / (3 * 4 * 2**10)
    assert math.floor(math.log2(largest)) == 16
    make("fedvs", data, model_bits=16, **options)
    with pytest.raises(WouldOverflowError, match="by 1 in all"):
        make("fedvs", data, model_bits=17, **options)


def heavy_protocol():
    """Client 0 alone could use more than its N-th part of the range; the sum cannot wrap."""
    widths = (12, 1, 1, 1)
    features = [np.ones((8, d)) for d in widths]
    labels = np.arange(8) % 2
    data = VerticalDataset.from_numpy(
        features, labels, test_features=features, test_labels=labels, scaling="none"
    )
    # 13 * 2^25 > (p - 1) / 8 for client 0, and (13 + 2 + 2 + 2) * 2^25 <= (p - 1) / 2.
    return make("fedvs", data, prime=P31, degree=1, data_bits=12, model_bits=13, weight_bound=1.0)


def test_a_client_whose_part_could_wrap_stops_before_it_shares():
    protocol = heavy_protocol()
    parties = protocol.parties()
    network_of(parties[0]).weight.data.fill_(1.0)
    simulation = Simulation(parties, conditions=NONE)
    with pytest.raises(RangeError) as caught:
        simulation.run()
    assert f"embedding of {13 * 2**25}" in str(caught.value)
    assert f"floor((p-1)/(2N)) = {(P31 - 1) // 8}" in str(caught.value)
    assert "data_bits (12), model_bits (13)" in str(caught.value)
    columns = simulation.transcript.columns()
    assert not ((columns["kind"] == "model") & (columns["sender"] == 0)).any()


def test_large_weights_that_cancel_are_exact_and_allowed():
    protocol = heavy_protocol()
    parties = protocol.parties()
    weight = network_of(parties[0]).weight.data
    weight.fill_(1.0)
    weight[::2] = -1.0
    client = parties[0]
    largest = 2**13
    assert not client.row_sums  # setup fills it
    spy = Spy(parties)
    Simulation(parties, conditions=NONE).run()
    assert (
        int(bare_of(client.row_sums["train"])) * largest > (P31 - 1) // 8
    )  # only the exact product could settle it
    assert spy.decoded[0].tolist() == spy.wanted[0].tolist()


def test_a_clipped_weight_is_an_event():
    data, options = case("uneven", weight_bound=0.05)
    outcome = simulate("fedvs", data, **options)
    clipped = [event.fields for event in outcome.events if event.name == "clipped"]
    assert clipped
    assert all(fields["weights"] > 0 and fields["bound"] == 0.05 for fields in clipped)
    bound = max(np.abs(network_of(outcome.parties[n]).values).max() for n in range(6))
    assert bound <= np.float32(0.05)


# -- card, memory, masks -----------------------------------------------------------------------


def test_claims_against_the_server_depend_on_masks():
    for masked, notion in ((True, "perfect"), (False, "none")):
        claims = {(c.who, c.about): c.notion for c in make("fedvs", masked=masked).claims}
        assert claims["T clients", "features"] == claims["T clients", "model"] == "perfect"
        for who in ("server", "server + T clients"):
            assert claims[who, "features"] == claims[who, "model"] == notion
        assert claims["client", "labels"] == "none"
    split = {(c.who, c.about): c.notion for c in make("split").claims}
    assert set(split.values()) == {"none"}
    assert class_of("fedvs").card.absence == "tolerates"
    assert class_of("split").card.absence == "waits"


def test_the_card_says_what_sums_tell_with_sgd_and_what_one_client_moves():
    card = class_of("fedvs").card
    assert (
        "X X^T of columns and powers: at degree 1 all data up to a rotation" in card.sees["server"]
    )
    assert any("Consistent shares of any data and model move them" in w for w in card.deviations)
    for other in ("secagg_split", "he_split"):
        assert "X X^T of columns and powers" in class_of(other).card.sees["server"]


@pytest.mark.parametrize("p", [P31, P61])
@pytest.mark.parametrize("secure", [False, True])
def test_predicted_memory_covers_the_shares_and_what_setup_needs(p, secure):
    widths = (40, 60, 50, 30, 20, 40)
    data = data_of(widths, rows=2003, test_rows=501)
    options = {"prime": p, "data_bits": 9, "model_bits": 9, "weight_bound": 2.0, "segments": 2}
    protocol = make("fedvs", data, secure=secure, rounds=1, **options)
    parties = protocol.parties()
    simulate("fedvs", secure=secure, rounds=1, **options)  # compiled before it is measured
    tracemalloc.start()
    Simulation(parties, conditions=NONE).run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    shares = sum(
        array.nbytes
        for n in range(6)
        for held in bare_of(parties[n].data_shares).values()
        for array in held.values()
    )
    assert shares < protocol.memory() < 1.5 * shares
    assert peak < 1.3 * protocol.memory()


def test_masks_are_fresh_and_do_not_depend_on_the_seed():
    data, options = case("uneven")
    runs = [simulate("fedvs", data, seed=5, payloads=True, **options) for _ in range(2)]
    assert runs[0].fingerprint() == runs[1].fingerprint()
    sent = [run.simulation.transcript for run in runs]
    kinds = sent[0].columns()["kind"]
    shared = np.isin(kinds, ("train-data", "model", "key", "embedding"))
    pairs = zip(sent[0].payloads, sent[1].payloads, shared, strict=True)
    drawn = [(a, b) for a, b, masked in pairs if masked]
    assert not any((a == b).any() for a, b in drawn if a.dtype != np.uint8)
    assert not any((a == b).all() for a, b in drawn)
    models = [p for p, kind in zip(sent[0].payloads, kinds, strict=True) if kind == "model"]
    assert len({model.tobytes() for model in models}) == len(models)


# -- the cost model ----------------------------------------------------------------------------


def test_operations_are_the_counts_of_section_5_3():
    data, options = case("uneven", masked=True)
    protocol, parties = (outcome := simulate("fedvs", data, **options)).protocol, outcome.parties
    public, client = protocol.public, parties[1]
    N, h, R = len(parties) - 1, public.config.width, public.threshold
    own = data.widths[1] * public.config.degree + 1
    rows, log = len(parties[SERVER].batch.rows), np.log2
    assert client.operations("model") == round(own * h * N * log(N) ** 2)
    assert client.operations("train-data") == round(
        public.batches["train"].length * own * N * log(N) ** 2
    )
    every = sum(d * public.config.degree + 1 for d in data.widths)
    streams = math.comb(N - 1, 1) * (public.code.segments + 1 - 1)
    assert client.operations("embedding") == rows * h * (every + streams)
    assert client.operations("shared") == 0
    assert parties[SERVER].operations("gradient") == round(rows * h * R * log(R) ** 2)
    assert parties[SERVER].operations("attempt") == 0


def test_too_many_keys_are_refused_with_a_way_out():
    data = data_of((2,) * 24, rows=40)
    with pytest.raises(ConfigurationError, match=r"at least \d+ streams.*masked=false"):
        make("fedvs", data, privacy=5, segments=1)
    make("fedvs", data, privacy=5, segments=1, masked=False)


def test_without_masks_a_run_needs_no_keys():
    data = data_of((2,) * 24, rows=40)
    done = simulate("fedvs", data, privacy=5, segments=1, masked=False, rounds=1)
    assert len(done.losses) == 1


def test_a_trace_has_the_degree_of_the_options_and_the_paper():
    made = [Traced("fedvs", options)._made(0) for options in ({}, {"degree": 3}, {"paper": True})]
    assert [one.config.degree for one in made] == [1, 3, 2]
