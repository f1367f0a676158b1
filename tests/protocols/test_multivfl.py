"""Multi-VFL against its algorithm written down once more, and split learning where K = 1."""

import copy

import numpy as np
import pytest
import torch

from securevfl.engine.conditions import NONE
from securevfl.engine.network import SERVER
from securevfl.engine.party_state import ahead, restore, snapshot
from securevfl.errors import ConfigurationError, DataError, PrivacyError
from securevfl.models.split import Batches
from securevfl.privacy.accountant import gaussian_epsilon, noise_multiplier
from securevfl.privacy.release_counts import most_releases
from securevfl.protocols.multivfl.algorithm import DataOwner, LabelOwner
from securevfl.runs.threads import one_thread
from securevfl.testing.runs import make, simulate
from securevfl.verified import FlowError, bare_of
from securevfl.verified.traced.proofs import Traced, prove_protocol
from tests.protocols.faulty import verdict_on
from tests.protocols.joint import data, loss_of

SMALL = {
    "rounds": 3,
    "batch": 8,
    "width": 5,
    "hidden": 6,
    "client": "mlp",
    "optimizer": "sgd",
    "momentum": 0.9,
    "lr": 0.05,
    "label_owners": 3,
}


def scores(outcome):
    return outcome.protocol.scores(outcome.parties, outcome.protocol.data.test)


@pytest.mark.parametrize("intersection", ["plain", "psi"])
@pytest.mark.parametrize("client", ["pn", "mlp"])
def test_one_label_owner_and_one_round_are_split_learning_bit_for_bit(client, intersection):
    options = SMALL | {"optimizer": "adam", "aggregation": "concat", "client": client}
    del options["label_owners"]
    epochs = 2
    theirs = make("split", data(), **options)
    options["rounds"] = epochs * theirs.layout.per_epoch
    split = simulate("split", data(), **options)
    options |= {"rounds": 1, "epochs": epochs, "label_owners": 1, "intersection": intersection}
    ours = simulate("multivfl", data(), **options)
    assert (scores(ours) == scores(split)).all()
    assert ours.losses == [np.mean(split.losses)]


def oracle(dataset, options):
    """Mean loss of each round, and the networks at the end: FedAvg on every side."""
    made = make("multivfl", dataset, **options)
    parties, config = made.parties(), made.config
    bottoms = [bare_of(parties[d].copies.first).module for d in range(dataset.parties)]
    top, losses = bare_of(parties[SERVER].centre).network, []
    for round in range(1, config.rounds + 1):
        trained, told = [], []
        for number, k in enumerate(made.owners):
            own, owner = made.label_sets[number], parties[k]
            networks = copy.deepcopy([*bottoms, top])
            weights = [p for network in networks for p in network.parameters()]
            optimizer = torch.optim.SGD(weights, lr=config.lr, momentum=config.momentum)
            batches = Batches(len(own), 1, config.batch, owner.batch_stream)
            steps = config.epochs * batches.per_epoch
            for n in range((round - 1) * steps + 1, round * steps + 1):
                rows = own[batches.samples(batches.draw(n))]
                parts = [
                    network(torch.from_numpy(x[rows]))
                    for network, x in zip(networks, dataset.train, strict=False)
                ]
                loss = loss_of(networks[-1], torch.cat(parts, 1), dataset.train_labels[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                told.append((number, loss.item()))
            trained.append(networks)
        for place, network in enumerate([*bottoms, top]):
            with torch.no_grad():
                for at, p in enumerate(network.parameters()):
                    same = [list(networks[place].parameters())[at] for networks in trained]
                    p.copy_(torch.stack(same).mean(0))
        each = [np.mean([v for n, v in told if n == k]) for k in range(len(made.owners))]
        losses.append(np.mean(each))
    return losses, [*bottoms, top]


@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize("rule", ["equal", "classes:0,1,2,3/3,4,5,6/0,7,8,9"])
def test_a_round_is_the_papers_algorithm(rule, epochs):
    options = SMALL | {"epochs": epochs, "label_partition": rule}
    outcome = simulate("multivfl", data(), **options)
    with one_thread():
        losses, networks = oracle(data(), options)
    np.testing.assert_allclose(outcome.losses, losses, rtol=1e-4)
    joint = torch.cat(
        [n(torch.from_numpy(np.array(x))) for n, x in zip(networks, data().test, strict=False)], 1
    )
    np.testing.assert_allclose(
        scores(outcome), networks[-1](joint).detach().numpy(), rtol=1e-3, atol=1e-4
    )


def test_the_server_optimisers_differ_and_delays_change_no_number():
    kinds = ("fedavg", "fedadam", "fedyogi", "feddemonadam", "feddemonadam_t2")
    losses = {
        kind: tuple(simulate("multivfl", data(), server_optimizer=kind, **SMALL).losses)
        for kind in kinds
    }
    assert len(set(losses.values())) == 5
    assert len({own[0] for own in losses.values()}) == 1  # all begin alike
    assert simulate("multivfl", data(), conditions=NONE, **SMALL).losses == list(losses["fedavg"])


# -- noise -----------------------------------------------------------------------------------------


def test_noise_is_accounted_once_for_each_release_of_a_row():
    options = SMALL | {"epsilon": 2.0, "noise": "seeded", "epochs": 2, "rounds": 3}
    outcome = simulate("multivfl", data(), payloads=True, **options)
    z = noise_multiplier(2.0, 1e-5)
    spent = [e.fields["epsilon_total"] for e in outcome.events if e.name == "round"]
    assert spent == [gaussian_epsilon(z, 2 * r, 1e-5) for r in (1, 2, 3)]
    assert outcome.protocol.describe()["epsilon_all_rounds"] == spent[-1]
    sent = outcome.simulation.transcript
    kinds = sent.columns()["kind"]
    rows = [p for p, k in zip(sent.payloads, kinds, strict=True) if k == "embedding"]
    values = np.concatenate([h.ravel() for _, h in rows])
    assert np.std(values) == pytest.approx(2 * z, rel=0.1)  # next to it a clipped row is nothing
    named = [(k, n) for (k, places), _ in rows for n in places.tolist()]
    counts = np.unique(np.array(named), axis=0, return_counts=True)[1] / data().parties
    assert counts.max() <= 6  # never more often than was accounted for


def test_secure_noise_is_claimed_and_seeded_noise_is_not():
    (secure,) = [c for c in make("multivfl", data(), epsilon=2.0).claims if c.about == "features"][
        :1
    ]
    assert secure.notion == "differential"
    assert "one row of one data owner replaced" in secure.source
    (seeded,) = [
        c for c in make("multivfl", data(), epsilon=2.0, noise="seeded").claims
        if c.about == "features"
    ][:1]  # fmt: skip
    assert seeded.notion == "none"
    two = [simulate("multivfl", data(), epsilon=2.0, **SMALL).losses for _ in range(2)]
    assert two[0] != two[1]


@pytest.mark.parametrize("rule", ["equal", "classes:0,1,2,3/3,4,5,6/0,7,8,9"])
def test_data_owners_count_their_releases_and_refuse_more(rule):
    options = SMALL | {"epsilon": 2.0, "epochs": 2, "rounds": 3, "label_partition": rule}
    outcome = simulate("multivfl", data(), **options)
    owner, first = outcome.parties[0], next(iter(outcome.parties[0].rows))
    assert most_releases(owner.released) == owner.limit == 6
    counts = np.frombuffer(owner.released, "<u4")
    full = np.flatnonzero(counts[owner.rows[first]] == 6)[:1]
    before = owner.released
    with pytest.raises(PrivacyError, match=r"data owner 0, by label owner .* epsilon allows 6"):
        owner.answer(int(first), 99, full)
    with pytest.raises(PrivacyError, match="3 times in one request"):
        owner.answer(int(first), 99, np.repeat(full, 3))
    assert owner.released == before
    back = outcome.protocol.parties()[0]
    saved = snapshot(back, waits=0, time=0)
    restore(back, saved | {"ahead": ahead(owner)})  # as a resume finds what was written ahead
    assert back.released == before


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "wanted"),
    [
        ({"segments": 2}, ConfigurationError, "unknown option of multivfl 'segments'"),
        ({"centre": "vgg13"}, ConfigurationError, "running statistics"),
        ({"epsilon": 1e6}, ConfigurationError, "next to none; lower epsilon"),
        ({"label_owners": 91}, DataError, "label owner 90 of 91 has no labels"),
        ({"samples": 31}, DataError, "31 samples are wanted; use 1 to 30"),
        ({"label_partition": "4niid"}, DataError, "is for 5 label owners"),
    ],
)
def test_what_cannot_work_is_refused(options, error, wanted):
    with pytest.raises(error, match=wanted):
        make("multivfl", data(), **SMALL | options)


def test_a_class_that_nobody_holds_is_named():
    with pytest.warns(UserWarning, match="labels of the classes 8, 9"):
        made = make(
            "multivfl", data(rows=400), label_owners=2, label_partition="classes:0,1,2,3/3,4,5,6,7"
        )
    assert made.describe()["classes_without_labels"] == [8, 9]


def test_rows_that_messages_name_are_training_rows():
    made = make("multivfl", data(), **SMALL)
    for number, k in enumerate(made.owners):
        rows = made.named_rows((k, np.array([0, 2])))
        assert rows.tolist() == made.label_sets[number][[0, 2]].tolist()


# -- proofs ------------------------------------------------------------------------------------


def proved(fresh=False, **options):
    """Verdicts by coalition: data owners 0 and 1, label owners 2 and 3."""
    proof = prove_protocol(Traced("multivfl", options, parties=2), fresh=fresh)
    return {v.claim: v for v in proof.verdicts}


@pytest.mark.parametrize("noise", [{}, {"epsilon": 2.0, "noise": "seeded"}])
def test_nothing_is_shown_beside_what_algorithm_1_sends(noise):
    found = proved(fresh=not noise, rounds=1, **noise)
    assert {v.verdict for v in found.values()} == {"NOT PROTECTED"}
    assert set(found["client 0"].clear) == {"dA 1 of 0 by 2", "dA 1 of 0 by 3", "loss 1"}
    assert {"A 1 of 0 for 2", "A 1 of 1 for 2"} <= set(found["client 2"].clear)


def test_released_activations_cost_what_the_claim_says():
    found = proved(epsilon=2.0, epochs=2, rounds=1)
    made = make("multivfl", data(), epsilon=2.0, epochs=2, rounds=1)
    (paid,) = made.claims[0].guarantees
    for claim in ("client 2", "server + clients 2, 3"):
        assert f"({paid.total_epsilon:.4g}, 1e-05) for one row" in found[claim].price
    assert found["server + clients 2, 3"].verdict == "DP"
    assert not any(name.startswith("A ") for name in found["client 2"].outputs)


def as_it_is(owner, A, noise, label_owner, number, rows):
    return A


def of_a_seed(owner, A, noise, label_owner, number, rows):
    name = f"activations {number} for {label_owner}"
    return owner.gaussian(A.clip(noise.clip), noise.sigma, name=name, seed=b"0")


@pytest.mark.parametrize("fault", [as_it_is, of_a_seed])
def test_activations_without_noise_are_not_endorsed(monkeypatch, fault):
    monkeypatch.setattr(DataOwner, "release", fault)
    with pytest.raises(FlowError, match="made 0 releases"):
        proved(epsilon=2.0, rounds=1)


def test_labels_beside_the_request_are_not_endorsed(monkeypatch):
    monkeypatch.setattr(
        LabelOwner, "protected", LabelOwner.protected | {"request": ("public", "public", "real")}
    )
    send = LabelOwner.send

    def sending(owner, to, kind, payload, **more):
        told = (*payload, owner.labels) if kind == "request" else payload
        send(owner, to, kind, told, **more)

    monkeypatch.setattr(LabelOwner, "send", sending)
    monkeypatch.setattr(
        DataOwner, "protected", DataOwner.protected | {"request": ("public", "public", "real")}
    )
    receive = DataOwner.receive

    async def receiving(owner, *kinds, **more):
        found = await receive(owner, *kinds, **more)
        return found[:2] if isinstance(found, tuple) and len(found) == 3 else found

    monkeypatch.setattr(DataOwner, "receive", receiving)
    verdict = verdict_on("client 0", "multivfl", {"rounds": 1}, parties=2)
    assert verdict.verdict in ("NOT PROVED", "VIOLATED")
