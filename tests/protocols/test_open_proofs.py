"""Methods whose server sees single embeddings: proofs that it sees nothing beside them."""

from __future__ import annotations

import numpy as np
import pytest

from securevfl.protocols import flexvfl, local, split, ssl_local, vafl, vfb2
from securevfl.protocols.base import open_embeddings
from securevfl.verified import bare_of
from securevfl.verified.traced.proofs import Traced, prove_protocol
from tests.protocols.faulty import verdict_on

N = 3


def found(name, fresh=False, **options):
    """Verdicts by claim."""
    proof = prove_protocol(Traced(name, options, N), fresh=fresh)
    return {v.claim: v for v in proof.verdicts}


def not_proved(claim, name, **options):
    verdict = verdict_on(claim, name, options, parties=N)
    assert verdict.verdict in ("NOT PROVED", "VIOLATED"), verdict.scope


def words(verdicts):
    return {claim: v.verdict for claim, v in verdicts.items()}


def open_to_the_server(name, **options):
    """Verdicts, of which clients have PROVED and coalitions with the server NOT PROTECTED."""
    verdicts = found(name, **options)
    for claim, v in verdicts.items():
        wanted = "NOT PROTECTED" if "server" in claim else "PROVED"
        assert v.verdict == wanted, (claim, v.text)
    for n in range(N):
        told = {f"embedding of party {m}" for m in range(N) if m != n}
        assert told <= set(verdicts[f"server + client {n}"].clear)
        assert f"embedding of party {n}" not in verdicts[f"server + client {n}"].clear
    return verdicts


def test_split_is_proved_and_its_certificate_accepted():
    verdicts = open_to_the_server("split", fresh=True)
    assert verdicts["client 1"].outputs == ("loss", "dL/dH of party 1")
    assert "sent as they are; nothing beside them" in verdicts["server"].scope


@pytest.mark.parametrize(
    "options",
    [
        {"aggregation": "concat"},
        {"aggregation": "max", "client": "mlp"},
        {"quantized": True},
        {"segments": 2, "batch": 6},
        {"stragglers": "ignore", "quorum": 2},
        {"stragglers": "skip", "timeout": 1.0},
        {"stragglers": "buffer", "timeout": 1.0},
        {"stragglers": "mean", "timeout": 1.0, "quantized": True},
    ],
    ids=str,
)
def test_each_mode_of_split_is_proved(options):
    open_to_the_server("split", **options)


def test_a_bound_on_weights_tells_how_many_it_cut():
    verdicts = found("split", weight_bound=100.0)
    assert verdicts["client 0"].clear == tuple(f"clipped weights of party {n}" for n in (1, 2))
    assert "this path" in verdicts["client 0"].scope


def with_a_column(network, features, samples):
    """An embedding whose first number is a column's."""
    made = np.array(network.forward(features[samples]))
    made[:, 0] = features[samples, 0]
    return made


def sees_a_column(self, samples):
    shape = (samples.shape[0], self.width)
    return self.network.call(with_a_column, self.features, samples, shape=shape)


def of_another(self, batch, gradients):
    for n in gradients:
        self.send(n, "gradient", gradients[(n + 1) % len(gradients)])


def with_labels(gradient, labels, samples):
    return gradient + labels[samples, None].astype(np.float32)


def labelled(self, batch, gradients):
    samples = self.batches.samples(batch)
    for n, gradient in gradients.items():
        self.send(n, "gradient", gradient.map(with_labels, self.labels, samples))


def told_labels(self, embeddings, samples):
    return {"mean": self.labels.map(np.mean, shape=(), dtype=np.float64)}


def once_more(self, samples, gradient):
    for _ in range(2):
        self.network.step(open_embeddings.updated, self.features, samples, gradient, shapes=[()])


MISTAKES = {
    "a column in embeddings": (split.Client, "embed", sees_a_column, "server"),
    "another's gradient": (open_embeddings.OpenServer, "answer", of_another, "client 0"),
    "labels in gradients": (open_embeddings.OpenServer, "answer", labelled, "client 0"),
    "labels in the history": (split.Server, "details", told_labels, "client 0"),
    "a step that was not declared": (open_embeddings.OpenClient, "update", once_more, "server"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_split_is_not_proved(name, monkeypatch):
    kind, method, planted, who = MISTAKES[name]
    monkeypatch.setattr(kind, method, planted)
    not_proved(who, "split", aggregation="concat")


def test_vafl_shows_batches_and_embeddings_and_nothing_beside_them():
    verdicts = found("vafl", rounds=4)
    assert set(words(verdicts).values()) == {"NOT PROTECTED"}
    told = {f"{what} of party {n}" for what in ("batch", "embedding") for n in range(N)}
    assert told <= set(verdicts["server"].clear)
    # A client that comes first gets a gradient of the labels alone, beside its own embedding.
    assert verdicts["client 1"].clear == ("known", "loss", "dL/dH of party 1")


@pytest.mark.parametrize("options", [{"aggregation": "concat", "segments": 2}, {"timeout": 2.0}])
def test_each_mode_of_vafl_is_proved(options):
    assert set(words(found("vafl", rounds=4, **options)).values()) == {"NOT PROTECTED"}


def newest_of_another(last, samples, n):
    return last.at(samples)[0][n]


def anothers_embeddings(self, batch, gradients):
    samples = self.samples(batch)
    for n, gradient in gradients.items():
        given = (samples, (n + 1) % N)
        other = self.last.call(newest_of_another, *given, shape=gradient.shape)
        self.send(n, "gradient", other, round=self.envelope.round)


def asynchronously_labelled(self, batch, gradients):
    samples = self.samples(batch)
    for n, gradient in gradients.items():
        made = gradient.map(with_labels, self.labels, samples)
        self.send(n, "gradient", made, round=self.envelope.round)


IN_VAFL = {
    "another's embeddings": (vafl.Server, "answer", anothers_embeddings, "client 0"),
    "labels in gradients": (vafl.Server, "answer", asynchronously_labelled, "client 0"),
    "a column in embeddings": (vafl.Client, "embed", sees_a_column, "server"),
}


@pytest.mark.parametrize("name", IN_VAFL)
def test_a_mistake_in_vafl_is_not_proved(name, monkeypatch):
    kind, method, planted, who = IN_VAFL[name]
    monkeypatch.setattr(kind, method, planted)
    not_proved(who, "vafl", rounds=4)


def test_flexvfl_shows_labels_embeddings_and_the_server_model_and_nothing_beside_them():
    verdicts = found("flexvfl", centre="linear", local_steps="1,3,2")
    assert set(words(verdicts).values()) == {"NOT PROTECTED"}
    told = ("labels", "server model", "embedding of party 0", "embedding of party 2", "loss")
    assert verdicts["client 1"].clear == told


def with_all_labels(self, kind, payload, to=None):
    if kind == "exchange":
        payload = payload[0], self.labels, payload[2]
    open_embeddings.OpenServer.broadcast(self, kind, payload, to)


IN_FLEXVFL = {
    "labels of all rows": (flexvfl.Server, "broadcast", with_all_labels, "client 0"),
    "a column in embeddings": (flexvfl.Client, "embed", sees_a_column, "server"),
}


@pytest.mark.parametrize("name", IN_FLEXVFL)
def test_a_mistake_in_flexvfl_is_not_proved(name, monkeypatch):
    kind, method, planted, who = IN_FLEXVFL[name]
    monkeypatch.setattr(kind, method, planted, raising=False)
    not_proved(who, "flexvfl", centre="linear", local_steps="1")


@pytest.mark.parametrize("options", [{}, {"threads": 1}, {"threads": 3, "timeout": 1.0}], ids=str)
def test_each_mode_of_vfb2_is_proved(options):
    open_to_the_server("vfb2", rounds=3, **options)


def theta_labelled(self, batch, gradients):
    samples = self.batches.samples(batch)
    for n, theta in gradients.items():
        self.send(n, "gradient", (batch, theta.map(with_labels, self.labels, samples)))


def sorted_theta(self, batch, gradients):
    """The rows of the batch stand in the order of their labels."""
    order = bare_of(self.labels)[self.batches.samples(batch)].argsort(kind="stable")
    for n, theta in gradients.items():
        self.send(n, "gradient", (batch[order], theta))


IN_VFB2 = {
    "labels in theta": (vfb2.Dominator, "answer", theta_labelled, "client 0"),
    "rows sorted by label": (vfb2.Dominator, "answer", sorted_theta, "client 0"),
    "a column in outputs": (vfb2.Collaborator, "embed", sees_a_column, "server"),
}


@pytest.mark.parametrize("name", IN_VFB2)
def test_a_mistake_in_vfb2_is_not_proved(name, monkeypatch):
    kind, method, planted, who = IN_VFB2[name]
    monkeypatch.setattr(kind, method, planted)
    not_proved(who, "vfb2", rounds=3)


# -- the active party alone ------------------------------------------------------------------------


def test_what_the_active_party_s_organisation_has_is_all_that_is_sent():
    verdicts = found("local", fresh=True)
    assert verdicts["client 0"].clear == ("loss", "dL/dH of party 0")
    assert verdicts["client 1"].clear == ("loss",)
    assert verdicts["server"].clear == ("embedding of party 0", "loss")
    whole = verdicts.pop("server + client 0")
    assert whole.verdict == "PROVED"  # they are one organisation
    assert set(words(verdicts).values()) == {"NOT PROTECTED"}


@pytest.mark.parametrize(
    "options",
    [{"rows": "aligned"}, {"aggregation": "concat", "client": "mlp"}, {"weight_bound": 100.0}],
    ids=str,
)
def test_each_mode_of_local_is_proved(options):
    assert set(words(found("local", **options)).values()) == {"NOT PROTECTED", "PROVED"}


def told_to_idle_clients(self, kind, payload, to=None):
    for n in to or self.peers:
        self.send(n, kind, self.labels if n else payload)


IN_LOCAL = {
    "a column in embeddings": (open_embeddings.OpenClient, "embed", sees_a_column, "server"),
    "labels in gradients": (open_embeddings.OpenServer, "answer", labelled, "client 0"),
    "labels for the others": (local.Server, "broadcast", told_to_idle_clients, "client 1"),
}


@pytest.mark.parametrize("name", IN_LOCAL)
def test_a_mistake_in_local_is_not_proved(name, monkeypatch):
    kind, method, planted, who = IN_LOCAL[name]
    monkeypatch.setattr(kind, method, planted)
    monkeypatch.setattr(local.Server, "protected", {**local.Server.protected, "stop": "real"})
    not_proved(who, "local")


# -- pre-training without labels, then split training ----------------------------------------------


def test_losses_of_pretraining_are_told_to_all_and_nothing_else_of_it():
    verdicts = found("ssl_local", fresh=True)
    assert set(words(verdicts).values()) == {"NOT PROTECTED"}
    losses, sent = (
        [f"{what} of party {n}" for n in range(N)] for what in ("loss of pre-training", "embedding")
    )
    assert verdicts["client 0"].clear == tuple(losses[1:])
    assert verdicts["server"].clear == (*losses, *sent)
    assert verdicts["server + client 1"].clear == (*losses[::2], *sent[::2])


@pytest.mark.parametrize(
    "options",
    [
        {"method": "byol", "aggregation": "mean"},
        {"method": "moco", "memory": 8, "client": "mlp"},
        {"method": "scarf", "aggregation": "max"},
        {"pretrain_epochs": 0},
    ],
    ids=str,
)
def test_each_mode_of_ssl_local_is_proved(options):
    assert set(words(found("ssl_local", **options)).values()) == {"NOT PROTECTED"}


async def told_a_mean(self):
    await started_anew(self)
    self.network.step(ssl_local.take_over, self.pretraining.own)
    self.record("learnt", mean=self.features.map(np.mean, shape=(), dtype=np.float64))


async def started_anew(self):
    """Pre-trains, and forgets to start from the result."""
    await self.pretraining.make(self.features, how=self.method)


IN_SSL_LOCAL = {
    "a column in embeddings": ("embed", sees_a_column, "server"),
    "a mean in the history": ("setup", told_a_mean, "client 1"),
    "no start from the result": ("setup", started_anew, "server"),
}


@pytest.mark.parametrize("name", IN_SSL_LOCAL)
def test_a_mistake_in_ssl_local_is_not_proved(name, monkeypatch):
    method, planted, who = IN_SSL_LOCAL[name]
    monkeypatch.setattr(ssl_local.Client, method, planted)
    not_proved(who, "ssl_local")
