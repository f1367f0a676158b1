"""DVFL against Algorithm 1 written down once more in lockstep, and what may leave whom."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from securevfl.data.overlap import limit_overlap
from securevfl.engine import wire
from securevfl.engine.conditions import NONE, Conditions, Delay
from securevfl.engine.faults import faults_from
from securevfl.engine.network import SERVER, Message
from securevfl.errors import ConfigurationError, RunError
from securevfl.protocols.dvfl import algorithm
from securevfl.protocols.dvfl.algorithm import Guest, Host, Owner
from securevfl.protocols.dvfl.functions import own_rows, side_by_side
from securevfl.protocols.dvfl.protocol import Dvfl
from securevfl.protocols.dvfl.schedule import RoundSchedule
from securevfl.runs.threads import one_thread
from securevfl.testing.runs import make, simulate
from securevfl.verified import UNDISTURBED, bare_of
from securevfl.verified.traced.proofs import Traced, prove_protocol
from tests.protocols.faulty import verdict_on
from tests.protocols.joint import data, strips

SMALL = {
    "rounds": 3,
    "guest_epochs": 2,
    "host_epochs": 3,
    "hosts": 2,
    "batch": 12,
    "width": 5,
    "host_width": 4,
    "hidden": 6,
    "interval": 0.1,
    "stop_after": None,
}


def run(dataset=None, **options):
    dataset = data() if dataset is None else dataset
    options = {"conditions": NONE, "payloads": True, **SMALL, **options}
    return simulate("dvfl", dataset, **options)


def named(outcome, name):
    return [event for event in outcome.events if event.name == name]


def sent(outcome, kind):
    """(sender, receiver, round, payload) of each message of a kind."""
    transcript = outcome.simulation.transcript
    columns = transcript.columns()
    return [
        (*(int(columns[name][row]) for name in ("sender", "receiver", "round")), payload)
        for row, payload in enumerate(transcript.payloads)
        if columns["kind"][row] == kind
    ]


# -- the algorithm once more -----------------------------------------------------------------------


class Oracle:
    """Guests, hosts and owner in one place, a round after the other, with plain torch."""

    def __init__(self, dataset, options, schedule):
        self.made = make("dvfl", dataset, **options)
        self.parties = self.made.parties()
        self.schedule = schedule
        self.guests, self.hosts = list(self.made.peers()), list(self.made.hosts)
        self.optimizers = {n: self.adam(n) for n in (*self.guests, *self.hosts)}
        self.registers = {k: {} for k in self.hosts}
        self.buffers = {k: [] for k in self.hosts}
        self.was_up = dict.fromkeys(self.hosts, True)

    def adam(self, n):
        network = bare_of(self.parties[n].network)
        weights = [*network.module.parameters(), *network.head.parameters()]
        return torch.optim.Adam(weights, lr=network.optimizer.param_groups[0]["lr"])

    def step(self, n, rows):
        network, x = bare_of(self.parties[n].network), torch.from_numpy(np.array(rows))
        self.optimizers[n].zero_grad()
        ((network.head(network.module(x)) - x) ** 2).mean().backward()
        self.optimizers[n].step()

    def encode(self, n, rows):
        with torch.no_grad():
            return bare_of(self.parties[n].network).module(torch.from_numpy(np.array(rows))).numpy()

    def up(self, n, round):
        return self.schedule is None or self.schedule.alive(n, round, 0.0)

    def linked(self, g, k, round):
        return self.schedule is None or self.schedule.linked(g, k, round, 0.0)

    def round(self, r, writes):
        schedule = self.made.schedule
        for k in self.hosts:
            up = self.up(k, r)
            if up and not self.was_up[k]:
                self.buffers[k] = self.buffers[k][:-1]
            self.was_up[k] = up
            if not up:
                continue
            if writes(r - 1) and self.registers[k]:
                blank = np.zeros_like(next(iter(self.registers[k].values())))
                parts = [self.registers[k].get(g, blank) for g in self.guests]
                self.buffers[k].append(np.concatenate(parts, axis=1))
                self.step(k, self.buffers[k][-1])
            elif self.buffers[k]:
                replay = self.parties[k].engine.replay(k, r)
                self.step(k, self.buffers[k][replay.integers(len(self.buffers[k]))])
        for g in self.guests if r <= schedule.guest_rounds else ():
            if not self.up(g, r):
                continue
            batches = self.made.batches
            rows = bare_of(self.parties[g].features)[batches.samples(batches.draw(r))]
            if writes(r):
                for k in self.hosts:
                    if self.up(k, r) and self.linked(g, k, r):
                        self.registers[k][g] = self.encode(g, rows)
            self.step(g, rows)


class Streams:
    """What the oracle's hosts ask an engine for."""

    def replay(self, k, r):
        from securevfl.engine.streams import keyed_stream

        return keyed_stream(0, k, "replay", r)


FAULTS = {
    "none": None,
    "link": {"link": {"fault": 0.3, "rejoin": 0.5}},
    "guest": {"guest": {"fault": 0.3, "rejoin": 0.5}},
    "host": {"host": {"fault": 0.3, "rejoin": 0.5}},
    "owner": {"owner": {"fault": 0.3, "rejoin": 0.5}},
}


@pytest.mark.parametrize("period", [1, 2])
@pytest.mark.parametrize("kind", FAULTS)
def test_training_is_algorithm_1_under_faults(kind, period):
    options = SMALL | {"comm_period": period}
    # Rare ticks: parties go down and come back when a round begins, and at no other time.
    faults = None if FAULTS[kind] is None else faults_from(FAULTS[kind] | {"tick": 1e3})
    outcome = run(faults=faults, **options)
    made = outcome.protocol
    schedule = None if faults is None else faults.bind(made.roles(), 0, last=made.last_fault)
    oracle = Oracle(data(), options, schedule)
    per_epoch = made.schedule.per_epoch

    def writes(r):
        return 0 < r <= 2 * per_epoch and (period == 1 or r > per_epoch)

    with one_thread():
        for party in oracle.parties.values():
            party.engine = Streams()
        for r in range(1, (3 + period - 1) * per_epoch + 2):
            oracle.round(r, writes)
        codes = np.concatenate([oracle.encode(g, data().train[g]) for g in oracle.guests], axis=1)
        wanted = np.concatenate([oracle.encode(k, codes) for k in oracle.hosts], axis=1)
    if kind not in ("none", "owner"):
        assert named(outcome, "down" if kind != "link" else "lost")
    np.testing.assert_allclose(
        bare_of(outcome.parties[SERVER].encodings), wanted, rtol=1e-4, atol=1e-6
    )
    for k in oracle.hosts:
        back = not oracle.was_up[k]  # only when training was over, which costs an item too
        assert len(outcome.parties[k].buffer) == len(oracle.buffers[k]) - back


def test_the_owner_trains_a_classifier_on_the_encodings():
    dataset = data()
    options = {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "lr_decay": "none"}
    outcome = run(dataset, **options)
    fresh = make("dvfl", dataset, **SMALL, **options).parties()[SERVER]
    encodings = torch.from_numpy(np.array(bare_of(outcome.parties[SERVER].encodings)))
    own = bare_of(fresh.rows)
    network, labels = bare_of(fresh.centre).network, torch.from_numpy(dataset.train_labels.copy())
    sgd = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    losses = []
    with one_thread():
        for epoch in range(3):
            told = []
            for turn in range(own.batches.per_epoch):
                number = epoch * own.batches.per_epoch + turn + 1
                rows = own.training[own.batches.samples(own.batches.draw(number))]
                sgd.zero_grad()
                loss = torch.nn.functional.cross_entropy(network(encodings[rows]), labels[rows])
                loss.backward()
                sgd.step()
                told.append(loss.item())
            losses.append(np.mean(told))
    np.testing.assert_allclose(outcome.losses, losses, rtol=1e-4)


# -- the schedule ----------------------------------------------------------------------------------


def test_a_round_schedule_counts_rounds_by_the_clock():
    made = make("dvfl", data(), **SMALL | {"comm_period": 2, "guest_epochs": 4, "host_epochs": 5})
    schedule = made.schedule
    assert (schedule.per_epoch, schedule.guest_rounds, schedule.rounds) == (7, 28, 43)
    assert [r for r in range(60) if schedule.writes(r)] == [*range(8, 15), *range(22, 29)]
    for interval in (0.001, 0.1, 0.3, 7.0):
        clock = RoundSchedule(7, 28, 43, 2, interval)
        for r in (1, 2, 3, 10, 12345, 10**6 + 7):
            exact = round(clock.start(r) * 1e9) / 1e9
            assert clock.round_at(exact) == r
            assert clock.round_at(exact + 0.6 * interval) == r


@pytest.mark.parametrize(("period", "written"), [(1, 4), (2, 2), (3, 1), (4, 1)])
def test_guests_write_in_every_so_many_epochs(period, written):
    outcome = run(comm_period=period, guest_epochs=4, host_epochs=4)
    writes = sent(outcome, "activation")
    per_epoch = outcome.protocol.schedule.per_epoch
    assert len(writes) == written * per_epoch * 4 * 2
    epochs = {(round - 1) // per_epoch + 1 for _, _, round, _ in writes}
    assert epochs == set(range(period, 5, period))
    for k in outcome.protocol.hosts:
        assert len(outcome.parties[k].buffer) == written * per_epoch == outcome.protocol.writes


def iterations(outcome, party):
    return sum(e.fields["iterations"] for e in named(outcome, "epoch") if e.party == party)


def test_hosts_train_as_long_as_they_are_asked_to():
    outcome = run(guest_epochs=2, host_epochs=5, comm_period=2)
    per_epoch = outcome.protocol.schedule.per_epoch
    left = len(outcome.parties[4].losses)
    assert iterations(outcome, 4) + left == 5 * per_epoch
    assert iterations(outcome, 0) == 2 * per_epoch
    without = run(guest_epochs=2, comm_period=2, replay=False)
    assert iterations(without, 4) + len(without.parties[4].losses) == per_epoch


def test_a_bounded_buffer_holds_the_last_inputs():
    whole, bounded = (run(buffer=buffer) for buffer in (None, 3))
    for k in whole.protocol.hosts:
        assert len(bounded.parties[k].buffer) == 3
        newest = bare_of(whole.parties[k].buffer)[-3:]
        for one, two in zip(newest, bare_of(bounded.parties[k].buffer), strict=True):
            np.testing.assert_array_equal(one, two)


def test_memory_counts_what_the_buffers_hold():
    for options in ({}, {"buffer": 3}, {"comm_period": 2}):
        outcome = run(**options)
        held = sum(
            item.nbytes
            for k in outcome.protocol.hosts
            for item in bare_of(outcome.parties[k].buffer)
        )
        rest = 2 * 4 * (90 + 30) * (4 * 5 + 2 * 4)
        assert outcome.protocol.memory() == held + rest


def test_a_register_keeps_the_newest_whatever_comes_late():
    slow = Conditions(name="slow", uploads=tuple(Delay(shift=s) for s in (0, 0.25, 0.05, 1e3)))
    outcome = run(conditions=slow, patience=20.0)
    host = outcome.parties[4]
    writes = {(n, r): codes for n, k, r, codes in sent(outcome, "activation") if k == 4}
    first = bare_of(
        host.buffer[4]
    )  # read in round 6; a delay of 0.25 s is a bit more than two rounds
    for n, age in ((0, 1), (1, 3), (2, 1)):
        np.testing.assert_array_equal(first[:, n * 5 : n * 5 + 5], writes[n, 6 - age])
    assert not first[:, 15:].any()  # it was never written to


# -- rows beyond the intersection ------------------------------------------------------------------


def test_encodings_of_absent_hosts_are_zero():
    joint = side_by_side({5: np.ones((3, 2), np.float32)}, (4, 5), 2)
    assert joint.tolist() == [[0, 0, 1, 1]] * 3


def test_places_of_a_batch_are_own_rows():
    places = np.arange(10)
    assert own_rows(places, 4, 10).tolist() == list(range(10))
    assert own_rows(places, 4, 7).tolist() == [0, 1, 2, 3, 4, 5, 6, 4, 5, 6]
    assert own_rows(places, 4, 4).tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]


@pytest.mark.parametrize("rest", ["dealt", "kept"])
def test_guests_train_on_rows_that_they_hold_alone(rest):
    dataset = limit_overlap(data(rows=150), 30, rest=rest)
    outcome = run(dataset)
    made = outcome.protocol
    assert made.batches.rows == 30 + len(dataset.alone[0])
    for n in made.peers():
        np.testing.assert_array_equal(made.features[n][:30], dataset.train[n])
        np.testing.assert_array_equal(made.features[n][30:], dataset.alone[n])
    assert outcome.parties[SERVER].encodings.shape == (30, 8)
    _, _, round, codes = sent(outcome, "activation")[0]
    places = made.batches.samples(made.batches.draw(round))
    assert (places >= 30).any()
    fresh = make("dvfl", dataset, **SMALL).parties()[0]
    np.testing.assert_array_equal(codes, bare_of(fresh.network).encode(made.features[0][places]))


# -- what leaves whom ------------------------------------------------------------------------------


def sent_bytes(outcome, *kinds):
    return [wire.encode(message) for kind in kinds for message in sent(outcome, kind)]


def test_activations_go_up_and_nothing_comes_down():
    outcome = run()
    roles = dict.fromkeys(outcome.protocol.peers(), "guest")
    roles |= dict.fromkeys(outcome.protocol.hosts, "host") | {SERVER: "owner"}
    columns = outcome.simulation.transcript.columns()
    ways = {
        (str(kind), roles[sender], roles[receiver])
        for kind, sender, receiver in zip(
            columns["kind"], columns["sender"], columns["receiver"], strict=True
        )
    }
    announcement = next(k for k in map(str, columns["kind"]) if k not in KINDS)
    assert ways == {
        ("activation", "guest", "host"),
        ("code", "guest", "host"),
        ("encoding", "host", "owner"),
        (announcement, "owner", "guest"),
        (announcement, "owner", "host"),
    }
    told = {wire.encode(payload) for _, _, _, payload in sent(outcome, announcement)}
    assert told == {wire.encode(None), wire.encode("stop")}


KINDS = ("activation", "code", "encoding")


def test_nothing_that_is_sent_depends_on_labels():
    dataset = data()
    other = replace(dataset, train_labels=np.roll(dataset.train_labels, 7))
    one, two = run(dataset), run(other)
    assert one.losses != two.losses
    columns = [outcome.simulation.transcript.state()["columns"] for outcome in (one, two)]
    assert wire.encode(columns[0]) == wire.encode(columns[1])
    payloads = [outcome.simulation.transcript.payloads for outcome in (one, two)]
    assert wire.encode(payloads[0]) == wire.encode(payloads[1])


def test_what_a_guest_sends_depends_on_its_own_columns_only():
    dataset = data()
    other = replace(dataset, train=(dataset.train[0], *(1 - x for x in dataset.train[1:])))
    messages = []
    for each in (dataset, other):
        outcome = run(each)
        messages.append(
            [m for kind in ("activation", "code") for m in sent(outcome, kind) if m[0] == 0]
        )
        assert sent(outcome, "encoding")
    assert wire.encode(messages[0]) == wire.encode(messages[1])


def test_activations_are_those_of_the_forward_pass_and_codes_of_the_trained_guest():
    outcome = run()
    made = outcome.protocol
    fresh = make("dvfl", data(), **SMALL).parties()
    batch = made.batches.samples(made.batches.draw(1))
    with (
        one_thread()
    ):  # as the run was: some kernels divide rows among threads, and round otherwise
        for guest, host, round, codes in sent(outcome, "activation")[:8]:
            assert (host in made.hosts, round) == (True, 1)
            wanted = bare_of(fresh[guest].network).encode(made.features[guest][batch])
            np.testing.assert_array_equal(codes, wanted)
        for guest, _, _, codes in sent(outcome, "code"):
            wanted = bare_of(outcome.parties[guest].network).encode(data().train[guest])
            np.testing.assert_array_equal(codes, wanted)
    assert {(c.who, c.about): c.notion for c in made.claims} == {
        ("guest", "labels"): "perfect",
        ("host", "labels"): "perfect",
        ("host", "features"): "none",
        ("owner", "features"): "none",
        ("host", "model"): "none",
    }


# -- faults ----------------------------------------------------------------------------------------


def lost(*parties, start=2):
    return faults_from({"outage": [{"party": n, "rounds": [start]} for n in parties]})


def test_codes_of_a_guest_that_is_lost_are_filled_with_its_mean():
    outcome = run(faults=lost(2, start=5))
    (one, two) = named(outcome, "filled")
    assert (one.fields, two.fields) == ({"guests": [2]}, {"guests": [2]})
    host = outcome.parties[4]
    mean = np.concatenate([item[:, 10:15] for item in bare_of(host.buffer)]).mean(axis=0)
    codes = {n: payload for n, k, _, payload in sent(outcome, "code") if k == 4}
    joint = np.concatenate([codes[0], codes[1], np.tile(mean, (90, 1)), codes[3]], axis=1)
    wanted = bare_of(host.network).encode(joint.astype(np.float32))
    (encoding,) = [payload for k, _, _, payload in sent(outcome, "encoding") if k == 4]
    np.testing.assert_allclose(encoding, wanted, rtol=1e-4, atol=1e-5)


def test_a_host_that_is_lost_is_left_out():
    outcome = run(faults=lost(5))
    owner = outcome.parties[SERVER]
    assert owner.answered == (4,)
    encodings = bare_of(owner.encodings)
    assert encodings[:, :4].any()
    assert not encodings[:, 4:].any()
    assert {event.fields["used"] for event in named(outcome, "round")} == {1}
    features = [np.array(x) for x in data().test]
    known = outcome.protocol.scores(outcome.parties, features)
    outcome.parties[5].network = outcome.protocol.party(5).network  # it makes no difference
    np.testing.assert_array_equal(outcome.protocol.scores(outcome.parties, features), known)


def test_without_any_host_the_run_ends_in_words():
    with pytest.raises(RunError, match=r"none of the 2 hosts sent .* within 600 s of round 23"):
        run(faults=lost(4, 5))


def test_a_host_loses_the_last_item_of_its_buffer_and_what_is_written_meanwhile():
    faults = faults_from({"outage": [{"party": 4, "rounds": [6, 9]}], "tick": 1e3})
    outcome = run(faults=faults)
    whole, one = (bare_of(outcome.parties[k].buffer) for k in (5, 4))
    # Read in rounds 2 to 15. Down in 6 to 8: the item of round 5 is lost, rounds 6 to 8 bring none,
    # and round 9 reads what the registers held when round 6 began.
    assert (len(whole), len(one)) == (14, 10)
    for mine, theirs in zip(one[:3], whole[:3], strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(one[3], whole[4])
    np.testing.assert_array_equal(one[4], whole[8])


def test_chains_end_with_the_training_phase(monkeypatch):
    # Every host is down all the time, and so would be left out.
    monkeypatch.setattr(Host, "learned", lambda self: True)
    chains = {role: {"fault": 1, "rejoin": 0} for role in ("guest", "host", "owner", "link")}
    outcome = run(faults=faults_from(chains))
    ups = [event for event in outcome.events if event.name == "up"]
    assert len(ups) == len([event for event in outcome.events if event.name == "down"]) == 7
    assert min(event.round for event in ups) == outcome.protocol.last_fault + 1
    assert len({event.time for event in ups}) == 1
    assert len(outcome.losses) == 3
    assert outcome.parties[SERVER].answered == (4, 5)


def away(parties, first, last):
    outages = [{"party": n, "rounds": [first, last]} for n in parties]
    return faults_from({"outage": outages, "tick": 1e3})


def test_a_host_that_made_no_step_is_left_out_and_says_why():
    outcome = run(faults=away([4], 1, 22))
    assert outcome.parties[SERVER].answered == (5,)
    (told,) = [e.fields["text"] for e in named(outcome, "notice") if e.party == 4]
    assert "party 4 (a host) made no training step, so it sends no encodings" in told
    with pytest.raises(RunError, match=r"of the 2 hosts sent .* parties \[4, 5\]. One that made"):
        run(faults=away([4, 5], 1, 22))


LONG = {"guest_epochs": 20, "host_epochs": 80, "host_width": 16, "guest_lr": 1e-3}


def test_a_host_that_diverged_is_an_error_and_no_accuracy():
    guests, one = data(2), {**LONG, "hosts": 1}
    with pytest.raises(RunError, match=r"party \d \(a host\) reconstructs .* did not learn"):
        run(guests, **one, host_lr=3.0)
    assert not named(run(guests, **one, guest_activation="leaky_relu", host_lr=0.01), "notice")


def test_a_guest_that_is_away_in_the_end_is_no_fault_of_a_host_that_learned():
    options = {**LONG, "guest_activation": "leaky_relu", "host_lr": 0.01}
    outcome = run(data(2), **options, faults=away([0], 400, 10**6))
    assert named(outcome, "filled")
    assert outcome.parties[SERVER].answered == (2, 3)


def test_a_host_that_trained_for_short_is_told():
    texts = [event.fields["text"] for event in named(run(host_lr=1e-6), "notice")]
    assert sum("Raise guest_epochs and host_epochs" in text for text in texts) == 2


def test_numbers_of_a_code_that_are_the_same_for_all_rows_are_told():
    outcome = run(guest_lr=1.0)
    codes = [payload for *_, payload in sent(outcome, "code")][: 2 * 4 : 2]
    dead = sum((code == code[0]).all(axis=0).sum() for code in codes)
    assert dead > 0
    texts = [event.fields["text"] for event in named(outcome, "notice")]
    same = f"{dead} of the 20 numbers of the guests' codes are the same for all rows"
    assert sum(same in text for text in texts) == 2  # each host says so


def test_activations_are_options():
    for guest, host in itertools.product(("relu", "leaky_relu"), repeat=2):
        made = make("dvfl", data(), **SMALL, guest_activation=guest, host_activation=host)
        codes = made.guest_network(0).encode(made.features[0])
        assert (codes.min() >= 0) == (guest == "relu")
        own = made.host_network(4)
        assert (own.encode(np.tile(codes, (1, 4))).min() >= 0) == (host == "relu")
        assert isinstance(own.head[-1], torch.nn.ReLU) == (guest == "relu")  # what it decodes


def test_clients_of_a_comparison_are_the_guests():
    made = make("dvfl", data(), **SMALL)
    faults = faults_from({"client": {"fault": 0.3, "rejoin": 0.5}})
    assert faults.bind(made.roles(), 0).may_crash == {0, 1, 2, 3}


# -- the rest --------------------------------------------------------------------------------------


def test_the_owner_stops_early_and_keeps_its_best_network():
    outcome = run(rounds=80, stop_after=3, held_out=0.4, lr=0.02, optimizer="adam")
    rows = named(outcome, "round")
    losses = [event.fields["held_out_loss"] for event in rows]
    assert len(losses) < 80
    assert np.argmin(losses) == len(losses) - 4
    owner = outcome.parties[SERVER]
    own = bare_of(owner.rows)
    assert len(own.validation) == 36
    assert not set(own.validation) & set(own.training)
    assert bare_of(owner.validate())["held_out_loss"] == min(losses)


def test_views_of_simclr_are_those_of_strips_or_tables():
    for dataset, shape in ((strips(), (1, 2, 8)), (data(parties=3), None)):
        outcome = run(dataset, objective="simclr")
        assert bare_of(outcome.parties[0].network).image_shape == shape
        losses = [e.fields["loss"] for e in named(outcome, "epoch") if e.party == 0]
        assert len(losses) == 2
        assert np.isfinite(losses).all()


def test_guests_decode_to_the_range_of_their_own_rows():
    dataset = data()
    beyond = replace(dataset, train=(dataset.train[0] * 2, *dataset.train[1:]))
    parties = make("dvfl", beyond, **SMALL).parties()
    heads = [bare_of(parties[n].network).head[-1] for n in (0, 1)]
    assert [type(head).__name__ for head in heads] == ["Linear", "Sigmoid"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"comm_period": 3}, "comm_period = 3 is longer than guest_epochs = 2"),
        ({"host_epochs": 1}, "host_epochs = 1 must be at least guest_epochs = 2"),
        ({"stop_after": 2, "held_out": 0.01}, "0.01 of 90 aligned rows leaves no row"),
    ],
)
def test_options_that_cannot_work_are_refused(options, words):
    with pytest.raises(ConfigurationError, match=words):
        make("dvfl", data(), **SMALL | options)


def test_category_codes_are_refused():
    dataset = data()
    parts = [replace(part) for part in dataset.transform.parties]
    assert not any(any(part.cardinalities) for part in parts)
    coded = type("Coded", (), {"__getattr__": lambda self, name: getattr(dataset, name)})()
    coded.cardinalities = ((0, 3, 0), *dataset.cardinalities[1:])
    with pytest.raises(ConfigurationError, match="1 columns of party 0 hold category codes"):
        make("dvfl", coded, **SMALL)


def test_what_a_guest_writes_before_the_hosts_round_began_is_read_in_the_next_one():
    """Clocks of two machines differ; a host of round r reads what was written up to round r - 1."""
    parties = make("dvfl").parties()
    host = next(one for one in parties.values() if isinstance(one, Host))
    written = {r: np.full((4, host.width), r, np.float32) for r in range(1, 6)}

    def write(round):
        host.write(Message(host.peers[0], host.index, "activation", written[round], round, 0, -1))

    for ahead in (1, 2):  # a guest that is behind wrote last in the round before, one ahead in this
        write(ahead)
    host.round = 2
    assert host.written().keys() == {host.peers[0]}
    assert np.array_equal(host.written()[host.peers[0]], written[1])
    host.round = 3
    assert np.array_equal(host.written()[host.peers[0]], written[2])
    write(4)
    write(3)  # messages may overtake each other
    host.round = 4
    assert np.array_equal(host.written()[host.peers[0]], written[3])
    host.round = 9
    assert np.array_equal(host.written()[host.peers[0]], written[4])
    assert len(host.writings[host.peers[0]]) == 2


# -- proofs ----------------------------------------------------------------------------------------

# A host that judges itself by one row has no words of how well it learned.
QUICK = {"batch": 1, "buffer": 1, "guest_epochs": 1, "host_epochs": 2}


def proved(**options):
    """Verdicts by coalition, where nobody is down: guests 0 and 1, hosts 2 and 3."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Dvfl, "schedules", lambda made: (UNDISTURBED,))
        proof = prove_protocol(Traced("dvfl", options, parties=2, rows=4), fresh=False)
    return {v.claim: v for v in proof.verdicts}


def test_nothing_is_shown_beside_codes_encodings_and_losses():
    proof = prove_protocol(Traced("dvfl", QUICK, parties=2, rows=4))
    assert (len(proof.traces), proof.ended) == (2, {})  # guests and hosts go down, and come back
    assert {v.verdict for v in proof.verdicts} == {"NOT PROTECTED"}
    found = {v.claim: v for v in proof.first}
    of_guest, of_host = found["client 0"].clear, found["client 2"].clear
    assert all(name.startswith(("loss of party", "dead")) for name in of_guest)
    assert {"activation of party 0", "code of party 1", "loss of party 3"} <= set(of_host)
    assert {"encoding of party 2", "encoding of party 3"} <= set(found["server"].clear)
    # A loss of the owner is of all: of labels too, and nobody is told more of these.
    assert "loss" in found["client 0"].outputs
    assert "loss" not in of_guest + of_host


@pytest.mark.parametrize(
    "options",
    [{"objective": "simclr"}, {"stop_after": 5, "held_out": 0.25}, {"hosts": 1}],
    ids=str,
)
def test_each_mode_is_proved(options):
    found = proved(**QUICK | options)
    assert {v.verdict for v in found.values()} == {"NOT PROTECTED"}
    assert ("loss" in found["client 2"].clear) == ("hosts" in options)  # then of labels alone


def with_a_column(network, features, rows):
    """Codes whose first number is a column's."""
    code = np.array(network.encode(features[rows]))
    code[:, 0] = features[rows, 0]
    return code


def sees_a_column(self, rows):
    return self.network.call(with_a_column, self.features, rows, shape=(len(rows), self.width))


def first_label(loss, labels):
    return loss + labels[0]


def told_a_label(self):
    given = self.encodings, self.labels, self.rows, self.steps
    (loss,) = self.centre.step(algorithm.epoch, *given, shapes=[()], of=[np.float64])
    return loss.map(first_label, self.labels)


MISTAKES = {
    "a column in codes": (Guest, "encode", sees_a_column, "client 2"),
    "a label in the loss": (Owner, "train_epoch", told_a_label, "client 0"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_not_proved(name, monkeypatch):
    kind, method, planted, who = MISTAKES[name]
    monkeypatch.setattr(kind, method, planted)
    verdict = verdict_on(who, "dvfl", QUICK, parties=2, rows=4)
    assert verdict.verdict in ("NOT PROVED", "VIOLATED"), verdict.scope
