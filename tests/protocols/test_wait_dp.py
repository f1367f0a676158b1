import math

import numpy as np
import pytest
import torch
from joint import data, powers
from scipy import stats

from securevfl.engine.conditions import NONE
from securevfl.engine.network import SERVER
from securevfl.errors import ConfigurationError
from securevfl.privacy.accountant import gaussian_epsilon, noise_multiplier
from securevfl.testing.runs import make, simulate

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
        raw = powers(dataset.train[n][samples], 2) @ fresh[n].network.weight
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
    weight = made.parties()[2].network.weight.detach().clone().requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    rows = np.flatnonzero((sent["kind"] == "gradient") & (sent["receiver"] == 2))
    for round, row in enumerate(rows, 1):
        own = dataset.train[2][made.layout.samples(made.layout.draw(round))]
        optimizer.zero_grad()
        clipped(powers(own, 2) @ weight, bound).backward(torch.from_numpy(transcript.payloads[row]))
        optimizer.step()
    trained = outcome.parties[2].network.values
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
    from securevfl.protocols.wait_dp import WaitDP, WaitDPConfig

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
    assert outcome.simulation.finished
    secure = make("wait_dp", data(), rounds=50, noise="secure", epsilon=5.0, epsilon_budget=7.25)
    assert "(7.25, 1e-05) for all" in secure.claims[0].source


def test_a_budget_of_one_release_allows_one_epoch():
    outcome = simulate("wait_dp", data(), **NOISY | {"epsilon_budget": 5.0})
    assert len(outcome.losses) == outcome.protocol.layout.per_epoch


def test_evaluation_clips_as_training_does_and_adds_no_noise():
    outcome = simulate("wait_dp", data(), **NOISY | {"clip": 0.3})
    test, parties = outcome.protocol.data.test, outcome.parties
    embeddings = [torch.from_numpy(parties[n].network.forward(test[n])) for n in range(4)]
    assert max(e.norm(dim=1).max() for e in embeddings) > 0.3
    joint = torch.stack([clipped(e, 0.3) for e in embeddings]).mean(dim=0)
    wanted = parties[SERVER].centre.scores(joint.numpy())
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
