"""VFB2 against its algorithm written down once more, launch by launch."""

import numpy as np
import pytest
import torch

from securevfl.engine.conditions import NONE
from securevfl.engine.faults import Faults, Outage
from securevfl.engine.network import SERVER
from securevfl.errors import RunError
from securevfl.models.split import measure
from securevfl.runs.threads import one_thread
from securevfl.testing.runs import make, simulate
from securevfl.verified import bare_of
from tests.protocols.joint import Client, data, loss_of, slow

N, ROUNDS = 4, 9
SMALL = {"rounds": ROUNDS, "batch": 20, "width": 5, "hidden": 7, "optimizer": "sgd"}
SMALL |= {"momentum": 0.0, "lr": 0.1}


def steps(outcome):
    return [event for event in outcome.events if event.name == "round"]


def oracle(dataset, options, gone=()):
    """Losses and clients; `gone` holds (client, launch) whose outputs do not come."""
    made = make("vfb2", dataset, **options)
    parties, config = made.parties(), made.config
    clients = {n: Client(bare_of(parties[n].network), config.degree, config.lr) for n in range(N)}
    centre = bare_of(parties[SERVER].centre).network
    step = torch.optim.SGD(centre.parameters(), lr=config.lr)
    samples = [made.layout.samples(made.layout.draw(r)) for r in range(1, ROUNDS + 1)]
    samples = [each[each >= 0] for each in samples]

    def outputs(r):
        return {n: clients[n].embed(dataset.train[n][samples[r - 1]]).detach() for n in range(N)}

    under_way = {r: outputs(r) for r in range(1, min(config.threads, ROUNDS) + 1)}
    losses = []
    for r in range(1, ROUNDS + 1):
        found = {n: h for n, h in under_way.pop(r).items() if (n, r) not in gone}
        joint = sum(found.values()).requires_grad_()
        loss = loss_of(centre, joint, dataset.train_labels[samples[r - 1]])
        step.zero_grad()
        loss.backward()
        step.step()
        for n in found:
            clients[n].optimizer.zero_grad()
            clients[n].embed(dataset.train[n][samples[r - 1]]).backward(joint.grad)
            clients[n].optimizer.step()
        losses.append(loss.item())
        if r + config.threads <= ROUNDS:
            under_way[r + config.threads] = outputs(r + config.threads)
    return losses, clients


def assert_same(outcome, losses, clients):
    assert outcome.losses == pytest.approx(losses, rel=1e-4)
    for n in range(N):
        network = bare_of(outcome.parties[n].network)
        if hasattr(network, "values"):
            wanted = clients[n].weight.detach().numpy()
            np.testing.assert_allclose(network.values, wanted, atol=1e-5)


@pytest.mark.parametrize("segments", [1, 4])  # 4 does not divide the 90 rows
@pytest.mark.parametrize("client", ["pn", "mlp"])
@pytest.mark.parametrize("threads", [1, 2, 4, 20])
def test_each_launch_is_the_papers_step(threads, client, segments):
    options = SMALL | {"threads": threads, "client": client, "segments": segments}
    outcome = simulate("vfb2", data(N), conditions=NONE, **options)
    with one_thread():
        assert_same(outcome, *oracle(data(N), options))


def test_one_thread_is_split_training_of_the_sum():
    # With mean aggregation dL/dH is N times smaller and H too: a centre sees another scale, so
    # the twin is one client alone, for which sum and mean are the same.
    options = SMALL | {"optimizer": "adam", "momentum": 0.9}
    one = simulate("vfb2", data(1), conditions=NONE, threads=1, **options)
    two = simulate("split", data(1), conditions=NONE, **options)
    assert one.losses == two.losses


def test_launches_are_under_way_at_once_and_updates_are_not_waited_for():
    outcome = simulate("vfb2", data(N), conditions=slow(1, seconds=3.0), threads=3, **SMALL)
    sent = outcome.simulation.transcript.columns()
    asked = {
        int(r): t / 1e9
        for k, r, t in zip(sent["kind"], sent["round"], sent["sent"], strict=True)
        if k == "request"
    }
    assert [asked[r] for r in range(1, 8)] == [0, 0, 0, 3, 3, 3, 6]
    assert [event.time / 1e9 for event in steps(outcome)] == [3, 3, 3, 6, 6, 6, 9, 9, 9]


def test_who_is_missing_is_left_out_and_gets_no_theta():
    outages = (Outage(2, rounds=(2, 4)), Outage(0, rounds=(3, 4)))
    options = SMALL | {"threads": 1, "timeout": 0.7}
    outcome = simulate("vfb2", data(N), conditions=NONE, faults=Faults(outages=outages), **options)
    rows = steps(outcome)
    gone = {(2, 2), (2, 3), (0, 3)}
    assert [row.fields["absent"] for row in rows] == [
        sum(r == row.round for _, r in gone) for row in rows
    ]
    sent = outcome.simulation.transcript.columns()
    thetas = np.bincount(sent["receiver"][sent["kind"] == "gradient"], minlength=N)
    assert thetas.tolist() == [ROUNDS - sum(n == m for m, _ in gone) for n in range(N)]


def test_a_slow_client_is_left_out_of_every_sum():
    options = SMALL | {"timeout": 0.5}
    outcome = simulate("vfb2", data(N), conditions=slow(3), threads=1, **options)
    with one_thread():
        gone = {(3, r) for r in range(1, ROUNDS + 1)}
        assert_same(outcome, *oracle(data(N), options | {"threads": 1}, gone))
    assert {row.fields["used"] for row in steps(outcome)} == {3}
    late = outcome.simulation.transcript.columns()
    assert set(late["sender"][late["late"] == 1].tolist()) == {3}


def test_launches_without_anybody_are_skipped_and_a_run_of_them_is_an_error():
    for_a_while = Faults(outages=tuple(Outage(n, rounds=(3, 5)) for n in range(N)))
    outcome = simulate("vfb2", data(N), faults=for_a_while, conditions=NONE, timeout=0.7, **SMALL)
    skipped = [event.round for event in outcome.events if event.name == "skipped"]
    assert skipped
    assert len(outcome.losses) == ROUNDS - len(skipped)
    for_good = Faults(outages=tuple(Outage(n, rounds=(0, 99)) for n in range(N)))
    with pytest.raises(RunError, match=r"In none of 9 rounds .* within 0.7 s.*party 0, party 1"):
        simulate("vfb2", data(N), faults=for_good, timeout=0.7, **SMALL)


def test_a_dominator_that_comes_back_goes_on():
    outage = Faults(outages=(Outage(SERVER, rounds=(3, 5)),))
    outcome = simulate("vfb2", data(N), faults=outage, conditions=NONE, timeout=0.7, **SMALL)
    done = len(outcome.losses) + sum(event.name == "skipped" for event in outcome.events)
    assert done == ROUNDS
    assert outcome.parties[SERVER].epoch == 1


def test_it_learns():
    dataset = data(4, 600)
    outcome = simulate("vfb2", dataset, rounds=300, batch=50, width=16, hidden=16)
    made = outcome.protocol
    scores = made.scores(outcome.parties, dataset.test)
    assert measure("multiclass", scores, dataset.test_labels)["accuracy"] > 0.75
    assert made.card.absence == "waits"
    assert make("vfb2", dataset, timeout=1.0).card.absence == "skips"
