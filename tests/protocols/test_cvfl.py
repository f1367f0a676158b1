"""CVFL against its algorithms written down once more, and against split learning where L = 1."""

import heapq
import math

import numpy as np
import pytest
import torch

from securevfl.data import VerticalDataset
from securevfl.engine.conditions import NONE, Conditions, Delay
from securevfl.engine.faults import Chain, Faults, Outage
from securevfl.engine.network import SERVER, Message
from securevfl.engine.party_state import restore, snapshot
from securevfl.engine.runner import Owner, PartyRunner
from securevfl.errors import ConfigurationError, DataError, StalledError
from securevfl.protocols.base import open_embeddings
from securevfl.protocols.cvfl.algorithm import ActiveParty, PassiveParty
from securevfl.protocols.cvfl.parameters import CvflConfig
from securevfl.protocols.cvfl.slow_parties import is_slow, pace_of
from securevfl.runs.threads import one_thread
from securevfl.testing.runs import make, simulate
from securevfl.verified import bare_of
from securevfl.verified.traced.proofs import Traced, prove_protocol
from tests.models.centralised import Centralised
from tests.protocols.faulty import verdict_on
from tests.protocols.joint import data, loss_of, strips

SMALL = {
    "rounds": 24,
    "batch": 7,
    "width": 5,
    "hidden": 6,
    "client": "mlp",
    "optimizer": "sgd",
    "momentum": 0.0,
    "lr": 0.05,
}


def fixed(*seconds):
    """Conditions with constant delays."""
    return Conditions(name="fixed", uploads=tuple(Delay(shift=s) for s in seconds))


def steps(outcome):
    return [event for event in outcome.events if event.name == "round"]


def scores(outcome):
    return outcome.protocol.scores(outcome.parties, outcome.protocol.data.test)


# -- one label holder is split learning ------------------------------------------------------------


@pytest.mark.parametrize("client", ["pn", "mlp"])
@pytest.mark.parametrize("mode", ["async", "sync", "single"])
def test_with_one_active_party_it_is_split_learning_bit_for_bit(mode, client):
    options = SMALL | {"optimizer": "adam", "aggregation": "concat", "weight_decay": 0.0}
    options |= {"client": client, "rounds": 12}
    ours = simulate("cvfl", data(), active=1, mode=mode, **options)
    theirs = simulate("split", data(), **options)
    assert ours.losses == theirs.losses
    assert (scores(ours) == scores(theirs)).all()


@pytest.mark.parametrize("rule", ["concat", "mean"])
@pytest.mark.parametrize("client", ["pn", "strided_cnn"])
def test_the_centralised_twin_is_split_learning_without_any_partition(client, rule):
    dataset = strips()
    options = SMALL | {"client": client, "aggregation": rule, "momentum": 0.9, "degree": 2}
    outcome = simulate("split", dataset, **options)
    layout, losses = outcome.protocol.layout, []
    with one_thread():
        split = outcome.protocol
        networks = [split.client_network(n) for n in split.peers()]
        twin = Centralised(networks, split.joint_centre(), joined=rule)
        for round in range(1, 1 + options["rounds"]):
            samples = layout.samples(layout.draw(round))
            columns = [part[samples] for part in dataset.train]
            losses.append(twin.step(columns, dataset.train_labels[samples]))
        columns = [np.asarray(part) for part in dataset.test]
        twin_scores = twin.forward(columns).detach().numpy()
    np.testing.assert_allclose(losses, outcome.losses, rtol=1e-5)
    np.testing.assert_allclose(twin_scores, scores(outcome), rtol=1e-3, atol=1e-5)


# -- the algorithms once more ----------------------------------------------------------------------


class Oracle:
    """All networks in one place; Algorithms 1 to 3 with autograd and plain SGD."""

    def __init__(self, dataset, options):
        self.protocol = make("cvfl", dataset, **options)
        self.config = self.protocol.config
        self.parties = self.protocol.parties()
        self.data = dataset
        self.bottoms = [bare_of(self.parties[m].network).module for m in range(dataset.parties)]
        self.w0 = bare_of(self.parties[SERVER].centre).network
        self.launched = [0] * dataset.parties
        self.losses, self.factors = [], []

    def gradients(self, own, top):
        """Rows, dF/dh of every party, and dF/dw of the top network, of a party's next batch."""
        party = self.parties[own]
        self.launched[own] += 1
        places = party.batches.samples(party.batches.draw(self.launched[own]))
        rows = party.labelled_rows[places]
        parts = [
            b(torch.from_numpy(x[rows])) for b, x in zip(self.bottoms, self.data.train, strict=True)
        ]
        parts = [h.detach().requires_grad_() for h in parts]
        loss = loss_of(top, torch.cat(parts, 1), self.data.train_labels[rows])
        F = loss.item() + self.config.weight_decay / 2 * sum(
            (p.detach() ** 2).sum().item() for b in self.bottoms for p in b.parameters()
        )
        q = self.config.q if str(own) in self.config.slow.split(",") else 1
        factor = min(max(1.0, q * F ** (q - 1)), self.config.amplify_at_most)
        found = torch.autograd.grad(factor * loss, [*parts, *top.parameters()])
        told = (loss.item(), factor)
        return rows, found[: len(parts)], found[len(parts) :], told

    def learn(self, m, rows, gradient):
        bottom = self.bottoms[m]
        value = (bottom(torch.from_numpy(self.data.train[m][rows])) * gradient).sum()
        own = torch.autograd.grad(value, list(bottom.parameters()))
        with torch.no_grad():
            for p, g in zip(bottom.parameters(), own, strict=True):
                p -= self.config.lr * (g + self.config.weight_decay * p)

    def step(self, gradient, told):
        with torch.no_grad():
            for p, g in zip(self.w0.parameters(), gradient, strict=True):
                p -= self.config.lr * g
        self.losses.append(told[0])
        self.factors.append(told[1])

    def copy_of_w0(self):
        import copy

        return copy.deepcopy(self.w0)

    def run_async(self, delays):
        tops = [self.copy_of_w0() for _ in delays]
        queue, order = [], 0
        for n in range(len(delays)):
            queue.append((0.0, order, n, None))
            order += 1
        while len(self.losses) < self.config.rounds:
            now, _, n, done = heapq.heappop(queue)
            if done is not None:  # what it computed arrives, and it begins anew
                rows, parts, own, told = done
                for m, gradient in enumerate(parts):
                    if m != n:
                        self.learn(m, rows, gradient)
                self.step(own, told)
                tops[n] = self.copy_of_w0()
            if len(self.losses) < self.config.rounds:
                found = self.gradients(n, tops[n])
                self.learn(n, found[0], found[1][n])  # to itself without delay
                heapq.heappush(queue, (now + delays[n], order, n, found))
                order += 1

    def run_sync(self, active):
        while len(self.losses) < self.config.rounds:
            top = self.copy_of_w0()
            found = [self.gradients(n, top) for n in range(active)]
            for m in range(self.data.parties):
                for rows, parts, _, _ in found:
                    self.learn(m, rows, parts[m])
            for *_, own, told in found:
                self.step(own, told)


@pytest.mark.parametrize("delays", [(1.0, 1.37, 1.91, 0.83), (0.1, 2.3, 3.7, 5.1)])
def test_asynchronously_the_order_of_arrival_decides(delays):
    options = SMALL | {"slow": "1,3", "q": 3.0, "weight_decay": 0.01}
    outcome = simulate("cvfl", data(), conditions=fixed(*delays), **options)
    with one_thread():
        oracle = Oracle(data(), options)
        oracle.run_async(delays)
    np.testing.assert_allclose(outcome.losses, oracle.losses, rtol=1e-4)
    factors = [event.fields["factor"] for event in steps(outcome)]
    np.testing.assert_allclose(factors, oracle.factors, rtol=1e-4)
    assert max(factors) > 2  # the exponent was at work
    assert outcome.losses != simulate("cvfl", data(), conditions=NONE, **options).losses


@pytest.mark.parametrize("active", [2, 4])
def test_in_step_all_gradients_of_a_round_are_of_the_same_networks(active):
    options = SMALL | {"mode": "sync", "active": active, "slow": "1", "q": 2.0}
    conditions = fixed(1.0, 1.37, 1.91, 0.83)
    outcome = simulate("cvfl", data(), conditions=conditions, **options)
    with one_thread():
        oracle = Oracle(data(), options)
        oracle.run_sync(active)
    np.testing.assert_allclose(outcome.losses, oracle.losses, rtol=1e-4)
    assert any(factor > 1 for factor in oracle.factors)


# -- fast and slow parties -------------------------------------------------------------------------


def test_in_the_same_time_a_fast_party_makes_more_updates_and_async_more_than_sync():
    options = SMALL | {"rounds": 40}
    conditions = fixed(1.0, 2.0, 2.0, 2.0)
    ends = {}
    for mode in ("async", "sync"):
        outcome = simulate("cvfl", data(), conditions=conditions, mode=mode, **options)
        ends[mode] = steps(outcome)[-1].time / 1e9
        made = np.bincount([event.fields["client"] for event in steps(outcome)])
        assert made.tolist() == ([16, 8, 8, 8] if mode == "async" else [10] * 4)
    assert ends == {"async": 16.0, "sync": 20.0}  # 5 updates in the time of 4: 20 % earlier


def test_slow_parties_are_measured_by_their_number_of_updates():
    options = SMALL | {"rounds": 60, "q": 3.0, "amplify_at_most": 100.0}
    outcome = simulate("cvfl", data(), conditions=fixed(1.0, 1.1, 5.0, 1.0), **options)
    amplified = {e.fields["client"] for e in steps(outcome) if e.fields["factor"] > 1}
    assert amplified == {2}
    columns = outcome.simulation.transcript.columns()
    told = columns["receiver"][columns["kind"] == "penalty"]
    assert set(told.tolist()) == {2}  # nobody else is sent r(theta)
    plain = simulate("cvfl", data(), conditions=fixed(1.0, 1.1, 5.0, 1.0), **options | {"q": 1.0})
    assert {e.fields["factor"] for e in steps(plain)} == {1.0}
    assert "penalty" not in set(plain.simulation.transcript.columns()["kind"].tolist())


def test_the_automatic_exponent_makes_up_for_the_missing_updates():
    options = SMALL | {"rounds": 60, "q": "auto", "slow": "2", "amplify_at_most": 4.0}
    outcome = simulate("cvfl", data(), conditions=fixed(1.0, 1.0, 3.0, 1.0), **options)
    factors = [e.fields["factor"] for e in steps(outcome) if e.fields["client"] == 2]
    assert factors[0] == 1.0  # no pace is known yet
    assert max(factors) == pytest.approx(3.0, rel=0.2)
    assert all(factor <= 4.0 * (1 + 1e-6) for factor in factors)


# -- passive parties that are slow -----------------------------------------------------------------


def test_without_patience_a_slow_passive_party_holds_everybody_up():
    outcome = simulate("cvfl", data(), conditions=fixed(0, 0, 0, 50.0), active=2, **SMALL)
    assert steps(outcome)[0].time >= 50e9


def test_with_patience_stale_embeddings_are_used_within_the_bound():
    options = SMALL | {"active": 2, "patience": 0.5, "rounds": 200}
    conditions = fixed(0.2, 0.2, 0, 3.0)
    ends, known = {}, {}
    for bound in (None, 2):
        outcome = simulate("cvfl", data(), conditions=conditions, staleness=bound, **options)
        rows = steps(outcome)
        ends[bound] = rows[-1].time / 1e9
        known[bound] = np.mean([event.fields["known"] for event in rows[-50:]])
        assert {event.fields["fresh"] for event in rows} == {3}  # the slow one is never in time
    assert max(ends.values()) < 200 * 0.4 < 200 * 3.0 / 2
    assert known[None] == 1.0  # after the first epoch every row has an old embedding of it
    assert known[2] == pytest.approx(0.75)  # none is as young as that: it is left out


def test_links_that_lose_answers_stop_it_only_without_a_timeout(monkeypatch):
    faults = Faults({"link": Chain(0.3, 0.5)})
    options = SMALL | {"rounds": 120, "active": 2, "patience": 0.4}
    with pytest.raises(StalledError, match="waits for 'top' or 'stop'"):
        simulate("cvfl", data(), conditions=NONE, faults=faults, **options)
    outcome = simulate("cvfl", data(), conditions=NONE, faults=faults, timeout=0.7, **options)
    assert len(outcome.losses) == 120
    assert {event.fields["client"] for event in steps(outcome)} == {0, 1}
    lost = {event.fields["kind"] for event in outcome.events if event.name == "lost"}
    assert lost >= {"top_gradient", "request", "embedding", "gradient"}
    # A launch is trained whether anybody answers it or not, and a thousand take most of the time.
    monkeypatch.setattr("securevfl.protocols.cvfl.algorithm._UNANSWERED", 50)
    gone = Faults(outages=(Outage(SERVER, rounds=(3, math.inf)),))
    with pytest.raises(StalledError, match="the server has been down since round 3"):
        simulate("cvfl", data(), conditions=NONE, faults=gone, timeout=0.1, **options)


# -- in step, whatever the order of arrival -------------------------------------------------------


class Alone(Owner):
    """Surroundings of one party: what it sends, and the rounds in which it stood at rest."""

    def __init__(self, party):
        self.party, self.sent, self.rests = party, [], []
        party.engine = self
        self.runner = PartyRunner(party, self, late=self.sent.append)
        self.runner.start(setup_done=True)

    def send(self, sending):
        _, to, kind, payloads, round, _ = sending
        self.sent += [(kind, n, round, payload) for n, payload in zip(to, payloads, strict=True)]

    def handled(self, party, kind):
        self.runner.deliver_held(kind)

    def at_safe_point(self):
        self.rests.append(self.party.round)

    def safe_point(self, party):
        self.at_safe_point()

    def give(self, sender, kind, payload, round):
        message = Message(sender, self.party.index, kind, payload, round, 0, len(self.sent))
        self.runner.deliver(message)


def test_in_step_a_request_waits_for_the_step_of_the_round_before():
    """Networks do not keep the order of different senders: it must change no number."""
    protocol = make("cvfl", data(), mode="sync", active=2, **SMALL)
    rows, ones = np.arange(7), np.ones((7, 5), np.float32)
    passive = Alone(protocol.party(3))
    passive.give(0, "request", (rows, False), 1)
    passive.give(0, "gradient", (rows, ones), 1)
    passive.give(0, "request", (rows, False), 2)  # it is faster than what party 1 still sends
    passive.give(1, "request", (rows, False), 1)
    assert [sent[:3] for sent in passive.sent] == [("embedding", 0, 1), ("embedding", 1, 1)]
    assert (passive.sent[0][3][1] == passive.sent[1][3][1]).all()
    assert passive.rests == [0]  # half a round is no rest
    passive.give(1, "gradient", (rows, 2 * ones), 1)
    assert passive.sent[2][:3] == ("embedding", 0, 2)
    with one_thread():
        twin = protocol.party(3)
        network, features = bare_of(twin.network), bare_of(twin.features)[rows]
        for weight in (1, 2):
            network.update(features, np.float32(weight) * ones)
        assert (passive.sent[2][3][1] == network.forward(features)).all()
    assert passive.rests == [0, 1]
    passive.give(SERVER, "stop", None, 2)
    assert passive.runner.done


def test_a_request_that_waits_is_in_the_checkpoint():
    protocol = make("cvfl", data(), mode="sync", active=2, **SMALL)
    rows = np.arange(7)
    passive = Alone(protocol.party(3))
    passive.give(0, "request", (rows, False), 2)
    assert passive.sent == []
    back = protocol.party(3)
    restore(back, snapshot(passive.party, waits=0, time=0))
    back = Alone(back)
    for sender in (0, 1):
        back.give(sender, "gradient", (rows, np.ones((7, 5), np.float32)), 1)
    assert [sent[:3] for sent in back.sent] == [("embedding", 0, 2)]


@pytest.mark.parametrize("mode", ["async", "single"])
def test_a_passive_party_rests_after_each_of_its_steps(mode):
    """Its checkpoint was that of the beginning: after a crash it came back untrained."""
    passive = Alone(make("cvfl", data(), mode=mode, active=2, **SMALL).party(3))
    rows, ones = np.arange(7), np.ones((7, 5), np.float32)
    for round in (1, 2):
        passive.give(0, "gradient", (rows, ones), round)
    assert passive.rests == [0, 1, 2]


# -- what is said and what is refused --------------------------------------------------------------


def test_the_card_says_what_absence_does_in_each_configuration():
    for options, says in (
        ({}, "skips"),
        ({"mode": "sync"}, "waits"),
        ({"active": 3}, "waits"),
        ({"active": 3, "patience": 1.0}, "fills"),
    ):
        assert make("cvfl", data(), **options).card.absence == says


def test_a_pace_is_a_part_of_the_fastest_partys_updates():
    assert pace_of(np.array([4, 1, 0]), 1) == 1.0  # too few updates to compare
    assert pace_of(np.array([8, 2, 0]), 1) == 0.25
    assert pace_of(np.array([8, 2, 0]), 0) == 1.0


@pytest.mark.parametrize(
    ("options", "pace", "slow"),
    [
        ({}, 0.74, True),
        ({}, 0.75, False),
        ({"q": 1.0}, 0.1, False),
        ({"slow": "none"}, 0.1, False),
        ({"slow": "2,3"}, 1.0, True),
        ({"slow": "1,3"}, 0.1, False),
    ],
)
def test_a_slow_party_is_named_or_lags_behind(options, pace, slow):
    assert is_slow(CvflConfig(**options), pace, party=2) is slow


def test_the_papers_argument_is_no_claim():
    made = make("cvfl", data())
    assert {claim.notion for claim in made.claims} == {"none"}
    assert any("more than two columns" in words for words in made.card.deviations)
    assert any("d > 2" in claim.source for claim in made.claims)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"active": 5}, "active = 5 parties hold labels, and there are 4"),
        ({"segments": 2}, "unknown option of cvfl 'segments'"),
        ({"q": 0.5}, "must be at least 1"),
        ({"slow": "fast"}, "neither 'measured' nor 'none'"),
        ({"slow": "1,7"}, "party 7 is none of the active parties 0 to 3"),
        ({"staleness": 3}, "needs patience"),
        ({"mode": "sync", "timeout": 1.0}, "has no meaning in step"),
        ({"centre": "batch_norm_mlp"}, "running statistics"),
    ],
)
def test_what_cannot_work_is_refused(options, wanted):
    with pytest.raises(ConfigurationError, match=wanted):
        make("cvfl", data(), **options)


def test_an_active_party_without_labels_is_refused():
    with pytest.raises(DataError, match="label owner 3 of 4 has no labels"):
        make("cvfl", data(), label_partition="classes:0,1/2/3/77")


def test_a_class_that_nobody_holds_is_named():
    rule = "classes:0,1,2/2,3/4,5/5,6"  # sets may overlap, the rows do not
    with pytest.warns(UserWarning, match="labels of the classes 7, 8, 9, which training and test"):
        made = make("cvfl", data(rows=400), label_partition=rule)
    assert made.describe()["classes_without_labels"] == [7, 8, 9]
    rows = np.concatenate(made.label_sets)
    assert len(np.unique(rows)) == len(rows)


def test_real_targets_are_learnt_too():
    rng = np.random.default_rng(0)
    rows = rng.random((120, 8))
    dataset = VerticalDataset.from_numpy(rows, rows.sum(1), task="regression", parties=4)
    outcome = simulate("cvfl", dataset, **SMALL | {"rounds": 80, "q": 1.0, "lr": 0.02})
    assert np.mean(outcome.losses[-10:]) < 0.3 * np.mean(outcome.losses[:4])


# -- proofs ----------------------------------------------------------------------------------------


def proved(fresh=False, parties=4, **options):
    """Verdicts by coalition: parties 0 to 3, and the collaborator."""
    proof = prove_protocol(Traced("cvfl", options, parties), fresh=fresh)
    return {v.claim: v for v in proof.verdicts}


def test_nothing_is_shown_beside_what_the_algorithms_send():
    found = proved(fresh=True, active=2)
    assert {v.verdict for v in found.values()} == {"NOT PROTECTED"}
    assert set(found["client 2"].clear) == {"dF/dh of party 2", "loss", "factor"}
    assert {"embedding of party 1", "embedding of party 3", "top model"} <= set(
        found["client 0"].clear
    )
    assert {"dF/dw by party 0", "dF/dw by party 1"} <= set(found["server"].clear)
    assert "server + clients 0, 1" in found


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "sync"},
        {"mode": "sync", "slow": "1", "patience": 1.0, "staleness": 1, "active": 2},
        {"mode": "single", "label_partition": "equal", "active": 2},
        {"slow": "0,1", "q": "auto", "patience": 1.0, "active": 2, "weight_bound": 100.0},
        {"aggregation": "max", "timeout": 2.0},
    ],
    ids=str,
)
def test_each_mode_is_proved(options):
    assert {v.verdict for v in proved(parties=3, **options).values()} == {"NOT PROTECTED"}


def with_a_column(network, features, samples):
    """An embedding whose first number is a column's."""
    made = np.array(network.forward(features[samples]))
    made[:, 0] = features[samples, 0]
    return made


def sees_a_column(self, samples):
    shape = (samples.shape[0], self.width)
    return self.network.call(with_a_column, self.features, samples, shape=shape)


def with_labels(gradient, labels, rows):
    return gradient + labels[rows, None].astype(np.float32)


def labels_in_gradients(self, to, kind, payload, **more):
    if kind == "gradient":
        rows, part = payload
        payload = rows, part.map(with_labels, self.labels, rows)
    PassiveParty.send(self, to, kind, payload, **more)


def another_norm(network, features):
    return float(np.abs(features).sum())


def columns_for_the_penalty(self, to, kind, payload, **more):
    if kind == "penalty":
        payload = self.network.call(another_norm, self.features, dtype=np.float64)
    open_embeddings.OpenClient.send(self, to, kind, payload, **more)


MISTAKES = {
    "a column in embeddings": (PassiveParty, "embed", sees_a_column, "client 0"),
    "labels in gradients": (ActiveParty, "send", labels_in_gradients, "client 2"),
    "columns for r(theta)": (PassiveParty, "send", columns_for_the_penalty, "client 0"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_not_proved(name, monkeypatch):
    kind, method, planted, who = MISTAKES[name]
    monkeypatch.setattr(kind, method, planted, raising=False)
    verdict = verdict_on(who, "cvfl", {"active": 2, "slow": "0"})
    assert verdict.verdict in ("NOT PROVED", "VIOLATED"), verdict.scope


def test_rows_that_follow_from_classes_are_named_as_what_tells_of_labels():
    found = proved(parties=3, active=2, label_partition="classes:0/1")
    assert {v.verdict for v in found.values()} == {"NOT PROVED"}
    assert "rows of an owner follow from their classes" in found["server"].text
