"""Programs by a second outsider, written before the prover was read: 30 leaks and 12 sound ones.

Each leak is one that an honest author could make by mistake, with the coalition that learns, and
the word (a message's kind, an input, or a line) that a good text names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.field import PrimeField
from securevfl.verified import SERVER, World, combination, concatenate, stack

EXAMPLE = Path(__file__).parents[2] / "examples" / "proved_protocol" / "proved_split.py"
P = 2**31 - 1


@dataclass(frozen=True)
class Program:
    """A program of a World, and what is to be said of it."""

    name: str
    make: Callable[[], World]
    coalition: frozenset[int]
    names: tuple[str, ...]  # one of these is in a text that points at the right message or line
    why: str


@dataclass(frozen=True)
class Change:
    """Edits of the example, and what is to be said of the protocol that comes of them."""

    name: str
    edits: tuple[tuple[str, str], ...]
    coalition: frozenset[int]
    names: tuple[str, ...]
    why: str

    def source(self) -> str:
        """The example with the edits, and with one coalition's claim."""
        text = EXAMPLE.read_text()
        claim = f"return (frozenset({set(self.coalition)}),)"
        some = f"    def coalitions(self) -> Any:\n        {claim}\n\n"
        for old, new in (*self.edits, ("    def colluders(", f"{some}    def colluders(")):
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        return text


LEAKS: list[Program] = []
SOUND: list[Program] = []
CHANGES: list[Change] = []
VARIANTS: list[Change] = []


def leak(coalition: set[int], *names: str) -> Any:
    """A decorator: a program that leaks to a coalition by the messages `names`."""
    return _kept(LEAKS, coalition, names)


def sound(coalition: set[int]) -> Any:
    """A decorator: a program that does not leak to a coalition."""
    return _kept(SOUND, coalition, ())


def _kept(into: list[Program], coalition: set[int], names: Sequence[str]) -> Any:
    def keep(make: Callable[[], World]) -> Callable[[], World]:
        why = (make.__doc__ or "").strip()
        into.append(Program(make.__name__, make, frozenset(coalition), tuple(names), why))
        return make

    return keep


def start(n: int, shape: tuple[int, ...] = (4, 2), p: int = P) -> Any:
    """A world, its clients, its server, and an input of each client."""
    world = World(p)
    parties = [world.party(i) for i in range(n)]
    inputs = [world.secret(i, f"x{i}", shape) for i in range(n)]
    return world, parties, world.party(SERVER), inputs


def total(world: World, values: Sequence[Any], name: str = "sum", to: Any = (SERVER,)) -> None:
    """Declare the sum of inputs."""
    world.output(name, combination([(1, world.spec(v)) for v in values]), to=list(to))


def lagrange(points: Sequence[int], at: int, p: int = P) -> list[int]:
    """Coefficients of the values at points in the interpolated value at another one."""
    found = []
    for i in points:
        top, bottom = 1, 1
        for j in points:
            if j != i:
                top, bottom = top * (at - j) % p, bottom * (i - j) % p
        found.append(top * pow(bottom, -1, p) % p)
    return found


def shamir(party: Any, secret: Any, threshold: int, points: Sequence[int]) -> list[Any]:
    """Shares of which `threshold` determine the secret."""
    tapes = [party.uniform(*secret.shape) for _ in range(threshold - 1)]
    return [
        combination([(1, secret)] + [(pow(t, k + 1), r) for k, r in enumerate(tapes)])
        for t in points
    ]


# --- leaks -------------------------------------------------------------------------------------


@leak({1, 2}, "share")
def shamir_degree_too_small() -> World:
    """Degree T - 1 for T colluders: two clients interpolate party 0's input."""
    world, (a, _b, _c, _), _server, (x, *_rest) = start(4)
    T = 2
    for n, s in enumerate(shamir(a, x, T, [1, 2, 3])):  # should be T + 1
        a.send(n + 1, "share", s)
    return world


@leak({1}, "share")
def shamir_point_zero() -> World:
    """Points from enumerate: client 1 gets the polynomial at 0, party 0's input."""
    world, (a, *_), _, (x, *_rest) = start(4)
    tapes = [a.uniform(4, 2), a.uniform(4, 2)]
    for point, n in enumerate([1, 2, 3]):
        pairs = [(1, x)] + [(point ** (k + 1), r) for k, r in enumerate(tapes)]
        a.send(n, "share", combination(pairs))
    return world


@leak({4}, "share")
def shamir_point_wraps() -> World:
    """Five points in F_5: the fifth is 0 modulo 5, and its client has the input."""
    world, (a, *_), _, (x, *_rest) = start(5, p=5)
    r = a.uniform(4, 2)
    for point in range(1, 6):
        a.send(point - 1, "share", x + point * r)
    return world


@leak({1, 2}, "share", "retry")
def shamir_again_with_tapes_swapped() -> World:
    """A retry takes the kept tapes in the other order: two clients have 4 equations for 3."""
    world, (a, *_), _, (x, *_rest) = start(4)
    tapes = [a.uniform(4, 2), a.uniform(4, 2)]
    for kind in ("share", "retry"):
        for point in (1, 2, 3):
            pairs = [(1, x)] + [(point ** (k + 1), r) for k, r in enumerate(tapes)]
            a.send(point, kind, combination(pairs))
        tapes.reverse()
    return world


@leak({1}, "share")
def shamir_points_renumbered() -> World:
    """After a drop-out points are renumbered on the same line: client 1 has two points of it."""
    world, (a, *_), _, (x, *_rest) = start(4)
    r = a.uniform(4, 2)
    for point, n in enumerate([2, 1, 3], start=1):
        a.send(n, "share", x + point * r)
    for point, n in enumerate([1, 3], start=1):  # 2 is gone
        a.send(n, "share", x + point * r)
    return world


@leak({SERVER}, "up")
def tape_for_two_rounds() -> World:
    """One mask for two rounds, drawn outside of the loop: the server has x's change."""
    world, (a, b), _, (x, y) = start(2)
    later, y2 = world.secret(0, "later", (4, 2)), world.secret(1, "y2", (4, 2))
    mask = a.uniform(4, 2)
    for r, (mine, yours) in enumerate([(x, y), (later, y2)]):
        world.round = r
        got = a.send(1, "mask", mask)
        a.send(SERVER, "up", mine + mask)
        b.send(SERVER, "up", yours - got)
        total(world, [mine, yours], f"sum {r}")
    return world


@leak({SERVER}, "up")
def label_without_round() -> World:
    """The PRF's label lacks the round: equal streams in both rounds."""
    world, (a, b), _, (x, y) = start(2)
    x2, y2 = world.secret(0, "x later", (4, 2)), world.secret(1, "y later", (4, 2))
    key = a.key()
    theirs = a.send(1, "key", key)
    for r, (mine, yours) in enumerate([(x, y), (x2, y2)]):
        world.round = r
        a.send(SERVER, "up", mine + a.prf(key, "mask", 4, 2))
        b.send(SERVER, "up", yours - b.prf(theirs, "mask", 4, 2))
        total(world, [mine, yours], f"sum {r}")
    return world


@leak({SERVER}, "retry")
def retry_without_mask() -> World:
    """After a time-out the kept embedding is sent again, and not the masked one."""
    world, (a, b), _, (x, y) = start(2)
    mask = a.uniform(4, 2)
    b.send(SERVER, "up", y - a.send(1, "mask", mask))
    kept = x
    a.send(SERVER, "up", x + mask)
    a.send(SERVER, "retry", kept)
    total(world, [x, y])
    return world


@leak({SERVER}, "up", "self seed", "pair key")
def both_masks_opened() -> World:
    """A late client's self seed is opened beside its pair key: both masks of party 0 go."""
    world, (a, b), _, (x, y) = start(2)
    pair, own = a.key("pair"), a.key("self")
    theirs, backup = a.send(1, "pair key", pair), a.send(1, "self seed", own)
    a.send(SERVER, "up", x + a.prf(pair, 1, 4, 2) + a.prf(own, 1, 4, 2))
    b.send(SERVER, "up", y - b.prf(theirs, 1, 4, 2))
    b.send(SERVER, "pair key", theirs)  # it believed 0 to be gone
    b.send(SERVER, "self seed", backup)  # then it was there after all
    total(world, [x, y])
    return world


@leak({SERVER, 1}, "pair key", "key", "up")
def key_sent_to_the_neighbour_below() -> World:
    """A ring of keys sends to n - 1, and party -1 is the server: with client 1 it has x0 alone."""
    world, parties, _, inputs = start(3)
    keys = [p.key() for p in parties]
    got = {}
    for n, p in enumerate(parties):
        to = n - 1
        got[to] = p.send(to, "key", keys[n])
    for n, p in enumerate(parties):
        up = inputs[n] + p.prf(keys[n], 1, 4, 2)
        if n in got:
            up = up - p.prf(got[n], 1, 4, 2)
        p.send(SERVER, "up", up)
    total(world, inputs)
    return world


@leak({SERVER}, "up")
def mask_shorter_than_batch() -> World:
    """A mask of 3 rows is wrapped around for 4: rows 0 and 3 have one mask."""
    world, (a, b), _, (x, y) = start(2)
    mask = a.uniform(3, 2)
    got = a.send(1, "mask", mask)
    rows = [i % 3 for i in range(4)]
    a.send(SERVER, "up", x + mask.rows(rows))
    b.send(SERVER, "up", y - got.rows(rows))
    total(world, [x, y])
    return world


def coarse(values: np.ndarray) -> np.ndarray:
    """Numbers without their last 8 bits."""
    return (values >> 8) << 8


def fine(values: np.ndarray) -> np.ndarray:
    """The last 8 bits, for error feedback."""
    return values & 255


@leak({SERVER}, "residual")
def residual_in_the_clear() -> World:
    """The rounding error of the quantiser goes in the clear, as it is 'only noise'."""
    world, (a, b), _, (x, y) = start(2)
    q = x.map(coarse)
    mask = a.uniform(4, 2)
    b.send(SERVER, "up", y - a.send(1, "mask", mask))
    a.send(SERVER, "up", q + mask)
    a.send(SERVER, "residual", x.map(fine))
    world.output("sum", world.spec(q) + world.spec(y), to=[SERVER])
    return world


def mean(values: np.ndarray) -> np.ndarray:
    """The mean of all entries."""
    return np.asarray(np.mean(values))


@leak({SERVER}, "debug")
def debugging_event() -> World:
    """A client writes its mean embedding into the history, which everybody reads."""
    world, (a, _b), _, (_, _y) = start(2)
    x = world.secret(0, "features", np.ones((4, 2)), real=True)
    a.record("debug", {"mean": x.map(mean, shape=())})
    return world


@leak({SERVER}, "up")
def public_seed() -> World:
    """The mask comes of a public generator with seed 0, 'for reproducible experiments'."""
    world, (a, b), _, (x, y) = start(2)
    mask = np.random.default_rng(0).integers(0, P, (4, 2))
    a.send(SERVER, "up", x + mask)
    b.send(SERVER, "up", y - mask)
    total(world, [x, y])
    return world


@leak({SERVER}, "up", "open")
def triple_used_twice() -> World:
    """One Beaver triple for two products: the opened x - a and x2 - a tell x - x2."""
    world, (a, b), _, (x, y) = start(2, (1, 2))
    x2 = world.secret(0, "x later", (1, 2))
    dealt = a.uniform(1, 2)
    b_has = b.uniform(1, 2)
    for mine in (x, x2):
        a.send(SERVER, "open", mine - dealt)
        b.send(SERVER, "open", y - b_has)
    return world


@leak({SERVER, 2}, "up", "key")
def one_group_key() -> World:
    """All pairs use one group key: the server and any client unmask each other client."""
    world, parties, _, inputs = start(3)
    key = parties[0].key()
    keys = {0: key, 1: parties[0].send(1, "key", key), 2: parties[0].send(2, "key", key)}
    for n, p in enumerate(parties):
        up = inputs[n]
        for m in range(3):
            if m != n:
                mask = p.prf(keys[n], (min(n, m), max(n, m)), 4, 2)
                up = up + mask if n < m else up - mask
        p.send(SERVER, "up", up)
    total(world, inputs)
    return world


@leak({2}, "cipher")
def ciphertexts_one_by_one() -> World:
    """The server forwards each ciphertext to the key's holder, and not their sum."""
    world, parties, server, inputs = start(3)
    got = [p.send(SERVER, "cipher", p.encrypt(x, 2)) for p, x in zip(parties, inputs, strict=True)]
    for c in got:
        server.send(2, "cipher", c)
    total(world, inputs, to=[2])
    return world


@leak({SERVER}, "commitment")
def unsalted_commitment() -> World:
    """A commitment without a nonce: a function of few inputs, which the server tries out."""
    world, (a, b), _, (x, y) = start(2)
    mask = a.uniform(4, 2)
    a.send(SERVER, "commitment", x.map(digest, shape=()))
    a.send(SERVER, "up", x + mask)
    b.send(SERVER, "up", y - a.send(1, "mask", mask))
    total(world, [x, y])
    return world


def digest(values: np.ndarray) -> np.ndarray:
    """A weak hash."""
    return np.asarray(int(np.sum(values % 65521)) % 65521)


@leak({SERVER}, "masked")
def multiplied_mask() -> World:
    """A mask that multiplies, drawn from all of F_p: zeros of x stay zeros."""
    world, (a, _b), _, (x, _y) = start(2)
    a.send(SERVER, "masked", x * a.uniform(4, 2))
    return world


@leak({3}, "coded")
def lagrange_points_overlap() -> World:
    """An evaluation point of a worker is the point of a data block: it gets the block."""
    world, (a, *_), _, (x, *_rest) = start(4)
    blocks = [x.rows([0, 1]), x.rows([2, 3]), a.uniform(2, 2)]
    at = [1, 2, 3]
    for n in (1, 2, 3):
        alpha = n + 4 if n < 3 else 2
        c = lagrange(at, alpha)
        a.send(n, "coded", combination(list(zip(c, blocks, strict=True))))
    return world


@leak({1}, "coded", "up")
def lagrange_tape_for_two_matrices() -> World:
    """Features and next batch are coded with the same tape block: differences cancel it."""
    world, (a, *_), _, (x, *_rest) = start(4)
    later = world.secret(0, "next batch", (4, 2))
    tape = a.uniform(2, 2)
    for mine in (x, later):
        blocks = [mine.rows([0, 1]), mine.rows([2, 3]), tape]
        for n in (1, 2, 3):
            a.send(
                n, "coded", combination(list(zip(lagrange([1, 2, 3], n + 4), blocks, strict=True)))
            )
    return world


@leak({SERVER}, "sum", "x0", "party 0")
def sum_of_one() -> World:
    """Two of three drop out, and the sum over the rest is the sum over one."""
    world, parties, _, inputs = start(3)
    rest = [0]
    for n in rest:
        parties[n].send(SERVER, "up", inputs[n])
    total(world, [inputs[n] for n in rest])
    return world


@leak({SERVER}, "sum", "x later", "party 0")
def stale_embedding_of_the_absent() -> World:
    """An absent client's last embedding is used again: two sums differ by party 0's change."""
    world, (a, b), _, (x, y) = start(2)
    x2 = world.secret(0, "x later", (4, 2))
    for r, mine in enumerate([x, x2]):
        world.round = r
        mask = a.uniform(4, 2)
        a.send(SERVER, "up", mine + mask)
        b.send(SERVER, "up", y - a.send(1, "mask", mask))
        total(world, [mine, y], f"sum {r}")
    return world


def plus(x: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Rows with noise."""
    return x + noise


@leak({SERVER}, "release")
def noise_shared_by_two_releases() -> World:
    """One draw of noise for two releases: their difference has none."""
    world = World(P)
    a = world.party(0)
    x = world.secret(0, "x0", np.ones((4, 2)), real=True)
    x2 = world.secret(0, "x later", np.zeros((4, 2)), real=True)
    noise = world.secret(0, "noise", np.random.default_rng(1).normal(size=(4, 2)), real=True)
    a.send(SERVER, "release", x.map(plus, noise))
    a.send(SERVER, "release", x2.map(plus, noise))
    return world


def less(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A difference."""
    return a - b


@leak({SERVER}, "correction")
def noise_taken_back() -> World:
    """The noise is sent as well, so that the server's metrics are exact."""
    world = World(P)
    a = world.party(0)
    x = world.secret(0, "x0", np.ones((4, 2)), real=True)
    clipped = x.clip(1.0)
    z = a.gaussian(clipped, 2.0)
    a.send(SERVER, "release", z)
    a.send(SERVER, "correction", z.map(less, clipped))
    return world


@leak({SERVER}, "release")
def clipped_and_not_released() -> World:
    """Clipping is taken for the mechanism: the clipped rows go without noise."""
    world = World(P)
    a = world.party(0)
    x = world.secret(0, "x0", np.ones((4, 2)), real=True)
    a.send(SERVER, "release", x.clip(1.0))
    return world


@leak({SERVER, 3}, "share", "masked")
def seed_shared_with_threshold_one_less() -> World:
    """The seed is cut for threshold 2, and two clients with the server are claimed harmless."""
    world, (a, _b, c, _d), _, (x, *_rest) = start(4)
    key = a.key()
    for point, s in a.split_key(key, 2, [1, 2, 3]).items():
        got = a.send(point, "share", s)
        if point == 2:
            c.send(SERVER, "share", got)
    a.send(SERVER, "masked", x + a.prf(key, 0, 4, 2))
    return world


def small(values: np.ndarray) -> np.ndarray:
    """Masks of 16 bits, so that nothing overflows."""
    return values % 65536


@leak({SERVER}, "up")
def mask_too_small() -> World:
    """Masks of 16 bits for values of 31: high bits stand in the clear."""
    world, (a, b), _, (x, y) = start(2)
    mask = a.uniform(4, 2).map(small)
    b.send(SERVER, "up", y - a.send(1, "mask", mask))
    a.send(SERVER, "up", x + mask)
    total(world, [x, y])
    return world


@leak({SERVER}, "projection")
def public_projection() -> World:
    """A public random matrix is taken for encryption; it can be inverted."""
    world, (a, _b), _, (x, _y) = start(2)
    R = np.random.default_rng(3).integers(0, P, (4, 4))
    a.send(SERVER, "projection", R @ x)
    return world


# --- changes of the example that leak ------------------------------------------------------------


def change(
    name: str, *edits: tuple[str, str], to: set[int], names: Sequence[str], why: str
) -> None:
    """Add a change that leaks."""
    CHANGES.append(Change(name, edits, frozenset(to), tuple(names), why))


change(
    "cached_tapes",
    (
        "shares = {j: self.uniform(secret.shape) for j in self.peers if j != self.index}",
        """if self.tapes is None:
            self.tapes = {j: self.uniform(secret.shape) for j in self.peers if j != self.index}
        shares = dict(self.tapes)""",
    ),
    (
        'self.features = self.own("columns", features)',
        """self.features = self.own("columns", features)
        self.tapes: Any = None""",
    ),
    to={SERVER},
    names=["share", "embedding", "tapes"],
    why="Tapes are cached between rounds: client j's sums differ by its embedding's change.",
)
change(
    "one_row_of_mask",
    (
        "{j: self.uniform(secret.shape) for",
        "{j: np.ones((secret.shape[0], 1), int) @ self.uniform(1, secret.shape[1]) for",
    ),
    to={SERVER},
    names=["embedding", "share"],
    why="One mask for all rows of a batch: the server has the differences of rows of each client.",
)
change(
    "one_neighbour",
    (
        "shares = {j: self.uniform(secret.shape) for j in self.peers if j != self.index}",
        """after = (self.index + 1) % len(self.peers)
        zero = self.uniform(secret.shape)
        zero = zero - zero
        shares = {j: zero for j in self.peers if j != self.index}
        shares[after] = self.uniform(secret.shape)""",
    ),
    to={SERVER, 0, 2},
    names=["embedding", "share"],
    why="Only the next client gets a tape: the server and both neighbours have an embedding.",
)
change(
    "every_colluder",
    ("return len(self.peers()) - 2", "return len(self.peers()) - 1"),
    to={SERVER, 0, 1, 2},
    names=["sum 1"],
    why="T is one too many: the server and N - 1 clients subtract theirs from the sum.",
)
change(
    "first_is_left_out",
    (
        'await self.collect("share", senders=self.peers)',
        'await self.collect("share", senders=self.peers[1:])',
    ),
    to={SERVER},
    names=["embedding"],
    why="Shares of client 0 are forgotten (off by one): the server has the sum of three.",
)
change(
    "debug_embedding",
    (
        'self.share("share", self.cut(H))',
        """self.share("share", self.cut(H))
                self.record("debug", mean=H.map(top, shape=(), real=True))""",
    ),
    (
        "class Client(Participant):",
        '''def top(values: np.ndarray) -> np.ndarray:
    """The mean entry."""
    return np.asarray(float(np.mean(values)))


class Client(Participant):''',
    ),
    to={1},
    names=["debug"],
    why="A debugging event in the history has the mean entry of an embedding.",
)
change(
    "labels_in_the_history",
    (
        "loss=loss, used=N)",
        "loss=loss, used=N, positive=self.labels.map(chosen, samples, shape=()))",
    ),
    (
        "class Client(Participant):",
        '''def chosen(labels: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """The share of positives in a batch."""
    return np.asarray(np.mean(labels[samples]))


class Client(Participant):''',
    ),
    to={1},
    names=["event round"],
    why="The history gets the batch's share of positives beside the loss: each client reads them.",
)
change(
    "sorted_batches",
    (
        'self.labels = self.own("labels", labels)',
        """self.labels = self.own("labels", labels)
        self.order = int(np.argmax(labels))""",
    ),
    (
        "batch = self.batches.draw(self.round + 1)",
        "batch = self.batches.draw(self.round + 1 + self.order)",
    ),
    to={1},
    names=["labels is an input", "announce"],
    why="The batch is chosen by the labels, and announced to all clients.",
)
change(
    "scale_of_the_data",
    (
        'self.features = self.own("columns", features)',
        """self.features = self.own("columns", features)
        self.point = FixedPoint(FIELD, bits=20 - int(np.ceil(np.log2(np.abs(features).max()))))""",
    ),
    to={SERVER},
    names=["features is an input", "step map embedding"],
    why="Each client scales by its largest feature: the quantiser, which all know, carries it.",
)
change(
    "gradient_of_the_network",
    (
        'self.network.step(step, *own, await self.receive("gradient"))',
        """gradient = await self.receive("gradient")
                (norm,) = self.network.step(norm_step, *own, gradient, shapes=[()])
                self.record("norm", value=norm)""",
    ),
    (
        "def loss_and_gradient(",
        '''def norm_step(
    network: PolynomialNetwork, features: np.ndarray, samples: np.ndarray, gradient: np.ndarray
) -> tuple[np.ndarray]:
    """One step; the norm of the weights' gradient."""
    rows = rows_of(features, samples)
    network.update(rows, gradient)
    return (np.float32(np.sqrt(np.sum((rows.T @ gradient) ** 2))),)


def loss_and_gradient(''',
    ),
    to={SERVER},
    names=["norm"],
    why="A client's optimiser writes its gradient's norm into the history: a bit about columns.",
)
change(
    "public_tapes",
    (
        "{j: self.uniform(secret.shape) for j in self.peers if j != self.index}",
        """{
            j: self.stream("cut", self.round, j).integers(0, FIELD.modulus, secret.shape)
            for j in self.peers if j != self.index
        }""",
    ),
    to={SERVER},
    names=["share", "embedding", "stream", "cut"],
    why="Tapes come of the run's public generator: everybody draws them, too.",
)
change(
    "error_tells",
    (
        'self.share("share", self.cut(H))',
        """try:
                    H = H.map(bounded, self.index)
                except ValueError:
                    H = H - H
                self.share("share", self.cut(H))""",
    ),
    (
        "class Client(Participant):",
        '''def bounded(values: np.ndarray, index: int) -> np.ndarray:
    """Refuse an embedding out of range."""
    if int(values.flat[0]) % 2:
        raise ValueError(f"client {index} has {values.flat[0]}")
    return values


class Client(Participant):''',
    ),
    to={SERVER},
    names=["bounded"],
    why="Whether a range is exceeded decides what is done, and a text of the error has the value.",
)
change(
    "cached_activations",
    (
        "class Client(Participant):",
        '''LAST = np.zeros((4, 2))


def told(gradient: np.ndarray) -> np.ndarray:
    """How far the last activations go along the gradient."""
    return np.asarray(np.sum(gradient * LAST[: len(gradient), : gradient.shape[1]]))


class Client(Participant):''',
    ),
    (
        "    return point.quantize(network.forward(rows_of(features, samples)))",
        """    found = network.forward(rows_of(features, samples))
    LAST[: found.shape[0], : found.shape[1]] = found
    return point.quantize(found)""",
    ),
    (
        'self.network.step(step, *own, await self.receive("gradient"))',
        """gradient = await self.receive("gradient")
                self.record("along", value=gradient.map(told, shape=()))
                self.network.step(step, *own, gradient)""",
    ),
    to={SERVER},
    names=["told"],
    why="Activations that are cached for the backward pass are read by a function of the gradient.",
)
change(
    "branch_of_the_columns",
    (
        'self.features = self.own("columns", features)',
        """self.features = self.own("columns", features)
        self.wide = bool(np.abs(features).max() > 1e6)""",
    ),
    (
        'self.share("share", self.cut(H))',
        """self.share("share", self.cut(H))
                if self.wide:
                    self.record("not normalised", client=self.index)""",
    ),
    to={SERVER},
    names=["features is an input"],
    why="A warning where columns are not normalised: a bit about them, which no traced input has.",
)

KNOWN = Change(
    "scale_of_all_columns",
    (
        (
            "self.point = FixedPoint(FIELD, bits=config.fraction_bits)",
            """largest = max(np.abs(X).max() for X in self.data.train)
        self.point = FixedPoint(FIELD, bits=config.fraction_bits if largest < 1e6 else 4)""",
        ),
    ),
    frozenset({SERVER}),
    ("bits",),
    "The protocol's class looks at all columns for a public scale; no traced input changes it.",
)

# --- sound programs ------------------------------------------------------------------------------


@sound({SERVER, 1})
def ring_of_masks() -> World:
    """Masks along a ring of four: the server and one client see the sum only."""
    world, parties, _, inputs = start(4)
    tapes = [p.uniform(4, 2) for p in parties]
    got = [p.send((n + 1) % 4, "mask", tapes[n]) for n, p in enumerate(parties)]
    for n, p in enumerate(parties):
        p.send(SERVER, "up", inputs[n] + tapes[n] - got[n - 1])
    total(world, inputs)
    return world


@sound({SERVER, 1})
def additive_shares() -> World:
    """Additive shares to all, sums to the server."""
    world, parties, _, inputs = start(3)
    held: dict[int, list[Any]] = {0: [], 1: [], 2: []}
    for n, p in enumerate(parties):
        cut = [p.uniform(4, 2) for _ in range(2)]
        for m, s in enumerate([*cut, inputs[n] - sum(cut)]):
            held[m].append(s if m == n else p.send(m, "share", s))
    for n, p in enumerate(parties):
        p.send(SERVER, "up", sum(held[n]))
    total(world, inputs)
    return world


@sound({SERVER, 2})
def lagrange_coded_linear() -> World:
    """Two owners code two blocks each; four workers apply a public matrix; the sum is decoded."""
    world, parties, _, inputs = start(4)
    at, beta = [1, 2, 3], {n: 5 + n for n in range(4)}
    W = np.array([[1, 2], [3, 4]])
    held: dict[int, Any] = {}
    for n in (0, 1):
        blocks = [inputs[n].rows([0, 1]), inputs[n].rows([2, 3]), parties[n].uniform(2, 2)]
        for m in range(4):
            code = combination(list(zip(lagrange(at, beta[m]), blocks, strict=True)))
            got = code if m == n else parties[n].send(m, "coded", code)
            held[m] = got if m not in held else held[m] + got
    for m in range(4):
        parties[m].send(SERVER, "result", held[m] @ W)
    world.output("result", (world.spec(inputs[0]) + world.spec(inputs[1])) @ W, to=[SERVER])
    return world


@sound({SERVER, 3})
def pairwise_masks_with_agreement() -> World:
    """Bonawitz's masks of agreed keys, with nobody missing."""
    world, parties, server, inputs = start(4)
    secret = [p.key() for p in parties]
    public = {
        (n, m): server.send(m, "public", p.send(SERVER, "public", p.public_key(secret[n])))
        for n, p in enumerate(parties)
        for m in range(4)
        if m != n
    }
    for n, p in enumerate(parties):
        up = inputs[n]
        for m in range(4):
            if m != n:
                mask = p.prf(p.agree(secret[n], public[m, n]), (1, "up"), 4, 2)
                up = up + mask if n < m else up - mask
        p.send(SERVER, "up", up)
    total(world, inputs)
    return world


@sound({SERVER, 0})
def shamir_sums() -> World:
    """Three of four Shamir shares decode the sum of inputs."""
    world, parties, _, inputs = start(4)
    held: dict[int, Any] = {}
    for n, p in enumerate(parties):
        for m, s in enumerate(shamir(p, inputs[n], 3, [1, 2, 3, 4])):
            got = s if m == n else p.send(m, "share", s)
            held[m] = got if m not in held else held[m] + got
    for m, p in enumerate(parties):
        p.send(SERVER, "up", held[m])
    total(world, inputs)
    return world


@sound({SERVER})
def releases_with_noise() -> World:
    """Two DP releases with fresh noise each, and their sum as post-processing."""
    world = World(P)
    a, server = world.party(0), world.party(SERVER)
    x = world.secret(0, "x0", np.ones((4, 2)), real=True)
    got = [a.send(SERVER, "release", a.gaussian(x.clip(1.0), 2.0)) for _ in range(2)]
    server.send(1, "mean", got[0].map(plus, got[1]))
    return world


@sound({3})
def ciphertexts_summed() -> World:
    """Ciphertexts are summed before the key's holder gets them."""
    world, parties, server, inputs = start(4)
    got = [p.send(SERVER, "cipher", p.encrypt(x, 3)) for p, x in zip(parties, inputs, strict=True)]
    server.send(3, "cipher", got[0] + got[1] + got[2] + got[3])
    total(world, inputs, to=[3])
    return world


@sound({SERVER, 3})
def masks_with_dropout() -> World:
    """Bonawitz with a client that is gone: its pair keys are rebuilt, and others' self seeds."""
    world, parties, server, inputs = start(4)
    own = [p.key("self") for p in parties]
    pair = {(n, m): parties[n].key("pair") for n in range(4) for m in range(4) if n < m}
    theirs = {(n, m): parties[n].send(m, "pair", k) for (n, m), k in pair.items()}
    shares: dict[tuple[int, int], Any] = {}
    for n, p in enumerate(parties):
        for point, s in p.split_key(own[n], 3, [1, 2, 3, 4]).items():
            shares[n, point] = s if point - 1 == n else p.send(point - 1, "seed share", s)
    for n in (1, 2, 3):  # 0 is gone
        p, up = parties[n], inputs[n] + parties[n].prf(own[n], 1, 4, 2)
        for m in range(4):
            if m > n:
                up = up + p.prf(pair[n, m], 1, 4, 2)
            elif m < n:
                up = up - p.prf(theirs[m, n], 1, 4, 2)
        p.send(SERVER, "up", up)
    for n in (1, 2, 3):
        parties[n].send(SERVER, "pair of 0", theirs[0, n])
        opened = {}
        for point in (2, 3, 4):
            opened[point] = parties[point - 1].send(SERVER, "seed share", shares[n, point])
        server.join_key(opened)
    total(world, inputs[1:])
    return world


@sound({SERVER, 2})
def inner_product_of_shares() -> World:
    """Products of Shamir shares, masked by a sharing of zero, decode x y and nothing else."""
    world, parties, _, (x, y, _, _) = start(4, (1, 3))
    y = y.T
    xs, ys = shamir(parties[0], x, 2, [1, 2, 3, 4]), shamir(parties[1], y, 2, [1, 2, 3, 4])
    zero: dict[int, Any] = {}
    for n, p in enumerate(parties):
        tapes = [p.uniform(1, 1) for _ in range(2)]
        for m in range(4):
            s = combination([((m + 1) ** (k + 1), r) for k, r in enumerate(tapes)])
            got = s if m == n else p.send(m, "zero", s)
            zero[m] = got if m not in zero else zero[m] + got
    for m, p in enumerate(parties):
        mine = xs[m] if m == 0 else parties[0].send(m, "x", xs[m])
        other = ys[m] if m == 1 else parties[1].send(m, "y", ys[m])
        p.send(SERVER, "product", mine @ other + zero[m])
    world.output("product", world.spec(x) @ world.spec(y), to=[SERVER])
    return world


@sound({0})
def beaver_product() -> World:
    """A dealer's triple: two parties have shares of x y, and open x - a and y - b to each other."""
    world, (a, b, dealer), _, (x, y, _) = start(3, (1, 3))
    y = y.T
    ta, tb, share = dealer.uniform(1, 3), dealer.uniform(3, 1), dealer.uniform(1, 1)
    a0, c0 = dealer.send(0, "triple", ta), dealer.send(0, "triple", share)
    b1, c1 = dealer.send(1, "triple", tb), dealer.send(1, "triple", ta @ tb - share)
    e = a.send(1, "open", x - a0)
    f = b.send(0, "open", y - b1)
    a.send(SERVER, "z", a0 @ f + c0)  # x y = e f + e b + a f + c
    b.send(SERVER, "z", e @ (y - b1) + e @ b1 + c1)
    return world


@sound({SERVER})
def pad_through_a_relay() -> World:
    """Data from 0 to 1 through the server under a PRF's pad, in two rounds with two labels."""
    world, (a, b), server, (x, _y) = start(2)
    key = a.key()
    theirs = a.send(1, "key", key)
    for r in (0, 1):
        world.round = r
        got = server.send(1, "relay", a.send(SERVER, "relay", (r + 1) * x + a.prf(key, r, 4, 2)))
        _ = got - b.prf(theirs, r, 4, 2)
    return world


def quantised(values: np.ndarray) -> np.ndarray:
    """Fixed point with 8 bits."""
    return np.rint(values * 256).astype(np.int64) % P


@sound({SERVER, 2})
def quantised_columns_in_rounds() -> World:
    """Real columns are quantised and masked afresh in each of two rounds."""
    world = World(P)
    parties = [world.party(n) for n in range(3)]
    data = [world.secret(n, f"x{n}", np.full((4, 2), n / 4), real=True) for n in range(3)]
    for r in (1, 2):
        world.round = r
        q = [v.map(quantised, field=PrimeField(P)) for v in data]
        tapes = [p.uniform(4, 2) for p in parties]
        got = [p.send((n + 1) % 3, "mask", tapes[n]) for n, p in enumerate(parties)]
        for n, p in enumerate(parties):
            p.send(SERVER, "up", r * q[n] + tapes[n] - got[n - 1])
        total(world, [r * v for v in q], f"sum {r}")
    return world


@sound({SERVER, 2})
def packed_in_a_small_field() -> World:
    """Modulo 3, with stacked and concatenated messages, transposes and slices."""
    world, parties, _, inputs = start(4, (2, 3), p=3)
    tape = parties[0].uniform(2, 6)
    got = parties[0].send(1, "mask", tape)
    more = parties[0].uniform(3, 2)
    far = parties[0].send(3, "mask", more)
    parties[0].send(
        SERVER, "up", stack([2 * inputs[0] + tape[:, :3] + more.T, tape[:, 3:] - more.T])
    )
    parties[1].send(SERVER, "up", concatenate([2 * inputs[1] - got[:, :3], -got[:, 3:]], axis=1))
    parties[3].send(SERVER, "up", far - 1)
    world.output("sum", 2 * (world.spec(inputs[0]) + world.spec(inputs[1])), to=[SERVER])
    return world


VARIANTS.append(
    Change(
        "last_gets_the_rest",
        (
            ("for j in self.peers if j != self.index}", "for j in self.peers[:-1]}"),
            (
                "shares[self.index] = secret - sum(shares.values())",
                "shares[self.peers[-1]] = secret - sum(shares.values())",
            ),
        ),
        frozenset({SERVER, 0, 3}),
        (),
        "The last client gets the rest of each embedding, the others tapes.",
    )
)
