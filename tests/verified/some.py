"""The sum of those who are there: Shamir shares of embeddings, and a server that goes on."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from securevfl.errors import SecureVFLError
from securevfl.field import FixedPoint, PrimeField
from securevfl.protocols.protocol import Card, SplitProtocol, TrainingConfig
from securevfl.verified import SERVER, Participant, Provable, combination, usual

FIELD = PrimeField(2**31 - 1)
DOWN = "client 3 is down from round 2 on"
POINT = FixedPoint(FIELD, bits=8)


def embedding(features, rows):
    return POINT.quantize(np.asarray(features)[rows])


class Client(Participant):
    """It shares its rows of a round, and sums shares of those whom the server names."""

    kept = ("spare",)
    activities: ClassVar = {"sum": "upload", "share": "share"}
    protected: ClassVar = {"share": "field", "sum": "field"}

    def __init__(self, index, peers, features):
        super().__init__(index, peers, FIELD)
        self.features = self.own("columns", features)
        self.spare = None

    def tape(self, shape):
        return self.uniform(shape)

    async def run(self):
        async for round_ in self.rounds():
            with round_:
                rows = np.array(round_.payload)
                shape = (len(rows), self.features.shape[1])
                own = self.features.map(embedding, rows, shape=shape, field=FIELD)
                tape = self.tape(shape)
                self.share("share", [own + tape.times(n + 1) for n in self.peers])
                shares = await self.collect("share", senders=self.peers, timeout=0.6)
                self.send(SERVER, "there", sorted(shares))
                some = await self.receive("sharers")
                self.send(SERVER, "sum", sum(shares[n] for n in some))


class Server(Participant):
    """It adds up by two points of the line."""

    kept = ("steps",)
    protected = Client.protected

    def __init__(self, peers, rows, rounds):
        super().__init__(SERVER, peers, FIELD)
        self.rows, self.wanted, self.steps = rows, rounds, 0

    async def run(self):
        while self.steps < self.wanted:
            self.safe_point()
            self.announce(self.round + 1, self.rows(self.round + 1))
            there = await self.collect("there", senders=self.peers, timeout=0.7)
            some = [n for n in self.peers if all(n in held for held in there.values())]
            if len(some) < 3:  # a client that helps the server would know the other one's
                self.record("given_up")
                continue
            self.broadcast("sharers", some, to=sorted(there))
            sums = await self.collect("sum", senders=sorted(there), timeout=1.2)
            if len(sums) < 2:
                self.record("given_up")
                continue
            a, b = list(sums)[:2]
            inverse = pow(b - a, -1, FIELD.modulus)
            total = combination([((b + 1) * inverse, sums[a]), (-(a + 1) * inverse, sums[b])])
            self.steps += 1
            self.record("round", step=self.steps, shape=list(total.shape))
        self.conclude()


class SomeSum(Provable, SplitProtocol):
    """Each round has rows of its own."""

    name = "some_sum"
    Config = TrainingConfig
    field = FIELD
    Member = Client
    traced_options: ClassVar = {"rounds": 3, "batch": 1, "width": 1}
    card = Card("Sums", "none", {"server": "", "client": ""}, {}, "skips")
    messages = ()
    claims = ()
    batch_rows = 1

    def rows(self, round):
        return [round % self.data.rows]

    def parties(self):
        server = Server(self.peers(), self.rows, self.config.rounds)
        clients = {n: self.Member(n, self.peers(), self.data.train[n]) for n in self.peers()}
        return {SERVER: server} | clients

    def schedules(self):
        return usual(len(self.peers()), waits=False)

    def colluders(self):
        return 1

    def ideal(self, world):
        sharers = {m.round: m.said for m in world.messages if m.kind == "sharers"}
        sums = [m.round for m in world.messages if m.kind == "sum"]
        for r, some in sharers.items():
            if sums.count(r) < 2:  # fewer than threshold tell nothing
                continue
            columns = [world.the(n, "columns") for n in some]
            shape = (1, columns[0].shape[1])
            rows = np.array(self.rows(r))
            own = [x.map(embedding, rows, shape=shape, field=FIELD) for x in columns]
            world.output(f"sum {r}", sum(own), to=[SERVER])


class SameRows(SomeSum):
    """Leak: the same rows in each round, so that who is missing is the difference."""

    def rows(self, round):
        return [0]


class Again(Client):
    """Leak: a tape that is drawn one round ahead, and is in the checkpoint."""

    def tape(self, shape):
        first = self.uniform(shape) if self.spare is None else self.spare
        self.spare = self.uniform(shape)
        return first


class TapeAgain(SomeSum):
    Member = Again


class Few(SomeSum):
    """Two schedules."""

    def schedules(self):
        return tuple(one for one in super().schedules() if one.name in ("nobody is late", DOWN))


class GivesUp(SomeSum):
    """It has no answer to an attempt that is given up."""

    def ideal(self, world):
        if len(world.rounds("event given_up")):
            raise SecureVFLError("given up")
        super().ideal(world)
