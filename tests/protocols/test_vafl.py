"""VAFL against its algorithm written down once more, arrival by arrival."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from securevfl.engine.conditions import NONE, Conditions, Delay, paper
from securevfl.engine.faults import Chain, Faults, Outage
from securevfl.engine.network import SERVER
from securevfl.errors import StalledError
from securevfl.runs.threads import one_thread
from securevfl.testing.runs import make, simulate
from securevfl.verified import bare_of
from tests.protocols.joint import aggregate, data, loss_of, slow

SMALL = {"rounds": 25, "batch": 20, "width": 5, "hidden": 7, "optimizer": "sgd", "momentum": 0.0}


def arrivals(outcome):
    return [event.fields["client"] for event in outcome.events if event.name == "round"]


def oracle(dataset, order, options):
    """Losses when the clients' embeddings arrive in this order."""
    made = make("vafl", dataset, **options)
    parties, config = made.parties(), made.config
    centre = bare_of(parties[SERVER].centre).network
    step = torch.optim.SGD(centre.parameters(), lr=config.lr)
    last = [{} for _ in range(dataset.parties)]  # of each client: sample -> embedding
    rounds, losses = [0] * dataset.parties, []
    for n in order:
        rounds[n] += 1
        client = parties[n]
        network = bare_of(client.network)
        samples = client.batches.samples(client.batches.draw(rounds[n]))
        samples = samples[samples >= 0]
        own = bare_of(client.features)[samples]
        embedding = torch.from_numpy(network.forward(own)).requires_grad_()
        joint = []
        for i, sample in enumerate(samples.tolist()):
            last[n][sample] = embedding[i]
            here = {m: last[m][sample][None] for m in range(dataset.parties) if sample in last[m]}
            joint.append(aggregate(config.aggregation, here, dataset.parties))
        loss = loss_of(centre, torch.cat(joint), dataset.train_labels[samples])
        step.zero_grad()
        loss.backward()
        step.step()
        network.update(own, embedding.grad.numpy())
        for sample in samples.tolist():
            last[n][sample] = last[n][sample].detach()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("rule", ["mean", "concat", "max"])
@pytest.mark.parametrize("segments", [1, 4])  # 4 does not divide the 90 rows
def test_each_arrival_is_the_papers_step(rule, segments):
    dataset = data()
    options = SMALL | {"aggregation": rule, "lr": 0.1, "segments": segments}
    conditions = Conditions(uploads=tuple(Delay(m) for m in (0.1, 0.3, 0.2, 1.0)))
    outcome = simulate("vafl", dataset, conditions=conditions, **options)
    order = arrivals(outcome)
    assert len(set(order)) == 4
    assert order != sorted(order)
    with one_thread():
        wanted = oracle(dataset, order, options)
    assert outcome.losses == pytest.approx(wanted, rel=1e-4)


def test_nobody_waits_for_a_slow_client():
    outcome = simulate("vafl", data(), conditions=slow(2), **SMALL)
    assert set(arrivals(outcome)) == {0, 1, 3}
    steps = [event for event in outcome.events if event.name == "round"]
    assert steps[-1].time == 0
    late = outcome.simulation.transcript.columns()
    late = late["sender"][(late["kind"] == "embedding") & (late["late"] == 1)]
    assert 2 in late.tolist()
    assert outcome.simulation.finished


def test_links_that_lose_messages_stop_it_only_without_a_timeout():
    faults = Faults({"link": Chain(0.3, 0.5)})
    options = SMALL | {"rounds": 60}
    with pytest.raises(StalledError, match=r"lost last: '(gradient|embedding)' of round"):
        simulate("vafl", data(), conditions=NONE, faults=faults, **options)
    outcome = simulate("vafl", data(), conditions=NONE, faults=faults, timeout=0.7, **options)
    assert len(outcome.losses) == 60
    assert set(arrivals(outcome)) == {0, 1, 2, 3}
    lost = [event for event in outcome.events if event.name == "lost"]
    assert {event.fields["kind"] for event in lost} >= {"embedding", "gradient"}


def test_clients_of_a_server_that_is_gone_do_not_go_on_for_ever():
    faults = Faults(outages=(Outage(SERVER, rounds=(3, math.inf)),))
    # Arrivals one after the other: those of one instant are steps before the outage strikes.
    apart = Conditions(uploads=tuple(Delay(0.0, s) for s in (0.010, 0.013, 0.017, 0.019)))
    with pytest.raises(StalledError, match="the server has been down since round 3") as caught:
        simulate("vafl", data(), conditions=apart, faults=faults, timeout=0.1, **SMALL)
    assert "waits for 'gradient' or 'stop'" in str(caught.value)


def test_with_all_messages_in_time_a_timeout_changes_nothing():
    one, two = (simulate("vafl", data(), conditions=NONE, timeout=t, **SMALL) for t in (None, 9.0))
    assert one.losses == two.losses


def test_what_is_known_of_a_batch_grows_to_all_of_it():
    options = SMALL | {"rounds": 120, "batch": 30}
    outcome = simulate("vafl", data(), conditions=NONE, **options)
    known = [event.fields["known"] for event in outcome.events if event.name == "round"]
    assert known[0] == 0.25  # the first arrival's own
    assert known[-1] == 1.0
    assert (bare_of(outcome.parties[SERVER].last).version[:, :-1] >= 0).all()


def test_a_client_draws_batches_of_its_own_from_the_common_layout():
    made = make("vafl", data(), **SMALL)
    parties = made.parties()
    everything = np.arange(parties[SERVER].batches.length)
    layout = parties[SERVER].batches.samples(everything)
    drawn = []
    for n in range(4):
        batches = parties[n].batches
        assert (batches.samples(everything) == layout).all()
        drawn.append(batches.draw(1).tolist())
    assert len({tuple(batch) for batch in drawn}) == 4


def test_its_own_round_meets_the_delay_that_other_protocols_meet_in_that_round():
    # One factor differs between the two: nothing but who waits for whom.
    conditions = replace(paper(4, batch_rows=20), bandwidth=None)
    for protocol in ("vafl", "split"):
        outcome = simulate(protocol, data(), conditions=conditions, seed=6, **SMALL)
        sent = outcome.simulation.transcript.columns()
        rows = np.flatnonzero(sent["kind"] == "embedding")
        assert len(rows) >= 25
        for row in rows:
            n, round = int(sent["sender"][row]), int(sent["round"][row])
            wanted = conditions.delay(6, n, round, "upload")
            assert sent["arrived"][row] - sent["sent"][row] == wanted


def test_a_round_is_an_arrival_and_memory_counts_the_table():
    outcome = simulate("vafl", data(), **SMALL)
    assert [e.round for e in outcome.events if e.name == "round"] == list(range(1, 26))
    made, server = outcome.protocol, outcome.parties[SERVER]
    assert made.memory() > bare_of(server.last).nbytes
    wider = make("vafl", data(), **SMALL | {"width": 10})
    rows = 4 * 91 * 4 * 5
    assert wider.memory() - made.memory() >= rows


def test_it_learns_while_half_of_the_clients_straggle():
    from securevfl.models.split import measure

    dataset = data(4, 400)
    outcome = simulate("vafl", dataset, rounds=400, batch=50, width=16, hidden=16)
    made = outcome.protocol
    measures = measure(
        "multiclass", made.scores(outcome.parties, dataset.test), dataset.test_labels
    )
    assert measures["accuracy"] > 0.7
