"""Protocols that are small and awkward: they use what the engine offers in every combination.

Each keeps integers only, folded in an order that any difference of arrival would change.
"""

import numpy as np

from securevfl.engine.party import SERVER, Party, kept_as

PEERS = range(6)


def fold(state, *values):
    """A hash that depends on the order of what is folded in."""
    for value in values:
        state = (state * 1_000_003 + int(value) + 1) % (2**61 - 1)
    return state


class Toy(Party):
    """A party that is busy for a while with each message, where computing is modelled."""

    def operations(self, kind):
        return 1000 * (self.index + 2)


class FedVSClient(Toy):
    """Shares once, then shares and uploads every round; may be left behind by the server."""

    kept = ("state", *kept_as("once", "held"))

    def __init__(self, index, peers):
        super().__init__(index, peers)
        self.state = index
        self.held = {}

    async def setup(self):
        self.share("data", [np.array([self.index, n]) for n in self.peers])
        self.held = await self.collect("data", safe=True)  # no safe point: setup is not resumed
        self.safe_point()

    async def run(self):
        async for round_ in self.rounds():
            with round_:
                draw = int(self.stream("model", self.round).integers(1000))
                self.share("model", [draw + n for n in self.peers])
                self.send(SERVER, "shared", None)
                sharers = await self.receive("attempt")
                shares = await self.collect("model", senders=sharers)
                await self.sleep(0.01 * self.index)
                self.state = fold(self.state, *shares.values(), *(a[1] for a in self.held.values()))
                self.send(SERVER, "embedding", np.array([self.state], np.int64))
                gradient = await self.receive("gradient")
                self.state = fold(self.state, gradient)
                self.record("client", state=self.state)


class FedVSServer(Toy):
    kept = ("state", "steps")

    def __init__(self, peers, rounds):
        super().__init__(SERVER, peers)
        self.wanted = rounds
        self.state = 0
        self.steps = 0

    async def run(self):
        while self.steps < self.wanted:
            self.safe_point()
            opened = self.now  # a resumed server must see the time of its safe point here
            self.announce(self.round + 1, {"opened": opened})
            sharers = await self.collect("shared", count=4, timeout=0.4)
            self.broadcast("attempt", tuple(sharers) or (0,))
            results = await self.collect("embedding", count=3, timeout=2.0)
            self.state = fold(self.state, *results, *(r[0] for r in results.values()))
            self.steps += 1
            if results:
                self.broadcast("gradient", self.state)
            self.record("round", state=self.state, took=self.now - opened, got=tuple(results))
        self.conclude()


def fedvs_like(rounds=8):
    clients = {n: FedVSClient(n, PEERS) for n in PEERS}
    return {SERVER: FedVSServer(PEERS, rounds)} | clients


class VAFLClient(Toy):
    """Uploads whenever it likes and waits for its own answer; safe waits, no rounds."""

    kept = ("state", "steps")

    def __init__(self, index, peers, steps):
        super().__init__(index, peers)
        self.wanted = steps
        self.steps = 0
        self.state = index

    async def run(self):
        while self.steps < self.wanted:
            self.safe_point()
            started = self.now
            self.round = self.steps + 1
            nap = float(self.stream("nap", self.round).exponential(0.3))
            await self.sleep(nap)
            self.send(SERVER, "embedding", self.state, after=nap / 3)
            answer = await self.receive("gradient")
            self.state = fold(self.state, answer, round(1e6 * (self.now - started)))
            self.steps += 1
            self.record("client", state=self.state)
        self.send(SERVER, "bye", None)


class VAFLServer(Toy):
    kept = ("state", "left", "asked")

    def __init__(self, peers):
        super().__init__(SERVER, peers)
        self.state = 1
        self.left = len(self.peers)
        self.asked = 0

    async def run(self):
        while self.left:
            since = self.now
            try:
                value = await self.receive("embedding", "bye", timeout=0.05, safe=True)
            except TimeoutError:
                self.asked += 1
                continue
            sender = self.envelope.sender
            if value is None:
                self.left -= 1
                continue
            self.state = fold(self.state, sender, value, round(1e6 * (self.now - since)))
            self.send(sender, "gradient", self.state)
            self.record("round", state=self.state, asked=self.asked)


def vafl_like(steps=8):
    clients = {n: VAFLClient(n, PEERS, steps) for n in PEERS}
    return {SERVER: VAFLServer(PEERS)} | clients


class DVFLPeer(Toy):
    """No server: a register that handlers fill, read when the party wakes up."""

    kept = ("state", "steps", "register")

    def __init__(self, index, peers, steps):
        super().__init__(index, peers)
        self.wanted = steps
        self.steps = 0
        self.state = index
        self.register = {}

    async def setup(self):
        if self.index % 2:
            await self.sleep(0.5)  # handlers are registered after the first messages came
        self.broadcast("register", (self.index, 0))

    async def run(self):
        self.on("register", self.enter)
        self.on("ask", self.answer)
        while self.steps < self.wanted:
            self.safe_point()
            self.round = self.steps + 1
            await self.sleep(0.1 + float(self.stream("nap", self.round).exponential(0.2)))
            whom = (self.index + self.round) % len(self.peers)
            if whom != self.index:
                self.send(whom, "ask", self.state)
                try:
                    self.state = fold(self.state, await self.receive("reply", timeout=0.5))
                except TimeoutError:
                    self.state = fold(self.state, 77)
            self.state = fold(self.state, *sorted(v for v, _ in self.register.values()))
            self.steps += 1
            self.broadcast("register", (self.state, self.steps))
            self.record("peer", state=self.state, known=len(self.register))

    def enter(self, message):
        self.register = {**self.register, message.sender: message.payload}

    def answer(self, message):
        self.state = fold(self.state, message.payload)
        self.send(message.sender, "reply", self.state, round=message.round, after=0.05)
        self.record("answered", now=round(1e9 * self.now))


def dvfl_like(steps=8):
    return {n: DVFLPeer(n, PEERS, steps) for n in PEERS}


class Hasty(Toy):
    """Opens rounds by the clock and never waits for anybody; others are overtaken."""

    kept = ("steps",)

    def __init__(self, peers, rounds):
        super().__init__(SERVER, peers)
        self.wanted = rounds
        self.steps = 0

    async def run(self):
        while self.steps < self.wanted:
            self.safe_point()
            self.announce(self.round + 1, self.steps)
            await self.sleep(0.3 + 0.1 * (self.steps % 4))
            self.steps += 1
            self.record("round", step=self.steps)
        self.conclude()


class Plodder(Toy):
    """Talks in a ring within each round and is often cut short; some end early."""

    kept = ("state", "finished")

    def __init__(self, index, peers):
        super().__init__(index, peers)
        self.state = index
        self.finished = 0

    async def run(self):
        async for round_ in self.rounds():
            with round_:
                await self.sleep(float(self.stream("work", self.round).exponential(0.25)))
                following = (self.index + 1) % len(self.peers)
                self.send(following, "embedding", self.state)
                before = (self.index - 1) % len(self.peers)
                heard = await self.collect("embedding", senders=[before], timeout=0.4)
                self.state = fold(self.state, *heard.values(), round_.payload)
                self.finished += 1
                self.record("plodded", state=self.state)
            if self.finished >= 2 + self.index:
                return


def hasty_like(rounds=12):
    return {SERVER: Hasty(PEERS, rounds)} | {n: Plodder(n, PEERS) for n in PEERS}


TOYS = {"fedvs": fedvs_like, "vafl": vafl_like, "dvfl": dvfl_like, "hasty": hasty_like}


class Recorder:
    """An observer that keeps everything, and asks for checkpoints at given events."""

    def __init__(self):
        self.events = []

    def record(self, event):
        self.events.append((event.time, event.party, event.round, event.name, event.fields))

    def round_over(self, party, round, time, left):
        self.events.append((time, party, round, "over", {"left": left}))
