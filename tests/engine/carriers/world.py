"""Sessions of several parties in virtual time, over a carrier that may be hostile."""

import asyncio
import heapq
from itertools import count

from securevfl.engine.carriers.datagrams import encode_hello
from securevfl.engine.carriers.handshake import Credentials
from securevfl.engine.carriers.session import Session
from securevfl.engine.security.identity import Identity, Manifest, ManifestEntry
from tests.engine.carriers.memory import Hostility, MemoryRelay


async def drained(end, seconds):
    """Wait until all frames of an endpoint are acknowledged, at most `seconds`; return success."""
    loop = asyncio.get_running_loop()
    over = loop.time() + seconds
    while not end.session.idle and loop.time() < over:
        await asyncio.sleep(0.02)
    return end.session.idle


def identity():
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Identity(Ed25519PrivateKey.generate())


def manifest_of(identities, session="session"):
    entries = {
        n: ManifestEntry(who.public, relay=who.relay_public) for n, who in identities.items()
    }
    made = Manifest(session, "fedvs", entries)
    for n, who in identities.items():
        made = made.signed(n, who)
    return made


def credentials_of(who, manifest):
    return Credentials(manifest.digest, who.sign, manifest.has_signed)


def hello_of(session, peer):
    """The datagram by which a party introduces itself at present."""
    made = session._links[peer].handshake
    return encode_hello(session.index, peer, made.offer, made.answer)


class World:
    """Parties -1 to n - 2, whose datagrams take some time and meet hostility."""

    def __init__(self, parties=2, hostility=None, seed=0, trip=0.01, **options):
        self.identities = {n: identity() for n in range(-1, parties - 1)}
        self.manifest = manifest_of(self.identities)
        self.relay = MemoryRelay(hostility or Hostility(), seed)
        self.trip, self.options = trip, options
        self.now, self.order, self.under_way = 0.0, count(), []
        self.sessions, self.got, self.met = {}, {}, {}
        self.down, self.bytes, self.sizes = False, 0, []
        self.stopped = set()
        for n in self.identities:
            self.start(n, 0)

    def start(self, n, epoch, **changed):
        """A new incarnation of a party."""
        got, met = self.got.setdefault(n, []), self.met.setdefault(n, [])
        made = Session(
            n, self.identities, epoch, credentials_of(self.identities[n], self.manifest),
            deliver=lambda frame, sender: got.append(frame),
            introduce=lambda peer, epoch: met.append((peer, epoch)),
            **(self.options | changed),
        )  # fmt: skip
        self.sessions[n] = made
        self.stopped.discard(n)
        return made

    def flush(self):
        for n, session in self.sessions.items():
            if n in self.stopped or self.down:
                continue
            for receiver, data in session.due(self.now):
                self.bytes += len(data)
                self.sizes.append(len(data))
                for arriving in self.relay.outcome(receiver, data):
                    self.bring(receiver, arriving)

    def bring(self, receiver, data):
        heapq.heappush(self.under_way, (self.now + self.trip, next(self.order), receiver, data))

    def step(self):
        """Go to the next thing that happens."""
        self.flush()
        awake = [s for n, s in self.sessions.items() if n not in self.stopped]
        following = [session.next_due(self.now) for session in awake] if not self.down else []
        if self.under_way:
            following.append(self.under_way[0][0])
        self.now = max(self.now + 1e-4, min(following, default=self.now + 1.0))
        while self.under_way and self.under_way[0][0] <= self.now:
            _, _, receiver, data = heapq.heappop(self.under_way)
            if not self.down and receiver not in self.stopped:
                self.sessions[receiver].take(data, self.now)

    def run(self, until, seconds=60.0):
        end = self.now + seconds
        while not until():
            assert self.now < end, "virtual time is over"
            self.step()

    def for_seconds(self, seconds):
        end = self.now + seconds
        while self.now < end:
            self.step()

    def meet(self):
        everybody = len(self.sessions) - 1
        self.run(lambda: all(len(s.present) == everybody for s in self.sessions.values()))
