"""VFLHLP against its three steps written down once more, and against split learning."""

import numpy as np
import pytest
import torch

from securevfl.data import load_dataset
from securevfl.data.overlap import limit_overlap
from securevfl.engine.party import SERVER
from securevfl.engine.streams import keyed_stream
from securevfl.errors import ConfigurationError, DivergedError
from securevfl.models.pretraining.contrast import info_nce
from securevfl.models.pretraining.self_supervised import corrupt
from securevfl.models.weights import weights_of
from securevfl.runs.threads import one_thread
from securevfl.testing.runs import make, simulate
from securevfl.verified import bare_of
from tests.protocols.joint import loss_of

SMALL = {
    "rounds": 6,
    "batch": 16,
    "width": 5,
    "client": "mlp",
    "centre": "linear",
    "optimizer": "sgd",
    "momentum": 0.0,
    "lr": 0.1,
    "pretrain_optimizer": "sgd",
    "pretrain_lr": 0.2,
    "pretrain_epochs": 2,
    "pretrain_batch": 20,
    "beta": 0.7,
}


def few(aligned=50, parties=3, rest="kept", local=60, rows=200):
    data = load_dataset("digits", parties=parties).subset(rows, 50)
    return limit_overlap(data, aligned, rest=rest, local=local)


def scores(outcome):
    return outcome.protocol.scores(outcome.parties, outcome.protocol.data.test)


def pretrained(outcome):
    return [event for event in outcome.events if event.name == "pretrained"]


# -- without pre-training --------------------------------------------------------------------------


@pytest.mark.parametrize("client", ["pn", "mlp"])
@pytest.mark.parametrize("rule", ["mean", "concat"])
def test_without_pretraining_it_is_split_learning_bit_for_bit(client, rule):
    options = {"rounds": 12, "client": client, "aggregation": rule, "optimizer": "adam"}
    ours = simulate("vflhlp", few(), variant="none", **options)
    theirs = simulate("split", few(), **options)
    assert ours.losses == theirs.losses
    assert (scores(ours) == scores(theirs)).all()
    sent = [outcome.simulation.transcript for outcome in (ours, theirs)]
    assert (sent[0].messages, sent[0].bytes) == (sent[1].messages, sent[1].bytes)


def test_a_pull_of_no_weight_is_none():
    data = few()
    none = simulate("vflhlp", data, **SMALL | {"variant": "none"})
    free = simulate("vflhlp", data, **SMALL | {"variant": "a", "beta": 0.0})
    assert free.losses == none.losses


# -- the paper's steps once more -------------------------------------------------------------------


class Oracle:
    """Encoders and head in one place, with autograd and plain SGD."""

    def __init__(self, data, options):
        made = make("vflhlp", data, **options)
        self.data, self.config, self.layout = data, made.config, made.layout
        parties = made.parties()
        self.encoders = [bare_of(parties[k].network).module for k in range(data.parties)]
        self.head = bare_of(parties[SERVER].centre).network
        own = bare_of(parties[0].pretraining.own)
        self.own = own.encoder.module, own.means.network
        passive = {k: bare_of(parties[k].pretraining.own) for k in (1, 2)}
        self.scarf = {k: (own.encoder.module, own.means.heads) for k, own in passive.items()}
        self.losses = []

    def batches(self, party, rows):
        """Samples of each batch of pre-training, in order."""
        config, size = self.config, min(self.config.pretrain_batch, rows)
        shuffled = keyed_stream(0, party, "shuffle").permutation(rows)
        for epoch in range(config.pretrain_epochs):
            order = keyed_stream(0, party, "batches", epoch).permutation(rows)
            for place in range(rows // size):
                yield shuffled[order[place * size : (place + 1) * size]]

    def descend(self, loss, weights, lr):
        found = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, found, strict=True):
                weight -= lr * gradient

    def step_1(self):
        rows = np.concatenate([self.data.train[0], self.data.alone[0]])
        labels = np.concatenate([self.data.train_labels, self.data.alone_labels])
        encoder, head = self.own
        weights = [*encoder.parameters(), *head.parameters()]
        for samples in self.batches(0, len(rows)):
            loss = loss_of(head, encoder(torch.from_numpy(rows[samples])), labels[samples])
            self.descend(loss, weights, self.config.pretrain_lr)

    def step_2(self, k):
        rows = np.concatenate([self.data.train[k], self.data.alone[k]])
        encoder, heads = self.scarf[k]
        weights = [*encoder.parameters(), *heads.parameters()]
        for number, samples in enumerate(self.batches(k, len(rows)), start=1):
            clean = rows[samples]
            other = corrupt(
                clean, rows, self.config.corruption, keyed_stream(0, k, "views", number)
            )
            z = [heads["projector"](encoder(torch.from_numpy(view))) for view in (clean, other)]
            self.descend(info_nce(*z, self.config.temperature), weights, self.config.pretrain_lr)
        self.encoders[k].load_state_dict(encoder.state_dict())

    def step_3(self):
        encoder, head = self.own
        h = self.config.width
        for round in range(1, 1 + self.config.rounds):
            samples = self.layout.samples(self.layout.draw(round))
            r = [
                network(torch.from_numpy(part[samples]))
                for network, part in zip(self.encoders, self.data.train, strict=True)
            ]
            L_vfl = loss_of(self.head, torch.cat(r, dim=1), self.data.train_labels[samples])
            self.losses.append(L_vfl.item())
            L_cons = 0.5 * sum(
                ((a - b.detach()) ** 2).sum()
                for a, b in zip(self.encoders[0].parameters(), encoder.parameters(), strict=True)
            )
            L_cons = L_cons + 0.5 * (
                ((self.head.weight[:, :h] - head.weight.detach()) ** 2).sum()
                + ((self.head.bias - head.bias.detach()) ** 2).sum()
            )
            beta = self.config.beta if self.config.active else 0.0
            weights = [p for network in self.encoders for p in network.parameters()]
            loss = L_vfl + beta * L_cons
            self.descend(loss, [*weights, *self.head.parameters()], self.config.lr)


@pytest.mark.parametrize("variant", ["full", "a", "p"])
def test_it_is_the_paper_s_algorithm(variant):
    data, options = few(), SMALL | {"variant": variant}
    outcome = simulate("vflhlp", data, **options)
    with one_thread():
        oracle = Oracle(data, options)
        if variant != "p":
            oracle.step_1()
        if variant != "a":
            oracle.step_2(1)
            oracle.step_2(2)
        oracle.step_3()
    np.testing.assert_allclose(outcome.losses, oracle.losses, rtol=1e-4)
    for k, encoder in enumerate(oracle.encoders):
        ours = weights_of(bare_of(outcome.parties[k].network))
        for name, weight in encoder.named_parameters():
            np.testing.assert_allclose(ours[name], weight.detach().numpy(), atol=1e-4)
    head = weights_of(bare_of(outcome.parties[SERVER].centre))["weight"]
    np.testing.assert_allclose(head, oracle.head.weight.detach().numpy(), atol=1e-4)


def test_everybody_uses_all_its_rows():
    events = pretrained(simulate("vflhlp", few(50, local=60), **SMALL))
    assert sorted((e.party, e.fields["how"], e.fields["rows"]) for e in events) == [
        (0, "supervised", 110),
        (1, "scarf", 110),
        (2, "scarf", 110),
    ]


def test_without_rows_held_alone_the_aligned_ones_are_all_there_is():
    data = load_dataset("digits", parties=3).subset(60, 30)
    events = pretrained(simulate("vflhlp", data, **SMALL))
    assert [event.fields["rows"] for event in events] == [60, 60, 60]


def test_step_1_stops_early_by_rows_that_it_holds_out():
    outcome = simulate("vflhlp", few(), **SMALL | {"pretrain_epochs": 100, "pretrain_stop": 3})
    (told,) = [e.fields for e in pretrained(outcome) if e.fields["how"] == "supervised"]
    assert told["rows"] == 110
    assert 3 < told["epochs"] < 100
    assert told["held_out_loss"] > 0
    others = [e.fields for e in pretrained(outcome) if e.fields["how"] == "scarf"]
    assert all("epochs" not in fields for fields in others)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"variant": "p", "clip": 0.1}, "clip = 0.1 has no use"),
        ({"variant": "p", "pretrain_stop": 2}, "pretrain_stop has no use: nobody pre-trains on la"),
        ({"pretrain_held_out": 0.5}, "pretrain_held_out has no use without pretrain_stop"),
    ],
)
def test_options_without_effect_are_refused(options, said):
    with pytest.raises(ConfigurationError, match=said):
        make("vflhlp", few(), **SMALL | options)
    if "clip" not in options:
        with pytest.raises(ConfigurationError, match=said.split(":")[0]):
            make("fedvs", few(), **{k: v for k, v in options.items() if k != "variant"})


def test_a_pull_that_diverges_does_not_where_it_is_clipped():
    wild = SMALL | {"beta": 30.0, "rounds": 80}
    with pytest.raises(DivergedError, match="lower"):
        simulate("vflhlp", few(), **wild)
    assert np.isfinite(simulate("vflhlp", few(), **wild, clip=1.0).losses).all()


def test_a_strong_pull_keeps_the_active_party_s_model():
    outcome = simulate("vflhlp", few(), **SMALL | {"beta": 5.0, "rounds": 60})
    active, head = outcome.parties[0], outcome.parties[SERVER]
    for name, weight in weights_of(bare_of(active.network)).items():
        np.testing.assert_allclose(weight, bare_of(active.theta)[name], atol=0.05)
    own = weights_of(bare_of(head.centre))["weight"][:, :5]
    np.testing.assert_allclose(own, bare_of(head.theta)["weight"], atol=0.05)


def test_pretraining_sends_two_messages_within_the_active_organisation_and_none_elsewhere():
    sent = simulate("vflhlp", few(), **SMALL).simulation.transcript.columns()
    before = sent["round"] == 0
    assert sorted(sent["kind"][before].tolist()) == ["head", "labels"]
    assert set(sent["sender"][before].tolist()) == {SERVER, 0}


def test_no_party_but_the_server_keeps_the_labels_of_rows_held_alone():
    from securevfl.testing.inspection import held_arrays

    outcome = simulate("vflhlp", few(), **SMALL)
    theirs = outcome.protocol.data.alone_labels
    for index, party in outcome.parties.items():
        holds = any(len(a) >= len(theirs) and a.dtype == theirs.dtype and a.ndim == 1
                    and np.array_equal(a[-len(theirs) :], theirs)
                    for a in held_arrays(party) if a.ndim)  # fmt: skip
        assert holds == (index == SERVER)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"centre": "conv", "width": 16}, "centre = 'conv'"),
        ({"segments": 2}, "unknown option of vflhlp 'segments'"),
    ],
)
def test_what_cannot_be_pulled_or_cut_is_refused(options, said):
    with pytest.raises(ConfigurationError, match=said):
        make("vflhlp", few(), **options)


def test_a_passive_party_with_a_single_row_is_refused():
    data = load_dataset("digits", parties=3).subset(1, 30)
    with pytest.raises(ConfigurationError, match="client 1 has 1 rows"):
        make("vflhlp", data)
    make("vflhlp", data, variant="a")
