"""FedOnce: its phases written down once more, one communication, and nothing of labels."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from securevfl.data.overlap import limit_overlap
from securevfl.engine import wire
from securevfl.engine.conditions import NONE, Conditions
from securevfl.engine.faults import Faults, Outage
from securevfl.engine.network import SERVER
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import ConfigurationError, RunError, UndeclaredMessageError
from securevfl.models.split import measure
from securevfl.protocols.base.messages import MessageSpec
from securevfl.protocols.fedonce import FedOnce, Guest, Server, table_of
from securevfl.runs.threads import one_thread
from securevfl.testing.runs import History, make, simulate
from securevfl.verified import FlowError, bare_of
from securevfl.verified.traced.proofs import Traced, prove_protocol
from tests.protocols.faulty import verdict_on
from tests.protocols.joint import data, loss_of, slow

N = 4
SMALL = {"rounds": 9, "batch": 20, "width": 5, "hidden": 7, "guest_hidden": 6, "degree": 2}
SMALL |= {"optimizer": "sgd", "momentum": 0.0, "lr": 0.1, "local_rounds": 14, "reassign": 2}
ZEROS = {"absent": "zeros", "timeout": 0.7}


def test_a_run_that_is_cut_in_training_ends_as_the_unbroken_one():
    whole = simulate("fedonce", data(), **SMALL)
    made, states = make("fedonce", data(), **SMALL), []

    class Cutter(History):
        def record(self, event):
            super().record(event)
            if event.fields.get("step") == 3:
                simulation.request_state(lambda state: states.append(wire.encode(state)))

    simulation = Simulation(made.parties(), observer=Cutter())
    with one_thread():
        simulation.run(lambda: bool(states))
        again = History()
        cut = Simulation.from_state(made.parties(), wire.decode(states[0]), observer=again)
        cut.run()
    steps = [(e.fields["step"], e.round) for e in again.events if e.name == "round"]
    wanted = [(e.fields["step"], e.round) for e in whole.events if e.name == "round"]
    assert steps
    assert steps == wanted[-len(steps) :]


def rows_of_run(outcome):
    return [event.fields for event in outcome.events if event.name == "round"]


def table_in(outcome):
    """Representations of all rows, as the server has them."""
    server = outcome.parties[SERVER]
    return bare_of(table_of(server.layout, server.received, outcome.protocol.data.rows))


def oracle_of_guest(guest, config):
    """A guest's local training in torch: the representations of its shared rows."""
    learner, own = bare_of(guest.learner), bare_of(guest.own_rows)
    module = learner.network.module
    step = torch.optim.SGD(module.parameters(), lr=config.lr)
    target_of = np.arange(len(own))

    def encode(rows):
        output = module(torch.from_numpy(np.array(rows)))
        return output / output.norm(dim=1, keepdim=True)

    for update in range(config.local_rounds):
        epoch, place = divmod(update, guest.per_epoch)
        places = bare_of(guest.batches_of(epoch))[place]
        z = encode(own[places])
        if epoch % config.reassign == 0:
            cost = -z.detach().numpy() @ learner.targets[target_of[places]].T
            target_of[places] = target_of[places][linear_sum_assignment(cost)[1]]
        apart = z - torch.from_numpy(learner.targets[target_of[places]])
        step.zero_grad()
        apart.square().sum(dim=1).mean().backward()
        step.step()
    return encode(own[: guest.layout.rows]).detach()


def oracle(dataset, options):
    """Losses of the server."""
    made = make("fedonce", dataset, **options)
    parties, config = made.parties(), made.config
    codes = torch.cat([oracle_of_guest(parties[n], config) for n in range(N)], dim=1)
    centre = bare_of(parties[SERVER].centre).network
    step = torch.optim.SGD(centre.parameters(), lr=config.lr)
    losses = []
    for round in range(1, config.rounds + 1):
        samples = made.layout.samples(made.layout.draw(round)).copy()
        loss = loss_of(centre, codes[samples], dataset.train_labels[samples])
        step.zero_grad()
        loss.backward()
        step.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("alone", [False, True])
def test_its_phases_are_those_of_the_paper(alone):
    dataset = data(N, 90)
    if alone:
        dataset = limit_overlap(dataset, 60, seed=3)
    outcome = simulate("fedonce", dataset, conditions=NONE, **SMALL)
    with one_thread():
        assert outcome.losses == pytest.approx(oracle(dataset, SMALL), rel=1e-4)
    assert {row["used"] for row in rows_of_run(outcome)} == {N}


def test_guests_learn_from_rows_that_they_hold_alone():
    dataset = limit_overlap(data(N, 90), 60, seed=3)
    guests = make("fedonce", dataset, **SMALL).parties()
    assert sorted(guests[n].own_rows.shape[0] for n in range(N)) == [67, 67, 68, 68]
    without = replace(dataset, alone=(), alone_labels=None)
    one, two = (simulate("fedonce", d, conditions=NONE, **SMALL) for d in (dataset, without))
    assert one.losses != two.losses
    rows = [sum(o.parties[SERVER].came.shape) for o in (one, two)]
    assert rows[0] == rows[1]  # the same rows are asked for


# -- one communication -----------------------------------------------------------------------------


@pytest.mark.parametrize("segments", [1, 4])  # 4 does not divide the 90 rows
@pytest.mark.parametrize("objective", ["nat", "autoencoder"])
def test_every_row_is_sent_once_and_no_gradient_ever(objective, segments):
    options = SMALL | {"objective": objective, "segments": segments}
    outcome = simulate("fedonce", data(N, 90), payloads=True, **options)
    sent = outcome.simulation.transcript
    columns = sent.columns()
    made = outcome.protocol
    seen = {n: [] for n in range(N)}
    for sender, kind, payload in zip(
        columns["sender"], columns["kind"], sent.payloads, strict=True
    ):
        if sender == SERVER:  # announcements of row numbers, and of the end
            assert kind == "round"
            assert isinstance(payload, str) or payload.dtype == np.uint32
        elif kind == "embedding":
            seen[sender].append(payload)
        else:
            assert (kind, payload) == ("trained", None)
    asked = [
        made.layout.samples(p)
        for s, r, p in zip(columns["sender"], columns["receiver"], sent.payloads, strict=True)
        if s == SERVER and r == 0 and not isinstance(p, str)
    ]
    rows = np.concatenate(asked)
    assert sorted(rows[rows >= 0].tolist()) == list(range(90))
    for n in range(N):
        table = np.concatenate(seen[n])
        guest = outcome.parties[n]
        wanted = bare_of(guest.learner).encode(made.data.train[n][rows[rows >= 0]])
        np.testing.assert_allclose(table[rows >= 0], wanted, atol=1e-6)
        kept = table_in(outcome)[n][rows[rows >= 0]]
        assert (kept == table[rows >= 0]).all()


def test_no_message_depends_on_a_label():
    dataset = data(N, 90)
    other = replace(dataset, train_labels=np.roll(dataset.train_labels, 1))
    seen = []
    for each in (dataset, other):
        outcome = simulate("fedonce", each, payloads=True, **SMALL)
        sent = outcome.simulation.transcript
        columns = sent.columns()
        content = [p.tobytes() if hasattr(p, "tobytes") else p for p in sent.payloads]
        seen.append((content, columns["arrived"].tolist(), columns["kind"].tolist()))
        losses = outcome.losses
    assert seen[0] == seen[1]
    assert losses != simulate("fedonce", dataset, **SMALL).losses


# -- absence ---------------------------------------------------------------------------------------


def test_zeros_stand_for_what_does_not_come_and_it_is_said():
    outages = (Outage(2, rounds=(2, 4)), Outage(0, rounds=(3, 4)))
    outcome = simulate(
        "fedonce", data(N, 90), conditions=NONE, faults=Faults(outages=outages), **SMALL, **ZEROS
    )
    told = [event.fields for event in outcome.events if event.name == "collected"]
    assert [row["filled"] for row in told] == [0, 1, 2, 0, 0]
    assert [row["missing"] for row in told] == [[], [2], [0, 2], [], []]
    server, layout = outcome.parties[SERVER], outcome.protocol.layout
    assert server.came.sum() == 4 * 5 - 3
    table = table_in(outcome)
    second = layout.samples(np.arange(20, 40, dtype=np.uint32))
    assert not table[2, second].any()
    assert table[1, second].any(axis=1).all()
    with one_thread():  # and the loss of the first step is that of these very zeros
        fresh = bare_of(outcome.protocol.parties()[SERVER].centre)
        samples = layout.samples(layout.draw(1))
        joint = np.concatenate(list(table[:, samples]), axis=1)
        loss, _ = fresh.step(joint, samples, bare_of(server.labels))
    assert loss == outcome.losses[0]


def test_a_slow_guest_is_not_waited_for_and_one_that_waits_does():
    outcome = simulate("fedonce", data(N, 90), conditions=slow(1), **SMALL, **ZEROS)
    assert not outcome.parties[SERVER].came[1].any()
    assert {row["used"] for row in rows_of_run(outcome)} == {N - 1}
    waited = simulate("fedonce", data(N, 90), conditions=slow(1, seconds=50.0), **SMALL)
    assert waited.parties[SERVER].came.all()
    assert waited.simulation.clock == 5 * 50 * 10**9


def test_chains_strike_the_communication_only():
    from securevfl.engine.faults import Chain

    chains = {"client": Chain(0.3, 0.5)}
    outcome = simulate("fedonce", data(N, 90), faults=Faults(chains), conditions=NONE,
                       **SMALL, **ZEROS)  # fmt: skip
    downs = [event.round for event in outcome.events if event.name == "down"]
    assert downs
    assert max(downs) <= outcome.protocol.last_fault == 5
    assert len(outcome.losses) == 9


def test_a_guest_that_goes_down_while_it_trains_goes_on_where_it_was():
    # Local training takes no time but where computing does; there a script can strike it.
    conditions = Conditions(compute="modelled", seconds_per_multiply_add=1e-6)
    outage = Faults(outages=(Outage(1, seconds=(0.0, 2.0)),))
    broken = simulate("fedonce", data(N, 90), conditions=conditions, faults=outage, **SMALL)
    whole = simulate("fedonce", data(N, 90), conditions=conditions, **SMALL)
    assert [event.name for event in broken.events if event.party == 1][:2] == ["down", "up"]
    assert broken.losses == whole.losses


def test_local_training_takes_the_time_of_its_operations():
    conditions = Conditions(compute="modelled", seconds_per_multiply_add=1e-6)
    outcome = simulate("fedonce", data(N, 90), conditions=conditions, **SMALL)
    sent = outcome.simulation.transcript.columns()
    for row in np.flatnonzero(sent["kind"] == "trained"):
        guest = outcome.parties[int(sent["sender"][row])]
        work = 3 * 14 * 20 * (16 * 5 + 5 * 5)
        assert guest.operations("trained") == work
        assert sent["arrived"][row] >= work * 1000


def test_nothing_that_came_is_an_error():
    outages = tuple(Outage(n, rounds=(1, 99)) for n in range(N))
    with pytest.raises(RunError, match=r"not one of 20 representations.*party 0, party 1"):
        simulate("fedonce", data(N, 90), faults=Faults(outages=outages), **SMALL, **ZEROS)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"absent": "zeros"}, "needs a timeout"),
        ({"timeout": 1.0}, "has no timeout, and timeout = 1 was given"),
        ({"objective": "autoencoder", "client": "pn"}, "no meaning"),
        ({"client": "cnn", "parties": 7}, "whole strips"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_run(options, words):
    options = dict(options)
    with pytest.raises(ConfigurationError, match=words):
        make("fedonce", data(options.pop("parties", N)), **options)


@pytest.mark.parametrize("objective", ["nat", "autoencoder"])
def test_it_learns(objective):
    dataset = data(4, 600)
    options = {"rounds": 200, "local_rounds": 200, "objective": objective}
    outcome = simulate("fedonce", dataset, defaults={}, **options)
    scores = outcome.protocol.scores(outcome.parties, dataset.test)
    assert measure("multiclass", scores, dataset.test_labels)["accuracy"] > 0.75


# -- proofs ------------------------------------------------------------------------------------


def proved(fresh=False, **options):
    """Verdicts by coalition, at three guests."""
    proof = prove_protocol(Traced("fedonce", options, parties=3), fresh=fresh)
    return {v.claim: v for v in proof.verdicts}


@pytest.mark.parametrize("objective", ["nat", "autoencoder"])
def test_guests_learn_no_label_and_the_server_each_representation_once(objective):
    found = proved(fresh=objective == "nat", objective=objective)
    assert found["client 0"].clear == ("loss of 1", "loss of 2")  # of their own training
    assert {"loss 1", "loss 2"} < set(found["client 0"].outputs)
    pieces = {f"piece {number} of {n}" for number in (0, 1) for n in (1, 2)}
    assert set(found["server + client 0"].clear) == pieces | {"loss of 1", "loss of 2"}


def not_endorsed(claim):
    verdict = verdict_on(claim, "fedonce", {}, parties=3)
    assert verdict.verdict in ("NOT PROVED", "VIOLATED"), verdict.scope


def first_of(labels):
    return labels[0]


def test_a_label_in_the_history_is_not_endorsed(monkeypatch):
    train = Server.train

    async def telling(server):
        server.record("told", label=server.labels.map(first_of, shape=()))
        await train(server)

    monkeypatch.setattr(Server, "train", telling)
    not_endorsed("client 0")


def some_of(labels):
    return labels[:1].astype(np.float32)


async def ask_and_tell(server):
    await ASK(server)
    for n in server.peers:
        server.send(n, "embedding", server.labels.map(some_of, shape=(1,)))


ASK = Server.ask


def test_labels_beside_an_announcement_are_refused_and_not_endorsed_where_declared(monkeypatch):
    monkeypatch.setattr(Server, "ask", ask_and_tell)
    with pytest.raises(UndeclaredMessageError, match="the server sends 'embedding' to party 0"):
        proved()
    declared = MessageSpec("embedding", "server", "client", "gradient")
    messages = FedOnce.messages.fget
    monkeypatch.setattr(FedOnce, "messages", property(lambda made: (*messages(made), declared)))
    not_endorsed("client 0")


async def announce_labels(server):
    server.announce(server.round + 1, server.labels.map(some_of, shape=(1,)))


def test_labels_in_an_announcement_are_an_error(monkeypatch):
    monkeypatch.setattr(Server, "ask", announce_labels)
    with pytest.raises(FlowError, match="'round' carries Secret"):
        proved()


def test_a_representation_of_other_rows_is_not_endorsed(monkeypatch):
    monkeypatch.setattr(Guest, "run", told_more)
    not_endorsed("server")


async def told_more(guest):
    await guest.train()
    async for round_ in guest.rounds():
        with round_:
            samples = guest.layout.samples(round_.payload)
            found = guest.learner.call(np_rows, guest.own_rows, samples, shape=(len(samples), 2))
            guest.send(SERVER, "embedding", found)


def np_rows(learner, rows, samples):
    return 2 * rows[np.maximum(samples, 0)]
