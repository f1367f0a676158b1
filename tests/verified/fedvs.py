"""Masked FedVS with protected values: its client as a paper's algorithm box, and the flow."""

from __future__ import annotations

import numpy as np

from securevfl.field import LagrangeCode, PrimeField
from securevfl.field.prss import Prss
from securevfl.verified import SERVER, Party, World, combination
from tests.verified.coded import decode, encode, hidden


class Client(Party):
    """Client n: it shares its data once and its model every round, evaluates, updates."""

    def __init__(self, index, world, code, prss, data, model):
        super().__init__(index, world)
        self.code, self.prss, self.data, self.model = code, prss, data, model
        self.held, self.models, self.keys = {}, {}, {}

    def share_data(self):  # lines 2-8
        return encode(self, self.code, self.data)

    def share_model(self):  # lines 15-17
        return encode(self, self.code, [self.model] * self.code.segments)

    def upload(self, rows, sharers, label):  # line 23
        parts = [self.held[m].rows(rows) @ self.models[m] for m in sharers]
        return hidden(self, self.prss, self.keys, combination((1, x) for x in parts), label)

    def update(self, gradient, rows):  # lines 33-35
        own = [x.rows(rows) for x in self.data]
        self.model = self.model.map(step, gradient, *own)


def step(model, gradient, *rows):
    """One step of a client's model; any function of these would do."""
    stacked = np.concatenate(rows).astype(object)
    return ((model.astype(object) - stacked.T.dot(gradient.astype(object))) % P).astype(model.dtype)


def loss_gradient(sums, labels):
    """dL/dH, from the decoded sums and the labels."""
    return ((sums.astype(object) * 3 + labels.astype(object)) % P).astype(sums.dtype)


P = 2**31 - 1


class FedVS:
    """The flow of messages: sharers and uploaders of each round are its schedule."""

    client = Client

    def __init__(self, N=5, K=1, T=1, rounds=2, M=4, batch=2, d=2, h=1, masked=True):
        self.N, self.K, self.T, self.rounds, self.masked = N, K, T, rounds, masked
        self.world = World(P)
        self.code = LagrangeCode(PrimeField(P), parties=N, segments=K, privacy=T)
        self.prss = Prss(self.code, degree=2)
        self.M, self.batch, self.h = M, batch, h
        self.clients = []
        for n in range(N):
            data = [self.world.secret(n, f"X{n}.{k}", (M, d)) for k in range(K)]
            model = self.world.secret(n, f"W{n}", (d, h))
            self.clients.append(self.client(n, self.world, self.code, self.prss, data, model))
        self.server = Party(SERVER, self.world)
        self.labels = self.world.secret(SERVER, "y", (K * batch, h))
        self.ideal_models = [self.world.spec(c.model) for c in self.clients]

    def rows_in(self, round):
        return (np.arange(self.batch) + round) % self.M

    def sharers(self, round):
        return range(self.N)

    def uploaders(self, round):
        return range(self.N)

    def label(self, round, rows, sharers):
        return repr((round, list(rows), list(sharers))).encode()

    def deal_keys(self):
        for dealer in self.clients:
            drawn = {key: dealer.key(f"k{key}.") for key in self.prss.dealt(dealer.index)}
            for key, one in drawn.items():
                for n in self.prss.holders[key]:
                    self.clients[n].keys[key] = dealer.send(n, "key", one)

    def run(self):
        if self.masked:
            self.deal_keys()
        for client in self.clients:
            for j, share in enumerate(client.share_data()):
                self.clients[j].held[client.index] = client.send(j, "data", share)
        for round in range(1, self.rounds + 1):
            self.world.round = round
            self.one(round, self.rows_in(round))
        return self

    def one(self, round, rows):
        sharers = list(self.sharers(round))
        for n in sharers:
            for j, share in enumerate(self.clients[n].share_model()):
                self.clients[j].models[n] = self.clients[n].send(j, "model", share)
        self.evaluate(round, rows, sharers)

    def evaluate(self, round, rows, sharers):
        label, got = self.label(round, rows, sharers), {}
        for n in self.uploaders(round):
            upload = self.uploaded(self.clients[n], rows, sharers, label)
            got[n] = self.clients[n].send(SERVER, "upload", upload)
        if len(got) < self.code.recovery_threshold():
            return
        ideal = self.ideal(round, rows, sharers)
        gradient = decode(self.code, got).map(loss_gradient, self.labels)
        for n in sharers:
            self.clients[n].update(self.server.send(n, "gradient", gradient), rows)
            data = [self.world.spec(x).rows(rows) for x in self.clients[n].data]
            self.ideal_models[n] = self.ideal_models[n].map(step, ideal, *data)

    def uploaded(self, client, rows, sharers, label):
        if self.masked:
            return client.upload(rows, sharers, label)
        parts = [client.held[m].rows(rows) @ client.models[m] for m in sharers]
        return combination((1, x) for x in parts)

    def ideal(self, round, rows, sharers):
        """Declared outputs, apart from the parties: sums to the server, dL/dH to all."""
        from securevfl.verified import concatenate

        spec, sums = self.world.spec, []
        for k in range(self.K):
            total = sum(
                spec(self.clients[n].data[k]).rows(rows) @ self.ideal_models[n] for n in sharers
            )
            sums.append(total)
            self.world.output(f"U{k} of {round}", total, to=[SERVER])
        gradient = concatenate(sums).map(loss_gradient, spec(self.labels))
        self.world.output(f"G of {round}", gradient)
        return gradient

    def coalitions(self):
        some = set(range(self.N - self.T, self.N))
        return {"clients": some, "server": {SERVER}, "both": {SERVER, *some}}
