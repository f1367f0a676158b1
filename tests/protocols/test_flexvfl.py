"""Flex-VFL against its algorithm written down once more, in torch."""

import pytest
import torch

from securevfl.engine.conditions import NONE
from securevfl.engine.network import SERVER
from securevfl.errors import ConfigurationError
from securevfl.runs.threads import one_thread
from securevfl.testing.runs import make, simulate
from securevfl.verified import bare_of
from tests.protocols.joint import Client, aggregate, data, loss_of

OPTIONS = {"rounds": 6, "batch": 20, "width": 5, "hidden": 7, "optimizer": "sgd", "momentum": 0.0}
STEPS = (1, 4, 2)


def oracle(dataset, options):
    """Losses of the server's first step of each round."""
    made = make("flexvfl", dataset, **options)
    parties, config = made.parties(), made.config
    centre = bare_of(parties[SERVER].centre).network
    step = torch.optim.SGD(centre.parameters(), lr=config.lr)
    networks = [bare_of(parties[n].network) for n in made.peers()]
    clients = [Client(network, config.degree, config.lr) for network in networks]
    losses = []
    for r in range(1, config.rounds + 1):
        samples = made.layout.samples(made.layout.draw(r))
        labels = dataset.train_labels[samples]
        rows = [dataset.train[n][samples] for n in made.peers()]
        told = {n: client.embed(rows[n]).detach() for n, client in enumerate(clients)}
        for n, client in enumerate(clients):
            for _ in range(STEPS[n]):
                H = aggregate(config.aggregation, told | {n: client.embed(rows[n])}, len(clients))
                client.optimizer.zero_grad()
                loss_of(centre, H, labels).backward()
                client.optimizer.step()
        H = aggregate(config.aggregation, told, len(clients))
        for number in range(max(STEPS)):
            loss = loss_of(centre, H, labels)
            losses += [loss.item()] * (number == 0)
            step.zero_grad()
            loss.backward()
            step.step()
    return losses


@pytest.mark.parametrize("rule", ["mean", "concat"])
def test_each_round_is_the_papers(rule):
    own = OPTIONS | {"aggregation": rule, "lr": 0.1, "local_steps": ",".join(map(str, STEPS))}
    outcome = simulate("flexvfl", data(3), conditions=NONE, **own)
    with one_thread():
        wanted = oracle(data(3), own)
    assert outcome.losses == pytest.approx(wanted, rel=1e-4)
    assert wanted[-1] < wanted[0]


def test_numbers_of_steps_are_one_for_all_or_one_for_each():
    with pytest.raises(ConfigurationError, match="has 2 numbers, and there are 3 clients"):
        make("flexvfl", data(3), local_steps="1,2")
