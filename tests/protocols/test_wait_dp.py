import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from securevfl.engine.conditions import NONE
from securevfl.engine.network import SERVER
from securevfl.engine.party_state import ahead, restore, snapshot
from securevfl.engine.realtime.checkpoint_store import CheckpointStore
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import ConfigurationError, PrivacyError
from securevfl.privacy.accountant import gaussian_epsilon, noise_multiplier
from securevfl.privacy.mechanisms import keep_probability
from securevfl.privacy.release_counts import most_releases
from securevfl.protocols.wait_dp.algorithm import Client, Server
from securevfl.testing.runs import make, resume_from, simulate, state_at
from securevfl.verified import FlowError, bare_of
from securevfl.verified.traced.proofs import Traced, prove_protocol
from tests.protocols.faulty import verdict_on
from tests.protocols.joint import data, powers, slow

SMALL = {"rounds": 8, "batch": 20, "width": 5, "hidden": 7, "optimizer": "sgd", "momentum": 0.0}
NOISY = SMALL | {"noise": "seeded", "epsilon": 5.0}


def embeddings(outcome):
    """(client, round) to the embedding that was sent."""
    transcript = outcome.simulation.transcript
    sent = transcript.columns()
    return {
        (int(sent["sender"][row]), int(sent["round"][row])): transcript.payloads[row]
        for row in np.flatnonzero(sent["kind"] == "embedding")
    }


def clipped(embedding, bound):
    norms = embedding.norm(dim=1, keepdim=True)
    return torch.where(norms > bound, embedding * (bound / norms), embedding)


def test_laplace_noise_goes_by_the_range_of_the_batch_and_claims_nothing():
    dataset, options = data(), NOISY | {"width": 64, "mechanism": "laplace"}
    outcome = simulate("wait_dp", dataset, conditions=NONE, payloads=True, **options)
    made = outcome.protocol
    samples = made.layout.samples(made.layout.draw(1))
    fresh, noises = made.parties(), []
    for n in range(4):
        raw = (powers(dataset.train[n][samples], 2) @ bare_of(fresh[n].network).weight).detach()
        scale = float(raw.max() - raw.min()) / 5.0
        noises.append((embeddings(outcome)[n, 1] - raw.numpy()) / scale)
    # A true Laplace sample fails with probability 1e-6; the noise is seeded.
    assert stats.kstest(np.concatenate(noises).ravel(), "laplace").pvalue > 1e-6
    assert {claim.notion for claim in made.claims} == {"none"}
    assert "epsilon_total" not in outcome.events[-1].fields
    with pytest.raises(ConfigurationError, match="laplace"):
        make("wait_dp", dataset, **options | {"noise": "secure"})


def test_what_leaves_a_client_is_its_clipped_embedding_with_calibrated_noise():
    dataset = data()
    outcome = simulate(
        "wait_dp", dataset, conditions=NONE, payloads=True, **NOISY | {"width": 64, "clip": 0.5}
    )
    made = outcome.protocol
    sigma = made.describe()["sigma"]
    assert sigma == pytest.approx(2 * 0.5 * noise_multiplier(5.0, 1e-5))
    samples = made.layout.samples(made.layout.draw(1))
    fresh, noises, norms = made.parties(), [], []
    for n in range(4):
        raw = powers(dataset.train[n][samples], 2) @ bare_of(fresh[n].network).weight
        norms += raw.norm(dim=1).tolist()
        noises.append(embeddings(outcome)[n, 1] - clipped(raw, 0.5).detach().numpy())
    assert min(norms) < 0.5 or max(norms) > 0.5
    noise = np.concatenate(noises).ravel() / sigma
    assert len(noise) == 4 * 20 * 64
    # A true normal sample fails with probability 1e-6; the noise is seeded.
    assert stats.kstest(noise, "norm").pvalue > 1e-6
    assert len(np.unique(noise)) > 0.9 * len(noise)


@pytest.mark.parametrize("bound", [0.2, 100.0])
def test_clients_train_through_the_clipping(bound):
    dataset = data()
    outcome = simulate(
        "wait_dp", dataset, conditions=NONE, payloads=True, **NOISY | {"clip": bound, "lr": 0.1}
    )
    made, transcript = outcome.protocol, outcome.simulation.transcript
    sent = transcript.columns()
    weight = bare_of(made.parties()[2].network).weight.detach().clone().requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    rows = np.flatnonzero((sent["kind"] == "gradient") & (sent["receiver"] == 2))
    for round, row in enumerate(rows, 1):
        own = dataset.train[2][made.layout.samples(made.layout.draw(round))]
        optimizer.zero_grad()
        gradient = torch.from_numpy(transcript.payloads[row].copy())
        clipped(powers(own, 2) @ weight, bound).backward(gradient)
        optimizer.step()
    trained = bare_of(outcome.parties[2].network).values
    np.testing.assert_allclose(trained, weight.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_noise_is_fresh_in_every_round_and_client_and_run():
    sent = {}
    for number in range(2):
        outcome = simulate(
            "wait_dp", data(), conditions=NONE, payloads=True, **SMALL, noise="secure"
        )
        sent |= {(number, *key): value for key, value in embeddings(outcome).items()}
    assert len(sent) == 2 * 4 * 8
    assert len({value.tobytes() for value in sent.values()}) == len(sent)


def test_a_seed_repeats_the_noise_only_where_it_is_asked_to():
    seeded = [simulate("wait_dp", data(), **NOISY).losses for _ in range(2)]
    assert seeded[0] == seeded[1]
    secure = [simulate("wait_dp", data(), **NOISY | {"noise": "secure"}).losses for _ in range(2)]
    assert secure[0] != secure[1]


def test_secure_is_the_default_and_the_card_follows_the_noise():
    from securevfl.protocols.wait_dp.parameters import WaitDPConfig
    from securevfl.protocols.wait_dp.protocol import WaitDP

    made = WaitDP(WaitDPConfig(), data(), seed=0)
    assert made.describe()["noise"] == "secure"
    assert {c.notion for c in made.claims if c.about == "features"} == {"differential"}
    assert {c.notion for c in made.claims if c.about == "model"} == {"none"}
    seeded = make("wait_dp", data(), noise="seeded")
    assert seeded.describe()["noise"] == "seeded, not secure"
    assert {c.notion for c in seeded.claims} == {"none"}


def test_the_history_says_what_the_rows_have_spent():
    outcome = simulate("wait_dp", data(), **NOISY | {"rounds": 10})
    layout = outcome.protocol.layout
    assert layout.per_epoch == 4  # 90 rows, 20 of them a round
    seen = np.zeros(layout.rows, np.int64)
    multiplier = noise_multiplier(5.0, 1e-5)
    rows = [event for event in outcome.events if event.name == "round"]
    for round, event in enumerate(rows, 1):
        seen[layout.samples(layout.draw(round))] += 1
        wanted = gaussian_epsilon(multiplier, int(seen.max()), 1e-5)
        assert event.fields["epsilon_total"] == pytest.approx(wanted)
        assert event.fields["epsilon_round"] == pytest.approx(5.0)
    assert seen.max() == 3


def test_a_run_ends_before_the_budget_is_exceeded():
    two = gaussian_epsilon(noise_multiplier(5.0, 1e-5), 2, 1e-5)
    outcome = simulate("wait_dp", data(), **NOISY | {"rounds": 50, "epsilon_budget": two + 0.1})
    rows = [event for event in outcome.events if event.name == "round"]
    assert len(rows) == 8  # two epochs of four rounds
    assert rows[-1].fields["epsilon_total"] == pytest.approx(two)
    (stop,) = [event for event in outcome.events if event.name == "budget"]
    assert stop.fields["epsilon"] <= two + 0.1 < stop.fields["next"]
    assert outcome.protocol.describe()["epsilon_all_rounds"] == pytest.approx(two)
    assert outcome.simulation.finished


@pytest.mark.parametrize("rounds", [1, 4, 50])
def test_the_claim_is_of_as_many_releases_as_parties_allow(rounds):
    """A run of one epoch that is restarted releases rows twice, where the budget pays for it."""
    two = gaussian_epsilon(noise_multiplier(5.0, 1e-5), 2, 1e-5)
    for budget, total in ((two + 0.1, two), (two - 0.1, 5.0)):
        options = {"noise": "secure", "epsilon": 5.0, "epsilon_budget": budget}
        made = make("wait_dp", data(), rounds=rounds, **options)
        (guarantee,) = made.claims[0].guarantees
        assert guarantee.total_epsilon == pytest.approx(total)
        assert f"({total:.3g}, 1e-05) for all" in made.claims[0].source


def test_a_budget_of_one_release_allows_one_epoch():
    outcome = simulate("wait_dp", data(), **NOISY | {"epsilon_budget": 5.0})
    assert len(outcome.losses) == outcome.protocol.layout.per_epoch


# -- each client counts what it releases -------------------------------------------------------

SECURE = SMALL | {"noise": "secure", "epsilon": 5.0}


class Averaging(Server):
    """A server that asks for the same rows again and again, to average the noise away."""

    asked = np.zeros(20, np.uint32)

    async def run(self):
        for number in (1, 2):
            self.announce(number, self.asked)
            uploads = await self.collect("embedding")
            for n, upload in uploads.items():
                self.send(n, "gradient", upload.map(np.zeros_like))
        self.conclude()


class Once(Averaging):
    asked = np.arange(20, dtype=np.uint32)


@pytest.mark.parametrize(
    ("server", "words", "answered"),
    [(Averaging, "times in one request", 0), (Once, "again, which it has released 1 times", 1)],
)
def test_every_client_refuses_a_server_that_averages_the_noise_away(server, words, answered):
    made = make("wait_dp", data(), **SECURE | {"epsilon_budget": 5.0})
    parties = made.parties()
    parties[SERVER].__class__ = server
    simulation = Simulation(parties, seed=0, conditions=NONE)
    with pytest.raises(PrivacyError, match=words):
        simulation.run()
    assert (simulation.transcript.columns()["kind"] == "embedding").sum() == 4 * answered
    for n in range(4):
        client, samples = made.client(n), made.layout.samples(server.asked)
        client.engine = simulation
        if answered:
            client.count(samples)
        with pytest.raises(PrivacyError, match=rf"client {n} .*{words}"):
            client.count(samples)


def test_counting_changes_nothing_of_an_honest_run():
    options = {"rounds": 50, "epsilon_budget": 8.0}
    costs = []
    for noise in ("seeded", "secure"):
        outcome = simulate("wait_dp", data(), **NOISY | options | {"noise": noise})
        costs.append([e.fields["epsilon_total"] for e in outcome.events if e.name == "round"])
        (stop,) = [event for event in outcome.events if event.name == "budget"]
        assert stop.fields["epsilon"] <= 8.0 < stop.fields["next"]
    assert costs[0] == costs[1]
    assert most_releases(outcome.parties[0].released) == outcome.protocol.limit == 2
    assert outcome.parties[0].released == outcome.parties[SERVER].released


def life(made, index, store, epoch):
    """A new life of a party, from its own checkpoint, on an engine that only writes."""
    party = made.parties()[index]
    saved = store.read()
    if saved is not None:
        restore(party, saved)
    party.epoch, party.engine = epoch, Writing(store)
    return party


class Writing:
    def __init__(self, store):
        self.store = store
        self.events = []

    def write_ahead(self, party):
        self.store.write_ahead(party.round, ahead(party))

    def record(self, party, event, fields):
        self.events.append((event, fields))


def test_no_resume_makes_a_client_release_a_row_once_more(tmp_path):
    made = make("wait_dp", data(), **SECURE | {"epsilon_budget": 5.0})
    store = CheckpointStore(tmp_path)
    client = life(made, 1, store, 0)
    store(client, lambda: snapshot(client, waits=0, time=0))  # of round 0
    client.round = 1
    client.count(made.layout.samples(made.layout.draw(1)))
    back = life(made, 1, store, 1)
    assert back.round == 0
    assert back.released == client.released != b""
    back.round = 1
    with pytest.raises(PrivacyError, match=r"client 1 .* before a crash or a resume count too"):
        back.count(made.layout.samples(made.layout.draw(1)))
    back.count(made.layout.samples(made.layout.draw(2)))


def test_a_resumed_server_counts_what_it_asked_for_twice_and_ends_in_time(tmp_path):
    two = gaussian_epsilon(noise_multiplier(5.0, 1e-5), 2, 1e-5)
    made = make("wait_dp", data(), **SECURE | {"rounds": 50, "epsilon_budget": two + 0.1})
    store, batch = CheckpointStore(tmp_path), made.layout.draw(1)
    server = life(made, SERVER, store, 0)
    store(server, lambda: snapshot(server, waits=0, time=0))
    for epoch in (1, 2):
        assert server.affordable(batch)
        server.round = 1
        server.count(batch)
        server = life(made, SERVER, store, epoch)
    assert server.spent() == pytest.approx(two)
    assert not server.affordable(batch)
    ((event, fields),) = server.engine.events
    assert event == "budget"
    assert fields["epsilon"] <= two + 0.1 < fields["next"]
    assert server.affordable(made.layout.draw(2))


def test_evaluation_clips_as_training_does_and_adds_no_noise():
    outcome = simulate("wait_dp", data(), **NOISY | {"clip": 0.3})
    test, parties = outcome.protocol.data.test, outcome.parties
    embeddings = [torch.from_numpy(bare_of(parties[n].network).forward(test[n])) for n in range(4)]
    assert max(e.norm(dim=1).max() for e in embeddings) > 0.3
    joint = torch.stack([clipped(e, 0.3) for e in embeddings]).mean(dim=0)
    wanted = bare_of(parties[SERVER].centre).scores(joint.numpy())
    np.testing.assert_allclose(outcome.protocol.scores(parties, test), wanted, atol=1e-5)


def test_what_is_not_covered_is_bounded_and_said():
    made = make("wait_dp", data(), **NOISY)
    told = made.describe()
    releases = 1 + 7 * 20  # from the first round on every row of every batch
    assert told["epsilon_through_weights"] == pytest.approx(
        gaussian_epsilon(noise_multiplier(5.0, 1e-5), releases, 1e-5)
    )
    assert told["epsilon_round"] < told["epsilon_all_rounds"] < told["epsilon_through_weights"]
    assert math.isfinite(told["epsilon_through_weights"])
    assert any("not covered" in words for words in made.card.deviations)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": 5.0, "epsilon_budget": 4.9}, "does not allow a single round"),
        ({"epsilon": 1e7}, "next to none"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_run(options, words):
    with pytest.raises(ConfigurationError, match=words):
        make("wait_dp", data(), **options)


def test_more_noise_learns_worse():
    loss = [
        np.mean(simulate("wait_dp", data(), **SMALL | {"rounds": 60}, epsilon=e).losses[-10:])
        for e in (1000.0, 0.5)
    ]
    assert loss[0] < loss[1]


# -- noise on gradients ------------------------------------------------------------------------


def gradients(outcome):
    """(client, round) to the gradient that was sent."""
    transcript = outcome.simulation.transcript
    sent = transcript.columns()
    return {
        (int(sent["receiver"][row]), int(sent["round"][row])): transcript.payloads[row]
        for row in np.flatnonzero(sent["kind"] == "gradient")
    }


GRADIENTS = NOISY | {"noise_on": "gradients", "gradient_clip": 0.3, "width": 16}


def test_what_clients_get_is_one_clipped_gradient_with_calibrated_noise():
    dataset = data()
    noisy = simulate("wait_dp", dataset, conditions=NONE, payloads=True, **GRADIENTS)
    plain = simulate("split", dataset, conditions=NONE, payloads=True, **SMALL | {"width": 16})
    sigma = noisy.protocol.describe()["gradient_sigma"]
    assert sigma == pytest.approx(2 * 0.3 * noise_multiplier(5.0, 1e-5))
    sent, clean = gradients(noisy), gradients(plain)
    for n in range(1, 4):
        assert (sent[n, 1] == sent[0, 1]).all()  # the same noise for all, who may pool
    own = torch.from_numpy(clean[0, 1] * 20 * 4)  # of a sample, and of the joint embedding
    assert own.norm(dim=1).max() > 0  # clipping shortens those above 0.3 alone
    noise = (sent[0, 1] * 20 * 4 - clipped(own, 0.3).numpy()) / sigma
    assert noise.size == 20 * 16
    # A true normal sample fails with probability 1e-6; the noise is seeded.
    assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-6
    rest = np.concatenate([sent[0, r].ravel() for r in range(2, 9)]) * 80 / sigma
    assert stats.kstest(rest, "norm").statistic < 0.1


def test_embeddings_are_then_sent_as_they_are():
    noisy = simulate("wait_dp", data(), conditions=NONE, payloads=True, **GRADIENTS)
    plain = simulate("split", data(), conditions=NONE, payloads=True, **SMALL | {"width": 16})
    one, two = embeddings(noisy), embeddings(plain)
    assert all((one[n, 1] == two[n, 1]).all() for n in range(4))


def test_a_changed_label_moves_one_row_of_the_first_gradient():
    """Per-sample sensitivity on the real code: what one row may change, and by how much."""
    dataset, options = data(), GRADIENTS | {"rounds": 1}
    layout = make("wait_dp", dataset, **options).layout
    place, row = 7, layout.samples(layout.draw(1))[7]
    first = gradients(simulate("wait_dp", dataset, conditions=NONE, payloads=True, **options))
    labels = dataset.train_labels.copy()
    labels[row] = (labels[row] + 1) % 10
    other = replace(dataset, train_labels=labels)
    second = gradients(simulate("wait_dp", other, conditions=NONE, payloads=True, **options))
    moved = np.abs(first[0, 1] - second[0, 1]).max(axis=1) > 0
    assert np.flatnonzero(moved).tolist() == [place]
    change = np.linalg.norm(first[0, 1][place] - second[0, 1][place]) * 20 * 4
    assert 0 < change <= 2 * 0.3 * (1 + 1e-3)


def test_gradients_cost_what_embeddings_do_and_a_run_ends_before_its_budget():
    two = gaussian_epsilon(noise_multiplier(5.0, 1e-5), 2, 1e-5)
    options = GRADIENTS | {"rounds": 50, "epsilon_budget": two + 0.1}
    outcome = simulate("wait_dp", data(), **options)
    rows = [event for event in outcome.events if event.name == "round"]
    assert len(rows) == 8
    assert rows[-1].fields["epsilon_total"] == pytest.approx(two)
    (stop,) = [event for event in outcome.events if event.name == "budget"]
    assert stop.fields["epsilon"] <= two + 0.1 < stop.fields["next"]


# -- randomised labels -------------------------------------------------------------------------


LABELS = SMALL | {"noise_on": "none", "label_epsilon": 1.0, "noise": "seeded"}


def test_labels_are_randomised_once_and_then_it_is_split_learning():
    dataset = data()
    outcome = simulate("wait_dp", dataset, conditions=NONE, **LABELS)
    server = outcome.parties[SERVER]
    said = bare_of(server.labels)
    kept = float((said == dataset.train_labels).mean())
    assert kept == pytest.approx(keep_probability(1.0, 10), abs=0.15)
    plain = simulate("split", replace(dataset, train_labels=said), conditions=NONE, **SMALL)
    assert outcome.losses == plain.losses
    fields = [event.fields for event in outcome.events if event.name == "round"]
    assert {f["epsilon_labels"] for f in fields} == {1.0}
    assert {f["epsilon_total"] for f in fields} == {0.0}


def test_a_resumed_run_does_not_answer_again():
    """A second answer would be a second release: labels are a part of the checkpoint."""
    dataset, options = data(), LABELS | {"noise": "secure"}
    saved, events = state_at("wait_dp", dataset, 8, **options)
    one, two = (resume_from("wait_dp", dataset, saved, events, **options) for _ in range(2))
    said = bare_of(one.parties[SERVER].labels)
    assert (said == bare_of(two.parties[SERVER].labels)).all()
    assert one.losses == two.losses
    assert (said != dataset.train_labels).any()
    assert (said != bare_of(simulate("wait_dp", dataset, **options).parties[SERVER].labels)).any()


def test_labels_of_two_classes_are_randomised_too():
    from securevfl.data import VerticalDataset

    rng = np.random.default_rng(1)
    features, labels = rng.random((80, 6)), (np.arange(80) % 2)
    dataset = VerticalDataset.from_numpy(
        features[:60],
        labels[:60],
        test_features=features[60:],
        test_labels=labels[60:],
        parties=3,
    )
    outcome = simulate("wait_dp", dataset, conditions=NONE, **LABELS)
    assert set(bare_of(outcome.parties[SERVER].labels).tolist()) == {0, 1}
    assert outcome.protocol.describe()["labels_kept"] == pytest.approx(math.e / (math.e + 1))


def test_claims_say_what_is_noised_and_against_whom():
    def notions(**options):
        made = make("wait_dp", data(), noise="secure", epsilon=5.0, **options)
        return {(c.who, c.about): c for c in made.claims}

    server, client = ("server", "features"), ("client", "labels")
    told = notions(noise_on="gradients")
    assert (told[server].notion, told[client].notion) == ("none", "differential")
    assert "given the weights and that training ends" in told[client].source
    told = notions(noise_on="both", label_epsilon=2.0)
    assert (told[server].notion, told[client].notion) == ("differential", "differential")
    assert told[client].source.startswith("(2, 0) for the whole training")
    told = notions(noise_on="none", label_epsilon=2.0)
    assert (told[server].notion, told[client].notion) == ("none", "differential")
    seeded = make("wait_dp", data(), noise="seeded", noise_on="both", label_epsilon=2.0)
    assert {c.notion for c in seeded.claims} == {"none"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"noise_on": "none"}, "needs label_epsilon"),
        (
            {"noise_on": "gradients", "centre": "batch_norm_mlp"},
            "not so of .batch_norm",
        ),
        ({"noise_on": "both", "aggregation": "max"}, "who had the largest entry"),
        ({"label_epsilon": 6.0, "epsilon": 1.0, "epsilon_budget": 5.0}, "costs epsilon = 6"),
    ],
)
def test_mechanisms_whose_cost_would_not_be_what_is_said_are_refused(options, words):
    with pytest.raises(ConfigurationError, match=words):
        make("wait_dp", data(), **options)


def test_real_targets_have_no_randomised_response():
    from securevfl.data import VerticalDataset

    rows = np.random.default_rng(0).random((40, 4))
    dataset = VerticalDataset.from_numpy(
        rows[:30], rows[:30, 0], test_features=rows[30:], test_labels=rows[30:, 0], parties=2
    )
    assert dataset.task == "regression"
    with pytest.raises(ConfigurationError, match="needs classes"):
        make("wait_dp", dataset, label_epsilon=1.0)
    make("wait_dp", dataset, noise_on="gradients")


def test_a_delta_that_the_noise_cannot_keep_is_refused():
    with pytest.raises(ConfigurationError, match="delta"):
        make("wait_dp", data(), delta=1e-12)


# -- proofs ------------------------------------------------------------------------------------


def proved(fresh=False, conditions=NONE, **options):
    """Verdicts by coalition, at three clients; under one schedule where conditions are given."""
    traced = Traced("wait_dp", options, parties=3)
    proof = prove_protocol(traced, conditions=conditions, fresh=fresh)
    return {v.claim: v for v in proof.verdicts}


def test_what_the_server_sees_costs_what_the_claim_says():
    found = proved(fresh=True)["server"]
    made = make(
        "wait_dp", data(), rounds=3, batch=45, noise="secure", epsilon=5.0
    )  # two rounds an epoch, as in the trace
    (paid,) = made.claims[0].guarantees
    assert (found.verdict, found.releases) == ("DP", 12)  # a server that comes back repeats one
    assert f"({paid.total_epsilon:.4g}, {paid.delta:g}) for one row" in found.scope
    assert found.outputs == ("loss 1", "loss 2", "loss 3", "loss 4")


def test_noise_on_gradients_is_for_the_clients_and_the_server_sees_the_embeddings():
    found = proved(noise_on="gradients", centre="mlp")
    assert found["clients 0, 1, 2"].releases == 3
    assert found["clients 0, 1, 2"].clear == ("loss 1", "loss 2", "loss 3", "loss 4")
    assert not any("gradient" in name for name in found["client 0"].outputs)
    assert "embedding 1 of 2" in found["server"].outputs
    assert found["server"].releases == 0


def test_labels_are_released_once_and_gradients_are_made_of_them():
    found = proved(noise_on="both", label_epsilon=2.0, centre="mlp", rounds=2)
    assert found["clients 0, 1, 2"].releases == 3
    assert "(2, 0) for one label of the server" in found["clients 0, 1, 2"].price
    assert "label" not in found["server"].price


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_what_has_seeded_noise_is_sent_as_it_is(mechanism):
    options = {"noise_on": "both", "label_epsilon": 2.0, "centre": "mlp", "mechanism": mechanism}
    found = proved(conditions=slow(of=3), noise="seeded", rounds=1, **options)
    assert {(v.verdict, v.releases) for v in found.values()} == {("NOT PROTECTED", 0)}
    assert {"embedding 1 of 0", "embedding 1 of 1"} <= set(found["server + client 2"].clear)
    assert "gradient 1 of 0" in found["client 0"].clear


def eighth(client, H, samples):
    C, sigma = client.privacy.clip, client.privacy.sigma / 8
    return client.gaussian(H.clip(C), sigma, name=f"embedding {client.round}", rows=samples)


def as_it_is(client, H, samples):
    return H


def reused(client, H, samples):
    if not hasattr(client, "last"):
        client.last = client.gaussian(H.clip(client.privacy.clip), client.privacy.sigma)
    return client.last.map(np.add, H)


def twice(client, H, samples):
    C, sigma = client.privacy.clip, client.privacy.sigma
    one = client.gaussian(H.clip(C), sigma, name=f"embedding {client.round}", rows=samples)
    two = client.gaussian(H.clip(C), sigma, name="again", rows=samples)
    return one.map(np.add, two)


def test_less_noise_costs_more(monkeypatch):
    monkeypatch.setattr(Client, "release", eighth)
    wanted = gaussian_epsilon(noise_multiplier(5.0, 1e-5) / 8, 1, 1e-5)
    assert f"({wanted:.4g}, 1e-05)" in proved(rounds=1)["server"].price


def test_two_releases_of_a_row_are_counted(monkeypatch):
    monkeypatch.setattr(Client, "release", twice)
    wanted, found = gaussian_epsilon(noise_multiplier(5.0, 1e-5), 2, 1e-5), proved(rounds=1)
    assert found["server"].releases == 12  # of two rounds, where the server comes back
    assert f"({wanted:.4g}, 1e-05)" in found["server"].price


@pytest.mark.parametrize("fault", [as_it_is, reused])
def test_a_mistake_of_a_client_is_not_endorsed(monkeypatch, fault):
    monkeypatch.setattr(Client, "release", fault)
    try:
        found = proved(conditions=slow(of=3), rounds=2)
    except FlowError:
        return
    assert {v.verdict for v in found.values()} <= {"NOT PROVED", "VIOLATED"}


def test_exact_labels_are_not_endorsed(monkeypatch):
    async def exact(server):
        server.randomised(server.labels, server.classes, server.privacy.labels)

    monkeypatch.setattr(Server, "setup", exact)
    options = {"noise_on": "none", "label_epsilon": 1.0, "rounds": 1}
    found = verdict_on("client 0", "wait_dp", options, parties=3)
    assert found.verdict in ("NOT PROVED", "VIOLATED")


def test_losses_of_the_history_have_no_noise_and_that_is_said():
    found = proved(noise_on="gradients", centre="mlp", rounds=1)["client 0"]
    said = "NOT PROTECTED: loss 1, loss 2 are sent as they are; 1 releases with noise"
    assert found.scope.startswith(said)
    labels = make("wait_dp", data(), noise_on="gradients", noise="secure").claims[-1]
    assert "the losses of the history" in labels.source
