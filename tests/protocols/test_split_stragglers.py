"""Wait and Ignore with each aggregation, against one joint torch model."""

import numpy as np
import pytest
import torch

from securevfl.engine.conditions import NONE
from securevfl.engine.network import SERVER
from securevfl.errors import ConfigurationError, RangeError
from securevfl.models.polynomial_network import PolynomialNetwork, expand
from securevfl.models.split import measure
from securevfl.runs.threads import one_thread
from securevfl.testing.runs import make, simulate
from securevfl.verified import bare_of
from tests.protocols.joint import Client, aggregate, data, loss_of, slow, strips

SMALL = {"rounds": 6, "batch": 20, "width": 5, "hidden": 7, "optimizer": "sgd", "momentum": 0.0}
RULES = ("mean", "concat", "max")


def oracle(dataset, used, options):
    """Losses and clients of plain joint training in which the clients `used` take part."""
    made = make("split", dataset, **options)
    parties, config = made.parties(), made.config
    clients = {n: Client(bare_of(parties[n].network), config.degree, config.lr) for n in used}
    centre = bare_of(parties[SERVER].centre).network
    step = torch.optim.SGD(centre.parameters(), lr=config.lr)
    losses = []
    for round in range(1, config.rounds + 1):
        samples = made.layout.samples(made.layout.draw(round))
        embeddings = {n: clients[n].embed(dataset.train[n][samples]) for n in used}
        joint = aggregate(config.aggregation, embeddings, dataset.parties)
        loss = loss_of(centre, joint, dataset.train_labels[samples])
        optimizers = [step, *(client.optimizer for client in clients.values())]
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return losses, clients


@pytest.mark.parametrize("client", ["pn", "mlp", "cnn"])
@pytest.mark.parametrize("rule", RULES)
def test_waiting_is_joint_training(rule, client):
    dataset = strips()
    options = SMALL | {"aggregation": rule, "client": client, "lr": 0.1}
    outcome = simulate("split", dataset, conditions=NONE, **options)
    with one_thread():
        losses, _ = oracle(dataset, range(4), options)
    assert outcome.losses == pytest.approx(losses, rel=1e-4)


@pytest.mark.parametrize("rule", RULES)
def test_ignoring_is_joint_training_of_those_that_are_used(rule):
    dataset = data()
    options = SMALL | {"aggregation": rule, "stragglers": "ignore", "lr": 0.1}
    outcome = simulate("split", dataset, conditions=slow(0, 2), **options)
    with one_thread():
        losses, clients = oracle(dataset, (1, 3), options)
    assert outcome.losses == pytest.approx(losses, rel=1e-4)
    for n in (1, 3):
        trained = bare_of(outcome.parties[n].network).values
        np.testing.assert_allclose(trained, clients[n].weight.detach().numpy(), atol=1e-5)
    fresh = outcome.protocol.parties()
    for n in (0, 2):
        networks = (bare_of(one[n].network).values for one in (outcome.parties, fresh))
        np.testing.assert_array_equal(*networks)


def test_gradients_go_to_those_used_and_the_others_are_late():
    outcome = simulate("split", data(), conditions=slow(0), stragglers="ignore", quorum=3, **SMALL)
    sent = outcome.simulation.transcript.columns()
    gradients = sent["receiver"][sent["kind"] == "gradient"]
    assert np.bincount(gradients, minlength=4).tolist() == [0, 6, 6, 6]
    embeddings = sent["kind"] == "embedding"
    late = sent["sender"][embeddings & (sent["late"] == 1)]
    assert late.tolist() == [0] * 6
    assert [e.fields["used"] for e in outcome.events if e.name == "round"] == [3] * 6
    assert outcome.parties[SERVER].answered.tolist() == [0, 6, 6, 6]


@pytest.mark.parametrize(("parties", "quorum"), [(4, 2), (5, 3), (7, 4)])
def test_the_quorum_is_n_less_half_of_n_unless_given(parties, quorum):
    made = make("split", data(parties), stragglers="ignore")
    assert made.describe()["quorum"] == quorum
    assert made.card.absence == "skips"
    assert make("split", data(parties), stragglers="ignore", quorum=1).quorum == 1
    waiting = make("split", data(parties))
    assert (waiting.quorum, waiting.card.absence) == (parties, "waits")


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("inference", ["responders", "all"])
def test_evaluation_uses_those_that_were_used_most_or_all(rule, inference):
    dataset = data()
    options = {"aggregation": rule, "stragglers": "ignore", "inference": inference}
    outcome = simulate("split", dataset, conditions=slow(0, 3), **SMALL, **options)
    used = (1, 2) if inference == "responders" else range(4)
    networks = {n: bare_of(outcome.parties[n].network) for n in used}
    embeddings = {n: torch.from_numpy(networks[n].forward(dataset.test[n])) for n in used}
    joint = aggregate(rule, embeddings, 4).numpy()
    wanted = bare_of(outcome.parties[SERVER].centre).scores(joint)
    np.testing.assert_allclose(
        outcome.protocol.scores(outcome.parties, dataset.test), wanted, atol=1e-5
    )


def test_equally_used_clients_count_by_their_number():
    made = make("split", data(), stragglers="ignore")
    parties = made.parties()
    assert made.evaluated(parties) == [0, 1]
    parties[SERVER].answered[:] = [1, 2, 2, 2]
    assert made.evaluated(parties) == [1, 2]


def test_a_mean_over_all_would_have_another_scale():
    # Why "responders" is the default: what the centre was trained on is what it is tested on.
    dataset = data(4, 400)
    options = {"rounds": 150, "batch": 50, "stragglers": "ignore", "width": 16, "hidden": 16}
    scores = {}
    for inference in ("responders", "all"):
        outcome = simulate("split", dataset, conditions=slow(0, 2), inference=inference, **options)
        made = outcome.protocol
        scores[inference] = measure(
            "multiclass", made.scores(outcome.parties, dataset.test), dataset.test_labels
        )["accuracy"]
    assert scores["responders"] > scores["all"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"quorum": 2}, "needs stragglers = 'ignore'"),
        ({"stragglers": "ignore", "quorum": 5}, "at most 4 clients"),
        ({"quantized": True, "client": "mlp"}, "needs polynomial clients"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_run(options, words):
    with pytest.raises(ConfigurationError, match=words):
        make("split", data(), **options)


def test_convolutions_need_parties_with_whole_strips():
    with pytest.raises(ConfigurationError, match="whole strips"):
        make("split", data(7), client="cnn")


def test_rounding_works_on_what_is_used():
    options = SMALL | {"stragglers": "ignore", "quantized": True}
    rounded = simulate("split", data(), conditions=slow(0), **options)
    real = simulate("split", data(), conditions=slow(0), **options | {"quantized": False})
    assert isinstance(bare_of(rounded.parties[0].network), PolynomialNetwork)
    assert rounded.losses == pytest.approx(real.losses, rel=1e-3)
    coarse = simulate("split", data(), conditions=slow(0), data_bits=3, model_bits=3, **options)
    changes = np.abs(np.subtract(coarse.losses, real.losses)) / real.losses
    assert 1e-4 < changes.max() < 0.1  # float32 is off by 1e-7


def test_rounded_embeddings_are_the_quotients_of_integers():
    options = SMALL | {"quantized": True, "data_bits": 6, "model_bits": 7}
    made = make("split", data(), **options)
    client = made.parties()[0]
    network = bare_of(client.network)
    whole = np.round(network.values * 2.0**7) / 2.0**7
    network.weight.data[:] = torch.from_numpy(whole)  # such weights are not rounded again
    rows = bare_of(client.features)[:9]
    powers = np.floor(expand(rows, network.degree).astype(np.float64) * 2**6 + 0.5) / 2**6
    assert (powers != expand(rows, network.degree)).any()
    found = bare_of(client.embed(np.arange(9)))
    assert (found == powers @ whole.astype(np.float64)).all()


def test_clients_state_the_operations_of_a_batch():
    made = make("split", strips(), client="mlp", batch=20, width=5, segments=2)
    client = made.parties()[0]
    assert client.operations("embedding") == 20 * (16 * 5 + 5 * 5)
    assert client.operations("gradient") == 0


def test_rounded_products_that_could_leave_int64_are_refused():
    rounded = {"quantized": True, "client": "pn"}
    exact = simulate("split", conditions=NONE, data_bits=20, model_bits=24, **rounded)
    assert np.isfinite(exact.losses).all()
    with pytest.raises(RangeError, match="Lower data_bits \\(40\\) or model_bits \\(40\\)"):
        simulate("split", conditions=NONE, data_bits=40, model_bits=40, **rounded)
