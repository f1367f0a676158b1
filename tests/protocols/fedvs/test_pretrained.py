"""FedVS from networks that its clients pre-trained alone: few overlap, stragglers, secrecy."""

import numpy as np
import pytest

from securevfl.data import load_dataset
from securevfl.data.overlap import limit_overlap
from securevfl.engine.party import SERVER
from securevfl.models.weights import weights_of
from securevfl.protocols.base.schedule import Shape
from securevfl.protocols.fedvs.parameters import FedVSConfig
from securevfl.protocols.fedvs.protocol import FedVS
from securevfl.testing.conformance import CHECKS
from securevfl.testing.runs import simulate
from securevfl.verified import bare_of

FEW = {"pretrain_epochs": 2, "pretrain_batch": 16, "corruption": 0.6, "temperature": 1.0}
SMALL = FEW | {"rounds": 3, "batch": 12, "width": 4, "hidden": 4}


def few():
    data = load_dataset("digits", parties=5).subset(120, 40)
    return limit_overlap(data, 40, rest="kept")


@pytest.mark.parametrize("check", ["resume", "ownership", "payloads", "absence", "faults", "end"])
def test_it_conforms(check):
    CHECKS[check]("fedvs", segments=2, pretrain="full", **FEW | {"pretrain_batch": 64})


@pytest.mark.parametrize("who", ["p", "full"])
def test_clients_start_from_the_networks_of_vflhlp(who):
    still = SMALL | {"lr": 1e-12, "client_lr": 1e-12, "optimizer": "sgd"}
    ours = simulate("fedvs", few(), pretrain=who, segments=1, **still)
    theirs = simulate("vflhlp", few(), variant=who, client="pn", weight_bound=16.0, **still)
    for k in range(5):
        mine = weights_of(bare_of(ours.parties[k].network))["weight"]
        if k == 0 and who == "p":
            fresh = weights_of(ours.protocol.network(0))["weight"]
            np.testing.assert_allclose(mine, fresh, atol=1e-6)
            continue
        learnt = weights_of(bare_of(theirs.parties[k].pretraining.own).encoder)["weight"]
        np.testing.assert_allclose(mine, learnt, atol=1e-6)


def test_weights_stay_within_the_bound_that_rules_out_wrapping():
    wild = SMALL | {"pretrain_optimizer": "sgd", "pretrain_lr": 50.0, "weight_bound": 0.5}
    outcome = simulate("fedvs", few(), pretrain="full", segments=1, **wild)
    largest = [
        np.abs(weights_of(bare_of(outcome.parties[k].network))["weight"]).max() for k in range(5)
    ]
    assert max(largest) <= 0.5


@pytest.mark.parametrize("centre", ["linear", "mlp"])
def test_the_sum_of_embeddings_begins_with_client_0_s_own_scores(centre):
    still = SMALL | {"lr": 1e-12, "optimizer": "sgd", "centre": centre}
    outcome = simulate("fedvs", few(), pretrain="full", segments=1, **still)
    active, rows = outcome.parties[0], outcome.protocol.data.train[0]
    own = bare_of(active.network).forward(rows)
    alone = bare_of(active.pretraining.own).means.scores(own)
    # All other embeddings at 0: the mean is a fifth of client 0's.
    np.testing.assert_allclose(
        bare_of(outcome.parties[SERVER].centre).scores(own / 5), alone, atol=1e-4
    )


def test_client_0_is_no_one_whom_the_claims_protect_from_its_own_server():
    said = simulate("fedvs", few(), pretrain="full", segments=1, **SMALL).protocol.claims
    assert all("client 0 is its own" in c.source for c in said if c.who.startswith("server"))


def test_only_labels_and_head_go_between_server_and_client_0_besides():
    sent = {}
    for who in ("none", "p", "full"):
        columns = simulate("fedvs", few(), pretrain=who, segments=1, **SMALL).simulation.transcript
        columns = columns.columns()
        sent[who] = sorted(
            zip(columns["kind"], columns["sender"], columns["receiver"], strict=True)
        )
    assert sent["p"] == sent["none"]
    more = list(sent["full"])
    for message in sent["none"]:
        more.remove(message)
    assert sorted(more) == [("head", 0, SERVER), ("labels", SERVER, 0)]


def test_the_planner_knows_what_it_cannot_outline():
    shape = Shape((4, 4, 4), 40)
    assert FedVS.outline(FedVSConfig(pretrain="p"), shape) is not None
    assert FedVS.outline(FedVSConfig(pretrain="full"), shape) is None
